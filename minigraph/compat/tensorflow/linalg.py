"""TensorFlow's ``tf.linalg``, as far as it is about clipping."""

from minigraph.compat.tensorflow.clip_ops import global_norm

__all__ = ["global_norm"]
