"""Readers and their decorators give the samples that they say, in order, in threads too."""

import itertools
import os
import random
import threading
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minigraph import reader
from minigraph.errors import DataError, MinigraphError, WrongTypeError

samples = st.lists(st.integers(), max_size=30)


def numbers(n):
    return lambda: iter(range(n))


def failing_after(n):
    def failing_reader():
        yield from range(n)
        raise OSError("the disk is gone")

    return failing_reader


def in_time(function, seconds=20.0):
    """The result of `function`, or a failure instead of a test run that hangs."""
    outcome = []

    def call():
        try:
            outcome.append((function(), None))
        except BaseException as error:
            outcome.append((None, error))

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(seconds)
    assert outcome, f"nothing came within {seconds} s"
    result, error = outcome[0]
    if error is not None:
        raise error
    return result


def reader_threads():
    return [thread for thread in threading.enumerate() if thread.name == "minigraph-reader"]


def assert_no_threads_stay(seconds=20.0):
    deadline = time.monotonic() + seconds
    while reader_threads() and time.monotonic() < deadline:
        time.sleep(0.005)
    assert not reader_threads()


# batch


@pytest.mark.slow
@given(samples, st.integers(1, 8))
def test_batches_joined_are_the_samples(values, size):
    batches = list(reader.batch(lambda: values, size)())
    assert list(itertools.chain(*batches)) == values
    assert all(len(group) == size for group in batches[:-1])
    assert all(1 <= len(group) <= size for group in batches)


@pytest.mark.slow
@given(samples, st.integers(1, 8))
def test_drop_last_leaves_out_only_an_incomplete_batch(values, size):
    kept = list(reader.batch(lambda: values, size, drop_last=True)())
    assert kept == [group for group in reader.batch(lambda: values, size)() if len(group) == size]


@pytest.mark.parametrize("size", [0, -1, 2.5, float("nan"), "many", "2"])
def test_a_batch_size_that_is_no_positive_whole_number_is_an_error(size):
    with pytest.raises(TypeError if isinstance(size, str) else ValueError, match="batch_size must be"):
        reader.batch(numbers(3), size)
    assert list(reader.batch(numbers(3), 2.0)()) == list(reader.batch(numbers(3), 2)())


def test_a_batched_reader_can_be_run_again():
    batched = reader.batch(numbers(4), 3)
    assert list(batched()) == list(batched()) == [[0, 1, 2], [3]]


# shuffle


@pytest.mark.slow
@given(samples, st.integers(0, 12))
def test_shuffle_permutes_within_each_buffer(values, size):
    shuffled = list(reader.shuffle(lambda: values, size)())
    width = max(size, 1)
    assert len(shuffled) == len(values)
    for start in range(0, len(values), width):
        assert sorted(shuffled[start : start + width]) == sorted(values[start : start + width])


def test_shuffle_gives_the_order_of_fluid_for_a_seed():
    random.seed(7)
    assert list(reader.shuffle(numbers(10), 4)()) == [3, 1, 0, 2, 5, 6, 7, 4, 8, 9]
    assert random.random() == 0.5827880059033551  # and leaves the same random state behind


def test_shuffle_does_move_samples():
    random.seed(0)
    assert list(reader.shuffle(numbers(1000), 1000)()) != list(range(1000))


# map_readers, chain, compose, firstn, cache


def test_map_readers_ends_with_the_shortest_reader():
    assert list(reader.map_readers(lambda x, y: (y, x), numbers(2), numbers(3))()) == [(0, 0), (1, 1)]


@pytest.mark.slow
@given(st.lists(samples, max_size=4))
def test_chain_is_concatenation(lists):
    readers = [lambda values=values: values for values in lists]
    assert list(reader.chain(*readers)()) == list(itertools.chain(*lists))


def test_compose_joins_tuples_and_takes_other_samples_as_one_field():
    composed = reader.compose(lambda: [(1, 2), [3]], lambda: [3, (4, 5)])
    assert list(composed()) == [(1, 2, 3), ([3], 4, 5)]


def test_compose_refuses_readers_of_different_length_after_the_common_part():
    run = iter(reader.compose(numbers(2), numbers(3), numbers(2))())
    assert [next(run), next(run)] == [(0, 0, 0), (1, 1, 1)]
    with pytest.raises(reader.ComposeNotAligned, match=r"readers \[0, 2\].* ended after 2 samples"):
        next(run)


def test_not_aligned_is_a_value_error_as_in_fluid_and_a_minigraph_error():
    assert issubclass(reader.ComposeNotAligned, ValueError)
    assert issubclass(reader.ComposeNotAligned, MinigraphError)


def test_compose_without_check_drops_what_is_left_over():
    assert list(reader.compose(numbers(2), numbers(3), check_alignment=False)()) == [(0, 0), (1, 1)]


def test_compose_takes_none_for_a_sample():
    assert list(reader.compose(lambda: [None, 1], numbers(2))()) == [(None, 0), (1, 1)]


@pytest.mark.parametrize(("n", "expected"), [(0, []), (3, [0, 1, 2]), (9, [0, 1, 2, 3, 4]), (-1, [0, 1, 2, 3, 4])])
def test_firstn_gives_what_fluid_gives(n, expected):
    assert list(reader.firstn(numbers(5), n)()) == expected


def test_firstn_asks_for_no_sample_beyond_n():
    assert list(reader.firstn(failing_after(3), 3)()) == [0, 1, 2]


def test_cache_reads_at_once_and_only_once():
    runs = []

    def counted():
        runs.append(1)
        yield from range(3)

    cached = reader.cache(counted)
    assert runs == [1]
    assert list(cached()) == list(cached()) == [0, 1, 2]
    assert runs == [1]


@pytest.mark.parametrize(
    "decorate",
    [
        lambda r: reader.batch(r, 2),
        lambda r: reader.shuffle(r, 2),
        lambda r: reader.map_readers(abs, r),
        lambda r: reader.chain(r, r),
        lambda r: reader.compose(r, r),
        lambda r: reader.firstn(r, 2),
        lambda r: reader.buffered(r, 2),
        lambda r: reader.xmap_readers(abs, r, 2, 2),
    ],
)
def test_decorating_reads_nothing_until_the_run_starts(decorate):
    def untouchable():
        raise AssertionError("the reader was called")

    run = decorate(untouchable)()
    with pytest.raises(AssertionError, match="the reader was called"):
        next(iter(run))


def test_an_iterable_in_place_of_a_reader_is_explained():
    with pytest.raises(TypeError, match="Pass the function itself"):
        list(reader.batch(iter([1, 2]), 2)())


def test_a_maker_of_readers_in_place_of_a_reader_is_explained():
    def train():
        return numbers(3)

    with pytest.raises(TypeError, match="Pass the reader that it returns"):
        list(reader.batch(train, 2)())


# buffered and xmap_readers


@pytest.mark.slow
@given(samples, st.integers(0, 4))
def test_buffered_changes_nothing(values, size):
    assert list(reader.buffered(lambda: values, size)()) == values


@pytest.mark.slow
@given(samples, st.integers(1, 4), st.integers(0, 4))
def test_an_ordered_xmap_is_map(values, threads, size):
    mapped = reader.xmap_readers(lambda x: x + 1, lambda: values, threads, size, order=True)
    assert list(mapped()) == [x + 1 for x in values]


@pytest.mark.slow
@given(samples, st.integers(1, 4), st.integers(0, 4))
def test_an_unordered_xmap_gives_each_result_once(values, threads, size):
    mapped = reader.xmap_readers(lambda x: x + 1, lambda: values, threads, size)
    assert sorted(mapped()) == sorted(x + 1 for x in values)


def test_an_ordered_xmap_keeps_the_order_when_earlier_samples_take_longer():
    def slow_at_first(x):
        time.sleep(0.02 if x % 4 == 0 else 0)
        return x

    mapped = reader.xmap_readers(slow_at_first, numbers(20), process_num=4, buffer_size=1, order=True)
    assert in_time(lambda: list(mapped())) == list(range(20))


def test_an_unordered_xmap_does_not_wait_for_a_slow_sample():
    others_are_through = threading.Event()

    def mapper(x):
        if x == 0:
            assert others_are_through.wait(20)
        return x

    run = reader.xmap_readers(mapper, numbers(4), process_num=2, buffer_size=4)()
    assert in_time(lambda: [next(run), next(run), next(run)]) == [1, 2, 3]
    others_are_through.set()
    assert in_time(lambda: list(run)) == [0]


def test_xmap_maps_in_as_many_threads_as_asked_for():
    together = threading.Barrier(3)

    def mapper(x):
        together.wait(20)  # passes only when three samples are being mapped at once
        return x

    assert sorted(in_time(lambda: list(reader.xmap_readers(mapper, numbers(6), 3, 2)()))) == list(range(6))


@pytest.mark.parametrize("threads", [0, -2])
def test_xmap_without_threads_is_an_error(threads):
    with pytest.raises(ValueError, match="process_num"):
        reader.xmap_readers(abs, numbers(3), threads, 2)


def test_buffered_reads_ahead_and_no_further_than_its_size():
    read = []

    def recorded():
        for x in range(100):
            read.append(x)
            yield x

    run = iter(reader.buffered(recorded, 3)())
    assert next(run) == 0
    deadline = time.monotonic() + 20
    while len(read) < 5 and time.monotonic() < deadline:
        time.sleep(0.005)
    time.sleep(0.05)
    assert len(read) == 5  # one taken, three waiting, one in the thread's hand
    run.close()


def test_runs_of_one_reader_do_not_disturb_each_other():
    mapped = reader.xmap_readers(lambda x: x, numbers(10), 2, 2, order=True)
    assert in_time(lambda: list(zip(mapped(), mapped(), strict=True))) == [(x, x) for x in range(10)]


@pytest.mark.parametrize("n", [0, 1, 5])
def test_a_readers_error_comes_through_buffered_after_the_samples_before_it(n):
    run = iter(reader.buffered(failing_after(n), 2)())
    assert in_time(lambda: [next(run) for _ in range(n)]) == list(range(n))
    with pytest.raises(OSError, match="the disk is gone"):
        in_time(lambda: next(run))
    assert_no_threads_stay()


@pytest.mark.parametrize("threads", [1, 3])
def test_an_ordered_xmap_raises_an_error_at_the_place_of_its_sample(threads):
    def mapper(x):
        return 1 // (x - 5)

    run = iter(reader.xmap_readers(mapper, itertools.count, threads, 2, order=True)())
    assert in_time(lambda: [next(run) for _ in range(5)]) == [1 // (x - 5) for x in range(5)]
    with pytest.raises(ZeroDivisionError):
        in_time(lambda: next(run))
    assert_no_threads_stay()


@pytest.mark.parametrize("order", [False, True])
@pytest.mark.parametrize("error", [ValueError("bad"), SystemExit(3), StopIteration()])
def test_no_error_in_a_mapper_ends_a_run_silently(error, order):
    def mapper(x):
        if x == 20:
            raise error
        return x

    # Python itself turns a StopIteration that leaves a generator into a RuntimeError.
    expected = RuntimeError if isinstance(error, StopIteration) else type(error)
    with pytest.raises(expected):
        in_time(lambda: list(reader.xmap_readers(mapper, numbers(100), 3, 2, order)()))
    assert_no_threads_stay()


def test_the_traceback_of_a_mappers_error_shows_the_mapper():
    def faulty_mapper(x):
        raise KeyError(x)

    with pytest.raises(KeyError) as caught:
        list(reader.xmap_readers(faulty_mapper, numbers(3), 2, 2)())
    assert "faulty_mapper" in [entry.name for entry in caught.traceback]


@pytest.mark.parametrize("order", [False, True])
@pytest.mark.parametrize("stop", ["close", "drop"])
def test_an_abandoned_run_leaves_no_thread_behind(stop, order):
    run = iter(reader.xmap_readers(lambda x: x, itertools.count, process_num=3, buffer_size=2, order=order)())
    assert in_time(run.__next__) is not None
    assert reader_threads()
    if stop == "close":
        run.close()
    del run
    assert_no_threads_stay()


def test_an_abandoned_run_closes_the_readers_below_it():
    closed = threading.Event()

    def endless():
        try:
            yield from itertools.count()
        finally:
            closed.set()

    run = iter(reader.buffered(reader.buffered(endless, 2), 2)())
    assert in_time(run.__next__) == 0
    del run
    assert_no_threads_stay()
    assert closed.wait(20)


def numbers_from(start, count):
    return lambda: ((np.full(2, number), number) for number in range(start, start + count))


@pytest.mark.slow
def test_processes_read_in_turn_or_as_they_come():
    readers = [numbers_from(0, 3), numbers_from(10, 1), numbers_from(20, 2)]
    in_turn = reader.multiprocess_reader(readers)
    for _ in range(2):
        assert [number for _, number in in_turn()] == [0, 10, 20, 1, 21, 2]
    found = list(reader.multiprocess_reader(readers, use_pipe=False)())
    assert sorted(number for _, number in found) == [0, 1, 2, 10, 20, 21]
    assert all(array.tolist() == [number] * 2 for array, number in found)


@pytest.mark.slow
def test_an_error_in_a_process_is_raised_with_its_lines():
    def broken():
        yield 1
        raise KeyError("oops")

    samples = reader.multiprocess_reader([broken])()
    assert next(samples) == 1
    with pytest.raises(DataError, match=r"a reader has raised an error(.|\n)*in broken(.|\n)*KeyError: 'oops'"):
        next(samples)


@pytest.mark.slow
def test_the_sudden_end_of_a_process_is_an_error_and_not_the_end_of_the_samples():
    def ending():
        yield 1
        os._exit(3)

    with pytest.raises(DataError, match="has ended before the reader did"):
        list(reader.multiprocess_reader([ending, numbers_from(0, 2)], use_pipe=False)())


@pytest.mark.slow
def test_an_abandoned_run_takes_its_processes_with_it():
    def endless():
        yield os.getpid()
        yield from itertools.repeat(b"x" * 1000)

    samples = reader.multiprocess_reader([endless])()
    process = next(samples)
    os.kill(process, 0)
    samples.close()
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)


def test_processes_need_readers():
    for wrong in ([], numbers_from(0, 1), [range(3)]):
        with pytest.raises(WrongTypeError, match=r"takes a list of readers|readers must be a sequence of function"):
            reader.multiprocess_reader(wrong)
