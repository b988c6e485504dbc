"""Gradients of gradients through branches, loops and networks in each other: as of the same program written out."""

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import pytest

import minigraph as fluid
from minigraph import layers, passes
from minigraph.passes import EXACT


def index(n):
    return layers.fill_constant([1], "int64", n)


class Flow:
    """Writes a program with branches and loops."""

    def __init__(self, feed):
        self.fed = {name: fluid.data(name, [1], "int64") for name in feed if name not in ("x", "w")}

    def number(self, name):
        return self.fed[name]

    def repeat(self, times, body, *state):
        """``while_loop``"""
        start = [index(0), *(each * 1.0 for each in state)]
        found = layers.while_loop(lambda i, *_: i < times, lambda i, *each: [i + 1, *body(i, *each)], start)
        return found[1:]

    def repeat_in_place(self, times, body, *state):
        """``While``, which writes to variables of the block outside."""
        i, state = index(0), [each * 1.0 for each in state]
        goes_on = i < times
        with layers.While(goes_on).block():
            for old, new in zip(state, body(i, *state), strict=True):
                layers.assign(new, old)
            layers.increment(i)
            layers.less_than(i, times, cond=goes_on)
        return state

    def fill(self, times, array, step):
        """``While`` over an array: what `step` returns for `i` is the element ``i + 1``."""
        i = index(0)
        goes_on = i < times
        with layers.While(goes_on).block():
            new = step(i)
            layers.increment(i)
            array.write(new, i)
            layers.less_than(i, times, cond=goes_on)

    def square_again(self, times, x):
        """``x`` is overwritten."""
        i = index(0)
        goes_on = i < times
        with layers.While(goes_on).block():
            layers.assign(layers.square(x), x)
            layers.increment(i)
            layers.less_than(i, times, cond=goes_on)
        return x

    def is_even(self, i):
        return layers.equal(i % 2, index(0))

    cond = staticmethod(layers.cond)
    case = staticmethod(layers.case)
    switch_case = staticmethod(layers.switch_case)

    def switch(self, i, first, second, otherwise, start):
        """``Switch``, which writes to a variable that has a value before."""
        y = start * 1.0
        with layers.Switch() as switch:
            with switch.case(layers.equal(i, index(0))):
                layers.assign(first(y), y)
            with switch.case(layers.equal(i, index(1))):
                layers.assign(second(y), y)
            if otherwise is not None:
                with switch.default():
                    layers.assign(otherwise(y), y)
        return y

    def array(self):
        return FlowArray()

    def network(self, x, state, step):
        network = layers.StaticRNN()
        with network.step():
            entry, before = network.step_input(x), network.memory(init=state)
            after, output = step(entry, before)
            network.update_memory(before, after)
            network.step_output(output)
        return network()


class FlowArray:
    def __init__(self):
        self.array = layers.create_array("float64")

    def write(self, x, i):
        layers.array_write(x, i if isinstance(i, fluid.Variable) else index(i), self.array)

    def read(self, i):
        return layers.array_read(self.array, i if isinstance(i, fluid.Variable) else index(i))

    def joined(self):
        return layers.tensor_array_to_tensor(self.array, axis=0)[0]


class Written:
    """Writes the same program without any: what decides is known."""

    def __init__(self, feed):
        self.feed = feed

    def number(self, name):
        return int(self.feed[name].item())

    def repeat(self, times, body, *state):
        for i in range(times):
            state = body(i, *state)
        return state

    repeat_in_place = repeat

    def fill(self, times, array, step):
        for i in range(times):
            array.write(step(i), i + 1)

    def square_again(self, times, x):
        for _ in range(times):
            x = layers.square(x)
        return x

    def is_even(self, i):
        return i % 2 == 0

    def cond(self, pred, yes, no):
        return yes() if pred else no()

    def case(self, pairs, default):
        return next((function for pred, function in pairs if pred), default)()

    def switch_case(self, i, functions, default):
        return functions.get(i, default)()

    def switch(self, i, first, second, otherwise, start):
        chosen = {0: first, 1: second}.get(i, otherwise)
        return start if chosen is None else chosen(start)

    def array(self):
        return WrittenArray()

    def network(self, x, state, step):
        outputs = []
        for entry in layers.unstack(x, axis=0):
            state, output = step(entry, state)
            outputs.append(output)
        return layers.stack(outputs, axis=0)


class WrittenArray:
    def __init__(self):
        self.elements = {}

    def write(self, x, i):
        self.elements[i] = x

    def read(self, i):
        return self.elements[i]

    def joined(self):
        return layers.concat([self.elements[i] for i in sorted(self.elements)], axis=0)


# The cases: each takes one of the two writers, x[2, 3] and w[3, 3]


def branch_in_loop(k, x, w):
    def body(i, h):
        return [k.cond(k.is_even(i), lambda: layers.tanh(layers.matmul(h, w)), lambda: layers.square(h) * 0.5 + x)]

    return k.repeat(k.number("n"), body, x)[0]


def branch_in_loop_in_place(k, x, w):
    def body(i, h, total):
        h = k.cond(k.is_even(i), lambda: layers.tanh(layers.matmul(h, w)), lambda: layers.sigmoid(h) * x)
        return [h, total + layers.square(h)]

    return layers.elementwise_mul(*k.repeat_in_place(k.number("n"), body, x, w[0:2] * 1.0))


def loop_in_branch(k, x, w):
    def yes():
        return k.repeat(k.number("n"), lambda i, h: [layers.tanh(layers.matmul(h, w)) + x], x * 0.5)[0]

    h = layers.square(x)
    return k.cond(k.is_even(k.number("n")), yes, lambda: layers.square(h) * layers.reduce_sum(w)) * x


def loop_in_loop(k, x, w):
    def outer(i, h):
        (inner,) = k.repeat(k.number("m"), lambda j, s: [layers.tanh(layers.matmul(s, w)) * h], h * 0.7)
        return [inner + layers.square(h) * 0.3]

    return k.repeat(k.number("n"), outer, x)[0]


def loop_in_loop_of_growing_length(k, x, w):
    def outer(i, h):
        (inner,) = k.repeat_in_place(i, lambda j, s: [layers.sin(layers.matmul(s, w)) + h], h * 0.7)
        return [inner]

    return k.repeat_in_place(k.number("n"), outer, x)[0]


def branch_in_branch(k, x, w):
    h = layers.matmul(x, w)

    def yes():
        g = layers.tanh(h)
        return k.cond(k.is_even(k.number("m")), lambda: layers.square(g) * x, lambda: layers.exp(g)) * g

    return k.cond(k.is_even(k.number("n")), yes, lambda: layers.sin(h) * x)


def cases(k, x, w):
    n = k.number("n")
    pairs = [(n < 1, lambda: layers.tanh(layers.matmul(x, w))), (n < 2, lambda: layers.square(x) * x)]
    return k.case(pairs, lambda: layers.exp(x * 0.3) * layers.reduce_sum(layers.square(w)))


def numbered_cases(k, x, w):
    functions = {
        0: lambda: layers.tanh(layers.matmul(x, w)),
        1: lambda: layers.square(x) * x,
        3: lambda: layers.sigmoid(layers.matmul(layers.square(x), w)),
    }
    return k.switch_case(k.number("n"), functions, lambda: layers.sin(x) * layers.reduce_sum(layers.square(w)))


def switch_in_place(k, x, w):
    def first(y):
        return layers.square(y) * x

    return k.switch(k.number("n"), first, lambda y: layers.tanh(layers.matmul(x, w)), None, layers.sin(x)) * x


def switch_in_loop(k, x, w):
    def body(i, h):
        return [k.switch(i, lambda y: layers.tanh(y) * h, lambda y: layers.matmul(h, w), lambda y: y * y * 0.5, h)]

    return k.repeat(k.number("n"), body, x)[0]


def array_read_once(k, x, w):
    array = k.array()
    array.write(x, 0)
    k.fill(k.number("n"), array, lambda i: layers.tanh(layers.matmul(array.read(i), w)))
    return array.read(k.number("n"))


def array_read_often(k, x, w):
    array = k.array()
    array.write(layers.sin(x), 0)

    def step(i):
        now, again, first = array.read(i), array.read(i), array.read(0)
        return layers.tanh(layers.matmul(now, w)) * first + layers.square(again) * 0.2

    k.fill(k.number("n"), array, step)
    return array.read(k.number("n")) * array.read(0)


def array_in_branch_in_loop(k, x, w):
    array = k.array()
    array.write(x, 0)

    def step(i):
        return k.cond(
            k.is_even(i), lambda: layers.tanh(layers.matmul(array.read(i), w)), lambda: array.read(i) * array.read(0)
        )

    k.fill(k.number("n"), array, step)
    return array.read(k.number("n"))


def array_in_loop_in_loop(k, x, w):
    def outer(i, h):
        array = k.array()
        array.write(h, 0)
        k.fill(k.number("m"), array, lambda j: layers.tanh(layers.matmul(array.read(j), w)) + array.read(0) * 0.1)
        return [array.read(k.number("m")) + x * h]

    return k.repeat(k.number("n"), outer, x)[0]


def array_of_two_loops(k, x, w):
    array, n = k.array(), k.number("n")
    array.write(x, 0)
    k.fill(n, array, lambda i: layers.tanh(layers.matmul(array.read(i), w)))
    return k.repeat(n, lambda i, h: [layers.square(h) * 0.5 + array.read(i) * x], x)[0]


def array_joined(k, x, w):
    array = k.array()
    array.write(x, 0)
    k.fill(k.number("n"), array, lambda i: layers.sin(layers.matmul(array.read(i), w)))
    return layers.reduce_sum(layers.square(array.joined()) * layers.exp(array.joined() * 0.1), dim=0)


def loop_in_network(k, x, w):
    def step(entry, state):
        (h,) = k.repeat(k.number("m"), lambda i, s: [layers.tanh(s * entry) + state], entry * 0.5)
        return h, layers.square(h) * entry

    return k.network(layers.matmul(x, w), layers.reduce_sum(w, dim=0), step)


def branch_in_network(k, x, w):
    n = k.number("n")

    def step(entry, state):
        h = k.cond(k.is_even(n), lambda: layers.tanh(entry * state), lambda: layers.square(state) + entry)
        return h, layers.sin(h)

    return k.network(layers.matmul(x, w), layers.reduce_sum(w, dim=0), step)


def network_in_loop(k, x, w):
    def body(i, h):
        return [k.network(h, layers.reduce_sum(w, dim=0), lambda e, s: (layers.tanh(e + s), layers.square(s) * e))]

    return k.repeat(k.number("n"), body, layers.matmul(x, w))[0]


def network_in_branch(k, x, w):
    def yes():
        return k.network(x, layers.reduce_sum(w, dim=0), lambda e, s: (layers.tanh(e + s), layers.square(s) * e))

    return k.cond(k.is_even(k.number("n")), yes, lambda: layers.square(x) * layers.matmul(x, w))


def array_read_in_network(k, x, w):
    array = k.array()
    array.write(layers.reduce_sum(w, dim=0), 0)
    array.write(layers.reduce_mean(x, dim=0), 1)

    def step(entry, state):
        h = layers.tanh(entry * array.read(0)) + layers.square(state)
        return h, layers.square(array.read(1)) * h + array.read(0)

    return k.network(layers.matmul(x, w), layers.reduce_sum(w, dim=1), step)


def value_overwritten_behind(k, x, w):
    h = layers.sin(x)

    def outer(i, s):
        return k.repeat_in_place(k.number("m"), lambda j, r: [layers.tanh(layers.matmul(r, w)) * h], s)

    (y,) = k.repeat_in_place(k.number("n"), outer, x)
    return y * k.square_again(k.number("n"), h)


def everything(k, x, w):
    """Three deep: a branch in a loop in a branch, and a loop over an array in a loop."""

    def inside(j, s):
        return [k.cond(k.is_even(j), lambda: layers.tanh(layers.matmul(s, w)), lambda: s * x)]

    def body(i, h):
        return [k.cond(k.is_even(i), lambda: k.repeat(k.number("m"), inside, h)[0], lambda: layers.square(h))]

    return k.repeat(k.number("n"), body, x)[0]


TWO = ({"n": 3, "m": 2}, {"n": 2, "m": 3})
CASES = [
    (branch_in_loop, *TWO, {"n": 0}),
    (branch_in_loop_in_place, *TWO),
    (loop_in_branch, *TWO, {"n": 0}),
    (loop_in_loop, *TWO, {"n": 2, "m": 0}, {"n": 0, "m": 2}),
    (loop_in_loop_of_growing_length, *TWO),
    (branch_in_branch, *TWO, {"n": 2, "m": 2}),
    (cases, {"n": 0}, {"n": 1}, {"n": 2}),
    (numbered_cases, {"n": 0}, {"n": 1}, {"n": 2}, {"n": 3}),
    (switch_in_place, {"n": 0}, {"n": 1}, {"n": 2}),
    (switch_in_loop, {"n": 3}),
    (array_read_once, *TWO, {"n": 0}),
    (array_read_often, *TWO, {"n": 0}),
    (array_in_branch_in_loop, *TWO),
    (array_in_loop_in_loop, *TWO),
    (array_of_two_loops, *TWO),
    (array_joined, *TWO),
    (loop_in_network, *TWO),
    (branch_in_network, *TWO),
    (network_in_loop, *TWO),
    (network_in_branch, *TWO),
    (array_read_in_network, *TWO),
    (value_overwritten_behind, *TWO),
    (everything, *TWO),
]
PAIRS = [pytest.param(case, given, id=f"{case.__name__}-{given}") for case, *numbers in CASES for given in numbers]


@dataclass
class Made:
    """A program, and what to fetch of it: a penalty on its slopes, and gradients of rising order.

    Several tests run it, so nobody may change it.
    """

    main: fluid.Program
    penalty: fluid.Variable
    orders: list[list[fluid.Variable]]
    executor: fluid.Executor = field(default_factory=fluid.Executor)
    exact: fluid.Executor = field(default_factory=lambda: fluid.Executor(passes=EXACT))


@lru_cache(maxsize=64)
def flowing(case, names, order, batch=2) -> Made:
    """The program with branches and loops, which are as long as the numbers say that are fed."""
    return made(case, Flow, names, order, batch)


@lru_cache(maxsize=64)
def written_out(case, given, order):
    """The gradients of the program written out for these numbers, pairs of a name and a value."""
    feed = fed(dict(given))
    return values(made(case, Written, feed, order), feed)


def made(case, writer, feed, order, batch=2) -> Made:
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        x, w = fluid.data("x", [batch, 3], "float64"), fluid.data("w", [3, 3], "float64")
        x.stop_gradient = w.stop_gradient = False
        orders, value = [], layers.reduce_sum(layers.sin(case(writer(feed), x, w)))
        for n in range(order):
            grads = fluid.gradients(value, [x, w])
            orders.append(grads)
            squares = [layers.reduce_sum(layers.square(grad)) for grad in grads if grad is not None]
            if n + 1 < order:
                value = layers.sums(squares) if len(squares) > 1 else squares[0]
        fluid.verify(main)
    return Made(main, value, orders)


def fed(given) -> dict[str, Any]:
    rng = np.random.default_rng(4)
    return {
        "x": rng.uniform(-1, 1, (2, 3)), "w": rng.uniform(-1, 1, (3, 3)),
        **{name: np.array([value]) for name, value in given.items()},
    }  # fmt: skip


def values(made_program, feed, executor=None):
    """The gradients, zero where there is none."""
    main = made_program.main
    variables = [var for grads in made_program.orders for var in grads]
    feed = {name: value for name, value in feed.items() if main.global_block().has_var(name)}
    found = iter((executor or made_program.executor).run(main, feed, [var for var in variables if var is not None]))
    shapes = [feed[name].shape for _ in made_program.orders for name in ("x", "w")]
    return [np.zeros(shape) if var is None else next(found) for var, shape in zip(variables, shapes, strict=True)]


def check_against_written_out(case, given, order, batch=2):
    feed = fed(given)
    program = flowing(case, tuple(given), order, batch)
    found, known = values(program, feed), written_out(case, tuple(given.items()), order)
    for each, other in zip(found, known, strict=True):
        np.testing.assert_allclose(each, other, rtol=1e-9, atol=1e-11 * max(1.0, np.abs(other).max()))
    exact, specified = (values(program, feed, each) for each in (program.exact, fluid.Interpreter()))
    for each, same in zip(exact, specified, strict=True):
        assert each.tobytes() == same.tobytes()
    assert any(each.any() for each in found[-2:])
    return program, found, feed


@pytest.mark.laws
@pytest.mark.parametrize(("case", "given"), PAIRS)
def test_a_second_gradient_is_that_of_the_program_written_out_and_the_central_difference(case, given):
    program, found, feed = check_against_written_out(case, given, 2)
    main = program.main

    def penalty(**changed):
        return program.executor.run(main, {**feed, **changed}, [program.penalty])[0].item()

    feed = {name: value for name, value in feed.items() if main.global_block().has_var(name)}
    for name, grad in zip(("x", "w"), found[-2:], strict=True):
        direction = np.random.default_rng(9).uniform(-1, 1, grad.shape)
        ends = [penalty(**{name: feed[name] + step * direction}) for step in (1e-5, -1e-5)]
        assert np.isclose(np.vdot(grad, direction), (ends[0] - ends[1]) / 2e-5, rtol=1e-6, atol=1e-8), name


THIRD = [(case, numbers[0]) for case, *numbers in CASES]


@pytest.mark.laws
@pytest.mark.parametrize(("case", "given"), [pytest.param(*each, id=each[0].__name__) for each in THIRD])
def test_a_third_gradient_is_that_of_the_program_written_out(case, given):
    check_against_written_out(case, given, 3)


OF_ANY_BATCH = [
    (case, numbers[0], numbers[1]) for case, *numbers in CASES if len(numbers) > 1 and "network" not in case.__name__
]


@pytest.mark.laws
@pytest.mark.parametrize(
    ("case", "first", "second"), [pytest.param(*each, id=each[0].__name__) for each in OF_ANY_BATCH]
)
def test_a_batch_of_unknown_size_has_second_gradients(case, first, second):
    for given in (first, second):
        check_against_written_out(case, given, 2, batch=None)


@pytest.mark.laws
@pytest.mark.parametrize(("case", "given"), [pytest.param(*each, id=each[0].__name__) for each in THIRD])
def test_a_program_with_such_gradients_is_text_copies_and_passes_through_every_pass(case, given):
    feed = fed(given)
    program = flowing(case, tuple(given), 2)
    main = program.main
    assert fluid.Program.parse(str(main)).equals(main)
    assert main.clone().equals(main)
    fluid.verify(main.clone(for_test=True))
    read = fluid.Program.parse_from_string(main.serialize_to_string())
    fluid.verify(read)
    variables = [var for grads in program.orders for var in grads]
    expected = [each for each, var in zip(values(program, feed), variables, strict=True) if var is not None]
    fetch = [var.name for var in variables if var is not None]
    feed = {name: value for name, value in feed.items() if main.global_block().has_var(name)}
    rewritten, changed = [main], main.clone()
    for each in passes.LOWERING.passes:
        if each.apply(changed):
            fluid.verify(changed)
            rewritten.append(changed)
            changed = main.clone()
        else:
            assert changed.equals(main)
    for each in rewritten:
        for value, known in zip(fluid.Interpreter().run(each, feed, fetch), expected, strict=True):
            np.testing.assert_allclose(value, known, rtol=1e-9, atol=1e-11 * max(1.0, np.abs(known).max()))


@pytest.mark.laws
@pytest.mark.parametrize(("case", "given"), [pytest.param(*each, id=each[0].__name__) for each in THIRD])
def test_gradients_may_be_taken_again_and_again(case, given):
    """Each counts the runs back from where they ended."""
    feed, found = fed(given), []
    for writer in (Flow, Written):
        main = fluid.Program()
        with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
            x, w = fluid.data("x", [2, 3], "float64"), fluid.data("w", [3, 3], "float64")
            x.stop_gradient = w.stop_gradient = False
            y = layers.reduce_sum(layers.sin(case(writer(feed), x, w)))
            first, same = (fluid.gradients(y, x)[0] for _ in range(2))
            second, again = (fluid.gradients(grad, x)[0] for grad in (first, same))
            (last,) = fluid.gradients(y, x)
            fluid.verify(main)
        used = {name: value for name, value in feed.items() if main.global_block().has_var(name)}
        found.append(fluid.Executor().run(main, used, [first, same, last, second, again]))
    for value, known in zip(*found, strict=True):
        np.testing.assert_allclose(value, known, rtol=1e-9, atol=1e-12)


def cells(kind, is_network, feed):
    """A gradient penalty on a network of cells, `rnn` or the cell called step by step."""
    main, startup = fluid.Program(), fluid.Program()
    startup.random_seed = 4
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x = fluid.data("x", [2, 3, 4], "float64")
        x.stop_gradient = False
        cell = getattr(layers, kind)(5, fluid.ParamAttr("w"), fluid.ParamAttr("b"), dtype="float64", name="cell")
        state, outputs = cell.get_initial_states(batch_ref=x, dtype="float64"), []
        if is_network:
            outputs, _ = layers.rnn(cell, x, state)
        else:
            for entry in layers.unstack(x, axis=1):
                output, state = cell(entry, state)
                outputs.append(output)
            outputs = layers.stack(outputs, axis=1)
        (slope,) = fluid.gradients(layers.reduce_sum(layers.square(outputs)), x)
        penalty = layers.reduce_sum(layers.square(slope))
        pairs = fluid.append_backward(penalty)
        fluid.verify(main)
    exe, scope = fluid.Executor(), fluid.Scope()
    exe.run(startup, scope=scope)
    fetch = [penalty, *(grad for _, grad in pairs)]
    found = exe.run(main, feed, fetch, scope=scope)
    for value, same in zip(found, fluid.Interpreter().run(main, feed, fetch, scope=scope), strict=True):
        assert value.tobytes() == same.tobytes()
    assert [param.name for param, _ in pairs] == ["w", "b"] if kind == "LSTMCell" else len(pairs) >= 2
    return dict(zip([param.name for param, _ in pairs], found[1:], strict=True)), found[0]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["LSTMCell", "GRUCell"])
def test_a_gradient_penalty_through_a_network_of_cells(kind):
    feed = {"x": np.random.default_rng(3).uniform(-1, 1, (2, 3, 4))}
    (grads, penalty), (known, same) = cells(kind, True, feed), cells(kind, False, feed)
    assert np.isclose(penalty, same, rtol=1e-12)
    assert grads.keys() == known.keys()
    for name, grad in grads.items():
        np.testing.assert_allclose(grad, known[name], rtol=1e-9, atol=1e-12)


CLIPS = {
    "value": lambda: fluid.clip.GradientClipByValue(0.05),
    "norm": lambda: fluid.clip.GradientClipByNorm(0.1),
    "global_norm": lambda: fluid.clip.GradientClipByGlobalNorm(0.1),
}


def trained(case, writer, feed, clip):
    """The parameter after two steps of training on a penalty on slopes, clipped."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        start = fluid.initializer.NumpyArrayInitializer(feed["w"])
        w = layers.create_parameter([3, 3], "float64", "w", default_initializer=start)
        x = fluid.data("x", [2, 3], "float64")
        x.stop_gradient = False
        y = layers.reduce_sum(layers.sin(case(writer(feed), x, w)))
        (slope,) = fluid.gradients(y, x)
        loss = y + layers.reduce_sum(layers.square(slope))
        fluid.optimizer.SGD(0.1, grad_clip=clip()).minimize(loss)
        fluid.verify(main)
    exe, scope = fluid.Executor(), fluid.Scope()
    exe.run(startup, scope=scope)
    feed = {name: value for name, value in feed.items() if main.global_block().has_var(name) and name != "w"}
    for _ in range(2):
        exe.run(main, feed, [loss], scope=scope)
    return np.array(scope.find_var("w").get_tensor())


@pytest.mark.laws
@pytest.mark.parametrize("clip", CLIPS)
@pytest.mark.parametrize("case", [branch_in_loop, loop_in_loop, array_read_often, loop_in_network, everything])
def test_training_on_a_gradient_penalty_with_clipped_gradients(case, clip):
    feed = fed({"n": 3, "m": 2})
    found, known = (trained(case, writer, feed, CLIPS[clip]) for writer in (Flow, Written))
    assert not np.allclose(known, feed["w"], atol=1e-3)
    np.testing.assert_allclose(found, known, rtol=1e-9, atol=1e-12)


@pytest.mark.slow
def test_what_was_drawn_at_random_in_a_block_stays_what_it_was():
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x = fluid.data("x", [50], "float64")
        x.stop_gradient = False
        n = index(3)

        def body(i, total):
            # In each run ``mask * x * x * x``.
            return [i + 1, total + layers.dropout(layers.square(x) * x, 0.5, dropout_implementation="upscale_in_train")]

        in_loop = layers.while_loop(lambda i, _: i < n, body, [index(0), x * 0.0])[1]
        in_branch = layers.cond(n < 4, lambda: layers.dropout(layers.square(x) * x, 0.5), lambda: x)
        network, rows = layers.StaticRNN(), layers.reshape(x, [5, 10])
        with network.step():
            entry = network.step_input(rows)
            network.step_output(layers.dropout(layers.square(entry) * entry, 0.5))
        for y in (in_loop, in_branch, layers.reshape(network(), [50])):
            (first,) = fluid.gradients(y, x)
            (second,) = fluid.gradients(first, x)
            (third,) = fluid.gradients(second, x)
            v = np.random.default_rng(5).uniform(0.5, 1.0, 50)
            for executor in (fluid.Executor(), fluid.Interpreter()):
                found = executor.run(feed={"x": v}, fetch_list=[y, first, second, third])
                weights = found[0] / v**3
                assert len(np.unique(weights.round(6))) > 1
                for value, known in zip(found[1:], (3 * v**2, 6 * v, 6), strict=True):
                    np.testing.assert_allclose(value, weights * known, rtol=1e-9)
