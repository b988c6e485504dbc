"""Numbers to run programs on, which depend on the names of variables only, and results."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from minigraph.ir import Program
from minigraph.rewrite.cases import Case


def outcome(program: Program, feed: Mapping[str, Any] | None = None, fetch: Iterable[str] = ()) -> dict[str, Any]:
    """Run a program once, with some arrays given; return what is fetched, and the new state."""
    fetching = program.clone()
    fetching.roots = tuple(fetch)
    results = Case(fetching, {**feed_of(program), **(feed or {})}, state_of(program)).run()
    return {name.removeprefix("new "): arrays[0] for name, arrays in results.items()}


def case_of(program: Program) -> Case:
    """Return the program with arrays for what it is fed and for its state."""
    return Case(program, feed_of(program), state_of(program))


def feed_of(program: Program) -> dict[str, Any]:
    """Return an array for each name that is fed."""
    fed = [var for var in program.global_block().vars.values() if var.is_data]
    return {var.name: numbers(var.name, var.shape, var.dtype.numpy, negative=True) for var in fed}


def state_of(program: Program) -> dict[str, Any]:
    """Return an array for each persistable variable."""
    kept = [var for var in program.global_block().vars.values() if var.persistable]
    return {var.name: numbers(var.name, var.shape, var.dtype.numpy) for var in kept}


def numbers(name: str, shape: Iterable[int] | None, dtype: Any, negative: bool = False) -> Any:
    """Return an array that belongs to a name; an unknown dimension is 3, an integer 0 or 1."""
    random = np.random.default_rng(zlib.crc32(name.encode()))
    dims = [3 if dim < 0 else dim for dim in shape or ()]
    if np.dtype(dtype).kind != "f":
        return random.integers(0, 2, dims).astype(dtype)
    return random.uniform(-1.5 if negative else 0.1, 1.5, dims).astype(dtype)


def first_difference(expected: Mapping[str, Any], found: Mapping[str, Any], tolerance: float = 0.0) -> str:
    """Say which result differs by more than `tolerance`, and how; empty if none does."""
    for name, value in expected.items():
        if not np.allclose(found[name], value, tolerance, tolerance):
            return f"{name} is {found[name].round(4).tolist()} and not {value.round(4).tolist()}."
    return ""
