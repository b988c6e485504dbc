"""Compute sums of squares by the operator that does not write the squares."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any, ClassVar

from minigraph.passes.rules import Match, Rules, attr, op, rule, with_gradients
from minigraph.types import DType

_LEAST = 32_769
"""Minimum elements of a tensor: smaller squares are written and added by one native call with what is around them."""


@rule
def _sum_of_squares(x: Any, dim: Any = attr("dim"), is_all: Any = attr("reduce_all")) -> Any:
    return op("reduce_sum", X=op("square", X=x), dim=dim, reduce_all=is_all, keep_dim=False)


@_sum_of_squares.where
def _(m: Match) -> Iterator[tuple[bool, str]]:
    yield m.x.dtype in (DType.FP32, DType.FP64), "x must be float32 or float64"
    yield m.is_all or len(set(m.dim)) == len(m.x.shape), "all squares must be added"
    yield prod(m.x.shape) >= _LEAST, "x must be large, and of known shape"


@_sum_of_squares.to
def _(x: Any) -> Any:
    return op("squared_l2_norm", X=x)


@rule
def _gradient(x: Any, d: Any) -> Any:
    return op("squared_l2_norm_grad", X=x, Out_GRAD=d, outputs=["X_GRAD"])[0]


@_gradient.where
def _(m: Match) -> Iterator[tuple[bool, str]]:
    yield m.x.dtype in (DType.FP32, DType.FP64), "x must be float32 or float64"
    yield prod(m.x.shape) >= _LEAST, "x must be large, and of known shape"


@_gradient.to
def _(x: Any, d: Any) -> Any:
    return op("elementwise_mul", X=x, Y=op("scale", X=d, scale=2.0))


class SumSquares(Rules):
    """Turn the sum of all squares of a large tensor into ``squared_l2_norm``, which writes no squares.

    Its gradient becomes the product of the tensor and a number, which may be part of an update.

    Law: results and gradients change by rounding only, as long as squares and sums are finite and no smaller than the
    smallest normal number. float16 and tensors of at most 32,768 elements are left alone.
    """

    changes_rounding: ClassVar[bool] = True

    needs = (frozenset({"square", "reduce_sum"}), frozenset({"squared_l2_norm_grad"}))

    rules = (*with_gradients(_sum_of_squares, "x"), _gradient)
