"""Schema, inference and gradient of every operator; one family, one file. Importing this registers them all."""

from minigraph.ops import activation, clip, elementwise, loss, matrix, metric, optimizer, random, reduce, tensor

__all__ = [
    "activation", "clip", "elementwise", "loss", "matrix", "metric", "optimizer", "random", "reduce", "tensor",
]  # fmt: skip
