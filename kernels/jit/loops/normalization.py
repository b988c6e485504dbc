"""Rows brought to mean 0 and variance 1, or to length 1, and the gradients; sums are taken in float64.

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
    """Normalize by given statistics, in float64; `inverse` becomes 1 / deviation."""
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


# Groups of channels: a row is a channel of a sample, and `each` rows share a mean and a variance


def group_norm(x, scale, bias, each, epsilon, y, mean, variance, inverse):
    T, columns, channels = x.dtype.type, x.shape[1], scale.shape[0]
    for g in range(x.shape[0] // each):
        exact, spread = 0.0, 0.0
        for i in range(g * each, (g + 1) * each):
            exact += row_sum(x, i)
        exact /= each * columns
        for i in range(g * each, (g + 1) * each):
            spread += row_sum_of_squares(x, i, exact)
        spread /= each * columns
        middle = T(exact)
        rest = T(exact - np.float64(middle))
        mean[g], variance[g], inverse[g] = middle, spread, T(1.0 / np.sqrt(spread + epsilon))
        for i in range(g * each, (g + 1) * each):
            factor, level = inverse[g] * scale[i % channels], bias[i % channels]
            for j in range(columns):
                y[i, j] = ((x[i, j] - middle) - rest) * factor + level


def group_norm_grad(x, scale, mean, variance, d_y, each, epsilon, d_x, d_scale, d_bias):
    """`d_scale` and `d_bias` are in float64."""
    T = x.dtype.type
    for c in range(scale.shape[0]):
        d_scale[c] = d_bias[c] = 0.0
    for g in range(x.shape[0] // each):
        inverse = T(1.0 / np.sqrt(np.float64(variance[g]) + epsilon))
        back_through_group(x, scale, mean[g], inverse, d_y, g * each, (g + 1) * each, d_x, d_scale, d_bias)


def instance_norm_grad(x, scale, mean, inverse, d_y, d_x, d_scale, d_bias):
    """The same for the factor that `instance_norm` saves."""
    for c in range(scale.shape[0]):
        d_scale[c] = d_bias[c] = 0.0
    for i in range(x.shape[0]):
        back_through_group(x, scale, mean[i], inverse[i], d_y, i, i + 1, d_x, d_scale, d_bias)


def back_through_group(x, scale, middle, inverse, d_y, start, end, d_x, d_scale, d_bias):
    """Gradients for the rows from `start` to before `end`, whose mean is `middle`."""
    T, columns, channels = x.dtype.type, x.shape[1], scale.shape[0]
    count, exact, total, along = (end - start) * columns, 0.0, 0.0, 0.0
    for i in range(start, end):
        exact += row_sum(x, i)
    rest = T(exact / count - np.float64(middle))
    for i in range(start, end):
        c = i % channels
        of_row = row_sum(d_y, i)
        product = row_sum_of_products(x, d_y, i, middle, rest) * inverse
        d_scale[c] += product
        d_bias[c] += of_row
        total += of_row * scale[c]
        along += product * scale[c]
    level, slope = T(total / count) * inverse, T(along / count) * inverse * inverse
    for i in range(start, end):
        factor = scale[i % channels] * inverse
        for j in range(columns):
            d_x[i, j] = d_y[i, j] * factor - level - ((x[i, j] - middle) - rest) * slope


# Rows brought to length 1


def unit_rows(x, epsilon, length, y):
    T = x.dtype.type
    for i in range(x.shape[0]):
        exact = np.sqrt(row_sum_of_squares(x, i, 0.0) + epsilon)
        length[i] = exact
        factor = 1.0 / exact
        for j in range(x.shape[1]):
            y[i, j] = T(np.float64(x[i, j]) * factor)


def unit_rows_grad(x, d_y, epsilon, d_x):
    T = x.dtype.type
    for i in range(x.shape[0]):
        factor = 1.0 / np.sqrt(row_sum_of_squares(x, i, 0.0) + epsilon)
        along = row_sum_of_products(x, d_y, i, T(0), T(0)) * factor * factor
        for j in range(x.shape[1]):
            d_x[i, j] = T((np.float64(d_y[i, j]) - np.float64(x[i, j]) * along) * factor)


# Angles between rows


def bounded_norm(x, i, least):
    return np.sqrt(max(row_sum_of_squares(x, i, 0.0), least))


def cosines(x, y, least, cosine, x_norm, y_norm):
    T = x.dtype.type
    for i in range(x.shape[0]):
        a, b = bounded_norm(x, i, least), bounded_norm(y, i, least)
        cosine[i] = T(row_sum_of_products(x, y, i, T(0), T(0)) / (a * b))
        x_norm[i] = T(a)
        y_norm[i] = T(b)


def turning(x, i, least, slope, norm):
    """Factor of the component along row `i`; 0 where its norm is the bound."""
    return slope / (norm * norm) if row_sum_of_squares(x, i, 0.0) > least else 0.0


def cosines_grad(x, y, cosine, x_norm, y_norm, d, least, d_x):
    T = x.dtype.type
    for i in range(x.shape[0]):
        a, slope = np.float64(x_norm[i]), np.float64(d[i])
        both = slope / (a * np.float64(y_norm[i]))
        along = turning(x, i, least, np.float64(cosine[i]) * slope, a)
        for j in range(x.shape[1]):
            d_x[i, j] = T(np.float64(y[i, j]) * both - np.float64(x[i, j]) * along)


def cosines_grads(x, y, cosine, x_norm, y_norm, d, least, d_x, d_y):
    T = x.dtype.type
    for i in range(x.shape[0]):
        a, b, slope = np.float64(x_norm[i]), np.float64(y_norm[i]), np.float64(d[i])
        both, turned = slope / (a * b), np.float64(cosine[i]) * slope
        along_x, along_y = turning(x, i, least, turned, a), turning(y, i, least, turned, b)
        for j in range(x.shape[1]):
            one, other = np.float64(x[i, j]), np.float64(y[i, j])
            d_x[i, j] = T(other * both - one * along_x)
            d_y[i, j] = T(one * both - other * along_y)


# Channels side by side: a row has one element of each, and sums are taken of whole rows


def batch_norm_of_rows(
    x, scale, bias, mean, variance, share, epsilon, y, exact, spread, rest, factor, mean_out, variance_out, saved_mean,
    saved_inverse,
):  # fmt: skip
    """`exact` and `spread` in float64, `rest` and `factor` are vectors to work in."""
    T, count, channels = x.dtype.type, x.shape[0], x.shape[1]
    for c in range(channels):
        exact[c] = spread[c] = 0.0
    for i in range(count):
        for c in range(channels):
            exact[c] += np.float64(x[i, c])
    for c in range(channels):
        exact[c] /= count
    for i in range(count):
        for c in range(channels):
            away = np.float64(x[i, c]) - exact[c]
            spread[c] += away * away
    for c in range(channels):
        spread[c] /= count
        middle, inverse = T(exact[c]), T(1.0 / np.sqrt(spread[c] + epsilon))
        rest[c], factor[c] = T(exact[c] - np.float64(middle)), inverse * scale[c]
        mean_out[c] = mean[c] * share + exact[c] * (1.0 - share)
        variance_out[c] = variance[c] * share + spread[c] * (1.0 - share)
        saved_mean[c] = middle
        saved_inverse[c] = inverse
    for i in range(count):
        for c in range(channels):
            y[i, c] = ((x[i, c] - saved_mean[c]) - rest[c]) * factor[c] + bias[c]


def batch_norm_grad_of_rows(
    x, scale, mean, inverse, d_y, d_x, exact, total, along, rest, factor, slope, level, d_scale, d_bias
):  # fmt: skip
    """`exact`, `total` and `along` in float64, `rest`, `factor`, `slope` and `level` are vectors to work in."""
    T, count, channels = x.dtype.type, x.shape[0], x.shape[1]
    for c in range(channels):
        exact[c] = total[c] = along[c] = 0.0
    for i in range(count):
        for c in range(channels):
            exact[c] += np.float64(x[i, c])
            total[c] += np.float64(d_y[i, c])
    for c in range(channels):
        rest[c] = T(exact[c] / count - np.float64(mean[c]))
    for i in range(count):
        for c in range(channels):
            along[c] += np.float64(d_y[i, c]) * np.float64((x[i, c] - mean[c]) - rest[c])
    for c in range(channels):
        along[c] *= inverse[c]
        factor[c], slope[c], level[c] = inverse[c] * scale[c], T(along[c] / count) * inverse[c], T(total[c] / count)
        d_scale[c] = along[c]
        d_bias[c] = total[c]
    for i in range(count):
        for c in range(channels):
            d_x[i, c] = (d_y[i, c] - ((x[i, c] - mean[c]) - rest[c]) * slope[c] - level[c]) * factor[c]


def batch_norm_given_of_rows(x, scale, bias, mean, variance, epsilon, y, factor, inverse):
    """`factor` is a vector in float64 to work in."""
    for c in range(x.shape[1]):
        exact = 1.0 / np.sqrt(np.float64(variance[c]) + epsilon)
        factor[c] = exact * scale[c]
        inverse[c] = exact
    for i in range(x.shape[0]):
        for c in range(x.shape[1]):
            y[i, c] = (np.float64(x[i, c]) - np.float64(mean[c])) * factor[c] + np.float64(bias[c])


def batch_norm_given_grad_of_rows(x, scale, mean, inverse, d_y, d_x, total, along, factor, d_scale, d_bias):
    """`total` and `along` in float64 and `factor` are vectors to work in."""
    T, channels = x.dtype.type, x.shape[1]
    for c in range(channels):
        factor[c], total[c], along[c] = T(inverse[c] * scale[c]), 0.0, 0.0
    for i in range(x.shape[0]):
        for c in range(channels):
            total[c] += np.float64(d_y[i, c])
            along[c] += np.float64(d_y[i, c]) * np.float64(x[i, c] - mean[c])
            d_x[i, c] = d_y[i, c] * factor[c]
    for c in range(channels):
        d_scale[c] = along[c] * inverse[c]
        d_bias[c] = total[c]
