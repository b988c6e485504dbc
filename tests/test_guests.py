"""Activations live where the gradients come later, so that gradients side by side need no more memory."""

import numpy as np
import pytest
from hypothesis import given
from pass_laws import assert_same_bits
from random_programs import build, recipes, trainings

import minigraph as fluid
from minigraph import layers
from minigraph.executor.explain import memory_plan
from minigraph.executor.interpreter import Interpreter
from minigraph.executor.plan import lower
from minigraph.lowering.liveness import Lifetimes, peak_as_written
from minigraph.runtime.place import CPUPlace
from minigraph.types import TensorType, as_dtype


def deep(x):
    for _ in range(30):
        x = layers.fc(x, 32, act="tanh")
    return x


def wide(x):
    return layers.fc(layers.fc(x, 1024, act="relu"), 512, act="relu")


def convolutional(x):
    x = layers.reshape(x, [-1, 1, 4, 8])
    for channels in (6, 16):
        x = layers.pool2d(layers.conv2d(x, channels, 3, padding=1, act="relu"), 2, "max", 2)
    return layers.fc(layers.fc(x, 40, act="relu"), 10)


MODELS = {"deep": deep, "wide": wide, "convolutional": convolutional}
OPTIMIZERS = {
    "sgd": lambda clip: fluid.optimizer.SGD(0.1, grad_clip=clip),
    "adam": lambda clip: fluid.optimizer.Adam(0.1, grad_clip=clip),
}


class Training:
    def __init__(self, model, optimizer="sgd", batch=32):
        self.main, self.startup = fluid.Program(), fluid.Program()
        self.startup.random_seed = 1
        with fluid.program_guard(self.main, self.startup), fluid.unique_name.guard():
            self.loss = layers.mean(layers.square(MODELS[model](fluid.data("x", [None, 32]))))
            OPTIMIZERS[optimizer](fluid.clip.GradientClipByGlobalNorm(0.1)).minimize(self.loss)
        self.feed = {"x": np.random.default_rng(0).uniform(-1, 1, (batch, 32)).astype("float32")}

    def plan(self):
        return lowered(self.main, self.feed, [self.loss.name])

    def run(self, executor):
        scope = fluid.Scope()
        executor.run(self.startup, scope=scope)
        losses = {i: executor.run(self.main, self.feed, [self.loss], scope=scope)[0] for i in range(3)}
        return losses | {n: np.array(scope.find_var(n).get_tensor()) for n in scope.local_var_names()}


def lowered(main, feed, fetch):
    types = {name: TensorType(as_dtype(array.dtype), array.shape) for name, array in feed.items()}
    return lower(main, types, fetch, CPUPlace())


def as_written(main, plan, feed, fetch):
    types = {name: var.tensor_type for name, var in plan.program.global_block().vars.items() if var.tensor_type}
    return peak_as_written(main, types, feed, fetch)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("model", MODELS)
def test_a_step_needs_no_more_than_release_at_the_last_use(model, optimizer):
    training = Training(model, optimizer)
    plan = training.plan()
    needed = memory_plan(plan.steps, plan.buffers.layout).peak
    assert plan.steps.vectors
    assert needed <= as_written(training.main, plan, training.feed, [training.loss.name])


@given(recipe=recipes(training=trainings()))
def test_random_programs_need_no_more_than_release_at_the_last_use(recipe):
    built = build(recipe)
    plan = lowered(built.main, built.feed(), [built.loss.name])
    alone, _ = Lifetimes(plan.steps, with_arenas=False).peak()
    bound = max(alone, as_written(built.main, plan, built.feed(), [built.loss.name]))
    assert memory_plan(plan.steps, plan.buffers.layout).peak <= bound


@pytest.mark.parametrize("model", MODELS)
def test_guests_change_no_bit(model):
    training = Training(model)
    assert training.plan().buffers.layout.guests
    assert_same_bits(training.run(fluid.Executor(jit=False)), training.run(Interpreter()))


def test_a_deep_network_has_its_activations_in_the_arena():
    plan = Training("deep").plan()
    written = {id(value): value for step in plan.steps.steps for value in step.values_written()}
    guests = {written[number].name for number in plan.buffers.layout.guests}
    assert {f"fc_{i}.tmp_2" for i in range(29)} <= guests
    gradients = sum(32 * 32 * 4 + 32 * 4 for _ in range(30))
    assert plan.buffers.layout.size <= gradients + 64


def test_where_nothing_helps_there_is_no_arena(monkeypatch):
    monkeypatch.setattr("minigraph.executor.plan.peak_as_written", lambda *args: 0)
    monkeypatch.setattr("minigraph.lowering.buffer_overlay._lodge", lambda steps, candidates, rooms: [])
    training = Training("deep")
    plan = training.plan()
    assert not plan.steps.vectors
    assert not plan.buffers.layout.places
    alone, _ = Lifetimes(plan.steps, with_arenas=False).peak()
    assert memory_plan(plan.steps, plan.buffers.layout).peak == alone
    assert_same_bits(training.run(fluid.Executor(jit=False)), training.run(Interpreter()))


def test_what_operators_need_as_they_are_written():
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        x = fluid.data("x", [None, 4])
        a = layers.tanh(x)  # 64 bytes each
        b = layers.tanh(a)
        c = layers.reshape(b, [8, 2])  # no memory
        d = layers.reduce_sum(c, dim=[0])  # 8 bytes
        layers.tanh(x)  # nobody asks for it
    feed = {"x": np.zeros((4, 4), "float32")}
    plan = lowered(main, feed, [d.name])
    assert as_written(main, plan, feed, [d.name]) == 3 * 64
