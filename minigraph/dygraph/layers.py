"""The layers themselves, with fluid's signatures. What each computes is one operator, or a few."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from minigraph.dygraph.layer import Layer
from minigraph.eager.tensor import Eager
from minigraph.errors import ProgramError
from minigraph.initializer import Constant
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
    pool_attrs,
)
from minigraph.layers.nn import check_integers, dropout, embedding_attrs
from minigraph.layers.normalization import (
    append_batch_norm,
    append_norm,
    check_unused,
    running_statistic,
    statistics_dtype,
)
from minigraph.support.public import public
from minigraph.types import as_dtype, product


class Linear(Layer):
    """``act(x @ weight + bias)`` over the last dimension.

    Parameters
    ----------
    input_dim, output_dim : int
    param_attr, bias_attr : ParamAttr, str, Initializer, bool, optional
        ``bias_attr=False``: no bias.
    act : str, optional
        Operator applied to the result.
    """

    @public
    def __init__(
        self,
        input_dim: int,
        output_dim: int,
        param_attr: Any = None,
        bias_attr: Any = None,
        act: str | None = None,
        dtype: Any = "float32",
    ) -> None:
        super().__init__(dtype=dtype)
        self._act = act
        self.weight = self._required([input_dim, output_dim], param_attr)
        self.bias = self.create_parameter([output_dim], bias_attr, is_bias=True)

    def forward(self, input: Variable) -> Variable:
        result = self._helper.emit("matmul", X=check_floating(input, "Linear: input"), Y=self.weight)
        assert result.shape is not None
        return self._helper.activation(self._helper.plus(result, self.bias, len(result.shape) - 1), self._act)


class Conv2D(Layer):
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
        self._act = act
        self._type = convolution_type(num_channels, num_filters, groups, use_cudnn)
        self._attrs = convolution_attrs("Conv2D", stride, padding, dilation, groups, data_format)
        shape = filter_shape(num_channels, num_filters, size, groups, "Conv2D")
        self.weight = self._required(shape, param_attr, start=filter_initializer(num_channels, size))
        self.bias = self.create_parameter([num_filters], bias_attr, is_bias=True)

    def forward(self, input: Variable) -> Variable:
        x = check_floating(input, "Conv2D: input")
        return convolve(self._helper, self._type, x, self.weight, self.bias, self._attrs, self._act)


class Pool2D(Layer):
    """The greatest element or the average of each window of images; see `minigraph.layers.pool2d`."""

    @public
    def __init__(
        self,
        pool_size: Size = -1,
        pool_type: str = "max",
        pool_stride: Size = 1,
        pool_padding: Padding = 0,
        global_pooling: bool = False,
        use_cudnn: bool = True,
        ceil_mode: bool = False,
        exclusive: bool = True,
        data_format: str = "NCHW",
    ) -> None:
        super().__init__()
        self._attrs = pool_attrs(
            pool_size, pool_type, pool_stride, pool_padding, global_pooling, ceil_mode, exclusive, data_format
        )

    def forward(self, input: Variable) -> Variable:
        return self._helper.emit("pool2d", X=check_floating(input, "Pool2D: input"), **self._attrs)


class Embedding(Layer):
    """A learned row for each id, for ids of any shape.

    Parameters
    ----------
    size : sequence of int
        Number of rows, and of elements in each row.
    is_sparse : bool
        Whether the gradient of the table is selected rows, those that were looked up, so that an update need not look
        at the others.
    is_distributed : bool
        Kept as an attribute.
    padding_idx : int, optional
        An id that stands for a row of zeros that is not learned. A negative one counts from the end.
    """

    @public
    def __init__(
        self,
        size: Sequence[int],
        is_sparse: bool = False,
        is_distributed: bool = False,
        padding_idx: int | None = None,
        param_attr: Any = None,
        dtype: Any = "float32",
    ) -> None:
        super().__init__(dtype=dtype)
        self._attrs = embedding_attrs(size, is_sparse, is_distributed, padding_idx)
        self.weight = self._required(list(size), param_attr)

    def forward(self, input: Variable) -> Variable:
        ids = check_integers(input, "Embedding: input")
        return self._helper.emit("lookup_table_v2", W=self.weight, Ids=ids, **self._attrs)


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
        shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        self._shape, self._epsilon, self._act = shape, epsilon, act
        check_unused(scale, param_attr, "LayerNorm: param_attr is given, but scale is False")
        check_unused(shift, bias_attr, "LayerNorm: bias_attr is given, but shift is False")
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
        begin = len(x.shape) - len(self._shape)
        if tuple(x.shape[max(begin, 0) :]) != self._shape:
            raise ProgramError(f"LayerNorm: the last dimensions of the input must be {list(self._shape)}, got {x}")
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
        self._mean = self.create_parameter(shape, running_statistic(moving_mean_name, 0.0, averaged))
        self._variance = self.create_parameter(shape, running_statistic(moving_variance_name, 1.0, averaged))
        # Parameters, so that `state_dict` saves them; the operator writes them, and no optimizer may.
        self._mean.stop_gradient = self._variance.stop_gradient = True

    def forward(self, input: Variable) -> Variable:
        x = check_floating(input, "BatchNorm: input")
        inputs = {"X": x, "Scale": self.weight, "Bias": self.bias, "Mean": self._mean, "Variance": self._variance}
        attrs = {**self._attrs, "is_test": self._is_test or not self.training}
        out = append_batch_norm(self._helper, inputs, attrs)
        for statistic in (self._mean, self._variance):
            # No gradient flows through it: what it was computed from, step after step, need not be kept.
            if isinstance(statistic, Eager):
                statistic._origin = None
        return self._helper.activation(out, self._act)


class Dropout(Layer):
    """Zero each element with probability `p` in training; see `minigraph.layers.dropout`.

    Parameters
    ----------
    is_test : bool
        Drop nothing even in training mode. In fluid it has an effect in static programs only.
    """

    @public
    def __init__(
        self,
        p: float = 0.5,
        seed: int | None = None,
        dropout_implementation: str = "downgrade_in_infer",
        is_test: bool = False,
    ) -> None:
        super().__init__()
        if not 0 <= p <= 1:
            raise ProgramError(f"Dropout: p must be in [0, 1], got {p!r:.60}")
        self._p, self._seed, self._implementation, self._is_test = p, seed, dropout_implementation, is_test

    def forward(self, input: Variable) -> Variable:
        is_test = self._is_test or not self.training
        return dropout(input, self._p, is_test=is_test, seed=self._seed, dropout_implementation=self._implementation)
