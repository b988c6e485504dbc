"""Pooling of images and volumes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from minigraph.opdef import op
from minigraph.opdef.gradient_context import GradContext, OpSpec
from minigraph.opdef.gradient_rules import fused
from minigraph.support.window_rules import lay_windows, require_layout, spatial_dims
from minigraph.types import DType, TensorType, merge_shapes, require, require_floating, require_same_dtype

_BACKEND_ATTRS = {"use_quantizer": False}


def _gradient_of_gradient(ctx: GradContext) -> Iterator[OpSpec]:
    """An average is linear in X; a greatest element stays the greatest."""
    flowing, to_d_out = ctx.d_output("X@GRAD"), ctx.d_input("Out@GRAD")
    if ctx.attr("pooling_type") == "avg":
        yield OpSpec(ctx.op.definition.forward, {"X": flowing}, {"Out": to_d_out}, ctx.op.attrs)
        return
    inputs = {"X": ctx.input("X"), "Out": ctx.input("Out"), "DDX": flowing}
    yield OpSpec(f"{ctx.op.type}_grad", inputs, {"DDOut": to_d_out}, ctx.op.attrs)


def _check_windows(
    x: TensorType, ksize: Sequence[int], strides: Sequence[int], adaptive: bool, global_pooling: bool
) -> None:
    require(not (adaptive and global_pooling), "adaptive and global_pooling exclude each other")
    for name, numbers in {"ksize": ksize, "strides": strides}.items():
        fits = len(numbers) == x.rank - 2 and min(numbers) >= 1
        count = "two" if x.rank == 4 else "three"
        require(fits or global_pooling, f"{name} must be {count} numbers of at least 1, got {list(numbers)}")


@op(
    "pool2d", inputs="X", outputs="Out", lod="X", grad=fused("X", "Out", grad=_gradient_of_gradient, lod=False),
    backend_attrs=_BACKEND_ATTRS,
)  # fmt: skip
def pool2d(
    x: TensorType,
    *,
    pooling_type: str,
    ksize: list[int],
    global_pooling: bool = False,
    strides: list[int] = (1, 1),  # type: ignore[assignment]
    paddings: list[int] = (0, 0),  # type: ignore[assignment]
    exclusive: bool = True,
    adaptive: bool = False,
    ceil_mode: bool = False,
    data_format: str = "NCHW",
    is_test: bool = False,
    padding_algorithm: str = "EXPLICIT",
) -> TensorType:
    """``Out`` is the greatest element (`pooling_type` max) or the average (avg) of each window of the images X.

    Windows are of `ksize` and begin `strides` apart; `paddings` and `padding_algorithm` are those of ``conv2d``. With
    `ceil_mode` a last window may reach beyond the padding. Padding is never the greatest, and an average is over the
    elements inside of the image, or with `exclusive` False over `ksize` elements, the others being 0. A window of
    nothing but padding gives the least finite number, or NaN as its average.

    With `adaptive`, `ksize` is the size of Out instead, and window i of n covers the elements from
    ``floor(i * size / n)`` to ``ceil((i + 1) * size / n)``. With `global_pooling` the whole image is the window.
    `is_test` changes nothing.

    The gradient of the greatest goes to the first that is it.

    Notes
    -----
    The maximum with `adaptive` is what fluid 1.8 computes, which is not what it says: `ksize` windows of `ksize`,
    `strides` apart, without padding. No layer asks for it. Fluid takes `adaptive` and `global_pooling` together, and
    mixes them up.

    Gradients of averages are multiplied by one over the number of elements, rounded to float32 as in fluid.
    """
    return _pooled(
        x, 4, pooling_type, ksize, global_pooling, strides, paddings, adaptive, ceil_mode, data_format,
        padding_algorithm,
    )  # fmt: skip


@op("pool3d", inputs="X", outputs="Out", lod="X", grad=fused("X", "Out", grad=_gradient_of_gradient, lod=False))
def pool3d(
    x: TensorType,
    *,
    pooling_type: str,
    ksize: list[int],
    global_pooling: bool = False,
    strides: list[int] = (1, 1, 1),  # type: ignore[assignment]
    paddings: list[int] = (0, 0, 0),  # type: ignore[assignment]
    exclusive: bool = True,
    adaptive: bool = False,
    ceil_mode: bool = False,
    data_format: str = "NCDHW",
    padding_algorithm: str = "EXPLICIT",
) -> TensorType:
    """``Out`` is the greatest element or the average of each window of the volumes X, as ``pool2d`` has it for images.

    Volumes are ``[batch, channels, depth, height, width]``, or with the channels last if `data_format` is NDHWC.
    """
    return _pooled(
        x, 5, pooling_type, ksize, global_pooling, strides, paddings, adaptive, ceil_mode, data_format,
        padding_algorithm,
    )  # fmt: skip


def _pooled(
    x: TensorType, rank: int, pooling_type: str, ksize: Sequence[int], global_pooling: bool, strides: Sequence[int],
    paddings: Sequence[int], adaptive: bool, ceil_mode: bool, data_format: str, padding_algorithm: str,
) -> TensorType:  # fmt: skip
    require_floating(x)
    require(x.rank == rank, f"X must have {rank} dimensions, got {x}")
    require(pooling_type in ("max", "avg"), f"pooling_type must be max or avg, got {pooling_type!r}")
    _check_windows(x, ksize, strides, adaptive, global_pooling)
    require_layout(data_format, rank=rank)
    places = spatial_dims(data_format, rank)
    shape = list(x.shape)
    if adaptive or global_pooling:
        counts = list(ksize) if adaptive else [1] * len(places)
        require(0 not in [x.shape[i] for i in places], f"there is nothing to pool in {x}")
    else:
        lengths = [x.shape[i] for i in places]
        laid = lay_windows(lengths, ksize, strides, paddings, padding_algorithm, ceil_mode=ceil_mode)
        counts = [along.count for along in laid]
    for place, count in zip(places, counts, strict=True):
        shape[place] = count
    return x.with_shape(shape)


def _picked_grad(ctx: GradContext) -> Iterator[OpSpec]:
    inputs = {"X": ctx.input("X"), "Out": ctx.input("Out"), "Out@GRAD": ctx.d_output("DDOut")}
    yield OpSpec(ctx.op.type.removesuffix("_grad"), inputs, {"X@GRAD": ctx.d_input("DDX")}, ctx.op.attrs)


@op("pool2d_grad_grad", inputs="X Out DDX", outputs="DDOut", grad=_picked_grad, backend_attrs=_BACKEND_ATTRS)
def pool2d_grad_grad(
    x: TensorType,
    out: TensorType,
    ddx: TensorType,
    *,
    pooling_type: str,
    ksize: list[int],
    global_pooling: bool = False,
    strides: list[int] = (1, 1),  # type: ignore[assignment]
    paddings: list[int] = (0, 0),  # type: ignore[assignment]
    exclusive: bool = True,
    adaptive: bool = False,
    ceil_mode: bool = False,
    data_format: str = "NCHW",
    is_test: bool = False,
    padding_algorithm: str = "EXPLICIT",
) -> TensorType:
    """The element of DDX at the position of the maximum, Out, of each window of X; 0 if there is none.

    This is what ``pool2d_grad`` of a maximum does, the other way round: the gradient of the gradient.

    Notes
    -----
    Fluid has no such operator, and no gradient of the gradient of ``pool2d``.
    """
    require_same_dtype("X, Out and DDX", x, out, ddx)
    require(
        pooling_type == "max",
        f"pooling_type must be max, got {pooling_type!r}",
        hint="Leave it out for an average: only a maximum needs this operator.",
    )
    merge_shapes(x.shape, ddx.shape, "X and DDX")
    return out


@op("pool3d_grad_grad", inputs="X Out DDX", outputs="DDOut", grad=_picked_grad)
def pool3d_grad_grad(
    x: TensorType,
    out: TensorType,
    ddx: TensorType,
    *,
    pooling_type: str,
    ksize: list[int],
    global_pooling: bool = False,
    strides: list[int] = (1, 1, 1),  # type: ignore[assignment]
    paddings: list[int] = (0, 0, 0),  # type: ignore[assignment]
    exclusive: bool = True,
    adaptive: bool = False,
    ceil_mode: bool = False,
    data_format: str = "NCDHW",
    padding_algorithm: str = "EXPLICIT",
) -> TensorType:
    """The same as ``pool2d_grad_grad``, for ``pool3d``."""
    return pool2d_grad_grad(x, out, ddx, pooling_type=pooling_type, ksize=ksize)


@op("max_pool2d_with_index", inputs="X", outputs="Out Mask", grad=fused("X", "Mask", lod=False))
def max_pool2d_with_index(
    x: TensorType,
    *,
    ksize: list[int],
    global_pooling: bool = False,
    adaptive: bool = False,
    strides: list[int] = (1, 1),  # type: ignore[assignment]
    paddings: list[int] = (0, 0),  # type: ignore[assignment]
) -> tuple[TensorType, TensorType]:
    """``Out`` is the greatest element of each window of the images X, and ``Mask`` (int32) where in its image it is.

    Windows are those of ``pool2d``: of `ksize`, `strides` apart, with `paddings`; the whole image (`global_pooling`);
    or with `adaptive` as many as `ksize` says, which cover the image evenly. Mask counts the elements row by row; of
    several that are the greatest the first is taken.
    """
    return _greatest_and_places(x, 4, ksize, global_pooling, adaptive, strides, paddings)


@op("max_pool3d_with_index", inputs="X", outputs="Out Mask", grad=fused("X", "Mask", lod=False))
def max_pool3d_with_index(
    x: TensorType,
    *,
    ksize: list[int],
    global_pooling: bool = False,
    adaptive: bool = False,
    strides: list[int] = (1, 1, 1),  # type: ignore[assignment]
    paddings: list[int] = (0, 0, 0),  # type: ignore[assignment]
) -> tuple[TensorType, TensorType]:
    """``max_pool2d_with_index`` of volumes, [batch, channels, depth, height, width]."""
    return _greatest_and_places(x, 5, ksize, global_pooling, adaptive, strides, paddings)


def _greatest_and_places(
    x: TensorType, rank: int, ksize: Sequence[int], global_pooling: bool, adaptive: bool, strides: Sequence[int],
    paddings: Sequence[int],
) -> tuple[TensorType, TensorType]:  # fmt: skip
    require_floating(x)
    require(x.rank == rank, f"X must have {rank} dimensions, got {x}")
    _check_windows(x, ksize, strides, adaptive, global_pooling)
    lengths = x.shape[2:]
    if adaptive or global_pooling:
        counts = list(ksize) if adaptive else [1] * len(lengths)
        require(0 not in lengths, f"there is nothing to pool in {x}")
    else:
        counts = [along.count for along in lay_windows(lengths, ksize, strides, paddings, "EXPLICIT")]
    out = (*x.shape[:2], *counts)
    return x.with_shape(out), TensorType(DType.INT32, out)
