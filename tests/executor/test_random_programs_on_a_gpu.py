"""Random programs run on a GPU, or on a stand-in for one, as the interpreter runs them on the processor."""

import numpy as np
import pytest
from host_cuda import needs_compiler
from random_cases import difference, drawn_case, scope_of

import minigraph as fluid
from minigraph.errors import MinigraphError


def runs_on_a_processor(case):
    """Whether an executor takes the arrays: it refuses some of another shape than declared."""
    try:
        fluid.Executor().run(case.program, dict(case.feed), list(case.program.roots or ()), scope=scope_of(case))
    except MinigraphError:
        return False
    return True


def check_many(numbers, place):
    with np.errstate(all="ignore"):
        drawn = ((number, drawn_case(f"gpu/{number}")) for number in numbers)
        cases = {number: case for number, case in drawn if case is not None and runs_on_a_processor(case)}
        assert len(cases) > len(numbers) / 5
        for number, case in cases.items():
            try:
                found = difference(case, fluid.Executor(place))
            except Exception as error:
                raise AssertionError(f"gpu/{number}:\n{case.program}") from error
            assert found is None, f"gpu/{number}: {found}\n{case.program}"


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
