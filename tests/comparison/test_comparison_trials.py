"""Trainings with several seeds and learning rates: runs, how they are judged, and the finding."""

import math

import numpy as np
import pytest
from interrupting import interrupt_after
from report_samples import gradient_report, training_report

import minigraph as fluid
from minigraph.clip import GradientClipByGlobalNorm, GradientClipByNorm
from minigraph.comparison import Interrupted, compare_gradients, compare_training
from minigraph.comparison.findings import training_remarks
from minigraph.comparison.programs import seeded
from minigraph.errors import ProgramError, WrongTypeError
from minigraph.optimizer import SGDOptimizer

CLIPS = {"unclipped": None, "norm": GradientClipByNorm(0.1), "idle": GradientClipByGlobalNorm(1e6)}
ROWS = np.random.default_rng(5).normal(size=(24, 3)).astype("float32")


def network(seed=0):
    main, startup = fluid.Program(), fluid.Program()
    startup.random_seed = seed
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x = fluid.data("x", [None, 3])
        hidden = fluid.layers.dropout(fluid.layers.fc(x, 4, act="tanh"), 0.3)
        own = fluid.ParamAttr(initializer=fluid.initializer.Uniform(seed=77))
        loss = fluid.layers.mean(fluid.layers.square(fluid.layers.fc(hidden, 2, param_attr=own)))
    return main, startup, loss


def shuffled(rng):
    order = rng.permutation(len(ROWS))
    return [{"x": ROWS[order[start : start + 6]]} for start in range(0, len(ROWS), 6)]


def train(clips=CLIPS, seeds=(1, 2), rates=(0.1, 0.5), seed=0, feeds=shuffled, **options):
    main, startup, loss = network(seed)
    given = {"startup": startup, "epochs": 2, "optimizer": SGDOptimizer, "seeds": seeds, "rates": rates, **options}
    return compare_training(main, loss, clips, feeds, **given)


@pytest.fixture(scope="module")
def report():
    return train()


# The runs


@pytest.mark.slow
def test_there_is_a_run_for_each_seed_rate_and_strategy(report):
    keys = [(run.seed, run.rate, run.name) for run in report.runs]
    assert keys == [(seed, rate, name) for seed in (1, 2) for rate in (0.1, 0.5) for name in CLIPS]
    assert (report.seeds, report.rates) == ((1, 2), (0.1, 0.5))
    assert len({tuple(run.loss) for run in report.runs if run.name != "idle"}) == 8


@pytest.mark.slow
def test_each_run_is_the_one_that_is_made_alone(report):
    for run in report.runs:
        [alone] = train({run.name: CLIPS[run.name]}, [run.seed], [run.rate]).runs
        assert alone.loss.tolist() == run.loss.tolist()
        assert alone.total.norm_after.tolist() == run.total.norm_after.tolist()
        for name, value in alone.values.items():
            np.testing.assert_array_equal(value, run.values[name])


@pytest.mark.slow
def test_a_clip_that_never_clips_trains_as_without_one(report):
    for rate in report.rates:
        for one, other in zip(report.at("unclipped", rate), report.at("idle", rate), strict=True):
            assert one.loss.tolist() == other.loss.tolist()


@pytest.mark.slow
def test_a_seed_is_the_random_seed_that_the_startup_program_was_built_with(report):
    for base in (0, 9):
        startup = network(base)[1]
        for seed in (1, 2):
            built = network(seed)[1]
            assert str(seeded(startup, seed)) == str(built)
    other = train(seed=9)
    assert [run.loss.tolist() for run in other.runs] == [run.loss.tolist() for run in report.runs]
    assert "seed=77" in str(seeded(network()[1], 5))  # an initializer's own


@pytest.mark.slow
def test_runs_of_a_seed_see_the_same_batches_and_others_see_others():
    orders = []

    def noted(rng):
        feeds = shuffled(rng)
        orders.append(np.concatenate([feed["x"] for feed in feeds]).tobytes())
        return feeds

    train(feeds=noted)
    assert len(orders) == len(set(orders)) == 4  # two seeds, two epochs
    first = list(orders)
    train(feeds=noted, rates=(0.3,), clips={"raw": None})
    assert orders[4:] == first


def test_without_seeds_and_rates_there_is_one_run_per_strategy():
    report = train(seeds=None, rates=None, seed=3, optimizer=lambda: SGDOptimizer(0.1), feeds=[{"x": ROWS}])
    assert [(run.name, run.seed, run.rate) for run in report.runs] == [(name, None, None) for name in CLIPS]
    assert all(report[name] is run for name, run in zip(CLIPS, report.runs, strict=True))
    assert (report.seeds, report.rates) == ((None,), (None,))


@pytest.mark.slow
def test_the_optimizer_is_made_with_the_rate(report):
    by_name = train(optimizer=lambda learning_rate: SGDOptimizer(learning_rate))
    assert [run.loss.tolist() for run in by_name.runs] == [run.loss.tolist() for run in report.runs]
    programs = {run.rate: str(run.program) for run in report.runs if run.name == "norm"}
    assert len(programs) == 2


@pytest.mark.parametrize(
    ("error", "match", "options"),
    [
        (WrongTypeError, "optimizer must take the learning rate", {"optimizer": lambda: SGDOptimizer(0.1)}),
        (WrongTypeError, "seeds must be", {"seeds": []}),
        (WrongTypeError, "seeds must be", {"seeds": [1, 1]}),
        (WrongTypeError, "seeds must be", {"seeds": [0]}),
        (WrongTypeError, "seeds must be", {"seeds": [1.5]}),
        (WrongTypeError, "seeds must be", {"seeds": 3}),
        (WrongTypeError, "rates must be", {"rates": [0.1, math.inf]}),
        (WrongTypeError, "rates must be", {"rates": [-0.1]}),
        (WrongTypeError, "rates must be", {"rates": "0.1"}),
        (ProgramError, "seeds need the startup program", {"startup": None, "scope": fluid.Scope()}),
    ],
)
def test_seeds_and_rates_that_make_no_sense_are_errors(error, match, options):
    with pytest.raises(error, match=match):
        train(**options)


# Judging


def test_estimates_are_mean_and_standard_deviation_over_the_seeds(report):
    last_epoch = slice(4, 8)
    for rate in report.rates:
        for name in CLIPS:
            ends = [run.loss[last_epoch].mean() for run in report.runs if (run.name, run.rate) == (name, rate)]
            found = report.estimate(name, rate)
            assert (found.seeds, found.diverged) == (2, 0)
            assert (found.mean, found.spread) == pytest.approx((np.mean(ends), abs(ends[0] - ends[1]) / math.sqrt(2)))
    assert report.judged_by == "mean loss of the last epoch"
    for name in CLIPS:
        means = {rate: report.estimate(name, rate).mean for rate in report.rates}
        assert report.best_rate(name) == min(means, key=means.get)
        assert report[name] is next(r for r in report.runs if (r.name, r.rate) == (name, report.best_rate(name)))


def one_epoch(*losses):
    return np.array(losses)[:, None]


def test_a_rate_at_which_a_run_diverges_is_not_the_best():
    report = training_report({("a", 0.1): one_epoch(0.9, 0.9), ("a", 0.2): one_epoch(0.1, math.nan)}, [1, 2])
    assert report.best_rate("a") == 0.1
    assert (report.estimate("a", 0.2).mean, report.estimate("a", 0.2).diverged) == (0.1, 1)
    assert "0.1000 (-, 1 of 2 diverged)" in str(report)


def finding(**strategies):
    """Of held-out losses by strategy, one for each seed, at one of two rates; at the other all are worse."""
    losses = {}
    for index, (name, ends) in enumerate(strategies.items()):
        losses[name, 0.1] = one_epoch(*ends) + index % 2
        losses[name, 0.2] = one_epoch(*ends) + (index + 1) % 2
    count = len(next(iter(strategies.values())))
    return training_report(losses, range(1, count + 1)).finding()


def test_the_finding_names_who_differs_by_more_than_the_spread():
    text = finding(unclipped=[1.0, 1.1, 1.2], a=[0.5, 0.6, 0.7], b=[1.0, 1.2, 1.1], c=[3.0, 3.1, 3.2])
    assert text == (
        "At its best learning rate the held-out loss of a (0.6000, spread 0.1000) is lower and that of c (3.1000, "
        "spread 0.1000) is higher than that of unclipped (1.1000, spread 0.1000) by more than the spread of the 3 "
        "seeds; b does not differ by that much."
    )
    text = finding(unclipped=[1.0, 1.1, 1.2], a=[1.2, 1.1, 1.0], b=[0.9, 1.1, 1.3])
    assert text.startswith("At its best learning rate no clip differs from the unclipped run by more than the spread")


@pytest.mark.parametrize("gap", [0.19, 0.21])
def test_intervals_of_mean_and_spread_that_touch_do_not_count_as_a_difference(gap):
    text = finding(unclipped=[1.0, 1.1, 1.2], a=[1.0 + gap, 1.1 + gap, 1.2 + gap])  # each has a spread of 0.1
    assert ("no clip differs" in text) == (gap < 0.2)


def test_one_seed_shows_no_difference_however_large():
    text = finding(unclipped=[100.0], a=[0.001])
    assert "one seed cannot tell whether the difference is more than chance" in text
    same = training_report({("unclipped", None): [[1.0]] * 2, ("a", None): [[0.5]] * 2}, [1, 2])
    for run in same.runs:
        run.loss[:] = 1.0  # as when nothing in the program depends on the seed
    assert "seeds that change nothing cannot tell" in same.finding()


def test_equal_results_are_called_equal():
    assert "all strategies end with the same held-out loss, 1.0000." in finding(unclipped=[1.0], a=[1.0])
    assert "all strategies end with the same" in finding(unclipped=[1.0, 2.0], a=[2.0, 1.0])


def test_divergence_is_said():
    lost = [math.nan] * 3
    text = finding(unclipped=lost, a=[0.5, 0.6, 0.7], b=lost)
    assert "of a (0.6000, spread 0.1000) is lower than that of unclipped (diverged)" in text
    assert finding(unclipped=lost, a=lost).startswith("Every run diverged")
    assert "2 of 3 diverged" in finding(unclipped=[1.0, math.inf, math.nan], a=[0.5, 0.6, 0.7])


@pytest.mark.slow
def test_a_real_effect_is_found_and_chance_is_not():
    rng = np.random.default_rng(0)
    said = [finding(unclipped=rng.normal(size=8), a=rng.normal(size=8)) for _ in range(200)]
    assert sum("no clip differs" in text for text in said) > 195
    said = [finding(unclipped=rng.normal(size=8), a=rng.normal(size=8) - 6) for _ in range(200)]
    assert sum("is lower than that of unclipped" in text for text in said) > 195


@pytest.mark.slow
def test_the_limits_of_a_sweep_are_remarked():
    by_rate = {"unclipped": (1.0, 2.0, 3.0), "a": (2.0, 1.0, 2.0)}
    losses = {(name, 0.1 * (n + 1)): one_epoch(loss) for name, ends in by_rate.items() for n, loss in enumerate(ends)}
    [remark] = training_remarks(training_report(losses, [1]))
    assert remark == "unclipped is best at the smallest rate tried, 0.1: one beyond may be better"
    single = training_report({("unclipped", None): one_epoch(1.0)})
    assert "another learning rate may order the strategies otherwise" in training_remarks(single)[0]
    idle = training_remarks(train({"unclipped": None, "idle": CLIPS["idle"]}))
    assert idle[-1] == "idle changed no gradient in any step at its best rate"


def test_the_finding_about_gradients_says_what_is_left_of_the_norm():
    numbers = np.ones((3, 4, 5))
    numbers[0, 1], numbers[1, 1] = 0.5, 0.125
    report = gradient_report(["half", "eighth", "whole"], ["w"], numbers)
    assert report.finding() == (
        "On average over 5 batches, of the norm of all gradients eighth left 12.5%, half 50% and whole 100%."
    )
    main, startup, loss = network()
    idle = compare_gradients(main, loss, {"idle": CLIPS["idle"]}, [{"x": ROWS}], startup=startup)
    assert idle.finding() == "No clip changed any gradient in 1 batch."
    assert "parameters do not move: differences between batches are those of the data" in " ".join(str(idle).split())


# Interrupts


@pytest.mark.laws
@pytest.mark.parametrize("count", range(1, 40, 3))
def test_an_interrupted_comparison_hands_over_what_it_has(monkeypatch, report, count):
    interrupt_after(monkeypatch, count)
    with pytest.raises(KeyboardInterrupt) as caught:
        train()
    starts = 1 + len(CLIPS) * 2  # the startup program and the state of six clones
    if count < starts + 6:
        assert not isinstance(caught.value, Interrupted)
        return
    partial = caught.value.report
    assert partial.partial and partial.partial in str(partial)
    steps = (count - starts) // 6
    for mine, whole in zip(partial.runs, report.runs, strict=False):
        assert len(mine.loss) == len(mine.total.factor) == len(mine.epoch_of_step) == min(steps, 8)
        assert mine.loss.tolist() == whole.loss[: len(mine.loss)].tolist()
        assert mine.is_complete == (len(mine.loss) == 8)
