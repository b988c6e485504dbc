"""Optimizers append the operators that update parameters by their gradients; imports clip, layers and the engine."""

from minigraph.optimizer.adagrad import (
    AdadeltaOptimizer,
    AdagradOptimizer,
    DecayedAdagradOptimizer,
    FtrlOptimizer,
    RMSPropOptimizer,
)
from minigraph.optimizer.adam import AdamaxOptimizer, AdamOptimizer, AdamW, LambOptimizer
from minigraph.optimizer.averages import ExponentialMovingAverage, ModelAverage
from minigraph.optimizer.base import Optimizer
from minigraph.optimizer.first_order import (
    DGCMomentumOptimizer,
    DpsgdOptimizer,
    LarsMomentumOptimizer,
    MomentumOptimizer,
    SGDOptimizer,
)
from minigraph.optimizer.gradient_merge import GradientMergeOptimizer
from minigraph.optimizer.lookahead import LookaheadOptimizer
from minigraph.optimizer.recompute import RecomputeOptimizer
from minigraph.support.public import refuse_unknown_names

# Fluid's short names.
SGD = SGDOptimizer
Momentum = MomentumOptimizer
LarsMomentum = LarsMomentumOptimizer
Dpsgd = DpsgdOptimizer
Adam = AdamOptimizer
Adamax = AdamaxOptimizer
Lamb = LambOptimizer
Adagrad = AdagradOptimizer
DecayedAdagrad = DecayedAdagradOptimizer
Adadelta = AdadeltaOptimizer
RMSProp = RMSPropOptimizer
Ftrl = FtrlOptimizer

__all__ = [
    "SGD", "Adadelta", "AdadeltaOptimizer", "Adagrad", "AdagradOptimizer", "Adam", "AdamOptimizer", "AdamW", "Adamax",
    "AdamaxOptimizer", "DGCMomentumOptimizer", "DecayedAdagrad", "DecayedAdagradOptimizer", "Dpsgd", "DpsgdOptimizer",
    "ExponentialMovingAverage", "Ftrl", "FtrlOptimizer", "GradientMergeOptimizer", "Lamb", "LambOptimizer",
    "LarsMomentum", "LarsMomentumOptimizer", "LookaheadOptimizer", "ModelAverage", "Momentum", "MomentumOptimizer",
    "Optimizer", "RMSProp", "RMSPropOptimizer", "RecomputeOptimizer", "SGDOptimizer",
]  # fmt: skip

# Functions that programs import from here, because fluid's module uses them.
refuse_unknown_names(
    __name__, append_backward="minigraph.autodiff.backward", append_gradient_clip_ops="minigraph.clip",
    append_regularization_ops="minigraph.regularizer",
)  # fmt: skip
