"""The programs that layers write to unless told otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from minigraph.errors import ProgramError, WrongTypeError
from minigraph.ir.program import Program
from minigraph.support.public import public
from minigraph.support.undo import CURRENT

_DEFAULTS = (Program(), Program())


def default_main_program() -> Program:
    """The program that layers write to."""
    main: Program = (CURRENT.get() or _DEFAULTS)[0]
    return main


def default_startup_program() -> Program:
    """The program that initializers write to."""
    startup: Program = (CURRENT.get() or _DEFAULTS)[1]
    return startup


def is_imperative() -> bool:
    """Whether operators are computed as they are written."""
    return default_main_program().computes_at_once


def refuse_imperative_mode(name: str) -> None:
    """Raise a `ProgramError` in the imperative mode, for what changes a program after the fact."""
    if is_imperative():
        raise ProgramError(f"{name} works on programs, not in the imperative mode")


@public
@contextmanager
def program_guard(main_program: Program, startup_program: Program | None = None) -> Iterator[None]:
    """Make these the default programs inside; the startup program stays as it is when left out."""
    for program in (main_program, startup_program):
        if not isinstance(program, Program) and not (program is None and main_program is not None):
            raise WrongTypeError(f"program_guard needs Programs, got {type(program).__name__}")
    before = CURRENT.get()
    try:
        CURRENT.set((main_program, startup_program or default_startup_program()))
        yield
    finally:
        CURRENT.set(before)
