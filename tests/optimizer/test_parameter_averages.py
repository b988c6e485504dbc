"""Averages of parameters, and slow parameters, against their definitions."""

import numpy as np
import pytest

import minigraph as fluid
from minigraph.errors import ProgramError, WrongTypeError

L = fluid.layers
START = np.array([0.5, -2.0, 3.0])


class Training:
    """Steps of SGD down ``sum(w * g)`` with a gradient g that is fed; `make` appends more to the program."""

    def __init__(self, make, optimizer=None, dtype="float64", **param_fields):
        self.main, self.startup = fluid.Program(), fluid.Program()
        with fluid.program_guard(self.main, self.startup), fluid.unique_name.guard():
            start = fluid.initializer.NumpyArrayInitializer(START.astype(dtype))
            w = L.create_parameter([3], dtype, attr=fluid.ParamAttr("w", start, **param_fields))
            loss = L.reduce_sum(L.elementwise_mul(w, fluid.data("g", [3], dtype)))
            (optimizer or fluid.optimizer.SGD(1.0)).minimize(loss)
            self.made = make()
        self.dtype, self.executor, self.scope = dtype, fluid.Executor(), fluid.Scope()
        self.rng = np.random.default_rng(0)
        self.executor.run(self.startup, scope=self.scope)

    def steps(self, count):
        """The parameter after each step."""
        history = []
        for _ in range(count):
            grad = self.rng.standard_normal(3).astype(self.dtype)
            self.executor.run(self.main, feed={"g": grad}, scope=self.scope)
            history.append(self.value("w"))
        return history

    def value(self, name):
        return np.array(self.scope.find_var(name).get_tensor())

    def applied(self):
        """The parameter as `apply` makes it, once it is restored."""
        before = self.value("w")
        with fluid.scope_guard(self.scope):
            with self.made.apply(self.executor):
                found = self.value("w")
            np.testing.assert_array_equal(self.value("w"), before)
        return found


def ema(**arguments):
    def make():
        average = fluid.optimizer.ExponentialMovingAverage(**arguments)
        average.update()
        return average

    return make


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_an_exponential_average_is_the_weighted_mean_of_the_steps(dtype):
    training = Training(ema(decay=0.75), dtype=dtype)
    history = training.steps(6)
    weights = 0.25 * 0.75 ** np.arange(5, -1, -1)
    expected = (weights[:, None] * history).sum(axis=0) / weights.sum()
    np.testing.assert_allclose(training.applied(), expected, rtol=1e-5)


def test_two_averages_of_a_program_count_its_steps_once():
    def make():
        first = ema(decay=0.5)()
        ema(decay=0.5)()
        return first

    training = Training(make)
    history = training.steps(3)
    assert training.value("@EMA_STEP_COUNTER@").item() == 3
    weights = 0.5 ** np.arange(2, -1, -1)
    np.testing.assert_allclose(training.applied(), weights @ history / weights.sum(), rtol=1e-6)


def test_applying_an_average_does_not_change_it():
    training = Training(ema(decay=0.75))
    training.steps(3)
    assert training.applied().tobytes() == training.applied().tobytes()


def test_an_average_of_no_step_is_zero():
    np.testing.assert_array_equal(Training(ema(decay=0.75)).applied(), np.zeros(3))


def test_a_scheduled_decay_starts_small():
    def make():
        steps = L.autoincreased_step_counter("steps", begin=0)
        return ema(decay=0.5, thres_steps=steps)()

    training = Training(make)
    history = training.steps(12)
    average = np.zeros(3)
    for step, w in enumerate(history):
        decay = min(0.5, (step + 1) / (step + 10))
        average = decay * average + (1 - decay) * w
    np.testing.assert_allclose(training.value("w_ema_0"), average, rtol=1e-6)
    np.testing.assert_allclose(training.applied(), average / (1 - 0.5**12), rtol=1e-6)


def test_what_was_applied_can_be_kept_and_restored_later():
    training = Training(ema(decay=0.5))
    (w,) = training.steps(1)
    with fluid.scope_guard(training.scope):
        with training.made.apply(training.executor, need_restore=False):
            pass
        np.testing.assert_allclose(training.value("w"), w, rtol=1e-12)
        training.scope.find_var("w").get_tensor().set(np.zeros(3), fluid.CPUPlace())
        training.made.restore(training.executor)
    np.testing.assert_array_equal(training.value("w"), w)


def test_parameters_can_stay_out_of_averages():
    training = Training(ema(decay=0.5), do_model_average=False)
    (w,) = training.steps(1)
    np.testing.assert_array_equal(training.applied(), w)
    assert not [name for name in training.scope.local_var_names() if "w_ema" in name]


def window_average(history, rate, smallest, largest):
    """The definition: the window that is full, and the one after it."""
    old, new = [], []
    for updates, w in enumerate(history, start=1):
        new.append(w)
        if len(new) >= smallest and len(new) >= min(largest, int(updates * rate)):
            old, new = new, []
    return np.mean([*old, *new], axis=0)


@pytest.mark.parametrize(("rate", "smallest", "largest"), [(0.5, 2, 4), (1.0, 1, 3), (0.15, 2, 10000), (0.9, 5, 100)])
def test_a_model_average_is_the_mean_over_its_windows(rate, smallest, largest):
    training = Training(lambda: fluid.optimizer.ModelAverage(rate, smallest, largest))
    history = []
    for _ in range(9):
        history += training.steps(3)
        expected = window_average(history, np.float32(rate), smallest, largest)
        np.testing.assert_allclose(training.applied(), expected, rtol=1e-12)


@pytest.mark.parametrize(("alpha", "k"), [(0.5, 3), (0.0, 2), (1.0, 2), (0.25, 1)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_lookahead_pulls_the_parameters_back_every_k_steps(alpha, k, dtype):
    lookahead = fluid.optimizer.LookaheadOptimizer(fluid.optimizer.SGD(1.0), alpha, k)
    training = Training(lambda: None, lookahead, dtype)
    rng = np.random.default_rng(0)
    slow = w = START.astype(dtype)
    for step in range(1, 8):
        (found,) = training.steps(1)
        w = w - rng.standard_normal(3).astype(dtype)
        if step % k == 0:
            slow = w = alpha * w + (1 - alpha) * slow
        np.testing.assert_allclose(found, w, rtol=1e-5)
        np.testing.assert_allclose(training.value("w@SLOW"), slow, rtol=1e-5)


def test_lookahead_keeps_the_bits_between_its_steps_even_of_what_is_not_finite():
    lookahead = fluid.optimizer.LookaheadOptimizer(fluid.optimizer.SGD(1.0), 0.5, 3)
    training = Training(lambda: None, lookahead)
    grad = np.array([np.inf, 1.0, 1.0])
    training.executor.run(training.main, feed={"g": grad}, scope=training.scope)
    np.testing.assert_array_equal(training.value("w"), START - grad)
    np.testing.assert_array_equal(training.value("w@SLOW"), START)


def test_a_program_for_tests_has_none_of_it():
    for optimizer, make in (
        (None, ema(decay=0.5)),
        (None, lambda: fluid.optimizer.ModelAverage(0.5, 2, 4)),
        (fluid.optimizer.LookaheadOptimizer(fluid.optimizer.SGD(1.0)), lambda: None),
    ):
        ops = Training(make, optimizer).main.clone(for_test=True).global_block().ops
        assert [op.type for op in ops] == ["elementwise_mul", "reduce_sum"]


@pytest.mark.parametrize(
    "make",
    [
        fluid.optimizer.ExponentialMovingAverage,
        lambda: fluid.optimizer.ModelAverage(0.5),
        lambda: fluid.optimizer.LookaheadOptimizer(fluid.optimizer.SGD(0.1)),
    ],
)
def test_the_imperative_mode_has_no_use_for_them(make):
    with fluid.dygraph.guard(), pytest.raises(ProgramError, match="imperative mode"):
        make()


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("sgd",), WrongTypeError), ((None, 0.5, 2.0), WrongTypeError),
        *(((None, *rest), ProgramError) for rest in ((1.5,), (0.5, 0))),
    ],
)  # fmt: skip
def test_wrong_arguments_of_lookahead_are_refused(arguments, error):
    inner, *rest = arguments
    with pytest.raises(error):
        fluid.optimizer.LookaheadOptimizer(inner or fluid.optimizer.SGD(0.1), *rest)


def test_windows_that_contradict_each_other_are_refused():
    with pytest.raises(fluid.MinigraphError, match="min_average_window=5 is more than max_average_window=4"):
        Training(lambda: fluid.optimizer.ModelAverage(0.5, 5, 4))
