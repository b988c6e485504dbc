"""Findings of the grader: laws that hold or not, and points."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from minigraph.errors import MinigraphError

T = TypeVar("T")


@dataclass(frozen=True)
class Finding:
    """One thing that the grader looked at.

    Attributes
    ----------
    title : str
        What should hold.
    message : str
        Why it does not, and what to do; empty if it holds.
    points, of : float
        Points earned and possible. 0 possible points mark a law: if one is broken the grade is 0.
    """

    title: str
    message: str = ""
    points: float = 0.0
    of: float = 0.0

    @property
    def is_broken_law(self) -> bool:
        return not self.of and bool(self.message)


def task(title: str, points: float, message: str) -> Finding:
    """A finding worth `points`, all of them if there is no message."""
    return Finding(title, message, 0.0 if message else points, points)


def asked(questions: Mapping[str, Callable[[T], str]], answer: T) -> Iterator[Finding]:
    """Ask one question after the other, each worth a point: a function that says what is wrong."""
    for title, question in questions.items():
        try:
            message = question(answer)
        except MinigraphError as error:
            message = str(error)
        yield task(title, 1, message)
