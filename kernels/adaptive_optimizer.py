"""Update rules that scale each element's step by the sizes of its past gradients; see `minigraph.kernels.optimizer`."""

from __future__ import annotations

from typing import Any

from minigraph.kernels.buffers import Scratch, deliver
from minigraph.kernels.optimizer import is_skipped, kept, length, ratio_of_lengths, stepped
from minigraph.kernels.registry import kernel
from minigraph.kernels.tensor import copied


def _blend(xp, mean, x, keep, out, work=None) -> Any:
    """``keep * mean + (1 - keep) * x``: a mean that forgets. Uses `work`, which may be `x`."""
    work = xp.multiply(x, 1 - keep, out=work)
    mean = xp.multiply(mean, keep, out=out)
    return xp.add(mean, work, out=mean)


def _over_root(xp, x, square, epsilon, work) -> Any:
    """``x / (sqrt(square) + epsilon)``, in `work`."""
    xp.sqrt(square, out=work)
    xp.add(work, epsilon, out=work)
    return xp.true_divide(x, work, out=work)


def _moments(xp, grad, moment1, moment2, beta1, beta2, moment1_out, moment2_out) -> tuple[Any, Any, Any]:
    """The means of the gradient and of its square, and room for one more array for the time of the call."""
    work = Scratch(xp).empty(grad.shape, grad.dtype)
    moment1 = _blend(xp, moment1, grad, beta1, moment1_out, work)
    xp.square(grad, out=work)
    return moment1, _blend(xp, moment2, work, beta2, moment2_out, work), work


def number_in_type(given, default, dtype) -> Any:
    """The one element of `given`, or else `default`."""
    return default if given is None else given.reshape(1).astype(dtype)


@kernel("adam")
def adam(
    xp, param, grad, rate, moment1, moment2, beta1_pow, beta2_pow, beta1_tensor, beta2_tensor, skip,
    *, beta1, beta2, epsilon, out=None,
):  # fmt: skip
    if is_skipped(skip):
        return kept(xp, (param, moment1, moment2, beta1_pow, beta2_pow), out)
    param_out, moment1_out, moment2_out, beta1_pow_out, beta2_pow_out = out or (None,) * 5
    beta1, beta2 = number_in_type(beta1_tensor, beta1, param.dtype), number_in_type(beta2_tensor, beta2, param.dtype)
    rate = rate.reshape(1) * xp.sqrt(1 - beta2_pow.reshape(1)) / (1 - beta1_pow.reshape(1))
    moment1, moment2, work = _moments(xp, grad, moment1, moment2, beta1, beta2, moment1_out, moment2_out)
    _over_root(xp, moment1, moment2, epsilon, work)
    xp.multiply(work, rate, out=work)
    return (
        stepped(xp, param, work, param_out),
        moment1,
        moment2,
        deliver(xp, beta1_pow * beta1, beta1_pow_out),
        deliver(xp, beta2_pow * beta2, beta2_pow_out),
    )


@kernel("adamw")
def adamw(
    xp, param, grad, rate, moment1, moment2, beta1_pow, beta2_pow, beta1_tensor, beta2_tensor, skip,
    *, beta1, beta2, epsilon, coeff, with_decay, lr_ratio, out=None,
):  # fmt: skip
    if is_skipped(skip):
        return kept(xp, (param, moment1, moment2, beta1_pow, beta2_pow), out)
    param_out, moment1_out, moment2_out, beta1_pow_out, beta2_pow_out = out or (None,) * 5
    beta1, beta2 = number_in_type(beta1_tensor, beta1, param.dtype), number_in_type(beta2_tensor, beta2, param.dtype)
    rate = rate.reshape(1) * lr_ratio
    root = xp.sqrt(1 - beta2_pow.reshape(1))
    moment1, moment2, work = _moments(xp, grad, moment1, moment2, beta1, beta2, moment1_out, moment2_out)
    _over_root(xp, moment1, moment2, epsilon * root, work)
    xp.multiply(work, rate * root / (1 - beta1_pow.reshape(1)), out=work)
    if with_decay:
        param = xp.multiply(param, (1 - rate * coeff).astype(param.dtype, copy=False), out=param_out)
    return (
        stepped(xp, param, work, param_out),
        moment1,
        moment2,
        deliver(xp, beta1_pow * beta1, beta1_pow_out),
        deliver(xp, beta2_pow * beta2, beta2_pow_out),
    )


@kernel("adamax")
def adamax(xp, param, grad, rate, moment, inf_norm, beta1_pow, skip, *, beta1, beta2, epsilon, out=None):
    out = (*(out or (None,) * 3), None)[:4]  # there need not be a Beta1PowOut
    if is_skipped(skip):
        return kept(xp, (param, moment, inf_norm, beta1_pow), out)
    param_out, moment_out, inf_norm_out, beta1_pow_out = out
    work = xp.empty_like(grad)
    moment = _blend(xp, moment, grad, beta1, moment_out, work)
    inf_norm = xp.multiply(inf_norm, beta2, out=inf_norm_out)
    xp.add(inf_norm, epsilon, out=inf_norm)
    xp.maximum(xp.absolute(grad, out=work), inf_norm, out=inf_norm)
    xp.true_divide(moment, inf_norm, out=work)
    xp.multiply(work, rate.reshape(1) / (1 - beta1_pow.reshape(1)), out=work)
    return stepped(xp, param, work, param_out), moment, inf_norm, deliver(xp, beta1_pow * beta1, beta1_pow_out)


@kernel("lamb")
def lamb(
    xp, param, grad, rate, moment1, moment2, beta1_pow, beta2_pow, skip,
    *, weight_decay, beta1, beta2, epsilon, out=None,
):  # fmt: skip
    if is_skipped(skip):
        return kept(xp, (param, moment1, moment2), out)
    param_out, moment1_out, moment2_out = out or (None, None, None)
    moment1, moment2, work = _moments(xp, grad, moment1, moment2, beta1, beta2, moment1_out, moment2_out)
    step = _over_root(xp, moment1, moment2, epsilon, work)
    xp.add(step, xp.multiply(param, weight_decay), out=step)
    trust = ratio_of_lengths(xp, length(xp, param), length(xp, step))
    xp.multiply(step, (rate.reshape(1) * trust).astype(param.dtype), out=step)
    return stepped(xp, param, step, param_out), moment1, moment2


@kernel("adagrad")
def adagrad(xp, param, grad, moment, rate, skip, *, epsilon, out=None):
    if is_skipped(skip):
        return kept(xp, (param, moment), out)
    param_out, moment_out = out or (None, None)
    work = xp.square(grad)
    moment = xp.add(moment, work, out=moment_out)
    _over_root(xp, grad, moment, epsilon, work)
    return stepped(xp, param, xp.multiply(work, rate.reshape(1)), param_out), moment


@kernel("decayed_adagrad")
def decayed_adagrad(xp, param, grad, moment, rate, skip, *, decay, epsilon, out=None):
    if is_skipped(skip):
        return kept(xp, (param, moment), out)
    param_out, moment_out = out or (None, None)
    work = xp.square(grad)
    moment = _blend(xp, moment, work, decay, moment_out, work)
    _over_root(xp, grad, moment, epsilon, work)
    return stepped(xp, param, xp.multiply(work, rate.reshape(1)), param_out), moment


@kernel("adadelta")
def adadelta(xp, param, grad, squared_grad, squared_update, skip, *, rho, epsilon, out=None):
    if is_skipped(skip):
        return kept(xp, (param, squared_grad, squared_update), out)
    param_out, squared_grad_out, squared_update_out = out or (None, None, None)
    work = xp.square(grad)
    squared_grad = _blend(xp, squared_grad, work, rho, squared_grad_out, work)
    step = _adadelta_step(xp, grad, squared_grad, squared_update, epsilon)
    xp.square(step, out=work)
    squared_update = _blend(xp, squared_update, work, rho, squared_update_out, work)
    step = _adadelta_step(xp, grad, squared_grad, squared_update, epsilon)
    return stepped(xp, param, step, param_out), squared_grad, squared_update


def _adadelta_step(xp, grad, squared_grad, squared_update, epsilon) -> Any:
    step = xp.add(squared_update, epsilon)
    xp.true_divide(step, xp.add(squared_grad, epsilon), out=step)
    xp.sqrt(step, out=step)
    return xp.multiply(step, grad, out=step)


@kernel("rmsprop")
def rmsprop(
    xp, param, mean_square, mean_grad, rate, grad, moment, skip, *, epsilon, decay, momentum, centered, out=None
):  # fmt: skip
    if mean_grad is None:
        mean_grad = xp.zeros_like(param)
    if is_skipped(skip):
        return kept(xp, (param, moment, mean_square, mean_grad), out)
    param_out, moment_out, mean_square_out, mean_grad_out = out or (None,) * 4
    work = xp.square(grad)
    mean_square = _blend(xp, mean_square, work, decay, mean_square_out, work)
    if centered:
        mean_grad = _blend(xp, mean_grad, grad, decay, mean_grad_out, work)
        xp.square(mean_grad, out=work)
        xp.subtract(mean_square, work, out=work)
        xp.maximum(work, 0, out=work)  # a variance, which rounding may have made negative
        xp.add(work, epsilon, out=work)
    else:
        xp.add(mean_square, epsilon, out=work)
    xp.sqrt(work, out=work)
    xp.true_divide(grad, work, out=work)
    xp.multiply(work, rate.reshape(1), out=work)
    moment = xp.multiply(moment, momentum, out=moment_out)
    xp.add(moment, work, out=moment)
    param = stepped(xp, param, moment, param_out)
    return param, moment, mean_square, mean_grad if centered else copied(xp, mean_grad, mean_grad_out)


@kernel("ftrl")
def ftrl(xp, param, squared, linear, grad, rate, skip, *, l1, l2, lr_power, out=None):
    if is_skipped(skip):
        return kept(xp, (param, squared, linear), out)
    param_out, squared_out, linear_out = out or (None, None, None)
    rate = rate.reshape(1).astype(param.dtype, copy=False)
    old_root = _root(xp, squared, lr_power)
    work = xp.square(grad)
    squared = xp.add(squared, work)
    root = _root(xp, squared, lr_power)

    xp.subtract(root, old_root, out=work)
    xp.true_divide(work, rate, out=work)
    xp.multiply(work, param, out=work)
    linear = xp.add(linear, grad)
    xp.subtract(linear, work, out=linear)

    is_zero = xp.absolute(linear, out=work) <= l1
    xp.sign(linear, out=work)
    xp.multiply(work, l1, out=work)
    xp.subtract(work, linear, out=work)
    xp.true_divide(root, rate, out=root)
    xp.add(root, 2 * l2, out=root)
    param = xp.true_divide(work, root, out=param_out)
    xp.copyto(param, 0, where=is_zero)
    return param, deliver(xp, squared, squared_out), deliver(xp, linear, linear_out)


def _root(xp, squared, lr_power) -> Any:
    return xp.sqrt(squared) if lr_power == -0.5 else xp.power(squared, -lr_power)
