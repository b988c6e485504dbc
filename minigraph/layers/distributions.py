"""Probability distributions whose functions write programs: samples, entropies, densities, divergences."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from minigraph.errors import ProgramError
from minigraph.ir import Variable
from minigraph.layers.activation import exp, log
from minigraph.layers.compare import less_than
from minigraph.layers.diagonal import diag
from minigraph.layers.elementwise import elementwise_add, elementwise_mul, elementwise_pow
from minigraph.layers.nn import matmul
from minigraph.layers.random import gaussian_random, uniform_random
from minigraph.layers.reduce import reduce_max, reduce_prod, reduce_sum
from minigraph.layers.tensor import assign, cast, ones
from minigraph.layers.tensor import shape as sizes_of
from minigraph.support.public import public

__all__ = ["Categorical", "MultivariateNormalDiag", "Normal", "Uniform"]

Parameter = float | Sequence[Any] | np.ndarray[Any, Any] | Variable


def _as_variable(value: Parameter) -> Variable:
    if isinstance(value, Variable):
        return value
    # float32, as in fluid, whatever the array is.
    return assign(np.atleast_1d(np.asarray(value, "float32")))


def _scaled(drawn: Variable, scale: Variable, offset: Variable) -> Variable:
    # The operators `*` and `+` would align a batch of unknown size with the first dimension, not the last ones.
    return elementwise_add(elementwise_mul(drawn, scale), offset)


@public
class _LocatedDistribution:
    """One with two parameters, which broadcast against each other to the shape of the batch."""

    def __init__(self, first: Parameter, second: Parameter) -> None:
        self.is_scalar = all(isinstance(value, int | float) for value in (first, second))
        self._parameters = _as_variable(first), _as_variable(second)

    def _shape_of_samples(self, shape: Sequence[int]) -> list[int | Variable]:
        """The shape of the samples; a dimension of the batch that only a run knows is a variable."""
        first, second = self._parameters
        if self.is_scalar:
            return [*shape]
        both = first + second
        sizes = sizes_of(both) if -1 in both.shape else None
        return [*shape, *(size if sizes is None or size != -1 else sizes[i] for i, size in enumerate(both.shape))]


@public
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
        self.low, self.high = self._parameters

    def sample(self, shape: Sequence[int], seed: int = 0) -> Variable:
        """Random numbers of shape `shape` followed by that of the parameters; just `shape` if those are two numbers."""
        drawn = uniform_random(self._shape_of_samples(shape), min=0.0, max=1.0, seed=seed)
        return _scaled(drawn, self.high - self.low, self.low)

    def log_prob(self, value: Variable) -> Variable:
        """The logarithm of the density at `value`; -inf outside."""
        # The logarithm of the product is 0 inside and -inf outside.
        above = cast(less_than(self.low, value), value.dtype)
        below = cast(less_than(value, self.high), value.dtype)
        return log(above * below) - log(self.high - self.low)

    def entropy(self) -> Variable:
        """``log(high - low)``."""
        return log(self.high - self.low)


@public
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
        self.loc, self.scale = self._parameters

    def sample(self, shape: Sequence[int], seed: int = 0) -> Variable:
        """Random numbers of shape `shape` followed by that of the parameters; just `shape` if those are two numbers."""
        return _scaled(gaussian_random(self._shape_of_samples(shape), seed=seed), self.scale, self.loc)

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


@public
class Categorical:
    """One of several outcomes, with probabilities in proportion to ``exp(logits)``.

    Parameters
    ----------
    logits : sequence of float, array or Variable, float[..., outcomes]

    Examples
    --------
    >>> import minigraph as fluid
    >>> with fluid.dygraph.guard():
    ...     fluid.layers.Categorical([0.0, 0.0]).entropy().numpy().round(4)
    array([0.6931], dtype=float32)
    """

    def __init__(self, logits: Parameter) -> None:
        self.logits = _as_variable(logits)

    def _shares(self) -> tuple[Variable, Variable, Variable]:
        """Logits with 0 as the largest, their exponentials, and the sum of these."""
        # So that no exponential overflows.
        logits = self.logits - reduce_max(self.logits, dim=-1, keep_dim=True)
        exponentials = exp(logits)
        return logits, exponentials, reduce_sum(exponentials, dim=-1, keep_dim=True)

    def entropy(self) -> Variable:
        """``-sum(p * log(p))``, float[..., 1]."""
        logits, exponentials, total = self._shares()
        return -1.0 * reduce_sum(exponentials / total * (logits - log(total)), dim=-1, keep_dim=True)

    def kl_divergence(self, other: Categorical) -> Variable:
        """The Kullback-Leibler divergence of this distribution from `other`, float[..., 1].

        Raises
        ------
        WrongTypeError
            If `other` is no `Categorical`.
        """
        logits, exponentials, total = self._shares()
        other_logits, _, other_total = other._shares()
        difference = logits - log(total) - other_logits + log(other_total)
        return reduce_sum(exponentials / total * difference, dim=-1, keep_dim=True)


@public
class MultivariateNormalDiag:
    """Normal in several dimensions that do not depend on each other.

    Parameters
    ----------
    loc : sequence of float, array or Variable, float[k]
        The mean.
    scale : array or Variable, float[k, k]
        The covariance matrix, 0 but for its diagonal.

    Examples
    --------
    >>> import minigraph as fluid
    >>> with fluid.dygraph.guard():
    ...     fluid.layers.MultivariateNormalDiag([0.0, 0.0], np.eye(2)).entropy().numpy().round(4)
    array([2.8379], dtype=float32)
    """

    def __init__(self, loc: Parameter, scale: Parameter) -> None:
        self.loc, self.scale = _as_variable(loc), _as_variable(scale)
        shape = self.scale.shape or ()
        if len(shape) != 2 or shape[0] != shape[1] or -1 in shape:
            raise ProgramError(f"MultivariateNormalDiag: scale must be a square matrix of known size, got {self.scale}")
        self._size = shape[0]

    def _ones(self) -> tuple[Variable, Variable]:
        """Ones everywhere, and on the diagonal."""
        everywhere = ones([self._size, self._size], self.loc.dtype)
        return everywhere, diag(ones([self._size], self.loc.dtype))

    def _determinant(self) -> Variable:
        everywhere, on_diagonal = self._ones()
        return reduce_prod(self.scale + everywhere - on_diagonal)

    def _inverse(self) -> Variable:
        """The matrix with 1 over each element of its diagonal; the other elements stay 0."""
        everywhere, on_diagonal = self._ones()
        return elementwise_pow(self.scale, everywhere - 2.0 * on_diagonal)

    def entropy(self) -> Variable:
        """``(k * (1 + log(2 * pi)) + log(det(scale))) / 2``."""
        return 0.5 * (self._size * (1.0 + math.log(2 * math.pi)) + log(self._determinant()))

    def kl_divergence(self, other: MultivariateNormalDiag) -> Variable:
        """The Kullback-Leibler divergence of this distribution from `other`.

        Raises
        ------
        WrongTypeError
            If `other` is no `MultivariateNormalDiag`.
        """
        inverse, distance = other._inverse(), other.loc - self.loc
        trace = reduce_sum(inverse * self.scale)
        apart = matmul(matmul(distance, inverse), distance)
        ratio = log(other._determinant()) - log(self._determinant())
        return 0.5 * (trace + apart - float(self._size) + ratio)
