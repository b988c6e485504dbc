"""Let batched matrix products scale their results themselves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np

from minigraph.passes.rules import Match, Rules, attr, marked, op, rule, with_gradients
from minigraph.types import DType


def _scaled(x: Any) -> Any:
    return marked(op("scale", X=x, scale=attr(), bias_after_scale=attr()), shared=True)


def _product(x: Any, y: Any) -> Any:
    return op("matmul", X=x, Y=y, transpose_X=attr(), transpose_Y=attr())


@rule
def _of_x(x: Any, y: Any) -> Any:
    return _product(_scaled(x), y)


@rule
def _of_y(x: Any, y: Any) -> Any:
    return _product(x, _scaled(y))


@rule
def _of_result(x: Any, y: Any) -> Any:
    return op("scale", X=_product(x, y), scale=attr(), bias_after_scale=attr())


@_of_x.where
@_of_y.where
@_of_result.where
def _(m: Match) -> Iterator[tuple[bool, str]]:
    yield m.x.dtype is not DType.FP16, "a factor keeps products of float16 from overflowing"
    with np.errstate(all="ignore"):
        factor = m.x.dtype.numpy.type(m.scale)
    yield bool(factor) and bool(np.isfinite(factor)), "0 times a product that overflows is NaN, not 0"


@_of_x.to
@_of_y.to
@_of_result.to
def _(x: Any, y: Any, scale: float, transpose_X: bool, transpose_Y: bool) -> Any:
    return op("matmul", X=x, Y=y, transpose_X=transpose_X, transpose_Y=transpose_Y, alpha=scale)


class ScaleIntoMatmul(Rules):
    """Turn a ``scale`` of the result or of an operand of a ``matmul`` into its `alpha`, likewise for ``matmul_grad``.

    An attention that divides its queries, its scores or nothing but the product then has the same steps.

    Law: every product is the same up to rounding: by at most ``2 (k + 2) eps`` times that of the magnitudes, for k
    columns of X, because the factor multiplies the result and no longer an operand. Products without the factor must
    not overflow, so float16 is left alone: a factor keeps its products below 65,504. Factors that are 0 or
    infinite are left alone, too.
    """

    changes_rounding: ClassVar[bool] = True

    needs = (frozenset({"matmul", "scale"}), frozenset({"matmul_grad", "scale"}))

    rules = (*with_gradients(_of_x, *"xy"), *with_gradients(_of_y, *"xy"), *with_gradients(_of_result, *"xy"))
