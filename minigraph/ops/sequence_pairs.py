"""Operators on pairs of sequences, and on images that have a row and a column for each element of a pair."""

from __future__ import annotations

from itertools import pairwise

from minigraph.opdef import op
from minigraph.opdef.gradient_rules import fused
from minigraph.types import DType, TensorType, require, require_floating, require_same_dtype, same_dim


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


@op(
    "var_conv_2d", inputs="X ROW COLUMN W", outputs="Out Col", grad=fused("X", "W", "Col", "ROW", "COLUMN", to="X W"),
    lod={"Out": "new"}, lengths="X ROW COLUMN",
)  # fmt: skip
def var_conv_2d(
    x: TensorType, row: TensorType, column: TensorType, w: TensorType, *,
    InputChannel: int = 1, OutputChannel: int = 1, StrideH: int = 1, StrideW: int = 1, KernelH: int = 1,
    KernelW: int = 1,
) -> tuple[TensorType, TensorType]:  # fmt: skip
    """``Out`` is the convolution of images of different sizes, which lie in X one after the other.

    An image of X, ``[rows, 1]``, has the elements of ``[InputChannel, height, width]``, where the height is the length
    of the sequence of ROW, and the width the length of the sequence of COLUMN. A window begins half a kernel before
    each stride-th pixel; zeros surround the image. W is ``[OutputChannel, InputChannel * KernelH * KernelW]``. An image
    of Out has the elements of ``[OutputChannel, ceil(height / StrideH), ceil(width / StrideW)]``, and Col holds the
    windows.
    """
    require_floating(x)
    require_same_dtype("X and W", x, w)
    _require_images(x)
    sizes = {"InputChannel": InputChannel, "OutputChannel": OutputChannel, "StrideH": StrideH, "StrideW": StrideW}
    for name, size in {**sizes, "KernelH": KernelH, "KernelW": KernelW}.items():
        require(size > 0, f"{name} must be positive, got {size}")
    expected = (OutputChannel, InputChannel * KernelH * KernelW)
    require(w.shape == expected, f"W must have shape {list(expected)}, got {list(w.shape)}")
    return x.with_shape((-1, 1)), x.with_shape((-1, 1))


@op(
    "sequence_topk_avg_pooling", inputs="X ROW COLUMN", outputs="Out pos~",
    grad=fused("X", "ROW", "COLUMN", "pos", to="X"), lod={"Out": "ROW"}, lengths="X ROW COLUMN",
)  # fmt: skip
def sequence_topk_avg_pooling(
    x: TensorType, row: TensorType, column: TensorType, *, topks: list[int], channel_num: int = 1
) -> tuple[TensorType, TensorType]:
    """``Out[r, c * n + i]`` is the sum of the ``topks[i]`` largest elements of row r of channel c, over ``topks[i]``.

    An image of X, ``[rows, 1]``, has the elements of ``[channel_num, height, width]``, where the height is the length
    of the sequence of ROW, and the width that of COLUMN; a row may have fewer elements than ``topks[i]``. Out has a row
    for each row of ROW, and n is the number of `topks`. pos holds the places of the ``topks[-1]`` largest elements in
    their row, and -1 where there are no more.
    """
    require_floating(x)
    _require_images(x)
    require(channel_num > 0, f"channel_num must be positive, got {channel_num}")
    increasing = all(a < b for a, b in pairwise([0, *topks]))
    require(bool(topks) and increasing, f"topks must be positive and increasing, got {list(topks)}")
    return x.with_shape((row.shape[0], channel_num * len(topks))), TensorType(DType.INT32, (-1,))


def _require_images(x: TensorType) -> None:
    require(x.rank == 2 and x.shape[1] in (1, -1), f"X must hold elements of images, [rows, 1], got {x}")
