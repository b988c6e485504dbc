"""`Executor.run`: what can be fetched, whose arrays the results are, scopes, plans, mistakes."""

import copy
import gc
import itertools
import linecache
import pickle
import traceback

import numpy as np
import pytest
from hypothesis import given
from scopes import value as in_scope

import minigraph as fluid
from minigraph import layers
from minigraph.errors import ExecutionError, FeedError, NotFoundError, OpError, ProgramError, WrongTypeError
from minigraph.executor import plan as plan_module
from minigraph.executor.interpreter import Interpreter
from minigraph.kernels import registry
from minigraph.rewrite.random_programs.recipes import build
from minigraph.rewrite.strategies import recipes

pytestmark = pytest.mark.usefixtures("new_program", "new_scope")


@pytest.fixture
def lowerings(monkeypatch):
    """The fetch lists that programs were lowered for, in order."""
    made = []
    original = plan_module.lower

    def lower(program, feed_types, fetch, *rest, **options):
        made.append(tuple(fetch))
        return original(program, feed_types, fetch, *rest, **options)

    monkeypatch.setattr(plan_module, "lower", lower)
    return made


def main():
    return fluid.default_main_program()


def initialized(place=None):
    executor = fluid.Executor(place)
    executor.run(fluid.default_startup_program())
    return executor


def persistable(name, value, dtype="float32"):
    """A persistable variable with a start value."""
    start = np.atleast_1d(np.asarray(value, dtype))
    initializer = fluid.initializer.NumpyArrayInitializer(start)
    fluid.default_startup_program().global_block().create_var(
        name=name, shape=start.shape, dtype=dtype, persistable=True, initializer=initializer
    )
    return main().global_block().create_var(name=name, shape=start.shape, dtype=dtype, persistable=True)


def array(*values):
    return np.array(values, "float32")


def training():
    """A program that trains one layer, its loss, its pairs, a feed."""
    x = fluid.data("x", [None, 2])
    hidden = layers.fc(x, 3, param_attr=fluid.ParamAttr("w"), bias_attr=fluid.ParamAttr("b"))
    loss = layers.mean(layers.square(hidden))
    _, pairs = fluid.optimizer.Momentum(0.1, momentum=0.9).minimize(loss)
    return loss, pairs, {"x": np.arange(8, dtype="float32").reshape(4, 2) / 8}


# What can be fetched


@pytest.mark.parametrize("wrap", [lambda v: [v], lambda v: (v,), lambda v: v, lambda v: [v.name], lambda v: v.name])
def test_a_fetch_is_a_variable_a_name_or_a_list_of_them(wrap):
    out = layers.scale(fluid.data("x", [2]), 3.0)
    results = fluid.Executor().run(feed={"x": array(1, 2)}, fetch_list=wrap(out))
    assert type(results) is list
    np.testing.assert_array_equal(results, [[3, 6]])


@pytest.mark.parametrize("given", [(fluid.Scope(),), ("feed", fluid.Scope())])
def test_a_scope_in_the_place_of_a_name_is_an_error(given):
    with pytest.raises(WrongTypeError, match=r"must be str, got Scope[\s\S]*write scope=scope"):
        fluid.Executor().run(fluid.Program(), {}, [], *given)


@pytest.mark.parametrize("nothing", [None, [], ()])
def test_no_fetch_gives_an_empty_list(nothing):
    layers.scale(fluid.data("x", [2]), 3.0)
    assert fluid.Executor().run(feed={"x": array(1, 2)}, fetch_list=nothing) == []


def test_what_is_fed_a_parameter_and_one_thing_twice_can_be_fetched():
    x = fluid.data("x", [2])
    persistable("w", [5, 7])
    out = layers.scale(x, 3.0)
    results = initialized().run(feed={"x": array(1, 2)}, fetch_list=[out, "w", x, out, "x"])
    np.testing.assert_array_equal(results, [[3, 6], [5, 7], [1, 2], [3, 6], [1, 2]])


def test_an_updated_parameter_is_fetched_with_its_new_value():
    w = persistable("w", [5.0])
    layers.increment(w, 2.0)
    executor = initialized()
    assert [executor.run(fetch_list=[w])[0].item() for _ in range(3)] == [7, 9, 11]


def test_every_variable_of_a_program_can_be_fetched():
    _, _, feed = training()
    names = [var.name for var in main().list_vars()]
    results = initialized().run(feed=feed, fetch_list=names)
    for name, value in zip(names, results, strict=True):
        declared = main().global_block().var(name).shape
        assert all(size in (-1, actual) for size, actual in zip(declared, value.shape, strict=True))


def test_results_are_numpy_arrays_or_tensors():
    out = layers.scale(fluid.data("x", [2]), 3.0)
    executor, feed = fluid.Executor(), {"x": array(1, 2)}
    (result,) = executor.run(feed=feed, fetch_list=[out])
    (tensor,) = executor.run(feed=feed, fetch_list=[out], return_numpy=False)
    assert type(result) is np.ndarray
    assert isinstance(tensor, fluid.LoDTensor)
    assert (tensor.shape(), tensor.lod()) == ([2], [])
    np.testing.assert_array_equal(np.array(tensor), result)


def test_a_batch_without_rows_gives_results_without_rows():
    out = layers.softmax(layers.relu(fluid.data("x", [None, 3])))
    assert fluid.Executor().run(feed={"x": np.zeros((0, 3), "float32")}, fetch_list=[out])[0].shape == (0, 3)


def test_the_defaults_are_the_default_program_and_the_global_scope():
    w = persistable("w", [5.0])
    fluid.Executor().run(fluid.default_startup_program())
    assert fluid.Executor().run(fetch_list=[w])[0] == 5


def test_what_minimize_returns_and_lists_of_variables_may_be_fetched():
    """Results and weights are those of Paddle 1.8.5."""
    x = fluid.data("x", [2, 2])
    h = layers.fc(x, 1, param_attr=fluid.ParamAttr("w", fluid.initializer.Constant(1.0)), bias_attr=False)
    loss = layers.mean(h)
    minimized = fluid.optimizer.SGD(0.1).minimize(loss)
    operators, _ = minimized
    exe = fluid.Executor()
    exe.run(fluid.default_startup_program())
    for fetched, expected in (
        ([loss, operators], [2.0]),
        ([loss, *operators], [1.8]),
        ([minimized, loss.name], [1.6]),
        ([[loss], [h]], [1.4, 1.4]),
    ):
        found = exe.run(feed={"x": np.ones((2, 2), "float32")}, fetch_list=fetched)
        np.testing.assert_allclose([each.flat[0] for each in found], expected, rtol=1e-6)
    with pytest.raises(WrongTypeError, match=r"fetch_list holds <Operator .* = mul"):
        exe.run(feed={"x": np.ones((2, 2), "float32")}, fetch_list=[main().global_block().ops[0]])


@pytest.mark.parametrize("entry", [3, None, [["x"]], b"x"])
def test_a_fetch_that_is_neither_variable_nor_name_is_an_error(entry):
    fluid.data("x", [2])
    with pytest.raises(WrongTypeError, match=r"fetch_list holds .* no Variable or name"):
        fluid.Executor().run(feed={"x": array(1, 2)}, fetch_list=[entry])


# Results belong to the caller


def spoil(arrays):
    for each in arrays:
        each[...] = 77 if each.dtype != bool else True


def scope_values():
    return {name: in_scope(name) for name in fluid.global_scope().local_var_names()}


def same(found, expected):
    return all(a.tobytes() == b.tobytes() for a, b in zip(found, expected, strict=True)) and len(found) == len(expected)


def views_and_copies():
    """Values that are, or could be, the same memory as what is fed or kept."""
    x = fluid.data("x", [2, 3])
    w = persistable("w", [[1, -2, 3], [4, 5, -6]])
    reshaped = layers.reshape(x, [6])
    return [
        x, w, reshaped, layers.reshape(reshaped, [3, 2]), layers.reshape(w, [3, 2]), layers.assign(x), layers.assign(w),
        layers.cast(x, "float32"), layers.cast(w, "float32"), layers.clip(x, -100.0, 100.0), layers.scale(x, 1.0),
        layers.clip_by_norm(x, 1000.0), layers.clip_by_norm(w, 1000.0), layers.transpose(x, [0, 1]),
        layers.transpose(w, [1, 0]), layers.concat([x]), layers.sums([w]), layers.sums(x), layers.elementwise_add(x, x),
        layers.dropout(x, 0.5, is_test=True, dropout_implementation="upscale_in_train"), layers.dropout(w, 0.0, seed=1),
        layers.reduce_sum(x, dim=[0], keep_dim=True), layers.reduce_max(layers.reshape(w, [1, 6]), dim=0),
    ]  # fmt: skip


@pytest.mark.parametrize("kind", [fluid.Executor, Interpreter])
def test_results_share_no_memory_with_each_other_the_feed_or_the_scope(kind):
    fetch = views_and_copies()
    fluid.Executor().run(fluid.default_startup_program())
    feed = {"x": np.arange(6, dtype="float32").reshape(2, 3)}
    results = kind().run(feed=feed, fetch_list=[*fetch, *fetch])
    kept = [feed["x"], fluid.global_scope().find_var("w").value]
    for a, b in itertools.combinations([*results, *kept], 2):
        assert not np.shares_memory(a, b)


def test_a_result_shares_no_memory_with_a_view_of_it_that_is_fetched_before_it():
    h = layers.tanh(fluid.data("x", [2, 3]))
    flat = layers.reshape(h, [-1])
    kept = fluid.layers.create_global_var([6], 0.0, "float32", persistable=True, name="kept")
    layers.assign(flat, output=kept)
    fluid.Executor().run(fluid.default_startup_program())
    for fetch in ([flat, h], [h, flat], [kept, flat, h]):
        results = fluid.Executor().run(feed={"x": np.ones((2, 3), "float32")}, fetch_list=fetch)
        results.append(fluid.global_scope().find_var("kept").value)
        assert not any(np.shares_memory(a, b) for a, b in itertools.combinations(results, 2))


def test_arrays_of_tensors_that_are_fetched_share_no_element():
    x, at = fluid.data("x", [2, 3]), [layers.fill_constant([1], "int64", i) for i in range(2)]
    array = layers.array_write(x, at[0])
    layers.array_write(layers.tanh(x), at[1], array=array)
    first, second = fluid.Executor().run(feed={"x": np.ones((2, 3), "float32")}, fetch_list=[array, array])
    assert not any(np.shares_memory(a, b) for a in first for b in second)


def test_selected_rows_that_are_fetched_share_no_memory():
    ids = fluid.data("ids", [3, 1], "int64")
    loss = layers.mean(layers.embedding(ids, [5, 2], is_sparse=True, param_attr=fluid.ParamAttr(name="table")))
    fluid.backward.append_backward(loss)
    gradient = fluid.default_main_program().global_block().var("table@GRAD")
    once = layers.merge_selected_rows(gradient)
    values = layers.get_tensor_from_selected_rows(once)
    fluid.Executor().run(fluid.default_startup_program())
    feed = {"ids": np.array([[1], [2], [4]])}
    fetched = fluid.Executor().run(feed=feed, fetch_list=[values, once, gradient, layers.scale(gradient, 0.5)])
    arrays = [fetched[0], *feed.values()]
    for rows in (each._holder.value for each in fetched[1:]):
        arrays += [rows.rows, rows.value]
    assert not any(np.shares_memory(a, b) for a, b in itertools.combinations(arrays, 2))


@pytest.mark.laws
@given(recipes(max_steps=4))
def test_results_of_random_programs_share_no_memory(recipe):
    built = build(recipe)
    executor, scope = fluid.Executor(), fluid.Scope()
    executor.run(built.startup, scope=scope)
    feed = built.feed()
    given = {name: value.copy() for name, value in feed.items()}
    results = executor.run(built.main, feed=feed, fetch_list=built.fetchable(), scope=scope)
    kept = [*feed.values(), *(scope.find_var(name).value for name in scope.local_var_names())]
    for number, result in enumerate(results):
        for other in [*results[number + 1 :], *kept]:
            assert not np.may_share_memory(result, other)
    assert same(list(feed.values()), list(given.values()))


def test_spoiled_results_and_feeds_do_not_change_later_runs():
    loss, pairs, feed = training()
    fetch = [loss, "x", "w", "b", *(grad for _, grad in pairs), "w_velocity_0", "learning_rate_0"]

    def history(spoiling):
        with fluid.scope_guard(fluid.Scope()):
            fluid.default_startup_program().random_seed = 0
            executor = fluid.Executor()
            for name in ("w", "b", "w_velocity_0", "b_velocity_0", "learning_rate_0"):
                shape = fluid.default_startup_program().global_block().var(name).shape
                fluid.global_scope().var(name).get_tensor().set(np.full(shape, 0.25, "float32"))
            found = []
            for _ in range(3):
                fed = {name: value.copy() for name, value in feed.items()}
                results = executor.run(feed=fed, fetch_list=fetch)
                found += [result.copy() for result in results]
                if spoiling:
                    spoil([*results, *fed.values()])
            return found + list(scope_values().values())

    assert same(history(True), history(False))


def test_earlier_results_do_not_change_when_parameters_are_updated():
    loss, pairs, feed = training()
    executor = initialized()
    fetch = [loss, "w", "b", *(grad for _, grad in pairs), "w_velocity_0"]
    results = [executor.run(feed=feed, fetch_list=fetch) for _ in range(3)]
    kept = [[value.copy() for value in step] for step in results]
    tensors = executor.run(feed=feed, fetch_list=fetch, return_numpy=False)
    copies = [np.array(tensor) for tensor in tensors]
    for _ in range(3):
        executor.run(feed=feed)
    assert all(same(a, b) for a, b in zip(results, kept, strict=True))
    assert same([np.array(tensor) for tensor in tensors], copies)
    assert not same(results[0], results[1])


@pytest.mark.parametrize("update", ["increment", "scale", "tanh", "sum", "elementwise_mul"])
def test_an_update_in_place_of_what_is_fed_leaves_the_callers_array_alone(update):
    x = fluid.data("x", [1])
    inputs = {"sum": {"X": [x, x]}, "elementwise_mul": {"X": x, "Y": x}}.get(update, {"X": x})
    attrs = {"scale": {"scale": 3.0}}.get(update, {})
    main().global_block().append_op(update, inputs, {"Out": x}, attrs)
    feed = array(0.5)
    (result,) = fluid.Executor().run(feed={"x": feed}, fetch_list=[x])
    assert feed == 0.5 and result != 0.5


def test_what_is_stored_from_a_feed_is_a_copy():
    x = fluid.data("x", [2])
    w = persistable("w", [0, 0])
    layers.assign(x, w)
    feed = array(1, 2)
    executor = initialized()
    executor.run(feed={"x": feed})
    feed[:] = 9
    np.testing.assert_array_equal(in_scope("w"), [1, 2])


def test_a_reshaped_feed_that_is_stored_and_then_updated_leaves_the_callers_array_alone():
    x = fluid.data("x", [2, 1])
    w = persistable("w", [0, 0])
    main().global_block().append_op("reshape2", {"X": x}, {"Out": w}, {"shape": [2]})
    executor = initialized()
    feed = array(1, 2).reshape(2, 1)
    executor.run(feed={"x": feed})
    with fluid.program_guard(fluid.Program()):
        w = main().global_block().create_var(name="w", shape=[2], persistable=True)
        main().global_block().append_op("scale", {"X": w}, {"Out": w}, {"scale": 10.0})
        executor.run()
    np.testing.assert_array_equal(feed, [[1], [2]])
    np.testing.assert_array_equal(in_scope("w"), [10, 20])


def test_two_variables_with_one_value_are_updated_apart():
    a, b = persistable("a", [1]), persistable("b", [5])
    layers.assign(a, b)
    initialized().run()
    with fluid.program_guard(fluid.Program()):
        layers.increment(main().global_block().create_var(name="a", shape=[1], persistable=True))
        fluid.Executor().run()
    assert (in_scope("a"), in_scope("b")) == (2, 1)


@pytest.mark.parametrize("view_is_kept", ["fetched", "stored", "read later"])
def test_a_view_of_a_parameter_taken_before_its_update_keeps_the_old_value(view_is_kept):
    w = persistable("w", [1, 2])
    if view_is_kept == "stored":
        view = persistable("view", [[0], [0]])
        main().global_block().append_op("reshape2", {"X": w}, {"Out": view}, {"shape": [2, 1]})
    else:
        view = layers.reshape(w, [2, 1])
    main().global_block().append_op("scale", {"X": w}, {"Out": w}, {"scale": 10.0})
    out = layers.scale(view, 1.0) if view_is_kept == "read later" else view
    results = initialized().run(fetch_list=[w, out] if view_is_kept != "stored" else [w])
    np.testing.assert_array_equal(results[0], [10, 20])
    np.testing.assert_array_equal(in_scope("view") if view_is_kept == "stored" else results[1], [[1], [2]])


def test_what_is_not_needed_may_be_fed():
    x, label = fluid.data("x", [2]), fluid.data("label", [1], "int64")
    out = layers.relu(x)
    layers.cast(label, "float32")
    feed = {"label": np.array([3]), "x": array(-1, 1)}
    np.testing.assert_array_equal(fluid.Executor().run(feed=feed, fetch_list=[out])[0], [0, 1])


@pytest.mark.parametrize("runner", [fluid.Executor, Interpreter])
def test_what_is_fed_to_a_persistable_variable_is_stored(runner):
    """As Paddle 1.8.5 does: language models feed a learning rate, and the state of the first batch only."""
    w, unread = persistable("w", [5.0]), persistable("unread", [1.0])
    out = layers.scale(w, 2.0)
    initialized()
    run, fed = runner().run, array(1)
    assert run(feed={"w": fed, "unread": array(7)}, fetch_list=[out])[0] == 2
    fed[...] = 3  # the scope has an array of its own
    assert run(fetch_list=[out])[0] == 2
    assert (in_scope(w.name), in_scope(unread.name)) == (1, 7)


@pytest.mark.parametrize("runner", [fluid.Executor, Interpreter])
def test_state_may_have_a_size_that_only_a_run_knows(runner):
    x, state = fluid.data("x", [None, 2]), fluid.data("state", [-1, 2])
    state.persistable = True
    total = layers.elementwise_add(x, state)
    layers.assign(total, state)
    run = runner().run
    with pytest.raises(ExecutionError, match=r"has no value|neither fed nor computed"):
        run(feed={"x": np.ones((3, 2), "float32")}, fetch_list=[total])
    for height in (3, 1):
        rows = np.ones((height, 2), "float32")
        for feed, expected in [({"x": rows, "state": rows}, 2), ({"x": rows}, 3), ({"x": rows}, 4)]:
            np.testing.assert_array_equal(run(feed=feed, fetch_list=[total])[0], expected * rows)
        np.testing.assert_array_equal(in_scope("state"), 4 * rows)


def test_the_lengths_of_state_count():
    state = fluid.data("state", [None, 1], lod_level=1)
    state.persistable = True
    first = layers.sequence_first_step(state)
    tensor = fluid.global_scope().var("state").get_tensor()
    for lengths, expected in [([1, 2], [1, 2]), ([2, 1], [1, 3])]:
        tensor.set(np.array([[1], [2], [3]], "float32"), fluid.CPUPlace())
        tensor.set_recursive_sequence_lengths([lengths])
        assert fluid.Executor().run(fetch_list=[first])[0].ravel().tolist() == expected


def test_an_update_of_a_fed_parameter_is_stored():
    w = persistable("w", [5.0])
    layers.increment(w)
    executor, feed = initialized(), array(1)
    executor.run(feed={"w": feed})
    assert (in_scope("w"), feed) == (2, 1)


def test_a_value_fed_to_an_intermediate_is_computed_over():
    h = layers.scale(fluid.data("x", [1]), 2.0)
    out = layers.scale(h, 10.0)
    assert fluid.Executor().run(feed={"x": array(1), h.name: array(7)}, fetch_list=[out])[0] == 20


def test_the_old_value_may_be_read_after_an_update():
    w = persistable("w", [3.0])
    block = main().global_block()
    old, new = block.create_var(name="old"), w
    block.append_op("assign", {"X": w}, {"Out": old})
    block.append_op("scale", {"X": w}, {"Out": new}, {"scale": 2.0})
    out = layers.elementwise_sub(new, old)
    executor = initialized()
    assert [executor.run(fetch_list=[out])[0].item() for _ in range(3)] == [3, 6, 12]


# Scopes


def test_persistable_values_live_in_the_scope_and_temporaries_do_not():
    loss, _, feed = training()
    initialized().run(feed=feed, fetch_list=[loss])
    assert sorted(fluid.global_scope().local_var_names()) == sorted(v.name for v in main().list_vars() if v.persistable)
    assert fluid.global_scope().find_var(loss.name) is None
    assert fluid.global_scope().find_var("x") is None


def test_scopes_keep_their_values_apart():
    w = persistable("w", [1.0])
    layers.increment(w)
    executor, one, two = fluid.Executor(), fluid.Scope(), fluid.Scope()
    executor.run(fluid.default_startup_program(), scope=one)
    for _ in range(3):
        executor.run(scope=one)
    with fluid.scope_guard(two):
        executor.run(fluid.default_startup_program())
        executor.run()
    assert np.array(one.find_var("w").get_tensor()) == 4
    assert np.array(two.find_var("w").get_tensor()) == 2
    assert fluid.global_scope().find_var("w") is None


def test_a_child_scope_reads_and_updates_what_its_parent_has():
    w = persistable("w", [1.0])
    layers.increment(w)
    parent = fluid.Scope()
    child, other = parent.new_scope(), parent.new_scope()
    executor = fluid.Executor()
    executor.run(fluid.default_startup_program(), scope=parent)
    executor.run(scope=child)
    assert child.local_var_names() == []
    assert [np.array(scope.find_var("w").get_tensor()).item() for scope in (parent, child, other)] == [2, 2, 2]
    own = parent.new_scope()
    own._variables["w"] = copy.copy(parent.find_var("w"))
    own.find_var("w").get_tensor().set(array(10))
    executor.run(scope=own)
    assert [np.array(scope.find_var("w").get_tensor()).item() for scope in (parent, own)] == [2, 11]


def test_a_value_set_by_hand_is_used_and_the_array_that_was_given_stays_as_it_is():
    w = persistable("w", [1.0])
    layers.increment(w)
    executor = initialized()
    given = array(40)
    fluid.global_scope().find_var("w").get_tensor().set(given, fluid.CPUPlace())
    executor.run()
    assert (in_scope("w"), given) == (41, 40)


def test_programs_that_share_a_name_share_its_value():
    w = persistable("w", [1.0])
    layers.increment(w)
    executor = initialized()
    other = main().clone()
    for program in (main(), other, main(), other):
        executor.run(program)
    assert in_scope("w") == 5


# Plans


def test_a_program_is_lowered_once_for_each_way_of_being_run(lowerings):
    loss, pairs, feed = training()
    executor = initialized()
    del lowerings[:]
    for _ in range(5):
        executor.run(feed=feed, fetch_list=[loss])
        executor.run(feed={"x": feed["x"] + 1}, fetch_list=loss.name)
    assert len(lowerings) == 1
    for _ in range(3):
        executor.run(feed={"x": feed["x"][:2]}, fetch_list=[loss])
        executor.run(feed=feed, fetch_list=[grad for _, grad in pairs])
        executor.run(feed=feed)
    assert len(lowerings) == 4
    with fluid.scope_guard(fluid.Scope()):
        executor.run(fluid.default_startup_program())
        executor.run(feed=feed, fetch_list=[loss], return_numpy=False)
    assert len(lowerings) == 4


def test_the_order_of_the_feed_does_not_matter(lowerings):
    out = fluid.data("a", [1]) - fluid.data("b", [1])
    executor = fluid.Executor()
    for feed in ({"a": array(5), "b": array(3)}, {"b": array(3), "a": array(5)}):
        assert executor.run(feed=feed, fetch_list=[out])[0] == 2
    assert len(lowerings) == 1


def edits():
    """Ways of changing ``relu(x) -> a; scale(a) -> out``, each with what the output of [-1, 2] becomes."""
    ops = lambda: list(main().global_block().ops)  # noqa: E731
    block = lambda: main().global_block()  # noqa: E731
    return {
        "append": (lambda: block().append_op("square", {"X": "out"}, {"Out": "out"}), [0, 36]),
        "prepend": (lambda: block().prepend_op("abs", {"X": "x"}, {"Out": "x"}), [3, 6]),
        "insert": (lambda: block().insert(ops()[1], "square", {"X": "a"}, {"Out": "a"}), [0, 12]),
        "remove and append": (
            lambda: (block().remove(ops()[1]), block().append_op("assign", {"X": "a"}, {"Out": "out"})),
            [0, 2],
        ),
        "set_attr": (lambda: ops()[1].set_attr("scale", 5.0), [0, 10]),
        "replace_input": (lambda: ops()[1].replace_input("a", "x"), [-3, 6]),
        "nothing": (lambda: None, [0, 6]),
    }


def test_a_variable_made_persistable_is_stored_from_then_on():
    out = layers.scale(fluid.data("x", [1]), 3.0)
    executor, feed = fluid.Executor(), {"x": array(2)}
    executor.run(feed=feed, fetch_list=[out])
    assert fluid.global_scope().find_var(out.name) is None
    out.persistable = True
    executor.run(feed=feed, fetch_list=[out])
    assert in_scope(out.name) == 6


@pytest.mark.parametrize("edit", list(edits()))
def test_a_changed_program_is_lowered_again(edit, lowerings):
    x = fluid.data("x", [2])
    block = main().global_block()
    a, out = block.create_var(name="a"), block.create_var(name="out")
    block.append_op("relu", {"X": x}, {"Out": a})
    block.append_op("scale", {"X": a}, {"Out": out}, {"scale": 3.0})
    executor, feed = fluid.Executor(), {"x": array(-1, 2)}
    np.testing.assert_array_equal(executor.run(feed=feed, fetch_list=[out])[0], [0, 6])
    change, expected = edits()[edit]
    change()
    for _ in range(2):
        np.testing.assert_array_equal(executor.run(feed=feed, fetch_list=[out])[0], expected)
    assert len(lowerings) == (1 if edit == "nothing" else 2)


def test_the_least_recently_used_plan_is_dropped(lowerings):
    out = layers.scale(fluid.data("x", [None]), 3.0)
    executor = fluid.Executor(cache_size=2)

    def run(rows):
        before = len(lowerings)
        executor.run(feed={"x": np.ones(rows, "float32")}, fetch_list=[out])
        return len(lowerings) - before

    assert [run(rows) for rows in (1, 2, 1, 3, 1, 2, 3)] == [1, 1, 0, 1, 0, 1, 1]
    assert len(executor.plans) == 2


@pytest.mark.slow
def test_a_plan_dies_with_its_place_in_the_cache():
    out = layers.scale(fluid.data("x", [None]), 3.0)
    executor = fluid.Executor(cache_size=1)
    filenames = []
    for rows in (1, 2, 3):
        executor.run(feed={"x": np.ones(rows, "float32")}, fetch_list=[out])
        filenames.append(executor.plans[0].compiled.filename)
    gc.collect()
    assert [name in linecache.cache for name in filenames] == [False, False, True]


@pytest.mark.slow
def test_programs_are_told_apart_when_their_identity_is_used_again():
    executor, seen, results = fluid.Executor(), set(), []
    for number in range(500):
        program = fluid.Program()
        with fluid.program_guard(program), fluid.unique_name.guard():
            layers.scale(fluid.data("x", [1]), float(number), name="out")
        is_used_again = id(program) in seen
        seen.add(id(program))
        results.append(executor.run(program, feed={"x": array(1)}, fetch_list=["out.tmp_0"])[0].item())
        if number > 20 and is_used_again:
            break
        del program
        gc.collect(1)  # the program is young; what other tests have left is not walked each time
    assert is_used_again  # else this test shows nothing
    assert results == list(range(number + 1))


@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, fluid.Program.clone, lambda program: pickle.loads(pickle.dumps(program))]
)
def test_a_copy_of_a_program_is_another_program(copied):
    out = layers.scale(fluid.data("x", [1]), 2.0)
    executor, feed = fluid.Executor(), {"x": array(1)}
    twin = copied(main())
    assert twin.equals(main())
    main().global_block().ops[0].set_attr("scale", 5.0)
    twin.global_block().ops[0].set_attr("scale", 7.0)
    assert [executor.run(p, feed=feed, fetch_list=[out.name])[0].item() for p in (main(), twin)] == [5, 7]


def test_executors_draw_different_random_numbers_and_a_seed_fixes_them():
    free, fixed = layers.uniform_random([100]), layers.uniform_random([100], seed=3)
    results = [fluid.Executor().run(fetch_list=[free, fixed]) for _ in range(2)]
    assert (results[0][0] != results[1][0]).any()
    np.testing.assert_array_equal(results[0][1], results[1][1])


# Mistakes


def building_mistakes():
    """Calls that fail while the program is built, and what they say."""

    def data(*shape, dtype="float32"):
        return fluid.data(fluid.unique_name.generate("d"), list(shape), dtype)

    return {
        "no variable": (lambda: layers.relu("x"), WrongTypeError, "relu: x must be a Variable, got str: 'x'"),
        "integers to fc": (lambda: layers.fc(data(2, 3, dtype="int64"), 2), WrongTypeError, "must be floating point"),
        "integers to relu": (lambda: layers.relu(data(2, dtype="int64")), WrongTypeError, "d_0: int64"),
        "product": (lambda: layers.mul(data(2, 3), data(4, 2)), OpError, "X has 3 columns but Y has 4 rows"),
        "matrix product": (lambda: layers.matmul(data(2, 3), data(4, 2)), OpError, "X has 3 columns but Y has 4 rows"),
        "concat": (lambda: layers.concat([data(2, 3), data(2, 4)]), OpError, r"concat: .*\[2, 3\].*\[2, 4\]"),
        "add": (lambda: layers.elementwise_add(data(2, 3), data(4, 3)), OpError, r"shapes \[2, 3\] and \[4, 3\]"),
        "reshape": (lambda: layers.reshape(data(2, 3), [4, 2]), OpError, "reshape2: "),
        "two unknown dimensions": (lambda: layers.reshape(data(2, 3), [-1, -1]), OpError, "-1"),
        "float label": (
            lambda: layers.cross_entropy(data(2, 3), data(2, 1)),
            OpError,
            "a hard Label must hold integers",
        ),
        "probability": (lambda: layers.dropout(data(2), 1.5), OpError, "dropout_prob"),
        "bounds": (lambda: layers.clip(data(2), 1.0, 1.0), OpError, "min must be below max"),
        "threshold": (lambda: layers.clip_by_norm(data(2), 0.0), OpError, "max_norm must be positive"),
        "truth": (lambda: bool(data(2, dtype="bool")), ProgramError, "the value of d_0 is not known"),
        "operator": (lambda: main().global_block().append_op("rellu"), NotFoundError, "no operator type 'rellu'"),
        "variable": (lambda: main().global_block().var("nothing"), NotFoundError, "no variable 'nothing'"),
        "shape": (lambda: main().global_block().create_var(name=data(2).name, shape=[3]), ProgramError, "is already a"),
    }


@pytest.mark.parametrize("name", building_mistakes())
def test_a_mistake_in_building_is_an_error_at_the_line_that_made_it(name):
    call, kind, said = building_mistakes()[name]
    operators = len(main().global_block().ops)
    with pytest.raises(kind, match=f"(?s){said}.*test_executor.py:{call.__code__.co_firstlineno}, in: ") as caught:
        call()
    assert isinstance(caught.value, fluid.MinigraphError)
    assert len(main().global_block().ops) == operators


def test_a_startup_program_that_was_not_run_is_named_with_the_line_that_needs_it():
    x = fluid.data("x", [None, 2])
    out = layers.fc(x, 3, param_attr=fluid.ParamAttr("weights"))
    with pytest.raises(ExecutionError) as caught:
        fluid.Executor().run(feed={"x": np.ones((1, 2), "float32")}, fetch_list=[out])
    text = str(caught.value)
    assert text.startswith("mul: weights has no value in the scope")
    assert "weights: float32[2, 3]" in text
    assert "test_executor.py" in text and 'out = layers.fc(x, 3, param_attr=fluid.ParamAttr("weights"))' in text
    assert "Run the startup program first" in text


def test_an_input_that_is_not_fed_is_named_with_the_line_that_reads_it():
    with pytest.raises(
        FeedError, match=r"(?s)x is not fed, which relu reads.*in: out = layers\.relu.*Add 'x' to the feed"
    ):
        out = layers.relu(fluid.data("x", [2]))
        fluid.Executor().run(fetch_list=[out])


def test_only_what_is_needed_must_be_fed():
    x, y = fluid.data("x", [2]), fluid.data("y", [2])
    out = layers.relu(x)
    layers.mean(layers.elementwise_add(x, y))
    np.testing.assert_array_equal(fluid.Executor().run(feed={"x": array(-1, 1)}, fetch_list=[out])[0], [0, 1])


def test_an_unknown_fetch_is_an_error_with_a_suggestion():
    layers.relu(fluid.data("x", [2]), name="activation")
    with pytest.raises(
        NotFoundError, match=r"(?s)no variable 'activation\.tmp' to fetch.*Did you mean activation\.tmp_0"
    ):
        fluid.Executor().run(feed={"x": array(1, 2)}, fetch_list=["activation.tmp"])


@pytest.mark.parametrize(
    ("shape", "dtype", "said"),
    [
        ((3,), "float32", r"x is declared \[2\] but \[3\] was fed"),
        ((2,), "float64", "x is float32 but float64 was fed"),
    ],
)
def test_a_feed_that_does_not_fit_is_an_error_before_anything_runs(shape, dtype, said, lowerings):
    out = layers.relu(fluid.data("x", [2]))
    with pytest.raises(FeedError, match=said):
        fluid.Executor().run(feed={"x": np.ones(shape, dtype)}, fetch_list=[out])
    assert lowerings == []


def test_shapes_that_do_not_fit_each_other_name_the_operator_and_its_line():
    x, y = fluid.data("x", [None, 2]), fluid.data("y", [None, 2])
    out = layers.elementwise_add(x, y)
    feed = {"x": np.ones((3, 2), "float32"), "y": np.ones((4, 2), "float32")}
    with pytest.raises(
        OpError, match=r"(?s)elementwise_add: shapes .*X = x: float32\[3, 2\].*out = layers\.elementwise"
    ):
        fluid.Executor().run(feed=feed, fetch_list=[out])


def test_a_mean_of_nothing_is_nan():
    out = layers.mean(fluid.data("x", [None, 2]))
    assert np.isnan(fluid.Executor().run(feed={"x": np.ones((0, 2), "float32")}, fetch_list=[out])[0]).all()


def failing():
    """Softmax and cross-entropy; a label of 9 is out of range."""
    x, label = fluid.data("x", [None, 3]), fluid.data("label", [None, 1], "int64")
    loss = layers.cross_entropy(layers.softmax(x), label)
    return loss, lambda label: {"x": np.ones((2, 3), "float32"), "label": np.array([[0], [label]])}


def test_an_ignored_label_may_be_out_of_range():
    loss, feed = failing()
    np.testing.assert_allclose(
        fluid.Executor().run(feed=feed(-100), fetch_list=[loss])[0], [[np.log(3)], [0]], rtol=1e-6
    )


def test_a_failing_kernel_is_reported_with_its_operator_and_the_line_that_made_it():
    loss, feed = failing()
    with pytest.raises(ExecutionError) as caught:
        fluid.Executor().run(feed=feed(9), fetch_list=[loss])
    text = str(caught.value)
    assert text.startswith("cross_entropy2: ") and "9" in text.splitlines()[0]
    assert "Label = label: int64[2, 1]" in text
    assert "loss = layers.cross_entropy(layers.softmax(x), label)" in text
    assert isinstance(caught.value, RuntimeError)


def test_the_traceback_of_a_failing_kernel_shows_the_generated_line():
    loss, feed = failing()
    executor = fluid.Executor()
    executor.run(feed=feed(1), fetch_list=[loss])  # which has no generated lines yet
    with pytest.raises(ExecutionError) as caught:
        executor.run(feed=feed(9), fetch_list=[loss])
    shown = "".join(traceback.format_exception(caught.value))
    assert 'File "<minigraph plan' in shown
    assert "= cross_entropy2(xp, _softmax_0_tmp_0, _label, ignore_index=-100)" in shown


def test_a_foreign_exception_in_a_kernel_is_wrapped_and_kept(monkeypatch):
    monkeypatch.setitem(registry._SPECIALIZERS, "tanh", lambda xp, x: lambda x: 1 / 0)
    out = layers.tanh(fluid.data("x", [2]))
    with pytest.raises(ExecutionError, match=r"^tanh: ZeroDivisionError: division by zero") as caught:
        fluid.Executor().run(feed={"x": array(1, 2)}, fetch_list=[out])
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


@pytest.mark.parametrize("kind", [fluid.Executor, Interpreter])
@pytest.mark.parametrize("where", ["before the update", "after the update", "between updates"])
def test_a_failed_run_leaves_the_scope_as_it_was(kind, where):
    w = persistable("w", [1.0, 2.0])
    counter = persistable("counter", [0.0])
    block = main().global_block()
    if where != "before the update":
        block.append_op("scale", {"X": w}, {"Out": w}, {"scale": 3.0})
    loss, feed = failing()
    if where != "after the update":
        layers.increment(counter)
        block.append_op("scale", {"X": w}, {"Out": w}, {"scale": 3.0})
    executor = kind()
    executor.run(fluid.default_startup_program())
    before = scope_values()
    with pytest.raises(ExecutionError):
        executor.run(feed=feed(9), fetch_list=[loss])
    assert same(list(scope_values().values()), list(before.values()))
    executor.run(feed=feed(1), fetch_list=[loss])
    assert in_scope("w").tolist() != before["w"].tolist()


def test_two_updates_that_read_each_other_both_see_the_old_values():
    a, b = persistable("a", [1.0]), persistable("b", [10.0])
    block = main().global_block()
    block.append_op("elementwise_add", {"X": b, "Y": a}, {"Out": b})
    block.append_op("elementwise_sub", {"X": a, "Y": a}, {"Out": a})
    initialized().run()
    assert (in_scope("a"), in_scope("b")) == (0, 11)


def test_an_update_of_a_matrix_by_itself_is_right():
    w = persistable("w", [[1, 2], [3, 4]])
    main().global_block().append_op("matmul", {"X": w, "Y": w}, {"Out": w})
    main().global_block().append_op("softmax", {"X": persistable("p", [[0, 1]])}, {"Out": "p"})
    initialized().run()
    np.testing.assert_array_equal(in_scope("w"), [[7, 10], [15, 22]])
    np.testing.assert_allclose(in_scope("p"), [[1 / (1 + np.e), np.e / (1 + np.e)]], rtol=1e-6)


def test_a_failed_run_makes_no_new_variable():
    w = main().global_block().create_var(name="w", shape=[1], persistable=True)
    layers.fill_constant([1], "float32", 1.0, out=w)
    loss, feed = failing()
    with pytest.raises(ExecutionError):
        fluid.Executor().run(feed=feed(9), fetch_list=[loss])
    assert fluid.global_scope().local_var_names() == []


def test_a_scope_with_another_shape_or_dtype_is_an_error():
    w = persistable("w", [1.0, 2.0])
    out = layers.relu(w)
    executor = initialized()
    for value, said in ((array(1, 2, 3), r"float32\[3\]"), (np.ones(2), r"float64\[2\]")):
        fluid.global_scope().find_var("w").get_tensor().set(value)
        with pytest.raises(ExecutionError, match=rf"(?s)w is declared float32\[2\] but the scope holds {said}.*relu"):
            executor.run(fetch_list=[out])


@pytest.mark.parametrize("program", ["main", 3, [], lambda: None])
def test_a_program_is_a_program(program):
    with pytest.raises(WrongTypeError, match="an Executor runs Programs, got"):
        fluid.Executor().run(program)


def test_a_closed_executor_runs_nothing():
    out = layers.relu(fluid.data("x", [2]))
    executor = fluid.Executor()
    executor.run(feed={"x": array(1, 2)}, fetch_list=[out])
    executor.close()
    with pytest.raises(ProgramError, match="closed"):
        executor.run(feed={"x": array(1, 2)}, fetch_list=[out])
    assert not executor.plans
    executor.close()


@pytest.mark.slow
def test_a_program_of_many_operators_can_be_pickled_and_copied():
    x = fluid.data("x", [1])
    for _ in range(3000):
        x = layers.relu(x)
    for twin in (pickle.loads(pickle.dumps(main())), copy.deepcopy(main())):
        assert len(twin.global_block().ops) == 3000


def test_a_large_constant_is_not_written_into_the_source():
    def source(values):
        executor = fluid.Executor()
        with fluid.program_guard(fluid.Program()), fluid.unique_name.guard():
            np.testing.assert_array_equal(executor.run(fetch_list=[layers.assign(values)])[0], values)
        (plan,) = executor.plans
        return plan.compiled.source

    values = np.arange(5000, dtype="float32")
    assert source(values) == source(values[::-1])


@pytest.mark.parametrize("runner", [fluid.Executor, Interpreter])
def test_a_result_of_one_element_counts_as_a_number(runner):
    x = fluid.data("x", [None, 2])
    loss, count = layers.mean(x), layers.cast(layers.reduce_sum(x), "int64")
    found, whole = runner().run(feed={"x": array([1, 2], [3, 4])}, fetch_list=[loss, count])
    assert "%f %.1f %d" % (found, 2 * found, whole) == "2.500000 5.0 10"  # noqa: UP031 - as fluid programs print
    assert (float(found), int(whole), float(np.exp(found - found))) == (2.5, 10, 1.0)
    assert repr([found]) == "[array([2.5], dtype=float32)]"
    assert type(pickle.loads(pickle.dumps(found))) is np.ndarray
    with pytest.raises(ValueError, match="array of size 1"):
        float(found + np.ones(3))
