"""Interrupts: a run, and whatever else changes what lives on, happens as a whole or not at all."""

import os
import random
import signal
import socket
import threading
import time

import numpy as np
import pytest
from explore.interrupts import TRAININGS, Lines, Timeout, check, handling, traced
from jit_support import needs_numba

import minigraph as fluid
from minigraph import layers
from minigraph.errors import ExecutionError, NonfiniteError
from minigraph.executor.interpreter import Interpreter
from minigraph.kernels.jit.threads import run_together
from minigraph.support import interrupts

# What an interrupt ends in the middle of a finalizer, Python only reports.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture
def handler():
    """Gives handlers to signals, and takes them away in the end."""
    old = {}

    def put(number, function):
        old.setdefault(number, signal.signal(number, function))

    yield put
    signal.setitimer(signal.ITIMER_REAL, 0)
    for number, function in old.items():
        signal.signal(number, function)


@pytest.mark.laws
@pytest.mark.parametrize("jit", [False, pytest.param(True, marks=needs_numba)])
@pytest.mark.parametrize("kind", TRAININGS)
def test_an_interrupted_step_was_done_or_has_not_begun(kind, jit):
    assert sum(check(kind, jit, random.Random(seed)) for seed in range(3))


@pytest.mark.slow
def test_an_interrupted_normalization_changes_both_statistics_or_none():
    """Whichever line it comes at, of those in the imperative mode that give operators' results to tensors."""
    with handling(Timeout):
        plain, other = (TRAININGS["normalized"](False) for _ in range(2))
        lines = Lines()
        for training in (plain, other):
            training.step(0)
        before = plain.state()
        traced(lines, lambda: plain.step(1))
        interrupted = 0
        for at in range(lines.count * 17 // 20, lines.count):
            try:
                traced(Lines(at), lambda: other.step(1))
            except Timeout:
                interrupted += 1
            assert other.state() in (before, plain.state()), at
            if other.state() == plain.state():
                before = plain.state()
                plain.step(1)
        assert interrupted > 50


# Signals that wait


def test_signals_wait_in_the_order_in_which_they_came(handler):
    called = []
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM):
        handler(number, lambda number, frame: called.append((number, frame.f_code.co_name)))
    with interrupts.deferred():
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGTERM):
            signal.raise_signal(number)
        assert called == []
    name = "__exit__"  # of what let them wait
    assert called == [(signal.SIGTERM, name), (signal.SIGINT, name), (signal.SIGTERM, name)]
    signal.raise_signal(signal.SIGALRM)
    assert called[-1] == (signal.SIGALRM, "test_signals_wait_in_the_order_in_which_they_came")


def test_every_handler_is_called_though_one_before_raises(handler):
    called = []

    def stop(number, frame):
        called.append(number)
        raise Timeout(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        handler(number, stop)
    with pytest.raises(Timeout) as caught, interrupts.deferred():
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGTERM)
    assert called == [signal.SIGINT, signal.SIGTERM]
    assert caught.value.args == (signal.SIGTERM,) and caught.value.__context__.args == (signal.SIGINT,)
    assert signal.getsignal(signal.SIGINT) is stop and not interrupts.is_held()


def test_a_handler_that_puts_another_one_in_its_place_has_the_last_word(handler):
    later = []

    def once(number, frame):
        signal.signal(number, lambda *_: later.append(number))

    handler(signal.SIGTERM, once)
    with interrupts.deferred():
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
    assert later == [signal.SIGTERM]
    handler(signal.SIGALRM, lambda number, frame: None)
    with interrupts.deferred():
        signal.signal(signal.SIGALRM, once)
    assert signal.getsignal(signal.SIGALRM) is once


def test_what_has_no_handler_in_python_is_left_alone(handler):
    handler(signal.SIGTERM, signal.SIG_IGN)
    handler(signal.SIGALRM, signal.SIG_DFL)
    with interrupts.deferred():
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
        assert signal.getsignal(signal.SIGALRM) is signal.SIG_DFL
        signal.raise_signal(signal.SIGTERM)


def test_a_handler_that_an_interrupt_kept_from_its_place_gets_there_by_the_next_signal(handler):
    called = []
    handler(signal.SIGTERM, lambda *_: called.append("term"))
    own = signal.getsignal(signal.SIGTERM)
    with interrupts.deferred():
        stand_in = signal.getsignal(signal.SIGTERM)
    signal.signal(signal.SIGTERM, stand_in)
    signal.raise_signal(signal.SIGTERM)
    assert called == ["term"] and signal.getsignal(signal.SIGTERM) is own


def test_signals_of_real_time_wait_too(handler):
    handler(signal.SIGRTMIN + 3, lambda *_: called.append(1))
    called = []
    with interrupts.deferred():
        signal.raise_signal(signal.SIGRTMIN + 3)
        assert not called
    assert called


def test_a_file_that_is_woken_by_signals_is_woken_once(handler):
    handler(signal.SIGTERM, lambda *_: None)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False), theirs.setblocking(False)
        old = signal.set_wakeup_fd(theirs.fileno())
        try:
            with interrupts.deferred():
                signal.raise_signal(signal.SIGTERM)
        finally:
            signal.set_wakeup_fd(old)
        assert ours.recv(100) == bytes([signal.SIGTERM])


def test_other_threads_let_nothing_wait():
    found = []

    def work():
        with interrupts.deferred():
            found.append(interrupts.is_held())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    with interrupts.deferred():
        work()
        assert interrupts.is_held()  # the outer one goes on
    assert found == [False, True] and not interrupts.is_held()


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_process_that_another_thread_forked_has_its_signals(handler):
    handler(signal.SIGTERM, lambda *_: os._exit(7))
    status = []

    def fork():
        child = os.fork()
        if not child:
            signal.raise_signal(signal.SIGTERM)
            time.sleep(0.01)
            os._exit(1)
        status.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

    with interrupts.deferred():
        thread = threading.Thread(target=fork)
        thread.start()
        thread.join()
    assert status == [7]


# What a run raises


def counting(call=None):
    """A program that draws a number, calls `call` in the middle and adds to a total in the end."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        total = layers.create_global_var([1], 0.0, "float32", persistable=True, name="total")
        drawn = layers.uniform_random([1])
        if call is not None:
            result = main.global_block().create_var(name="result", dtype="float32", shape=[1])
            drawn = layers.py_func(lambda x: call() or x, drawn, result)
        layers.assign(total + drawn, total)
    return main, startup, drawn


def raising(error):
    def call():
        if error is not None:
            raise error

    return call


@pytest.mark.parametrize("kind", [fluid.Executor, Interpreter])
@pytest.mark.parametrize(
    ("error", "expected"),
    [(ValueError("no"), ExecutionError), (KeyboardInterrupt(), KeyboardInterrupt), (SystemExit(3), SystemExit)],
)
def test_an_error_in_a_run_changes_nothing_and_draws_nothing(kind, error, expected):
    errors = [None, error, error, None]
    main, startup, drawn = counting(lambda: raising(errors.pop(0))())
    executor, scope, numbers = kind(), fluid.Scope(), []
    executor._rng = np.random.default_rng(1)
    executor.run(startup, scope=scope)
    for fails in (False, True, True, False):
        before = scope.find_var("total").value.copy()
        if fails:
            with pytest.raises(expected):
                executor.run(main, fetch_list=[drawn], scope=scope)
            np.testing.assert_array_equal(scope.find_var("total").value, before)
        else:
            numbers.append(executor.run(main, fetch_list=[drawn], scope=scope)[0].item())
    draws = np.random.default_rng(1)
    assert numbers == [np.float32(2) * draws.random(1, "float32") - 1 for _ in range(2)]


def test_a_value_that_is_not_finite_ends_a_run_before_it_changes_or_draws_anything():
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x = fluid.data("x", [None, 4])
        loss = layers.mean(layers.dropout(layers.batch_norm(layers.fc(x, 4)), 0.5))
        clip = fluid.clip.GradientClipByGlobalNorm(1.0, nonfinite="raise")
        fluid.optimizer.Adam(0.1, grad_clip=clip).minimize(loss)
    executor, scope = fluid.Executor(), fluid.Scope()
    executor.run(startup, scope=scope)
    before = {name: scope.var(name).value.copy() for name in scope.local_var_names()}
    drawn = executor._rng.bit_generator.state
    for _ in range(2):
        with pytest.raises(NonfiniteError):
            executor.run(main, {"x": np.full((3, 4), np.nan, "float32")}, scope=scope)
        assert executor._rng.bit_generator.state == drawn
        for name, value in before.items():
            np.testing.assert_array_equal(scope.var(name).value, value, err_msg=name)


@pytest.mark.parametrize("kind", [fluid.Executor, Interpreter])
def test_what_a_handler_raises_reaches_the_caller_as_it_is(kind, handler):
    def stop(number, frame):
        raise Timeout("too long")

    handler(signal.SIGALRM, stop)
    main, startup, _ = counting(lambda: signal.raise_signal(signal.SIGALRM))
    executor, scope = kind(), fluid.Scope()
    executor.run(startup, scope=scope)
    for _ in range(2):
        with pytest.raises(Timeout, match="too long"):
            executor.run(main, scope=scope)
    assert scope.find_var("total").value == 0


def test_a_handler_that_raises_nothing_has_no_effect(handler):
    called = []
    handler(signal.SIGALRM, lambda *_: called.append(1))
    found = []
    for call in (None, lambda: signal.raise_signal(signal.SIGALRM)):
        main, startup, drawn = counting(call)
        executor, scope = fluid.Executor(), fluid.Scope()
        executor._rng = np.random.default_rng(1)
        executor.run(startup, scope=scope)
        found.append([executor.run(main, fetch_list=[drawn], scope=scope)[0].item() for _ in range(3)])
    assert found[0] == found[1] and len(called) == 3


@pytest.mark.slow
def test_a_loop_without_end_is_interrupted_and_leaves_nothing(handler):
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        total = layers.create_global_var([1], 0.0, "float32", persistable=True, name="total")
        goes_on = fluid.data("goes_on", [1], "bool")
        loop = layers.While(layers.logical_and(goes_on, goes_on))
        with loop.block():
            layers.assign(total + 1.0, total)
            layers.logical_and(goes_on, goes_on, out=loop.cond_var)
        layers.assign(total + 100.0, total)
    executor, scope = fluid.Executor(), fluid.Scope()
    executor.run(startup, scope=scope)

    def stop(number, frame):
        raise Timeout

    handler(signal.SIGALRM, stop)
    for _ in range(3):
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(Timeout):
            executor.run(main, {"goes_on": np.array([True])}, scope=scope)
        assert scope.find_var("total").value == 0
    executor.run(main, {"goes_on": np.array([False])}, scope=scope)
    assert scope.find_var("total").value == 100


def test_a_run_that_waits_for_a_batch_is_interrupted_and_loses_none(handler):
    main, startup = fluid.Program(), fluid.Program()
    slow = threading.Event()

    def batches():
        for number in range(4):
            if number == 2:
                slow.wait(20)
            yield [np.full(1, number, "float32")]

    with fluid.program_guard(main, startup):
        x = fluid.data("x", [1])
        loader = fluid.io.DataLoader.from_generator([x], capacity=1, iterable=False)
        y = layers.scale(x, 10.0)
    loader.set_batch_generator(batches)
    executor, found = fluid.Executor(), []

    def stop(number, frame):
        slow.set()
        raise Timeout

    handler(signal.SIGALRM, stop)
    loader.start()
    with pytest.raises(fluid.core.EOFException):
        while True:
            if len(found) == 2:
                signal.setitimer(signal.ITIMER_REAL, 0.05)
            try:
                found.append(executor.run(main, fetch_list=[y])[0].item())
            except Timeout:
                found.append("interrupted")
    assert found == [0.0, 10.0, "interrupted", 20.0, 30.0]


def test_an_error_takes_its_batch_with_it():
    """The next call gets the next item."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup):
        x = fluid.data("x", [1])
        loader = fluid.io.DataLoader.from_generator([x], capacity=1, iterable=False)
        result = main.global_block().create_var(name="result", dtype="float32", shape=[1])
        layers.py_func(lambda x: {0.0: 5.0, 2.0: 7.0}[np.array(x).item()], x, result)
    loader.set_batch_generator(lambda: ([np.full(1, number, "float32")] for number in range(3)))
    loader.start()
    executor = fluid.Executor()
    found = [executor.run(main, fetch_list=[result])[0].item()]
    with pytest.raises(ExecutionError, match="KeyError"):
        executor.run(main, fetch_list=[result])
    found.append(executor.run(main, fetch_list=[result])[0].item())
    assert found == [5.0, 7.0]


# Threads


def test_an_interrupted_caller_returns_when_no_thread_works_for_it_any_more(handler):
    def stop(number, frame):
        raise Timeout

    handler(signal.SIGALRM, stop)
    for delay in np.linspace(0.0005, 0.01, 20):
        working = []

        def work(working=working):
            working.append(threading.get_ident())
            time.sleep(0.003)
            working.remove(threading.get_ident())

        signal.setitimer(signal.ITIMER_REAL, delay)
        try:
            run_together([work] * 4)
            time.sleep(0.02)
        except Timeout:
            assert set(working) <= {threading.get_ident()}  # whose own call was ended
    done = []
    run_together([lambda number=number: done.append(number) for number in range(3)])
    assert sorted(done) == [0, 1, 2]
