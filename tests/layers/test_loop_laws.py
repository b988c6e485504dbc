"""A loop is its body written out: drawn bodies, results and gradients."""

import numpy as np
import pytest
from both_executors import numbers
from hypothesis import given, settings
from hypothesis import strategies as st

import minigraph as fluid
from minigraph import layers
from minigraph.executor.interpreter import Interpreter
from minigraph.ir.verifier import verify

UNARY = {"tanh": layers.tanh, "square": layers.square, "sigmoid": layers.sigmoid, "half": lambda x: x * 0.5}
BINARY = {
    "add": lambda x, y: x + y,
    "mul": lambda x, y: x * y,
    "matmul": layers.matmul,
    "max": lambda x, y: layers.elementwise_max(x, y),
}
NAMES = ("a", "b", "x", "w")
"""Two variables that go from run to run, and two that are only read."""


@st.composite
def expressions(draw, depth=2):
    """A nested tuple that says what to compute from the variables."""
    kind = draw(st.sampled_from(("name", "unary", "binary", "branch"))) if depth else "name"
    if kind == "name":
        return draw(st.sampled_from(NAMES))
    if kind == "unary":
        return draw(st.sampled_from(sorted(UNARY))), draw(expressions(depth - 1))
    left, right = draw(expressions(depth - 1)), draw(expressions(depth - 1))
    return ("branch" if kind == "branch" else draw(st.sampled_from(sorted(BINARY)))), left, right


def compute(expression, values, i):
    """The variable for an expression in run `i`, a Python number or a Variable."""
    if isinstance(expression, str):
        return values[expression]
    kind, *parts = expression
    if kind == "branch":
        left, right = parts
        if isinstance(i, int):
            return compute(left if i % 2 == 0 else right, values, i)
        even = layers.equal(i % 2, layers.fill_constant([1], "int64", 0))
        return layers.cond(even, lambda: compute(left, values, i) * 1.0, lambda: compute(right, values, i) * 1.0)
    operands = [compute(part, values, i) for part in parts]
    return (UNARY.get(kind) or BINARY[kind])(*operands)


def differentiated(loss, variables, order):
    """The gradients of a loss; for the second order those of the sum of their squares. None where there is none."""
    grads = fluid.gradients(loss, variables)
    if order == 1:
        return grads
    squares = [layers.reduce_sum(layers.square(grad)) for grad in grads if grad is not None]
    return fluid.gradients(layers.sums(squares), variables) if squares else grads


def gradients(bodies, times, is_loop, executor, order=1):
    """The results and the gradients with respect to what is fed."""
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        fed = {}
        for name in NAMES:
            fed[name] = fluid.data(name, [2, 2], "float64")
            fed[name].stop_gradient = False
        start = {name: fed[name] * 1.0 for name in ("a", "b")}
        fixed = {name: fed[name] for name in ("x", "w")}
        if is_loop:
            n = fluid.data("n", [1], "int64")
            _, a, b = layers.while_loop(
                lambda i, a, b: i < n,
                lambda i, a, b: [i + 1, *(compute(body, {"a": a, "b": b, **fixed}, i) * 1.0 for body in bodies)],
                [layers.fill_constant([1], "int64", 0), start["a"], start["b"]],
            )
        else:
            for i in range(times):
                updated = [compute(body, {**start, **fixed}, i) * 1.0 for body in bodies]
                start = dict(zip(("a", "b"), updated, strict=True))
            a, b = start["a"], start["b"]
        loss = layers.reduce_sum(a * 2.0 + layers.tanh(b))
        grads = dict(zip(NAMES, differentiated(loss, list(fed.values()), order), strict=True))
        verify(main)
        assert fluid.Program.parse(str(main)).equals(main)
    feed = {name: numbers(2, 2, seed=seed) for seed, name in enumerate(NAMES)}
    feed |= {"n": np.array([times])} if is_loop else {}
    fetch = [a.name, b.name, *(grad.name for grad in grads.values() if grad is not None)]
    found = dict(zip(fetch, executor.run(main, feed=feed, fetch_list=fetch, scope=fluid.Scope()), strict=True))
    zeros = np.zeros((2, 2))
    return fetched(found, a, b), {name: zeros if grad is None else found[grad.name] for name, grad in grads.items()}


def fetched(found, *variables):
    return [found[var.name] for var in variables]


def assert_same(compute, *args):
    """That a loop, in a plan and step by step, gives the results and gradients that its body written out gives."""
    (expected, expected_grads), (found, grads), (stepwise, stepwise_grads) = (
        compute(*args[:-1], is_loop, executor, args[-1])
        for is_loop, executor in ((False, fluid.Executor()), (True, fluid.Executor()), (True, Interpreter()))
    )
    for a, b, c in zip(expected, found, stepwise, strict=True):
        assert np.allclose(a, b, rtol=1e-12, equal_nan=True)
        assert b.tobytes() == c.tobytes()
    for name, grad in grads.items():
        scale = max(1.0, np.abs(expected_grads[name]).max())
        assert np.allclose(expected_grads[name], grad, rtol=1e-9, atol=1e-12 * scale, equal_nan=True), name
        assert grad.tobytes() == stepwise_grads[name].tobytes(), name


@pytest.mark.laws
@given(st.tuples(expressions(), expressions()), st.integers(0, 3))
@settings(deadline=None, max_examples=settings.default.max_examples // 2)
def test_a_loop_gives_what_its_body_written_out_gives(bodies, times):
    assert_same(gradients, bodies, times, 1)


@pytest.mark.laws
@given(st.tuples(expressions(), expressions()), st.integers(0, 3))
@settings(deadline=None, max_examples=settings.default.max_examples // 2)
def test_a_loop_has_the_second_gradients_of_its_body_written_out(bodies, times):
    assert_same(gradients, bodies, times, 2)


ELEMENTS = ("now", "first", "x", "w")
"""What the body of a loop over an array reads: its elements at the counter and at 0, and what is fed."""


@st.composite
def over_elements(draw):
    names = dict(zip(NAMES, ELEMENTS, strict=True))

    def renamed(expression):
        if isinstance(expression, str):
            return names[expression]
        return expression[0], *map(renamed, expression[1:])

    return renamed(draw(expressions()))


def array_gradients(bodies, overwrites_first, times, is_loop, executor, order=1):
    """The elements of an array that a loop fills, and the gradients with respect to what is fed."""
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        fed = {}
        for name in ("start", "x", "w"):
            fed[name] = fluid.data(name, [2, 2], "float64")
            fed[name].stop_gradient = False
        fixed = {name: fed[name] for name in ("x", "w")}

        def step(now, first, i):
            values = {"now": now, "first": first, **fixed}
            return [compute(body, values, i) * 1.0 for body in bodies]

        if is_loop:
            zero, n = layers.fill_constant([1], "int64", 0), fluid.data("n", [1], "int64")
            i = layers.fill_constant([1], "int64", 0)
            array, condition = layers.array_write(fed["start"], zero), layers.less_than(i, n)
            with layers.While(condition).block():
                following, first = step(layers.array_read(array, i), layers.array_read(array, zero), i)
                if overwrites_first:
                    layers.array_write(first, zero, array)
                layers.increment(i)
                layers.array_write(following, i, array)
                layers.less_than(i, n, cond=condition)
            last, first = layers.array_read(array, n), layers.array_read(array, zero)
        else:
            elements = [fed["start"] * 1.0]
            for i in range(times):
                following, first = step(elements[i], elements[0], i)
                if overwrites_first:
                    elements[0] = first
                elements.append(following)
            last, first = elements[times], elements[0]
        loss = layers.reduce_sum(last * 2.0 + layers.tanh(first))
        grads = dict(zip(fed, differentiated(loss, list(fed.values()), order), strict=True))
        verify(main)
    feed = {name: numbers(2, 2, seed=seed) for seed, name in enumerate(fed)}
    feed |= {"n": np.array([times])} if is_loop else {}
    fetch = [last.name, first.name, *(grad.name for grad in grads.values() if grad is not None)]
    found = dict(zip(fetch, executor.run(main, feed=feed, fetch_list=fetch, scope=fluid.Scope()), strict=True))
    zeros = np.zeros((2, 2))
    grads = {name: zeros if grad is None else found[grad.name] for name, grad in grads.items()}
    return fetched(found, last, first), grads


@pytest.mark.laws
@given(st.tuples(over_elements(), over_elements()), st.booleans(), st.integers(0, 3))
@settings(deadline=None, max_examples=settings.default.max_examples // 2)
def test_a_loop_over_an_array_gives_what_it_gives_written_out(bodies, overwrites_first, times):
    assert_same(array_gradients, bodies, overwrites_first, times, 1)


@pytest.mark.laws
@given(st.tuples(over_elements(), over_elements()), st.booleans(), st.integers(0, 3))
@settings(deadline=None, max_examples=settings.default.max_examples // 2)
def test_a_loop_over_an_array_has_the_second_gradients_that_it_has_written_out(bodies, overwrites_first, times):
    assert_same(array_gradients, bodies, overwrites_first, times, 2)
