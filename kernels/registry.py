"""The table of kernels: for each operator type, the function that does its arithmetic.

A kernel takes the array module of the place first, then arrays in the operator's slot order (a list for a slot of
several variables, None for one left out), then attributes by keyword. It returns its outputs: new arrays, the buffers
it was given, or views of the input that it is registered to view. A plan uses memory again on the strength of that.
Where an input or output is selected rows, a `minigraph.kernels.sparse_rows.SparseRows` instead of an array, the kernel
is another one. Keyword parameters with a meaning of their own, each optional:

- ``out``: a buffer (a tuple of them for several outputs) to write into and return. It may be one of the inputs. When
  it is None the kernel allocates.
- ``rng``: the place's random generator, for operators that draw random numbers.
- ``over``: the vector that the only list came joined to, to write the results over; None where they are new arrays.
- ``wanted``: which outputs of a gradient kernel are asked for, in slot order; return None for the others.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np

from minigraph.support.signatures import parameter_names

_F = TypeVar("_F", bound=Callable[..., Any])

KERNEL, LOOP = "kernel", "loop"
"""Kinds of functions that compute an operator: its kernel, or what has the kernel's bits, and a compiled loop."""

SPECIAL_PARAMETERS = frozenset({"out", "over", "rng", "wanted"})


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel function and what its signature says."""

    function: Callable[..., Any]
    attrs: tuple[str, ...]
    takes_out: bool
    takes_rng: bool
    takes_wanted: bool
    view_of: int | None
    """Position of the input whose memory the first output may share, a list of outputs with a list of inputs."""
    joins: str | None = None
    """Arrays of a list that may come joined."""
    for_rows: bool = False
    """Whether it takes or gives selected rows."""


_KERNELS: dict[tuple[str, str | None], Kernel] = {}
_ROWS_KERNELS: dict[tuple[str, str | None], Kernel] = {}
_SPECIALIZERS: dict[str, Callable[..., Callable[..., Any] | None]] = {}
_JIT_SPECIALIZERS: dict[str, Callable[..., Callable[..., Any] | None]] = {}
_OWN_SPECIALIZERS: dict[str, Callable[..., Callable[..., Any] | None]] = {}
_OWN_JIT_SPECIALIZERS: dict[str, Callable[..., Callable[..., Any] | None]] = {}
_ROWS_SPECIALIZERS: dict[str, Callable[..., Callable[..., Any] | None]] = {}


def kernel(
    type: str,
    *,
    place: str | None = None,
    view: str | None = None,
    rows: bool = False,
    joins: str | None = None,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function as the kernel of an operator type.

    Parameters
    ----------
    type : str
        Operator type.
    place : {'cpu', 'cuda'}, optional
        Only for this kind of place, beside the shared one, with which it must agree.
    view : str, optional
        Name of the parameter whose memory the first output may share. Where it names a list, the first output is a
        list too, and each of it may share the memory of its counterpart.
    rows : bool
        For selected rows.
    joins : {'all', 'over', 'short'}, optional
        Lists of arrays that are neighbours in memory may come as one vector: 'all' of every list that has one array for
        each output, and of the outputs too, 'over' of the only list, which the results are written over, or runs of
        'short' ones, see `minigraph.kernels.norm.short_joined`.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        _import_before(function)
        inputs, keywords = parameter_names(function)
        table = _ROWS_KERNELS if rows else _KERNELS
        # Two kernels for one type would depend on the order of imports.
        if (type, place) in table:
            raise TypeError(f"kernel {type} for {place or 'every place'} is defined twice")
        table[type, place] = Kernel(
            function=function,
            attrs=tuple(name for name in keywords if name not in SPECIAL_PARAMETERS),
            takes_out="out" in keywords,
            takes_rng="rng" in keywords,
            takes_wanted="wanted" in keywords,
            view_of=None if view is None else inputs.index(view) - 1,
            joins=joins,
            for_rows=rows,
        )
        return function

    return decorate


class TypeOfArray(NamedTuple):
    """Shape and dtype of an array, as specializers see it."""

    shape: tuple[int, ...]
    dtype: Any


_ANY_SIZE: set[Callable[..., Any]] = set()
"""Specializers that are asked where only a run knows some dimensions."""


def specialize(
    *types: str, jit: bool = False, own: bool = False, rows: bool = False, any_size: bool = False
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function that may offer something quicker than the kernel once shapes and attributes are known.

    It is called as ``f(xp, *inputs, **attrs)`` where an input has ``shape`` and a NumPy ``dtype``, when a plan is
    built, with ``wanted`` besides if the kernel takes it. It returns a function of the input arrays and an optional
    ``out``, which shares no memory with them, or None to keep the kernel. That function must agree with the kernel bit
    for bit.

    With `jit` it is asked first, by executors that compile, and offers loops for the processor. They may round in
    another way than the kernel, as the module that offers them says, and their ``out`` may be one of the inputs.

    With `own` it is asked where all that the operator writes goes to the caller of a run. What it offers takes no
    ``out``, and its results share memory with no input, and no element with each other.

    With `rows` it also serves inputs and outputs that are selected rows, whose ``shape`` is that of the whole array,
    and it offers loops, too.

    With `any_size` it is also asked where only a run knows some dimensions, which are -1.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        _import_before(function)
        for type in types:
            _specializers(jit, own, rows)[type] = function
        if any_size:
            _ANY_SIZE.add(function)
        return function

    return decorate


def find_kernel(type: str, place_kind: str, rows: bool = False) -> Kernel | None:
    """The kernel of an operator type: the one for this kind of place, else the shared one, else None.

    `rows` asks for the one that takes or gives selected rows.
    """
    if _FIRST:
        _import(_FIRST)
    table = _ROWS_KERNELS if rows else _KERNELS
    found = table.get((type, place_kind)) or table.get((type, None))
    if found is None and _LATER:
        _import(_LATER)
        found = table.get((type, place_kind)) or table.get((type, None))
    return found


def find_specializer(
    type: str, jit: bool = False, own: bool = False, rows: bool = False
) -> Callable[..., Callable[..., Any] | None] | None:
    """The function that `specialize` registered for an operator type, or None."""
    if _FIRST:
        _import(_FIRST)
    return _specializers(jit, own, rows).get(type)


_FIRST: list[str] = []
_LATER: list[str] = []


def import_first(modules: Iterable[str]) -> None:
    """Import modules with kernels before any kernel is looked for: a program that is only built needs none."""
    _FIRST.extend(modules)


def import_later(modules: Iterable[str]) -> None:
    """Import modules with kernels that few programs need when a kernel is looked for that is not there."""
    _LATER.extend(modules)


def _import(modules: list[str]) -> None:
    for module in modules[:]:
        importlib.import_module(module)
    modules.clear()  # not before they are there: another thread may look, too


def _import_before(function: Callable[..., Any]) -> None:
    """Import minigraph's own kernels before a user's `function` is registered, so that none is registered over it."""
    if not function.__module__.startswith("minigraph."):
        _import(_FIRST)
        _import(_LATER)


def for_all_sizes(function: _F) -> _F:
    """Mark what a specializer offers as right for all arrays whose dimensions are equal, or 1, where these are."""
    function.is_for_all_sizes = True  # type: ignore[attr-defined]
    return function


def is_for_all_sizes(function: Callable[..., Any]) -> bool:
    """Whether `function` is marked, or one of NumPy's own."""
    return type(function) is np.ufunc or hasattr(function, "is_for_all_sizes")


def takes_any_size(specializer: Callable[..., Any]) -> bool:
    """Whether a specializer is asked where only a run knows some dimensions."""
    return specializer in _ANY_SIZE


def _specializers(jit: bool, own: bool, rows: bool) -> dict[str, Callable[..., Callable[..., Any] | None]]:
    if rows:
        return _ROWS_SPECIALIZERS
    if own:
        return _OWN_JIT_SPECIALIZERS if jit else _OWN_SPECIALIZERS
    return _JIT_SPECIALIZERS if jit else _SPECIALIZERS
