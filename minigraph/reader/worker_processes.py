"""Readers that run in separate processes."""

from __future__ import annotations

import multiprocessing
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any

from minigraph.errors import DataError

Reader = Callable[[], Iterable[Any]]


def samples_of(readers: Sequence[Reader], in_turn: bool) -> Iterator[Any]:
    """The samples of all readers, each in a process: taken from the readers in turn, or as they come.

    Abandoning the iteration ends the processes.

    Raises
    ------
    DataError
        If a reader has raised an error, or its process has ended otherwise.
    """
    # A reader is mostly a nested function, which cannot be pickled: only a forked process has it.
    if "fork" not in multiprocessing.get_all_start_methods():
        raise DataError(
            "multiprocess_reader needs a system that can fork a process", hint="Use xmap_readers, which has threads."
        )
    context = multiprocessing.get_context("fork")
    processes, pipes = [], []
    try:
        for reader in readers:
            receiving, sending = context.Pipe(duplex=False)
            process = context.Process(target=_send_samples, args=(reader, sending), daemon=True)
            process.start()
            sending.close()  # so that the end of the process is the end of the pipe
            processes.append(process)
            pipes.append(receiving)
        yield from _merged(list(pipes), in_turn)
    finally:
        for pipe in pipes:
            pipe.close()
        for process in processes:
            process.terminate()
            process.join()


def _merged(pipes: list[Any], in_turn: bool) -> Iterator[Any]:
    while pipes:
        ready: list[Any] = list(pipes) if in_turn else wait(pipes)
        for pipe in ready:
            try:
                what, content = pipe.recv()
            except EOFError:
                raise DataError(
                    "multiprocess_reader: the process of a reader has ended before the reader did"
                ) from None
            if what == "error":
                raise DataError("multiprocess_reader: a reader has raised an error", details=content.splitlines())
            if what == "end":
                pipes.remove(pipe)
            else:
                yield content


def _send_samples(reader: Reader, pipe: Connection) -> None:
    try:
        for sample in reader():
            pipe.send(("sample", sample))
        pipe.send(("end", None))
    except BrokenPipeError:
        pass  # the consumer has closed the pipe
    except BaseException:
        pipe.send(("error", traceback.format_exc()))
