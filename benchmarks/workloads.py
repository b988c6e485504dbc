"""The list of workloads; import it when the process has its cores, at which engines look when they are imported."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from math import prod

import build
import chain
import clip_alone
import first_results
import fresh
import images
import lookups
import measuring
import models
import sequences
import small_networks
import training
from floors import MEMORY, PRODUCTS, moving, multiplying
from training import STATES, Recipe

GATES = 1e-2
"""Tolerance where rounding decides about gates: few values are normalized together, and one relu that opens or not
changes the gradients after it by a hundredth."""


@dataclass(frozen=True)
class Training:
    """A training step by each engine."""

    title: str
    make: Callable
    """Returns the model, or a list of models that take turns."""
    recipe: Recipe
    rtol: float = 1e-3
    """Between the losses of the engines."""

    def __call__(self, settings):
        made = self.make()
        turns = made if isinstance(made, list) else [made]
        makers = training.makers(turns, self.recipe, settings.device)
        floors = floors_of(turns, settings, 2 + STATES[self.recipe.optimizer])
        measuring.compare(self.title, makers, settings, rtol=self.rtol, floors=floors)


def seed_step(settings):
    model = models.Perceptron((784, 128, 64, 10), 128)
    makers = training.gradient_makers(model, 0.05, settings.device)
    title = "(a) 784-128-64-10, batch 128: loss and gradients clipped by norm"
    measuring.compare(title, makers, settings, floors=floors_of([model], settings, 2))


def floors_of(turns, settings, arrays):
    """Floors of a step; the memory floor counts each parameter once for each of `arrays`. None on a GPU."""
    if settings.device != "cpu":
        return {}
    products = [product for model in turns for product in model.products]
    size = sum(model.bytes_touched(arrays) for model in turns)
    found = {MEMORY: partial(moving, size, 2, settings.cores)}
    return {PRODUCTS: partial(multiplying, products), **found} if products else found


def clips(what, makers, arrays, passes, settings):
    """Clip each set of gradients; the memory floor moves `arrays` times their bytes, `passes` times."""
    for name, shapes in clip_alone.SETS.items():
        size = arrays * 4 * sum(map(prod, shapes))
        floors = {MEMORY: partial(moving, size, passes, settings.cores)}
        measuring.compare(f"(f) {what}: {name}", makers(shapes), settings, floors=floors)


def chains(settings):
    for size in (4, 262_144):
        title = f"(g) chain of {chain.COUNT:,} elementwise operators on {size:,} elements, us an operator"
        measuring.compare(title, chain.makers(size), settings, unit=chain.COUNT)


def clip_cost(settings):
    model = models.Perceptron((32,) * 51, 32, "tanh")
    recipes = [Recipe("sgd", 0.01, max_norm) for max_norm in (None, 1.0)]
    without, makers = (training.makers([model], recipe, settings.device) for recipe in recipes)
    floors = floors_of([model], settings, 2)
    measuring.compare("(i) 50 layers of 32, batch 32: SGD, without clip", without, settings, floors=floors)
    measuring.compare("(i) 50 layers of 32, batch 32: SGD, clip by global norm", makers, settings, floors=floors)
    measuring.added_cost("(i) what the clip adds", without, makers, settings)


def lookup_steps(settings):
    for height in lookups.HEIGHTS:
        rows = f"(j) {lookups.BATCH} rows of a table {height:,} x {lookups.WIDTH}"
        for optimizer in lookups.OPTIMIZERS:
            title = f"{rows}: {optimizer}, sparse gradient"
            measuring.compare(title, lookups.makers(height, optimizer), settings)
        measuring.compare(f"{rows}: sgd, dense gradient", lookups.dense_makers(height), settings)


def spelled(settings):
    import spellings  # here, because it looks at plans, and a checkout to compare with may have others

    for engine in settings.engines:
        if not engine.startswith("minigraph"):
            continue
        for what, task in spellings.TASKS.items():
            jit = engine.endswith("jit")
            makers = {name: partial(spellings.step, task, name, jit) for name in task.spellings}
            measuring.compare(
                f"(t) {what} in several spellings: {engine}", makers, replace(settings, engines=[*makers])
            )


WORKLOADS = {
    "seed": seed_step,
    "small": Training(
        "(b) 784-128-64-10, batch 128: Adam, clip by global norm",
        partial(models.Perceptron, (784, 128, 64, 10), 128),
        Recipe("adam", 0.001),
    ),
    "large": Training(
        "(c) 784-1024-1024-10, batch 256: Adam, clip by global norm",
        partial(models.Perceptron, (784, 1024, 1024, 10), 256),
        Recipe("adam", 0.001),
    ),
    "rnn": Training(
        "(d) tanh RNN 32-64 unrolled 50 steps, batch 32: SGD, clip by global norm",
        models.Recurrent,
        Recipe("sgd", 0.1),
    ),
    "lenet": Training(
        "(e) LeNet, 1x28x28, batch 64: momentum, clip by global norm", models.LeNet, Recipe("momentum", 0.01)
    ),
    "transformer": Training(
        "(m) transformer block of 256, 4 heads, 8 x 128 tokens: Adam, clip by global norm",
        sequences.Transformer,
        Recipe("adam", 0.001),
    ),
    "lstm": Training(
        "(n) LSTM language model, 2 layers of 650, 20 steps, batch 20, 10,000 words: SGD, clip by global norm",
        sequences.LanguageModel,
        Recipe("sgd", 1.0, 5.0),
    ),
    "resnet": Training(
        "(o) ResNet-18 on 8x3x64x64: momentum, clip by global norm", images.ResNet18, Recipe("momentum", 0.01), GATES
    ),
    "mobilenet": Training(
        "(p) MobileNet-V1 on 8x3x64x64: momentum, clip by global norm",
        images.MobileNet,
        Recipe("momentum", 0.01),
        GATES,
    ),
    "word2vec": Training(
        "(q) word2vec, 256 words with 5 negative samples, sparse tables 100,000 x 128: SGD",
        sequences.WordVectors,
        Recipe("sgd", 0.1, None),
    ),
    "gan": Training(
        "(r) GAN 100-256-784 and 784-256-1, batch 64, two programs in turns: Adam",
        small_networks.adversaries,
        Recipe("adam", 0.0002, None),
    ),
    "policy": Training(
        "(s) policy gradient, 32-32-32-32, batch 1: Adam, clip by global norm",
        small_networks.Policy,
        Recipe("adam", 0.001),
    ),
    "clip": partial(clips, "clip by global norm", clip_alone.makers, 2, 1.5),
    "clip-memory": partial(clips, "clip in memory", clip_alone.memory_makers, 1, 3),
    "clip-state": partial(clips, "clip into state", clip_alone.kept_makers, 2, 1.5),
    "clip-update": partial(clips, "clip and SGD in memory", clip_alone.update_makers, 2, 2),
    "chain": chains,
    "build": build.bench,
    "clip-cost": clip_cost,
    "first": fresh.first_steps,
    "large-programs": first_results.bench,
    "memory": fresh.peaks,
    "import": fresh.imports,
    "lookups": lookup_steps,
    "spellings": spelled,
}

NOT_AGAINST = ("first", "large-programs", "memory", "spellings")
"""Workloads whose processes see one checkout only, or that compare plans."""
