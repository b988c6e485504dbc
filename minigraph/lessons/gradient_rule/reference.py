"""Lesson 9: the gradient of ``clip_by_norm``, in layers."""

from minigraph import layers
from minigraph.ir import Variable


def gradient(x: Variable, d_out: Variable, max_norm: float) -> Variable:
    """Return the gradient with respect to `x`, if that of ``clip_by_norm(x, max_norm)`` is `d_out`.

    With ``y = c x / |x|``: ``d_x = c / |x| * (d_out - x (x . d_out) / |x|**2)``. A short tensor passes as it is.
    """
    limit = layers.fill_constant([1], x.dtype, max_norm)
    norm = layers.sqrt(layers.reduce_sum(layers.square(x)))
    is_long = layers.cast(layers.greater_than(norm, limit), x.dtype)
    bound = layers.elementwise_max(norm, limit)  # never 0, and the limit itself for a short tensor
    along = layers.reduce_sum(x * d_out) / layers.square(bound)
    return (d_out - x * (along * is_long)) * (limit / bound)
