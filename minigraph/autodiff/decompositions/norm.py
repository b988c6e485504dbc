"""Gradients of norms. Elements are divided by the largest one, which is a constant: it cancels in every gradient."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from minigraph.autodiff.decompositions.rewriting import Rewriting, rewritten_as
from minigraph.ir import Variable
from minigraph.types import DType, normalize_axis


class Norm:
    """The joint norm of order `p` of tensors over some dimensions, which are kept as 1; in float64.

    Parameters
    ----------
    axes : sequence of int or None
        None means all, and the norm has shape [1].
    """

    def __init__(self, g: Rewriting, xs: Sequence[Variable], axes: Sequence[int] | None, p: float) -> None:
        self._g, self._axes, self.p = g, axes, p
        self.xs = [g.cast(x, DType.FP64) for x in xs]
        self._sizes = [g.emit("abs", X=x) for x in self.xs]
        largest = self._joined("elementwise_max", [self._reduced("reduce_max", size) for size in self._sizes])
        if p == math.inf:
            self.value = largest
            return
        unit = g.constant(g.not_zero(largest, self._is_ordinary(largest)))
        if p == 2:
            total = self._joined("elementwise_add", [self.sum(g.square(g.div(x, unit))) for x in self.xs])
            # The slope of a root is infinite at 0, so that the root is taken of 1 there and its result masked.
            is_there = g.compare("greater_than", total, 0.0)
            root = g.emit("sqrt", X=g.not_zero(total, is_there))
            self.value = g.mul(g.mul(root, g.mask(is_there, total)), unit)
            return
        powers = []
        for size in self._sizes:
            is_there = g.compare("greater_than", size, 0.0)
            shares = g.not_zero(g.div(size, unit), is_there)
            powers.append(self.sum(g.mul(g.power(shares, p), g.mask(is_there, size))))
        total = self._joined("elementwise_add", powers)
        is_there = g.compare("greater_than", total, 0.0)
        root = g.power(g.not_zero(total, is_there), 1 / p)
        self.value = g.mul(g.mul(root, g.mask(is_there, total)), unit)

    def slopes(self) -> list[Variable]:
        """Derivatives by the elements: 0 for an element of 0; equal shares for the largest ones if `p` is infinity."""
        g = self._g
        if self.p == math.inf:
            hits = [g.mask(g.compare("equal", size, self.value), size) for size in self._sizes]
            ties = self._joined("elementwise_add", [self.sum(each) for each in hits])
            return [g.div(g.mul(g.sign(x), hit), ties) for x, hit in zip(self.xs, hits, strict=True)]
        if self.p == 2:
            is_there = g.mask(g.compare("not_equal", self.value, 0.0), self.value)
            return [g.mul(g.div(x, self.divisor()), is_there) for x in self.xs]
        found = []
        for x, size in zip(self.xs, self._sizes, strict=True):
            is_there = g.compare("greater_than", size, 0.0)
            share = g.not_zero(g.div(size, self.divisor()), is_there)
            found.append(g.mul(g.mul(g.sign(x), g.power(share, self.p - 1)), g.mask(is_there, size)))
        return found

    def divisor(self) -> Variable:
        """The norm, or 1 where it is 0."""
        return self._g.not_zero(self.value, self._g.compare("not_equal", self.value, 0.0))

    def dot(self, others: Sequence[Variable]) -> Variable:
        """The sum of the products with the elements of `others`, in the shape of the norm."""
        parts = [self.sum(self._g.mul(x, other)) for x, other in zip(self.xs, others, strict=True)]
        return self._joined("elementwise_add", parts)

    def sum(self, x: Variable) -> Variable:
        """The sum of `x` in the shape of the norm."""
        return self._reduced("reduce_sum", x)

    def _reduced(self, type: str, x: Variable) -> Variable:
        if self._axes is None:
            if type == "reduce_max":  # of nothing 0, not the lowest number
                return self._g.emit(type, X=self._g.concat([self._flat(x), self._zero(x)], 0), reduce_all=True)
            return self._g.emit(type, X=x, reduce_all=True)
        found = self._g.emit(type, X=x, dim=list(self._axes), keep_dim=True)
        return self._g.emit("relu", X=found) if type == "reduce_max" else found

    def _flat(self, x: Variable) -> Variable:
        return self._g.like(x, (-1,))

    def _zero(self, x: Variable) -> Variable:
        return self._g.number(0.0, x)

    def _joined(self, type: str, parts: Sequence[Variable]) -> Variable:
        total = parts[0]
        for part in parts[1:]:
            total = self._g.emit(type, X=total, Y=part)
        return total

    def _is_ordinary(self, x: Variable) -> Variable:
        """Positive and finite."""
        g = self._g
        return g.emit("logical_and", X=g.compare("greater_than", x, 0.0), Y=g.compare("less_than", x, math.inf))


@rewritten_as("global_norm_grad")
def _global_norm(g: Rewriting) -> Mapping[str, Any]:
    xs = g.all("X")
    d_out = g.cast(g["Out@GRAD"], DType.FP64)
    slopes = Norm(g, xs, None, g.attr("p")).slopes()
    return {"X@GRAD": [g.cast(g.mul(slope, d_out), x.dtype) for x, slope in zip(xs, slopes, strict=True)]}


@rewritten_as("p_norm_grad")
def _p_norm(g: Rewriting) -> Mapping[str, Any]:
    x, d_out = g["X"], g["Out@GRAD"]
    axis = normalize_axis(g.attr("axis"), len(x.shape or ()))
    if not g.attr("keepdim") and len(x.shape or ()) > 1:
        d_out = g.emit("unsqueeze2", X=d_out, axes=[axis])
    porder = g.attr("porder")
    norm = Norm(g, [x], [axis], porder)
    (slope,) = norm.slopes()
    slope = g.div(slope, g.scale(g.power(norm.divisor(), 1 - porder), g.attr("epsilon"), 1.0))
    return {"X@GRAD": g.cast(g.mul(slope, g.cast(d_out, DType.FP64)), x.dtype)}


@rewritten_as("norm_grad")
def _norm(g: Rewriting) -> Mapping[str, Any]:
    """``dX = (dOut - Out * sum(Out * dOut)) / Norm``."""
    x = g["X"]
    axis = normalize_axis(g.attr("axis"), len(x.shape or ()))
    norm, d_out = Norm(g, [x], [axis], 2.0), g.cast(g["Out@GRAD"], DType.FP64)
    # The root of the squares of the norm and of the root of epsilon, as a norm of the two.
    pair = g.concat([norm.value, g.scale(g.ones(norm.value), math.sqrt(g.attr("epsilon")))], axis)
    length = Norm(g, [pair], [axis], 2.0).value
    result = g.div(norm.xs[0], length)
    along = norm.sum(g.mul(result, d_out))
    return {"X@GRAD": g.cast(g.div(g.sub(d_out, g.mul(result, along)), length), x.dtype)}
