"""Drawn programs, and arrays for them: ordinary numbers, and the edges of the arithmetic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from minigraph.errors import MinigraphError
from minigraph.ir import Program, VarKind
from minigraph.ir.versions import types_in_order
from minigraph.rewrite.random_programs.free_steps import CLASSES

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Drawn:
    """A program, with `Program.roots` set to what is fetched, and how to feed it."""

    program: Program
    rows: int
    """Size of unknown dimensions."""
    fixed: Mapping[str, Array]
    """Arrays that certain inputs need, by name."""


_NEAR = ((2.0**-30, 2**53), (2.0**-26, 2**24), (2.0**-12, 2**8), (0.25, 1))
"""Distances of floating numbers around 1, and whole numbers around which others lie: float32 has not all numbers of
the first two rows, float16 and 8 bits not those of the third, and whole numbers not those of the last."""

_SPECIAL = (0.0, -0.0, np.inf, -np.inf, np.nan, -1.0)


def arrays_for(drawn: Drawn, program: Program, seed: int, kind: str) -> dict[str, Array]:
    """Arrays for all that comes from outside: what is fed and what is persistable.

    Parameters
    ----------
    kind : str
        ``mixed`` and ``positive``: ordinary numbers of both signs or of one. ``edges``: among them zeros of both signs,
        subnormal numbers, the largest, infinities and NaN; among whole numbers negative and the largest ones. ``near``:
        numbers that lie so close together that a conversion to another dtype makes some of them equal. ``limits``: odd
        multiples of the smallest subnormal number, which a half of loses a bit, and numbers that twice of is infinite.
    """
    random = np.random.default_rng(seed)
    found, scale = {}, int(random.integers(len(_NEAR))) if kind == "near" else 0
    for name, var in program.global_block().vars.items():
        if (var.is_data or var.persistable) and var.tensor_type is not None and var.kind is VarKind.LOD_TENSOR:
            shape = tuple(drawn.rows if dim < 0 else dim for dim in var.tensor_type.shape)
            given = drawn.fixed.get(name)
            if given is None and kind == "near" and var.dtype.numpy.kind != "b":
                given = _near(random, shape, var.dtype.numpy, *_NEAR[scale])
            found[name] = given if given is not None else _array(random, name, shape, var.dtype.numpy, kind)
    return found


def _array(random: np.random.Generator, name: str, shape: tuple[int, ...], dtype: Any, kind: str) -> Array:
    if dtype.kind == "b":
        return random.random(shape) < 0.5
    if dtype.kind in "iu":
        values = random.integers(0, random.choice((1, 2, CLASSES, CLASSES)), shape).astype(dtype)
        if kind == "edges" and random.random() < 0.5:  # numbers that no index or label has
            limits = np.iinfo(dtype)
            special = np.array([-1, -2, -7, limits.min, limits.max - 1, limits.max]).astype(dtype)
            values = np.where(random.random(shape) < 0.6, _some(random, special, shape), values)
        return values
    if "learning_rate" in name:
        return np.full(shape, 0.05, dtype)
    if kind == "limits":
        return _at_limits(random, shape, np.finfo(dtype)).astype(dtype)
    if kind == "positive" or "pow_acc" in name:
        return random.uniform(0.1, 0.9, shape).astype(dtype)
    values = random.uniform(-1.5, 1.5, shape).astype(dtype)
    if kind == "edges":
        about = np.finfo(dtype)
        near = [about.max, about.eps, about.smallest_subnormal, about.tiny, 1.0, 1 + about.eps]
        special = np.array([*_SPECIAL, *near], dtype)
        values = np.where(random.random(shape) < 0.4, _some(random, special, shape), values)
    return values


def _near(random: np.random.Generator, shape: tuple[int, ...], dtype: Any, step: float, around: int) -> Array:
    """Numbers around one that all arrays of a run have in common."""
    steps = random.integers(-2, 3, shape)
    if dtype.kind == "f":
        return np.asarray(1 + max(step, np.finfo(dtype).eps) * steps).astype(dtype)
    return np.asarray(around % np.iinfo(dtype).max + steps).astype(dtype)


def _at_limits(random: np.random.Generator, shape: tuple[int, ...], about: Any) -> Array:
    """Numbers of both signs that a factor of a power of two need not keep exact."""
    odd = (2 * random.integers(0, 9, shape) + 1).astype(about.dtype)
    large = about.max * (1 - odd * about.eps)
    values = np.where(random.random(shape) < 0.25, large, odd * about.smallest_subnormal)
    return np.asarray(np.where(random.random(shape) < 0.5, -values, values))


def _some(random: np.random.Generator, special: Array, shape: tuple[int, ...]) -> Array:
    """Draw of special numbers; for some arrays of the last two, which differ in the last place, or of those before."""
    chance = random.random()
    return random.choice(special[-2:] if chance < 0.25 else special[-4:-2] if chance < 0.35 else special, shape)


def is_accepted(program: Program) -> bool:
    """Whether the types fit that results have after all operators were appended.

    Sizes that were open when an operator was appended may be known later: a gradient of a gradient replaces operators
    by others, of whose results inference knows more.
    """
    try:
        for block in program.blocks:
            for _ in types_in_order(block):
                pass
    except MinigraphError:
        return False
    return True
