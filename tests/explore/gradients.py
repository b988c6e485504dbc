"""Random programs that overwrite variables: gradients, and gradients of those, are those of a central difference."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

import minigraph as fluid
from explore.shrinking import smallest
from minigraph.ir.verifier import verify
from minigraph.rewrite.random_programs.recipes import OVERWRITING_STEPS, SMOOTH_STEPS, Recipe, RecipeStep, build

_STEP = 1e-5

_KINDS = sorted(set(SMOOTH_STEPS) - {"plus_looked_up_sparse", "times_looked_up_shared"})
"""Kinds of step whose gradients are dense; selected rows have no second gradient."""


def case(seed: int) -> None:
    """Compare the gradients of one random program."""
    recipe = draw(random.Random(seed))
    if difference(recipe):
        found = smallest(recipe, lambda each: bool(difference(each)), simpler)
        raise AssertionError(f"{found}\n\n{build(found).main}\n\n{difference(found)}")


def draw(choose: random.Random) -> Recipe:
    """A recipe in which every other step overwrites an earlier value."""

    def step() -> RecipeStep:
        kinds = sorted(OVERWRITING_STEPS) if choose.random() < 0.5 else _KINDS
        back = choose.randrange(4), choose.randrange(4)
        return RecipeStep(choose.choice(kinds), *back, choose.choice([-0.5, 0.5, 1.5]))

    steps = tuple(step() for _ in range(choose.randint(2, 7)))
    return Recipe(choose.randrange(2**16), choose.randint(1, 3), choose.random() < 0.5, "float64", steps)


def simpler(recipe: Recipe) -> Iterator[Recipe]:
    """The same with a step less, or with one row."""
    for i in range(len(recipe.steps)):
        yield replace(recipe, steps=recipe.steps[:i] + recipe.steps[i + 1 :])
    if recipe.rows > 1:
        yield replace(recipe, rows=1)


def difference(recipe: Recipe) -> str:
    """Which gradient is not the slope of what it is the gradient of; empty if all are."""
    for order in (1, 2):
        built = build(recipe)
        with fluid.program_guard(built.main, built.startup), fluid.unique_name.guard("again_"):
            target, pairs = built.loss, fluid.append_backward(built.loss)
            if order == 2:
                squares = [fluid.layers.reduce_sum(fluid.layers.square(grad)) for _, grad in pairs]
                target = fluid.layers.sums([*squares, built.loss])
                pairs = fluid.append_backward(target)
        verify(built.main)
        executor, scope, feed = fluid.Executor(jit=False), fluid.Scope(), built.feed()
        executor.run(built.startup, scope=scope)
        grads = executor.run(built.main, feed=feed, fetch_list=[grad for _, grad in pairs], scope=scope)
        choose = np.random.default_rng(recipe.seed)
        tensors = {param.name: scope.find_var(param.name).get_tensor() for param in built.main.all_parameters()}
        values = {name: np.array(tensor) for name, tensor in tensors.items()}
        directions = {name: choose.standard_normal(value.shape) for name, value in values.items()}
        ends = []
        for sign in (1, -1):
            for name, tensor in tensors.items():
                tensor.set(values[name] + sign * _STEP * directions[name])
            ends.append(executor.run(built.main, feed=feed, fetch_list=[target], scope=scope)[0].item())
        slope = (ends[0] - ends[1]) / (2 * _STEP)
        found = sum(np.vdot(grad, directions[param.name]) for (param, _), grad in zip(pairs, grads, strict=True))
        # The error of the difference grows with what is subtracted.
        if not np.isclose(found, slope, rtol=1e-4, atol=1e-8 * (1 + max(map(abs, ends)))):
            return f"order {order}: the gradient says {found}, the central difference {slope}"
    return ""
