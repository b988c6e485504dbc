"""TensorFlow's gradient clipping and the optimizers around it; TensorFlow itself is not needed.

``import minigraph.compat.tensorflow as tf``: `clip_by_norm`, `clip_by_global_norm`, `clip_by_value`,
`clip_by_average_norm`, ``tf.linalg.global_norm``, and ``tf.train`` with the optimizers of TensorFlow 1, whose
``compute_gradients`` and ``apply_gradients`` leave room for clipping in between.

Every function takes variables of a program, to which it appends operators, or tensors of the imperative mode, which
it computes with. Both go through the same operator definitions.
"""

from minigraph.compat.tensorflow import linalg, train
from minigraph.compat.tensorflow.clip_ops import (
    clip_by_average_norm,
    clip_by_global_norm,
    clip_by_norm,
    clip_by_value,
    global_norm,
)
from minigraph.compat.tensorflow.train import gradients, trainable_variables
from minigraph.support.public import refuse_unknown_names

__all__ = [
    "clip_by_average_norm", "clip_by_global_norm", "clip_by_norm", "clip_by_value", "global_norm", "gradients",
    "linalg", "train", "trainable_variables",
]  # fmt: skip

refuse_unknown_names(__name__)
