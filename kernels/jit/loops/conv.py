"""Depthwise convolutions on frames: images with their padding, one after the other in one vector.

A window has the place of its first element in the frame, and `offsets` are those of its elements after that place, the
largest one last. All windows of stride 1 are computed, with long vectors, and those of the real strides are picked out.
"""

import numpy as np

REASSOCIATED = ("dot",)
CONTRACTED = ("add_products",)

BLOCK = 4096
"""Maximum places that `correlate` works on at once: they stay in the nearest cache."""


def dot(x, y):
    total = x.dtype.type(0)
    for i in range(x.size):
        total += x[i] * y[i]
    return total


def add_products(x, y, z, a, b, c, result):
    for i in range(result.size):
        result[i] += a * x[i] + b * y[i] + c * z[i]


def correlate(frame, offsets, weights, result):
    """Add to ``result[i]`` the sum of ``weights[k] * frame[i + offsets[k]]``."""
    for start in range(0, result.size, BLOCK):
        part = result[start : start + BLOCK]
        for k in range(0, offsets.size, 3):
            i, j, l = k, min(k + 1, offsets.size - 1), min(k + 2, offsets.size - 1)
            x, y, z = frame[offsets[i] + start :], frame[offsets[j] + start :], frame[offsets[l] + start :]
            zero = weights.dtype.type(0)
            b, c = weights[j] if j > i else zero, weights[l] if l > j else zero
            add_products(x[: part.size], y[: part.size], z[: part.size], weights[i], b, c, part)


def put(images, first, count, channel, frame, start, plane, row, column):
    """Write a channel of `count` images to the frame, whose rows and columns are `row` and `column` apart."""
    for n in range(count):
        for i in range(images.shape[2]):
            at = start + n * plane + i * row
            line = frame[at : at + (images.shape[3] - 1) * column + 1]
            if column == 1:
                for j in range(line.size):
                    line[j] = images[first + n, channel, i, j]
            else:
                for j in range(images.shape[3]):
                    line[j * column] = images[first + n, channel, i, j]


def pick(frame, start, plane, row, column, addend, images, first, count, channel):
    """Write what `put` would have written, plus `addend`, to a channel of the images."""
    for n in range(count):
        for i in range(images.shape[2]):
            at = start + n * plane + i * row
            line = frame[at : at + (images.shape[3] - 1) * column + 1]
            if column == 1:
                for j in range(line.size):
                    images[first + n, channel, i, j] = line[j] + addend
            else:
                for j in range(images.shape[3]):
                    images[first + n, channel, i, j] = line[j * column] + addend


def depthwise(x, weights, bias, offsets, inside, plane, row, steps, frame, full, result, begin, end):
    """Compute the channels from `begin` to `end` of `result`.

    `inside` is the place of the first element of an image, `row` the length of a row and `steps` what separates rows
    and columns of windows. `frame` and `full` are vectors of as many planes as images are worked on at once.
    """
    each, reach = weights.shape[0] // x.shape[1], offsets[-1]
    for f in range(begin, end):
        for first in range(0, x.shape[0], frame.size // plane):
            count = min(frame.size // plane, x.shape[0] - first)
            put(x, first, count, f // each, frame, inside, plane, row, 1)
            sums = full[: count * plane - reach]
            sums[:] = 0
            correlate(frame, offsets, weights[f], sums)
            pick(full, 0, plane, steps[0], steps[1], bias[f], result, first, count, f)


def depthwise_grad(
    x, weights, d, offsets, inside, plane, row, steps, mirrored, frame, full, flowing, d_x, d_weights, wants_x,
    wants_weights, begin, end,
):  # fmt: skip
    """Compute the gradients of the channels of `x` from `begin` to `end`.

    `mirrored` are the offsets, each taken from the largest; numba would compile the difference for a third of a second.
    `flowing` is as long as `frame`, plus the largest offset. `d_weights` is zeros, in float64.
    """
    each, reach, zero = weights.shape[0] // x.shape[1], offsets[-1], x.dtype.type(0)
    for c in range(begin, end):
        for first in range(0, x.shape[0], frame.size // plane):
            count = min(frame.size // plane, x.shape[0] - first)
            sums, places = full[: count * plane], count * plane - reach
            if wants_weights:
                put(x, first, count, c, frame, inside, plane, row, 1)
            sums[:] = 0
            for f in range(c * each, (c + 1) * each):
                put(d, first, count, f, flowing, reach, plane, steps[0], steps[1])
                if wants_x:
                    correlate(flowing, mirrored, weights[f], sums)
                if wants_weights:
                    for k in range(offsets.size):
                        elements = frame[offsets[k] : offsets[k] + places]
                        d_weights[f, k] += np.float64(dot(elements, flowing[reach : reach + places]))
            if wants_x:
                pick(full, inside, plane, row, 1, zero, d_x, first, count, c)
