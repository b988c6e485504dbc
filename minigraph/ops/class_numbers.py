"""Class numbers: divided into shards, hashed, and compared with the right ones."""

from __future__ import annotations

from minigraph.opdef import op
from minigraph.ops.tensor import require_integers
from minigraph.types import DType, TensorType, merge_shapes, require, same_dim


@op("shard_index", inputs="X", outputs="Out", lod="X", grad=None)
def shard_index(x: TensorType, *, index_num: int, nshards: int, shard_id: int, ignore_value: int = -1) -> TensorType:
    """``X % size`` of the numbers that belong to shard `shard_id`, `ignore_value` for the others.

    `index_num` numbers are split into `nshards` shards, ``size = ceil(index_num / nshards)`` to each.
    """
    require_integers(x, "X")
    require(x.rank >= 2 and same_dim(x.shape[-1], 1), f"X must have shape [..., 1], got {list(x.shape)}")
    require(index_num > 0, f"index_num must be positive, got {index_num}")
    require(nshards > 0, f"nshards must be positive, got {nshards}")
    require(0 <= shard_id < nshards, f"shard_id must be in [0, {nshards}), got {shard_id}")
    return x


@op("hash", inputs="X", outputs="Out", lod="X", grad=None)
def hash_(x: TensorType, *, num_hash: int = 1, mod_by: int = 100000) -> TensorType:
    """``Out[i, j, 0]`` is the hash of row i of X with the seed j, for `num_hash` seeds, modulo `mod_by`.

    The hash is XXH64 of the bytes of the row.
    """
    require_integers(x, "X")
    require(x.rank == 2, f"X must be a matrix, got {x}")
    require(num_hash > 0 and mod_by > 0, f"num_hash={num_hash} and mod_by={mod_by} must be positive")
    return x.with_shape((x.shape[0], num_hash, 1))


@op(
    "mean_iou", inputs="Predictions Labels InWrongs InCorrects InMeanIou", outputs="OutMeanIou OutWrong OutCorrect",
    grad=None,
)  # fmt: skip
def mean_iou(
    predictions: TensorType,
    labels: TensorType,
    wrongs: list[TensorType] | None,
    corrects: list[TensorType] | None,
    ious: list[TensorType] | None,
    *,
    num_classes: int,
) -> tuple[TensorType, TensorType, TensorType]:
    """The mean over classes of how many elements have this class in both, by how many have it in Predictions or Labels.

    OutCorrect, [num_classes], counts elements of which both say this class, OutWrong those of which one does; counts of
    InCorrects and InWrongs, and means of InMeanIou, are added. Classes that nothing has do not count.
    """
    require_integers(predictions, "Predictions")
    require_integers(labels, "Labels")
    merge_shapes(predictions.shape, labels.shape, "Predictions and Labels")
    require(num_classes > 0, f"num_classes must be positive, got {num_classes}")
    for slot, counts in (("InWrongs", wrongs), ("InCorrects", corrects)):
        for each in counts or ():
            fits = each.dtype is DType.INT32 and each.rank == 1 and same_dim(each.shape[0], num_classes)
            require(fits, f"{slot} must be int32[{num_classes}], got {each}")
    counts_type = TensorType(DType.INT32, (num_classes,))
    return TensorType(DType.FP32, (1,)), counts_type, counts_type
