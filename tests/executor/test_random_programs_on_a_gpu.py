"""Random programs run on a GPU, or on a stand-in for one, as the interpreter runs them on the processor."""

from random import Random

import numpy as np
import pytest
from host_cuda import needs_compiler

import minigraph as fluid
from minigraph.errors import MinigraphError
from minigraph.kernels import find_kernel
from minigraph.rewrite.cases import MOST_LOOPS, Rounding, arrays_of, bounded_loops, is_finite
from minigraph.rewrite.checking import _case
from minigraph.rewrite.hints import hints_of
from minigraph.rewrite.random_programs.drawing import draw

RUNS = 3
"""The first runs the plan, the second and third may launch a recording of it."""


def case_of(seed):
    """A case with finite results and without random numbers, which places draw differently; None if there is none."""
    choose = Random(seed)
    drawn = draw(choose, hints_of(lambda program: False, ()))
    kernels = [find_kernel(op.type, "cpu") for block in drawn.program.blocks for op in block.ops]
    if any(kernel is not None and kernel.takes_rng for kernel in kernels):
        return None
    for kind in ("mixed", "positive", "positive"):
        case = _case(drawn, choose.randrange(2**32), kind)
        try:
            if is_finite(case.results):
                fluid.Executor().run(
                    case.program, dict(case.feed), list(case.program.roots or ()), scope=scope_of(case)
                )
                return case
        except MinigraphError:  # such as arrays of another shape than declared, which executors refuse
            return None
    return None


def scope_of(case, place=None):
    scope = fluid.Scope()
    for name, value in case.state.items():
        scope.var(name).get_tensor().set(value.copy(), place or fluid.CPUPlace())
    return scope


def check(case, place):
    executor, scope = fluid.Executor(place), fluid.Scope()
    names = list(case.program.roots or ())
    for _ in range(RUNS):
        for name, value in case.state.items():
            scope.var(name).get_tensor().set(value.copy(), place)
        with bounded_loops(MOST_LOOPS):
            fetched = executor.run(case.program, dict(case.feed), names, scope=scope, return_numpy=False)
        found = {name: arrays_of(value) for name, value in zip(names, fetched, strict=True)}
        found.update({f"new {name}": arrays_of(scope.var(name).get_tensor()) for name in case.state})
        expected = {name: case.results[name] for name in found}
        different = Rounding(case, expected).difference(found)
        assert different is None or is_cancelled(case, found[different], expected[different])


def is_cancelled(case, found, expected):
    """Whether results differ by at most 1e-12 of the largest input: cancellation has left rounding only."""
    largest = max(np.abs(array).max(initial=0) for array in (*case.feed.values(), *case.state.values()))
    return all(
        one.shape == other.shape and np.abs(one - other).max(initial=0) <= 1e-12 * largest
        for one, other in zip(found, expected, strict=True)
    )


def check_many(numbers, place):
    with np.errstate(all="ignore"):
        cases = {number: case_of(f"gpu/{number}") for number in numbers}
        assert sum(case is not None for case in cases.values()) > len(cases) / 5
        for number, case in cases.items():
            if case is not None:
                try:
                    check(case, place)
                except Exception as error:
                    raise AssertionError(f"gpu/{number}:\n{case.program}") from error


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:cuda_graph")
@pytest.mark.parametrize("block", range(40))
def test_programs_give_the_same_numbers_on_a_gpu(block, cuda_place):
    check_many(range(block * 25, block * 25 + 25), cuda_place)


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize("block", range(8))
def test_programs_give_the_same_numbers_on_the_stand_in(block, strict_host_cuda):
    check_many(range(block * 25, block * 25 + 25), fluid.CUDAPlace(0))
