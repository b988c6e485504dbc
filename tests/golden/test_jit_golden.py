"""Recorded programs of the original, run with compiled loops for every array, however small."""

import pytest
from golden_programs import run_case
from jit_support import needs_numba
from test_golden_programs import CASES, check_arrays
from test_golden_programs import pytestmark as ignored_warnings

from minigraph.kernels.jit import compiling

pytestmark = [pytest.mark.numbers, *ignored_warnings, needs_numba]


@pytest.fixture(autouse=True)
def _compiles(always_compiled, monkeypatch):
    monkeypatch.setenv("MINIGRAPH_JIT", "on")


@pytest.mark.laws
@pytest.mark.parametrize("name", CASES)
def test_values_are_those_of_the_original(name):
    case, _ = CASES[name]
    check_arrays(name, run_case(case["builder"], case["arguments"]).arrays)


def test_loops_are_compiled_for_them(monkeypatch):
    monkeypatch.setattr(compiling, "_compiled", {})
    case = next(case for case, _ in CASES.values() if case["arguments"].get("opt") == "Adam")
    run_case(case["builder"], case["arguments"])
    assert "adam" in {loop for _, loop, _ in compiling._compiled}
