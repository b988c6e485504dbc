"""Ranks with different numbers of samples train like one rank with all of them."""

from itertools import pairwise

import numpy as np
import pytest
from built_once import built_once

import minigraph as fluid
from minigraph import layers, parallel
from minigraph.parallel import DataParallel

RNG = np.random.default_rng(3)
ROWS = RNG.normal(size=(11, 6))
TARGETS = RNG.normal(size=(11, 1))
MASK = (RNG.uniform(size=(11, 1)) < 0.7).astype("float64")
MASK[5] = 0.0  # the only row of a rank


def count(mask):
    return layers.reduce_sum(mask)


def one():
    return layers.fill_constant([1], "float64", 1.0)


def by(divisor):
    return lambda each, mask: layers.reduce_sum(each * mask) / divisor(mask)


def overlap(each, mask):
    """The loss of the Dice coefficient, in which gradients flow into both sums."""
    chance = layers.sigmoid(each)
    return 1.0 - (layers.reduce_sum(chance * mask) * 2.0 + 0.1) / (layers.reduce_sum(chance) + count(mask) + 0.1)


def weighted(each, mask):
    weights = layers.sigmoid(each)
    return layers.reduce_sum(each * weights) / layers.reduce_sum(weights)


def error(x, y):
    hidden = layers.fc(x, 5, param_attr=start("w", 6, 5), bias_attr=False, act="tanh")
    return layers.square_error_cost(layers.fc(hidden, 1, param_attr=start("v", 5, 1), bias_attr=False), y)


def start(name, *shape):
    value = np.sin(np.arange(np.prod(shape))).reshape(shape)
    return fluid.ParamAttr(name, initializer=fluid.initializer.NumpyArrayInitializer(value))


def penalty(each, mask):
    """The mean with a penalty for gradients of another length than 1, as of WGAN-GP."""
    hidden = each.block.var("fc_0.tmp_1")
    (gradient,) = fluid.gradients(each, hidden)
    length = layers.reduce_sum(layers.square(gradient), dim=1)
    return layers.mean(each) + layers.mean(layers.square(length - 1.0))


def rate():
    return fluid.data("rate", [1], "float64")


def learned():
    main = fluid.default_main_program().global_block()
    if main.has_var("s"):
        return main.var("s")
    return layers.create_parameter([1], "float64", "s", default_initializer=fluid.initializer.Constant(0.1))


def turned(each):
    """Samples along the second dimension, as recurrent networks have them."""
    return layers.transpose(each, [1, 0])


def columns(x):
    return layers.cast(layers.slice(layers.shape(x), axes=[0], starts=[1], ends=[2]), "float64")


def normalized(each, mask):
    """By statistics of the batch, which are written out."""
    apart = layers.tanh(each) - layers.mean(layers.tanh(each))
    return layers.mean(layers.square(apart / layers.sqrt(layers.mean(layers.square(apart)) + 0.1) - mask))


LOSSES = {
    "mean": lambda each, mask: layers.mean(each),
    "reduce_mean": lambda each, mask: layers.reduce_mean(each),
    "over the first dimension": lambda each, mask: layers.reduce_sum(layers.reduce_mean(each, dim=[0])),
    "means of two counts": lambda each, mask: layers.mean(each) + layers.mean(layers.concat([each, each * 2.0])),
    "of rows, then of all": lambda each, mask: layers.mean(layers.reduce_mean(each, dim=[1])),
    "divided by how many count": lambda each, mask: layers.reduce_sum(each * mask) / layers.reduce_sum(mask),
    "means of what counts": lambda each, mask: layers.mean(each * mask) / layers.mean(mask),
    "means and a small number": lambda each, mask: layers.mean(each * mask) / (layers.mean(mask) + 1e-3),
    "rows by how many count": lambda each, mask: layers.reduce_sum(each * mask / layers.reduce_sum(mask)),
    "a count and a number": by(lambda mask: count(mask) + 0.5),
    "a number and a count": by(lambda mask: one() + count(mask)),
    "one at least": by(lambda mask: layers.elementwise_max(count(mask), one())),
    "bounds of a count": by(lambda mask: layers.clip(count(mask), 1.0, 100.0)),
    "half a count": by(lambda mask: count(mask) / 2.0 + 1.0),
    "two counts": by(lambda mask: layers.sums([count(mask), count(1.0 - mask)])),
    "a count of integers": by(
        lambda mask: layers.cast(
            layers.elementwise_max(count(layers.cast(mask, "int64")), layers.fill_constant([1], "int64", 1)), "float64"
        )
    ),
    "bounds of a mean": lambda each, mask: layers.mean(each * mask) / layers.clip(layers.mean(mask), 0.9, 1.0),
    "a number in the dividend": lambda each, mask: (layers.reduce_sum(each * mask) + 1.0) / (count(mask) + 1.0),
    "rows by a bounded count": lambda each, mask: layers.reduce_sum(
        each * mask / layers.elementwise_max(count(mask), one())
    ),
    "two that count": lambda each, mask: (
        by(lambda mask: count(mask) + 1.0)(each, mask) + by(lambda mask: count(mask) + 1.0)(each, 1.0 - mask)
    ),
    "learned weights": weighted,
    "an overlap": overlap,
    "a penalty of gradients": penalty,
    "times one over a count": lambda each, mask: layers.reduce_sum(each * mask) * (1.0 / count(mask)),
    "times a reciprocal": lambda each, mask: layers.reduce_sum(each * mask) * layers.reciprocal(count(mask) + 1.0),
    "times a power": lambda each, mask: layers.reduce_sum(each * mask) * layers.pow(count(mask) + 1.0, -1.0),
    "rows times one over a count": lambda each, mask: layers.reduce_sum(each * mask * (1.0 / count(mask))),
    "weights that add up to one": lambda each, mask: layers.reduce_sum(each * (mask / count(mask))),
    "a fed number and a count": by(lambda mask: count(mask) + rate()),
    "a mean by a fed number": lambda each, mask: layers.mean(each) / rate() * (1.0 + rate()),
    "two divisors": lambda each, mask: layers.reduce_sum(each * mask) / count(mask) / (count(1.0 - mask) + 1.0),
    "classes balanced by their shares": lambda each, mask: layers.mean(
        each * (mask * (1.0 - layers.mean(mask)) + (1.0 - mask) * layers.mean(mask))
    ),
    "a share": lambda each, mask: layers.mean(each) * layers.mean(mask),
    "by a maximum": lambda each, mask: layers.mean(each) / layers.reduce_max(mask + 1.0),
    "a sum": lambda each, mask: layers.reduce_sum(each) * 0.1,
    "a sum and a mean": lambda each, mask: layers.reduce_sum(each) * 0.1 + layers.mean(each),
    "the root of a mean": lambda each, mask: layers.sqrt(layers.mean(each)),
    "a product of means": lambda each, mask: layers.mean(each) * layers.mean(each * mask),
    "the greatest": lambda each, mask: layers.reduce_max(each),
    "a learned weight of tasks": lambda each, mask: (
        layers.mean(each) * layers.exp(-1.0 * learned()) + layers.reduce_sum(each * mask) / count(mask) + learned()
    ),
    "beyond a mean of targets": lambda each, mask: layers.mean(layers.relu(each - layers.mean(mask))),
    "beyond their own mean": lambda each, mask: layers.mean(layers.square(each - layers.mean(each))),
    "rows by learned weights": lambda each, mask: layers.reduce_sum(
        each * layers.sigmoid(each) / layers.reduce_sum(layers.sigmoid(each))
    ),
    "normalized by the batch": normalized,
    "a divergence": lambda each, mask: layers.kldiv_loss(layers.logsigmoid(each), mask * 0.5 + 0.1, "batchmean"),
    "likelihoods of columns": lambda each, mask: layers.reduce_sum(
        layers.reduce_sum(layers.concat([each, each * mask], 1), dim=0)
        / layers.reduce_sum(layers.concat([mask, 1.0 - mask], 1), dim=0)
    ),
    "one row of the batch": lambda each, mask: (
        layers.log(layers.reduce_sum(layers.exp(each * 0.1))) - layers.mean(each * mask)
    ),
    "means of samples in columns": lambda each, mask: layers.mean(layers.reduce_mean(turned(each), dim=[0])),
    "sums of samples in columns": lambda each, mask: layers.mean(
        layers.square(layers.reduce_sum(turned(each), dim=[0]))
    ),
    "over samples in columns": lambda each, mask: layers.reduce_sum(layers.reduce_mean(turned(each), dim=[1])),
    "the number of columns": lambda each, mask: layers.reduce_sum(turned(each)) / columns(turned(each)),
    "with a decay": lambda each, mask: (
        layers.mean(each) + layers.reduce_sum(layers.square(each.block.program.global_block().var("w")))
    ),
}


@built_once
def built(name, ranks, sharded, passes):
    """The programs of a training by one backward pass, or by one for each parameter, and its loss."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x, y, mask = (fluid.data(each, [None, size], "float64") for each, size in (("x", 6), ("y", 1), ("mask", 1)))
        loss = LOSSES[name](error(x, y), mask)
        clip = fluid.clip.GradientClipByGlobalNorm(30.0)
        for params in (["w", "v"],) if passes == 1 else (["w"], ["v"]):
            fluid.optimizer.Momentum(0.1, 0.9, grad_clip=clip).minimize(loss, parameter_list=params)
    rewrite = DataParallel(ranks, ragged=True, sharded=sharded)
    twin = rewrite(main)
    rewrite.prepare(startup, twin)
    return main, startup, twin, loss


def train(name, rows, ranks, sharded=False, passes=1):
    """The weights after three steps with some of the rows."""
    main, startup, twin, loss = built(name, ranks, sharded, passes)
    executor, scope = fluid.Executor(), fluid.Scope()
    executor.run(startup, scope=scope)
    feed = {"x": ROWS[rows], "y": TARGETS[rows], "mask": MASK[rows], "rate": np.full(1, 0.3)}
    for _ in range(3):
        executor.run(twin, {key: feed[key] for key in feed if main.global_block().has_var(key)}, [loss], scope=scope)
    return [np.array(scope.find_var(p.name).get_tensor()) for p in main.all_parameters()]


@pytest.mark.laws
@pytest.mark.filterwarnings("error:.*no mean over samples")
@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("name", LOSSES)
def test_ragged_ranks_train_as_one(name, ranks):
    alone = train(name, slice(None), 1)
    bounds = [0, 5, 6, 9, 11] if ranks == 4 else [0, 3, 11]
    parts = [slice(*pair) for pair in pairwise(bounds)]
    for params in parallel.simulate(lambda rank: train(name, parts[rank], ranks, sharded=ranks == 4), ranks):
        for param, expected in zip(params, alone, strict=True):
            np.testing.assert_allclose(param, expected, rtol=1e-6, atol=1e-9)


def test_without_it_a_warning_names_the_mean():
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        loss = layers.mean(layers.fc(fluid.data("x", [None, 2]), 1))
        fluid.optimizer.SGD(0.1).minimize(loss)
    with pytest.warns(UserWarning, match="each rank averages mean_0.tmp_0 over its own samples"):
        DataParallel(2)(main)


@pytest.mark.laws
@pytest.mark.filterwarnings("ignore:the gradients of .* are appended a second time")
@pytest.mark.parametrize("name", ["mean", "one at least"])
def test_every_backward_pass_is_weighted(name):
    alone = train(name, slice(None), 1, passes=2)
    parts = [slice(0, 3), slice(3, 11)]
    for params in parallel.simulate(lambda rank: train(name, parts[rank], 2, passes=2), 2):
        for param, expected in zip(params, alone, strict=True):
            np.testing.assert_allclose(param, expected, rtol=1e-6, atol=1e-9)
