"""Lesson 10: multiply matrices in the cheaper order."""

from collections.abc import Iterator
from typing import Any

from minigraph import layers, rewrite


def cost(x: Any, y: Any) -> int:
    """Return the multiplications of the product of two matrices: rows * inner * columns."""
    return x.shape[0] * x.shape[1] * y.shape[1]


def orders(x: Any, a: Any, b: Any) -> tuple[float, float]:
    """Return the multiplications of ``(x a) b`` and of ``x (a b)``."""
    rows, columns = x.shape[0], b.shape[1]
    return cost(x, a) + rows * a.shape[1] * columns, cost(a, b) + rows * a.shape[0] * columns


def are_known(*factors: Any) -> bool:
    """Whether all are matrices of known size."""
    return all(len(each.shape) == 2 and -1 not in each.shape for each in factors)


@rewrite.rule(changes_rounding=True)
def from_left(x: Any, a: Any, b: Any) -> Any:
    """Compute ``x (a b)`` as ``(x a) b`` where that needs fewer multiplications. Law: only the rounding changes."""
    return layers.mul(x, layers.mul(a, b))


@from_left.where
def _(m: Any) -> Iterator[tuple[bool, str]]:
    yield are_known(m.x, m.a, m.b), "matrices of known size"
    left, right = orders(m.x, m.a, m.b)
    yield left < right, "fewer multiplications"


@from_left.to
def _(x: Any, a: Any, b: Any) -> Any:
    return layers.mul(layers.mul(x, a), b)


@rewrite.rule(changes_rounding=True)
def from_right(x: Any, a: Any, b: Any) -> Any:
    """Compute ``(x a) b`` as ``x (a b)`` where that needs fewer multiplications. Law: only the rounding changes."""
    return layers.mul(layers.mul(x, a), b)


@from_right.where
def _(m: Any) -> Iterator[tuple[bool, str]]:
    yield are_known(m.x, m.a, m.b), "matrices of known size"
    left, right = orders(m.x, m.a, m.b)
    yield right < left, "fewer multiplications"


@from_right.to
def _(x: Any, a: Any, b: Any) -> Any:
    return layers.mul(x, layers.mul(a, b))


reassociate = rewrite.Rules(from_left, from_right)
