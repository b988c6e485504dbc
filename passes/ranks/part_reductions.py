"""Numbers that operators make of arrays of which each rank has a part."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any, NamedTuple

from minigraph.ir import Block, Operator, Variable

_OF_PARTS = {
    "reduce_sum": "sum", "reduce_mean": "sum", "mean": "sum", "reduce_max": "max", "reduce_min": "min",
    "squared_l2_norm": "squares", "l1_norm": "sizes",
}  # fmt: skip
"""Reduction of the elements of a part, by the type of the operator that reduces the whole array."""
_OF_NUMBERS = {"max": "reduce_max", "min": "reduce_min"}
"""Operator that reduces the numbers of all parts; others are added up."""
_MEANS = frozenset({"reduce_mean", "mean"})


def is_to_one_number(op: Operator) -> bool:
    """Whether `op` reduces all elements of an array, in their own type, in a way that can be done part by part."""
    if op.type not in _OF_PARTS:
        return False
    if not op.type.startswith("reduce"):
        return True
    rank = len(op.block.vars[op.input("X")[0]].shape or ())
    axes = {axis % rank for axis in op.attr("dim")} if rank else set()
    return op.attr("out_dtype") == -1 and (op.attr("reduce_all") or len(axes) == rank)


class _Reduction(NamedTuple):
    """An operator whose result is not made yet."""

    op: Operator
    number: str
    """Name of the numbers of this rank's blocks."""
    size: int
    """Elements of the whole array."""


class Reductions:
    """Numbers of arrays that were reduced part by part, and are exchanged together where one of them is needed.

    Numbers of blocks are added in one order, whatever the ranks that the blocks are on.
    """

    def __init__(self, block: Block, ranks: int, blocks: int) -> None:
        self._block, self._attrs = block, {"nranks": ranks, "blocks": blocks}
        self._waiting: dict[str, _Reduction] = {}
        """Reductions by the names of their results."""

    def add(self, op: Operator, part: str, whole: Variable, by_rows: bool) -> None:
        """Reduce a part in the place of `op`, which reduces the whole array."""
        shape = whole.shape or ()
        attrs = {
            **self._attrs, "reduction": _OF_PARTS[op.type], "size": shape[0] if by_rows else prod(shape),
            "by_rows": by_rows,
        }  # fmt: skip
        (out,) = op.output("Out")
        number = self._insert(op, op, "part_reduction", {"X": part}, f"{out}.part", attrs)
        self._waiting[out] = _Reduction(op, number, prod(shape))
        self._block.remove(op)

    def are_needed_by(self, op: Operator) -> bool:
        """Whether `op` reads or writes one of the results."""
        return bool(self._waiting) and not self._waiting.keys().isdisjoint((*op.input_arg_names, *op.output_arg_names))

    def join_before(self, anchor: Operator | None) -> None:
        """Make the results in front of `anchor`, or at the end, by one exchange."""
        if not self._waiting:
            return
        waiting, self._waiting = list(self._waiting.values()), {}
        first = waiting[0]
        name, op = f"{first.op.output('Out')[0]}.numbers", first.op
        mine = self._insert(anchor, op, "stack", {"X": [each.number for each in waiting]}, name, {"axis": 1}, "Y")
        attrs = {"nranks": self._attrs["nranks"], "use_calc_stream": True}
        whole = self._insert(anchor, op, "c_allgather", {"X": mine}, f"{name}.all", attrs)
        for at, each in enumerate(waiting):
            self._join(anchor, each, whole, at)

    def _join(self, anchor: Operator | None, given: _Reduction, numbers: str, column: int) -> None:
        """Make a result of a column of the numbers of all blocks."""
        op, out = given.op, given.op.output("Out")[0]
        attrs: dict[str, Any] = {"axes": [1], "starts": [column], "ends": [column + 1]}
        name = self._insert(anchor, op, "slice", {"Input": numbers}, f"{out}.all", attrs)
        reduction = _OF_NUMBERS.get(_OF_PARTS[op.type], "reduce_sum")
        name = self._insert(anchor, op, reduction, {"X": name}, f"{out}.whole", {"reduce_all": True})
        if op.type in _MEANS:
            name = self._insert(anchor, op, "scale", {"X": name}, f"{out}.mean", {"scale": 1 / given.size})
        var = self._block.vars[out]
        if var.shape != (1,):
            name = self._reshaped(anchor, op, name, var)
        attrs = {"in_dtype": int(self._block.vars[name].dtype), "out_dtype": int(var.dtype)}
        self._append(anchor, op, "cast", {"X": name}, {"Out": out}, attrs)

    def _reshaped(self, anchor: Operator | None, op: Operator, name: str, like: Variable) -> str:
        shape = self._block.create_var(name=f"{like.name}.shape", stop_gradient=True).name
        found = self._block.create_var(name=f"{like.name}.shaped", stop_gradient=True).name
        attrs = {"shape": list(like.shape or ())}
        self._append(anchor, op, "reshape2", {"X": name}, {"Out": found, "XShape": shape}, attrs)
        return found

    def _insert(
        self, anchor: Operator | None, like: Operator, type: str, inputs: Mapping[str, Any], name: str,
        attrs: Mapping[str, Any], slot: str = "Out",
    ) -> str:  # fmt: skip
        """Insert an operator with one new result, named after `name`."""
        count = 0
        while self._block.has_var(fresh := f"{name}_{count}" if count else name):
            count += 1
        self._block.create_var(name=fresh, stop_gradient=True)
        self._append(anchor, like, type, inputs, {slot: fresh}, attrs)
        return fresh

    def _append(
        self, anchor: Operator | None, like: Operator, type: str, inputs: Mapping[str, Any],
        outputs: Mapping[str, str], attrs: Mapping[str, Any],
    ) -> None:  # fmt: skip
        with self._block.inserting_before(anchor):
            fields = {"op_role": like.role, "op_namescope": like.namescope}
            self._block.append_op(type, dict(inputs), dict(outputs), {**attrs, **fields}).site = like.site
