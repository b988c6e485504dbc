"""Networks that run a step along sequences: `StaticRNN`, `rnn` and its cells."""

import numpy as np
import pytest
from both_executors import check_gradient, data, numbers, run

import minigraph as fluid
from minigraph import layers
from minigraph.errors import ExecutionError, OpError, ProgramError, WrongTypeError
from minigraph.executor.interpreter import Interpreter
from minigraph.ir.verifier import verify
from minigraph.passes import EXACT

pytestmark = [pytest.mark.numbers, pytest.mark.usefixtures("new_program")]


def network(x, boot, w, reverse=False):
    """A network with two states and two outputs."""
    rnn = layers.StaticRNN()
    with rnn.step():
        entry = rnn.step_input(x)
        hidden, total = rnn.memory(boot), rnn.memory(shape=[-1, 3], batch_ref=x, init_value=0.5)
        updated = layers.tanh(layers.mul(hidden, w) + entry)
        rnn.update_memory(hidden, updated)
        rnn.update_memory(total, total + layers.square(updated))
        rnn.output(updated * entry, total)
    if reverse:
        (op,) = (op for op in fluid.default_main_program().global_block().ops if op.type == "recurrent")
        op.set_attr("reverse", True)
    return rnn()


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("length", [1, 4])
def test_every_step_passes_its_gradients_to_inputs_states_and_parameters(length, reverse):
    x, boot, w = data("x", length, 2, 3), data("boot", 2, 3), data("w", 3, 3)
    products, totals = network(x, boot, w, reverse)
    feed = {"x": numbers(length, 2, 3), "boot": numbers(2, 3, seed=1), "w": numbers(3, 3, seed=2)}
    check_gradient(layers.reduce_sum(products * totals), feed, exact=length > 1)


def test_a_network_gives_what_a_loop_in_numpy_gives():
    products, totals = network(data("x", 4, 2, 3), data("boot", 2, 3), data("w", 3, 3))
    feed = {"x": numbers(4, 2, 3), "boot": numbers(2, 3, seed=1), "w": numbers(3, 3, seed=2)}
    hidden, total, expected = feed["boot"], np.full((2, 3), 0.5), []
    for entry in feed["x"]:
        hidden = np.tanh(hidden @ feed["w"] + entry)
        expected.append((hidden * entry, total))
        total = total + hidden**2
    found = run(products, totals, feed=feed)
    for each, rows in zip(found, zip(*expected, strict=True), strict=True):
        assert np.allclose(each, np.stack(rows), rtol=1e-12)


def test_a_sequence_without_entries_has_results_without_and_gradients_of_zero():
    x, boot, w = data("x", -1, 2, 3), data("boot", 2, 3), data("w", 3, 3)
    products, totals = network(x, boot, w)
    assert products.shape == (-1, 2, 3)
    fluid.backward.append_backward(layers.reduce_sum(products) + layers.reduce_sum(totals))
    feed = {"x": numbers(0, 2, 3), "boot": numbers(2, 3), "w": numbers(3, 3)}
    found = run(products, totals, "x@GRAD", "boot@GRAD", "w@GRAD", feed=feed)
    assert [each.shape for each in found] == [(0, 2, 3)] * 3 + [(2, 3), (3, 3)]
    assert not any(each.any() for each in found)


@pytest.mark.parametrize("batch", [1, 5])
def test_batch_and_length_may_be_unknown_when_built(batch):
    x = fluid.data("x", [None, None, 3], "float32")
    rnn = layers.StaticRNN()
    with rnn.step():
        entry = rnn.step_input(x)
        before = rnn.memory(shape=[-1, 4], batch_ref=x)
        hidden = layers.fc([entry, before], 4, act="tanh")
        rnn.update_memory(before, hidden)
        rnn.step_output(hidden)
    loss = layers.mean(rnn())
    fluid.optimizer.SGD(0.5, grad_clip=fluid.clip.GradientClipByNorm(0.1)).minimize(loss)
    scope, executor = fluid.Scope(), fluid.Executor()
    executor.run(fluid.default_startup_program(), scope=scope)
    feed = {"x": numbers(6, batch, 3, dtype="float32")}
    losses = [executor.run(feed=feed, fetch_list=[loss], scope=scope)[0].item() for _ in range(5)]
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < losses[0]


def test_one_sequence_taken_twice_is_one_input():
    x, zero = data("x", 3, 2), layers.fill_constant([2], "float64", 0.0)
    rnn = layers.StaticRNN()
    with rnn.step():
        before = rnn.memory(zero)
        product = rnn.step_input(x) * layers.tanh(rnn.step_input(x)) + before
        rnn.update_memory(before, product)
        rnn.step_output(product)
    check_gradient(layers.reduce_sum(rnn()), {"x": numbers(3, 2)})


def test_two_states_may_start_from_one_variable():
    x, boot = data("x", 3, 2), data("boot", 2)
    rnn = layers.StaticRNN()
    with rnn.step():
        a, b, entry = rnn.memory(boot), rnn.memory(boot), rnn.step_input(x)
        rnn.update_memory(a, layers.tanh(a + entry))
        rnn.update_memory(b, a * b)
        rnn.step_output(b)
    check_gradient(layers.reduce_sum(rnn()), {"x": numbers(3, 2), "boot": numbers(2, seed=1)})


def test_sequences_are_as_long_as_each_other():
    x, y = fluid.data("x", [3, 2], "float32"), fluid.data("y", [4, 2], "float32")
    rnn = layers.StaticRNN()
    with pytest.raises(ProgramError, match="has 4 entries, the sequences before 3"), rnn.step():
        rnn.step_input(x)
        rnn.step_input(y)
    x, y = fluid.data("u", [None, 2], "float32"), fluid.data("v", [None, 2], "float32")
    rnn = layers.StaticRNN()
    with rnn.step():
        rnn.step_output(rnn.step_input(x) + rnn.step_input(y))
    feed = {"u": numbers(3, 2, dtype="float32"), "v": numbers(4, 2, dtype="float32")}
    for executor, error in ((fluid.Executor(), OpError), (Interpreter(), ExecutionError)):
        with pytest.raises(error, match="sequences differ in length"):
            executor.run(feed=feed, fetch_list=[rnn()])


def test_a_network_is_built_as_it_should_be():
    x = fluid.data("x", [3, 2], "float32")
    zero = layers.zeros([2], "float32")

    def step(build, **names):
        rnn = layers.StaticRNN(**names)
        with rnn.step():
            build(rnn)
        return rnn

    for build, message in [
        (lambda rnn: rnn.step_output(zero), "has no step input"),
        (lambda rnn: rnn.step_output(rnn.step_input(x) + rnn.memory(zero)), "is never updated"),
        (lambda rnn: rnn.memory(rnn.step_input(x)), "is made in the step, so the first one cannot start with it"),
        (lambda rnn: rnn.memory(shape=[-1, 2]), "give init, or shape and batch_ref"),
        (lambda rnn: rnn.update_memory(rnn.step_input(x), zero), "is no memory"),
        (
            lambda rnn: rnn.update_memory(rnn.memory(zero), x),
            r"memory is float32\[2\], its new value float32\[3, 2\]",
        ),
        (lambda rnn: _writing(rnn, x, zero), "writes fill_constant_0.tmp_0, made outside of it"),
    ]:
        with pytest.raises(ProgramError, match=message):
            step(build)
        assert fluid.default_main_program().num_blocks == 1
    rnn = layers.StaticRNN()
    for method in (lambda: rnn.step_input(x), lambda: rnn.memory(zero), lambda: rnn.step_output(zero)):
        with pytest.raises(ProgramError, match="belongs inside of the step"):
            method()
    with pytest.raises(ProgramError, match="once its step is complete"):
        rnn()
    with pytest.raises(WrongTypeError, match="step_input: x must be a Variable"), rnn.step():
        rnn.step_input(3)
    done = step(lambda rnn: rnn.step_output(rnn.step_input(x)))
    with pytest.raises(ProgramError, match="a StaticRNN has one step"), done.step():
        pass


def _writing(rnn, x, outer):
    layers.assign(rnn.step_input(x), outer)
    rnn.step_output(rnn.step_input(x))


# Cells


def lstm_in_numpy(x, hidden, cell, w, b, forget_bias=1.0):
    sigmoid = lambda z: 1 / (1 + np.exp(-z))  # noqa: E731
    outputs = []
    for step in range(x.shape[1]):
        i, j, f, o = np.split(np.concatenate([x[:, step], hidden], 1) @ w + b, 4, 1)
        cell = cell * sigmoid(f + forget_bias) + sigmoid(i) * np.tanh(j)
        hidden = np.tanh(cell) * sigmoid(o)
        outputs.append(hidden)
    return np.stack(outputs, 1), hidden, cell


@pytest.mark.parametrize("time_major", [False, True])
def test_a_long_short_term_memory_is_its_formula(time_major):
    x = fluid.data("x", [4, None, 3] if time_major else [None, 4, 3], "float64")
    cell = layers.LSTMCell(5, fluid.ParamAttr("w"), fluid.ParamAttr("b"), forget_bias=0.5, dtype="float64")
    start = [layers.fill_constant([2, 5], "float64", 0.25), layers.fill_constant([2, 5], "float64", -0.5)]
    outputs, (hidden, state) = layers.rnn(cell, x, start, time_major=time_major)
    given, w, b = numbers(2, 4, 3), numbers(8, 20, seed=1), numbers(20, seed=2)
    scope = fluid.Scope()
    for name, value in (("w", w), ("b", b)):
        scope.var(name).get_tensor().set(value, fluid.CPUPlace())
    feed = {"x": given.swapaxes(0, 1) if time_major else given}
    expected = lstm_in_numpy(given, np.full((2, 5), 0.25), np.full((2, 5), -0.5), w, b, 0.5)
    exact = run(outputs, hidden, state, feed=feed, scope=scope, passes=EXACT)
    for found in (exact, fluid.Executor().run(feed=feed, fetch_list=[outputs, hidden, state], scope=scope)):
        assert np.allclose(found[0].swapaxes(0, 1) if time_major else found[0], expected[0], rtol=1e-6)
        assert np.allclose(found[1], expected[1], rtol=1e-6)
        assert np.allclose(found[2], expected[2], rtol=1e-6)


def test_a_cell_uses_the_activations_that_it_was_given():
    x = fluid.data("x", [2, 1, 3], "float64")
    double = lambda x: x * 2.0  # noqa: E731
    names = {"param_attr": "w", "bias_attr": "b", "dtype": "float64"}
    cell = layers.LSTMCell(2, gate_activation=double, activation=layers.relu, forget_bias=0.0, **names)
    start = [layers.fill_constant([2, 2], "float64", value) for value in (0.25, -0.5)]
    outputs, _ = layers.rnn(cell, x, start)
    given, w, b = numbers(2, 1, 3), numbers(5, 8, seed=1), numbers(8, seed=2)
    scope = fluid.Scope()
    for name, value in (("w", w), ("b", b)):
        scope.var(name).get_tensor().set(value, fluid.CPUPlace())
    i, j, f, o = np.split(np.concatenate([given[:, 0], np.full((2, 2), 0.25)], 1) @ w + b, 4, 1)
    expected = np.maximum(-0.5 * 2 * f + 2 * i * np.maximum(j, 0), 0) * 2 * o
    assert np.allclose(run(outputs, feed={"x": given}, scope=scope)[0][:, 0], expected, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("is_reverse", [False, True])
@pytest.mark.parametrize("kind", ["LSTMCell", "GRUCell"])
def test_states_stay_where_a_sequence_is_over(kind, is_reverse):
    x, lengths = fluid.data("x", [None, 4, 3], "float32"), fluid.data("lengths", [None], "int64")
    cell = getattr(layers, kind)(5, param_attr="w", bias_attr="b")
    together = layers.rnn(cell, x, sequence_length=lengths, is_reverse=is_reverse)[1]
    alone = layers.rnn(cell, x[:, :2], is_reverse=is_reverse)[1]
    scope = fluid.Scope()
    fluid.Executor().run(fluid.default_startup_program(), scope=scope)
    feed = {"x": numbers(2, 4, 3, dtype="float32"), "lengths": np.array([2, 4])}
    pairs = zip(together, alone, strict=True) if kind == "LSTMCell" else [(together, alone)]
    for longer, shorter in pairs:
        found, expected = run(longer, shorter, feed=feed, scope=scope)
        assert np.allclose(found[0], expected[0], rtol=1e-5)
        assert not np.allclose(found[1], expected[1], rtol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["LSTMCell", "GRUCell"])
def test_a_cell_is_differentiated_along_the_sequence(kind):
    x = data("x", 2, 3, 2)
    cell = getattr(layers, kind)(3, param_attr="w", bias_attr="b", dtype="float64")
    outputs, _ = layers.rnn(cell, x, cell.get_initial_states(x, dtype="float64"))
    loss = layers.reduce_sum(layers.square(outputs))
    main, scope = fluid.default_main_program(), fluid.global_scope()
    params = [param.name for param in main.all_parameters()]
    with fluid.scope_guard(fluid.Scope()):
        fluid.Executor().run(fluid.default_startup_program())
        fluid.backward.append_backward(loss)
        feed = {"x": numbers(2, 3, 2)}
        grads = fluid.Executor().run(feed=feed, fetch_list=[f"{name}@GRAD" for name in params])
        for name, grad in zip(params, grads, strict=True):
            tensor = fluid.global_scope().find_var(name).get_tensor()
            start, direction = np.array(tensor), numbers(*grad.shape, seed=4)
            ends = []
            for sign in (1, -1):
                tensor.set(start + sign * 1e-5 * direction, fluid.CPUPlace())
                ends.append(fluid.Executor().run(feed=feed, fetch_list=[loss])[0].item())
            tensor.set(start, fluid.CPUPlace())
            assert np.isclose(np.vdot(grad, direction), (ends[0] - ends[1]) / 2e-5, rtol=1e-5), name
    assert scope is fluid.global_scope()


def test_a_cell_of_ones_own_may_have_any_structure_of_states():
    class Averaging(layers.RNNCell):
        @property
        def state_shape(self):
            return {"mean": [3], "count": [1]}

        def call(self, inputs, states, rate=1.0):
            count = states["count"] + 1.0
            mean = states["mean"] + (inputs - states["mean"]) / count * rate
            return {"now": mean}, {"mean": mean, "count": count}

    x = fluid.data("x", [None, 4, 3], "float32")
    outputs, states = layers.rnn(Averaging(), x, rate=1.0)
    given = numbers(2, 4, 3, dtype="float32")
    means, mean, count = run(outputs["now"], states["mean"], states["count"], feed={"x": given})
    assert np.allclose(means, given.cumsum(1) / np.arange(1, 5)[:, None], rtol=1e-5, atol=1e-6)
    assert np.allclose(mean, given.mean(1), rtol=1e-5, atol=1e-6)
    assert count.tolist() == [[4.0], [4.0]]


def test_what_a_cell_cannot_be_given_is_refused():
    x = fluid.data("x", [None, 4, 3], "float32")
    with pytest.raises(WrongTypeError, match="cell must be an RNNCell, got int"):
        layers.rnn(3, x)
    with pytest.raises(WrongTypeError, match="hidden_size must be a positive int, got 0"):
        layers.GRUCell(0)
    with pytest.raises(ProgramError, match="param_attr cannot be False, the layer does not work without a weight"):
        layers.rnn(layers.GRUCell(2, param_attr=False), x)
    with pytest.raises(WrongTypeError, match=r"states must be \[hidden, cell\]"):
        layers.rnn(layers.LSTMCell(2), x, layers.zeros([2, 2], "float32"))

    class Growing(layers.GRUCell):
        def call(self, inputs, states, **kwargs):
            output, state = super().call(inputs, states)
            return output, [state, state]

    with pytest.raises(ProgramError, match="takes and returns differ: one variable and 2 of them"):
        layers.rnn(Growing(2), x)
    with pytest.raises(NotImplementedError, match="RNNCell does not define state_shape"):
        layers.RNNCell().get_initial_states(x)


@pytest.mark.slow
def test_a_network_comes_back_from_its_text():
    x = fluid.data("x", [None, 4, 3], "float32")
    outputs, _ = layers.rnn(layers.LSTMCell(5), x)
    fluid.optimizer.Adam(0.1, grad_clip=fluid.clip.GradientClipByGlobalNorm(1.0)).minimize(layers.mean(outputs))
    main = fluid.default_main_program()
    again = fluid.Program.parse(str(main))
    assert again.equals(main)
    verify(again)
    scope, other = fluid.Scope(), fluid.Scope()
    executor = fluid.Executor()
    executor.run(fluid.default_startup_program(), scope=scope)
    for name in scope.local_var_names():
        other.var(name).get_tensor().set(np.array(scope.find_var(name).get_tensor()), fluid.CPUPlace())
    feed = {"x": numbers(2, 4, 3, dtype="float32")}
    for _ in range(3):
        results = [
            executor.run(program, feed=feed, fetch_list=[outputs.name], scope=each)[0]
            for program, each in ((main, scope), (again, other))
        ]
        assert results[0].tobytes() == results[1].tobytes()


def gradients_of_nested(unrolled, feed):
    """A network whose step has a branch and a loop, or its steps written out: the outputs and all gradients."""
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        x, start, w, c = data("x", 4, 2, 3), data("start", 2, 3), data("w", 3, 3), data("c", 2, 3)
        twice = start * 2.0

        def step(entry, h, g):
            positive = layers.reduce_sum(entry) > 0.0
            a = layers.cond(positive, lambda: layers.tanh(layers.matmul(h, w)) + entry, lambda: h * c)
            body = lambda i, b: [i + 1, layers.square(b) * 0.5 + a]  # noqa: E731
            zero = layers.fill_constant([1], "int64", 0)
            return a, layers.while_loop(lambda i, b: i < 2, body, [zero, g * 1.0])[1]

        if unrolled:
            h, g, outputs = start, twice, []
            for t in range(4):
                h, g = step(x[t], h, g)
                outputs.append(h * g)
            output = layers.stack(outputs, 0)
        else:
            rnn = layers.StaticRNN()
            with rnn.step():
                entry, h, g = rnn.step_input(x), rnn.memory(start), rnn.memory(twice)
                a, b = step(entry, h, g)
                rnn.update_memory(h, a)
                rnn.update_memory(g, b)
                rnn.step_output(a * b)
            output = rnn()
        fluid.backward.append_backward(layers.reduce_sum(layers.tanh(output)))
        return run(output, *(f"{name}@GRAD" for name in feed), feed=feed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_a_step_with_a_branch_and_a_loop_in_it_is_the_steps_written_out(seed):
    shapes = {"x": (4, 2, 3), "start": (2, 3), "w": (3, 3), "c": (2, 3)}
    feed = {name: numbers(*shape, seed=10 * seed + i) for i, (name, shape) in enumerate(shapes.items())}
    looped, written_out = gradients_of_nested(False, feed), gradients_of_nested(True, feed)
    for found, expected in zip(looped, written_out, strict=True):
        assert np.allclose(found, expected, rtol=1e-12, atol=1e-14)


def test_a_network_without_outputs_computes_nothing():
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x = fluid.data("x", [3, None, 2], "float32")
        rnn = layers.StaticRNN()
        with rnn.step():
            word = rnn.step_input(x)
            memory = rnn.memory(shape=[-1, 2], batch_ref=word, init_value=0.0)
            rnn.update_memory(memory, word + memory)
        with pytest.raises(ProgramError, match="has no step output"):
            rnn()
        total = layers.reduce_sum(x)
        # As in Paddle 1.8.5.
        ops = [op.type for op in fluid.default_main_program().global_block().ops]
        assert ops == ["fill_constant_batch_size_like", "recurrent", "reduce_sum"]
        feed = {"x": np.ones([3, 2, 2], "float32")}
        assert fluid.Executor().run(feed=feed, fetch_list=[total])[0].tolist() == [12]
        assert (
            fluid.Program.parse(str(fluid.default_main_program())).global_block().ops[1].outputs.get("outputs", ())
            == ()
        )
