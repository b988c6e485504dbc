"""Images sampled at places between their elements, and encodings of positions."""

from __future__ import annotations

from typing import Any

from minigraph.opdef import op
from minigraph.opdef.gradient_rules import fused
from minigraph.ops.tensor import require_integers
from minigraph.types import TensorType, require, require_floating, require_same_dtype, same_dim

_NONE: Any = ()


def _theta(_shape: TensorType | None, d_out: TensorType, **_: Any) -> TensorType:
    return d_out.with_shape((d_out.shape[0], 2, 3))


@op(
    "affine_grid", inputs="Theta OutputShape", outputs="Output", lod="Theta",
    grad=fused("OutputShape", to="Theta", infer=_theta, linear=True, lod=False),
)  # fmt: skip
def affine_grid(theta: TensorType, shape: TensorType | None, *, output_shape: list[int] = _NONE) -> TensorType:
    """The places that an affine map takes a regular grid to: ``Output[n, i, j] = Theta[n] @ (x_j, y_i, 1)``.

    Theta is ``[batch, 2, 3]``; x and y go from -1 to 1. Output, ``[batch, height, width, 2]``, is for images of the
    shape OutputShape, a vector of four numbers, or `output_shape`.

    References
    ----------
    M. Jaderberg et al., Spatial transformer networks, NIPS 2015.
    """
    require_floating(theta, "Theta")
    fits = theta.rank == 3 and same_dim(theta.shape[1], 2) and same_dim(theta.shape[2], 3)
    require(fits, f"Theta must have shape [batch, 2, 3], got {list(theta.shape)}")
    if shape is not None:
        require_integers(shape, "OutputShape")
        require(shape.rank == 1 and same_dim(shape.shape[0], 4), f"OutputShape must hold four numbers, got {shape}")
        return theta.with_shape((theta.shape[0], -1, -1, 2))
    require(len(output_shape) == 4, f"output_shape must be four numbers, got {list(output_shape)}")
    require(same_dim(theta.shape[0], output_shape[0]), f"Theta has {theta.shape[0]} maps for {output_shape[0]} images")
    return theta.with_shape((theta.shape[0], *output_shape[2:], 2))


@op("grid_sampler", inputs="X Grid", outputs="Output", lod="X", grad=fused("X", "Grid", lod=False))
def grid_sampler(x: TensorType, grid: TensorType) -> TensorType:
    """Output is the images X at the places (x, y) of Grid, between elements by bilinear interpolation.

    X is ``[batch, channels, height, width]``, Grid ``[batch, rows, columns, 2]`` and Output ``[batch, channels, rows,
    columns]``. -1 and 1 are the middles of the first and the last element; what lies outside is 0.

    References
    ----------
    M. Jaderberg et al., Spatial transformer networks, NIPS 2015.
    """
    require_floating(x)
    require_same_dtype("X and Grid", x, grid)
    require(x.rank == 4, f"X must be [batch, channels, height, width], got {x}")
    fits = grid.rank == 4 and same_dim(grid.shape[3], 2) and same_dim(grid.shape[0], x.shape[0])
    require(fits, f"Grid must have shape [{x.shape[0]}, rows, columns, 2], got {list(grid.shape)}")
    return x.with_shape((max(x.shape[0], grid.shape[0]), x.shape[1], *grid.shape[1:3]))


def _same(d_out: TensorType, **_: Any) -> TensorType:
    return d_out


@op(
    "add_position_encoding", inputs="X", outputs="Out", lod="X", lengths="X?",
    grad=fused(to="X", infer=_same, linear={"beta": 0.0}, lod=False),
)  # fmt: skip
def add_position_encoding(x: TensorType, *, alpha: float = 1.0, beta: float = 1.0) -> TensorType:
    """``Out = alpha * X + beta * encoding``, the sines of the position at several frequencies, then the cosines.

    X is ``[batch, steps, features]``, or ``[rows, features]`` with the lengths of sequences; of half the features
    number k has the angle ``step / 10000 ** (k / (half - 1))``.

    References
    ----------
    A. Vaswani et al., Attention is all you need, NIPS 2017.
    """
    require_floating(x)
    require(x.rank in (2, 3), f"X must be [batch, steps, features] or [rows, features], got {x}")
    require(x.shape[-1] == -1 or x.shape[-1] % 2 == 0, f"the number of features must be even, got {x.shape[-1]}")
    return x
