"""Write the mean of all elements in one way."""

from __future__ import annotations

from math import isclose, prod
from typing import ClassVar

from minigraph.ir import Operator, Program
from minigraph.passes.base import Pass
from minigraph.passes.rewriting import insert_for
from minigraph.passes.values import Values
from minigraph.types import DType

_TYPES = ("reduce_mean", "reduce_mean_grad", "reduce_sum", "reduce_sum_grad")


class MeanOfAll(Pass):
    """Turn ``reduce_mean`` over all dimensions, and ``reduce_sum`` that ``scale`` divides, into ``mean``.

    Likewise for their gradients. `FuseMeanLoss` looks for ``mean`` only. A float64 sum stays where the factor, which is
    a float32, is not exactly 1 by the number of elements.

    Law: each mean is the same up to rounding: by at most ``2 n eps`` times the mean of the magnitudes of n elements,
    because they are added in another order, and gradients by at most ``2 eps`` times their size.
    """

    changes_rounding: ClassVar[bool] = True

    def apply(self, program: Program) -> bool:
        ops = program.global_block().ops
        found = [op for type in _TYPES for op in ops.of_type(type) if _is_over_all(op)]
        if not found:
            return False
        values = Values(program)
        return any([_replace(op, values) for op in found])


def _is_over_all(op: Operator) -> bool:
    """Whether `op` reduces all of some floating-point numbers, of which there are as many in each run, to shape [1]."""
    x = op.block.vars[op.inputs["X"][0]]
    shape = x.shape or (-1,)
    small = op.inputs["Out@GRAD"] if op.type.endswith("_grad") else op.outputs["Out"]
    is_over_all = op.attr("reduce_all") or {axis % len(shape) for axis in op.attr("dim")} == set(range(len(shape)))
    is_plain = all(size > 0 for size in shape) and x.dtype.is_floating and op.attr("out_dtype") == -1
    return is_over_all and is_plain and op.block.vars[small[0]].shape == (1,)


def _replace(op: Operator, values: Values) -> bool:
    if op.type == "reduce_mean":
        insert_for(op, "mean", op.inputs, op.outputs, {})
    elif op.type == "reduce_mean_grad":
        insert_for(op, "mean_grad", op.inputs, op.outputs, {})
    elif op.type == "reduce_sum":
        return _replace_scaled_sum(op, values)
    else:
        incoming = values.input(op, "Out@GRAD")
        divide = values.producer(incoming, "scale")
        if divide is None or not _divides(divide, op) or not values.is_there(values.input(divide, "X"), op):
            return False
        insert_for(op, "mean_grad", {**op.inputs, "Out@GRAD": divide.inputs["X"]}, op.outputs, {})
        if values.is_used_once(incoming):
            divide.block.remove(divide)
    op.block.remove(op)
    return True


def _replace_scaled_sum(op: Operator, values: Values) -> bool:
    """Replace a sum that is divided, and the division; one that others read stays."""
    source, total = values.input(op, "X"), values.output(op, "Out")
    (divide,) = values.readers[total] if values.is_used_once(total) else (op,)
    if divide.type != "scale" or not _divides(divide, op) or not values.is_there(source, divide):
        return False
    insert_for(divide, "mean", {"X": source[0]}, divide.outputs, {})
    for each in (op, divide):
        each.block.remove(each)
    return True


def _divides(scale: Operator, op: Operator) -> bool:
    """Whether `scale` divides by the number of elements that `op` reduces, as closely as a float32 can say."""
    x = op.block.vars[op.inputs["X"][0]]
    is_product = not scale.inputs.get("ScaleTensor") and scale.attr("bias") == 0
    closeness = 0.0 if x.dtype is DType.FP64 else 1e-7
    return is_product and isclose(scale.attr("scale") * prod(x.shape or ()), 1.0, rel_tol=closeness)
