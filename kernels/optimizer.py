"""Update rules. With ``out`` they write over the arrays they replace and need room for one more gradient.

`skip` holds flags, or is None: where one is set, everything stays as it was. On a GPU they are waited for.
"""

from __future__ import annotations

from typing import Any

from minigraph.kernels.buffers import deliver
from minigraph.kernels.registry import kernel


def _stepped(xp, param, step, out) -> Any:
    """``param - step`` in the dtype of `param`, also where a wider learning rate made `step` wider."""
    if out is not None:
        return xp.subtract(param, step, out=out)
    return xp.subtract(param, step).astype(param.dtype, copy=False)


def _is_skipped(skip) -> bool:
    return skip is not None and any(bool(flag.item()) for flag in skip)


def _kept(xp, old, out) -> tuple[Any, ...]:
    """The arrays that an update would have replaced, or copies of them."""
    if out is None:
        return tuple(value.copy() for value in old)
    return tuple(deliver(xp, value, each) for value, each in zip(old, out, strict=True))


@kernel("sgd")
def sgd(xp, param, rate, grad, skip, *, out=None):
    if _is_skipped(skip):
        return param.copy() if out is None else deliver(xp, param, out)
    return _stepped(xp, param, xp.multiply(grad, rate.reshape(1)), out)


@kernel("momentum")
def momentum(xp, param, grad, velocity, rate, skip, *, mu, use_nesterov, out=None):
    if _is_skipped(skip):
        return _kept(xp, (param, velocity), out)
    param_out, velocity_out = out or (None, None)
    velocity = xp.multiply(velocity, mu, out=velocity_out)
    xp.add(velocity, grad, out=velocity)
    if use_nesterov:
        step = xp.multiply(velocity, mu)
        xp.add(step, grad, out=step)
        step = xp.multiply(step, rate.reshape(1))
    else:
        step = xp.multiply(velocity, rate.reshape(1))
    return _stepped(xp, param, step, param_out), velocity


@kernel("adam")
def adam(
    xp, param, grad, rate, moment1, moment2, beta1_pow, beta2_pow, beta1_tensor, beta2_tensor, skip,
    *, beta1, beta2, epsilon, out=None,
):  # fmt: skip
    if _is_skipped(skip):
        return _kept(xp, (param, moment1, moment2, beta1_pow, beta2_pow), out)
    param_out, moment1_out, moment2_out, beta1_pow_out, beta2_pow_out = out or (None,) * 5
    if beta1_tensor is not None:
        beta1 = beta1_tensor.reshape(1).astype(param.dtype)
    if beta2_tensor is not None:
        beta2 = beta2_tensor.reshape(1).astype(param.dtype)
    rate = rate.reshape(1) * xp.sqrt(1 - beta2_pow.reshape(1)) / (1 - beta1_pow.reshape(1))

    work = xp.multiply(grad, 1 - beta1)
    moment1 = xp.multiply(moment1, beta1, out=moment1_out)
    xp.add(moment1, work, out=moment1)
    xp.square(grad, out=work)
    xp.multiply(work, 1 - beta2, out=work)
    moment2 = xp.multiply(moment2, beta2, out=moment2_out)
    xp.add(moment2, work, out=moment2)
    xp.sqrt(moment2, out=work)
    xp.add(work, epsilon, out=work)
    xp.true_divide(moment1, work, out=work)
    xp.multiply(work, rate, out=work)
    return (
        _stepped(xp, param, work, param_out),
        moment1,
        moment2,
        deliver(xp, beta1_pow * beta1, beta1_pow_out),
        deliver(xp, beta2_pow * beta2, beta2_pow_out),
    )
