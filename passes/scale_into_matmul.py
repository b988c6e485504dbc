"""Let batched matrix products scale their results themselves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from minigraph.ir import Operator, Program
from minigraph.opdef import EMPTY
from minigraph.passes.base import Pass
from minigraph.passes.rewriting import insert_for
from minigraph.passes.values import Value, Values
from minigraph.types import DType


class ScaleIntoMatmul(Pass):
    """Turn a ``scale`` of the result or of an operand of a ``matmul`` into its `alpha`, likewise for ``matmul_grad``.

    An attention that divides its queries, its scores or nothing but the product then has the same steps.

    Law: every product is the same up to rounding: by at most ``2 (k + 2) eps`` times that of the magnitudes, for k
    columns of X, because the factor multiplies the result and no longer an operand. Products without the factor must
    not overflow, so float16 is left alone: a factor keeps its products below 65,504.
    """

    changes_rounding: ClassVar[bool] = True

    def apply(self, program: Program) -> bool:
        by_type = program.global_block().ops.by_type
        products = [*by_type.get("matmul", ()), *by_type.get("matmul_grad", ())]
        names = {name for op in products for names in (*op.inputs.values(), *op.outputs.values()) for name in names}
        if not any(op.inputs["X"][0] in names or op.outputs["Out"][0] in names for op in by_type.get("scale", ())):
            return False
        values = Values(program)
        changed = [_scale_by_itself(op, values) for op in by_type.get("matmul", ())]
        changed += [_scale_gradient(op, values) for op in by_type.get("matmul_grad", ())]
        return any(changed)


def _scale_by_itself(op: Operator, values: Values) -> bool:
    """Give a product the factor of its operand, or of its result if nothing else reads that."""
    if op.attr("alpha") != 1:
        return False
    for slot in "XY":
        scale = _scale_of(values.input(op, slot), op, values)
        if scale is not None:
            _replace(op, {slot: scale.inputs["X"]}, {}, scale)
            return True
    result = values.output(op, "Out")
    (scale,) = values.readers[result] if values.is_used_once(result) else (op,)
    operands = [values.input(op, slot) for slot in "XY"]
    if not _is_factor(scale) or not all(values.is_there(value, scale) for value in operands):
        return False
    insert_for(scale, "matmul", op.inputs, scale.outputs, {**op.attrs, "alpha": scale.attr("scale")})
    for each in (op, scale):
        each.block.remove(each)
    return True


def _scale_gradient(op: Operator, values: Values) -> bool:
    """Give the gradient of a product the factor of the incoming gradient, or that of an operand."""
    if op.attr("alpha") != 1:
        return False
    scale = _scale_of(values.input(op, "Out@GRAD"), op, values)
    if scale is not None:
        _replace(op, {"Out@GRAD": scale.inputs["X"]}, {}, scale)
        return True
    for slot in "XY":
        scale = _scale_of(values.input(op, slot), op, values)
        if scale is None:
            continue
        (name,) = op.outputs.get(f"{slot}@GRAD", (EMPTY,))
        grad = values.written(name, op)
        if name == EMPTY or not (values.readers[grad] or values.is_live_out(grad)):
            _replace(op, {slot: scale.inputs["X"]}, {f"{slot}@GRAD": EMPTY}, scale)
            return True
        back = _scale_back(grad, scale, values)
        if back is not None:
            _replace(op, {slot: scale.inputs["X"]}, {f"{slot}@GRAD": back.outputs["Out"]}, scale)
            back.block.remove(back)
            return True
    return False


def _scale_back(grad: Value, scale: Operator, values: Values) -> Operator | None:
    """Return the operator that makes of the gradient of a scaled operand that of the operand, if it may go."""
    (back,) = values.readers[grad] if values.is_used_once(grad) else (None,)
    if back is None or not _is_factor(back) or back.attr("scale") != scale.attr("scale"):
        return None
    return back if values.is_first(values.output(back, "Out")) else None


def _scale_of(value: Value, op: Operator, values: Values) -> Operator | None:
    """Return the operator that makes `value` by a factor of what is still there where `op` reads."""
    scale = values.producer(value, "scale")
    if scale is None or not _is_factor(scale) or not values.is_there(values.input(scale, "X"), op):
        return None
    return scale


def _is_factor(op: Operator) -> bool:
    if op.type != "scale" or op.inputs.get("ScaleTensor") or op.attr("bias") != 0:
        return False
    return op.block.vars[op.inputs["X"][0]].dtype is not DType.FP16


def _replace(op: Operator, inputs: Mapping[str, Any], outputs: Mapping[str, Any], scale: Operator) -> None:
    attrs = {**op.attrs, "alpha": scale.attr("scale")}
    insert_for(op, op.type, {**op.inputs, **inputs}, {**op.outputs, **outputs}, attrs)
    op.block.remove(op)
