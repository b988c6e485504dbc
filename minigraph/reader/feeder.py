"""Feeds for an executor from the rows of a reader.

Rows become arrays of the declared dtype and shape, or an error that names the variable and the row. Values stay the
same, except that they are rounded to the precision of a floating-point variable.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from minigraph.errors import DataError, ProgramError, WrongTypeError
from minigraph.ir import Program, Variable
from minigraph.ir.default_programs import default_main_program
from minigraph.reader import Reader
from minigraph.runtime.place import cpu_places
from minigraph.runtime.scope_variable import LoDTensor, ScopeVariable
from minigraph.support.public import public
from minigraph.types import TensorType, same_shape

__all__ = ["DataFeeder"]

Feed: TypeAlias = dict[str, LoDTensor]

_REAL = "buif"  # the kinds of dtype: bool, unsigned, integer, floating


@public
class DataFeeder:
    """Turn mini-batches, lists of rows with one field per variable, into feeds.

    Parameters
    ----------
    feed_list : list of Variable or str
        The variables, or their names in `program`, in the order of the fields.
    place : Place
        Kept for programs written for fluid; the arrays are NumPy's, and the executor moves them to its own place.
    program : Program, optional
        Program in which names are looked up. Default: the default main program.

    Raises
    ------
    NotFoundError
        If the program has no variable of that name.
    WrongTypeError
        If an entry of `feed_list` is neither a variable nor a name.

    Examples
    --------
    >>> from minigraph.ir import Program
    >>> program = Program()
    >>> x = program.global_block().create_var(name="x", shape=[-1, 2], dtype="float32")
    >>> y = program.global_block().create_var(name="y", shape=[-1, 1], dtype="int64")
    >>> feed = DataFeeder([x, "y"], place=None, program=program).feed([([1, 2], 7), ([3, 4], 8)])
    >>> np.array(feed["x"]).tolist(), np.array(feed["y"]).tolist()
    ([[1.0, 2.0], [3.0, 4.0]], [[7], [8]])
    """

    def __init__(self, feed_list: Iterable[Variable | str], place: Any, program: Program | None = None) -> None:
        block = (default_main_program() if program is None else program).global_block()
        self._fields = [_field(block.var(entry) if isinstance(entry, str) else entry) for entry in feed_list]
        self.place = place

    def feed(self, iterable: Iterable[Sequence[Any]]) -> Feed:
        """Convert one mini-batch.

        Parameters
        ----------
        iterable : iterable of rows
            A row is a tuple with one field per variable: a number, an array or nested lists. Without rows the arrays
            have size 0.

        Returns
        -------
        dict of str to LoDTensor
            One tensor ``[rows, ...]`` per variable; one of sequences for a variable with a `lod_level`, whose fields
            are lists of rows, or of sequences of a lower level. Rows with another number of dimensions than declared
            are reshaped: ``[784]`` fits a variable declared ``[-1, 1, 28, 28]``, a number fits ``[-1, 1]``.

        Raises
        ------
        DataError
            If a row has the wrong number of fields, or a field does not fit the shape or dtype of its variable.
        """
        columns: list[list[Any]] = [[] for _ in self._fields]
        for index, row in enumerate(iterable):
            self._check_width(index, row)
            for column, value in zip(columns, row, strict=True):
                column.append(value)
        return {field.name: field.batch(column) for field, column in zip(self._fields, columns, strict=True)}

    def feed_parallel(
        self, iterable: Iterable[Iterable[Sequence[Any]]], num_places: int | None = None
    ) -> Iterator[Feed]:
        """`feed` each of several mini-batches, one for each place.

        Parameters
        ----------
        iterable : iterable of mini-batches
        num_places : int, optional
            Default: that of `cpu_places`.

        Raises
        ------
        DataError
            If there are not as many mini-batches as places.
        """
        places, batches = num_places or len(cpu_places()), list(iterable)
        if len(batches) != places:
            raise DataError(f"feed_parallel: got {len(batches)} mini-batches for {places} places")
        yield from map(self.feed, batches)

    def decorate_reader(
        self,
        reader: Reader[Iterable[Sequence[Any]]],
        multi_devices: bool = False,
        num_places: int | None = None,
        drop_last: bool = True,
    ) -> Reader[Feed]:
        """Turn a reader of mini-batches into a reader of feeds.

        Parameters
        ----------
        reader : callable
        multi_devices : bool
            Whether the reader gives a list with a feed for each place.
        num_places : int, optional
            Default: that of `cpu_places`.
        drop_last : bool
            Whether to leave out the last mini-batches if there are fewer than places; otherwise they are an error.

        Raises
        ------
        DataError
            While reading, if mini-batches are left over and `drop_last` is false.
        """
        if not multi_devices:
            return lambda: map(self.feed, reader())
        places = num_places or len(cpu_places())

        def feeds() -> Iterator[list[Feed]]:
            batches = iter(reader())
            while group := list(islice(batches, places)):
                if len(group) == places or not drop_last:
                    yield list(self.feed_parallel(group, places))

        return feeds  # type: ignore[return-value]

    def _check_width(self, index: int, row: Any) -> None:
        try:
            count = len(row)
        except TypeError:
            count = None
        if count != len(self._fields):
            found = f"{count} fields" if count is not None else f"no fields: it is of type {type(row).__name__}"
            names = ", ".join(field.name for field in self._fields)
            raise DataError(
                f"row {index} has {found}; expected {len(self._fields)}: {names}",
                hint="Make a row a tuple with one field per variable, also when there is only one variable: (image,).",
            )


def _field(var: Any) -> _Field:
    if not isinstance(var, Variable):
        raise WrongTypeError(f"DataFeeder: feed_list holds variables or their names, got {var!r}")
    if var.tensor_type is None:
        raise ProgramError(f"DataFeeder: the shape of {var.name} is not known")
    return _Field(var.name, var.tensor_type, var.lod_level)


@dataclass(frozen=True)
class _Field:
    """A field of the rows: name and declared type of the variable that it feeds."""

    name: str
    type: TensorType
    lod_level: int

    def batch(self, values: list[Any]) -> LoDTensor:
        """One value per row as one tensor of the declared dtype and shape, with the lengths of sequences of rows."""
        lengths = []
        for level in range(self.lod_level):
            lengths.append([self._length(value, index, level) for index, value in enumerate(values)])
            values = list(chain.from_iterable(values))
        tensor = LoDTensor(ScopeVariable(self.name, self._batch(values)))
        if lengths:
            tensor.set_recursive_sequence_lengths(lengths)
        return tensor

    def _length(self, value: Any, index: int, level: int) -> int:
        try:
            return len(value)
        except TypeError:
            raise DataError(
                f"{self.name}: item {index} of level {level} is no sequence but {value!r:.60}",
                details=[f"{self.name}: {self.type}, lod_level={self.lod_level}"],
                hint="Give a list of rows for each sequence, and a list of sequences for each level above.",
            ) from None

    def _batch(self, values: list[Any]) -> NDArray[Any]:
        if not values:
            return self._empty()
        array = self._cast(self._stack(values))
        batched = self.type.shape[0] == -1
        declared = (len(values), *self.type.shape[1:]) if batched else self.type.shape
        shape = _fitted(array.shape, declared)
        if shape is not None:
            return array.reshape(shape)
        if batched:
            raise self._misfit("row 0", array.shape[1:], declared[1:])  # all rows have its shape
        raise self._misfit(f"the batch of {len(values)} rows", array.shape, declared)

    def _empty(self) -> NDArray[Any]:
        shape = tuple(0 if dim == -1 else dim for dim in self.type.shape)
        if 0 not in shape:
            raise DataError(f"{self.name}: got no rows, but its shape leaves no dimension open: {self.type}")
        return np.empty(shape, self.type.dtype.numpy)

    def _stack(self, values: list[Any]) -> NDArray[Any]:
        """One value per row as one array of numbers, ``[rows, ...]``."""
        try:
            array = np.asarray(values)
        except ValueError:  # the rows differ in shape; each may still fit the declared one
            array = self._stack_one_by_one(values)
        if array.dtype.kind in _REAL:
            return array
        for index, value in enumerate(values):
            if (dtype := np.asarray(value).dtype).kind not in _REAL:
                raise DataError(f"{self.name}: row {index} does not hold real numbers but {dtype}: {value!r:.60}")
        raise DataError(f"{self.name}: no dtype can hold the numbers of all rows")

    def _stack_one_by_one(self, values: list[Any]) -> NDArray[Any]:
        declared = self.type.shape[1:]
        rows: list[NDArray[Any]] = []
        for index, value in enumerate(values):
            try:
                row = np.asarray(value)
            except ValueError:
                raise DataError(f"{self.name}: row {index} is made of lists of different lengths") from None
            shape = _fitted(row.shape, declared)
            if shape is None:
                raise self._misfit(f"row {index}", row.shape, declared)
            rows.append(row.reshape(shape))
            if shape != rows[0].shape:
                raise DataError(
                    f"{self.name}: row {index} has shape {list(shape)}, but row 0 has {list(rows[0].shape)}",
                    hint="Give all rows of a batch one shape: pad the shorter ones.",
                )
        return np.stack(rows)

    def _cast(self, array: NDArray[Any]) -> NDArray[Any]:
        """`array` in the declared dtype, if that keeps every value up to the rounding of a floating-point dtype."""
        dtype = self.type.dtype.numpy
        if not np.can_cast(array.dtype, dtype, "safe"):
            lost = np.argwhere(~_is_kept(array, dtype))
            if len(lost):
                row, position = lost[0][0], tuple(lost[0])
                raise DataError(
                    f"{self.name}: row {row} holds {array[position]}, which {dtype} cannot hold",
                    details=[f"{self.name}: {self.type}"],
                    hint="Convert the data in the reader, or declare the variable with another dtype.",
                )
        return array.astype(dtype, copy=False)

    def _misfit(self, what: str, found: tuple[int, ...], declared: tuple[int, ...]) -> DataError:
        return DataError(
            f"{self.name}: {what} has {math.prod(found)} values, in shape {list(found)}; expected {list(declared)}",
            details=[f"{self.name}: {self.type}"],
        )


def _fitted(found: tuple[int, ...], declared: tuple[int, ...]) -> tuple[int, ...] | None:
    """The shape to give an array of shape `found` so that it fits the `declared` one; None if there is none.

    Examples
    --------
    >>> _fitted((5, 784), (5, 1, 28, 28)), _fitted((5, 6), (5, -1, 2)), _fitted((2, 3), (3, 2))
    ((5, 1, 28, 28), (5, 3, 2), None)
    """
    if len(found) == len(declared):  # (2, 3) for (3, 2) is a mistake, not to be reshaped
        return found if same_shape(found, declared) else None
    size, known = math.prod(found), math.prod(dim for dim in declared if dim != -1)
    if -1 not in declared:
        return declared if size == known else None
    if declared.count(-1) > 1 or known == 0 or size % known:
        return None
    return tuple(size // known if dim == -1 else dim for dim in declared)


def _is_kept(array: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[np.bool_]:
    """Elementwise, whether `dtype` can hold the value."""
    with np.errstate(over="ignore", invalid="ignore"):
        cast = array.astype(dtype)
    kept: NDArray[np.bool_]
    if dtype.kind == "b":
        kept = np.isin(array, (0, 1))
    elif dtype.kind == "f":
        kept = np.isfinite(cast) | ~np.isfinite(array)
    elif array.dtype.kind == "f":
        wide, limits = array.astype(np.float64), np.iinfo(dtype)
        # From 2**53 on a float may be a rounded integer.
        is_exact_integer = (wide == np.trunc(wide)) & (np.abs(wide) < 2.0**53)
        kept = is_exact_integer & (wide >= limits.min) & (wide <= limits.max)
    else:  # between integers: cast there and back; a changed sign shows that a value wrapped around
        kept = (cast.astype(array.dtype) == array) & ((cast < 0) == (array < 0))
    return kept
