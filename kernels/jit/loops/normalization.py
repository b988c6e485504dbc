"""Rows brought to mean 0 and variance 1, and the way back; sums are taken in float64.

What rounding takes from a mean is taken from the elements too: where they are alike, it matters beside differences.
"""

import numpy as np

REASSOCIATED = ("row_sum", "row_sum_of_squares")


def row_sum(x, i):
    total = 0.0
    for j in range(x.shape[1]):
        total += np.float64(x[i, j])
    return total


def row_sum_of_squares(x, i, mean):
    total = 0.0
    for j in range(x.shape[1]):
        away = np.float64(x[i, j]) - mean
        total += away * away
    return total


def layer_norm(x, scale, bias, epsilon, y, mean, variance):
    T = x.dtype.type
    for i in range(x.shape[0]):
        exact = row_sum(x, i) / x.shape[1]
        spread = row_sum_of_squares(x, i, exact) / x.shape[1]
        middle, inverse = T(exact), T(1.0 / np.sqrt(spread + epsilon))
        rest = T(exact - np.float64(middle))
        for j in range(x.shape[1]):
            y[i, j] = ((x[i, j] - middle) - rest) * inverse * scale[j] + bias[j]
        mean[i] = middle
        variance[i] = spread


def layer_norm_grad(x, scale, mean, variance, d_y, epsilon, d_x, flowing, d_scale, d_bias):
    """`flowing` is a matrix of two rows to work in; `d_scale` and `d_bias` are in float64."""
    T, columns = x.dtype.type, x.shape[1]
    for j in range(columns):
        d_scale[j] = 0.0
        d_bias[j] = 0.0
    for i in range(x.shape[0]):
        middle, inverse = mean[i], T(1.0 / np.sqrt(np.float64(variance[i]) + epsilon))
        rest = T(row_sum(x, i) / columns - np.float64(middle))
        for j in range(columns):
            d = d_y[i, j]
            normalized = ((x[i, j] - middle) - rest) * inverse
            d_scale[j] += np.float64(d * normalized)
            d_bias[j] += np.float64(d)
            flowing[0, j] = d * scale[j]
            flowing[1, j] = d * scale[j] * normalized
        mean_d = T(row_sum(flowing, 0) / columns)
        mean_product = T(row_sum(flowing, 1) / columns)
        for j in range(columns):
            normalized = ((x[i, j] - middle) - rest) * inverse
            d_x[i, j] = inverse * (flowing[0, j] - mean_d - normalized * mean_product)
