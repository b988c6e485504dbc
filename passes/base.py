"""Base of the passes: frozen dataclasses whose fields are options."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from minigraph.errors import PassError, VerifyError, WrongTypeError
from minigraph.ir import Program
from minigraph.ir.verifier import verify_rewritten
from minigraph.passes import events
from minigraph.passes.edit_log import edits_of, named


class Rewrite:
    """A change of a program: `apply` makes it in place, a call makes it on a clone.

    Each `apply` tells the observers of `minigraph.passes.events` when it begins and ends.
    """

    for_processors: ClassVar[bool] = False
    """Whether executors apply it to plans for a processor only."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        # Wrapped once, in the class that defines it, so that a pass cannot forget to tell observers.
        if "apply" in vars(cls):
            cls.apply = events.told(cls.apply)  # type: ignore[assignment, method-assign]

    @property
    def name(self) -> str:
        return type(self).__name__

    def apply(self, program: Program) -> bool:
        """Change the program in place; returns whether anything changed. A second time nothing does."""
        raise TypeError(f"{self.name} does not define apply")

    def __call__(self, program: Program) -> Program:
        """Apply to a clone, and verify that.

        Raises
        ------
        PassError
            If the result breaks an invariant; it names the pass and the line that made the edit.
        WrongTypeError
            If `program` is no Program.
        """
        if not isinstance(program, Program):
            raise WrongTypeError(
                f"{self.name} rewrites Programs, got {program!r:.60}",
                hint="Give it fluid.default_main_program(), or another program.",
            )  # fmt: skip
        twin = events.copied(program, program.clone(), "clone")
        with named(self):
            self.apply(twin)
        try:
            verify_rewritten(program, twin)
        except VerifyError as error:
            raise self._blamed(program, error) from error
        return twin

    def _blamed(self, program: Program, error: VerifyError) -> PassError:
        """Repeat a rewrite that has failed, because noting the lines of edits takes time; return its error."""
        twin = program.clone()
        with events.unobserved(), edits_of(self) as edits:
            self.apply(twin)
        try:
            verify_rewritten(program, twin)
        except VerifyError as again:
            return edits.blamed(again)
        return edits.blamed(error)


@dataclass(frozen=True)
class Pass(Rewrite):
    """A single rewrite; its docstring states the law that it keeps."""

    changes_rounding: ClassVar[bool] = False
    """Whether results may differ by rounding; if not, every bit is kept."""

    keeps_declarations: ClassVar[bool] = True
    """Whether what is declared of variables and of the program stays, which a later ``minimize`` reads. A pass that
    freezes parameters changes it on purpose."""

    keeps_gradients: ClassVar[bool] = True
    """Whether gradients that are appended later are the same, up to rounding. A pass for the private programs of
    executors need not keep them."""

    keeps_roles: ClassVar[bool] = True
    """Whether results are written with the roles they had. A pass that joins forward and backward operators is for the
    private programs of executors, where roles decide nothing."""


Hook = Callable[[Pass, Program, bool], None]
"""Function called after each pass of a pipeline with the pass, the program and whether it changed.

If it raises a VerifyError, as ``verify(program)`` does, a PassError names the pass and the line that made the edit.
"""


@dataclass(frozen=True)
class Pipeline(Rewrite):
    """Passes applied one after the other; `hook` sees the program after each."""

    passes: tuple[Pass, ...]
    hook: Hook | None = None

    def __post_init__(self) -> None:
        given: Any = self.passes
        several = given if isinstance(given, tuple | list) else (None,)
        wrong = [each for each in several if not isinstance(each, Rewrite)]
        if wrong:
            hint = "Give a tuple: Pipeline((CleanUp(), RemoveDeadOps()))."
            raise WrongTypeError(f"a pipeline is of several passes, got {wrong[0] or given!r:.60}", hint=hint)

    def __iter__(self) -> Iterator[Pass]:
        return iter(self.passes)

    def apply(self, program: Program) -> bool:
        """Apply every pass in place; returns whether any changed the program."""
        changed = False
        for each in self.passes:
            did = each.apply(program) if self.hook is None else _watched(each, program, self.hook)
            changed = changed or did
        return changed


def _watched(rewrite: Pass, program: Program, hook: Hook) -> bool:
    """Apply a pass and call the hook."""
    # Edits are noted only where a hook may find fault with them.
    with edits_of(rewrite) as edits:
        changed = rewrite.apply(program)
    try:
        hook(rewrite, program, changed)
    except VerifyError as error:
        raise edits.blamed(error) from error
    return changed
