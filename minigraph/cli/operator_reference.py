"""Reference of operators in Markdown: slots, attributes, gradients, places, as the definitions state them.

``minigraph operators`` prints it; docs/operators.md holds it for all operators.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import re
from collections.abc import Iterable, Mapping
from typing import Any

from minigraph.autodiff.decompositions.all_rules import RULES
from minigraph.cli.commands import Command, Commands
from minigraph.kernels import find_kernel
from minigraph.opdef import REQUIRED, Attr, OpDef, Slot, all_definitions, definition_of
from minigraph.opdef.gradient_context import BlockGrad
from minigraph.opdef.gradient_rules import FusedGrad

_SECTION = re.compile(r"\n\n(?:Parameters|Returns|Raises|Notes|References|Examples)\n-+\n", re.MULTILINE)
_NOTES = {"duplicable": "several", "dispensable": "may be left out", "intermediate": "for the gradient"}
_PLACES = {"cpu": "CPU", "cuda": "GPU"}


def page(types: Iterable[str] = (), tests: Mapping[str, str] | None = None) -> str:
    """The description of operators, by family.

    Parameters
    ----------
    types : iterable of str
        Default: every operator that is not the gradient of another one.
    tests : mapping, optional
        For each operator, where it is tested.

    Raises
    ------
    NotFoundError
        If there is no operator of one of these types.
    """
    wanted = [definition_of(type) for type in types] or [d for d in all_definitions() if d.forward is None]
    families: dict[str, list[OpDef]] = {}
    for definition in wanted:
        families.setdefault(_module_of(definition), []).append(definition)
    parts = []
    for module in sorted(families):
        summary = (inspect.getdoc(importlib.import_module(module)) or "").partition("\n\n")[0]
        parts.append(f"## {module.rpartition('.')[2]}\n\n{' '.join(summary.split())}")
        parts += [describe(definition, (tests or {}).get(definition.type)) for definition in families[module]]
    return "\n\n".join(parts) + "\n"


def _module_of(definition: OpDef) -> str:
    return definition_of(definition.forward or definition.type).infer.__module__


def describe(definition: OpDef, tests: str | None = None) -> str:
    """Describe one operator: what it computes, and the facts of its definition."""
    facts = {
        "Inputs": ", ".join(map(_slot, definition.inputs)) or "none",
        "Outputs": ", ".join(map(_slot, definition.outputs)),
        "Attributes": ", ".join(map(_attribute, definition.attrs.values())) or "none",
        "Gradient": _gradient(definition),
        "Places": _places(definition),
    }
    if tests is not None:
        facts["Tests"] = tests
    text = _SECTION.split(definition.doc)[0].replace("``", "`")
    return f"### {definition.type}\n\n{text}\n\n" + "\n".join(f"- {name}: {fact}" for name, fact in facts.items())


def _slot(slot: Slot) -> str:
    notes = [note for field, note in _NOTES.items() if getattr(slot, field)]
    return f"`{slot.name}`" + (f" ({', '.join(notes)})" if notes else "")


def _attribute(attr: Attr) -> str:
    if attr.default is REQUIRED:
        return f"`{attr.name}: {attr.type}`"
    default: Any = list(attr.default) if isinstance(attr.default, tuple) else attr.default
    if isinstance(default, float):
        default = float(f"{default:.7g}")  # as written in the source: the definition rounds it to float32
    return f"`{attr.name}: {attr.type} = {default!r}`"


def _gradient(definition: OpDef) -> str:
    rule = definition.grad
    if rule is None:
        return "of other operators" if definition.type in RULES else "none"
    if isinstance(rule, BlockGrad):
        return f"`{definition.type}_grad`, which runs a block of gradients; that has a gradient, too"
    if not isinstance(rule, FusedGrad):
        return "of other operators"
    reads = ", ".join(f"`{slot.name}`" for slot in definition_of(rule.type).inputs)
    gives = ", ".join(f"`{slot}@GRAD`" for slot in rule.to)
    return f"`{rule.type}`, from {reads} to {gives}; {_second_gradient(rule)}"


def _second_gradient(rule: FusedGrad) -> str:
    if rule.linear is not False and rule.grad is None:
        return "linear, so that the gradient of that is the operator itself"
    if rule.type in RULES or rule.grad is not None:
        return "that has a gradient, too"
    return "that has none"


def _places(definition: OpDef) -> str:
    types = [definition.type, *([definition.grad.type] if isinstance(definition.grad, FusedGrad) else [])]
    there = [name for kind, name in _PLACES.items() if all(find_kernel(type, kind) for type in types)]
    rows = [name for kind, name in _PLACES.items() if find_kernel(definition.type, kind, rows=True)]
    of_rows = f"for selected rows {' and '.join(rows)}" if rows else ""
    return ", ".join(part for part in (" and ".join(there), of_rows) if part) or "computed by the executor"


# The command


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("types", nargs="*", metavar="TYPE", help="only these operators (default: all)")


def _run(options: argparse.Namespace) -> int:
    """Describe operators as their definitions do, in Markdown."""
    print(page(options.types), end="")
    return 0


COMMANDS: Commands = {"operators": Command(_run, _add_options)}
