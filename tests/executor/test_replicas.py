"""Runs on several places: what the recorded trainings of test_golden_places.py do not show."""

import numpy as np
import pytest

import minigraph as fluid
from minigraph.errors import ExecutionError, FeedError, NotFoundError, ProgramError, WrongTypeError

PLACES = fluid.cpu_places(2)
BATCH = {"x": np.arange(8, dtype="float32").reshape(4, 2), "y": np.ones((4, 1), "float32")}


@pytest.fixture
def regression():
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.scope_guard(fluid.Scope()):
        x, y = fluid.data("x", [None, 2]), fluid.data("y", [None, 1])
        start = fluid.initializer.Constant(0.5)
        predicted = fluid.layers.fc(x, 1, param_attr=fluid.ParamAttr("w", initializer=start), bias_attr=False)
        loss = fluid.layers.mean(fluid.layers.square_error_cost(predicted, y))
        fluid.optimizer.SGD(0.001).minimize(loss)
        yield fluid.default_main_program(), loss


def on_places(program, loss, **options):
    return fluid.CompiledProgram(program).with_data_parallel(loss.name, places=PLACES, **options)


def weight():
    return np.array(fluid.global_scope().find_var("w").get_tensor())


@pytest.mark.parametrize("runner", [fluid.Executor, fluid.Interpreter])
def test_places_together_train_as_one(regression, runner):
    main, loss = regression
    found = []
    for program in (main, on_places(main, loss)):
        executor = runner()
        executor.run(fluid.default_startup_program())
        for _ in range(5):
            executor.run(program, BATCH, [loss])
        found.append(weight())
    np.testing.assert_allclose(found[1], found[0], rtol=1e-6)


def test_what_the_scope_is_given_between_runs_reaches_every_place(regression):
    main, loss = regression
    executor = fluid.Executor()
    executor.run(fluid.default_startup_program())
    compiled = on_places(main, loss)
    executor.run(compiled, BATCH, [loss])
    # By the user, and by a run of another program in place.
    fluid.global_scope().find_var("w").get_tensor().set(np.full((2, 1), 2.0, "float32"), fluid.CPUPlace())
    assert np.array_equal(executor.run(compiled, BATCH, ["w"], return_merged=False)[0][1], weight())
    executor.run(main, BATCH, [loss])
    before = weight()
    losses = executor.run(compiled, BATCH, [loss])[0]
    expected = ((BATCH["x"] @ before - 1) ** 2).reshape(2, -1).mean(1)
    np.testing.assert_allclose(losses, expected, rtol=1e-5)


def test_places_draw_other_random_numbers():
    main = fluid.Program()
    with fluid.program_guard(main):
        mask = fluid.layers.dropout(fluid.data("x", [None, 64]), 0.5)
    compiled = fluid.CompiledProgram(main).with_data_parallel(places=PLACES)
    ((first, second),) = fluid.Executor().run(compiled, {"x": np.ones((2, 64), "float32")}, [mask], return_merged=False)
    assert not np.array_equal(first, second)


def test_a_step_that_fails_on_one_place_fails_and_the_next_one_is_right(regression):
    main, loss = regression
    fails = []

    def check(x):
        if fails and np.array(x)[0, 0] == 4.0:  # of the second place
            raise ZeroDivisionError("on purpose")
        return x

    with fluid.program_guard(main):
        out = main.global_block().create_var(name="out", shape=[-1, 2], dtype="float32")
        fluid.layers.py_func(check, main.global_block().var("x"), out)
    executor = fluid.Executor()
    executor.run(fluid.default_startup_program())
    compiled = on_places(main, loss)
    executor.run(compiled, BATCH, [loss])
    fails.append(True)
    with pytest.raises(ExecutionError, match="on purpose"):
        executor.run(compiled, BATCH, [loss, out])
    fails.clear()
    before = weight()
    losses, rows = executor.run(compiled, BATCH, [loss, out])
    expected = ((BATCH["x"] @ before - 1) ** 2).reshape(2, -1).mean(1)
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    assert np.array_equal(rows, BATCH["x"])


def test_a_declared_batch_is_that_of_one_place():
    """As in 1.8.5, where 4 places take 40 rows for [10, 3]."""
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        x = fluid.data("x", [2, 3])
        out = x * 2.0
    value = np.arange(12, dtype="float32").reshape(4, 3)
    compiled = fluid.CompiledProgram(main).with_data_parallel(places=fluid.cpu_places(2))
    (found,) = fluid.Executor().run(compiled, {"x": value}, [out])
    np.testing.assert_array_equal(found, value * 2)
    with pytest.raises(FeedError, match=r"x is declared \[2, 3\] but \[1, 3\] was fed"):
        fluid.Executor().run(compiled, {"x": value[:2]}, [out])


def test_feeds_that_places_cannot_share_are_refused(regression):
    main, loss = regression
    executor = fluid.Executor()
    executor.run(fluid.default_startup_program())
    compiled = on_places(main, loss)
    with pytest.raises(FeedError, match="x has 1 rows, which 2 places divide into 1 parts"):
        executor.run(compiled, {name: array[:1] for name, array in BATCH.items()}, [loss])
    with pytest.raises(FeedError, match="a list of 3 feeds is given for 2 places"):
        executor.run(compiled, [BATCH] * 3, [loss])


def test_the_environment_says_how_many_places_there_are(regression, monkeypatch):
    main, loss = regression
    executor = fluid.Executor()
    executor.run(fluid.default_startup_program())
    monkeypatch.setenv("CPU_NUM", "4")
    assert len(fluid.cpu_places()) == 4
    compiled = fluid.CompiledProgram(main).with_data_parallel(loss.name)
    assert executor.run(compiled, BATCH, [loss])[0].shape == (4,)
    assert fluid.ParallelExecutor(False, loss.name, main).device_count == 4
    monkeypatch.setenv("CPU_NUM", "many")
    with pytest.raises(WrongTypeError, match="CPU_NUM must be a number of places, got 'many'"):
        fluid.cpu_places()


def test_several_places_of_a_gpu_are_refused(regression):
    main, loss = regression
    with pytest.raises(ProgramError, match="2 places that are not all CPU places"):
        fluid.CompiledProgram(main).with_data_parallel(loss.name, places=[fluid.CPUPlace(), fluid.CUDAPlace(0)])


def test_a_loader_gives_each_place_a_batch(regression):
    main, loss = regression
    variables = [main.global_block().var(name) for name in ("x", "y")]
    batches = [(BATCH["x"] + i, BATCH["y"]) for i in range(5)]
    for drop_last, groups in ((True, 2), (False, 3)):
        loader = fluid.io.DataLoader.from_generator(variables, capacity=2, drop_last=drop_last)
        items = list(loader.set_batch_generator(lambda: iter(batches), PLACES))
        assert len(items) == groups
        assert [len(item) for item in items[:2]] == [2, 2]
    executor = fluid.Executor()
    executor.run(fluid.default_startup_program())
    apart = executor.run(on_places(main, loss), items[1], [loss], return_merged=False)[0]
    assert [each.shape for each in apart] == [(1,), (1,)]
    assert np.array_equal(np.array(items[1][1]["x"]), batches[3][0])


@pytest.fixture
def fed_by_a_loader():
    """A program that a loader feeds five batches, of which the first one's elements are 0, and so on."""
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.scope_guard(fluid.Scope()):
        x = fluid.data("x", [None, 1])
        loader = fluid.io.DataLoader.from_generator([x], capacity=2, iterable=False)
        loader.set_batch_generator(lambda: ([np.full((2, 1), i, "float32")] for i in range(5)))
        y = fluid.layers.scale(x, 2.0)
        compiled = fluid.CompiledProgram(fluid.default_main_program()).with_data_parallel(places=PLACES)
        yield compiled, loader, y


def test_places_take_batches_in_order_until_there_are_fewer_than_places(fed_by_a_loader):
    compiled, loader, y = fed_by_a_loader
    executor = fluid.Executor()
    for _ in range(2):
        loader.start()
        for first in (0, 2):
            values = executor.run(compiled, fetch_list=[y])[0]
            assert values.ravel().tolist() == [2 * first, 2 * first, 2 * first + 2, 2 * first + 2]
        with pytest.raises(fluid.core.EOFException, match="has no batch left for each place"):
            executor.run(compiled, fetch_list=[y])
        loader.reset()
    assert executor.run(compiled, {"x": np.ones((2, 1), "float32")}, [y])[0].tolist() == [[2.0], [2.0]]


def test_a_run_that_fails_takes_its_batches_with_it(fed_by_a_loader):
    compiled, loader, y = fed_by_a_loader
    executor = fluid.Executor()
    loader.start()
    with pytest.raises(NotFoundError):
        executor.run(compiled, fetch_list=["no such name"])
    assert executor.run(compiled, fetch_list=[y])[0].ravel().tolist() == [4.0, 4.0, 6.0, 6.0]


def customized(program, loss, places):
    strategy = fluid.BuildStrategy()
    strategy.gradient_scale_strategy = fluid.BuildStrategy.GradientScaleStrategy.Customized
    return fluid.CompiledProgram(program).with_data_parallel(loss.name, strategy, places=fluid.cpu_places(places))


@pytest.mark.parametrize("places", [1, 2])
def test_a_gradient_of_the_loss_that_is_not_fed_is_an_error(regression, places):
    main, loss = regression
    executor = fluid.Executor()
    executor.run(fluid.default_startup_program())
    compiled = customized(main, loss, places)
    with pytest.raises(FeedError, match=f"{loss.name}@GRAD is not fed, which mean_grad reads"):
        executor.run(compiled, BATCH, [loss])
    before = weight()
    executor.run(compiled, {**BATCH, f"{loss.name}@GRAD": np.zeros(places, "float32")}, [loss])
    assert np.array_equal(weight(), before)
    assert f"{loss.name}@GRAD" in [name for op in main.global_block().ops for name in op.output_arg_names]


def test_a_feeder_makes_a_feed_for_each_place(regression):
    main, _ = regression
    feeder = fluid.DataFeeder([main.global_block().var("x")], fluid.CPUPlace())
    batches = [[([float(i), 0.0],)] for i in range(3)]
    feeds = list(feeder.decorate_reader(lambda: iter(batches), multi_devices=True, num_places=2)())
    assert [[np.asarray(feed["x"]).tolist() for feed in group] for group in feeds] == [[[[0.0, 0.0]], [[1.0, 0.0]]]]
    left_over = feeder.decorate_reader(lambda: iter(batches), multi_devices=True, num_places=2, drop_last=False)()
    next(left_over)
    with pytest.raises(ValueError, match="got 1 mini-batches for 2 places"):
        next(left_over)


def test_sequences_are_divided_and_joined_as_wholes():
    with fluid.program_guard(fluid.Program()):
        rows = fluid.data("rows", [None, 1], lod_level=2)
        doubled = fluid.layers.scale(rows, 2.0)
        compiled = fluid.CompiledProgram(fluid.default_main_program()).with_data_parallel(places=PLACES)
    executor = fluid.Executor()
    array = np.arange(10, dtype="float32").reshape(10, 1)
    whole = fluid.create_lod_tensor(array, [[2, 1, 2], [3, 1, 2, 1, 3]], fluid.CPUPlace())
    halves = [
        fluid.create_lod_tensor(array[:6], [[2, 1], [3, 1, 2]], fluid.CPUPlace()),
        fluid.create_lod_tensor(array[6:], [[2], [1, 3]], fluid.CPUPlace()),
    ]
    for feed in ({"rows": whole}, [{"rows": each} for each in halves]):
        (found,) = executor.run(compiled, feed, [doubled], return_numpy=False)
        assert np.array_equal(np.array(found), array * 2)
        assert found.lod() == whole.lod()
        ((first, second),) = executor.run(compiled, feed, [doubled], return_numpy=False, return_merged=False)
        assert (first.lod(), second.lod()) == (halves[0].lod(), halves[1].lod())
    # One sequence is for one place, as in fluid where nothing is trained.
    single = {"rows": fluid.create_lod_tensor(array[:2], [[1], [2]], fluid.CPUPlace())}
    (found,) = executor.run(compiled, single, [doubled], return_numpy=False)
    assert np.array(found).tolist() == [[0.0], [2.0]] and found.recursive_sequence_lengths() == [[1], [2]]


def scaled(rows):
    """A program without training, its feed of so many rows, and the means of what two places get."""
    x = fluid.data("x", [None, 2])
    mean = fluid.layers.reduce_mean(fluid.layers.fc(x, 2, param_attr=fluid.initializer.Constant(0.5)))
    fluid.Executor().run(fluid.default_startup_program())
    compiled = fluid.CompiledProgram(fluid.default_main_program()).with_data_parallel(places=fluid.cpu_places(3))
    return compiled, {"x": np.arange(rows * 2).reshape(rows, 2).astype("float32")}, [mean]


# What Paddle 1.8.5 gives.
@pytest.mark.parametrize(("rows", "means"), [(1, [0.5]), (2, [0.5, 2.5]), (4, [1.5, 5.5]), (5, [1.5, 5.5, 8.5])])
def test_places_may_be_without_a_batch_where_nothing_is_trained(rows, means):
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.scope_guard(fluid.Scope()):
        compiled, feed, fetches = scaled(rows)
        for _ in range(2):
            assert fluid.Executor().run(compiled, feed, fetches)[0].tolist() == means


def test_the_last_batches_of_a_loader_may_be_fewer_than_the_places():
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.scope_guard(fluid.Scope()):
        x = fluid.data("x", [None])
        square = x * x
        loader = fluid.io.DataLoader.from_generator([x], capacity=8, drop_last=False)
        loader.set_batch_generator(lambda: ([np.array([i + 1.0], "float32")] for i in range(3)), fluid.cpu_places(2))
        compiled = fluid.CompiledProgram(fluid.default_main_program()).with_data_parallel(places=fluid.cpu_places(2))
        found = [fluid.Executor().run(compiled, data, [square])[0].tolist() for data in loader()]
    assert found == [[1, 4], [9]]


def test_all_that_is_fed_is_divided_among_as_many_places():
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        total = fluid.layers.reduce_sum(fluid.data("x", [None, 2])) + fluid.layers.reduce_sum(
            fluid.data("y", [None, 2])
        )
        compiled = fluid.CompiledProgram(fluid.default_main_program()).with_data_parallel(places=fluid.cpu_places(3))
        feed = {"x": np.ones([1, 2], "float32"), "y": np.ones([3, 2], "float32")}
        with pytest.raises(FeedError, match="different numbers of batches: x for 1, y for 3"):
            fluid.Executor().run(compiled, feed, [total])
        with pytest.raises(FeedError, match="a list of 4 feeds is given for 3 places"):
            fluid.Executor().run(compiled, [feed] * 4, [total])


@pytest.fixture
def normalized():
    """A training, its test program, and a function that gives the batch of a step."""
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.scope_guard(fluid.Scope()):
        x = fluid.data("x", [None, 3])
        hidden = fluid.layers.batch_norm(x, moving_mean_name="mean", moving_variance_name="variance")
        loss = fluid.layers.mean(fluid.layers.fc(hidden, 1))
        test = fluid.default_main_program().clone(for_test=True)
        fluid.optimizer.SGD(0.1).minimize(loss)
        fluid.Executor().run(fluid.default_startup_program())
        yield loss, test, lambda step, rows=8: {"x": np.random.default_rng(step).random((rows, 3), "float32")}


def running_mean(batch, steps, part):
    """Compute the running mean of the rows of a place after `steps` steps."""
    found = np.zeros(3)
    for step in range(steps):
        found = 0.9 * found + 0.1 * batch(step)["x"][part].mean(0)
    return found


HALVES = slice(0, 4), slice(4, 8)


@pytest.mark.parametrize("runner", [fluid.Executor, fluid.Interpreter])
def test_a_program_that_shares_variables_uses_the_statistics_of_each_place(normalized, runner):
    """As in 1.8.5: neither runs of the test on fewer places nor without places change those of the training."""
    loss, test, batch = normalized
    executor = runner()
    training = on_places(fluid.default_main_program(), loss)
    testing = fluid.CompiledProgram(test).with_data_parallel(share_vars_from=training, places=PLACES)
    for step in range(3):
        executor.run(training, batch(step), [loss])
        executor.run(test, batch(step), [loss])
        executor.run(testing, batch(step, rows=1), [loss])
        (found,) = executor.run(testing, batch(step), ["mean"], return_merged=False)
        expected = [running_mean(batch, step + 1, half) for half in HALVES]
        np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_a_parallel_executor_shares_the_statistics_of_each_place(normalized, monkeypatch):
    monkeypatch.setenv("CPU_NUM", "2")
    loss, test, batch = normalized
    training = fluid.ParallelExecutor(False, loss.name)
    training.run([loss.name], batch(0))
    testing = fluid.ParallelExecutor(False, main_program=test, share_vars_from=training)
    (found,) = testing.run(["mean"], batch(0))
    np.testing.assert_allclose(found, np.ravel([running_mean(batch, 1, half) for half in HALVES]), rtol=1e-5)


def test_with_the_strategy_reduce_each_place_keeps_its_statistics(normalized):
    """In 1.8.5 the places then share one array, to which their threads write in any order."""
    loss, _, batch = normalized
    strategy = fluid.BuildStrategy()
    with pytest.warns(UserWarning, match="reduce_strategy"):
        strategy.reduce_strategy = fluid.BuildStrategy.ReduceStrategy.Reduce
    training = on_places(fluid.default_main_program(), loss, build_strategy=strategy)
    (found,) = fluid.Executor().run(training, batch(0), ["mean"], return_merged=False)
    np.testing.assert_allclose(found, [running_mean(batch, 1, half) for half in HALVES], rtol=1e-5)


def test_what_the_scope_is_given_reaches_places_that_another_program_runs_on(normalized):
    loss, test, batch = normalized
    executor = fluid.Executor()
    training = on_places(fluid.default_main_program(), loss)
    testing = fluid.CompiledProgram(test).with_data_parallel(share_vars_from=training, places=PLACES)
    executor.run(training, batch(0), [loss])
    rate = next(name for name in fluid.default_main_program().global_block().vars if name.startswith("learning_rate"))
    fluid.global_scope().find_var(rate).get_tensor().set(np.zeros(1, "float32"), fluid.CPUPlace())
    executor.run(testing, batch(0), [loss])  # which has no rate
    weights = fluid.default_main_program().all_parameters()[-2].name
    (before,) = executor.run(training, batch(0), [weights], return_merged=False)
    (after,) = executor.run(training, batch(1), [weights], return_merged=False)
    assert np.array_equal(before[1], after[1])
