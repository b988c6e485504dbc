"""Read what the global scope holds."""

from typing import Any

import numpy as np

import minigraph as fluid


def value(name: str) -> np.ndarray[Any, Any]:
    """A copy of the tensor of a variable."""
    return np.array(fluid.global_scope().find_var(name).get_tensor())
