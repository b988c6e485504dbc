"""Functions that an array module may have of its own, where kernels for NumPy's compute them from exponentials."""

from __future__ import annotations

from typing import Any


class Primitives:
    """Base of an array module that has these functions."""

    def logistic(self, x: Any) -> Any:
        """``1 / (1 + exp(-x))``."""
        raise NotImplementedError

    def log_of_one_plus_exp(self, x: Any) -> Any:
        """``log(1 + exp(x))``."""
        raise NotImplementedError

    def erfc(self, x: Any) -> Any:
        """``1 - erf(x)``."""
        raise NotImplementedError
