"""Sequences of different lengths, longest first, and the arrays of their steps.

A rank table, int64[sequences, 2], holds the number and the length of each sequence, longest first; those of one length
come in their order. It has a row for each sequence of one level, and the levels above that one as its lengths.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from minigraph.opdef import op
from minigraph.opdef.gradient_context import GradContext, OpSpec
from minigraph.opdef.gradient_rules import fused
from minigraph.types import DType, TensorType, VarKind, require


def _require_table(table: TensorType) -> None:
    fits = table.dtype is DType.INT64 and table.rank == 2 and table.shape[1] == 2
    require(fits, f"RankTable must be made by lod_rank_table, got {table}")


def _levels_above(levels: Mapping[str, int], attrs: Mapping[str, Any]) -> int:
    return int(attrs.get("level", 0))


@op("lod_rank_table", inputs="X", outputs="Out", grad=None, lod=_levels_above, lengths="X")
def lod_rank_table(x: TensorType, *, level: int = 0) -> TensorType:
    """``Out`` is the rank table of the sequences of one level of X."""
    return TensorType(DType.INT64, (-1, 2))


@op("max_sequence_len", inputs="RankTable", outputs="Out", grad=None)
def max_sequence_len(table: TensorType) -> TensorType:
    """``Out``, int64[1], is the length of the longest sequence."""
    _require_table(table)
    return TensorType(DType.INT64, (1,))


def _to_array(ctx: GradContext) -> Iterator[OpSpec]:
    yield OpSpec("lod_tensor_to_array", _flowing(ctx, ctx.output("Out")), {"Out": ctx.d_input("X")}, {})


def _from_array(ctx: GradContext) -> Iterator[OpSpec]:
    yield OpSpec("array_to_lod_tensor", _flowing(ctx, ctx.input("X")), {"Out": ctx.d_input("X")}, {})


def _flowing(ctx: GradContext, like: list[str]) -> dict[str, list[str]]:
    """The inputs of the reverse operator: the gradient may lack the lengths, which `like` has."""
    return {"X": ctx.d_output("Out"), "RankTable": ctx.input("RankTable"), "Like": like}


def _inner_levels(levels: Mapping[str, int], attrs: Mapping[str, Any]) -> int:
    return max(0, (levels["X"] or levels.get("Like", 0)) - 1 - levels["RankTable"])


@op(
    "lod_tensor_to_array", inputs="X RankTable Like", outputs="Out", grad=_from_array, lod=_inner_levels,
    lengths="X? RankTable? Like?",
)  # fmt: skip
def lod_tensor_to_array(x: TensorType, table: TensorType, like: TensorType | None) -> TensorType:
    """``Out`` is an array with the first element of each sequence, then with the second ones, and so on.

    The sequences are those of the rank table, in its order; an element is a row, or a sequence if X has more levels.
    If X has no lengths, it has those of Like.
    """
    _require_table(table)
    return x.with_shape((-1, *x.shape[1:])).held_as(VarKind.LOD_TENSOR_ARRAY)


def _outer_levels(levels: Mapping[str, int], attrs: Mapping[str, Any]) -> int:
    return levels.get("Like") or levels["RankTable"] + 1 + levels["X"]


@op(
    "array_to_lod_tensor", inputs="X RankTable Like", outputs="Out", grad=_to_array, arrays="X", lod=_outer_levels,
    lengths="X? RankTable? Like?",
)  # fmt: skip
def array_to_lod_tensor(x: TensorType, table: TensorType, like: TensorType | None) -> TensorType:
    """``Out`` has the sequences whose elements stand in an array, as `lod_tensor_to_array` makes it.

    Its lengths are those of Like, if that is given and has some.
    """
    _require_table(table)
    return x.with_shape((-1, *x.shape[1:])).held_as(VarKind.LOD_TENSOR)


def _same_levels(levels: Mapping[str, int], attrs: Mapping[str, Any]) -> int:
    return levels["X"]


@op("shrink_rnn_memory", inputs="X RankTable I", outputs="Out", grad=fused("X", to="X"), lod=_same_levels, lengths="X?")
def shrink_rnn_memory(x: TensorType, table: TensorType, i: TensorType) -> TensorType:
    """``Out`` is the part of X that belongs to sequences with a step I: rows, or sequences if X has lengths."""
    _require_table(table)
    return x.with_shape((-1, *x.shape[1:]))


@op(
    "reorder_lod_tensor_by_rank", inputs="X RankTable", outputs="Out",
    grad=fused("X", "RankTable", to="X"), lod=_same_levels, lengths="X?",
)  # fmt: skip
def reorder_lod_tensor_by_rank(x: TensorType, table: TensorType) -> TensorType:
    """``Out`` has the rows of X, or its sequences if it has lengths, in the order of a rank table."""
    _require_table(table)
    return x
