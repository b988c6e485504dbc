"""Probability distributions whose functions write programs: samples, entropies, densities, divergences."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from minigraph.errors import ProgramError, caller_site
from minigraph.ir import Variable
from minigraph.layers.activation import log
from minigraph.layers.compare import less_than
from minigraph.layers.random import gaussian_random, uniform_random
from minigraph.layers.tensor import assign, cast

Parameter = float | Sequence[float] | np.ndarray[Any, Any] | Variable


def _as_variable(value: Parameter) -> Variable:
    if isinstance(value, Variable):
        return value
    return assign(np.atleast_1d(np.asarray(value, "float32")))


class _LocatedDistribution:
    """One with two parameters, which broadcast against each other to the shape of the batch."""

    def __init__(self, first: Parameter, second: Parameter) -> None:
        self.is_scalar = all(isinstance(value, int | float) for value in (first, second))
        self.first, self.second = _as_variable(first), _as_variable(second)

    def _shape_of_samples(self, shape: Sequence[int]) -> list[int]:
        batch = (self.first + self.second).shape or ()
        if -1 in batch:
            raise ProgramError(
                f"the shape of the samples is not known: parameters {self.first} and {self.second}", site=caller_site(),
                hint="Give parameters whose shapes are known.",
            )  # fmt: skip
        return [*shape, *(() if self.is_scalar else batch)]


class Uniform(_LocatedDistribution):
    """Uniform on [`low`, `high`).

    Parameters
    ----------
    low, high : float, sequence of float, array or Variable
        Several numbers make several distributions.

    Examples
    --------
    >>> import minigraph as fluid
    >>> with fluid.dygraph.guard():
    ...     fluid.layers.Uniform(1.0, 4.0).entropy().numpy().round(4)
    array([1.0986], dtype=float32)
    """

    def __init__(self, low: Parameter, high: Parameter) -> None:
        super().__init__(low, high)
        self.low, self.high = self.first, self.second

    def sample(self, shape: Sequence[int], seed: int = 0) -> Variable:
        """Random numbers of shape `shape` followed by that of the parameters; just `shape` if those are two numbers."""
        drawn = uniform_random(self._shape_of_samples(shape), min=0.0, max=1.0, seed=seed)
        return drawn * (self.high - self.low) + self.low

    def log_prob(self, value: Variable) -> Variable:
        """The logarithm of the density at `value`; -inf outside."""
        above = cast(less_than(self.low, value), value.dtype)
        below = cast(less_than(value, self.high), value.dtype)
        return log(above * below) - log(self.high - self.low)

    def entropy(self) -> Variable:
        """``log(high - low)``."""
        return log(self.high - self.low)


class Normal(_LocatedDistribution):
    """Normal with mean `loc` and standard deviation `scale`.

    Parameters
    ----------
    loc, scale : float, sequence of float, array or Variable
        Several numbers make several distributions.

    Examples
    --------
    >>> import minigraph as fluid
    >>> with fluid.dygraph.guard():
    ...     fluid.layers.Normal(0.0, 1.0).kl_divergence(fluid.layers.Normal(1.0, 2.0)).numpy().round(4)
    array([0.4431], dtype=float32)
    """

    def __init__(self, loc: Parameter, scale: Parameter) -> None:
        super().__init__(loc, scale)
        self.loc, self.scale = self.first, self.second

    def sample(self, shape: Sequence[int], seed: int = 0) -> Variable:
        """Random numbers of shape `shape` followed by that of the parameters; just `shape` if those are two numbers."""
        return gaussian_random(self._shape_of_samples(shape), seed=seed) * self.scale + self.loc

    def entropy(self) -> Variable:
        """``log(scale) + (1 + log(2 * pi)) / 2``."""
        return log(self.scale) + (0.5 + 0.5 * math.log(2 * math.pi))

    def log_prob(self, value: Variable) -> Variable:
        """The logarithm of the density at `value`."""
        variance = self.scale * self.scale
        distance = value - self.loc
        return -1.0 * (distance * distance) / (2.0 * variance) - log(self.scale) - math.log(math.sqrt(2 * math.pi))

    def kl_divergence(self, other: Normal) -> Variable:
        """The Kullback-Leibler divergence of this distribution from `other`."""
        ratio = self.scale / other.scale
        distance = (self.loc - other.loc) / other.scale
        ratio, distance = ratio * ratio, distance * distance
        return 0.5 * (ratio + distance - 1.0 - log(ratio))
