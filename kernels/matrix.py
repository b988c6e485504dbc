"""Matrix products. float16 is multiplied in float32, because NumPy has no fast product of float16."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from minigraph.kernels.buffers import deliver, none_if_zero, shaped, unshared, zeros
from minigraph.kernels.cuda import gemm
from minigraph.kernels.registry import kernel, specialize


def _dot(xp, a, b, out=None) -> Any:
    """Product of two matrices."""
    if xp is np and a.dtype == np.float16:
        return deliver(np, np.dot(a.astype(np.float32), b.astype(np.float32)).astype(np.float16), out)
    return deliver(xp, gemm.dot(xp, a, b, out=unshared(xp, out, a, b)), out)


def _as_matrix(x, num_col_dims) -> Any:
    if x.ndim == 2 and num_col_dims == 1:
        return x
    return x.reshape(math.prod(x.shape[:num_col_dims]), math.prod(x.shape[num_col_dims:]))


@kernel("mul")
def mul(xp, x, y, *, x_num_col_dims, y_num_col_dims, out=None):
    a, b = _as_matrix(x, x_num_col_dims), _as_matrix(y, y_num_col_dims)
    product = _dot(xp, a, b, shaped(out, (a.shape[0], b.shape[1])))
    return product.reshape(x.shape[:x_num_col_dims] + y.shape[y_num_col_dims:]) if out is None else out


@kernel("mul_grad")
def mul_grad(xp, x, y, d_out, *, x_num_col_dims, y_num_col_dims, wanted, out=None):
    """``dX = dOut @ Y'`` and ``dY = X' @ dOut``."""
    a, b = _as_matrix(x, x_num_col_dims), _as_matrix(y, y_num_col_dims)
    d = d_out.reshape(a.shape[0], b.shape[1])
    d_x_buffer, d_y_buffer = out or (None, None)
    d_x = d_y = None
    if wanted[1]:
        free = unshared(xp, d_y_buffer, b, d) if wanted[0] else d_y_buffer
        d_y = _dot(xp, a.T, d, shaped(free, b.shape)).reshape(y.shape)
        d_y = d_y if free is None else free
    if wanted[0]:
        d_x = _dot(xp, d, b.T, shaped(d_x_buffer, a.shape)).reshape(x.shape)
        d_x = d_x if d_x_buffer is None else d_x_buffer
    return d_x, deliver(xp, d_y, d_y_buffer)


@kernel("mul_grad_grad")
def mul_grad_grad(xp, x, y, d_out, dd_x, dd_y, *, x_num_col_dims, y_num_col_dims, wanted, out=None):
    """``dX = dOut @ ddY'``, ``dY = ddX' @ dOut``, ``ddOut = ddX @ Y + X @ ddY``; an input of None is zero."""
    dims = {"x_num_col_dims": x_num_col_dims, "y_num_col_dims": y_num_col_dims}
    dd_x, dd_y = none_if_zero(xp, dd_x), none_if_zero(xp, dd_y)
    there = [array for array in (x, y, d_out, dd_x, dd_y) if array is not None]
    buffers = out or (None, None, None)
    for_x, for_y, for_out = (unshared(xp, buffer, *there) for buffer in buffers)
    d_x = d_y = dd_out = None
    if wanted[0]:
        if dd_y is None:
            d_x = zeros(xp, x, for_x)
        else:
            d_x, _ = mul_grad(xp, x, dd_y, d_out, wanted=(True, False), out=(for_x, None), **dims)
    if wanted[1]:
        if dd_x is None:
            d_y = zeros(xp, y, for_y)
        else:
            _, d_y = mul_grad(xp, dd_x, y, d_out, wanted=(False, True), out=(None, for_y), **dims)
    if wanted[2] and dd_x is not None:
        dd_out = mul(xp, dd_x, y, out=for_out, **dims)
        if dd_y is not None:
            dd_out = xp.add(dd_out, mul(xp, x, dd_y, **dims), out=dd_out)
    elif wanted[2]:
        dd_out = zeros(xp, d_out, for_out) if dd_y is None else mul(xp, x, dd_y, out=for_out, **dims)
    return tuple(deliver(xp, result, buffer) for result, buffer in zip((d_x, d_y, dd_out), buffers, strict=True))


@kernel("matmul")
def matmul(xp, x, y, *, transpose_X, transpose_Y, alpha, out=None):
    a, b = _operands(x, y, transpose_X, transpose_Y)
    shape = (*(a.shape[:-2] or b.shape[:-2]), a.shape[-2], b.shape[-1])
    product = _product(xp, a, b, shaped(out, shape))
    if alpha != 1:
        xp.multiply(product, alpha, out=product)
    if out is not None:
        return out
    if x.ndim == 1 and shape[-2] == 1:
        shape = (*shape[:-2], shape[-1])
    if y.ndim == 1 and shape[-1] == 1:
        shape = shape[:-1]
    return product.reshape(shape or (1,))


def _operands(x, y, transpose_x, transpose_y) -> tuple[Any, Any]:
    """Both as matrices or batches of matrices, transposed as asked, batches in one shape."""
    a = x.reshape(1, -1) if x.ndim == 1 else x
    b = y.reshape(-1, 1) if y.ndim == 1 else y
    if transpose_x:
        a = a.swapaxes(-1, -2)
    if transpose_y:
        b = b.swapaxes(-1, -2)
    if a.ndim > 2 and b.ndim > 2:
        # Fluid's batches may be split into other dimensions, as long as they have as many matrices.
        b = b.reshape(a.shape[:-2] + b.shape[-2:])
    return a, b


def _product(xp, a, b, out=None) -> Any:
    """``a @ b``; a batch times one matrix as a single product."""
    if b.ndim == 2:
        rows = a.reshape(math.prod(a.shape[:-1]), a.shape[-1])
        product = _dot(xp, rows, b, shaped(out, (rows.shape[0], b.shape[1])))
        return product.reshape(*a.shape[:-1], b.shape[-1])
    if xp is np and a.dtype == np.float16:
        return deliver(np, np.matmul(a.astype(np.float32), b.astype(np.float32)).astype(np.float16), out)
    if xp is np and a.shape[-1] == 1:
        # Outer products need no sums: one multiplication of the batch, where BLAS is called for each matrix.
        return deliver(np, np.multiply(a, b, out=unshared(np, out, a, b)), out)
    return deliver(xp, gemm.matmul(xp, a, b, out=unshared(xp, out, a, b)), out)


@kernel("matmul_grad")
def matmul_grad(xp, x, y, d_out, *, transpose_X, transpose_Y, alpha, wanted, out=None):
    """``dA = alpha * dOut @ B'`` and ``dB = alpha * A' @ dOut``, in the shapes that X and Y are given in."""
    a, b = _operands(x, y, transpose_X, transpose_Y)
    batch = a.shape[:-2] or b.shape[:-2]
    d = d_out.reshape(*batch, a.shape[-2], b.shape[-1])
    if alpha != 1:
        d = d * alpha
    buffers = out or (None, None)
    for_x, for_y = (unshared(xp, buffer, x, y, d_out) for buffer in buffers)
    d_x = d_y = None
    if wanted[0]:
        d_x = _operand_gradient(xp, d, b.swapaxes(-1, -2), x, transpose_X, for_x)
    if wanted[1] and a.ndim > 2 and y.ndim == 2 and not transpose_Y:
        d_y = _dot(xp, _as_matrix(a, a.ndim - 1).T, _as_matrix(d, d.ndim - 1), for_y)  # with the bits of `mul_grad`
    elif wanted[1]:
        d_y = _operand_gradient(xp, a.swapaxes(-1, -2), d, y, transpose_Y, for_y)
    return deliver(xp, d_x, buffers[0]), deliver(xp, d_y, buffers[1])


def _operand_gradient(xp, left, right, operand, transposed, out) -> Any:
    """``left @ right``, or its transpose, in the shape of the operand; summed over a batch that the operand lacks."""
    if left.ndim > 2 and operand.ndim <= 2:
        length = math.prod(right.shape[:-1])
        rows = xp.moveaxis(left, -2, 0).reshape(left.shape[-2], length)
        # One long product adds up the batch, without a matrix for each.
        product = _dot(xp, rows, right.reshape(length, right.shape[-1]))
        return deliver(xp, xp.ascontiguousarray(product.T if transposed else product).reshape(operand.shape), out)
    if transposed:
        left, right = right.swapaxes(-1, -2), left.swapaxes(-1, -2)
    shape = (*(left.shape[:-2] or right.shape[:-2]), left.shape[-2], right.shape[-1])
    product = _product(xp, left, right, shaped(out, shape))
    return product.reshape(operand.shape) if out is None else out


def bare_dot(xp) -> Any:
    """The product of two matrices as a function of these and an optional ``out``."""
    return np.dot if xp is np else partial(gemm.dot, xp)


@specialize("mul", any_size=True)
def _quicker_mul(xp, x, y, *, x_num_col_dims, y_num_col_dims):
    """The array module's own product, if Y is a matrix."""
    if len(y.shape) != 2 or x.dtype == np.float16:
        return None
    dot = bare_dot(xp)
    if len(x.shape) == 2:
        return dot
    if -1 in (*x.shape, *y.shape):
        return None
    rows, shape = (-1, y.shape[0]), (*x.shape[:x_num_col_dims], y.shape[1])

    def multiply(x, y, out=None):
        if out is None:
            return dot(x.reshape(rows), y).reshape(shape)
        dot(x.reshape(rows), y, out.reshape(-1, shape[-1]))
        return out

    return None if 0 in (*x.shape, *shape) else multiply


@specialize("matmul")
def _quicker_matmul(xp, x, y, *, transpose_X, transpose_Y, alpha):
    if not len(x.shape) == len(y.shape) == 2 or x.dtype == np.float16 or alpha != 1:
        return None
    dot = bare_dot(xp)
    if not transpose_X and not transpose_Y:
        return dot
    return lambda x, y, out=None: dot(x.T if transpose_X else x, y.T if transpose_Y else y, out=out)


@specialize("mul_grad", any_size=True)
def _quicker_mul_grad(xp, x, y, d_out, *, x_num_col_dims, y_num_col_dims, wanted):
    if len(y.shape) != 2 or x.dtype == np.float16:
        return None
    dot, (wants_x, wants_y) = bare_dot(xp), wanted

    def grad(x, y, d_out, out=(None, None)):
        d_y = dot(x.T, d_out, out[1]) if wants_y else None
        return (dot(d_out, y.T, out[0]) if wants_x else None), d_y

    if len(x.shape) == 2:
        return grad
    if -1 in (*x.shape, *y.shape):
        return None
    rows, columns, shape = (-1, y.shape[0]), (-1, y.shape[1]), x.shape

    def grad_of_rows(x, y, d_out, out=(None, None)):
        place = None if out[0] is None else out[0].reshape(rows)
        d_x, d_y = grad(x.reshape(rows), y, d_out.reshape(columns), (place, out[1]))
        return (d_x if d_x is None else d_x.reshape(shape) if place is None else out[0]), d_y

    return None if 0 in (*x.shape, *y.shape) else grad_of_rows
