"""Layer functions give the operators and the numbers that they gave in Paddle 1.8.5."""

import json

import numpy as np
import pytest
from golden_layers import CASES, FOLDER, run

import minigraph as fluid

OPERATORS = json.loads((FOLDER / "operators.json").read_text())


@pytest.fixture(scope="module")
def recorded():
    with np.load(FOLDER / "arrays.npz") as file:
        by_case = {name: {} for name in CASES}
        for key in file.files:
            name, _, what = key.partition("/")
            by_case[name][what] = file[key]
    return by_case


def check(name, found, expected):
    assert sorted(found) == sorted(expected)
    for key, array in expected.items():
        assert (found[key].dtype, found[key].shape) == (array.dtype, array.shape), key
        if array.dtype.kind == "f":
            tolerance = 1e-9 if array.dtype == np.float64 else 2e-5
            np.testing.assert_allclose(found[key], array, rtol=tolerance, atol=tolerance / 10, err_msg=key)
        else:
            assert np.array_equal(found[key], array), key


@pytest.mark.parametrize("name", CASES)
def test_a_layer_gives_what_the_original_gave(name, recorded):
    found, lines = run(fluid, name)
    check(name, found, recorded[name])
    assert lines == OPERATORS[name]
