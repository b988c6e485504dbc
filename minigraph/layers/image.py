"""Layers for images: convolution and pooling."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from minigraph.errors import ProgramError, WrongTypeError, on_one_line
from minigraph.initializer import Normal
from minigraph.ir import Variable
from minigraph.layer_helper import LayerHelper, check_floating, emit, layer
from minigraph.support.window_rules import CHANNELS_LAST, spatial_dims

__all__ = ["adaptive_pool2d", "conv2d", "conv2d_transpose", "pool2d"]

Size = int | Sequence[int]
"""One number for both dimensions, or (height, width)."""
Padding = Size | Sequence[Sequence[int]] | str
"""Padding: one number, two, (top, bottom, left, right), a pair for each of four dimensions, 'SAME' or 'VALID'."""


def pair(size: Size, what: str) -> list[int]:
    """`size` as [height, width].

    Raises
    ------
    WrongTypeError
        If it is neither one integer nor two; `what` names it.
    """
    numbers = [size, size] if isinstance(size, int) else list(size) if isinstance(size, list | tuple) else []
    if len(numbers) != 2 or not all(isinstance(n, int) and not isinstance(n, bool) for n in numbers):
        raise WrongTypeError(f"{what} must be an integer or two of them, got {size!r:.60}")
    return numbers


def padding_attrs(padding: Padding, data_format: str, what: str) -> dict[str, Any]:
    """The attributes ``paddings`` and ``padding_algorithm`` that a layer's argument stands for.

    Raises
    ------
    WrongTypeError
        If it is of none of the forms of `Padding`, or pads the batch or the channels.

    Examples
    --------
    >>> padding_attrs([[0, 0], [0, 0], [1, 2], [3, 3]], "NCHW", "conv2d: padding")
    {'paddings': [1, 2, 3, 3], 'padding_algorithm': 'EXPLICIT'}
    """
    if isinstance(padding, str):
        if padding.upper() not in ("SAME", "VALID"):
            raise WrongTypeError(f"{what} must be 'SAME', 'VALID' or numbers, got {padding!r:.60}")
        return {"paddings": [0, 0], "padding_algorithm": padding.upper()}
    if isinstance(padding, list | tuple) and len(padding) == 4:
        numbers = _around(padding, data_format, what)
        # As fluid writes it: two numbers where both sides are alike.
        if numbers[0] == numbers[1] and numbers[2] == numbers[3]:
            numbers = [numbers[0], numbers[2]]
    else:
        numbers = pair(padding, what)  # type: ignore[arg-type]
    return {"paddings": numbers, "padding_algorithm": "EXPLICIT"}


def _around(padding: Sequence[Any], data_format: str, what: str) -> list[int]:
    """(top, bottom, left, right) from four numbers or four pairs."""
    if not isinstance(padding[0], list | tuple):
        return [*pair(list(padding[:2]), what), *pair(list(padding[2:]), what)]
    pairs = [pair(each, what) for each in padding]
    first = 1 if data_format == CHANNELS_LAST else 2
    image, others = pairs[first : first + 2], pairs[:first] + pairs[first + 2 :]
    if any(n != 0 for each in others for n in each):
        raise WrongTypeError(f"{what} cannot pad the batch or the channels, got {padding!r:.80}")
    return [*image[0], *image[1]]


def filter_shape(channels: int, filters: int, size: list[int], groups: int | None, what: str) -> list[int]:
    """Shape of the filters of a convolution.

    Raises
    ------
    ProgramError
        If the channels cannot be split into groups.
    """
    if channels % (groups or 1) != 0:
        raise ProgramError(f"{what}: {channels} channels cannot be split into {groups} groups")
    return [filters, channels // (groups or 1), *size]


def filter_initializer(channels: int, size: list[int]) -> Normal:
    """Start values of filters that keep the scale of activations about equal."""
    # He's rule, for rectifiers.
    return Normal(0.0, math.sqrt(2.0 / max(math.prod(size) * channels, 1)))


def convolution_type(channels: int, filters: int, groups: int | None, use_cudnn: bool) -> str:
    """The operator that fluid takes."""
    # With cuDNN fluid has one operator for both.
    is_depthwise = groups is not None and channels == groups and filters % channels == 0 and not use_cudnn
    return "depthwise_conv2d" if is_depthwise else "conv2d"


@layer
@on_one_line
def conv2d(
    input: Variable,
    num_filters: int,
    filter_size: Size,
    stride: Size = 1,
    padding: Padding = 0,
    dilation: Size = 1,
    groups: int | None = None,
    param_attr: Any = None,
    bias_attr: Any = None,
    use_cudnn: bool = True,
    act: str | None = None,
    name: str | None = None,
    data_format: str = "NCHW",
) -> Variable:
    """Convolution of images with learned filters, plus a bias for each filter.

    Parameters
    ----------
    input : Variable, float[batch, channels, height, width]
        With the channels last if `data_format` is NHWC.
    filter_size, stride, dilation : int or sequence of int
        One number, or (height, width).
    padding : int, str or sequence
        One number, (height, width), (top, bottom, left, right), a pair for each dimension, 'SAME' or 'VALID'.
    groups : int, optional
        Number of groups that channels and filters are split into. Default: 1.
    param_attr, bias_attr : ParamAttr, str, Initializer, bool, optional
        The filters start normal with variance ``2 / (channels * height * width)`` of the window.
    use_cudnn : bool
        With False, and as many groups as channels, the operator is called ``depthwise_conv2d``.

    Returns
    -------
    Variable, float[batch, num_filters, ...]

    Raises
    ------
    ProgramError
        If the number of channels is not known, or not divisible by `groups`, or `param_attr` is False.
    """
    x = check_floating(input, "conv2d: input")
    _check_format(data_format, "conv2d")
    channels = _channels(x, data_format)
    size = pair(filter_size, "conv2d: filter_size")
    type_ = convolution_type(channels, num_filters, groups, use_cudnn)
    helper = LayerHelper(type_, name)
    attrs = convolution_attrs("conv2d", stride, padding, dilation, groups, data_format)
    shape, start = filter_shape(channels, num_filters, size, groups, "conv2d"), filter_initializer(channels, size)
    filters = helper.required(param_attr, shape, x.dtype, "conv2d", default_initializer=start)
    bias = helper.parameter(bias_attr, [num_filters], x.dtype, is_bias=True)
    return convolve(helper, type_, x, filters, bias, attrs, act)


@layer
@on_one_line
def conv2d_transpose(
    input: Variable,
    num_filters: int,
    output_size: Size | None = None,
    filter_size: Size | None = None,
    padding: Padding = 0,
    stride: Size = 1,
    dilation: Size = 1,
    groups: int | None = None,
    param_attr: Any = None,
    bias_attr: Any = None,
    use_cudnn: bool = True,
    act: str | None = None,
    name: str | None = None,
    data_format: str = "NCHW",
) -> Variable:
    """Transposed convolution of images with learned filters, plus a bias for each filter: images grow.

    Parameters
    ----------
    input : Variable, float[batch, channels, height, width]
        With the channels last if `data_format` is NHWC.
    output_size : int or sequence of int, optional
        Height and width of the result, where `stride` allows several. Default: the smallest.
    filter_size : int or sequence of int, optional
        Default: what it takes for `output_size`.
    padding, stride, dilation, groups, param_attr, bias_attr : see `conv2d`
        `padding` is taken off the result. The filters start uniform, by Xavier's rule.
    use_cudnn : bool
        With False, and as many groups as channels and filters, the operator is ``depthwise_conv2d_transpose``.

    Returns
    -------
    Variable, float[batch, num_filters, ...]

    Raises
    ------
    ProgramError
        If the number of channels is not known, the filters cannot be split into groups, neither `filter_size` nor
        `output_size` is given, the size of the images would be needed and is not known, or `param_attr` is False.

    References
    ----------
    M. D. Zeiler et al., Deconvolutional networks, CVPR 2010.
    """
    what = "conv2d_transpose"
    x = check_floating(input, f"{what}: input")
    _check_format(data_format, what)
    channels = _channels(x, data_format)
    type_ = transposed_type(channels, num_filters, groups, use_cudnn, what)
    helper = LayerHelper(type_, name)
    attrs = convolution_attrs(what, stride, padding, dilation, groups, data_format)
    attrs["output_size"] = [] if output_size is None else pair(output_size, f"{what}: output_size")
    size = _size_for(x, attrs) if filter_size is None else pair(filter_size, f"{what}: filter_size")
    filters = helper.required(param_attr, [channels, num_filters // attrs["groups"], *size], x.dtype, what)
    bias = helper.parameter(bias_attr, [num_filters], x.dtype, is_bias=True)
    return convolve(helper, type_, x, filters, bias, attrs, act)


def convolution_attrs(
    what: str, stride: Size, padding: Padding, dilation: Size, groups: int | None, data_format: str
) -> dict[str, Any]:
    """The attributes that a convolution and a transposed one share."""
    return {
        "strides": pair(stride, f"{what}: stride"), **padding_attrs(padding, data_format, f"{what}: padding"),
        "dilations": pair(dilation, f"{what}: dilation"), "groups": groups or 1, "data_format": data_format,
    }  # fmt: skip


def transposed_type(channels: int, filters: int, groups: int | None, use_cudnn: bool, what: str) -> str:
    """The operator that fluid takes for a transposed convolution.

    Raises
    ------
    ProgramError
        If the filters cannot be split into groups.
    """
    if filters % (groups or 1):
        raise ProgramError(f"{what}: {filters} filters cannot be split into {groups} groups")
    is_depthwise = channels == groups == filters and not use_cudnn
    return "depthwise_conv2d_transpose" if is_depthwise else "conv2d_transpose"


def convolve(
    helper: LayerHelper, op_type: str, x: Variable, filters: Variable, bias: Variable | None, attrs: dict[str, Any],
    act: str | None,
) -> Variable:  # fmt: skip
    """Append a convolution, with its bias and activation."""
    result = helper.emit(op_type, Input=x, Filter=filters, **attrs)
    axis = 3 if attrs["data_format"] == CHANNELS_LAST else 1
    return helper.activation(helper.plus(result, bias, axis), act)


def _size_for(x: Variable, attrs: dict[str, Any]) -> list[int]:
    """Height and width of the filters that make images of ``attrs["output_size"]``."""
    assert x.shape is not None
    # The formula of the output size, solved for the filter.
    lengths = [x.shape[i] for i in spatial_dims(attrs["data_format"])]
    if not attrs["output_size"] or -1 in lengths:
        raise ProgramError(f"conv2d_transpose: without filter_size, output_size and the size of {x} must be known")
    pads = attrs["paddings"]
    both = [pads[0] + pads[1], pads[2] + pads[3]] if len(pads) == 4 else [2 * pads[0], 2 * pads[1]]
    numbers = zip(attrs["output_size"], lengths, attrs["strides"], both, attrs["dilations"], strict=True)
    return [(out - (count - 1) * step + pad - 1) // gap + 1 for out, count, step, pad, gap in numbers]


def _channels(x: Variable, data_format: str) -> int:
    assert x.shape is not None
    if len(x.shape) != 4:
        raise ProgramError(f"conv2d: input must have 4 dimensions, got {x}")
    channels = x.shape[3 if data_format == CHANNELS_LAST else 1]
    if channels < 0:
        raise ProgramError(f"conv2d: the number of channels of {x} is not known")
    return channels


def _check_format(data_format: str, what: str) -> None:
    if data_format not in ("NCHW", CHANNELS_LAST):
        raise WrongTypeError(f"{what}: data_format must be NCHW or NHWC, got {data_format!r:.60}")


@layer
def pool2d(
    input: Variable,
    pool_size: Size = -1,
    pool_type: str = "max",
    pool_stride: Size = 1,
    pool_padding: Padding = 0,
    global_pooling: bool = False,
    use_cudnn: bool = True,
    ceil_mode: bool = False,
    name: str | None = None,
    exclusive: bool = True,
    data_format: str = "NCHW",
) -> Variable:
    """The greatest element or the average of each window of images.

    Parameters
    ----------
    input : Variable, float[batch, channels, height, width]
        With the channels last if `data_format` is NHWC.
    pool_size, pool_stride : int or sequence of int
        One number, or (height, width).
    pool_type : {'max', 'avg'}
    pool_padding : int, str or sequence
        One number, (height, width), (top, bottom, left, right), a pair for each dimension, 'SAME' or 'VALID'.
    global_pooling : bool
        The window is the whole image.
    ceil_mode : bool
        Whether a last window may reach beyond the padding.
    exclusive : bool
        Whether averages leave the padding out.
    use_cudnn : bool
        Changes nothing.

    Raises
    ------
    ProgramError
        If there is neither `pool_size` nor `global_pooling`, or `ceil_mode` with VALID.
    """
    x = check_floating(input, "pool2d: input")
    _check_format(data_format, "pool2d")
    attrs = pool_attrs(
        pool_size, pool_type, pool_stride, pool_padding, global_pooling, ceil_mode, exclusive, data_format
    )
    return emit("pool2d", name, X=x, **attrs)


def pool_attrs(
    size: Size,
    type: str,
    stride: Size,
    padding: Padding,
    global_pooling: bool,
    ceil_mode: bool,
    exclusive: bool,
    data_format: str = "NCHW",
) -> dict[str, Any]:
    """The attributes of a ``pool2d``.

    Raises
    ------
    ProgramError
        If there is neither `size` nor `global_pooling`, or `ceil_mode` with VALID.
    """
    if size == -1 and not global_pooling:
        raise ProgramError("pool2d: pool_size is missing", hint="Give pool_size, or set global_pooling=True.")
    paddings = padding_attrs(padding, data_format, "pool2d: pool_padding")
    if paddings["padding_algorithm"] == "VALID" and ceil_mode:
        raise ProgramError("pool2d: ceil_mode and VALID padding exclude each other")
    if type not in ("max", "avg"):
        raise WrongTypeError(f"pool2d: pool_type must be max or avg, got {type!r:.60}")
    return {
        "pooling_type": type, "ksize": pair(size, "pool2d: pool_size"), "global_pooling": global_pooling,
        "strides": pair(stride, "pool2d: pool_stride"), **paddings, "ceil_mode": ceil_mode, "exclusive": exclusive,
        "data_format": data_format,
    }  # fmt: skip


@layer
def adaptive_pool2d(
    input: Variable,
    pool_size: Size,
    pool_type: str = "max",
    require_index: bool = False,
    name: str | None = None,
) -> Variable | tuple[Variable, Variable]:
    """The greatest element or the average of windows that cover images evenly, `pool_size` results in all.

    Parameters
    ----------
    input : Variable, float[batch, channels, height, width]
    pool_size : int or sequence of int
        Number of windows along height and width.
    pool_type : {'max', 'avg'}
    require_index : bool
        Also return where in its image each greatest element stands, int32, counted row by row.

    Raises
    ------
    ProgramError
        If `pool_type` is another word, or averages are asked where they stand.
    """
    check_floating(input, "adaptive_pool2d: input")
    if pool_type not in ("max", "avg"):
        raise ProgramError(f"adaptive_pool2d: pool_type must be max or avg, got {pool_type!r:.60}")
    if require_index and pool_type == "avg":
        raise ProgramError("adaptive_pool2d: an average stands nowhere; require_index goes with max")
    counts = pair(pool_size, "adaptive_pool2d: pool_size")
    if pool_type == "avg":
        return emit("pool2d", name, X=input, pooling_type="avg", ksize=counts, adaptive=True)
    op_type = "max_pool2d_with_index"
    out, mask = LayerHelper(op_type, name).emit_all(op_type, X=input, ksize=counts, adaptive=True)
    return (out, mask) if require_index else out
