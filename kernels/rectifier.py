"""Activation functions with thresholds, and others made of the common ones.

float16 is computed in float32 where a result takes several roundings.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from minigraph.kernels.activation import at_least, log_of_one_plus_exp, logistic
from minigraph.kernels.buffers import deliver
from minigraph.kernels.registry import kernel
from minigraph.kernels.sums import add_over
from minigraph.kernels.upcast import widened
from minigraph.support.shape_rules import soft_relu_ends


@kernel("leaky_relu")
def leaky_relu(xp, x, *, alpha, out=None):
    if alpha == 0:
        return at_least(xp, x, 0, out)  # infinity times 0 would be NaN
    # By the sign of x for every alpha: above 1 the line alpha * x is the lower one for negative x.
    return (xp.maximum if alpha <= 1 else xp.minimum)(x, alpha * x, out=out)


@kernel("leaky_relu_grad")
def leaky_relu_grad(xp, result, d_out, *, alpha, out=None):
    return deliver(xp, xp.where(result > 0, d_out, alpha * d_out), out)


kernel("leaky_relu_grad_grad")(leaky_relu_grad)


@kernel("relu6")
def relu6(xp, x, *, threshold, out=None):
    return x.clip(0, threshold, out=out)


@kernel("relu6_grad")
def relu6_grad(xp, result, d_out, *, threshold, out=None):
    return xp.multiply(d_out, (result > 0) & (result < threshold), out=out)


@kernel("hard_sigmoid")
@widened
def hard_sigmoid(xp, x, *, slope, offset, out=None):
    line = slope * x
    line += offset
    return line.clip(0, 1, out=out)


@kernel("hard_sigmoid_grad")
@widened
def hard_sigmoid_grad(xp, result, d_out, *, slope, offset, out=None):
    inside = (result > 0) & (result < 1)
    return xp.multiply(slope * d_out, inside, out=out)


@kernel("hard_swish")
@widened
def hard_swish(xp, x, *, threshold, scale, offset, out=None):
    factor = x + offset
    factor = factor.clip(0, threshold, out=factor)
    factor /= scale
    result = x * factor
    xp.copyto(result, 0, where=factor == 0)  # at -inf, too
    return deliver(xp, result, out)


@kernel("hard_swish_grad")
@widened
def hard_swish_grad(xp, x, d_out, *, threshold, scale, offset, out=None):
    slope = (2 * x + offset) / scale
    xp.copyto(slope, 0, where=x <= -offset)
    xp.copyto(slope, threshold / scale, where=x >= threshold - offset)
    return xp.multiply(slope, d_out, out=out)


def _slopes(x, alpha, mode) -> Any:
    """`alpha` in the shape that lies over `x`."""
    if mode == "all":
        return alpha.reshape((1,) * x.ndim)
    return alpha.reshape((1, -1) + (1,) * (x.ndim - 2)) if mode == "channel" else alpha


@kernel("prelu")
def prelu(xp, x, alpha, *, mode, out=None):
    return deliver(xp, xp.where(x > 0, x, _slopes(x, alpha, mode) * x), out)


@kernel("prelu_grad")
def prelu_grad(xp, x, alpha, d_out, *, mode, wanted):
    slopes = _slopes(x, alpha, mode)
    d_x = xp.where(x > 0, d_out, slopes * d_out) if wanted[0] else None
    if not wanted[1]:
        return d_x, None
    axes = tuple(i for i, size in enumerate(slopes.shape) if size != x.shape[i])
    parts = xp.where(x > 0, x.dtype.type(0), x * d_out)
    return d_x, (add_over(xp, parts, axes, keepdims=True) if axes else parts).reshape(alpha.shape)


@kernel("brelu")
def brelu(xp, x, *, t_min, t_max, out=None):
    return x.clip(t_min, t_max, out=out)


@kernel("brelu_grad")
def brelu_grad(xp, x, d_out, *, t_min, t_max, out=None):
    return xp.multiply(d_out, (x > t_min) & (x < t_max), out=out)


@kernel("soft_relu")
@widened
def soft_relu(xp, x, *, threshold, out=None):
    return deliver(xp, log_of_one_plus_exp(xp, x.clip(-threshold, threshold)), out)


@kernel("soft_relu_grad")
def soft_relu_grad(xp, result, d_out, *, threshold, out=None):
    low, high = soft_relu_ends(result.dtype, threshold)
    inside = (result > low) & (result < high)
    return xp.multiply(-xp.expm1(-result) * inside, d_out, out=out)


@kernel("thresholded_relu")
def thresholded_relu(xp, x, *, threshold, out=None):
    return _kept(xp, x, ~(x <= threshold), out)  # NaN stays


@kernel("thresholded_relu_grad")
def thresholded_relu_grad(xp, x, d_out, *, threshold, out=None):
    return _kept(xp, d_out, x > threshold, out)


@kernel("hard_shrink")
def hard_shrink(xp, x, *, threshold, out=None):
    return _kept(xp, x, ~_within(x, threshold), out)


@kernel("hard_shrink_grad")
def hard_shrink_grad(xp, x, d_out, *, threshold, out=None):
    return _kept(xp, d_out, _beyond(x, threshold), out)


def _beyond(x, threshold) -> Any:
    return (x > threshold) | (x < -threshold)


def _within(x, threshold) -> Any:
    """Whether elements become 0: the others are beyond the threshold or NaN, which is kept as in fluid."""
    return (x <= threshold) & (x >= -threshold)


def _kept(xp, x, where, out) -> Any:
    """`x` where the mask is set, 0 elsewhere; a product with the mask would make NaN of infinity."""
    return deliver(xp, xp.where(where, x, x.dtype.type(0)), out)


@kernel("softshrink")
@widened
def softshrink(xp, x, *, lambda_, out=None):
    # Elements within the threshold are moved, too, and then replaced by 0.
    moved = x - xp.copysign(x.dtype.type(lambda_), x)
    return _kept(xp, moved, ~_within(x, lambda_), out)


@kernel("softshrink_grad")
def softshrink_grad(xp, x, d_out, *, lambda_, out=None):
    return _kept(xp, d_out, _beyond(x, lambda_), out)


@kernel("tanh_shrink")
@widened
def tanh_shrink(xp, x, *, out=None):
    return xp.subtract(x, xp.tanh(x), out=out)


@kernel("tanh_shrink_grad")
@widened
def tanh_shrink_grad(xp, x, d_out, *, out=None):
    return xp.multiply(xp.square(xp.tanh(x)), d_out, out=out)


@kernel("stanh")
@widened
def stanh(xp, x, *, scale_a, scale_b, out=None):
    return xp.multiply(xp.tanh(scale_a * x), scale_b, out=out)


@kernel("stanh_grad")
@widened
def stanh_grad(xp, x, d_out, *, scale_a, scale_b, out=None):
    slope = 1 - xp.square(xp.tanh(scale_a * x))
    return xp.multiply(slope * (scale_a * scale_b), d_out, out=out)


@kernel("selu")
@widened
def selu(xp, x, *, scale, alpha, out=None):
    # The minimum keeps exp from overflowing where its result is replaced.
    result = alpha * xp.expm1(xp.minimum(x, 0))
    xp.copyto(result, x, where=x > 0)
    return xp.multiply(result, scale, out=out)


@kernel("selu_grad")
@widened
def selu_grad(xp, result, d_out, *, scale, alpha, out=None):
    slope = result + scale * alpha
    xp.copyto(slope, scale, where=result > 0)
    return xp.multiply(slope, d_out, out=out)


def _softplus_and_slope(xp, x, threshold) -> tuple[Any, Any]:
    smooth, slope = log_of_one_plus_exp(xp, x), logistic(xp, x)
    above, below = x > threshold, x < -threshold
    xp.copyto(smooth, x, where=above)
    xp.copyto(slope, 1, where=above)
    # Far below 0, log(1 + exp(x)) and its slope are exp(x); as written they would lose digits.
    small = xp.exp(xp.minimum(x, -threshold))
    xp.copyto(smooth, small, where=below)
    xp.copyto(slope, small, where=below)
    return smooth, slope


@kernel("mish")
@widened
def mish(xp, x, *, threshold, out=None):
    smooth, _ = _softplus_and_slope(xp, x, threshold)
    result = x * xp.tanh(smooth)
    xp.copyto(result, 0, where=smooth == 0)  # at -inf, too
    return deliver(xp, result, out)


@kernel("mish_grad")
@widened
def mish_grad(xp, x, d_out, *, threshold, out=None):
    smooth, slope = _softplus_and_slope(xp, x, threshold)
    bent = xp.tanh(smooth)
    term = x * slope * (1 - xp.square(bent))
    xp.copyto(term, 0, where=(slope == 0) | (bent == 1))  # at both infinities, too
    return xp.multiply(bent + term, d_out, out=out)


@kernel("maxout")
def maxout(xp, x, *, groups, axis):
    return _split(x, groups, axis).max(axis % x.ndim + 1)


@kernel("maxout_grad")
def maxout_grad(xp, x, result, d_out, *, groups, axis):
    at = axis % x.ndim + 1
    hits = _split(x, groups, axis) == xp.expand_dims(result, at)
    # Of equal elements the first gets the gradient.
    first = hits & (xp.cumsum(hits, axis=at, dtype=np.int32) == 1)
    return xp.where(first, xp.expand_dims(d_out, at), d_out.dtype.type(0)).reshape(x.shape)


def _split(x, groups, axis) -> Any:
    """`x` with the channels along `axis` as groups of a new dimension after it."""
    at = axis % x.ndim
    return x.reshape(*x.shape[:at], x.shape[at] // groups, groups, *x.shape[at + 1 :])
