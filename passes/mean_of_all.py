"""Write means in one way."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
    yield (
        all(size > 0 for size in m.x.shape or (-1,)) and m.x.dtype.is_floating,
        "x must be floating-point numbers, as many in each run",
    )


@_mean.where
def _(m: Match) -> Iterator[tuple[bool, str]]:
    yield len(_axes(m)) == len(m.x.shape), "all dimensions must go"
    yield not m.keep_dim or len(m.x.shape) == 1, "the result must have one dimension"


@_divided.where
def _(m: Match) -> Iterator[tuple[bool, str]]:
    closeness = 0.0 if m.x.dtype is DType.FP64 else 1e-7  # as closely as a float32 can say
    count = prod([m.x.shape[axis] for axis in _axes(m)])
    yield isclose(m.factor * count, 1.0, rel_tol=closeness), "the factor must be 1 by the number of elements"


def _axes(m: Match) -> set[int]:
    rank = len(m.x.shape)
    return {*range(rank)} if m.reduce_all else {axis % rank for axis in m.dim}


@_mean.to
def _(x: Any) -> Any:
    return op("mean", X=x)


@_divided.to
def _(x: Any, reduce_all: bool, dim: Sequence[int], keep_dim: bool) -> Any:
    return op("reduce_mean", X=x, reduce_all=reduce_all, dim=dim, keep_dim=keep_dim)


class MeanOfAll(Rules):
    """Turn ``reduce_sum`` that ``scale`` divides into ``reduce_mean``, and that over all dimensions into ``mean``.

    Likewise for their gradients. `FuseMeanLoss` looks for ``mean`` only, `FindNormalizations` for ``reduce_mean``. A
    float64 sum stays where the factor, which is a float32, is not exactly 1 by the number of elements.

    Law: each mean is the same up to rounding: by at most ``2 n eps`` times the mean of the magnitudes of n elements,
    because they are added in another order, and gradients by at most ``2 eps`` times their size.
    """

    changes_rounding: ClassVar[bool] = True

    rules = (*with_gradients(_mean, "x"), *with_gradients(_divided, "x"))
