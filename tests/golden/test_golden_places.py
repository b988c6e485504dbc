"""Trainings on several places give the numbers of Paddle 1.8.5."""

import golden_arrays
import golden_places
import numpy as np
import pytest

import minigraph as fluid

RECORDED = golden_arrays.by_case(golden_places.FOLDER, golden_places.CASES)


@pytest.mark.parametrize("name", golden_places.CASES)
def test_numbers_are_those_of_the_original(name, monkeypatch):
    monkeypatch.setenv("CPU_NUM", str(golden_places.CASES[name][1]))
    found = golden_places.run(fluid, name)
    assert found.keys() == RECORDED[name].keys()
    for what, array in found.items():
        recorded = RECORDED[name][what]
        assert array.shape == recorded.shape
        assert array.dtype == recorded.dtype
        np.testing.assert_allclose(array, recorded, rtol=2e-5, atol=2e-6, err_msg=what)
