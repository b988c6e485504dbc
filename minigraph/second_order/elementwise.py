"""Gradients of functions of two tensors that are laid over each other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from minigraph.ir import Variable
from minigraph.opdef import GRAD_SUFFIX
from minigraph.second_order.rewriting import Rewriting, rewritten_as
from minigraph.types import align_shape

Term = Callable[[], Variable]


@rewritten_as("elementwise_add_grad")
def _add(g: Rewriting) -> Mapping[str, Any]:
    return _to_operands(g, lambda: g["Out@GRAD"], lambda: g["Out@GRAD"])


@rewritten_as("elementwise_sub_grad")
def _sub(g: Rewriting) -> Mapping[str, Any]:
    return _to_operands(g, lambda: g["Out@GRAD"], lambda: g.negative(g["Out@GRAD"]))


@rewritten_as("elementwise_mul_grad")
def _mul(g: Rewriting) -> Mapping[str, Any]:
    axis = g.attr("axis")
    return _to_operands(g, lambda: g.mul(g["Out@GRAD"], g["Y"], axis), lambda: g.mul(g["Out@GRAD"], g["X"]))


@rewritten_as("elementwise_div_grad")
def _div(g: Rewriting) -> Mapping[str, Any]:
    axis = g.attr("axis")

    def to_y() -> Variable:
        quotient = g.div(g["X"], g["Y"], axis)
        return g.negative(g.div(g.mul(g["Out@GRAD"], quotient), g["Y"], axis))

    return _to_operands(g, lambda: g.div(g["Out@GRAD"], g["Y"], axis), to_y)


@rewritten_as("elementwise_max_grad", "elementwise_min_grad")
def _extreme(g: Rewriting) -> Mapping[str, Any]:
    """A tie is Y's."""
    is_max = g.op.type == "elementwise_max_grad"

    def share(comparison: str) -> Variable:
        taken = g.compare(comparison, g["X"], g["Y"], g.attr("axis"))
        return g.mul(g["Out@GRAD"], g.mask(taken, g["X"]))

    return _to_operands(
        g,
        lambda: share("greater_than" if is_max else "less_than"),
        lambda: share("less_equal" if is_max else "greater_equal"),
    )


@rewritten_as("elementwise_pow_grad")
def _pow(g: Rewriting) -> Mapping[str, Any]:
    """``dX = dOut * Y * X ** (Y - 1)`` and ``dY = dOut * log(X) * X ** Y``; where a factor is infinite and the slope 0,
    1 stands in for the base.
    """
    d_out = g["Out@GRAD"]
    aligned = align_shape(g["X"].shape or (), g["Y"].shape or (), g.attr("axis"))
    base = g.add(g.zeros(d_out), g["X"])
    exponent = g.add(g.zeros(d_out), g.like(g["Y"], aligned))

    def to_x() -> Variable:
        safe = g.where(g.compare("equal", exponent, 0.0), g.ones(base), base)
        power = g.emit("elementwise_pow", X=safe, Y=g.scale(exponent, 1.0, -1.0))
        return g.mul(d_out, g.mul(exponent, power))

    def to_y() -> Variable:
        is_flat = g.emit("logical_and", X=g.compare("equal", base, 0.0), Y=g.compare("greater_than", exponent, 0.0))
        safe = g.where(is_flat, g.ones(base), base)
        power = g.emit("elementwise_pow", X=safe, Y=exponent)
        return g.mul(d_out, g.mul(g.emit("log", X=safe), power))

    return _to_operands(g, to_x, to_y)


def _to_operands(g: Rewriting, to_x: Term, to_y: Term) -> Mapping[str, Any]:
    """Both gradients, summed along the dimensions that an operand was repeated in."""
    results: dict[str, Any] = {"X@GRAD": None, "Y@GRAD": None}
    full = g["Out@GRAD"].shape or ()
    for slot, make in (("X", to_x), ("Y", to_y)):
        if g.wants(slot + GRAD_SUFFIX):
            shape = g[slot].shape or ()
            aligned = shape if slot == "X" else align_shape(g["X"].shape or (), shape, g.attr("axis"))
            aligned = (1,) * (len(full) - len(aligned)) + tuple(aligned)
            axes = [i for i, (size, own) in enumerate(zip(full, aligned, strict=True)) if own == 1 and size != 1]
            value = make()
            results[slot + GRAD_SUFFIX] = g.like(g.sum(value, axes, keep=True) if axes else value, shape, g[slot])
    return results
