"""Normalization of rows or channels and its gradients, with sums in float64, called from Python and from tables.

Results are within 16 units of the last place of the largest.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from minigraph.kernels.jit import offers
from minigraph.kernels.jit.compiling import Loops
from minigraph.kernels.jit.functions import UnsupportedError
from minigraph.kernels.jit.loops_in_tables import record_loop, types_of
from minigraph.kernels.jit.offers import numba_name, offer, vectors
from minigraph.kernels.jit.recorders import native_loop
from minigraph.kernels.normalization import FEW_TO_A_MEAN, uses_running_statistics
from minigraph.kernels.products import LEAST_SQUARE
from minigraph.support.window_rules import CHANNELS_LAST

_MODULES = ("normalization",)
_LOOPS = Loops(*_MODULES)
_LETTERS = {
    "layer_norm": "mvvfmvv",
    "layer_norm_grad": "mvvvmfmmww",
    "batch_norm": "mvvvvffmvvvv",
    "batch_norm_grad": "mvvvmmvv",
    "batch_norm_given": "mvvvvfmv",
    "batch_norm_given_grad": "mvvvmmvv",
    "batch_norm_of_rows": "mvvvvffmwwvvvvvv",
    "batch_norm_grad_of_rows": "mvvvmmwwwvvvvvv",
    "batch_norm_given_of_rows": "mvvvvfmwv",
    "batch_norm_given_grad_of_rows": "mvvvmmwwvvv",
    "group_norm": "mvvifmvvv",
    "group_norm_grad": "mvvvmifmww",
    "instance_norm_grad": "mvvvmmww",
    "unit_rows": "mfvm",
    "unit_rows_grad": "mmfm",
    "cosines": "mmfvvv",
    "cosines_grad": "mmvvvvfm",
    "cosines_grads": "mmvvvvfmm",
}
"""The kinds of the parameters of each loop, see `minigraph.kernels.jit.loops_in_tables`."""


def _register(type: str, loop_for: Callable[..., str | None], arranged: Callable[..., Any]) -> None:
    """Offer a loop for an operator, and record it for tables.

    ``loop_for(*inputs, **attrs)`` returns the name of the loop for inputs of these types, or None.
    ``arranged(new, name, *inputs, **attrs)`` returns its arguments and the results, for arrays as for symbols; what
    ``new(shape, dtype)`` makes, results first, has memory of its own.
    """

    @offer(type)
    def offered(xp: Any, *types: Any, **attrs: Any) -> Any:
        name = loop_for(*types, **attrs)
        if name is None:
            return None
        loop = _LOOPS.typed(name, _LETTERS[name], types_of(types[0].dtype))

        def call(*inputs: Any, out: Any = ()) -> Any:
            buffers = list(out) if isinstance(out, tuple | list) else [out]
            vectors(*[x for x in (*inputs, *buffers) if x is not None])

            def new(shape: Any, dtype: Any) -> Any:
                buffer = buffers.pop(0) if buffers else None
                return np.empty(shape, dtype) if buffer is None else buffer

            given, results = arranged(new, name, *inputs, **attrs)
            loop(*given)
            return results() if callable(results) else results

        return call

    @native_loop(type)
    def recorded(recording: Any, *inputs: Any, **attrs: Any) -> Any:
        name = loop_for(*inputs, **attrs)
        if name is None or any(x is not None and x.is_transposed for x in inputs):
            raise UnsupportedError("another way")
        given, results = arranged(recording.new, name, *inputs, **attrs)
        record_loop(recording, _MODULES, name, _LETTERS[name], *given)
        return results() if callable(results) else results


def _is_compiled(x: Any, means: int, *others: Any) -> bool:
    """Whether there is a loop for arrays of the type of `x`, and there are enough elements, also for each mean."""
    alike = all(each is None or each.dtype == x.dtype for each in others)
    size = prod(x.shape)
    return alike and numba_name(x.dtype) is not None and size >= offers.LEAST and size > FEW_TO_A_MEAN * means > 0


# Rows


def _layer_norm_loop(x: Any, scale: Any, bias: Any, *, epsilon: float, begin_norm_axis: int) -> str | None:
    has_both = 0 < begin_norm_axis < len(x.shape)
    return "layer_norm" if has_both and _is_compiled(x, prod(x.shape[:begin_norm_axis]), scale, bias) else None


def _layer_norm(new, name, x, scale, bias, *, epsilon, begin_norm_axis):
    rows = prod(x.shape[:begin_norm_axis])
    y, mean, variance = new(x.shape, x.dtype), new((rows,), x.dtype), new((rows,), x.dtype)
    matrix = rows, prod(x.shape) // rows
    scale, bias = _filled(new, scale, matrix[1], x.dtype, 1), _filled(new, bias, matrix[1], x.dtype, 0)
    return (x.reshape(matrix), scale, bias, epsilon, y.reshape(matrix), mean, variance), (y, mean, variance)


def _filled(new: Any, vector: Any, size: int, dtype: Any, number: int) -> Any:
    """A vector, or one of the same `number` in its place."""
    if vector is not None:
        return vector.reshape(-1)
    made = new((size,), dtype)
    made[...] = number
    return made


def _layer_norm_grad_loop(x, scale, bias, mean, variance, d_y, *, epsilon, begin_norm_axis, wanted):
    has_both = 0 < begin_norm_axis < len(x.shape) and wanted[0]
    fits = has_both and _is_compiled(x, prod(x.shape[:begin_norm_axis]), scale, bias, mean, variance, d_y)
    return "layer_norm_grad" if fits else None


def _layer_norm_grad(new, name, x, scale, bias, mean, variance, d_y, *, epsilon, begin_norm_axis, wanted):
    rows = prod(x.shape[:begin_norm_axis])
    matrix = rows, prod(x.shape) // rows
    d_x, work = new(x.shape, x.dtype), new((2, matrix[1]), x.dtype)
    d_scale, d_bias = new((matrix[1],), np.float64), new((matrix[1],), np.float64)
    given = (
        x.reshape(matrix), _filled(new, scale, matrix[1], x.dtype, 1), mean, variance, d_y.reshape(matrix), epsilon,
        d_x.reshape(matrix), work, d_scale, d_bias,
    )  # fmt: skip
    return given, lambda: (d_x, *_narrowed(x.dtype, (d_scale, d_bias), wanted[1:]))


def _narrowed(dtype: Any, sums: Any, wanted: Any) -> list[Any]:
    """The wanted ones of the sums, in the type of X; None for others."""
    pairs = zip(sums, wanted, strict=True)
    return [each.astype(dtype, copy=False) if is_wanted else None for each, is_wanted in pairs]


_register("layer_norm", _layer_norm_loop, _layer_norm)
_register("layer_norm_grad", _layer_norm_grad_loop, _layer_norm_grad)


# Channels

_GIVEN = {"batch_norm": "batch_norm_given", "batch_norm_grad": "batch_norm_given_grad"}
"""Loops for statistics that are given."""

_OF_ROWS = "_of_rows"
"""End of the names of loops for channels in the last dimension."""


def _channel_loop(name: str, x: Any, own: Any, d_y: Any, attrs: Any) -> str | None:
    """The loop for images whose channels have vectors like those in `own`."""
    if any(each is None for each in own) or not _is_compiled(x, prod(own[0].shape), *own, d_y):
        return None
    keys = ("is_test", "use_global_stats", "trainable_statistics")
    name = _GIVEN[name] if uses_running_statistics(*[attrs[key] for key in keys]) else name
    are_side_by_side = attrs["data_layout"] == CHANNELS_LAST or prod(x.shape[2:]) == 1
    return name + _OF_ROWS if are_side_by_side else name


def _by_channel(name: str, x: Any, channels: int) -> tuple[int, int]:
    """Rows and columns: a row has the elements of an image and channel, or one element of each channel."""
    rows = prod(x.shape) // channels if name.endswith(_OF_ROWS) else x.shape[0] * channels
    return rows, prod(x.shape) // rows


def _batch_norm_loop(x, scale, bias, mean, variance, momentum_tensor, **attrs):
    return (
        None
        if momentum_tensor is not None
        else _channel_loop("batch_norm", x, (scale, bias, mean, variance), None, attrs)
    )


def _batch_norm(new, name, x, scale, bias, mean, variance, momentum_tensor, *, momentum, epsilon, **attrs):
    matrix, own, wide = _by_channel(name, x, scale.shape[0]), (scale.shape, x.dtype), (scale.shape, np.float64)
    y = new(x.shape, x.dtype)
    flat = x.reshape(matrix), scale, bias, mean, variance
    if name.startswith("batch_norm_given"):
        work, inverse = [new(*wide)] if name.endswith(_OF_ROWS) else [], new(*own)
        results = lambda: (y, mean.copy(), variance.copy(), mean.copy(), inverse)  # noqa: E731
        return (*flat, epsilon, y.reshape(matrix), *work, inverse), results
    work = [new(*each) for each in (wide, wide, own, own)] if name.endswith(_OF_ROWS) else []
    found = [new(*own) for _ in range(4)]
    return (*flat, momentum, epsilon, y.reshape(matrix), *work, *found), (y, *found)


def _batch_norm_grad_loop(x, scale, bias, saved_mean, saved_inverse, d_y, *, wanted, **attrs):
    own = scale, bias, saved_mean, saved_inverse
    return _channel_loop("batch_norm_grad", x, own, d_y, attrs) if wanted[0] else None


def _batch_norm_grad(new, name, x, scale, bias, saved_mean, saved_inverse, d_y, *, wanted, **attrs):
    matrix, own, wide = _by_channel(name, x, scale.shape[0]), (scale.shape, x.dtype), (scale.shape, np.float64)
    d_x, d_scale, d_bias = new(x.shape, x.dtype), new(*own), new(*own)
    work = []
    if name.endswith(_OF_ROWS):
        kinds = (wide, wide, own) if name.startswith("batch_norm_given") else (*[wide] * 3, *[own] * 4)
        work = [new(*each) for each in kinds]
    matrices = x.reshape(matrix), scale, saved_mean, saved_inverse, d_y.reshape(matrix), d_x.reshape(matrix)
    found = tuple([each if is_wanted else None for each, is_wanted in zip((d_x, d_scale, d_bias), wanted, strict=True)])
    return (*matrices, *work, d_scale, d_bias), found


_register("batch_norm", _batch_norm_loop, _batch_norm)
_register("batch_norm_grad", _batch_norm_grad_loop, _batch_norm_grad)


# Groups of channels, and single ones


def _group_loop(name: str, x: Any, groups: int, data_layout: str, own: Any, others: Any = ()) -> str | None:
    """The loop for groups of channels that have vectors like those in `own`."""
    if data_layout == CHANNELS_LAST or any(each is None for each in own):
        return None
    return name if _is_compiled(x, x.shape[0] * groups, *own, *others) else None


def _group_norm_loop(x, scale, bias, *, groups, epsilon, data_layout):
    return _group_loop("group_norm", x, groups, data_layout, (scale, bias))


def _group_norm(new, name, x, scale, bias, *, groups, epsilon, data_layout):
    matrix = x.shape[0] * x.shape[1], prod(x.shape[2:])
    y, mean, variance = new(x.shape, x.dtype), new((x.shape[0], groups), x.dtype), new((x.shape[0], groups), x.dtype)
    count = x.shape[0] * groups
    given = (
        x.reshape(matrix), scale, bias, x.shape[1] // groups, epsilon, y.reshape(matrix), mean.reshape(count),
        variance.reshape(count), new((count,), x.dtype),
    )  # fmt: skip
    return given, (y, mean, variance)


def _group_norm_grad_loop(x, scale, bias, mean, variance, d_y, *, groups, epsilon, data_layout, wanted):
    found = _group_loop("group_norm_grad", x, groups, data_layout, (scale, bias), (mean, variance, d_y))
    return found if wanted[0] else None


def _group_norm_grad(new, name, x, scale, bias, mean, variance, d_y, *, groups, epsilon, data_layout, wanted):
    matrix, count = (x.shape[0] * x.shape[1], prod(x.shape[2:])), x.shape[0] * groups
    d_x, sums = new(x.shape, x.dtype), [new(scale.shape, np.float64) for _ in range(2)]
    given = (
        x.reshape(matrix), scale, mean.reshape(count), variance.reshape(count), d_y.reshape(matrix),
        x.shape[1] // groups, epsilon, d_x.reshape(matrix), *sums,
    )  # fmt: skip
    return given, lambda: (d_x, *_narrowed(x.dtype, sums, wanted[1:]))


def _instance_norm_loop(x, scale, bias, *, epsilon):
    return _group_loop("group_norm", x, x.shape[1], "NCHW", (scale, bias))


def _instance_norm(new, name, x, scale, bias, *, epsilon):
    matrix = x.shape[0] * x.shape[1], prod(x.shape[2:])
    y, mean, inverse, variance = new(x.shape, x.dtype), *[new(matrix[:1], x.dtype) for _ in range(3)]
    given = x.reshape(matrix), scale, bias, 1, epsilon, y.reshape(matrix), mean, variance, inverse
    return given, (y, mean, inverse)


def _instance_norm_grad_loop(x, scale, saved_mean, saved_inverse, d_y, *, epsilon, wanted):
    others = saved_mean, saved_inverse, d_y
    return _group_loop("instance_norm_grad", x, x.shape[1], "NCHW", (scale,), others) if wanted[0] else None


def _instance_norm_grad(new, name, x, scale, saved_mean, saved_inverse, d_y, *, epsilon, wanted):
    matrix = x.shape[0] * x.shape[1], prod(x.shape[2:])
    d_x, sums = new(x.shape, x.dtype), [new(scale.shape, np.float64) for _ in range(2)]
    given = (
        x.reshape(matrix), scale, saved_mean, saved_inverse, d_y.reshape(matrix), d_x.reshape(matrix), *sums
    )  # fmt: skip
    return given, lambda: (d_x, *_narrowed(x.dtype, sums, wanted[1:]))


_register("group_norm", _group_norm_loop, _group_norm)
_register("group_norm_grad", _group_norm_grad_loop, _group_norm_grad)
_register("instance_norm", _instance_norm_loop, _instance_norm)
_register("instance_norm_grad", _instance_norm_grad_loop, _instance_norm_grad)


# Rows brought to length 1


def _unit_loop(name: str, x: Any, axis: int, *others: Any) -> str | None:
    """The loop for rows of float32, whose squares neither overflow nor underflow in float64."""
    is_last = axis in (-1, len(x.shape) - 1)
    fits = is_last and x.dtype == np.float32 and prod(x.shape) >= offers.LEAST and 0 not in x.shape
    return name if fits and all(each.dtype == x.dtype for each in others) else None


def _norm_loop(x, *, axis, epsilon):
    return _unit_loop("unit_rows", x, axis)


def _norm(new, name, x, *, axis, epsilon):
    matrix = prod(x.shape[:-1]), x.shape[-1]
    length, y = new((*x.shape[:-1], 1), x.dtype), new(x.shape, x.dtype)
    return (x.reshape(matrix), epsilon, length.reshape(-1), y.reshape(matrix)), (length, y)


def _norm_grad_loop(x, length, d_y, *, axis, epsilon):
    return _unit_loop("unit_rows_grad", x, axis, d_y)


def _norm_grad(new, name, x, length, d_y, *, axis, epsilon):
    matrix, d_x = (prod(x.shape[:-1]), x.shape[-1]), new(x.shape, x.dtype)
    return (x.reshape(matrix), d_y.reshape(matrix), epsilon, d_x.reshape(matrix)), d_x


_register("norm", _norm_loop, _norm)
_register("norm_grad", _norm_grad_loop, _norm_grad)


# Angles between rows


def _cosines_loop(name: str, x: Any, y: Any) -> str | None:
    fits = x.dtype == np.float32 and len(x.shape) > 1 and prod(x.shape) >= offers.LEAST and 0 not in x.shape
    return name if fits and y.dtype == x.dtype and y.shape == x.shape else None


def _cos_sim_loop(x, y):
    return _cosines_loop("cosines", x, y)


def _cos_sim(new, name, x, y):
    matrix = x.shape[0], prod(x.shape[1:])
    found = [new((x.shape[0], 1), x.dtype) for _ in range(3)]
    return (x.reshape(matrix), y.reshape(matrix), LEAST_SQUARE, *(each.reshape(-1) for each in found)), tuple(found)


def _cos_sim_grad_loop(x, y, *others, wanted):
    alike = all(each.dtype == x.dtype for each in others)
    return _cosines_loop("cosines_grads" if all(wanted) else "cosines_grad", x, y) if alike and any(wanted) else None


def _cos_sim_grad(new, name, x, y, cosine, x_norm, y_norm, d_out, *, wanted):
    matrix = x.shape[0], prod(x.shape[1:])
    rows = [(x.reshape(matrix), x_norm.reshape(-1)), (y.reshape(matrix), y_norm.reshape(-1))]
    (one, norm), (other, other_norm) = rows if wanted[0] else rows[::-1]
    found = [new(x.shape, x.dtype) if is_wanted else None for is_wanted in wanted]
    made = [each.reshape(matrix) for each in found if each is not None]
    given = one, other, cosine.reshape(-1), norm, other_norm, d_out.reshape(-1), LEAST_SQUARE, *made
    return given, tuple(found)


_register("cos_sim", _cos_sim_loop, _cos_sim)
_register("cos_sim_grad", _cos_sim_grad_loop, _cos_sim_grad)
