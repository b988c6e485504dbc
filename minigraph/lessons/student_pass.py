"""A student's pass as the grader applies it, and what it has changed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from minigraph.errors import LessonError
from minigraph.ir import Operator, Program
from minigraph.ir.verifier import verify
from minigraph.passes import Pass

Call = Callable[..., Any]
"""`minigraph.lessons.answer.Answer.call`, usually of another process."""


@dataclass(frozen=True)
class StudentPass(Pass):
    """The pass `pass_name` of a student's file: programs go there and come back as text."""

    keeps_gradients: ClassVar[bool] = False  # the lessons do not speak of stop_gradient

    call: Call = field(repr=False)
    pass_name: str
    reference: Pass | None = None
    """The reference solution; `check` draws the operators that its code names."""
    words: tuple[str, ...] = field(default=(), repr=False)
    """Words of the student's file; `check` draws the operators among them."""

    @property
    def name(self) -> str:
        return self.pass_name

    def apply(self, program: Program) -> bool:
        text = str(program)
        reply = self.call("rewrite", name=self.pass_name, program=text, roots=program.roots)
        if reply["program"] != text:
            become(program, Program.parse(reply["program"]))
        return bool(reply["changed"])


@dataclass(frozen=True)
class RoundingStudentPass(StudentPass):
    """A student's pass that may change the rounding."""

    changes_rounding: ClassVar[bool] = True


def become(program: Program, other: Program) -> None:
    """Give `program` the blocks of `other`."""
    for block in other.blocks:
        block.program = program
    program.blocks, program.gradient_blocks = other.blocks, other.gradient_blocks
    program.version += 1


def sound(rewrite: Pass, program: Program) -> Program:
    """Return a copy of the program to which the pass was applied.

    Raises
    ------
    VerifyError
        If it is not sound.
    LessonError
        If an update is gone: questions about updates would find nothing wrong then.
    """
    rewritten = program.clone()
    rewrite.apply(rewritten)
    verify(rewritten)
    kept = {name for op in updates(rewritten) for name in op.inputs["Param"]}
    lost = [name for op in updates(program) for name in op.inputs["Param"] if name not in kept]
    if lost:
        raise LessonError(f"nothing updates {', '.join(lost)} any more", hint="Keep each update, and what it reads.")
    return rewritten


def again(rewrite: Pass, program: Program) -> str:
    """Say what is wrong with applying a pass to a program that it has left; empty if nothing."""
    text = str(program)
    changed = rewrite.apply(program)
    if str(program) != text:
        return "Applied a second time, the pass changes the program again."
    return "The second time nothing changes, but apply returns True." if changed else ""


def updates(program: Program) -> list[Operator]:
    """Return the operators that change parameters."""
    return [op for op in program.global_block().ops if "Param" in op.inputs and "Grad" in op.inputs]


def inserted(before: Program, after: Program, reading: str) -> list[Operator]:
    """Return the operators of `after` that `before` has not, without the updates; none if none reads this name."""
    known = {str(op) for op in before.global_block().ops}
    found = [op for op in after.global_block().ops if str(op) not in known and op not in updates(after)]
    return found if any(reading in op.input_arg_names for op in found) else []
