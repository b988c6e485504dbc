"""Reaching definitions, and edits that keep an operator's role and line.

A name may be written several times, a value is written once.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from math import inf, prod
from typing import Any, ClassVar, TypeAlias

from minigraph import unique_name
from minigraph.ir import Block, Names, Operator, Program
from minigraph.ir.dataflow import is_persistable
from minigraph.kernels import find_kernel
from minigraph.opdef import EMPTY, SUB_BLOCK, definition_of
from minigraph.passes.base import Pass

Version: TypeAlias = "tuple[str, int]"
"""A name, and how often it has been written until then; 0 stands for a value from outside."""


class ReachingDefs:
    """Values that the operators of a program's global block read and write, as it stands when this is made.

    It stays right when operators are removed, inputs are replaced, or operators with new names are inserted.
    """

    def __init__(self, program: Program) -> None:
        self.block = program.global_block()
        self._roots = None if program.roots is None else frozenset(program.roots)
        self.position: dict[Operator, int] = {}
        self.readers: defaultdict[Version, list[Operator]] = defaultdict(list)
        self.writer: dict[Version, Operator] = {}
        self._writes: dict[str, list[int]] = {}
        """Positions of the operators that write a name, in order."""
        for index, op in enumerate(self.block.ops[:]):
            self.position[op] = index
            for name in op.input_arg_names:
                positions = self._writes.get(name)
                readers = self.readers[name, len(positions) if positions else 0]
                if not readers or readers[-1] is not op:  # once, even if it reads the value in two slots
                    readers.append(op)
            for name in op.output_arg_names:
                positions = self._writes.setdefault(name, [])
                positions.append(index)
                self.writer[name, len(positions)] = op

    def read(self, name: str, op: Operator) -> Version:
        """Return the value that `op` reads under this name."""
        # An operator reads before it writes, so its own write does not count.
        positions = self._writes.get(name)
        return name, bisect_left(positions, self.position[op]) if positions else 0

    def written(self, name: str, op: Operator) -> Version:
        """Return the value that `op` writes under this name."""
        return name, self.read(name, op)[1] + 1

    def input(self, op: Operator, slot: str) -> Version:
        """Return the value that `op` reads in a slot of one variable."""
        return self.read(op.inputs[slot][0], op)

    def output(self, op: Operator, slot: str) -> Version:
        """Return the value that `op` writes to a slot of one variable."""
        return self.written(op.outputs[slot][0], op)

    def defining_op(self, value: Version, *types: str) -> Operator | None:
        """Return the operator that writes `value`, if it is of one of these types."""
        op = self.writer.get(value)
        return op if op is not None and op.type in types else None

    def is_there(self, value: Version, op: Operator) -> bool:
        """Whether the name of `value` still means that value where `op` reads."""
        return self.read(value[0], op) == value

    def is_live_out(self, value: Version) -> bool:
        """Whether the value may be read outside of the block: the last of its name, which is fetched or persistable."""
        name, number = value
        if number < len(self._writes.get(name, ())):
            return False
        var = self.block.find_var(name)
        return self._roots is None or name in self._roots or (var is not None and var.persistable)

    def is_used_once(self, value: Version) -> bool:
        """Whether exactly one operator reads the value, and nothing outside of the block."""
        return len(self.readers[value]) == 1 and not self.is_live_out(value)

    def is_matrix(self, name: str, most_elements: float = inf) -> bool:
        """Whether a variable is a matrix of known shape with at most `most_elements` elements."""
        shape = self.block.vars[name].shape or ()
        return len(shape) == 2 and -1 not in shape and prod(shape) <= most_elements


@dataclass(frozen=True)
class MergeSmall(Pass):
    """Base of the passes that merge operators on many small matrices, such as those of the steps of a network.

    Attributes
    ----------
    least : int
        Minimum parts that are merged.
    most_elements : int
        Maximum elements of a part; for a larger one the arithmetic takes longer than the call.
    """

    changes_rounding: ClassVar[bool] = True

    least: int = 4
    most_elements: int = 65536


def insert_for(
    op: Operator, type: str, inputs: Mapping[str, Names], outputs: Mapping[str, Names], attrs: Mapping[str, Any]
) -> Operator:
    """Insert an operator before `op`, with the role, name scope and source line of `op`."""
    fields = {"op_role": op.role, "op_role_var": op.role_vars, "op_namescope": op.namescope}
    with op.block.inserting_before(op):
        return op.block.append_op(type, inputs, outputs, {**attrs, **fields})


def redirect(op: Operator, names: Mapping[str, str]) -> None:
    """Let `op` read other names; an operator that reads names outside of its slots is left alone."""
    if not names or op.definition.has_hidden_names:
        return
    for slot, given in list(op.inputs.items()):
        if any(name in names for name in given):
            op.set_input(slot, [names.get(name, name) for name in given])


@cache
def is_random(op_type: str) -> bool:
    """Whether operators of this type may draw random numbers or have other effects, as those with a sub-block may."""
    definition = definition_of(op_type)
    if SUB_BLOCK in definition.attrs or definition.has_effect:
        return True
    kernel = find_kernel(op_type, "cpu")
    return kernel is not None and kernel.takes_rng


def outputs_in_use(op: Operator, block: Block, wanted: set[str]) -> dict[str, tuple[str, ...]]:
    """The output slots of `op` without those of a gradient that is neither wanted later nor persisted."""
    if not any(map(wanted.isdisjoint, op.outputs.values())):
        return op.outputs
    kernel, slots = find_kernel(op.type, "cpu"), op.definition.output_slots
    if kernel is None or not kernel.takes_wanted:
        return op.outputs
    return {
        slot: names
        for slot, names in op.outputs.items()
        if not wanted.isdisjoint(names)
        or slots[slot].duplicable
        or not slots[slot].dispensable
        or any([is_persistable(block.find_var(name)) for name in names])
    }


def sums_of(program: Program, type: str, least: int) -> list[Operator]:
    """Return the sums of at least `least` gradients that operators of this type write to ``Y@GRAD``."""
    ops = program.global_block().ops
    sums = [op for op in ops.of_type("sum") if len(op.inputs["X"]) >= least]
    parts = {name for op in ops.of_type(type) for name in op.outputs.get("Y@GRAD", ())} if sums else ()
    return [op for op in sums if sum(name in parts for name in op.inputs["X"]) >= least]


def parts_of(total: Operator, type: str, values: ReachingDefs) -> Iterator[tuple[str, Operator]]:
    """Yield the parts of a sum that operators of this type write to ``Y@GRAD``, with these, in forward order.

    Parts that others read or that are added twice are left out.
    """
    counts = Counter(total.inputs["X"])
    for name in reversed(total.inputs["X"]):
        part = values.read(name, total)
        grad = values.defining_op(part, type)
        is_own = counts[name] == 1 and values.is_used_once(part)
        if is_own and grad is not None and grad.outputs.get("Y@GRAD") == (name,):
            yield name, grad


def is_read_by_many(program: Program, type: str, least: int) -> bool:
    """Whether at least `least` operators of a type read one name in ``Y``."""
    weights = Counter([op.inputs["Y"][0] for op in program.global_block().ops.of_type(type)])
    return any(count >= least for count in weights.values())


def replace_parts(
    total: Operator, parts: Mapping[str, Operator], type: str, inputs: Mapping[str, Names], slot: str,
    attrs: Mapping[str, Any],
) -> None:  # fmt: skip
    """Insert an operator whose output `slot` replaces `parts` in the sum `total`, or the whole sum.

    The gradient operators in `parts` no longer compute them.
    """
    rest = [name for name in total.inputs["X"] if name not in parts]
    out = unique_name.generate(f"{total.outputs['Out'][0]}@MERGED") if rest else total.outputs["Out"][0]
    insert_for(total, type, inputs, {slot: out}, attrs)
    if rest:
        total.set_input("X", [*rest, out])
    else:
        total.block.remove(total)
    for name, grad in parts.items():
        if any(each != EMPTY for each in grad.outputs.get("X@GRAD", ())):
            grad.replace_output(name, EMPTY)
        else:
            grad.block.remove(grad)
