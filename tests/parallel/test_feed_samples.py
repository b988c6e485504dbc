"""Feeds of which several dimensions have an unknown size."""

import pytest

import minigraph as fluid
from minigraph import layers
from minigraph.parallel import DataParallel
from minigraph.parallel.feeds import describe_feeds

pytestmark = pytest.mark.filterwarnings("ignore:each rank averages")


def classified(hidden):
    scores = layers.fc(hidden, 3)
    return layers.mean(layers.softmax_with_cross_entropy(scores, fluid.data("y", [None, 1], "int64")))


def steps_first():
    x = fluid.data("x", [None, None, 5])
    return classified(layers.reduce_mean(layers.fc(x, 4, num_flatten_dims=2), 0))


def steps_first_with_mask():
    x, mask = fluid.data("x", [None, None, 5]), fluid.data("mask", [None, None])
    return classified(layers.reduce_sum(layers.fc(x, 4, num_flatten_dims=2) * layers.unsqueeze(mask, [2]), 0))


def samples_first():
    x = fluid.data("x", [None, None, 5])
    return classified(layers.reduce_mean(layers.fc(x, 4, num_flatten_dims=2), 1))


def number_of_steps_is_declared():
    x = fluid.data("x", [4, None, 5])
    return classified(layers.reduce_mean(layers.fc(x, 4, num_flatten_dims=2), 0))


def tokens():
    """Which of the two dimensions has the samples does not matter."""
    words, following = (fluid.data(name, [None, None], "int64") for name in ("words", "following"))
    scores = layers.fc(fluid.embedding(words, [30, 6]), 30, num_flatten_dims=2)
    return layers.mean(layers.softmax_with_cross_entropy(scores, layers.unsqueeze(following, [2])))


def images():
    x = fluid.data("x", [None, 3, None, None])
    return classified(layers.reduce_mean(layers.conv2d(x, 4, 3), [2, 3]))


def built(make):
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        fluid.optimizer.SGD(0.1).minimize(make())
    return main


@pytest.mark.parametrize(
    ("make", "named"),
    [(steps_first, "dimension 1 of x, where"), (steps_first_with_mask, "dimension 1 of x, dimension 1 of mask, where")],
)
def test_feeds_whose_first_unknown_dimension_has_no_samples_are_named(make, named):
    with pytest.warns(UserWarning, match=f"samples lie along {named}.*declare the size of the other one"):
        DataParallel(2)(built(make))


@pytest.mark.parametrize("make", [samples_first, number_of_steps_is_declared, tokens, images])
def test_other_feeds_are_not(make):
    assert describe_feeds(built(make)) is None
