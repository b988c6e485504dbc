"""Parts of tensors: regions that are cropped, and windows of images laid side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from minigraph.opdef import op
from minigraph.opdef.gradient_context import GradContext, OpSpec
from minigraph.opdef.gradient_rules import fused
from minigraph.ops.tensor import shape_from
from minigraph.support.window_rules import lay_windows
from minigraph.types import TensorType, product, require, require_floating, require_number, same_dim

_NONE: Any = ()
_ONES: Any = (1, 1)
_NO_PADDING: Any = (0, 0, 0, 0)


def _crop_again(ctx: GradContext) -> Iterator[OpSpec]:
    """Cropping is linear; the shape of the region is that of its gradient."""
    inputs = {"X": ctx.d_output("X@GRAD")}
    inputs |= {slot: ctx.input(slot) for slot in ("Offsets", "OffsetsTensor") if slot in ctx.op.inputs}
    forward = ctx.op.definition.forward
    if forward == "crop":
        inputs["Y"] = ctx.input("Out@GRAD")
    else:
        inputs["Shape"] = [ctx.temporary()]
        yield OpSpec("shape", {"Input": ctx.input("Out@GRAD")}, {"Out": inputs["Shape"]}, {})
    yield OpSpec(forward or "", inputs, {"Out": ctx.d_input("Out@GRAD")}, ctx.op.attrs)


@op(
    "crop", inputs="X Y Offsets", outputs="Out",
    grad=fused("X", "Offsets", to="X", linear=True, grad=_crop_again, lod=False)
)  # fmt: skip
def crop(
    x: TensorType,
    y: TensorType | None,
    offsets_given: TensorType | None,
    *,
    offsets: list[int] = _NONE,
    shape: list[int] = _NONE,
) -> TensorType:
    """``Out`` is the region of X that begins at `offsets` and has the shape of Y, or `shape`.

    A size of -1 reaches to the end of X. Offsets, a vector, takes the place of `offsets` at run time.
    """
    require_number(x)
    if y is not None:
        require(y.rank == x.rank, f"X and Y must have as many dimensions, got {x} and {y}")
        shape = list(y.shape)
        return x.with_shape(_region(x, shape, None if offsets_given is not None else offsets, sizes_known=False))
    return x.with_shape(_region(x, shape, None if offsets_given is not None else offsets))


@op(
    "crop_tensor", inputs="X Shape Offsets ShapeTensor OffsetsTensor", outputs="Out", lod="rows X",
    grad=fused("X", "Offsets", "OffsetsTensor", to="X", linear=True, grad=_crop_again, lod=False),
)  # fmt: skip
def crop_tensor(
    x: TensorType,
    shape_given: TensorType | None,
    offsets_given: TensorType | None,
    shape_tensor: list[TensorType] | None,
    offsets_tensor: list[TensorType] | None,
    *,
    offsets: list[int] = _NONE,
    shape: list[int] = _NONE,
) -> TensorType:
    """``crop`` with sizes and offsets that may be tensors.

    ShapeTensor (a number each) or else Shape (a vector) takes the place of `shape` at run time, OffsetsTensor or else
    Offsets that of `offsets`. A size of -1 reaches to the end of X.
    """
    require_number(x)
    known = None if offsets_given is not None or offsets_tensor else offsets
    if shape_tensor:
        sizes = shape_from(shape, None, shape_tensor, "Shape", "ShapeTensor")
    elif shape_given is not None:
        sizes = shape_from(shape or [-1] * x.rank, shape_given, None, "Shape", "ShapeTensor")
    else:
        return x.with_shape(_region(x, shape, known))
    return x.with_shape(_region(x, list(sizes), known, sizes_known=False))


def _region(
    x: TensorType, shape: Sequence[int], offsets: Sequence[int] | None, sizes_known: bool = True
) -> tuple[int, ...]:
    """The shape of the region; without known sizes -1 is any size, else it reaches to the end of X."""
    require(len(shape) == x.rank, f"shape must have {x.rank} numbers, one for each dimension of X, got {list(shape)}")
    if offsets is None:
        return tuple(size if size > 0 else -1 for size in shape)
    fits = len(offsets) == x.rank and min(offsets, default=0) >= 0
    require(fits, f"offsets must be {x.rank} numbers of at least 0, got {list(offsets)}")
    found = []
    for dim, (length, size, offset) in enumerate(zip(x.shape, shape, offsets, strict=True)):
        rest = -1 if length == -1 else length - offset
        require(
            length == -1 or (size <= rest and rest >= 0),
            f"X has {length} elements in dimension {dim}, not {size} from number {offset} on",
            hint="Take fewer, or begin earlier.",
        )
        found.append(size if size != -1 else rest if sizes_known else -1)
    return tuple(found)


@op("unfold", inputs="X", outputs="Y", grad=fused("X", linear=True, lod=False))
def unfold(
    x: TensorType, *, kernel_sizes: list[int], strides: list[int], paddings: list[int], dilations: list[int]
) -> TensorType:
    """The windows of images as columns: Y is ``[batch, channels * elements of a window, windows]``.

    `paddings`, of zeros, are (top, left, bottom, right). A convolution is the product of its filters and Y.
    """
    counts = _counts(x, kernel_sizes, strides, paddings, dilations)
    channels = -1 if x.shape[1] == -1 else x.shape[1] * product(kernel_sizes)
    return x.with_shape((x.shape[0], channels, product(counts)))


@op("im2sequence", inputs="X Y", outputs="Out", lod="new", grad=fused("X", "Y", to="X", lod=False))
def im2sequence(
    x: TensorType,
    sizes: TensorType | None,
    *,
    kernels: list[int],
    strides: list[int] = _ONES,
    paddings: list[int] = _NO_PADDING,
    out_stride: list[int] = _ONES,
) -> TensorType:
    """The windows of images as the rows of a sequence each, ``[all windows, channels * elements of a window]``.

    `paddings`, of zeros, are (top, left, bottom, right). Y, ``[batch, 2]``, has the height and width of each image in
    the picture that it was made of, of which `out_stride` elements are one of the image: windows beyond are left out.
    """
    counts = _counts(x, kernels, strides, paddings, [1, 1])
    if sizes is not None:
        fits = sizes.rank == 2 and same_dim(sizes.shape[0], x.shape[0]) and same_dim(sizes.shape[1], 2)
        require(fits, f"Y must have shape [{x.shape[0]}, 2], got {list(sizes.shape)}")
        counts = [-1]
    channels = -1 if x.shape[1] == -1 else x.shape[1] * product(kernels)
    return x.with_shape((product([x.shape[0], *counts]), channels))


def _counts(
    x: TensorType, sizes: Sequence[int], strides: Sequence[int], paddings: Sequence[int], dilations: Sequence[int]
) -> list[int]:
    """Number of windows along height and width."""
    require_floating(x)
    require(x.rank == 4, f"X must be [batch, channels, height, width], got {x}")
    fits = len(paddings) == 4 and min(paddings) >= 0
    require(fits, f"paddings must be (top, left, bottom, right), not negative, got {list(paddings)}")
    laid = lay_windows(x.shape[2:], sizes, strides, by_dimension(paddings), "EXPLICIT", dilations)
    return [along.count for along in laid]


def by_dimension(paddings: Sequence[int]) -> list[int]:
    """(top, bottom, left, right) from (top, left, bottom, right)."""
    top, left, bottom, right = paddings
    return [top, bottom, left, right]
