"""Products of few rows with one matrix, again and again, as the steps of a recurrent network need them."""

from __future__ import annotations

from typing import Any

import numpy as np

QUICK = 1_000_000
"""Maximum multiplications of a product that OpenBLAS makes without copying the matrices to another place first."""

WIDTHS = (64, 32)
"""Columns of a part of a matrix: as many as possible."""


class StepProduct:
    """Products with `matrix`, ``rows @ matrix``, of at most `most` rows.

    A product of many multiplications is made of parts, each of some columns, that are quick for themselves: for 16 to
    32 rows it takes 0.65 to 0.85 of the time. `parts`, [parts, inner, columns], are None where they would not be quick.
    """

    def __init__(self, xp, matrix, most) -> None:
        self.xp, self.matrix = xp, xp.ascontiguousarray(matrix)
        self.parts = _parts(self.matrix, most) if xp is np else None

    def __call__(self, rows) -> Any:
        """``rows @ matrix`` in new memory."""
        if self.parts is None or len(rows) * self.matrix.size <= QUICK:
            return self.xp.dot(rows, self.matrix)
        count, _, width = self.parts.shape
        result = np.empty((len(rows), count * width), rows.dtype)
        np.matmul(rows, self.parts, out=result.reshape(-1, count, width).swapaxes(0, 1))
        return result


def _parts(matrix, most) -> Any:
    inner, columns = matrix.shape
    if most * inner * columns <= QUICK or matrix.dtype not in (np.float32, np.float64):
        return None
    for width in WIDTHS:
        if most * inner * width <= QUICK and columns % width == 0:
            return np.ascontiguousarray(matrix.reshape(inner, -1, width).swapaxes(0, 1))
    return None


class GateProduct:
    """Products with the weights of several gates, ``rows @ matrix`` as [gates, rows, size].

    The results of a gate lie together, where those of `StepProduct` have those of the other gates between their rows.
    `weights` are [gates, parts, inner, columns], with one part where a whole gate is quick or nothing is.
    """

    def __init__(self, xp, matrix, most, gates) -> None:
        inner, size = len(matrix), matrix.shape[1] // gates
        width = next((w for w in (size, *WIDTHS) if most * inner * w <= QUICK and size % w == 0), size)
        self.xp = xp
        self.weights = xp.ascontiguousarray(matrix.reshape(inner, gates, -1, width).transpose(1, 2, 0, 3))

    def __call__(self, rows) -> Any:
        """The products of `rows` in new memory."""
        gates, parts, _, width = self.weights.shape
        result = self.xp.empty((gates, len(rows), parts * width), rows.dtype)
        self.xp.matmul(rows, self.weights, out=result.reshape(gates, -1, parts, width).swapaxes(1, 2))
        return result
