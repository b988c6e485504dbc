"""PyTorch's gradient clipping on tensors of the imperative mode; PyTorch itself is not needed.

``import minigraph.compat.torch as torch`` and ``torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)``.

Tensors have the methods with which code written for PyTorch looks at a gradient: ``p.grad.data.norm(2).item()``,
``p.grad.data.mul_(0.5)``, ``p.grad.data.abs().max() > 1``.
"""

from math import inf, nan

from minigraph.compat.torch import nn
from minigraph.dygraph import no_grad
from minigraph.eager.tensor import Eager as Tensor

__all__ = ["Tensor", "inf", "nan", "nn", "no_grad"]
