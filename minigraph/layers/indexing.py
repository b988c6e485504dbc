"""Picking elements of tensors: by ranges, by their numbers, by conditions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from minigraph.errors import WrongTypeError
from minigraph.ir import Variable
from minigraph.layer_helper import LayerHelper, constant, emit, fed_integers, input_or_attr, layer, one_of
from minigraph.layers.nn import check_integers
from minigraph.layers.reshaping import Numbers, numbers_given
from minigraph.support.arguments import INTEGERS

__all__ = ["fluid_one_hot", "gather", "gather_nd", "one_hot", "reverse", "scatter", "slice", "strided_slice", "where"]


@layer
def slice(input: Variable, axes: Sequence[int], starts: Numbers, ends: Numbers) -> Variable:
    """The elements from ``starts[i]`` up to but not including ``ends[i]`` along dimension ``axes[i]``.

    Negative numbers count from the back, and what lies outside is left out; at least one element must be left.
    """
    return _sliced("slice", input, axes, {"starts": starts, "ends": ends})


@layer
def strided_slice(input: Variable, axes: Sequence[int], starts: Numbers, ends: Numbers, strides: Numbers) -> Variable:
    """Every ``strides[i]``-th element from ``starts[i]`` towards ``ends[i]`` along dimension ``axes[i]``.

    Notes
    -----
    A negative stride -s takes every s-th element from ``ends[i] + 1`` up to ``starts[i]`` and reverses them, as in
    fluid: from 4 to 0 by -2 these are elements 3 and 1. Subscripts, such as ``x[4:0:-2]``, follow Python's rule.
    """
    return _sliced("strided_slice", input, axes, {"starts": starts, "ends": ends, "strides": strides})


def _sliced(op_type: str, x: Variable, axes: Sequence[int], bounds: dict[str, Any]) -> Variable:
    helper = LayerHelper(op_type)
    # 1: the bounds of the dimension are known when the program is built; -1: only a run knows them.
    flags, given = [1] * len(axes), dict[str, Any]()
    for name, numbers in bounds.items():
        slot = f"{name.capitalize()}Tensor"
        given |= numbers_given(helper, numbers, name, slot, f"{slot}List")
        flags = flags_after(flags, numbers)
    return helper.emit(op_type, Input=x, axes=list(axes), infer_flags=flags, **given)


def flags_after(flags: Sequence[int], numbers: Any) -> list[int]:
    """`flags` with -1 where one of `numbers` is known only when the program runs."""
    if isinstance(numbers, Variable):
        return [-1] * len(flags)
    return [-1 if isinstance(number, Variable) else flag for flag, number in zip(flags, numbers, strict=False)]


@layer
def gather(input: Variable, index: Variable, overwrite: bool = True) -> Variable:
    """The rows of `input` that `index` names.

    Parameters
    ----------
    input : Variable, [rows, ...]
    index : Variable, int[n] or int[n, 1]
    overwrite : bool
        Where `index` names a row more than once, it gets the gradient of the last copy only, instead of the sum.

    Returns
    -------
    Variable, [n, ...]
    """
    return emit("gather", X=input, Index=check_integers(fed_integers(index), "gather: index"), overwrite=overwrite)


@layer
def gather_nd(input: Variable, index: Variable, name: str | None = None) -> Variable:
    """The parts of `input` that the rows of `index` name: ``input[index[..., 0], index[..., 1], ...]``."""
    return emit("gather_nd", name, X=input, Index=check_integers(index, "gather_nd: index"))


@layer
def scatter(
    input: Variable, index: Variable, updates: Variable, name: str | None = None, overwrite: bool = True
) -> Variable:
    """`input` with the rows that `index` names replaced by those of `updates`.

    Where `index` names a row more than once, the last one counts, or without `overwrite` their sum.
    """
    ids = check_integers(index, "scatter: index")
    return emit("scatter", name, X=input, Ids=ids, Updates=updates, overwrite=overwrite)


@layer
def reverse(x: Variable, axis: int | Sequence[int]) -> Variable:
    """`x` with the elements along the dimension or dimensions `axis` in reverse order."""
    return emit("reverse", X=x, axis=[axis] if isinstance(axis, INTEGERS) else list(axis))


@layer
def one_hot(input: Variable, depth: int | Variable, allow_out_of_range: bool = False) -> Variable:
    """A row of `depth` zeros with a 1 at j for each number j in `input`, whose last dimension is 1; float32.

    See `minigraph.one_hot` for numbers in other shapes.

    Parameters
    ----------
    input : Variable, int[..., 1]
    allow_out_of_range : bool
        Numbers that are not in [0, depth) give zeros only, instead of an error.

    Returns
    -------
    Variable, float32[..., depth]
    """
    return _one_hot("one_hot", input, depth, allow_out_of_range)


@layer
def fluid_one_hot(input: Variable, depth: int | Variable, allow_out_of_range: bool = False) -> Variable:
    """A row of `depth` zeros with a 1 at j for each number j in `input`, float32.

    Numbers that are not in [0, depth) are an error, or with `allow_out_of_range` give zeros only.

    Examples
    --------
    >>> import minigraph as paddle
    >>> paddle.one_hot(paddle.to_tensor([2, 0]), 3).numpy()
    array([[0., 0., 1.],
           [1., 0., 0.]], dtype=float32)
    """
    return _one_hot("one_hot_v2", one_of(input), depth, allow_out_of_range)


def _one_hot(op_type: str, x: Variable, depth: int | Variable, allow_out_of_range: bool) -> Variable:
    check_integers(x, "one_hot: input")
    if isinstance(depth, Variable):
        check_integers(depth, "one_hot: depth")
    elif not isinstance(depth, INTEGERS):
        raise WrongTypeError(f"one_hot: depth must be an integer or a Variable, got {depth!r:.60}")
    given = input_or_attr(depth, "depth_tensor", "depth")
    return constant(emit(op_type, X=x, **given, allow_out_of_range=allow_out_of_range))


@layer
def where(condition: Variable) -> Variable:
    """The places where `condition` is not 0, in order; see `minigraph.where` for a choice between two tensors.

    Returns
    -------
    Variable, int64[-1, dimensions of condition]
    """
    return constant(emit("where_index", Condition=condition))
