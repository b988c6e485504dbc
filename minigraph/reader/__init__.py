"""Readers, and the functions that decorate them; imports the engine and `minigraph.lod_tensor`.

A reader is a function without arguments; each call starts one run over the same samples. Decorating a reader reads
nothing, except by `cache`. Runs of one reader do not disturb each other. An error in a reader or a mapper is raised at
the consumer. An abandoned run ends its threads.
"""

from __future__ import annotations

import itertools
import random
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias, TypeVar

from minigraph.errors import DataError, ProgramError, WrongTypeError
from minigraph.reader.read_ahead import END, Channel, Failure, ReadAhead, attempt
from minigraph.support.annotations import shown
from minigraph.support.public import public, refuse_unknown_names

__all__ = [
    "ComposeNotAligned", "Reader", "batch", "buffered", "cache", "chain", "compose", "firstn", "map_readers",
    "multiprocess_reader", "shuffle", "xmap_readers",
]  # fmt: skip

T = TypeVar("T")
S = TypeVar("S")
Reader: TypeAlias = Callable[[], Iterable[T]]

_MOST_THREADS = 1000
"""Maximum threads of a reader: more is taken for a mistake, because each has a stack of several MiB."""


class ComposeNotAligned(DataError):
    """One of the readers given to `compose` ended before the others."""


@public
def batch(reader: Reader[T], batch_size: float, drop_last: bool = False) -> Reader[list[T]]:
    """Group consecutive samples into lists of `batch_size`.

    Parameters
    ----------
    reader : callable
    batch_size : int
        At least 1; fluid takes 2.0, too.
    drop_last : bool
        Whether to leave out a last batch that is smaller than the others.

    Raises
    ------
    ValueError
        If `batch_size` is less than 1 or no whole number.

    Examples
    --------
    >>> list(batch(lambda: range(5), batch_size=2)())
    [[0, 1], [2, 3], [4]]
    >>> list(batch(lambda: range(5), batch_size=2, drop_last=True)())
    [[0, 1], [2, 3]]
    """
    size = count("batch_size", batch_size)

    def batch_reader() -> Iterator[list[T]]:
        samples = _run(reader)
        while group := list(itertools.islice(samples, size)):
            if len(group) == size or not drop_last:
                yield group

    return batch_reader


@public
def shuffle(reader: Reader[T], buf_size: float) -> Reader[T]:
    """Collect `buf_size` samples at a time and pass on each collection in random order.

    Notes
    -----
    The order comes from Python's global `random` state, so that `random.seed` makes it reproducible, and equal to
    fluid's for the same seed. A sample never moves further than its own collection: for a uniform shuffle let
    `buf_size` be at least the number of samples.

    Examples
    --------
    >>> random.seed(0)
    >>> list(shuffle(lambda: range(6), buf_size=3)())
    [0, 2, 1, 5, 4, 3]
    """
    size = count("buf_size", buf_size, at_least=0)

    def shuffled_reader() -> Iterator[T]:
        samples = _run(reader)
        while collected := list(itertools.islice(samples, max(size, 1))):
            random.shuffle(collected)
            yield from collected

    return shuffled_reader


@public
def map_readers(func: Callable[..., S], *readers: Reader[Any]) -> Reader[S]:
    """Apply `func` to one sample of each reader, until the shortest reader ends.

    Examples
    --------
    >>> list(map_readers(lambda x, y: x * y, lambda: [1, 2, 3], lambda: [10, 20, 30])())
    [10, 40, 90]
    """

    def mapped_reader() -> Iterator[S]:
        yield from map(func, *[_run(reader) for reader in readers])

    return mapped_reader


@public
def chain(*readers: Reader[T]) -> Reader[T]:
    """Pass on all samples of the first reader, then all of the second, and so on.

    Examples
    --------
    >>> list(chain(lambda: [1, 2], lambda: [3])())
    [1, 2, 3]
    """

    def chained_reader() -> Iterator[T]:
        yield from itertools.chain(*[_run(reader) for reader in readers])

    return chained_reader


@public
def compose(*readers: Reader[Any], check_alignment: bool = True) -> Reader[tuple[Any, ...]]:
    """Join one sample of each reader into one flat tuple.

    Parameters
    ----------
    *readers : callable
        A sample that is a tuple contributes its fields, any other sample is one field.
    check_alignment : bool
        Whether it is an error if one reader ends before another. If not, the rest of the longer ones is dropped.

    Raises
    ------
    ComposeNotAligned
        While reading, if `check_alignment` and the readers differ in length.

    Notes
    -----
    None is a sample like any other; in fluid it counts as a missing one.

    Examples
    --------
    >>> list(compose(lambda: [(1, 2), (6, 7)], lambda: [3, 8])())
    [(1, 2, 3), (6, 7, 8)]
    """

    def composed_reader() -> Iterator[tuple[Any, ...]]:
        runs = [_run(reader) for reader in readers]
        rows = itertools.zip_longest(*runs, fillvalue=END) if check_alignment else zip(*runs, strict=False)
        for count, row in enumerate(rows):
            ended = [position for position, sample in enumerate(row) if sample is END]
            if ended:
                raise ComposeNotAligned(
                    f"compose: readers {ended} (counted from 0) ended after {count} samples and the others did not",
                    hint="Give check_alignment=False to drop the other samples.",
                )
            yield tuple(itertools.chain.from_iterable(s if isinstance(s, tuple) else (s,) for s in row))

    return composed_reader


@public
def firstn(reader: Reader[T], n: int) -> Reader[T]:
    """Pass on at most the first `n` samples, and ask the reader for no more than those.

    A negative `n` sets no limit, as in fluid.

    Examples
    --------
    >>> list(firstn(lambda: range(100), 3)())
    [0, 1, 2]
    """

    def firstn_reader() -> Iterator[T]:
        yield from itertools.islice(_run(reader), min(n, sys.maxsize) if n >= 0 else None)

    return firstn_reader


@public
def cache(reader: Reader[T]) -> Reader[T]:
    """Read every sample now, once, and serve all later runs from memory.

    Examples
    --------
    >>> samples = cache(lambda: print("reading") or range(3))
    reading
    >>> list(samples()), list(samples())
    ([0, 1, 2], [0, 1, 2])
    """
    samples = tuple(_run(reader))
    return lambda: iter(samples)


@public
def buffered(reader: Reader[T], size: int) -> Reader[T]:
    """Read ahead in a thread, up to `size` samples (0 or less: without limit), in the reader's order.

    Examples
    --------
    >>> list(buffered(lambda: range(5), size=2)())
    [0, 1, 2, 3, 4]
    """
    return xmap_readers(lambda sample: sample, reader, process_num=1, buffer_size=size)


@public
def xmap_readers(
    mapper: Callable[[T], S], reader: Reader[T], process_num: int, buffer_size: int, order: bool = False
) -> Reader[S]:
    """Apply `mapper` to the samples of a reader in `process_num` threads.

    Parameters
    ----------
    mapper : callable
        Runs in several threads at once. Threads make reading faster if it waits (files, network) or computes outside
        the interpreter's lock (NumPy, decompression).
    reader : callable
        Read by one thread at a time.
    process_num : int
        Number of threads (fluid's name for them), at least 1.
    buffer_size : int
        Maximum number of results that wait for the consumer; 0 or less sets no limit.
    order : bool
        Whether results keep the reader's order. If not, they come as they are ready.

    Raises
    ------
    ValueError
        If `process_num` is less than 1, or more than 1,000.

    Notes
    -----
    An error in `mapper` or `reader` is raised at the consumer. With `order` it comes exactly after the results of
    the samples before it.

    Examples
    --------
    >>> list(xmap_readers(lambda x: x * x, lambda: range(5), process_num=3, buffer_size=2, order=True)())
    [0, 1, 4, 9, 16]
    """
    if count("process_num", process_num) > _MOST_THREADS:
        raise ProgramError(
            f"process_num must be at most {_MOST_THREADS}, got {shown(process_num)}",
            hint="Give the number of threads.",
        )

    def work(samples: Iterator[T], reading: threading.Lock, turns: Iterator[int], results: Channel[S]) -> None:
        try:
            serving = True
            while serving:
                with reading:
                    turn = next(turns)
                    sample = attempt(next, samples, END)
                if sample is END:
                    break
                result = sample if isinstance(sample, Failure) else attempt(mapper, sample)
                serving = results.put(result, turn if order else None) and not isinstance(result, Failure)
        finally:
            results.leave()

    def begin() -> Channel[S]:
        results: Channel[S] = Channel(buffer_size, producers=process_num)
        of_all = _run(reader), threading.Lock(), itertools.count(), results
        for _ in range(process_num):
            threading.Thread(target=work, args=of_all, name="minigraph-reader", daemon=True).start()
        return results

    return lambda: ReadAhead(begin)


@public
def multiprocess_reader(readers: Sequence[Reader[Any]], use_pipe: bool = True, queue_size: int = 1000) -> Reader[Any]:
    """Read several readers at once, each in a separate process.

    Parameters
    ----------
    readers : sequence of callable
        Their samples must be such as can be pickled.
    use_pipe : bool
        Take samples from the readers in turn; else as they come.
    queue_size : int
        Accepted because fluid has it; a process waits once its pipe is full.

    Raises
    ------
    WrongTypeError
        If `readers` is no list or tuple of functions, or empty.
    DataError
        When a reader has raised an error, or its process has ended otherwise.
    """
    if not readers:
        raise WrongTypeError(f"multiprocess_reader takes a list of readers, got {readers!r:.80}")

    def merged_reader() -> Iterator[Any]:
        from minigraph.reader.worker_processes import samples_of

        return samples_of(readers, in_turn=use_pipe)

    return merged_reader


def count(name: str, value: float, at_least: int = 1) -> int:
    """`value` as an int, at most ``sys.maxsize``, if it is a whole number of at least `at_least`."""
    if not value >= at_least or value % 1:
        raise ProgramError(
            f"{name} must be a whole number, at least {at_least}, got {shown(value)}",
            hint=f"Give {name}={max(at_least, 1)}, for example.",
        )
    return min(int(value), sys.maxsize)


def _run(reader: Reader[T]) -> Iterator[T]:
    """Start one run of `reader`."""
    samples = reader()
    try:
        return iter(samples)
    except TypeError:
        raise WrongTypeError(
            f"a reader returns an iterable, but {reader!r} returned {type(samples).__name__}",
            hint="Pass the reader that it returns, such as mnist.train() instead of mnist.train.",
        ) from None


refuse_unknown_names(__name__)
