"""Updates that scale each element's step by the sizes of its past gradients; see `minigraph.kernels.optimizer`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numpy import absolute, maximum, power, sign, sqrt, where

from minigraph.kernels.optimizer import length, rate_times, ratio_of_lengths, stepped
from minigraph.kernels.registry import kernel
from minigraph.kernels.update_kernels import is_skipped, kept, update


@update(fades="moment1 moment2")
def adam(
    param, grad, rate, moment1, moment2, beta1_pow, beta2_pow, beta1_tensor, beta2_tensor, skip,
    *, beta1, beta2, epsilon,
):  # fmt: skip
    moment1 = moment1 * beta1 + grad * (1 - beta1)
    moment2 = moment2 * beta2 + grad * grad * (1 - beta2)
    # As in fluid, the corrections of both biases are part of the rate, so that epsilon is not corrected.
    step = rate * sqrt(1 - beta2_pow) / (1 - beta1_pow)
    param = param - moment1 / (sqrt(moment2) + epsilon) * step
    beta1_pow = beta1_pow * beta1
    beta2_pow = beta2_pow * beta2
    return param, moment1, moment2, beta1_pow, beta2_pow


@update(fades="moment1 moment2")
def adamw(
    param, grad, rate, moment1, moment2, beta1_pow, beta2_pow, beta1_tensor, beta2_tensor, skip,
    *, beta1, beta2, epsilon, coeff, with_decay, lr_ratio,
):  # fmt: skip
    moment1 = moment1 * beta1 + grad * (1 - beta1)
    moment2 = moment2 * beta2 + grad * grad * (1 - beta2)
    own_rate = rate * lr_ratio
    root = sqrt(1 - beta2_pow)
    # In the paper epsilon is added to the corrected mean; here the root of the correction is part of the rate instead.
    small = epsilon * root
    step = own_rate * root / (1 - beta1_pow)
    if with_decay:
        rest = 1 - own_rate * coeff
        param = param * rest
    param = param - moment1 / (sqrt(moment2) + small) * step
    beta1_pow = beta1_pow * beta1
    beta2_pow = beta2_pow * beta2
    return param, moment1, moment2, beta1_pow, beta2_pow


@update()
def adamax(param, grad, rate, moment, inf_norm, beta1_pow, skip, *, beta1, beta2, epsilon):
    moment = moment * beta1 + grad * (1 - beta1)
    inf_norm = maximum(absolute(grad), inf_norm * beta2 + epsilon)
    step = rate / (1 - beta1_pow)
    param = param - moment / inf_norm * step
    beta1_pow = beta1_pow * beta1
    return param, moment, inf_norm, beta1_pow


@update(fades="moment1 moment2")
def lamb_direction(param, grad, moment1, moment2, *, weight_decay, beta1, beta2, epsilon):
    """The part of `lamb` for each element: new moments and the direction of the step."""
    moment1 = moment1 * beta1 + grad * (1 - beta1)
    moment2 = moment2 * beta2 + grad * grad * (1 - beta2)
    step = moment1 / (sqrt(moment2) + epsilon) + param * weight_decay
    return moment1, moment2, step


def lamb_along(direction: Callable[..., Any], length: Callable[..., Any] = length) -> Callable[..., Any]:
    """The kernel of ``lamb``, with `lamb_direction` as `direction` computes it, where `length` measures arrays."""

    def lamb(
        xp, param, grad, rate, moment1, moment2, beta1_pow, beta2_pow, skip,
        *, weight_decay, beta1, beta2, epsilon, out=None,
    ):  # fmt: skip
        if is_skipped(skip):
            return kept(xp, (param, moment1, moment2), out)
        param_out, *moments_out = out or (None,) * 3
        moment1, moment2, step = direction(
            xp, param, grad, moment1, moment2, out=(*moments_out, None),
            weight_decay=weight_decay, beta1=beta1, beta2=beta2, epsilon=epsilon,
        )  # fmt: skip
        trust = ratio_of_lengths(xp, length(xp, param), length(xp, step))
        xp.multiply(step, rate_times(rate, trust, param.dtype), out=step)
        return stepped(xp, param, step, param_out), moment1, moment2

    return lamb


kernel("lamb")(lamb_along(lamb_direction))


@update()
def adagrad(param, grad, moment, rate, skip, *, epsilon):
    moment = moment + grad * grad
    param = param - grad / (sqrt(moment) + epsilon) * rate
    return param, moment


@update()
def decayed_adagrad(param, grad, moment, rate, skip, *, decay, epsilon):
    moment = moment * decay + grad * grad * (1 - decay)
    param = param - grad / (sqrt(moment) + epsilon) * rate
    return param, moment


@update()
def adadelta(param, grad, squared_grad, squared_update, skip, *, rho, epsilon):
    squared_grad = squared_grad * rho + grad * grad * (1 - rho)
    step = sqrt((squared_update + epsilon) / (squared_grad + epsilon)) * grad
    squared_update = squared_update * rho + step * step * (1 - rho)
    param = param - sqrt((squared_update + epsilon) / (squared_grad + epsilon)) * grad
    return param, squared_grad, squared_update


@update(fades="mean_square mean_grad moment", optional="mean_grad")
def rmsprop(param, mean_square, mean_grad, rate, grad, moment, skip, *, epsilon, decay, momentum, centered):
    mean_square = mean_square * decay + grad * grad * (1 - decay)
    if centered:
        mean_grad = mean_grad * decay + grad * (1 - decay)
        # Rounding may make this variance negative.
        step = grad / sqrt(maximum(mean_square - mean_grad * mean_grad, 0) + epsilon)
    else:
        step = grad / sqrt(mean_square + epsilon)
    moment = moment * momentum + step * rate
    param = param - moment
    return param, moment, mean_square, mean_grad


@update()
def ftrl(param, squared, linear, grad, rate, skip, *, l1, l2, lr_power):
    # A root is faster than a power, and rounds correctly.
    if lr_power == -0.5:
        old_root = sqrt(squared)
        squared = squared + grad * grad
        root = sqrt(squared)
    else:
        old_root = power(squared, -lr_power)
        squared = squared + grad * grad
        root = power(squared, -lr_power)
    linear = linear + grad - (root - old_root) / rate * param
    # The parameter is exactly 0 where the penalty is larger, so that the solution is sparse.
    param = where(absolute(linear) <= l1, 0, (sign(linear) * l1 - linear) / (root / rate + 2 * l2))
    return param, squared, linear
