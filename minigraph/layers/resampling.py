"""Layers that give images another size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from minigraph.errors import ProgramError, WrongTypeError
from minigraph.ir import Variable
from minigraph.layer_helper import LayerHelper, check_variable, constant, layer
from minigraph.layers.tensor import numbers_of
from minigraph.support.arguments import number

__all__ = [
    "image_resize", "image_resize_short", "interpolate", "resize_bilinear", "resize_nearest", "resize_trilinear",
]  # fmt: skip

_TYPES = {"BILINEAR": "bilinear_interp", "NEAREST": "nearest_interp", "TRILINEAR": "trilinear_interp"}
Sizes = Sequence[int | Variable] | Variable


@layer
def image_resize(
    input: Variable,
    out_shape: Sizes | None = None,
    scale: float | Variable | None = None,
    name: str | None = None,
    resample: str = "BILINEAR",
    actual_shape: Variable | None = None,
    align_corners: bool = True,
    align_mode: int = 1,
    data_format: str = "NCHW",
) -> Variable:
    """Images in another size.

    Parameters
    ----------
    input : Variable, float[batch, channels, height, width]
        Or a volume, with a depth before the height; with the channels last for NHWC and NDHWC.
    out_shape : sequence of int or Variable, or Variable, int32[2 or 3], optional
        The new sizes.
    scale : float or Variable, float[1], optional
        A factor of the sizes, in place of `out_shape`.
    resample : {'BILINEAR', 'NEAREST', 'TRILINEAR'}
        The last is for volumes.
    actual_shape : Variable, int32[2 or 3], optional
        Takes the place of `out_shape` at run time.
    align_corners : bool
        Whether the centres of the corner elements stay at the corners, else their outer edges.
    align_mode : {0, 1}
        Without `align_corners`: whether an element i stands for the place ``(i + 0.5) * size / new - 0.5`` (0), or for
        ``i * size / new`` (1). `NEAREST` has the second only.
    data_format : {'NCHW', 'NHWC', 'NCDHW', 'NDHWC'}

    Raises
    ------
    ProgramError
        If neither `out_shape` nor `scale` is given, or one does not fit.

    Examples
    --------
    >>> import minigraph as fluid, numpy as np
    >>> with fluid.dygraph.guard():
    ...     x = fluid.dygraph.to_variable(np.array([[[[0.0, 3.0]]]], dtype="float32"))
    ...     fluid.layers.image_resize(x, out_shape=[1, 4]).numpy()
    array([[[[0., 1., 2., 3.]]]], dtype=float32)
    """
    if resample not in _TYPES:
        raise ProgramError(f"image_resize: resample must be one of {', '.join(_TYPES)}, got {resample!r}")
    dims = 3 if resample == "TRILINEAR" else 2
    _check_image(input, dims, resample, data_format)
    helper = LayerHelper(_TYPES[resample], name)
    attrs: dict[str, Any] = {
        "out_d": -1, "out_h": -1, "out_w": -1, "interp_method": resample.lower(), "align_corners": align_corners,
        "align_mode": align_mode, "data_layout": "NHWC" if data_format.endswith("C") else "NCHW",
    }  # fmt: skip
    given = _given_sizes(helper, out_shape, scale, dims)
    if actual_shape is not None:
        given["OutSize"] = constant(check_variable(actual_shape, "image_resize: actual_shape"))
    return helper.emit(helper.layer_type, X=input, **{**attrs, **given})


def _check_image(input: Variable, dims: int, resample: str, data_format: str) -> None:
    rank = len(check_variable(input, "image_resize: input").shape or ())
    if rank != dims + 2:
        raise ProgramError(f"image_resize: {resample} takes an input of {dims + 2} dimensions, got {input}")
    formats = ("NCHW", "NHWC") if dims == 2 else ("NCDHW", "NDHWC")
    if data_format not in formats:
        raise ProgramError(f"image_resize: data_format must be {' or '.join(formats)}, got {data_format!r}")


def _given_sizes(
    helper: LayerHelper, out_shape: Sizes | None, scale: float | Variable | None, dims: int
) -> dict[str, Any]:
    """Inputs and attributes that say the new sizes."""
    if out_shape is None and scale is None:
        raise ProgramError("image_resize: neither out_shape nor scale is given", hint="Give one of them.")
    if out_shape is None:
        if isinstance(scale, Variable):
            return {"Scale": constant(scale)}
        factor = number(scale, "image_resize: scale")
        if factor <= 0:
            raise ProgramError(f"image_resize: scale must be positive, got {factor:g}")
        return {"scale": factor}
    if isinstance(out_shape, Variable):
        return {"OutSize": constant(out_shape)}
    if not isinstance(out_shape, list | tuple) or len(out_shape) != dims:
        raise WrongTypeError(f"image_resize: out_shape must be {dims} sizes or a Variable, got {out_shape!r:.60}")
    sizes = [-1 if isinstance(size, Variable) else int(size) for size in out_shape]
    if any(size <= 0 and not isinstance(given, Variable) for size, given in zip(sizes, out_shape, strict=True)):
        raise ProgramError(f"image_resize: sizes must be positive, got {sizes}")
    attrs: dict[str, Any] = dict(zip(("out_d", "out_h", "out_w")[-dims:], sizes, strict=True))
    if -1 in sizes:
        make = numbers_of(helper, "int32")
        attrs["SizeTensor"] = [constant(each) if isinstance(each, Variable) else make(each) for each in out_shape]
    return attrs


interpolate = image_resize


@layer
def resize_bilinear(
    input: Variable,
    out_shape: Sizes | None = None,
    scale: float | Variable | None = None,
    name: str | None = None,
    actual_shape: Variable | None = None,
    align_corners: bool = True,
    align_mode: int = 1,
    data_format: str = "NCHW",
) -> Variable:
    """`image_resize` of images by linear interpolation."""
    return image_resize(
        input, out_shape, scale, name, "BILINEAR", actual_shape, align_corners, align_mode, data_format
    )  # fmt: skip


@layer
def resize_nearest(
    input: Variable,
    out_shape: Sizes | None = None,
    scale: float | Variable | None = None,
    name: str | None = None,
    actual_shape: Variable | None = None,
    align_corners: bool = True,
    data_format: str = "NCHW",
) -> Variable:
    """`image_resize` of images by the nearest element."""
    return image_resize(input, out_shape, scale, name, "NEAREST", actual_shape, align_corners, 1, data_format)


@layer
def resize_trilinear(
    input: Variable,
    out_shape: Sizes | None = None,
    scale: float | Variable | None = None,
    name: str | None = None,
    actual_shape: Variable | None = None,
    align_corners: bool = True,
    align_mode: int = 1,
    data_format: str = "NCDHW",
) -> Variable:
    """`image_resize` of volumes by linear interpolation."""
    return image_resize(
        input, out_shape, scale, name, "TRILINEAR", actual_shape, align_corners, align_mode, data_format
    )  # fmt: skip


@layer
def image_resize_short(input: Variable, out_short_len: int, resample: str = "BILINEAR") -> Variable:
    """Images whose shorter side has `out_short_len` elements, the longer one in proportion."""
    shape = check_variable(input, "image_resize_short: input").shape or ()
    if len(shape) != 4 or -1 in shape[2:]:
        raise ProgramError(f"image_resize_short: input must be images of known height and width, got {input}")
    sizes = list(shape[2:])
    short = sizes.index(min(sizes))
    sizes[1 - short] = int(float(sizes[1 - short]) * (float(out_short_len) / float(sizes[short])) + 0.5)
    sizes[short] = out_short_len
    return image_resize(input, sizes, resample=resample)
