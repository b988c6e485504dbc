"""The table of instructions that a plan walks through first: the bits, errors and memory of the compiled function."""

import linecache
import threading
import tracemalloc

import numpy as np
import pytest
from pass_laws import assert_same_bits

import minigraph as fluid
from minigraph import layers
from minigraph.errors import ExecutionError
from minigraph.lowering import codegen
from minigraph.lowering.instructions import RNG, XP

pytestmark = pytest.mark.usefixtures("new_program")


def the_plan(executor):
    (plan,) = executor.plans
    return plan


def test_nothing_is_written_or_compiled_before_a_program_runs_again(monkeypatch):
    written = []
    monkeypatch.setattr(codegen, "compile", lambda *given: written.append(given) or compile(*given), raising=False)
    out, executor = layers.tanh(fluid.data("x", [2])), fluid.Executor()
    counts = []
    for _ in range(3):
        executor.run(feed={"x": np.ones(2, "float32")}, fetch_list=[out])
        counts.append(len(written))
    assert counts == [0, 1, 1]


def test_a_loop_is_compiled_for_its_second_round():
    for rounds, is_compiled in ((3, True), (1, False)):
        program = fluid.Program()
        with fluid.program_guard(program):
            i, limit = layers.fill_constant([1], "int64", 0), fluid.data("limit", [1], "int64")
            condition = layers.less_than(i, limit)
            loop = layers.While(condition)
            with loop.block():
                layers.increment(i, 1, in_place=True)
                layers.less_than(i, limit, cond=condition)
        executor = fluid.Executor()
        assert executor.run(program, feed={"limit": np.array([rounds])}, fetch_list=[i])[0] == rounds
        ((step, body),) = the_plan(executor).compiled.bodies
        assert step.op.type == "while"
        assert ("_written" in vars(body)) is is_compiled


def test_steps_that_are_alike_share_what_is_called():
    h = fluid.data("x", [2, 3])
    for _ in range(3):
        h = layers.scale(layers.tanh(h), 0.5)
    other = layers.scale(h, -0.0), layers.scale(h, 0.0)
    executor = fluid.Executor(passes=fluid.passes.LEGALIZE)
    x = np.ones((2, 3), "float32")
    negative, positive = executor.run(feed={"x": x}, fetch_list=list(other))
    assert np.signbit(negative).all() and not np.signbit(positive).any()
    functions = [row.function for row in the_plan(executor).compiled.instructions.rows]
    assert len({id(each) for each in functions}) == 4  # tanh, and three that scale


def test_a_row_says_where_its_function_finds_what_it_needs():
    out = layers.dropout(fluid.data("x", [4]), 0.5)
    executor = fluid.Executor()
    executor.run(feed={"x": np.ones(4, "float32")}, fetch_list=[out])
    instructions = the_plan(executor).compiled.instructions
    (row,) = instructions.rows
    assert row.arguments[0] == XP and row.keywords == {"rng": RNG}
    assert row.arguments[1] == instructions.feeds[0]
    assert row.target[0] == instructions.fetches[0]


@pytest.mark.parametrize("runs_before", [0, 1, 2])
def test_an_error_names_the_operator_in_the_first_run_and_in_later_ones(runs_before):
    x, label = fluid.data("x", [None, 3]), fluid.data("label", [None, 1], "int64")
    loss, executor = layers.cross_entropy(layers.softmax(x), label), fluid.Executor()

    def run(last):
        feed = {"x": np.ones((2, 3), "float32"), "label": np.array([[0], [last]])}
        return executor.run(feed=feed, fetch_list=[loss])

    for _ in range(runs_before):
        run(1)
    with pytest.raises(ExecutionError, match=r"(?s)^cross_entropy2: .*Label = label: int64\[2, 1\].*in: loss, exec"):
        run(9)


@pytest.mark.parametrize("runs_before", [0, 1, 2])
def test_an_error_in_a_sub_block_names_the_operator_there(runs_before):
    x, flag = fluid.data("x", [2, 1], "int64"), fluid.data("flag", [1], "bool")
    one = fluid.data("probabilities", [2, 3])
    loss = layers.cond(flag, lambda: layers.cross_entropy(one, x), lambda: layers.reduce_sum(one, 1, keep_dim=True))
    executor = fluid.Executor()

    def run(label):
        feed = {"x": np.array([[0], [label]]), "flag": np.array([True]), "probabilities": np.ones((2, 3), "float32")}
        return executor.run(feed=feed, fetch_list=[loss])

    for _ in range(runs_before):
        run(1)
    with pytest.raises(ExecutionError, match=r"(?s)^cross_entropy2: .*lambda: layers.cross_entropy"):
        run(7)


def test_the_first_run_gives_memory_up_as_early_as_later_ones(monkeypatch):
    """A chain of arrays of half a megabyte, too small to be given places, of which a few are alive at a time."""
    monkeypatch.setattr("minigraph.lowering.memory_plan.LEAST_BYTES", 2**20)
    h = fluid.data("x", [2**17])
    for _ in range(12):
        h = layers.scale(layers.cumsum(h), 1e-3)
    loss, executor = layers.mean(h), fluid.Executor()
    feed = {"x": np.ones(2**17, "float32")}
    peaks = []
    for _ in range(3):
        tracemalloc.start()
        executor.run(feed=feed, fetch_list=[loss])
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[0] - peaks[2] < 2**19 < peaks[2] < 2**22


@pytest.mark.slow
def test_the_first_runs_of_several_threads_are_told_apart():
    x = fluid.data("x", [1000])
    h = x
    for _ in range(50):
        h = layers.scale(h, 1.01)
    executor, main = fluid.Executor(), fluid.default_main_program()
    expected = {n: fluid.Executor().run(main, {"x": np.full(1000, n, "float32")}, [h])[0] for n in range(4)}
    found = {}

    def run(n):
        (found[n],) = executor.run(main, {"x": np.full(1000, n, "float32")}, [h])

    threads = [threading.Thread(target=run, args=(n,)) for n in expected]
    for each_thread in threads:
        each_thread.start()
    for each_thread in threads:
        each_thread.join()
    assert_same_bits(found, expected)


def test_a_source_that_nobody_asked_for_leaves_nothing_behind():
    before = set(linecache.cache)
    out, executor = layers.tanh(fluid.data("x", [2])), fluid.Executor()
    executor.run(feed={"x": np.ones(2, "float32")}, fetch_list=[out])
    assert set(linecache.cache) - before == {name for name in set(linecache.cache) - before if "plan" not in name}


def test_plans_for_other_batch_sizes_share_the_code_but_not_the_lines():
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        y = layers.tanh(layers.scale(fluid.data("x", [None, 2]), 2.0))
        exe = fluid.Executor(jit=False)
        two, three = (exe.plan_for(feed={"x": np.ones((n, 2), "float32")}, fetch_list=[y]).compiled for n in (2, 3))
    assert two.source == three.source
    first, second = two.function.__code__, three.function.__code__
    assert first.co_code == second.co_code
    assert (first.co_filename, second.co_filename) == (two.filename, three.filename)
    assert two.filename != three.filename and two.filename in linecache.cache
