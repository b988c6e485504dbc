"""Operators on selected rows between lookup and update: gradients, sums, clips and norms.

Operators on whole rows merge them first. Rows of zeros change no norm and stay zeros, so that each operator gives the
same as for the dense array; except a ``clip`` whose interval excludes 0.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np

from minigraph.kernels import adaptive_clip as adaptive
from minigraph.kernels import clip as clips
from minigraph.kernels import compare, reduce, tensor, training_checks
from minigraph.kernels import norm as norms
from minigraph.kernels.elementwise import elementwise_mul
from minigraph.kernels.embedding import checked_padding
from minigraph.kernels.registry import kernel
from minigraph.kernels.sparse_rows import SparseRows, merged, sum_of_rows, values_of


@kernel("lookup_table_grad", view="d_out", rows=True)
def lookup_table_grad(xp, table, ids, d_out, *, padding_idx):
    """A row for each id. As in fluid, padding gets a row, too, if its number is one of a row."""
    is_padding = checked_padding(xp, table, ids, padding_idx)
    numbers, value = ids.reshape(-1).astype(np.int64), d_out.reshape(ids.size, table.shape[1])
    if is_padding is not None and not 0 <= padding_idx < len(table):
        kept = ~is_padding.reshape(-1)
        numbers, value = numbers[kept], value[kept]
    return SparseRows(numbers, value, len(table))


kernel("lookup_table_v2_grad", view="d_out", rows=True)(lookup_table_grad)


@kernel("merge_selected_rows", view="x", rows=True)
def merge_selected_rows(xp, x):
    return merged(xp, x)


@kernel("get_tensor_from_selected_rows", view="x", rows=True)
def get_tensor_from_selected_rows(xp, x):
    return x.value


kernel("sum", rows=True)(sum_of_rows)


# Element by element, or by a factor


@kernel("assign", rows=True)
def assign_rows(xp, x):
    return x.copy()


@kernel("scale", rows=True)
def scale_rows(xp, x, scale_tensor, *, scale):
    value = tensor.scale(xp, x.value, scale_tensor, scale=scale, bias=0.0, bias_after_scale=True)
    return x.with_value(value)


@kernel("elementwise_mul", rows=True)
def multiply_rows(xp, x, factor):
    """`factor` holds one number."""
    return x.with_value(elementwise_mul(xp, x.value, factor.reshape(1), axis=-1))


@kernel("clip", rows=True)
def clip_rows(xp, x, lower, upper, *, min, max):
    x = merged(xp, x)
    return x.with_value(clips.clip(xp, x.value, lower, upper, min=min, max=max))


# By a norm


@kernel("clip_by_norm", view="x", rows=True)
def clip_rows_by_norm(xp, x, *, max_norm):
    x = merged(xp, x)
    return x.with_value(clips.clip_by_norm(xp, x.value, max_norm=max_norm))


@kernel("clip_by_axis_norm", view="x", rows=True)
def clip_rows_by_axis_norm(xp, x, threshold, *, axes, max_norm, p):
    x = merged(xp, x)
    return x.with_value(clips.clip_by_axis_norm(xp, x.value, threshold, axes=axes, max_norm=max_norm, p=p))


@kernel("clip_by_global_norm", view="xs", rows=True)
def clip_rows_by_global_norm(xp, xs, clip_norm, *, p=2.0, strict=False):
    xs = [merged(xp, x) if isinstance(x, SparseRows) else x for x in xs]
    clipped, norm = clips.clip_by_global_norm(xp, values_of(xp, xs), clip_norm, p=p, strict=strict)
    return with_values(xs, clipped), norm


@kernel("adaptive_clip", rows=True)
def clip_rows_adaptively(xp, x, param, *, axes, clipping, eps):
    x = merged(xp, x)
    runs_over_rows = not axes or 0 in {axis % param.ndim for axis in axes}
    # Norms over rows need the whole parameter; other norms only its rows with a gradient.
    units = param if runs_over_rows else param[x.rows]
    return x.with_value(adaptive.adaptive_clip(xp, x.value, units, axes=axes, clipping=clipping, eps=eps))


@kernel("guard_nonfinite", view="xs", rows=True)
def guard_rows(xp, xs, skipped, *, policy, params):
    xs = [merged(xp, x) if isinstance(x, SparseRows) else x for x in xs]
    passed, found, count = training_checks.guard_nonfinite(xp, values_of(xp, xs), skipped, policy=policy, params=params)
    return with_values(xs, passed), found, count


def with_values(xs, values) -> list[Any]:
    """`values`, as selected rows where `xs` are."""
    return [x.with_value(v) if isinstance(x, SparseRows) else v for x, v in zip(xs, values, strict=True)]


def _measures(type: str, function: Callable[..., Any]) -> None:
    """Register for selected rows a kernel whose results depend on the values of its inputs only."""

    @kernel(type, rows=True)
    @wraps(function)
    def measure(xp, *inputs, **keywords):
        return function(xp, *[values_of(xp, each) for each in inputs], **keywords)


_measures("isfinite", compare.isfinite)
_measures("global_norm", norms.global_norm)
_measures("l1_norm", norms.l1_norm)
_measures("squared_l2_norm", reduce.squared_l2_norm)
_measures("autoclip_threshold", adaptive.autoclip_threshold)
_measures("zclip_threshold", adaptive.zclip_threshold)
_measures("clip_statistics", training_checks.clip_statistics)
