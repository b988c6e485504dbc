"""The programs that layers write to unless told otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from minigraph.errors import ProgramError, WrongTypeError
from minigraph.ir.program import Program
from minigraph.support.context import holding
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


@public
def switch_main_program(program: Program) -> Program:
    """Make this the program that layers write to, and return the one before; `program_guard` sees to both."""
    _require_programs("switch_main_program", program)
    before = default_main_program()
    CURRENT.set((program, default_startup_program()))
    return before


@public
def switch_startup_program(program: Program) -> Program:
    """Make this the program that initializers write to, and return the one before."""
    _require_programs("switch_startup_program", program)
    before = default_startup_program()
    CURRENT.set((default_main_program(), program))
    return before


def _require_programs(caller: str, *programs: Any) -> None:
    for program in programs:
        if not isinstance(program, Program):
            raise WrongTypeError(f"{caller} needs Programs, got {type(program).__name__}")


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
    _require_programs("program_guard", main_program, *([] if startup_program is None else [startup_program]))
    with holding(CURRENT, (main_program, startup_program or default_startup_program())):
        yield
