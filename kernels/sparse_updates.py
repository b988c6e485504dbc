"""Update rules for gradients that are selected rows; see `minigraph.kernels.optimizer`.

Those of ``sgd``, ``adagrad`` and the lazy Adam cost what the rows cost, whatever the size of the parameter, when they
write over it. The others change every row, because their means forget, and give what the dense gradient gives.
"""

from __future__ import annotations

from typing import Any

from minigraph.kernels.adaptive_optimizer import number_in_type
from minigraph.kernels.buffers import deliver
from minigraph.kernels.optimizer import is_skipped, kept, length, ratio_of_lengths, stepped
from minigraph.kernels.registry import kernel
from minigraph.kernels.sparse_rows import merged
from minigraph.kernels.tensor import copied

_ALL = slice(None)


def _own(xp, old, out) -> Any:
    """An array with what `old` holds, to be changed: `out`, which may be `old` itself, or a copy."""
    return old if out is old else copied(xp, old, out)


def _step_rows(param, rows, step) -> None:
    """Subtract ``step[i]`` from row ``rows[i]``; `step` may be of a wider type."""
    param[rows] = (param[rows] - step).astype(param.dtype, copy=False)


def _blend(xp, mean, grad: Any, rows, keep, is_lazy, out) -> Any:
    """``keep * mean + (1 - keep) * grad``, with `grad` 0 but for `rows`; if lazy, other rows stay as they are."""
    added = xp.multiply(grad, 1 - keep)
    if is_lazy:
        mean = _own(xp, mean, out)
        mean[rows] = mean[rows] * keep + added
        return mean
    mean = xp.multiply(mean, keep, out=out)
    mean[rows] += added
    return mean


def _over_root(xp, x, square, epsilon) -> Any:
    """``x / (sqrt(square) + epsilon)``."""
    work = xp.sqrt(square)
    xp.add(work, epsilon, out=work)
    return xp.true_divide(x, work, out=work)


@kernel("sgd", rows=True)
def sgd(xp, param, rate, grad, skip, *, out=None):
    if is_skipped(skip):
        return kept(xp, (param,), None if out is None else (out,))[0]
    grad, param = merged(xp, grad), _own(xp, param, out)
    _step_rows(param, grad.rows, xp.multiply(grad.value, rate.reshape(1)))
    return param


@kernel("momentum", rows=True)
def momentum(xp, param, grad, velocity, rate, skip, *, mu, use_nesterov, out=None):
    if is_skipped(skip):
        return kept(xp, (param, velocity), out)
    param_out, velocity_out = out or (None, None)
    grad = merged(xp, grad)
    velocity = xp.multiply(velocity, mu, out=velocity_out)
    velocity[grad.rows] += grad.value
    step = velocity
    if use_nesterov:
        step = xp.multiply(velocity, mu)
        step[grad.rows] += grad.value
    return stepped(xp, param, xp.multiply(step, rate.reshape(1)), param_out), velocity


@kernel("adagrad", rows=True)
def adagrad(xp, param, grad, moment, rate, skip, *, epsilon, out=None):
    if is_skipped(skip):
        return kept(xp, (param, moment), out)
    param_out, moment_out = out or (None, None)
    grad = merged(xp, grad)
    rows, value = grad.rows, grad.value
    param, moment = _own(xp, param, param_out), _own(xp, moment, moment_out)
    total = moment[rows] + xp.square(value)
    moment[rows] = total
    _step_rows(param, rows, _over_root(xp, value, total, epsilon) * rate.reshape(1))
    return param, moment


@kernel("adam", rows=True)
def adam(
    xp, param, grad, rate, moment1, moment2, beta1_pow, beta2_pow, beta1_tensor, beta2_tensor, skip,
    *, beta1, beta2, epsilon, lazy_mode, out=None,
):  # fmt: skip
    """Fluid has multiplied the powers by the time it uses them: the bias that is undone is that of the next step."""
    if is_skipped(skip):
        return kept(xp, (param, moment1, moment2, beta1_pow, beta2_pow), out)
    param_out, moment1_out, moment2_out, beta1_pow_out, beta2_pow_out = out or (None,) * 5
    beta1, beta2 = number_in_type(beta1_tensor, beta1, param.dtype), number_in_type(beta2_tensor, beta2, param.dtype)
    beta1_pow, beta2_pow = beta1_pow * beta1, beta2_pow * beta2
    rate = rate.reshape(1) * xp.sqrt(1 - beta2_pow.reshape(1)) / (1 - beta1_pow.reshape(1))
    grad = merged(xp, grad)
    moment1 = _blend(xp, moment1, grad.value, grad.rows, beta1, lazy_mode, moment1_out)
    moment2 = _blend(xp, moment2, xp.square(grad.value), grad.rows, beta2, lazy_mode, moment2_out)
    param, at = _own(xp, param, param_out), grad.rows if lazy_mode else _ALL
    step = _over_root(xp, moment1[at], moment2[at], epsilon)
    _step_rows(param, at, xp.multiply(step, rate, out=step))
    powers = deliver(xp, beta1_pow, beta1_pow_out), deliver(xp, beta2_pow, beta2_pow_out)
    return param, moment1, moment2, *powers


@kernel("adamw", rows=True)
def adamw(
    xp, param, grad, rate, moment1, moment2, beta1_pow, beta2_pow, beta1_tensor, beta2_tensor, skip,
    *, beta1, beta2, epsilon, coeff, with_decay, lr_ratio, lazy_mode, out=None,
):  # fmt: skip
    if is_skipped(skip):
        return kept(xp, (param, moment1, moment2, beta1_pow, beta2_pow), out)
    param_out, moment1_out, moment2_out, beta1_pow_out, beta2_pow_out = out or (None,) * 5
    beta1, beta2 = number_in_type(beta1_tensor, beta1, param.dtype), number_in_type(beta2_tensor, beta2, param.dtype)
    rate, root = rate.reshape(1) * lr_ratio, xp.sqrt(1 - beta2_pow.reshape(1))
    grad = merged(xp, grad)
    moment1 = _blend(xp, moment1, grad.value, grad.rows, beta1, lazy_mode, moment1_out)
    moment2 = _blend(xp, moment2, xp.square(grad.value), grad.rows, beta2, lazy_mode, moment2_out)
    if with_decay:
        param = xp.multiply(param, (1 - rate * coeff).astype(param.dtype, copy=False), out=param_out)
    else:
        param = _own(xp, param, param_out)
    at = grad.rows if lazy_mode else _ALL
    step = _over_root(xp, moment1[at], moment2[at], epsilon * root)
    _step_rows(param, at, xp.multiply(step, rate * root / (1 - beta1_pow.reshape(1)), out=step))
    powers = deliver(xp, beta1_pow * beta1, beta1_pow_out), deliver(xp, beta2_pow * beta2, beta2_pow_out)
    return param, moment1, moment2, *powers


@kernel("lamb", rows=True)
def lamb(
    xp, param, grad, rate, moment1, moment2, beta1_pow, beta2_pow, skip,
    *, weight_decay, beta1, beta2, epsilon, out=None,
):  # fmt: skip
    if is_skipped(skip):
        return kept(xp, (param, moment1, moment2), out)
    param_out, moment1_out, moment2_out = out or (None, None, None)
    grad = merged(xp, grad)
    moment1 = _blend(xp, moment1, grad.value, grad.rows, beta1, False, moment1_out)
    moment2 = _blend(xp, moment2, xp.square(grad.value), grad.rows, beta2, False, moment2_out)
    step = _over_root(xp, moment1, moment2, epsilon)
    xp.add(step, xp.multiply(param, weight_decay), out=step)
    trust = ratio_of_lengths(xp, length(xp, param), length(xp, step))
    xp.multiply(step, (rate.reshape(1) * trust).astype(param.dtype), out=step)
    return stepped(xp, param, step, param_out), moment1, moment2


@kernel("rmsprop", rows=True)
def rmsprop(
    xp, param, mean_square, mean_grad, rate, grad, moment, skip, *, epsilon, decay, momentum, centered, out=None
):  # fmt: skip
    if mean_grad is None:
        mean_grad = xp.zeros_like(param)
    if is_skipped(skip):
        return kept(xp, (param, moment, mean_square, mean_grad), out)
    param_out, moment_out, mean_square_out, mean_grad_out = out or (None,) * 4
    grad = merged(xp, grad)
    rows, value = grad.rows, grad.value
    mean_square = _blend(xp, mean_square, xp.square(value), rows, decay, False, mean_square_out)
    spread = mean_square[rows]
    if centered:
        mean_grad = _blend(xp, mean_grad, value, rows, decay, False, mean_grad_out)
        spread = xp.maximum(spread - xp.square(mean_grad[rows]), 0)  # a variance, which rounding may have made negative
    else:
        mean_grad = copied(xp, mean_grad, mean_grad_out)
    moment = xp.multiply(moment, momentum, out=moment_out)
    step = value / xp.sqrt(spread + epsilon)
    moment[rows] += xp.multiply(step, rate.reshape(1), out=step)
    return stepped(xp, param, moment, param_out), moment, mean_square, mean_grad
