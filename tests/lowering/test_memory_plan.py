"""Where values live during a run: never two at one place at one time, and nothing of size allocated in steady state."""

import threading
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

import minigraph as fluid
from minigraph import layers
from minigraph.errors import ExecutionError
from minigraph.executor.explain import memory_plan
from minigraph.executor.interpreter import Interpreter
from minigraph.executor.plan import lower
from minigraph.lowering import memory_plan as memory
from minigraph.lowering.flat_buffers import NO_FLAT_BUFFERS, is_state
from minigraph.rewrite.random_programs.recipes import build
from minigraph.rewrite.strategies import recipes, trainings
from minigraph.runtime.place import CPUPlace
from minigraph.types import TensorType, as_dtype


def plan_of(main, feed, fetch):
    types = {name: TensorType(as_dtype(array.dtype), array.shape) for name, array in feed.items()}
    return lower(main, types, [var.name for var in fetch], CPUPlace())


def network(sizes=(300, 400, 500), updates=True):
    main, startup = fluid.Program(), fluid.Program()
    startup.random_seed = 1
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x = h = fluid.data("x", [None, sizes[0]])
        for size in sizes[1:]:
            h = layers.fc(h, size, act="tanh")
        loss = layers.mean(h)
        if updates:
            fluid.optimizer.Adam(0.01).minimize(loss)
    return main, startup, {"x": np.random.default_rng(0).standard_normal((256, sizes[0]), np.float32)}, [loss, h, x]


@pytest.fixture
def _places_for_all(monkeypatch):
    monkeypatch.setattr(memory, "LEAST_BYTES", 1)


def spans(plan):
    """For each placed value: from which to which step its memory is in use, and which bytes that is."""
    steps, flat, root, layout = plan.steps, plan.buffers.flat, plan.buffers.storage.root, plan.buffers.layout
    in_flat_buffers = {value for values in flat.buffers for value in values}
    for value, place in layout.place_of.items():
        if value in flat.views:
            continue
        written = [i for i, step in enumerate(steps.steps) if value in (*step.writes, *flat.copies.get(step, ()))]
        read = [i for i, step in enumerate(steps.steps) if any(root(v) is root(value) for v in step.reads)]
        offset, dtype, shape = layout.places[place]
        assert offset % (dtype.itemsize if value in in_flat_buffers else 64) == 0
        if value in steps.fetches:
            read.append(len(steps.steps))
        yield (
            max(written) if value in in_flat_buffers else min(written),
            max([*written, *read]),
            offset,
            offset + int(np.prod(shape)) * dtype.itemsize,
        )


@pytest.mark.laws
@given(recipe=recipes(training=trainings()))
def test_no_two_values_in_use_share_memory(recipe):
    built = build(recipe)
    types = {name: TensorType(as_dtype(a.dtype), a.shape) for name, a in built.feed().items()}
    fetch = built.fetchable()[::3]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory, "LEAST_BYTES", 1)
        made = lower(built.main, types, fetch, CPUPlace())
    steps, layout, root = made.steps, made.buffers.layout, made.buffers.storage.root
    found = list(spans(made))
    for i, (first, last, start, end) in enumerate(found):
        assert end <= layout.size
        for other_first, other_last, other_start, other_end in found[:i]:
            apart_in_time = last < other_first or other_last < first
            assert apart_in_time or end <= other_start or other_end <= start
    for value, must_copy in zip(steps.fetches, made.must_copy, strict=True):
        assert must_copy or root(value) not in layout.place_of
    assert all(root(value) not in layout.place_of for value in steps.new_state.values())


@pytest.mark.usefixtures("new_program")
def test_a_result_never_begins_where_its_operand_ends(_places_for_all):
    """NumPy 1.26 rounds exponentials of float64 otherwise when arrays adjoin."""
    x = fluid.data("x", [8], "float64")
    chain = [layers.exp(x)]
    for _ in range(4):
        chain.append(layers.exp(layers.scale(chain[-1], -1.0)))
    feed = {"x": np.linspace(-3, 0, 8)}
    found = [
        (start, end) for *_, start, end in spans(plan_of(fluid.default_main_program(), feed, [layers.mean(chain[-1])]))
    ]
    assert len(found) > 4
    assert not {start for start, _ in found} & {end for _, end in found}


@pytest.mark.laws
@given(recipe=recipes(training=trainings()))
def test_vectors_cover_their_parts(recipe):
    built = build(recipe)
    types = {name: TensorType(as_dtype(a.dtype), a.shape) for name, a in built.feed().items()}
    made = lower(built.main, types, [built.loss.name], CPUPlace())
    layout = made.buffers.layout
    for vector in (vector for vector in made.buffers.flat.views if vector in layout.place_of):
        places = [layout.places[layout.place_of[part]] for part in vector.parts]
        offset, dtype, (size,) = layout.places[layout.place_of[vector]]
        for start, kind, shape in places:
            assert (start, kind) == (offset, dtype)
            offset += int(np.prod(shape)) * dtype.itemsize
        assert size == sum(int(np.prod(shape)) for _, _, shape in places)


@pytest.mark.laws
@given(recipe=recipes(training=trainings()))
def test_given_memory_changes_no_bit_and_no_result_lies_in_it(recipe):
    built = build(recipe)
    fetch = built.fetchable()[::2]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory, "LEAST_BYTES", 1)
        results, scopes = [], []
        for kind in (fluid.Executor, Interpreter):
            executor, scope = kind(), fluid.Scope()
            executor.run(built.startup, scope=scope)
            runs = [executor.run(built.main, built.feed(i), fetch, scope=scope) for i in range(3)]
            results.append([np.asarray(value).tobytes() for values in runs for value in values])
            scopes.append({n: np.array(scope.find_var(n).get_tensor()).tobytes() for n in scope.local_var_names()})
    assert results[0] == results[1]
    assert scopes[0] == scopes[1]


@pytest.mark.laws
@given(recipe=recipes(training=trainings()))
def test_side_by_side_takes_no_more_than_release_at_the_last_use_and_what_lies_there(recipe):
    built = build(recipe)
    types = {name: TensorType(as_dtype(a.dtype), a.shape) for name, a in built.feed().items()}
    made = lower(built.main, types, [built.loss.name], CPUPlace())
    values = [value for values in made.buffers.flat.buffers if not is_state(values) for value in values]
    reserved = sum(int(np.prod(v.tensor_type.shape)) * v.tensor_type.dtype.numpy.itemsize for v in values)
    alone = replace(made.buffers, flat=NO_FLAT_BUFFERS)
    assert memory_plan(made.steps, made.buffers).peak <= memory_plan(made.steps, alone).peak + reserved


@pytest.mark.slow
def test_a_run_in_steady_state_allocates_no_more_than_an_update_works_with(monkeypatch):
    monkeypatch.setattr(memory, "LEAST_BYTES", 16 * 1024)
    main, startup, feed, (loss, *_) = network()
    executor, scope = fluid.Executor(), fluid.Scope()
    executor.run(startup, scope=scope)
    for _ in range(3):
        executor.run(main, feed, [loss], scope=scope)
    tracemalloc.start()
    try:
        executor.run(main, feed, [loss], scope=scope)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # The gradients have 1,280,000 bytes; an update has pieces of 262,144, what is fused 512,000 on its way.
    assert executor.plan_for(main, feed, [loss]).buffers.layout.size > 2_000_000
    assert peak < 600_000


def test_the_block_is_no_larger_than_what_is_alive_at_the_peak_asks_for():
    sizes = (512,) * 20
    main, _, feed, (loss, *_) = network(sizes, updates=False)
    made = plan_of(main, feed, [loss])
    one = 256 * 512 * 4
    assert made.buffers.layout.size <= 3 * one


def test_small_values_are_left_to_numpy():
    main, _, feed, fetch = network((3, 4, 5), updates=False)
    assert plan_of(main, {"x": feed["x"][:, :3]}, fetch).buffers.layout.size == 0


@pytest.mark.usefixtures("_places_for_all")
@pytest.mark.parametrize(
    "spread", [lambda h, like: layers.expand(h, [1, 3]), layers.expand_as], ids=["expand", "expand_as"]
)
def test_what_is_repeated_along_a_dimension_of_one_keeps_its_values(spread):
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
        x, z, like = (fluid.data(name, [None, size]) for name, size in (("x", 1), ("z", 1), ("like", 3)))
        repeated = spread(layers.elementwise_add(x, z), like)
        t = layers.elementwise_mul(x, z)
        for _ in range(2):  # what the sum lay in is used again
            t = layers.cumsum(layers.elementwise_add(t, z), axis=0)
        fetch = [layers.cumsum(layers.transpose(repeated, [1, 0]), axis=1), layers.reduce_max(t)]
        feed = {"x": np.ones((5, 1), "float32"), "z": np.ones((5, 1), "float32"), "like": np.ones((5, 3), "float32")}
        found, _ = fluid.Executor().run(feed=feed, fetch_list=fetch)
    assert found.tolist() == [[2, 4, 6, 8, 10]] * 3


@pytest.mark.slow
@pytest.mark.usefixtures("_places_for_all")
def test_runs_in_several_threads_do_not_disturb_each_other():
    main, startup, feed, fetch = network((30, 40, 50), updates=False)
    executor, scope = fluid.Executor(), fluid.Scope()
    executor.run(startup, scope=scope)
    feeds = [{"x": feed["x"] * number} for number in range(1, 9)]
    expected = [executor.run(main, each, fetch, scope=scope) for each in feeds]
    wrong = []

    def work(number):
        for _ in range(50):
            found = executor.run(main, feeds[number], fetch, scope=scope)
            if any(a.tobytes() != b.tobytes() for a, b in zip(found, expected[number], strict=True)):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(feeds))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.usefixtures("_places_for_all")
def test_a_failed_run_leaves_the_executor_usable():
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        label = fluid.data("label", [None, 1], "int64")
        x = layers.softmax(fluid.data("x", [None, 3]))
        loss = layers.cross_entropy(x, label)
        executor = fluid.Executor()
        feed = {"x": np.zeros((2, 3), "float32"), "label": np.array([[0], [1]])}
        first = executor.run(feed=feed, fetch_list=[loss])[0]
        with pytest.raises(fluid.errors.ExecutionError):
            executor.run(feed={**feed, "label": np.array([[0], [9]])}, fetch_list=[loss])
        assert executor.run(feed=feed, fetch_list=[loss])[0].tobytes() == first.tobytes()


# Sub-blocks


def looping(size):
    """A loop of 20 rounds with large temporaries, its feed, and what to fetch: its result and a gradient."""
    main = fluid.Program()
    with fluid.program_guard(main), fluid.unique_name.guard():
        x = fluid.data("x", [size])
        i, limit = layers.fill_constant([1], "float32", 0.0), layers.fill_constant([1], "float32", 20.0)
        x.stop_gradient = i.stop_gradient = False

        def body(i, h):
            halved = layers.scale(layers.exp(h), 0.5)
            return [layers.scale(i, 1.0, bias=1.0), layers.tanh(layers.elementwise_mul(halved, halved))]

        _, h = layers.while_loop(lambda i, h: layers.less_than(i, limit), body, [i, x])
        (grad,) = fluid.gradients([layers.mean(h)], [x])
    return main, {"x": np.linspace(-1, 1, size, dtype="float32")}, h, grad


@pytest.mark.usefixtures("_places_for_all")
def test_a_loop_works_in_given_memory_and_gives_the_bits_of_the_interpreter():
    main, feed, *fetch = looping(6)
    executor = fluid.Executor(jit=False)
    expected = Interpreter().run(main, feed, fetch)
    for _ in range(3):
        for found, value in zip(executor.run(main, feed, fetch), expected, strict=True):
            assert found.tobytes() == value.tobytes()
    (_, body), _ = executor.plan_for(main, feed, fetch).compiled.bodies
    assert 0 < body.instructions.buffers < len(body.instructions.rows)


@pytest.mark.slow
def test_a_loop_allocates_only_what_outlives_a_round():
    main, feed, h, _ = looping(2**19)
    executor = fluid.Executor(jit=False)
    peaks = []
    for _ in range(3):
        tracemalloc.start()
        executor.run(main, feed, [h])
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    # The state of the round before and of this one; in the first run the block, too.
    assert peaks[-1] < 3 * 2**21 < peaks[0]


@pytest.mark.slow
@pytest.mark.usefixtures("_places_for_all")
def test_loops_in_several_threads_have_memory_of_their_own():
    main, feed, *fetch = looping(2000)
    executor = fluid.Executor(jit=False)
    executor.run(main, feed, fetch)
    expected = {n: Interpreter().run(main, {"x": feed["x"] * n}, fetch) for n in range(4)}
    found = {}

    def run(n):
        for _ in range(5):
            found[n] = executor.run(main, {"x": feed["x"] * n}, fetch)

    threads = [threading.Thread(target=run, args=(n,)) for n in expected]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    for n, values in expected.items():
        assert [each.tobytes() for each in found[n]] == [each.tobytes() for each in values]


@pytest.mark.usefixtures("_places_for_all")
def test_memory_is_given_back_when_a_round_fails():
    main = fluid.Program()
    with fluid.program_guard(main), fluid.unique_name.guard():
        rows, label = fluid.data("rows", [2, 3]), fluid.data("label", [2, 1], "int64")
        flag = layers.less_than(layers.fill_constant([1], "float32", 0.0), layers.fill_constant([1], "float32", 1.0))
        loss = layers.cond(
            flag,
            lambda: layers.cross_entropy(layers.softmax(rows), label),
            lambda: layers.reduce_sum(rows, 1, keep_dim=True),
        )
    executor = fluid.Executor(jit=False)
    feed = {"rows": np.ones((2, 3), "float32"), "label": np.array([[0], [9]])}
    for _ in range(3):
        with pytest.raises(ExecutionError, match="cross_entropy2"):
            executor.run(main, feed, [loss])
    blocks = executor._blocks._free
    assert len(blocks) == len(set(map(id, blocks))) <= 2
    feed["label"][1] = 1
    np.testing.assert_allclose(executor.run(main, feed, [loss])[0], np.full((2, 1), np.log(3)), rtol=1e-6)
