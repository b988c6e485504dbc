"""The imperative mode: operators computed as they are written, by the definitions and kernels of the static mode."""

from minigraph.dygraph.base import enabled, grad, guard, no_grad, to_variable
from minigraph.dygraph.containers import LayerList, ParameterList, Sequential
from minigraph.dygraph.layer import Layer
from minigraph.dygraph.layers import BatchNorm, Conv2D, Dropout, Embedding, LayerNorm, Linear, Pool2D
from minigraph.dygraph.tensor import EagerParameter, Tensor
from minigraph.dygraph.tracing import TracedLayer

__all__ = [
    "BatchNorm", "Conv2D", "Dropout", "EagerParameter", "Embedding", "Layer", "LayerList", "LayerNorm", "Linear",
    "ParameterList", "Pool2D", "Sequential", "Tensor", "TracedLayer", "enabled", "grad", "guard", "no_grad",
    "to_variable",
]  # fmt: skip
