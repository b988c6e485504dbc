"""Updates along the gradient. With ``out`` they write over the arrays they replace.

`skip` holds flags, or is None: where one is set, everything stays as it was. On a GPU they are waited for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from minigraph.kernels.buffers import deliver
from minigraph.kernels.norm import norm
from minigraph.kernels.registry import kernel
from minigraph.kernels.update_kernels import is_skipped, kept, update


def stepped(xp, param, step, out) -> Any:
    """``param - step`` in the dtype of `param`, also where a wider learning rate made `step` wider."""
    if out is not None:
        return xp.subtract(param, step, out=out)
    return xp.subtract(param, step).astype(param.dtype, copy=False)


def length(xp, x) -> Any:
    """L2 norm of all elements: for NumPy a Python float, with which arithmetic is fastest; else an array of float64."""
    scale, ratio = norm(xp, [x])
    return float(scale * ratio) if xp is np else xp.asarray(scale * ratio).reshape(1)


def ratio_of_lengths(xp, above, below, times=1) -> Any:
    """``times * above / below``, but 1 where one of the lengths is 0."""
    if isinstance(above, float):
        return times * above / below if above > 0 and below > 0 else 1.0
    is_defined = (above > 0) & (below > 0)
    return xp.where(is_defined, times * above / xp.where(is_defined, below, 1), 1)


def rate_times(rate, ratio, dtype) -> Any:
    """``rate * ratio``, computed in float64 and rounded to `dtype`."""
    if isinstance(ratio, float):
        return np.full(1, rate.item() * ratio, dtype)
    return (rate.reshape(1) * ratio).astype(dtype)


@update()
def sgd(param, rate, grad, skip):
    param = param - grad * rate
    return param


@update(fades="velocity")
def momentum(param, grad, velocity, rate, skip, *, mu, use_nesterov):
    velocity = velocity * mu + grad
    if use_nesterov:
        param = param - (velocity * mu + grad) * rate
    else:
        param = param - velocity * rate
    return param, velocity


@update()
def lars_step(param, grad, velocity, rate, *, mu, lars_weight_decay):
    """The part of ``lars_momentum`` for each element, at the rate that the lengths give."""
    velocity = velocity * mu + (param * lars_weight_decay + grad) * rate
    param = param - velocity
    return param, velocity


def lars_along(step: Callable[..., Any], length: Callable[..., Any] = length) -> Callable[..., Any]:
    """The kernel of ``lars_momentum``, with `lars_step` as `step` computes it, where `length` measures arrays."""

    def lars_momentum(xp, param, grad, velocity, rate, skip, *, mu, lars_coeff, lars_weight_decay, out=None):
        if is_skipped(skip):
            return kept(xp, (param, velocity), out)
        param_norm, grad_norm = length(xp, param), length(xp, grad)
        # The factor 0 makes the ratio undefined, and so 1, where there is no gradient.
        below = (grad_norm + lars_weight_decay * param_norm) * (grad_norm > 0)
        trust = ratio_of_lengths(xp, param_norm, below, lars_coeff)
        rate = rate_times(rate, trust, param.dtype)
        return step(xp, param, grad, velocity, rate, mu=mu, lars_weight_decay=lars_weight_decay, out=out)

    return lars_momentum


kernel("lars_momentum")(lars_along(lars_step))


@kernel("dpsgd")
def dpsgd(xp, param, grad, rate, skip, *, clip, batch_size, sigma, seed, rng=None, out=None):
    if is_skipped(skip):
        return param.copy() if out is None else deliver(xp, param, out)
    excess = xp.maximum(xp.asarray(length(xp, grad)).reshape(1) / clip, 1)
    step = xp.true_divide(grad, excess.astype(param.dtype))
    if sigma:
        # A seed gives the same noise in each step; without one the executor's generator draws.
        generator = xp.random.default_rng(seed % 2**32) if seed else rng
        # The generator has no float16.
        drawn = np.float64 if param.dtype == np.float64 else np.float32
        xp.add(step, generator.standard_normal(param.shape, dtype=drawn) * (sigma / batch_size), out=step)
    return stepped(xp, param, xp.multiply(step, rate.reshape(1)), out)
