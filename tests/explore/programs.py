"""Random programs: an executor computes what the interpreter does, in every run, whatever is fetched."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from random_programs import STEPS, Built, Clip, Recipe, Step, Training, build

import minigraph as fluid
from explore.shrinking import smallest
from minigraph.interpreter import Interpreter


def case(seed: int) -> None:
    """Compare one random program."""
    recipe = draw(random.Random(seed))
    if difference(recipe):
        found = smallest(recipe, lambda each: bool(difference(each)), simpler)
        raise AssertionError(report(found))


def draw(choose: random.Random) -> Recipe:
    """A recipe, as `choose` has it."""
    clip = Clip(choose.choice(["value", "norm", "global"]), choose.choice([1e-3, 0.1, 100.0]))
    training = Training(
        optimizer=choose.choice(["SGD", "Momentum", "Adam"]),
        grad_clip=choose.choice([None, clip]),
        decay=choose.choice([None, "L1Decay", "L2Decay"]),
    )
    kinds = sorted(STEPS)
    return Recipe(
        seed=choose.randrange(2**16),
        rows=choose.choice([1, 2, 5]),
        rows_are_known=choose.random() < 0.5,
        dtype=choose.choice(["float32", "float64"]),
        steps=tuple(
            Step(choose.choice(kinds), choose.randrange(7), choose.randrange(7), choose.choice([-0.5, 0.5, 2.0]))
            for _ in range(choose.randint(1, 8))
        ),
        training=choose.choice([None, training]),
    )


def simpler(recipe: Recipe) -> Iterator[Recipe]:
    """Recipes that are a little simpler."""
    if recipe.training is not None:
        yield replace(recipe, training=None)
        yield replace(recipe, training=replace(recipe.training, grad_clip=None, decay=None))
    for i in range(len(recipe.steps)):
        yield replace(recipe, steps=recipe.steps[:i] + recipe.steps[i + 1 :])
    if recipe.rows > 1:
        yield replace(recipe, rows=1)


def difference(recipe: Recipe) -> str:
    """How a plan's results differ from the interpreter's; empty if they do not."""
    built = build(recipe)
    fetch = [var.name for var in (*built.values, built.loss)]
    expected, found = (_history(kind, built, fetch) for kind in (Interpreter(), fluid.Executor(jit=False)))
    for key, value in expected.items():
        if not np.array_equal(found[key], value, equal_nan=True):
            return f"{key}: {found[key]}, the interpreter has {value}"
    return ""


def report(recipe: Recipe) -> str:
    """The program of a recipe with what it is fed and what is wrong."""
    built = build(recipe)
    feed = "\n".join(f"{name} = {value!r}" for name, value in built.feed().items())
    return f"{recipe}\n\n{built.main}\n\n{feed}\n\n{difference(recipe)}"


def _history(executor: fluid.Executor, built: Built, fetch: list[str]) -> dict[object, np.ndarray]:
    scope, found = fluid.Scope(), {}
    executor.run(built.startup, scope=scope)
    for number in range(2):
        values = executor.run(built.main, feed=built.feed(number), fetch_list=fetch, scope=scope)
        found.update({(number, name): np.array(value) for name, value in zip(fetch, values, strict=True)})
    return found | {name: np.array(scope.find_var(name).get_tensor()) for name in scope.local_var_names()}
