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


@op(
    "precision_recall", inputs="MaxProbs Indices Labels Weights StatesInfo",
    outputs="BatchMetrics AccumMetrics AccumStatesInfo", grad=None,
)  # fmt: skip
def precision_recall(
    max_probs: TensorType,
    indices: TensorType,
    labels: TensorType,
    weights: TensorType | None,
    states: TensorType | None,
    *,
    class_number: int,
) -> tuple[TensorType, TensorType, TensorType]:
    """Precision, recall and F1 of predicted classes, their means over the classes first and those of all samples then.

    AccumStatesInfo, [class_number, 4], counts for each class true and false positives, true and false negatives, and
    adds StatesInfo; a sample counts as much as Weights says. The six numbers of BatchMetrics are of this batch, those
    of AccumMetrics of AccumStatesInfo. What nothing is divided by counts as 1, an F1 of zeros as 0. Of MaxProbs only
    the shape is read.
    """
    require(class_number > 0, f"class_number must be positive, got {class_number}")
    for slot, x in (("MaxProbs", max_probs), ("Indices", indices), ("Labels", labels), ("Weights", weights)):
        is_column = x is None or (x.rank == 2 and same_dim(x.shape[1], 1) and same_dim(x.shape[0], labels.shape[0]))
        require(is_column, f"{slot} must have a row of one number for each sample, got {x}")
    require_integers(indices, "Indices")
    require_integers(labels, "Labels")
    if states is not None:
        fits = states.rank == 2 and all(map(same_dim, states.shape, (class_number, 4)))
        require(fits, f"StatesInfo must have shape [{class_number}, 4], got {states}")
    metrics = TensorType(max_probs.dtype, (6,))
    return metrics, metrics, TensorType(max_probs.dtype, (class_number, 4))
