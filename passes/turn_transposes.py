"""Transpose operands of batched products so that their rows stay rows in memory."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

from minigraph.ir import Operator, Program
from minigraph.passes.base import Pass
from minigraph.passes.values import Value, Values


class TurnTransposes(Pass):
    """Leave the last dimension of a transposed operand of a ``matmul`` last, and let the product transpose it.

    ``matmul(q, transpose2(k, [0, 2, 3, 1]))`` becomes ``matmul(q, transpose2(k, [0, 2, 1, 3]), transpose_Y)``, and the
    gradients likewise, if nothing else reads what changes its shape. A transpose of the last two dimensions alone is
    left to `TransposeIntoMatmul`.

    Law: every element is the same sum of products, whose terms a product of transposed matrices may add in another
    order.
    """

    changes_rounding: ClassVar[bool] = True

    def apply(self, program: Program) -> bool:
        ops = program.global_block().ops
        candidates = [op for op in ops.of_type("transpose2") if _moves_last(list(op.attr("axis")))]
        if not candidates or not ops.of_type("matmul"):
            return False
        values = Values(program)
        found = [each for op in candidates if (each := _operand(op, values)) is not None]
        for each in found:
            _turn(each, values)
        return bool(found)


class _Operand(NamedTuple):
    """The operators that make and read a transposed operand, and those that do so with its gradient.

    A reader comes with the slot in which it reads.
    """

    transpose: Operator
    products: tuple[tuple[Operator, str], ...]
    gradient: Operator | None


def _moves_last(axes: list[int]) -> bool:
    """Whether a transpose makes rows of the last dimension columns, and moves another dimension besides."""
    rank = len(axes)
    return rank > 2 and axes[-2] == rank - 1 and _turned(axes) != [*range(rank)]


def _operand(transpose: Operator, values: Values) -> _Operand | None:
    out = values.output(transpose, "Out")
    if not _is_private(out, values):
        return None
    products = [(op, slot) for op in values.readers[out] if (slot := _slot(op, out, values))]
    types = sorted(op.type for op, _ in products)
    if len(products) != len(values.readers[out]) or types not in (["matmul"], ["matmul", "matmul_grad"]):
        return None
    made = [op.outputs.get(f"{slot}@GRAD") for op, slot in products if op.type == "matmul_grad"]
    if not any(made):
        return _Operand(transpose, tuple(products), None)
    (grad,) = [(op, slot) for op, slot in products if op.type == "matmul_grad"]
    flowing = values.output(grad[0], f"{grad[1]}@GRAD")
    readers = values.readers[flowing]
    if not _is_private(flowing, values) or [op.type for op in readers] != ["transpose2_grad"]:
        return None
    return (
        _Operand(transpose, tuple(products), readers[0]) if readers[0].attr("axis") == transpose.attr("axis") else None
    )


def _turned(axes: list[int]) -> list[int]:
    return [*axes[:-2], axes[-1], axes[-2]]


def _is_private(value: Value, values: Values) -> bool:
    """Whether the name means no other value, and nobody reads it from outside, so that its type may change."""
    is_last = Value(value.name, value.number + 1) not in values.writer
    return values.is_first(value) and is_last and not values.is_live_out(value)


def _slot(op: Operator, value: Value, values: Values) -> str | None:
    """The only slot, X or Y of a product of batches, in which `op` reads `value`; None for other readers."""
    if op.type not in ("matmul", "matmul_grad"):
        return None
    ranks = [len(kind.shape) for slot in "XY" if (kind := values.type_of(values.input(op, slot))) is not None]
    slots = [slot for slot in op.inputs if values.input(op, slot) == value]
    return slots[0] if len(slots) == 1 and slots[0] in "XY" and len(set(ranks)) == 1 and len(ranks) == 2 else None


def _turn(found: _Operand, values: Values) -> None:
    axes = _turned(list(found.transpose.attr("axis")))
    turned = [found.transpose, *([] if found.gradient is None else [found.gradient])]
    for op in turned:
        op.set_attr("axis", axes)
    for op, slot in found.products:
        name = f"transpose_{slot}"
        op.set_attr(name, not op.attr(name))
    made = [op.outputs.get(f"{slot}@GRAD", ()) for op, slot in found.products]
    for (name,) in filter(None, (found.transpose.outputs["Out"], *made)):
        variable = values.block.vars[name]
        if variable.tensor_type is not None:
            variable.tensor_type = variable.tensor_type.with_shape(tuple(_turned(list(variable.tensor_type.shape))))
