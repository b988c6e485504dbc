"""The same work spelled in several ways, for a test of their plans and for a benchmark.

`TASKS` has for each task its spellings: functions that append layers to the default program and return the loss.
"""

import minigraph as fluid

from .by_hand import ACCUMULATION, ADAM, CLIP_BY_VALUE, DESCENT, GLOBAL_NORM, MOMENTUM, RMSPROP, WARMING_UP
from .distances import DICE, DIVERGENCE, GATED, ROOT_MEAN_SQUARE, TRIPLET
from .elements import DIFFERENCE, GELU, INVERSE_ROOT, SWISH
from .formulas import BIAS, CUBIC, FACTOR_ONCE, LAYER_NORM, LOG_SOFTMAX, LOSS, RESHAPE, SOFTMAX
from .losses import GATE, HARD_SWISH, SQUARED_ERROR, TEMPERATURE
from .networks import ATTENTION, CONVOLUTION, DEPTHWISE, GROUPED, MLP, SUM, updates
from .normalizations import BATCH_NORM, GROUP_NORM, INSTANCE_NORM
from .pieces import (
    AFFINE,
    AVERAGE,
    DECAY,
    EXCITATION,
    LOOKUP,
    MASK,
    MEAN_OF_SQUARES,
    PENALTY,
    POINTWISE,
    RESIDUAL,
    REWARDS,
    SMOOTH_LABELS,
)
from .recurrent import GRU, LSTM, RNN
from .tasks import plan, step

__all__ = ["TASKS", "plan", "step"]

TASKS = {
    "MLP": MLP,
    "tanh RNN": RNN,
    "LSTM": LSTM,
    "GRU": GRU,
    "attention": ATTENTION,
    "convolution": CONVOLUTION,
    "convolution of each channel": DEPTHWISE,
    "convolution of parts": GROUPED,
    "loss": LOSS,
    "sum": SUM,
    "softmax": SOFTMAX,
    "log_softmax": LOG_SOFTMAX,
    "layer normalization": LAYER_NORM,
    "bias": BIAS,
    "factor": FACTOR_ONCE,
    "reshape": RESHAPE,
    "cubic": CUBIC,
    "swish": SWISH,
    "gelu": GELU,
    "inverse root": INVERSE_ROOT,
    "difference": DIFFERENCE,
    "mean of squares": MEAN_OF_SQUARES,
    "affine": AFFINE,
    "penalty": PENALTY,
    "smooth labels": SMOOTH_LABELS,
    "rewards": REWARDS,
    "lookup": LOOKUP,
    "filters of one element": POINTWISE,
    "excitation": EXCITATION,
    "mask": MASK,
    "residual": RESIDUAL,
    "decay": DECAY,
    "average": AVERAGE,
    "batch normalization": BATCH_NORM,
    "group normalization": GROUP_NORM,
    "instance normalization": INSTANCE_NORM,
    "descent": DESCENT,
    "momentum by hand": MOMENTUM,
    "Adam by hand": ADAM,
    "RMSProp by hand": RMSPROP,
    "warm-up": WARMING_UP,
    "accumulation": ACCUMULATION,
    "clip by value": CLIP_BY_VALUE,
    "clip by global norm": GLOBAL_NORM,
    "squared error": SQUARED_ERROR,
    "gate": GATE,
    "temperature": TEMPERATURE,
    "dice": DICE,
    "triplet": TRIPLET,
    "divergence": DIVERGENCE,
    "gated linear unit": GATED,
    "root of mean square": ROOT_MEAN_SQUARE,
    "hard swish": HARD_SWISH,
    "Adam": updates(lambda **options: fluid.optimizer.Adam(0.01, **options)),
    "Momentum": updates(lambda **options: fluid.optimizer.Momentum(0.01, 0.9, **options)),
}
