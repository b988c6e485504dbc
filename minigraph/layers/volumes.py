"""Layers for volumes, [batch, channels, depth, height, width]: convolution and pooling."""

from __future__ import annotations

from typing import Any

from minigraph.errors import on_one_line
from minigraph.ir import Variable
from minigraph.layer_helper import check_floating, emit, layer, one_of
from minigraph.layers.image import (
    Padding,
    Size,
    append_adaptive,
    append_convolution,
    append_transposed,
    pool_attrs,
)

__all__ = ["adaptive_pool3d", "conv3d", "conv3d_transpose", "pool3d"]


@layer
@on_one_line
def conv3d(
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
    data_format: str = "NCDHW",
) -> Variable:
    """Convolution of volumes with learned filters, plus a bias for each filter.

    Parameters
    ----------
    input : Variable, float[batch, channels, depth, height, width]
        With the channels last if `data_format` is NDHWC.
    filter_size, stride, dilation : int or sequence of int
        One number, or (depth, height, width).
    padding : int, str or sequence
        One number, (depth, height, width), (front, back, top, bottom, left, right), a pair for each dimension, 'SAME'
        or 'VALID'.
    groups, param_attr, bias_attr, act : see `conv2d`
    use_cudnn : bool
        Changes nothing.

    Raises
    ------
    ProgramError
        If the number of channels is not known, the channels cannot be split into groups, or `param_attr` is False.

    Examples
    --------
    >>> import minigraph as fluid
    >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
    ...     film = fluid.data("film", [None, 3, 16, 112, 112])
    ...     fluid.layers.conv3d(film, 8, [1, 7, 7], stride=[1, 2, 2], padding=[0, 3, 3]).shape
    (-1, 8, 16, 56, 56)
    """
    return append_convolution(
        "conv3d", 3, input, num_filters, filter_size, stride, padding, dilation, groups, param_attr, bias_attr,
        use_cudnn, act, name, data_format,
    )  # fmt: skip


@layer
@on_one_line
def conv3d_transpose(
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
    data_format: str = "NCDHW",
) -> Variable:
    """Transposed convolution of volumes with learned filters, plus a bias for each filter: volumes grow.

    Parameters
    ----------
    input : Variable, float[batch, channels, depth, height, width]
        With the channels last if `data_format` is NDHWC.
    output_size : int or sequence of int, optional
        Sizes of the result, where `stride` allows several. Default: the smallest.
    filter_size : int or sequence of int, optional
        Default: what it takes for `output_size`.
    padding, stride, dilation, groups, param_attr, bias_attr, act : see `conv3d`
        `padding` is taken off the result. The filters start uniform, by Xavier's rule.
    use_cudnn : bool
        Changes nothing.

    Raises
    ------
    ProgramError
        As `conv2d_transpose` raises.
    """
    return append_transposed(
        "conv3d_transpose", 3, input, num_filters, output_size, filter_size, padding, stride, dilation, groups,
        param_attr, bias_attr, use_cudnn, act, name, data_format,
    )  # fmt: skip


@layer
def pool3d(
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
    data_format: str = "NCDHW",
) -> Variable:
    """The greatest element or the average of each window of volumes.

    Parameters
    ----------
    input : Variable, float[batch, channels, depth, height, width]
        With the channels last if `data_format` is NDHWC.
    pool_size, pool_stride : int or sequence of int
        One number, or (depth, height, width).
    pool_padding : int, str or sequence
        As the padding of `conv3d`.
    pool_type, global_pooling, ceil_mode, exclusive : see `pool2d`
    use_cudnn : bool
        Changes nothing.

    Raises
    ------
    ProgramError
        If there is neither `pool_size` nor `global_pooling`, or `ceil_mode` with VALID.
    """
    x = check_floating(one_of(input), "pool3d: input")
    attrs = pool_attrs(
        pool_size, pool_type, pool_stride, pool_padding, global_pooling, ceil_mode, exclusive, data_format, "pool3d", 3
    )
    return emit("pool3d", name, X=x, **attrs)


@layer
def adaptive_pool3d(
    input: Variable,
    pool_size: Size,
    pool_type: str = "max",
    require_index: bool = False,
    name: str | None = None,
) -> Variable | tuple[Variable, Variable]:
    """The greatest element or the average of windows that cover volumes evenly, `pool_size` results in all.

    Parameters
    ----------
    input : Variable, float[batch, channels, depth, height, width]
    pool_size : int or sequence of int
        Number of windows along depth, height and width.
    pool_type : {'max', 'avg'}
    require_index : bool
        Also return where in its volume each greatest element stands, int32, counted row by row.

    Raises
    ------
    ProgramError
        If `pool_type` is another word, or averages are asked where they stand.
    """
    return append_adaptive("adaptive_pool3d", 3, input, pool_size, pool_type, require_index, name)
