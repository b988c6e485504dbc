"""Images in other sizes, by the nearest element or by linear interpolation between neighbours."""

from __future__ import annotations

from minigraph.opdef import op
from minigraph.opdef.gradient_rules import FusedGrad
from minigraph.ops.tensor import require_integers, require_one_element, require_one_integer
from minigraph.support.window_rules import CHANNELS_LAST, spatial_dims
from minigraph.types import DType, TensorType, require, require_floating, require_number, same_dim


def scaled(size: int, scale: float) -> int:
    """A size times a factor, cut to an integer; -1 if the size is not known."""
    return -1 if size == -1 else int(size * scale)


def _resized(
    x: TensorType, given: tuple[TensorType | None, list[TensorType] | None, TensorType | None], sizes: list[int], *,
    scale: float, data_layout: str, align_mode: int,
) -> TensorType:  # fmt: skip
    """The type of the result; `given` are the slots OutSize, SizeTensor and Scale, which only a run knows."""
    require(x.rank == len(sizes) + 2, f"X must have {len(sizes) + 2} dimensions, got {x}")
    require(data_layout in ("NCHW", CHANNELS_LAST), f"data_layout must be NCHW or NHWC, got {data_layout!r}")
    require(align_mode in (0, 1), f"align_mode must be 0 or 1, got {align_mode}")
    _check_given(*given, len(sizes))
    out_size, parts, factor = given
    shape = list(x.shape)
    for dim, size in zip(spatial_dims(data_layout, x.rank), sizes, strict=True):
        if parts:
            shape[dim] = size if size > 0 else -1
        elif out_size is not None or factor is not None:
            shape[dim] = -1
        elif scale > 0:
            shape[dim] = scaled(shape[dim], scale)
            require(shape[dim] != 0, f"scale={scale:g} leaves nothing of {x}")
        else:
            require(size > 0, f"the new sizes must be positive, got {sizes}", hint="Give sizes, or scale.")
            shape[dim] = size
    return x.with_shape(shape)


def _check_method(x: TensorType, method: str) -> None:
    require(method in ("bilinear", "nearest"), f"interp_method must be bilinear or nearest, got {method!r}")
    if method == "nearest" or x.dtype is DType.UINT8:
        require_number(x)
    else:
        require_floating(x)


def _check_given(
    out_size: TensorType | None, parts: list[TensorType] | None, factor: TensorType | None, count: int
) -> None:
    for part in parts or ():
        require_one_integer(part, "SizeTensor")
    require(not parts or len(parts) == count, f"SizeTensor must hold {count} numbers, got {len(parts or ())}")
    if out_size is not None:
        require_integers(out_size, "OutSize")
        fits = out_size.rank == 1 and same_dim(out_size.shape[0], count)
        require(fits, f"OutSize must hold {count} numbers, got {out_size}")
    if factor is not None:
        require_floating(factor, "Scale")
        require_one_element(factor, "Scale")


def _gradient() -> FusedGrad:
    return FusedGrad("X", "OutSize", "SizeTensor", "Scale", to="X", linear=True, lod=False)


@op("nearest_interp", inputs="X OutSize SizeTensor Scale", outputs="Out", grad=_gradient())
def nearest_interp(
    x: TensorType,
    out_size: TensorType | None,
    size_tensor: list[TensorType] | None,
    factor: TensorType | None,
    *,
    data_layout: str = "NCHW",
    out_d: int = 0,
    out_h: int = 0,
    out_w: int = 0,
    scale: float = 0.0,
    interp_method: str = "bilinear",
    align_corners: bool = True,
    align_mode: int = 1,
) -> TensorType:
    """Images X of another height and width, with the nearest element at each place if `interp_method` is "nearest".

    Element i of a dimension is element ``round(i * (size - 1) / (new - 1))`` of X with `align_corners`, else
    ``floor(i * size / new)``. The new sizes are SizeTensor (a number each), OutSize (a vector), the old ones times
    Scale, times `scale` if that is positive, or `out_h` and `out_w`, in this order. `out_d` and `align_mode` change
    nothing. With the default of `interp_method` the operator is `bilinear_interp`, as in fluid.
    """
    given = (out_size, size_tensor, factor)
    _check_method(x, interp_method)
    return _resized(x, given, [out_h, out_w], scale=scale, data_layout=data_layout, align_mode=align_mode)


@op("bilinear_interp", inputs="X OutSize SizeTensor Scale", outputs="Out", grad=_gradient())
def bilinear_interp(
    x: TensorType,
    out_size: TensorType | None,
    size_tensor: list[TensorType] | None,
    factor: TensorType | None,
    *,
    data_layout: str = "NCHW",
    out_d: int = 0,
    out_h: int = 0,
    out_w: int = 0,
    scale: float = 0.0,
    interp_method: str = "bilinear",
    align_corners: bool = True,
    align_mode: int = 1,
) -> TensorType:
    """Images X of another height and width, interpolated between two rows and two columns.

    Element i of a dimension stands at ``i * (size - 1) / (new - 1)`` of X with `align_corners`; without, at
    ``i * size / new``, or at ``(i + 0.5) * size / new - 0.5`` if `align_mode` is 0. The new sizes are given as to
    `nearest_interp`, which the operator is if `interp_method` is "nearest". Images of uint8 are cut to integers.
    """
    given = (out_size, size_tensor, factor)
    _check_method(x, interp_method)
    return _resized(x, given, [out_h, out_w], scale=scale, data_layout=data_layout, align_mode=align_mode)


@op("trilinear_interp", inputs="X OutSize SizeTensor Scale", outputs="Out", grad=_gradient())
def trilinear_interp(
    x: TensorType,
    out_size: TensorType | None,
    size_tensor: list[TensorType] | None,
    factor: TensorType | None,
    *,
    data_layout: str = "NCHW",
    out_d: int = 0,
    out_h: int = 0,
    out_w: int = 0,
    scale: float = 0.0,
    interp_method: str = "trilinear",
    align_corners: bool = True,
    align_mode: int = 1,
) -> TensorType:
    """Volumes X, ``[batch, channels, depth, height, width]``, in another size, interpolated as by `bilinear_interp`."""
    given = (out_size, size_tensor, factor)
    require_floating(x)
    return _resized(x, given, [out_d, out_h, out_w], scale=scale, data_layout=data_layout, align_mode=align_mode)
