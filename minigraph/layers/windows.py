"""Layers for parts of tensors: regions that are cropped, and windows of images laid side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from minigraph.errors import WrongTypeError
from minigraph.ir import Variable
from minigraph.layer_helper import LayerHelper, check_floating, check_variable, emit, input_or_attr, layer
from minigraph.layers.image import Size, pair
from minigraph.layers.tensor import Shape, numbers_of, shape_given

__all__ = ["crop", "crop_tensor", "im2sequence", "unfold"]


@layer
def crop(
    x: Variable,
    shape: Variable | Sequence[int] | None = None,
    offsets: Variable | Sequence[int] | None = None,
    name: str | None = None,
) -> Variable:
    """The region of `x` that begins at `offsets`, by default at its beginning.

    Parameters
    ----------
    x : Variable
    shape : Variable or sequence of int
        The shape of the region: numbers, -1 for all that is left, or a Variable that has this shape.
    offsets : Variable or sequence of int, optional
        A number for each dimension, or an integer Variable of them.
    """
    check_variable(x, "crop: x")
    if not isinstance(shape, Variable | list | tuple):
        raise WrongTypeError(f"crop: shape must be a Variable or a list, got {shape!r:.60}")
    assert x.shape is not None
    begin = [0] * len(x.shape) if offsets is None else offsets
    return emit("crop", name, X=x, **input_or_attr(shape, "Y", "shape"), **input_or_attr(begin, "Offsets", "offsets"))


@layer
def crop_tensor(
    x: Variable,
    shape: Shape | None = None,
    offsets: Shape | None = None,
    name: str | None = None,
) -> Variable:
    """The region of `x` that begins at `offsets`, by default at its beginning.

    Parameters
    ----------
    x : Variable
    shape : sequence of int and Variable, or Variable
        The sizes of the region; -1 reaches to the end of `x`. A Variable is a vector of them.
    offsets : sequence of int and Variable, or Variable, optional
        A number for each dimension.

    Examples
    --------
    >>> import minigraph as fluid
    >>> with fluid.program_guard(fluid.Program()):
    ...     x = fluid.data("x", [None, 3, 8])
    ...     fluid.layers.crop_tensor(x, shape=[-1, 2, -1], offsets=[0, 1, 2]).shape
    (-1, 2, 6)
    """
    check_variable(x, "crop_tensor: x")
    for what, numbers in (("shape", shape), ("offsets", offsets)):
        if not isinstance(numbers, Variable | list | tuple) and not (what == "offsets" and numbers is None):
            raise WrongTypeError(f"crop_tensor: {what} must be a Variable or a list, got {numbers!r:.60}")
    helper = LayerHelper("crop_tensor", name)
    out, make = helper.temporary(), numbers_of(helper, "int32")
    assert x.shape is not None and shape is not None
    begin: Any = [0] * len(x.shape) if offsets is None else offsets
    found = shape_given(begin, "Offsets", "OffsetsTensor", make)
    given = {slot if slot != "shape" else "offsets": value for slot, value in found.items()}
    return helper.emit("crop_tensor", into=out, X=x, **given, **shape_given(shape, "Shape", "ShapeTensor", make))


def _four(paddings: Size, what: str) -> list[int]:
    """(top, left, bottom, right) from one number, (height, width) or four."""
    if isinstance(paddings, list | tuple) and len(paddings) == 4:
        return [*pair(paddings[:2], what), *pair(paddings[2:], what)]
    return pair(paddings, what) * 2


@layer
def unfold(
    x: Variable, kernel_sizes: Size, strides: Size = 1, paddings: Size = 0, dilations: Size = 1, name: str | None = None
) -> Variable:
    """The windows of images as columns.

    Parameters
    ----------
    x : Variable, float[batch, channels, height, width]
    kernel_sizes, strides, dilations : int or sequence of int
        One number, or (height, width).
    paddings : int or sequence of int
        One number, (height, width) or (top, left, bottom, right).

    Returns
    -------
    Variable, float[batch, channels * elements of a window, windows]

    Examples
    --------
    >>> import minigraph as fluid
    >>> with fluid.program_guard(fluid.Program()):
    ...     fluid.layers.unfold(fluid.data("images", [None, 3, 8, 8]), [2, 3], paddings=1).shape
    (-1, 18, 72)
    """
    return emit(
        "unfold", name, X=check_floating(x, "unfold: x"), kernel_sizes=pair(kernel_sizes, "unfold: kernel_sizes"),
        strides=pair(strides, "unfold: strides"), paddings=_four(paddings, "unfold: paddings"),
        dilations=pair(dilations, "unfold: dilations"),
    )  # fmt: skip


@layer
def im2sequence(
    input: Variable,
    filter_size: Size = 1,
    stride: Size = 1,
    padding: Size = 0,
    input_image_size: Variable | None = None,
    out_stride: Size = 1,
    name: str | None = None,
) -> Variable:
    """The windows of each image as the rows of a sequence, from left to right and from top to bottom.

    Parameters
    ----------
    input : Variable, float[batch, channels, height, width]
    filter_size, stride : int or sequence of int
        One number, or (height, width).
    padding : int or sequence of int
        One number, (height, width) or (top, left, bottom, right).
    input_image_size : Variable, float[batch, 2], optional
        Height and width of each image in the picture that it was made of: windows beyond are left out.
    out_stride : int or sequence of int
        How many elements of the picture are one of the image.

    Returns
    -------
    Variable, float[all windows, channels * elements of a window]
        With a sequence for each image.

    References
    ----------
    B. Shi, X. Bai and C. Yao, An end-to-end trainable neural network for image-based sequence recognition and its
    application to scene text recognition, arXiv:1507.05717, 2015.
    """
    return emit(
        "im2sequence", name, X=check_floating(input, "im2sequence: input"), Y=input_image_size,
        kernels=pair(filter_size, "im2sequence: filter_size"), strides=pair(stride, "im2sequence: stride"),
        paddings=_four(padding, "im2sequence: padding"),
        out_stride=None if input_image_size is None else pair(out_stride, "im2sequence: out_stride"),
    )  # fmt: skip
