"""Tensors in other shapes: dimensions of size 1 come and go, pieces are cut apart, joined, repeated and padded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from minigraph.errors import ProgramError, WrongTypeError
from minigraph.ir import Variable
from minigraph.layer_helper import LayerHelper, check_variable, emit, input_or_attr, layer
from minigraph.layers.tensor import numbers_of
from minigraph.support.arguments import INTEGERS, as_float

__all__ = ["expand", "expand_as", "flatten", "pad", "split", "squeeze", "stack", "unsqueeze", "unstack"]

Numbers = Sequence[int | Variable] | Variable
"""Integers, some of which may be known only when the program runs, or a vector of them."""


def numbers_given(helper: LayerHelper, numbers: Any, attr: str, whole: str, parts: str) -> dict[str, Any]:
    """Inputs and attributes that give an operator integers: a Variable, a list of numbers, or a list of both.

    Parameters
    ----------
    attr : str
        Name of the attribute; where a number is known only at run time it says -1.
    whole, parts : str
        Input slots for a vector and for a list of numbers.

    Raises
    ------
    WrongTypeError
        If `numbers` is anything else.
    """
    if isinstance(numbers, Variable):
        return {whole: numbers}
    if not isinstance(numbers, list | tuple) or not all(isinstance(n, (*INTEGERS, Variable)) for n in numbers):
        raise WrongTypeError(
            f"{helper.layer_type}: {attr} must be a list of integers or a Variable, got {numbers!r:.80}"
        )
    if not any(isinstance(n, Variable) for n in numbers):
        return {attr: list(numbers)}
    # Shape inference reads the attribute; a run reads the variables.
    known = [-1 if isinstance(n, Variable) else n for n in numbers]
    make = numbers_of(helper, "int32")
    return {parts: [n if isinstance(n, Variable) else make(n) for n in numbers], attr: known}


@layer
def squeeze(input: Variable, axes: Sequence[int], name: str | None = None) -> Variable:
    """`input` without the dimensions `axes`, which have size 1; if `axes` is empty, without all that have."""
    if not isinstance(axes, list | tuple):
        raise WrongTypeError(f"squeeze: axes must be a list, got {axes!r:.80}")
    return LayerHelper("squeeze", name).emit("squeeze2", X=input, axes=axes)


@layer
def unsqueeze(input: Variable, axes: int | Numbers, name: str | None = None) -> Variable:
    """`input` with dimensions of size 1 inserted at `axes`, one after the other."""
    helper = LayerHelper("unsqueeze2", name)
    numbers = [axes] if isinstance(axes, INTEGERS) else axes
    given = numbers_given(helper, numbers, "axes", "AxesTensor", "AxesTensorList")
    if "AxesTensorList" in given:
        del given["axes"]  # which the operator would take first
    return helper.emit("unsqueeze2", X=input, **given)


@layer
def flatten(x: Variable, axis: int = 1, name: str | None = None) -> Variable:
    """`x` as a matrix: the dimensions before `axis` count its rows, the others its columns."""
    return LayerHelper("flatten", name).emit("flatten2", X=x, axis=axis)


@layer
def split(
    input: Variable, num_or_sections: int | Sequence[int | Variable], dim: int | Variable = -1, name: str | None = None
) -> list[Variable]:
    """`input` cut along dimension `dim`.

    Parameters
    ----------
    num_or_sections : int or sequence of int
        Number of equal pieces, or the length of each; one length may be -1, for what is left over.

    Raises
    ------
    WrongTypeError
        If `num_or_sections` is neither.
    """
    helper = LayerHelper("split", name)
    check_variable(input, "split: input")
    # The operator counts dimensions from the front.
    axis = dim if isinstance(dim, Variable) or dim >= 0 else dim + len(input.shape or ())
    given = input_or_attr(axis, "AxisTensor", "axis")
    if isinstance(num_or_sections, INTEGERS):
        given["num"] = count = _count(num_or_sections, input, dim, "split: num_or_sections")
    elif isinstance(num_or_sections, list | tuple):
        given |= numbers_given(helper, num_or_sections, "sections", "", "SectionsTensorList")
        count = len(num_or_sections)
    else:
        raise WrongTypeError(f"split: num_or_sections must be an integer or a list, got {num_or_sections!r:.80}")
    return helper.emit_list("split", count, X=input, **given)


def _count(given: int, x: Variable, axis: Any, what: str) -> int:
    """Into how many parts a dimension of `x` is cut, which may be checked before there is a variable for each."""
    shape = x.shape or ()
    known = shape[axis] if isinstance(axis, INTEGERS) and -len(shape) <= axis < len(shape) else -1
    if isinstance(given, bool) or not 1 <= given <= (known if known > 0 else 1 << 16):
        raise ProgramError(
            f"{what} must be from 1 to {known if known > 0 else 1 << 16}, got {given!r:.80}",
            details=[str(x)],
            hint="Give how many parts the dimension has.",
        )
    return given


@layer
def stack(x: Variable | Sequence[Variable], axis: int = 0) -> Variable:
    """Variables of one shape beside each other along a new dimension `axis`."""
    return emit("stack", X=list(x) if isinstance(x, list | tuple) else [x], axis=axis)


@layer
def unstack(x: Variable, axis: int = 0, num: int | None = None) -> list[Variable]:
    """The slices of `x` along dimension `axis`, without it.

    `num` is how many there are; it may be left out where the program knows it.

    Raises
    ------
    ProgramError
        If the number is not known.
    """
    shape = check_variable(x, "unstack: x").shape or ()
    if num is None:
        num = shape[axis] if -len(shape) <= axis < len(shape) else -1
        if num <= 0:
            raise ProgramError(f"unstack: {x} has no known number of slices along {axis}", hint="Give num.")
    count = _count(num, x, axis, "unstack: num")
    return LayerHelper("unstack").emit_list("unstack", count, X=x, axis=axis, num=num)


@layer
def expand(x: Variable, expand_times: Numbers, name: str | None = None) -> Variable:
    """`x` repeated ``expand_times[i]`` times along dimension i."""
    helper = LayerHelper("expand", name)
    times = numbers_given(helper, expand_times, "expand_times", "ExpandTimes", "expand_times_tensor")
    return helper.emit("expand", X=x, **times)


@layer
def expand_as(x: Variable, target_tensor: Variable, name: str | None = None) -> Variable:
    """`x` repeated to the shape of `target_tensor`."""
    return emit("expand_as", name, X=x, target_tensor=target_tensor)


@layer
def pad(x: Variable, paddings: Sequence[int], pad_value: float = 0.0, name: str | None = None) -> Variable:
    """`x` with ``paddings[2 * i]`` elements `pad_value` before it and ``paddings[2 * i + 1]`` after, for each i."""
    return emit("pad", name, X=x, paddings=paddings, pad_value=as_float(pad_value))
