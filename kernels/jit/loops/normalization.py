"""Rows brought to mean 0 and variance 1, and the way back; sums are taken in float64.

What rounding takes from a mean is taken from the elements too: where they are alike, it matters beside differences.
"""

import numpy as np

REASSOCIATED = ("row_sum", "row_sum_of_squares", "row_sum_of_products")


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


def row_sum_of_products(x, d, i, middle, rest):
    total = 0.0
    for j in range(x.shape[1]):
        total += np.float64(d[i, j]) * np.float64((x[i, j] - middle) - rest)
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


def batch_norm(x, scale, bias, mean, variance, share, epsilon, y, mean_out, variance_out, saved_mean, saved_inverse):
    """The rows of a channel are as many apart as there are channels; `share` is what the running statistics keep."""
    T, channels, columns = x.dtype.type, scale.shape[0], x.shape[1]
    count = x.shape[0] // channels * columns
    for c in range(channels):
        exact, spread = 0.0, 0.0
        for i in range(c, x.shape[0], channels):
            exact += row_sum(x, i)
        exact /= count
        for i in range(c, x.shape[0], channels):
            spread += row_sum_of_squares(x, i, exact)
        spread /= count
        middle, inverse = T(exact), T(1.0 / np.sqrt(spread + epsilon))
        rest, factor = T(exact - np.float64(middle)), inverse * scale[c]
        for i in range(c, x.shape[0], channels):
            for j in range(columns):
                y[i, j] = ((x[i, j] - middle) - rest) * factor + bias[c]
        mean_out[c] = mean[c] * share + exact * (1.0 - share)
        variance_out[c] = variance[c] * share + spread * (1.0 - share)
        saved_mean[c] = middle
        saved_inverse[c] = inverse


def batch_norm_grad(x, scale, mean, inverse, d_y, d_x, d_scale, d_bias):
    T, channels, columns = x.dtype.type, scale.shape[0], x.shape[1]
    count = x.shape[0] // channels * columns
    for c in range(channels):
        exact, total, along, middle = 0.0, 0.0, 0.0, mean[c]
        for i in range(c, x.shape[0], channels):
            exact += row_sum(x, i)
            total += row_sum(d_y, i)
        rest = T(exact / count - np.float64(middle))
        for i in range(c, x.shape[0], channels):
            along += row_sum_of_products(x, d_y, i, middle, rest)
        along *= inverse[c]
        factor, slope, level = inverse[c] * scale[c], T(along / count) * inverse[c], T(total / count)
        for i in range(c, x.shape[0], channels):
            for j in range(columns):
                d_x[i, j] = (d_y[i, j] - ((x[i, j] - middle) - rest) * slope - level) * factor
        d_scale[c] = along
        d_bias[c] = total


def batch_norm_given(x, scale, bias, mean, variance, epsilon, y, inverse):
    """By statistics that are given, in float64; `inverse` becomes 1 / deviation."""
    channels = scale.shape[0]
    for c in range(channels):
        exact = 1.0 / np.sqrt(np.float64(variance[c]) + epsilon)
        middle, factor, level = np.float64(mean[c]), exact * scale[c], np.float64(bias[c])
        for i in range(c, x.shape[0], channels):
            for j in range(x.shape[1]):
                y[i, j] = (np.float64(x[i, j]) - middle) * factor + level
        inverse[c] = exact


def batch_norm_given_grad(x, scale, mean, inverse, d_y, d_x, d_scale, d_bias):
    T, channels = x.dtype.type, scale.shape[0]
    for c in range(channels):
        factor, total, along = T(inverse[c] * scale[c]), 0.0, 0.0
        for i in range(c, x.shape[0], channels):
            total += row_sum(d_y, i)
            along += row_sum_of_products(x, d_y, i, mean[c], T(0))
            for j in range(x.shape[1]):
                d_x[i, j] = d_y[i, j] * factor
        d_scale[c] = along * inverse[c]
        d_bias[c] = total
