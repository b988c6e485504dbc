"""Convolution by its definition, on whole numbers."""

import numpy as np


def integers(*shape, seed=0):
    return np.random.default_rng(seed).integers(-9, 10, shape).astype("float64")


def convolved(x, w, strides, paddings, dilations, groups):
    """By the definition, element by element."""
    (top, bottom, left, right), (sh, sw), (dh, dw) = paddings, strides, dilations
    x = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)))
    (n, _, h, width), (m, per, kh, kw) = x.shape, w.shape
    out = np.zeros((n, m, (h - dh * (kh - 1) - 1) // sh + 1, (width - dw * (kw - 1) - 1) // sw + 1))
    for b, f, i, j in np.ndindex(out.shape):
        group = f // (m // groups)
        window = x[b, group * per : (group + 1) * per, i * sh :, j * sw :][:, : dh * kh : dh, : dw * kw : dw]
        out[b, f, i, j] = (window[:, :kh, :kw] * w[f]).sum()
    return out
