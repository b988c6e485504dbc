"""What strategies do about gradients that are NaN or infinite: each policy, in programs and in the imperative mode."""

import numpy as np
import pytest
from one_clip import AtOnce, InProgram, clip_everywhere, same_bits

import minigraph as fluid
from minigraph.clip import (
    AutoClip,
    ClipPipeline,
    GradientClipByGlobalNorm,
    GradientClipByNorm,
    GradientClipByValue,
    skipped_steps,
)
from minigraph.eager.block import EagerProgram
from minigraph.errors import ClipError, NonfiniteError
from minigraph.optimizer import SGD, Adam, Momentum

OPTIMIZERS = {
    "sgd": lambda **given: SGD(0.1, **given),
    "momentum": lambda **given: Momentum(0.1, 0.9, **given),
    "nesterov": lambda **given: Momentum(0.1, 0.9, use_nesterov=True, **given),
    "adam": lambda **given: Adam(0.1, **given),
}
KINDS = [GradientClipByValue, GradientClipByNorm, GradientClipByGlobalNorm]

each_optimizer = pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
each_kind = pytest.mark.parametrize("kind", KINDS)


def random(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


def good(step):
    return [random(3, 2, seed=2 * step), random(4, seed=2 * step + 1)]


def bad(step, value=np.nan):
    grads = good(step)
    grads[step % 2].reshape(-1)[1] = value
    return grads


class Training:
    """Parameters p0, p1, ... that optimizers update by gradients that are fed.

    Parameters
    ----------
    *optimizers : (Optimizer, sequence of int)
        Each with the numbers of its parameters.
    """

    def __init__(self, *optimizers, executor=None):
        self.main, self.startup = fluid.Program(), fluid.Program()
        self.executor, self.scope = executor or fluid.Executor(), fluid.Scope()
        with fluid.program_guard(self.main, self.startup), fluid.unique_name.guard():
            block = self.main.global_block()
            pairs = [
                (
                    block.create_parameter(f"p{i}", grad.shape, grad.dtype),
                    block.create_var(name=f"g{i}", shape=grad.shape, dtype=grad.dtype, is_data=True),
                )
                for i, grad in enumerate(good(0))
            ]
            for optimizer, numbers in optimizers:
                optimizer.apply_gradients([pairs[i] for i in numbers])
        self.executor.run(self.startup, scope=self.scope)
        for (param, _), value in zip(pairs, good(99), strict=True):
            self.scope.var(param.name).get_tensor().set(value, fluid.CPUPlace())

    def step(self, grads, fetch=()):
        feed = {f"g{i}": grad for i, grad in enumerate(grads)}
        return self.executor.run(self.main, feed=feed, fetch_list=list(fetch), scope=self.scope)

    def state(self):
        """All that is persistable, by name."""
        return {
            name: np.array(self.scope.find_var(name).get_tensor())
            for name, var in self.main.global_block().vars.items()
            if var.persistable
        }

    def skipped(self):
        """How many steps were skipped, by parameters."""
        return {
            params: int(np.array(self.scope.find_var(counter.name).get_tensor()).item())
            for params, counter in skipped_steps(self.main).items()
        }


class EagerTraining:
    """The same in the imperative mode, with one optimizer."""

    def __init__(self, make, **given):
        self.program = EagerProgram()
        with fluid.program_guard(self.program, self.program), fluid.unique_name.guard():
            self.params = [
                fluid.layers.create_parameter(list(grad.shape), "float32", name=f"p{i}")
                for i, grad in enumerate(good(0))
            ]
            for param, value in zip(self.params, good(99), strict=True):
                param.set_value(value)
        self.optimizer = make(parameter_list=self.params, **given)

    def step(self, grads):
        with fluid.program_guard(self.program, self.program), fluid.unique_name.guard():
            pairs = [(p, fluid.dygraph.to_variable(grad)) for p, grad in zip(self.params, grads, strict=True)]
            self.optimizer.apply_gradients(pairs)

    def state(self):
        with fluid.program_guard(self.program, self.program):
            kept = {name: tensor.numpy() for name, tensor in self.optimizer.state_dict().items()}
        return {**kept, **{param.name: param.numpy() for param in self.params}}


def both(make, strategy):
    """Training by the plan, by the interpreter, and in the imperative mode."""
    return [
        Training((make(grad_clip=strategy), [0, 1])),
        Training((make(grad_clip=strategy), [0, 1]), executor=fluid.Interpreter()),
        EagerTraining(make, grad_clip=strategy),
    ]


def equal(found, expected, but=""):
    """Whether states agree bit for bit, except what `but` is a part of the name of."""
    names = [name for name in expected if not but or but not in name]
    return set(found) == set(expected) and same_bits([found[n] for n in names], [expected[n] for n in names])


# Skip


@pytest.mark.slow
@each_kind
@each_optimizer
def test_a_skipped_step_leaves_everything_and_the_next_goes_on_as_if_it_had_not_been(make, kind):
    for training, undisturbed in zip(
        both(make, kind(0.5, nonfinite="skip")), both(make, kind(0.5, nonfinite="skip")), strict=True
    ):
        for step in range(2):
            training.step(good(step))
            undisturbed.step(good(step))
        before = training.state()
        for value in (np.nan, np.inf, -np.inf):
            for step in (2, 3):
                training.step(bad(step, value))
                assert equal(training.state(), before, but="skipped_steps")
        for step in range(2, 4):
            training.step(good(step))
            undisturbed.step(good(step))
        assert not equal(training.state(), before, but="skipped_steps")
        assert equal(training.state(), undisturbed.state(), but="skipped_steps")
        counts = [int(value.item()) for name, value in training.state().items() if "skipped_steps" in name]
        assert counts == [6]


@pytest.mark.slow
@each_optimizer
def test_a_policy_that_finds_nothing_changes_nothing(make):
    plain = both(make, GradientClipByGlobalNorm(0.5))
    for policy in ("raise", "zero", "skip"):
        for training, expected in zip(both(make, GradientClipByGlobalNorm(0.5, nonfinite=policy)), plain, strict=True):
            if policy == "raise":
                expected.step(good(0))
            training.step(good(0))
            found, right = training.state(), expected.state()
            assert same_bits([found[name] for name in right], list(right.values()))


def test_the_counter_counts_and_can_be_fetched():
    training = Training((SGD(0.1, grad_clip=GradientClipByGlobalNorm(0.5, nonfinite="skip")), [0, 1]))
    (counter,) = skipped_steps(training.main).values()
    assert list(skipped_steps(training.main)) == [("p0", "p1")]
    fetched = [training.step(grads, [counter])[0] for grads in (good(0), bad(1), good(2), bad(3), bad(4))]
    assert [(value.dtype, value.tolist()) for value in fetched] == [("int64", [n]) for n in (0, 1, 1, 2, 3)]
    assert training.skipped() == {("p0", "p1"): 3}


def test_two_optimizers_in_one_program_skip_independently():
    training = Training(
        (Adam(0.1, grad_clip=GradientClipByGlobalNorm(0.5, nonfinite="skip")), [0]),
        (Momentum(0.1, 0.9, grad_clip=GradientClipByGlobalNorm(0.5, nonfinite="skip")), [1]),
    )
    training.step(good(0))
    for step in (1, 2, 3):  # an odd step spoils the second gradient
        before = training.state()
        training.step(bad(step))
        after = training.state()
        for i in range(2):
            changed = [not same_bits([after[n]], [before[n]]) for n in before if n == f"p{i}" or n.startswith(f"p{i}_")]
            assert not any(changed) if i == step % 2 else all(changed)
    assert training.skipped() == {("p0",): 1, ("p1",): 2}


def test_clips_apart_that_one_optimizer_uses_skip_together():
    strategy = ClipPipeline(
        [
            GradientClipByNorm(0.5, nonfinite="skip", need_clip=lambda param: param.name == "p0"),
            GradientClipByNorm(0.5, need_clip=lambda param: param.name == "p1"),
        ]
    )
    training = Training((SGD(0.1, grad_clip=strategy), [0, 1]))
    before = training.state()
    training.step(bad(2))  # the first gradient
    assert equal(training.state(), before, but="skipped_steps")
    training.step(bad(3))  # the second, which nobody guards
    assert np.isfinite(training.state()["p0"]).all() and np.isnan(training.state()["p1"]).any()


@pytest.mark.slow
def test_a_skipped_step_is_no_part_of_a_history():
    strategy = AutoClip(percentile=50.0, history=3, nonfinite="skip")
    for training, undisturbed in zip(both(SGD, strategy), both(SGD, strategy), strict=True):
        for step in range(4):
            training.step(good(step))
            training.step(bad(step, np.inf))
            undisturbed.step(good(step))
        assert equal(training.state(), undisturbed.state(), but="skipped_steps")


def test_a_skipped_update_shows_the_gradient_as_it_is():
    strategy = GradientClipByNorm(0.5, nonfinite="skip")
    assert np.isnan(InProgram(strategy, good(0))(bad(1))[1]).all()


def test_called_with_tensors_skip_says_where_it_belongs():
    with pytest.raises(ClipError, match=r"(?s)skip.*grad_clip="):
        AtOnce(GradientClipByNorm(0.5, nonfinite="skip"), good(0))(good(0))


# Zero


@pytest.mark.slow
@each_kind
def test_zero_takes_the_place_of_what_is_not_finite_before_norms_are_taken(kind):
    for value in (np.nan, np.inf, -np.inf):
        for step in (0, 1):
            grads = bad(step, value)
            cleaned = [np.where(np.isfinite(grad), grad, np.float32(0)) for grad in grads]
            found = clip_everywhere(kind(0.5, nonfinite="zero"), grads)
            assert same_bits(found, clip_everywhere(kind(0.5), cleaned))
            assert found[step].reshape(-1)[1] == 0


@pytest.mark.slow
@each_optimizer
def test_training_with_zeros_is_training_with_cleaned_gradients(make):
    for training, expected in zip(
        both(make, GradientClipByGlobalNorm(0.5, nonfinite="zero")),
        both(make, GradientClipByGlobalNorm(0.5)),
        strict=True,
    ):
        for step in range(3):
            grads = bad(step)
            training.step(grads)
            expected.step([np.where(np.isfinite(grad), grad, np.float32(0)) for grad in grads])
        assert equal(training.state(), expected.state())


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_zeros_have_the_type_of_the_gradient(dtype):
    grads = [np.array([np.inf, 3.0, -np.nan, -4.0], dtype), np.full((2, 0), 1, dtype)]
    found = clip_everywhere(GradientClipByNorm(2.5, nonfinite="zero"), grads)
    assert same_bits(found, [np.array([0, 1.5, 0, -2.0], dtype), grads[1]])


# Propagate


@each_kind
def test_by_default_what_is_not_finite_stays_visible(kind):
    found = clip_everywhere(kind(0.5), bad(1))
    assert np.isnan(found[1]).any()
    assert np.isnan(found[0]).any() == (kind is GradientClipByGlobalNorm)


# Raise


@each_optimizer
def test_raise_names_the_parameter_and_changes_nothing(make):
    strategy = GradientClipByGlobalNorm(0.5, nonfinite="raise")
    for training in both(make, strategy):
        training.step(good(0))
        before = training.state()
        for step in (1, 2):
            with pytest.raises(NonfiniteError, match=f"gradient of p{step % 2} is not finite: 1 NaN of") as caught:
                training.step(bad(step))
            assert caught.value.param == f"p{step % 2}"
            assert equal(training.state(), before)
        training.step(good(3))
        assert not equal(training.state(), before)


def test_raise_counts_what_it_found():
    grad = np.array([np.nan, np.inf, 1.0, -np.inf], "float32")
    with pytest.raises(NonfiniteError, match="1 NaN and 2 infinite of 4 elements"):
        InProgram(GradientClipByNorm(0.5, nonfinite="raise"), [grad])([grad])
    with pytest.raises(NonfiniteError, match="1 NaN and 2 infinite of 4 elements"):
        AtOnce(GradientClipByNorm(0.5, nonfinite="raise"), [grad])([grad])


def test_an_update_before_the_one_that_raises_is_undone():
    training = Training((SGD(0.1), [0]), (SGD(0.1, grad_clip=GradientClipByNorm(0.5, nonfinite="raise")), [1]))
    before = training.state()
    with pytest.raises(NonfiniteError):
        training.step(bad(1))
    assert equal(training.state(), before)


def test_the_counter_of_another_strategy_does_not_go_up_when_a_run_raises():
    strategy = ClipPipeline(
        [
            GradientClipByNorm(0.5, nonfinite="skip", need_clip=lambda param: param.name == "p0"),
            GradientClipByNorm(0.5, nonfinite="raise", need_clip=lambda param: param.name == "p1"),
        ]
    )
    training = Training((SGD(0.1, grad_clip=strategy), [0, 1]))
    spoilt = [*bad(0)[:1], *bad(1)[1:]]
    with pytest.raises(NonfiniteError, match="p1"):
        training.step(spoilt)
    assert training.skipped() == {("p0",): 0}


# Where it comes from

L = fluid.layers


def raised_by(function, x, weight=1.0):
    """The error of a step of training on ``mean(function(x * w))``, and the executor and what it ran."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        w = L.create_parameter([3], "float32", name="w")
        loss = L.mean(function(L.elementwise_mul(fluid.data("x", [None, 3]), w)))
        SGD(0.1, grad_clip=GradientClipByNorm(1.0, nonfinite="raise")).minimize(loss)
    executor, scope = fluid.Executor(), fluid.Scope()
    executor.run(startup, scope=scope)
    scope.find_var("w").get_tensor().set(np.full(3, weight, "float32"), fluid.CPUPlace())
    with pytest.raises(NonfiniteError, match="gradient of w is not finite") as caught:
        executor.run(main, feed={"x": np.full((50, 3), x, "float32")}, scope=scope)
    return caught.value


def overflowing(x):
    return L.exp(x)


def divided_by_zero(x):
    shifted = L.scale(x, bias=-1.0)
    return L.elementwise_div(x, shifted)


def infinite_slope(x):
    root = L.sqrt(x)
    return L.scale(root, scale=2.0)


def noisy(x):
    kept = L.dropout(x, 0.5)
    return L.exp(L.scale(kept, scale=100.0))


@pytest.mark.parametrize(
    ("function", "x", "made_by", "line"),
    [
        (overflowing, 100.0, "exp", "return L.exp(x)"),
        (divided_by_zero, 1.0, "elementwise_div", "return L.elementwise_div(x, shifted)"),
        (infinite_slope, 0.0, "sqrt_grad", "root = L.sqrt(x)"),
        (noisy, 1.0, "exp", "return L.exp(L.scale(kept, scale=100.0))"),
    ],
)
def test_the_error_names_the_first_operator_that_made_such_a_value_and_its_line(function, x, made_by, line):
    text = str(raised_by(function, x))
    assert f"made by {made_by}, created at" in text
    first = next(row for row in text.splitlines() if "first such value" in row)
    assert "test_nonfinite.py" in first and first.endswith(f"in: {line}")


def test_the_error_says_that_the_input_or_the_parameter_was_not_finite():
    assert "x was not finite before anything was computed; elementwise_mul" in str(raised_by(L.square, np.nan))
    assert "w was not finite before anything was computed; elementwise_mul" in str(raised_by(L.square, 1.0, np.inf))
