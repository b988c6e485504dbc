"""``minigraph port``: what a script for fluid uses that is missing or differs, and the script with new imports."""

from __future__ import annotations

import argparse
import ast
import importlib
import io
import json
import os
import sys
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

from minigraph.cli.commands import Command, Commands
from minigraph.errors import DataError, UnknownNameError
from minigraph.support.atomic_files import read_file, write_files


class Missing(NamedTuple):
    """A name that a script uses and that is not here."""

    line: int
    name: str
    """The path in Paddle, such as ``paddle.fluid.layers.sequence_pool``."""
    reason: str
    """The message of minigraph's error for it."""


class Differing(NamedTuple):
    """A name that a script uses and that does something else here, in the case that is described."""

    line: int
    name: str
    fluid: str
    """Behaviour of fluid 1.8.5."""
    here: str
    """Behaviour of minigraph."""


@dataclass(frozen=True)
class Ported:
    """A script with its imports changed, and the names that it lacks here or that differ."""

    source: str
    changed: int
    """Number of import statements that were changed."""
    missing: tuple[Missing, ...]
    differing: tuple[Differing, ...] = ()


def port(source: str, filename: str = "<script>") -> Ported:
    r"""Change the imports of Paddle in a script to those of minigraph, and look for the names that it uses.

    Raises
    ------
    DataError
        If the script is no Python 3.

    Examples
    --------
    >>> ported = port("import paddle.fluid as fluid\nboxes = fluid.layers.prior_box\n")
    >>> print(ported.source)
    import minigraph as fluid
    boxes = fluid.layers.prior_box
    <BLANKLINE>
    >>> [(each.line, each.name) for each in ported.missing]
    [(2, 'paddle.fluid.layers.prior_box')]
    """
    try:
        tree = ast.parse(source, filename)
    except SyntaxError as error:
        raise DataError(
            f"{filename} is no Python 3: line {error.lineno}: {error.msg}", hint="Convert it with 2to3 first."
        ) from None
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom) and _is_paddles(node)]
    lines = source.splitlines(keepends=True)
    for node in sorted(imports, key=lambda each: each.lineno, reverse=True):
        _replace(lines, node)
    all_imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    used = sorted({*_imported(imports), *_reached(tree, _aliases(imports)), *_removed(tree, all_imports)})
    reasons = {name: _REMOVED.get(name) or why_missing(name) for _, name in used}
    missing = tuple(Missing(line, name, reason) for line, name in used if (reason := reasons[name]) is not None)
    differing = tuple(
        Differing(line, name, *texts)
        for line, name in used
        if reasons[name] is None
        for mention, rows in _differences().items()
        if is_about(mention, name)
        for texts in rows
    )
    return Ported("".join(lines), len(imports), missing, differing)


@cache
def _differences() -> dict[str, list[list[str]]]:
    """Behaviour of fluid and of minigraph, by mention of a name of fluid; tests/fluid_names_page.py writes it."""
    found: dict[str, list[list[str]]] = json.loads(
        resources.files("minigraph.cli").joinpath("differences.json").read_text("utf-8")
    )
    return found


def is_about(mention: str, path: str) -> bool:
    """Whether a page that mentions ``layers.data`` is about a path such as ``fluid.layers.io.data``."""
    said, parts = mention.split("."), path.split(".")
    return said[-1] == parts[-1] and set(said) <= set(parts)


def why_missing(name: str) -> str | None:
    """Advice for a name of Paddle that minigraph lacks; None if it has the name."""
    package, rest = _placed(name)
    found: Any = importlib.import_module(package)  # names are looked up as a script reaches them
    for part in filter(None, rest.split(".")):
        if part == "*":
            return None
        try:
            found = getattr(found, part)
        except AttributeError as error:
            try:  # a module that nothing has imported yet
                found = importlib.import_module(f"{found.__name__}.{part}")
            except (ImportError, AttributeError):
                if isinstance(error, UnknownNameError):
                    return f"{error.message}. {error.hint}"
                return f"{getattr(found, '__name__', found)} has no {part!r}"
    return None


_REMOVED = {
    f"numpy.{name}": f"NumPy 2 has no {name!r}. Use {instead}."
    for name, instead in {
        "product": "numpy.prod", "cumproduct": "numpy.cumprod", "sometrue": "numpy.any", "alltrue": "numpy.all",
        "float": "float", "int": "int", "object": "object", "str": "str", "complex": "complex",
        "float_": "numpy.float64", "Inf": "numpy.inf", "Infinity": "numpy.inf", "infty": "numpy.inf",
        "NaN": "numpy.nan", "in1d": "numpy.isin", "row_stack": "numpy.vstack", "trapz": "numpy.trapezoid",
        "round_": "numpy.round", "asfarray": "numpy.asarray with a dtype", "unicode_": "numpy.str_",
        "string_": "numpy.bytes_", "asscalar": "array.item()",
    }.items()
}  # fmt: skip
"""Advice for names that scripts of the time of fluid use and that NumPy has removed since."""

_HOMES = {
    "paddle.fluid": "minigraph",
    "paddle.dataset": "minigraph.dataset",
    "paddle.reader": "minigraph.reader",
    "paddle": "minigraph.compat.paddle",
}
"""Packages of Paddle with their places here; the first that fits counts."""


def _placed(name: str) -> tuple[str, str]:
    """The package here for a path in Paddle, and the rest of the path."""
    home = next((each for each in _HOMES if name == each or name.startswith(f"{each}.")), "")
    return _HOMES.get(home, ""), name[len(home) :]


def _home(name: str) -> str:
    """The path here of a path in Paddle; that of another package stays."""
    return "".join(_placed(name))


def _is_paddles(node: ast.Import | ast.ImportFrom) -> bool:
    modules = [node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
    is_relative = isinstance(node, ast.ImportFrom) and node.level > 0
    return not is_relative and any(module == "paddle" or module.startswith("paddle.") for module in modules)


# Imports


def _replace(lines: list[str], node: ast.Import | ast.ImportFrom) -> None:
    """Write the statement of an import anew; what stands around it stays."""
    first, last = lines[node.lineno - 1], lines[(node.end_lineno or node.lineno) - 1]
    # The offsets count bytes of UTF-8.
    before = first.encode()[: node.col_offset].decode()
    after = last.encode()[node.end_col_offset :].decode()
    lines[node.lineno - 1 : node.end_lineno] = [before + _rewritten(node) + after]


def _rewritten(node: ast.Import | ast.ImportFrom) -> str:
    if isinstance(node, ast.ImportFrom):
        module, names = node.module or "", list(node.names)
        if module == "paddle" and any(alias.name == "fluid" for alias in names):
            fluid = next(alias for alias in names if alias.name == "fluid")
            rest = [alias for alias in names if alias is not fluid]
            others = [f"from {_home(module)} import {_names(rest)}"] if rest else []
            return "; ".join([f"import minigraph as {fluid.asname or 'fluid'}", *others])
        return f"from {_home(module)} import {_names(names)}"
    parts: dict[str, None] = {}
    for alias in node.names:
        if not (alias.name == "paddle" or alias.name.startswith("paddle.")):
            parts[_names([alias])] = None
        elif alias.asname:
            parts[f"{_home(alias.name)} as {alias.asname}"] = None
        else:  # binds the name `paddle`, through which the submodule is reached
            parts[f"{_home('paddle')} as paddle"] = None
    return f"import {', '.join(parts)}"


def _names(aliases: list[ast.alias]) -> str:
    return ", ".join(alias.name + (f" as {alias.asname}" if alias.asname else "") for alias in aliases)


# Names in use


def _imported(imports: list[ast.Import | ast.ImportFrom]) -> Iterator[tuple[int, str]]:
    """Names that the import statements themselves need, with their lines."""
    for node in imports:
        for alias in node.names:
            module = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
            if (module + alias.name).startswith("paddle"):
                yield node.lineno, module + alias.name


def _aliases(imports: list[ast.Import | ast.ImportFrom]) -> dict[str, str]:
    """Names that the imports bind, with their paths in Paddle."""
    found = {}
    for node in imports:
        for alias in node.names:
            if isinstance(node, ast.ImportFrom):
                found[alias.asname or alias.name] = f"{node.module}.{alias.name}"
            elif alias.asname:
                found[alias.asname] = alias.name
            else:
                found[alias.name.partition(".")[0]] = alias.name.partition(".")[0]
    return found


def _reached(tree: ast.AST, aliases: dict[str, str], package: str = "paddle") -> Iterator[tuple[int, str]]:
    """Names that are reached through what was imported, such as ``fluid.layers.fc``, with their lines."""
    inner: set[ast.AST] = set()
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute) or node in inner:
            continue
        parts: list[str] = []
        each: ast.AST = node
        while isinstance(each, ast.Attribute):
            inner.add(each)
            parts.append(each.attr)
            each = each.value
        if isinstance(each, ast.Name) and aliases.get(each.id, "").startswith(package):
            yield node.lineno, ".".join([aliases[each.id], *reversed(parts)])


def _removed(tree: ast.AST, imports: list[ast.Import | ast.ImportFrom]) -> Iterator[tuple[int, str]]:
    """Names that NumPy has removed, with their lines."""
    for line, name in _reached(tree, _aliases(imports), "numpy"):
        if name in _REMOVED:
            yield line, name


# The command


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("scripts", nargs="+", metavar="SCRIPT", type=Path, help="a script, or a folder of scripts")
    parser.add_argument(
        "-o", "--output", metavar="FOLDER", type=Path,
        help="write the changed scripts there, in the folders that they lie in; without it only list",
    )  # fmt: skip


def _run(options: argparse.Namespace) -> int:
    """List the names that scripts for Paddle fluid 1.x use and minigraph lacks,
    with their lines and what to use instead, and the names that differ here in
    some case. Write each script with its imports changed. The exit status is 1 if
    something is missing, or a script could not be read.
    """
    lacking = 0
    for script, place in _placed_scripts(options.scripts):
        content = read_file(script, "the script")
        try:
            encoding = _encoding(content, script)
            ported = port(content.decode(encoding), str(script))
        except DataError as error:  # the other scripts may be read
            print(error, file=sys.stderr)
            lacking += 1
            continue
        for line, name, reason in ported.missing:
            print(f"{script}:{line}: {name}: {reason}")
        for name, lines, fluid, here in _by_name(ported.differing):
            print(f"{script}:{lines}: {name} differs. Fluid: {fluid} Minigraph: {here}")
        lacking += len(ported.missing)
        if options.output is not None:
            write_files({options.output / place: [ported.source.encode(encoding)]})
        told = f"{len(ported.missing)} names are missing" if ported.missing else "every name is here"
        print(f"{script}: {ported.changed} imports of Paddle changed, {told}", file=sys.stderr)
    return 1 if lacking else 0


def _placed_scripts(given: list[Path]) -> list[tuple[Path, Path]]:
    """Each script, with its path below the folder that holds all: a package keeps its folders."""
    scripts = [each for path in given for each in (sorted(path.rglob("*.py")) if path.is_dir() else [path])]
    holders = [path if path.is_dir() else path.parent for path in given]
    shared = Path(os.path.commonpath([path.absolute() for path in holders]))
    return [(script, script.absolute().relative_to(shared)) for script in scripts]


def _encoding(content: bytes, script: Path) -> str:
    """The encoding in which Python reads a script: what its first lines say, or else UTF-8."""
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(content).readline)
        content.decode(encoding)
    except (SyntaxError, UnicodeDecodeError) as error:
        raise DataError(f"{script} is no text that Python reads: {error}", hint="Save it as UTF-8.") from None
    return encoding


def _by_name(differing: tuple[Differing, ...]) -> Iterator[tuple[str, str, str, str]]:
    """Each difference once, with all lines that it concerns."""
    lines: dict[tuple[str, str, str], list[str]] = {}
    for line, *what in differing:
        lines.setdefault((what[0], what[1], what[2]), []).append(str(line))
    for (name, fluid, here), places in lines.items():
        yield name, ",".join(dict.fromkeys(places)), fluid, here


COMMANDS: Commands = {"port": Command(_run, _add_options)}
