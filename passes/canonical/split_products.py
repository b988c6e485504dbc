"""Multiply with matrices one by one where a program joins them and cuts the product apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, NamedTuple

from minigraph.ir import Operator, Program
from minigraph.passes.base import Pass
from minigraph.passes.rewriting import insert_for
from minigraph.passes.values import Value, Values


class SplitProducts(Pass):
    """Turn ``split(mul(x, concat(weights)))`` into a ``mul`` for each weight, and its gradient likewise.

    The weights are joined along their columns, and the product is cut into the columns of each; nothing else reads what
    was joined. Such projections of an attention then have the form of separate ones, without copies of the weights in
    each run.

    Law: every element is the same sum of products, whose terms a product of other sizes may add in another order; the
    gradient of x becomes a sum of one product for each weight.
    """

    changes_rounding: ClassVar[bool] = True
    keeps_gradients: ClassVar[bool] = False

    def apply(self, program: Program) -> bool:
        ops = program.global_block().ops
        if not ops.of_type("concat") or not ops.of_type("split") or not ops.of_type("mul"):
            return False
        values = Values(program)
        found = [each for op in ops.of_type("mul") if (each := _projection(op, values)) is not None]
        for each in found:
            _replace(each, values)
        return bool(found)


class _Backward(NamedTuple):
    """The gradient of a joined projection: the operators that join, multiply and cut."""

    join: Operator
    product: Operator
    cut: Operator


class _Projection(NamedTuple):
    """The operators that join the weights, multiply with them and cut the product, and those of its gradient."""

    join: Operator
    product: Operator
    cut: Operator
    backward: _Backward | None


def _projection(product: Operator, values: Values) -> _Projection | None:
    """Return the projection by joined weights whose product is `product`, if it may be replaced."""
    whole, weights = values.output(product, "Out"), values.input(product, "Y")
    join, cuts = values.producer(weights, "concat"), values.readers[whole]
    if join is None or [op.type for op in cuts] != ["split"] or product.attr("y_num_col_dims") != 1:
        return None
    cut, readers = cuts[0], [op for op in values.readers[weights] if op is not product]
    if any(values.is_live_out(value) for value in (whole, weights)) or not _fit(join, cut, product, values):
        return None
    backward = _backward(readers[0], join, product, values) if len(readers) == 1 else None
    if len(readers) > 1 or (readers and backward is None):
        return None
    places = (cut,) if backward is None else (cut, backward.cut)
    needed = [values.input(product, "X"), *_all(values, join, "X")]
    return (
        _Projection(join, product, cut, backward)
        if all(values.is_there(value, op) for value in needed for op in places)
        else None
    )


def _all(values: Values, op: Operator, slot: str) -> list[Value]:
    return [values.input(op, slot, i) for i in range(len(op.inputs[slot]))]


def _shapes(values: Values, found: Sequence[Value]) -> list[tuple[int, ...]]:
    types = [values.type_of(value) for value in found]
    return [() if each is None else each.shape for each in types]


def _fit(join: Operator, cut: Operator, product: Operator, values: Values) -> bool:
    """Whether the weights are joined along their columns, and the product is cut at the same places."""
    given = [values.output(cut, "Out", i) for i in range(len(cut.outputs["Out"]))]
    parts, matrices = _shapes(values, given), _shapes(values, _all(values, join, "X"))
    (whole,) = _shapes(values, [values.output(product, "Out")])
    return (
        all(len(each) == 2 for each in matrices)
        and _axis(join, 2) == 1
        and _axis(cut, len(whole)) == product.attr("x_num_col_dims") == len(whole) - 1
        and [each[-1:] for each in parts] == [each[-1:] for each in matrices]
        and all(-1 not in each for each in matrices)
    )


def _axis(op: Operator, rank: int) -> int:
    """The dimension along which `op` joins or cuts; -1 if an input says it."""
    is_given = any(op.inputs.get(slot) for slot in ("AxisTensor", "SectionsTensorList"))
    return -1 if is_given else op.attr("axis") % max(rank, 1)


def _backward(reader: Operator, join: Operator, product: Operator, values: Values) -> _Backward | None:
    """Return the gradient that `reader`, which reads the joined weights, belongs to."""
    if reader.type != "mul_grad" or not reader.outputs.get("Y@GRAD"):
        return None
    together = values.producer(values.input(reader, "Out@GRAD"), "concat")
    gradient, parts = values.output(reader, "Y@GRAD"), values.readers[values.output(reader, "Y@GRAD")]
    if together is None or [op.type for op in parts] != ["concat_grad"] or values.is_live_out(gradient):
        return None
    (cut,), weights = parts, _all(values, join, "X")
    flowing = _all(values, together, "X")
    widths = [[each[-1:] for each in _shapes(values, found)] for found in (flowing, weights)]
    same = values.input(reader, "X") == values.input(product, "X") and _all(values, cut, "X") == weights
    same = same and all(reader.attr(f"{each}_num_col_dims") == product.attr(f"{each}_num_col_dims") for each in "xy")
    (shape,) = _shapes(values, [values.input(reader, "Out@GRAD")])
    is_cut = _axis(cut, 2) == 1 and _axis(together, len(shape)) == len(shape) - 1 and widths[0] == widths[1]
    if not same or not is_cut or not values.is_used_once(values.input(reader, "Out@GRAD")):
        return None
    if not all(values.is_there(value, cut) for value in flowing) or not all(cut.outputs["X@GRAD"]):
        return None
    if reader.outputs.get("X@GRAD"):  # moves to where the gradients of the weights are made
        d_x = values.output(reader, "X@GRAD")
        early = [op for op in values.readers[d_x] if values.position[op] < values.position[cut]]
        if early or not values.is_first(d_x):
            return None
    return _Backward(together, reader, cut)


def _replace(found: _Projection, values: Values) -> None:
    join, product, cut, back = found
    (x,), weights = product.inputs["X"], join.inputs["X"]
    attrs = {"x_num_col_dims": product.attr("x_num_col_dims")}
    for weight, part in zip(weights, cut.outputs["Out"], strict=True):
        insert_for(cut, "mul", {"X": x, "Y": weight}, {"Out": part}, attrs)
    if back is not None:
        whole, parts = back.product.outputs.get("X@GRAD"), list[str]()
        given = values.type_of(values.input(product, "X"))
        assert given is not None
        for weight, flowing, gradient in zip(weights, back.join.inputs["X"], back.cut.outputs["X@GRAD"], strict=True):
            outputs = {"Y@GRAD": gradient}
            if whole:
                name = cut.block.free_name(f"{whole[0]}.part")
                cut.block.create_var(name=name).tensor_type = given
                parts.append(name)
                outputs["X@GRAD"] = name
            insert_for(back.cut, "mul_grad", {"X": x, "Y": weight, "Out@GRAD": flowing}, outputs, attrs)
        if whole:
            insert_for(back.cut, "sum", {"X": parts}, {"Out": whole}, {})
        for op in (back.cut, back.product, back.join):
            op.block.remove(op)
    for op in (cut, product, join):
        op.block.remove(op)
