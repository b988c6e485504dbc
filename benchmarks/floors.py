"""Floors under the time of a step: its matrix products alone, and its memory traffic alone, both by NumPy."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import numpy as np

PRODUCTS, MEMORY = "products alone", "memory alone"
FLOORS = (PRODUCTS, MEMORY)
MINIMUM_PER_THREAD = 1 << 20
"""Minimum bytes per thread of a copy."""


@dataclass(frozen=True)
class Product:
    """A product of `rows` x `inner` and `inner` x `columns`, and the products of its two gradients.

    It is made `apart` times on other matrices. In `steps` that wait for each other the second matrix is the same, and
    its gradient is one product of all steps. With one of the `gradients` only, that is the second matrix's.
    """

    rows: int
    inner: int
    columns: int
    gradients: int = 2
    apart: int = 1
    steps: int = 1

    def calls(self):
        """Arguments of `numpy.dot`, the memory for the result among them."""
        for _ in range(self.apart):
            x, d_x = (np.zeros((self.steps, self.rows, self.inner), "float32") for _ in range(2))
            w, d_w = (np.zeros((self.inner, self.columns), "float32") for _ in range(2))
            y = np.zeros((self.steps, self.rows, self.columns), "float32")
            yield from ((x[t], w, y[t]) for t in range(self.steps))
            if self.gradients:
                yield x.reshape(-1, self.inner).T, y.reshape(-1, self.columns), d_w
            if self.gradients == 2:
                yield from ((y[t], w.T, d_x[t]) for t in range(self.steps))


def multiplying(products):
    """The products alone, on arrays that are there already."""
    calls = [call for product in products for call in product.calls()]

    def multiply():
        for a, b, out in calls:
            np.dot(a, b, out)

    return multiply


def moving(size, passes, cores):
    """Move each of `size` bytes `passes` times, half of them read and half written: the second half is a copy."""
    threads = max(1, min(cores, size // 2 // MINIMUM_PER_THREAD))
    halves = [np.ones((2, size // 2 // threads), "uint8") for _ in range(threads)]
    last = int(passes % 1 * halves[0].shape[1])

    def copy(half):
        for _ in range(int(passes)):
            np.copyto(half[1], half[0])
        np.copyto(half[1, :last], half[0, :last])

    if threads == 1:
        return partial(copy, halves[0])
    pool = ThreadPoolExecutor(threads)
    return lambda: list(pool.map(copy, halves))
