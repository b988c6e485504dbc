"""Scripts written for fluid 1.8 run as they are, and give the numbers and the operators of Paddle 1.8.5."""

import json

import golden_arrays
import numpy as np
import pytest
from golden_program_scripts import SCRIPTS
from golden_scripts import FOLDER, run

import minigraph as fluid

pytestmark = pytest.mark.numbers

OPERATORS = json.loads((FOLDER / "operators.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def recorded():
    return golden_arrays.by_case(FOLDER, SCRIPTS)


@pytest.mark.slow
@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_gives_what_it_gave_with_the_original(name, recorded):
    found, operators = run(fluid, name)
    assert operators == OPERATORS[name]
    assert sorted(found) == sorted(recorded[name])
    for key, array in recorded[name].items():
        assert (found[key].dtype, found[key].shape) == (array.dtype, array.shape), key
        np.testing.assert_allclose(found[key], array, rtol=1e-4, atol=1e-5, err_msg=key)


def test_vectors_that_are_almost_zero_are_not_turned():
    with fluid.program_guard(fluid.Program()):
        x, y = (fluid.data(name, [3, 2], "float64") for name in "xy")
        x.stop_gradient = y.stop_gradient = False
        out = fluid.layers.cos_sim(x, y)
        gradients = fluid.gradients(fluid.layers.reduce_sum(out), [x, y])
        short, long = np.array([[0, 0], [1e-5, 0], [3e-5, 4e-5]]), np.array([[3.0, 4.0]] * 3)
        found, d_x, d_y = fluid.Executor().run(feed={"x": short, "y": long}, fetch_list=[out, *gradients])
    np.testing.assert_allclose(found[:, 0], (short * long).sum(1) / (1e-4 * 5))
    np.testing.assert_allclose(d_x, long / (1e-4 * 5))
    tangent = short - long * (short * long).sum(1, keepdims=True) / 25
    np.testing.assert_allclose(d_y, tangent / (1e-4 * 5), atol=1e-12)
