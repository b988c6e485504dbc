"""Strategies of hypothesis that draw programs."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import strategies as st

from minigraph.ir import Program
from minigraph.rewrite.random_programs.recipes import STEPS, Clip, Recipe, Step, Training, build


def steps(kinds: Iterable[str] = STEPS) -> st.SearchStrategy[Step]:
    back, number = st.integers(0, 6), st.sampled_from([-1.5, -0.5, 0.5, 1.0, 2.0])
    return st.builds(Step, st.sampled_from(sorted(kinds)), back, back, number)


def clips() -> st.SearchStrategy[Clip]:
    return st.builds(Clip, st.sampled_from(["value", "norm", "global"]), st.sampled_from([1e-3, 0.1, 100.0]))


def trainings() -> st.SearchStrategy[Training]:
    return st.builds(
        Training,
        optimizer=st.sampled_from(["SGD", "Momentum", "Adam"]),
        grad_clip=st.none() | clips(),
        set_clips=st.lists(st.none() | clips(), max_size=3).map(tuple),
        decay=st.sampled_from([None, "L1Decay", "L2Decay"]),
        error_clip=st.none() | st.just(0.01),
    )


def recipes(
    *,
    kinds: Iterable[str] = STEPS,
    max_steps: int = 8,
    dtypes: tuple[str, ...] = ("float32", "float64"),
    training: st.SearchStrategy[Training | None] | None = None,
    may_stop: bool = True,
) -> st.SearchStrategy[Recipe]:
    """Recipes with these kinds of step and, unless told otherwise, now and then a training and a stopped gradient."""
    return st.builds(
        Recipe,
        seed=st.integers(0, 2**16),
        rows=st.integers(1, 5),
        rows_are_known=st.booleans(),
        dtype=st.sampled_from(dtypes),
        steps=st.lists(steps(kinds), min_size=1, max_size=max_steps).map(tuple),
        stopped=st.none() | st.integers(0, max_steps - 1) if may_stop else st.none(),
        training=st.none() | trainings() if training is None else training,
    )


def trained_programs() -> st.SearchStrategy[Program]:
    """Programs with gradients and updates."""
    return recipes(training=trainings()).map(lambda recipe: build(recipe).main)
