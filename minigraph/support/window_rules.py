"""Window geometry of convolutions and poolings of images and volumes: paddings and output sizes.

Inference and kernels use it alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from minigraph.types import require

CHANNELS_LAST = "NHWC"
_LAYOUTS = {4: ("NCHW", CHANNELS_LAST, "AnyLayout"), 5: ("NCDHW", "NDHWC", "NCHW", CHANNELS_LAST, "AnyLayout")}
"""Layouts of images and of volumes, by rank; fluid has names of images for volumes, too."""


@dataclass(frozen=True, slots=True)
class Windows:
    """The windows along one dimension.

    Window ``i`` covers the elements ``i * stride - before + j * dilation`` for ``0 <= j < size``. Those outside of the
    dimension, of `length` elements, are padding.
    """

    length: int
    size: int
    stride: int
    dilation: int
    before: int
    after: int
    count: int
    """Number of windows; -1 if `length` is -1."""

    @property
    def reach(self) -> int:
        """End of the last window, in elements from the beginning of the padding."""
        return (self.count - 1) * self.stride + self.dilation * (self.size - 1) + 1


def is_channels_last(data_format: str) -> bool:
    """Whether the channels are the last dimension of images or volumes."""
    return data_format in (CHANNELS_LAST, "NDHWC")


def spatial_dims(data_format: str, rank: int = 4) -> range:
    """The dimensions of images or volumes that are neither the batch nor the channels."""
    return range(1, rank - 1) if is_channels_last(data_format) else range(2, rank)


def require_layout(layout: str, name: str = "data_format", rank: int = 4) -> None:
    """Raise unless `layout` is one that images, or volumes, can have; ``AnyLayout`` means channels first."""
    first, last = _LAYOUTS[rank][:2]
    require(layout in _LAYOUTS[rank], f"{name} must be {first} or {last}, got {layout!r}")


def lay_windows(
    lengths: Sequence[int],
    sizes: Sequence[int],
    strides: Sequence[int],
    paddings: Sequence[int],
    padding_algorithm: str,
    dilations: Sequence[int] | None = None,
    ceil_mode: bool = False,
) -> tuple[Windows, ...]:
    """The windows along each of `lengths`, as height and width; lengths and sizes may be -1, unknown.

    Parameters
    ----------
    paddings : sequence of int
        One for each dimension, as (height, width), or two, as (top, bottom, left, right).
    dilations : sequence of int
        Default: 1 along each dimension.
    padding_algorithm : {'EXPLICIT', 'VALID', 'SAME'}
        VALID: no padding; SAME: as many windows as strides fit in the length, rounded up, and dilations of 1.
    ceil_mode : bool
        Whether a last window may reach beyond the padding. A single one may in any case, by less than its stride.

    Raises
    ------
    OpError
        If an attribute is out of its range or there is no room for a window.

    Examples
    --------
    >>> height, width = lay_windows((5, 6), (3, 3), (2, 2), (1, 1), "SAME")
    >>> height.before, height.after, height.count, width.before, width.after, width.count
    (1, 1, 3, 0, 1, 3)
    """
    dilations = [1] * len(lengths) if dilations is None else dilations
    both = _checked_paddings(len(lengths), sizes, strides, paddings, padding_algorithm, dilations)
    return tuple(
        _along(*each, padding_algorithm, ceil_mode)
        for each in zip(lengths, sizes, strides, dilations, both, strict=True)
    )


def lay_square(lengths: Sequence[int], sizes: Sequence[int], strides: Sequence[int]) -> tuple[Windows, ...]:
    """Lay as many windows along each dimension as a window has elements, without padding: fluid's adaptive maximum."""
    return tuple(Windows(n, k, s, 1, 0, 0, k) for n, k, s in zip(lengths, sizes, strides, strict=True))


def lay_transposed(
    lengths: Sequence[int],
    sizes: Sequence[int],
    strides: Sequence[int],
    paddings: Sequence[int],
    padding_algorithm: str,
    dilations: Sequence[int],
    output_size: Sequence[int] = (),
) -> tuple[Windows, ...]:
    """The windows of a transposed convolution along each dimension: as many as `lengths`, in a larger result.

    Parameters
    ----------
    padding_algorithm : {'EXPLICIT', 'VALID', 'SAME'}
        SAME takes off what a convolution of `lengths` would add, with dilations of 1, as fluid does.
    output_size : sequence of int
        Lengths of the result, where several have as many windows; without it the smallest.

    Raises
    ------
    OpError
        If an attribute is out of its range, or nothing is left of the result.

    Examples
    --------
    >>> height, width = lay_transposed((3, 3), (3, 3), (2, 2), (1, 0), "EXPLICIT", (1, 1), output_size=(6, 7))
    >>> height.length, height.count, width.length, width.count
    (6, 3, 7, 3)
    """
    rank = len(lengths)
    require(
        len(output_size) in (0, rank), f"output_size must be {_COUNTS[rank]} numbers or none, got {list(output_size)}"
    )
    both = _checked_paddings(rank, sizes, strides, paddings, padding_algorithm, dilations)
    return tuple(
        _transposed_along(count, size, stride, dilation, padding, wanted, padding_algorithm)
        for count, size, stride, dilation, padding, wanted in zip(
            lengths, sizes, strides, dilations, both, output_size or [-1] * rank, strict=True
        )
    )


def _transposed_along(
    count: int, size: int, stride: int, dilation: int, padding: tuple[int, int], wanted: int, algorithm: str
) -> Windows:
    if algorithm == "SAME" and count != -1 and size != -1:
        padding = _same_padding(count, size, stride)
    before, after = padding if algorithm != "VALID" else (0, 0)
    dilation = 1 if algorithm == "SAME" else dilation
    if count == -1 or size == -1:
        return Windows(wanted, size, stride, dilation, before, after, count)
    least = (count - 1) * stride + dilation * (size - 1) + 1 - before - after
    length = least if wanted == -1 else wanted
    require(
        least <= length < least + stride,
        f"output_size must be in [{least}, {least + stride}) for {count} windows of {size}, got {wanted}",
    )
    require(length > 0, f"{count} windows of {size} do not fill the padding, {before} and {after}", hint="Pad less.")
    return Windows(length, size, stride, dilation, before, after, count)


def _same_padding(length: int, size: int, stride: int) -> tuple[int, int]:
    """Padding for ``ceil(length / stride)`` windows."""
    missing = max((-(-length // stride) - 1) * stride + size - length, 0)
    return missing // 2, missing - missing // 2


_COUNTS = {2: "two", 3: "three"}
_PADDINGS = {
    2: "(height, width) or (top, bottom, left, right)",
    3: "(depth, height, width) or (front, back, top, bottom, left, right)",
}


def _checked_paddings(
    rank: int,
    sizes: Sequence[int],
    strides: Sequence[int],
    paddings: Sequence[int],
    algorithm: str,
    dilations: Sequence[int],
) -> list[tuple[int, int]]:
    """The padding on both sides of each dimension; raise if an attribute is out of its range."""
    for name, numbers in (("ksize", sizes), ("strides", strides), ("dilations", dilations)):
        at_least = all(n >= 1 or (n == -1 and numbers is sizes) for n in numbers)
        fits = len(numbers) == rank and at_least
        require(fits, f"{name} must be {_COUNTS[rank]} numbers of at least 1, got {list(numbers)}")
    require(
        len(paddings) in (rank, 2 * rank) and min(paddings) >= 0,
        f"paddings must be {_PADDINGS[rank]}, not negative, got {list(paddings)}",
    )
    require(
        algorithm in ("EXPLICIT", "VALID", "SAME"),
        f"padding_algorithm must be EXPLICIT, VALID or SAME, got {algorithm!r}",
    )
    is_symmetric = len(paddings) == rank
    return [(p, p) for p in paddings] if is_symmetric else list(zip(paddings[::2], paddings[1::2], strict=True))


def _along(
    length: int, size: int, stride: int, dilation: int, padding: tuple[int, int], algorithm: str, ceil_mode: bool
) -> Windows:
    before, after = padding if algorithm == "EXPLICIT" else (0, 0)
    if algorithm == "SAME":
        dilation = 1
        before, after = _same_padding(length, size, stride)
    if length == -1 or size == -1:
        return Windows(length, size, stride, dilation, before, after, -1)
    room = length + before + after - dilation * (size - 1) - 1
    # Truncated, not floored: as in fluid one window stands even where up to `stride - 1` of its elements find no room.
    count = int((room + (stride - 1 if ceil_mode else 0)) / stride) + 1
    require(
        count > 0,
        f"a window of {size} does not fit in {length} elements, padded with {before} and {after}",
        hint="Make the window or the dilation smaller, or pad more.",
    )
    return Windows(length, size, stride, dilation, before, after, count)
