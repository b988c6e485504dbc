"""Paddle 2's functions of tensors, and the methods that they are: ``mean(x)``, ``x.mean()``, ``x @ y``, ``to_tensor``.

They are thin over `minigraph.layers`: on tensors they compute at once, inside a `minigraph.dygraph.guard` or not; on
variables of a program they append operators to the default main program. Functions without a tensor among their
arguments, such as `ones`, compute at once too, unless a program was chosen with `minigraph.program_guard` or
`enable_static`.

As in Paddle 2.0, what is reduced to one number has shape [1].
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from minigraph import layers
from minigraph.eager.guard import eager_block, enabled, imperative, in_dynamic_mode
from minigraph.eager.tensor import EagerParameter, Tensor
from minigraph.errors import ProgramError, WrongTypeError
from minigraph.initializer import Initializer
from minigraph.ir import Variable
from minigraph.ir.default_programs import default_main_program
from minigraph.ir.variable_methods import method, method_of_entries, register
from minigraph.layer_helper import check_variable, layer
from minigraph.runtime.place import Place
from minigraph.support.annotations import fits
from minigraph.support.public import public
from minigraph.types import TensorType, as_dtype, product

__all__ = [
    "abs", "add", "arange", "assign", "cast", "clone", "concat", "create_parameter", "divide", "exp", "eye", "flatten",
    "full", "full_like", "linspace", "log", "matmul", "max", "maximum", "mean", "min", "minimum", "multiply", "norm",
    "normal", "ones", "ones_like", "pow", "rand", "randn", "reshape", "scale", "seed", "sign", "sqrt", "square",
    "subtract", "sum", "t", "tanh", "to_tensor", "topk", "transpose", "uniform", "zeros", "zeros_like",
]  # fmt: skip

Axis = int | Sequence[int] | None


@contextmanager
def computing_at_once() -> Iterator[None]:
    """Compute at once, for functions without a tensor among their arguments, unless a program was chosen."""
    if in_dynamic_mode() and not enabled():
        with imperative():
            yield
    else:
        yield


# Making tensors


@public
def to_tensor(data: Any, dtype: Any = None, place: Place | None = None, stop_gradient: bool = True) -> Tensor:
    """A tensor with a copy of `data`, in the imperative mode.

    Parameters
    ----------
    data : array_like or Tensor
        A number gives a tensor without dimensions. Floating-point numbers of Python become float32, arrays keep their
        element type.
    dtype : str, optional
        The element type to convert to.
    place : Place, optional
        Must be that of the surrounding `minigraph.dygraph.guard` (outside of any: the CPU).
    stop_gradient : bool
        Whether no gradient flows to the tensor.

    Raises
    ------
    WrongTypeError
        If `data` holds anything but numbers.
    ProgramError
        If `place` is another one.

    Examples
    --------
    >>> x = to_tensor([1.0, 2.0], stop_gradient=False)
    >>> (x * x).sum().backward()
    >>> x.grad.numpy()
    array([2., 4.], dtype=float32)
    """
    block = eager_block()
    if place is not None and place != block.place:
        raise ProgramError(
            f"to_tensor: the place is {place}, computed is on {block.place}",
            hint="Enter the place with dygraph.guard(place).",
        )  # fmt: skip
    array = np.array(data)
    if array.dtype.kind not in "biuf":
        raise WrongTypeError(f"a tensor cannot be made from {type(data).__name__}: {data!r:.60}")
    if dtype is not None:
        array = array.astype(as_dtype(dtype).numpy)
    elif array.dtype == np.float64 and not _has_element_type(data):
        array = array.astype(np.float32)
    return block.tensor(block.place.xp.asarray(array), stop_gradient=stop_gradient)


def _has_element_type(data: Any) -> bool:
    """Whether the numbers in `data` are more than Python's own, which have no element type to keep."""
    if isinstance(data, list | tuple):
        return any(map(_has_element_type, data))
    return hasattr(data, "dtype")


@public
def full(shape: Any, fill_value: Any, dtype: Any = None, name: str | None = None) -> Variable:
    """A tensor whose every element is `fill_value`; float32 unless `dtype` says otherwise."""
    with computing_at_once():
        return layers.fill_constant(shape, dtype or "float32", fill_value)


@public
def ones(shape: Any, dtype: Any = None, name: str | None = None) -> Variable:
    """A tensor of ones, float32 unless `dtype` says otherwise."""
    return full(shape, 1.0, dtype)


@public
def zeros(shape: Any, dtype: Any = None, name: str | None = None) -> Variable:
    """A tensor of zeros, float32 unless `dtype` says otherwise."""
    return full(shape, 0.0, dtype)


@layer
def full_like(x: Variable, fill_value: float, dtype: Any = None, name: str | None = None) -> Variable:
    """A tensor of the shape of `x` whose every element is `fill_value`; of the type of `x` unless `dtype` is given."""
    check_variable(x, "full_like: x")
    number = int(x.dtype if dtype is None else as_dtype(dtype))
    block = default_main_program().current_block()
    return block.emit("fill_any_like", X=x, stop_gradient=True, value=float(fill_value), dtype=number)


@public
def ones_like(x: Variable, dtype: Any = None, name: str | None = None) -> Variable:
    """A tensor of ones in the shape of `x`."""
    return full_like(x, 1.0, dtype)


@public
def zeros_like(x: Variable, dtype: Any = None, name: str | None = None) -> Variable:
    """A tensor of zeros in the shape of `x`."""
    return full_like(x, 0.0, dtype)


@public
def arange(start: float = 0, end: float | None = None, step: float = 1, dtype: Any = None) -> Variable:
    """``start, start + step, ...`` below `end`; with one argument, from 0 up to it.

    int64 if all arguments are integers, else float32, unless `dtype` says otherwise.
    """
    if end is None:
        start, end = 0, start
    whole = all(isinstance(number, int) for number in (start, end, step))
    return _constant(np.arange(start, end, step), dtype or ("int64" if whole else "float32"))


@public
def linspace(start: float, stop: float, num: int, dtype: Any = None) -> Variable:
    """`num` numbers from `start` to `stop`, both included, at equal distances; float32 by default."""
    return _constant(np.linspace(start, stop, num), dtype or "float32")


@public
def eye(num_rows: int, num_columns: int | None = None, dtype: Any = None) -> Variable:
    """A matrix with ones on the diagonal and zeros elsewhere; float32 unless `dtype` says otherwise."""
    return _constant(np.eye(num_rows, num_columns), dtype or "float32")


def _constant(array: np.ndarray[Any, Any], dtype: Any) -> Variable:
    with computing_at_once():
        constant = layers.assign(array.astype(as_dtype(dtype).numpy))
    constant.stop_gradient = True
    return constant


@public
def uniform(
    shape: Any, dtype: Any = None, min: float = -1.0, max: float = 1.0, seed: int = 0, name: str | None = None
) -> Variable:
    """Uniform on [`min`, `max`); a `seed` other than 0 gives the same numbers each time."""
    with computing_at_once():
        return layers.uniform_random(shape, dtype or "float32", min, max, seed)


@public
def rand(shape: Any, dtype: Any = None, name: str | None = None) -> Variable:
    """Uniform on [0, 1)."""
    return uniform(shape, dtype, 0.0, 1.0)


@layer
def normal(mean: float = 0.0, std: float = 1.0, shape: Any = None, name: str | None = None) -> Variable:
    """Normal with `mean` and standard deviation `std`, float32."""
    with computing_at_once():
        return layers.gaussian_random([1] if shape is None else shape, mean, std)


@public
def randn(shape: Any, dtype: Any = None, name: str | None = None) -> Variable:
    """Standard normal."""
    with computing_at_once():
        return layers.gaussian_random(shape, dtype=dtype or "float32")


@public
def seed(seed: int) -> None:
    """Set the seed of the random numbers of the imperative mode; a program has its own ``random_seed``.

    Examples
    --------
    >>> seed(3)
    >>> first = rand([2]).numpy()
    >>> seed(3)
    >>> bool((rand([2]).numpy() == first).all())
    True
    """
    if not fits(seed, int):
        raise WrongTypeError(f"seed must be an int, got {seed!r:.60}", hint="Give it seed=1.")
    block = eager_block()
    block.rng = block.place.rng(int(seed))


@public
def create_parameter(
    shape: Sequence[int],
    dtype: Any,
    name: str | None = None,
    attr: Any = None,
    is_bias: bool = False,
    default_initializer: Initializer | None = None,
) -> Any:
    """A parameter outside any layer; see `minigraph.layers.create_parameter`.

    In the imperative mode its shape may be empty; it then starts like one of shape [1].
    """
    with computing_at_once():
        if enabled() and len(shape) == 0:
            param = layers.create_parameter([1], dtype, name, attr, is_bias, default_initializer)
            assert isinstance(param, EagerParameter)
            param.array, param.tensor_type = param.array.reshape(()), TensorType(param.dtype, ())
            return param
        return layers.create_parameter(list(shape), dtype, name, attr, is_bias, default_initializer)


# Functions of tensors


@method
def mean(x: Variable, axis: Axis = None, keepdim: bool = False, name: str | None = None) -> Variable:
    """Mean over the dimensions `axis` (None: all)."""
    if axis is None and not keepdim:
        return layers.mean(x)
    return layers.reduce_mean(x, axis, keepdim)


@method
def sum(x: Variable, axis: Axis = None, dtype: Any = None, keepdim: bool = False, name: str | None = None) -> Variable:
    """Sum over the dimensions `axis` (None: all), in `dtype` if given."""
    return layers.reduce_sum(x if dtype is None else layers.cast(x, dtype), axis, keepdim)


@method
def max(x: Variable, axis: Axis = None, keepdim: bool = False, name: str | None = None) -> Variable:
    """Maximum over the dimensions `axis` (None: all); every tie gets the full gradient."""
    return layers.reduce_max(x, axis, keepdim)


@method
def min(x: Variable, axis: Axis = None, keepdim: bool = False, name: str | None = None) -> Variable:
    """Minimum over the dimensions `axis` (None: all); every tie gets the full gradient."""
    return layers.reduce_min(x, axis, keepdim)


@method
def add(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """``x + y``."""
    return layers.elementwise_add(x, y)


@method
def subtract(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """``x - y``."""
    return layers.elementwise_sub(x, y)


@method
def multiply(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """``x * y``, element by element."""
    return layers.elementwise_mul(x, y)


@method
def divide(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """``x / y``; integers are divided toward zero."""
    return layers.elementwise_div(x, y)


@method
def maximum(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """``max(x, y)``, element by element; the gradient of a tie goes to `y`."""
    return layers.elementwise_max(x, y)


@method
def minimum(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """``min(x, y)``, element by element; the gradient of a tie goes to `y`."""
    return layers.elementwise_min(x, y)


@method
def matmul(
    x: Variable, y: Variable, transpose_x: bool = False, transpose_y: bool = False, name: str | None = None
) -> Variable:
    """``x @ y`` over the last two dimensions, each operand transposed first if asked."""
    return layers.matmul(x, y, transpose_x, transpose_y)


@register
@layer
def norm(x: Variable, p: float | str = "fro", name: str | None = None) -> Variable:
    """The norm of all elements, ``sum(|x| ** p) ** (1 / p)``, without overflow or underflow.

    Parameters
    ----------
    p : float or 'fro'
        A positive number; infinity gives the largest magnitude. 'fro' means 2.

    Examples
    --------
    >>> print(f"{norm(to_tensor([3e30, 4e30])).item():.6g}")
    5e+30
    """
    block = default_main_program().current_block()
    return block.emit("global_norm", X=[check_variable(x, "norm: x")], p=2.0 if p == "fro" else p)


@method
def pow(x: Variable, y: float | Variable, name: str | None = None) -> Variable:
    """``x ** y``, element by element where `y` is a tensor.

    Examples
    --------
    >>> pow(to_tensor([2.0, 3.0]), 3).numpy()
    array([ 8., 27.], dtype=float32)
    """
    check_variable(x, "pow: x")
    return layers.elementwise_pow(x, y) if isinstance(y, Variable) else layers.pow(x, float(y))


@method
def clip(x: Variable, min: float | None = None, max: float | None = None, name: str | None = None) -> Variable:
    """Each element limited to [`min`, `max`], None meaning no limit; NaN stays."""
    limits = np.finfo(check_variable(x, "clip: x").dtype.numpy)
    return layers.clip(x, float(limits.min) if min is None else min, float(limits.max) if max is None else max)


@method_of_entries
def reshape(x: Variable, shape: Any, name: str | None = None) -> Variable:
    """The elements of `x` in another shape: 0 keeps a dimension, one -1 is computed."""
    return layers.reshape(x, shape)


@method_of_entries
def transpose(x: Variable, perm: Sequence[int], name: str | None = None) -> Variable:
    """Dimension i of the result is dimension ``perm[i]`` of `x`."""
    return layers.transpose(x, perm)


@method
def t(x: Variable, name: str | None = None) -> Variable:
    """The transpose of a matrix; a vector as it is."""
    rank = len(check_variable(x, "t: x").shape or ())
    if rank > 2:
        raise WrongTypeError(f"t takes matrices, got {x}", hint="Use transpose.")
    return layers.transpose(x, [1, 0]) if rank == 2 else x


@method
def flatten(x: Variable, start_axis: int = 0, stop_axis: int = -1, name: str | None = None) -> Variable:
    """`x` with the dimensions from `start_axis` to `stop_axis` made one."""
    shape = list(check_variable(x, "flatten: x").shape or (1,))
    first, last = (axis + len(shape) if axis < 0 else axis for axis in (start_axis, stop_axis))
    if not 0 <= first <= last < len(shape):
        raise ProgramError(f"flatten: {x} has no dimensions from {start_axis} to {stop_axis}")
    return layers.reshape(x, [*shape[:first], product(shape[first : last + 1]), *shape[last + 1 :]])


@public
def concat(x: Sequence[Variable], axis: int | Variable = 0, name: str | None = None) -> Variable:
    """Tensors joined along `axis`; their other dimensions must be equal."""
    return layers.concat(x, axis)


@method
def cast(x: Variable, dtype: Any) -> Variable:
    """`x` converted to `dtype`."""
    return layers.cast(x, dtype)


@public
def assign(x: Any, output: Variable | None = None) -> Variable:
    """A copy of a tensor through which gradients flow, or a constant from an array; written to `output` if given."""
    if isinstance(x, Variable):
        return layers.assign(x, output)
    with computing_at_once():
        return layers.assign(np.asarray(x), output)


@method
def clone(x: Variable, name: str | None = None) -> Variable:
    """A copy through which gradients flow."""
    return layers.assign(check_variable(x, "clone: x"))


@method
def topk(x: Variable, k: int | Variable, name: str | None = None) -> tuple[Variable, Variable]:
    """The `k` largest entries along the last dimension, and their indices (int64)."""
    return layers.topk(x, k)


@method
def scale(
    x: Variable, scale: float = 1.0, bias: float = 0.0, bias_after_scale: bool = True, name: str | None = None
) -> Variable:
    """``scale * x + bias``, or ``scale * (x + bias)`` unless `bias_after_scale`."""
    return layers.scale(x, scale, bias, bias_after_scale)


# Functions that are the same in fluid.
abs, exp, log, sqrt = register(layers.abs), register(layers.exp), register(layers.log), register(layers.sqrt)
sign, square, tanh = register(layers.sign), register(layers.square), register(layers.tanh)
register(matmul, "__matmul__")
