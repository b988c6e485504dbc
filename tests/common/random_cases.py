"""Random programs with finite results, run by an executor and compared with the interpreter."""

from random import Random

import numpy as np

import minigraph as fluid
from minigraph.errors import MinigraphError
from minigraph.kernels import find_kernel
from minigraph.rewrite.cases import MOST_LOOPS, Rounding, arrays_of, bounded_loops, is_finite
from minigraph.rewrite.checking import _case
from minigraph.rewrite.hints import hints_of
from minigraph.rewrite.random_programs.drawing import draw

RUNS = 3
"""The first runs the plan, the second and third may launch a recording of it."""

NO_HINTS = hints_of(lambda program: False, ())


def drawn_case(seed, hints=NO_HINTS):
    """A case with finite results and without random numbers, which places draw differently; None if there is none."""
    choose = Random(seed)
    drawn = draw(choose, hints)
    ops = [op for block in drawn.program.blocks for op in block.ops]
    kernels = [find_kernel(op.type, "cpu") for op in ops]
    # Cases with collectives are of several ranks.
    if any(op.type.startswith("c_") for op in ops) or any(each is not None and each.takes_rng for each in kernels):
        return None
    for kind in ("mixed", "positive", "positive"):
        case = _case(drawn, choose.randrange(2**32), kind)
        try:
            if is_finite(case.results):
                return case
        except MinigraphError:  # drawn operands that do not fit, which the interpreter refuses
            return None
    return None


def scope_of(case, place=None):
    scope = fluid.Scope()
    for name, value in case.state.items():
        scope.var(name).get_tensor().set(value.copy(), place or fluid.CPUPlace())
    return scope


def difference(case, executor):
    """The name of a value that an executor computes otherwise than the interpreter in one of several runs; None if
    there is none."""
    scope, names = fluid.Scope(), list(case.program.roots or ())
    for _ in range(RUNS):
        for name, value in case.state.items():
            scope.var(name).get_tensor().set(value.copy(), executor.place)
        with bounded_loops(MOST_LOOPS):
            fetched = executor.run(case.program, dict(case.feed), names, scope=scope, return_numpy=False)
        found = {name: arrays_of(value) for name, value in zip(names, fetched, strict=True)}
        found.update({f"new {name}": arrays_of(scope.var(name).get_tensor()) for name in case.state})
        expected = {name: case.results[name] for name in found}
        different = Rounding(case, expected).difference(found)
        if different is not None and not is_cancelled(case, found[different], expected[different]):
            return different
    return None


def is_cancelled(case, found, expected):
    """Whether results differ by at most 1e-12 of the largest input: cancellation has left rounding only."""
    largest = max(np.abs(array).max(initial=0) for array in (*case.feed.values(), *case.state.values()))
    return all(
        one.shape == other.shape and np.abs(one - other).max(initial=0) <= 1e-12 * largest
        for one, other in zip(found, expected, strict=True)
    )
