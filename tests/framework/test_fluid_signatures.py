"""Functions, classes and methods are called as in fluid 1.8.5; ``golden_signatures.py`` recorded its signatures."""

import inspect
import re
from pathlib import Path

from golden_signatures import found, text_of

import minigraph as fluid
from minigraph.errors import UnknownNameError
from minigraph.support.fluid_absent import ABSENT

GOLDEN = Path(__file__).parents[1] / "golden"
LINES = (GOLDEN / "fluid_signatures.txt").read_text(encoding="utf-8").splitlines()
DIFFERENT = {
    "Variable": "made by blocks only",
    "framework.Variable": "made by blocks only",
    "Variable.backward": "raises in a program",
    "framework.Variable.backward": "raises in a program",
    "dygraph.Layer.backward": "raises in fluid, too",
    "layers.utils.map_structure": "takes at least one structure",
} | {
    f"{path}{name}": "fluid's documentation calls the argument dygraph_func"
    for path in ("dygraph.", "dygraph.jit.")
    for name in ("declarative", "dygraph_to_static_func")
}  # fmt: skip
"""Signatures that differ, with the reason."""


def is_absent(path):
    return any(part in ABSENT for part in path.split(".")) or (
        "DistributeTranspiler." in path  # its methods for parameter servers
    )


def parameters_of(path):
    """Texts of our parameters, without ``self``."""
    value, (holder, _, name) = found(fluid, path), path.rpartition(".")
    if inspect.isclass(value):
        return text_of(value.__init__, 1)
    owner = found(fluid, holder) if holder else None
    is_method = inspect.isclass(owner) and not isinstance(
        inspect.getattr_static(owner, name), classmethod | staticmethod
    )
    return text_of(value, int(is_method))


def agrees(ours, theirs):
    """Whether a parameter has the name and the default of fluid's; it may have one where fluid's has none."""
    name, has_default, default = theirs.partition("=")
    if ours.startswith("*") or theirs.startswith("*"):
        return ours.startswith("*") and theirs.startswith("*")
    mine, is_optional, value = ours.partition("=")
    return mine == name and (not has_default or (value == default if default != "..." else bool(is_optional)))


def test_signatures_begin_with_those_of_the_original():
    wrong = []
    for line in LINES:
        path, _, listed = line[:-1].partition("(")
        if path in DIFFERENT or is_absent(path):
            continue
        theirs = re.split(r", (?![^\[]*\])", listed) if listed else []
        try:
            ours = parameters_of(path)
        except UnknownNameError as error:
            wrong.append(f"{path}: {error}")
            continue
        # Keywords that fluid takes as **kwargs are named parameters here.
        theirs = theirs[:-1] if theirs and theirs[-1] == "**kwargs" else theirs
        if ours is None or len(ours) < len(theirs) or not all(map(agrees, ours, theirs)):
            wrong.append(f"{path}({', '.join(ours or [])}) for {line}")
    assert not wrong, "\n".join(wrong)


def test_what_differs_is_named_once_it_does():
    for path in DIFFERENT:
        assert any(line.startswith(f"{path}(") for line in LINES), path
