"""UnrollRecurrent puts the operators of all steps in the place of a recurrent network."""

from collections import Counter

import numpy as np
import pytest
from both_executors import data, numbers
from pass_laws import assert_linear, assert_same_bits, history, pipeline

import minigraph as fluid
from minigraph import layers
from minigraph.executor.interpreter import Interpreter
from minigraph.ir.verifier import verify
from minigraph.passes import LOWERING, UnrollRecurrent

pytestmark = [pytest.mark.numbers, pytest.mark.usefixtures("new_program")]


class Built:
    """The default program, as `pass_laws.history` wants it."""

    def __init__(self, **feed):
        self.main, self.startup = fluid.default_main_program(), fluid.default_startup_program()
        self._feed = feed

    def feed(self, number):
        return self._feed


def static(x, h, step):
    network = layers.StaticRNN()
    with network.step():
        entry, state = network.step_input(x), network.memory(h)
        updated = step(entry, state)
        network.update_memory(state, updated)
        network.step_output(updated)
    return network()


def tanh_step(entry, state):
    return layers.tanh(
        layers.fc(entry, 3, param_attr="w", bias_attr="b") + layers.fc(state, 3, param_attr="u", bias_attr=False)
    )


def dropout_step(entry, state):
    return layers.dropout(tanh_step(entry, state), 0.3)


def overwriting_step(entry, state):
    total = layers.assign(entry)
    layers.assign(total + 0.5, total)
    return layers.assign(layers.tanh(total * state), total)


STEPS = {"tanh": tanh_step, "dropout": dropout_step, "overwriting": overwriting_step}


def recurrent_of():
    return fluid.default_main_program().global_block().ops.of_type("recurrent")[0]


def unrolled(fetch, **options):
    """The types of the operators that are left."""
    program = fluid.default_main_program().clone()
    program.roots = tuple(fetch)
    rewrite = UnrollRecurrent(**options)
    changed = rewrite.apply(program)
    verify(program)
    assert not rewrite.apply(program)
    types = [op.type for op in program.global_block().ops]
    assert changed == ("recurrent" not in types)
    return types


def bits(executor, built, fetch):
    executor._rng = np.random.default_rng(5)
    return history(executor, built, fetch)


@pytest.mark.laws
@pytest.mark.parametrize("trains", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("length", [1, 4])
@pytest.mark.parametrize("kind", STEPS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_bits_are_kept(kind, length, reverse, trains, dtype):
    x, h = data("x", length, 2, 3, dtype=dtype), data("h", 2, 3, dtype=dtype)
    y = static(x, h, STEPS[kind])
    recurrent_of().set_attr("reverse", reverse)
    loss = layers.mean(layers.square(y))
    fetch = [loss.name, y.name]
    if trains:
        fluid.optimizer.SGD(0.1).minimize(loss)
        fetch += ["x@GRAD", "h@GRAD"]
    assert not {"recurrent", "recurrent_grad"} & set(unrolled(fetch))
    built = Built(x=numbers(length, 2, 3, dtype=dtype), h=numbers(2, 3, seed=1, dtype=dtype))
    expected = bits(Interpreter(), built, fetch)
    assert_same_bits(bits(fluid.Executor(passes=pipeline(UnrollRecurrent())), built, fetch), expected)
    for name, value in bits(fluid.Executor(check=True), built, fetch).items():
        np.testing.assert_allclose(value, expected[name], rtol=1e-5, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("cell", [layers.LSTMCell, layers.GRUCell])
def test_cells_keep_their_bits(cell):
    x = data("x", 2, 5, 3, dtype="float32")
    y, _ = layers.rnn(cell(4), x)
    loss = layers.mean(layers.square(y))
    fluid.optimizer.SGD(0.1).minimize(loss)
    built, fetch = Built(x=numbers(2, 5, 3, dtype="float32")), [loss.name, y.name, "x@GRAD"]
    assert "recurrent_grad" not in unrolled(fetch)
    expected = bits(Interpreter(), built, fetch)
    assert_same_bits(bits(fluid.Executor(passes=pipeline(UnrollRecurrent())), built, fetch), expected)


def test_operators_keep_their_lines_and_roles():
    y = static(data("x", 2, 2, 3), data("h", 2, 3), tanh_step)
    fluid.append_backward(layers.mean(y))
    program = fluid.default_main_program().clone()
    inside = {(op.type, op.role, str(op.site)) for block in program.blocks[1:] for op in block.ops}
    UnrollRecurrent().apply(program)
    after = {(op.type, op.role, str(op.site)) for op in program.global_block().ops}
    assert inside <= after
    assert program.num_blocks == 1


def test_gradients_that_nobody_reads_are_not_computed():
    x, h = fluid.data("x", [3, 2, 3]), data("h", 2, 3, dtype="float32")
    fluid.append_backward(layers.mean(static(x, h, tanh_step)))
    program = fluid.default_main_program().clone()
    UnrollRecurrent().apply(program)
    of_x = [op for op in program.global_block().ops.of_type("mul_grad") if op.inputs["Y"] == ("w",)]
    assert len(of_x) == 3
    assert all("X@GRAD" not in op.outputs or op.outputs["X@GRAD"] == ("@EMPTY@",) for op in of_x)


def branching_step(entry, state):
    positive = layers.less_than(layers.fill_constant([1], "float64", 0.0), layers.reduce_sum(entry))
    return layers.cond(positive, lambda: layers.tanh(entry + state), lambda: state * 0.5)


LEFT_ALONE = {
    "a branch inside": (lambda: static(data("x", 3, 2, 3), data("h", 2, 3), branching_step), {}),
    "entries that are numbers": (lambda: static(data("x", 3), data("h", 1), lambda x, h: h * x), {}),
    "a length that is not known": (lambda: static(data("x", -1, 2, 3), data("h", 2, 3), tanh_step), {}),
    "too many operators": (
        lambda: static(data("x", 3, 2, 3), data("h", 2, 3), tanh_step), {"most_operators": 20},
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", LEFT_ALONE)
def test_other_networks_stay(what):
    build, options = LEFT_ALONE[what]
    assert "recurrent" in unrolled([build().name], **options)


def test_a_first_state_that_is_written_before_the_gradient_stays():
    x, h = data("x", 3, 2, 3), data("h", 2, 3)
    start = layers.assign(h)
    y = static(x, start, tanh_step)
    later = layers.assign(layers.tanh(start), start)
    fluid.append_backward(layers.mean(y) + layers.mean(later))
    assert "recurrent" in unrolled([y.name]) or "assign" in unrolled([y.name])
    feed = {"x": numbers(3, 2, 3), "h": numbers(2, 3, seed=1)}
    built, fetch = Built(**feed), [y.name, "x@GRAD", "h@GRAD"]
    expected = bits(Interpreter(), built, fetch)
    assert_same_bits(bits(fluid.Executor(passes=pipeline(UnrollRecurrent())), built, fetch), expected)


def test_a_network_that_is_collected_equals_one_written_step_by_step():
    x, h = fluid.data("x", [6, 2, 3]), fluid.data("h", [2, 3])
    last = static(x, h, tanh_step)[5]
    loss = layers.mean(layers.square(last))
    fluid.optimizer.SGD(0.1).minimize(loss)
    collected = fluid.default_main_program()
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x, h = fluid.data("x", [6, 2, 3]), fluid.data("h", [2, 3])
        for entry in layers.unstack(x):
            h = tanh_step(entry, h)
        written = layers.mean(layers.square(h))
        fluid.optimizer.SGD(0.1).minimize(written)
        by_steps = fluid.default_main_program()

    def kernels(program, loss):
        twin = program.clone()
        twin.roots = (loss.name,)
        LOWERING.apply(twin)
        variables = twin.global_block().vars
        return Counter((op.type, *(variables[n].shape for n in op.output_arg_names)) for op in twin.global_block().ops)

    assert kernels(collected, loss) == kernels(by_steps, written)


@pytest.mark.timing
def test_time_is_linear():
    def make(count):
        main = fluid.Program()
        with fluid.program_guard(main, fluid.Program()):
            fluid.append_backward(layers.mean(static(data("x", count // 10, 2, 3), data("h", 2, 3), tanh_step)))
        return main

    assert_linear(UnrollRecurrent(most_operators=10**6), make)
