"""Rewrite second-order operators such as ``mul_grad_grad`` (`minigraph.ops.second_order`) as ordinary ones.

An input that is left out counts as zero: its term is left out, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from minigraph.autodiff.decompositions.elementwise import summed_to_operand
from minigraph.autodiff.decompositions.rewriting import Rewriting, rewritten_as
from minigraph.ir import Variable
from minigraph.opdef import GRAD_SUFFIX
from minigraph.opdef.gradient_rules import differentiated

Term = Callable[[], Variable | None]


def results_of(g: Rewriting, **terms: Term) -> Mapping[str, Any]:
    """Results of the terms whose slots are wanted; zeros for a term without inputs."""
    found: dict[str, Any] = {}
    for slot, term in terms.items():
        slot = slot.replace("_GRAD", GRAD_SUFFIX)
        found[slot] = None
        if g.wants(slot):
            value = term()
            found[slot] = g.zeros(g[differentiated(slot)[0]]) if value is None else value
    return found


def added(g: Rewriting, *terms: Variable | None) -> Variable | None:
    there = [term for term in terms if term is not None]
    if len(there) < 2:
        return there[0] if there else None
    return g.emit("sum", X=there)


def times(g: Rewriting, x: Variable | None, y: Variable | None, axis: int = -1) -> Variable | None:
    return None if x is None or y is None else g.mul(x, y, axis)


def _negative(g: Rewriting, x: Variable | None) -> Variable | None:
    return None if x is None else g.negative(x)


# Functions of two tensors


@rewritten_as("elementwise_add_grad_grad", "elementwise_sub_grad_grad")
def _add(g: Rewriting) -> Mapping[str, Any]:
    """Add zeros in the shape of DOut, to which smaller operands are broadcast."""
    dd_x, dd_y = g.given("DDX"), g.given("DDY")
    type = "elementwise_add" if g.op.type == "elementwise_add_grad_grad" else "elementwise_sub"
    if dd_x is None or dd_x.shape != g["DOut"].shape:
        zeros = g.zeros(g["DOut"])
        dd_x = zeros if dd_x is None else g.add(zeros, dd_x)
    return {"DDOut": dd_x if dd_y is None else g.emit(type, X=dd_x, Y=dd_y, axis=g.attr("axis"))}


@rewritten_as("elementwise_mul_grad_grad")
def _mul(g: Rewriting) -> Mapping[str, Any]:
    axis, dd_x, dd_y = g.attr("axis"), g.given("DDX"), g.given("DDY")
    x, y, d_out = g["X"], g["Y"], g["DOut"]
    return results_of(
        g,
        X_GRAD=lambda: None if dd_y is None else summed_to_operand(g, g.mul(d_out, dd_y, axis), "X", d_out),
        Y_GRAD=lambda: None if dd_x is None else summed_to_operand(g, g.mul(d_out, dd_x), "Y", d_out),
        DDOut=lambda: added(g, times(g, dd_x, y, axis), times(g, x, dd_y, axis)),
    )


@rewritten_as("elementwise_div_grad_grad")
def _div(g: Rewriting) -> Mapping[str, Any]:
    axis, dd_x, dd_y = g.attr("axis"), g.given("DDX"), g.given("DDY")
    d_x, y, out = g["DX"], g["Y"], g["Out"]
    flowing = added(g, dd_x, _negative(g, times(g, out, dd_y, axis)))
    assert flowing is not None
    dd_out = g.div(flowing, y, axis)
    return results_of(
        g,
        Y_GRAD=lambda: summed_to_operand(g, g.negative(g.mul(d_x, dd_out)), "Y", out),
        DOut=lambda: _negative(g, times(g, d_x, dd_y, axis)),
        DDOut=lambda: dd_out,
    )


def _by_operator(g: Rewriting, type: str, result: str, **inputs: Variable | None) -> Variable | None:
    """The result of a new operator with the attributes of this one, unless one of `inputs` is None."""
    slots = {slot.replace("_GRAD", GRAD_SUFFIX): var for slot, var in inputs.items() if var is not None}
    if len(slots) < len(inputs):
        return None
    made = g.block.create_var()
    g.block.append_op(type, slots, {result: made}, dict(g.op.attrs))
    return made


def _of_product(g: Rewriting, type: str, x: str, y: str, out: str) -> Mapping[str, Any]:
    """Second gradient of an operator that is linear in both operands, from it and its gradient."""
    dd_x, dd_y = g.given(f"DD{x}"), g.given(f"DD{y}")
    flowing = {f"{out}_GRAD": g[f"D{out}"]}
    results = {
        f"D{x}": lambda: _by_operator(g, f"{type}_grad", f"{x}@GRAD", **{x: g[x], y: dd_y}, **flowing),
        f"D{y}": lambda: _by_operator(g, f"{type}_grad", f"{y}@GRAD", **{x: dd_x, y: g[y]}, **flowing),
        f"DD{out}": lambda: added(
            g, _by_operator(g, type, out, **{x: dd_x, y: g[y]}), _by_operator(g, type, out, **{x: g[x], y: dd_y})
        ),
    }
    return results_of(g, **results)


@rewritten_as("mul_grad_grad")
def _mul_matrix(g: Rewriting) -> Mapping[str, Any]:
    return _of_product(g, "mul", "X", "Y", "Out")


@rewritten_as("conv2d_grad_grad")
def _conv2d(g: Rewriting) -> Mapping[str, Any]:
    return _of_product(g, "conv2d", "Input", "Filter", "Output")


@rewritten_as("reshape2_grad_grad")
def _reshape(g: Rewriting) -> Mapping[str, Any]:
    shape = g["DOut"].shape or ()
    return {"DDOut": g.like(g["DDX"], shape, g["DOut"])}
