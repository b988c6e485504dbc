"""Normalizations with a learned scale and shift."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from minigraph.dygraph.layer import Layer
from minigraph.dygraph.operator_attrs import operator_attr
from minigraph.eager.tensor import Eager
from minigraph.errors import ProgramError
from minigraph.initializer import Constant
from minigraph.ir import Variable
from minigraph.layer_helper import check_floating
from minigraph.layers.normalization import (
    append_batch_norm,
    append_norm,
    constant_ones,
    running_statistic,
    statistics_dtype,
    warn_of_unused,
)
from minigraph.support.arguments import INTEGERS
from minigraph.support.public import public
from minigraph.types import as_dtype, product


class LayerNorm(Layer):
    """The features of each sample to mean 0 and variance 1, then a learned scale and shift.

    Parameters
    ----------
    normalized_shape : int or sequence of int
        The last dimensions of the input, which count as features.
    scale, shift : bool
        Whether to learn a factor, and a term, for each feature.
    """

    @public
    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        scale: bool = True,
        shift: bool = True,
        epsilon: float = 1e-5,
        param_attr: Any = None,
        bias_attr: Any = None,
        act: str | None = None,
        dtype: Any = "float32",
    ) -> None:
        super().__init__(dtype=dtype)
        shape = [normalized_shape] if isinstance(normalized_shape, INTEGERS) else list(normalized_shape)
        self._normalized_shape, self._scale, self._shift = shape, scale, shift
        self._epsilon, self._act = epsilon, act
        warn_of_unused(scale, param_attr, "LayerNorm: param_attr is given, but scale is False")
        warn_of_unused(shift, bias_attr, "LayerNorm: bias_attr is given, but shift is False")
        self.weight = self.bias = None
        features = [product(shape)]
        if scale:
            self.weight = self._required(features, param_attr, start=Constant(1.0))
        if shift:
            self.bias = self._required(features, bias_attr, is_bias=True)

    def forward(self, input: Variable) -> Variable:
        x = check_floating(input, "LayerNorm: input")
        assert x.shape is not None
        # The operator counts dimensions from the front, the layer from the end.
        begin = len(x.shape) - len(self._normalized_shape)
        if list(x.shape[max(begin, 0) :]) != self._normalized_shape:
            raise ProgramError(f"LayerNorm: the last dimensions of the input must be {self._normalized_shape}, got {x}")
        inputs = {"X": x, "Scale": self.weight, "Bias": self.bias}
        attrs = {"epsilon": self._epsilon, "begin_norm_axis": begin}
        return self._helper.activation(
            append_norm(self._helper, "layer_norm", inputs, "Mean Variance", attrs), self._act
        )


class BatchNorm(Layer):
    """Each channel to mean 0 and variance 1 over the batch, then a learned scale and shift.

    Parameters
    ----------
    num_channels : int
    is_test : bool
        Use the running mean and variance even in training mode.
    momentum : float
        Share of the running mean and variance that a step keeps.
    data_layout : {'NCHW', 'NHWC'}
    in_place : bool
        Accepted because fluid has it; the result never takes the place of the input.
    moving_mean_name, moving_variance_name : str, optional
        Names of the running mean and variance.
    use_global_stats : bool
        Use the running mean and variance, and leave them as they are, in training too.
    trainable_statistics : bool
        Use the mean and variance of the batch outside of training too.

    Notes
    -----
    The running mean and variance are parameters, ``_mean`` and ``_variance``, that are not trained. In fluid
    `is_test` has an effect in static programs only.
    """

    _op_type = "batch_norm"
    _momentum = operator_attr("momentum")
    _epsilon = operator_attr("epsilon")
    _data_layout = operator_attr("data_layout")
    _use_global_stats = operator_attr("use_global_stats")
    _trainable_statistics = operator_attr("trainable_statistics")

    @public
    def __init__(
        self,
        num_channels: int,
        act: str | None = None,
        is_test: bool = False,
        momentum: float = 0.9,
        epsilon: float = 1e-5,
        param_attr: Any = None,
        bias_attr: Any = None,
        dtype: Any = "float32",
        data_layout: str = "NCHW",
        in_place: bool = False,
        moving_mean_name: str | None = None,
        moving_variance_name: str | None = None,
        do_model_average_for_mean_and_var: bool = True,
        use_global_stats: bool = False,
        trainable_statistics: bool = False,
    ) -> None:
        # For float16 inputs, scale, shift and statistics are float32.
        super().__init__(dtype=statistics_dtype(as_dtype(dtype)))
        self._act, self._is_test = act, is_test
        self._attrs = {
            "momentum": momentum, "epsilon": epsilon, "data_layout": data_layout, "use_global_stats": use_global_stats,
            "trainable_statistics": trainable_statistics,
        }  # fmt: skip
        shape, averaged = [num_channels], do_model_average_for_mean_and_var
        self.weight = self._required(shape, param_attr, start=Constant(1.0))
        self.bias = self._required(shape, bias_attr, is_bias=True)
        self._mean = self.create_parameter(shape, running_statistic(moving_mean_name, 0.0, averaged), self._dtype)
        self._variance = self.create_parameter(
            shape, running_statistic(moving_variance_name, 1.0, averaged), self._dtype
        )
        # Parameters, so that `state_dict` saves them; the operator writes them, and no optimizer may.
        self._mean.stop_gradient = self._variance.stop_gradient = True

    def forward(self, input: Variable) -> Variable:
        x = check_floating(input, "BatchNorm: input")
        inputs = {"X": x, "Scale": self.weight, "Bias": self.bias, "Mean": self._mean, "Variance": self._variance}
        attrs = {**self._attrs, "is_test": self._is_test or not self.training}
        out = append_batch_norm(self._helper, inputs, attrs, op_type=self._op_type)
        for statistic in (self._mean, self._variance):
            # No gradient flows through it: what it was computed from, step after step, need not be kept.
            if isinstance(statistic, Eager):
                statistic._origin = None
        return self._helper.activation(out, self._act)


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

    _epsilon = operator_attr("epsilon")
    _groups = operator_attr("groups")

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
        self.weight = self.create_parameter([channels], param_attr, self._dtype, default_initializer=Constant(1.0))
        self.bias = self.create_parameter([channels], bias_attr, self._dtype, is_bias=True)
        self._channels = channels

    def forward(self, input: Variable) -> Variable:
        x, scale = check_floating(input, "GroupNorm: input"), self.weight
        # The operator needs a scale, and one of ones changes no bit.
        scale = constant_ones(self._helper, [self._channels], x.dtype) if scale is None else scale
        inputs = {"X": x, "Scale": scale, "Bias": self.bias}
        out = append_norm(self._helper, "group_norm", inputs, "Mean Variance", self._attrs)
        return self._helper.activation(out, self._act)
