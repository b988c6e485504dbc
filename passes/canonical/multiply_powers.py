"""Compute small powers by products, quotients and roots."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

from minigraph.ir import Operator, Program
from minigraph.opdef import EMPTY
from minigraph.passes.rewriting import insert_for
from minigraph.passes.rules import Match, Rule, Rules, attr, op, rule, with_gradients
from minigraph.passes.values import Values
from minigraph.types import DType


def _square(x: Any) -> Any:
    return op("square", X=x)


def _positive(x: Any) -> Any:
    """``x + 0``, which makes -0.0 positive: ``pow(-0.0, -0.5)`` is infinity, ``1 / sqrt(-0.0)`` minus infinity."""
    return op("scale", X=x, bias_after_scale=False)


def _is_biased(m: Match) -> bool:
    """Whether x is never -0.0, because a bias was added: where the sum is 0 it is positive."""
    made = m.values.producer(m.value("x"), "scale")
    return made is not None and bool(made.attr("bias_after_scale")) and made.attr("bias") != 0


_POWERS: dict[float, Callable[[Any], Any]] = {
    2.0: _square,
    3.0: lambda x: op("elementwise_mul", X=_square(x), Y=x),
    4.0: lambda x: _square(_square(x)),
    0.5: lambda x: op("sqrt", X=x),
    -0.5: lambda x: op("rsqrt", X=x),
    -1.0: lambda x: op("reciprocal", X=x),
}
"""Functions that append each power."""


def _rule(factor: float) -> Rule:
    @rule
    def power(x: Any) -> Any:
        return op("pow", X=x, factor=factor)

    @power.where
    def _(m: Match) -> Iterator[tuple[bool, str]]:
        yield factor in (2.0, 3.0) or m.x.dtype.is_floating, "powers of integers must be positive"

    @power.to
    def _(m: Match, x: Any) -> Any:
        is_root = factor in (0.5, -0.5)
        return _POWERS[factor](_positive(x) if is_root and not _is_biased(m) else x)

    return power


@rule
def _product(x: Any) -> Any:
    return op("elementwise_mul", X=x, Y=x, axis=attr())


@_product.where
def _(m: Match) -> Iterator[tuple[bool, str]]:
    yield m.x.dtype.is_floating, "x must be floating-point numbers"


@_product.to
def _(x: Any) -> Any:
    return _square(x)


@rule
def _inverse(x: Any) -> Any:
    return op("reciprocal", X=op("sqrt", X=x))


@_inverse.where
def _(m: Match) -> Iterator[tuple[bool, str]]:
    yield m.x.dtype in (DType.FP32, DType.FP64), "x must be float32 or float64"


@_inverse.to
def _(x: Any) -> Any:
    return op("rsqrt", X=x)


def _join_gradients(program: Program) -> bool:
    """Let the gradient of a product of x and itself, whose two parts a sum adds to others, be that of a square."""
    found = [
        op for op in program.global_block().ops.of_type("elementwise_mul_grad") if op.inputs["X"] == op.inputs["Y"]
    ]
    if not found:
        return False
    values, changed = Values(program), False
    for grad in found:
        total = _sum_of_both(grad, values)
        if total is not None:
            (first,), (second,) = grad.outputs["X@GRAD"], grad.outputs["Y@GRAD"]
            inputs = {"X": grad.inputs["X"][0], "Out@GRAD": grad.inputs["Out@GRAD"][0]}
            insert_for(grad, "square_grad", inputs, {"X@GRAD": first}, {})
            total.set_input("X", [name for name in total.inputs["X"] if name != second])
            grad.block.remove(grad)
            changed = True
    return changed


def _sum_of_both(grad: Operator, values: Values) -> Operator | None:
    """The sum of other values and both gradients that `grad` writes, which nothing else reads."""
    names = grad.output_arg_names
    if len(names) < 2 or EMPTY in names or grad.block.vars[grad.inputs["X"][0]].dtype is DType.FP16:
        return None
    parts = [values.written(name, grad) for name in names]
    readers = {reader for part in parts for reader in values.readers[part]}
    if len(readers) > 1 or not all(map(values.is_used_once, parts)):
        return None
    (total,) = readers
    is_sum = total.type == "sum" and all(total.inputs["X"].count(name) == 1 for name in names)
    return total if is_sum else None


class MultiplyPowers(Rules):
    """Turn ``pow`` by 2, 3, 4, -1, 1/2 and -1/2 into products, reciprocals and roots; likewise for gradients.

    The product of a value and itself becomes ``square``, the reciprocal of a root ``rsqrt``. A power by a logarithm and
    an exponential takes many times as long, and cannot be joined with other operators on elements.

    Law: every value is the same up to rounding, by at most ``8 eps`` times its size, as long as the squares of x and of
    the result are neither infinite nor below the smallest normal number. A root of -0.0 is 0.0, of minus infinity NaN.
    """

    changes_rounding: ClassVar[bool] = True

    needs = (frozenset({"pow"}), frozenset({"pow_grad"}), frozenset({"reciprocal", "sqrt"}),
             frozenset({"elementwise_mul"}))  # fmt: skip

    rules = (
        *(each for factor in _POWERS for each in with_gradients(_rule(factor), "x")),
        *with_gradients(_product, "x"),
        *with_gradients(_inverse, "x", with_results=True),
    )

    def _run(self, program: Program) -> bool:
        changed = super()._run(program)
        return _join_gradients(program) or changed
