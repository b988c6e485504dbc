"""Tell observers which rewrites change which program, and when; nobody observes by default.

A rewrite is a pass, a rule, or a function that changes programs, such as ``append_backward``. One that runs inside of
another is told between the `begin` and the `end` of that one. Events come in the thread that makes the change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import wraps
from typing import Any, TypeVar

from minigraph.ir import Operator, Program

P = TypeVar("P", bound=Program)


class Observer:
    """Base of the observers: hears everything, does nothing."""

    def begin(self, rewrite: Any, program: Program) -> None:
        """Note that `rewrite`, a pass or a function, starts on `program`."""

    def end(self, rewrite: Any, program: Program, changed: bool | None) -> None:
        """Note that `rewrite` has ended, and whether it says that it changed `program`; None if it does not say."""

    def fired(self, rule: Any, program: Program, matched: Sequence[Operator]) -> None:
        """Note that `rule` is going to replace the operators `matched`; all edits until the next event are its own."""

    def copied(self, source: Program, copy: Program, why: str) -> None:
        """Note that `copy` was made of `source`, or of the part of it that a run needs, to be rewritten."""

    def runs(self, program: Program, feed: Mapping[str, Any], scope: Any) -> None:
        """Note that `program` is going to run on `feed`; runs like an earlier one are not reported."""


# A tuple that is replaced, so that a walk over the observers is not disturbed by a new one.
observers: tuple[Observer, ...] = ()
"""Observers that are told now. Ask whether there are any before making up an event."""


@contextmanager
def observed_by(observer: Observer) -> Iterator[None]:
    """Inside, tell `observer` of every event of every thread."""
    global observers
    observers = (*observers, observer)
    try:
        yield
    finally:
        observers = tuple([each for each in observers if each is not observer])


@contextmanager
def unobserved() -> Iterator[None]:
    """Inside, tell nobody: an observer rewrites programs of its own."""
    global observers
    before, observers = observers, ()
    try:
        yield
    finally:
        observers = before


_UNOBSERVED: AbstractContextManager[None] = nullcontext()


def step(rewrite: Any, program: Program) -> AbstractContextManager[None]:
    """Context in which a function, `rewrite`, changes `program`."""
    return _observed_step(rewrite, program) if observers else _UNOBSERVED


@contextmanager
def _observed_step(rewrite: Any, program: Program) -> Iterator[None]:
    for each in observers:
        each.begin(rewrite, program)
    try:
        yield
    finally:
        for each in observers:
            each.end(rewrite, program, None)


def told(apply: Callable[[Any, Program], bool]) -> Callable[[Any, Program], bool]:
    """Return the method `apply` of a rewrite, which tells the observers when it begins and ends."""

    @wraps(apply)
    def telling(self: Any, program: Program) -> bool:
        if not observers:
            return apply(self, program)
        changed = None
        for each in observers:
            each.begin(self, program)
        try:
            changed = apply(self, program)
        finally:
            for each in observers:
                each.end(self, program, changed)
        return changed

    return telling


def fired(rule: Any, program: Program, matched: Sequence[Operator]) -> None:
    """Tell the observers that `rule` is going to replace the operators `matched`."""
    for each in observers:
        each.fired(rule, program, matched)


def copied(source: Program, copy: P, why: str) -> P:
    """Tell the observers of a copy that is going to be rewritten; returns the copy."""
    for each in observers:
        each.copied(source, copy, why)
    return copy


def runs(program: Program, feed: Mapping[str, Any], scope: Any) -> None:
    """Tell the observers that `program` is going to run on `feed`."""
    for each in observers:
        each.runs(program, feed, scope)
