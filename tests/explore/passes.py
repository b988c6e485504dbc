"""Random programs: `minigraph.rewrite.check` finds nothing wrong with any pass of the project."""

from __future__ import annotations

from one_type import one_type_for_each_name
from plants import check_with_plants

from minigraph.passes import EXACT, IN_ORDER, LOWERING, ClipGradients, Pass, Pipeline
from minigraph.rewrite.pytest_plugin import assert_sound

PASSES: tuple[Pass | Pipeline, ...] = (*IN_ORDER, ClipGradients(), EXACT, LOWERING)
"""Passes that keep every value. Clips that were asked for are in the programs already, so none is inserted."""


def case(seed: int) -> None:
    """Apply one of the passes to one program, which in every other round may hold what the pass looks for."""
    round, number = divmod(seed, len(PASSES))
    each = PASSES[number]
    if round % 2 and each in IN_ORDER:
        check_with_plants(assert_sound, each, programs=1, seed=seed)
    else:
        assert_sound(each, programs=1, seed=seed, prepare=one_type_for_each_name)
