"""Variables of scopes, and the handles on the tensors and selected rows that they hold."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from sys import getrefcount
from typing import Any

import numpy as np

from minigraph.errors import ProgramError, WrongTypeError, caller_site, warn
from minigraph.kernels.sparse_rows import SparseRows, dense
from minigraph.runtime.lod import Levels, as_levels, check_levels, is_valid, lengths_of, offsets_of
from minigraph.runtime.place import CPUPlace, Place
from minigraph.support.interrupts import deferred
from minigraph.support.public import public
from minigraph.types import DType, TensorType, VarKind, as_dtype

_WARNED: dict[Any, Any] = {}
"""Warnings of tensors without a value that have been shown, as Python keeps them."""


@public
class LoDTensor:
    """A handle on an array: reads and writes go through to the variable that holds it.

    A tensor made without a variable has its own array, an empty one at first. It may note how its rows are grouped into
    sequences (fluid's LoD); fed and fetched tensors have them, see `minigraph.lowering.lengths`.

    Examples
    --------
    >>> tensor = LoDTensor()
    >>> tensor.set([[1.0], [2.0], [3.0]], CPUPlace())
    >>> tensor.set_recursive_sequence_lengths([[2, 1]])
    >>> tensor.shape(), tensor.lod()
    ([3, 1], [[0, 2, 3]])
    """

    def __init__(self, holder: ScopeVariable | _ValuesOfRows | None = None) -> None:
        self._holder = ScopeVariable("the tensor", np.zeros(0, np.float32)) if holder is None else holder

    def set(self, array: Any, place: Place | None = None) -> None:
        """Replace the value by a copy of `array`, kept on `place` (default: where the value is now)."""
        target = place or self._holder.place
        # A copy, because updates in place must not change the caller's array.
        value = target.xp.array(array)
        # Such as an array of objects, which NumPy makes of ragged lists.
        if value.dtype.kind not in "biuf":
            raise WrongTypeError(
                f"a tensor holds numbers or booleans, got {value.dtype}: {array!r:.80}",
                hint="Set an array of numbers.",
            )
        lod = self._holder.lod  # setting the value clears it
        with deferred():
            self._holder.value = value
            self._holder.place = target
            self._holder.lod = lod

    def shape(self) -> list[int]:
        return [0] if self._holder.value is None else list(self._value().shape)

    _get_dims = shape

    def _dtype(self) -> DType:
        return as_dtype(self._value().dtype)

    def _is_initialized(self) -> bool:
        return self._holder.value is not None

    def lod(self) -> list[list[int]]:
        """Offsets at which sequences begin and end, for each level, outermost first."""
        return [list(level) for level in self._holder.lod]

    def set_lod(self, lod: Any) -> None:
        """Note how rows are grouped into sequences, as offsets.

        Raises
        ------
        ProgramError
            If they do not fit each other or the number of rows. Nothing is changed then.
        """
        self._group(as_levels(lod, "the offsets of sequences"))

    def recursive_sequence_lengths(self) -> list[list[int]]:
        """`lod` as lengths."""
        return [list(level) for level in lengths_of(self._holder.lod)]

    def set_recursive_sequence_lengths(self, recursive_sequence_lengths: Any) -> None:
        """`set_lod` with lengths."""
        self._group(offsets_of(as_levels(recursive_sequence_lengths, "the lengths of sequences")))

    def has_valid_recursive_sequence_lengths(self) -> bool:
        """Whether `lod` fits the number of rows, which `set` may have changed."""
        return is_valid(self._holder.lod, self._rows())

    def _group(self, offsets: Levels) -> None:
        if offsets:
            check_levels(offsets, self._rows() or None)  # programs may set lengths before the rows
        self._holder.lod = offsets

    def _rows(self) -> int:
        shape = self._value().shape
        return int(shape[0]) if shape else 0

    def _value(self) -> Any:
        if is_rows(self._holder.value):
            raise ProgramError(f"{self._holder.name} holds selected rows", hint="Read them with get_selected_rows().")
        if self._holder.value is None:
            raise ProgramError(f"{self._holder.name} holds no value yet", hint="Run the startup program.")
        return self._holder.value

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        if self._holder.value is None:
            # As in fluid, where scripts copy all variables of a program, temporary ones too. Without the name, because
            # the same warning about the same line is shown once.
            warn(
                "a variable without a value is an empty array here: run the startup program, which sets the "
                "parameters, or fetch what a run computes",
                registry=_WARNED,
            )
            return np.zeros(0, dtype)
        # Always a copy, because the next run may change the array in place.
        return np.array(self._holder.place.to_host(self._value()), dtype=dtype, order="C")

    def __getitem__(self, index: Any) -> LoDTensor:
        """A tensor of its own with the selected elements; a number selects a slice of one, as in fluid."""
        parts = [each if isinstance(each, slice) else int(each) for each in np.index_exp[index]]
        host, found = np.asarray(self), LoDTensor()
        for axis, part in enumerate(parts):
            if not isinstance(part, slice):
                # Python's IndexError ends iterations over a tensor, too.
                parts[axis] = slice(range(host.shape[axis])[part], range(host.shape[axis])[part] + 1)
        found.set(host[tuple(parts)], self._holder.place)
        return found

    # Fluid's ways to make and change a tensor without an array

    def _set_dims(self, dims: Sequence[int]) -> None:
        """Take this shape; elements are kept where their number stays the same, else they are zeros."""
        held = np.zeros(0, np.float32) if self._holder.value is None else np.asarray(self)
        shape = tuple(dims)
        self.set(held.reshape(shape) if held.size == math.prod(shape) else np.zeros(shape, held.dtype))

    def _alloc_float(self, place: Place) -> None:
        """Have zeros of the shape that the tensor has."""
        self.set(np.zeros(self.shape(), np.float32), place)

    def _alloc_double(self, place: Place) -> None:
        self.set(np.zeros(self.shape(), np.float64), place)

    def _alloc_int(self, place: Place) -> None:
        self.set(np.zeros(self.shape(), np.int32), place)

    def _set_float_element(self, offset: int, value: float) -> None:
        """Set one element, counted through all rows."""
        array = np.array(self)
        array.flat[offset] = value
        self.set(array)

    def _get_float_element(self, offset: int) -> float:
        return float(np.asarray(self).flat[offset])

    _set_double_element, _get_double_element = _set_float_element, _get_float_element

    def _copy(self, place: Place) -> LoDTensor:
        """A tensor of its own with the same values and sequences, on `place`."""
        copy = LoDTensor()
        copy.set(np.asarray(self), place)
        copy.set_lod(self.lod())
        return copy

    def _share_data_with(self, other: LoDTensor) -> None:
        """Be a handle on what `other` holds."""
        self._holder = other._holder

    def _place(self) -> Place:
        """The place of the values."""
        return self._holder.place

    def _clear(self) -> None:
        """Hold no value."""
        self._holder.value = None

    def __repr__(self) -> str:
        lengths = f", {self.recursive_sequence_lengths()}" if self._holder.lod else ""
        return f"LoDTensor({np.asarray(self)!r}{lengths})"


@public
class SelectedRows:
    """A handle on some rows of an array whose other rows are zero, such as the gradient of a sparse embedding.

    A row number may occur several times; the row of the array is then their sum. `numpy` gives the whole array.

    Examples
    --------
    >>> from minigraph.runtime.scope import Scope
    >>> gradient = Scope().var("w@GRAD").get_selected_rows()
    >>> gradient.set_height(4)
    >>> gradient.set_rows([2, 0, 2])
    >>> gradient.get_tensor().set(np.array([[1.0], [2.0], [3.0]]), CPUPlace())
    >>> gradient.rows(), gradient.numpy().tolist()
    ([2, 0, 2], [[2.0], [0.0], [4.0], [0.0]])
    """

    def __init__(self, holder: ScopeVariable) -> None:
        self._holder = holder

    def rows(self) -> list[int]:
        """The numbers of the rows, in their order."""
        return self._held().rows.tolist()

    def height(self) -> int:
        """Number of rows of the whole array."""
        return self._held().height

    def set_height(self, height: int) -> None:
        value = self._held(or_empty=True)
        self._holder.value = SparseRows(value.rows, value.value, int(height))

    def set_rows(self, rows: Any) -> None:
        """Replace the numbers of the rows; their values are set by ``get_tensor().set``."""
        value = self._held(or_empty=True)
        self._holder.value = SparseRows(self._holder.place.xp.array(rows, np.int64), value.value, value.height)

    def sync_index(self) -> None:
        """Accepted because fluid has it; there is no index apart from the rows."""

    def get_tensor(self) -> LoDTensor:
        """A handle on the values of the rows, one below the other."""
        self._held(or_empty=True)
        return LoDTensor(_ValuesOfRows(self._holder))

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the whole array."""
        return self._held().shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._held().dtype

    def numpy(self) -> np.ndarray[Any, Any]:
        """The whole array, dense, of the caller's own."""
        place = self._holder.place
        return place.to_host(dense(place.xp, self._held()))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        return np.asarray(self.numpy(), dtype=dtype)

    def _held(self, or_empty: bool = False) -> SparseRows:
        value = self._holder.value
        if value is None and or_empty:
            xp = self._holder.place.xp
            value = self._holder.value = SparseRows(xp.zeros(0, np.int64), xp.zeros((0, 0), np.float32), 0)
        if not is_rows(value):
            what = "no value yet" if value is None else f"a dense tensor, {type_of(value)}"
            raise ProgramError(
                f"{self._holder.name} holds {what}, not selected rows",
                hint="" if value is None else "Read it with get_tensor().",
            )
        return value

    def __repr__(self) -> str:
        return f"SelectedRows(rows={self.rows()}, height={self.height()}, value={np.asarray(self.get_tensor())!r})"


def is_rows(value: Any) -> bool:
    """Whether a value that a kernel takes or gives is selected rows."""
    return type(value) is SparseRows


def type_of(value: Any) -> TensorType:
    """The type of an array or of selected rows."""
    kind = VarKind.SELECTED_ROWS if is_rows(value) else VarKind.LOD_TENSOR
    return TensorType(as_dtype(value.dtype), tuple(value.shape), kind)


def moved(value: Any, source: Place, target: Place) -> Any:
    """An array or selected rows of one place, on another."""
    if not is_rows(value):
        return target.to_device(source.to_host(value))
    rows, values = (target.to_device(source.to_host(each)) for each in (value.rows, value.value))
    return SparseRows(rows, values, value.height, value.is_merged)


class Changes:
    """Changes of the variables of a family of scopes: how many got another array, and which got other values when."""

    __slots__ = ("_count", "_latest", "_moment")

    def __init__(self) -> None:
        self._count = 0
        self._moment = 0
        self._latest: dict[str, int] | None = None
        """Moment at which each variable last got a value, since somebody asked for a moment."""

    @property
    def count(self) -> int:
        """Number of times that a variable was given another array."""
        return self._count

    def add(self) -> None:
        """Note that a variable was given another array."""
        self._count += 1

    def note(self, names: Iterable[str]) -> None:
        """Note that these variables have other values."""
        if self._latest is not None:
            self._moment += 1
            self._latest.update(dict.fromkeys(names, self._moment))

    def moment(self) -> int:
        """The present, as `since` takes it."""
        if self._latest is None:
            self._latest = {}
        return self._moment

    def since(self, moment: int) -> set[str]:
        """Names of the variables that got a value after a moment."""
        return {name for name, latest in (self._latest or {}).items() if latest > moment}


class ScopeVariable:
    """A named slot of a scope; `value` is None until something is stored."""

    __slots__ = ("_changes", "_spare", "_value", "lod", "name", "place")

    def __init__(
        self, name: str, value: Any = None, place: Place | None = None, changes: Changes | None = None
    ) -> None:
        self.name = name
        self._value = value
        self.lod: Levels = ()
        """Offsets of sequences among the rows; reset by another value."""
        self.place: Place = place or CPUPlace()
        self._changes = changes or Changes()
        self._spare: Any = None

    @property
    def value(self) -> Any:
        return self._value

    @value.setter
    def value(self, value: Any) -> None:
        self._value = value
        self.lod = ()
        self._changes.add()
        self._changes.note((self.name,))

    def replace(self, value: Any, place: Place, keep_old: bool) -> None:
        """Store what a run has computed; with `keep_old`, the array that was here becomes the spare array.

        Law: a second call with the same value changes nothing, because an interrupt may have the first one repeated.
        """
        if not keep_old:
            self._spare = None
        elif self._value is not value:
            self._spare = self._value if _owns_memory(self._value) else None
        self._value, self.lod, self.place = value, (), place
        self._changes.add()
        self._changes.note((self.name,))

    def move(self, value: Any, place: Place) -> None:
        """Keep the same values in another array."""
        self._value, self.place = value, place
        self._changes.add()

    def take_spare(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """Return an array that nobody else holds: the spare one, which the variable forgets, or a new one."""
        spare = _taken(self)
        fits = _owns_memory(spare) and spare.shape == shape and spare.dtype == dtype
        return spare if fits and spare.flags.carray else np.empty(shape, dtype)

    def get_tensor(self) -> LoDTensor:
        return LoDTensor(self)

    def get_selected_rows(self) -> SelectedRows:
        return SelectedRows(self)

    def set_int(self, value: int) -> None:
        """Store one whole number."""
        self.value = np.array(value, "int32")

    def get_int(self) -> int:
        """The number that `set_int` has stored."""
        if self._value is None or self._value.dtype != np.int32 or self._value.ndim:
            raise ProgramError(f"{self.name} holds no number that set_int has stored", site=caller_site())
        return int(self._value)


def _owns_memory(value: Any) -> bool:
    """Whether a value is an array that is no view of another one."""
    return type(value) is np.ndarray and value.base is None


def _taken(variable: ScopeVariable) -> Any:
    """Return the spare array of `variable`, which forgets it; None if somebody else refers to it.

    Views, handles of other libraries and runs that read the array refer to it, too. Versions of Python and debuggers
    count the references of this function differently, so a new object tells how many these are.
    """
    spare, variable._spare = variable._spare, None
    new = object()
    return spare if getrefcount(spare) <= getrefcount(new) else None


class _ValuesOfRows:
    """The values of the selected rows that a variable holds, as if they were a variable."""

    def __init__(self, holder: ScopeVariable) -> None:
        self._holder = holder
        self.name = holder.name
        self.lod: Levels = ()

    @property
    def value(self) -> Any:
        return self._holder.value.value

    @value.setter
    def value(self, value: Any) -> None:
        held = self._holder.value
        self._holder.value = SparseRows(held.rows, value, held.height)

    @property
    def place(self) -> Place:
        return self._holder.place

    @place.setter
    def place(self, place: Place) -> None:
        self._holder.value = moved(self._holder.value, self._holder.place, place)
        self._holder.place = place
