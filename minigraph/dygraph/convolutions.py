"""Convolutions with learned filters, of images and of volumes."""

from __future__ import annotations

from typing import Any

from minigraph.dygraph.layer import Layer
from minigraph.dygraph.operator_attrs import operator_attr
from minigraph.initializer import Initializer
from minigraph.ir import Variable
from minigraph.layer_helper import check_floating
from minigraph.layers.image import (
    Padding,
    Size,
    convolution_attrs,
    convolution_type,
    convolve,
    filter_initializer,
    filter_shape,
    pair,
    transposed_type,
)
from minigraph.support.public import public


class _Convolution(Layer):
    """Filters of images or volumes, and a bias for each filter; `_type` and `_attrs` are those of the operator."""

    _type: str
    _attrs: dict[str, Any]

    _stride = operator_attr("strides")
    _padding = operator_attr("paddings")
    _dilation = operator_attr("dilations")

    def _describe(self, num_channels: int, num_filters: int, filter_size: Any, groups: Any, use_cudnn: bool) -> None:
        """Keep arguments as fluid does."""
        self._num_channels, self._num_filters, self._filter_size = num_channels, num_filters, filter_size
        self._groups, self._use_cudnn = groups, use_cudnn

    def _learn(
        self, shape: list[int], count: int, param_attr: Any, bias_attr: Any, act: str | None,
        start: Initializer | None = None,
    ) -> None:  # fmt: skip
        """Create `count` filters of this shape, and their biases."""
        self._param_attr, self._bias_attr = param_attr, bias_attr
        self.weight = self._required(shape, param_attr, start=start)
        self.bias = self.create_parameter([count], bias_attr, self._dtype, is_bias=True)
        self._act = act

    def forward(self, input: Variable) -> Variable:
        x = check_floating(input, f"{type(self).__name__}: input")
        return convolve(self._helper, self._type, x, self.weight, self.bias, self._attrs, self._act)


class Conv2D(_Convolution):
    """Convolution of images with learned filters, plus a bias for each filter.

    Parameters
    ----------
    num_channels, num_filters : int
    filter_size, stride, dilation : int or sequence of int
        One number, or (height, width).
    padding : int, str or sequence
        As for `minigraph.layers.conv2d`.
    groups : int, optional
        Number of groups that channels and filters are split into. Default: 1.
    param_attr, bias_attr : ParamAttr, str, Initializer, bool, optional
    use_cudnn : bool
        With False, and as many groups as channels, the operator is called ``depthwise_conv2d``.
    act : str, optional
        Operator applied to the result.
    data_format : {'NCHW', 'NHWC'}
        Fluid's layer has NCHW only.
    """

    @public
    def __init__(
        self,
        num_channels: int,
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
        dtype: Any = "float32",
        data_format: str = "NCHW",
    ) -> None:
        super().__init__(dtype=dtype)
        size = pair(filter_size, "Conv2D: filter_size")
        self._type = convolution_type(num_channels, num_filters, groups, use_cudnn)
        self._attrs = convolution_attrs("Conv2D", stride, padding, dilation, groups, data_format)
        shape = filter_shape(num_channels, num_filters, size, groups, "Conv2D")
        self._describe(num_channels, num_filters, filter_size, groups, use_cudnn)
        self._learn(shape, num_filters, param_attr, bias_attr, act, filter_initializer(num_channels, size))


class Conv3D(_Convolution):
    """Convolution of volumes with learned filters, plus a bias for each filter; see `minigraph.layers.conv3d`.

    Parameters
    ----------
    num_channels, num_filters : int
    filter_size, stride, dilation : int or sequence of int
        One number, or (depth, height, width).
    padding : int, str or sequence
        As for `minigraph.layers.conv3d`.
    groups : int, optional
        Number of groups that channels and filters are split into. Default: 1.
    use_cudnn : bool
        Changes nothing.
    """

    @public
    def __init__(
        self,
        num_channels: int,
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
        dtype: Any = "float32",
    ) -> None:
        super().__init__(dtype=dtype)
        size = pair(filter_size, "Conv3D: filter_size", 3)
        self._type = "conv3d"
        self._attrs = convolution_attrs("Conv3D", stride, padding, dilation, groups, "NCDHW", 3)
        shape = filter_shape(num_channels, num_filters, size, groups, "Conv3D")
        self._describe(num_channels, num_filters, filter_size, groups, use_cudnn)
        self._learn(shape, num_filters, param_attr, bias_attr, act, filter_initializer(num_channels, size))


class Conv2DTranspose(_Convolution):
    """Transposed convolution of images with learned filters, plus a bias; see `minigraph.layers.conv2d_transpose`.

    Parameters
    ----------
    num_channels, num_filters : int
    filter_size, stride, dilation : int or sequence of int
        One number, or (height, width).
    output_size : int or sequence of int, optional
        Chooses among the sizes that the other numbers allow.
    use_cudnn : bool
        With False, and as many groups as channels and filters, the operator is called ``depthwise_conv2d_transpose``.
    """

    _output_size = operator_attr("output_size")

    @public
    def __init__(
        self,
        num_channels: int,
        num_filters: int,
        filter_size: Size,
        output_size: Size | None = None,
        padding: Padding = 0,
        stride: Size = 1,
        dilation: Size = 1,
        groups: int | None = None,
        param_attr: Any = None,
        bias_attr: Any = None,
        use_cudnn: bool = True,
        act: str | None = None,
        dtype: Any = "float32",
    ) -> None:
        super().__init__(dtype=dtype)
        what = "Conv2DTranspose"
        self._type = transposed_type(num_channels, num_filters, groups, use_cudnn, what)
        self._attrs = convolution_attrs(what, stride, padding, dilation, groups, "NCHW")
        self._attrs["output_size"] = [] if output_size is None else pair(output_size, f"{what}: output_size")
        size = pair(filter_size, f"{what}: filter_size")
        shape = [num_channels, num_filters // (groups or 1), *size]
        self._describe(num_channels, num_filters, size, groups or 1, use_cudnn)
        self._learn(shape, num_filters, param_attr, bias_attr, act)


class Conv3DTranspose(_Convolution):
    """Transposed convolution of volumes with learned filters, plus a bias; see `minigraph.layers.conv3d_transpose`.

    Parameters
    ----------
    num_channels, num_filters : int
    filter_size, stride, dilation : int or sequence of int
        One number, or (depth, height, width).
    padding : int, str or sequence
        Taken off the result.
    use_cudnn : bool
        Changes nothing.
    """

    @public
    def __init__(
        self,
        num_channels: int,
        num_filters: int,
        filter_size: Size,
        padding: Padding = 0,
        stride: Size = 1,
        dilation: Size = 1,
        groups: int | None = None,
        param_attr: Any = None,
        bias_attr: Any = None,
        use_cudnn: bool = True,
        act: str | None = None,
        dtype: Any = "float32",
    ) -> None:
        super().__init__(dtype=dtype)
        what = "Conv3DTranspose"
        self._type = transposed_type(num_channels, num_filters, groups, use_cudnn, what, 3)
        self._attrs = convolution_attrs(what, stride, padding, dilation, groups, "NCDHW", 3)
        size = pair(filter_size, f"{what}: filter_size", 3)
        shape = [num_channels, num_filters // (groups or 1), *size]
        self._describe(num_channels, num_filters, size, groups or 1, use_cudnn)
        self._learn(shape, num_filters, param_attr, bias_attr, act)
