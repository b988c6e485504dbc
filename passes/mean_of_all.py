"""Write the mean of all elements in one way."""

from __future__ import annotations

from collections.abc import Iterator
from math import isclose, prod
from typing import Any, ClassVar

from minigraph.passes.rules import Match, Rules, attr, op, rule, with_gradients
from minigraph.types import DType


def _reduced(type: str, x: Any) -> Any:
    return op(type, X=x, reduce_all=attr(), dim=attr(), keep_dim=attr())


@rule
def _mean(x: Any) -> Any:
    return _reduced("reduce_mean", x)


@rule
def _divided(x: Any, factor: Any = attr("scale")) -> Any:
    return op("scale", X=_reduced("reduce_sum", x), scale=factor)


@_mean.where
@_divided.where
def _(m: Match) -> Iterator[tuple[bool, str]]:
    shape = m.x.shape or (-1,)
    yield (
        all(size > 0 for size in shape) and m.x.dtype.is_floating,
        "x must be floating-point numbers, as many in each run",
    )
    yield m.reduce_all or {axis % len(shape) for axis in m.dim} == {*range(len(shape))}, "all dimensions must go"
    yield not m.keep_dim or len(shape) == 1, "the result must have one dimension"


@_divided.where
def _(m: Match) -> Iterator[tuple[bool, str]]:
    closeness = 0.0 if m.x.dtype is DType.FP64 else 1e-7  # as closely as a float32 can say
    yield isclose(m.factor * prod(m.x.shape), 1.0, rel_tol=closeness), "the factor must be 1 by the number of elements"


@_mean.to
@_divided.to
def _(x: Any) -> Any:
    return op("mean", X=x)


class MeanOfAll(Rules):
    """Turn ``reduce_mean`` over all dimensions, and ``reduce_sum`` that ``scale`` divides, into ``mean``.

    Likewise for their gradients. `FuseMeanLoss` looks for ``mean`` only. A float64 sum stays where the factor, which is
    a float32, is not exactly 1 by the number of elements.

    Law: each mean is the same up to rounding: by at most ``2 n eps`` times the mean of the magnitudes of n elements,
    because they are added in another order, and gradients by at most ``2 eps`` times their size.
    """

    changes_rounding: ClassVar[bool] = True

    rules = (*with_gradients(_mean, "x"), *with_gradients(_divided, "x"))
