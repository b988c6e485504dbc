"""Gradients of gradients through operators that run blocks: branches, recurrent networks and loops."""

import numpy as np
import pytest

import minigraph as fluid
from minigraph.errors import ProgramError
from minigraph.layers.branches import ConditionalBlock


def checked(main, startup, feed, penalty, pairs):
    """The gradients of `penalty` by the variables of `pairs`, compared with central differences and the interpreter."""
    fluid.verify(main)
    exe, scope, grads = fluid.Executor(), fluid.Scope(), [grad for _, grad in pairs]
    exe.run(startup, scope=scope)
    found = exe.run(main, feed, grads, scope=scope)
    specified = fluid.Interpreter().run(main, feed, grads, scope=scope)
    rng = np.random.default_rng(9)

    def value_at(name, array):
        if name in feed:
            return exe.run(main, {**feed, name: array}, [penalty], scope=scope)[0].item()
        tensor = scope.find_var(name).get_tensor()
        before = np.array(tensor)
        tensor.set(array)
        value = exe.run(main, feed, [penalty], scope=scope)[0].item()
        tensor.set(before)
        return value

    for (var, _), grad, same in zip(pairs, found, specified, strict=True):
        assert grad.tobytes() == same.tobytes()
        at = feed[var.name] if var.name in feed else np.array(scope.find_var(var.name).get_tensor())
        assert grad.shape == at.shape
        direction = rng.uniform(-1, 1, at.shape)
        ends = [value_at(var.name, at + step * direction) for step in (1e-5, -1e-5)]
        expected = (ends[0] - ends[1]) / 2e-5
        assert np.isclose(np.vdot(grad, direction), expected, rtol=1e-6, atol=1e-8), var.name
    return found


# Branches


def branching(value):
    """A network with layers in both branches; the gradients of a penalty on its slope, by parameter."""
    layers = fluid.layers
    main, startup = fluid.Program(), fluid.Program()
    startup.random_seed = 3
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x = fluid.data("x", [None, 3], "float64")
        x.stop_gradient = False
        switch = fluid.data("switch", [1], "float64")
        h = layers.fc(x, 4, act="tanh")
        is_low = layers.less_than(switch, layers.fill_constant([1], "float64", 0.0))
        h = layers.cond(is_low, lambda: layers.fc(h, 2, act="sigmoid"), lambda: layers.square(layers.fc(h, 2)) * 0.5)
        label = fluid.data("label", [None, 1], "int64")
        (slope,) = fluid.gradients(layers.softmax_with_cross_entropy(h, label), x)
        penalty = layers.reduce_sum(layers.square(slope))
        pairs = fluid.append_backward(penalty)
        fluid.verify(main)
    feed = {"x": np.random.default_rng(8).standard_normal((4, 3)), "switch": np.array([value])}
    feed["label"] = np.array([[0], [1], [1], [0]])
    return main, startup, feed, penalty, pairs


@pytest.mark.slow
@pytest.mark.parametrize("value", [-1.0, 1.0])
def test_a_gradient_penalty_through_a_branch(value):
    main, startup, feed, penalty, pairs = branching(value)
    found = checked(main, startup, feed, penalty, pairs)
    assert [grad.any() for grad in found] == [True, True, value < 0, value < 0, value > 0, value > 0]


@pytest.mark.slow
def test_any_order_through_a_branch():
    layers = fluid.layers
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x, switch = fluid.data("x", [3], "float64"), fluid.data("switch", [1], "float64")
        x.stop_gradient = False
        is_low = layers.less_than(switch, layers.fill_constant([1], "float64", 0.0))
        y = layers.cond(is_low, lambda: layers.square(x) * x, lambda: layers.sin(x))
        orders = []
        for _ in range(3):
            (y,) = fluid.gradients(y, x)
            orders.append(y)
        v = np.array([0.5, -1.0, 2.0])
        for sign, expected in ((-1.0, (3 * v**2, 6 * v, 6 + 0 * v)), (1.0, (np.cos(v), -np.sin(v), -np.cos(v)))):
            found = fluid.Executor().run(feed={"x": v, "switch": np.array([sign])}, fetch_list=orders)
            for value, known in zip(found, expected, strict=True):
                np.testing.assert_allclose(value, known, rtol=1e-12)


# Recurrent networks


def recurring(steps, batch, reverse, wants=("x", "h0")):
    """A network with two states, of which one is a result; the gradients of a penalty on its slope by all it reads."""
    layers = fluid.layers
    main, startup = fluid.Program(), fluid.Program()
    startup.random_seed = 4
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x, h0 = fluid.data("x", [steps, batch, 3], "float64"), fluid.data("h0", [batch, 4], "float64")
        gain = layers.create_parameter([4], "float64", "gain", default_initializer=fluid.initializer.Constant(0.7))
        x.stop_gradient, h0.stop_gradient = "x" not in wants, "h0" not in wants
        network = layers.StaticRNN()
        with network.step():
            entry, hidden = network.step_input(x), network.memory(init=h0)
            total = network.memory(shape=[-1, 4], batch_ref=entry, init_value=0.1)
            after = layers.tanh(layers.fc(entry, 4) + layers.fc(hidden, 4) * gain)
            network.update_memory(hidden, after)
            network.update_memory(total, total * 0.5 + layers.square(after))
            network.step_output(layers.sigmoid(after))
            network.step_output(total)
        if reverse:
            (op,) = [op for op in main.global_block().ops if op.type == "recurrent"]
            op.set_attr("reverse", True)
        first, second = network()
        sources = [var for var in (x, h0) if not var.stop_gradient] or [gain]
        slopes = fluid.gradients([layers.square(first), second], sources)
        penalty = layers.sums([layers.reduce_sum(layers.square(slope)) for slope in slopes])
        wanted = [*(var for var in (x, h0) if not var.stop_gradient), *main.all_parameters()]
        pairs = list(zip(wanted, fluid.gradients(penalty, wanted), strict=True))
    rng = np.random.default_rng(10)
    feed = {"x": rng.standard_normal((4, 2, 3)), "h0": rng.standard_normal((2, 4))}
    return main, startup, feed, penalty, [(var, grad) for var, grad in pairs if grad is not None]


@pytest.mark.slow
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(("steps", "batch"), [(4, 2), (None, None)])
def test_a_gradient_penalty_through_a_recurrent_network(steps, batch, reverse):
    main, startup, feed, penalty, pairs = recurring(steps, batch, reverse)
    assert [var.name for var, _ in pairs][:3] == ["x", "h0", "gain"]
    assert len(checked(main, startup, feed, penalty, pairs)) == 7


@pytest.mark.slow
@pytest.mark.parametrize("wants", [("x",), ("h0",), ()])
def test_only_some_gradients_of_a_recurrent_network(wants):
    main, startup, feed, penalty, pairs = recurring(4, 2, False, wants)
    assert len(checked(main, startup, feed, penalty, pairs)) == 5 + len(wants)


@pytest.mark.slow
def test_a_program_with_second_gradients_of_blocks_is_text_and_copies():
    for made in (branching(1.0), recurring(4, 2, True)):
        main = made[0]
        assert fluid.Program.parse(str(main)).equals(main)
        assert main.clone().equals(main)


@pytest.mark.slow
def test_two_states_that_start_with_the_same():
    layers = fluid.layers
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x, start = fluid.data("x", [3, 2], "float64"), fluid.data("start", [2], "float64")
        x.stop_gradient = start.stop_gradient = False
        network = layers.StaticRNN()
        with network.step():
            entry, first, second = network.step_input(x), network.memory(init=start), network.memory(init=start)
            products, powers = first * entry, layers.square(second)
            network.update_memory(first, products)
            network.update_memory(second, powers)
            network.step_output(products + powers)
        y = layers.slice(network(), [0], [2], [3])
        by_start, by_x = fluid.gradients(y, [start, x])
        second_by_start, second_by_x = fluid.gradients([layers.square(by_start)], [start, x])
        fluid.verify(fluid.default_main_program())
    rng = np.random.default_rng(1)
    v, s = rng.uniform(0.5, 1.5, (3, 2)), rng.uniform(0.5, 1.0, 2)
    fetch = [by_start, by_x, second_by_start, second_by_x]
    for executor in (fluid.Executor(), fluid.Interpreter()):
        found = executor.run(by_start.block.program, {"x": v, "start": s}, fetch)
        slope = v.prod(0) + 8 * s**7
        expected = (slope, s * v.prod(0) / v, 2 * slope * 56 * s**6, 2 * slope * v.prod(0) / v)
        for value, known in zip(found, expected, strict=True):
            np.testing.assert_allclose(value, known, rtol=1e-12)


def test_a_network_without_states():
    layers = fluid.layers
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x = fluid.data("x", [3, 2], "float64")
        x.stop_gradient = False
        network = layers.StaticRNN()
        with network.step():
            network.step_output(layers.exp(network.step_input(x)))
        y = network()
        for _ in range(3):
            (y,) = fluid.gradients(y, x)
        value = np.random.default_rng(0).standard_normal((3, 2))
        (found,) = fluid.Executor().run(feed={"x": value}, fetch_list=[y])
    np.testing.assert_allclose(found, np.exp(value), rtol=1e-12)


@pytest.mark.parametrize("is_between", [True, False])
def test_a_second_gradient_is_that_of_the_first_as_it_was_computed(is_between):
    """Both read what a persistable variable held before it was overwritten."""
    layers = fluid.layers
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup):
        x = fluid.data("x", [3, 2], "float64")
        x.stop_gradient = False
        factor = layers.create_global_var([1], 2.0, "float64", persistable=True)
        network = layers.StaticRNN()
        with network.step():
            network.step_output(layers.square(network.step_input(x)) * factor)
        y = network()
        if is_between:
            layers.increment(factor)
        (grad,) = fluid.gradients(y, x)
        if not is_between:
            layers.increment(factor)
        (second,) = fluid.gradients(layers.square(grad), x)
    exe, scope = fluid.Executor(), fluid.Scope()
    exe.run(startup, scope=scope)
    value = np.random.default_rng(0).standard_normal((3, 2))
    first, found = exe.run(main, {"x": value}, [grad, second], scope=scope)
    np.testing.assert_allclose(first, 4 * value, rtol=1e-12)
    np.testing.assert_allclose(found, 32 * value, rtol=1e-12)


# Loops


def looping(runs, wants=("x",)):
    """A loop that carries two values and learns; the gradients of a penalty on its slope by all it reads."""
    layers = fluid.layers
    main, startup = fluid.Program(), fluid.Program()
    startup.random_seed = 5
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x, count = fluid.data("x", [None, 3], "float64"), fluid.data("count", [1], "int64")
        x.stop_gradient = "x" not in wants
        rate = layers.create_parameter([3], "float64", "rate", default_initializer=fluid.initializer.Constant(0.6))
        start = layers.fill_constant([1], "int64", 0)

        def step(i, hidden, total):
            after = layers.tanh(layers.fc(hidden, 3, param_attr="w", bias_attr="b") + x * rate)
            return [i + 1, after, total + layers.reduce_sum(layers.square(after), dim=1, keep_dim=True)]

        zeros = layers.reduce_sum(x, dim=1, keep_dim=True) * 0.5
        _, hidden, total = layers.while_loop(lambda i, *_: layers.less_than(i, count), step, [start, x * 0.3, zeros])
        source = x if "x" in wants else rate
        slopes = fluid.gradients([layers.square(hidden), layers.scale(total, 2.0)], source)
        penalty = layers.reduce_sum(layers.square(slopes[0]))
        wanted = [*([x] if "x" in wants else []), *main.all_parameters()]
        pairs = list(zip(wanted, fluid.gradients(penalty, wanted), strict=True))
    feed = {"x": np.random.default_rng(11).standard_normal((2, 3)), "count": np.array([runs])}
    return main, startup, feed, penalty, [(var, grad) for var, grad in pairs if grad is not None]


@pytest.mark.slow
@pytest.mark.parametrize("wants", [("x",), ()])
@pytest.mark.parametrize("runs", [4, 1])
def test_a_gradient_penalty_through_a_loop(runs, wants):
    main, startup, feed, penalty, pairs = looping(runs, wants)
    found = checked(main, startup, feed, penalty, pairs)
    assert [var.name for var, _ in pairs] == [*wants, "rate", "w", "b"]
    assert all(grad.any() for grad in found)


@pytest.mark.slow
def test_a_loop_that_never_runs():
    main, startup, feed, penalty, pairs = looping(0)
    found = checked(main, startup, feed, penalty, pairs)
    assert [grad.any() for grad in found] == [True, False, False, False]


@pytest.mark.slow
def test_any_order_through_a_loop_that_overwrites():
    layers = fluid.layers
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x, count = fluid.data("x", [3], "float64"), fluid.data("count", [1], "int64")
        x.stop_gradient = False
        i, power = layers.fill_constant([1], "int64", 0), layers.scale(x, 1.0)
        goes_on = layers.less_than(i, count)
        loop = layers.While(goes_on)
        with loop.block():
            layers.assign(power * x, power)
            layers.increment(i, 1)
            layers.less_than(i, count, cond=goes_on)
        y = layers.scale(power, 1.0)
        orders = []
        for _ in range(4):
            (y,) = fluid.gradients(y, x)
            orders.append(y)
        fluid.verify(fluid.default_main_program())
        v = np.array([0.5, -1.0, 2.0])
        for runs in (4, 3, 1, 0):
            polynomial = np.polynomial.Polynomial([0.0] * (runs + 1) + [1.0])
            feed = {"x": v, "count": np.array([runs])}
            for executor in (fluid.Executor(), fluid.Interpreter()):
                found = executor.run(feed=feed, fetch_list=orders)
                for order, value in enumerate(found, 1):
                    np.testing.assert_allclose(value, polynomial.deriv(order)(v), rtol=1e-12, atol=1e-12)


# What else runs blocks


@pytest.mark.slow
def test_rows_that_go_to_one_branch_or_the_other():
    layers = fluid.layers
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x = fluid.data("x", [None, 1], "float64")
        x.stop_gradient = False
        parts = layers.IfElse(layers.less_than(x, layers.fill_constant([1], "float64", 0.0)))
        with parts.true_block():
            given = parts.input(x)
            parts.output(layers.square(given) * given)
        with parts.false_block():
            parts.output(layers.exp(parts.input(x)))
        (y,) = parts()
        orders = []
        for _ in range(3):
            (y,) = fluid.gradients(y, x)
            orders.append(y)
        fluid.verify(fluid.default_main_program())
        for v in (np.array([[0.5], [-1.0], [2.0]]), np.array([[1.0], [0.3]]), np.array([[-1.0], [-0.3]])):
            for executor in (fluid.Executor(), fluid.Interpreter()):
                found = executor.run(feed={"x": v}, fetch_list=orders)
                for value, power in zip(found, (3 * v**2, 6 * v, 6 + 0 * v), strict=True):
                    np.testing.assert_allclose(value, np.where(v < 0, power, np.exp(v)), rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("rows", [2, 0])
def test_a_block_that_runs_unless_its_inputs_are_empty(rows):
    layers = fluid.layers
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x, given = fluid.data("x", [3], "float64"), fluid.data("given", [None, 3], "float64")
        x.stop_gradient = False
        y = layers.sin(x)
        with ConditionalBlock([given]).block():
            total = layers.reduce_sum(given, dim=0)
            layers.assign(layers.square(y) * total, y)
        z, orders = layers.scale(y, 1.0), []
        for _ in range(3):
            (z,) = fluid.gradients(z, x)
            orders.append(z)
        fluid.verify(fluid.default_main_program())
        v, many = np.array([0.5, -1.0, 2.0]), np.arange(3.0 * rows).reshape(rows, 3)
        for executor in (fluid.Executor(), fluid.Interpreter()):
            found = executor.run(feed={"x": v, "given": many}, fetch_list=orders)
            with_rows = (np.sin(2 * v), 2 * np.cos(2 * v), -4 * np.sin(2 * v))
            without = (np.cos(v), -np.sin(v), -np.cos(v))
            for value, one, other in zip(found, with_rows, without, strict=True):
                np.testing.assert_allclose(value, one * many.sum(0) if rows else other, rtol=1e-12)


def test_selected_rows_inside_have_no_second_gradient():
    layers = fluid.layers
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x, ids = fluid.data("x", [3], "float32"), fluid.data("ids", [2, 1], "int64")
        x.stop_gradient = False
        switch = layers.less_than(layers.reduce_sum(x), layers.fill_constant([1], "float32", 0.0))

        def rows():
            found = fluid.embedding(ids, [5, 3], is_sparse=True, param_attr="table")
            return layers.reduce_sum(found, dim=[0, 1]) * layers.square(x)

        y = layers.cond(switch, rows, lambda: x)
        table = fluid.default_main_program().global_block().var("table")
        grad, _ = fluid.gradients(y, [x, table])
        with pytest.raises(ProgramError, match="cannot pass through this branch: table@GRAD is selected rows"):
            fluid.gradients(grad, x)
