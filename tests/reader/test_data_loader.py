"""Loaders: what an iteration gives and what a program is fed, as Paddle 1.8.5 does where nothing else is said."""

import time

import numpy as np
import pytest

import minigraph as fluid
from minigraph.errors import DataError, EOFException, FeedError, ProgramError, WrongTypeError
from minigraph.executor.interpreter import Interpreter

CPU = fluid.CPUPlace()


def samples():
    for number in range(5):
        yield np.full(2, number, "float32"), np.array([number])


def lists():
    yield [(np.full(2, number, "float32"), number) for number in range(2)]
    yield [(np.full(2, number, "float32"), number) for number in range(2, 5)]


def batches():
    for number in range(3):
        yield np.full((2, 2), number, "float32"), np.full((2, 1), number, "int64")


@pytest.fixture(autouse=True)
def programs():
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.scope_guard(fluid.Scope()):
        yield


@pytest.fixture
def variables():
    return [fluid.data("x", [None, 2]), fluid.data("y", [None, 1], "int64")]


def loader_of(variables, **options):
    return fluid.io.DataLoader.from_generator(feed_list=variables, capacity=2, **options)


SOURCES = {
    "samples": (lambda loader: loader.set_sample_generator(samples, batch_size=2, places=CPU), [2, 2]),
    "all samples": (lambda loader: loader.set_sample_generator(samples, 2, drop_last=False, places=[CPU]), [2, 2, 1]),
    "lists": (lambda loader: loader.set_sample_list_generator(lists, fluid.cpu_places(1)), [2, 3]),
    "batches": (lambda loader: loader.set_batch_generator(batches, places=CPU), [2, 2, 2]),
}


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("return_list", [False, True])
def test_a_loop_gives_tensors_in_every_epoch(variables, source, return_list):
    loader = loader_of(variables, return_list=return_list)
    assert loader.iterable
    set_source, sizes = SOURCES[source]
    assert set_source(loader) is loader
    for _ in range(2):
        found = []
        for (item,) in loader():
            tensors = item if return_list else [item["x"], item["y"]]
            assert all(isinstance(tensor, fluid.LoDTensor) for tensor in tensors)
            found.append([np.array(tensor) for tensor in tensors])
        assert [(x.shape, y.shape) for x, y in found] == [((size, 2), (size, 1)) for size in sizes]
        assert all((x.dtype, y.dtype) == (np.float32, np.int64) for x, y in found)
        if source != "batches":
            assert np.concatenate([y for _, y in found]).ravel().tolist() == list(range(sum(sizes)))


def test_what_a_loop_gives_is_fed(variables):
    y = fluid.layers.scale(variables[0], 2.0)
    loader = loader_of(variables).set_batch_generator(batches, CPU)
    exe = fluid.Executor()
    found = [exe.run(feed=data, fetch_list=[y])[0] for data in loader]
    assert [each.tolist() for each in found] == [[[2 * number] * 2] * 2 for number in range(3)]


def test_batches_are_copies(variables):
    def reused():
        x = np.zeros((1, 2), "float32")
        for number in range(3):
            x[:] = number
            yield x, np.zeros((1, 1), "int64")

    found = [np.array(data["x"])[0, 0] for (data,) in loader_of(variables).set_batch_generator(reused, CPU)]
    assert found == [0, 1, 2]


def test_an_iteration_begins_anew_and_leaves_others_alone(variables):
    loader = loader_of(variables).set_batch_generator(batches, CPU)
    first = iter(loader)
    next(first)
    assert [np.array(data["y"])[0, 0] for (data,) in loader] == [0, 1, 2]
    assert np.array(next(first)[0]["y"])[0, 0] == 1
    iter(loader)
    assert [np.array(loader.next()[0]["y"])[0, 0], np.array(next(loader)[0]["y"])[0, 0]] == [0, 1]


@pytest.mark.parametrize("engine", [fluid.Executor, Interpreter])
def test_a_program_is_fed_until_there_is_no_batch_left(variables, engine):
    loader = loader_of(variables, iterable=False).set_batch_generator(batches)
    x, y = variables
    twice = fluid.layers.scale(x, 2.0)
    exe = engine()
    for _ in range(2):
        loader.start()
        found = []
        with pytest.raises(fluid.core.EOFException, match="has no batch left"):
            while True:
                found.append(exe.run(fetch_list=[twice, y]))
        assert [(a[0, 0], b[0, 0]) for a, b in found] == [(0, 0), (2, 1), (4, 2)]
        with pytest.raises(EOFException):  # still
            exe.run(fetch_list=[y])
        loader.reset()


def test_every_run_takes_a_batch_even_one_that_needs_none_and_reset_loses_what_was_read_ahead(variables):
    loader = loader_of(variables, iterable=False).set_batch_generator(batches)
    z = fluid.layers.fill_constant([1], "float32", 7.0)
    exe, compiled = fluid.Executor(), fluid.CompiledProgram(fluid.default_main_program())
    loader.start()
    assert exe.run(fetch_list=[z])[0] == 7
    assert exe.run(compiled, fetch_list=[variables[1]])[0][0, 0] == 1
    assert exe.run(fluid.default_main_program().clone(for_test=True), fetch_list=["y"])[0][0, 0] == 2
    loader.reset()
    loader.start()
    assert exe.run(fetch_list=[variables[1]])[0][0, 0] == 0


def test_a_program_with_a_loader_that_does_not_run_is_fed_by_hand(variables):
    loader = loader_of(variables, iterable=False).set_batch_generator(batches)
    y = fluid.layers.scale(variables[0], 2.0)
    exe, feed = fluid.Executor(), {"x": np.ones((1, 2), "float32"), "y": np.ones((1, 1), "int64")}
    assert exe.run(feed=feed, fetch_list=[y])[0].tolist() == [[2, 2]]
    assert exe.run(feed=[feed], fetch_list=[y])[0].tolist() == [[2, 2]]
    with pytest.raises(ProgramError, match=r"fed by <DataLoader of x, y, not iterable>, which was not started"):
        exe.run(feed={"x": feed["x"]}, fetch_list=[y])
    loader.start()
    with pytest.raises(ProgramError, match="x is fed although"):
        exe.run(feed={"x": feed["x"]}, fetch_list=[y])


def test_what_a_loader_was_not_made_for_is_refused(variables):
    iterable = loader_of(variables).set_batch_generator(batches, CPU)
    feeding = loader_of(variables, iterable=False)
    for refused, message in [
        (iterable.start, "cannot start"),
        (iterable.reset, "cannot reset"),
        (lambda: iter(feeding), "cannot loop over"),
        (lambda: next(feeding), "cannot take from"),
        (feeding.start, "has nothing to read"),
        (lambda: next(iterable), "was not iterated over yet"),
        (lambda: fluid.io.DataLoader.from_generator(variables), "capacity must be how many"),
        (lambda: fluid.io.DataLoader.from_generator(capacity=2), "feed_list must name"),
        (lambda: iterable.set_batch_generator(batches), "needs the places"),
        (lambda: iterable.set_sample_generator(samples, 0, places=CPU), "batch_size"),
    ]:
        with pytest.raises(ValueError, match=message):
            refused()
    for refused in (lambda: iterable.set_batch_generator(batches(), CPU), lambda: loader_of(["x"])):
        with pytest.raises(WrongTypeError):
            refused()
    feeding.set_batch_generator(batches)
    feeding.start()
    with pytest.raises(ProgramError, match="is running already"):
        feeding.start()


def test_an_error_in_a_reader_is_raised_where_its_batch_was_to_be_taken(variables):
    def broken():
        yield np.zeros((1, 2), "float32"), np.zeros((1, 1), "int64")
        raise KeyError("oops")

    items = iter(loader_of(variables).set_batch_generator(broken, CPU))
    next(items)
    with pytest.raises(KeyError, match="oops"):
        next(items)
    loader = loader_of(variables, iterable=False).set_batch_generator(broken)
    exe = fluid.Executor()
    loader.start()
    exe.run(fetch_list=[variables[0]])
    with pytest.raises(KeyError, match="oops"):
        exe.run(fetch_list=[variables[0]])


def test_batches_that_do_not_fit_are_errors(variables):
    def only(*arrays):
        return lambda: iter([arrays])

    loader = loader_of(variables)
    for reader, message in [
        (only(np.zeros((1, 2))), "1 fields for 2 variables: x, y"),
        (only(np.zeros((1, 2)), np.array([["a"]])), "y: a batch holds <U1 in place of numbers"),
    ]:
        with pytest.raises(DataError, match=message):
            list(loader.set_batch_generator(reader, CPU))
    (data,) = loader.set_batch_generator(only(np.zeros((1, 3), "float32"), np.zeros((1, 1), "int64")), CPU)
    with pytest.raises(FeedError, match=r"x is declared \[-1, 2\] but \[1, 3\] was fed"):
        fluid.Executor().run(feed=data, fetch_list=["x"])


@pytest.mark.parametrize("is_iterable", [True, False])
def test_sequences_reach_the_program(is_iterable):
    words = fluid.data("words", [None, 1], "int64", lod_level=1)
    label = fluid.data("label", [None, 1], "int64")
    counts = fluid.layers.sequence_pool(fluid.layers.cast(words, "float32"), "sum")
    loader = fluid.io.DataLoader.from_generator([words, label], capacity=2, iterable=is_iterable)
    rows = [([1, 2, 3], 0), ([4], 1), ([5, 6], 0)]
    loader.set_sample_list_generator(lambda: iter([rows[:2], rows[2:]]), CPU if is_iterable else None)
    exe, found = fluid.Executor(), []
    if is_iterable:
        found = [exe.run(feed=data, fetch_list=[counts])[0].tolist() for data in loader]
    else:
        loader.start()
        with pytest.raises(fluid.core.EOFException):
            while True:
                found.append(exe.run(fetch_list=[counts])[0].tolist())
    assert found == [[[6.0], [4.0]], [[11.0]]]


def test_the_older_names_do_the_same(variables):
    reader = fluid.io.PyReader(feed_list=variables, capacity=2, return_list=True)
    for decorate, sizes in [
        (lambda: reader.decorate_sample_generator(samples, batch_size=2, places=CPU), [2, 2]),
        (lambda: reader.decorate_sample_list_generator(lists, CPU), [2, 3]),
        (lambda: reader.decorate_batch_generator(batches, CPU), [2, 2, 2]),
    ]:
        assert decorate() is None
        assert [np.array(x).shape[0] for ((x, _),) in reader()] == sizes
    reader = fluid.io.PyReader(variables, 2, iterable=False)
    reader.decorate_batch_generator(batches)
    reader.start()
    assert fluid.Executor().run(fetch_list=[variables[1]])[0][0, 0] == 0


def test_in_the_imperative_mode_a_loop_gives_tensors_of_that_mode():
    with fluid.dygraph.guard():
        loader = fluid.io.DataLoader.from_generator(capacity=2, return_list=True)
        for set_source, shapes in [
            (lambda: loader.set_sample_generator(samples, 2), [((2, 2), (2, 1))] * 2),
            (lambda: loader.set_sample_list_generator(lists), [((2, 2), (2,)), ((3, 2), (3,))]),
            (lambda: loader.set_batch_generator(batches, CPU), [((2, 2), (2, 1))] * 3),
        ]:
            assert set_source() is loader
            found = list(loader())
            assert [(tuple(x.shape), tuple(y.shape)) for x, y in found] == shapes
            assert all(isinstance(x, fluid.dygraph.Tensor) and x.stop_gradient for x, _ in found)
        with pytest.warns(UserWarning, match="iterable and gives lists"):
            fluid.io.DataLoader.from_generator(capacity=2, iterable=False)


def test_batches_are_read_ahead(variables):
    read = []

    def noting():
        for number, each in enumerate(batches()):
            read.append(number)
            yield each

    items = iter(loader_of(variables).set_batch_generator(noting, CPU))
    next(items)
    for _ in range(200):
        if len(read) == 3:
            break
        time.sleep(0.01)
    assert read == [0, 1, 2]


def test_fields_are_stacked():
    found = fluid.io.default_collate_fn([[np.zeros(2), 1], [np.ones(2), 2]])
    assert [each.tolist() for each in found] == [[[0, 0], [1, 1]], [1, 2]]
    assert [each.tolist() for each in fluid.io.default_collate_fn([np.zeros(2), np.ones(2)])] == [[[0, 0], [1, 1]]]


def test_a_feeder_feeds_a_batch_for_each_place(variables):
    feeder = fluid.DataFeeder(variables, CPU)
    rows = [(np.zeros(2, "float32"), 1)]
    (fed,) = feeder.feed_parallel([rows])
    assert np.asarray(fed["y"]).tolist() == [[1]]
    assert [
        np.asarray(fed["y"]).tolist() for fed in feeder.feed_parallel([rows, [(np.zeros(2, "float32"), 2)]], 2)
    ] == [
        [[1]],
        [[2]],
    ]
    with pytest.raises(DataError, match="1 mini-batches for 2 places"):
        list(feeder.feed_parallel([rows], 2))


def test_a_call_that_was_made_before_still_asks_the_loader(variables):
    loader = loader_of(variables, iterable=False).set_batch_generator(batches)
    exe, feed = fluid.Executor(), {"x": np.ones((1, 2), "float32"), "y": np.ones((1, 1), "int64")}
    for _ in range(3):
        exe.run(feed=feed, fetch_list=["x"])
    loader.start()
    with pytest.raises(ProgramError, match="x, y is fed although"):
        exe.run(feed=feed, fetch_list=["x"])


def test_a_reader_of_its_own_variables_is_checked():
    with fluid.unique_name.guard():
        reader = fluid.layers.py_reader(4, [(-1, 2), (-1, 1)], ["float32", "int64"], name="mine")
        x, y = fluid.layers.read_file(reader)
    assert [(var.name, var.shape) for var in (x, y)] == [("read_file_0.tmp_0", (-1, 2)), ("read_file_0.tmp_1", (-1, 1))]
    assert fluid.layers.double_buffer(reader) is reader
    assert fluid.layers.read_file(fluid.layers.create_py_reader_by_data(4, [x])) is x
    reader.decorate_tensor_provider(batches)
    with pytest.raises(ProgramError, match="2 shapes, 1 dtypes and 2 lod_levels"):
        fluid.layers.py_reader(4, [(-1, 2), (-1, 1)], ["float32"])
    with pytest.raises(ProgramError, match="lod_level must be a whole number from 0"):
        fluid.layers.py_reader(4, [(-1, 2)], ["float32"], lod_levels=[-1])
    with pytest.raises(WrongTypeError, match="read_file needs a py_reader"):
        fluid.layers.read_file(x)


class Squares(fluid.io.Dataset):
    """Samples with the number, and its square as a column."""

    def __init__(self, count):
        self.count = count

    def __getitem__(self, idx):
        return np.full(2, idx, "float32"), np.array([idx * idx])

    def __len__(self):
        return self.count


BATCHES = {
    "in order": ({"batch_size": 2}, [[0, 1], [2, 3], [4]]),
    "full": ({"batch_size": 2, "drop_last": True}, [[0, 1], [2, 3]]),
    "sampler": ({"batch_sampler": fluid.io.BatchSampler(indices=[4, 1, 2], batch_size=2)}, [[4, 1], [2]]),
    "threads": ({"batch_size": 2, "num_workers": 3}, [[0, 1], [2, 3], [4]]),
}


@pytest.mark.parametrize("case", BATCHES)
@pytest.mark.parametrize("return_list", [False, True])
def test_samples_of_a_data_set_come_in_the_order_of_their_numbers(variables, case, return_list):
    options, expected = BATCHES[case]
    loader = fluid.io.DataLoader(Squares(5), variables, CPU, return_list=return_list, **options)
    assert len(loader) == len(expected)
    for _ in range(2):
        found = [data[0] for data in loader()]
        pairs = [data if return_list else [data["x"], data["y"]] for data in found]
        assert [np.array(x)[:, 0].tolist() for x, _ in pairs] == expected
        assert [np.array(y).tolist() for _, y in pairs] == [[[n * n] for n in numbers] for numbers in expected]


def test_samples_train_a_layer_without_variables():
    with fluid.dygraph.guard():
        loader = fluid.io.DataLoader(Squares(3), batch_size=2, collate_fn=lambda rows: [np.stack([x for x, _ in rows])])
        assert [[each.numpy().tolist() for each in data] for data in loader] == [[[[0, 0], [1, 1]]], [[[2, 2]]]]


def test_each_pass_is_shuffled_by_numpys_generator():
    np.random.seed(3)
    sampler = fluid.io.BatchSampler(Squares(7), shuffle=True, batch_size=3)
    found = [list(sampler) for _ in range(2)]
    # What Paddle 1.8.5 gives for this seed.
    assert found == [[[4, 6, 5], [3, 1, 0], [2]], [[2, 1, 6], [5, 3, 0], [4]]]


def test_each_place_gets_a_batch(variables):
    loader = fluid.io.DataLoader(Squares(5), variables, fluid.cpu_places(2), batch_size=2)
    groups = [[np.array(feed["x"])[:, 0].tolist() for feed in group] for group in loader()]
    assert groups == [[[0, 1], [2, 3]]]


def test_loaders_that_cannot_be_are_refused(variables):
    rows = Squares(4)
    sampler = fluid.io.BatchSampler(rows, batch_size=2)
    with pytest.raises(WrongTypeError, match=r"(?s)samples by number.*from_generator"):
        fluid.io.DataLoader(iter([]), variables, CPU)
    with pytest.raises(ProgramError, match="must name the variables"):
        fluid.io.DataLoader(rows, places=CPU)
    with pytest.raises(ProgramError, match="needs the places"):
        fluid.io.DataLoader(rows, variables)
    with pytest.raises(ProgramError, match="are those of batch_sampler"):
        fluid.io.DataLoader(rows, variables, CPU, batch_sampler=sampler, batch_size=2)
    with pytest.raises(ProgramError, match="num_workers"):
        fluid.io.DataLoader(rows, variables, CPU, num_workers=-1)
    with pytest.raises(ProgramError, match="either dataset or indices"):
        fluid.io.BatchSampler(rows, [1])
    with pytest.raises(ProgramError, match="batch_size"):
        fluid.io.BatchSampler(rows, batch_size=0)
    with pytest.raises(NotImplementedError, match="Dataset does not define __getitem__"):
        _ = fluid.io.Dataset()[0]


def test_an_error_in_a_data_set_is_raised_where_its_batch_was_to_be_taken(variables):
    class Broken(Squares):
        def __getitem__(self, idx):
            if idx == 3:
                raise KeyError("sample 3")
            return super().__getitem__(idx)

    for workers in (0, 2):
        found = iter(fluid.io.DataLoader(Broken(5), variables, CPU, batch_size=2, num_workers=workers))
        assert np.array(next(found)[0]["x"])[:, 0].tolist() == [0, 1]
        with pytest.raises(KeyError, match="sample 3"):
            next(found)
