"""Layers for images: convolution and pooling."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from minigraph.errors import ProgramError, WrongTypeError, on_one_line
from minigraph.initializer import Normal
from minigraph.ir import Variable
from minigraph.layer_helper import LayerHelper, check_floating, emit, layer, one_of
from minigraph.support.arguments import INTEGERS
from minigraph.support.window_rules import CHANNELS_LAST, is_channels_last, spatial_dims

__all__ = ["adaptive_pool2d", "conv2d", "conv2d_transpose", "pool2d"]

Size = int | Sequence[int]
"""One number for all dimensions, or (height, width), or (depth, height, width)."""
Padding = Size | Sequence[Sequence[int]] | str
"""Padding: one number, one for each of `Size`, two for each of these, a pair for each dimension, 'SAME' or 'VALID'."""
LAYOUTS = {2: ("NCHW", CHANNELS_LAST), 3: ("NCDHW", "NDHWC")}
"""Layouts of images and of volumes, by the number of dimensions of a window."""


def pair(size: Size, what: str, dims: int = 2) -> list[int]:
    """`size` as [height, width], or for `dims` of 3 as [depth, height, width].

    Raises
    ------
    WrongTypeError
        If it is neither one integer nor `dims` of them; `what` names it.
    """
    numbers = [size] * dims if isinstance(size, INTEGERS) else []
    if isinstance(size, list | tuple | np.ndarray):
        numbers = list(size)
    if len(numbers) != dims or not all(isinstance(n, INTEGERS) and not isinstance(n, bool) for n in numbers):
        count = "two" if dims == 2 else "three"
        raise WrongTypeError(f"{what} must be an integer or {count} of them, got {size!r:.60}")
    return list(map(int, numbers))


def padding_attrs(padding: Padding, data_format: str, what: str, dims: int = 2) -> dict[str, Any]:
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
        return {"paddings": [0] * dims, "padding_algorithm": padding.upper()}
    if isinstance(padding, list | tuple) and len(padding) > dims:
        numbers = _around(padding, data_format, what, dims)
        # As fluid writes it: one number for each dimension where both sides are alike.
        if numbers[::2] == numbers[1::2]:
            numbers = numbers[::2]
    else:
        numbers = pair(padding, what, dims)  # type: ignore[arg-type]
    return {"paddings": numbers, "padding_algorithm": "EXPLICIT"}


def _around(padding: Sequence[Any], data_format: str, what: str, dims: int) -> list[int]:
    """Two numbers for each dimension of a window, from these, or from a pair for each dimension."""
    if not isinstance(padding[0], list | tuple):
        if len(padding) != 2 * dims:
            raise WrongTypeError(f"{what} must be an integer, {dims} or {2 * dims} of them, got {padding!r:.80}")
        return [n for i in range(dims) for n in pair(list(padding[2 * i : 2 * i + 2]), what)]
    pairs = [pair(each, what) for each in padding]
    inside = spatial_dims(data_format, dims + 2)
    others = [each for i, each in enumerate(pairs) if i not in inside]
    if len(pairs) != dims + 2 or any(n != 0 for each in others for n in each):
        raise WrongTypeError(f"{what} cannot pad the batch or the channels, got {padding!r:.80}")
    return [n for i in inside for n in pairs[i]]


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
    return append_convolution(
        "conv2d", 2, input, num_filters, filter_size, stride, padding, dilation, groups, param_attr, bias_attr,
        use_cudnn, act, name, data_format,
    )  # fmt: skip


def append_convolution(
    what: str, dims: int, input: Variable, num_filters: int, filter_size: Size, stride: Size, padding: Padding,
    dilation: Size, groups: int | None, param_attr: Any, bias_attr: Any, use_cudnn: bool, act: str | None,
    name: str | None, data_format: str,
) -> Variable:  # fmt: skip
    """Append the convolution `what` of images or volumes."""
    x = check_floating(input, f"{what}: input")
    _check_format(data_format, what, dims)
    channels = _channels(x, data_format, what, dims)
    size = pair(filter_size, f"{what}: filter_size", dims)
    type_ = convolution_type(channels, num_filters, groups, use_cudnn) if dims == 2 else what
    helper = LayerHelper(type_, name)
    attrs = convolution_attrs(what, stride, padding, dilation, groups, data_format, dims)
    shape, start = filter_shape(channels, num_filters, size, groups, what), filter_initializer(channels, size)
    filters = helper.required(param_attr, shape, x.dtype, what, default_initializer=start)
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
    return append_transposed(
        "conv2d_transpose", 2, input, num_filters, output_size, filter_size, padding, stride, dilation, groups,
        param_attr, bias_attr, use_cudnn, act, name, data_format,
    )  # fmt: skip


def append_transposed(
    what: str, dims: int, input: Variable, num_filters: int, output_size: Size | None, filter_size: Size | None,
    padding: Padding, stride: Size, dilation: Size, groups: int | None, param_attr: Any, bias_attr: Any,
    use_cudnn: bool, act: str | None, name: str | None, data_format: str,
) -> Variable:  # fmt: skip
    """Append the transposed convolution `what` of images or volumes."""
    x = check_floating(input, f"{what}: input")
    _check_format(data_format, what, dims)
    channels = _channels(x, data_format, what, dims)
    type_ = transposed_type(channels, num_filters, groups, use_cudnn, what, dims)
    helper = LayerHelper(type_, name)
    attrs = convolution_attrs(what, stride, padding, dilation, groups, data_format, dims)
    attrs["output_size"] = [] if output_size is None else pair(output_size, f"{what}: output_size", dims)
    # As fluid writes it: the names of images for volumes, too.
    attrs["data_format"] = CHANNELS_LAST if is_channels_last(data_format) else "NCHW"
    size = _size_for(x, attrs, what) if filter_size is None else pair(filter_size, f"{what}: filter_size", dims)
    filters = helper.required(param_attr, [channels, num_filters // attrs["groups"], *size], x.dtype, what)
    bias = helper.parameter(bias_attr, [num_filters], x.dtype, is_bias=True)
    return convolve(helper, type_, x, filters, bias, attrs, act)


def convolution_attrs(
    what: str, stride: Size, padding: Padding, dilation: Size, groups: int | None, data_format: str, dims: int = 2
) -> dict[str, Any]:
    """The attributes that a convolution and a transposed one share."""
    return {
        "strides": pair(stride, f"{what}: stride", dims),
        **padding_attrs(padding, data_format, f"{what}: padding", dims),
        "dilations": pair(dilation, f"{what}: dilation", dims), "groups": groups or 1, "data_format": data_format,
    }  # fmt: skip


def transposed_type(channels: int, filters: int, groups: int | None, use_cudnn: bool, what: str, dims: int = 2) -> str:
    """The operator that fluid takes for a transposed convolution.

    Raises
    ------
    ProgramError
        If the filters cannot be split into groups.
    """
    if filters % (groups or 1):
        raise ProgramError(f"{what}: {filters} filters cannot be split into {groups} groups")
    is_depthwise = dims == 2 and channels == groups == filters and not use_cudnn
    return "depthwise_conv2d_transpose" if is_depthwise else f"conv{dims}d_transpose"


def convolve(
    helper: LayerHelper, op_type: str, x: Variable, filters: Variable, bias: Variable | None, attrs: dict[str, Any],
    act: str | None,
) -> Variable:  # fmt: skip
    """Append a convolution, with its bias and activation."""
    result = helper.emit(op_type, Input=x, Filter=filters, **attrs)
    assert result.shape is not None
    axis = len(result.shape) - 1 if is_channels_last(attrs["data_format"]) else 1
    return helper.activation(helper.plus(result, bias, axis), act)


def _size_for(x: Variable, attrs: dict[str, Any], what: str) -> list[int]:
    """Sizes of the filters that make images or volumes of ``attrs["output_size"]``."""
    assert x.shape is not None
    # The formula of the output size, solved for the filter.
    lengths = [x.shape[i] for i in spatial_dims(attrs["data_format"], len(x.shape))]
    if not attrs["output_size"] or -1 in lengths:
        raise ProgramError(f"{what}: without filter_size, output_size and the size of {x} must be known")
    pads, dims = attrs["paddings"], len(lengths)
    pairs = zip(pads, pads, strict=True) if len(pads) == dims else zip(pads[::2], pads[1::2], strict=True)
    both = [before + after for before, after in pairs]
    numbers = zip(attrs["output_size"], lengths, attrs["strides"], both, attrs["dilations"], strict=True)
    return [(out - (count - 1) * step + pad - 1) // gap + 1 for out, count, step, pad, gap in numbers]


def _channels(x: Variable, data_format: str, what: str, dims: int) -> int:
    assert x.shape is not None
    if len(x.shape) != dims + 2:
        raise ProgramError(f"{what}: input must have {dims + 2} dimensions, got {x}")
    channels = x.shape[-1 if is_channels_last(data_format) else 1]
    if channels < 0:
        raise ProgramError(f"{what}: the number of channels of {x} is not known")
    return channels


def _check_format(data_format: str, what: str, dims: int) -> None:
    if data_format not in LAYOUTS[dims]:
        first, last = LAYOUTS[dims]
        raise WrongTypeError(f"{what}: data_format must be {first} or {last}, got {data_format!r:.60}")


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
    x = check_floating(one_of(input), "pool2d: input")
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
    what: str = "pool2d",
    dims: int = 2,
) -> dict[str, Any]:
    """The attributes of a ``pool2d`` or ``pool3d``.

    Raises
    ------
    ProgramError
        If there is neither `size` nor `global_pooling`, or `ceil_mode` with VALID.
    """
    _check_format(data_format, what, dims)
    if size == -1 and not global_pooling:
        raise ProgramError(f"{what}: pool_size is missing", hint="Give pool_size, or set global_pooling=True.")
    paddings = padding_attrs(padding, data_format, f"{what}: pool_padding", dims)
    if paddings["padding_algorithm"] == "VALID" and ceil_mode:
        raise ProgramError(f"{what}: ceil_mode and VALID padding exclude each other")
    if type not in ("max", "avg"):
        raise WrongTypeError(f"{what}: pool_type must be max or avg, got {type!r:.60}")
    return {
        "pooling_type": type, "ksize": pair(size, f"{what}: pool_size", dims), "global_pooling": global_pooling,
        "strides": pair(stride, f"{what}: pool_stride", dims), **paddings, "ceil_mode": ceil_mode,
        "exclusive": exclusive, "data_format": data_format,
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
    return append_adaptive("adaptive_pool2d", 2, input, pool_size, pool_type, require_index, name)


def append_adaptive(
    what: str, dims: int, input: Variable, pool_size: Size, pool_type: str, require_index: bool, name: str | None
) -> Variable | tuple[Variable, Variable]:
    """Append the pooling `what` of images or volumes by windows that cover them evenly."""
    check_floating(input, f"{what}: input")
    if pool_type not in ("max", "avg"):
        raise ProgramError(f"{what}: pool_type must be max or avg, got {pool_type!r:.60}")
    if require_index and pool_type == "avg":
        raise ProgramError(f"{what}: an average stands nowhere; require_index goes with max")
    counts = pair(pool_size, f"{what}: pool_size", dims)
    if pool_type == "avg":
        return emit(f"pool{dims}d", name, X=input, pooling_type="avg", ksize=counts, adaptive=True)
    op_type = f"max_pool{dims}d_with_index"
    out, mask = LayerHelper(op_type, name).emit_all(op_type, X=input, ksize=counts, adaptive=True)
    return (out, mask) if require_index else out
