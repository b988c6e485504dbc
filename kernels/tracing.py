"""Run a kernel on symbols instead of arrays, to learn what it computes.

A kernel is a function of an array module and arrays. Called with a `TracingModule` and `Traced` operands it tells each
NumPy function that it uses to `Traced.apply`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin


class TracingModule:
    """An array module for `Traced`: NumPy, whose functions ask the class of their operands what to do.

    It is not NumPy itself, for which kernels take other ways, by the sizes of arrays.
    """

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)


class ErrorFunctions:
    """Abstract array module: each subclass defines these functions, which NumPy does not have."""

    def erf(self, x: Any) -> Any:
        """The error function."""
        raise NotImplementedError

    def erfc(self, x: Any) -> Any:
        """``1 - erf(x)``."""
        raise NotImplementedError


class Primitives(ErrorFunctions):
    """Abstract array module: each subclass defines these functions, which kernels compute from exponentials."""

    def logistic(self, x: Any) -> Any:
        """``1 / (1 + exp(-x))``."""
        raise NotImplementedError

    def log_of_one_plus_exp(self, x: Any) -> Any:
        """``log(1 + exp(x))``."""
        raise NotImplementedError


class Traced(NDArrayOperatorsMixin, ABC):
    """Symbol for an array, or for a number of the type of its elements.

    Attributes
    ----------
    value : object
        What it stands for now; a function that writes to a buffer replaces it.
    dtype, shape
        Those of the array, as far as kernels look at them.
    """

    value: Any
    dtype: Any
    shape: Any

    @abstractmethod
    def apply(self, function: str, *operands: Any, **options: Any) -> Any:
        """The result of the NumPy function of this name, where operands are `Traced` or numbers."""

    def copy(self) -> Any:
        return self.apply("positive", self)

    def clip(self, low: Any, high: Any, out: None = None) -> Any:
        return self.apply("minimum", self.apply("maximum", self, low), high)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, out: tuple[Any, ...] = (None,)) -> Any:
        result = self.apply(ufunc.__name__, *inputs)
        if out[0] is None:
            return result
        out[0].value = result.value
        return out[0]

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if function is np.copyto:
            target, source = args
            target.value = self.apply("where", kwargs["where"], source, target).value
            return None
        return self.apply(function.__name__, *args, **kwargs)
