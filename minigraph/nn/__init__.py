"""Paddle 2's names: its gradient clips, and layers with its signatures; imports clip, dygraph and tensor.

The clips are those of `minigraph.clip`, the layers those of `minigraph.dygraph`; only the arguments are called as in
Paddle 2. Which parameters a clip concerns is said there by ``ParamAttr(need_clip=False)``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from minigraph import dygraph
from minigraph.clip import GradientClipByGlobalNorm, GradientClipByNorm, GradientClipByValue
from minigraph.dygraph import Layer, LayerList, ParameterList, Sequential
from minigraph.ir import Variable
from minigraph.nn import functional
from minigraph.nn.layers import (
    AdaptiveAvgPool2D,
    AvgPool2D,
    BatchNorm1D,
    BatchNorm2D,
    BatchNorm3D,
    Conv2D,
    Embedding,
    LayerNorm,
    MaxPool2D,
    SyncBatchNorm,
)
from minigraph.support.public import public, refuse_unknown_names

__all__ = [
    "AdaptiveAvgPool2D", "AvgPool2D", "BatchNorm1D", "BatchNorm2D", "BatchNorm3D", "ClipGradByGlobalNorm",
    "ClipGradByNorm", "ClipGradByValue", "Conv2D", "CrossEntropyLoss", "Dropout", "Embedding", "Flatten", "Layer",
    "LayerList", "LayerNorm", "Linear", "LogSoftmax", "MSELoss", "MaxPool2D", "ParameterList", "ReLU", "Sequential",
    "Sigmoid", "Softmax", "SyncBatchNorm", "Tanh", "functional",
]  # fmt: skip


# Clips


@public
def ClipGradByValue(max: float, min: float | None = None) -> GradientClipByValue:
    """Limit each element of a gradient to [`min`, `max`], by default [-max, max].

    Examples
    --------
    >>> clip = ClipGradByValue(max=1.0)
    >>> clip.min, clip.max
    (-1.0, 1.0)
    """
    return GradientClipByValue(max, min)


@public
def ClipGradByNorm(clip_norm: float) -> GradientClipByNorm:
    """Scale each gradient down to an L2 norm of at most `clip_norm`."""
    return GradientClipByNorm(clip_norm)


@public
def ClipGradByGlobalNorm(
    clip_norm: float, group_name: str = "default_group", auto_skip_clip: bool = False
) -> GradientClipByGlobalNorm:
    """Scale all gradients of a group by one factor, so that their norm together is at most `clip_norm`.

    A norm at or under `clip_norm` leaves every gradient bit for bit as it is. That is what `auto_skip_clip` asks for,
    which therefore changes nothing.
    """
    return GradientClipByGlobalNorm(clip_norm, group_name)


# Layers


@public
class Linear(dygraph.Linear):
    """``x @ weight + bias`` over the last dimension.

    Parameters
    ----------
    in_features, out_features : int
    weight_attr, bias_attr : ParamAttr, str, Initializer, bool, optional
        ``bias_attr=False``: no bias.
    name : str, optional
        Accepted because Paddle 2 has it.

    Examples
    --------
    >>> import minigraph as paddle
    >>> linear = Linear(2, 3, bias_attr=paddle.ParamAttr(need_clip=False))
    >>> linear(paddle.ones([4, 2])).shape
    [4, 3]
    """

    def __init__(
        self, in_features: int, out_features: int, weight_attr: Any = None, bias_attr: Any = None,
        name: str | None = None,
    ) -> None:  # fmt: skip
        super().__init__(in_features, out_features, weight_attr, bias_attr)


@public
class Dropout(dygraph.Dropout):
    """Zero each element with probability `p` in training.

    Parameters
    ----------
    mode : {'upscale_in_train', 'downscale_in_infer'}
        Whether training divides by ``1 - p`` or inference multiplies by it.
    """

    def __init__(self, p: float = 0.5, mode: str = "upscale_in_train", name: str | None = None) -> None:
        super().__init__(p, dropout_implementation=functional.dropout_implementation(mode))


class _Function(Layer):
    """A layer without parameters that applies a function."""

    @public
    def __init__(self, function: Callable[..., Variable], **options: Any) -> None:
        super().__init__()
        self._function, self._options = function, options

    def forward(self, *inputs: Variable) -> Variable:
        return self._function(*inputs, **self._options)


@public
class ReLU(_Function):
    """``max(x, 0)``."""

    def __init__(self, name: str | None = None) -> None:
        super().__init__(functional.relu)


@public
class Sigmoid(_Function):
    """``1 / (1 + exp(-x))``."""

    def __init__(self, name: str | None = None) -> None:
        super().__init__(functional.sigmoid)


@public
class Tanh(_Function):
    """Hyperbolic tangent."""

    def __init__(self, name: str | None = None) -> None:
        super().__init__(functional.tanh)


@public
class Softmax(_Function):
    """``exp(x) / sum(exp(x))`` along `axis`."""

    def __init__(self, axis: int = -1, name: str | None = None) -> None:
        super().__init__(functional.softmax, axis=axis)


@public
class LogSoftmax(_Function):
    """Logarithm of the softmax along `axis`."""

    def __init__(self, axis: int = -1, name: str | None = None) -> None:
        super().__init__(functional.log_softmax, axis=axis)


@public
class Flatten(_Function):
    """The dimensions from `start_axis` to `stop_axis` made one."""

    def __init__(self, start_axis: int = 1, stop_axis: int = -1) -> None:
        super().__init__(functional.flatten, start_axis=start_axis, stop_axis=stop_axis)


@public
class MSELoss(_Function):
    """Square of the difference, reduced; see `minigraph.nn.functional.mse_loss`."""

    def __init__(self, reduction: str = "mean") -> None:
        super().__init__(functional.mse_loss, reduction=reduction)


@public
class CrossEntropyLoss(_Function):
    """Cross entropy of logits, reduced; see `minigraph.nn.functional.cross_entropy`."""

    def __init__(
        self, ignore_index: int = -100, reduction: str = "mean", soft_label: bool = False, axis: int = -1
    ) -> None:
        super().__init__(
            functional.cross_entropy, ignore_index=ignore_index, reduction=reduction, soft_label=soft_label, axis=axis
        )


refuse_unknown_names(__name__)
