"""Softmax and losses on the rows of matrices; sums along a row are taken in float64.

What labels name is checked: a function that takes them returns how many are no class and not to be ignored.
"""

import numpy as np

from minigraph.kernels.jit.loops.exponentials import exp
from minigraph.kernels.jit.loops.functions32 import T

REASSOCIATED = ("exponentials", "softmax_grad")


def greatest(x, i):
    """The largest element of row `i`, by four that do not wait for each other.

    NaN if that is the first; another NaN is left to the sum of exponentials, which it makes NaN.
    """
    a = b = c = d = x[i, 0]
    whole = x.shape[1] // 4 * 4
    for j in range(0, whole, 4):
        a = x[i, j] if x[i, j] > a else a
        b = x[i, j + 1] if x[i, j + 1] > b else b
        c = x[i, j + 2] if x[i, j + 2] > c else c
        d = x[i, j + 3] if x[i, j + 3] > d else d
    for j in range(whole, x.shape[1]):
        a = x[i, j] if x[i, j] > a else a
    a = a if a > b else b
    c = c if c > d else d
    return a if a > c else c


def exponentials(x, i, most, y, row):
    """Row `row` of `y`: exp of what row `i` of `x` has beyond `most`, at least exp(-64); returns the sum."""
    total = 0.0
    for j in range(x.shape[1]):
        beyond = x[i, j] - most
        y[row, j] = exp(T(-64) if beyond < T(-64) else beyond)
        total += np.float64(y[row, j])
    return total


def softmax(x, y, largest, total):
    """Row by row, with no share below exp(-64); notes the largest element of each row and the sum."""
    for i in range(x.shape[0]):
        most = greatest(x, i)
        divisor = T(exponentials(x, i, most, y, i))
        for j in range(x.shape[1]):
            y[i, j] = y[i, j] / divisor
        largest[i] = most
        total[i] = divisor


def softmax_grad(y, d_y, d_x):
    for i in range(y.shape[0]):
        total = 0.0
        for j in range(y.shape[1]):
            total += np.float64(y[i, j] * d_y[i, j])
        along = T(total)
        for j in range(y.shape[1]):
            d_x[i, j] = (d_y[i, j] - along) * y[i, j]


def loss_of_softmax(x, label, ignore_index, largest, total, loss):
    wrong = 0
    for i in range(x.shape[0]):
        at = label[i]
        if at == ignore_index:
            loss[i] = T(0)
        elif 0 <= at < x.shape[1]:
            loss[i] = np.log(total[i]) - (x[i, at] - largest[i])
        else:
            wrong += 1
    return wrong


def fused_mean_loss(x, label, ignore_index, limit, slope, y, loss, d_x):
    """`y` has all rows, or one to work in; `slope` is what the loss of a row counts, its gradient included."""
    wrong, total, keeps = 0, 0.0, y.shape[0] == x.shape[0]
    for i in range(x.shape[0]):
        row = i if keeps else 0
        divisor = T(exponentials(x, i, greatest(x, i), y, row))
        at = label[i]
        counts = 0 <= at < x.shape[1] and at != ignore_index
        match = y[row, at] / divisor if counts else T(1)
        steep = -slope / match if counts else T(0)
        along = match * steep
        for j in range(x.shape[1]):
            share = y[row, j] / divisor
            y[row, j] = share
            d_x[i, j] = (T(0) - along) * share
        if counts:
            value = -np.log(match)
            total += np.float64(limit if value > limit else (-limit if value < -limit else value))
            d_x[i, at] = (steep - along) * match
        else:
            wrong += at != ignore_index
    loss[0] = T(total / label.size)
    return wrong


def mean_loss_of_logits(x, label, ignore_index, limit, slope, y, loss, d_x):
    """Compute the same of the loss that `softmax_with_cross_entropy` gives; it has no `limit`."""
    wrong, total, keeps, classes = 0, 0.0, y.shape[0] == x.shape[0], x.shape[1]
    # The gradient does not know of an index that is a class.
    ignores = not 0 <= ignore_index < classes
    for i in range(x.shape[0]):
        row = i if keeps else 0
        at, most = label[i], greatest(x, i)
        is_class = 0 <= at < classes
        beyond = x[i, at] - most if is_class else T(0)
        divisor = T(exponentials(x, i, most, y, row))
        weight = T(0) if ignores and at == ignore_index else slope
        for j in range(classes):
            share = y[row, j] / divisor
            y[row, j] = share
            d_x[i, j] = share * weight
        if is_class:
            d_x[i, at] = (y[row, at] - T(1)) * weight
        if at != ignore_index:
            wrong += not is_class
            total += np.float64(np.log(divisor) - beyond)
    loss[0] = T(total / label.size)
    return wrong


def softmax_with_cross_entropy_grad(y, label, d_loss, ignore_index, d_x):
    classes, wrong = y.shape[1], 0
    # The gradient does not know of an index that is a class.
    ignores = not 0 <= ignore_index < classes
    for i in range(y.shape[0]):
        at = label[i]
        is_class = 0 <= at < classes
        weight = T(0) if ignores and at == ignore_index else d_loss[i]
        difference = y[i, at] - T(1) if is_class else T(0)
        for j in range(classes):
            d_x[i, j] = y[i, j] * weight
        if is_class:
            d_x[i, at] = difference * weight
        elif not ignores or at != ignore_index:
            wrong += 1
    return wrong


def cross_entropy(x, label, ignore_index, limit, loss, match):
    wrong = 0
    for i in range(x.shape[0]):
        at = label[i]
        match[i] = T(0)
        if at == ignore_index:
            loss[i] = T(0)
        elif 0 <= at < x.shape[1]:
            match[i] = x[i, at]
            value = -np.log(x[i, at])
            loss[i] = limit if value > limit else (-limit if value < -limit else value)
        else:
            wrong += 1
    return wrong


def cross_entropy_grad(x, label, d_loss, ignore_index, d_x):
    wrong = 0
    for i in range(x.shape[0]):
        at = label[i]
        is_class = 0 <= at < x.shape[1]
        slope = -d_loss[i] / x[i, at] if is_class else T(0)
        for j in range(x.shape[1]):
            d_x[i, j] = T(0)
        if is_class and at != ignore_index:
            d_x[i, at] = slope
        elif at != ignore_index:
            wrong += 1
    return wrong


def cross_entropy_grad2(match, label, d_loss, ignore_index, d_x):
    wrong = 0
    for i in range(d_x.shape[0]):
        at = label[i]
        is_class = 0 <= at < d_x.shape[1]
        slope = -d_loss[i] / match[i]
        for j in range(d_x.shape[1]):
            d_x[i, j] = T(0)
        if is_class and at != ignore_index:
            d_x[i, at] = slope
        elif at != ignore_index:
            wrong += 1
    return wrong
