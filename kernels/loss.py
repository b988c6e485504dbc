"""Softmax and the losses built on it.

float16 is computed in float32. Labels are checked on the host: a label that is no class raises an error. While a graph
is recorded nothing is checked here, because the recorder has checked the labels.
"""

from __future__ import annotations

import math
from functools import lru_cache, partial
from typing import Any

import numpy as np

from minigraph.errors import ExecutionError
from minigraph.kernels.buffers import deliver, unshared
from minigraph.kernels.cuda.launching import is_recording
from minigraph.kernels.reduce import mean, mean_grad
from minigraph.kernels.registry import kernel, specialize
from minigraph.kernels.sums import add_over, ones, sum_of_rows
from minigraph.kernels.tensor import times
from minigraph.kernels.upcast import narrow, widen

FLOOR = -64.0
"""Minimum exponent in softmax, as in fluid: no probability is 0."""


_FLOORS = {np.dtype(each): np.array(FLOOR, each) for each in (np.float32, np.float64)}
"""`FLOOR` as arrays, which NumPy converts faster than numbers."""

SHORT_ROW = 32
"""Maximum length of a row whose sum is a product and whose maximum is taken column by column."""

_IN_COLUMNS = 16
"""Maximum length of a row whose softmax is computed in columns: NumPy has a cost for each row."""

_FEW = 8192
"""Maximum elements for which all short rows are computed in columns: calls cost more than the transpose."""


def _buffer(x, out) -> Any:
    """`out`, or None for float16, which is computed in float32."""
    return None if x.dtype == np.float16 else out


def _by_rows(xp, x) -> Any:
    """`x` in row-major order: sums then round alike, whatever the layout of `x`."""
    return x if xp is not np or x.flags.c_contiguous else np.ascontiguousarray(x)


def _has_short_rows(xp, x, axis) -> bool:
    """Whether `axis` is the last one and so short that NumPy's cost for each row outweighs that of its elements."""
    return xp is np and axis % x.ndim == x.ndim - 1 and x.shape[-1] <= SHORT_ROW and x.flags.c_contiguous


def goes_by_columns(shape) -> bool:
    """Whether the softmax of short rows is faster in columns."""
    return shape[-1] <= _IN_COLUMNS or (shape[-1] <= SHORT_ROW and math.prod(shape) <= _FEW)


def _sum(xp, x, axis) -> Any:
    if _has_short_rows(xp, x, axis):
        return x.dot(ones(x.shape[-1], x.dtype)).reshape((*x.shape[:-1], 1))
    return add_over(xp, x, (axis % x.ndim,), keepdims=True)


def _largest(xp, x, axis) -> Any:
    if _has_short_rows(xp, x, axis):
        # Transposed, so that NumPy takes the maximum of whole columns instead of each short row.
        columns = x.reshape(-1, x.shape[-1]).T.copy()
        return np.maximum.reduce(columns, 0).reshape((*x.shape[:-1], 1))
    return x.max(axis, keepdims=True)


def _shifted(xp, x, axis, out=None) -> Any:
    """`x` minus its maximum along `axis`: no exponential overflows, and one of them is 1."""
    return xp.subtract(x, _largest(xp, x, axis), out=out)


def _softmax_of(xp, shifted, axis) -> tuple[Any, Any]:
    """The softmax of the result of `_shifted`, which is overwritten, and the sum of the exponentials."""
    xp.maximum(shifted, shifted.dtype.type(FLOOR), out=shifted)
    xp.exp(shifted, out=shifted)
    total = _sum(xp, shifted, axis)
    return xp.true_divide(shifted, total, out=shifted), total


@kernel("softmax")
def softmax(xp, x, *, axis, out=None):
    if not x.size:
        return x.copy() if out is None else out
    x = _by_rows(xp, x)
    if _has_short_rows(xp, x, axis) and goes_by_columns(x.shape):
        return _softmax_in_columns(x, out)
    shifted = _shifted(xp, widen(x), axis, _buffer(x, out))
    return narrow(xp, _softmax_of(xp, shifted, axis)[0], x.dtype, out)


def _softmax_in_columns(x, out) -> Any:
    """The softmax of rows of a few elements."""
    columns = widen(x).reshape(-1, x.shape[-1]).T.copy()
    _softmax_of_columns(columns)
    return _as_rows(columns, x, out)


def _softmax_of_columns(columns) -> None:
    """Turn each column into its softmax."""
    np.subtract(columns, np.maximum.reduce(columns, 0), out=columns)
    np.maximum(columns, _FLOORS[columns.dtype], out=columns)
    np.exp(columns, out=columns)
    np.true_divide(columns, sum_of_rows(columns), out=columns)


def _as_rows(columns, like, out) -> Any:
    """The columns as the rows of an array like `like`."""
    y = out if out is not None and out.flags.c_contiguous else np.empty(like.shape, like.dtype)
    y.reshape(columns.shape[::-1])[...] = columns.T
    return deliver(np, y, out)


@kernel("log_softmax")
def log_softmax(xp, x, *, axis, out=None):
    if not x.size:
        return x.copy() if out is None else out
    x = _by_rows(xp, x)
    shifted = _shifted(xp, widen(x), axis, _buffer(x, out))
    result = xp.subtract(shifted, xp.log(_sum(xp, xp.exp(shifted), axis)), out=shifted)
    return narrow(xp, result, x.dtype, out)


def checked_labels(xp, label, classes, ignore_index) -> tuple[Any, Any]:
    """`label` with ignored labels replaced by 0, and the mask of these; None if there are none.

    Raises
    ------
    ExecutionError
        If any other label is no class.
    """
    # The common case takes one reduction: all labels are classes, and the ignored label is none.
    are_classes = _are_classes(label, classes)
    if are_classes and not 0 <= ignore_index < classes:
        return label, None
    ignored = label == ignore_index
    if not are_classes and not is_recording():
        wrong = ((label < 0) | (label >= classes)) & ~ignored
        if bool(wrong.any()):
            raise ExecutionError(
                _describe(label, int(wrong.argmax()), classes),
                hint=f"Give labels from 0 to {classes - 1}, or ignore_index={ignore_index} for rows that do not count.",
            )
    return xp.where(ignored, 0, label), ignored


def _are_classes(label, classes) -> bool:
    """Whether all labels are known to be classes; False while a graph is recorded."""
    if is_recording():
        return False
    # One reduction checks both bounds: as unsigned numbers, negative ones are huge.
    return not label.size or int(label.astype(np.int64, copy=False).view(np.uint64).max()) < classes


def _describe(label, position, classes) -> str:
    value = int(label.reshape(-1)[position])
    row = [int(i) for i, size in zip(np.unravel_index(position, label.shape), label.shape, strict=True) if size > 1]
    return f"Label is {value} in row {row[0] if len(row) == 1 else row or 0}, but there are {classes} classes"


def _at_label(xp, label, axis) -> tuple[Any, ...]:
    """Index of the elements that `label`, of size 1 along `axis`, selects."""
    rank = label.ndim
    return tuple(
        label if i == axis % rank else xp.arange(size).reshape((size,) + (1,) * (rank - 1 - i))
        for i, size in enumerate(label.shape)
    )


def _elements(xp, x, label, axis) -> tuple[Any, Any]:
    """`x`, or its elements as a vector, and the index of the elements that `label`, of size 1 along `axis`, selects."""
    if xp is np and axis % x.ndim == x.ndim - 1 and x.flags.c_contiguous and label.dtype.kind == "i":
        # One index into a vector is faster than one for each dimension.
        return x.reshape(-1), label + _row_starts(label.size, x.shape[-1]).reshape(label.shape)
    return x, _at_label(xp, label, axis)


@lru_cache(maxsize=64)
def _row_starts(rows, columns) -> np.ndarray:
    starts = np.arange(rows) * columns
    starts.flags.writeable = False
    return starts


def _zero_where(xp, ignored, x) -> Any:
    """Set `x` to 0 where ignored, in place, and return it."""
    if ignored is not None:
        xp.copyto(x, 0, where=ignored)
    return x


def minus_log(xp, p, limit) -> Any:
    """``-log(p)``, with infinities replaced by `limit`."""
    loss = xp.log(p)
    xp.negative(loss, out=loss)
    bound = loss.dtype.type(limit)
    # A probability of 0 gives a large loss, as in fluid, and not infinity, which would spoil the mean of the batch.
    xp.minimum(loss, bound, out=loss)
    return xp.maximum(loss, -bound, out=loss)


def limit_of_loss(dtype) -> float:
    return 65500.0 if dtype == np.float16 else 1e20


def _in_column(label, x) -> Any:
    """`label` with a dimension of 1 for the classes, which it may lack."""
    return label.reshape((*x.shape[:-1], 1))


@kernel("cross_entropy")
def cross_entropy(xp, x, label, *, soft_label, ignore_index, out=None):
    if soft_label:
        loss = _sum(xp, widen(label) * minus_log(xp, widen(x), limit_of_loss(x.dtype)), -1)
        return narrow(xp, loss, x.dtype, out)
    return deliver(xp, _hard_loss(xp, x, label, ignore_index)[0], out)


@kernel("cross_entropy2")
def cross_entropy2(xp, x, label, *, ignore_index, out=None):
    loss, match = _hard_loss(xp, x, label, ignore_index)
    y_out, x_shape, match_out = out or (None, xp.empty((*x.shape, 0), x.dtype), None)
    return deliver(xp, loss, y_out), x_shape, deliver(xp, match, match_out)


def _hard_loss(xp, x, label, ignore_index) -> tuple[Any, Any]:
    """The loss in the shape of `label`, and the probabilities of the labels."""
    index, ignored = checked_labels(xp, _in_column(label, x), x.shape[-1], ignore_index)
    elements, places = _elements(xp, x, index, -1)
    match = elements[places]
    loss = minus_log(xp, widen(match), limit_of_loss(x.dtype)).astype(x.dtype, copy=False)
    return _zero_where(xp, ignored, loss).reshape(label.shape), _zero_where(xp, ignored, match)


@kernel("softmax_with_cross_entropy")
def softmax_with_cross_entropy(xp, logits, label, *, soft_label, ignore_index, axis, out=None):
    softmax_out, loss_out = out or (None, None)
    logits = _by_rows(xp, logits)
    if soft_label:
        probabilities, loss = _soft_loss(xp, widen(logits), widen(label), axis)
    else:
        index, ignored = checked_labels(xp, label, logits.shape[axis], ignore_index)
        shifted = _shifted(xp, widen(logits), axis, _buffer(logits, softmax_out))
        elements, places = _elements(xp, shifted, index, axis)
        at_label = elements[places]
        probabilities, total = _softmax_of(xp, shifted, axis)
        loss = _zero_where(xp, ignored, xp.log(total) - at_label)
    return narrow(xp, probabilities, logits.dtype, softmax_out), narrow(xp, loss, logits.dtype, loss_out)


def _soft_loss(xp, logits, label, axis) -> tuple[Any, Any]:
    shifted = _shifted(xp, logits, axis)
    probabilities, total = _softmax_of(xp, shifted.copy(), axis)
    log_p = xp.subtract(shifted, xp.log(total), out=shifted)
    # A class of weight 0 adds 0, even if its logit is -inf: the product would be NaN.
    terms = xp.where(label == 0, label.dtype.type(0), label * log_p)
    return probabilities, -_sum(xp, terms, axis)


@kernel("softmax_grad")
def softmax_grad(xp, y, d_y, *, axis, out=None):
    """``d_x = y * (d_y - sum(y * d_y))``."""
    wide, d_wide = widen(y), widen(d_y)
    product = xp.multiply(wide, d_wide)
    d_x = xp.subtract(d_wide, _sum(xp, product, axis), out=product)
    return narrow(xp, xp.multiply(d_x, wide, out=d_x if out is None else _buffer(y, out)), y.dtype, out)


@kernel("log_softmax_grad")
def log_softmax_grad(xp, y, d_y, *, axis, out=None):
    """``d_x = d_y - exp(y) * sum(d_y)``."""
    d_wide = widen(d_y)
    share = xp.exp(widen(y))
    xp.multiply(share, _sum(xp, d_wide, axis), out=share)
    return narrow(xp, xp.subtract(d_wide, share, out=share if out is None else _buffer(y, out)), y.dtype, out)


@kernel("cross_entropy_grad")
def cross_entropy_grad(xp, x, label, d_loss, *, soft_label, ignore_index, out=None):
    d_column = _in_column(d_loss, x)
    if soft_label:
        has_weight = label != 0
        # Without a weight the slope is 0, also where the probability is 0.
        share = xp.where(has_weight, widen(label), 0) / xp.where(has_weight, widen(x), 1)
        return narrow(xp, xp.multiply(share, -widen(d_column)), x.dtype, out)
    index, ignored = checked_labels(xp, _in_column(label, x), x.shape[-1], ignore_index)
    elements, places = _elements(xp, x, index, -1)
    return _only_at(xp, index, -d_column / elements[places], ignored, x.shape, out)


@kernel("cross_entropy_grad2")
def cross_entropy_grad2(xp, match, label, x_shape, d_loss, *, ignore_index, out=None):
    shape = x_shape.shape[:-1]
    label, ignored = label.reshape(match.shape), None
    if 0 <= ignore_index < shape[-1] or not _are_classes(label, shape[-1]):
        ignored = label == ignore_index
        # A match of 1 avoids a division by 0 in rows that get no gradient.
        label, match = xp.where(ignored, 0, label), xp.where(ignored, match.dtype.type(1), match)
    d_match = -d_loss.reshape(match.shape) / match
    return _only_at(xp, label, d_match, ignored, shape, out)


def _only_at(xp, label, values, ignored, shape, out) -> Any:
    """Zeros, with `values` at the labels."""
    result = xp.empty(shape, values.dtype) if out is None else out
    result.fill(0)
    elements, places = _elements(xp, result, label, -1)
    elements[places] = _zero_where(xp, ignored, values)
    return result


@kernel("fused_mean_loss")
def fused_mean_loss(xp, x, label, *, ignore_index, slope, from_logits, wanted, out=None):
    """The kernels of the single operators one after the other, or fewer calls with the same bits."""
    y_out, loss_out, d_x_out = out or (None, None, None)
    if from_logits:
        kind = {"soft_label": False, "ignore_index": ignore_index, "axis": -1}
        place = unshared(xp, y_out if wanted[0] else d_x_out, label)
        y, loss = softmax_with_cross_entropy(xp, x, label, out=(place, None), **kind)
        total, d_loss = mean(xp, loss), mean_grad(xp, loss, xp.full((1,), slope, x.dtype))
        d_x = softmax_with_cross_entropy_grad(xp, y, label, d_loss, out=d_x_out if wanted[0] else y, **kind)
    elif xp is np and x.dtype != np.float16 and slope:
        y = softmax(xp, x, axis=-1)
        total, d_x = _mean_loss(y, _in_column(label, x), ignore_index, slope)
    else:
        y = softmax(xp, x, axis=-1)
        loss, shape, match = cross_entropy2(xp, y, label, ignore_index=ignore_index)
        total, d_loss = mean(xp, loss), mean_grad(xp, loss, xp.full((1,), slope, x.dtype))
        d_y = cross_entropy_grad2(xp, match, label, shape, d_loss, ignore_index=ignore_index)
        d_x = softmax_grad(xp, y, d_y, axis=-1)
    return deliver(xp, y, y_out) if wanted[0] else None, deliver(xp, total, loss_out), deliver(xp, d_x, d_x_out)


def _mean_loss(y, label, ignore_index, slope) -> tuple[Any, Any]:
    """The mean loss of probabilities `y`, and its gradient by the logits.

    The gradient by the probabilities is 0 except at the labels. So the sum of its products with the probabilities,
    which the gradient of a softmax subtracts, has one term for each row.
    """
    index, ignored = checked_labels(np, label, y.shape[-1], ignore_index)
    elements, places = _elements(np, y, index, -1)
    match = elements[places]
    loss = _zero_where(np, ignored, minus_log(np, match, limit_of_loss(y.dtype)))
    each = y.dtype.type(slope) / y.dtype.type(max(loss.size, 1))
    steep = _zero_where(np, ignored, np.true_divide(-each, match))
    along = match * steep
    d_x = np.multiply(0 - along, y)
    elements, places = _elements(np, d_x, index, -1)
    elements[places] = (steep - along) * match
    return mean(np, loss), d_x


@specialize("fused_mean_loss")
def _mean_loss_of_short_rows(xp, x, label, **attrs):
    """The same for short rows without ignored labels."""
    rows, classes = math.prod(x.shape[:-1]), x.shape[-1]
    is_apt = xp is np and x.dtype in _FLOORS and rows and classes and label.dtype.kind == "i"
    if not is_apt or 0 <= attrs["ignore_index"] < classes:
        return None
    slow = partial(fused_mean_loss, xp, **attrs)
    if attrs["from_logits"]:
        return _mean_loss_of_logits(x, attrs["slope"], attrs["wanted"], slow) if classes <= SHORT_ROW else None
    has_columns = attrs["slope"] and goes_by_columns(x.shape)
    return _mean_loss_in_columns(x, attrs["slope"], attrs["wanted"], slow) if has_columns else None


def _mean_loss_of_logits(x, slope, wanted, slow):
    """Row by row, as the sums of `softmax_with_cross_entropy` are made."""
    rows, classes = math.prod(x.shape[:-1]), x.shape[-1]
    row, shape = np.arange(rows), (rows, classes)
    each, one, floor = x.dtype.type(slope) / x.dtype.type(rows), np.ones((), x.dtype), _FLOORS[x.dtype]
    count, weights, wants_y = np.array(rows, x.dtype), ones(classes, x.dtype), wanted[0]

    def mean_loss(x, label, out=(None, None, None)):
        try:
            places = np.ravel_multi_index((row, label.reshape(-1)), shape)
        except ValueError:
            return slow(x, label, out=out)
        largest = np.maximum.reduce(x.reshape(shape).T.copy(), 0)
        y = np.subtract(x.reshape(shape), largest.reshape(rows, 1), order="C")
        elements = y.reshape(-1)
        at_label = elements[places]
        np.exp(np.maximum(y, floor, out=y), out=y)
        sums = y.reshape(x.shape).dot(weights).reshape(rows)
        np.true_divide(y, sums.reshape(rows, 1), out=y)
        loss = np.subtract(np.log(sums), at_label, out=at_label)
        total = np.add.reduce(loss, keepdims=True)
        total = deliver(np, np.true_divide(total, count, out=total), out[1])
        kept = np.positive(y.reshape(x.shape), out=out[0]) if wants_y else None
        elements[places] -= one
        return kept, total, np.multiply(y.reshape(x.shape), each, out=out[2])

    return mean_loss


def _mean_loss_in_columns(x, slope, wanted, slow):
    """Make a function for the mean loss, in the columns in which the softmax is computed."""
    rows, classes = math.prod(x.shape[:-1]), x.shape[-1]
    row, shape = np.arange(rows), (classes, rows)
    count, zero = np.array(rows, x.dtype), np.zeros((), x.dtype)
    each = np.asarray(-(x.dtype.type(slope) / x.dtype.type(rows)))
    wants_y, _, wants_d_x = wanted

    def mean_loss(x, label, out=(None, None, None)):
        try:
            places = np.ravel_multi_index((label.reshape(-1), row), shape)
        except ValueError:
            return slow(x, label, out=out)
        columns = x.reshape(rows, classes).T.copy()
        _softmax_of_columns(columns)
        y = _as_rows(columns, x, out[0]) if wants_y else None
        elements = columns.reshape(-1)
        match = elements[places]
        loss = np.log(match)  # finite, because softmax gives no share far below exp(-64)
        total = np.add.reduce(np.negative(loss, out=loss), keepdims=True)
        total = deliver(np, np.true_divide(total, count, out=total), out[1])
        if not wants_d_x:
            return y, total, None
        steep = np.true_divide(each, match)
        along = np.multiply(match, steep)
        np.multiply(columns, np.subtract(zero, along), out=columns)
        np.subtract(steep, along, out=steep)
        elements[places] = np.multiply(steep, match, out=steep)
        return y, total, _as_rows(columns, x, out[2])

    return mean_loss


@kernel("softmax_with_cross_entropy_grad")
def softmax_with_cross_entropy_grad(xp, probabilities, label, d_loss, *, soft_label, ignore_index, axis, out=None):
    """``d_logits = d_loss * (softmax - label)``, the label as weights of the classes."""
    weights = d_loss
    if soft_label:
        difference = xp.subtract(probabilities, label, out=unshared(xp, out, d_loss))
    else:
        if not 0 <= ignore_index < probabilities.shape[axis]:
            ignored = label == ignore_index
            label = xp.where(ignored, 0, label)
            weights = xp.where(ignored, d_loss.dtype.type(0), d_loss)
        difference = unshared(xp, out, d_loss, label)
        if difference is None:
            difference = xp.empty(probabilities.shape, probabilities.dtype)
        if difference is not probabilities:
            xp.copyto(difference, probabilities)
        elements, places = _elements(xp, difference, label, axis)
        elements[places] -= 1
    return xp.multiply(difference, weights, out=difference if out is None else out)


@kernel("label_smooth")
def label_smooth(xp, x, prior, *, epsilon, out=None):
    share = epsilon / x.shape[-1] if prior is None else epsilon * widen(prior).reshape(-1)
    return narrow(xp, (1 - epsilon) * widen(x) + share, x.dtype, out)


@kernel("label_smooth_grad")
def label_smooth_grad(xp, d_out, *, epsilon, out=None):
    return times(xp, d_out, 1 - epsilon, out)
