"""Fuse elementwise operators that read each other's results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isnan, prod
from typing import Any, ClassVar

from minigraph.ir import Block, Operator, Program
from minigraph.kernels import find_kernel
from minigraph.kernels.formulas import TYPES, has_formula
from minigraph.opdef import EMPTY
from minigraph.ops.fused import MOST_RESULTS
from minigraph.passes.base import Pass
from minigraph.passes.rewriting import insert_for
from minigraph.passes.values import Value, Values
from minigraph.runtime.kernel_call import attrs_for_kernel, has_rows
from minigraph.support.fused_calls import Argument, FusedCall
from minigraph.types import DType, TensorType

_MOST_OPERATORS = 20
"""Maximum operators in a group: longer groups take long to compile and gain little."""

_BATCH = 32
"""Minimum of the first dimension for which groups are formed: that of a batch, which may be smaller."""

_MOST_INPUTS = 16
"""Maximum values that a group reads."""


@dataclass(frozen=True)
class FuseElementwise(Pass):
    """Replace elementwise operators that feed each other by one ``fused_elementwise``, which lists them in order.

    A group stands where its last operator stood. Values that only the group reads need no memory any more; those that
    others read are its results. All results in a group have one shape and one element type.

    Law: every value keeps its bits, because the single kernels compute them, piece by piece where arrays are large. No
    operator moves past a reader of its result, nor past a write to a name that it reads or writes. Persistable
    variables are written as before. An executor that compiles loops rounds exponentials in its own way, see
    `minigraph.kernels.jit`. A group has the role of its last operator, so that the result is a program to run, and not
    one to clone for tests or to divide among ranks.

    Attributes
    ----------
    least : int
        Minimum elements of a result: for fewer, a group costs as much as its operators. The first dimension counts as
        the power of two below it, and as 32 at least, so that programs need not be rewritten for each batch.
    """

    keeps_roles: ClassVar[bool] = False

    least: int = 1024

    def apply(self, program: Program) -> bool:
        block = program.global_block()
        kinds = {op: kind for op in block.ops[:] if op.type in TYPES and (kind := self._kind(op, block)) is not None}
        if len(kinds) < 2:
            return False
        values = Values(program)
        groups = self._groups(kinds, values)
        for group in groups:
            group.replace(values)
        return bool(groups)

    def _groups(self, kinds: Mapping[Operator, TensorType], values: Values) -> list[_Group]:
        group_of: dict[Operator, _Group] = {}
        for op, kind in kinds.items():
            group = _Group(kind)
            group.add(op, values)
            group_of[op] = group
            # Groups grow along values, from the operator to those that made its operands; independent chains stay
            # apart.
            for before in _makers(op, values):
                earlier = group_of.get(before)
                if earlier is not None and earlier is not group and earlier.may_join(group, op, values):
                    earlier.join(group, group_of)
                    group = earlier
        return [group for group in dict.fromkeys(group_of.values()) if len(group.ops) > 1 and group.results(values)]

    def _is_large(self, shape: Sequence[int]) -> bool:
        """Whether a result is large enough; a batch is asked for only if the elements of a sample are few."""
        rows, each = _BATCH, prod(shape[1:])
        while 0 < rows * each < self.least:
            rows *= 2
        return rows * each >= self.least and (rows == _BATCH or prod(shape[:1]) >= rows)

    def _kind(self, op: Operator, block: Block) -> TensorType | None:
        """Return the type of all results of `op`; None if it may not be fused."""
        variables = [block.vars[name] for name in op.output_arg_names]
        kind = variables[0].tensor_type if variables else None
        if kind is None or -1 in kind.shape or not self._is_large(kind.shape) or not kind.dtype.is_floating:
            return None
        # Persistable variables outlive the run, and are written whole.
        if any(var.persistable or var.tensor_type != kind for var in variables):
            return None
        if kind.is_array or has_rows(op, block) or not is_plain(op, kind.dtype):
            return None
        read = [block.vars[name].tensor_type for name in op.input_arg_names]
        if any(each is None or each.dtype is not kind.dtype or -1 in each.shape for each in read):
            return None
        # The other operands are broadcast to the first.
        return kind if op.type == "sum" or (read[0] is not None and read[0].shape == kind.shape) else None


def is_plain(op: Operator, dtype: DType) -> bool:
    """Whether no attribute is given as a tensor, and each can be written as text."""
    if op.type in ("scale", "clip", "clip_grad") and any(op.inputs.get(s) for s in ("ScaleTensor", "Min", "Max")):
        return False
    if not has_formula(op.type, op.attrs, dtype.numpy):
        return False
    # NaN has no literal that would be read back.
    return not any(isinstance(value, float) and isnan(value) for value in op.attrs.values())


def _makers(op: Operator, values: Values) -> list[Operator]:
    made = [values.writer.get(values.read(name, op)) for name in op.input_arg_names if name != EMPTY]
    return list(dict.fromkeys(maker for maker in made if maker is not None))


@dataclass(eq=False)
class _Group:
    """Operators whose results have one type, in the order of the program."""

    kind: TensorType
    ops: list[Operator] = field(default_factory=list)
    read: dict[Value, None] = field(default_factory=dict)
    written: dict[Value, None] = field(default_factory=dict)

    def add(self, op: Operator, values: Values) -> None:
        self.ops.append(op)
        self.read.update(dict.fromkeys(values.read(name, op) for name in op.input_arg_names if name != EMPTY))
        self.written.update(dict.fromkeys(values.written(name, op) for name in op.output_arg_names if name != EMPTY))

    def may_join(self, later: _Group, last: Operator, values: Values) -> bool:
        """Whether these operators may move to `last`, the end of `later`, and become one group with it."""
        if self.kind != later.kind or len(self.ops) + len(later.ops) > _MOST_OPERATORS:
            return False
        together = {**self.written, **later.written}
        outer = [value for value in (*self.read, *later.read) if value not in together]
        if len(dict.fromkeys(outer)) > _MOST_INPUTS:
            return False
        at = values.position[last]
        # A reader in between would then come before the value that it reads.
        members = {*self.ops, *later.ops}
        if any(
            reader not in members and values.position[reader] < at
            for value in together
            for reader in values.readers.get(value, ())
        ):
            return False
        # Every name must mean at `last` what it meant where it was read or written.
        if not all(values.is_there(value, last) for value in outer):
            return False
        if not all(values.is_there(value, last) for value in self.written):
            return False
        needed = [value for value in together if _is_needed(value, members, values)]
        return len(needed) <= MOST_RESULTS

    def join(self, later: _Group, group_of: dict[Operator, _Group]) -> None:
        self.ops += later.ops
        self.read.update(later.read)
        self.written.update(later.written)
        for op in later.ops:
            group_of[op] = self

    def results(self, values: Values) -> list[Value]:
        """Return the values that others read."""
        members = set(self.ops)
        return [value for value in self.written if _is_needed(value, members, values)]

    def replace(self, values: Values) -> None:
        """Replace the last operator by one for all, and remove the others."""
        self.ops.sort(key=values.position.__getitem__)
        last, results = self.ops[-1], self.results(values)
        outer = [value for value in self.read if value not in self.written]
        names = {value: f"x{i}" for i, value in enumerate(dict.fromkeys(outer))}
        names |= {value: f"y{i}" for i, value in enumerate(results)}
        inner = [value for value in self.written if value not in names]
        names |= {value: f"t{i}" for i, value in enumerate(inner)}
        steps = [str(call_in_group(op, names, values)) for op in self.ops]
        outputs = {("Out" if i == 0 else f"Out{i}"): [value[0]] for i, value in enumerate(results)}
        insert_for(last, "fused_elementwise", {"X": [v[0] for v in dict.fromkeys(outer)]}, outputs, {"steps": steps})
        for op in self.ops:
            op.block.remove(op)


def _is_needed(value: Value, members: set[Operator], values: Values) -> bool:
    """Whether the value is read by others than `members`, or outside of the block."""
    return values.is_live_out(value) or any(reader not in members for reader in values.readers.get(value, ()))


def call_in_group(op: Operator, names: Mapping[Value, str], values: Values) -> FusedCall:
    """The call of an operator in a group, on `names` of values."""
    kernel = find_kernel(op.type, "cpu")
    assert kernel is not None

    def argument(slot: Any) -> Argument:
        found = tuple(names[values.read(name, op)] for name in op.inputs.get(slot.name, ()))
        return found if slot.duplicable else found[0] if found else None

    def result(slot: Any) -> str | None:
        found: Sequence[str] = [name for name in op.outputs.get(slot.name, ()) if name != EMPTY]
        return names[values.written(found[0], op)] if found else None

    definition = op.definition
    inputs, outputs = tuple(map(argument, definition.inputs)), tuple(map(result, definition.outputs))
    return FusedCall(op.type, inputs, outputs, attrs_for_kernel(op, kernel))
