"""Reductions: sums, means, extremes and products, over dimensions or of several tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from minigraph.ir import Variable
from minigraph.layer_helper import check_floating, emit, layer, layer_called
from minigraph.support.arguments import INTEGERS

__all__ = [
    "cumsum", "logsumexp", "mean", "reduce_all", "reduce_any", "reduce_max", "reduce_mean", "reduce_min", "reduce_prod",
    "reduce_sum", "sum", "sums",
]  # fmt: skip

Dim = int | Sequence[int] | None


@layer
def mean(x: Variable, name: str | None = None) -> Variable:
    """Mean of all elements, shape [1]."""
    return emit("mean", name, X=check_floating(x, "mean: x"))


class Reduction(Protocol):
    def __call__(
        self, input: Variable, dim: Dim = None, keep_dim: bool = False, name: str | None = None
    ) -> Variable: ...


def _reduction(op_type: str, formula: str) -> Reduction:
    @layer_called(op_type, formula)
    def reduction(input: Variable, dim: Dim = None, keep_dim: bool = False, name: str | None = None) -> Variable:
        dims = [dim] if isinstance(dim, INTEGERS) else list(() if dim is None else dim)
        # Fluid writes [0] beside `reduce_all`; it has no meaning then.
        return emit(op_type, name, X=input, dim=dims or [0], keep_dim=keep_dim, reduce_all=not dims)

    return reduction


reduce_sum = _reduction("reduce_sum", "Sum over the dimensions `dim` (None: all, which gives shape [1]).")
reduce_mean = _reduction("reduce_mean", "Mean over the dimensions `dim` (None: all, which gives shape [1]).")
reduce_max = _reduction(
    "reduce_max", "Maximum over the dimensions `dim` (None: all); every tie gets the full gradient."
)
reduce_min = _reduction(
    "reduce_min", "Minimum over the dimensions `dim` (None: all); every tie gets the full gradient."
)
reduce_prod = _reduction("reduce_prod", "Product over the dimensions `dim` (None: all, which gives shape [1]).")
reduce_all = _reduction("reduce_all", "Whether all booleans over the dimensions `dim` (None: all) are true.")
reduce_any = _reduction("reduce_any", "Whether any boolean over the dimensions `dim` (None: all) is true.")


@layer
def cumsum(
    x: Variable, axis: int | None = None, exclusive: bool | None = None, reverse: bool | None = None
) -> Variable:
    """Sums of the elements along `axis` (None: the last) up to each one.

    `exclusive` leaves the element itself out, `reverse` begins at the end.
    """
    return emit("cumsum", X=x, axis=axis, exclusive=exclusive, reverse=reverse)


@layer
def sums(input: Variable | Sequence[Variable], out: Variable | None = None) -> Variable:
    """Sum of several variables of one shape, into `out` if given."""
    return emit("sum", X=list(input) if isinstance(input, list | tuple) else [input], into=out)


@layer
def sum(x: Variable | Sequence[Variable]) -> Variable:
    """Sum of several variables of one shape."""
    return sums(x)


@layer
def logsumexp(
    x: Variable, dim: Dim = None, keepdim: bool = False, out: Variable | None = None, name: str | None = None
) -> Variable:
    """``log(sum(exp(x)))`` over the dimensions `dim` (None: all), into `out` if given.

    As in fluid these are three operators, so that exponentials of elements above 88 overflow in float32.
    """
    exponentials = emit("exp", X=check_floating(x, "logsumexp: x"))
    return emit("log", name, X=reduce_sum(exponentials, dim, keepdim), into=out)
