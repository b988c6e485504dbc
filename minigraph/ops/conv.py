"""Convolutions of images and volumes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from minigraph.opdef import op
from minigraph.opdef.gradient_context import GradContext, OpSpec
from minigraph.opdef.gradient_rules import DoubleGrad, fused, of_bilinear
from minigraph.support.window_rules import (
    is_channels_last,
    lay_transposed,
    lay_windows,
    require_layout,
    spatial_dims,
)
from minigraph.types import TensorType, product, require, require_floating, require_same_dtype, same_dim

_BACKEND_ATTRS: dict[str, Any] = {
    "fuse_relu_before_depthwise_conv": False, "fuse_relu": False, "fuse_residual_connection": False,
    "use_quantizer": False,
}  # fmt: skip
_GRAD_SLOTS = ("Input", "Filter", "Bias")
_NO_RESIDUAL = "ResidualData serves a backend that minigraph does not have"


_gradient_of_gradient = of_bilinear("Input", "Filter", "Output")


def _second_with_bias(ctx: GradContext) -> Iterator[OpSpec]:
    yield from _gradient_of_gradient(ctx)
    d_out, to_d_out = ctx.input("Output@GRAD"), ctx.d_input("Output@GRAD")
    flowing = ctx.d_output("Bias@GRAD")
    if flowing:
        zeros = [ctx.temporary()]
        axis = 3 if is_channels_last(ctx.attr("data_format")) else 1
        yield OpSpec("fill_zeros_like", {"X": d_out}, {"Out": zeros}, {})
        yield OpSpec("elementwise_add", {"X": zeros, "Y": flowing}, {"Out": to_d_out}, {"axis": axis})


_double = DoubleGrad({"DInput": "DDFilter", "DFilter": "DDInput"})


def _gradient_of_conv2d_grad(ctx: GradContext) -> Iterator[OpSpec]:
    """One operator; that of fluid, which knows of no Bias."""
    yield from _second_with_bias(ctx) if ctx.input("Bias") else _double(ctx)


@op(
    "conv2d", inputs="Input Filter Bias ResidualData", outputs="Output",
    lod="Input",
    grad=fused(*_GRAD_SLOTS, to="Input Filter Bias", grad=_gradient_of_conv2d_grad, lod=False),
    backend_attrs=_BACKEND_ATTRS,
)  # fmt: skip
def conv2d(
    x: TensorType,
    filter: TensorType,
    bias: TensorType | None,
    residual: TensorType | None,
    *,
    strides: list[int] = (1, 1),  # type: ignore[assignment]
    paddings: list[int] = (0, 0),  # type: ignore[assignment]
    padding_algorithm: str = "EXPLICIT",
    groups: int = 1,
    dilations: list[int] = (1, 1),  # type: ignore[assignment]
    data_format: str = "NCHW",
    is_test: bool = False,
) -> TensorType:
    """Cross-correlation of images with filters: each element of Output is the sum of a window of Input times a filter.

    Input is ``[batch, channels, height, width]``, or with the channels last if `data_format` is NHWC, Filter
    ``[filters, channels / groups, height, width]`` in either case. With `groups` the channels and the filters are
    split evenly, and filters of a group see only its channels. Bias, a number for each filter, is added.

    The windows begin `strides` apart and take elements `dilations` apart. `paddings`, of zeros, are two numbers
    (height, width) or four (top, bottom, left, right); `padding_algorithm` VALID means none, SAME as many as it takes
    for ``ceil(size / stride)`` windows, with `dilations` taken as 1. `is_test` changes nothing.

    Notes
    -----
    Fluid's kernel for the CPU ignores Bias.
    """
    require(residual is None, _NO_RESIDUAL, hint="Use elementwise_add.")
    return _convolved(x, filter, bias, 4, strides, paddings, padding_algorithm, groups, dilations, data_format)


op(
    "depthwise_conv2d", inputs="Input Filter Bias ResidualData", outputs="Output", lod="Input",
    grad=fused(*_GRAD_SLOTS, to="Input Filter Bias", grad=_second_with_bias, lod=False), backend_attrs=_BACKEND_ATTRS,
    doc="``conv2d``, by fluid's name for as many groups as channels.",
)(conv2d)  # fmt: skip


@op(
    "conv2d_transpose", inputs="Input Filter Bias", outputs="Output",
    grad=fused(*_GRAD_SLOTS, to="Input Filter Bias", grad=_second_with_bias, lod=False), backend_attrs=_BACKEND_ATTRS,
)  # fmt: skip
def conv2d_transpose(
    x: TensorType,
    filter: TensorType,
    bias: TensorType | None,
    *,
    is_test: bool = False,
    output_size: list[int] = (),  # type: ignore[assignment]
    groups: int = 1,
    dilations: list[int] = (1, 1),  # type: ignore[assignment]
    strides: list[int] = (1, 1),  # type: ignore[assignment]
    paddings: list[int] = (0, 0),  # type: ignore[assignment]
    data_format: str = "NCHW",
    padding_algorithm: str = "EXPLICIT",
) -> TensorType:
    """The gradient of a convolution with respect to its input, as an operator: each element of Input adds a window.

    Filter is ``[channels, filters / groups, height, width]``; its channels are those of Input, Output has the channels
    that `filters` counts. All else is as for ``conv2d``, whose Input is Output here: windows begin `strides` apart, and
    `paddings` are taken off the result. Where several sizes of the result have as many windows, `output_size` says
    which is meant; otherwise it is the smallest.

    Notes
    -----
    SAME takes off what a convolution of Input would add, as in fluid, so that the result is not `strides` times as
    large as Input. Fluid's kernel for the CPU ignores Bias.
    """
    return _spread(
        x, filter, bias, 4, output_size, groups, dilations, strides, paddings, data_format, padding_algorithm
    )


op(
    "depthwise_conv2d_transpose", inputs="Input Filter Bias", outputs="Output",
    grad=fused(*_GRAD_SLOTS, to="Input Filter Bias", grad=_second_with_bias, lod=False), backend_attrs=_BACKEND_ATTRS,
    doc="``conv2d_transpose``, by fluid's name for as many groups as channels.",
)(conv2d_transpose)  # fmt: skip


@op(
    "conv3d", inputs="Input Filter ResidualData", outputs="Output",
    lod="Input",
    grad=fused("Input", "Filter", to="Input Filter", grad=_gradient_of_gradient, lod=False),
    backend_attrs=_BACKEND_ATTRS,
)  # fmt: skip
def conv3d(
    x: TensorType,
    filter: TensorType,
    residual: TensorType | None,
    *,
    strides: list[int] = (1, 1, 1),  # type: ignore[assignment]
    paddings: list[int] = (0, 0, 0),  # type: ignore[assignment]
    padding_algorithm: str = "EXPLICIT",
    groups: int = 1,
    dilations: list[int] = (1, 1, 1),  # type: ignore[assignment]
    data_format: str = "NCDHW",
    is_test: bool = False,
) -> TensorType:
    """``conv2d`` of volumes: each element of Output is the sum of a window of Input times a filter.

    Input is ``[batch, channels, depth, height, width]``, or with the channels last if `data_format` is NDHWC, Filter
    ``[filters, channels / groups, depth, height, width]``. `paddings` are three numbers (depth, height, width) or six
    (front, back, top, bottom, left, right).
    """
    require(residual is None, _NO_RESIDUAL, hint="Use elementwise_add.")
    return _convolved(x, filter, None, 5, strides, paddings, padding_algorithm, groups, dilations, data_format)


@op(
    "conv3d_transpose", inputs="Input Filter", outputs="Output",
    grad=fused("Input", "Filter", to="Input Filter", grad=_gradient_of_gradient, lod=False),
    backend_attrs=_BACKEND_ATTRS,
)  # fmt: skip
def conv3d_transpose(
    x: TensorType,
    filter: TensorType,
    *,
    output_size: list[int] = (),  # type: ignore[assignment]
    dilations: list[int] = (1, 1, 1),  # type: ignore[assignment]
    strides: list[int] = (1, 1, 1),  # type: ignore[assignment]
    paddings: list[int] = (0, 0, 0),  # type: ignore[assignment]
    groups: int = 1,
    data_format: str = "NCHW",
    padding_algorithm: str = "EXPLICIT",
) -> TensorType:
    """``conv2d_transpose`` of volumes: the gradient of ``conv3d`` with respect to its input, as an operator."""
    return _spread(
        x, filter, None, 5, output_size, groups, dilations, strides, paddings, data_format, padding_algorithm
    )


def _convolved(
    x: TensorType, filter: TensorType, bias: TensorType | None, rank: int, strides: Sequence[int],
    paddings: Sequence[int], padding_algorithm: str, groups: int, dilations: Sequence[int], data_format: str,
) -> TensorType:  # fmt: skip
    channel_dim = _check_images(x, filter, bias, rank, groups, data_format)
    _check_channels(x.shape[channel_dim], filter, bias, groups)
    lengths = [x.shape[i] for i in spatial_dims(data_format, rank)]
    windows = lay_windows(lengths, filter.shape[2:], strides, paddings, padding_algorithm, dilations)
    return _images(x, filter.shape[0], [along.count for along in windows], data_format)


def _spread(
    x: TensorType, filter: TensorType, bias: TensorType | None, rank: int, output_size: Sequence[int], groups: int,
    dilations: Sequence[int], strides: Sequence[int], paddings: Sequence[int], data_format: str,
    padding_algorithm: str,
) -> TensorType:  # fmt: skip
    channel_dim = _check_images(x, filter, bias, rank, groups, data_format)
    channels, per_group = filter.shape[:2]
    require(
        same_dim(x.shape[channel_dim], channels),
        f"Input has {x.shape[channel_dim]} channels but Filter takes {channels}",
        hint=f"Give Filter the shape [{x.shape[channel_dim]}, ...].",
    )
    require(channels == -1 or channels % groups == 0, f"{channels} channels cannot be split into {groups} groups")
    filters = product((per_group, groups))
    _check_bias(bias, filters)
    lengths = [x.shape[i] for i in spatial_dims(data_format, rank)]
    windows = lay_transposed(lengths, filter.shape[2:], strides, paddings, padding_algorithm, dilations, output_size)
    return _images(x, filters, [along.length for along in windows], data_format)


def _check_channels(channels: int, filter: TensorType, bias: TensorType | None, groups: int) -> None:
    filters, per_group = filter.shape[:2]
    require(
        channels == -1 or per_group == -1 or channels == per_group * groups,
        f"Input has {channels} channels but Filter takes {per_group} in each of {groups} groups",
        hint=f"Give Filter {channels // groups} channels." if channels % groups == 0 else "",
    )
    require(filters == -1 or filters % groups == 0, f"{filters} filters cannot be split into {groups} groups")
    _check_bias(bias, filters)


def _check_images(
    x: TensorType, filter: TensorType, bias: TensorType | None, rank: int, groups: int, data_format: str
) -> int:
    """Check what all convolutions ask for; returns the dimension of the channels."""
    require_floating(x, "Input")
    require_same_dtype("Input, Filter and Bias", x, filter, *([bias] if bias else []))
    fits = x.rank == filter.rank == rank
    require(fits, f"Input and Filter must have {rank} dimensions, got {x} and {filter}")
    require_layout(data_format, rank=rank)
    require(groups >= 1, f"groups must be at least 1, got {groups}")
    return rank - 1 if is_channels_last(data_format) else 1


def _check_bias(bias: TensorType | None, filters: int) -> None:
    if bias is not None:
        require(bias.rank == 1 and same_dim(bias.shape[0], filters), f"Bias must hold {filters} numbers, got {bias}")


def _images(x: TensorType, channels: int, sizes: Sequence[int], data_format: str) -> TensorType:
    """Images like `x` with other channels and another height and width."""
    return x.with_shape(
        (x.shape[0], *sizes, channels) if is_channels_last(data_format) else (x.shape[0], channels, *sizes)
    )
