"""Random programs: `minigraph.rewrite.check` finds nothing wrong with any pass of the project."""

from __future__ import annotations

from one_type import one_type_for_each_name

from minigraph import rewrite
from minigraph.passes import EXACT, IN_ORDER, LOWERING, ClipGradients, Pass, Pipeline

PASSES: tuple[Pass | Pipeline, ...] = (*IN_ORDER, ClipGradients(), EXACT, LOWERING)
"""Passes that keep every value. Clips that were asked for are in the programs already, so none is inserted."""


def case(seed: int) -> None:
    """Apply one of the passes to one program."""
    each = PASSES[seed % len(PASSES)]
    example = rewrite.check(each, programs=1, seed=seed, prepare=one_type_for_each_name)
    if example is not None:
        raise AssertionError(f"{example}\n\n{example.to_python()}")
