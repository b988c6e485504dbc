"""Laws of a pass, tried on one program.

A pass ends and raises nothing. The program that it leaves is valid. It says truthfully whether it changed anything, and
a second application changes nothing. Variables keep their declarations, operators their roles, and what is fetched or
persistable its value. Gradients that are appended later are the same.
"""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from minigraph import unique_name
from minigraph.errors import MinigraphError, Site, WrongTypeError
from minigraph.ir import Operator, Program, Role
from minigraph.ir.verifier import verify
from minigraph.passes.base import Pipeline, Rewrite
from minigraph.rewrite.cases import (
    Case,
    Literal,
    Results,
    Rounding,
    are_same_bits,
    clone_for_test,
    differing,
    is_finite,
)
from minigraph.rewrite.declarations import changed_declaration
from minigraph.rewrite.later_training import losses_of, trained, with_gradients
from minigraph.rewrite.limits import EDITS, EDITS_PER_OP, Endless, bounded

SECONDS = 10.0
"""Maximum time of a pass for one program, in seconds; random programs take milliseconds."""


@dataclass(frozen=True)
class Broken:
    """A law that a pass breaks."""

    law: str
    """``ends``, ``raises``, ``valid``, ``truthful``, ``declarations``, ``repeatable``, ``roles``, ``role_vars``,
    ``runs``, ``values``, ``gradients``."""
    text: str
    """Description of what happened, with the values."""
    kind: str = ""
    """Type of the error, where one was raised."""
    rewritten: Program | None = None
    """Program that the pass returned; None if it raised."""


class Subject:
    """A pass under test: a `Pass`, a `Pipeline`, a rule, or a function that changes a program in place."""

    seconds = SECONDS
    """Maximum time for one program."""
    has_changed = False
    """Whether it has said of any program that it changed it."""

    def __init__(self, rewrite: Any) -> None:
        if inspect.isclass(rewrite) or not (callable(getattr(rewrite, "apply", None)) or callable(rewrite)):
            raise WrongTypeError(
                f"a pass has a method apply, got {rewrite!r:.80}",
                hint="Give an object such as CleanUp(), or a function of a program that says whether it changed it.",
            )  # fmt: skip
        self.rewrite = rewrite
        self._answer: Any = False
        self._apply: Callable[[Program], Any] = rewrite.apply if hasattr(rewrite, "apply") else rewrite
        name = rewrite.name if isinstance(rewrite, Rewrite) else getattr(rewrite, "__name__", type(rewrite).__name__)
        self.name = str(name)
        members = rewrite.passes if isinstance(rewrite, Pipeline) else (rewrite,)
        self.changes_rounding = any(getattr(each, "changes_rounding", False) for each in members)
        self.keeps_roles, self.keeps_declarations, self.keeps_gradients = (
            all(getattr(each, name, True) for each in members)
            for name in ("keeps_roles", "keeps_declarations", "keeps_gradients")
        )
        self.keeps_gradients = self.keeps_gradients and self.keeps_roles and self.keeps_declarations
        self.is_pipeline = isinstance(rewrite, Pipeline)

    @property
    def file(self) -> str | None:
        """The file that defines the pass."""
        site = getattr(self.rewrite, "site", None)
        if isinstance(site, Site):
            return site.filename
        code = getattr(inspect.unwrap(getattr(self._apply, "__func__", self._apply)), "__code__", None)
        return None if code is None or code.co_filename.startswith("<") else str(code.co_filename)

    def apply(self, program: Program, prefix: str = "new_") -> bool:
        """Change the program; names that the pass makes begin with `prefix`, so that they are those of each run."""
        with unique_name.guard(prefix):
            self._answer = self._apply(program)
        changed = bool(self._answer)
        self.has_changed = self.has_changed or changed
        return changed

    def answer(self) -> str:
        """Text about the last result of the pass, if that is neither True nor False."""
        kind = type(self._answer).__name__
        return "" if kind in ("bool", "bool_") else f": it must return True or False, got {kind}"

    def apply_bounded(self, program: Program, prefix: str = "new_") -> bool:
        """Change the program; raise `Endless` if that goes on and on."""
        edits = EDITS + EDITS_PER_OP * sum([len(block.ops) for block in program.blocks])
        return bounded(lambda: self.apply(program, prefix), self.seconds, edits)

    def line_of(self, error: BaseException) -> Site:
        """The line of the pass that an error came through, or else where a rule is written, or the innermost of all."""
        frames = traceback.extract_tb(error.__traceback__)
        own = [frame for frame in frames if frame.filename == self.file]
        site = getattr(self.rewrite, "site", None)
        if not own and isinstance(site, Site):
            return site
        code = getattr(inspect.unwrap(self._apply), "__code__", None)
        if not own and code is not None and self.file is not None:  # it could not be called
            return Site(self.file, code.co_firstlineno)
        frame = (own or frames)[-1]
        return Site(frame.filename, frame.lineno or 0)


def broken_law(subject: Subject, case: Case) -> Broken | None:
    """Find the first law that a pass breaks for a program on certain arrays."""
    twin, broken = rewritten(subject, Original(case.program))
    if broken is not None or twin is None:
        return broken
    return other_values(subject, case, twin) or other_gradients(subject, case, twin)


class Original:
    """A program that passes are applied to, one at a time, each to a clone."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._structure = program.structure()
        self._clone: Program | None = None

    def clone(self) -> Program:
        """A clone; the last one, if it was given back."""
        twin, self._clone = self._clone or self.program.clone(), None
        return twin

    def is_same(self, twin: Program) -> bool:
        """Whether nothing of a clone has changed; then it may be the next one."""
        is_same = self.program.roots == twin.roots and self._structure == twin.structure()
        if is_same:
            self._clone = twin
        return is_same


def rewritten(subject: Subject, original: Original) -> tuple[Program | None, Broken | None]:
    """Apply a pass to a clone, and try the laws that need no arrays; the clone is None if nothing changed."""
    program, twin = original.program, original.clone()
    try:
        changed = subject.apply_bounded(twin)
    except Endless as error:
        return None, _endless(subject, error)
    except (Exception, SystemExit) as error:
        line = subject.line_of(error)
        text = f"{subject.name} raises {type(error).__name__}: {error}\n  at {line}"
        return None, Broken("raises", text, f"{type(error).__name__} {line}")
    is_same = original.is_same(twin)
    declared = "" if is_same else changed_declaration(program, twin)
    if is_same:
        if not changed:
            return None, None
        text = f"{subject.name} says that it changed the program, and did not{subject.answer()}"
        return twin, Broken("truthful", text, rewritten=twin)
    if not changed:
        text = f"{subject.name} changed the program and says that it did not{subject.answer()}"
        return twin, Broken("truthful", text, rewritten=twin)
    text = _invalid(twin)
    if text:
        if _invalid(program):
            return None, None
        return twin, Broken(
            "valid", f"{subject.name} leaves a program that breaks an invariant\n{text}", rewritten=twin
        )
    if declared and subject.keeps_declarations:
        return twin, Broken("declarations", f"{subject.name} changes a declaration\n{declared}", rewritten=twin)
    try:
        text = _second_time(subject, twin)
    except Endless as error:
        return twin, _endless(subject, error, ", applied again,")
    if text:
        return twin, Broken("repeatable", text, rewritten=twin)
    return twin, lost_roles(program, twin) if subject.keeps_roles else None


def _endless(subject: Subject, error: Endless, when: str = "") -> Broken:
    return Broken("ends", f"{subject.name}{when} does not end: {error}\n  at {subject.line_of(error)}")


def _invalid(program: Program) -> str:
    try:
        verify(program)
    except MinigraphError as error:
        return str(error)
    return ""


def _second_time(subject: Subject, twin: Program) -> str:
    """Changes by a second application; one pass of a pipeline may make work for an earlier one."""
    if subject.is_pipeline:
        return ""
    again = twin.clone()
    try:
        changed = subject.apply_bounded(again, "again_")
    except (Exception, SystemExit) as error:
        return f"{subject.name}, applied again, raises {type(error).__name__}: {error}\n  at {subject.line_of(error)}"
    if changed or not again.equals(twin):
        return f"{subject.name} changes a program a second time"
    return ""


# Roles


def lost_roles(before: Program, after: Program) -> Broken | None:
    """Compare the roles of what writes results, and what updates say of their parameters and gradients."""
    block, new_block = before.global_block(), after.global_block()
    writers, new_writers = _writers(block.ops), _writers(new_block.ops)
    for name, op in writers.items():
        new = new_writers.get(name)
        if new is None or new.role == op.role:
            continue
        var = block.find_var(name)
        if before.roots is None or name in before.roots or (var is not None and var.persistable):
            text = f"{name} was written with the role {op.role!r}, now with {new.role!r}"
            return Broken("roles", f"{text}\n  {new}", rewritten=after)
    for name, op in _updates(block.ops).items():
        update = _updates(new_block.ops).get(name)
        if update is None or name not in op.role_vars:
            continue
        grad = update.inputs["Grad"][update.inputs["Param"].index(name)]
        if _gradient_named(update, name) not in (_gradient_named(op, name), grad):
            text = f"the update of {name} had the role_vars {list(op.role_vars)}, has {list(update.role_vars)}"
            return Broken("role_vars", f"{text}\n  {update}", rewritten=after)
    return None


def _writers(ops: Any) -> dict[str, Operator]:
    """The last operator that writes each name."""
    return {name: op for op in ops for name in op.output_arg_names}


def _updates(ops: Any) -> dict[str, Operator]:
    """The last update of each parameter."""
    return {
        name: op for op in ops if "Grad" in op.inputs and op.role & Role.OPTIMIZE for name in op.inputs.get("Param", ())
    }


def _gradient_named(update: Operator, parameter: str) -> str | None:
    """The gradient of a parameter by the role_vars, which are pairs; empty for one that is named alone."""
    names = update.role_vars
    if parameter not in names:
        return None
    return "".join(names[names.index(parameter) + 1 :][:1])


# Values


def other_values(subject: Subject, case: Case, twin: Program) -> Broken | None:
    """Find a result that the rewritten program computes otherwise, also where it is cloned for a test."""
    broken = _compared(subject, case, twin, "")
    if broken is not None or not subject.keeps_roles or not _trains(case.program):
        return broken
    test, new = case.for_test, _other_test(case.program, twin, (case.program.version, twin.version))
    if new is None:
        return None
    known = new.global_block().vars
    if not all([name in known for name in test.feed]):
        feed = {name: value for name, value in test.feed.items() if name in known}
        test = Case(test.program, feed, test.state, test.seed)
    # A clone loses a parameter or a feed whose only reader was a dead operator.
    made = {name for op in test.program.global_block().ops for name in op.output_arg_names}
    left = tuple([name for name in test.fetched if name in known or name in made])
    if len(left) < len(test.fetched):
        program = test.program.clone()
        program.roots = new.roots = left
        test = Case(program, test.feed, test.state, test.seed)
    return _compared(subject, test, new, "in the clone for a test, ")


@lru_cache(maxsize=2)
def _other_test(program: Program, twin: Program, versions: tuple[int, int]) -> Program | None:
    """The clone for a test of a rewritten program; None if it is that of the program itself."""
    test, new = clone_for_test(program, versions[0]), twin.clone(for_test=True)
    if program.roots is not None:
        new.roots = test.roots
    return None if test.equals(new) else new


def other_gradients(subject: Subject, case: Case, twin: Program) -> Broken | None:
    """Find a gradient that differs if gradients are appended to both programs, up to rounding."""
    found = with_gradients(case) if subject.keeps_gradients else None
    if found is None:
        return None
    before, grads = found
    try:
        after, new_grads = trained(twin, losses_of(case.program))
    except Exception as error:
        return Broken("gradients", f"append_backward fails for the rewritten program\n{error}", rewritten=twin)
    if grads != new_grads:
        one, other = (
            ", ".join(map(" of ".join, sorted((b, a) for a, b in each.items()))) for each in (grads, new_grads)
        )
        text = f"append_backward makes other gradients\n  before: {one}\n  after:  {other or 'none'}"
        return Broken("gradients", text, rewritten=twin)
    try:
        expected = before.results
    except Exception:  # the gradients do not run on these arrays
        return None
    if not computes_finite_numbers(before):
        return None
    try:
        results = before.run(after)
    except Exception as error:
        return Broken("gradients", f"the gradients of the rewritten program do not run\n{error}", rewritten=twin)
    name = Rounding(before, expected).difference(results)
    return None if name is None else Broken("gradients", _told(name, expected, results), rewritten=twin)


def _trains(program: Program) -> bool:
    return any(op.role & (Role.BACKWARD | Role.OPTIMIZE) for op in program.global_block().ops)


def _compared(subject: Subject, case: Case, twin: Program, where: str) -> Broken | None:
    try:
        expected = case.results
    except Exception:  # the program does not run on these arrays, so nothing is asked of the pass
        return None
    try:
        found = case.run(twin)
    except Exception as error:
        return Broken("runs", f"{where}the rewritten program does not run\n{error}", rewritten=twin)
    if differing(expected, found, are_same_bits) is None:
        return None
    # Before the runs that say what rounding does, which take longer.
    if subject.changes_rounding and not computes_finite_numbers(case):
        return None
    name = _differing(subject, case, expected, found)
    if name is None or not _differs_literally(subject, case, twin):
        return None
    return Broken("values", f"{where}{_told(name, expected, found)}", rewritten=twin)


def _differing(subject: Subject, case: Case, expected: Results, found: Results) -> str | None:
    if subject.changes_rounding:
        return Rounding(case, expected).difference(found)
    return differing(expected, found, are_same_bits)


def _differs_literally(subject: Subject, case: Case, twin: Program) -> bool:
    """Whether single operators differ, too.

    A pass may rewrite a part of fluid's chain for a global norm. The interpreter does not recognize the chain then, and
    computes its operators as they stand, which may overflow.
    """
    try:
        expected, found = (case.run(program, Literal()) for program in (case.program, twin))
    except Exception:
        return True
    return _differing(subject, case, expected, found) is not None


def _told(name: str, expected: Results, found: Results) -> str:
    said = [_shown(results.get(name)) for results in (expected, found)]
    return f"{name} differs\n  before: {said[0]}\n  after:  {said[1]}"


def _shown(arrays: list[np.ndarray[Any, Any]] | None) -> str:
    if not arrays:
        return "no value"
    with np.printoptions(precision=9, threshold=20, floatmode="unique"):
        return ", ".join(f"{each.dtype}{list(each.shape)} {' '.join(str(each).split())}" for each in arrays)


def computes_finite_numbers(case: Case) -> bool:
    """Whether no number that is given or computed is infinite or NaN; rounding is about finite ones."""
    computed = [each for results in case.computed for each in (results or {}).values()]
    found = [*case.feed.values(), *case.state.values(), *computed]
    return all([np.isfinite(each).all() for each in found if each is not None and each.dtype.kind == "f"])


def runs_to_finite_numbers(case: Case) -> bool:
    """Whether all results of the program are finite; so a difference is one of numbers."""
    try:
        return is_finite(case.results)
    except Exception:
        return False
