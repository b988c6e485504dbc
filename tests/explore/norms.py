"""Norms and sums of squares: 2 units of the last place from exact rational arithmetic at most, by whatever road."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from exact_norms import exact_norm, power_sum, root, units_away
from one_op import append

import minigraph as fluid
from explore.shrinking import smallest
from minigraph.comparison.statistics import l2_norm
from minigraph.kernels.jit.compiling import is_available

UNITS = 2
"""Largest distance of a norm."""

SHARE = 1e-8
"""Largest relative error of a sum of squares."""

EDGES = (128, 1024, 4096, 8192, 16_384, 65_536, 131_072)
"""Around these sizes something changes: a block ends, threads start."""

Found = Iterator[tuple[str, np.generic, Fraction]]
"""What was computed, with its name and the exact number."""


@dataclass(frozen=True)
class Problem:
    """Arrays of a type, and whether loops are compiled for them."""

    dtype: str
    sizes: tuple[int, ...]
    values: str
    exponent: float
    seed: int
    road: str
    jit: bool

    def arrays(self) -> list[np.ndarray]:
        rng, most = np.random.default_rng(self.seed), float(np.finfo(self.dtype).max)
        drawn = [VALUES[self.values](rng, size) * 10.0**self.exponent for size in self.sizes]
        return [np.clip(x, -most, most).astype(self.dtype) for x in drawn]

    def wrong(self) -> list[str]:
        """What is too far from the exact numbers."""
        executor, found = fluid.Executor(jit=self.jit), []
        with np.errstate(over="ignore"):
            for name, value, exact in ROADS[self.road](self.arrays(), executor):
                if name == "sum of squares":
                    if abs(Fraction(float(value)) - exact) > exact * Fraction(SHARE) + _unit(value):
                        found.append(f"{name}: {value!r}, exactly {float(exact)!r}")
                elif not (units := units_away(value, exact)) <= UNITS:
                    found.append(f"{name}: {value!r}, exactly {float(exact)!r}: {units:.2f} units away")
        return found


VALUES: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "normal": lambda rng, size: rng.standard_normal(size),
    "equal": lambda rng, size: np.full(size, rng.choice([0.1, 0.7, 1 / 3, rng.uniform(0.1, 1)])),
    "many magnitudes": lambda rng, size: rng.standard_normal(size) * 10.0 ** rng.uniform(-3, 3, size),
    "one large": lambda rng, size: np.concatenate([[rng.uniform(1, 300)], np.full(size - 1, rng.uniform(0, 1))]),
    "two in turn": lambda rng, size: np.resize(rng.uniform(0.01, 1, 2), size),
}


def _run(executor: fluid.Executor, type: str, inputs, slot: str, **attrs) -> np.ndarray:
    program, variables, feed = append(type, inputs, **attrs)
    return executor.run(program, feed=feed, fetch_list=[variables[slot][0]])[0]


def _joint(p: float) -> Callable[[Sequence[np.ndarray], fluid.Executor], Found]:
    def road(arrays, executor):
        exact, inputs = exact_norm(arrays, p), {"X": list(arrays)}
        yield "global_norm", _run(executor, "global_norm", inputs, "Out", p=p)[0], exact
        inputs["ClipNorm"] = np.ones(1, arrays[0].dtype)
        for type in ("clip_by_global_norm", "clip_factor"):
            yield type, _run(executor, type, inputs, "Norm", p=p)[0], exact

    return road


def _along(axis: int, p: float) -> Callable[[Sequence[np.ndarray], fluid.Executor], Found]:
    def road(arrays, executor):
        for x in arrays:
            lines = np.resize(x, (3, x.size)) if axis else np.resize(x, (3, x.size)).T.copy()
            exact = [exact_norm([line], p) for line in (lines if axis else lines.T)]
            for i, found in enumerate(
                _run(executor, "p_norm", {"X": lines}, "Out", porder=p, axis=axis, keepdim=False)
            ):
                yield f"p_norm {i}", found, exact[i]

    return road


def _single(arrays, executor) -> Found:
    for x in arrays:
        squares = power_sum(x)
        yield "l1_norm", _run(executor, "l1_norm", {"X": x}, "Out")[0], exact_norm([x], 1)
        found = _run(executor, "norm", {"X": x.reshape(1, -1)}, "Norm", axis=1, epsilon=1e-10)
        yield "norm", found.reshape(-1)[0], root(squares + Fraction(float(np.float32(1e-10))))
        found = _run(executor, "squared_l2_norm", {"X": x}, "Out")[0]
        if np.isfinite(found):
            yield "sum of squares", found, squares
    dtype = np.result_type(np.float32, arrays[0])  # in float64 it is as exact as those of the arrays' type
    yield "l2_norm", dtype.type(l2_norm(*arrays)), exact_norm(arrays)


ROADS = {
    **{f"joint {p:g}": _joint(p) for p in (1.0, 2.0, 3.0, math.inf)},
    **{f"rows {p:g}": _along(1, p) for p in (1.0, 2.0, 3.0)},
    **{f"columns {p:g}": _along(0, p) for p in (1.0, 2.0)},
    "single": _single,
}
"""Ways to a norm."""


def case(seed: int) -> None:
    """Compare the norms of some arrays."""
    problem = draw(random.Random(seed))
    if problem.wrong():
        found = smallest(problem, lambda each: bool(each.wrong()), simpler)
        raise AssertionError("\n".join([str(found), *found.wrong()]))


def draw(choose: random.Random) -> Problem:
    """A problem, as `choose` has it."""
    dtype = choose.choice(["float16", "float32", "float64"])
    low, high = {"float16": (-3, 2), "float32": (-30, 30), "float64": (-250, 250)}[dtype]
    road = choose.choice(list(ROADS))
    most = 100_000 if road.startswith(("rows", "columns")) else 300_000
    sizes = [round(math.exp(choose.uniform(0, math.log(most)))) for _ in range(choose.choice([1, 1, 2, 5]))]
    if choose.random() < 0.3:
        sizes[0] = min(most, choose.choice(EDGES) + choose.choice([-1, 0, 1]))
    return Problem(
        dtype=dtype,
        sizes=tuple(sizes),
        values=choose.choice(list(VALUES)),
        exponent=choose.choice([0.0, choose.uniform(low, high)]),
        seed=choose.randrange(2**16),
        road=road,
        jit=is_available() and choose.random() < 0.5,
    )


def simpler(problem: Problem) -> Iterator[Problem]:
    """Problems that are a little simpler."""
    if problem.exponent:
        yield replace(problem, exponent=0.0)
    sizes = problem.sizes
    for i, size in enumerate(sizes):
        if len(sizes) > 1:
            yield replace(problem, sizes=sizes[:i] + sizes[i + 1 :])
        for less in (size // 2, size - size // 8, size - 1):
            if 0 < less < size:
                yield replace(problem, sizes=(*sizes[:i], less, *sizes[i + 1 :]))


def _unit(value: np.generic) -> Fraction:
    return Fraction(float(np.spacing(np.abs(value))))
