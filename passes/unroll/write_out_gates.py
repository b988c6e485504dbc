"""Write gated recurrent units out as the operators that other passes know."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from minigraph.ops.recurrent import ACTIVATIONS
from minigraph.passes.rules import Match, Rule, Rules, attr, op, rule, with_gradients
from minigraph.types import DType


def _slice(x: Any, axis: int, start: int, stop: int) -> Any:
    return op("slice", Input=x, axes=[axis], starts=[start], ends=[stop])


def _reshaped(x: Any, shape: Any) -> Any:
    return op("reshape2", X=x, shape=shape, outputs=["Out", "XShape"])[0]


def _activated(number: int, x: Any) -> Any:
    return op(ACTIVATIONS[number], X=x) if number else x


def _hidden(m: Match, total: Any, h: Any, w: Any) -> Any:
    """The new state, from what the step's input is to gates and candidate."""
    size = m.h.shape[1]
    flat, both = _reshaped(w, [3 * size * size]), 2 * size * size
    of_gates = _reshaped(_slice(flat, 0, 0, both), [size, 2 * size])
    of_candidate = _reshaped(_slice(flat, 0, both, 3 * size * size), [size, size])
    gates = op("elementwise_add", X=_slice(total, 1, 0, 2 * size), Y=op("mul", X=h, Y=of_gates))
    gates = _activated(m.gate_activation, gates)
    update, reset = _slice(gates, 1, 0, size), _slice(gates, 1, size, 2 * size)
    kept = op("mul", X=op("elementwise_mul", X=reset, Y=h), Y=of_candidate)
    candidate = op("elementwise_add", X=_slice(total, 1, 2 * size, 3 * size), Y=kept)
    candidate = _activated(m.activation, candidate)
    old, new = (candidate, h) if m.origin_mode else (h, candidate)
    step = op("elementwise_mul", X=update, Y=op("elementwise_sub", X=new, Y=old))
    return op("elementwise_add", X=old, Y=step)


def _rules() -> Iterator[Rule]:
    attrs = {name: attr() for name in ("activation", "gate_activation", "origin_mode")}
    results = ["Gate", "ResetHiddenPrev", "Hidden"]

    @rule
    def biased(x: Any, h: Any, w: Any, b: Any) -> Any:
        return op("gru_unit", Input=x, HiddenPrev=h, Weight=w, Bias=b, **attrs, outputs=results)[2]

    @rule
    def plain(x: Any, h: Any, w: Any) -> Any:
        return op("gru_unit", Input=x, HiddenPrev=h, Weight=w, **attrs, outputs=results)[2]

    for made in (biased, plain):

        @made.where
        def _(m: Match) -> Iterator[tuple[bool, str]]:
            yield m.x.dtype in (DType.FP32, DType.FP64), "x must be float32 or float64"
            shapes = [each.shape or (-1,) for each in (m.x, m.h, m.w)]
            yield not any(size in (-1, 0) for shape in shapes for size in shape[1:]), "sizes must be known"

    @biased.to
    def _(m: Match, x: Any, h: Any, w: Any, b: Any) -> Any:
        return _hidden(m, op("elementwise_add", X=x, Y=_reshaped(b, [3 * m.h.shape[1]]), axis=1), h, w)

    @plain.to
    def _(m: Match, x: Any, h: Any, w: Any) -> Any:
        return _hidden(m, x, h, w)

    yield from with_gradients(biased, "x", "h", "w", "b", with_results=True)
    yield from with_gradients(plain, "x", "h", "w", with_results=True)


class WriteOutGates(Rules):
    """Turn ``gru_unit`` and its gradient into two products and operators on elements, where only the state is read.

    `MergeMatmuls` then computes the gradient of the weights by one product for all steps, and `MergeProducts` finds the
    products of the inputs. float16, which the unit computes in float32, and unknown sizes are left alone.

    Law: results and gradients change by rounding only.
    """

    changes_rounding: ClassVar[bool] = True

    needs = (frozenset({"gru_unit"}),)

    rules = tuple(_rules())
