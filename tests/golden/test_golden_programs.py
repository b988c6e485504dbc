"""Programs with the results that they had on Paddle 1.8.5, value by value and operator by operator."""

import json
from functools import cache
from pathlib import Path

import golden_arrays
import golden_models  # noqa: F401
import numpy as np
import pytest
from golden_programs import BUILDERS, run_case

from minigraph.io.marks import FOLDER_MARK
from minigraph.io.state_dicts import MARK_SUFFIX

FOLDER = Path(__file__).parent / "programs"
RECORDING = json.loads((FOLDER / "cases.json").read_text(encoding="utf-8"))
TOLERANCES = {"float32": (1e-4, 1e-5), "float64": (1e-8, 1e-10)}
"""Relative and absolute, by dtype; integers and booleans must be equal."""

pytestmark = [
    pytest.mark.numbers,
    # Both are said on purpose: fluid has the same precedence, and the same sums of targets.
    pytest.mark.filterwarnings("ignore:the optimizer's grad_clip wins over set_gradient_clip"),
    pytest.mark.filterwarnings("ignore:gradients. another target depends on the target"),
    pytest.mark.filterwarnings("ignore:as in fluid 1.8.5, Ftrl takes l1"),
    pytest.mark.filterwarnings("ignore:backward does nothing"),  # in eval mode inside a guard, as in fluid
]


ARRAYS = iter(golden_arrays.in_a_row(FOLDER, [spec for case in RECORDING["cases"] for spec in case["arrays"].values()]))
CASES = {case["id"]: (case, {name: next(ARRAYS) for name in case["arrays"]}) for case in RECORDING["cases"]}


@cache
def outcome_of(name):
    """Each case is run once, for both tests."""
    case, _ = CASES[name]
    return run_case(case["builder"], case["arguments"])


def check_arrays(name, found, except_for=()):
    case, recorded = CASES[name]
    assert sorted(found) == sorted(recorded)
    tolerances = case.get("tolerances", {})
    for key, expected in recorded.items():
        if key in except_for:
            continue
        default = TOLERANCES.get(str(expected.dtype), (0.0, 0.0))
        rtol, atol = tolerances.get(key, tolerances.get("*", default))
        assert (found[key].dtype, found[key].shape) == (expected.dtype, expected.shape), key
        np.testing.assert_allclose(found[key], expected, rtol=rtol, atol=atol, err_msg=f"{name}: {key}")


@pytest.mark.laws
@pytest.mark.parametrize("name", CASES)
def test_values_are_those_of_the_original(name):
    check_arrays(name, outcome_of(name).arrays)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, (case, _) in CASES.items() if case["programs"]])
def test_operators_are_those_of_the_original(name):
    case, _ = CASES[name]
    found = outcome_of(name).programs
    assert sorted(found) == sorted(case["programs"])
    for key, number in case["programs"].items():
        assert without_slots(found[key]) == without_slots(RECORDING["programs"][number]), key


def without_slots(lines):
    """The lines without what docs/differences.md lists: other inputs of an operator, and files that mark a save."""
    return [
        "group_norm_grad" if line.startswith("group_norm_grad ") else line
        for line in lines
        if not line.endswith((FOLDER_MARK, MARK_SUFFIX))
    ]


def test_every_builder_has_a_recording():
    assert {case["builder"] for case, _ in CASES.values()} == set(BUILDERS)


INDICES_OF_TIES = {("layer_chain_00", "2")}
"""Results of `top_k` on equal elements, whose order a processor has from fluid and a GPU from their positions."""


@pytest.mark.gpu
@pytest.mark.parametrize("builder", sorted(BUILDERS.keys() - {"readers"}))
def test_values_are_those_of_the_original_on_a_gpu(builder, cuda_place):
    for name, (case, _) in CASES.items():
        if case["builder"] == builder:
            found = run_case(builder, case["arguments"], cuda_place).arrays
            check_arrays(name, found, except_for={key for case_name, key in INDICES_OF_TIES if case_name == name})
