"""Activation functions with thresholds, and others made of the common ones."""

from __future__ import annotations

from typing import Any

from minigraph.ir import Variable
from minigraph.layer_helper import LayerHelper, check_floating, layer


def _activation(op_type: str, x: Variable, name: str | None = None, /, **attrs: Any) -> Variable:
    """The operator `op_type` on `x`; attributes that are None keep their defaults."""
    given = {key: value for key, value in attrs.items() if value is not None}
    return LayerHelper(op_type, name).unary(op_type, {"X": check_floating(x, f"{op_type}: x")}, **given)


@layer
def brelu(x: Variable, t_min: float = 0.0, t_max: float = 24.0, name: str | None = None) -> Variable:
    """``min(max(x, t_min), t_max)``."""
    return _activation("brelu", x, name, t_min=t_min, t_max=t_max)


@layer
def soft_relu(x: Variable, threshold: float = 40.0, name: str | None = None) -> Variable:
    """``log(1 + exp(min(max(x, -threshold), threshold)))``."""
    return _activation("soft_relu", x, name, threshold=threshold)


@layer
def thresholded_relu(x: Variable, threshold: float | None = None) -> Variable:
    """`x` where it is above `threshold` (None: 1), else 0."""
    return _activation("thresholded_relu", x, threshold=threshold)


@layer
def hard_shrink(x: Variable, threshold: float | None = None) -> Variable:
    """`x` where its magnitude is above `threshold` (None: 0.5), else 0."""
    return _activation("hard_shrink", x, threshold=threshold)


@layer
def softshrink(x: Variable, alpha: float | None = None) -> Variable:
    """`x` moved toward 0 by `alpha` (None: 0.5), and 0 where it is no farther from 0 than that."""
    return _activation("softshrink", x, None, **{"lambda": alpha})


@layer
def tanh_shrink(x: Variable, name: str | None = None) -> Variable:
    """``x - tanh(x)``."""
    return _activation("tanh_shrink", x, name)


@layer
def stanh(x: Variable, scale_a: float = 0.67, scale_b: float = 1.7159, name: str | None = None) -> Variable:
    """``scale_b * tanh(scale_a * x)``."""
    return _activation("stanh", x, name, scale_a=scale_a, scale_b=scale_b)


@layer
def selu(x: Variable, scale: float | None = None, alpha: float | None = None, name: str | None = None) -> Variable:
    """``scale * x`` where `x` is positive, else ``scale * alpha * (exp(x) - 1)``.

    With the defaults activations keep mean 0 and variance 1 through a deep network.

    References
    ----------
    G. Klambauer, T. Unterthiner, A. Mayr and S. Hochreiter, Self-normalizing neural networks, NIPS 2017.
    """
    return _activation("selu", x, name, scale=scale, alpha=alpha)


@layer
def mish(x: Variable, threshold: float = 20, name: str | None = None) -> Variable:
    """``x * tanh(log(1 + exp(x)))``; the logarithm is `x` above `threshold` and ``exp(x)`` below ``-threshold``."""
    return _activation("mish", x, name, threshold=float(threshold))


@layer
def maxout(x: Variable, groups: int, name: str | None = None, axis: int = 1) -> Variable:
    """The largest of each `groups` channels that follow one another along `axis`."""
    return _activation("maxout", x, name, groups=groups, axis=axis)
