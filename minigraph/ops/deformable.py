"""Convolutions whose windows take elements at places that are computed, between the elements of the images."""

from __future__ import annotations

from minigraph.opdef import op
from minigraph.opdef.gradient_rules import fused
from minigraph.support.window_rules import lay_windows
from minigraph.types import TensorType, require, require_floating, require_same_dtype, same_dim


def _result(
    x: TensorType,
    offset: TensorType,
    mask: TensorType | None,
    filter: TensorType,
    strides: list[int],
    paddings: list[int],
    dilations: list[int],
    groups: int,
    deformable_groups: int,
) -> TensorType:
    require_floating(x, "Input")
    given = {"Input": x, "Offset": offset, "Filter": filter} | ({} if mask is None else {"Mask": mask})
    require_same_dtype(", ".join(given), *given.values())
    for slot, each in given.items():
        require(each.rank == 4, f"{slot} must have 4 dimensions, got {each}")
    channels, (filters, per_group, *size) = x.shape[1], filter.shape
    require(groups > 0 and deformable_groups > 0, f"groups must be positive, got {groups} and {deformable_groups}")
    fits = per_group == -1 or same_dim(channels, per_group * groups)
    splits = (channels == -1 or channels % deformable_groups == 0) and (filters == -1 or filters % groups == 0)
    require(
        fits and splits,
        f"{channels} channels and {filters} filters of {per_group} channels do not go with groups={groups} and"
        f" deformable_groups={deformable_groups}",
    )
    windows = lay_windows(x.shape[2:], size, strides, paddings, "EXPLICIT", dilations)
    counts = tuple(along.count for along in windows)
    elements = -1 if -1 in size else deformable_groups * size[0] * size[1]
    for slot, number in (("Offset", -1 if elements == -1 else 2 * elements), ("Mask", elements)):
        if slot in given:
            expected = (x.shape[0], number, *counts)
            same = all(map(same_dim, given[slot].shape, expected))
            require(same, f"{slot} must have shape {list(expected)}, got {list(given[slot].shape)}")
    return x.with_shape((x.shape[0], filters, *counts))


@op(
    "deformable_conv",
    inputs="Input Offset Mask Filter",
    outputs="Output",
    grad=fused("Input", "Offset", "Mask", "Filter", lod=False),
)
def deformable_conv(
    x: TensorType,
    offset: TensorType,
    mask: TensorType,
    filter: TensorType,
    *,
    strides: list[int] = (1, 1),  # type: ignore[assignment]
    paddings: list[int] = (0, 0),  # type: ignore[assignment]
    dilations: list[int] = (1, 1),  # type: ignore[assignment]
    groups: int = 1,
    deformable_groups: int = 1,
    im2col_step: int = 64,
) -> TensorType:
    """``conv2d`` whose windows take each element at a place moved by Offset, by bilinear interpolation, times Mask.

    For each element of a window Offset has a channel for the rows and one for the columns, and Mask has a channel, with
    a number for each window. `deformable_groups` parts of the channels of Input have offsets of their own. Outside of
    Input there are zeros. `im2col_step` changes nothing.

    References
    ----------
    X. Zhu et al., Deformable ConvNets v2: More deformable, better results, CVPR 2019.
    """
    return _result(x, offset, mask, filter, strides, paddings, dilations, groups, deformable_groups)


@op(
    "deformable_conv_v1", inputs="Input Offset Filter", outputs="Output",
    grad=fused("Input", "Offset", "Filter", lod=False),
)  # fmt: skip
def deformable_conv_v1(
    x: TensorType,
    offset: TensorType,
    filter: TensorType,
    *,
    strides: list[int] = (1, 1),  # type: ignore[assignment]
    paddings: list[int] = (0, 0),  # type: ignore[assignment]
    dilations: list[int] = (1, 1),  # type: ignore[assignment]
    groups: int = 1,
    deformable_groups: int = 1,
    im2col_step: int = 64,
) -> TensorType:
    """``deformable_conv`` without Mask.

    References
    ----------
    J. Dai et al., Deformable convolutional networks, ICCV 2017.
    """
    return _result(x, offset, None, filter, strides, paddings, dilations, groups, deformable_groups)
