"""More layers with learned parameters: transposed convolution, norms of single samples, slopes, a recurrent unit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from minigraph.dygraph.layer import Layer
from minigraph.errors import ProgramError
from minigraph.initializer import Constant
from minigraph.ir import Variable
from minigraph.layer_helper import check_floating
from minigraph.layers.image import Padding, Size, convolution_attrs, convolve, pair, transposed_type
from minigraph.layers.normalization import append_norm, constant_ones
from minigraph.layers.recurrent import append_gru, gru_attrs
from minigraph.support.public import public


class Conv2DTranspose(Layer):
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
        self._act, what = act, "Conv2DTranspose"
        self._type = transposed_type(num_channels, num_filters, groups, use_cudnn, what)
        self._attrs = convolution_attrs(what, stride, padding, dilation, groups, "NCHW")
        self._attrs["output_size"] = [] if output_size is None else pair(output_size, f"{what}: output_size")
        shape = [num_channels, num_filters // (groups or 1), *pair(filter_size, f"{what}: filter_size")]
        self.weight = self._required(shape, param_attr)
        self.bias = self.create_parameter([num_filters], bias_attr, is_bias=True)

    def forward(self, input: Variable) -> Variable:
        x = check_floating(input, "Conv2DTranspose: input")
        return convolve(self._helper, self._type, x, self.weight, self.bias, self._attrs, self._act)


class InstanceNorm(Layer):
    """Each channel of each sample to mean 0 and variance 1, then a learned scale and shift.

    References
    ----------
    D. Ulyanov, A. Vedaldi and V. Lempitsky, Instance normalization, arXiv:1607.08022, 2016.
    """

    @public
    def __init__(
        self,
        num_channels: int,
        epsilon: float = 1e-5,
        param_attr: Any = None,
        bias_attr: Any = None,
        dtype: Any = "float32",
    ) -> None:
        super().__init__(dtype=dtype)
        self._epsilon = epsilon
        self.scale = self._required([num_channels], param_attr, start=Constant(1.0))
        self.bias = self._required([num_channels], bias_attr, is_bias=True)

    def forward(self, input: Variable) -> Variable:
        inputs = {"X": check_floating(input, "InstanceNorm: input"), "Scale": self.scale, "Bias": self.bias}
        return append_norm(self._helper, "instance_norm", inputs, "SavedMean SavedVariance", {"epsilon": self._epsilon})


class GroupNorm(Layer):
    """Each group of channels of each sample to mean 0 and variance 1, then a learned scale and shift.

    Parameters
    ----------
    channels : int
    groups : int
        Number of groups of equal size that the channels are split into.
    param_attr, bias_attr : ParamAttr, str, Initializer, bool, optional
        False means no scale, or no shift. Fluid's layer learns none for None either.

    References
    ----------
    Y. Wu and K. He, Group normalization, ECCV 2018.
    """

    @public
    def __init__(
        self,
        channels: int,
        groups: int,
        epsilon: float = 1e-5,
        param_attr: Any = None,
        bias_attr: Any = None,
        act: str | None = None,
        data_layout: str = "NCHW",
        dtype: Any = "float32",
    ) -> None:
        super().__init__(dtype=dtype)
        self._act = act
        self._attrs = {"epsilon": epsilon, "groups": groups, "data_layout": data_layout}
        self.weight = self.create_parameter([channels], param_attr, default_initializer=Constant(1.0))
        self.bias = self.create_parameter([channels], bias_attr, is_bias=True)
        self._channels = channels

    def forward(self, input: Variable) -> Variable:
        x, scale = check_floating(input, "GroupNorm: input"), self.weight
        # The operator needs a scale, and one of ones changes no bit.
        scale = constant_ones(self._helper, [self._channels], x.dtype) if scale is None else scale
        inputs = {"X": x, "Scale": scale, "Bias": self.bias}
        out = append_norm(self._helper, "group_norm", inputs, "Mean Variance", self._attrs)
        return self._helper.activation(out, self._act)


class PRelu(Layer):
    """The input where it is positive, else the input times learned slopes, which start at 1.

    Parameters
    ----------
    mode : {'all', 'channel', 'element'}
        One slope, one for each channel, or one for each element of a sample.
    channel : int, optional
        Number of channels, for 'channel'.
    input_shape : sequence of int, optional
        The shape of the input, for 'element'; the first dimension does not count.
    """

    @public
    def __init__(
        self,
        mode: str,
        channel: int | None = None,
        input_shape: Sequence[int] | None = None,
        param_attr: Any = None,
        dtype: Any = "float32",
    ) -> None:
        super().__init__(name_scope="prelu", dtype=dtype)
        if mode == "all":
            shape = [1]
        elif mode == "channel" and channel is not None:
            # One slope for each channel of NCHW.
            shape = [1, channel, 1, 1]
        elif mode == "element" and input_shape is not None:
            shape = [1, *input_shape[1:]]
        else:
            raise ProgramError(
                f"PRelu: mode must be all, channel or element, got {mode!r:.60}, channel={channel} and "
                f"input_shape={input_shape}",
                hint="'channel' needs the argument channel, and 'element' input_shape.",
            )  # fmt: skip
        self._mode = mode
        self.weight = self._required(shape, param_attr, start=Constant(1.0))

    def forward(self, input: Variable) -> Variable:
        return self._helper.emit("prelu", X=check_floating(input, "PRelu: input"), Alpha=self.weight, mode=self._mode)


class GRUUnit(Layer):
    """One step of a gated recurrent unit; see `minigraph.layers.gru_unit`.

    Parameters
    ----------
    size : int
        Three times the number of units.
    """

    @public
    def __init__(
        self,
        size: int,
        param_attr: Any = None,
        bias_attr: Any = None,
        activation: str = "tanh",
        gate_activation: str = "sigmoid",
        origin_mode: bool = False,
        dtype: Any = "float32",
    ) -> None:
        super().__init__(dtype=dtype)
        if size % 3:
            raise ProgramError(f"GRUUnit: size must be three times the number of units, got {size}")
        self._attrs = gru_attrs(activation, gate_activation, origin_mode, "GRUUnit")
        self.weight = self._required([size // 3, size], param_attr)
        self.bias = self.create_parameter([1, size], bias_attr, is_bias=True)

    def forward(self, input: Variable, hidden: Variable) -> tuple[Variable, Variable, Variable]:
        """The state, the state before times the reset gate, and the gates with the candidate."""
        x, state = check_floating(input, "GRUUnit: input"), check_floating(hidden, "GRUUnit: hidden")
        return append_gru(self._helper, x, state, self.weight, self.bias, self._attrs)
