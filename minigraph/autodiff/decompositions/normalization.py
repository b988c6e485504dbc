"""Gradients of normalization. Statistics are computed again from X, so that gradients flow through them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

from minigraph.autodiff.decompositions.double_gradients import added, results_of, times
from minigraph.autodiff.decompositions.rewriting import Rewriting, rewritten_as
from minigraph.ir import Variable
from minigraph.support.window_rules import CHANNELS_LAST
from minigraph.types import DType, product


def _wide(g: Rewriting, x: Variable) -> Variable:
    return g.cast(x, DType.FP32) if x.dtype is DType.FP16 else x


_Mean: TypeAlias = Callable[[Variable, Sequence[int]], Variable]
"""Function that takes the mean over dimensions, which are kept as 1."""


def _normalized(g: Rewriting, x: Variable, axes: Sequence[int], mean: _Mean | None = None) -> tuple[Variable, Variable]:
    """`x` less its mean over `axes`, divided by its standard deviation, and one over that."""
    mean = mean or g.mean
    centred = g.sub(x, mean(x, axes))
    inverse = g.emit("rsqrt", X=g.scale(mean(g.square(centred), axes), 1.0, g.attr("epsilon")))
    return g.mul(centred, inverse), inverse


def _through(
    g: Rewriting, d: Variable, normalized: Variable, inverse: Variable, axes: Sequence[int],
    mean: _Mean | None = None,
) -> Variable:  # fmt: skip
    """Gradient by x of ``normalized = (x - mean) * inverse`` over `axes`."""
    mean = mean or g.mean
    along = g.mul(normalized, mean(g.mul(d, normalized), axes))
    return g.mul(inverse, g.sub(g.sub(d, mean(d, axes)), along))


def _parameter_gradient(
    g: Rewriting, slot: str, parts: Variable, over: Sequence[int], like: str = ""
) -> Variable | None:
    """The gradient of Scale or Bias, which lies over `parts` in the shape `over`.

    It has the type of the input `like`, by default that of the parameter itself, where the gradient reads that.
    """
    if not g.wants(f"{slot}@GRAD"):
        return None
    parameter = g[like or slot]
    axes = [axis for axis, size in enumerate(over) if size == 1]
    total = g.sum(parts, axes, keep=True) if axes else parts
    return g.cast(g.like(total, parameter.shape or (), parameter), parameter.dtype)


@rewritten_as("affine_channel_grad")
def _affine_channel(g: Rewriting) -> Mapping[str, Any]:
    x, d = g["X"], g["Out@GRAD"]
    rank = len(x.shape or ())
    place = rank - 1 if g.attr("data_layout") == CHANNELS_LAST else 1
    over = [-1 if axis == place else 1 for axis in range(rank)]
    return {
        "X@GRAD": g.mul(d, g.like(g["Scale"], over)),
        "Scale@GRAD": _parameter_gradient(g, "Scale", g.mul(d, x), over),
        "Bias@GRAD": _parameter_gradient(g, "Bias", d, over, like="Scale"),
    }


def _mean_of_ranks(g: Rewriting, count: Variable, x: Variable, axes: Sequence[int]) -> Variable:
    """The mean over `axes` of the elements of all ranks, of which each channel has `count`."""
    return g.div(_of_ranks(g, g.sum(x, axes, keep=True)), g.cast(count, x.dtype))


def _of_ranks(g: Rewriting, x: Variable) -> Variable:
    """The sum over the ranks."""
    return g.emit("c_allreduce_sum", X=x, use_calc_stream=True)


@rewritten_as("batch_norm_grad", "sync_batch_norm_grad")
def _batch_norm(g: Rewriting) -> Mapping[str, Any]:
    x, scale, d = g["X"], g["Scale"], _wide(g, g["Y@GRAD"])
    shape = x.shape or ()
    place = len(shape) - 1 if g.attr("data_layout") == CHANNELS_LAST else 1
    axes = [axis for axis in range(len(shape)) if axis != place]
    over = tuple(-1 if axis == place else 1 for axis in range(len(shape)))
    flowing, wide = g.mul(d, g.like(_wide(g, scale), over)), _wide(g, x)
    mean: _Mean
    if g.attr("use_global_stats") or (g.attr("is_test") and not g.attr("trainable_statistics")):
        center, inverse = (g.like(_wide(g, g.constant(g[slot])), over) for slot in ("SavedMean", "SavedVariance"))
        normalized = g.mul(g.sub(wide, center), inverse)
        d_x = g.mul(flowing, inverse)
    else:
        count, mean = g.count(x, axes), g.mean
        if g.op.type == "sync_batch_norm_grad":
            count = _of_ranks(g, count)
            mean = partial(_mean_of_ranks, g, count)
        normalized, inverse = _normalized(g, wide, axes, mean)
        d_x = _through(g, flowing, normalized, inverse, axes, mean)
        # In a channel of one element Y is X, and Scale and Bias have no gradient.
        several = g.mask(g.compare("greater_than", count, 1.0), d)
        d_x = g.add(g.mul(d_x, several), g.mul(d, g.scale(several, -1.0, 1.0)))
        d = g.mul(d, several)
    return {
        "X@GRAD": g.cast(d_x, x.dtype),
        "Scale@GRAD": _parameter_gradient(g, "Scale", g.mul(d, normalized), over),
        "Bias@GRAD": _parameter_gradient(g, "Bias", d, over),
    }


@rewritten_as("layer_norm_grad")
def _layer_norm(g: Rewriting) -> Mapping[str, Any]:
    begin, x, scale = g.attr("begin_norm_axis"), g["X"], g.given("Scale")
    rows, d = (_wide(g, g.emit("flatten2", X=each, axis=begin)) for each in (x, g["Y@GRAD"]))
    normalized, inverse = _normalized(g, rows, [1])
    flowing = d if scale is None else g.mul(d, _wide(g, scale))
    d_x = _through(g, flowing, normalized, inverse, [1])
    return {
        "X@GRAD": g.cast(g.like(d_x, x.shape or (), x), x.dtype),
        "Scale@GRAD": _parameter_gradient(g, "Scale", g.mul(d, normalized), (1, -1)),
        "Bias@GRAD": _parameter_gradient(g, "Bias", d, (1, -1)),
    }


@rewritten_as("group_norm_grad")
def _group_norm(g: Rewriting) -> Mapping[str, Any]:
    x, scale = g["X"], g.given("Scale")
    shape = x.shape or ()
    is_last = g.attr("data_layout") == CHANNELS_LAST
    groups = g.attr("groups")
    each = shape[-1 if is_last else 1] // groups
    if is_last:
        apart, axes, over = (shape[0], product(shape[1:-1]), groups, each), [1, 3], (1, 1, groups, each)
    else:
        apart, axes, over = (shape[0], groups, each, product(shape[2:])), [2, 3], (1, groups, each, 1)
    wide, d = (_wide(g, _apart(g, value, apart)) for value in (x, g["Y@GRAD"]))
    normalized, inverse = _normalized(g, wide, axes)
    if scale is None:  # as in fluid, without the mean of what flows in
        d_x = g.mul(inverse, g.sub(d, g.mul(normalized, g.mean(g.mul(d, normalized), axes))))
    else:
        d_x = _through(g, g.mul(d, g.like(_wide(g, scale), over)), normalized, inverse, axes)
    axes_of_parameters = (1, 1, -1, -1) if is_last else (1, -1, -1, 1)
    return {
        "X@GRAD": g.cast(g.like(d_x, shape, x), x.dtype),
        "Scale@GRAD": _parameter_gradient(g, "Scale", g.mul(d, normalized), axes_of_parameters),
        "Bias@GRAD": _parameter_gradient(g, "Bias", d, axes_of_parameters),
    }


@rewritten_as("instance_norm_grad_grad")
def _instance_norm_double(g: Rewriting) -> Mapping[str, Any]:
    """Second gradient by the formulas of the kernel."""
    x = g["X"]
    shape = x.shape or ()
    samples, channels, axes, over = shape[0], shape[1], [2, 3], (1, shape[1], 1, 1)
    laid = (samples, channels, 1, product(shape[2:]))

    def wide(slot: str) -> Variable | None:
        given = g.given(slot)
        return None if given is None else _wide(g, _apart(g, given, laid))

    def by_channel(slot: str) -> Variable | None:
        given = g.given(slot)
        return None if given is None else _wide(g, g.like(given, over))

    normalized, inverse = _normalized(g, _wide(g, _apart(g, x, laid)), axes)
    d, dd_x, scale = wide("DY"), wide("DDX"), by_channel("Scale")
    assert d is not None and scale is not None
    through = None if dd_x is None else _through(g, dd_x, normalized, inverse, axes)

    def to_x() -> Variable | None:
        d_through = _through(g, d, normalized, inverse, axes)
        bent = None
        if dd_x is not None and through is not None:
            share, along, d_along = (
                g.mul(inverse, g.mean(g.mul(a, b), axes))
                for a, b in ((through, d), (dd_x, normalized), (d, normalized))
            )
            parts = [g.mul(normalized, share), g.mul(d_through, along), g.mul(through, d_along)]
            bent = g.negative(g.mul(g.emit("sum", X=parts), scale))
        return back(added(g, times(g, d_through, by_channel("DDScale")), bent))

    def to_flowing() -> Variable | None:
        found = added(g, times(g, through, scale), times(g, normalized, by_channel("DDScale")))
        shift = by_channel("DDBias")
        if shift is not None:
            found = g.add(g.zeros(normalized) if found is None else found, shift)
        return back(found)

    def back(value: Variable | None) -> Variable | None:
        return None if value is None else g.cast(g.like(value, shape, x), x.dtype)

    def to_scale() -> Variable | None:
        if through is None:
            return None
        return g.cast(g.like(g.sum(g.mul(through, d), [0, 2, 3]), (channels,)), g["Scale"].dtype)

    return results_of(g, DX=to_x, DScale=to_scale, DDY=to_flowing)


def _apart(g: Rewriting, x: Variable, shape: Sequence[int]) -> Variable:
    """`x` as samples, groups, channels of a group and positions; samples and positions may be unknown."""
    if 0 in shape or sum(size < 0 for size in shape) <= 1:
        return g.like(x, shape)
    return g.emit("reshape2", X=x, shape=[0 if i == 0 else size for i, size in enumerate(shape)])
