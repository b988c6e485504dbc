"""Sequences of different lengths: softmax, and repeating, cutting, joining, reordering and padding them.

A sequence is a run of rows. What is said of sequences holds for those of the last level of lengths, which divides the
rows, unless the definition says otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from minigraph.opdef import op
from minigraph.opdef.gradient_context import GradContext, OpSpec
from minigraph.opdef.gradient_rules import fused
from minigraph.types import (
    DType,
    TensorType,
    product,
    require,
    require_floating,
    require_number,
    require_same_dtype,
    same_dim,
    same_shape,
)


def _of_unknown_length(x: TensorType) -> TensorType:
    """`x` with as many rows as only a run knows."""
    return x.with_shape((-1, *x.shape[1:]))


def _require_integer(x: TensorType, slot: str) -> None:
    require(x.dtype in (DType.INT32, DType.INT64), f"{slot} must be int32 or int64, got {x}")


@op(
    "sequence_softmax", inputs="X", outputs="Out", grad=fused("X", "Out", to="X"), lod="X", lengths="X",
    backend_attrs={"use_cudnn": False, "data_format": "AnyLayout"},
)  # fmt: skip
def sequence_softmax(x: TensorType) -> TensorType:
    """``Out`` is the softmax of each sequence of numbers: X is a vector or has one column."""
    require_floating(x)
    fits = product(x.shape[1:]) in (1, -1)
    require(fits, f"X must hold one number for each row, got {x}", "Reshape it to [-1, 1].")
    return x


def _levels_of_expanded(levels: Mapping[str, int], attrs: Mapping[str, Any]) -> int:
    return 1 if levels["X"] else 0


@op(
    "sequence_expand", inputs="X Y", outputs="Out", grad=fused("X", "Y", to="X"), lod=_levels_of_expanded,
    lengths="X? Y",
)  # fmt: skip
def sequence_expand(x: TensorType, y: TensorType, *, ref_level: int = -1) -> TensorType:
    """``Out`` repeats each sequence of X, or each row if X has no lengths, as often as a sequence of Y is long.

    `ref_level` is the level of Y that says how often, -1 the last one.
    """
    return _of_unknown_length(x)


@op("sequence_expand_as", inputs="X Y", outputs="Out", grad=fused("X", "Y", to="X"), lod="Y", lengths="Y")
def sequence_expand_as(x: TensorType, y: TensorType) -> TensorType:
    """``Out`` repeats each row of X as often as the sequence of Y with its number has rows."""
    return _of_unknown_length(x)


@op("sequence_concat", inputs="X", outputs="Out", grad=fused("X"), lod="new", lengths="X")
def sequence_concat(x: list[TensorType]) -> TensorType:
    """``Out`` joins the first sequences of all X to one, then the second ones, and so on."""
    require_same_dtype("X", *x)
    for other in x[1:]:
        require(same_shape(x[0].shape[1:], other.shape[1:]), f"rows of X differ in shape: {x[0]} and {other}")
    return _of_unknown_length(x[0])


@op(
    "sequence_slice", inputs="X Offset Length", outputs="Out", grad=fused("X", "Offset", "Length", to="X"), lod="new",
    lengths="X",
)  # fmt: skip
def sequence_slice(x: TensorType, offset: TensorType, length: TensorType) -> TensorType:
    """``Out`` holds a part of each sequence: from its row Offset, int[sequences, 1], as many as Length says."""
    _require_integer(offset, "Offset")
    _require_integer(length, "Length")
    return _of_unknown_length(x)


def _reversed_again(ctx: GradContext) -> Iterator[OpSpec]:
    inputs = {"X": ctx.d_output("Y"), "Like": ctx.input("Like") or ctx.input("X")}
    yield OpSpec("sequence_reverse", inputs, {"Y": ctx.d_input("X")}, {})


@op("sequence_reverse", inputs="X Like", outputs="Y", grad=_reversed_again, lod="X Like", lengths="X? Like?")
def sequence_reverse(x: TensorType, like: TensorType | None) -> TensorType:
    """``Y`` has the rows of each sequence in reverse order; the sequences are those of X, or else those of Like."""
    return x


@op("sequence_reshape", inputs="X", outputs="Out", grad=fused("X"), lod="new", lengths="X")
def sequence_reshape(x: TensorType, *, new_dim: int) -> TensorType:
    """``Out`` has the elements of each sequence in rows of `new_dim`, which must divide their number."""
    require(x.rank == 2, f"X must be a matrix, got {x}")
    require(new_dim > 0, f"new_dim must be positive, got {new_dim}")
    return x.with_shape((-1, new_dim))


@op(
    "sequence_pad", inputs="X PadValue", outputs="Out Length", grad=fused("X", to="X"), lod="", lengths="X",
)  # fmt: skip
def sequence_pad(x: TensorType, pad_value: TensorType, *, padded_length: int = -1) -> tuple[TensorType, TensorType]:
    """``Out``, ``[sequences, padded_length, ...]``, has each sequence with PadValue after it; Length, int64, how long.

    With `padded_length` -1 it is that of the longest sequence. PadValue is one number, or of the shape of a row.
    """
    require_same_dtype("X and PadValue", x, pad_value)
    require(padded_length == -1 or padded_length > 0, f"padded_length must be positive or -1, got {padded_length}")
    fits = product(pad_value.shape) == 1 or same_shape(pad_value.shape, x.shape[1:])
    require(fits, f"PadValue must be one number or of the shape of a row, {list(x.shape[1:])}, got {pad_value}")
    return x.with_shape((-1, padded_length, *x.shape[1:])), TensorType(DType.INT64, (-1,))


@op("sequence_unpad", inputs="X Length", outputs="Out", grad=fused("X", "Length", to="X"), lod="new")
def sequence_unpad(x: TensorType, length: TensorType) -> TensorType:
    """``Out`` has of each row of X, ``[sequences, padded_length, ...]``, as many entries as Length, int64, says."""
    require(x.rank >= 2, f"X must be [sequences, padded_length, ...], got {x}")
    _require_integer(length, "Length")
    return x.with_shape((-1, *(x.shape[2:] or (1,))))


@op("sequence_enumerate", inputs="X", outputs="Out", grad=None, lod="X", lengths="X")
def sequence_enumerate(x: TensorType, *, win_size: int, pad_value: int = 0) -> TensorType:
    """``Out`` has for each number of X those of a window that begins with it; `pad_value` beyond the sequence."""
    _require_integer(x, "X")
    require(x.rank == 2 and same_dim(x.shape[1], 1), f"X must have one column, got {x}")
    require(win_size >= 2, f"win_size must be at least 2, got {win_size}")
    return x.with_shape((x.shape[0], win_size))


@op("sequence_erase", inputs="X", outputs="Out", grad=None, lod=lambda levels, attrs: levels["X"], lengths="X")
def sequence_erase(x: TensorType, *, tokens: list[int]) -> TensorType:
    """``Out`` is X, one number for each row, without the numbers in `tokens`."""
    _require_integer(x, "X")
    require(product(x.shape[1:]) in (1, -1), f"X must hold one number for each row, got {x}")
    return _of_unknown_length(x)


@op(
    "sequence_scatter", inputs="X Ids Updates", outputs="Out", lengths="Ids",
    grad=fused("Ids", "Updates", to="X Updates", like={"X": "Out@GRAD"}),
)  # fmt: skip
def sequence_scatter(x: TensorType, ids: TensorType, updates: TensorType) -> TensorType:
    """``Out`` is X with the sequence of Updates that has the number of a row added to it, where Ids says."""
    require_number(x)
    require(x.rank == 2, f"X must be a matrix, got {x}")
    _require_integer(ids, "Ids")
    require_same_dtype("X and Updates", x, updates)
    return x


def _levels_of_reset(levels: Mapping[str, int], attrs: Mapping[str, Any]) -> int:
    given = levels.get("Y") or 1
    return given + (levels["X"] if attrs["append"] and not levels.get("Y") else 0)


def _same(x: TensorType, d_out: TensorType, **attrs: Any) -> TensorType:
    return x


@op("lod_reset", inputs="X Y", outputs="Out", grad=fused("X", to="X"), lod=_levels_of_reset, lengths="X? Y?")
def lod_reset(
    x: TensorType,
    y: TensorType | None,
    *,
    target_lod: list[int] = (),  # type: ignore[assignment]
    append: bool = False,
) -> TensorType:
    """``Out`` is X with other lengths: those of Y; or the offsets that Y, int32, holds, or else `target_lod`.

    With `append` these divide the rows further, below the levels of X.
    """
    if y is None:
        require(len(target_lod) > 1, f"target_lod must have at least two offsets, got {list(target_lod)}")
    return x


def _levels_of_x(levels: Mapping[str, int], attrs: Mapping[str, Any]) -> int:
    return levels["X"]


@op("shard_sequences", inputs="X", outputs="Out", grad=None, lod=_levels_of_x, lengths="X?")
def shard_sequences(x: TensorType, *, shard: int, shards: int) -> TensorType:
    """``Out`` is part number `shard` of X, which has `shards` parts of as many sequences of the outermost level.

    Without lengths parts have as many rows. `minigraph.passes.ShardBatch` writes it; fluid 1.8 has no such operator.
    """
    require(0 <= shard < shards, f"shard must be at least 0 and below {shards}, got {shard}")
    return _of_unknown_length(x)


@op("join_sequences", inputs="X Y", outputs="Out", grad=None, lod=_levels_of_x, lengths="X? Y?")
def join_sequences(x: TensorType, y: TensorType) -> TensorType:
    """``Out`` is the sequences of X and then those of Y; of parts that ``shard_sequences`` makes, their whole."""
    require_same_dtype("X and Y", x, y)
    return _of_unknown_length(x)


@op("join_offsets", inputs="X", outputs="Out", grad=None)
def join_offsets(xs: list[TensorType]) -> TensorType:
    """``Out`` is the offsets of the sequences of tensors that are joined along their rows; X are those of each."""
    return xs[0].with_shape((-1,))


@op("split_offsets", inputs="X Mask", outputs="OutTrue* OutFalse*", grad=None)
def split_offsets(levels: list[TensorType], mask: TensorType) -> tuple[list[TensorType], list[TensorType]]:
    """``OutTrue`` is the levels of lengths of the sequences that Mask chooses, OutFalse those of the others."""
    return levels, levels
