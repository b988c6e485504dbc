"""TensorFlow's functions that clip tensors: its signatures and definitions on minigraph's operators.

At the edges minigraph's results are right where TensorFlow's are wrong: squares neither overflow (1e30, or 300 in
float16) nor underflow, denormal numbers are kept, a tensor at or under its threshold stays bit for bit, and an infinite
threshold never clips, where TensorFlow gives NaN. Only `clip_by_average_norm` computes as TensorFlow does. A threshold
that is not positive is a `ClipError`, or, if a variable holds it, an error when the program runs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from minigraph.compat.tensorflow import appending
from minigraph.compat.tensorflow.appending import Number, append
from minigraph.errors import ClipError, OpError, WrongTypeError, caller_site
from minigraph.ir import Block, Variable
from minigraph.ir.default_programs import default_main_program
from minigraph.support.public import public
from minigraph.types import DType, product, same_shape

Tensors = Sequence[Variable | None]


@public
def clip_by_norm(
    t: Variable, clip_norm: Number, axes: int | Sequence[int] | None = None, name: str | None = None
) -> Variable:
    """`t` scaled down to an L2 norm of at most `clip_norm`: ``t * clip_norm / max(norm(t), clip_norm)``.

    Parameters
    ----------
    t : Variable or Tensor, floating point
    clip_norm : float, or Variable or Tensor of one element
        The largest norm, positive.
    axes : int or sequence of int, optional
        Dimensions that a norm runs over; there is one norm for each index of the others. Negative ones count from the
        end. Default: all, so one norm. With no dimension at all each element has a norm of its own.
    name : str, optional
        Name of the result.

    Returns
    -------
    Variable or Tensor
        Of the type and shape of `t`. Zeros stay zero. A NaN makes its norm's elements NaN; an infinity makes itself
        NaN and the others 0.

    Raises
    ------
    ClipError
        If `clip_norm` is a number that is not positive.
    WrongTypeError
        If an argument has the wrong type.
    OpError
        If a dimension does not exist or comes twice.

    References
    ----------
    TensorFlow 2.21, ``tf.clip_by_norm``.

    Examples
    --------
    >>> from minigraph.dygraph import to_variable
    >>> print(clip_by_norm(to_variable(np.array([3.0, 4.0])), 1).numpy())
    [0.6 0.8]
    >>> print(clip_by_norm(to_variable(np.array([[3.0, 4.0], [0.0, 0.5]])), 1, axes=[1]).numpy())
    [[0.6 0.8]
     [0.  0.5]]
    """
    appending.check_tensor(t, "clip_by_norm: t")
    threshold = appending.as_threshold(clip_norm, "clip_by_norm: clip_norm")
    dimensions = _as_axes(axes)
    if dimensions == []:
        return _clip_each(t, threshold, name)
    return _clip_slices(t, threshold, dimensions or [], name)


@public
def clip_by_value(t: Variable, clip_value_min: Number, clip_value_max: Number, name: str | None = None) -> Variable:
    """Each element limited: ``max(min(t, clip_value_max), clip_value_min)``.

    Parameters
    ----------
    t : Variable or Tensor, floating point
    clip_value_min, clip_value_max : float, or Variable or Tensor that broadcasts to the shape of `t`
        Where the lower bound exceeds the upper one, the result is the lower bound.
    name : str, optional
        Name of the result.

    Returns
    -------
    Variable or Tensor
        Of the type and shape of `t`. NaN stays NaN, infinities become the bounds.

    Raises
    ------
    ClipError
        If a bound is NaN.
    OpError
        If a bound has another element type than `t`, or a shape that would change that of `t`.

    Notes
    -----
    The gradient is 0 for an element that equals a bound; TensorFlow's is 1.

    Examples
    --------
    >>> from minigraph.dygraph import to_variable
    >>> print(clip_by_value(to_variable(np.array([-3.0, 0.5, 4.0])), -1, 1).numpy())
    [-1.   0.5  1. ]
    """
    appending.check_tensor(t, "clip_by_value: t")
    low = _as_bound(clip_value_min, "clip_by_value: clip_value_min", t)
    high = _as_bound(clip_value_max, "clip_by_value: clip_value_max", t)
    is_interval = not isinstance(low, Variable) and not isinstance(high, Variable) and low < high
    if is_interval and appending.fits_attribute(low, t.dtype) and appending.fits_attribute(high, t.dtype):
        return append("clip", {"X": t}, t, name, min=low, max=high)
    block = t.block.program.current_block()
    with appending.role_for(t):
        # As in TensorFlow the lower bound is applied last, and so wins over the upper one.
        upper = high if isinstance(high, Variable) else appending.constant(block, high, t.dtype)
        lower = low if isinstance(low, Variable) else appending.constant(block, low, t.dtype)
    smaller = append("elementwise_min", {"X": t, "Y": upper}, t)
    return append("elementwise_max", {"X": smaller, "Y": lower}, t, name)


@public
def clip_by_global_norm(
    t_list: Tensors, clip_norm: Number, use_norm: Number | None = None, name: str | None = None
) -> tuple[list[Variable | None], Variable]:
    """All tensors scaled by one factor: ``t * clip_norm / max(norm of all together, clip_norm)``.

    Parameters
    ----------
    t_list : sequence of Variable or Tensor or None
        None stays where it is and counts nothing. Element types may differ.
    clip_norm : float, or Variable or Tensor of one element
        The largest norm, positive.
    use_norm : float, or Variable or Tensor of one element, optional
        Used as the norm of all together, which is then not computed.
    name : str, optional
        The results are called ``<name>_<position>``.

    Returns
    -------
    (list of Variable or Tensor or None, Variable or Tensor)
        The clipped tensors, and the norm of all together before, of shape [1]. If that is NaN or infinite, all elements
        are NaN.

    Raises
    ------
    ClipError
        If `clip_norm` is a number that is not positive, or `use_norm` one below 0 or NaN.
    WrongTypeError
        If `t_list` is no sequence of variables or tensors.
    ProgramError
        If the variables belong to different programs.

    References
    ----------
    TensorFlow 2.21, ``tf.clip_by_global_norm``.

    R. Pascanu, T. Mikolov and Y. Bengio, On the difficulty of training recurrent neural networks, ICML 2013.

    Examples
    --------
    >>> from minigraph.dygraph import to_variable
    >>> tensors = [to_variable(np.array([3.0, 0.0])), None, to_variable(np.array([4.0]))]
    >>> (first, _, last), norm = clip_by_global_norm(tensors, 2.5)
    >>> print(first.numpy(), last.numpy(), norm.numpy())
    [1.5 0. ] [2.] [5.]
    """
    listed, found = appending.check_tensors(t_list, "clip_by_global_norm: t_list")
    threshold = appending.as_threshold(clip_norm, "clip_by_global_norm: clip_norm")
    if use_norm is not None:
        results, norm = _clip_by_given_norm(
            found, threshold, appending.as_number(use_norm, "clip_by_global_norm: use_norm"), name
        )
    elif found:
        results, norm = _clip_together(found, threshold, name)
    else:
        results, norm = [], _zero_norm()
    remaining = iter(results)
    return [None if t is None else next(remaining) for t in listed], norm


@public
def global_norm(t_list: Tensors, name: str | None = None) -> Variable:
    """The L2 norm of all elements of all tensors, ``sqrt(sum of their squares)``, of shape [1].

    Parameters
    ----------
    t_list : sequence of Variable or Tensor or None
        None counts nothing.
    name : str, optional
        Name of the result.

    Returns
    -------
    Variable or Tensor
        In the widest element type of the tensors, float32 for float16. 0 if there are no elements.

    Raises
    ------
    WrongTypeError
        If `t_list` is no sequence of variables or tensors.

    Examples
    --------
    >>> from minigraph.dygraph import to_variable
    >>> norm = global_norm([to_variable(np.array([3e200, 0.0])), None, to_variable(np.array([4e200]))])
    >>> print(f"{norm.item():.6g}")
    5e+200
    """
    _, found = appending.check_tensors(t_list, "global_norm: t_list")
    if not found:
        return _zero_norm()
    block = found[0].block.program.current_block()
    norm = appending.new_result(block, "global_norm", name)
    with appending.role_for(*found):
        block.append_op("global_norm", {"X": found}, {"Out": norm})
    return norm


@public
def clip_by_average_norm(t: Variable, clip_norm: Number, name: str | None = None) -> Variable:
    """`t` scaled down until its L2 norm divided by its number of elements n is at most `clip_norm` (TensorFlow 1).

    ``t * clip_norm * min(n / norm(t), 1 / clip_norm)``: "average" means the norm over n, not a mean of squares.
    TensorFlow has withdrawn the function. minigraph keeps its arithmetic: squares that overflow give zeros, and a
    tensor that is not clipped may be rounded.

    Parameters
    ----------
    t : Variable or Tensor, float32
    clip_norm : float, or Variable or Tensor of one element
        Positive.
    name : str, optional
        Name of the result.

    Raises
    ------
    ClipError
        If `clip_norm` is a number that is not positive.
    WrongTypeError
        If `t` is not float32: TensorFlow 1.15 fails for the other types.

    References
    ----------
    TensorFlow 1.15, ``tf.clip_by_average_norm``.

    Examples
    --------
    >>> from minigraph.dygraph import to_variable
    >>> print(clip_by_average_norm(to_variable(np.array([3.0, 4.0], "float32")), 1).numpy())
    [1.2 1.6]
    """
    appending.check_tensor(t, "clip_by_average_norm: t")
    if t.dtype is not DType.FP32:
        raise WrongTypeError(
            f"clip_by_average_norm: t must be float32, as in TensorFlow 1, got {t}",
            hint="Convert it with layers.cast, or use clip_by_norm with clip_norm times the number of elements.",
        )
    threshold = appending.as_threshold(clip_norm, "clip_by_average_norm: clip_norm")
    if not isinstance(threshold, Variable) and threshold == math.inf:
        return append("assign", {"X": t}, t, name)
    with appending.role_for(t):
        block = t.block.program.current_block()
        limit = appending.as_variable(threshold, block, DType.FP32)
        squares = block.emit("reduce_sum", X=block.emit("square", X=t), reduce_all=True)
        # Squares that overflow must give zeros. Executors take the root of a sum of squares for a norm, which does not
        # overflow; that of the absolute value they leave alone.
        squares = block.emit("abs", X=squares)
        inverse = block.emit("elementwise_div", X=_count(t, block), Y=block.emit("sqrt", X=squares))
        bound = block.emit("elementwise_div", X=appending.constant(block, 1.0, DType.FP32), Y=limit)
        factor = block.emit("elementwise_min", X=inverse, Y=bound)
        scaled = block.emit("elementwise_mul", X=t, Y=limit)
    return append("elementwise_mul", {"X": scaled, "Y": factor}, t, name)


def _count(t: Variable, block: Block) -> Variable:
    """The number of elements as float32[1], computed when the program runs if the shape leaves it open."""
    assert t.shape is not None
    size = product(t.shape)
    if size >= 0:
        return appending.constant(block, float(size), DType.FP32)
    return block.emit("reduce_sum", X=block.emit("fill_any_like", X=t, value=1.0), reduce_all=True)


# Computing


def _as_axes(axes: Any) -> list[int] | None:
    if axes is None:
        return None
    found = np.asarray(axes)
    if found.ndim > 1 or (found.size and found.dtype.kind not in "iu"):
        raise WrongTypeError(f"clip_by_norm: axes must be an int or a sequence of ints, got {axes!r:.60}")
    return [int(axis) for axis in found.ravel()]


def _clip_slices(t: Variable, threshold: Number, axes: Sequence[int], name: str | None) -> Variable:
    """`t` with its slices over `axes` clipped, all of it for no axes."""
    if appending.fits_attribute(threshold, t.dtype):
        if axes:
            return append("clip_by_axis_norm", {"X": t}, t, name, axes=axes, max_norm=threshold)
        return append("clip_by_norm", {"X": t}, t, name, max_norm=threshold)
    with appending.role_for(t):
        limit = appending.as_variable(threshold, t.block.program.current_block(), DType.FP64)
    return append("clip_by_axis_norm", {"X": t, "MaxNorm": limit}, t, name, axes=axes)


def _clip_each(t: Variable, threshold: Number, name: str | None) -> Variable:
    """`t` with each element clipped by its magnitude: its slices along a new dimension have one element each."""
    assert t.shape is not None
    rank = len(t.shape)
    if rank == 0:
        return _clip_slices(t, threshold, [], name)
    block = t.block.program.current_block()
    with appending.role_for(t):
        slices = block.emit("reshape2", X=t, shape=[0] * rank + [1])
    clipped = _clip_slices(appending.pass_on(t, slices), threshold, [-1], None)
    result = appending.new_result(block, "clip_by_norm", name)
    with appending.role_for(t):
        shape = block.create_var()
        block.append_op(
            "reshape2", {"X": clipped}, {"Out": result, "XShape": shape}, {"shape": [0] * (rank - 1) + [-1]}
        )
    return appending.pass_on(t, result)


def _as_bound(value: Any, what: str, t: Variable) -> Number:
    """A number, or a variable that broadcasts to the shape of `t`."""
    if not isinstance(value, Variable):
        return appending.as_number(value, what)
    appending.check_tensor(value, what)
    assert value.shape is not None and t.shape is not None
    ones = (1,) * (len(t.shape) - len(value.shape))
    aligned = [dim if dim != 1 else own for dim, own in zip((*ones, *value.shape), t.shape, strict=False)]
    if len(value.shape) > max(len(t.shape), 1) or (t.shape and not same_shape(aligned, t.shape)):
        raise OpError(f"{what} {value} does not broadcast to the shape of t, {t}", site=caller_site())
    return value


def _widest(tensors: Sequence[Variable]) -> DType:
    return max([DType.FP32, *(t.dtype for t in tensors)])


def _zero_norm() -> Variable:
    return appending.constant(default_main_program().current_block(), 0.0, DType.FP32)


def _names(name: str | None, count: int) -> list[str | None]:
    return [f"{name}_{i}" if name else None for i in range(count)]


def _clip_together(tensors: list[Variable], threshold: Number, name: str | None) -> tuple[list[Variable], Variable]:
    block = tensors[0].block.program.current_block()
    dtype = _widest(tensors)
    if not isinstance(threshold, Variable) and threshold < 1e-37:
        dtype = DType.FP64  # float32 would round it to 0 or lose its digits
    results = [appending.new_result(block, "clip_by_global_norm", each) for each in _names(name, len(tensors))]
    norm = appending.new_result(block, "global_norm")
    with appending.role_for(*tensors):
        limit = appending.as_variable(threshold, block, dtype)
        outputs: dict[str, Any] = {"Out": results, "Norm": norm}
        block.append_op("clip_by_global_norm", {"X": tensors, "ClipNorm": limit}, outputs, {"strict": True})
    return [appending.pass_on(t, result) for t, result in zip(tensors, results, strict=True)], norm


def _clip_by_given_norm(
    tensors: list[Variable], threshold: Number, norm: Number, name: str | None
) -> tuple[list[Variable], Variable]:
    """The tensors times ``c / max(c, norm)`` in float64, which holds every factor; NaN if the norm is not finite."""
    if not isinstance(norm, Variable) and norm < 0:
        raise ClipError(f"clip_by_global_norm: use_norm must not be negative, got {norm}")
    program = tensors[0].block.program if tensors else default_main_program()
    block = program.current_block()
    given = norm if isinstance(norm, Variable) else appending.constant(block, norm, _widest(tensors))
    if not tensors:
        return [], given
    with appending.role_for(*tensors):
        limit = appending.as_variable(threshold, block, DType.FP64)
        wide = appending.as_variable(norm, block, DType.FP64)
        if isinstance(threshold, float) and threshold == math.inf:
            factor = appending.constant(block, 1.0, DType.FP64)  # the quotient of two infinities would be NaN
        else:
            factor = block.emit("elementwise_div", X=limit, Y=block.emit("elementwise_max", X=limit, Y=wide))
        factor = block.emit("elementwise_add", X=factor, Y=block.emit("elementwise_sub", X=wide, Y=wide))
    results = []
    for t, each in zip(tensors, _names(name, len(tensors)), strict=True):
        scaled = append("elementwise_mul", {"X": appending.cast(t, DType.FP64), "Y": factor}, t)
        results.append(append("cast", {"X": scaled}, t, each, in_dtype=int(DType.FP64), out_dtype=int(t.dtype)))
    return results, given
