"""Rows for convolutions whose windows take elements at places that are computed."""

from typing import Any

from minigraph.rewrite.random_programs.sampling import floats, sample
from minigraph.support.window_rules import lay_windows


def _row(x: tuple[int, ...], filters: int, size: tuple[int, int], modulated: bool, spread: float, **attrs: Any) -> Any:
    """A sample whose places are about `spread` elements away from those of a convolution."""
    attrs = {"strides": [1, 1], "paddings": [0, 0], "dilations": [1, 1], **attrs}
    laid = lay_windows(x[2:], size, attrs["strides"], attrs["paddings"], "EXPLICIT", attrs["dilations"])
    counts = [along.count for along in laid]
    number = attrs.get("deformable_groups", 1) * size[0] * size[1]
    inputs = {
        "Input": floats(*x), "Offset": spread * floats(x[0], 2 * number, *counts),
        "Filter": floats(filters, x[1] // attrs.get("groups", 1), *size),
    }  # fmt: skip
    if modulated:
        inputs["Mask"] = floats(x[0], number, *counts)
    return sample("deformable_conv" if modulated else "deformable_conv_v1", **inputs, **attrs)


SAMPLES = [
    _row(x, filters, size, modulated, spread, **attrs)
    for modulated in (True, False)
    for x, filters, size, spread, attrs in (
        ((2, 2, 4, 5), 3, (2, 3), 1.0, {}),
        ((1, 4, 3, 3), 2, (3, 3), 0.5, {"paddings": [1, 2], "deformable_groups": 2}),
        ((1, 4, 5, 4), 4, (2, 2), 4.0, {"strides": [2, 1], "dilations": [1, 2], "groups": 2}),
        ((1, 1, 1, 1), 1, (1, 1), 0.3, {"im2col_step": 1}),
        ((0, 2, 3, 3), 2, (2, 2), 1.0, {}),
    )
]
