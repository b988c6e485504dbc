"""PyTorch's ``torch.nn``, as far as it is about clipping: `utils`."""

from minigraph.compat.torch.nn import utils
from minigraph.runtime.public import publish

__all__ = ["utils"]

publish(utils)
