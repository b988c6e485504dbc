"""Random programs with the patterns of every pass: an executor computes what the interpreter does, up to rounding.

`tests.explore.programs` runs what layers draw, in which the patterns of most passes are seldom. Here those of the whole
pipeline are planted, so that passes meet what other passes leave.
"""

from __future__ import annotations

import warnings
from functools import cache
from random import Random

import numpy as np
from random_cases import difference, drawn_case

import minigraph as fluid
from minigraph.errors import MinigraphError
from minigraph.kernels.jit import is_available
from minigraph.passes import IN_ORDER
from minigraph.passes.base import Pipeline
from minigraph.rewrite.cases import Case
from minigraph.rewrite.hints import hints_of
from minigraph.rewrite.random_programs.drawing import Hints

_SHARE_OF_JIT = 0.1


@cache
def _hints() -> Hints:
    return hints_of(Pipeline(tuple(IN_ORDER)))


def case(seed: int) -> None:
    """Compare the runs of one random program."""
    jit = Random(f"{seed}/jit").random() < _SHARE_OF_JIT and is_available()
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        drawn = drawn_case(seed, _hints())
        if drawn is None:
            return
        try:
            found = difference(drawn, fluid.Executor(fluid.CPUPlace(), jit=jit))
        except Exception as error:
            if isinstance(error, MinigraphError) and _is_refused_unrewritten(drawn):
                return
            raise AssertionError(f"{type(error).__name__}: {error}\n{drawn.program}") from error
    assert found is None, f"{found} is another{' with compiled loops' if jit else ''}\n{drawn.program}"


def _is_refused_unrewritten(drawn: Case) -> bool:
    """Whether an executor without passes refuses the arrays, too: the interpreter takes shapes other than declared."""
    try:
        difference(drawn, fluid.Executor(fluid.CPUPlace(), passes=Pipeline(())))
    except MinigraphError:
        return True
    return False
