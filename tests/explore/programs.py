"""Random programs: an executor computes what the interpreter does, in every run, whatever is fetched.

Plans are run in the checking mode (`minigraph.executor.checking`) and without it, with the passes that keep every
bit. With compiled loops, which round otherwise, a checked run has the bits of one that is not checked.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

import numpy as np

import minigraph as fluid
from explore.shrinking import smallest
from minigraph.errors import MinigraphError
from minigraph.executor.interpreter import Interpreter
from minigraph.ir import VarKind
from minigraph.kernels.jit import is_available
from minigraph.lowering.memory_plan import LEAST_BYTES
from minigraph.passes import EXACT
from minigraph.rewrite.random_programs.free_steps import FREE, OF_SAMPLES
from minigraph.rewrite.random_programs.recipes import STEPS, Built, Clip, Recipe, RecipeStep, Training, build

SMALL = tuple((rows, columns) for rows in (1, 1, 2, 5) for columns in (1, 1, 3, 3, 7))
LARGE = ((30_000, 7), (100_000, 3), (300_000, 1))
"""Rows and columns of what exceeds the thresholds for threads and for a place in a plan's memory."""

_PAIRWISE = {"attention"}
"""Kinds of step that make a value for each pair of rows."""


@dataclass(frozen=True)
class Trial:
    """A program and how it is run."""

    recipe: Recipe
    fetched: int = 0
    """Seed of the choice of what is fetched."""
    places_for_all: bool = False
    """Give a place in the plan's memory to the smallest values, too."""
    jit: bool = False


def case(seed: int) -> None:
    """Compare the runs of one random program."""
    trial = draw(random.Random(seed))
    if difference(trial):
        raise AssertionError(report(smallest(trial, lambda each: bool(difference(each)), simpler)))


def draw(choose: random.Random) -> Trial:
    """A program and how to run it, as `choose` has it."""
    jit = choose.random() < 0.05 and is_available()
    is_large = choose.random() < 0.03
    rows, columns = choose.choice(LARGE if is_large else SMALL)
    kinds = [sorted(kind for kind in STEPS if not (is_large and kind in _PAIRWISE)), sorted(FREE), sorted(OF_SAMPLES)]
    recipe = Recipe(
        seed=choose.randrange(2**16),
        rows=rows,
        rows_are_known=True,
        dtype=choose.choice(["float32", "float32", "float64"]),
        steps=tuple(
            RecipeStep(
                choose.choice(choose.choices(kinds, (3, 4, 1 if is_large else 2))[0]),
                choose.randrange(7),
                choose.randrange(7),
                choose.choice([-1.5, -0.5, 0.3, 0.5, 1.0, 2.0]),
            )
            for _ in range(choose.randint(1, 10))
        ),
        stopped=choose.choice([None, None, choose.randrange(8)]),
        training=_draw_training(choose) if choose.random() < 0.5 else None,
        columns=columns,
    )
    return Trial(recipe, choose.randrange(2**16), choose.random() < 0.5, jit)


def _draw_clip(choose: random.Random) -> Clip | None:
    if choose.random() < 0.4:
        return None
    return Clip(choose.choice(["value", "norm", "global"]), choose.choice([1e-3, 0.1, 100.0]))


def _draw_training(choose: random.Random) -> Training:
    return Training(
        optimizer=choose.choice(["SGD", "Momentum", "Adam", "Adagrad", "RMSProp", "Lamb"]),
        grad_clip=_draw_clip(choose),
        set_clips=tuple(_draw_clip(choose) for _ in range(choose.randrange(4))),
        decay=choose.choice([None, "L1Decay", "L2Decay"]),
        error_clip=choose.choice([None, 0.01]),
    )


def simpler(trial: Trial) -> Iterator[Trial]:
    """Trials that are a little simpler."""
    recipe = trial.recipe
    if recipe.training is not None:
        yield replace(trial, recipe=replace(recipe, training=None))
        plain = Training(recipe.training.optimizer)
        if plain != recipe.training:
            yield replace(trial, recipe=replace(recipe, training=plain))
    for count in (4, 2, 1):
        for i in range(0, len(recipe.steps) - count + 1):
            yield replace(trial, recipe=replace(recipe, steps=recipe.steps[:i] + recipe.steps[i + count :]))
    for name, value in (("rows", 1), ("rows", 2), ("columns", 1), ("stopped", None), ("dtype", "float32")):
        if getattr(recipe, name) != value and not (name == "rows" and recipe.rows <= value):
            yield replace(trial, recipe=replace(recipe, **{name: value}))
    for i, step in enumerate(recipe.steps):
        for name in ("x", "y"):
            if getattr(step, name):
                steps = (*recipe.steps[:i], replace(step, **{name: 0}), *recipe.steps[i + 1 :])
                yield replace(trial, recipe=replace(recipe, steps=steps))
    for name, plain in (("jit", False), ("places_for_all", False), ("fetched", 0)):
        if getattr(trial, name) != plain:
            yield replace(trial, **{name: plain})


def difference(trial: Trial) -> str:
    """How two ways of running a program differ; empty if they do not."""
    least = 1 if trial.places_for_all else LEAST_BYTES
    with patch("minigraph.lowering.memory_plan.LEAST_BYTES", least), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # such as that no gradient flows through a loop
        built = build(trial.recipe)
        truth, others = _executors(trial)
        for fetch in _fetch_lists(trial, built):
            expected = _history(truth, built, fetch)
            for how, executor in others.items():
                if said := _compared(_history(executor, built, fetch), expected):
                    return f"{how}, fetching {', '.join(fetch)}\n{said}"
    return ""


def _executors(trial: Trial) -> tuple[fluid.Executor, dict[str, fluid.Executor]]:
    """What says what is right, and what is compared with it."""
    if trial.jit:
        return fluid.Executor(jit=True, check=False), {"compiled and checked": fluid.Executor(jit=True, check=True)}
    kinds = {"checked": True, "not checked": False}
    return Interpreter(), {how: fluid.Executor(passes=EXACT, jit=False, check=kinds[how]) for how in kinds}


def _fetch_lists(trial: Trial, built: Built) -> list[list[str]]:
    """What a training is asked for, what a model is, and something at random."""
    choose = random.Random(trial.fetched)
    known = [
        name
        for name, var in built.main.global_block().vars.items()
        if var.tensor_type is not None and var.kind is VarKind.LOD_TENSOR
    ]
    last = [var.name for var in (built.others or built.values)[-2:]]
    return [[built.loss.name, *last], choose.sample(known, min(len(known), choose.choice([2, 5, 20])))]


def _history(executor: fluid.Executor, built: Built, fetch: list[str]) -> Any:
    """What is fetched in each run and the state after it, by name; the error where there is one."""
    scope, found, held = fluid.Scope(), {}, []
    executor.run(built.startup, scope=scope)
    try:
        for number in range(2 if built.recipe.rows > 1000 else 3):
            values = executor.run(built.main, feed=built.feed(number), fetch_list=fetch, scope=scope)
            held.append(values)  # no later run may change them
            found.update({(number, name): np.array(value) for name, value in zip(fetch, values, strict=True)})
    except MinigraphError as error:
        return error
    for number, values in enumerate(held):
        for name, value in zip(fetch, values, strict=True):
            assert _are_same(np.asarray(value), found[number, name]), f"{name} of run {number} has changed"
    return found | {name: np.array(scope.find_var(name).get_tensor()) for name in scope.local_var_names()}


def _compared(found: Any, expected: Any) -> str:
    """How results differ, in words; of errors only whether there are any."""
    if isinstance(found, MinigraphError) or isinstance(expected, MinigraphError):
        if isinstance(found, MinigraphError) and isinstance(expected, MinigraphError):
            return "" if type(found) is type(expected) else f"{found!r}, not {expected!r}"
        return str(found if isinstance(found, MinigraphError) else expected)
    for key, value in found.items():
        if not _are_same(value, expected[key]):
            found_as, wanted_as = (f"{each.dtype}{list(each.shape)}\n{each}" for each in (value, expected[key]))
            return f"{key} is {found_as}\nnot {wanted_as}"
    return ""


def _are_same(one: np.ndarray, other: np.ndarray) -> bool:
    return (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())


def report(trial: Trial) -> str:
    """The program of a trial with what it is fed and what is wrong."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        built = build(trial.recipe)
    feed = "\n".join(f"{name} = {value!r}" for name, value in built.feed().items())
    return f"{trial}\n\n{built.main}\n\n{feed}\n\n{difference(trial)}"
