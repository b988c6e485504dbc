"""A piece of work and its spellings: build, run and plan them."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod

import numpy as np

import minigraph as fluid
from minigraph import layers
from minigraph.lowering.costs import VIEWS, cost

BATCH, HIDDEN, CLASSES = 32, 64, 10


@dataclass(frozen=True)
class Apart:
    """Why a spelling has other steps than the rest, and what shows it, given the task and the spelling."""

    reason: str
    holds: Callable


@dataclass(frozen=True)
class Task:
    """One piece of work: what is fed, and its spellings by name; the first one is what the others are compared with."""

    feed: Callable[[], dict]
    spellings: dict[str, Callable]
    optimizer: Callable | None = lambda: fluid.optimizer.SGD(0.1, grad_clip=fluid.clip.GradientClipByGlobalNorm(1.0))
    apart: dict[str, Apart] = field(default_factory=dict)
    """Spellings that have other steps."""


def build(task, spelling):
    """Main and startup program, and the loss, of a spelling."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        feeds = {name: fluid.data(name, array.shape, str(array.dtype)) for name, array in task.feed().items()}
        loss = task.spellings[spelling](**feeds)
        if task.optimizer is not None:
            task.optimizer().minimize(loss)
    return main, startup, loss


def step(task, spelling, jit):
    """A function that runs a spelling once, from the same parameters as every other spelling."""
    main, startup, loss = build(task, spelling)
    exe, scope, feed = fluid.Executor(fluid.CPUPlace(), jit=jit), fluid.Scope(), task.feed()
    exe.run(startup, scope=scope)
    return lambda: exe.run(main, feed=feed, fetch_list=[loss], scope=scope)


def steps_of(task, spelling):
    """The steps that a run of a spelling makes, in order."""
    main, startup, loss = build(task, spelling)
    exe, scope = fluid.Executor(fluid.CPUPlace(), jit=False), fluid.Scope()
    exe.run(startup, scope=scope)
    exe.run(main, feed=task.feed(), fetch_list=[loss], scope=scope)
    found = exe.plans[-1]
    return [step for step in found.steps.steps if step not in found.buffers.flat.free]


def plan(task, spelling):
    """Kernels and shapes of the steps that a run of a spelling makes, in order."""
    return [(step.op.type, *(value.tensor_type.shape for value in step.writes)) for step in steps_of(task, spelling)]


def work(steps):
    """Kernels and sizes of the steps that are no views, in whatever order."""
    return Counter((type, *map(prod, shapes)) for type, *shapes in steps if type not in VIEWS)


def only_views_differ(task, spelling):
    return work(plan(task, spelling)) == work(plan(task, next(iter(task.spellings))))


def only_copies_differ(task, spelling):
    counts = [
        Counter({key: count for key, count in work(plan(task, name)).items() if key[0] != "assign"})
        for name in (spelling, next(iter(task.spellings)))
    ]
    return counts[0] == counts[1]


def has_more_state(task, spelling):
    counts = [
        sum(var.persistable for var in build(task, name)[0].list_vars())
        for name in (spelling, next(iter(task.spellings)))
    ]
    return counts[0] > counts[1]


def has_as_many_steps(task, spelling):
    return len(plan(task, spelling)) == len(plan(task, next(iter(task.spellings))))


def has_one_more_join(task, spelling):
    """Whether what differs is one `concat`, and the update of fewer, larger parameters."""
    found, expected = (work(plan(task, name)) for name in (spelling, next(iter(task.spellings))))
    more, less = found - expected, expected - found
    types = [sorted(type for type, *_ in each) for each in (more, less)]
    return types == [["concat", "merged_sgd"], ["merged_sgd"]]


def multiplies_as_much(task, spelling):
    """Whether all products together have as many operations on numbers."""
    counts = [
        sum(cost(step).flops for step in steps_of(task, name) if step.op.type in ("mul", "mul_grad"))
        for name in (spelling, next(iter(task.spellings)))
    ]
    return counts[0] == counts[1]


def differs_by(more=(), less=()):
    """Make the function that says whether the kernels that are no views differ by these."""

    def holds(task, spelling):
        found, expected = (
            Counter(type for type, *_ in plan(task, name) if type not in VIEWS)
            for name in (spelling, next(iter(task.spellings)))
        )
        return found - expected == Counter(more) and expected - found == Counter(less)

    return holds


ONE_MATRIX = Apart("has one matrix for input and state, whose gradient is joined", has_one_more_join)
MANY_MATRICES = Apart("has a matrix, and a product, for each gate", multiplies_as_much)
VIEWS_STAY = Apart("reshapes stay, which are views", only_views_differ)


def numbers(*shape, seed=0):
    return np.random.RandomState(seed).uniform(-1, 1, shape).astype("float32")


def labels(batch):
    return np.random.RandomState(1).randint(0, CLASSES, (batch, 1)).astype("int64")


def parameter(name, *shape):
    """The parameter of this name, which starts with the same numbers in every spelling."""
    return layers.create_parameter(list(shape), "float32", attr=attr(name, *shape))


def attr(name, *shape, start=None):
    start = start_of(name, *shape) if start is None else start
    return fluid.ParamAttr(name, initializer=fluid.initializer.NumpyArrayInitializer(start))


def start_of(name, *shape):
    return np.random.RandomState(sum(map(ord, name))).uniform(-0.1, 0.1, shape).astype("float32")


def classified(h, y, columns=HIDDEN):
    logits = layers.fc(h, CLASSES, param_attr=attr("top", columns, CLASSES), bias_attr=attr("c", CLASSES))
    return layers.mean(layers.softmax_with_cross_entropy(logits, y))


def hidden(function):
    """A network whose hidden layer, without bias, goes through `function`."""

    def loss(x, y):
        return classified(function(layers.mul(x, parameter("w", HIDDEN, HIDDEN))), y)

    return loss
