"""Writers of slot files, which `minigraph.reader.slot_files` reads: a line for each sample.

A line has the number of values and the values of each slot, in order: ``2 7 12 1 0.5``. A user's class says in
`generate_sample` what a line of its input means.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias

from minigraph.errors import DataError, ProgramError, WrongTypeError
from minigraph.reader import count
from minigraph.support.public import public, refuse_unknown_names

__all__ = ["DataGenerator", "MultiSlotDataGenerator", "MultiSlotStringDataGenerator"]

Sample: TypeAlias = Sequence[tuple[str, Sequence[Any]]]
"""Names of slots, each with its values."""


@public
class DataGenerator:
    """Base of generators; a subclass defines `generate_sample`, and may define `generate_batch`."""

    def __init__(self) -> None:
        self.batch_size_ = 32

    def set_batch(self, batch_size: int) -> None:
        """Number of samples that `generate_batch` is given at a time."""
        self.batch_size_ = count("batch_size", batch_size)

    def generate_sample(self, line: Any) -> Callable[[], Iterable[Sample]]:
        """Return a function that yields the samples of a line of the input; a sample of None is left out."""
        raise ProgramError(f"{type(self).__name__} has no generate_sample(line)", hint="Define it in your class.")

    def generate_batch(self, samples: list[Any]) -> Callable[[], Iterable[Sample]]:
        """Return a function that yields the samples to write for a batch; these samples themselves, by default."""
        return lambda: iter(samples)

    def run_from_stdin(self) -> None:
        """Write the samples of each line of the standard input to the standard output."""
        self._write(sample for line in sys.stdin for sample in self.generate_sample(line)())

    def run_from_memory(self) -> None:
        """Write the samples that `generate_sample` makes of None to the standard output."""
        self._write(self.generate_sample(None)())

    def _write(self, samples: Iterable[Any]) -> None:
        for batch in self._batches(samples):
            for sample in self.generate_batch(batch)():
                sys.stdout.write(self._gen_str(sample))

    def _batches(self, samples: Iterable[Any]) -> Iterator[list[Any]]:
        batch = []
        for sample in samples:
            if sample is not None:
                batch.append(sample)
            if len(batch) == self.batch_size_:
                yield batch
                batch = []
        if batch:
            yield batch

    def _gen_str(self, line: Any) -> str:
        """The line of a sample."""
        if not isinstance(line, list | tuple):
            raise WrongTypeError(
                f"a sample must be a list of (name, values), got {line!r:.60}",
                hint="Yield such as [('words', [19, 26]), ('label', [1])].",
            )  # fmt: skip
        parts: list[str] = []
        for name, values in line:
            self._check_slot(len(parts), name, values)
            parts.append(" ".join([str(len(values)), *map(str, values)]))
        return " ".join(parts) + "\n"

    def _check_slot(self, place: int, name: Any, values: Any) -> None:
        """Refuse what cannot be written."""


@public
class MultiSlotStringDataGenerator(DataGenerator):
    """Generator whose values are texts, which are written as they are.

    Examples
    --------
    >>> class Words(MultiSlotStringDataGenerator):
    ...     def generate_sample(self, line):
    ...         return lambda: iter([[("words", ["19", "26"]), ("label", ["1"])]])
    >>> Words().run_from_memory()
    2 19 26 1 1
    """


@public
class MultiSlotDataGenerator(DataGenerator):
    """Generator whose values are numbers; every sample has the same slots.

    Raises
    ------
    DataError
        If a sample has other slots than the first one, or a slot without values.
    WrongTypeError
        If values are no list of numbers.
    """

    def __init__(self) -> None:
        super().__init__()
        self._proto_info: list[tuple[str, str]] | None = None

    def _gen_str(self, line: Any) -> str:
        is_first = self._proto_info is None
        if is_first:
            self._proto_info = []
        text = super()._gen_str(line)
        if len(line) != len(self._proto_info or ()):
            raise DataError(f"a sample has {len(line)} slots, the first one had {len(self._proto_info or ())}")
        return text

    def _check_slot(self, place: int, name: Any, values: Any) -> None:
        known = self._proto_info
        assert known is not None
        if not isinstance(name, str) or not isinstance(values, list):
            raise WrongTypeError(f"a slot must be a name and a list, got ({name!r:.40}, {values!r:.60})")
        if not values:
            raise DataError(f"slot {name!r} has no values", hint="Pad it in generate_sample, such as with [0].")
        wrong = [value for value in values if not isinstance(value, int | float)]
        if wrong:
            raise WrongTypeError(f"slot {name!r} must hold numbers, got {wrong[0]!r:.60}")
        kind = "float" if any(isinstance(value, float) for value in values) else "uint64"
        if place == len(known):
            known.append((name, kind))
        elif place > len(known) or known[place][0] != name:
            raise DataError(f"slot {place} is {name!r}, in the first sample it was {known[place : place + 1]!r}")
        elif kind == "float":
            known[place] = (name, kind)


refuse_unknown_names(__name__)
