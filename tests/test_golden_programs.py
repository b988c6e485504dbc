"""Programs with the results that they had on Paddle 1.8.5, value by value and operator by operator."""

import json
from pathlib import Path

import numpy as np
import pytest
from golden_programs import BUILDERS, run_case

FOLDER = Path(__file__).parent / "golden" / "programs"
RECORDING = json.loads((FOLDER / "cases.json").read_text())
TOLERANCES = {"float32": (1e-4, 1e-5), "float64": (1e-8, 1e-10)}
"""Relative and absolute, by dtype; integers and booleans must be equal."""


def with_arrays(cases):
    """The cases, each with the arrays recorded for it; the file holds all of one dtype in a row."""
    start = {}
    with np.load(FOLDER / "arrays.npz") as file:
        stored = {dtype: file[dtype] for dtype in file.files}
    for case in cases:
        arrays = {}
        for name, (dtype, shape) in case["arrays"].items():
            first = start.get(dtype, 0)
            start[dtype] = first + int(np.prod(shape))
            arrays[name] = stored[dtype][first : start[dtype]].reshape(shape)
        yield case, arrays
    assert start == {dtype: len(values) for dtype, values in stored.items()}, "cases.json and arrays.npz disagree"


CASES = {case["id"]: (case, arrays) for case, arrays in with_arrays(RECORDING["cases"])}


@pytest.fixture(scope="module")
def outcome_of():
    """Each case is run once, for both tests."""
    outcomes = {}

    def run(name):
        case, _ = CASES[name]
        if name not in outcomes:
            outcomes[name] = run_case(case["builder"], case["arguments"])
        return outcomes[name]

    return run


@pytest.mark.parametrize("name", CASES)
def test_values_are_those_of_the_original(name, outcome_of):
    case, recorded = CASES[name]
    found = outcome_of(name).arrays
    assert sorted(found) == sorted(recorded)
    tolerances = case.get("tolerances", {})
    for key, expected in recorded.items():
        default = TOLERANCES.get(str(expected.dtype), (0.0, 0.0))
        check_close(key, found[key], expected, *tolerances.get(key, tolerances.get("*", default)))


def check_close(name, found, expected, rtol, atol):
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape), name
    np.testing.assert_allclose(found, expected, rtol=rtol, atol=atol, err_msg=name)


@pytest.mark.parametrize("name", [name for name, (case, _) in CASES.items() if case["programs"]])
def test_operators_are_those_of_the_original(name, outcome_of):
    case, _ = CASES[name]
    found = outcome_of(name).programs
    assert sorted(found) == sorted(case["programs"])
    for key, number in case["programs"].items():
        assert found[key] == RECORDING["programs"][number], key


def test_every_builder_has_a_recording():
    assert {case["builder"] for case in RECORDING["cases"]} == set(BUILDERS)


@pytest.mark.gpu
@pytest.mark.parametrize("name", [name for name, (case, _) in CASES.items() if case["builder"] != "readers"])
def test_values_are_those_of_the_original_on_a_gpu(name, cuda_place):
    case, recorded = CASES[name]
    found = run_case(case["builder"], case["arguments"], cuda_place).arrays
    tolerances = case.get("tolerances", {})
    for key, expected in recorded.items():
        default = TOLERANCES.get(str(expected.dtype), (0.0, 0.0))
        check_close(key, found[key], expected, *tolerances.get(key, tolerances.get("*", default)))
