"""Binary elementwise operators, with fluid's broadcasting: y is aligned with x from dimension ``axis`` on."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from minigraph.errors import ExecutionError
from minigraph.kernels.buffers import deliver, shaped, unshared, zeros
from minigraph.kernels.integer_power import integer_power
from minigraph.kernels.registry import for_all_sizes, kernel, specialize
from minigraph.kernels.sums import add_over, are_rows, last_of, sum_of_rows, sums_of_last
from minigraph.types import align_shape


def laid_over(x, y, axis) -> Any:
    """`y` in a shape that NumPy broadcasts to `x` as fluid does."""
    # The stand-ins for arrays that trace a kernel have a shape and no `ndim`.
    return y if axis == -1 or axis == len(x.shape) - len(y.shape) else y.reshape(align_shape(x.shape, y.shape, axis))


def _is_right_aligned(aligned, shape) -> bool:
    """Whether NumPy broadcasts an array of `shape` like one of shape `aligned`."""
    return aligned == (1,) * (len(aligned) - len(shape)) + tuple(shape)


def _offer_function(name: str, floating_only: bool = False) -> Any:
    """The array module's own function, with a reshape of y if the axis needs one."""

    def offer(xp, x, y, *, axis):
        # Integers are divided toward zero, which no function of NumPy does.
        if floating_only and x.dtype.kind != "f":
            return None
        function = getattr(xp, name)
        if axis == -1 or axis == len(x.shape) - len(y.shape):  # also where only a run knows some sizes
            return function
        if -1 in (*x.shape, *y.shape):
            return None
        aligned = align_shape(x.shape, y.shape, axis)
        if _is_right_aligned(aligned, y.shape):
            return function
        added = len(aligned) - axis - len(y.shape)
        if added > 0 and aligned == (1,) * axis + tuple(y.shape) + (1,) * added:
            index = (..., *[None] * added)
            return for_all_sizes(lambda x, y, out=None: function(x, y[index], out=out))
        return lambda x, y, out=None: function(x, y.reshape(aligned), out=out)

    return offer


def function_of_module(type: str, name: str) -> Callable[..., Any]:
    """Register one function of the array module as a kernel."""

    def function(xp, x, y, *, axis, out=None):
        return getattr(xp, name)(x, laid_over(x, y, axis), out=out)

    specialize(type, any_size=True)(_offer_function(name))
    return kernel(type)(function)


elementwise_add = function_of_module("elementwise_add", "add")
elementwise_sub = function_of_module("elementwise_sub", "subtract")
elementwise_mul = function_of_module("elementwise_mul", "multiply")
elementwise_max = function_of_module("elementwise_max", "maximum")
elementwise_min = function_of_module("elementwise_min", "minimum")
specialize("elementwise_div", any_size=True)(_offer_function("true_divide", floating_only=True))


@kernel("elementwise_div")
def elementwise_div(xp, x, y, *, axis, out=None):
    if x.dtype.kind != "f":
        return elementwise_floordiv(xp, x, y, axis=axis, out=out)
    return xp.true_divide(x, laid_over(x, y, axis), out=out)


@kernel("elementwise_floordiv")
def elementwise_floordiv(xp, x, y, *, axis, out=None):
    y = laid_over(x, y, axis)
    _check_divisor(y)
    quotient, rest = xp.floor_divide(x, y), xp.remainder(x, y)
    quotient += (rest != 0) & ((x < 0) != (y < 0))  # from the floor toward zero
    return deliver(xp, quotient, out)


@kernel("elementwise_mod")
def elementwise_mod(xp, x, y, *, axis, out=None):
    y = laid_over(x, y, axis)
    if x.dtype.kind != "f":
        _check_divisor(y)
        return xp.fmod(x, y, out=out)
    if xp is np:
        return np.remainder(x, y, out=out)
    # CuPy's `remainder` gives NaN for an infinite divisor.
    rest = xp.fmod(x, y)
    rest = xp.where((rest != 0) & ((rest < 0) != (y < 0)), rest + y, rest)
    return deliver(xp, xp.where(rest == 0, xp.copysign(rest, y), rest), out)


def _check_divisor(y) -> None:
    # NumPy would warn and give 0.
    if not y.all():
        raise ExecutionError("integer division by zero")


@kernel("elementwise_pow")
def elementwise_pow(xp, x, y, *, axis, out=None):
    y = laid_over(x, y, axis)
    if x.dtype.kind == "f":
        return xp.power(x, y, out=out)
    return deliver(xp, integer_power(xp, x, y), out)


Term = Callable[[Any], Any]
"""Function that writes the gradient of an operand to a buffer, before the sum over its broadcast dimensions."""


def _gradients(xp, x, y, d_out, wanted, out, to_x: Term | None, to_y: Term | None, shapes, also_read=()) -> Any:
    """Gradients of both operands; a term of None stands for `d_out` itself.

    `x` and `y` have shapes that broadcast, `shapes` are those of the operands.
    """
    d_x_buffer, d_y_buffer = out or (None, None)
    d_x = d_y = None
    if out is None and x.shape == y.shape == d_out.shape and shapes[0] == shapes[1]:
        # Nothing is broadcast, as in each step of a loop.
        return tuple([
            (xp.positive(d_out) if term is None else term(None)) if is_wanted else None
            for term, is_wanted in zip((to_x, to_y), wanted, strict=True)
        ])  # fmt: skip
    # The buffer of one gradient may be the memory of an operand that the other gradient still reads.
    if wanted[1]:
        free = unshared(xp, d_y_buffer, x, y, d_out, *also_read) if wanted[0] else d_y_buffer
        d_y = _to_operand(xp, to_y, d_out, y.shape, free).reshape(shapes[1])
        d_y = d_y if free is None else free
    if wanted[0]:
        d_x = _to_operand(xp, to_x, d_out, x.shape, d_x_buffer).reshape(shapes[0])
        d_x = d_x if d_x_buffer is None else d_x_buffer
    return d_x, deliver(xp, d_y, d_y_buffer) if wanted[1] else None


def _to_operand(xp, term: Term | None, d_out, shape, buffer) -> Any:
    padded, axes = _broadcast_axes(d_out.shape, shape)
    if axes:
        full = d_out if term is None else term(None)
        return add_over(xp, full, axes, keepdims=True, out=shaped(buffer, padded))
    if term is None:
        # `positive` copies, without a new array where there is a buffer.
        return xp.positive(d_out, out=shaped(buffer, d_out.shape))
    return term(shaped(buffer, d_out.shape))


def _broadcast_axes(full, shape) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """`shape` padded with ones in front, and the dimensions along which it is broadcast to `full`."""
    padded = (1,) * (len(full) - len(shape)) + tuple(shape)
    return padded, tuple(i for i, (size, own) in enumerate(zip(full, padded, strict=True)) if size != own)


@kernel("elementwise_add_grad", view="d_out")
def elementwise_add_grad(xp, x, y, d_out, *, axis, wanted, out=None):
    # The gradient of X may be the incoming one itself; then that of Y must not be.
    is_same = wanted[0] and out is None and x.shape == d_out.shape
    rest = (False, wanted[1]) if is_same else wanted
    d_x, d_y = _gradients(xp, x, laid_over(x, y, axis), d_out, rest, out, None, None, (x.shape, y.shape))
    return d_out if is_same else d_x, d_y


@kernel("elementwise_sub_grad")
def elementwise_sub_grad(xp, x, y, d_out, *, axis, wanted, out=None):
    def to_y(out):
        return xp.negative(d_out, out=out)

    return _gradients(xp, x, laid_over(x, y, axis), d_out, wanted, out, None, to_y, (x.shape, y.shape))


@kernel("elementwise_mul_grad")
def elementwise_mul_grad(xp, x, y, d_out, *, axis, wanted, out=None):
    over = laid_over(x, y, axis)

    def to_x(out):
        return xp.multiply(d_out, over, out=out)

    def to_y(out):
        return xp.multiply(d_out, x, out=out)

    return _gradients(xp, x, over, d_out, wanted, out, to_x, to_y, (x.shape, y.shape))


@kernel("elementwise_div_grad")
def elementwise_div_grad(xp, x, y, result, d_out, *, axis, wanted, out=None):
    """``dX = dOut / Y`` and ``dY = -dOut * Out / Y``."""
    over = laid_over(x, y, axis)

    def to_x(out):
        return xp.true_divide(d_out, over, out=out)

    def to_y(out):
        d_y = xp.multiply(d_out, result)
        xp.negative(d_y, out=d_y)
        return xp.true_divide(d_y, over, out=out)

    return _gradients(xp, x, over, d_out, wanted, out, to_x, to_y, (x.shape, y.shape), also_read=(result,))


def _second_gradient_of_sum(type: str, name: str) -> None:
    """Register ``ddOut = ddX + ddY`` or ``ddX - ddY``, by `name`; an input of None is zero."""

    def gradient(xp, y, d_out, dd_x, dd_y, *, axis, out=None):
        if dd_y is None:
            return _repeated(xp, dd_x, d_out, out)
        dd_over = laid_over(d_out, dd_y, axis)
        if dd_x is None:
            return _repeated(xp, dd_over if name == "add" else -dd_over, d_out, out)
        return getattr(xp, name)(dd_x, dd_over, out=out)

    kernel(type)(gradient)


def _repeated(xp, x, like, out) -> Any:
    """`x` in the shape of `like`, in memory of its own."""
    whole = xp.broadcast_to(x, like.shape)
    return whole.copy() if out is None else deliver(xp, whole, out)


_second_gradient_of_sum("elementwise_add_grad_grad", "add")
_second_gradient_of_sum("elementwise_sub_grad_grad", "subtract")


@kernel("elementwise_mul_grad_grad")
def elementwise_mul_grad_grad(xp, x, y, d_out, dd_x, dd_y, *, axis, wanted, out=None):
    over, dd_over = laid_over(x, y, axis), None if dd_y is None else laid_over(x, dd_y, axis)
    buffers = out or (None, None, None)
    dd_out = None
    if wanted[2]:
        free = unshared(xp, buffers[2], x, y, d_out, *(dd for dd in (dd_x, dd_y) if dd is not None))
        dd_out = _product_of_flowing(xp, over, x, dd_x, dd_over, free)

    def to_x(out):
        return xp.multiply(d_out, dd_over, out=out)

    def to_y(out):
        return xp.multiply(d_out, dd_x, out=out)

    there = wanted[0] and dd_y is not None, wanted[1] and dd_x is not None
    also_read = [dd for dd in (dd_x, dd_y) if dd is not None]
    d_x, d_y = _gradients(xp, x, over, d_out, there, buffers[:2], to_x, to_y, (x.shape, y.shape), also_read)
    if wanted[0] and d_x is None:
        d_x = zeros(xp, x, buffers[0])
    if wanted[1] and d_y is None:
        d_y = zeros(xp, y, buffers[1])
    return d_x, d_y, deliver(xp, dd_out, buffers[2])


def _product_of_flowing(xp, over, x, dd_x, dd_over, out) -> Any:
    """``dd_x * y + x * dd_y``."""
    if dd_x is None:
        return xp.multiply(x, dd_over, out=out)
    product = xp.multiply(dd_x, over, out=out)
    return product if dd_over is None else xp.add(product, x * dd_over, out=product)


@kernel("elementwise_div_grad_grad")
def elementwise_div_grad_grad(xp, y, result, d_x, dd_x, dd_y, *, axis, wanted):
    """``ddOut = (ddX - Out * ddY) / Y`` and ``dY = -dX * ddOut``; ``dOut = -dX * ddY`` flows into the quotient."""
    over, dd_over = laid_over(result, y, axis), None if dd_y is None else laid_over(result, dd_y, axis)
    numerator = dd_x
    if dd_over is not None:
        product = result * dd_over
        numerator = -product if dd_x is None else dd_x - product
    dd_out = xp.true_divide(numerator, over)
    d_y = d_result = None
    if wanted[0]:
        d_y = _to_operand(xp, lambda out: -(d_x * dd_out), dd_out, over.shape, None).reshape(y.shape)
    if wanted[1]:
        d_result = xp.zeros_like(d_x) if dd_over is None else -(d_x * dd_over)
    return d_y, d_result, dd_out


@kernel("elementwise_pow_grad")
def elementwise_pow_grad(xp, x, y, d_out, *, axis, wanted, out=None):
    """``dX = dOut * Y * X ** (Y - 1)`` and ``dY = dOut * log(X) * X ** Y``, without 0 times infinity."""
    over, zero = laid_over(x, y, axis), x.dtype.type(0)

    def to_x(out):
        slope = xp.where(over == 0, zero, over * xp.power(x, over - 1))
        return xp.multiply(d_out, slope, out=out)

    def to_y(out):
        slope = xp.where((x == 0) & (over > 0), zero, xp.log(x) * xp.power(x, over))
        return xp.multiply(d_out, slope, out=out)

    return _gradients(xp, x, over, d_out, wanted, out, to_x, to_y, (x.shape, y.shape))


def _gradient_of_extreme(type: str, taken: str, left: str) -> None:
    """Register the gradient of an extreme, which is X's where `taken` holds, and Y's where `left` does."""

    def gradient(xp, x, y, d_out, *, axis, wanted, out=None):
        over = laid_over(x, y, axis)

        def to_x(out):
            return xp.multiply(d_out, getattr(xp, taken)(x, over), out=out)

        def to_y(out):
            return xp.multiply(d_out, getattr(xp, left)(x, over), out=out)

        return _gradients(xp, x, over, d_out, wanted, out, to_x, to_y, (x.shape, y.shape))

    kernel(type)(gradient)


_gradient_of_extreme("elementwise_max_grad", "greater", "less_equal")
_gradient_of_extreme("elementwise_min_grad", "less", "greater_equal")


def _quicker_sum(xp, full, shape, aligned, copies) -> Callable[..., Any] | None:
    """A function that sums an array like `full` to `shape`, aligned with it as `aligned`, into a buffer or None.

    With nothing to sum and no buffer, the function returns a copy or, without `copies`, its argument. None if only
    `add_over` rounds rightly, or if `full` has too few dimensions, which the kernel reports.
    """
    if len(full.shape) < len(aligned):
        return None
    _, axes = _broadcast_axes(full.shape, aligned)
    last = last_of(full.shape, axes) if axes and full.dtype.kind == "f" else ()
    if axes and (xp is not np or full.dtype == np.float16 or 0 < len(last) < len(axes)):
        return None
    add, dtype, shape = np.add.reduce, full.dtype, tuple(shape)
    if last:
        return lambda d, out: deliver(np, sums_of_last(d, last).reshape(shape), out)
    if axes and full.dtype.kind == "f" and are_rows(full.shape, axes):
        # As in `add_over`, a product with ones: NumPy adds leading dimensions row after row, with more rounding.
        rows, columns = math.prod(full.shape[: len(axes)]), math.prod(full.shape[len(axes) :])
        if len(full.shape) == 2 and shape == (columns,):
            return sum_of_rows
        return lambda d, out: deliver(xp, sum_of_rows(d.reshape(rows, columns)).reshape(shape), out)
    if tuple(size for i, size in enumerate(full.shape) if i not in axes) != shape:
        return lambda d, out: deliver(
            xp, (add(d, axes, dtype) if axes else d.copy() if copies else d).reshape(shape), out
        )
    if axes:
        return lambda d, out: add(d, axes, dtype, out)
    if copies:
        return lambda d, out: deliver(xp, d.copy() if out is None else d, out)
    return _delivered if xp is np else lambda d, out: deliver(xp, d, out)


def _delivered(d, out):
    return deliver(np, d, out)


@specialize("elementwise_add_grad", any_size=True)
def _quicker_add_grad(xp, x, y, d_out, *, axis, wanted):
    if -1 in (*x.shape, *y.shape, *d_out.shape):
        return _add_grad_of_any_size(xp, axis, wanted)
    aligned = align_shape(x.shape, y.shape, axis)
    # The gradient of X may be the incoming one itself; then that of Y must not be.
    to_x = _quicker_sum(xp, d_out, x.shape, x.shape, copies=False)
    to_y = _quicker_sum(xp, d_out, y.shape, aligned, copies=True)
    wants_x, wants_y = wanted
    if to_x is None or to_y is None:
        return None

    def add_grad(x, y, d_out, out=(None, None)):
        d_y = to_y(d_out, out[1]) if wants_y else None
        return (to_x(d_out, out[0]) if wants_x else None), d_y

    return add_grad


def _add_grad_of_any_size(xp, axis, wanted) -> Callable[..., Any]:
    """The gradient of a sum, quick in each run that broadcasts nothing, as most steps of a loop do."""
    wants_x, wants_y = wanted

    def add_grad(x, y, d_out, out=None):
        if x.shape != y.shape or x.shape != d_out.shape or out is not None:
            return elementwise_add_grad(xp, x, y, d_out, axis=axis, wanted=wanted, out=out)
        return d_out if wants_x else None, d_out.copy() if wants_y else None

    return add_grad


@specialize("elementwise_mul_grad", any_size=True)
def _quicker_mul_grad(xp, x, y, d_out, *, axis, wanted):
    if -1 in (*x.shape, *y.shape, *d_out.shape):
        return _mul_grad_of_any_size(xp, axis, wanted)
    aligned = align_shape(x.shape, y.shape, axis)
    to_x = _quicker_sum(xp, d_out, x.shape, x.shape, copies=False)
    to_y = _quicker_sum(xp, d_out, y.shape, aligned, copies=False)
    multiply, (wants_x, wants_y) = xp.multiply, wanted
    if to_x is None or to_y is None or not _is_right_aligned(aligned, y.shape):
        return None

    def mul_grad(x, y, d_out, out=None):
        if out is not None and (out[0] is not None or out[1] is not None):
            return elementwise_mul_grad(xp, x, y, d_out, axis=axis, wanted=wanted, out=out)
        d_x = to_x(multiply(d_out, y), None) if wants_x else None
        return d_x, (to_y(multiply(d_out, x), None) if wants_y else None)

    sums = [to for to, is_wanted in ((to_x, wants_x), (to_y, wants_y)) if is_wanted]
    return for_all_sizes(mul_grad) if all([to is _delivered for to in sums]) else mul_grad


def _mul_grad_of_any_size(xp, axis, wanted) -> Callable[..., Any]:
    """The gradient of a product, quick in each run that broadcasts nothing."""
    multiply, (wants_x, wants_y) = xp.multiply, wanted

    def mul_grad(x, y, d_out, out=None):
        if x.shape != y.shape or x.shape != d_out.shape or out is not None:
            return elementwise_mul_grad(xp, x, y, d_out, axis=axis, wanted=wanted, out=out)
        return multiply(d_out, y) if wants_x else None, multiply(d_out, x) if wants_y else None

    return mul_grad
