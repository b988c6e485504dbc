"""Turn arithmetic with constant numbers into ``scale`` and ``pow``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

from minigraph.passes.rules import Match, Rule, Rules, attr, marked, op, rule, with_gradients
from minigraph.types import DType, as_dtype


def _is_long(shape: Sequence[int]) -> bool:
    return list(shape) != [1]


def _made(number: Any, fits: Callable[[Any], bool] | None = None) -> Any:
    """Match a ``fill_constant`` of a number, which other operators may read, too."""
    attrs = {"shape": attr(fits=fits), "dtype": attr(), "str_value": attr(), "force_cpu": attr()}
    return marked(op("fill_constant", value=number, **attrs), shared=True)


def _made_for_batch(number: Any, like: Any) -> Any:
    """Match a number for each element, of which the batch of `like` says how many there are."""
    names = ("shape", "input_dim_idx", "output_dim_idx", "dtype", "str_value", "force_cpu")
    attrs = {name: attr() for name in names}
    return marked(op("fill_constant_batch_size_like", Input=like, value=number, **attrs), shared=True)


def _shape(m: Match) -> Sequence[int]:
    """The shape of the number."""
    (made,) = [each for each in m.ops if each.type.startswith("fill_constant")]
    return made.block.vars[made.outputs["Out"][0]].shape or ()


def _conditions(m: Match) -> Iterator[tuple[bool, str]]:
    yield m.x.dtype is DType.FP32 and bool(m.x.shape), "x must be float32, as attributes are"
    yield as_dtype(m.dtype) is DType.FP32, "the number must be float32, too: an integer is cut off"
    yield list(_shape(m)) in ([1], list(m.x.shape)), "the number must stand for every element of x"
    yield 1e-30 < abs(m.number) < 1e30, "the number must be neither 0 nor infinite"
    yield not m.str_value or m.x.dtype.numpy.type(m.str_value) == m.number, "the number must be a float32"


def _rule(type: str) -> Rule:
    @rule
    def with_number(x: Any, number: Any = attr("value")) -> Any:
        return op(f"elementwise_{type}", X=x, Y=_made(number), axis=attr())

    with_number.where(_conditions)

    @with_number.to
    def _(x: Any, number: float) -> Any:
        if type in ("mul", "div"):
            return op("scale", X=x, scale=number if type == "mul" else 1 / number)
        if type == "pow":
            return op("pow", X=x, factor=number)
        return op("scale", X=x, bias=number if type == "add" else -number)

    return with_number


def _multiplied(x: Any, factor: float) -> Any:
    return x if factor == 1 else op("scale", X=x, scale=factor)


def _rule_of_first(type: str, for_batch: bool = False) -> Rule:
    """Make the rule for an operator whose first operand is the number, in the shape of x.

    A number of shape [1] is left alone, as in a clip: where x is one number as well, nothing would be saved.
    """

    def number_with(x: Any, number: Any = attr("value")) -> Any:
        return op(f"elementwise_{type}", X=_made(number, _is_long), Y=x, axis=attr())

    def number_of_batch_with(x: Any, like: Any, number: Any = attr("value")) -> Any:
        return op(f"elementwise_{type}", X=_made_for_batch(number, like), Y=x, axis=attr())

    made = rule(number_of_batch_with if for_batch else number_with)
    made.where(_conditions)

    @made.where
    def _(m: Match) -> Iterator[tuple[bool, str]]:
        yield list(_shape(m)) == list(m.x.shape), "the number must have the shape of x, to which it is no operand"

    @made.to
    def _(m: Match, x: Any, number: float) -> Any:
        if type == "div":
            return _multiplied(op("reciprocal", X=x), number)
        if type == "mul":
            return op("scale", X=x, scale=number)
        return op("scale", X=x, scale=1.0 if type == "add" else -1.0, bias=number)

    return made


@rule
def _quotient_grad(x: Any, out: Any, d: Any, number: Any = attr("value")) -> Any:
    return op("elementwise_div_grad", X=x, Y=_made(number), Out=out, Out_GRAD=d, axis=attr(), outputs=["X_GRAD"])[0]


_quotient_grad.where(_conditions)


@_quotient_grad.to
def _(d: Any, number: float) -> Any:
    return op("scale", X=d, scale=1 / number)


def _divisor_grad_of(made: Any, x: Any, out: Any, d: Any) -> Any:
    return op("elementwise_div_grad", X=made, Y=x, Out=out, Out_GRAD=d, axis=attr(), outputs=["Y_GRAD"])[0]


@rule
def _divisor_grad(x: Any, out: Any, d: Any, number: Any = attr("value")) -> Any:
    return _divisor_grad_of(_made(number, _is_long), x, out, d)


@rule
def _divisor_grad_for_batch(x: Any, out: Any, d: Any, like: Any, number: Any = attr("value")) -> Any:
    return _divisor_grad_of(_made_for_batch(number, like), x, out, d)


_divisor_grad.where(_conditions)
_divisor_grad_for_batch.where(_conditions)


@_divisor_grad.where
@_divisor_grad_for_batch.where
def _(m: Match) -> Iterator[tuple[bool, str]]:
    yield list(_shape(m)) == list(m.x.shape), "the number must have the shape of x"
    yield _is_quotient(m), "Out must be the number divided by x"


def _is_quotient(m: Match) -> bool:
    """Whether the division has made `out`, or what the rule of the forward pass puts in its place."""
    values, x = m.values, m.value("x")
    maker = values.producer(m.value("out"), "elementwise_div", "scale", "reciprocal")
    if maker is None or maker.type == "elementwise_div":
        (grad,) = [each for each in m.ops if each.type == "elementwise_div_grad"]
        operands = values.input(grad, "X"), x
        return maker is not None and (values.input(maker, "X"), values.input(maker, "Y")) == operands
    factor = 1.0
    if maker.type == "scale":
        factor = maker.attr("scale") if maker.attr("bias") == 0 and not maker.inputs.get("ScaleTensor") else 0.0
        maker = values.producer(values.input(maker, "X"), "reciprocal")
    return maker is not None and factor == m.number and values.input(maker, "X") == x


@_divisor_grad.to
@_divisor_grad_for_batch.to
def _(out: Any, d: Any, number: float) -> Any:
    return _multiplied(op("reciprocal_grad", Out=out, Out_GRAD=d, outputs=["X_GRAD"])[0], 1 / number)


@rule
def _twice(
    x: Any, first: Any = attr("scale"), first_bias: Any = attr("bias"), first_after: Any = attr("bias_after_scale"),
    second: Any = attr("scale"), second_bias: Any = attr("bias"), second_after: Any = attr("bias_after_scale"),
) -> Any:  # fmt: skip
    inner = op("scale", X=x, scale=first, bias=first_bias, bias_after_scale=first_after)
    return op("scale", X=inner, scale=second, bias=second_bias, bias_after_scale=second_after)


def is_ordinary(number: float) -> bool:
    return not number or 1e-6 < abs(number) < 1e6


@_twice.where
def _(m: Match) -> Iterator[tuple[bool, str]]:
    yield m.first and m.second, "no factor may be 0"
    # With an addend between, even factors that are powers of two would change the rounding.
    yield not m.first_bias and m.first_after and m.second_after, "nothing may be added before the second factor"
    yield from _says_the_same(m, (m.first, m.second, m.second_bias), (m.first * m.second, m.second_bias))


def _says_the_same(m: Match, given: Sequence[float], made: Sequence[float]) -> Iterator[tuple[bool, str]]:
    yield m.x.dtype in (DType.FP32, DType.FP64), "x must be float32 or float64"
    yield all(map(is_ordinary, (*given, *made))), "the numbers must be of ordinary size"
    yield (
        m.x.dtype is DType.FP32 or all(float(np.float32(number)) == number for number in made),
        "the numbers must be float32, as attributes are",
    )


@_twice.to
def _(x: Any, first: float, second: float, second_bias: float) -> Any:
    return op("scale", X=x, scale=first * second, bias=second_bias)


POWERS_OF_NUMBERS = tuple(with_gradients(_rule("pow"), "x"))
"""Rules that make ``pow`` of a power by a number."""


QUOTIENTS_OF_NUMBERS = (
    _rule_of_first("div"), _divisor_grad, _rule_of_first("div", for_batch=True), _divisor_grad_for_batch,
)  # fmt: skip
"""Rules that make ``reciprocal`` of a number divided by a value of its shape."""


class ScaleByConstants(Rules):
    """Turn sums, differences, products and quotients with a number made by ``fill_constant`` into a ``scale``.

    A number may have the shape of the other operand, and then be the first one; it is divided by x as by the
    ``reciprocal``, also if ``fill_constant_batch_size_like`` makes it. A power of a number becomes ``pow``. Likewise
    for their gradients. Factors that follow each other, and an addend after them, become one ``scale``.

    Law: every value is the same up to rounding, by at most ``4 eps`` times the largest of its size and those of the
    terms that are added for it, as long as it and the values between are neither infinite nor below the smallest normal
    number. Only float32 has factors exactly.
    """

    changes_rounding: ClassVar[bool] = True

    needs = (
        *(
            frozenset({f"elementwise_{type}{suffix}", "fill_constant"})
            for type in ("add", "sub", "mul", "div", "pow")
            for suffix in ("", "_grad")
        ),
        *(frozenset({type, "fill_constant_batch_size_like"}) for type in ("elementwise_div", "elementwise_div_grad")),
        frozenset({"scale"}),
    )

    rules = (
        *(each for type in ("add", "sub", "mul") for each in with_gradients(_rule(type), "x")),
        *POWERS_OF_NUMBERS,
        *(each for type in ("add", "sub", "mul") for each in with_gradients(_rule_of_first(type), "x")),
        _rule("div"),
        _quotient_grad,
        *QUOTIENTS_OF_NUMBERS,
        _twice,
    )
