"""Passes of rules on one random program at a time: every law of `minigraph.rewrite.check` holds.

They are all passes that are written as rules, and one of the exact rules of the tests. The patterns of all of them are
planted, so that each fires often. `check` draws other programs for each pass; here they share a program and what the
interpreter computes of it, which is most of the time.
"""

from __future__ import annotations

import warnings
from functools import cache
from random import Random

import numpy as np
from exact_rules import RULES

from minigraph.passes import IN_ORDER
from minigraph.passes.base import Pass, Pipeline
from minigraph.passes.rules import Rules
from minigraph.rewrite.cases import Case
from minigraph.rewrite.checking import cases_of, counts
from minigraph.rewrite.hints import hints_of
from minigraph.rewrite.laws import Broken, Original, Subject, other_gradients, other_values, rewritten
from minigraph.rewrite.random_programs.drawing import Hints, draw

_SHARE_OF_OPEN = 0.15
"""Share of the programs of which any value may be fetched: their `Program.roots` are None."""


@cache
def _passes() -> tuple[Pass, ...]:
    return *(each for each in IN_ORDER if isinstance(each, Rules)), Rules(*RULES)


@cache
def _subjects_and_hints(passes: tuple[Pass, ...]) -> tuple[tuple[Subject, ...], Hints]:
    return tuple(map(Subject, passes)), hints_of(Pipeline(passes))


def case(seed: int, passes: tuple[Pass, ...] = ()) -> None:
    """Apply each pass to a clone of one random program, and compare what both compute."""
    subjects, hints = _subjects_and_hints(passes or _passes())
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        drawn = draw(Random(seed), hints)
        if Random(f"{seed}/roots").random() < _SHARE_OF_OPEN:
            drawn.program.roots = None
        original, given = Original(drawn.program), list[Case]()
        for subject in subjects:
            twin, broken = rewritten(subject, original)
            if twin is None:
                assert broken is None, f"{subject.name}: {broken.text}\n{drawn.program}"
                continue
            given = given or list(cases_of(drawn, Random(f"{seed}/arrays")))
            for each in given:
                found = broken or other_values(subject, each, twin)
                if found is None and each is given[0]:
                    found = other_gradients(subject, each, twin)
                assert found is None or not counts(found, each), _report(subject, each, found)


def _report(subject: Subject, failing: Case, broken: Broken) -> str:
    arrays = "\n".join(f"{name} = {value!r}" for name, value in {**failing.feed, **failing.state}.items())
    return f"{subject.name}: {broken.text}\n{failing.program}\n{arrays}"
