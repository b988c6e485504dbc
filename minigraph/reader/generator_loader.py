"""Loaders of generators: batches that a thread reads ahead, for a loop over them or for the runs of a program.

Batches come in the order of the reader. Each is a copy that nothing else writes to. An error in a reader is raised
where its batch would have been taken.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np

from minigraph.eager.guard import to_variable
from minigraph.errors import DataError, EOFException, ProgramError, WrongTypeError, caller_site, warn
from minigraph.ir import Variable
from minigraph.ir.default_programs import default_main_program, is_imperative
from minigraph.reader import Reader, batch, buffered
from minigraph.reader.feeder import DataFeeder
from minigraph.runtime.place import as_places
from minigraph.runtime.scope_variable import LoDTensor, ScopeVariable
from minigraph.support.public import public

__all__ = ["PyReader"]

Batch = list[Any]
"""An array for each variable."""


@public
class GeneratorLoader:
    """Batches for the variables of `feed_list`, which a thread reads ahead; `DataLoader.from_generator` makes one.

    A loop over an iterable loader gives feeds. A loader that is not iterable feeds the program that was the default one
    when the loader was made, and clones of it: between `start` and `reset` each run takes a batch.

    Raises
    ------
    ProgramError
        If it is used in another way than it was made for.

    Examples
    --------
    >>> import minigraph as fluid, numpy as np
    >>> def samples():
    ...     for number in range(3):
    ...         yield np.full(2, number, "float32"), [number]
    >>> with fluid.program_guard(fluid.Program()):
    ...     x, y = fluid.data("x", [None, 2]), fluid.data("y", [None, 1], "int64")
    ...     total = fluid.layers.reduce_sum(x)
    ...     loader = fluid.io.DataLoader.from_generator(feed_list=[x, y], capacity=4)
    ...     loader.set_sample_generator(samples, batch_size=2, drop_last=False, places=fluid.CPUPlace())
    ...     exe = fluid.Executor()
    ...     for data in loader():
    ...         print(exe.run(feed=data, fetch_list=[total]))
    <DataLoader of x, y, iterable>
    [array([2.], dtype=float32)]
    [array([4.], dtype=float32)]
    """

    _what = "DataLoader"

    def __init__(
        self,
        feed_list: Sequence[Variable] | None,
        capacity: int | None,
        iterable: bool = True,
        return_list: bool = False,
        drop_last: bool = True,
        *,
        needs_variables: bool = True,
    ) -> None:
        what = self._what
        if capacity is None or capacity < 1:
            raise ProgramError(
                f"{what}: capacity must be how many batches to read ahead, at least 1, got {capacity!r:.60}"
            )
        self._is_eager = is_imperative()
        if needs_variables and not self._is_eager and not feed_list:
            raise ProgramError(f"{what}: feed_list must name the variables to feed")
        for var in feed_list or ():
            if not isinstance(var, Variable):
                raise WrongTypeError(f"{what}: feed_list holds variables, got {var!r:.60}")
        if self._is_eager and not (iterable and return_list):
            warn(f"in the imperative mode a {what} is iterable and gives lists, whatever iterable and return_list say")
        self._variables = list(feed_list or ())
        self._capacity = capacity
        self._iterable = iterable or self._is_eager
        self._return_list = return_list or self._is_eager
        self._drop_last = drop_last
        self._places = 1
        """Number of places that get a batch each at a time."""
        self._reader: Reader[Batch] | None = None
        self._run: Any = None
        if not self._iterable:
            default_main_program().loaders.append(self)

    @property
    def iterable(self) -> bool:
        return self._iterable

    # Setting the data

    def set_sample_generator(
        self, reader: Reader[Any], batch_size: int, drop_last: bool = True, places: Any = None
    ) -> GeneratorLoader:
        """Read samples, one field for each variable, and make batches of them.

        Parameters
        ----------
        reader : callable
            Returns an iterable of samples.
        batch_size : int
        drop_last : bool
            Whether to leave out a last batch that is not full.
        places : Place or sequence of Place
            Required for an iterable loader, as in fluid: each iteration gives a batch for each. The executor moves them
            to its own place.
        """
        return self.set_sample_list_generator(batch(reader, batch_size, drop_last), places)

    def set_sample_list_generator(self, reader: Reader[Iterable[Sequence[Any]]], places: Any = None) -> GeneratorLoader:
        """Read lists of samples, each of which is a batch; see `set_sample_generator`."""
        if self._is_eager:
            return self.set_batch_generator(lambda: map(_columns, reader()), places)
        feeder = DataFeeder(self._variables, None)
        return self.set_batch_generator(lambda: (list(feeder.feed(rows).values()) for rows in reader()), places)

    def set_batch_generator(self, reader: Reader[Sequence[Any]], places: Any = None) -> GeneratorLoader:
        """Read batches, an array or `LoDTensor` for each variable; see `set_sample_generator`."""
        self._places = _number_of(places, self._iterable and not self._is_eager)
        self._reader = buffered(lambda: map(self._checked, reader()), self._capacity)
        return self

    def _checked(self, arrays: Any) -> Batch:
        """A copy of each array of a batch; runs in the thread."""
        given = list(arrays)
        found = [np.array(each) for each in given]
        if self._variables and len(found) != len(self._variables):
            raise DataError(
                f"a batch has {len(found)} fields for {len(self._variables)} variables: {', '.join(self._names)}",
                hint="Set a reader of lists of samples by set_sample_list_generator.",
            )
        for index, array in enumerate(found):
            if array.dtype.kind not in "biuf":
                field = self._names[index] if self._variables else f"field {index}"
                raise DataError(f"{field}: a batch holds {array.dtype} in place of numbers")
        return [_with_lengths_of(each, array) for each, array in zip(given, found, strict=True)]

    # Iterating

    def __call__(self) -> GeneratorLoader:
        return self

    def __iter__(self) -> Iterator[Any]:
        self._must_be(True, "loop over")
        run = self._run = self._items(self._begin())
        return run

    def _items(self, batches: Iterator[Batch]) -> Iterator[Any]:
        """The batch that an iteration gives: tensors of the imperative mode, or a list with an entry for each place."""
        if self._is_eager:
            return map(_tensors, batches)
        # After an interrupt a generator would have ended, so that one place, the usual number, has none.
        if self._places == 1:
            return map(lambda arrays: [self._given_out(arrays)], batches)
        return self._groups(batches)

    def _groups(self, batches: Iterator[Batch]) -> Iterator[list[Any]]:
        while group := list(islice(batches, self._places)):
            if len(group) == self._places or not self._drop_last:
                yield list(map(self._given_out, group))

    def __next__(self) -> Any:
        self._must_be(True, "take from")
        if self._run is None:
            raise ProgramError(f"{self!r} was not iterated over yet", hint="Use iter(loader).")
        return next(self._run)

    def next(self) -> Any:
        """The next item of the last iteration that was begun."""
        return next(self)

    def _given_out(self, arrays: Batch) -> Any:
        tensors = [each if isinstance(each, LoDTensor) else _tensor(each) for each in arrays]
        return tensors if self._return_list else dict(zip(self._names, tensors, strict=True))

    # Feeding a program

    def start(self) -> None:
        """Begin to read; from now on each run of the program takes a batch."""
        self._must_be(False, "start")
        if self._run is not None:
            raise ProgramError(f"{self!r} is running already", hint="reset() it first.")
        self._run = self._begin()

    def reset(self) -> None:
        """Stop reading; what was read ahead is lost."""
        self._must_be(False, "reset")
        self._run = None

    def fill(self, feeds: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The feed of each place with a batch of its own added; executors call this for each run of the program.

        Raises
        ------
        EOFException
            If there are fewer batches left than places.
        ProgramError
            If the loader was not started and its variables are not fed, or if they are fed although it was.
        """
        given = [name for name in self._names if name in feeds[0]]
        if self._run is None:
            if len(given) == len(self._names):
                return feeds
            raise ProgramError(
                f"the program is fed by {self!r}, which was not started",
                hint=f"Call its start(), or feed {', '.join(self._names)}.",
            )
        if given:
            raise ProgramError(
                f"{', '.join(given)} is fed although {self!r} is running",
                hint="reset() the loader to feed the program yourself.",
            )
        try:
            batches = self._run.peek_at(len(feeds))
        except StopIteration:
            raise EOFException(
                f"{self!r} has no batch left{' for each place' if len(feeds) > 1 else ''}",
                site=caller_site(),
                hint="reset() it, and start() it for another epoch.",
            ) from None
        return [
            {**feed, **dict(zip(self._names, batch, strict=True))} for feed, batch in zip(feeds, batches, strict=True)
        ]

    def go_on(self) -> None:
        """Drop the batches that `fill` gave; the executor calls this when a run has succeeded or failed.

        After an interrupted run it is not called, so that the next run gets the same batches.
        """
        if self._run is not None:
            self._run.go_on()

    def _begin(self) -> Any:
        if self._reader is None:
            raise ProgramError(
                f"{self!r} has nothing to read",
                hint="Set it by set_sample_generator, set_sample_list_generator or set_batch_generator.",
            )
        return iter(self._reader())

    def _must_be(self, iterable: bool, wanted: str) -> None:
        if self._iterable is not iterable:
            raise ProgramError(f"cannot {wanted} {self!r}", hint=f"Make it with iterable={iterable}.")

    @property
    def _names(self) -> list[str]:
        return [var.name for var in self._variables]

    def __repr__(self) -> str:
        of = f" of {', '.join(self._names)}" if self._variables else ""
        return f"<{self._what}{of}, {'iterable' if self._iterable else 'not iterable'}>"


@public
class PyReader(GeneratorLoader):
    """`DataLoader` with fluid's older names of its methods, ``decorate_...``.

    Parameters
    ----------
    feed_list : sequence of Variable
    capacity : int
    use_double_buffer : bool
    iterable, return_list : bool
        As in `DataLoader.from_generator`.
    """

    _what = "PyReader"

    def __init__(
        self,
        feed_list: Sequence[Variable] | None = None,
        capacity: int | None = None,
        use_double_buffer: bool = True,
        iterable: bool = True,
        return_list: bool = False,
    ) -> None:
        super().__init__(feed_list, capacity, iterable, return_list)

    def decorate_sample_generator(
        self, sample_generator: Reader[Any], batch_size: int, drop_last: bool = True, places: Any = None
    ) -> None:
        """`set_sample_generator`."""
        self.set_sample_generator(sample_generator, batch_size, drop_last, places)

    def decorate_sample_list_generator(self, reader: Reader[Any], places: Any = None) -> None:
        """`set_sample_list_generator`."""
        self.set_sample_list_generator(reader, places)

    def decorate_batch_generator(self, reader: Reader[Any], places: Any = None) -> None:
        """`set_batch_generator`."""
        self.set_batch_generator(reader, places)

    # Names of the loader that `minigraph.layers.py_reader` returns in fluid.
    decorate_paddle_reader = decorate_sample_list_generator
    decorate_tensor_provider = decorate_batch_generator

    @property
    def variables(self) -> list[Variable]:
        """The variables that it feeds."""
        return list(self._variables)


def _tensor(array: Any) -> LoDTensor:
    return LoDTensor(ScopeVariable("the tensor", array))


def _with_lengths_of(given: Any, array: Any) -> Any:
    """The array, as a tensor if what was given has sequences."""
    if not isinstance(given, LoDTensor) or not given.lod():
        return array
    tensor = _tensor(array)
    tensor.set_lod(given.lod())
    return tensor


def _tensors(arrays: Batch) -> list[Any]:
    return [to_variable(array) for array in arrays]


def _columns(rows: Iterable[Sequence[Any]]) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)]


def _number_of(places: Any, needed: bool) -> int:
    """Number of places that a loader gives batches to."""
    given = as_places(places)
    if needed and not given:
        raise ProgramError(
            "an iterable DataLoader needs the places that it gives batches to", hint="Write places=fluid.CPUPlace()."
        )
    return max(1, len(given))
