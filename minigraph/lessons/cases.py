"""Programs whose results a pass must keep: those of a lesson, which break typical mistakes, and random ones."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from minigraph.ir import Program
from minigraph.lessons.arrays import case_of
from minigraph.lessons.findings import Finding
from minigraph.lessons.student_pass import StudentPass
from minigraph.passes import Pass
from minigraph.rewrite import check
from minigraph.rewrite.laws import Subject, broken_law
from minigraph.rewrite.planting import plants_of

PROGRAMS = 100
"""Number of random programs that a pass is tried on."""


@dataclass(frozen=True)
class Case:
    """A program whose results a pass must keep.

    Attributes
    ----------
    text : str
        The program.
    roots : tuple of str
        What is fetched.
    hint : str
        What to say if the pass breaks the program.
    """

    title: str
    text: str
    roots: tuple[str, ...]
    hint: str

    def program(self) -> Program:
        return parsed(self.text, self.roots)

    def shown(self) -> str:
        """Return the program with a heading."""
        return f"The program, of which a run fetches {', '.join(self.roots) or 'nothing'}:\n{self.program()}"


def parsed(text: str, roots: Iterable[str] = ()) -> Program:
    """The program of an indented text, of which `roots` are fetched."""
    lines = [line for line in text.splitlines() if line.strip()]
    margin = len(lines[0]) - len(lines[0].lstrip())
    program = Program.parse("\n".join(line[margin:] for line in lines))
    program.roots = tuple(roots)
    return program


def kept_cases(cases: Iterable[Case], rewrite: StudentPass) -> Iterator[Finding]:
    """Look at each case; a pass that breaks none is tried on random programs, too."""
    breaks_any = False
    for case in cases:
        message = broken(rewrite, case.program())
        breaks_any = breaks_any or bool(message)
        yield Finding(case.title, f"{message}\n{case.hint}\n{case.shown()}" if message else "")
    if not breaks_any:
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            # The student's rules are in another process; what the reference looks for is what they shall look for.
            plants = tuple(plants_of(rewrite.reference))
            found = check(replace(rewrite, words=tuple(rewrite.call("words"))), PROGRAMS, plant=plants)
        message = "" if found is None else _told(found.law, str(found))
        is_idle = any(["has changed none" in str(each.message) for each in warned])
        which = ", of which the pass has changed none" if is_idle else ""
        yield Finding(f"{PROGRAMS} random programs keep their results{which}", message)


def broken(rewrite: Pass, program: Program) -> str:
    """Say which law a pass breaks on this program; empty if none."""
    found = broken_law(Subject(rewrite), case_of(program))
    return "" if found is None else _told(found.law, found.text)


def _told(law: str, text: str) -> str:
    """Leave out the line of `StudentPass` that raised what the student's code had raised."""
    return text.rpartition("\n  at ")[0] if law == "raises" else text
