"""Layers on sequences of different lengths: rows of a LoDTensor that belong together.

A variable has lengths if it is fed as a `LoDTensor`, or computed from one that is and keeps them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from minigraph.errors import ProgramError, WrongTypeError
from minigraph.ir import Variable
from minigraph.layer_helper import LayerHelper, check_floating, check_variable, constant, emit, layer

__all__ = [
    "lod_append", "lod_reset", "sequence_concat", "sequence_conv", "sequence_enumerate", "sequence_expand",
    "sequence_expand_as", "sequence_pad", "sequence_reshape", "sequence_reverse", "sequence_scatter",
    "sequence_slice", "sequence_softmax", "sequence_unpad",
]  # fmt: skip


@layer
def sequence_conv(
    input: Variable,
    num_filters: int,
    filter_size: int = 3,
    filter_stride: int = 1,
    padding: bool = True,
    padding_start: int | None = None,
    bias_attr: Any = None,
    param_attr: Any = None,
    act: str | None = None,
    name: str | None = None,
) -> Variable:
    """Learned products of each row and the rows around it; rows beyond its sequence count as zeros.

    Parameters
    ----------
    input : Variable, float[rows, width] with lengths
    num_filters : int
        Width of the result.
    filter_size : int
        Rows in a window.
    filter_stride : int
        1.
    padding_start : int, optional
        Where the window of a row begins, seen from the row. Default: ``-(filter_size // 2)``.

    Returns
    -------
    Variable, float[rows, num_filters]
        With the lengths of `input`.
    """
    helper = LayerHelper("sequence_conv", name)
    x = check_floating(input, "sequence_conv: input")
    assert x.shape is not None
    weight = helper.required(param_attr, [filter_size * x.shape[1], num_filters], x.dtype)
    start = -(filter_size // 2) if padding_start is None else padding_start
    attrs: dict[str, Any] = {"contextStride": filter_stride, "contextStart": start, "contextLength": filter_size}
    out = helper.emit("sequence_conv", X=x, Filter=weight, **attrs)
    return helper.activation(helper.bias(out, bias_attr), act)


@layer
def sequence_softmax(input: Variable, use_cudnn: bool = False, name: str | None = None) -> Variable:
    """The softmax of the numbers of each sequence.

    Parameters
    ----------
    input : Variable, float[rows, 1] or float[rows] with lengths
    use_cudnn : bool
        Without effect.
    """
    return emit("sequence_softmax", name, X=check_floating(input, "sequence_softmax: input"))


@layer
def sequence_expand(x: Variable, y: Variable, ref_level: int = -1, name: str | None = None) -> Variable:
    """Each sequence of `x`, or each row if it has no lengths, as often as a sequence of `y` is long.

    Parameters
    ----------
    x : Variable, number[rows, ...]
        With at most one level of lengths.
    y : Variable with lengths
        Its values are not looked at.
    ref_level : int
        The level of `y` that says how often, -1 the last one.

    Returns
    -------
    Variable
        With the lengths of the repeated sequences if `x` has lengths.
    """
    check_variable(y, "sequence_expand: y")
    return emit("sequence_expand", name, X=check_variable(x, "sequence_expand: x"), Y=y, ref_level=ref_level)


@layer
def sequence_expand_as(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """Each row of `x` as often as the sequence of `y` with its number has rows; with the lengths of `y`."""
    check_variable(y, "sequence_expand_as: y")
    return emit("sequence_expand_as", name, X=check_variable(x, "sequence_expand_as: x"), Y=y)


@layer
def sequence_concat(input: Sequence[Variable], name: str | None = None) -> Variable:
    """The first sequences of all inputs joined to one, then the second ones, and so on.

    Raises
    ------
    WrongTypeError
        If `input` is no list.
    ProgramError
        If it has fewer than two variables.
    """
    if not isinstance(input, list | tuple):
        raise WrongTypeError(f"sequence_concat: input must be a list of Variables, got {input!r:.60}")
    if len(input) < 2:
        raise ProgramError(f"sequence_concat: input must have at least two Variables, got {len(input)}")
    return emit("sequence_concat", name, X=list(input))


@layer
def sequence_slice(input: Variable, offset: Variable, length: Variable, name: str | None = None) -> Variable:
    """A part of each sequence.

    Parameters
    ----------
    input : Variable, number[rows, ...] with lengths
    offset, length : Variable, int64[sequences, 1]
        Where the part begins, and how many rows it has.
    """
    given = {"Offset": constant(check_variable(offset, "offset")), "Length": constant(check_variable(length, "length"))}
    return emit("sequence_slice", name, X=check_variable(input, "sequence_slice: input"), **given)


@layer
def sequence_reverse(x: Variable, name: str | None = None) -> Variable:
    """The rows of each sequence in reverse order."""
    return emit("sequence_reverse", name, X=check_variable(x, "sequence_reverse: x"))


@layer
def sequence_reshape(input: Variable, new_dim: int) -> Variable:
    """The elements of each sequence in rows of `new_dim`, which must divide their number."""
    return emit("sequence_reshape", X=check_variable(input, "sequence_reshape: input"), new_dim=new_dim)


@layer
def sequence_pad(
    x: Variable, pad_value: Variable, maxlen: int | None = None, name: str | None = None
) -> tuple[Variable, Variable]:
    """Sequences of one length: each with `pad_value` after it.

    Parameters
    ----------
    x : Variable, number[rows, ...] with lengths
    pad_value : Variable
        One number, or of the shape of a row; of the element type of `x`.
    maxlen : int, optional
        Length of the padded sequences. Default: that of the longest one.

    Returns
    -------
    tuple of Variable
        The padded sequences, number[sequences, maxlen, ...], and their lengths before, int64[sequences].
    """
    helper = LayerHelper("sequence_pad", name)
    given = {"X": check_variable(x, "x"), "PadValue": constant(check_variable(pad_value, "sequence_pad: pad_value"))}
    out, length = helper.emit_all("sequence_pad", **given, padded_length=-1 if maxlen is None else maxlen)
    return out, constant(length)


@layer
def sequence_unpad(x: Variable, length: Variable, name: str | None = None) -> Variable:
    """The sequences whose padded form is `x`.

    Parameters
    ----------
    x : Variable, number[sequences, padded_length, ...]
    length : Variable, int64[sequences]
        How many entries of each row of `x` are no padding.

    Returns
    -------
    Variable, number[rows, ...] with lengths
    """
    given = constant(check_variable(length, "sequence_unpad: length"))
    return emit("sequence_unpad", name, X=check_variable(x, "sequence_unpad: x"), Length=given)


@layer
def sequence_enumerate(input: Variable, win_size: int, pad_value: int = 0, name: str | None = None) -> Variable:
    """The window of `win_size` numbers that begins with each number; `pad_value` stands beyond the sequence.

    Parameters
    ----------
    input : Variable, int[rows, 1] with lengths

    Returns
    -------
    Variable, int[rows, win_size]
        With the lengths of `input`.
    """
    x = check_variable(input, "sequence_enumerate: input")
    return constant(emit("sequence_enumerate", name, X=x, win_size=win_size, pad_value=pad_value))


@layer
def sequence_scatter(input: Variable, index: Variable, updates: Variable, name: str | None = None) -> Variable:
    """`input` with numbers added to each row: a sequence of `updates`, in the columns that `index` names.

    Parameters
    ----------
    input : Variable, number[sequences, width]
    index : Variable, int[rows, 1] with lengths
    updates : Variable, number[rows, 1]
    """
    given = {"Ids": check_variable(index, "index"), "Updates": check_variable(updates, "sequence_scatter: updates")}
    return emit("sequence_scatter", name, X=check_variable(input, "sequence_scatter: input"), **given)


@layer
def lod_reset(x: Variable, y: Variable | None = None, target_lod: Sequence[int] | None = None) -> Variable:
    """`x` with other lengths.

    Parameters
    ----------
    x : Variable
    y : Variable, optional
        Its lengths are taken, or if it has none, the offsets that it holds, int32[sequences + 1].
    target_lod : sequence of int, optional
        Offsets: where each sequence begins, and where the last one ends.

    Raises
    ------
    ProgramError
        If neither is given.
    """
    check_variable(x, "lod_reset: x")
    if y is not None:
        return emit("lod_reset", X=x, Y=check_variable(y, "y"))
    if target_lod is None:
        raise ProgramError("lod_reset: neither y nor target_lod is given")
    return emit("lod_reset", X=x, target_lod=list(target_lod))


@layer
def lod_append(x: Variable, level: Variable | Sequence[int]) -> Variable:
    """`x` with its sequences divided further.

    Parameters
    ----------
    x : Variable
    level : sequence of int or Variable
        Offsets of the new last level. The lengths of a Variable that has some replace those of `x`, as in fluid.

    Raises
    ------
    WrongTypeError
        If `level` is neither.
    """
    check_variable(x, "lod_append: x")
    if not isinstance(level, Variable | list | tuple):
        raise WrongTypeError(f"lod_append: level must be a list of offsets or a Variable, got {level!r:.60}")
    given: dict[str, Any] = {"Y": level} if isinstance(level, Variable) else {"target_lod": list(level)}
    return LayerHelper("lod_append").emit("lod_reset", X=x, append=True, **given)
