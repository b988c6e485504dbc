"""Values that are consecutive elements of other values, whatever operators cut them out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from itertools import accumulate
from math import prod
from typing import NamedTuple, TypeAlias

from minigraph import unique_name
from minigraph.ir import Operator
from minigraph.passes.rewriting import insert_for
from minigraph.passes.values import Value, Values
from minigraph.support.slice_rules import span

Shape: TypeAlias = "tuple[int, ...]"


class Part(NamedTuple):
    """The elements from `start` on, `size` of them, of `whole` row by row."""

    whole: Value
    start: int
    size: int


class Parts(Values):
    """Reaching definitions that also know which values are parts of others."""

    def part(self, value: Value) -> Part:
        """Return the part of a value that `value`, of known shape, was cut from; all of `value` if it was not cut."""
        return self._parts.get(value) or Part(value, 0, prod(self.block.vars[value[0]].shape or ()))

    @cached_property
    def _parts(self) -> Mapping[Value, Part]:
        found: dict[Value, Part] = {}
        for op in self.position:
            cut = _CUTS.get(op.type)
            if cut is None or any(len(names) != 1 for names in op.inputs.values()):
                continue
            slot = "Input" if op.type == "slice" else "X"
            if set(op.inputs) != {slot}:
                continue
            source = self.input(op, slot)
            outs = op.outputs.get("Out") or op.outputs["Y"]
            shapes = [self.block.vars[name].shape or (-1,) for name in (source[0], *outs)]
            # Unknown sizes say nothing of offsets, and empty values have none.
            if any(size < 1 for shape in shapes for size in shape) or len(set(outs)) < len(outs):
                continue
            starts = cut(op, shapes[0], shapes[1:])
            # A part of a part is one of the whole, so that parts of one value are known whatever cuts lie between.
            whole = found.get(source) or Part(source, 0, prod(shapes[0]))
            for name, start, shape in zip(outs, starts, shapes[1:], strict=False):
                found[self.written(name, op)] = Part(whole.whole, whole.start + start, prod(shape))
        return found

    def can_join(self, matrix: Value, op: Operator) -> bool:
        """Whether the rows of a matrix are known where `op` reads."""
        return self._rows(matrix, op) is not None

    def join_rows(self, op: Operator, matrices: Sequence[Value], like: str) -> str:
        """Insert operators before `op` that make one matrix of the rows of several; returns its name.

        Rows that are consecutive in one value are read from it as one piece; the pieces are joined.
        """
        columns = (self.block.vars[matrices[0][0]].shape or ())[-1]
        runs: list[Part] = []
        for value in matrices:
            part = self._rows(value, op)
            assert part is not None
            last = runs[-1] if runs else None
            # Neighbours make one piece: it needs no copy to join them.
            if last is not None and last.whole == part.whole and last.start + last.size == part.start:
                runs[-1] = last._replace(size=last.size + part.size)
            else:
                runs.append(part)
        names = [_matrix_of(run, columns, op) for run in runs]
        if len(names) == 1:
            return names[0]
        joined = unique_name.generate(f"{like}@MERGED")
        insert_for(op, "concat", {"X": names}, {"Out": joined}, {"axis": 0})
        return joined

    def _rows(self, matrix: Value, op: Operator) -> Part | None:
        """Return the part of an available value that `matrix` is, if that value divides into rows of this length."""
        part, columns = self.part(matrix), (self.block.vars[matrix[0]].shape or ())[-1]
        size = prod(self.block.vars[part.whole[0]].shape or ())
        if columns and part.start % columns == size % columns == 0 and self.is_there(part.whole, op):
            return part
        return Part(matrix, 0, part.size) if self.is_there(matrix, op) else None


def _matrix_of(part: Part, columns: int, op: Operator) -> str:
    """Insert before `op` what takes `part` as a matrix with so many columns; returns the name of the matrix."""
    name, block = part.whole[0], op.block
    shape = block.vars[name].shape or ()
    # A reshape moves nothing; it only lets the slice count rows of the wanted length.
    if shape[1:] != (columns,):
        rows, x_shape = (unique_name.generate(f"{name}@{what}") for what in ("ROWS", "SHAPE"))
        attrs = {"shape": [prod(shape) // columns, columns]}
        insert_for(op, "reshape2", {"X": name}, {"Out": rows, "XShape": x_shape}, attrs)
        name = rows
    if part.size == prod(shape):
        return name
    some = unique_name.generate(f"{name}@SOME")
    start, end = part.start // columns, (part.start + part.size) // columns
    insert_for(op, "slice", {"Input": name}, {"Out": some}, {"axes": [0], "starts": [start], "ends": [end]})
    return some


def _all(op: Operator, shape: Shape, outs: Sequence[Shape]) -> Sequence[int]:
    return [0]


def _unstack(op: Operator, shape: Shape, outs: Sequence[Shape]) -> Sequence[int]:
    is_first = prod(shape[: op.attr("axis") % len(shape)]) == 1
    return [i * prod(outs[0]) for i in range(len(outs))] if is_first else ()


def _split(op: Operator, shape: Shape, outs: Sequence[Shape]) -> Sequence[int]:
    is_first = prod(shape[: op.attr("axis") % len(shape)]) == 1
    return list(accumulate(map(prod, outs), initial=0))[:-1] if is_first else ()


def slice_starts(op: Operator, shape: Shape, outs: Sequence[Shape] = ()) -> Sequence[int]:
    """Return the first element that a slice takes, counted row by row; none if those it takes are not consecutive.

    They are consecutive if the slice takes one element of every dimension before the last one that it cuts.
    """
    spans = {i: (0, size) for i, size in enumerate(shape)}
    for axis, first, last in zip(op.attr("axes"), op.attr("starts"), op.attr("ends"), strict=True):
        taken = span(shape[axis], first, last)
        spans[axis % len(shape)] = taken.start, taken.stop
    # Dimensions that are taken whole keep their elements side by side.
    cut = [i for i, (first, last) in spans.items() if last - first < shape[i]]
    if any(spans[i][1] - spans[i][0] > 1 for i in range(max(cut, default=0))):
        return ()
    return [sum(spans[i][0] * prod(shape[i + 1 :]) for i in cut)]


_CUTS: Mapping[str, Callable[[Operator, Shape, Sequence[Shape]], Sequence[int]]] = {
    "reshape2": _all, "squeeze2": _all, "unsqueeze2": _all, "flatten2": _all, "unstack": _unstack, "split": _split,
    "slice": slice_starts,
}  # fmt: skip
"""Operators that cut a value, each with the first element of each result; none if these are not consecutive."""
