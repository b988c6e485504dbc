"""Softmax and the losses built on it."""

from __future__ import annotations

from minigraph.errors import ExecutionError
from minigraph.kernels.registry import kernel

LEAST_EXPONENT = -64.0
"""Exponents below this count as this in softmax."""
LARGEST_LOSS = 1e20
"""What the loss of probability 0 counts, as in fluid."""


@kernel("softmax")
def softmax(xp, x, *, axis, out=None):
    if not x.size:
        return x.copy() if out is None else out
    result = xp.subtract(x, x.max(axis=axis, keepdims=True), out=out)
    # As in fluid, no probability is 0: what divides by it, the gradient of cross_entropy, stays finite.
    xp.maximum(result, x.dtype.type(LEAST_EXPONENT), out=result)
    xp.exp(result, out=result)
    result /= result.sum(axis=axis, keepdims=True)
    return result


@kernel("softmax_grad")
def softmax_grad(xp, result, d_out, *, axis):
    grad = d_out * result
    grad -= result * grad.sum(axis=axis, keepdims=True)
    return grad


@kernel("log_softmax")
def log_softmax(xp, x, *, axis):
    if not x.size:
        return x.copy()
    shifted = x - x.max(axis=axis, keepdims=True)
    shifted -= xp.log(xp.exp(shifted).sum(axis=axis, keepdims=True))
    return shifted


@kernel("log_softmax_grad")
def log_softmax_grad(xp, result, d_out, *, axis):
    return d_out - xp.exp(result) * d_out.sum(axis=axis, keepdims=True)


def _valid_labels(xp, label, classes, ignore_index):
    """Labels with the ignored ones replaced by 0, and where they were not ignored (None: everywhere)."""
    if label.size and (int(label.min()) < 0 or int(label.max()) >= classes):
        kept = label != ignore_index
        wrong = kept & ((label < 0) | (label >= classes))
        if bool(wrong.any()):
            place = int(xp.flatnonzero(wrong)[0])
            raise ExecutionError(
                f"label {int(label.reshape(-1)[place])} in row {place} is not one of the {classes} classes",
                hint=f"Labels must be in [0, {classes}), or equal ignore_index={ignore_index}.",
            )
        return xp.where(kept, label, 0), kept
    if 0 <= ignore_index < classes:
        return label, label != ignore_index
    return label, None


def _minus_log(xp, p):
    """``-log(p)``, where the infinity at 0 counts as `LARGEST_LOSS`."""
    with _quiet(xp):
        return xp.minimum(-xp.log(p), p.dtype.type(min(LARGEST_LOSS, float(_largest(p.dtype)))))


def _largest(dtype):
    import numpy as np

    return np.finfo(dtype).max


def _quiet(xp):
    import contextlib

    return xp.errstate(divide="ignore") if hasattr(xp, "errstate") else contextlib.nullcontext()


def _put(xp, like, label, values, axis=-1):
    """Zeros in the shape of `like` but for `values` at `label` along `axis`."""
    result = xp.zeros(like, values.dtype)
    classes = xp.arange(like[axis]).reshape([-1 if i == axis % len(like) else 1 for i in range(len(like))])
    return xp.where(classes == label, values, result)


@kernel("cross_entropy")
def cross_entropy(xp, x, label, *, soft_label, ignore_index):
    if soft_label:
        return (label * _minus_log(xp, x)).sum(axis=-1, keepdims=True)
    index, kept = _valid_labels(xp, label, x.shape[-1], ignore_index)
    loss = _minus_log(xp, xp.take_along_axis(x, index, axis=-1))
    return loss if kept is None else xp.where(kept, loss, x.dtype.type(0))


@kernel("cross_entropy_grad")
def cross_entropy_grad(xp, x, label, d_out, *, soft_label, ignore_index):
    if soft_label:
        return -label * d_out / x
    index, kept = _valid_labels(xp, label, x.shape[-1], ignore_index)
    values = -d_out / xp.take_along_axis(x, index, axis=-1)
    if kept is not None:
        values = xp.where(kept, values, x.dtype.type(0))
    return _put(xp, x.shape, index, values)


@kernel("cross_entropy2")
def cross_entropy2(xp, x, label, *, ignore_index):
    index, kept = _valid_labels(xp, label, x.shape[-1], ignore_index)
    match = xp.take_along_axis(x, index, axis=-1)
    loss = _minus_log(xp, match)
    if kept is not None:
        loss, match = xp.where(kept, loss, x.dtype.type(0)), xp.where(kept, match, x.dtype.type(1))
    return loss, xp.zeros((*x.shape, 0), x.dtype), match


@kernel("cross_entropy_grad2")
def cross_entropy_grad2(xp, label, match, x_shape, d_out, *, ignore_index):
    shape = x_shape.shape[:-1]
    index, kept = _valid_labels(xp, label, shape[-1], ignore_index)
    values = -d_out / match
    if kept is not None:
        values = xp.where(kept, values, values.dtype.type(0))
    return _put(xp, shape, index, values)


@kernel("softmax_with_cross_entropy")
def softmax_with_cross_entropy(xp, logits, label, *, soft_label, ignore_index, axis):
    log_p = log_softmax(xp, logits, axis=axis)
    p = xp.exp(log_p)
    if soft_label:
        return p, -(label * log_p).sum(axis=axis, keepdims=True)
    index, kept = _valid_labels(xp, label, logits.shape[axis], ignore_index)
    loss = -xp.take_along_axis(log_p, index, axis=axis)
    return p, loss if kept is None else xp.where(kept, loss, logits.dtype.type(0))


@kernel("softmax_with_cross_entropy_grad")
def softmax_with_cross_entropy_grad(xp, label, p, d_loss, *, soft_label, ignore_index, axis):
    """``(softmax - onehot(label)) * d_loss``, with fluid's two shortcuts.

    Soft labels are taken to sum to one, and an ignored label that is a class has the gradient of that class.
    """
    if soft_label:
        return (p - label) * d_loss
    index, kept = _valid_labels(xp, label, p.shape[axis], ignore_index)
    if 0 <= ignore_index < p.shape[axis]:
        kept = None
    grad = (p - _put(xp, p.shape, index, xp.ones(index.shape, p.dtype), axis)) * d_loss
    return grad if kept is None else xp.where(kept, grad, p.dtype.type(0))
