"""Change shapes: add or drop dimensions of size 1, split, stack, repeat and pad."""

from __future__ import annotations

from typing import Any

from minigraph.errors import ExecutionError
from minigraph.kernels.buffers import deliver, unshared
from minigraph.kernels.registry import kernel, specialize
from minigraph.kernels.sums import add_over
from minigraph.kernels.tensor import axis_from, in_type, joined, number_in, shape_only
from minigraph.support.shape_rules import split_lengths, unsqueezed
from minigraph.types import product


@kernel("squeeze2", view="x")
def squeeze2(xp, x, *, axes):
    gone = tuple({axis % x.ndim for axis in axes}) if axes else tuple(i for i, dim in enumerate(x.shape) if dim == 1)
    return x.squeeze(gone), shape_only(xp, x)


def numbers_from(parts, vector, numbers) -> list[int]:
    """Numbers given by `parts`, a list of tensors, or else by the tensor `vector`, or else by an attribute."""
    if parts:
        return [number_in(part) for part in parts]
    return list(numbers) if vector is None else vector.reshape(-1).tolist()


@kernel("unsqueeze2", view="x")
def unsqueeze2(xp, x, axes_tensor, axes_tensor_list, *, axes):
    axes = axes or numbers_from(axes_tensor_list, axes_tensor, axes)
    return x.reshape(unsqueezed(x.shape, axes)), shape_only(xp, x)


@kernel("flatten2", view="x")
def flatten2(xp, x, *, axis):
    return x.reshape(product(x.shape[:axis]), product(x.shape[axis:])), shape_only(xp, x)


@kernel("squeeze2_grad", view="d_out")
def restored(xp, x_shape, d_out):
    return d_out.reshape(x_shape.shape[1:])


kernel("unsqueeze2_grad", view="d_out")(restored)
kernel("flatten2_grad", view="d_out")(restored)


@specialize("squeeze2_grad", "unsqueeze2_grad", "flatten2_grad")
def _quicker_restored(xp, x_shape, d_out):
    dims = x_shape.shape[1:]
    return lambda x_shape, d_out: d_out.reshape(dims)


@kernel("split")
def split(xp, x, axis_tensor, sections_tensor_list, *, sections, num, axis):
    at = axis_from(axis, axis_tensor, x.ndim)
    pieces: list[Any] = []
    start = 0
    for length in split_lengths(x.shape[at], num, numbers_from(sections_tensor_list, None, sections)):
        # Copies: the kernel is registered to view nothing, and the memory of `x` may be used again.
        pieces.append(x[(slice(None),) * at + (slice(start, start + length),)].copy())
        start += length
    return pieces


@kernel("stack")
def stack(xp, xs, *, axis, out=None):
    return _stacked(xp, xs, axis, out)


@kernel("stack_grad")
def stack_grad(xp, d_y, *, axis, wanted):
    parts = zip(xp.moveaxis(d_y, axis, 0), wanted[0], strict=True)
    return [xp.array(part, order="C") if is_wanted else None for part, is_wanted in parts]


@kernel("unstack")
def unstack(xp, x, *, axis, num):
    if x.shape[axis] != num:
        raise ExecutionError(f"num is {num} but dimension {axis} of X has {x.shape[axis]} elements")
    return [part.copy() for part in xp.moveaxis(x, axis, 0)]


@kernel("unstack_grad")
def unstack_grad(xp, d_ys, *, axis, out=None):
    return _stacked(xp, d_ys, axis, out)


def _stacked(xp, parts, axis, out) -> Any:
    at = axis % (parts[0].ndim + 1)
    key = (*(slice(None),) * at, None)
    return deliver(xp, joined(xp, [part[key] for part in parts], at, unshared(xp, out, *parts)), out)


@kernel("expand")
def expand(xp, x, times_vector, times_tensor, *, expand_times):
    return _repeated(xp, x, _times(x, times_vector, times_tensor, expand_times))


@kernel("expand_as")
def expand_as(xp, x, target):
    return _repeated(xp, x, _ratios(x, target))


@kernel("expand_grad")
def expand_grad(xp, x, times_vector, times_tensor, d_out, *, expand_times):
    return _added_up(xp, x, d_out, _times(x, times_vector, times_tensor, expand_times))


@kernel("expand_as_grad")
def expand_as_grad(xp, x, target, d_out):
    return _added_up(xp, x, d_out, _ratios(x, target))


def _times(x, vector, parts, numbers) -> list[int]:
    # As in fluid, and unlike elsewhere, the vector comes before the list.
    times = vector.tolist() if vector is not None else numbers_from(parts, None, numbers)
    if len(times) != x.ndim or min(times, default=1) < 1:
        raise ExecutionError(f"expand_times must be {x.ndim} positive numbers, got {times}")
    return times


def _ratios(x, target) -> list[int]:
    """Repetitions of `x` along each dimension that make it as large as `target`."""
    for have, want in zip(x.shape, target.shape, strict=True):
        if want != have and (have == 0 or want == 0 or want % have):
            raise ExecutionError(f"X {list(x.shape)} cannot be repeated to the shape {list(target.shape)}")
    return [want // have if have else 1 for have, want in zip(x.shape, target.shape, strict=True)]


def _repeated(xp, x, times) -> Any:
    """A new array that is written through a view in which each dimension has one for the repetitions before it."""
    result = xp.empty([n * dim for n, dim in zip(times, x.shape, strict=True)], x.dtype)
    apart = result.reshape([size for pair in zip(times, x.shape, strict=True) for size in pair])
    # One assignment, by broadcasting, instead of a concatenation for each dimension.
    apart[...] = x.reshape([size for dim in x.shape for size in (1, dim)])
    return result


def _added_up(xp, x, d_out, times) -> Any:
    apart = d_out.reshape([size for pair in zip(times, x.shape, strict=True) for size in pair])
    repeated = tuple(2 * i for i, n in enumerate(times) if n != 1)
    total = add_over(xp, apart, repeated) if repeated else d_out.copy()
    return total.reshape(x.shape)


@kernel("pad")
def pad(xp, x, *, paddings, pad_value):
    padded = xp.full([dim + n for dim, n in zip(x.shape, _around(paddings), strict=True)], in_type(x.dtype, pad_value))
    padded[_inside(x.shape, paddings)] = x
    return padded


@kernel("pad_grad", view="d_out")
def pad_grad(xp, d_out, *, paddings):
    shape = [dim - n for dim, n in zip(d_out.shape, _around(paddings), strict=True)]
    return d_out[_inside(shape, paddings)]


def _around(paddings) -> list[int]:
    return list(map(sum, zip(paddings[::2], paddings[1::2], strict=True)))


def _inside(shape, paddings) -> tuple[slice, ...]:
    return tuple(slice(before, before + dim) for before, dim in zip(paddings[::2], shape, strict=True))
