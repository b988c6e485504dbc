"""The same work has the same steps however it is written, or the table of spellings says why not."""

from collections import Counter
from functools import cache

import pytest
from spellings import TASKS, plan

UNROLLED = ("tanh RNN", "LSTM", "GRU")
"""Recurrent networks, which become hundreds of operators."""

CASES = [
    pytest.param(what, spelling, id=f"{what} {spelling}", marks=[pytest.mark.slow] * (what in UNROLLED))
    for what, task in TASKS.items()
    for spelling in list(task.spellings)[1:]
]


@cache
def steps_of(what, spelling):
    return Counter(plan(TASKS[what], spelling))


@pytest.mark.laws
@pytest.mark.parametrize(("what", "spelling"), CASES)
def test_a_spelling_is_of_no_account(what, spelling):
    task = TASKS[what]
    found, expected = (steps_of(what, name) for name in (spelling, next(iter(task.spellings))))
    apart = task.apart.get(spelling)
    if apart is None:
        assert found == expected
    else:
        assert found != expected, f"has the same steps: the table need not say that it {apart.reason}"
        assert apart.holds(task, spelling), apart.reason


def test_each_task_has_four_spellings_at_least():
    assert all(len(task.spellings) >= 4 and task.apart.keys() <= task.spellings.keys() for task in TASKS.values())
