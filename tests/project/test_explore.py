"""The explorations: that they find and report what they are for, and some cases of each of those that have no test."""

import os
import random
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from explore import EXPLORATIONS, case_of, gradients, plans, programs, rewrites, rules
from explore.__main__ import explore, main
from explore.shrinking import smallest

from minigraph import layers
from minigraph import rewrite as rewriting
from minigraph.passes import MultiplyPowers

ROOT = Path(__file__).resolve().parents[2]

# As of examples that hypothesis draws: always the same, or new ones, see conftest.py.
EXPLORES = os.environ.get("HYPOTHESIS_PROFILE") == "explore"
START = time.time_ns() % 10**9 if EXPLORES else 0


@pytest.mark.laws
@pytest.mark.parametrize("first", range(0, 20_000 if EXPLORES else 100, 20))
def test_programs_run_as_in_the_interpreter(first):
    for seed in range(START + first, START + first + 20):
        programs.case(seed)


@pytest.mark.laws
def test_programs_with_planted_patterns_run_as_in_the_interpreter():
    for seed in range(START, START + (20_000 if EXPLORES else 20)):
        plans.case(seed)


@pytest.mark.slow
def test_a_plan_that_computes_something_else_is_told(monkeypatch):
    monkeypatch.setattr(plans, "difference", lambda case, executor: next(iter(case.program.roots)))
    with pytest.raises(AssertionError, match=r" is another.*\n(.*\n)*block 0"):
        for seed in range(20):
            plans.case(seed)


@pytest.mark.laws
@pytest.mark.parametrize("first", range(0, 20_000 if EXPLORES else 200, 50))
def test_rules_keep_every_bit(first):
    for seed in range(START + first, START + first + 50):
        rules.case(seed)


@pytest.mark.slow
def test_a_pass_that_breaks_a_program_is_named():
    @rewriting.rule
    def capped(x):
        return layers.relu(x)

    @capped.to
    def _(x):
        return layers.relu6(x)

    with pytest.raises(AssertionError, match=r"capped: .* differs"):
        for seed in range(20):
            rewrites.case(seed, (MultiplyPowers(), capped))


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 60, 20))
def test_gradients_of_programs_that_overwrite_are_slopes(first):
    for seed in range(first, first + 20):
        gradients.case(seed)


@pytest.mark.slow
def test_the_command_runs_from_the_checkout():
    command = [sys.executable, "-m", "tests.explore", "--only", "programs", "--cases", "2", "--seed", "5"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith("seed 5; programs: 2 cases, 0 failures, ")


@pytest.mark.parametrize("name", EXPLORATIONS)
def test_every_name_is_a_module_with_a_case(name):
    assert callable(case_of(name))


def test_a_failure_is_shown_with_the_seed_that_repeats_it(monkeypatch, capsys):
    def case(seed):
        assert seed % 10 != 7, "long " * (100 - seed)

    monkeypatch.setattr("explore.import_module", lambda name: SimpleNamespace(case=case))
    assert main(["--only", "programs", "--seed", "5", "--cases", "20"]) == 1
    printed = capsys.readouterr().out
    assert "--only programs --seed 17 --cases 1\n" in printed  # the shorter of two
    assert "seed 5; programs: 20 cases, 2 failures, " in printed


def test_an_error_of_another_type_is_a_failure_with_its_traceback(monkeypatch):
    monkeypatch.setattr("explore.import_module", lambda name: SimpleNamespace(case=lambda seed: 1 // seed))
    (found,) = explore(["programs"], 0, 60.0, cases=3)
    assert (found.cases, found.failures) == (3, 1)
    assert "ZeroDivisionError" in found.smallest


def test_equal_seeds_draw_equal_cases():
    first, second, other = (programs.draw(random.Random(seed)) for seed in (3, 3, 4))
    assert first == second != other


def test_what_is_not_needed_for_a_failure_is_left_out():
    def simpler(numbers):
        return (numbers[:i] + numbers[i + 1 :] for i in range(len(numbers)))

    assert smallest([5, 3, 8, 1], lambda numbers: sum(numbers) > 10, simpler) == [3, 8]
