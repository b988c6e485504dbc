"""Paddle 2's functions that cut tensors apart, put them together, repeat them and pick elements, and their methods.

They are thin over `minigraph.layers`, and compute at once on tensors, as those in `minigraph.tensor.creation` do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from minigraph import layers
from minigraph.errors import ProgramError
from minigraph.ir import Variable
from minigraph.ir.default_programs import default_main_program
from minigraph.ir.variable_methods import method, method_of_entries, register
from minigraph.layer_helper import check_variable, layer
from minigraph.support.public import public
from minigraph.tensor.creation import computing_at_once, transpose

__all__ = [
    "chunk", "expand", "expand_as", "flip", "gather", "gather_nd", "index_select", "nonzero", "one_hot", "randint",
    "scatter", "slice", "split", "squeeze", "stack", "strided_slice", "tile", "unbind", "unsqueeze", "unstack", "where",
]  # fmt: skip


@method
def squeeze(x: Variable, axis: int | Sequence[int] | None = None, name: str | None = None) -> Variable:
    """`x` without the dimensions `axis` (None: all) that have size 1; others stay."""
    shape = check_variable(x, "squeeze: x").shape or ()
    given = range(len(shape)) if axis is None else [axis] if isinstance(axis, int) else axis
    gone = [i for i in given if not -len(shape) <= i < len(shape) or shape[i] == 1]
    return layers.squeeze(x, gone) if gone else x


@method
def unsqueeze(x: Variable, axis: Any, name: str | None = None) -> Variable:
    """`x` with dimensions of size 1 inserted at `axis`, one or several, one after the other."""
    return layers.unsqueeze(x, axis)


@method
def split(
    x: Variable, num_or_sections: int | Sequence[int], axis: int | Variable = 0, name: str | None = None
) -> list[Variable]:
    """`x` cut along `axis` into a number of equal pieces, or into pieces of these lengths, one of which may be -1.

    Examples
    --------
    >>> from minigraph import to_tensor
    >>> [piece.tolist() for piece in (p.numpy() for p in split(to_tensor([1, 2, 3, 4]), [1, -1]))]
    [[1], [2, 3, 4]]
    """
    return layers.split(x, num_or_sections, axis)


@method
def chunk(x: Variable, chunks: int, axis: int | Variable = 0, name: str | None = None) -> list[Variable]:
    """`x` cut along `axis` into equal pieces."""
    return layers.split(x, chunks, axis)


@public
def stack(x: Sequence[Variable], axis: int = 0, name: str | None = None) -> Variable:
    """Tensors of one shape beside each other along a new dimension `axis`."""
    return layers.stack(x, axis)


@method
def unstack(x: Variable, axis: int = 0, num: int | None = None) -> list[Variable]:
    """The slices of `x` along `axis`, without it; `num` is how many there are."""
    return layers.unstack(x, axis, num)


@method
def unbind(x: Variable, axis: int = 0) -> list[Variable]:
    """The slices of `x` along `axis`, without it."""
    return layers.unstack(x, axis)


@method_of_entries
def tile(x: Variable, repeat_times: Sequence[int], name: str | None = None) -> Variable:
    """`x` repeated ``repeat_times[i]`` times along dimension i, both aligned at the end.

    Examples
    --------
    >>> from minigraph import to_tensor
    >>> tile(to_tensor([1, 2]), [2, 2]).numpy().tolist()
    [[1, 2, 1, 2], [1, 2, 1, 2]]
    """
    times, rank = list(repeat_times), len(check_variable(x, "tile: x").shape or ())
    if len(times) > rank:
        x = layers.unsqueeze(x, [0] * (len(times) - rank))
    return layers.expand(x, [1] * (rank - len(times)) + times)


@method_of_entries
def expand(x: Variable, shape: Sequence[int], name: str | None = None) -> Variable:
    """`x` repeated along dimensions of size 1 to `shape`, aligned at the end, where -1 keeps a dimension.

    Raises
    ------
    ProgramError
        If a dimension is neither 1 nor that in `shape`.

    Examples
    --------
    >>> from minigraph import to_tensor
    >>> expand(to_tensor([[1], [2]]), [3, 2, 2]).numpy().shape
    (3, 2, 2)
    """
    have, missing = check_variable(x, "expand: x").shape or (), len(shape) - len(x.shape or ())
    padded = (1,) * missing + have
    fits = missing >= 0 and all(want in (-1, dim) or dim == 1 for dim, want in zip(padded, shape, strict=True))
    if not fits or -1 in shape[: max(missing, 0)]:
        raise ProgramError(f"expand: {x} cannot be repeated to the shape {list(shape)}")
    if missing:
        x = layers.unsqueeze(x, [0] * missing)
    return layers.expand(x, [1 if want in (-1, dim) else want for dim, want in zip(padded, shape, strict=True)])


@method
def expand_as(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """`x` repeated along dimensions of size 1 to the shape of `y`, aligned at the end."""
    return expand(x, check_variable(y, "expand_as: y").shape or ())


@method
def gather(x: Variable, index: Variable, axis: int = 0, name: str | None = None) -> Variable:
    """The slices of `x` along `axis` that `index` names; one that is named more than once gets the sum of gradients."""
    check_variable(x, "gather: x")
    return _along(x, axis, lambda x: layers.gather(x, index, overwrite=False))


@method
def index_select(x: Variable, index: Variable, axis: int = 0, name: str | None = None) -> Variable:
    """The slices of `x` along `axis` that `index` names."""
    return gather(x, index, axis)


def _along(x: Variable, axis: int, function: Callable[[Variable], Variable]) -> Variable:
    """`function` of `x`, with dimension `axis` as its first."""
    rank = len(x.shape or ())
    if not -rank <= axis < rank:
        raise ProgramError(f"axis must be in [{-rank}, {rank}), got {axis}")
    if axis % rank == 0:
        return function(x)
    swapped = list(range(rank))
    swapped[0], swapped[axis] = swapped[axis], 0
    return transpose(function(transpose(x, swapped)), swapped)


@method
def gather_nd(x: Variable, index: Variable, name: str | None = None) -> Variable:
    """The parts of `x` that the rows of `index` name: ``x[index[..., 0], index[..., 1], ...]``."""
    return layers.gather_nd(x, index)


@method
def scatter(
    x: Variable, index: Variable, updates: Variable, overwrite: bool = True, name: str | None = None
) -> Variable:
    """`x` with the rows that `index` names replaced by those of `updates`, or without `overwrite` by their sum."""
    return layers.scatter(x, index, updates, overwrite=overwrite)


@register
@layer
def where(condition: Variable, x: Variable | None = None, y: Variable | None = None, name: str | None = None) -> Any:
    """`x` where `condition` holds and `y` elsewhere; with neither, the places where it holds, a tensor per dimension.

    Raises
    ------
    ProgramError
        If only one of `x` and `y` is given.

    Examples
    --------
    >>> from minigraph import to_tensor
    >>> x = to_tensor([1.0, -2.0])
    >>> where(to_tensor([True, False]), x, -x).numpy()
    array([1., 2.], dtype=float32)
    """
    if x is None and y is None:
        return nonzero(condition, as_tuple=True)
    if x is None or y is None:
        raise ProgramError("where needs both x and y, or neither")
    check_variable(condition, "where: condition")
    return default_main_program().current_block().emit("where", Condition=condition, X=x, Y=y)


@method
def nonzero(x: Variable, as_tuple: bool = False) -> Any:
    """The places where `x` is not 0, in order, a row of int64 each; or, `as_tuple`, a column for each dimension."""
    places = layers.where(x)
    if not as_tuple:
        return places
    return tuple(layers.slice(places, [1], [i], [i + 1]) for i in range(len(x.shape or ())))


@method
def flip(x: Variable, axis: int | Sequence[int], name: str | None = None) -> Variable:
    """`x` with the elements along the dimension or dimensions `axis` in reverse order."""
    return layers.reverse(x, axis)


@public
def randint(
    low: int = 0, high: int | None = None, shape: Any = (1,), dtype: Any = None, name: str | None = None
) -> Variable:
    """Uniform on the integers from `low` up to but not including `high`, or with one of them from 0 up to it."""
    with computing_at_once():
        return layers.randint(low, high, list(shape) if isinstance(shape, tuple) else shape, dtype=dtype)


# Functions that are the same in fluid, where `one_hot` is `minigraph.layers.fluid_one_hot`.
slice, strided_slice, one_hot = register(layers.slice), register(layers.strided_slice), layers.fluid_one_hot
