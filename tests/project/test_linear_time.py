"""Every stage between building a program and its later runs takes time linear in its operators."""

import json
import os
import subprocess
import sys
from pathlib import Path

import growth
import pytest
import stage_times
from growth import assert_grows

ROOT = Path(__file__).resolve().parents[2]

SIZES = {
    "many_operators": 500, "many_parameters": 500, "one_weight": 1000, "many_branches": 1000, "many_loops": 500,
    "a_long_block": 500,
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.timing
@pytest.mark.parametrize("make", SIZES)
def test_four_times_the_operators_take_less_than_six_times_the_time(make):
    command = [sys.executable, str(Path(__file__).parents[1] / "common" / "stage_times.py"), make, str(SIZES[make])]
    env = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    run = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    ratios = json.loads(run.stdout)
    assert ratios
    assert {stage: ratio for stage, ratio in ratios.items() if ratio >= 6} == {}


@pytest.mark.slow
@pytest.mark.parametrize("make", SIZES)
def test_four_times_the_operators_take_less_than_six_times_the_calls(make):
    small, large = (
        stage_times.costs(stage_times.calls, stage_times.MAKERS[make], count // 4)
        for count in (SIZES[make], 4 * SIZES[make])
    )
    grown = {stage: large[stage] / small[stage] for stage in large if large[stage] > 1000}
    assert {"build", "differentiate", "first run", "plan for another batch size"} <= grown.keys()
    assert {stage: ratio for stage, ratio in grown.items() if ratio >= 6} == {}


def test_quadratic_calls_are_noticed():
    def pairs(count):
        return [abs(i) for i in range(count) for _ in range(i)]

    _, few = stage_times.calls(pairs, 50)
    _, many = stage_times.calls(pairs, 200)
    assert many > 12 * few


@pytest.mark.timing
def test_quadratic_time_is_noticed(monkeypatch):
    monkeypatch.setattr(growth, "PAUSES", (0,))

    def pairs(count):
        return lambda: sum(1 for i in range(count) for j in range(i))

    with pytest.raises(AssertionError, match="4 times the size takes 1"):
        assert_grows(pairs, 200, factor=4, limit=6)
