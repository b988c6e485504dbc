"""Turn softmaxes and normalizations that are written out into the operators that compute them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from math import prod
from typing import Any, ClassVar

from minigraph.passes.canonical.scale_by_constants import POWERS_OF_NUMBERS, QUOTIENTS_OF_NUMBERS
from minigraph.passes.rules import Match, Rule, Rules, attr, gradient_of, op, rule, with_gradients
from minigraph.types import DType


def _is_of_floats(m: Match) -> bool:
    return m.x.dtype in (DType.FP32, DType.FP64) and len(m.x.shape or ()) > 1 and -1 not in m.x.shape


def _goes_along_last(m: Match) -> bool:
    """Whether all reductions of a match are over the last dimension."""
    dims = [getattr(m, name) for name in m.pattern.captured if name.startswith("dim")]
    return all([list(dim) in ([-1], [len(m.x.shape) - 1]) for dim in dims])


def _has_one_each(m: Match) -> bool:
    """Whether operands of other shapes than x have one number for each row."""
    column = (*m.x.shape[:-1], 1)
    for each in m.ops:
        if each.type in ("elementwise_div", "elementwise_mul", "elementwise_sub"):
            shape, axis = each.block.vars[each.inputs["Y"][0]].shape, each.attr("axis")
            is_column = axis in (-1, 0) if shape == column else axis == 0 and shape == column[:-1]
            if not is_column and shape != m.x.shape:
                return False
    return True


# Softmax


def _share(powers: Any) -> Any:
    total = op("reduce_sum", X=powers, dim=attr(), keep_dim=attr())
    return op("elementwise_div", X=powers, Y=total, axis=attr())


@rule
def _plain(x: Any) -> Any:
    return _share(op("exp", X=x))


@rule
def _shifted(x: Any) -> Any:
    top = op("reduce_max", X=x, dim=attr(), keep_dim=attr())
    return _share(op("exp", X=op("elementwise_sub", X=x, Y=top, axis=attr())))


@rule
def _shifted_by(x: Any, top: Any) -> Any:
    return _share(op("exp", X=op("elementwise_sub", X=x, Y=top, axis=attr())))


@_plain.where
@_shifted.where
@_shifted_by.where
def _(m: Match) -> Iterator[tuple[bool, str]]:
    yield _is_of_floats(m), "x must be rows of float32 or float64, of known shape"
    yield _goes_along_last(m), "sums and maxima must be those of rows"
    yield _has_one_each(m), "each row must have its own sum and maximum"


@_plain.where
def _(m: Match) -> Iterator[tuple[bool, str]]:
    less = m.values.producer(m.value("x"), "elementwise_sub")
    top = None if less is None else m.values.producer(m.values.input(less, "Y"), "reduce_max")
    yield top is None, "the subtraction of a maximum belongs to the softmax"


@_shifted_by.where
def _(m: Match) -> Iterator[tuple[bool, str]]:
    top = m.values.producer(m.value("top"), "reduce_max")
    yield top is not None, "what is subtracted must be a maximum"
    assert top is not None
    is_of_rows = not top.attr("reduce_all") and list(top.attr("dim")) in ([-1], [len(m.x.shape) - 1])
    yield is_of_rows and m.values.input(top, "X") == m.value("x"), "what is subtracted must be the maximum of each row"


@_plain.to
@_shifted.to
@_shifted_by.to
def _(x: Any) -> Any:
    return op("softmax", X=x)


# Logarithms of softmaxes, and of sums of exponentials


def _log_of_sum(x: Any) -> Any:
    return op("log", X=op("reduce_sum", X=op("exp", X=x), dim=attr(), keep_dim=True))


def _less_top(x: Any, is_stopped: bool) -> tuple[Any, Any]:
    """The difference of x and the maximum of each row, and that maximum."""
    top = op("reduce_max", X=x, dim=attr(), keep_dim=True)
    top.stop_gradient = is_stopped
    return op("elementwise_sub", X=x, Y=top, axis=attr()), top


def _logarithms(is_stopped: bool) -> Iterator[Rule]:
    """Yield the rules for logarithms of softmaxes that subtract a maximum, and without `is_stopped` for others."""

    @rule
    def log_of_shares(x: Any) -> Any:
        return op("elementwise_sub", X=x, Y=_log_of_sum(x), axis=attr())

    @rule
    def below_top(x: Any) -> Any:
        less, _ = _less_top(x, is_stopped)
        return op("elementwise_sub", X=less, Y=_log_of_sum(less), axis=attr())

    @rule
    def less_top_last(x: Any) -> Any:
        less, top = _less_top(x, is_stopped)
        total = op("elementwise_add", X=_log_of_sum(less), Y=top, axis=attr())
        return op("elementwise_sub", X=x, Y=total, axis=attr())

    @rule
    def less_top_first(x: Any) -> Any:
        less, top = _less_top(x, is_stopped)
        total = op("elementwise_add", X=top, Y=_log_of_sum(less), axis=attr())
        return op("elementwise_sub", X=x, Y=total, axis=attr())

    for made in (below_top, less_top_last, less_top_first, *(() if is_stopped else (log_of_shares,))):
        made.where(_has_rows_of_logarithms)
        made.to(lambda x: op("log_softmax", X=x, axis=-1))
        if not is_stopped:
            yield made
        yield gradient_of(made, "x", with_results=True)


def _has_rows_of_logarithms(m: Match) -> Iterator[tuple[bool, str]]:
    yield _is_of_floats(m), "x must be rows of float32 or float64, of known shape"
    yield _goes_along_last(m), "sums and maxima must be those of rows"
    yield _has_one_each(m), "each row must have its own sum and maximum"
    less = m.values.producer(m.value("x"), "elementwise_sub")
    top = None if less is None else m.values.producer(m.values.input(less, "Y"), "reduce_max")
    yield top is None, "the subtraction of a maximum belongs to the logarithm"


def _sums_of_exponentials() -> Iterator[Rule]:
    """Yield rules for the gradient of the logarithm of a sum of exponentials, of which a maximum is a factor."""

    def above_top(x: Any, is_first: bool) -> Any:
        less, top = _less_top(x, False)
        log = _log_of_sum(less)
        first, second = (top, log) if is_first else (log, top)
        return op("elementwise_add", X=first, Y=second, axis=attr())

    @rule
    def top_first(x: Any) -> Any:
        return above_top(x, is_first=True)

    @rule
    def top_last(x: Any) -> Any:
        return above_top(x, is_first=False)

    for made in (top_first, top_last):
        made.where(_has_rows_of_logarithms)
        made.to(_with_stopped_top(made is top_first))
        yield gradient_of(made, "x", with_results=True)


def _with_stopped_top(is_first: bool) -> Callable[[Match, Any], Any]:
    """The same logarithm, with a maximum through which no gradient flows."""

    def made(m: Match, x: Any) -> Any:
        dim = [len(m.x.shape) - 1]
        top = op("reduce_max", X=x, dim=dim, keep_dim=True)
        top.stop_gradient = True
        powers = op("exp", X=op("elementwise_sub", X=x, Y=top))
        log = op("log", X=op("reduce_sum", X=powers, dim=dim, keep_dim=True))
        return op("elementwise_add", X=top if is_first else log, Y=log if is_first else top)

    return made


# Layer normalization, and batch normalization, which has the same formula over other dimensions


def _reduced_axes(m: Match) -> list[int] | None:
    """The dimensions that all means of a match are taken over; None if they differ."""
    rank = len(m.x.shape)
    found = {
        tuple(sorted({axis % rank for axis in getattr(m, name)}))
        for name in m.pattern.captured
        if name.startswith("dim")
    }
    return list(found.pop()) if len(found) == 1 else None


def _kept_axes(m: Match) -> list[int] | None:
    """The dimensions before those of each mean, or that of the channels; None for others."""
    axes, rank = _reduced_axes(m), len(m.x.shape)
    if not axes:
        return None
    kept = [axis for axis in range(rank) if axis not in axes]
    of_rows = kept == list(range(len(kept)))
    return kept if kept and (of_rows or (kept == [1] and rank <= 5)) else None


def _has_statistics(m: Match) -> bool:
    """Whether operands of other shapes than x have one number for each mean."""
    kept, shape = _kept_axes(m) or [], tuple(m.x.shape)
    whole = tuple(size if axis in kept else 1 for axis, size in enumerate(shape))
    short = tuple(shape[axis] for axis in kept)
    for each in m.ops:
        if each.type in ("elementwise_div", "elementwise_mul", "elementwise_sub"):
            given, axis = each.block.vars[each.inputs["Y"][0]].shape or (), each.attr("axis")
            at = len(shape) - len(given) if axis == -1 else axis
            is_statistic = at == 0 if given == whole else at == kept[0] and given == short
            if not is_statistic and given != shape:
                return False
    return True


_SQUARES: tuple[Callable[[Any], Any], ...] = (
    lambda x: op("square", X=x),
    lambda x: op("elementwise_mul", X=x, Y=x, axis=attr()),
    lambda x: op("pow", X=x, factor=2.0),
)
"""Spellings of a square."""

_DIVIDED_BY_ROOT: tuple[Callable[[Any, Any], Any], ...] = (
    lambda x, v: op("elementwise_div", X=x, Y=op("sqrt", X=v), axis=attr()),
    lambda x, v: op("elementwise_div", X=x, Y=op("pow", X=v, factor=0.5), axis=attr()),
    lambda x, v: op("elementwise_mul", X=x, Y=op("rsqrt", X=v), axis=attr()),
    lambda x, v: op("elementwise_mul", X=x, Y=op("pow", X=v, factor=-0.5), axis=attr()),
    lambda x, v: op("elementwise_mul", X=x, Y=op("reciprocal", X=op("sqrt", X=v)), axis=attr()),
)
"""Spellings of a division by a root."""


def _mean(x: Any) -> Any:
    return op("reduce_mean", X=x, dim=attr(), keep_dim=attr())


def _normalizations(
    square: Callable[[Any], Any], divided_by_root: Callable[[Any, Any], Any],
    square_of_mean: Callable[[Any], Any] | None = None,
) -> Iterator[Rule]:  # fmt: skip
    """Yield the rules for one spelling; the variance may be that of moments, mean(x ** 2) - mean(x) ** 2."""

    @rule
    def by_hand(x: Any, epsilon: Any = attr("bias")) -> Any:
        mean = _mean(x)
        apart = op("elementwise_sub", X=x, Y=mean, axis=attr())
        if square_of_mean is not None:
            variance = op("elementwise_sub", X=_mean(square(x)), Y=square_of_mean(mean), axis=attr())
        else:
            variance = _mean(square(apart))
        return divided_by_root(apart, op("scale", X=variance, bias=epsilon))

    @by_hand.where
    def _(m: Match) -> Iterator[tuple[bool, str]]:
        yield _is_of_floats(m), "x must be float32 or float64, of known shape"
        yield _kept_axes(m) is not None, "all means must be over the last dimensions, or over all but the channels"
        yield _has_statistics(m), "each row, or channel, must have its own mean and variance"
        yield 0 < m.epsilon <= 1e-3, "epsilon must be one that layer_norm and batch_norm take"
        of_rows = (_kept_axes(m) or [0])[0] == 0
        yield of_rows or prod(m.x.shape) > m.x.shape[1], "a channel must have several elements: one is not normalized"
        yield 0 not in m.x.shape, "there must be elements"

    @by_hand.to
    def _(m: Match, x: Any) -> Any:
        kept, shape = _kept_axes(m), m.x.shape
        assert kept is not None
        if kept[0] == 0:
            return _normalized(x, begin_norm_axis=len(kept), epsilon=m.epsilon)
        return _of_channels(x, shape[1], m.x.dtype, m.epsilon)

    yield from with_gradients(by_hand, "x", with_results=True)


def _of_channels(x: Any, channels: int, dtype: DType, epsilon: float) -> Any:
    """A batch normalization whose running statistics nobody reads."""
    zeros, ones = (op("fill_constant", shape=[channels], dtype=int(dtype), value=number) for number in (0.0, 1.0))
    return _batch_norm(x, ones, zeros, zeros, ones, epsilon)


def _batch_norm(x: Any, scale: Any, bias: Any, mean: Any, variance: Any, epsilon: Any) -> Any:
    results = ["Y", "MeanOut", "VarianceOut", "SavedMean", "SavedVariance"]
    given = {"X": x, "Scale": scale, "Bias": bias, "Mean": mean, "Variance": variance}
    return op("batch_norm", **given, epsilon=epsilon, trainable_statistics=True, outputs=results)[0]


def _normalized(x: Any, **more: Any) -> Any:
    return op("layer_norm", X=x, **more, outputs=["Y", "Mean", "Variance"])[0]


def _affine(normal: Any, g: Any, b: Any) -> Any:
    return op("elementwise_add", X=op("elementwise_mul", X=normal, Y=g, axis=attr()), Y=b, axis=attr())


@rule
def _stretched(x: Any, g: Any, b: Any) -> Any:
    return _affine(_normalized(x, begin_norm_axis=attr(), epsilon=attr()), g, b)


@_stretched.where
def _(m: Match) -> Iterator[tuple[bool, str]]:
    yield _is_of_floats(m), "x must be rows of float32 or float64, of known shape"
    yield m.begin_norm_axis == len(m.x.shape) - 1, "rows must be normalized"
    yield m.g.shape == m.b.shape == m.x.shape[-1:], "g and b must have an element for each column"
    yield {m.axis, m.axis_2} <= {-1, len(m.x.shape) - 1}, "operands must be aligned at the last dimension"


@_stretched.to
def _(x: Any, g: Any, b: Any, begin_norm_axis: int, epsilon: float) -> Any:
    return _normalized(x, Scale=g, Bias=b, begin_norm_axis=begin_norm_axis, epsilon=epsilon)


@rule
def _factor_first(x: Any, r: Any, g: Any) -> Any:
    """A factor that meets the inverse deviation, which meets x."""
    return op("elementwise_mul", X=x, Y=op("elementwise_mul", X=r, Y=g, axis=attr()), axis=attr())


@rule
def _factor_between(x: Any, r: Any, g: Any) -> Any:
    """A factor that meets x before the inverse deviation does."""
    return op("elementwise_mul", X=op("elementwise_mul", X=x, Y=g, axis=attr()), Y=r, axis=attr())


@rule
def _factor_divided(x: Any, r: Any, g: Any) -> Any:
    """A factor that meets x before it is divided by the deviation."""
    return op("elementwise_div", X=op("elementwise_mul", X=x, Y=g, axis=attr()), Y=r, axis=attr())


@_factor_first.where
@_factor_between.where
@_factor_divided.where
def _(m: Match) -> Iterator[tuple[bool, str]]:
    yield _is_of_floats(m), "x must be rows of float32 or float64, of known shape"
    yield m.r.shape == (*m.x.shape[:-1], 1) and m.g.shape == m.x.shape[-1:], "r must be a column, g a row"
    yield m.values.producer(m.value("x"), "elementwise_sub") is not None, "x must be a difference"


@_factor_first.where
@_factor_between.where
def _(m: Match) -> Iterator[tuple[bool, str]]:
    yield m.values.producer(m.value("r"), "rsqrt", "pow", "reciprocal") is not None, "r must be an inverse root"


@_factor_divided.where
def _(m: Match) -> Iterator[tuple[bool, str]]:
    yield m.values.producer(m.value("r"), "sqrt", "pow") is not None, "r must be a root"


@_factor_first.to
@_factor_between.to
def _(x: Any, r: Any, g: Any) -> Any:
    return op("elementwise_mul", X=op("elementwise_mul", X=x, Y=r), Y=g)


@_factor_divided.to
def _(x: Any, r: Any, g: Any) -> Any:
    return op("elementwise_mul", X=op("elementwise_div", X=x, Y=r), Y=g)


# Factors and addends of channels


def _are_of_channels(m: Match) -> bool:
    """Whether `g` and `b` have an element for each channel of x, its second dimension."""
    rank, channels = len(m.x.shape), m.x.shape[1]
    vector, whole = (channels,), (1, channels, *[1] * (rank - 2))
    return all(
        (each.shape == vector and axis % rank == 1) or (each.shape == whole and axis in (-1, 0))
        for each, axis in ((m.g, m.axis), (m.b, m.axis_2))
    )


def _vector(given: Any, shape: Any) -> Any:
    """The elements of `given`, which has this shape, as a vector."""
    return given if len(shape) == 1 else _reshaped(given, [shape[1]])


def _reshaped(x: Any, shape: Any) -> Any:
    return op("reshape2", X=x, shape=shape, outputs=["Out", "XShape"])[0]


@rule
def _stretched_batch(x: Any, g: Any, b: Any, zeros: Any, ones: Any) -> Any:
    return _affine(_batch_norm(x, ones, zeros, zeros, ones, attr("epsilon")), g, b)


@rule
def _stretched_sample(x: Any, g: Any, b: Any) -> Any:
    return _affine(_normalized(x, begin_norm_axis=2, epsilon=attr()), g, b)


@rule
def _stretched_groups(x: Any, g: Any, b: Any) -> Any:
    normal = _normalized(_reshaped(x, attr()), begin_norm_axis=attr(), epsilon=attr())
    return _affine(_reshaped(normal, attr()), g, b)


@_stretched_batch.where
@_stretched_sample.where
@_stretched_groups.where
def _(m: Match) -> Iterator[tuple[bool, str]]:
    yield _is_of_floats(m), "x must be float32 or float64, of known shape"
    yield _are_of_channels(m), "g and b must have an element for each channel"
    yield len(m.x.shape) <= 5, "x must have five dimensions at most"


@_stretched_batch.where
def _(m: Match) -> Iterator[tuple[bool, str]]:
    made = [m.values.producer(m.value(name), "fill_constant") for name in ("zeros", "ones")]
    numbers = [None if each is None else each.attr("value") for each in made]
    yield numbers == [0.0, 1.0], "the batch must be normalized to mean 0 and variance 1"


@_stretched_batch.to
def _(m: Match, x: Any, g: Any, b: Any, zeros: Any, ones: Any) -> Any:
    return _batch_norm(x, _vector(g, m.g.shape), _vector(b, m.b.shape), zeros, ones, m.epsilon)


@_stretched_sample.to
def _(m: Match, x: Any, g: Any, b: Any) -> Any:
    given = {"X": x, "Scale": _vector(g, m.g.shape), "Bias": _vector(b, m.b.shape)}
    return op("instance_norm", **given, epsilon=m.epsilon, outputs=["Y", "SavedMean", "SavedVariance"])[0]


def _groups(m: Match) -> int | None:
    """The number of groups of channels, if the rows that are normalized are groups of channels of a sample.

    The shapes are known, as that of x is.
    """
    first, second = [each.block.vars[each.outputs["Out"][0]].shape or () for each in m.ops if each.type == "reshape2"]
    shape = tuple(m.x.shape)
    groups, rest = divmod(prod(first[: m.begin_norm_axis]), shape[0])
    fits = not rest and 0 < groups <= shape[1] and shape[1] % groups == 0
    return groups if fits and tuple(second) == shape else None


@_stretched_groups.where
def _(m: Match) -> Iterator[tuple[bool, str]]:
    yield 0 not in m.x.shape, "there must be elements"
    yield _groups(m) is not None, "the rows must be groups of channels of a sample"


@_stretched_groups.to
def _(m: Match, x: Any, g: Any, b: Any) -> Any:
    given = {"X": x, "Scale": _vector(g, m.g.shape), "Bias": _vector(b, m.b.shape)}
    return op("group_norm", **given, groups=_groups(m), epsilon=m.epsilon, outputs=["Y", "Mean", "Variance"])[0]


_STRETCHED = (_stretched, _stretched_batch, _stretched_sample, _stretched_groups)


class FindNormalizations(Rules):
    """Turn softmaxes and normalizations that are written out, and their gradients, into one operator.

    A softmax is ``exp(x) / sum(exp(x))``, with or without the maximum of each row subtracted from it first, its
    logarithm ``x - log(sum(exp(x)))``, likewise. The gradient of a ``log(sum(exp(x)))`` with such a maximum has no part
    that flows through it. A normalization is ``(x - mean(x)) / sqrt(variance + epsilon) * g + b``, where the variance
    is ``mean((x - mean(x)) ** 2)`` or ``mean(x ** 2) - mean(x) ** 2``; g of rows may meet the inverse root first. It is
    a ``layer_norm`` if means are over the last dimensions, and a ``batch_norm`` if they are over all but the channels,
    the second dimension. If g and b belong to channels, the normalization of each channel of a sample is an
    ``instance_norm``, and that of rows which are groups of channels a ``group_norm``.

    Law: results and gradients change by rounding only, as long as they are finite; the gradient through a subtracted
    maximum is 0. Where exponentials overflow, or all of a row underflow, ``softmax`` is right. So is a normalization
    where a difference of moments has lost its digits: it rounds by ``eps * mean(x ** 2)``, which may be more than the
    variance. float16 and unknown shapes are left alone.
    """

    changes_rounding: ClassVar[bool] = True

    needs = (
        frozenset({"exp", "reduce_sum", "elementwise_div"}),
        frozenset({"layer_norm", "elementwise_mul", "elementwise_add"}),
        frozenset({"exp", "reduce_sum", "log", "elementwise_sub"}),
        *(
            frozenset({"reduce_mean", "elementwise_sub", "scale", root})
            for root in ("sqrt", "rsqrt", "pow", "elementwise_pow")
        ),
    )

    rules = (
        *POWERS_OF_NUMBERS,
        *QUOTIENTS_OF_NUMBERS,
        *(
            each
            for made in (_factor_first, _factor_between, _factor_divided)
            for each in with_gradients(made, "x", "r", "g", with_results=True)
        ),
        *(each for made in (_shifted, _shifted_by, _plain) for each in with_gradients(made, "x", with_results=True)),
        *(
            each
            for square, divided in product(_SQUARES, _DIVIDED_BY_ROOT)
            for of_mean in (None, square, *(other for other in _SQUARES[:2] if other is not square))
            for each in _normalizations(square, divided, of_mean)
        ),
        *(each for is_stopped in (False, True) for each in _logarithms(is_stopped)),
        *_sums_of_exponentials(),
        *_STRETCHED,
        *(gradient_of(each, "x", "g", "b", with_results=True) for each in _STRETCHED),
        *(gradient_of(each, "g", "b", with_results=True) for each in _STRETCHED),
    )
