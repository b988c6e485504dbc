"""The imperative mode of fluid: layers as objects, tensors and programs traced from them, over `minigraph.eager`.

Imports layers, files and what lies below them.
"""

from typing import TYPE_CHECKING

from minigraph.dygraph.containers import LayerList, ParameterList, Sequential
from minigraph.dygraph.convolutions import Conv2D, Conv2DTranspose, Conv3D, Conv3DTranspose
from minigraph.dygraph.layer import Layer
from minigraph.dygraph.layers import Dropout, Embedding, GRUUnit, Linear, Pool2D, PRelu
from minigraph.dygraph.losses import BCELoss, L1Loss, MSELoss, NLLLoss
from minigraph.dygraph.normalization import BatchNorm, GroupNorm, InstanceNorm, LayerNorm
from minigraph.dygraph.parallel import DataParallel, Env, ParallelEnv, prepare_context
from minigraph.dygraph.tracing import TracedLayer
from minigraph.dygraph.translation import ProgramTranslator, declarative, dygraph_to_static_func
from minigraph.dygraph.weights import NCE, BilinearTensorProduct, SpectralNorm, TreeConv
from minigraph.eager.epoch_learning_rate import LambdaDecay, MultiStepDecay, ReduceLROnPlateau, StepDecay
from minigraph.eager.guard import disable_dygraph, enable_dygraph, enabled, grad, guard, no_grad, to_variable
from minigraph.eager.learning_rate import (
    CosineDecay,
    ExponentialDecay,
    InverseTimeDecay,
    LearningRateDecay,
    LinearLrWarmup,
    NaturalExpDecay,
    NoamDecay,
    PiecewiseDecay,
    PolynomialDecay,
)
from minigraph.eager.tensor import BackwardStrategy, EagerParameter, Tensor
from minigraph.support.public import refuse_unknown_names

if TYPE_CHECKING:  # imported when asked for, see the end
    from minigraph.io.state_dicts import load_dygraph, save_dygraph

# Fluid's older names.
enable_imperative, disable_imperative = enable_dygraph, disable_dygraph

__all__ = [
    "NCE",
    "BCELoss",
    "BackwardStrategy",
    "BatchNorm",
    "BilinearTensorProduct",
    "Conv2D",
    "Conv2DTranspose",
    "Conv3D",
    "Conv3DTranspose",
    "CosineDecay",
    "DataParallel",
    "Dropout",
    "EagerParameter",
    "Embedding",
    "Env",
    "ExponentialDecay",
    "GRUUnit",
    "GroupNorm",
    "InstanceNorm",
    "InverseTimeDecay",
    "L1Loss",
    "LambdaDecay",
    "Layer",
    "LayerList",
    "LayerNorm",
    "LearningRateDecay",
    "Linear",
    "LinearLrWarmup",
    "MSELoss",
    "MultiStepDecay",
    "NLLLoss",
    "NaturalExpDecay",
    "NoamDecay",
    "PRelu",
    "ParallelEnv",
    "ParameterList",
    "PiecewiseDecay",
    "PolynomialDecay",
    "Pool2D",
    "ProgramTranslator",
    "ReduceLROnPlateau",
    "Sequential",
    "SpectralNorm",
    "StepDecay",
    "Tensor",
    "TracedLayer",
    "TreeConv",
    "declarative",
    "disable_dygraph",
    "disable_imperative",
    "dygraph_to_static_func",
    "enable_dygraph",
    "enable_imperative",
    "enabled",
    "grad",
    "guard",
    "load_dygraph",
    "no_grad",
    "prepare_context",
    "save_dygraph",
    "to_variable",
]  # fmt: skip

refuse_unknown_names(__name__, load_dygraph="minigraph.io.state_dicts", save_dygraph="minigraph.io.state_dicts")
