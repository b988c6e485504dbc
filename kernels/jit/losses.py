"""Softmax, cross entropies and their gradients, row by row.

Results are within 8 units of the last place of the shared kernels' results; a gradient is compared with its largest
element. If a label is no class, the shared kernel runs and raises the error.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from minigraph.kernels.jit import offers
from minigraph.kernels.jit.compiling import Loops
from minigraph.kernels.jit.functions import UnsupportedError
from minigraph.kernels.jit.loops_in_tables import record_loop
from minigraph.kernels.jit.offers import numba_name, offer, vectors
from minigraph.kernels.jit.recorders import native_loop
from minigraph.kernels.jit.recording import Recording, Symbol
from minigraph.kernels.loss import SHORT_ROW

_LOOPS = {kind: Loops(f"functions{kind[-2:]}", "exponentials", "losses") for kind in ("float32", "float64")}
_LABELS = {np.dtype(np.int64): "int64", np.dtype(np.int32): "int32"}
_CALLS_SAVED = 4
"""Divisor of the minimum elements for a loop, because these operators take NumPy many calls."""

_LEAST_OF_MEAN_LOSS = 8192
"""Minimum elements of the fused loss. For fewer, NumPy takes 20 us more, and the loop takes the longest to compile.

Long rows of logits have no minimum of their own: the loop takes a third of the time for 64 rows of 100.
"""

_LIMIT = 1e20
"""Maximum loss of a row; fluid's too."""


def _loop(name: str, x: Any, axis: int, letters: str, *others: Any, label: Any = None) -> Callable[..., Any] | None:
    """The loop `name` for arguments of the types that `letters` lists, or None.

    ``m`` is a matrix, ``v`` a vector, ``l`` labels, ``i`` an index and ``n`` a number.
    """
    kind = numba_name(x.dtype)
    is_last = x.shape and axis in (-1, len(x.shape) - 1)
    is_worth_it = prod(x.shape) * _CALLS_SAVED >= offers.LEAST and 0 not in x.shape
    if kind is None or not is_last or not is_worth_it or any(other.dtype != x.dtype for other in others):
        return None
    if label is not None and (label.dtype not in _LABELS or prod(label.shape) != prod(x.shape[:-1])):
        return None
    types = {
        "m": f"{kind}[:, ::1]", "v": f"{kind}[::1]", "i": "int64", "n": kind,
        "l": "" if label is None else f"{_LABELS[label.dtype]}[::1]",
    }  # fmt: skip
    return _LOOPS[kind].typed(name, letters, types, "void" if label is None else "int64")


def _rows(*arrays: Any) -> list[Any]:
    """The arrays as matrices of their rows, which share their memory."""
    return [x.reshape(-1, each.shape[-1]) for x, each in zip(vectors(*arrays), arrays, strict=True)]


def _made(out: Any, shape: Any, dtype: Any) -> Any:
    return np.empty(shape, dtype) if out is None else out


def _check(wrong: int) -> None:
    """Raise if a label is no class, so that the shared kernel runs and names it."""
    if wrong:
        raise TypeError("labels that are no classes")


@offer("softmax")
def softmax(xp, x, *, axis):
    loop = _loop("softmax", x, axis, "mmvv")
    if loop is None:
        return None
    count = prod(x.shape[:-1])

    def rows(x, out=None):
        y = _made(out, x.shape, x.dtype)
        loop(*_rows(x, y), np.empty(count, x.dtype), np.empty(count, x.dtype))
        return y

    return rows


@offer("softmax_grad")
def softmax_grad(xp, y, d_y, *, axis):
    loop = _loop("softmax_grad", y, axis, "mmm", d_y)
    if loop is None:
        return None

    def rows(y, d_y, out=None):
        d_x = _made(out, y.shape, y.dtype)
        loop(*_rows(y, d_y, d_x))
        return d_x

    return rows


@offer("softmax_with_cross_entropy")
def softmax_with_cross_entropy(xp, logits, label, *, soft_label, ignore_index, axis):
    loss_loop = None if soft_label else _loop("loss_of_softmax", logits, axis, "mlivvv", label=label)
    softmax_loop = _loop("softmax", logits, axis, "mmvv") if loss_loop is not None else None
    if loss_loop is None or softmax_loop is None:
        return None
    count = prod(label.shape)

    def rows(logits, label, out=None):
        y_out, loss_out = out or (None, None)
        # The loss is computed from the logits after the softmax is written.
        if y_out is logits:
            raise TypeError("the logits are read again")
        y, loss = _made(y_out, logits.shape, logits.dtype), _made(loss_out, label.shape, logits.dtype)
        x_rows, y_rows = _rows(logits, y)
        label_flat, loss_flat = vectors(label, loss)
        largest, total = np.empty(count, logits.dtype), np.empty(count, logits.dtype)
        softmax_loop(x_rows, y_rows, largest, total)
        _check(loss_loop(x_rows, label_flat, ignore_index, largest, total, loss_flat))
        return y, loss

    return rows


@offer("softmax_with_cross_entropy_grad")
def softmax_with_cross_entropy_grad(xp, probabilities, label, d_loss, *, soft_label, ignore_index, axis):
    if soft_label:
        return None
    return _gradient("softmax_with_cross_entropy_grad", probabilities, label, d_loss, ignore_index, axis)


def _gradient(name: str, x: Any, label: Any, d_loss: Any, ignore_index: int, axis: int) -> Callable[..., Any] | None:
    """The function of a loop that computes the gradient of X, or of logits of the probabilities X, from labels."""
    loop = _loop(name, x, axis, "mlvim", d_loss, label=label)
    if loop is None:
        return None

    def rows(x, label, d_loss, out=None):
        d_x = _made(out, x.shape, x.dtype)
        x_rows, d_rows = _rows(x, d_x)
        label_flat, d_flat = vectors(label, d_loss)
        _check(loop(x_rows, label_flat, d_flat, ignore_index, d_rows))
        return d_x

    return rows


@offer("cross_entropy")
def cross_entropy(xp, x, label, *, soft_label, ignore_index):
    loop = None if soft_label else _loop("cross_entropy", x, -1, "mlinvv", label=label)
    if loop is None:
        return None
    limit = x.dtype.type(_LIMIT)

    def rows(x, label, out=None):
        loss = _made(out, label.shape, x.dtype)
        (x_rows,), (label_flat, loss_flat) = _rows(x), vectors(label, loss)
        _check(loop(x_rows, label_flat, ignore_index, limit, loss_flat, np.empty_like(loss_flat)))
        return loss

    return rows


@offer("cross_entropy2")
def cross_entropy2(xp, x, label, *, ignore_index):
    loop = _loop("cross_entropy", x, -1, "mlinvv", label=label)
    if loop is None:
        return None
    limit, column = x.dtype.type(_LIMIT), (*x.shape[:-1], 1)

    def rows(x, label, out=None):
        loss_out, shape_out, match_out = out or (None, None, None)
        loss, match = _made(loss_out, label.shape, x.dtype), _made(match_out, column, x.dtype)
        (x_rows,), (label_flat, loss_flat, match_flat) = _rows(x), vectors(label, loss, match)
        _check(loop(x_rows, label_flat, ignore_index, limit, loss_flat, match_flat))
        return loss, _made(shape_out, (*x.shape, 0), x.dtype), match

    return rows


@offer("fused_mean_loss")
def fused_mean_loss(xp, x, label, *, ignore_index, slope, from_logits, wanted):
    if prod(x.shape) < _LEAST_OF_MEAN_LOSS and (not from_logits or x.shape[-1] <= SHORT_ROW):
        return None
    loop = _loop("mean_loss_of_logits" if from_logits else "fused_mean_loss", x, -1, "mlinnmvm", label=label)
    if loop is None:
        return None
    dtype, limit, shape = x.dtype, x.dtype.type(_LIMIT), x.shape
    each, rows, empty = dtype.type(slope) / dtype.type(prod(label.shape)), (-1, shape[-1]), np.empty
    # Probabilities that nothing reads need only one row to work in, which stays in the cache.
    wants_y, shape_of_y = wanted[0], shape if wanted[0] else (1, shape[-1])

    def mean_loss(x, label, out=None):
        y, loss, d_x = out or (None, None, None)
        loss = empty(1, dtype) if loss is None else loss
        d_x = empty(shape, dtype) if d_x is None else d_x
        y = empty(shape_of_y, dtype) if y is None else y
        # An error before anything is written: the shared kernel then does all of it.
        if not (x.flags.c_contiguous and label.flags.c_contiguous and y.flags.c_contiguous and d_x.flags.c_contiguous):
            raise TypeError("not contiguous")
        matrices = [array.reshape(rows) for array in (x, y, d_x)]
        _check(loop(matrices[0], label.reshape(-1), ignore_index, limit, each, matrices[1], loss, matrices[2]))
        return (y if wants_y else None), loss, d_x

    return mean_loss


@offer("cross_entropy_grad2")
def cross_entropy_grad2(xp, match, label, x_shape, d_loss, *, ignore_index):
    x = x_shape._replace(shape=x_shape.shape[:-1])
    loop = _loop("cross_entropy_grad2", x, -1, "vlvim", match, d_loss, label=label)
    if loop is None:
        return None

    def rows(match, label, x_shape, d_loss, out=None):
        d_x = _made(out, x.shape, match.dtype)
        (d_rows,), (match_flat, label_flat, d_flat) = _rows(d_x), vectors(match, label, d_loss)
        _check(loop(match_flat, label_flat, d_flat, ignore_index, d_rows))
        return d_x

    return rows


@offer("cross_entropy_grad")
def cross_entropy_grad(xp, x, label, d_loss, *, soft_label, ignore_index):
    return None if soft_label else _gradient("cross_entropy_grad", x, label, d_loss, ignore_index, -1)


# In tables of calls


def _record(recording: Recording, name: str, letters: str, *given: Any) -> None:
    kind = next(x for x, letter in zip(given, letters, strict=True) if letter in "mv").dtype.name
    record_loop(recording, (f"functions{kind[-2:]}", "exponentials", "losses"), name, letters, *given)


def _matrix(x: Symbol) -> Symbol:
    if x.is_transposed:
        raise UnsupportedError("another order")
    return x.reshape(-1, x.shape[-1])


@native_loop("softmax")
def record_softmax(recording, x, *, axis):
    flat, y = _matrix(x), recording.new(x.shape, x.dtype)
    _record_softmax(recording, flat, y.reshape(flat.shape))
    return y


def _record_softmax(recording: Recording, x: Symbol, y: Symbol) -> tuple[Symbol, Symbol]:
    """Record the softmax of rows; returns the largest element of each and the sum."""
    largest, total = (recording.new(x.shape[:1], x.dtype) for _ in range(2))
    _record(recording, "softmax", "mmvv", x, y, largest, total)
    return largest, total


@native_loop("softmax_grad")
def record_softmax_grad(recording, y, d_y, *, axis):
    flat, d_x = _matrix(y), recording.new(y.shape, y.dtype)
    _record(recording, "softmax_grad", "mmm", flat, _matrix(d_y), d_x.reshape(flat.shape))
    return d_x


@native_loop("softmax_with_cross_entropy")
def record_loss_of_softmax(recording, logits, label, *, soft_label, ignore_index, axis):
    if soft_label:
        raise UnsupportedError("shares in place of labels")
    x, y, loss = _matrix(logits), recording.new(logits.shape, logits.dtype), recording.new(label.shape, logits.dtype)
    largest, total = _record_softmax(recording, x, y.reshape(x.shape))
    given = x, label.reshape(-1), ignore_index, largest, total, loss.reshape(-1)
    _record(recording, "loss_of_softmax", "mlivvv", *given)
    return y, loss


def _record_gradient(name: str, recording: Recording, x: Symbol, label: Symbol, d_loss: Symbol, ignored: int) -> Symbol:
    flat, d_x = _matrix(x), recording.new(x.shape, x.dtype)
    given = flat, label.reshape(-1), d_loss.reshape(-1), ignored, d_x.reshape(flat.shape)
    _record(recording, name, "mlvim", *given)
    return d_x


@native_loop("softmax_with_cross_entropy_grad")
def record_gradient_of_logits(recording, probabilities, label, d_loss, *, soft_label, ignore_index, axis):
    if soft_label:
        raise UnsupportedError("shares in place of labels")
    name = "softmax_with_cross_entropy_grad"
    return _record_gradient(name, recording, probabilities, label, d_loss, ignore_index)


@native_loop("cross_entropy_grad")
def record_cross_entropy_grad(recording, x, label, d_loss, *, soft_label, ignore_index):
    if soft_label:
        raise UnsupportedError("shares in place of labels")
    return _record_gradient("cross_entropy_grad", recording, x, label, d_loss, ignore_index)


@native_loop("fused_mean_loss")
def record_mean_loss(recording, x, label, *, ignore_index, slope, from_logits, wanted):
    flat, dtype, shape = _matrix(x), x.dtype, x.shape
    y = recording.new(shape if wanted[0] else (1, shape[-1]), dtype)
    loss, d_x = recording.new((1,), dtype), recording.new(shape, dtype)
    each = dtype.type(slope) / dtype.type(label.size)
    given = flat, label.reshape(-1), ignore_index, _LIMIT, each, _matrix(y), loss, d_x.reshape(flat.shape)
    _record(recording, "mean_loss_of_logits" if from_logits else "fused_mean_loss", "mlinnmvm", *given)
    return y if wanted[0] else None, loss, d_x
