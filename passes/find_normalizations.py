"""Turn softmaxes and layer normalizations that are written out into the operators that compute them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from minigraph.passes.rules import Match, Rule, Rules, attr, gradient_of, op, rule, with_gradients
from minigraph.types import DType


def _is_of_floats(m: Match) -> bool:
    return m.x.dtype in (DType.FP32, DType.FP64) and len(m.x.shape or ()) > 1 and -1 not in m.x.shape


def _goes_along_last(m: Match) -> bool:
    """Whether all reductions of a match are over the last dimension."""
    dims = [getattr(m, name) for name in m.pattern.captured if name.startswith("dim")]
    return all([list(dim) in ([-1], [len(m.x.shape) - 1]) for dim in dims])


def _has_one_each(m: Match) -> bool:
    """Whether operands of other shapes than x have one number for each row."""
    column = (*m.x.shape[:-1], 1)
    for each in m.ops:
        if each.type in ("elementwise_div", "elementwise_mul", "elementwise_sub"):
            shape, axis = each.block.vars[each.inputs["Y"][0]].shape, each.attr("axis")
            is_column = axis in (-1, 0) if shape == column else axis == 0 and shape == column[:-1]
            if not is_column and shape != m.x.shape:
                return False
    return True


# Softmax


def _share(powers: Any) -> Any:
    total = op("reduce_sum", X=powers, dim=attr(), keep_dim=attr())
    return op("elementwise_div", X=powers, Y=total, axis=attr())


@rule
def _plain(x: Any) -> Any:
    return _share(op("exp", X=x))


@rule
def _shifted(x: Any) -> Any:
    top = op("reduce_max", X=x, dim=attr(), keep_dim=attr())
    return _share(op("exp", X=op("elementwise_sub", X=x, Y=top, axis=attr())))


@rule
def _shifted_by(x: Any, top: Any) -> Any:
    return _share(op("exp", X=op("elementwise_sub", X=x, Y=top, axis=attr())))


@_plain.where
@_shifted.where
@_shifted_by.where
def _(m: Match) -> Iterator[tuple[bool, str]]:
    yield _is_of_floats(m), "x must be rows of float32 or float64, of known shape"
    yield _goes_along_last(m), "sums and maxima must be those of rows"
    yield _has_one_each(m), "each row must have its own sum and maximum"


@_plain.where
def _(m: Match) -> Iterator[tuple[bool, str]]:
    less = m.values.producer(m.value("x"), "elementwise_sub")
    top = None if less is None else m.values.producer(m.values.input(less, "Y"), "reduce_max")
    yield top is None, "the subtraction of a maximum belongs to the softmax"


@_shifted_by.where
def _(m: Match) -> Iterator[tuple[bool, str]]:
    top = m.values.producer(m.value("top"), "reduce_max")
    yield top is not None, "what is subtracted must be a maximum"
    assert top is not None
    is_of_rows = not top.attr("reduce_all") and list(top.attr("dim")) in ([-1], [len(m.x.shape) - 1])
    yield is_of_rows and m.values.input(top, "X") == m.value("x"), "what is subtracted must be the maximum of each row"


@_plain.to
@_shifted.to
@_shifted_by.to
def _(x: Any) -> Any:
    return op("softmax", X=x)


# Layer normalization


def _layer_norms(square: str, root: str) -> Iterator[Rule]:
    @rule
    def by_hand(x: Any, epsilon: Any = attr("bias")) -> Any:
        apart = op("elementwise_sub", X=x, Y=op("reduce_mean", X=x, dim=attr(), keep_dim=attr()), axis=attr())
        squares = op("square", X=apart) if square == "square" else op("elementwise_mul", X=apart, Y=apart, axis=attr())
        variance = op("reduce_mean", X=squares, dim=attr(), keep_dim=attr())
        raised = op("scale", X=variance, bias=epsilon)
        if root == "pow":
            return op("elementwise_mul", X=apart, Y=op("pow", X=raised, factor=-0.5), axis=attr())
        if root == "rsqrt":
            return op("elementwise_mul", X=apart, Y=op("rsqrt", X=raised), axis=attr())
        return op("elementwise_div", X=apart, Y=op("sqrt", X=raised), axis=attr())

    @by_hand.where
    def _(m: Match) -> Iterator[tuple[bool, str]]:
        yield _is_of_floats(m), "x must be rows of float32 or float64, of known shape"
        yield _goes_along_last(m), "means must be those of rows"
        yield _has_one_each(m), "each row must have its own mean and variance"
        yield 0 < m.epsilon <= 1e-3, "epsilon must be one that layer_norm takes"

    @by_hand.to
    def _(m: Match, x: Any) -> Any:
        return _normalized(x, begin_norm_axis=len(m.x.shape) - 1, epsilon=m.epsilon)

    yield from with_gradients(by_hand, "x", with_results=True)


def _normalized(x: Any, **more: Any) -> Any:
    return op("layer_norm", X=x, **more, outputs=["Y", "Mean", "Variance"])[0]


@rule
def _stretched(x: Any, g: Any, b: Any) -> Any:
    normal = _normalized(x, begin_norm_axis=attr(), epsilon=attr())
    return op("elementwise_add", X=op("elementwise_mul", X=normal, Y=g, axis=attr()), Y=b, axis=attr())


@_stretched.where
def _(m: Match) -> Iterator[tuple[bool, str]]:
    yield _is_of_floats(m), "x must be rows of float32 or float64, of known shape"
    yield m.begin_norm_axis == len(m.x.shape) - 1, "rows must be normalized"
    yield m.g.shape == m.b.shape == m.x.shape[-1:], "g and b must have an element for each column"
    yield {m.axis, m.axis_2} <= {-1, len(m.x.shape) - 1}, "operands must be aligned at the last dimension"


@_stretched.to
def _(x: Any, g: Any, b: Any, begin_norm_axis: int, epsilon: float) -> Any:
    return _normalized(x, Scale=g, Bias=b, begin_norm_axis=begin_norm_axis, epsilon=epsilon)


class FindNormalizations(Rules):
    """Turn softmaxes and layer normalizations of rows that are written out, and their gradients, into one operator.

    A softmax is ``exp(x) / sum(exp(x))``, with or without the maximum of each row subtracted from it first. A layer
    normalization is ``(x - mean(x)) / sqrt(mean((x - mean(x)) ** 2) + epsilon) * g + b``.

    Law: results and gradients change by rounding only, as long as they are finite; the gradient through a subtracted
    maximum is 0. Where exponentials overflow, or all of a row underflow, the results of ``softmax`` are right. float16
    and unknown shapes are left alone.
    """

    changes_rounding: ClassVar[bool] = True

    needs = (
        frozenset({"exp", "reduce_sum", "elementwise_div"}),
        *(frozenset({"reduce_mean", "elementwise_sub", "scale", root}) for root in ("sqrt", "rsqrt", "pow")),
    )

    rules = (
        *(each for made in (_shifted, _shifted_by, _plain) for each in with_gradients(made, "x", with_results=True)),
        *(
            each
            for squared in ("square", "mul")
            for root in ("sqrt", "rsqrt", "pow")
            for each in _layer_norms(squared, root)
        ),
        _stretched,
        gradient_of(_stretched, "x", "g", "b", with_results=True),
        gradient_of(_stretched, "g", "b", with_results=True),
    )
