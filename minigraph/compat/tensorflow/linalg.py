"""TensorFlow's ``tf.linalg``, as far as it is about clipping."""

from minigraph.compat.tensorflow.clip_ops import global_norm
from minigraph.support.public import refuse_unknown_names

__all__ = ["global_norm"]

refuse_unknown_names(__name__)
