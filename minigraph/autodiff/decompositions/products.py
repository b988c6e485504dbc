"""Gradients of products of vectors, of whole batches and of three factors, and of distances."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from minigraph.autodiff.decompositions.norm import Norm
from minigraph.autodiff.decompositions.rewriting import Rewriting, rewritten_as
from minigraph.ir import Variable
from minigraph.ops.products import LEAST_SQUARE


def _where_wanted(g: Rewriting, x: Any, y: Any) -> Mapping[str, Any]:
    """The gradients that two functions compute, each only if it is asked for."""
    return {slot: make() if g.wants(slot) else None for slot, make in (("X@GRAD", x), ("Y@GRAD", y))}


@rewritten_as("bmm_grad")
def _bmm(g: Rewriting) -> Mapping[str, Any]:
    d = g["Out@GRAD"]
    return _where_wanted(
        g, lambda: g.emit("bmm", X=d, Y=_turned(g, g["Y"])), lambda: g.emit("bmm", X=_turned(g, g["X"]), Y=d)
    )


def _turned(g: Rewriting, x: Variable) -> Variable:
    return g.transpose(x, [0, 2, 1])


@rewritten_as("dot_grad")
def _dot(g: Rewriting) -> Mapping[str, Any]:
    return _where_wanted(g, lambda: g.mul(g["Y"], g["Out@GRAD"]), lambda: g.mul(g["X"], g["Out@GRAD"]))


@rewritten_as("cross_grad")
def _cross(g: Rewriting) -> Mapping[str, Any]:
    d, dim = g["Out@GRAD"], g.attr("dim")
    return _where_wanted(
        g, lambda: g.emit("cross", X=g["Y"], Y=d, dim=dim), lambda: g.emit("cross", X=d, Y=g["X"], dim=dim)
    )


@rewritten_as("kron_grad")
def _kron(g: Rewriting) -> Mapping[str, Any]:
    """Compute the product as an elementwise one, with two dimensions for each of the result."""
    x, y = g["X"], g["Y"]
    rank = max(len(x.shape or ()), len(y.shape or ()))
    sides = [(1,) * (rank - len(each.shape or ())) + (each.shape or ()) for each in (x, y)]
    full = g.like(g["Out@GRAD"], [size for pair in zip(*sides, strict=True) for size in pair])
    rows = g.like(x, [size for own in sides[0] for size in (own, 1)])
    columns = g.like(y, [size for own in sides[1] for size in (1, own)])
    return _where_wanted(
        g,
        lambda: g.like(g.sum(g.mul(full, columns), range(1, 2 * rank, 2)), x.shape or ()),
        lambda: g.like(g.sum(g.mul(full, rows), range(0, 2 * rank, 2)), y.shape or ()),
    )


@rewritten_as("addmm_grad")
def _addmm(g: Rewriting) -> Mapping[str, Any]:
    d, to_input = g["Out@GRAD"], None
    scaled = g.scale(d, g.attr("Alpha"))
    if g.wants("Input@GRAD"):
        to_input = _summed_to(g, g.scale(d, g.attr("Beta")), g["Input"])
    products = _where_wanted(
        g,
        lambda: g.matmul(scaled, g["Y"], transpose_Y=True),
        lambda: g.matmul(g["X"], scaled, transpose_X=True),
    )
    return {"Input@GRAD": to_input, **products}


def _summed_to(g: Rewriting, d: Variable, x: Variable) -> Variable:
    """`d` summed over the dimensions along which `x` was repeated."""
    shape: Sequence[int] = d.shape or ()
    own = (1,) * (len(shape) - len(x.shape or ())) + (x.shape or ())
    axes = [i for i, (size, have) in enumerate(zip(shape, own, strict=True)) if have == 1 and size != 1]
    return g.like(g.sum(d, axes, keep=True) if axes else d, x.shape or (), x)


@rewritten_as("cos_sim_grad")
def _cos_sim(g: Rewriting) -> Mapping[str, Any]:
    x, y = (_vectors(g, g[slot]) for slot in "XY")
    squares = [g.sum(g.square(each), [1], keep=True) for each in (x, y)]
    bounded = [g.emit("elementwise_max", X=each, Y=g.number(LEAST_SQUARE, each)) for each in squares]
    product = g.emit("sqrt", X=g.mul(bounded[0], bounded[1]))
    both = g.div(g["Out@GRAD"], product)
    turned = g.mul(g.div(g.sum(g.mul(x, y), [1], keep=True), product), g["Out@GRAD"])

    def slope(own: int) -> Variable:
        is_free = g.mask(g.compare("greater_than", squares[own], LEAST_SQUARE), squares[own])
        rate = g.mul(g.div(turned, bounded[own]), is_free)
        to_vectors = g.sub(g.mul(both, (y, x)[own]), g.mul(rate, (x, y)[own]))
        whole = _summed_to(g, to_vectors, (x, y)[own])
        return g.like(whole, g["XY"[own]].shape or (), g["XY"[own]])

    return _where_wanted(g, lambda: slope(0), lambda: slope(1))


def _vectors(g: Rewriting, x: Variable) -> Variable:
    sizes = (x.shape or ())[1:]
    return x if len(sizes) == 1 else g.emit("reshape2", X=x, shape=[0, -1 if -1 in sizes else math.prod(sizes)])


@rewritten_as("dist_grad")
def _dist(g: Rewriting) -> Mapping[str, Any]:
    difference = g.sub(g["X"], g["Y"])
    slope = g.mul(_slope_of_distance(g, difference, g.attr("p")), g["Out@GRAD"])
    return _where_wanted(
        g, lambda: _summed_to(g, slope, g["X"]), lambda: _summed_to(g, g.negative(slope), g["Y"])
    )  # fmt: skip


def _slope_of_distance(g: Rewriting, difference: Variable, p: float) -> Variable:
    if p == 0:
        return g.zeros(difference)
    sizes = g.emit("abs", X=difference)
    if math.isinf(p):
        extreme = g.emit("reduce_max" if p > 0 else "reduce_min", X=sizes, reduce_all=True)
        return g.mul(g.sign(difference), g.mask(g.compare("equal", sizes, extreme), sizes))
    if p > 0:
        (slope,) = Norm(g, [difference], None, p).slopes()
        return g.cast(slope, difference.dtype)
    distance = g.power(g.total(g.power(sizes, p)), 1 / p)
    return g.mul(g.sign(difference), g.power(g.div(sizes, distance), p - 1))


@rewritten_as("bilinear_tensor_product_grad")
def _bilinear_tensor_product(g: Rewriting) -> Mapping[str, Any]:
    """The gradient of X is the product of Out@GRAD and Y by the turned weight, and that of Y likewise."""
    x, y, weight, d = g["X"], g["Y"], g["Weight"], g["Out@GRAD"]
    size, rows, columns = weight.shape or ()

    def product(a: Variable, b: Variable, order: list[int]) -> Variable:
        return g.emit("bilinear_tensor_product", X=a, Y=b, Weight=g.transpose(weight, order))

    pairs = g.mul(g.like(d, [-1, size, 1]), g.like(x, [-1, 1, rows]))
    d_weight = g.matmul(g.like(pairs, [-1, size * rows]), y, transpose_X=True)
    return {
        "X@GRAD": product(d, y, [1, 0, 2]), "Y@GRAD": product(d, x, [2, 0, 1]),
        "Weight@GRAD": g.like(d_weight, [size, rows, columns]), "Bias@GRAD": g.sum(d, [0], keep=True),
    }  # fmt: skip
