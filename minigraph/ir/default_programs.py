"""The programs that layers write to unless told otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from minigraph.errors import ProgramError, WrongTypeError, caller_site
from minigraph.ir.program import Program
from minigraph.support.public import public
from minigraph.support.undo import IS_IMPERATIVE

_DEFAULTS = (Program(), Program())
CURRENT: ContextVar[tuple[Program, Program]] = ContextVar("default_programs", default=_DEFAULTS)


def default_main_program() -> Program:
    """The program that layers write to."""
    return CURRENT.get()[0]


def default_startup_program() -> Program:
    """The program that initializers write to."""
    return CURRENT.get()[1]


def is_imperative() -> bool:
    """Whether operators are computed as they are written."""
    return IS_IMPERATIVE.get()


def refuse_imperative_mode(name: str) -> None:
    """Raise a `ProgramError` in the imperative mode, for what changes a program after the fact."""
    if is_imperative():
        raise ProgramError(f"{name} works on programs, not in the imperative mode", site=caller_site())


@public
@contextmanager
def program_guard(main_program: Program, startup_program: Program | None = None) -> Iterator[None]:
    """Make these the default programs inside; the startup program stays as it is when left out."""
    for program in (main_program, startup_program):
        if not isinstance(program, Program) and not (program is None and main_program is not None):
            raise WrongTypeError(f"program_guard needs Programs, got {type(program).__name__}", site=caller_site())
    before = CURRENT.get()
    try:
        CURRENT.set((main_program, startup_program or default_startup_program()))
        IS_IMPERATIVE.set(main_program.computes_at_once)
        yield
    finally:
        CURRENT.set(before)
        IS_IMPERATIVE.set(before[0].computes_at_once)
