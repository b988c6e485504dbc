"""Parts of arrays that ranks divide among themselves; see `minigraph.support.parts.Division`.

With them each rank updates its part of the parameters and keeps its part of the state of the optimizer. Fluid 1.8 has
no such operators; `minigraph.passes.ShardOptimizerState` writes them.
"""

from __future__ import annotations

from minigraph.opdef import op
from minigraph.ops.clip import clip_by_global_norm
from minigraph.ops.norm import require_positive_order
from minigraph.ops.tensor import require_one_element
from minigraph.support.parts import Division
from minigraph.types import DType, TensorType, require, require_floating, require_number

_REDUCTIONS = ("sum", "max", "min", "squares", "sizes")


def _part(x: TensorType, division: Division) -> TensorType:
    nranks, blocks, _ = division
    require(nranks >= 1 and blocks >= 1, f"nranks and blocks must be at least 1, got {nranks} and {blocks}")
    require(x.is_static, f"ranks divide arrays of known size, got {x}")
    return TensorType(x.dtype, division.shape_of(x.shape), x.kind)


@op("c_part", inputs="X", outputs="Out", rows="X", grad=None)
def c_part(x: TensorType, *, nranks: int, blocks: int = 1, by_rows: bool = False) -> TensorType:
    """The part of this rank of X, flat, or some rows with `by_rows`; a part of selected rows is rows."""
    require(by_rows or not x.is_rows, "selected rows are divided by_rows")
    return _part(x, Division(nranks, blocks, by_rows))


@op("c_reduce_parts", inputs="X", outputs="Out*", grad=None, has_effect=True)
def c_reduce_parts(xs: list[TensorType], *, nranks: int, blocks: int = 1) -> tuple[list[TensorType]]:
    """The flat part of this rank of each X, summed over all ranks, in one exchange."""
    _require_one_dtype(xs)
    return ([_part(x, Division(nranks, blocks)) for x in xs],)


@op("c_gather_parts", inputs="X Whole", outputs="Out*", grad=None, has_effect=True)
def c_gather_parts(xs: list[TensorType], wholes: list[TensorType], *, nranks: int) -> tuple[list[TensorType]]:
    """Arrays, each of the shape of its ``Whole``, of the parts X of all ranks, in one exchange."""
    _require_one_dtype(xs)
    require(len(xs) == len(wholes), f"{len(xs)} parts but {len(wholes)} arrays")
    return (list(wholes),)


def _require_one_dtype(xs: list[TensorType]) -> None:
    require(len({each.dtype for each in xs}) <= 1, f"X must have one element type, got {', '.join(map(str, xs))}")


@op("part_norms", inputs="X", outputs="Out", rows="X", grad=None)
def part_norms(xs: list[TensorType], *, blocks: int = 1, p: float = 2.0) -> TensorType:
    """Numbers for the norm of order `p` of each block of each part X, float64[blocks, number of X, 3].

    They are a scale, the sum of the scaled magnitudes to the power of `p`, and what its rounding has lost. With
    those of all ranks `clip_parts` computes the norm of whole arrays.
    """
    require_positive_order(p)
    for x in xs:
        require_floating(x)
        require(x.shape[0] % blocks == 0, f"{x} has no {blocks} blocks")
    return TensorType(DType.FP64, (blocks, len(xs), 3))


@op("part_reduction", inputs="X", outputs="Out", grad=None)
def part_reduction(
    x: TensorType, *, reduction: str, size: int, nranks: int, blocks: int = 1, by_rows: bool = False
) -> TensorType:
    """One number for each block of X, the part of this rank of an array, float64[blocks]; without what is padding.

    `reduction` is 'sum', 'max', 'min', 'squares' or 'sizes': of the elements, of their squares, of their magnitudes.
    The array has `size` elements, or rows with `by_rows`. The sum, maximum or minimum of the numbers of all ranks is
    that of the array.
    """
    require_number(x)
    require(reduction in _REDUCTIONS, f"reduction must be one of {', '.join(_REDUCTIONS)}")
    require(x.shape[0] % blocks == 0, f"{x} has no {blocks} blocks")
    return TensorType(DType.FP64, (blocks,))


@op("clip_parts", inputs="X Norms ClipNorm", outputs="Out* Norm", rows="X", grad=None)
def clip_parts(
    xs: list[TensorType],
    norms: TensorType,
    clip_norm: TensorType | None = None,
    *,
    columns: list[int],
    max_norm: float = 1.0,
    p: float = 2.0,
    strict: bool = False,
) -> tuple[list[TensorType], TensorType]:
    """`clip_by_global_norm` of parts of arrays, whose norms are by these `columns` of ``Norms``.

    The threshold is the attribute, or the one element of ``ClipNorm`` where given.
    """
    _require_norms(norms, columns)
    return clip_by_global_norm(xs, clip_norm or norms.with_shape((1,)), p=p, strict=strict)


@op("clip_parts_factor", inputs="Norms ClipNorm", outputs="Factor Norm", grad=None)
def clip_parts_factor(
    norms: TensorType, clip_norm: TensorType, *, columns: list[int], p: float = 2.0
) -> tuple[TensorType, TensorType]:
    """`clip_factor` of arrays whose norms are by these `columns` of ``Norms``; see `clip_parts`."""
    _require_norms(norms, columns)
    require_positive_order(p)
    require_floating(clip_norm, "ClipNorm")
    require_one_element(clip_norm, "ClipNorm")
    return TensorType(DType.FP64, (3,)), clip_norm.with_shape((1,))


def _require_norms(norms: TensorType, columns: list[int]) -> None:
    require(norms.rank == 3 and norms.shape[2] == 3, f"Norms must be what part_norms makes, got {norms}")
    require(all(0 <= each < norms.shape[1] for each in columns), f"columns are {columns}, but Norms is {norms}")
