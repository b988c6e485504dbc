"""State that a run replaces is written to arrays of the scope that nobody else holds; two of each take turns."""

import sys
import tracemalloc

import numpy as np
import pytest
from jit_support import needs_numba
from networks import at_the_same_time

import minigraph as fluid
from minigraph import layers
from minigraph.errors import ExecutionError
from minigraph.runtime.place import CPUPlace
from minigraph.runtime.scope_variable import ScopeVariable

SHAPES = [(300, 400), (7,), (20_000,), (3, 5, 2), (1,)]
NAMES = [f"c{i}" for i in range(len(SHAPES))]
WITH_AND_WITHOUT_JIT = pytest.mark.parametrize("jit", [False, pytest.param(True, marks=needs_numba)])


class Clip:
    """A program that clips persistable gradients into other persistable variables."""

    def __init__(self, scope=None, **how):
        self.main, self.executor, self.scope = fluid.Program(), fluid.Executor(**how), scope or fluid.Scope()
        with fluid.program_guard(self.main, fluid.Program()):
            block = self.main.global_block()
            pairs = list(zip(NAMES, SHAPES, strict=True))
            grads = [block.create_var(f"g{name}", list(shape), "float32", persistable=True) for name, shape in pairs]
            kept = [block.create_var(name, list(shape), "float32", persistable=True) for name, shape in pairs]
            bound = layers.fill_constant([1], "float32", 1.0)
            norm = block.create_var("norm", [1], "float32", persistable=True)
            block.append_op("clip_by_global_norm", {"X": grads, "ClipNorm": bound}, {"Out": kept, "Norm": norm})
        self.set(1)

    def set(self, size):
        """Give the gradients values of about this size."""
        rng = np.random.default_rng(0)
        for name, shape in zip(NAMES, SHAPES, strict=True):
            array = (size * rng.standard_normal(shape)).astype("float32")
            self.scope.var(f"g{name}").get_tensor().set(array, CPUPlace())

    def run(self, fetch=()):
        return self.executor.run(self.main, fetch_list=list(fetch), scope=self.scope)

    def expected(self, name):
        grads = {each: self.array(f"g{each}") for each in NAMES}
        norm = np.sqrt(sum(float(np.vdot(g, g)) for g in grads.values()))
        return grads[name] / max(norm, 1.0)

    def array(self, name):
        """The array in the scope, not a copy."""
        return self.scope.find_var(name).value

    def addresses(self):
        return [self.array(name).ctypes.data for name in NAMES]

    def check(self):
        for name in NAMES:
            np.testing.assert_allclose(self.array(name), self.expected(name), rtol=1e-5)


@WITH_AND_WITHOUT_JIT
@pytest.mark.parametrize("size", [1, 1e-6])
def test_two_arrays_of_each_variable_take_turns(jit, size):
    clip = Clip(jit=jit)
    for _ in range(3):
        clip.run()
    found = []
    for number in range(6):
        clip.set(size * number)
        clip.run()
        clip.check()
        found.append(clip.addresses())
    assert found[0] == found[2] == found[4]
    assert found[1] == found[3] == found[5]
    assert set(found[0]).isdisjoint(found[1])


@WITH_AND_WITHOUT_JIT
def test_a_run_allocates_nothing_for_them(jit):
    clip = Clip(jit=jit)
    for _ in range(4):
        clip.run()
    tracemalloc.start()
    for _ in range(3):
        clip.run()
    before = tracemalloc.get_traced_memory()[0]
    tracemalloc.reset_peak()
    for _ in range(3):
        clip.run()
    peak = tracemalloc.get_traced_memory()[1] - before
    tracemalloc.stop()
    assert peak < 4 * 20_000


def test_what_somebody_holds_stays_as_it_is():
    clip = Clip()
    held = []
    for number in range(1, 7):
        clip.set(number)
        clip.run()
        array = clip.array("c0")
        held += [(array, array.copy()), (array[3:5].T, array[3:5].T.copy())]
    array = None
    for each, was in held:
        np.testing.assert_array_equal(each, was)
    clip.check()


def test_a_view_alone_keeps_its_array():
    clip = Clip()
    for _ in range(3):
        clip.run()
    corner = clip.array("c0")[:2, :2]
    was = corner.copy()
    for number in range(2, 5):
        clip.set(number)
        clip.run()
        np.testing.assert_array_equal(corner, was)


def test_an_array_under_two_names_stays_under_the_other():
    clip = Clip()
    clip.run()
    clip.run()
    was = clip.array("c2").copy()
    clip.scope.var("other").value = clip.array("c2")
    for number in range(2, 5):
        clip.set(number)
        clip.run()
        np.testing.assert_array_equal(clip.array("other"), was)


@pytest.mark.parametrize("make", [np.asfortranarray, lambda x: x[...], lambda x: x.astype("float64")[:, ::2]])
def test_arrays_that_do_not_fit_are_left_alone(make):
    clip = Clip()
    clip.run()
    clip.run()
    mine = make(np.ones(SHAPES[0], "float32"))
    clip.scope.var("c0").value = mine
    for number in range(3):
        clip.set(number)
        clip.run()
        clip.check()
    assert (mine == 1).all()


def test_fetched_results_are_the_callers_own():
    clip = Clip()
    fetched = []
    for number in range(1, 6):
        clip.set(number)
        fetched.append((clip.run(["c0", "norm"]), clip.array("c0").copy(), clip.array("norm").copy()))
    for results, *was in fetched:
        for result, expected in zip(results, was, strict=True):
            np.testing.assert_array_equal(result, expected)


def test_handles_see_the_value_of_the_latest_run():
    clip = Clip()
    clip.run()
    handle = clip.scope.find_var("c0").get_tensor()
    for number in (100, 2, 3):
        clip.set(number)
        clip.run()
        np.testing.assert_array_equal(np.array(handle), clip.array("c0"))


def test_programs_and_executors_share_a_scope():
    one = Clip()
    other = Clip(one.scope)
    for number in range(8):
        clip = (one, one, other, one, other, other, one, other)[number]
        clip.set(number + 1)
        clip.run()
        clip.check()


def test_a_reader_in_another_program_sees_each_value():
    clip, reader = Clip(), fluid.Program()
    with fluid.program_guard(reader, fluid.Program()):
        kept = reader.global_block().create_var("c0", list(SHAPES[0]), "float32", persistable=True)
        total = layers.reduce_sum(kept)
    for number in range(1, 7):
        clip.set(number * 1e-4)
        clip.run()
        (found,) = fluid.Executor().run(reader, fetch_list=[total], scope=clip.scope)
        np.testing.assert_allclose(found, clip.array("c0").sum(dtype="float64"), rtol=1e-3)


def test_a_run_that_reads_the_old_value_has_it_until_its_end():
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        block = main.global_block()
        x = fluid.data("x", [5])
        old, new = (block.create_var(name, [5], "float32", persistable=True) for name in ("latest", "difference"))
        layers.assign(x - old, new)
        layers.assign(x, old)
        layers.assign(layers.elementwise_add(new, old), new)
    executor, scope = fluid.Executor(), fluid.Scope()
    scope.var("latest").get_tensor().set(np.zeros(5, "float32"), CPUPlace())
    before = 0.0
    for number in (1.0, 4.0, 2.0, 7.0):
        executor.run(main, {"x": np.full(5, number, "float32")}, scope=scope)
        assert scope.find_var("difference").value.tolist() == [2 * number - before] * 5
        assert scope.find_var("latest").value.tolist() == [number] * 5
        before = number


def test_a_run_that_fails_leaves_the_old_values():
    main = fluid.Program()
    fails = []

    def maybe(x):
        if fails:
            raise ValueError("stop")
        return x

    with fluid.program_guard(main, fluid.Program()):
        x = fluid.data("x", [5000])
        kept = main.global_block().create_var("kept", [5000], "float32", persistable=True)
        last = main.global_block().create_var("last", [5000], "float32", persistable=True)
        layers.assign(layers.scale(x, 2.0), kept)
        layers.py_func(maybe, x, last)
    executor, scope = fluid.Executor(), fluid.Scope()
    for number in range(3):
        executor.run(main, {"x": np.full(5000, number, "float32")}, scope=scope)
    for _ in range(3):
        fails.append(True)
        with pytest.raises(ExecutionError):
            executor.run(main, {"x": np.full(5000, 9, "float32")}, scope=scope)
        assert (scope.find_var("kept").value == 4).all()
        fails.clear()
        executor.run(main, {"x": np.full(5000, 2, "float32")}, scope=scope)
        assert (scope.find_var("kept").value == 4).all()


def test_a_view_of_other_state_is_copied_to_arrays_that_take_turns():
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        block = main.global_block()
        source = block.create_var("source", [40, 60], "float32", persistable=True)
        block.create_var("turned", [60, 40], "float32", persistable=True)
        block.append_op("reshape2", {"X": source}, {"Out": "turned"}, {"shape": [60, 40]})
    executor, scope, found = fluid.Executor(), fluid.Scope(), []
    for number in range(8):
        scope.var("source").get_tensor().set(np.full((40, 60), number, "float32"), CPUPlace())
        executor.run(main, scope=scope)
        assert (scope.find_var("turned").value == number).all()
        found.append(scope.find_var("turned").value.ctypes.data)
    assert found[3] == found[5] == found[7] != found[4] == found[6]


def test_what_runs_once_leaves_no_spare_arrays():
    clip = Clip()
    clip.run()
    clip.executor = fluid.Executor()
    was = clip.addresses()
    held = [clip.array(name) for name in NAMES]
    clip.run()
    assert set(was).isdisjoint(clip.addresses())
    assert all(clip.scope.find_var(name)._spare is None for name in NAMES)
    del held


@WITH_AND_WITHOUT_JIT
def test_checked_runs_find_no_fault(jit):
    clip = Clip(jit=jit, check=True)
    for number in range(1, 6):
        clip.set(number * 1e-3)
        clip.run(["c1"])
        clip.check()


@pytest.mark.slow
def test_threads_that_share_a_scope_see_whole_values():
    clip = Clip()
    clip.run()
    was = [clip.array(name).copy() for name in NAMES]

    def work():
        for _ in range(30):
            (found,) = clip.run(["c0"])
            np.testing.assert_array_equal(found, was[0])
            np.testing.assert_array_equal(np.array(clip.scope.find_var("c2").get_tensor()), was[2])

    at_the_same_time([work] * 4)


def test_an_array_that_somebody_holds_is_left_alone_also_behind_a_debugger():
    """A function that traces and reads local variables adds references, in this run or while modules were imported."""

    def trace(frame, event, argument):
        assert frame.f_locals is not None
        return trace

    before = sys.gettrace()
    for tracer in (before, trace):
        variable = ScopeVariable("x")
        variable._spare = held = np.empty(4)
        sys.settrace(tracer)
        try:
            found = variable.take_spare((4,), np.float64)
        finally:
            sys.settrace(before)
        assert found is not held
    variable._spare = np.empty(4)
    address = variable._spare.ctypes.data
    assert variable.take_spare((4,), np.float64).ctypes.data == address
