"""Paddle 2's functions on tensors; imports layers and what lies below them."""

from minigraph.tensor import creation, manipulation
from minigraph.tensor.creation import *
from minigraph.tensor.manipulation import *

__all__: list[str] = []
__all__ += creation.__all__
__all__ += manipulation.__all__
