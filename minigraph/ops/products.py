"""Products of vectors and of whole batches, and the distance between tensors."""

from __future__ import annotations

import math

from minigraph.opdef import op
from minigraph.opdef.gradient_rules import fused
from minigraph.types import (
    TensorType,
    broadcast_shapes,
    merge_shapes,
    normalize_axis,
    require,
    require_floating,
    require_number,
    require_same_dtype,
    same_dim,
)

FIRST_OF_SIZE_3 = 9
"""The attribute ``dim`` of ``cross`` that names no dimension."""


@op("bmm", inputs="X Y", outputs="Out", lod="X", grad=fused("X", "Y", lod=False))
def bmm(x: TensorType, y: TensorType) -> TensorType:
    """``Out[i] = X[i] @ Y[i]``, for two batches of as many matrices."""
    require_same_dtype("X and Y", x, y)
    require_floating(x)
    require(x.rank == y.rank == 3, f"X and Y must be batches of matrices, with 3 dimensions, got {x} and {y}")
    fits = same_dim(x.shape[0], y.shape[0])
    require(fits, f"X holds {x.shape[0]} matrices but Y holds {y.shape[0]}")
    require(same_dim(x.shape[2], y.shape[1]), f"X has {x.shape[2]} columns but Y has {y.shape[1]} rows")
    batch = x.shape[0] if x.shape[0] != -1 else y.shape[0]
    return x.with_shape((batch, x.shape[1], y.shape[2]))


@op("dot", inputs="X Y", outputs="Out", grad=fused("X", "Y"))
def dot(x: TensorType, y: TensorType) -> TensorType:
    """The sum of ``X * Y`` over the last dimension, which stays as 1; X and Y are vectors, or matrices of them."""
    require_same_dtype("X and Y", x, y)
    require_number(x)
    require(1 <= x.rank <= 2, f"X must be a vector or a matrix, got {x}")
    return x.with_shape((*merge_shapes(x.shape, y.shape, "X and Y")[:-1], 1))


def cross_dim(shape: tuple[int, ...], dim: int) -> int:
    """The dimension along which ``cross`` takes vectors; -1 where only the dimensions at run time tell."""
    if dim != FIRST_OF_SIZE_3:
        return normalize_axis(dim, len(shape), "dim")
    places = [i for i, size in enumerate(shape) if size in (3, -1)]
    require(bool(places), f"no dimension of X {list(shape)} has size 3", hint="Give dim.")
    return places[0] if shape[places[0]] == 3 else -1


@op("cross", inputs="X Y", outputs="Out", lod="X", grad=fused("X", "Y", lod=False))
def cross(x: TensorType, y: TensorType, *, dim: int = FIRST_OF_SIZE_3) -> TensorType:
    """The cross products of vectors of size 3 along dimension `dim`; 9, the default, is the first one of that size."""
    require_same_dtype("X and Y", x, y)
    require_number(x)
    out = x.with_shape(merge_shapes(x.shape, y.shape, "X and Y"))
    at = cross_dim(out.shape, dim)
    require(at == -1 or same_dim(out.shape[at], 3), f"dimension {at} of X {list(x.shape)} must have size 3")
    return out


@op("kron", inputs="X Y", outputs="Out", grad=fused("X", "Y", lod=False))
def kron(x: TensorType, y: TensorType) -> TensorType:
    """Kronecker product: ``Out[i * m + j] = X[i] * Y[j]`` in each dimension, m being that of Y.

    The shape that has fewer dimensions gets ones in front.
    """
    require_same_dtype("X and Y", x, y)
    require_number(x)
    rank = max(x.rank, y.rank)
    sides = ((1,) * (rank - each.rank) + each.shape for each in (x, y))
    return x.with_shape(-1 if -1 in pair and 0 not in pair else math.prod(pair) for pair in zip(*sides, strict=True))


@op("addmm", inputs="Input X Y", outputs="Out", lod="Input", grad=fused("Input", "X", "Y"))
def addmm(input: TensorType, x: TensorType, y: TensorType, *, Alpha: float = 1.0, Beta: float = 1.0) -> TensorType:
    """``Out = Beta * Input + Alpha * X @ Y``; dimensions of Input that are 1 are repeated."""
    require_same_dtype("Input, X and Y", input, x, y)
    require_floating(x)
    ranks = (input.rank, x.rank, y.rank)
    require(ranks == (2, 2, 2), f"Input, X and Y must be matrices, got {input}, {x} and {y}")
    require(same_dim(x.shape[1], y.shape[0]), f"X has {x.shape[1]} columns but Y has {y.shape[0]} rows")
    out = (x.shape[0], y.shape[1])
    fits = all(dim == 1 or same_dim(dim, size) for dim, size in zip(input.shape, out, strict=True))
    require(fits, f"Input must have the shape {list(out)} of the product, or 1 in its place, got {input}")
    return x.with_shape(out)


@op("dist", inputs="X Y", outputs="Out", grad=fused("X", "Y", "Out", lod=False))
def dist(x: TensorType, y: TensorType, *, p: float = 2.0) -> TensorType:
    """The p-norm of ``X - Y``, which broadcast as in NumPy: ``sum(|X - Y| ** p) ** (1 / p)``, float[1].

    For p = 0 it is the number of elements that differ, for infinity the largest difference and for minus infinity the
    smallest. The gradient is 0 where X and Y are equal; of several largest (or smallest) differences each gets it.
    """
    require_same_dtype("X and Y", x, y)
    require_floating(x)
    shape = broadcast_shapes(x.shape, y.shape)
    require(0 not in shape or p != -math.inf, "there is no smallest of no differences")
    require(not math.isnan(p), "p must be a number, got nan")
    return x.with_shape((1,))


LEAST_SQUARE = 1e-8
"""Least sum of squares in ``cos_sim``."""


@op(
    "cos_sim", inputs="X Y", outputs="Out XNorm~ YNorm~", lod="X",
    grad=fused("X", "Y", "Out", "XNorm", "YNorm", d_out="Out", lod=False)
)  # fmt: skip
def cos_sim(x: TensorType, y: TensorType) -> tuple[TensorType, TensorType, TensorType]:
    """Cosine of the angle between each of X and its counterpart in Y: ``sum(X * Y) / (XNorm * YNorm)``.

    The first dimension counts vectors, all others their elements; Y may be one vector for all of X. XNorm and YNorm are
    L2 norms, at least 1e-4.
    """
    require_same_dtype("X and Y", x, y)
    require_floating(x)
    require(x.rank == y.rank and x.rank > 1, f"X and Y must have as many dimensions, at least 2, got {x} and {y}")
    fits = all(same_dim(a, b) for a, b in zip(x.shape[1:], y.shape[1:], strict=True))
    require(fits, f"the vectors of X and Y must have one shape, got {x} and {y}")
    batch, other = x.shape[0], y.shape[0]
    require(
        other == 1 or same_dim(batch, other), f"X holds {batch} vectors but Y holds {other}", hint="Give as many, or 1."
    )
    return x.with_shape((batch, 1)), x.with_shape((batch, 1)), y.with_shape((other, 1))
