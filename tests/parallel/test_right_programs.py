"""Programs that `DataParallel` must not refuse: two and four ranks train them as one rank does."""

import numpy as np
import pytest

import minigraph as fluid
from minigraph import clip, layers, optimizer, parallel
from minigraph.contrib import mixed_precision

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

ROWS, STEPS = 8, 4
_RNG = np.random.default_rng(3)
BATCH = {
    "x": _RNG.normal(size=(ROWS, 4)).astype("float32"),
    "y": _RNG.normal(size=(ROWS, 1)).astype("float32"),
    "ids": _RNG.integers(0, 9, ROWS),
    "mask": (_RNG.uniform(size=(ROWS, 1)) > 0.4).astype("float32"),
}
SETTINGS = {"rate": np.array([0.05], "float32")}


def data(name):
    return fluid.data(name, [None, *BATCH[name].shape[1:]], str(BATCH[name].dtype))


def x():
    return data("x")


def errors(hidden):
    """Squared errors of a prediction from `hidden`."""
    return layers.square_error_cost(layers.fc(hidden, 1, param_attr="v"), data("y"))


def by(make, hidden=lambda x: x):
    """Train a network of two layers by an optimizer."""
    return lambda: make().minimize(layers.mean(errors(hidden(layers.fc(x(), 4, param_attr="w")))))


def with_clip(strategy, **options):
    return by(lambda: optimizer.Adam(0.1, grad_clip=strategy), **options)


def of_rows(make):
    def build():
        found = fluid.embedding(data("ids"), [9, 4], is_sparse=True, param_attr="e")
        make().minimize(layers.mean(errors(found)))

    return build


def masked():
    mask = data("mask")
    loss = layers.reduce_sum(errors(x()) * mask) / layers.reduce_sum(mask)
    optimizer.SGD(0.1).minimize(loss)


def tied():
    hidden = layers.tanh(layers.fc(x(), 4, param_attr="w"))
    optimizer.SGD(0.1).minimize(layers.mean(errors(layers.fc(hidden, 4, param_attr="w"))))


def frozen():
    hidden = layers.fc(x(), 4, param_attr=fluid.ParamAttr("w", trainable=False))
    optimizer.Adam(0.1, grad_clip=clip.GradientClipByGlobalNorm(0.1)).minimize(layers.mean(errors(hidden)))


def averaged():
    optimizer.SGD(0.1).minimize(layers.mean(errors(x())))
    optimizer.ExponentialMovingAverage(0.9).update()


def bounded_weights():
    by(lambda: optimizer.SGD(0.1))()
    weight = fluid.default_main_program().global_block().var("w")
    layers.assign(layers.clip(weight, -0.3, 0.3), weight)


def two_losses():
    scores = layers.fc(layers.fc(x(), 4, param_attr="w"), 1, param_attr="v", bias_attr=False)
    optimizer.SGD(0.1).minimize(layers.mean(scores), parameter_list=["v"])
    optimizer.Adam(0.1).minimize(layers.mean(layers.square(scores)), parameter_list=["w"])


def recomputed():
    first = layers.fc(x(), 4, act="tanh")
    second = layers.fc(first, 4, act="tanh")
    recompute = optimizer.RecomputeOptimizer(optimizer.SGD(0.1))
    recompute._set_checkpoints([first, second])
    recompute.minimize(layers.mean(errors(second)))


def penalized():
    given = x()
    given.stop_gradient = False
    scores = layers.fc(layers.fc(given, 4, act="tanh"), 1)
    (slope,) = fluid.gradients(layers.reduce_sum(scores), given)
    lengths = layers.sqrt(layers.reduce_sum(layers.square(slope), 1) + 1e-6)
    optimizer.SGD(0.1).minimize(layers.mean(scores) + layers.mean(layers.square(lengths - 1.0)))


def looped(hidden):
    start = layers.fill_constant([1], "int64", 0)
    return layers.while_loop(lambda i, value: i < 3, lambda i, value: [i + 1, layers.tanh(value)], [start, hidden])[1]


GLOBAL = clip.GradientClipByGlobalNorm(0.05)


def lazy():
    return optimizer.Adam(0.1, lazy_mode=True, grad_clip=GLOBAL)


PROGRAMS = {
    "clip by value": (with_clip(clip.GradientClipByValue(0.01)), {}),
    "clip by norm": (with_clip(clip.GradientClipByNorm(0.05)), {}),
    "clip by global norm": (with_clip(GLOBAL), {}),
    "clip by value of parts": (with_clip(clip.GradientClipByValue(0.01)), {"sharded": True}),
    "clip by norm of parts": (with_clip(clip.GradientClipByNorm(0.05)), {"sharded": True}),
    "clip by global norm of parts": (with_clip(GLOBAL), {"sharded": True}),
    "decay": (by(lambda: optimizer.SGD(0.1, regularization=fluid.regularizer.L2Decay(0.1), grad_clip=GLOBAL)), {}),
    "decay of sizes": (by(lambda: optimizer.SGD(0.1, regularization=fluid.regularizer.L1Decay(0.01))), {}),
    "LARS": (by(lambda: optimizer.LarsMomentum(0.1, 0.9)), {}),
    "LAMB": (by(lambda: optimizer.Lamb(0.01)), {}),
    "FTRL": (by(lambda: optimizer.Ftrl(0.1)), {}),
    "RMSProp": (by(lambda: optimizer.RMSProp(0.01, centered=True)), {}),
    "look ahead": (by(lambda: optimizer.LookaheadOptimizer(optimizer.SGD(0.1), 0.5, 2)), {}),
    "merged": (by(lambda: optimizer.GradientMergeOptimizer(optimizer.Momentum(0.1, 0.9, grad_clip=GLOBAL), 2)), {}),
    "mixed precision": (by(lambda: mixed_precision.decorate(optimizer.SGD(0.1))), {}),
    "rows": (of_rows(lambda: optimizer.SGD(0.5)), {}),
    "rows, clipped": (of_rows(lazy), {}),
    "rows of parts, clipped": (of_rows(lazy), {"sharded": True}),
    "masked": (masked, {"ragged": True}),
    "tied": (tied, {}),
    "frozen": (frozen, {}),
    "frozen, in parts": (frozen, {"sharded": True}),
    "averaged": (averaged, {}),
    "bounded weights": (bounded_weights, {}),
    "two losses": (two_losses, {}),
    "recomputed": (recomputed, {}),
    "penalized gradients": (penalized, {}),
    "a loop": (by(lambda: optimizer.SGD(0.1), looped), {}),
    "a schedule": (by(lambda: optimizer.Adam(layers.noam_decay(16, 4))), {}),
    "a warm-up": (
        by(lambda: optimizer.SGD(layers.linear_lr_warmup(layers.cosine_decay(0.1, 2, 3), 2, 0.0, 0.1))), {},
    ),
    "a rate that is fed": (by(lambda: optimizer.SGD(fluid.data("rate", [1]))), {}),
    "layer_norm": (by(lambda: optimizer.SGD(0.1), layers.layer_norm), {}),
    "batch_norm": (by(lambda: optimizer.SGD(0.1), layers.batch_norm), {"sync_batch_norm": True}),
    "batch_norm, in parts": (
        by(lambda: optimizer.Momentum(0.1, 0.9, grad_clip=GLOBAL), layers.batch_norm),
        {"sync_batch_norm": True, "sharded": True},
    ),
}  # fmt: skip


def train(build, ranks, rank, options):
    """The trained parameters."""
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 7
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        build()
    rewrite = parallel.DataParallel(ranks, **options)
    twin = rewrite(main)
    rewrite.prepare(startup, twin)
    executor, scope = fluid.Executor(), fluid.Scope()
    executor.run(startup, scope=scope)
    names = [name for name, var in main.global_block().vars.items() if var.is_data]
    mine = slice(rank * ROWS // ranks, (rank + 1) * ROWS // ranks)
    for step in range(STEPS):
        feed = {name: SETTINGS[name] if name in SETTINGS else np.roll(BATCH[name], step, 0)[mine] for name in names}
        executor.run(twin, feed, [], scope=scope)
    return {each.name: np.array(scope.find_var(each.name).get_tensor()) for each in main.all_parameters()}


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("name", PROGRAMS)
def test_ranks_train_as_one(name, ranks):
    build, options = PROGRAMS[name]
    expected = train(build, 1, 0, options)
    for found in parallel.simulate(lambda rank: train(build, ranks, rank, options), ranks):
        for param, value in expected.items():
            np.testing.assert_allclose(found[param], value, rtol=1e-5, atol=2e-6, err_msg=param)


@pytest.mark.slow
@pytest.mark.parametrize("step", range(4))
def test_all_ranks_skip_the_step_in_which_one_overflows(step):
    """And lower the scale of the loss as one rank does, whichever sample it is."""

    def state(ranks, rank):
        main, startup = fluid.Program(), fluid.Program()
        main.random_seed = startup.random_seed = 7
        with fluid.program_guard(main, startup), fluid.unique_name.guard():
            by(lambda: mixed_precision.decorate(optimizer.SGD(0.1), decr_every_n_nan_or_inf=1))()
        twin = parallel.DataParallel(ranks)(main)
        executor, scope = fluid.Executor(), fluid.Scope()
        executor.run(startup, scope=scope)
        for number in range(4):
            feed = {name: BATCH[name].copy() for name in ("x", "y")}
            feed["x"][-1] *= 1e5 if number == step else 1.0
            mine = slice(rank * ROWS // ranks, (rank + 1) * ROWS // ranks)
            executor.run(twin, {name: array[mine] for name, array in feed.items()}, [], scope=scope)
        return [np.array(scope.find_var(name).get_tensor()) for name in ("loss_scaling_0", "w", "v")]

    expected = state(1, 0)
    assert expected[0] < 2.0**15
    for found in parallel.simulate(lambda rank: state(2, rank), 2):
        for one, another in zip(expected, found, strict=True):
            np.testing.assert_allclose(another, one, rtol=1e-3)
