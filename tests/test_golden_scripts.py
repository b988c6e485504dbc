"""Scripts written for fluid 1.8 run as they are, and give the numbers and the operators of Paddle 1.8.5."""

import json

import numpy as np
import pytest
from golden_scripts import FOLDER, SCRIPTS, run

import minigraph as fluid

OPERATORS = json.loads((FOLDER / "operators.json").read_text())


@pytest.fixture(scope="module")
def recorded():
    with np.load(FOLDER / "arrays.npz") as file:
        by_script = {name: {} for name in SCRIPTS}
        for key in file.files:
            name, _, what = key.partition("/")
            by_script[name][what] = file[key]
    return by_script


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_gives_what_it_gave_with_the_original(name, recorded):
    found, operators = run(fluid, name)
    assert operators == OPERATORS[name]
    assert sorted(found) == sorted(recorded[name])
    for key, array in recorded[name].items():
        assert (found[key].dtype, found[key].shape) == (array.dtype, array.shape), key
        np.testing.assert_allclose(found[key], array, rtol=1e-4, atol=1e-5, err_msg=key)
