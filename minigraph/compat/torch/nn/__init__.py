"""PyTorch's ``torch.nn``, as far as it is about clipping: `utils`."""

from minigraph.compat.torch.nn import utils

__all__ = ["utils"]
