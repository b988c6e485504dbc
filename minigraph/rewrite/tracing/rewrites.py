"""Name of a rewrite, and where it is written."""

from __future__ import annotations

import inspect
from functools import cache
from typing import Any

from minigraph.errors import Site


def label(rewrite: Any) -> str:
    """Name of a pass, a rule, a function, or an object such as an optimizer."""
    if isinstance(rewrite, str):
        return rewrite
    name = getattr(rewrite, "name", None)
    if isinstance(name, str):
        return name
    return rewrite.__name__ if inspect.isroutine(rewrite) else type(rewrite).__name__


def site_of(rewrite: Any) -> Site | None:
    """Line where it is written; a rule has its own."""
    if isinstance(rewrite, str):
        return None
    site = getattr(rewrite, "site", None)
    written: Any = rewrite if inspect.isroutine(rewrite) else type(rewrite)
    return site if isinstance(site, Site) else _definition(written)


@cache
def _definition(written: Any) -> Site | None:
    """Line of the ``class`` or ``def``."""
    original = inspect.unwrap(written)
    try:
        lines, first = inspect.getsourcelines(original)
        filename = inspect.getsourcefile(original)
    except (OSError, TypeError):  # typed at a prompt
        return None
    decorators = next((at for at, line in enumerate(lines) if line.lstrip().startswith(("class ", "def "))), 0)
    return Site(filename, first + decorators) if filename else None
