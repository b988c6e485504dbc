"""FindMomentum turns updates with a velocity that are written out into the operator for them."""

import numpy as np
import pytest
from jit_support import needs_numba
from pass_laws import assert_linear, keeps_the_bits, op_lines

import minigraph as fluid
from minigraph import layers
from minigraph.passes import FindGradientDescent, FindMomentum

test_training, test_overwriting = keeps_the_bits(FindGradientDescent(), FindMomentum())

HEAD = """
    block 0
      persist p: float32[3]
      persist v: float32[3]
      persist rate: float32[1]
      data g: float32[3]
      data x: float32[3]
      s: float32[3] = scale(X=v) {scale=0.5}
"""
SUM, WRITE, MOVE = (
    "m: float32[3] = elementwise_add(X=s, Y=g)",
    "v = assign(X=m)",
    "p = sgd(Param=p, Grad=m, LearningRate=rate)",
)
AHEAD = """t: float32[3] = scale(X=m) {scale=0.5}
n: float32[3] = elementwise_add(X=g, Y=t)"""
MOVE_AHEAD = MOVE.replace("Grad=m", "Grad=n")


def lines(*after, fetch=()):
    body = "\n".join(" " * 6 + line for each in after for line in each.split("\n"))
    return op_lines(FindMomentum(), HEAD + body, ["p", "v", *fetch])


def update(nesterov=False):
    more = ", use_nesterov=True" if nesterov else ""
    head = "ParamOut=p, VelocityOut=v = momentum(Param=p, Grad=g, Velocity=v, LearningRate=rate)"
    return f"{head} {{mu=0.5{more}}}"


@pytest.mark.parametrize(
    "after",
    [
        (SUM, WRITE, MOVE),
        (SUM, MOVE, WRITE),
        (SUM.replace("X=s, Y=g", "X=g, Y=s"), WRITE, MOVE),
        ("m: float32[3] = sum(X=[g, s])", WRITE, MOVE),
        ("v = sum(X=[s, g])", MOVE.replace("Grad=m", "Grad=v")),
    ],
)
def test_a_velocity_and_a_descent_are_one_update(after):
    assert lines(*after) == [update()]


@pytest.mark.parametrize("after", [(SUM, AHEAD, MOVE_AHEAD, WRITE), (SUM, WRITE, AHEAD, MOVE_AHEAD)])
def test_the_step_of_nesterov_is_one_update(after):
    assert lines(*after) == [update(nesterov=True)]


OTHERS = {
    "the sum is read": (SUM, "y: float32[3] = relu(X=m)", WRITE, MOVE),
    "the sum is not kept": (SUM, MOVE),
    "the new velocity is read before the descent": (SUM, WRITE, "y: float32[3] = relu(X=v)", MOVE),
    "the old velocity is read after the descent": (SUM, MOVE, "y: float32[3] = relu(X=v)", WRITE),
    "the velocity is written in between": (SUM, WRITE, "v = relu(X=x)", MOVE),
    "the gradient is written in between": (SUM, WRITE, "g = relu(X=x)", MOVE),
    "another factor ahead": (SUM, WRITE, AHEAD.replace("0.5", "0.25"), MOVE_AHEAD),
    "another gradient ahead": (SUM, WRITE, AHEAD.replace("X=g", "X=x"), MOVE_AHEAD),
    "the step ahead is read": (SUM, WRITE, AHEAD, "y: float32[3] = relu(X=n)", MOVE_AHEAD),
    "the gradient is divided by other state": (
        "persist u: float32[3]", "r: float32[3] = sqrt(X=u)", "q: float32[3] = elementwise_div(X=g, Y=r)",
        SUM.replace("Y=g", "Y=q"), WRITE, MOVE,
    ),
    "another variable is written": (SUM, "p = assign(X=m)", "v = sgd(Param=v, Grad=m, LearningRate=rate)"),
}  # fmt: skip


@pytest.mark.parametrize("what", OTHERS)
def test_other_updates_stay(what):
    assert not any(
        "momentum" in line for line in lines(*OTHERS[what], fetch=["y"] if "y: " in str(OTHERS[what]) else [])
    )


def test_what_is_fetched_stays():
    assert not any("momentum" in line for line in lines(SUM, WRITE, MOVE, fetch=["m"]))


def test_readers_before_and_after_see_the_values_that_they_saw():
    y, z = "y: float32[3] = relu(X=v)", "z: float32[3] = relu(X=v)"
    found = lines(y, SUM, WRITE, MOVE, z, fetch=["y", "z"])
    assert found == ["y = relu(X=v)", update(), "z = relu(X=v)"]


def _trained(nesterov):
    x = fluid.data("x", [None, 6])
    loss = layers.mean(layers.square(layers.fc(layers.fc(x, 5, act="tanh"), 1)))
    for p, g in fluid.backward.append_backward(loss):
        v = layers.create_global_var(p.shape, 0.0, "float32", persistable=True, name=f"{p.name}_velocity")
        new = v * 0.9 + g
        layers.assign(new, v)
        layers.assign(p - 0.1 * (new * 0.9 + g if nesterov else new), p)
    return loss


@pytest.mark.usefixtures("new_program")
@pytest.mark.parametrize("jit", [False, pytest.param(True, marks=needs_numba)])
@pytest.mark.parametrize("nesterov", [False, True])
def test_updates_by_hand_are_merged_and_keep_their_bits(nesterov, jit):
    main, startup = fluid.default_main_program(), fluid.default_startup_program()
    main.random_seed = startup.random_seed = 3
    loss, feed, found = _trained(nesterov), {"x": np.linspace(-1, 1, 24, dtype="float32").reshape(4, 6)}, []
    for exact in (False, True):
        scope, exe = fluid.Scope(), fluid.Executor(jit=jit)
        with fluid.scope_guard(scope):
            exe.run(startup)
            program = fluid.CompiledProgram(main, build_strategy=_strategy(exact))
            losses = [exe.run(program, feed=feed, fetch_list=[loss])[0] for _ in range(3)]
            found.append([*losses, *(np.array(scope.find_var(p.name).get_tensor()) for p in main.all_parameters())])
        types = [step.op.type for step in exe.plans[-1].steps.steps]
        assert types.count("merged_momentum") == (0 if exact else 1)
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)


def _strategy(off):
    strategy = fluid.BuildStrategy()
    strategy.find_momentum = not off
    return strategy


@pytest.mark.timing
def test_time_is_linear():
    def make(count):
        main = fluid.Program()
        with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
            g = fluid.data("g", [4])
            for i in range(count):
                p, v = (
                    layers.create_global_var([4], 0.0, "float32", persistable=True, name=f"{name}{i}") for name in "pv"
                )
                new = v * 0.9 + g
                layers.assign(new, v)
                layers.assign(p - 0.1 * new, p)
        FindGradientDescent().apply(main)
        return main

    assert_linear(FindMomentum(), make, 100)
