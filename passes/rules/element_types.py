"""Warn of a set of names in which code looks for an element type: it never finds one.

An element type equals its number and its names, but has the hash of its number, by which a set looks.
"""

from __future__ import annotations

import dis
from collections.abc import Callable, Iterator
from types import CodeType
from typing import Any

from minigraph.errors import Site, warn
from minigraph.opdef.attr_types import DTYPE_ATTRS
from minigraph.types import DType

_NAMES = frozenset(dtype.text for dtype in DType)
_NOTHING = frozenset({"CACHE", "EXTENDED_ARG", "PRECALL"})
"""Instructions that change no value."""


def warn_of_sets(function: Callable[..., Any]) -> None:
    """Warn if a function looks for an element type in a set of names, as in ``x.dtype in {"float32"}``."""
    code = getattr(function, "__code__", None)
    if not isinstance(code, CodeType):
        return
    for line, names in _sets(code):
        shown = ", ".join(map(repr, sorted(names)))
        warn(
            f"a set of names never contains an element type: {{{shown}}} at {Site(code.co_filename, line)}. "
            f"Look in a tuple: in ({shown},)."
        )


def _sets(code: CodeType) -> Iterator[tuple[int, frozenset[str]]]:
    """The lines where code looks in a set for an element type, with the set."""
    line, before = code.co_firstlineno, list[dis.Instruction]()
    for each in dis.get_instructions(code):
        # Since Python 3.13 `starts_line` says only whether one starts.
        line = getattr(each, "line_number", None) or (each.starts_line if each.starts_line is not True else 0) or line
        if each.opname in _NOTHING:
            continue
        if each.opname == "CONTAINS_OP" and len(before) == 3:
            names = before[-1].argval
            if isinstance(names, frozenset) and names <= _NAMES and _is_dtype(*before[:2]):
                yield line, names
        before = [*before[-2:], each]
    for const in code.co_consts:
        if isinstance(const, CodeType):
            yield from _sets(const)


def _is_dtype(before: dis.Instruction, last: dis.Instruction) -> bool:
    """Whether these instructions end with ``x.dtype``, ``op.attr("dtype")`` or ``op.attrs["dtype"]``."""
    if last.opname == "LOAD_ATTR":
        return bool(last.argval == "dtype")
    is_call = last.opname.startswith(("CALL", "BINARY"))
    return is_call and before.opname == "LOAD_CONST" and before.argval in DTYPE_ATTRS
