"""Operators on pairs of sequences."""

from __future__ import annotations

from minigraph.opdef import op
from minigraph.opdef.gradient_rules import fused
from minigraph.types import TensorType, require, require_floating, require_same_dtype, same_dim


@op(
    "match_matrix_tensor", inputs="X Y W", outputs="Out Tmp", grad=fused("X", "Y", "W", "Tmp", to="X Y W"),
    lod={"Out": "new"}, lengths="X Y",
)  # fmt: skip
def match_matrix_tensor(
    x: TensorType, y: TensorType, w: TensorType, *, dim_t: int = 1
) -> tuple[TensorType, TensorType]:
    """``Out`` holds ``A @ W[:, t] @ B.T`` for each t and each pair of sequences A of X and B of Y, one after the other.

    X is ``[rows, m]``, Y ``[rows, n]`` and W ``[m, dim_t, n]``. A sequence of Out, ``[..., 1]``, has the elements of
    the matrices ``[length of A, length of B]`` of a pair, t after t. Tmp, ``[rows of X * dim_t * n, 1]``, is ``X @ W``.
    """
    require_floating(x)
    require_same_dtype("X, Y and W", x, y, w)
    require(x.rank == y.rank == 2 and w.rank == 3, f"X and Y must be matrices and W [m, t, n], got {x}, {y} and {w}")
    expected = [x.shape[1], dim_t, y.shape[1]]
    fits = all(same_dim(size, other) for size, other in zip(w.shape, expected, strict=True))
    require(fits, f"W must have shape {expected}, got {list(w.shape)}")
    return x.with_shape((-1, 1)), x.with_shape((-1, 1))
