"""Interrupts that come at a known moment."""

import itertools

from minigraph.executor import Executor


def interrupt_after(monkeypatch, count):
    """Let Ctrl-C come in the run of the executor after this many."""
    runs = itertools.count()
    run_of_executor = Executor.run

    def run_or_interrupt(*arguments, **options):
        if next(runs) == count:
            raise KeyboardInterrupt
        return run_of_executor(*arguments, **options)

    monkeypatch.setattr(Executor, "run", run_or_interrupt)
