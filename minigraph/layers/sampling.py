"""Layers that sample images at places between their elements, and that encode positions."""

from __future__ import annotations

from collections.abc import Sequence

from minigraph.errors import WrongTypeError
from minigraph.ir import Variable
from minigraph.layer_helper import check_floating, emit, input_or_attr, layer

__all__ = ["add_position_encoding", "affine_grid", "grid_sampler"]


@layer
def affine_grid(theta: Variable, out_shape: Sequence[int] | Variable, name: str | None = None) -> Variable:
    """The places of an image at which an affine map of a regular grid samples it, for `grid_sampler`.

    Parameters
    ----------
    theta : Variable, float[batch, 2, 3]
        A map for each image.
    out_shape : sequence of int, or Variable, int32[4]
        The shape of the result of `grid_sampler`, [batch, channels, height, width].

    Returns
    -------
    Variable, float[batch, height, width, 2]

    References
    ----------
    M. Jaderberg et al., Spatial transformer networks, NIPS 2015.

    Examples
    --------
    >>> import minigraph as fluid, numpy as np
    >>> with fluid.dygraph.guard():
    ...     same = fluid.dygraph.to_variable(np.array([[[1, 0, 0], [0, 1, 0]]], "float32"))
    ...     fluid.layers.affine_grid(same, [1, 1, 1, 3]).numpy()[0, 0]
    array([[-1., -1.],
           [ 0., -1.],
           [ 1., -1.]], dtype=float32)
    """
    check_floating(theta, "affine_grid: theta")
    if not isinstance(out_shape, Variable | list | tuple):
        raise WrongTypeError(f"affine_grid: out_shape must be a list or a Variable, got {out_shape!r:.60}")
    return emit("affine_grid", name, Theta=theta, **input_or_attr(out_shape, "OutputShape", "output_shape"))


@layer
def grid_sampler(x: Variable, grid: Variable, name: str | None = None) -> Variable:
    """Images at the places of a grid, between their elements by bilinear interpolation.

    Parameters
    ----------
    x : Variable, float[batch, channels, height, width]
    grid : Variable, float[batch, rows, columns, 2]
        Places (x, y) from -1, the middle of the first element, to 1, the middle of the last; what lies outside is 0.

    Returns
    -------
    Variable, float[batch, channels, rows, columns]
    """
    x, grid = check_floating(x, "grid_sampler: x"), check_floating(grid, "grid_sampler: grid")
    return emit("grid_sampler", name, X=x, Grid=grid)


@layer
def add_position_encoding(input: Variable, alpha: float, beta: float, name: str | None = None) -> Variable:
    """``alpha * input + beta * encoding``, sines and cosines of the positions of steps.

    Parameters
    ----------
    input : Variable, float[batch, steps, features], or float[rows, features] with lengths
        The number of features is even.

    References
    ----------
    A. Vaswani et al., Attention is all you need, NIPS 2017.
    """
    x = check_floating(input, "add_position_encoding: input")
    return emit("add_position_encoding", name, X=x, alpha=alpha, beta=beta)
