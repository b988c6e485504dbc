"""Layers with Paddle 2's signatures: those of `minigraph.dygraph`, with the arguments called as in Paddle 2.

`name` has no effect on the names of parameters, as in Paddle 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from minigraph import dygraph
from minigraph.dygraph import Layer
from minigraph.errors import ProgramError, WrongTypeError
from minigraph.ir import Variable
from minigraph.layer_helper import check_floating
from minigraph.layers.image import Padding, Size, pair
from minigraph.support.public import public


@public
class Conv2D(dygraph.Conv2D):
    """Convolution of images with learned filters, plus a bias for each filter.

    Parameters
    ----------
    in_channels, out_channels : int
    kernel_size, stride, dilation : int or sequence of int
        One number, or (height, width).
    padding : int, str or sequence
        As for `minigraph.layers.conv2d`.
    groups : int
        Number of groups that channels and filters are split into.
    padding_mode : {'zeros'}
    weight_attr, bias_attr : ParamAttr, str, Initializer, bool, optional
        ``bias_attr=False``: no bias.

    Examples
    --------
    >>> import minigraph as paddle
    >>> Conv2D(3, 8, kernel_size=3, padding=1)(paddle.ones([2, 3, 5, 5])).shape
    [2, 8, 5, 5]
    """

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Size, stride: Size = 1, padding: Padding = 0,
        dilation: Size = 1, groups: int = 1, padding_mode: str = "zeros", weight_attr: Any = None,
        bias_attr: Any = None, data_format: str = "NCHW",
    ) -> None:  # fmt: skip
        if padding_mode != "zeros":
            raise ProgramError(f"Conv2D: padding_mode must be 'zeros', got {padding_mode!r:.60}")
        super().__init__(
            in_channels, out_channels, kernel_size, stride, padding, dilation, groups, weight_attr, bias_attr,
            data_format=data_format,
        )  # fmt: skip


@public
class MaxPool2D(dygraph.Pool2D):
    """The greatest element of each window of images; windows are `kernel_size` apart unless `stride` says otherwise."""

    def __init__(
        self, kernel_size: Size, stride: Size | None = None, padding: Padding = 0, return_mask: bool = False,
        ceil_mode: bool = False, data_format: str = "NCHW", name: str | None = None,
    ) -> None:  # fmt: skip
        if return_mask:
            raise ProgramError("MaxPool2D does not take return_mask=True")
        stride = kernel_size if stride is None else stride
        super().__init__(kernel_size, "max", stride, padding, ceil_mode=ceil_mode, data_format=data_format)


@public
class AvgPool2D(dygraph.Pool2D):
    """The average of each window of images; windows are `kernel_size` apart unless `stride` says otherwise.

    Parameters
    ----------
    exclusive : bool
        Whether averages leave the padding out.
    """

    def __init__(
        self, kernel_size: Size, stride: Size | None = None, padding: Padding = 0, ceil_mode: bool = False,
        exclusive: bool = True, divisor_override: float | None = None, data_format: str = "NCHW",
        name: str | None = None,
    ) -> None:  # fmt: skip
        if divisor_override is not None:
            raise ProgramError("AvgPool2D does not take divisor_override", hint="Scale the result.")
        stride = kernel_size if stride is None else stride
        super().__init__(
            kernel_size, "avg", stride, padding, ceil_mode=ceil_mode, exclusive=exclusive, data_format=data_format
        )


class AdaptiveAvgPool2D(Layer):
    """Averages of `output_size` windows that cover the image evenly."""

    @public
    def __init__(self, output_size: Size, data_format: str = "NCHW", name: str | None = None) -> None:
        super().__init__()
        size = pair(output_size, "AdaptiveAvgPool2D: output_size")
        self._attrs: dict[str, Any] = {
            "pooling_type": "avg",
            "ksize": size,
            "adaptive": True,
            "data_format": data_format,
        }

    def forward(self, x: Variable) -> Variable:
        return self._helper.emit("pool2d", X=check_floating(x, "AdaptiveAvgPool2D: x"), **self._attrs)


@public
class Embedding(dygraph.Embedding):
    """A learned row for each id.

    Parameters
    ----------
    num_embeddings, embedding_dim : int
        Number of rows, and of elements in each row.
    padding_idx : int, optional
        An id that stands for a row of zeros that is not learned. A negative one counts from the end.
    sparse : bool
        Whether the gradient of the weight holds only the rows that were looked up, as selected rows.
    """

    def __init__(
        self, num_embeddings: int, embedding_dim: int, padding_idx: int | None = None, sparse: bool = False,
        weight_attr: Any = None, name: str | None = None,
    ) -> None:  # fmt: skip
        super().__init__([num_embeddings, embedding_dim], sparse, False, padding_idx, weight_attr)


@public
class LayerNorm(dygraph.LayerNorm):
    """The features of each sample to mean 0 and variance 1, then a learned scale and shift.

    Parameters
    ----------
    normalized_shape : int or sequence of int
        The last dimensions of the input, which count as features.
    weight_attr, bias_attr : ParamAttr, str, Initializer, bool, optional
        False: no scale, no shift.
    """

    def __init__(
        self, normalized_shape: int | Sequence[int], epsilon: float = 1e-5, weight_attr: Any = None,
        bias_attr: Any = None, name: str | None = None,
    ) -> None:  # fmt: skip
        super().__init__(
            normalized_shape, weight_attr is not False, bias_attr is not False, epsilon, weight_attr, bias_attr
        )


class _BatchNorm(dygraph.BatchNorm):
    """Base of the batch normalizations of one, two and three dimensions."""

    _formats: tuple[str, str]
    _rank: tuple[int, ...]

    @public
    def __init__(
        self, num_features: int, momentum: float = 0.9, epsilon: float = 1e-5, weight_attr: Any = None,
        bias_attr: Any = None, data_format: str = "", use_global_stats: bool | None = None, name: str | None = None,
    ) -> None:  # fmt: skip
        first, last = self._formats
        if data_format not in ("", first, last):
            raise WrongTypeError(
                f"{type(self).__name__}: data_format must be {first} or {last}, got {data_format!r:.60}"
            )
        super().__init__(
            # Paddle 2's False for `use_global_stats` asks for the batch's statistics even in `eval` mode; None does
            # not.
            num_features, momentum=momentum, epsilon=epsilon, param_attr=_or_none(weight_attr),
            bias_attr=_or_none(bias_attr), data_layout="NHWC" if data_format == last else "NCHW",
            use_global_stats=bool(use_global_stats), trainable_statistics=use_global_stats is False,
        )  # fmt: skip
        # The operator reads scale and shift in any case: they stay 1 and 0.
        for attr, parameter in ((weight_attr, self.weight), (bias_attr, self.bias)):
            if attr is False:
                parameter.trainable, parameter.stop_gradient = False, True

    def forward(self, input: Variable) -> Variable:
        x = check_floating(input, f"{type(self).__name__}: input")
        assert x.shape is not None
        if len(x.shape) not in self._rank:
            raise ProgramError(
                f"{type(self).__name__}: the input must have {' or '.join(map(str, self._rank))} dimensions, got {x}"
            )
        return super().forward(x)


def _or_none(attr: Any) -> Any:
    return None if attr is False else attr


class BatchNorm1D(_BatchNorm):
    """`minigraph.dygraph.BatchNorm` for inputs [batch, features] and [batch, features, length].

    Parameters
    ----------
    num_features : int
    momentum : float
        Share of the running mean and variance that a step keeps.
    weight_attr, bias_attr : ParamAttr, str, Initializer, bool, optional
        False: 1 and 0, not learned.
    data_format : {'NCL', 'NLC'}
    use_global_stats : bool, optional
        Whether to use the running mean and variance. Default: in `eval` mode only.
    """

    _formats = ("NCL", "NLC")
    _rank = (2, 3)


class BatchNorm2D(_BatchNorm):
    """`minigraph.dygraph.BatchNorm` for inputs [batch, channels, height, width]; see `BatchNorm1D`."""

    _formats = ("NCHW", "NHWC")
    _rank = (4,)


class BatchNorm3D(_BatchNorm):
    """`minigraph.dygraph.BatchNorm` for inputs [batch, channels, depth, height, width]; see `BatchNorm1D`."""

    _formats = ("NCDHW", "NDHWC")
    _rank = (5,)


class SyncBatchNorm(_BatchNorm):
    """Batch normalization by the mean and the variance of all ranks' samples; see `BatchNorm1D`.

    Inputs are [batch, channels, ...] of two to five dimensions, or have the channels last.

    Parameters
    ----------
    data_format : {'NCHW', 'NHWC'}

    Examples
    --------
    >>> from minigraph import nn
    >>> model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1D(3))
    >>> [type(layer).__name__ for layer in SyncBatchNorm.convert_sync_batchnorm(model).children()]
    ['Linear', 'SyncBatchNorm']
    """

    _op_type = "sync_batch_norm"
    _formats = ("NCHW", "NHWC")
    _rank = (2, 3, 4, 5)

    @public
    def __init__(
        self, num_features: int, momentum: float = 0.9, epsilon: float = 1e-5, weight_attr: Any = None,
        bias_attr: Any = None, data_format: str = "NCHW", name: str | None = None,
    ) -> None:  # fmt: skip
        super().__init__(num_features, momentum, epsilon, weight_attr, bias_attr, data_format)

    @classmethod
    def convert_sync_batchnorm(cls, layer: Layer) -> Layer:
        """Let each batch normalization in `layer` be synchronized, with its parameters and statistics.

        Returns `layer` itself, or its replacement if it is a batch normalization.
        """
        if isinstance(layer, dygraph.BatchNorm):
            # The same object with another operator: what refers to it, or to its parameters, stays right.
            layer.__class__ = cls
            return layer
        for child in layer.children():
            cls.convert_sync_batchnorm(child)
        return layer
