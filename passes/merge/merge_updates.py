"""Merge the updates of parameters, so that an executor can do them on long vectors."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from math import prod
from typing import Any

from minigraph.ir import Operator, Program, VarKind
from minigraph.opdef import definition_of
from minigraph.ops.merged_updates import MERGED, own_slots
from minigraph.passes.base import Pass
from minigraph.passes.rewriting import insert_for
from minigraph.passes.values import Values

_MERGED_TYPE = {update: merged for merged, update in MERGED.items()}
_OWN = {update: own_slots(definition_of(update)) for update in _MERGED_TYPE}


class MergeUpdates(Pass):
    """Update many parameters by one operator: ``merged_adam`` for several ``adam``, and so on.

    Merged updates agree in type, attributes, shared inputs such as the learning rate, and the dtype of their
    parameters. Their gradients were clipped together or not at all, so that `ShrinkInUpdate` may follow.

    Law: every value keeps its bits, because each element is computed as before. The merged operator stands where the
    last of its updates stood; no operator between them reads or writes their variables.
    """

    def apply(self, program: Program) -> bool:
        by_type = program.global_block().ops.by_type
        if all(len(by_type.get(type, ())) < 2 for type in _MERGED_TYPE):
            return False
        values = Values(program) if "clip_by_global_norm" in by_type else None
        groups = _Groups()
        for op in program.global_block().ops:
            if groups.all:
                groups.advance(op)
            key = _key(op, values) if op.type in _MERGED_TYPE else None
            if key is not None:
                groups.add(op, key)
        several = [group.ops for group in groups.all if len(group.ops) > 1]
        for group in several:
            _merge(group)
        return bool(several)


def _key(op: Operator, values: Values | None) -> Any:
    """Return a key that is equal for updates that may be merged; None if the update `op` may not be.

    `values` may be None where no gradient is clipped by a global norm.
    """
    own = {slot: op.inputs[slot][0] for slot in _OWN[op.type] if op.inputs.get(slot)}
    variables = [op.block.vars[name] for name in own.values()]
    # Selected rows have no place in a vector, nor do arrays of unknown size.
    if any(var.kind is not VarKind.LOD_TENSOR or -1 in (var.shape or (-1,)) for var in variables):
        return None
    common = tuple((slot, names) for slot, names in op.inputs.items() if slot not in own)
    # One factor for all: `ShrinkInUpdate` may apply that of their clip to the whole vector.
    clip = None if values is None else values.producer(values.input(op, "Grad"), "clip_by_global_norm")
    dtypes = tuple(var.dtype for var in variables)
    return op.type, common, tuple(sorted(op.attrs.items())), dtypes, tuple(own), tuple(op.outputs), id(clip)


@dataclass(eq=False)
class _Group:
    key: Any
    ops: list[Operator] = field(default_factory=list)


class _Groups:
    """Groups of updates that may be merged, during a walk through a block."""

    def __init__(self) -> None:
        self.all: list[_Group] = []
        self._open: dict[Any, _Group] = {}
        self._reading: defaultdict[str, dict[_Group, None]] = defaultdict(dict)
        self._writing: defaultdict[str, dict[_Group, None]] = defaultdict(dict)

    def advance(self, op: Operator) -> None:
        """Close the groups that write what `op` reads, or use what `op` writes."""
        # A merged update stands where the last of its group stood, so nothing in between may see the others undone.
        closed = [group for name in op.input_arg_names for group in self._writing.pop(name, ())]
        for name in op.output_arg_names:
            closed += [*self._writing.pop(name, ()), *self._reading.pop(name, ())]
        for group in closed:
            if self._open.get(group.key) is group:
                del self._open[group.key]

    def add(self, op: Operator, key: Any) -> None:
        """Put an update into the open group with this key."""
        group = self._open.get(key)
        if group is None:
            group = self._open[key] = _Group(key)
            self.all.append(group)
        group.ops.append(op)
        for name in op.input_arg_names:
            self._reading[name][group] = None
        for name in op.output_arg_names:
            self._writing[name][group] = None


def _merge(ops: list[Operator]) -> None:
    """Replace the last of `ops` by one operator for all, and remove the others."""
    last, block = ops[-1], ops[-1].block
    own = _OWN[last.type]
    inputs = {
        slot: [op.inputs[slot][0] for op in ops] if slot in own else names
        for slot, names in last.inputs.items()
        if names
    }
    outputs = {slot: [op.outputs[slot][0] for op in ops] for slot, names in last.outputs.items() if names}
    sizes = [prod(block.vars[op.inputs["Param"][0]].shape or ()) for op in ops]
    merged = insert_for(last, _MERGED_TYPE[last.type], inputs, outputs, {**last.attrs, "sizes": sizes})
    merged.role_vars = tuple([name for op in ops for name in op.role_vars])
    for op in ops:
        block.remove(op)
