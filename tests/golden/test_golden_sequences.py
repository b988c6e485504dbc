"""Layers and programs on sequences of different lengths give the operators and numbers of Paddle 1.8.5."""

import json

import golden_arrays
import golden_sequence_applications
import golden_sequence_programs
import golden_sequences
import numpy as np
import pytest
from golden_layers import WRITTEN_OTHERWISE

import minigraph as fluid

pytestmark = pytest.mark.numbers

OPERATORS = json.loads((golden_sequences.FOLDER / "operators.json").read_text(encoding="utf-8"))
OF_PROGRAMS = (golden_sequence_programs, golden_sequence_applications)
PROGRAMS = [(module, name) for module in OF_PROGRAMS for name in module.CASES]


@pytest.fixture(scope="module")
def recorded():
    return golden_arrays.by_case(golden_sequences.FOLDER, golden_sequences.CASES)


@pytest.fixture(scope="module")
def recorded_programs():
    found = {}
    for module in OF_PROGRAMS:
        operators = json.loads((module.FOLDER / "operators.json").read_text(encoding="utf-8"))
        arrays = golden_arrays.by_case(module.FOLDER, module.CASES)
        found |= {name: (arrays[name], operators[name]) for name in module.CASES}
    return found


def check(found, expected, tolerances):
    assert sorted(found) == sorted(expected)
    for key, array in expected.items():
        assert (found[key].dtype, found[key].shape) == (array.dtype, array.shape), key
        if array.dtype.kind == "f":
            tolerance = tolerances[array.dtype.name] * max(1, np.abs(array).max(initial=0))
            np.testing.assert_allclose(found[key], array, rtol=0, atol=tolerance, err_msg=key)
        else:
            assert np.array_equal(found[key], array), key


@pytest.mark.laws
@pytest.mark.parametrize("name", golden_sequences.CASES)
def test_a_layer_gives_what_the_original_gave(name, recorded):
    found, lines = golden_sequences.run(fluid, name)
    # The original rounds the bounds of `dynamic_lstmp` to float32.
    check(found, recorded[name], {"float32": 1e-5, "float64": 1e-7 if "clipped" in name else 1e-10})
    assert lines == OPERATORS[name] or name.startswith(tuple(WRITTEN_OTHERWISE))


@pytest.mark.slow
@pytest.mark.parametrize(("module", "name"), PROGRAMS, ids=[name for _, name in PROGRAMS])
def test_a_program_trains_as_with_the_original(module, name, recorded_programs):
    found, operators = golden_sequence_programs.run(fluid, name, module.NETWORKS)
    arrays, types = recorded_programs[name]
    check(found, arrays, {"float32": 1e-5})
    assert operators == types
