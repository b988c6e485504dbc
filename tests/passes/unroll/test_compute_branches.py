"""ComputeBranches computes small branches in any case, and chooses among their results."""

import itertools
from collections import Counter

import numpy as np
import pytest
from both_executors import data, numbers
from pass_laws import pipeline

import minigraph as fluid
from minigraph import layers
from minigraph.executor.interpreter import Interpreter
from minigraph.passes import ComputeBranches, RemoveDeadOps

pytestmark = pytest.mark.usefixtures("new_program")


def number(value):
    return layers.fill_constant([1], "float32", value)


def left(fetches):
    """The types that are left of the default program, of all its blocks."""
    program = fluid.default_main_program().clone()
    program.roots = tuple(fetch.name for fetch in fetches)
    ComputeBranches().apply(program)
    assert not ComputeBranches().apply(program)
    RemoveDeadOps().apply(program)
    return Counter(op.type for block in program.blocks for op in block.ops)


def assert_equal_results(fetches, feeds, state=()):
    """Compare the interpreter and an executor that runs the pass alone, through several runs."""
    found = []
    for exe in (Interpreter(), fluid.Executor(passes=pipeline(ComputeBranches()))):
        scope = fluid.Scope()
        exe.run(fluid.default_startup_program(), scope=scope)
        for feed in feeds:
            found += exe.run(feed=feed, fetch_list=[*fetches], scope=scope)
            found += [np.array(scope.find_var(name).get_tensor()) for name in state]
    half = len(found) // 2
    assert [x.tobytes() for x in found[:half]] == [x.tobytes() for x in found[half:]]


FEEDS = [{"x": np.array([value], "float32")} for value in (-2.0, -0.0, 0.5, 1.5, np.inf, np.nan)]


def test_a_choice_of_numbers_is_where():
    x = data("x", 1, dtype="float32")
    y = layers.cond(x > number(0.0), lambda: 0.5 / x, lambda: number(1.0))
    assert {"conditional_block", "select_input", "where"} & set(left([y])) == {"where"}
    assert_equal_results([y], FEEDS)


def test_the_first_case_that_holds_writes_the_rate():
    """In all orders of three cases and a default, of a variable that had no value yet in the program."""
    x = data("x", 1, dtype="float32")
    made = []
    for i, order in enumerate(itertools.permutations((0.0, 1.0, 2.0))):
        rate = layers.create_global_var([1], 7.0, "float32", persistable=True, name=f"rate{i}")
        with layers.Switch() as switch:
            for limit in order:
                with switch.case(x < number(limit)):
                    layers.assign(x * limit, rate)
            with switch.default():
                layers.assign(number(-1.0), rate)
        made.append(rate)
    found = left(made)
    assert found["conditional_block"] == 0 and found["where"] == 3 * len(made)
    assert_equal_results(made, FEEDS, [rate.name for rate in made])


def test_without_a_default_the_old_value_stays():
    x = data("x", 1, dtype="float32")
    rate = layers.scale(x, 3.0)
    with layers.Switch() as switch:
        for limit in (0.0, 1.0):
            with switch.case(x < number(limit)):
                layers.assign(rate * limit + 1.0, rate)
    assert left([rate])["conditional_block"] == 0
    assert_equal_results([rate], FEEDS)


def test_state_that_one_case_writes_may_lack_a_value():
    x = data("x", 1, dtype="float32")
    rate = layers.create_global_var([1], 7.0, "float32", persistable=True)
    with layers.Switch() as switch, switch.case(x < number(0.0)):
        layers.assign(x, rate)
    assert left([rate])["conditional_block"] == 1


def test_a_branch_inside_of_a_branch_goes_first():
    x = data("x", 1, dtype="float32")
    y = layers.case(
        [(x < number(0.0), lambda: x * 2.0), (x < number(1.0), lambda: x * 3.0)], default=lambda: layers.tanh(x)
    )
    assert left([y])["conditional_block"] == 0
    assert_equal_results([y], FEEDS)


def test_a_choice_of_tensors_stays_a_choice():
    x, z = data("x", 1, dtype="float32"), layers.assign(numbers(3, 2, dtype="float32"))
    y = layers.cond(x > number(0.0), lambda: z * x, lambda: layers.tanh(z))
    assert left([y])["conditional_block"] == 0 and left([y])["select_input"] == 1
    assert_equal_results([y], FEEDS)


def _drawn(x):
    return layers.uniform_random([1]) + x


def _looked_up(x):
    return layers.gather(layers.reshape(x, [1, 1]), layers.cast(x, "int32"))


def _large(x):
    return layers.reduce_sum(layers.fill_constant([4096], "float32", 1.0)) * x


@pytest.mark.parametrize("branch", [_drawn, _looked_up, _large])
def test_branches_that_draw_or_may_fail_or_take_long_stay(branch):
    x = data("x", 1, dtype="float32")
    y = layers.cond(x > number(0.0), lambda: branch(x), lambda: x * 2.0)
    assert left([y])["conditional_block"] == 1


def test_a_branch_that_is_differentiated_stays():
    x = data("x", 1, dtype="float32")
    x.stop_gradient = False
    y = layers.cond(x > number(0.0), lambda: 0.5 / x, lambda: x * 2.0)
    (gradient,) = fluid.gradients(y, x)
    assert left([y, gradient])["conditional_block"] == 2
    assert_equal_results([y, gradient], FEEDS)


def test_a_value_that_only_a_branch_writes_is_missed_elsewhere():
    x = data("x", 1, dtype="float32")
    out = fluid.default_main_program().global_block().create_var(name="out", shape=[1], dtype="float32")
    with layers.Switch() as switch, switch.case(x < number(0.0)):
        layers.assign(x, out)
    assert left([layers.tanh(out)])["conditional_block"] == 1


def test_conditions_of_two_are_found():
    x = data("x", 1, dtype="float32")
    both = layers.logical_and(x > number(0.0), x < number(1.0))
    y = layers.cond(both, lambda: x * 2.0, lambda: number(1.0))
    assert left([y])["conditional_block"] == 0
    assert_equal_results([y], FEEDS)


def test_a_branch_that_reads_what_another_run_may_lack_stays():
    """Gradients of gradients through a `cond` that returns what it is given read what only one branch gets."""
    x = data("x", 3, dtype="float64")
    x.stop_gradient = False
    h = layers.scale(x, 1.5)
    out = layers.cond(layers.reduce_sum(x) < 0.0, lambda: layers.square(h), lambda: h)
    (first,) = fluid.gradients(out, x)
    (second,) = fluid.gradients(layers.square(first), x)
    for sign in (-1, 1):
        feed = {"x": sign * np.array([0.3, 0.5, 0.7])}
        runs = [exe.run(feed=feed, fetch_list=[out, first, second]) for exe in (Interpreter(), fluid.Executor())]
        for found, expected in zip(*runs, strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-12)
