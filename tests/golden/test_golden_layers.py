"""Layer functions give the operators and the numbers that they gave in Paddle 1.8.5."""

import json

import golden_arrays
import golden_dygraph
import numpy as np
import pytest
from golden_layers import CASES, FOLDER, WRITTEN_OTHERWISE, run

import minigraph as fluid
from minigraph.errors import ExecutionError, ProgramError

pytestmark = pytest.mark.numbers

OPERATORS = json.loads((FOLDER / "operators.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def recorded():
    return golden_arrays.by_case(FOLDER, CASES)


def check(found, expected, atol=lambda array, tolerance: tolerance / 10):
    assert sorted(found) == sorted(expected)
    for key, array in expected.items():
        assert (found[key].dtype, found[key].shape) == (array.dtype, array.shape), key
        if array.dtype.kind == "f":
            tolerance = 1e-9 if array.dtype == np.float64 else 2e-5
            np.testing.assert_allclose(found[key], array, rtol=tolerance, atol=atol(array, tolerance), err_msg=key)
        else:
            assert np.array_equal(found[key], array), key


@pytest.mark.laws
@pytest.mark.parametrize("name", CASES)
def test_a_layer_gives_what_the_original_gave(name, recorded):
    found, lines = run(fluid, name)
    check(found, recorded[name])
    assert lines == OPERATORS[name] or name.startswith(tuple(WRITTEN_OTHERWISE))


@pytest.mark.parametrize("name", golden_dygraph.CASES)
def test_a_layer_of_the_imperative_mode_gives_what_the_original_gave(name):
    with np.load(golden_dygraph.FILE) as file:
        recorded = {key.partition("/")[2]: file[key] for key in file.files if key.partition("/")[0] == name}
    # Sums of many terms: what they round is about their size, not that of each result.
    check(golden_dygraph.run(fluid, name), recorded, lambda array, tolerance: tolerance * max(1, np.abs(array).max()))


def test_layers_that_make_no_sense_are_refused():
    with fluid.dygraph.guard():
        for make, message in (
            (lambda d: d.MSELoss("average"), "reduction must be mean, sum or none"),
            (lambda d: d.PRelu("channel"), "needs the argument channel"),
            (lambda d: d.GRUUnit(4), "three times the number of units"),
            (lambda d: d.Conv2DTranspose(2, 3, 3, groups=2), "cannot be split into 2 groups"),
        ):
            with pytest.raises(ProgramError, match=message):
                make(fluid.dygraph)
        scores, label = fluid.dygraph.to_variable(np.zeros((1, 3), "float32")), np.array([3])
        with pytest.raises(ExecutionError, match=r"Label must be in \[0, 3\)"):
            fluid.dygraph.NLLLoss()(scores, fluid.dygraph.to_variable(label))
