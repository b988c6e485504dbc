"""Multiply sums and means by constant factors, and not what is added."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

import numpy as np

from minigraph.ir import Block, Operator, Program
from minigraph.passes.canonical.scale_by_constants import is_ordinary
from minigraph.passes.rules import Match, Rule, Rules, attr, op, rule, with_gradients
from minigraph.types import DType

_REDUCTIONS = ("mean", "reduce_mean", "reduce_sum")


def _captured(type: str) -> dict[str, Any]:
    return {} if type == "mean" else {name: attr(name) for name in ("reduce_all", "dim", "keep_dim")}


def _given(m: Match, type: str) -> dict[str, Any]:
    return {} if type == "mean" else {name: getattr(m, name) for name in ("reduce_all", "dim", "keep_dim")}


def _multiple(x: Any, factor: Any) -> Any:
    return op("scale", X=x, scale=factor, bias_after_scale=attr())


def _of_multiple(type: str) -> Rule:
    @rule
    def of_multiple(x: Any, factor: Any = attr("scale")) -> Any:
        return op(type, X=_multiple(x, factor), **_captured(type))

    @of_multiple.to
    def _(m: Match, x: Any, factor: float) -> Any:
        return op("scale", X=op(type, X=x, **_given(m, type)), scale=factor)

    of_multiple.where(_conditions)
    return of_multiple


def _of_product(type: str, slot: str) -> Rule:
    """Make the rule for the sum or mean of products, of which the factor in `slot` is a multiple."""

    @rule
    def of_product(x: Any, y: Any, factor: Any = attr("scale")) -> Any:
        operands = {"X": x, "Y": y}
        operands[slot] = _multiple(operands[slot], factor)
        return op(type, X=op("elementwise_mul", **operands, axis=attr()), **_captured(type))

    @of_product.to
    def _(m: Match, x: Any, y: Any, factor: float) -> Any:
        product = op("elementwise_mul", X=x, Y=y, axis=m.axis)
        return op("scale", X=op(type, X=product, **_given(m, type)), scale=factor)

    of_product.where(_conditions)
    return of_product


def _conditions(m: Match) -> Iterator[tuple[bool, str]]:
    yield m.x.dtype in (DType.FP32, DType.FP64), "x must be float32 or float64"
    yield bool(m.factor) and is_ordinary(m.factor), "the factor must be of ordinary size"


@rule
def _twice(x: Any, first: Any = attr("scale"), second: Any = attr("scale")) -> Any:
    return _multiple(_multiple(x, first), second)


@_twice.where
def _(m: Match) -> Iterator[tuple[bool, str]]:
    yield m.x.dtype in (DType.FP32, DType.FP64), "x must be float32 or float64"
    given = m.first, m.second, m.first * m.second
    yield all(given) and all(map(is_ordinary, given)), "the factors must be of ordinary size"
    # A factor of 1 is that of the gradient through an addend, which `FindNormalizations` looks for.
    yield 1 not in given[:2], "both must be factors"
    # Attributes are float32.
    yield m.x.dtype is DType.FP32 or float(np.float32(given[-1])) == given[-1], "the product must be a float32"


@_twice.to
def _(x: Any, first: float, second: float) -> Any:
    return op("scale", X=x, scale=first * second)


class MoveFactors(Rules):
    """Turn a sum or mean of multiples into the multiple of the sum or mean: ``sum(c * x)`` into ``c * sum(x)``.

    So with products of which one operand is a multiple, ``sum((c * x) * y)``, and with gradients: the factor then
    meets one number for each sum. Factors that follow each other become one. `FindCrossEntropy` and `MeanOfAll` look
    for sums without factors.

    Law: every value is the same up to rounding, by at most ``4 eps`` times the sum of the magnitudes that are added, as
    long as sums, products and multiples are finite and no smaller than the smallest normal number. Factors of
    extraordinary size, 0 and numbers that are no float32 or float64 are left alone.
    """

    changes_rounding: ClassVar[bool] = True

    rules = (
        _twice,
        *(each for type in _REDUCTIONS for each in with_gradients(_of_multiple(type), "x")),
        *(each for type in _REDUCTIONS for slot in "XY" for each in with_gradients(_of_product(type, slot), "x", "y")),
    )

    def apply(self, program: Program) -> bool:
        # Most programs have scales, products and sums, but none that the rules are about.
        return has_multiples(program) and super().apply(program)


def has_multiples(program: Program) -> bool:
    """Whether, by the names, a sum or mean reads multiples or products of them, or has two factors."""
    return any(map(_has_multiples, program.blocks))


def _has_multiples(block: Block) -> bool:
    ops = block.ops
    scales, products = ops.of_type("scale"), ops.of_type("elementwise_mul")
    multiples = _results(scales)
    if not multiples:
        return False
    products = [op for op in products if not multiples.isdisjoint(op.input_arg_names)]
    reductions = [op for type in _REDUCTIONS for op in ops.of_type(type)]
    added = multiples | _results(products)
    if any(not added.isdisjoint(op.input_arg_names) for op in reductions):
        return True
    sums = _results(reductions)
    once = _results(op for op in scales if not sums.isdisjoint(op.input_arg_names))
    return any(not once.isdisjoint(op.input_arg_names) for op in scales)


def _results(ops: Iterable[Operator]) -> set[str]:
    return {name for op in ops for name in op.output_arg_names}
