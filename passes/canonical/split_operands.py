"""Multiply values one by one with rows of a matrix where a program joins them and multiplies the whole."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from minigraph.ir import Operator, Program
from minigraph.opdef import EMPTY
from minigraph.passes.rewriting import MergeSmall, insert_for, is_matrix, is_read_by_many
from minigraph.passes.values import Value, Values


class SplitOperands(MergeSmall):
    """Turn ``mul(concat(x, h), w)`` into ``mul(x, rows of w) + mul(h, other rows of w)``, and its gradient likewise.

    Cells of recurrent networks join their input with their state. Apart, `MergeProducts` makes the products of all
    inputs one, which it cannot where each has a state beside it. Fewer products with one matrix than `least` are left
    alone, and those of a value with more than `most_elements` elements.

    Law: every element is the same sum of products, whose terms are added in another order.
    """

    def apply(self, program: Program) -> bool:
        if "concat" not in program.global_block().ops.by_type or not is_read_by_many(program, "mul", self.least):
            return False
        values = Values(program)
        products, gradients = (self._joined(type, values) for type in ("mul", "mul_grad"))
        found = {key: ops for key, ops in products.items() if len(ops) >= self.least}
        joins = _Joins()
        for key, ops in found.items():
            start = values.position[ops[0]]
            later = [op for op in gradients.get(key, ()) if values.position[op] > start]
            _split(ops, later, key.widths, values, joins)
        if joins.cuts:
            joins.add_parts(Values(program))
            joins.skip(Values(program))
            joins.drop_unread(Values(program))
        return bool(found)

    def _joined(self, type: str, values: Values) -> dict[_Key, list[Operator]]:
        """The operators of a type whose X is joined along its columns, by their matrix and the columns of the parts."""
        found: defaultdict[_Key, list[Operator]] = defaultdict(list)
        for op in values.block.ops.of_type(type):
            join = values.producer(values.input(op, "X"), "concat")
            if join is not None and self._is_small(join, op, values):
                found[_Key(values.input(op, "Y"), _widths(join, join.inputs["X"]))].append(op)
        return found

    def _is_small(self, join: Operator, op: Operator, values: Values) -> bool:
        """Whether small matrices are joined along their columns, and are all still there at `op`."""
        block, names = values.block, join.inputs["X"]
        matrices = is_matrix(block, op.inputs["Y"][0]) and all(is_matrix(block, name) for name in names)
        is_small = matrices and is_matrix(block, op.inputs["X"][0], self.most_elements)
        if not is_small or join.inputs.get("AxisTensor") or join.attr("axis") not in (1, -1) or len(names) < 2:
            return False
        return all(values.is_there(values.input(join, "X", i), op) for i in range(len(names)))


class _Key(NamedTuple):
    """Properties that products have in common if they are split together."""

    matrix: Value
    widths: tuple[int, ...]


def _widths(op: Operator, names: Sequence[str], axis: int = 1) -> tuple[int, ...]:
    return tuple((op.block.vars[name].shape or ())[axis] for name in names)


def _split(
    products: Sequence[Operator], gradients: Sequence[Operator], widths: Sequence[int], values: Values, joins: _Joins
) -> None:
    """Replace products, and gradients of products, of joined values with one matrix."""
    block, (matrix,) = values.block, products[0].inputs["Y"]
    rows, ends = [], list(accumulate(widths))
    for start, end in zip([0, *ends], ends, strict=False):
        rows.append(_like(products[0], matrix, f"{matrix}.rows", (end - start, *(block.vars[matrix].shape or ())[1:])))
        attrs = {"axes": [0], "starts": [start], "ends": [end]}
        insert_for(products[0], "slice", {"Input": matrix}, {"Out": rows[-1]}, attrs)
    for op in products:
        parts = [_like(op, op.outputs["Out"][0]) for _ in rows]
        for x, row, part in zip(_joined_by(op, values), rows, parts, strict=True):
            insert_for(op, "mul", {"X": x, "Y": row}, {"Out": part}, {})
        insert_for(op, "sum", {"X": parts}, op.outputs, {})
        block.remove(op)
    for op in gradients:
        wanted = {slot: name for slot, names in op.outputs.items() for name in names if name != EMPTY}
        xs, made = _joined_by(op, values), defaultdict[str, list[str]](list)
        for x, row in zip(xs, rows, strict=True):
            like = {"X@GRAD": x, "Y@GRAD": row}
            outputs = {slot: _like(op, like[slot], name) for slot, name in wanted.items()}
            d_out = op.inputs["Out@GRAD"]
            joins.gradients.append(insert_for(op, "mul_grad", {"X": x, "Y": row, "Out@GRAD": d_out}, outputs, {}))
            for slot, name in outputs.items():
                made[slot].append(name)
        for slot, name in wanted.items():
            axis = 1 if slot == "X@GRAD" else 0
            joins.cuts[insert_for(op, "concat", {"X": made[slot]}, {"Out": name}, {"axis": axis})] = axis
        block.remove(op)


def _joined_by(op: Operator, values: Values) -> Sequence[str]:
    join = values.producer(values.input(op, "X"), "concat")
    assert join is not None
    return join.inputs["X"]


def _like(op: Operator, name: str, prefix: str | None = None, shape: Sequence[int] | None = None) -> str:
    """Create a variable of the type of another one, for a part."""
    given = op.block.vars[name]
    part = op.block.free_name(prefix or f"{name}.part")
    assert given.tensor_type is not None
    op.block.create_var(name=part).tensor_type = (
        given.tensor_type if shape is None else given.tensor_type.with_shape(shape)
    )
    return part


class _Joins:
    """The gradients that were joined again, of which most are added up, or cut as they were joined."""

    def __init__(self) -> None:
        self.cuts: dict[Operator, int] = {}
        """The dimension along which each operator joins."""
        self.gradients: list[Operator] = []

    def add_parts(self, values: Values) -> None:
        """Add the parts of joined gradients in place of the whole ones."""
        for total in list(values.block.ops.of_type("sum")):
            joins = [self._producer(values.input(total, "X", i), values) for i in range(len(total.inputs["X"]))]
            if None in joins or len({(self.cuts[op], self._sizes(op)) for op in joins if op is not None}) != 1:
                continue
            found = [op for op in joins if op is not None]
            sums = [_like(total, name) for name in found[0].inputs["X"]]
            for name, parts in zip(sums, zip(*(op.inputs["X"] for op in found), strict=True), strict=True):
                insert_for(total, "sum", {"X": list(parts)}, {"Out": name}, {})
            axis = self.cuts[found[0]]
            self.cuts[insert_for(total, "concat", {"X": sums}, total.outputs, {"axis": axis})] = axis
            for op in (total, *found):
                self.cuts.pop(op, None)
                op.block.remove(op)

    def _producer(self, value: Value, values: Values) -> Operator | None:
        """The operator that joins a value which one place alone reads."""
        op = values.producer(value, "concat")
        return op if op in self.cuts and values.is_used_once(value) else None

    def _sizes(self, op: Operator) -> tuple[int, ...]:
        return _widths(op, op.inputs["X"], self.cuts[op])

    def skip(self, values: Values) -> None:
        """Read the parts directly where a joined gradient is cut into them."""
        for cut in list(values.block.ops.of_type("concat_grad")):
            join = self._producer(values.input(cut, "Out@GRAD"), values)
            if join is None or cut.inputs.get("AxisTensor") or cut.attr("axis") % 2 != self.cuts[join]:
                continue
            if _widths(cut, cut.inputs["X"], self.cuts[join]) != self._sizes(join):
                continue
            for part, name in zip(join.inputs["X"], cut.outputs["X@GRAD"], strict=True):
                if name != EMPTY:
                    insert_for(cut, "assign", {"X": part}, {"Out": name}, {})
            for op in (cut, join):
                self.cuts.pop(op, None)
                op.block.remove(op)

    def drop_unread(self, values: Values) -> None:
        """Compute no gradient of an input that needs none."""
        for op in self.gradients:
            for name in op.outputs.get("X@GRAD", ()):
                if not values.users(values.written(name, op)):
                    op.replace_output(name, EMPTY)
