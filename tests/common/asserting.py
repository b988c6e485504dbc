"""What tests of programs compare."""

from __future__ import annotations

from textwrap import dedent

from minigraph.ir import Program
from minigraph.ir.verifier import verify


def assert_text(program: Program, expected: str) -> None:
    """The program is sound and prints as `expected`, whose indentation is free."""
    verify(program)
    assert str(program) == dedent(expected).strip("\n").rstrip()
