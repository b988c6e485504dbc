"""The imperative mode: operators computed as they are written, by the definitions and kernels of the static mode."""

from minigraph.dygraph.base import enabled, grad, guard, no_grad, to_variable
from minigraph.dygraph.layers import Dropout, Layer, LayerList, Linear, ParameterList, Sequential
from minigraph.dygraph.tensor import EagerParameter, Tensor

__all__ = [
    "Dropout", "EagerParameter", "Layer", "LayerList", "Linear", "ParameterList", "Sequential", "Tensor", "enabled",
    "grad", "guard", "no_grad", "to_variable",
]  # fmt: skip
