"""Strategies of hypothesis that draw programs; they need the package hypothesis, which the extra ``test`` installs.

Hypothesis makes what fails smaller by drawing simpler programs; `minigraph.rewrite.reduce` makes one program smaller.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import TYPE_CHECKING, Any

from minigraph.errors import MissingExtraError
from minigraph.ir import Program
from minigraph.rewrite.cases import Case
from minigraph.rewrite.checking import cases_of
from minigraph.rewrite.hints import hints_of
from minigraph.rewrite.random_programs.arrays import Drawn
from minigraph.rewrite.random_programs.drawing import Hints, draw
from minigraph.rewrite.random_programs.recipes import STEPS, Clip, Recipe, RecipeStep, Training, build

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy


def _strategies() -> Any:
    try:
        from hypothesis import strategies
    except ImportError:
        raise MissingExtraError(
            "strategies need the package hypothesis", hint="Install it: pip install 'minigraph[test]'"
        ) from None
    return strategies


def programs(rewrite: Any = None) -> SearchStrategy[Program]:
    """Programs as `minigraph.rewrite.check` draws them; ``program.roots`` is what is fetched.

    Parameters
    ----------
    rewrite : Pass, Pipeline, rule or function, optional
        Draw more often what this pass is about.
    """
    return _drawn(rewrite).map(lambda found: found[0].program)


def cases(rewrite: Any = None) -> SearchStrategy[Case]:
    """Programs with what they are run with: `Case.program`, `Case.feed`, `Case.state`; `Case.run` runs them.

    Among the numbers are infinities and NaN.
    """
    st = _strategies()

    def runs(found: tuple[Drawn, Random]) -> Any:
        return st.sampled_from(list(cases_of(*found)))

    return _drawn(rewrite).flatmap(runs)


def _drawn(rewrite: Any) -> Any:
    hints = Hints() if rewrite is None else hints_of(rewrite)
    choices = _strategies().randoms(use_true_random=False)
    return choices.map(lambda choose: (draw(choose, hints), choose))


# Programs of layers that train


def steps(kinds: Iterable[str] = STEPS) -> SearchStrategy[RecipeStep]:
    st = _strategies()
    back, number = st.integers(0, 6), st.sampled_from([-1.5, -0.5, 0.5, 1.0, 2.0])
    return st.builds(RecipeStep, st.sampled_from(sorted(kinds)), back, back, number)


def clips() -> SearchStrategy[Clip]:
    st = _strategies()
    return st.builds(Clip, st.sampled_from(["value", "norm", "global"]), st.sampled_from([1e-3, 0.1, 100.0]))


def trainings() -> SearchStrategy[Training]:
    st = _strategies()
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
    training: SearchStrategy[Training | None] | None = None,
    may_stop: bool = True,
) -> SearchStrategy[Recipe]:
    """Recipes with these kinds of step and, unless told otherwise, now and then a training and a stopped gradient."""
    st = _strategies()
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


def trained_programs() -> SearchStrategy[Program]:
    """Programs with gradients and updates."""
    return recipes(training=trainings()).map(lambda recipe: build(recipe).main)
