"""Gradients of binary elementwise operators with broadcasting."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from minigraph.autodiff.decompositions.rewriting import Rewriting, rewritten_as
from minigraph.ir import Operator, Variable
from minigraph.opdef import GRAD_SUFFIX
from minigraph.types import align_shape

Term = Callable[[], Variable]


def _has_no_operator(op: Operator) -> bool:
    """Whether ``elementwise_div_grad_grad`` lacks what it reads: the gradient of an X that was not repeated."""
    x, out = (op.block.find_var(op.inputs[slot][0]) for slot in ("X", "Out"))
    assert x is not None and out is not None
    return not op.outputs.get("X@GRAD") or x.shape != out.shape


@rewritten_as("elementwise_div_grad", where=_has_no_operator)
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
    for slot, make in (("X", to_x), ("Y", to_y)):
        if g.wants(slot + GRAD_SUFFIX):
            results[slot + GRAD_SUFFIX] = summed_to_operand(g, make(), slot, g["Out@GRAD"])
    return results


def summed_to_operand(g: Rewriting, value: Variable, slot: str, out: Variable) -> Variable:
    """`value` summed along the dimensions that the operand in `slot` was repeated in to make `out`."""
    full, shape = out.shape or (), g[slot].shape or ()
    x = out if (given := g.given("X")) is None else given
    aligned = shape if slot == "X" else align_shape(x.shape or (), shape, g.attr("axis"))
    aligned = (1,) * (len(full) - len(aligned)) + tuple(aligned)
    axes = [i for i, (size, own) in enumerate(zip(full, aligned, strict=True)) if own == 1 and size != 1]
    return g.like(g.sum(value, axes, keep=True) if axes else value, shape, g[slot])
