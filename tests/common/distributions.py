"""Distributions that numbers are drawn from."""

import math
from typing import Any

import numpy as np


def normal_cdf(z: Any) -> Any:
    """Shares of the standard normal distribution below numbers."""
    return (1 + np.vectorize(math.erf)(z / math.sqrt(2))) / 2
