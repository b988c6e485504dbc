"""A program that a pass breaks, and a script that shows it."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

from minigraph.ir import Program
from minigraph.ir.text.diff import diff
from minigraph.ir.text.html import program_details
from minigraph.passes.base import Pipeline
from minigraph.passes.rules import Rule, Rules
from minigraph.rewrite.laws import SECONDS, Subject
from minigraph.support.html import code, details, in_notebook

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class CounterExample:
    """A program that a pass breaks.

    Attributes
    ----------
    program : Program
        The program; ``program.roots`` is what is fetched, or None where any value may be.
    feed : dict
        What is fed, by name.
    state : dict
        Arrays of persistable variables before the run, by name.
    law : str
        Which law is broken: ``ends``, ``raises``, ``valid``, ``truthful``, ``declarations``, ``repeatable``,
        ``roles``, ``role_vars``, ``runs``, ``values`` or ``gradients``.
    difference : str
        What is wrong, in words and numbers.
    rewritten : Program or None
        What the pass made of the program; None if it raised, or did not end.
    """

    program: Program
    feed: Mapping[str, Array]
    state: Mapping[str, Array]
    law: str
    difference: str
    rewritten: Program | None
    subject: Subject
    seed: int

    def to_python(self) -> str:
        """A script that builds the program, applies the pass, and shows what is wrong; it runs by itself."""
        return script(self)

    def __str__(self) -> str:
        return "\n\n".join([f"{self._heading()}:", str(self.program).rstrip(), self.difference])

    def _heading(self) -> str:
        roots = self.program.roots
        fetched = "any value may be fetched (roots is None)" if roots is None else f"{', '.join(roots)} is fetched"
        return f"{self.subject.name} breaks this program, of which {fetched}"

    def _repr_html_(self) -> str:
        parts = [program_details("Program", self.program.blocks), code(escape(self.difference), "Difference")]
        if self.rewritten is not None:
            parts.append(
                details("What the pass changed", code(diff(self.program, self.rewritten).html_lines(), "Changes"))
            )
        return in_notebook(self._heading(), "".join(parts))


_HEAD = '''\
"""{title}

{difference}

Found by minigraph.rewrite.check. Run this file with Python to see it.
"""

import runpy

import minigraph as fluid
import numpy as np
from minigraph.rewrite.cases import Case
from minigraph.rewrite.later_training import losses_of, trained
from numpy import inf, nan

np.set_printoptions(floatmode="unique")

program = fluid.Program.parse({program})
program.roots = {roots!r}  # what is fetched; None: any value may be
feed = {feed}
state = {state}  # persistable variables before the run
'''

_APPLY = """
rewritten = program.clone()
says = {expression}(rewritten)
print("the pass says that it changed the program:", says)
print(fluid.diff(program, rewritten))
fluid.verify(rewritten)
"""

_LIMITED = f"""
import faulthandler

faulthandler.dump_traceback_later({SECONDS:g}, exit=True)  # shows where the pass is
"""

_EMBEDDED = """
# The pass is defined inside of a function, so here is what it made of the program.
rewritten = fluid.Program.parse({rewritten})
rewritten.roots = program.roots
print(fluid.diff(program, rewritten))
fluid.verify(rewritten)
"""

_RUN = """
case = Case(program, feed, state, seed={seed})
before, after = case.run(), case.run(rewritten)
for name in before | after:  # "new p" is p after the run
    one, other = (each.get(name, []) for each in (before, after))
    same = [(x.dtype, x.shape, x.tobytes()) for x in one] == [(x.dtype, x.shape, x.tobytes()) for x in other]
    print(name, "is the same" if same else "differs:", *one, "then", *other)
"""

_FOR_TEST = """
program, rewritten = program.clone(for_test=True), rewritten.clone(for_test=True)
known = program.global_block().vars
program.roots = program.roots and tuple(name for name in program.roots if name in known)
feed = {name: value for name, value in feed.items() if name in known and name in rewritten.global_block().vars}
state = {name: value for name, value in state.items() if name in known}
"""

_LATER = """
# Both programs get a loss of what is fetched, and gradients.
names = losses_of(program)
(program, grads), (rewritten, new_grads) = trained(program, names), trained(rewritten, names)
print("gradients before:", grads)
print("gradients after: ", new_grads)
"""

_AGAIN = """
again = rewritten.clone()
print("applied again, the pass says that it changed the program:", {expression}(again))
print(fluid.diff(rewritten, again))
"""


def script(example: CounterExample) -> str:
    """Write the script: it builds the program, applies the pass, and shows what is wrong."""
    found = _expression(example.subject)
    parts = [
        _HEAD.format(
            title=f"{example.subject.name} breaks this program.", difference=_in_docstring(example.difference),
            program=_text(example.program), roots=example.program.roots, feed=_arrays(example.feed),
            state=_arrays(example.state),
        )
    ]  # fmt: skip
    if example.law == "ends":
        parts.append(_LIMITED)
    if found is not None:
        parts.append(_APPLY.format(expression=found))
    elif example.rewritten is not None:
        parts.append(_EMBEDDED.format(rewritten=_text(example.rewritten)))
    else:
        parts.append(f"\nprint({example.difference!r})\n")
    if example.law == "repeatable" and found is not None:
        parts.append(_AGAIN.format(expression=found))
    if example.law == "gradients":
        parts.append(_LATER)
    if example.law in ("gradients", "values", "runs"):
        parts += [_FOR_TEST] if "in the clone for a test" in example.difference else []
        parts.append(_RUN.format(seed=example.seed))
    return "".join(parts)


def _in_docstring(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"""', "'''")


def _text(program: Program) -> str:
    text = str(program).rstrip()
    return repr(text) if '"""' in text or "\\" in text else f'"""\n{text}\n"""'


def _arrays(arrays: Mapping[str, np.ndarray[Any, Any]]) -> str:
    lines = [f"    {name!r}: {_array(value)}," for name, value in arrays.items()]
    return "\n".join(["{", *lines, "}"]) if lines else "{}"


def _array(value: np.ndarray[Any, Any]) -> str:
    if not value.size:
        return f"np.zeros({value.shape}, {str(value.dtype)!r})"
    return f"np.array({value.tolist()}, {str(value.dtype)!r})"


def _expression(subject: Subject) -> str | None:
    """Expression that applies the pass, for a script that imports it; None for one that no script can make."""
    found = _reference(subject)
    return found if found is None or inspect.isfunction(subject.rewrite) else f"{found}.apply"


def _reference(subject: Subject) -> str | None:
    """Expression for the pass itself."""
    rewrite = subject.rewrite
    if isinstance(rewrite, Rule):
        return _imported(rewrite.function.__module__, rewrite.function.__qualname__, subject.file)
    if inspect.isfunction(rewrite):
        return _imported(rewrite.__module__, rewrite.__qualname__, subject.file)
    kind = type(rewrite)
    parts = rewrite.rules if isinstance(rewrite, Rules) else rewrite.passes if isinstance(rewrite, Pipeline) else ()
    if parts and (kind in (Rules, Pipeline) or not _is_ours(kind.__module__)):
        found = [_reference(Subject(each)) for each in parts]
        if None in found:
            return None
        base, star = (Rules, "*") if isinstance(rewrite, Rules) else (Pipeline, "")
        return f"{_imported(base.__module__, base.__name__, None)}({star}({', '.join(map(str, found))},))"
    named, arguments = _imported(kind.__module__, kind.__qualname__, subject.file), _arguments(rewrite)
    return None if named is None or arguments is None else f"{named}{arguments}"


def _arguments(rewrite: Any) -> str | None:
    """The arguments that made a pass, such as ``(ranks=2)``; None where one is no literal, so that no text makes it."""
    text = repr(rewrite)
    if isinstance(rewrite, Rules) or text.startswith("<"):  # a class that names its rules; one without a text
        return "()"
    try:
        call = ast.parse(text, mode="eval").body
        if not isinstance(call, ast.Call):
            return None
        for each in (*call.args, *[keyword.value for keyword in call.keywords]):
            ast.literal_eval(each)
    except (SyntaxError, ValueError):
        return None
    return text[text.index("(") :]


def _imported(module: str, name: str, file: str | None) -> str | None:
    """Expression for what a module, or a file that is no module of minigraph, calls `name`."""
    if not name.isidentifier():  # defined inside of a function
        return None
    if _is_ours(module):
        return f"__import__({module!r}, fromlist=[{name!r}]).{name}"
    return None if file is None else f"runpy.run_path({file!r})[{name!r}]"


def _is_ours(module: str) -> bool:
    return module.partition(".")[0] == "minigraph"
