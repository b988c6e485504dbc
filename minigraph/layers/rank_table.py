"""Sequences of different lengths, longest first, and the arrays of their steps: what `DynamicRNN` is made of."""

from __future__ import annotations

from minigraph.ir import Variable, VarKind
from minigraph.layer_helper import LayerHelper, check_variable, emit, layer
from minigraph.unique_name import generate

__all__ = [
    "array_to_lod_tensor", "lod_rank_table", "lod_tensor_to_array", "max_sequence_len", "reorder_lod_tensor_by_rank",
    "shrink_memory",
]  # fmt: skip


@layer
def lod_rank_table(x: Variable, level: int = 0) -> Variable:
    """The numbers and lengths of the sequences of one level of `x`, int64[sequences, 2], longest first."""
    helper = LayerHelper("lod_rank_table")
    table = helper.block.create_var(name=generate("lod_rank_table"), dtype="int64", stop_gradient=True)
    helper.append("lod_rank_table", {"X": check_variable(x, "lod_rank_table: x")}, {"Out": table}, {"level": level})
    return table


@layer
def max_sequence_len(rank_table: Variable) -> Variable:
    """The length of the longest sequence of a rank table, int64[1]."""
    helper = LayerHelper("max_seqence_len")  # fluid's spelling
    return helper.emit("max_sequence_len", RankTable=check_variable(rank_table, "max_sequence_len: rank_table"))


@layer
def lod_tensor_to_array(x: Variable, table: Variable) -> Variable:
    """An array with the first element of each sequence of `x`, then with the second ones, and so on.

    Parameters
    ----------
    x : Variable with lengths
        Its elements are rows, or sequences if it has two levels of lengths.
    table : Variable
        The rank table of `x`, in whose order the elements stand.
    """
    helper = LayerHelper("lod_tensor_to_array")
    name = generate("lod_tensor_to_array")
    array = helper.block.create_var(name=name, type=VarKind.LOD_TENSOR_ARRAY, dtype=x.dtype)
    helper.append("lod_tensor_to_array", {"X": x, "RankTable": table}, {"Out": array})
    return array


@layer
def array_to_lod_tensor(x: Variable, table: Variable) -> Variable:
    """The sequences whose elements stand in an array: the reverse of `lod_tensor_to_array`."""
    return emit("array_to_lod_tensor", X=check_variable(x, "array_to_lod_tensor: x"), RankTable=table)


@layer
def shrink_memory(x: Variable, i: Variable, table: Variable) -> Variable:
    """The part of `x`, in the order of a rank table, that belongs to sequences with a step `i`, int64[1]."""
    return LayerHelper("shrink_memory").emit("shrink_rnn_memory", X=x, I=i, RankTable=table)


@layer
def reorder_lod_tensor_by_rank(x: Variable, rank_table: Variable) -> Variable:
    """The rows of `x`, or its sequences if it has lengths, in the order of a rank table."""
    return emit("reorder_lod_tensor_by_rank", X=check_variable(x, "x"), RankTable=rank_table)
