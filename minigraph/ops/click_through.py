"""Operators of networks that predict clicks: parts of features, features normalized over all data, shuffled rows."""

from __future__ import annotations

from typing import Any

from minigraph.opdef import op
from minigraph.opdef.gradient_rules import fused
from minigraph.types import (
    DType,
    TensorType,
    merge_shapes,
    product,
    require,
    require_floating,
    require_number,
    require_same_dtype,
    same_dim,
)


def _columns(xs: list[TensorType], start_index: int, length: int) -> tuple[TensorType, int]:
    """The common type of matrices, and the number of columns that are taken of each; -1 if that is not known."""
    require(bool(xs), "X is missing")
    require_number(xs[0])
    require_same_dtype("X", *xs)
    shape = xs[0].shape
    for i, x in enumerate(xs):
        require(x.rank == 2, f"X must be matrices, got {x}")
        shape = merge_shapes(shape, x.shape, f"X[0] and X[{i}]")
    width = shape[1]
    if width == -1:
        return xs[0].with_shape(shape), length
    require(-width <= start_index < width, f"start_index must be in [{-width}, {width}), got {start_index}")
    start = start_index % width
    require(start + length <= width, f"{length} columns from {start_index} reach beyond the {width} of X")
    return xs[0].with_shape(shape), width - start if length < 0 else length


@op("partial_concat", inputs="X", outputs="Out", lod="X", grad=fused("X", linear=True))
def partial_concat(xs: list[TensorType], *, start_index: int = 0, length: int = -1) -> TensorType:
    """``Out`` is the columns from `start_index` of each matrix of X, side by side: `length` of them, or all with -1."""
    x, count = _columns(xs, start_index, length)
    return x.with_shape((x.shape[0], -1 if count == -1 else count * len(xs)))


@op("partial_sum", inputs="X", outputs="Out", lod="X", grad=fused("X", linear=True))
def partial_sum(xs: list[TensorType], *, start_index: int = 0, length: int = -1) -> TensorType:
    """``Out`` is the sum of the columns from `start_index` of the matrices of X: `length` of them, or all with -1."""
    x, count = _columns(xs, start_index, length)
    return x.with_shape((x.shape[0], count))


def _same_type(index: TensorType, d_out: TensorType, **attrs: Any) -> TensorType:
    return d_out


@op(
    "shuffle_batch",
    inputs="X Seed",
    outputs="Out ShuffleIdx SeedOut",
    lod={"Out": "X", "SeedOut": "Seed"},
    grad=fused("ShuffleIdx", to="X", infer=_same_type),
)
def shuffle_batch(
    x: TensorType, seed: TensorType, *, startup_seed: int = 0
) -> tuple[TensorType, TensorType, TensorType]:
    """``Out`` has the rows of X in a random order, ``Out[i] = X[ShuffleIdx[i]]``.

    All dimensions of X but the last count rows. Seed, int64[1], decides the order, and SeedOut is the seed of the next
    run.
    """
    require(x.rank >= 2, f"X must have at least 2 dimensions, got {x}")
    require(seed.dtype is DType.INT64 and same_dim(seed.shape[0], 1), f"Seed must be int64[1], got {seed}")
    rows = -1 if -1 in x.shape[:-1] else product(x.shape[:-1])
    return x, TensorType(DType.INT64, (rows,)), seed


@op(
    "filter_by_instag", inputs="Ins Ins_tag Filter_tag", outputs="Out LossWeight IndexMap",
    grad=fused("IndexMap", "LossWeight", "Ins", to="Ins"), lod={"Out": "new"}, lengths="Ins? Ins_tag",
)  # fmt: skip
def filter_by_instag(
    x: TensorType, tags: TensorType, wanted: TensorType, *, is_lod: bool = True, out_val_if_empty: int = 0
) -> tuple[TensorType, TensorType, TensorType]:
    """``Out`` has the samples of Ins with at least one tag of Filter_tag, in order.

    A sample is a row of the matrix Ins, or with `is_lod` a sequence; its tags are a sequence of Ins_tag. LossWeight,
    float32[samples of Out, 1], is 1. Where no sample stays, Out is a row of `out_val_if_empty`, whose weight is 0.
    A row of IndexMap is the first row of a sample in Out, its first row in Ins, and its number of rows.
    """
    require_number(x)
    require(x.rank == 2, f"Ins must be a matrix, got {x}")
    for name, numbers in {"Ins_tag": tags, "Filter_tag": wanted}.items():
        require(numbers.dtype is DType.INT64, f"{name} must be int64, got {numbers}")
    return x.with_shape((-1, x.shape[1])), TensorType(DType.FP32, (-1, 1)), TensorType(DType.INT64, (-1, 3))


@op("cvm", inputs="X CVM", outputs="Y", lod="X", grad=fused("X", "CVM", to="X"), lengths="X?")
def cvm(x: TensorType, shown: TensorType, *, use_cvm: bool = True) -> TensorType:
    """``Y`` is X with ``log(shows + 1)`` and ``log(clicks + 1) - log(shows + 1)`` for the first two columns.

    These columns count shows and clicks. Without `use_cvm` they are left out. Their gradients are the counts of CVM, a
    row for each row of X or for each of its sequences, with which a table of embeddings keeps count.
    """
    require_floating(x)
    require_same_dtype("X and CVM", x, shown)
    require(x.rank == shown.rank == 2, f"X and CVM must be matrices, got {x} and {shown}")
    width = x.shape[1]
    require(width == -1 or width >= 2, f"X must have columns for shows and clicks, got {x}")
    require(same_dim(shown.shape[1], 2), f"CVM must have 2 columns, got {shown}")
    return x if use_cvm or width == -1 else x.with_shape((x.shape[0], width - 2))


@op(
    "data_norm",
    inputs="scale_w bias X BatchSize BatchSum BatchSquareSum",
    outputs="Y Means~ Scales~",
    lod={"Y": "X"},
    grad=fused(
        "scale_w", "X", "Means", "Scales", to="X BatchSize BatchSum BatchSquareSum scale_w bias",
        like={"BatchSize": "Means", "BatchSum": "Means", "BatchSquareSum": "Means", "bias": "scale_w"}, lod=False,
    ),
)  # fmt: skip
def data_norm(
    scale_w: TensorType | None,
    bias: TensorType | None,
    x: TensorType,
    batch_size: TensorType,
    batch_sum: TensorType,
    batch_square_sum: TensorType,
    *,
    epsilon: float = 1e-5,
    slot_dim: int = -1,
    summary_decay_rate: float = 0.9999999,
    enable_scale_and_shift: bool = False,
    data_layout: str = "AnyLayout",
    sync_stats: bool = False,
) -> tuple[TensorType, TensorType, TensorType]:
    """``Y = (X - BatchSum / BatchSize) * sqrt(BatchSize / BatchSquareSum)``, column by column.

    With `enable_scale_and_shift` times scale_w plus bias. With `slot_dim` the columns are slots of as
    many features, the first of which counts shows: a slot that was never shown gives zeros. Means and Scales are the
    two quotients.

    Notes
    -----
    What BatchSize, BatchSum and BatchSquareSum get for gradients are the number of rows, their sum and that of
    ``(X - Means) ** 2 + epsilon``, with which an optimizer keeps count. With `slot_dim` they are means over the rows in
    which the slot was shown. `summary_decay_rate` and `sync_stats` are about counts that fluid keeps on a GPU.
    """
    require_floating(x)
    require(x.rank == 2, f"X must be a matrix, got {x}")
    for slot, given in (("BatchSize", batch_size), ("BatchSum", batch_sum), ("BatchSquareSum", batch_square_sum)):
        _require_columns(slot, given, x)
    width = x.shape[1]
    require(slot_dim <= 0 or width == -1 or width % slot_dim == 0, f"slot_dim={slot_dim} does not divide {x}")
    require(epsilon >= 0, f"epsilon must not be negative, got {epsilon:g}")
    if enable_scale_and_shift:
        for slot, learned in (("scale_w", scale_w), ("bias", bias)):
            require(learned is not None, f"{slot} is missing, which enable_scale_and_shift needs")
            assert learned is not None
            _require_columns(slot, learned, x)
    of_columns = batch_size.with_shape((width if width != -1 else batch_size.shape[0],))
    return x, of_columns, of_columns


def _require_columns(slot: str, given: TensorType, x: TensorType) -> None:
    require_same_dtype(f"X and {slot}", x, given)
    fits = given.rank == 1 and same_dim(given.shape[0], x.shape[1])
    require(fits, f"{slot} must hold a number for each column of {x}, got {given}")
