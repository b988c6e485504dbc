"""Parts of tensors that are chosen at random or by their values, and centers of classes."""

from __future__ import annotations

from minigraph.opdef import op
from minigraph.opdef.gradient_rules import fused
from minigraph.ops.tensor import require_integers
from minigraph.types import DType, TensorType, require, require_floating, require_number, require_same_dtype, same_dim


@op("random_crop", inputs="X Seed", outputs="Out SeedOut", grad=None)
def random_crop(
    x: TensorType, seed: TensorType, *, shape: list[int], startup_seed: int = 0
) -> tuple[TensorType, TensorType]:
    """Out is a region of `shape` of the last dimensions of X, at random places, another for each element of the others.

    Seed, int64[1], decides the places, and SeedOut is the seed of the next run.
    """
    require_number(x)
    require(0 < len(shape) < x.rank, f"shape must have 1 to {x.rank - 1} numbers, got {list(shape)}")
    require(seed.dtype is DType.INT64 and same_dim(seed.shape[0], 1), f"Seed must be int64[1], got {seed}")
    kept, cropped = x.shape[: -len(shape)], x.shape[-len(shape) :]
    for length, size in zip(cropped, shape, strict=True):
        require(size > 0 and (length == -1 or size <= length), f"{list(shape)} is no shape of a region of {x}")
    return x.with_shape((*kept, *shape)), seed


@op("similarity_focus", inputs="X", outputs="Out", lod="X", grad=None)
def similarity_focus(x: TensorType, *, axis: int, indexes: list[int]) -> TensorType:
    """A mask of the shape of X, 1 at the places that the matrices `indexes` along `axis` focus on, for each sample.

    A matrix is that of the other two dimensions. Its greatest element is chosen, then the greatest of the rows and
    columns that are left, and so on. A place counts for all matrices along `axis`.
    """
    require_floating(x)
    require(x.rank == 4, f"X must have 4 dimensions, got {x}")
    require(axis in (1, 2, 3), f"axis must be 1, 2 or 3, got {axis}")
    most = x.shape[axis]
    inside = len(indexes) > 0 and min(indexes) >= 0 and (most == -1 or max(indexes) < most)
    require(inside, f"indexes must be in [0, {most}), got {list(indexes)}")
    return x


@op(
    "center_loss", inputs="X Label Centers CenterUpdateRate", outputs="CentersOut SampleCenterDiff Loss",
    lod={"Loss": "X"}, grad=fused("X", "SampleCenterDiff", to="X", d_out="Loss"),
)  # fmt: skip
def center_loss(
    x: TensorType, label: TensorType, centers: TensorType, rate: TensorType, *, cluster_num: int, need_update: bool
) -> tuple[TensorType, TensorType, TensorType]:
    """``Loss = sum(SampleCenterDiff ** 2) / 2``, with ``SampleCenterDiff = X - Centers[Label]``, row by row.

    With `need_update` each center moves by CenterUpdateRate times the sum of its differences, divided by one more than
    their number; CentersOut are the centers after that. `cluster_num` is the number of centers.

    References
    ----------
    Y. Wen et al., A discriminative feature learning approach for deep face recognition, ECCV 2016.
    """
    require_floating(x)
    require_same_dtype("X and Centers", x, centers)
    require_integers(label, "Label")
    require(x.rank == centers.rank == 2, f"X and Centers must be matrices, got {x} and {centers}")
    fits = same_dim(centers.shape[1], x.shape[1]) and same_dim(centers.shape[0], cluster_num)
    require(fits, f"Centers must have shape [{cluster_num}, {x.shape[1]}], got {list(centers.shape)}")
    one = label.rank == 1 or (label.rank == 2 and same_dim(label.shape[1], 1))
    require(one and same_dim(label.shape[0], x.shape[0]), f"Label must be a class for each row of X, got {label}")
    return centers, x, x.with_shape((x.shape[0], 1))
