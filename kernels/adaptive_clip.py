"""Clip thresholds computed from the norm of the parameter, or from the norms of earlier steps."""

from __future__ import annotations

from minigraph.kernels.buffers import deliver
from minigraph.kernels.norm import norm, norms_over, unit
from minigraph.kernels.registry import kernel


@kernel("adaptive_clip")
def adaptive_clip(xp, x, param, *, axes, clipping, eps, out=None):
    axes = tuple(sorted({axis % x.ndim for axis in axes})) or tuple(range(x.ndim))
    scale, ratio = norms_over(xp, x, axes)
    param_scale, param_ratio = norms_over(xp, param, axes)
    threshold = clipping * xp.maximum(param_scale * param_ratio, eps)
    keeps = ratio <= threshold / scale
    shrunk = unit(xp, x, scale, ratio) * threshold
    return deliver(xp, xp.where(keeps, x, shrunk.astype(x.dtype)), out)


@kernel("autoclip_threshold")
def autoclip_threshold(xp, xs, history, count, *, percentile, out=None):
    threshold_out, history_out, count_out = out or (None,) * 3
    now, history = _joint_norm(xp, xs), history.copy()
    is_finite = xp.isfinite(now)
    place = count % history.size
    history[place] = xp.where(is_finite, now, history[place])
    count = count + is_finite
    known = history[: min(int(count.item()), history.size)]
    # A slice of the known norms, not a mask over all: at first nearly all are unknown.
    threshold = xp.percentile(known, percentile) if known.size else xp.asarray(0.0)
    threshold = xp.where(threshold > 0, threshold, xp.inf).reshape(1)
    return (
        deliver(xp, threshold, threshold_out),
        deliver(xp, history, history_out),
        deliver(xp, count, count_out),
    )


@kernel("zclip_threshold")
def zclip_threshold(xp, xs, mean, variance, count, *, z_threshold, alpha, warmup_steps, eps, out=None):
    outs = out or (None,) * 4
    now = _joint_norm(xp, xs)
    is_finite, in_warmup = xp.isfinite(now), count < warmup_steps
    deviation = xp.sqrt(variance)
    z = (now - mean) / (deviation + eps)
    clips = is_finite & ~in_warmup & (z > z_threshold)
    threshold = mean + z_threshold**2 / xp.where(clips, z, 1.0) * deviation
    # A threshold of 0 would clip every gradient to 0, and the mean of norms would stay 0 for ever.
    threshold = xp.where(clips & (threshold > 0), threshold, xp.inf)
    taken_in = xp.where(is_finite, xp.minimum(now, threshold), mean)
    # Welford's recurrence for the mean and the variance of all norms so far.
    number = count + 1
    first_mean = mean + (taken_in - mean) / number
    first_variance = variance + ((taken_in - mean) * (taken_in - first_mean) - variance) / number
    later_mean = alpha * mean + (1 - alpha) * taken_in
    later_variance = alpha * variance + (1 - alpha) * xp.square(taken_in - later_mean)
    new_mean = xp.where(in_warmup, first_mean, later_mean)
    new_variance = xp.where(in_warmup, first_variance, later_variance)
    values = (
        threshold,
        xp.where(is_finite, new_mean, mean),
        xp.where(is_finite, new_variance, variance),
        count + is_finite,
    )
    return tuple(deliver(xp, value, each) for value, each in zip(values, outs, strict=True))


def _joint_norm(xp, xs):
    scale, ratio = norm(xp, xs)
    return xp.asarray(scale * ratio).reshape(1)
