"""Attributes that inference and kernels read alike: numbers given as text, shapes with placeholders."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from minigraph.errors import OpError
from minigraph.types import DType, normalize_axis, product, require


def constant_of(dtype: DType, value: float, text: str = "") -> bool | int | float:
    """The number that fills a tensor of type `dtype`: `text` read as a number, or `value` if there is no text.

    The attribute `value` is a float32; `text` spells what that cannot hold. Integer types take the part before the
    decimal point, and for bool everything but 0 is True.

    Raises
    ------
    OpError
        If `text` is no number, or the number does not fit `dtype`.

    Notes
    -----
    Infinity and NaN come from `value` even where `text` spells them: fluid cannot read those words and takes 0.

    Examples
    --------
    >>> constant_of(DType.INT64, 9007199254740992.0, "9007199254740993")
    9007199254740993
    >>> constant_of(DType.INT32, -2.7), constant_of(DType.FP32, math.inf, "inf")
    (-2, inf)
    """
    number = _read(text, value) if text else value
    if dtype is DType.BOOL:
        return bool(number)
    if dtype.is_floating:
        number = float(number)
        largest = float(np.finfo(dtype.numpy).max)
        require(abs(number) <= largest or not math.isfinite(number), f"{number:g} does not fit {dtype}")
        return number
    require(math.isfinite(number), f"{number} does not fit {dtype}")
    number, limits = int(number), np.iinfo(dtype.numpy)
    require(limits.min <= number <= limits.max, f"{number} does not fit {dtype}")
    return number


def _read(text: str, value: float) -> int | float:
    try:
        return int(text)
    except ValueError:
        pass
    try:
        number = float(text)
    except ValueError:
        raise OpError(f"str_value must spell a number, got {text!r}") from None
    return number if math.isfinite(number) else value


def reshaped(shape: Sequence[int], wanted: Sequence[int]) -> tuple[int, ...]:
    """`wanted` where each 0 stands for the dimension of `shape` at its place and one -1 for what is left over.

    Raises
    ------
    OpError
        If the elements do not fit, or `wanted` cannot be read so.

    Examples
    --------
    >>> reshaped((2, 3, 4), (0, -1)), reshaped((-1, 3, 4), (0, -1)), reshaped((0, 3), (-1, 3))
    ((2, 12), (-1, 12), (0, 3))
    """
    shown = f"shape {list(wanted)} of X {list(shape)}"
    require(len(wanted) > 0, "shape is empty", hint="Give [1] for one number.")
    require(min(wanted) >= -1, f"{shown}: a dimension is negative", hint="-1 stands for what is left over.")
    require(list(wanted).count(-1) <= 1, f"{shown}: only one dimension may be -1")
    keeps = {i for i, dim in enumerate(wanted) if dim == 0}
    require(all(i < len(shape) for i in keeps), f"{shown}: a 0 keeps the dimension at its place, but X has none there")
    # A dimension kept cancels on both sides, so what is left over is known even beside an unknown or empty one.
    have = product(dim for i, dim in enumerate(shape) if i not in keeps)
    need = math.prod(dim for dim in wanted if dim > 0)
    dims = [shape[i] if dim == 0 else dim for i, dim in enumerate(wanted)]
    if -1 in wanted:
        require(have == -1 or have % need == 0, f"{shown}: {have} elements are no multiple of {need}")
        if have >= 0:
            dims[list(wanted).index(-1)] = have // need
    else:
        fits = have in (-1, need) or (-1 not in shape and product(dims) == product(shape))
        require(fits, f"{shown}: the numbers of elements differ, {have} and {need}")
    return tuple(dims)


def unsqueezed(shape: Sequence[int], axes: Sequence[int]) -> list[int]:
    """`shape` with ones put in at `axes`, one after the other.

    Raises
    ------
    OpError
        If one of `axes` is beyond the end that `shape` has by then.

    Examples
    --------
    >>> unsqueezed((2, 3), (0, -1)), unsqueezed((2, 3), (2, 0))
    ([1, 2, 3, 1], [1, 2, 3, 1])
    """
    dims = list(shape)
    for axis in axes:
        dims.insert(normalize_axis(axis, len(dims) + 1, "each of axes"), 1)
    return dims


def split_lengths(length: int, num: int, sections: Sequence[int]) -> list[int]:
    """The lengths of `num` equal pieces of a dimension, or if that is 0 of those that `sections` lists.

    `length` may be -1, unknown; a -1 in `sections` stands for what is left over.

    Raises
    ------
    OpError
        If they do not fit.

    Examples
    --------
    >>> split_lengths(6, 3, ()), split_lengths(6, 0, (1, -1, 2)), split_lengths(-1, 0, (1, -1))
    ([2, 2, 2], [1, 3, 2], [1, -1])
    """
    if num:
        require(length == -1 or length % num == 0, f"{length} elements cannot be split into {num} equal pieces")
        return [-1 if length == -1 else length // num] * num
    shown = f"sections {list(sections)}"
    require(min(sections) >= -1 and list(sections).count(-1) <= 1, f"{shown}: only one may be -1, and none less")
    have = sum(section for section in sections if section >= 0)
    if -1 not in sections:
        require(length in (-1, have), f"{shown} add up to {have}, but the dimension has {length} elements")
        return list(sections)
    require(length == -1 or length >= have, f"{shown} add up to more than the {length} elements of the dimension")
    return [section if section >= 0 else -1 if length == -1 else length - have for section in sections]


def soft_relu_ends(dtype: np.dtype[Any], threshold: float) -> tuple[float, float]:
    """Results of ``soft_relu`` at both ends, moved inwards by the rounding error."""
    low, high = np.logaddexp(0, [-threshold, threshold])
    margin = 4 * np.finfo(dtype).eps
    return float(low * (1 + margin)), float(high * (1 - margin))
