"""Find operators whose results for one sample depend on others."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from minigraph.ir import Operator
from minigraph.passes.ranks.weighted_means import Samples

_ALONG_AXIS = frozenset({
    "softmax", "log_softmax", "cumsum", "norm", "p_norm", "argsort", "arg_max", "arg_min",
    "softmax_with_cross_entropy",
})  # fmt: skip
"""Operators that combine elements along `axis`."""
_MOVES = {"reverse": "axis", "flip": "dims", "roll": "dims"}
"""Operators that give elements other places along dimensions, and the attribute that names these."""
_BY_FIRST = frozenset({
    "conv2d", "conv3d", "depthwise_conv2d", "conv2d_transpose", "conv3d_transpose", "pool2d", "pool3d", "lrn",
    "group_norm", "instance_norm", "batch_norm", "sync_batch_norm", "row_conv",
})  # fmt: skip
"""Operators that combine elements along all dimensions but the first."""
_OF_ALL = frozenset({"unique", "unique_with_counts"})


def mixes_rows(op: Operator, rows: Iterable[str], samples: Samples, joined: Collection[str]) -> bool:
    """Whether what an operator makes for a sample depends on others.

    Of its inputs `rows` have something for each sample. Values that are `joined` of several batches may be taken apart
    again.
    """
    axes = {name: samples.rows[name] for name in rows if name in samples.rows}
    if not axes:
        return False
    if op.type == "matmul":
        return _mixes_product(op, axes)
    if op.type == "mul":
        x, y = op.input("X")[0], op.input("Y")[0]
        is_summed = (x in axes and axes[x] >= op.attr("x_num_col_dims")) or (
            y in axes and axes[y] < op.attr("y_num_col_dims")
        )
        return is_summed or (x in axes and y in axes)
    if op.type.startswith("elementwise_"):
        return len({_place(op, name, axis) for name, axis in axes.items()}) > 1
    name, axis = next(iter(axes.items()))
    if op.type in ("slice", "strided_slice", "split") and name in joined:
        return False
    return axis in _combined(op, _rank(op, name))


def joins_rows(op: Operator, samples: Samples) -> bool:
    """Whether an operator puts the samples of several batches one after the other."""
    names = op.inputs.get("X", ())
    if op.type != "concat" or not names or names[0] not in samples.rows:
        return False
    return bool(op.attr("axis") % _rank(op, names[0]) == samples.rows[names[0]])


def _combined(op: Operator, rank: int) -> Iterable[int]:
    """The dimensions of its first input along which an operator combines elements, or takes some of them."""
    if op.type in _ALONG_AXIS:
        return [op.attr("axis") % rank]
    if op.type in _MOVES:
        return [axis % rank for axis in op.attr(_MOVES[op.type])]
    if op.type in _OF_ALL:
        return range(rank)
    if op.type in _BY_FIRST:
        return range(1, rank)
    if op.type == "top_k":
        return [rank - 1]
    if op.type == "layer_norm":
        return range(op.attr("begin_norm_axis"), rank)
    if op.type == "shuffle_batch":
        return range(rank - 1)
    if op.type == "split":
        return [op.attr("axis") % rank]
    if op.type in ("slice", "strided_slice"):
        return [axis % rank for axis in op.attr("axes")]
    if op.type == "pad":
        paddings = op.attr("paddings")
        return [axis for axis in range(rank) if any(paddings[2 * axis : 2 * axis + 2])]
    return ()


def _place(op: Operator, name: str, axis: int) -> int:
    """The dimension of the result of an elementwise operator along which the samples of an input lie."""
    x, y = op.input("X")[0], op.input("Y")[0]
    if name == x:
        return axis
    start = op.attr("axis")
    return int(axis + (start if start >= 0 else max(_rank(op, x) - _rank(op, y), 0)))


def _mixes_product(op: Operator, axes: Mapping[str, int]) -> bool:
    """Whether a product of matrices sums over samples, or multiplies each with each."""
    places = []
    for slot, is_turned in (("X", op.attr("transpose_X")), ("Y", op.attr("transpose_Y"))):
        name = op.input(slot)[0]
        if name not in axes:
            continue
        rank = _rank(op, name)
        summed = rank - 1 if rank == 1 or (slot == "X") != bool(is_turned) else rank - 2
        if axes[name] == summed:
            return True
        from_end = rank - axes[name]
        places.append(slot if from_end <= 2 else str(from_end))
    return len(set(places)) > 1


def _rank(op: Operator, name: str) -> int:
    var = op.block.find_var(name)
    return max(1, len((var.shape if var is not None else None) or ()))
