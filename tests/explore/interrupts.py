"""Interrupts at any moment: a step that is interrupted has been done or has not begun, and one more try does it.

A signal is noted by Python at the beginning of a chosen line, the n-th that runs, and its handler is called where
Python next looks for signals, as for one that comes from outside.
"""

from __future__ import annotations

import ctypes
import gc
import random
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import numpy as np

import minigraph as fluid
from minigraph import dygraph, layers, unique_name
from minigraph.clip import GradientClipByGlobalNorm
from minigraph.dygraph import layer
from minigraph.eager import tape
from minigraph.kernels.jit import threads as loop_threads
from minigraph.kernels.jit.compiling import is_installed
from minigraph.kernels.jit.threads import run_together
from minigraph.runtime.scope import _CURRENT as SCOPE
from minigraph.support import interrupts, undo

STEPS = 4


def case(seed: int) -> None:
    """Interrupt the training of one model at one or two moments."""
    choose = random.Random(seed)
    kind = choose.choice(list(TRAININGS))
    jit = choose.random() < 0.5 and is_installed()
    check(kind, jit, choose)


def check(kind: str, jit: bool, choose: random.Random, steps: int = STEPS) -> int:
    """Interrupt the training `kind` in one of its first steps; how many interrupts came.

    Raises
    ------
    AssertionError
        If the step was neither done nor undone, or what follows differs from a training without interrupts.
    """
    came = 0
    chosen, exception = choose.randrange(steps), choose.choice([KeyboardInterrupt, Timeout])
    with handling(exception), _two_threads():
        plain, other = TRAININGS[kind](jit), TRAININGS[kind](jit)
        for number in range(steps):
            before = plain.state()
            assert other.state() == before, f"{kind}, {jit=}: step {number} begins with something else"
            plain.prepare(number)
            other.prepare(number)
            lines = Lines()
            expected = traced(lines, lambda number=number: plain.step(number))
            after, context = plain.state(), _context()
            found: Any = _INTERRUPTED
            for _ in range(2 if number == chosen else 0):
                # What comes last changes the state.
                first = choose.choice([1, lines.count * 3 // 4])
                at = choose.randrange(first, lines.count + 1)
                where = f"{kind}, {jit=}, {exception.__name__} at line {at} of {lines.count} in step {number}"
                try:
                    found = traced(Lines(at), lambda number=number: other.step(number))
                    break
                except exception:
                    came += 1
                _check_surroundings(where)
                assert _context() == context, f"{where}: a guard was left in force"
                state = other.state()
                assert state in (before, after), f"{where}: {_mixture(state, before, after)}"
                if state == after:
                    break
            if other.state() != after:
                found = other.step(number)
            where = f"{kind}, {jit=}, step {number}, interrupted in {chosen}"
            assert other.state() == after, f"{where}: {_mixture(other.state(), after, before)}"
            assert found is _INTERRUPTED or found == expected, f"{where}: fetched something else"
        plain.close()
        other.close()
    return came


class Timeout(Exception):
    """What a handler raises."""


_INTERRUPTED = object()


def _mixture(found: dict[str, bytes], one: dict[str, bytes], other: dict[str, bytes]) -> str:
    names = [name for name in {**found, **one} if found.get(name) != one.get(name)]
    return ", ".join(f"{name} is {'old or new' if found.get(name) == other.get(name) else 'torn'}" for name in names)


def _context() -> dict[str, int]:
    """Values of the context variables of guards and modes, by identity."""
    held = (undo.CURRENT, SCOPE, tape._RECORDING, layer._OUTERMOST, undo.JOURNAL, unique_name._GENERATOR)
    return {each.name: id(each.get()) for each in held}


def _check_surroundings(where: str) -> None:
    assert signal.getsignal(signal.SIGINT) is _raise, f"{where}: a handler was left behind"
    assert not interrupts.is_held(), f"{where}: signals wait for ever"
    assert gc.isenabled(), f"{where}: the collector is off"
    ran: list[int] = []
    run_together([lambda: ran.append(1)] * 3)
    assert ran == [1, 1, 1], f"{where}: threads do not work"


# Signals

_raised: type[BaseException] = KeyboardInterrupt


def _raise(number: int, frame: FrameType | None) -> None:
    sys.settrace(None)
    raise _raised


@contextmanager
def handling(exception: type[BaseException]) -> Iterator[None]:
    global _raised
    old, _raised = signal.signal(signal.SIGINT, _raise), exception
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, old)


@contextmanager
def _two_threads() -> Iterator[None]:
    """Two threads for loops, whatever the machine."""
    old, loop_threads.thread_count = loop_threads.thread_count, lambda: 2
    try:
        yield
    finally:
        loop_threads.thread_count = old


def _in_c(name: str) -> Callable[..., None]:
    """A trace function that calls a function of Python's own; one in Python would itself be interrupted."""
    return ctypes.PYFUNCTYPE(None, *[ctypes.py_object] * 3)((name, ctypes.pythonapi))


_note_signal, _do_nothing = _in_c("PyErr_SetInterrupt"), _in_c("Py_GetVersion")


class Lines:
    """A trace function that counts lines and notes a SIGINT at one of them; those of numba and of this file aside."""

    def __init__(self, at: int = 0) -> None:
        self.at, self.count = at, 0

    def __call__(self, frame: FrameType, event: str, argument: Any) -> Any:
        name = frame.f_code.co_filename
        return None if name == __file__ or "numba" in name or "llvmlite" in name or "importlib" in name else self._local

    def _local(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            self.count += 1
            if self.count == self.at:
                sys.settrace(_do_nothing)
                outer = frame.f_back
                while outer is not None:
                    outer.f_trace, outer = None, outer.f_back
                return _note_signal  # called at the next line of the frame, or at its end
        return self._local


def traced(lines: Lines, action: Callable[[], Any]) -> Any:
    old = sys.gettrace()
    sys.settrace(lines)
    try:
        return action()
    finally:
        sys.settrace(old)


# Trainings


class Training:
    """Steps of a program, from the same start every time.

    Parameters
    ----------
    build : callable
        Appends the program and returns the loss.
    feed : callable
        What a step is fed.
    """

    def __init__(self, build: Callable[[], Any], feed: Callable[[int], dict[str, Any]], jit: bool) -> None:
        self.main, self.startup, self.scope, self.feed = fluid.Program(), fluid.Program(), fluid.Scope(), feed
        with fluid.program_guard(self.main, self.startup), fluid.unique_name.guard():
            self.loss = build()
        self.executor = fluid.Executor(jit=jit)
        self.executor._rng = np.random.default_rng(7)

    def prepare(self, number: int) -> None:
        """What is done before a step and is not interrupted."""

    def close(self) -> None:
        """End the threads of the training."""

    def step(self, number: int) -> bytes:
        """The first step is the startup program's."""
        program, fetch = (self.main, [self.loss]) if number else (self.startup, [])
        feed = self.feed(number) if number else {}
        return b"".join(map(bytes, self.executor.run(program, feed, fetch, scope=self.scope)))

    def state(self) -> dict[str, bytes]:
        """Everything that lives on, as bytes."""
        held = {name: self.scope.var(name).value for name in self.scope.local_var_names()}
        return {name: value.tobytes() for name, value in held.items() if value is not None}


def _images(size: int, rows: int = 8) -> Callable[[int], dict[str, Any]]:
    def feed(number: int) -> dict[str, Any]:
        draw = np.random.default_rng(number)
        return {"x": draw.standard_normal((rows, size), "float32"), "y": draw.integers(0, 3, (rows, 1))}

    return feed


def _classify(h: Any) -> Any:
    return layers.mean(layers.softmax_with_cross_entropy(layers.fc(h, 3), fluid.data("y", [None, 1], "int64")))


def _momentum() -> Any:
    h = layers.fc(fluid.data("x", [None, 6]), 16, act="relu")
    h = layers.dropout(layers.batch_norm(h), 0.3, dropout_implementation="upscale_in_train")
    loss = _classify(h)
    rate = layers.piecewise_decay([1, 2], [0.1, 0.05, 0.01])
    fluid.optimizer.Momentum(rate, 0.9, grad_clip=GradientClipByGlobalNorm(0.1)).minimize(loss)
    return loss


def _adam() -> Any:
    loss = _classify(layers.fc(fluid.data("x", [None, 6]), 16, act="tanh"))
    rate = layers.exponential_decay(0.1, 2, 0.9)
    fluid.optimizer.Adam(rate, grad_clip=GradientClipByGlobalNorm(0.1)).minimize(loss)
    average = fluid.optimizer.ExponentialMovingAverage(0.9)
    average.update()
    fluid.optimizer.ModelAverage(0.5, 1, 3)
    return loss


def _large() -> Any:
    loss = _classify(layers.fc(fluid.data("x", [None, 400]), 400, act="relu"))
    fluid.optimizer.Adam(0.01, grad_clip=GradientClipByGlobalNorm(0.1)).minimize(loss)
    return loss


def _merged() -> Any:
    loss = _classify(layers.fc(fluid.data("x", [None, 6]), 16, act="tanh"))
    adam = fluid.optimizer.Adam(0.1, grad_clip=GradientClipByGlobalNorm(0.1))
    fluid.optimizer.GradientMergeOptimizer(adam, 2).minimize(loss)
    return loss


def _recurrent() -> Any:
    x = layers.reshape(fluid.data("x", [None, 6]), [3, -1, 2])
    rnn = layers.StaticRNN()
    with rnn.step():
        entry = rnn.step_input(x)
        state = rnn.memory(shape=[-1, 4], batch_ref=entry)
        new = layers.fc([entry, state], 4, act="tanh")
        rnn.update_memory(state, new)
        rnn.step_output(new)
    total = layers.create_global_var([1], 0.0, "float32", persistable=True, name="total")
    count, limit = layers.fill_constant([1], "int64", 0), layers.fill_constant([1], "int64", 5)
    going = layers.less_than(count, limit)
    loop = layers.While(going)
    with loop.block():
        layers.assign(total + layers.uniform_random([1]), total)
        layers.increment(count, 1)
        layers.less_than(count, limit, cond=going)
    loss = _classify(layers.reduce_sum(rnn(), dim=0)) + layers.mean(layers.square(rnn()))
    fluid.optimizer.SGD(0.1).minimize(loss)
    return loss


def _replaced() -> Any:
    x = fluid.data("x", [8, 400])
    kept = [layers.create_parameter([8, 400], "float32", name=f"kept{i}") for i in range(3)]
    clipped = GradientClipByGlobalNorm(1.0)([(each, layers.scale(x, 2.0 + i)) for i, each in enumerate(kept)])
    for (_, new), old in zip(clipped, kept, strict=True):
        layers.assign(new, old)
    return layers.mean(kept[0])


def _rows(optimizer: Callable[[], Any]) -> Callable[[], Any]:
    def build() -> Any:
        found = fluid.embedding(fluid.data("ids", [None, 2], "int64"), [11, 4], is_sparse=True)
        loss = _classify(layers.reduce_sum(found, dim=1))
        optimizer().minimize(loss)
        return loss

    return build


def _ids(number: int) -> dict[str, Any]:
    draw = np.random.default_rng(number)
    return {"ids": draw.integers(0, 11, (5, 2)), "y": draw.integers(0, 3, (5, 1))}


def _private() -> Any:
    loss = _classify(layers.fc(fluid.data("x", [None, 6]), 16, act="tanh"))
    fluid.optimizer.Dpsgd(0.1, clip=1.0, batch_size=8.0, sigma=0.5).minimize(loss)
    return loss


class _Compiled(Training):
    """With fluid's wrapper around the program."""

    def __init__(self, jit: bool) -> None:
        super().__init__(_momentum, _images(6), jit)
        self.main = fluid.CompiledProgram(self.main).with_data_parallel(self.loss.name)


class _Loaded(Training):
    """With batches from a loader that feeds the program."""

    def __init__(self, jit: bool) -> None:
        super().__init__(self._build, lambda number: {}, jit)
        self.loader.set_batch_generator(lambda: ([number, number] for number in map(np.float32, range(1, 9))))
        self.loader.start()

    def close(self) -> None:
        self.loader.reset()

    def _build(self) -> Any:
        x, y = fluid.data("x", []), fluid.data("y", [])
        self.loader = fluid.io.DataLoader.from_generator([x, y], capacity=2, iterable=False)
        total = layers.create_global_var([1], 0.0, "float32", persistable=True, name="total")
        layers.assign(total + x * y, total)
        return total


class _Averaged(Training):
    """Averages take the place of the parameters, and give it back."""

    def __init__(self, jit: bool) -> None:
        super().__init__(self._build, _images(6), jit)
        super().step(0)
        self.executor.run(self.main, self.feed(1), scope=self.scope)

    def _build(self) -> Any:
        loss = _momentum()
        self.averages = fluid.optimizer.ExponentialMovingAverage(0.9)
        self.averages.update()
        return loss

    def step(self, number: int) -> bytes:
        with fluid.scope_guard(self.scope), self.averages.apply(self.executor):
            return b"".join(self._everything().values())

    def state(self) -> dict[str, bytes]:
        return {name: value for name, value in self._everything().items() if "ema_tmp" not in name}

    def _everything(self) -> dict[str, bytes]:
        return super().state()


class _Set(Training):
    """All parameters are set from arrays, as loading does."""

    def __init__(self, jit: bool) -> None:
        super().__init__(_momentum, _images(6), jit)
        super().step(0)

    def step(self, number: int) -> bytes:
        from minigraph.io.variables import assign

        params = self.main.global_block().all_parameters()
        with fluid.scope_guard(self.scope):
            assign(params, {param.name: np.full(param.shape, number, "float32") for param in params})
        return b""


class _Imperative:
    """A step is that of the optimizer."""

    def __init__(self, jit: bool) -> None:
        with dygraph.guard(), fluid.unique_name.guard():
            self.layer = dygraph.Linear(6, 3)
            self.layer.weight.set_value(np.linspace(-1, 1, 18, dtype="float32").reshape(6, 3))
            clip = GradientClipByGlobalNorm(0.1)
            self.optimizer = fluid.optimizer.Adam(0.1, parameter_list=self.layer.parameters(), grad_clip=clip)

    def prepare(self, number: int) -> None:
        with dygraph.guard():
            x = dygraph.to_variable(_images(6)(number)["x"])
            self.loss = layers.mean(layers.square(self.layer(x)))
            self.loss.backward()

    def close(self) -> None:
        """There is nothing to end."""

    def step(self, number: int) -> bytes:
        with dygraph.guard():
            self.optimizer.minimize(self.loss)
        return b""

    def state(self) -> dict[str, bytes]:
        with dygraph.guard():
            state = {**self.layer.state_dict(), **self.optimizer.state_dict()}
            return {name: np.asarray(value).tobytes() for name, value in state.items()}


class _Normalized(_Imperative):
    """A step normalizes a batch and changes the statistics."""

    def __init__(self, jit: bool) -> None:
        with dygraph.guard(), fluid.unique_name.guard():
            self.layer = dygraph.BatchNorm(6)

    def prepare(self, number: int) -> None:
        """Nothing comes before."""

    def step(self, number: int) -> bytes:
        with dygraph.guard():
            return self.layer(dygraph.to_variable(_images(6)(number)["x"])).numpy().tobytes()

    def state(self) -> dict[str, bytes]:
        with dygraph.guard():
            return {name: np.asarray(value).tobytes() for name, value in self.layer.state_dict().items()}


TRAININGS: dict[str, Callable[[bool], Any]] = {
    "momentum": lambda jit: Training(_momentum, _images(6), jit),
    "adam": lambda jit: Training(_adam, _images(6), jit),
    "large": lambda jit: Training(_large, _images(400), jit),
    "merged gradients": lambda jit: Training(_merged, _images(6), jit),
    "recurrent": lambda jit: Training(_recurrent, _images(6), jit),
    "rows by sgd": lambda jit: Training(_rows(lambda: fluid.optimizer.SGD(0.1)), _ids, jit),
    "rows by adam": lambda jit: Training(_rows(lambda: fluid.optimizer.Adam(0.1, lazy_mode=True)), _ids, jit),
    "replaced": lambda jit: Training(_replaced, lambda number: {"x": _images(400)(number)["x"]}, jit),
    "private": lambda jit: Training(_private, _images(6), jit),
    "compiled": _Compiled,
    "loaded": _Loaded,
    "averaged": _Averaged,
    "set": _Set,
    "imperative": _Imperative,
    "normalized": _Normalized,
}
