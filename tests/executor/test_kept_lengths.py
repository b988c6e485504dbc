"""Lengths of persistable variables, which the scope keeps from run to run."""

import itertools

import numpy as np
import pytest
from lengths import tensor

import minigraph as fluid
from minigraph import layers
from minigraph.errors import ExecutionError
from minigraph.executor.interpreter import Interpreter

pytestmark = pytest.mark.usefixtures("new_program")

EXECUTORS = [lambda: fluid.Executor(jit=False), Interpreter]


def kept_variable(levels=1):
    block = fluid.default_main_program().global_block()
    return block.create_var(name="kept", shape=[-1, 2], dtype="float32", persistable=True, lod_level=levels)


def held(scope):
    return scope.find_var("kept").get_tensor()


@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_run_reads_the_sequences_that_the_last_one_left(executor):
    x, kept = fluid.data("x", [None, 2], lod_level=1), kept_variable()
    pooled = layers.sequence_pool(kept, "sum")
    layers.assign(x, kept)
    scope = fluid.Scope()
    given = [tensor([1, 2], 2), tensor([2, 1], 2), tensor([4], 2), tensor([0, 3, 1], 2)]
    holder = scope.var("kept").get_tensor()
    holder.set(np.array(given[0]), fluid.CPUPlace())
    holder.set_lod(given[0].lod())
    for before, now in itertools.pairwise(given):
        (found,) = executor().run(feed={"x": now}, fetch_list=[pooled], scope=scope)
        rows, (offsets,) = np.array(before), before.lod()
        expected = [rows[i:j].sum(0) for i, j in itertools.pairwise(offsets)]
        np.testing.assert_allclose(found, expected, rtol=1e-6)
        assert held(scope).lod() == now.lod()


@pytest.mark.parametrize("executor", EXECUTORS)
def test_what_is_computed_is_kept_with_its_lengths(executor):
    x, kept = fluid.data("x", [None, 2], lod_level=2), kept_variable()
    layers.assign(layers.sequence_pool(x, "sum"), kept)
    scope = fluid.Scope()
    executor().run(feed={"x": tensor([[2, 1], [1, 2, 2]], 2)}, scope=scope)
    assert (held(scope).lod(), held(scope).shape()) == ([[0, 2, 3]], [3, 2])


@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_value_without_sequences_forgets_those_before(executor):
    x, kept = fluid.data("x", [None, 2]), kept_variable(0)
    layers.assign(x, kept)
    scope = fluid.Scope()
    scope.var("kept").get_tensor().set(np.ones((3, 2), np.float32), fluid.CPUPlace())
    held(scope).set_lod([[0, 1, 3]])
    executor().run(feed={"x": np.ones((2, 2), np.float32)}, scope=scope)
    assert held(scope).lod() == []


@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_persistable_variable_that_is_fed_keeps_its_lengths(executor):
    pooled = layers.sequence_pool(kept_variable(), "sum")
    scope, given = fluid.Scope(), tensor([2, 1], 2)
    (first,) = executor().run(feed={"kept": given}, fetch_list=[pooled], scope=scope)
    for _ in range(2):
        (again,) = executor().run(fetch_list=[pooled], scope=scope)
        np.testing.assert_array_equal(again, first)
    assert held(scope).lod() == given.lod()


def test_lengths_that_a_branch_and_a_loop_write_are_kept():
    x, kept, is_reversed = fluid.data("x", [None, 2], lod_level=1), kept_variable(), fluid.data("flag", [1], "bool")
    layers.assign(x, kept)

    def reverse():
        layers.assign(layers.sequence_reverse(x) * 3.0, kept)

    layers.cond(is_reversed, reverse)
    i, end = (layers.fill_constant([1], "int64", number) for number in (0, 3))
    is_going_on = layers.less_than(i, end)
    loop = layers.While(is_going_on)
    with loop.block():
        layers.assign(kept * 2.0, kept)
        layers.increment(i, in_place=True)
        layers.less_than(i, end, cond=is_going_on)
    scope, given = fluid.Scope(), tensor([2, 1], 2)
    rows = np.array(given)
    for flag, expected in ((True, rows[[1, 0, 2]] * 24), (False, rows * 8)):
        fluid.Executor().run(feed={"x": given, "flag": np.array([flag])}, scope=scope)
        np.testing.assert_allclose(np.array(held(scope)), expected, rtol=1e-6)
        assert held(scope).lod() == given.lod()


def test_files_have_the_lengths(tmp_path):
    x, kept = fluid.data("x", [None, 2], lod_level=1), kept_variable()
    layers.assign(x, kept)
    exe, given = fluid.Executor(), tensor([2, 0, 1], 2)
    with fluid.scope_guard(fluid.Scope()):
        exe.run(feed={"x": given})
        fluid.io.save_persistables(exe, str(tmp_path))
    with fluid.scope_guard(fluid.Scope()):
        fluid.io.load_persistables(exe, str(tmp_path))
        assert held(fluid.global_scope()).lod() == given.lod()


def test_a_failed_run_leaves_the_lengths_as_they_were():
    x, kept, numbers = fluid.data("x", [None, 2], lod_level=1), kept_variable(), fluid.data("n", [None], "int64")
    layers.assign(x, kept)
    taken = layers.gather(x, numbers)
    exe, scope, given = fluid.Executor(), fluid.Scope(), tensor([2, 1], 2)
    exe.run(feed={"x": given, "n": np.array([0])}, fetch_list=[taken], scope=scope)
    with pytest.raises(ExecutionError):
        exe.run(feed={"x": tensor([1, 3], 2), "n": np.array([9])}, fetch_list=[taken], scope=scope)
    assert held(scope).lod() == given.lod()
    np.testing.assert_array_equal(np.array(held(scope)), np.array(given))
