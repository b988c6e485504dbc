"""Learning rates that change from step to step, in programs and in the imperative mode, against their formulas."""

import math

import numpy as np
import pytest

import minigraph as fluid
from minigraph import dygraph as decays
from minigraph.errors import NotFoundError, ProgramError, WrongTypeError
from minigraph.ir import Role

L = fluid.layers


def noam(step):
    return 0.5 * 16**-0.5 * min((step + 1) ** -0.5, (step + 1) * 6**-1.5)


def polynomial(step):
    return 0.09 * (1 - min(step, 7) / 7) ** 2 + 0.01


def cycling(step):
    whole = 7 * max(1, math.ceil(step / 7))
    return 0.09 * (1 - step / whole) ** 0.5 + 0.01


SCHEDULES = {
    "noam": (lambda: L.noam_decay(16, 6, 0.5), noam),
    "exponential": (lambda: L.exponential_decay(0.1, 5, 0.5), lambda n: 0.1 * 0.5 ** (n / 5)),
    "exponential stairs": (lambda: L.exponential_decay(0.1, 5, 0.5, True), lambda n: 0.1 * 0.5 ** (n // 5)),
    "natural": (lambda: L.natural_exp_decay(0.1, 5, 0.5), lambda n: 0.1 * math.exp(-0.5 * n / 5)),
    "natural stairs": (lambda: L.natural_exp_decay(0.1, 5, 0.5, True), lambda n: 0.1 * math.exp(-0.5 * (n // 5))),
    "inverse": (lambda: L.inverse_time_decay(0.1, 5, 0.5), lambda n: 0.1 / (1 + 0.5 * n / 5)),
    "inverse stairs": (lambda: L.inverse_time_decay(0.1, 5, 0.5, True), lambda n: 0.1 / (1 + 0.5 * (n // 5))),
    "polynomial": (lambda: L.polynomial_decay(0.1, 7, 0.01, 2.0), polynomial),
    "polynomial in cycles": (lambda: L.polynomial_decay(0.1, 7, 0.01, 0.5, cycle=True), cycling),
    "piecewise": (
        lambda: L.piecewise_decay([2, 5, 6], [0.4, 0.3, 0.2, 0.1]),
        lambda n: 0.4 if n < 2 else 0.3 if n < 5 else 0.2 if n < 6 else 0.1,
    ),
    "constant pieces": (lambda: L.piecewise_decay([], [0.4]), lambda n: 0.4),
    "cosine": (lambda: L.cosine_decay(0.1, 3, 5), lambda n: 0.05 * (math.cos((n // 3) * math.pi / 5) + 1)),
}
each_schedule = pytest.mark.parametrize("name", SCHEDULES)
STEPS = 16


def rates_of_a_program(make, steps=STEPS):
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        rate = make()
    executor, scope = fluid.Executor(), fluid.Scope()
    executor.run(startup, scope=scope)
    return [executor.run(main, fetch_list=[rate], scope=scope)[0].item() for _ in range(steps)]


@each_schedule
def test_a_program_follows_the_formula(name):
    make, formula = SCHEDULES[name]
    np.testing.assert_allclose(rates_of_a_program(make), [formula(n) for n in range(STEPS)], rtol=3e-6)


@each_schedule
def test_the_imperative_mode_follows_the_formula(name):
    make, formula = SCHEDULES[name]
    with fluid.dygraph.guard():
        decay = make()
    assert isinstance(decay, decays.LearningRateDecay)
    np.testing.assert_allclose([decay() for _ in range(STEPS)], [formula(n) for n in range(STEPS)], rtol=1e-14)


@each_schedule
def test_warmup_leads_to_any_schedule(name):
    make, formula = SCHEDULES[name]
    expected = [0.01 + 0.2 * n / 4 if n < 4 else formula(n - (name == "noam")) for n in range(1, STEPS)]
    found = rates_of_a_program(lambda: L.linear_lr_warmup(make(), 4, 0.01, 0.21))
    # Where noam counts from 1, the two share the counter that it made.
    found = found[: len(expected)] if name == "noam" else found[1:]
    np.testing.assert_allclose(found, expected, rtol=3e-6)


def test_warmup_leads_to_a_number():
    expected = [0.01 + 0.2 * n / 4 if n < 4 else 0.3 for n in range(8)]
    np.testing.assert_allclose(
        rates_of_a_program(lambda: L.linear_lr_warmup(0.3, 4, 0.01, 0.21), 8), expected, rtol=3e-6
    )


def test_warmup_of_the_imperative_mode_counts_from_1_and_lets_the_other_decay_go_on():
    warmup = decays.LinearLrWarmup(decays.PiecewiseDecay([4], [0.5, 0.25], begin=0), 3, 0.01, 0.31)
    np.testing.assert_allclose([warmup() for _ in range(6)], [0.11, 0.21, 0.5, 0.5, 0.25, 0.25])


def test_schedules_share_one_counter_that_counts_first_of_all():
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        L.fc(fluid.data("x", [None, 2]), 1)
        L.exponential_decay(0.1, 5, 0.5)
        L.inverse_time_decay(0.1, 5, 0.5)
    ops = list(main.global_block().ops)
    assert [op.type for op in ops].count("increment") == 1
    assert ops[0].output("Out") == ["@LR_DECAY_COUNTER@"]
    assert all(op.role == Role.LR_SCHED for op in [ops[0], *ops[3:]])


def test_updates_use_the_rate_that_the_program_computes():
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        w = L.create_parameter([2], "float32", name="w", default_initializer=fluid.initializer.Constant(1.0))
        fluid.optimizer.SGD(L.piecewise_decay([2], [0.5, 0.25])).minimize(L.reduce_sum(w))
    executor, scope, found = fluid.Executor(), fluid.Scope(), []
    executor.run(startup, scope=scope)
    for _ in range(4):
        executor.run(main, scope=scope)
        found.append(np.array(scope.find_var("w").get_tensor())[0])
    assert found == [0.5, 0.0, -0.25, -0.5]


def imperative_training(decay, steps, between=lambda step: None):
    """How far each step went, for a loss whose gradient is 1."""
    with fluid.dygraph.guard():
        w = fluid.create_parameter([1], "float32", default_initializer=fluid.initializer.Constant(0.0))
        updates, found = fluid.optimizer.SGD(decay, parameters=[w]), []
        for step in range(steps):
            before = w.numpy().item()
            L.reduce_sum(w).backward()
            updates.step()
            updates.clear_grad()
            found.append(before - w.numpy().item())
            assert updates.get_lr() == pytest.approx(found[-1], rel=1e-5)
            between(step)
    return found, updates


def test_an_imperative_optimizer_takes_the_next_rate_at_each_update():
    found, _ = imperative_training(decays.PiecewiseDecay([2, 3], [0.5, 0.25, 0.125], begin=0), 5)
    assert found == [0.5, 0.5, 0.25, 0.125, 0.125]


def test_a_decay_counts_where_no_gradient_was_found():
    with fluid.dygraph.guard():
        layer = fluid.dygraph.Linear(2, 2)
        decay = fluid.dygraph.MultiStepDecay(0.5, milestones=[1, 2])
        optimizer = fluid.optimizer.Adam(decay, parameter_list=layer.parameters())
        rates = []
        for _ in range(3):
            optimizer.minimize(fluid.layers.reduce_mean(layer(fluid.dygraph.to_variable(np.ones((1, 2), "float32")))))
            decay.epoch()
            rates.append(optimizer.current_step_lr())
    assert rates == pytest.approx([0.5, 0.05, 0.005])  # recorded from 1.8.5: an epoch later than the decay itself


def test_an_epoch_decay_waits_for_the_epoch():
    decay = decays.StepDecay(0.5, step_size=1, decay_rate=0.5)
    found, _ = imperative_training(decay, 4, lambda step: decay.epoch() if step % 2 else None)
    assert found == [0.5, 0.5, 0.25, 0.25]


def test_multi_step_and_lambda_decays():
    steps = decays.MultiStepDecay(1.0, [1, 3], 0.5)
    factors = decays.LambdaDecay(2.0, lambda epoch: 1 / (epoch + 1))
    found = []
    for _ in range(4):
        found.append((steps(), factors()))
        steps.epoch()
        factors.epoch()
    assert found == [(1.0, 2.0), (0.5, 1.0), (0.5, 2 / 3), (0.25, 0.5)]
    steps.epoch(0)
    assert steps() == 1.0


def test_a_plateau_reduces_the_rate_after_patience_and_rests_in_between():
    decay = decays.ReduceLROnPlateau(1.0, decay_rate=0.5, patience=1, cooldown=1, min_lr=0.2, threshold=0.0)
    found = [decay.step(loss) for loss in (3.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0)]
    #                                                bad  bad  rest bad  bad  rest bad  bad
    assert found == [1.0, 1.0, 1.0, 0.5, 0.5, 0.5, 0.25, 0.25, 0.25, 0.2]
    assert decay() == 0.2


@pytest.mark.parametrize("mode", ["min", "max"])
@pytest.mark.parametrize("threshold_mode", ["rel", "abs"])
def test_a_plateau_ends_only_where_the_loss_is_better_by_the_threshold(mode, threshold_mode):
    sign = 1 if mode == "min" else -1
    decay = decays.ReduceLROnPlateau(
        1.0, mode=mode, threshold=0.1, threshold_mode=threshold_mode, patience=0, decay_rate=0.5
    )
    limit = 10 - sign * (1.0 if threshold_mode == "rel" else 0.1)
    assert [decay.step(loss) for loss in (10.0, limit + sign * 1e-6)] == [1.0, 0.5]
    decay = decays.ReduceLROnPlateau(
        1.0, mode=mode, threshold=0.1, threshold_mode=threshold_mode, patience=0, decay_rate=0.5
    )
    assert [decay.step(loss) for loss in (10.0, limit - sign * 1e-6)] == [1.0, 1.0]


def test_a_training_goes_on_where_its_state_was_saved():
    def make():
        inner = decays.ExponentialDecay(0.5, 1, 0.5)
        return decays.LinearLrWarmup(inner, 3, 0.0, 0.5)

    one = make()
    for _ in range(3):
        one()
    other = make()
    other.set_dict(one.state_dict())
    assert [one() for _ in range(3)] == [other() for _ in range(3)]


def test_the_state_of_an_optimizer_holds_that_of_its_decay():
    _, updates = imperative_training(decays.ExponentialDecay(0.5, 1, 0.5), 2)
    state = updates.state_dict()
    assert state["LR_Scheduler"] == {"step_num": 2}
    assert state["global_step"].numpy().tolist() == [2] and state["global_step"].numpy().dtype == np.int32
    state["LR_Scheduler"] = {"step_num": 5}
    updates.set_state_dict(state)
    assert updates._decay.current() == 0.5**6
    with pytest.raises(NotFoundError, match="LR_Scheduler"):
        updates.set_state_dict({name: value for name, value in state.items() if name != "LR_Scheduler"})


@pytest.mark.parametrize(
    "rate",
    [0.1, decays.PiecewiseDecay([1], [0.2, 0.1], 0), decays.StepDecay(0.1, 2)],
    ids=["constant", "steps", "epochs"],
)
def test_the_state_that_paddle_saves_is_taken(rate):
    _, updates = imperative_training(rate, 2)
    state = updates.state_dict()
    assert ("global_step" in state) == isinstance(rate, decays.PiecewiseDecay), "as in Paddle 1.8.5"
    before = updates.current_step_lr()
    updates.set_dict({name: value for name, value in state.items() if name != "learning_rate_0"})
    assert updates.current_step_lr() == pytest.approx(before, rel=1e-6)


def test_a_state_of_another_decay_is_refused_or_warned_about():
    with pytest.raises(NotFoundError, match="epoch_num"):
        decays.StepDecay(0.1, 2).set_dict({"step_num": 3})
    with pytest.warns(UserWarning, match="does not use epoch_num"):
        decays.ExponentialDecay(0.1, 2, 0.5).set_dict({"step_num": 3, "epoch_num": 4})


def test_a_decay_is_not_set_by_hand_and_not_for_programs():
    _, updates = imperative_training(decays.ExponentialDecay(0.5, 1, 0.5), 1)
    with pytest.raises(ProgramError, match="follows a ExponentialDecay"):
        updates.set_lr(0.1)
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        loss = L.mean(L.fc(fluid.data("x", [None, 3]), 1))
        with pytest.raises(ProgramError, match="imperative mode"):
            fluid.optimizer.SGD(decays.ExponentialDecay(0.5, 1, 0.5)).minimize(loss)


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: decays.PiecewiseDecay([1, 2], [0.1, 0.2], 0), ProgramError),
        (lambda: L.piecewise_decay([1, 2], [0.1, 0.2]), ProgramError),
        (lambda: L.cosine_decay("0.1", 1, 2), WrongTypeError),
        (lambda: decays.LinearLrWarmup("0.1", 4, 0.0, 0.1), WrongTypeError),
        (lambda: decays.LinearLrWarmup(0.1, 4, 0.1, 0.1), ProgramError),
        (lambda: decays.StepDecay(0.1, 2.5), WrongTypeError),
        (lambda: decays.StepDecay(0.1, 2, 1.5), ProgramError),
        (lambda: decays.StepDecay(-0.1, 2), ProgramError),
        (lambda: decays.MultiStepDecay(0.1, 3), WrongTypeError),
        (lambda: decays.MultiStepDecay(0.1, [3, 2]), ProgramError),
        (lambda: decays.LambdaDecay(0.1, 0.5), WrongTypeError),
        (lambda: decays.ReduceLROnPlateau(0.1, mode="less"), ProgramError),
        (lambda: decays.ReduceLROnPlateau(0.1, decay_rate=1.0), ProgramError),
        (lambda: decays.ReduceLROnPlateau(0.1).step(np.zeros(2)), ProgramError),
        (lambda: decays.LearningRateDecay()(), TypeError),
    ],
)
def test_wrong_arguments_are_refused(make, error):
    with pytest.raises(error):
        make()


def step_by_gradient_of_ones(rate):
    """An optimizer after one update of a weight of 0 whose gradient is 1, and the weight."""
    weight = fluid.layers.create_parameter([1], "float32", default_initializer=fluid.initializer.Constant(0.0))
    optimizer = fluid.optimizer.SGD(rate, parameter_list=[weight])
    loss = fluid.layers.reduce_sum(weight)
    loss.backward()
    optimizer.minimize(loss)
    return optimizer, weight.numpy()


def test_a_tensor_of_the_imperative_mode_may_be_the_learning_rate():
    with fluid.dygraph.guard():
        rate = fluid.dygraph.to_variable(np.array([0.25], "float32"))
        optimizer, weight = step_by_gradient_of_ones(rate)
        assert optimizer.current_step_lr() == 0.25
        assert weight == [-0.25]


def test_the_global_learning_rate_of_the_imperative_mode_is_a_tensor():
    """As fluid 1.8.5 gives it, also where the steps of a decay are tensors."""

    class Doubled(fluid.dygraph.LearningRateDecay):
        def step(self):
            return self.create_lr_var(0.25) * 2.0

    with fluid.dygraph.guard():
        optimizer, weight = step_by_gradient_of_ones(Doubled())
        assert optimizer._global_learning_rate().numpy().tolist() == [0.5]
        assert weight == [-0.5]


DECAYS = {
    "natural": (lambda d: d.NaturalExpDecay(0.1, 2, 0.5), [0.1, 0.077880003, 0.060653001]),
    "exponential": (lambda d: d.ExponentialDecay(0.1, 2, 0.5), [0.1, 0.070711, 0.05]),
    "inverse": (lambda d: d.InverseTimeDecay(0.1, 2, 0.5), [0.1, 0.08, 0.066666997]),
    "polynomial": (lambda d: d.PolynomialDecay(0.1, 5), [0.1, 0.080020003, 0.060040001]),
    "cosine": (lambda d: d.CosineDecay(0.1, 2, 5), [0.1, 0.1, 0.090451002]),
    "noam": (lambda d: d.NoamDecay(8, 4), [0.044194002, 0.088388003, 0.132583007]),
    "pieces": (lambda d: d.PiecewiseDecay([1, 2], [0.3, 0.2, 0.1], 0), [0.3, 0.2, 0.1]),
    "steps": (lambda d: d.StepDecay(0.1, 2), [0.1, 0.1, 0.1]),
    "milestones": (lambda d: d.MultiStepDecay(0.1, [1, 3]), [0.1, 0.1, 0.1]),
    "lambda": (lambda d: d.LambdaDecay(0.1, lambda epoch: 0.9**epoch), [0.1, 0.1, 0.1]),
    "plateau": (lambda d: d.ReduceLROnPlateau(0.1), [0.1, 0.1, 0.1]),
    "warmup": (
        lambda d: d.LinearLrWarmup(d.NaturalExpDecay(0.1, 2, 0.5), 3, 0.0, 0.1),
        [0.03333334, 0.06666667, 0.06065307],
    ),
}
"""Decays, and their first rates on Paddle 1.8.5."""


@pytest.mark.parametrize("name", DECAYS)
def test_the_rate_of_a_decay_that_is_called_reads_like_a_tensor(name):
    make, recorded = DECAYS[name]
    with fluid.dygraph.guard():
        decay = make(fluid.dygraph)
        rates = [decay() for _ in recorded]
    assert all(rate.numpy().shape == (1,) and rate.numpy().dtype == "float32" for rate in rates)
    np.testing.assert_allclose([rate.numpy()[0] for rate in rates], recorded, rtol=1e-5)
    assert rates == [float(rate) for rate in rates]


def test_a_decay_of_a_user_gives_such_rates_too():
    class Halving(fluid.dygraph.LearningRateDecay):
        def step(self):
            return 0.5**self.step_num

    decay = Halving()
    assert [decay().numpy().tolist() for _ in range(3)] == [[1.0], [0.5], [0.25]]
