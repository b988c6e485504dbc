"""The arithmetic of every operator: functions on arrays that know nothing of programs.

One family of operators, one file, under the name it has in `minigraph.ops`.
"""

from minigraph.kernels import activation, clip, elementwise, loss, matrix, metric, optimizer, random, reduce, tensor
from minigraph.kernels.registry import Kernel, find_kernel, find_specializer, kernel, specialize

__all__ = [
    "Kernel", "activation", "clip", "elementwise", "find_kernel", "find_specializer", "kernel", "loss", "matrix",
    "metric", "optimizer", "random", "reduce", "specialize", "tensor",
]  # fmt: skip
