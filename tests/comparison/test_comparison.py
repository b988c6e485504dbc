"""Comparisons against gradients worked out here, in NumPy and float64, from programs that are run on their own."""

import math
import random

import numpy as np
import pytest

import minigraph as fluid
from minigraph.clip import GradientClipBase, GradientClipByGlobalNorm, GradientClipByNorm, GradientClipByValue
from minigraph.comparison import compare_gradients, compare_training
from minigraph.comparison.digits import Batches, build_network
from minigraph.comparison.programs import batch_size
from minigraph.errors import ClipError, DataError, NotFoundError, ProgramError, WrongTypeError
from minigraph.ir import Role
from minigraph.layers.tensor import create_global_var

SEED, SIZE, COUNT = 7, 32, 4
PARAMETERS = ["fc_0.w_0", "fc_0.b_0", "fc_1.w_0", "fc_1.b_0", "fc_2.w_0", "fc_2.b_0"]
SMALL, HUGE = 1e-3, 1e6  # below and above every norm here


@pytest.fixture(scope="module")
def network():
    return build_network(SEED)


def run(network, clips, **options):
    feeds = options.pop("feeds", None) or Batches(network, size=SIZE, seed=SEED).first(COUNT)
    return compare_gradients(network.program, network.loss, clips, feeds, **{"startup": network.startup, **options})


@pytest.fixture(scope="module")
def params(network):
    """Start values, made by a run of the startup program of this test's own."""
    scope = fluid.Scope()
    fluid.Executor(fluid.CPUPlace()).run(network.startup, scope=scope)
    return [np.array(scope.find_var(name).get_tensor()).astype(np.float64) for name in PARAMETERS]


@pytest.fixture(scope="module")
def batches():
    samples = list(fluid.dataset.digits.train(28)())
    random.seed(SEED)
    random.shuffle(samples)
    rows = [samples[start : start + SIZE] for start in range(0, COUNT * SIZE, SIZE)]
    return [(np.stack([image for image, _ in batch]), np.array([label for _, label in batch])) for batch in rows]


def loss_and_gradients(params, images, labels):
    """Mean cross entropy of the network and its gradients: the chain rule by hand."""
    w1, b1, w2, b2, w3, b3 = params
    x = images.astype(np.float64)
    before1 = x @ w1 + b1
    hidden1 = np.maximum(before1, 0)
    before2 = hidden1 @ w2 + b2
    hidden2 = np.maximum(before2, 0)
    logits = hidden2 @ w3 + b3
    probabilities = np.exp(logits - logits.max(axis=1, keepdims=True))
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    rows = np.arange(len(labels))
    loss = -np.log(probabilities[rows, labels]).mean()

    d_logits = probabilities.copy()
    d_logits[rows, labels] -= 1
    d_logits /= len(labels)
    d_before2 = (d_logits @ w3.T) * (before2 > 0)
    d_before1 = (d_before2 @ w2.T) * (before1 > 0)
    by_layer = [(x, d_before1), (hidden1, d_before2), (hidden2, d_logits)]
    return loss, [grad for inputs, d_out in by_layer for grad in (inputs.T @ d_out, d_out.sum(axis=0))]


@pytest.fixture(scope="module")
def expected(params, batches):
    """Loss and gradients of each batch."""
    return [loss_and_gradients(params, *batch) for batch in batches]


def flat(grads):
    return np.concatenate([grad.ravel() for grad in grads])


def by_norm(grads, limit):
    return [grad * min(1.0, limit / np.linalg.norm(grad)) for grad in grads]


def by_global_norm(grads, limit):
    return [grad * min(1.0, limit / np.linalg.norm(flat(grads))) for grad in grads]


def by_value(grads, limit):
    return [np.clip(grad, -limit, limit) for grad in grads]


FORMULAS = {
    "norm": (GradientClipByNorm(0.5), by_norm, 0.5),
    "tiny norm": (GradientClipByNorm(SMALL), by_norm, SMALL),
    "global": (GradientClipByGlobalNorm(1.0), by_global_norm, 1.0),
    "value": (GradientClipByValue(0.05), by_value, 0.05),
}
CLIPS = {name: clip for name, (clip, _, _) in FORMULAS.items()}


@pytest.fixture(scope="module")
def report(network):
    return run(network, CLIPS)


# The numbers


@pytest.mark.slow
def test_norms_before_clipping_are_those_of_the_networks_gradients(report, expected):
    result = report["norm"]
    assert list(result.parameters) == PARAMETERS
    assert report.loss == pytest.approx([loss for loss, _ in expected], rel=1e-5)
    for index, (name, statistics) in enumerate(result.parameters.items()):
        norms = [np.linalg.norm(grads[index]) for _, grads in expected]
        assert statistics.norm_before == pytest.approx(norms, rel=1e-5)
        assert report.shape(name) == expected[0][1][index].shape
    assert result.total.norm_before == pytest.approx([np.linalg.norm(flat(grads)) for _, grads in expected], rel=1e-5)


def angle(a, b):
    return np.vdot(a, b) / np.linalg.norm(a) / np.linalg.norm(b)


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMULAS)
def test_statistics_are_those_of_the_formula(report, expected, name):
    _, formula, limit = FORMULAS[name]
    for number, (_, grads) in enumerate(expected):
        clipped = formula(grads, limit)
        pairs = [*zip(report[name].parameters.values(), grads, clipped, strict=True)]
        for found, before, after in [*pairs, (report[name].total, flat(grads), flat(clipped))]:
            norms = np.linalg.norm(before), np.linalg.norm(after)
            assert found.norm_after[number] == pytest.approx(norms[1], rel=1e-5)
            assert found.factor[number] == pytest.approx(norms[1] / norms[0], rel=1e-5)
            assert found.cosine[number] == pytest.approx(angle(before, after), abs=1e-6)
            assert found.share_changed[number] == pytest.approx(np.mean(before != after), abs=0.02)


@pytest.mark.slow
def test_the_share_of_elements_changed_counts_them(network, batches):
    limit = 0.05
    report = run(network, {"value": GradientClipByValue(limit)})
    raw_program = network.program.clone()
    with fluid.unique_name.guard():
        pairs = fluid.append_backward(raw_program.global_block().var(network.loss.name))
    scope, exe = fluid.Scope(), fluid.Executor()
    exe.run(network.startup, scope=scope)
    for number, (images, labels) in enumerate(batches):
        feed = {"x": images, "y": labels[:, None]}
        grads = exe.run(raw_program, feed=feed, fetch_list=[grad for _, grad in pairs], scope=scope)
        beyond = [int((np.abs(grad) > np.float32(limit)).sum()) for grad in grads]
        sizes = [grad.size for grad in grads]
        for statistics, count, size in zip(report["value"].parameters.values(), beyond, sizes, strict=True):
            assert statistics.share_changed[number] == count / size
            assert statistics.clipped[number] == (count > 0)
        assert report["value"].total.share_changed[number] == sum(beyond) / sum(sizes)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", [GradientClipByNorm, GradientClipByGlobalNorm, GradientClipByValue])
def test_a_threshold_above_everything_changes_nothing(network, strategy):
    result = run(network, {"clip": strategy(HUGE)})["clip"]
    for statistics in (*result.parameters.values(), result.total):
        assert statistics.factor.tolist() == [1.0] * COUNT
        assert not statistics.clipped.any()
        assert statistics.share_clipped == 0
        assert statistics.cosine == pytest.approx(np.ones(COUNT), abs=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", [GradientClipByNorm, GradientClipByGlobalNorm])
def test_a_threshold_below_everything_is_the_norm_afterwards(network, strategy):
    result = run(network, {"clip": strategy(SMALL)})["clip"]
    assert all(statistics.share_clipped == 1 for statistics in result.parameters.values())
    afterwards = [result.total] if strategy is GradientClipByGlobalNorm else result.parameters.values()
    for statistics in afterwards:
        assert statistics.norm_after == pytest.approx(np.full(COUNT, SMALL), rel=1e-5)


@pytest.mark.slow
def test_none_leaves_gradients_as_they_are(network):
    result = run(network, {"raw": None})["raw"]
    assert result.total.norm_before.tolist() == result.total.norm_after.tolist()
    assert result.total.share_clipped == 0
    assert result.program.equals(run(network, {}).unclipped)


# One program


def operators(program):
    """All there is to the operators."""
    return [(op.type, op.inputs, op.outputs, op.attrs, op.role, op.role_vars) for op in program.global_block().ops]


def series(result):
    return [
        getattr(statistics, name).tolist()
        for statistics in (*result.parameters.values(), result.total)
        for name in ("norm_before", "norm_after", "cosine", "share_changed")
    ]


@pytest.mark.slow
def test_one_program_computes_the_backward_pass_once_and_every_clip_behind_it(report):
    ops = list(report.program.global_block().ops)
    backward = [op for op in ops if op.role & Role.BACKWARD]
    clips = [op for op in ops if op.role & Role.CLIP]
    assert len(backward) == sum(bool(op.role & Role.BACKWARD) for op in report.unclipped.global_block().ops)
    own = [len(report[name].program.global_block().ops) - len(report.unclipped.global_block().ops) for name in report]
    assert len(clips) == sum(own)
    assert len(ops) == len(report.unclipped.global_block().ops) + sum(own)


@pytest.mark.slow
def test_several_strategies_at_once_are_as_each_on_its_own(network, report):
    for name, clip in CLIPS.items():
        alone = run(network, {name: clip})[name]
        assert series(alone) == series(report[name])
        assert operators(alone.program) == operators(report[name].program)


def test_a_strategys_program_differs_from_the_unclipped_one_by_its_operators(report):
    unclipped = operators(report.unclipped)
    for name in report:
        ops = operators(report[name].program)
        assert ops[: len(unclipped)] == unclipped
        assert len(ops) > len(unclipped)
        assert all(role & Role.CLIP for *_, role, _ in ops[len(unclipped) :])
        changed = [line for line in report.diff(name).split("\n") if line[:1] in ("+", "-")]
        assert len(changed) == len(ops) - len(unclipped)


def test_the_program_is_what_a_user_would_write(network, report):
    program = network.program.clone()
    with fluid.program_guard(program), fluid.unique_name.guard():
        pairs = fluid.append_backward(program.global_block().var(network.loss.name))
        CLIPS["global"](pairs)
    assert [op.type for op in program.global_block().ops] == [
        op.type for op in report["global"].program.global_block().ops
    ]


def small_program():
    """A linear function, whose gradient is the mean of what is fed."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x = fluid.data("x", [None, 2])
        y = fluid.layers.fc(x, 1, bias_attr=False)
        loss = fluid.layers.mean(y)
    return main, startup, loss


def test_names_that_the_program_has_taken_are_not_taken_again():
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x = fluid.data("x", [None, 2])
        y = fluid.layers.fc(x, 1, bias_attr=False)
        loss = fluid.layers.mean(fluid.layers.square(y))  # square_0.tmp_0, as a global norm would call its first
    feed = {"x": np.array([[3.0, 4.0]], np.float32)}
    report = compare_gradients(main, loss, {"a": GradientClipByGlobalNorm(1e-3)}, [feed], startup=startup)
    assert report["a"].total.norm_after == pytest.approx([1e-3], rel=1e-5)
    [y_value] = [np.sqrt(report.loss[0])]
    assert report["a"].total.norm_before == pytest.approx([2 * y_value * 5], rel=1e-5)


@pytest.mark.slow
def test_the_callers_program_and_state_stay_as_they_are(network):
    main, startup = fluid.default_main_program(), fluid.default_startup_program()
    scope = fluid.Scope()
    fluid.Executor().run(network.startup, scope=scope)

    def everything():
        values = [np.array(scope.find_var(name).get_tensor()).tobytes() for name in PARAMETERS]
        programs = [str(program) for program in (main, startup, network.program, network.startup)]
        return programs, values, random.getstate(), fluid.global_scope().local_var_names(), scope.local_var_names()

    before = everything()
    name = fluid.unique_name.generate("trace")
    sgd = {"optimizer": lambda: fluid.optimizer.SGD(0.1)}
    run(network, CLIPS, startup=None, scope=scope, **sgd)
    feeds = list(Batches(network, size=SIZE, seed=SEED).first(2))
    compare_training(network.program, network.loss, CLIPS, feeds, scope=scope, **sgd)
    assert everything() == before
    assert fluid.unique_name.generate("trace") == f"trace_{int(name.rpartition('_')[2]) + 1}"


def test_a_program_that_trains_already_is_compared_by_its_forward_part():
    main, startup, loss = small_program()
    clips = {"clip": GradientClipByNorm(1.0)}
    feeds = [{"x": np.array([[3.0, 4.0]], np.float32)}]
    plain = compare_gradients(main, loss, clips, feeds, startup=startup)
    twin = main.clone()
    with fluid.program_guard(twin, startup), fluid.unique_name.guard("again/"):
        fluid.clip.set_gradient_clip(GradientClipByNorm(0.5), program=twin)
        fluid.optimizer.Momentum(0.1, 0.9).minimize(twin.global_block().var(loss.name))
    trained = compare_gradients(twin, loss.name, clips, feeds, startup=startup)
    assert [op.type for op in trained.program.global_block().ops] == [
        op.type for op in plain.program.global_block().ops
    ]
    assert list(trained.forward.global_block().vars) == list(plain.forward.global_block().vars)
    assert trained["clip"].total.norm_after == pytest.approx([1.0])


# Strategies of other kinds


class Halving(GradientClipBase):
    """Halves its limit with each batch, in a variable of its own."""

    def __call__(self, pairs):
        with fluid.program_guard(pairs[0][1].block.program):
            limit = create_global_var([1], 1.0, "float32", persistable=True, name=fluid.unique_name.generate("limit"))
            clipped = [(param, fluid.layers.elementwise_mul(grad, limit, axis=0)) for param, grad in pairs]
            half = fluid.layers.scale(limit, 0.5)
            fluid.layers.assign(half, limit)
        return clipped


def test_the_state_of_a_strategy_lives_from_batch_to_batch():
    main, startup, loss = small_program()
    feeds = [{"x": np.array([[3.0, 4.0]], np.float32)}] * 3
    clips = {"a": Halving(), "raw": None, "b": Halving()}
    report = compare_gradients(main, loss, clips, feeds, startup=startup)
    assert report["a"].total.factor == pytest.approx([1, 0.5, 0.25])
    assert report["b"].total.factor.tolist() == report["a"].total.factor.tolist()
    assert report["raw"].total.factor.tolist() == [1, 1, 1]
    trained = compare_training(
        main, loss, clips, feeds, startup=startup, optimizer=lambda: fluid.optimizer.SGD(0.1), epochs=2
    )
    assert trained["b"].total.factor == pytest.approx(0.5 ** np.arange(6))


def test_any_function_of_pairs_is_a_strategy():
    main, startup, loss = small_program()
    feeds = [{"x": np.array([[3.0, 4.0]], np.float32)}]
    negated = {"turned": lambda pairs: [(param, fluid.layers.scale(grad, -2.0)) for param, grad in pairs]}
    report = compare_gradients(main, loss, negated, feeds, startup=startup)
    assert report["turned"].total.factor == pytest.approx([2.0])
    assert report["turned"].total.cosine == pytest.approx([-1.0])


@pytest.mark.slow
def test_a_parameter_that_needs_no_clip_keeps_its_gradient(network):
    clip = GradientClipByGlobalNorm(SMALL, need_clip=lambda param: param.name != "fc_0.w_0")
    result = run(network, {"clip": clip})["clip"]
    assert result.parameters["fc_0.w_0"].share_clipped == 0
    assert all(s.share_clipped == 1 for name, s in result.parameters.items() if name != "fc_0.w_0")


# The experiment


@pytest.mark.slow
def test_equal_seeds_give_equal_results_and_others_do_not(network):
    def numbers(seed):
        found = build_network(seed)
        report = run(found, CLIPS, feeds=Batches(found, size=SIZE, seed=seed).first(COUNT))
        return report.loss.tolist(), series(report["norm"])

    assert numbers(SEED) == numbers(SEED)
    assert numbers(SEED) != numbers(SEED + 1)


@pytest.mark.slow
def test_all_batches_see_the_start_values_unless_there_is_an_optimizer(network, params, batches, report):
    moved = run(network, {"norm": CLIPS["norm"]}, optimizer=lambda: fluid.optimizer.SGD(0.1))
    assert report.loss[0] == moved.loss[0]
    assert report["norm"].total.norm_after[0] == moved["norm"].total.norm_after[0]
    for number, batch in enumerate(batches):
        loss, grads = loss_and_gradients(params, *batch)
        assert moved.loss[number] == pytest.approx(loss, rel=1e-4)
        assert moved["norm"].total.norm_before[number] == pytest.approx(np.linalg.norm(flat(grads)), rel=1e-4)
        params = [param - 0.1 * grad for param, grad in zip(params, grads, strict=True)]


def test_a_strategy_that_skips_updates_does_not_skip_those_along_the_unclipped_gradients():
    main, startup, loss = small_program()
    feeds = [{"x": np.array([[value, 4.0]], np.float32)} for value in (3.0, math.inf, 3.0)]
    clips = {"skip": GradientClipByNorm(1.0, nonfinite="skip")}
    sgd = {"startup": startup, "optimizer": lambda: fluid.optimizer.SGD(0.1)}
    assert not math.isfinite(compare_gradients(main, loss, clips, feeds, **sgd).loss[2])
    assert math.isfinite(compare_training(main, loss, clips, feeds, **sgd)["skip"].loss[2])


STRATEGIES = {
    "p-norm": fluid.clip.GradientClipByPNorm(0.5, 1),
    "global p-norm": fluid.clip.GradientClipByGlobalPNorm(0.5, 3.0),
    "axes": fluid.clip.GradientClipByAxisNorm(0.05, [0]),
    "rms": fluid.clip.GradientClipByBlockRMS(1e-3),
    "adaptive": fluid.clip.AdaptiveGradientClip(clipping=0.01),
    "history": fluid.clip.AutoClip(percentile=20),
    "pipeline": fluid.clip.ClipPipeline([GradientClipByValue(0.01), GradientClipByGlobalNorm(0.1)]),
}


@pytest.mark.slow
def test_every_kind_of_strategy_can_be_compared(network):
    together = run(network, STRATEGIES, optimizer=lambda: fluid.optimizer.SGD(0.1))
    for name, strategy in STRATEGIES.items():
        assert together[name].total.share_clipped > 0, name
        alone = run(network, {name: strategy}, optimizer=lambda: fluid.optimizer.SGD(0.1))
        assert series(alone[name]) == series(together[name]), name
    norms = together["history"].total.norm_before
    thresholds = [np.percentile(norms[: count + 1], 20) for count in range(COUNT)]
    assert together["history"].total.norm_after == pytest.approx(np.minimum(norms, thresholds), rel=1e-5)


@pytest.mark.slow
def test_the_data_are_read_again_when_they_end(network):
    samples = [(np.full(784, value / 10, np.float32), value) for value in range(5)]
    report = run(network, CLIPS, feeds=Batches(network, lambda: samples, size=2, seed=SEED).first(5))
    assert report.batch_sizes.tolist() == [2, 2, 1, 2, 2]


def test_each_epoch_of_batches_has_another_order_and_all_of_the_data(network):
    samples = [(np.full(784, value / 10, np.float32), value) for value in range(8)]
    epochs = Batches(network, lambda: samples, size=8, seed=SEED).epochs()
    orders = [[np.ravel(feed["y"]).tolist() for feed in epochs()] for _ in range(3)]
    assert all(sorted(order[0]) == list(range(8)) for order in orders)
    assert orders[0] != orders[1]


@pytest.mark.parametrize(
    ("feed", "size"),
    [({"x": np.ones((3, 2)), "y": np.ones((3, 1))}, 3), ({"x": np.ones((3, 2)), "rate": np.ones(1)}, -1),
     ({"x": np.float32(1)}, -1), ({}, -1)],
)  # fmt: skip
def test_the_size_of_a_batch_is_the_rows_that_all_arrays_have(feed, size):
    assert batch_size(feed) == size


@pytest.mark.slow
def test_a_comparison_without_strategies_is_the_unclipped_program_alone(network, expected):
    report = run(network, {})
    assert len(report) == 0
    assert report.loss == pytest.approx([loss for loss, _ in expected], rel=1e-5)
    assert report.program.equals(report.unclipped)


# What is refused


def refused(error, match, **changes):
    main, startup, loss = small_program()
    feeds = [{"x": np.ones((1, 2), np.float32)}]
    arguments = {"program": main, "loss": loss, "clips": {}, "feeds": feeds, "startup": startup, **changes}
    with pytest.raises(error, match=match):
        compare_gradients(**arguments)
    with pytest.raises(error, match=match):
        compare_training(**arguments, optimizer=lambda: fluid.optimizer.SGD(0.1))


def test_arguments_that_make_no_sense_are_errors():
    refused(WrongTypeError, "clips must map names to strategies", clips=[GradientClipByNorm(1.0)])
    refused(WrongTypeError, "strategy 'a' must be a clip", clips={"a": 1.0})
    refused(WrongTypeError, "name of a strategy", clips={1: None})
    refused(NotFoundError, "no variable 'los' for loss", loss="los")
    refused(WrongTypeError, "loss must be", loss=3)
    refused(DataError, "there is no batch", feeds=[])
    refused(ProgramError, "fc_0.w_0 has no value", startup=None, scope=fluid.Scope())
    refused(ProgramError, "not both", scope=fluid.Scope())


def test_a_strategy_that_forgets_a_parameter_is_an_error():
    refused(ProgramError, "'a' returns no gradient for fc_0.w_0", clips={"a": lambda pairs: []})


def test_names_are_printed_as_they_are():
    main, startup, loss = small_program()
    feeds = [{"x": np.ones((1, 2), np.float32)}]
    name = "[red]x[/red] [1]"
    options = {"startup": startup, "settings": {"note": "[bold]y"}}
    gradients = compare_gradients(main, loss, {name: None}, feeds, **options)
    training = compare_training(
        main, loss, {name: None}, feeds, optimizer=lambda: fluid.optimizer.SGD(0.1), metrics={"[b]m": loss}, **options
    )
    for report in (gradients, training):
        assert name in str(report)
        assert "[bold]y" in str(report)
    assert "[b]m" in str(training)


def test_an_unknown_strategy_is_an_error_that_suggests(report):
    with pytest.raises(NotFoundError, match="Did you mean global"):
        report["globl"]


@pytest.mark.slow
def test_an_iterator_ends_after_one_epoch(network):
    feeds = Batches(network, size=SIZE, seed=SEED).first(1)
    with pytest.raises(DataError, match="feeds of epoch 2"):
        train(network, {"raw": None}, feeds, epochs=2)


# Training


def train(network, clips, feeds, **options):
    defaults = {"startup": network.startup, "optimizer": lambda: fluid.optimizer.SGD(0.1)}
    return compare_training(network.program, network.loss, clips, feeds, **{**defaults, **options})


@pytest.mark.slow
def test_each_run_is_gradient_descent_along_its_own_clipped_gradients(network, params, batches):
    feeds = [{"x": images, "y": labels[:, None]} for images, labels in batches]
    report = train(network, {"raw": None, **CLIPS}, feeds, epochs=2)
    formulas = {"raw": (None, lambda grads, limit: grads, 0), **FORMULAS}
    for name, (_, formula, limit) in formulas.items():
        values, run_ = list(params), report[name]
        for step, batch in enumerate(batches * 2):
            loss, grads = loss_and_gradients(values, *batch)
            clipped = formula(grads, limit)
            assert run_.loss[step] == pytest.approx(loss, rel=1e-3)
            assert run_.total.norm_before[step] == pytest.approx(np.linalg.norm(flat(grads)), rel=1e-3)
            assert run_.total.norm_after[step] == pytest.approx(np.linalg.norm(flat(clipped)), rel=1e-3)
            values = [value - 0.1 * grad for value, grad in zip(values, clipped, strict=True)]
        for parameter, value in zip(PARAMETERS, values, strict=True):
            np.testing.assert_allclose(run_.values[parameter], value, rtol=1e-3, atol=1e-5)
    assert report.epoch_of_step.tolist() == [1] * COUNT + [2] * COUNT


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", [fluid.optimizer.Adam, lambda: fluid.optimizer.Momentum(0.1, 0.9)])
def test_a_run_is_bit_for_bit_the_program_that_a_user_would_train(network, batches, optimizer):
    feeds = [{"x": images, "y": labels[:, None]} for images, labels in batches]
    report = train(network, {"global": CLIPS["global"]}, feeds, optimizer=optimizer)
    program, startup = network.program.clone(), network.startup.clone()
    with fluid.program_guard(program, startup), fluid.unique_name.guard("mine/"):
        mine = optimizer()
        mine._grad_clip = CLIPS["global"]
        mine.minimize(program.global_block().var(network.loss.name))
    scope, exe = fluid.Scope(), fluid.Executor()
    exe.run(startup, scope=scope)
    losses = [float(exe.run(program, feed=feed, fetch_list=[network.loss.name], scope=scope)[0][0]) for feed in feeds]
    assert report["global"].loss.tolist() == losses
    for name in PARAMETERS:
        np.testing.assert_array_equal(report["global"].values[name], np.array(scope.find_var(name).get_tensor()))


@pytest.mark.slow
def test_all_strategies_start_equal_and_see_the_same_batches(network):
    feeds = Batches(network, size=SIZE, seed=SEED).epochs()
    report = train(network, {"a": None, "b": None, "clip": CLIPS["norm"]}, feeds, epochs=2)
    assert report["a"].loss.tolist() == report["b"].loss.tolist()
    assert report["a"].loss[0] == report["clip"].loss[0]
    assert report["a"].loss[-1] != report["clip"].loss[-1]


def test_random_operators_draw_the_same_under_every_strategy():
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x = fluid.data("x", [None, 2])
        noise = fluid.layers.uniform_random([2, 2])
        loss = fluid.layers.mean(fluid.layers.fc(fluid.layers.mul(x, noise), 1))
    feeds = [{"x": np.ones((3, 2), np.float32)}] * 3
    report = compare_training(
        main, loss, {"a": None, "b": None}, feeds, startup=startup, optimizer=lambda: fluid.optimizer.SGD(0.1)
    )
    assert report["a"].loss.tolist() == report["b"].loss.tolist()
    assert len(set(report["a"].total.norm_before.tolist())) == 3  # the noise is another one in each step


def accuracy_of(values, images, labels):
    w1, b1, w2, b2, w3, b3 = (np.asarray(value, np.float64) for value in values)
    hidden = np.maximum(np.maximum(images @ w1 + b1, 0) @ w2 + b2, 0)
    return np.mean((hidden @ w3 + b3).argmax(axis=1) == labels)


@pytest.mark.slow
def test_metrics_are_measured_on_the_held_out_batches_after_each_epoch(network, batches):
    feeds = [{"x": images, "y": labels[:, None]} for images, labels in batches]
    samples = list(fluid.dataset.digits.test(28)())
    images, labels = np.stack([image for image, _ in samples]), np.array([label for _, label in samples])
    parts = [slice(0, 200), slice(200, None)]  # of different sizes: the mean is weighted
    held_out = [{"x": images[part], "y": labels[part, None]} for part in parts]
    options = {"metrics": {"accuracy": network.accuracy}, "evaluate": held_out}
    report = train(network, {"raw": None, "norm": CLIPS["norm"]}, feeds, epochs=3, **options)
    assert report.metrics == ("loss", "accuracy")
    for name in report:
        assert {len(found) for found in report[name].metrics.values()} == {3}
        values = [report[name].values[parameter] for parameter in PARAMETERS]
        assert report[name].metrics["accuracy"][-1] == pytest.approx(accuracy_of(values, images, labels), abs=0.005)
        loss, _ = loss_and_gradients([value.astype(np.float64) for value in values], images, labels)
        assert report[name].metrics["loss"][-1] == pytest.approx(loss, rel=1e-4)
    once = train(network, {"raw": None}, feeds, **options)
    assert once["raw"].metrics["loss"].tolist() == report["raw"].metrics["loss"][:1].tolist()


@pytest.mark.slow
def test_without_held_out_batches_metrics_are_means_over_the_epoch(network, params, batches):
    feeds = [{"x": images, "y": labels[:, None]} for images, labels in batches]
    report = train(network, {"raw": None}, feeds, epochs=2, metrics={"loss": network.loss})
    assert not report.is_held_out
    means = report["raw"].loss.reshape(2, COUNT).mean(axis=1)
    assert report["raw"].metrics["loss"] == pytest.approx(means)


@pytest.mark.slow
def test_a_run_that_diverges_is_recorded_to_its_end():
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x = fluid.data("x", [None, 1])
        one = fluid.ParamAttr(initializer=fluid.initializer.Constant(1.0))
        loss = fluid.layers.mean(fluid.layers.square(fluid.layers.fc(x, 1, param_attr=one, bias_attr=False)))
    feeds = [{"x": np.ones((1, 1), np.float32)}]
    # w becomes w - 1e10 * 2 w: about -2e10 times itself with each step.
    report = compare_training(
        main, loss, {"raw": None, "norm": GradientClipByNorm(1e-11)}, feeds, epochs=6, startup=startup,
        optimizer=lambda: fluid.optimizer.SGD(1e10),
    )  # fmt: skip
    w, losses = np.float32(1), []
    with np.errstate(all="ignore"):
        for _ in range(6):
            losses.append(float(w * w))
            w = w - np.float32(1e10) * (np.float32(2) * w)
    first = next(step for step, loss in enumerate(losses, start=1) if not math.isfinite(loss))
    assert report["raw"].diverged_at == first
    assert len(report["raw"].loss) == 6
    assert report["raw"].loss[: first - 1] == pytest.approx(losses[: first - 1], rel=1e-5)
    assert report["norm"].diverged_at is None
    assert f"raw at step {first}" in str(report)


@pytest.mark.slow
def test_what_training_cannot_take_is_refused(network, batches):
    feeds = [{"x": images, "y": labels[:, None]} for images, labels in batches[:1]]
    with pytest.raises(ValueError, match="epochs"):
        train(network, {}, feeds, epochs=0)
    with pytest.raises(WrongTypeError, match="optimizer must be a function"):
        train(network, {"raw": None}, feeds, optimizer=fluid.optimizer.SGD(0.1))
    with pytest.raises(WrongTypeError, match="optimizer must be a function"):
        train(network, {"raw": None}, feeds, optimizer=lambda: 0.1)
    clipping = fluid.optimizer.SGD(0.1, grad_clip=CLIPS["norm"])
    with pytest.raises(ClipError, match="clips by"):
        train(network, {"raw": None}, feeds, optimizer=lambda: clipping)
    with pytest.raises(NotFoundError, match="metric 'accuracy'"):
        train(network, {"raw": None}, feeds, metrics={"accuracy": "nowhere"})
    with pytest.raises(WrongTypeError, match="one element"):
        train(network, {"raw": None}, feeds, metrics={"image": "x"})
    with pytest.raises(DataError, match="evaluation after epoch 1"):
        train(network, {"raw": None}, feeds, evaluate=[])


@pytest.mark.gpu
@pytest.mark.skipif(not fluid.is_compiled_with_cuda(), reason="needs CuPy and a CUDA device")
def test_a_gpu_gives_the_same_numbers(network, report):
    scope = fluid.Scope()  # generators of a GPU draw other start values
    fluid.Executor(fluid.CPUPlace()).run(network.startup, scope=scope)
    start = {"startup": None, "scope": scope}
    gpu = run(network, CLIPS, place=fluid.CUDAPlace(0), **start)
    for name in CLIPS:
        for one, other in zip(report[name].parameters.values(), gpu[name].parameters.values(), strict=True):
            np.testing.assert_allclose(one.norm_before, other.norm_before, rtol=1e-4)
            np.testing.assert_allclose(one.norm_after, other.norm_after, rtol=1e-4)
            assert one.share_clipped == other.share_clipped
    feeds = list(Batches(network, size=SIZE, seed=SEED).first(COUNT))
    one, other = (train(network, CLIPS, feeds, place=place, **start)["norm"] for place in (None, fluid.CUDAPlace(0)))
    np.testing.assert_allclose(one.loss, other.loss, rtol=1e-3)
