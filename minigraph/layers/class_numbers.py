"""Layers on class numbers."""

from __future__ import annotations

from minigraph.ir import Variable
from minigraph.layer_helper import LayerHelper, check_variable, layer

__all__ = ["hash", "mean_iou", "shard_index"]


@layer
def shard_index(input: Variable, index_num: int, nshards: int, shard_id: int, ignore_value: int = -1) -> Variable:
    """The numbers of a shard counted from its beginning, and `ignore_value` for those of other shards.

    Parameters
    ----------
    input : Variable, int64[..., 1]
        Numbers from 0 up to but not including `index_num`.
    nshards, shard_id : int
        Number of shards of equal size, and the shard.

    Examples
    --------
    >>> import minigraph as fluid, numpy as np
    >>> with fluid.dygraph.guard():
    ...     label = fluid.dygraph.to_variable(np.array([[1], [6], [12], [19]]))
    ...     fluid.layers.shard_index(label, index_num=20, nshards=2, shard_id=1).numpy().ravel()
    array([-1, -1,  2,  9])
    """
    return LayerHelper("shard_index").emit(
        "shard_index", X=check_variable(input, "shard_index: input"), index_num=index_num, nshards=nshards,
        shard_id=shard_id, ignore_value=ignore_value,
    )  # fmt: skip


@layer
def hash(  # noqa: A001
    input: Variable, hash_size: int, num_hash: int = 1, name: str | None = None
) -> Variable:
    """Hashes of rows of integers, below `hash_size`, `num_hash` of each row.

    Parameters
    ----------
    input : Variable, int32 or int64[rows, columns]

    Returns
    -------
    Variable, int[rows, num_hash, 1]
    """
    helper = LayerHelper("hash", name)
    return helper.emit("hash", X=check_variable(input, "hash: input"), num_hash=num_hash, mod_by=hash_size)


@layer
def mean_iou(input: Variable, label: Variable, num_classes: int) -> tuple[Variable, Variable, Variable]:
    """The mean over classes of the intersection by the union of where two tensors have the class.

    Parameters
    ----------
    input, label : Variable, int32 or int64
        Numbers of classes, of one shape.

    Returns
    -------
    tuple of Variable
        The mean, float32[1]; for each class how many elements have it in one of the tensors only, and in both, int32.
    """
    inputs = {
        "Predictions": check_variable(input, "mean_iou: input"),
        "Labels": check_variable(label, "mean_iou: label"),
    }
    mean, wrong, correct = LayerHelper("mean_iou").emit_all("mean_iou", **inputs, num_classes=num_classes)
    return mean, wrong, correct
