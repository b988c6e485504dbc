"""Averages of parameters over the steps of a training."""

from __future__ import annotations

from minigraph.opdef import op
from minigraph.types import DType, TensorType, merge_shapes, require, require_floating, require_same_dtype

_COUNT = TensorType(DType.INT64, (1,))


@op(
    "average_accumulates",
    inputs="param in_sum_1 in_sum_2 in_sum_3 in_num_accumulates in_old_num_accumulates in_num_updates",
    outputs="out_sum_1 out_sum_2 out_sum_3 out_num_accumulates out_old_num_accumulates out_num_updates",
    grad=None,
)
def average_accumulates(
    param: TensorType,
    sum_1: TensorType,
    sum_2: TensorType,
    sum_3: TensorType,
    count: TensorType,
    old_count: TensorType,
    updates: TensorType,
    *,
    average_window: float = 0.0,
    max_average_window: int,
    min_average_window: int = 10000,
) -> tuple[TensorType, ...]:
    """Add the parameter to the sums of which ``(sum_1 + sum_2 + sum_3) / (num_accumulates + old_num_accumulates)`` is
    its average over a window of steps.

    ``sum_1`` takes the parameter; each 16384 updates it is added to ``sum_2`` and starts again, so that small terms are
    not lost. A window is full after ``min(max_average_window, average_window * num_updates)`` steps, but not before
    `min_average_window`: then ``sum_3`` becomes what was summed in it, in place of the window before, and the next one
    begins.
    """
    require_floating(param, "param")
    for slot, total in (("in_sum_1", sum_1), ("in_sum_2", sum_2), ("in_sum_3", sum_3)):
        require_same_dtype(f"param and {slot}", param, total)
        merge_shapes(param.shape, total.shape, f"param and {slot}")
    for slot, number in (
        ("in_num_accumulates", count), ("in_old_num_accumulates", old_count), ("in_num_updates", updates)
    ):  # fmt: skip
        require(number.fits(_COUNT), f"{slot} must be {_COUNT}, got {number}")
    require(
        min_average_window <= max_average_window,
        f"min_average_window={min_average_window} is more than max_average_window={max_average_window}",
    )
    return sum_1, sum_2, sum_3, count, old_count, updates
