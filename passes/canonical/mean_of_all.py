"""Write means in one way."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from math import isclose, prod
from typing import Any, ClassVar

from minigraph.ir import Program
from minigraph.passes.canonical.move_factors import MoveFactors, has_multiples
from minigraph.passes.rules import Match, Rule, Rules, attr, op, rule, with_gradients
from minigraph.support.window_rules import spatial_dims
from minigraph.types import DType


def _reduced(type: str, x: Any) -> Any:
    return op(type, X=x, reduce_all=attr(), dim=attr(), keep_dim=attr())


@rule
def _mean(x: Any) -> Any:
    return _reduced("reduce_mean", x)


@rule
def _divided(x: Any, factor: Any = attr("scale")) -> Any:
    return op("scale", X=_reduced("reduce_sum", x), scale=factor)


def _has_known_sizes(m: Match) -> Iterator[tuple[bool, str]]:
    yield (
        all(size > 0 for size in m.x.shape or (-1,)) and m.x.dtype.is_floating,
        "x must be floating-point numbers, as many in each run",
    )


def _reduced_twice(type: str) -> Rule:
    @rule
    def twice(
        x: Any, first: Any = attr("dim"), first_all: Any = attr("reduce_all"), first_kept: Any = attr("keep_dim"),
        second: Any = attr("dim"), second_all: Any = attr("reduce_all"), second_kept: Any = attr("keep_dim"),
    ) -> Any:  # fmt: skip
        part = op(type, X=x, reduce_all=first_all, dim=first, keep_dim=first_kept)
        return op(type, X=part, reduce_all=second_all, dim=second, keep_dim=second_kept)

    twice.where(_has_known_sizes)

    @twice.where
    def _(m: Match) -> Iterator[tuple[bool, str]]:
        yield _joined(m) is not None, "one operator must give the shape that both give"

    @twice.to
    def _(m: Match, x: Any) -> Any:
        dim, keep_dim = _joined(m) or ([], False)
        return op(type, X=x, reduce_all=len(dim) == len(m.x.shape), dim=dim, keep_dim=keep_dim)

    return twice


def _joined(m: Match) -> tuple[list[int], bool] | None:
    """The dimensions that both operators reduce, and whether they are kept; None if some are kept and some not."""
    rank = len(m.x.shape)
    first = _axes_of(rank, m.first, m.first_all)
    kept = [axis for axis in range(rank) if m.first_kept or axis not in first]
    if not kept:  # there is no rank 0: what has no dimension left has one of one element
        return (sorted(first), False) if not m.second_kept else None
    second = {kept[axis] for axis in _axes_of(len(kept), m.second, m.second_all)}
    both = sorted(first | second)
    if m.first_kept == m.second_kept or first <= second:
        return both, m.second_kept
    return None


_sum_of_sums, _mean_of_means = map(_reduced_twice, ("reduce_sum", "reduce_mean"))


@rule
def _mean_of_rows(x: Any) -> Any:
    return op("mean", X=_reduced("reduce_mean", x))


@_mean_of_rows.to
def _(x: Any) -> Any:
    return op("mean", X=x)


@rule
def _mean_of_sums(x: Any) -> Any:
    return op("mean", X=_reduced("reduce_sum", x))


@_mean_of_sums.where
def _(m: Match) -> Iterator[tuple[bool, str]]:
    yield m.x.dtype in (DType.FP32, DType.FP64), "x must be float32 or float64"


@_mean_of_sums.to
def _(m: Match, x: Any) -> Any:
    return op("scale", X=op("mean", X=x), scale=float(prod([m.x.shape[axis] for axis in _axes(m)])))


@rule
def _mean_of_mean(x: Any) -> Any:
    return op("mean", X=op("mean", X=x))


@_mean_of_mean.to
def _(x: Any) -> Any:
    return op("mean", X=x)


@rule
def _mean_of_one(x: Any) -> Any:
    return op("mean", X=x)


@_mean_of_one.where
def _(m: Match) -> Iterator[tuple[bool, str]]:
    yield m.x.shape == (1,), "x must be one number"


@_mean_of_one.to
def _(x: Any) -> Any:
    return x


def _mean_of_view(type: str, attribute: str) -> Rule:
    @rule
    def mean_of_view(x: Any) -> Any:
        return op("mean", X=op(type, X=x, **{attribute: attr()}, outputs=["Out", "XShape"])[0])

    @mean_of_view.to
    def _(x: Any) -> Any:
        return op("mean", X=x)

    mean_of_view.where(_has_known_sizes)
    return mean_of_view


_OF_VIEWS = [
    _mean_of_view(*each)
    for each in (("reshape2", "shape"), ("squeeze2", "axes"), ("unsqueeze2", "axes"), ("flatten2", "axis"))
]


_OF_POOLS = (
    "ksize", "global_pooling", "strides", "paddings", "exclusive", "adaptive", "ceil_mode", "data_format", "is_test",
    "padding_algorithm",
)  # fmt: skip


def _pool(type: str, **slots: Any) -> Any:
    return op(type, **slots, pooling_type="avg", **{name: attr() for name in _OF_POOLS})


@rule
def _pooled(x: Any) -> Any:
    return _pool("pool2d", X=x)


@_pooled.to
def _(x: Any, data_format: str) -> Any:
    return op("reduce_mean", X=x, dim=list(spatial_dims(data_format)), keep_dim=True)


@rule
def _pooled_grad(x: Any, out: Any, d: Any) -> Any:
    """Match the gradient whatever made Out, which it does not need."""
    return _pool("pool2d_grad", X=x, Out=out, Out_GRAD=d, outputs=["X_GRAD"])[0]


@_pooled_grad.to
def _(x: Any, d: Any, data_format: str) -> Any:
    dim = list(spatial_dims(data_format))
    return op("reduce_mean_grad", X=x, Out_GRAD=d, dim=dim, keep_dim=True, outputs=["X_GRAD"])[0]


for _each in (_mean, _divided, _mean_of_rows, _mean_of_mean, _mean_of_sums, _pooled, _pooled_grad):
    _each.where(_has_known_sizes)


@_pooled.where
@_pooled_grad.where
def _(m: Match) -> Iterator[tuple[bool, str]]:
    # As in fluid, gradients of pools have weights of float32 for every type.
    yield m.x.dtype is DType.FP32, "x must be float32"
    yield m.global_pooling or (m.adaptive and list(m.ksize) == [1, 1]), "a window must be the whole image"


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
    return _axes_of(len(m.x.shape), m.dim, m.reduce_all)


def _axes_of(rank: int, dim: Sequence[int], reduce_all: bool) -> set[int]:
    return {*range(rank)} if reduce_all else {axis % rank for axis in dim}


@_mean.to
def _(x: Any) -> Any:
    return op("mean", X=x)


@_divided.to
def _(x: Any, reduce_all: bool, dim: Sequence[int], keep_dim: bool) -> Any:
    return op("reduce_mean", X=x, reduce_all=reduce_all, dim=dim, keep_dim=keep_dim)


class MeanOfAll(Rules):
    """Turn ``reduce_sum`` that ``scale`` divides into ``reduce_mean``, and that over all dimensions into ``mean``.

    A sum of sums becomes one sum, a mean of means one mean, and a mean of sums a multiple of the mean. The mean of one
    number becomes the number, the mean of a reshaped value the mean of the value, and the average of whole images a
    ``reduce_mean``. Likewise for their gradients. The rules of `MoveFactors` run, too: a factor would hide what a sum
    is of. `FuseMeanLoss` looks for ``mean`` only, `FindNormalizations` for ``reduce_mean``. A float64 sum stays where
    the factor, which is a float32, is not exactly 1 by the number of elements.

    Law: each mean is the same up to rounding: by at most ``2 n eps`` times the mean of the magnitudes of n elements,
    because they are added in another order, and gradients by at most ``2 eps`` times their size, as long as the sums
    are finite before and after a factor.
    """

    changes_rounding: ClassVar[bool] = True

    needs = (
        *(
            frozenset({type})
            for type in (
                "reduce_mean", "reduce_mean_grad", "reduce_sum", "mean", "mean_grad", "pool2d", "pool2d_grad",
            )
        ),
        frozenset({"reduce_sum_grad", "scale"}),
    )  # fmt: skip

    rules = (
        *(
            each
            for forward in (
                _mean,
                _divided,
                _sum_of_sums,
                _mean_of_means,
                _mean_of_rows,
                _mean_of_mean,
                _mean_of_one,
                _mean_of_sums,
                *_OF_VIEWS,
            )
            for each in with_gradients(forward, "x")
        ),
        _pooled,
        _pooled_grad,
    )

    def _run(self, program: Program) -> bool:
        changed = super()._run(program)
        return (has_multiples(program) and self._with_factors._run(program)) or changed

    @cached_property
    def _with_factors(self) -> Rules:
        return Rules(*self.rules, *MoveFactors.rules)
