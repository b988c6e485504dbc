"""Random numbers of a loss that each rank draws for itself are named, because ranks then do not train as one."""

import re
import warnings

import numpy as np
import pytest

import minigraph as fluid
from minigraph import dygraph, layers
from minigraph.parallel import DataParallel, simulate


def labels():
    return fluid.data("label", [None, 1], "int64")


def looped(x):
    start = layers.fill_constant([1], "int64", 0)
    return layers.while_loop(
        lambda i, value: i < 3, lambda i, value: [i + 1, layers.dropout(value * 0.5, 0.3)], [start, x]
    )[1]


def stepped(x):
    network, words = layers.StaticRNN(), layers.transpose(layers.reshape(x, [-1, 3, 2]), [1, 0, 2])
    with network.step():
        word, memory = network.step_input(words), network.memory(shape=[-1, 2], batch_ref=words)
        network.update_memory(memory, layers.dropout(word + memory, 0.5, seed=5))
        network.step_output(memory)
    return network()


def by_chance(x):
    return layers.cond(layers.uniform_random([1], min=0.0, max=1.0) < 0.5, lambda: x * 1.0, lambda: x * 2.0)


DRAWING = {
    "dropout": lambda x: layers.dropout(x, 0.5),
    "dropout with a seed": lambda x: layers.dropout(x, 0.5, seed=5),
    "dropout of parameters": lambda x: x * layers.dropout(layers.create_parameter([6], "float32"), 0.5),
    "dropout in a loop": looped,
    "dropout with a seed in a step": stepped,
    "nce": lambda x: layers.nce(x, labels(), 12, num_neg_samples=3),
    "sample_logits": lambda x: layers.sampled_softmax_with_cross_entropy(x, labels(), 3),
    "random_crop": lambda x: layers.fc(layers.random_crop(x, [4]), 3),
    "shuffle_batch": lambda x: x * fluid.contrib.layers.shuffle_batch(x),
    "uniform_random": by_chance,
    "gaussian_random": lambda x: x + layers.gaussian_random([6]),
    "gaussian_random_batch_size_like": lambda x: x + layers.gaussian_random_batch_size_like(x, [-1, 6], seed=5),
    "sampling_id": lambda x: x * layers.cast(layers.reshape(layers.sampling_id(layers.softmax(x)), [-1, 1]), "float32"),
    "dropout, nce": lambda x: layers.nce(layers.dropout(layers.dropout(x, 0.5), 0.5), labels(), 12, num_neg_samples=3),
}
ALIKE = {
    "nothing": lambda x: x,
    "dropout of a test": lambda x: layers.dropout(x, 0.5, is_test=True),
    "dropout of nothing": lambda x: layers.dropout(x, 0.0),
    "noise with a seed": lambda x: x + layers.gaussian_random([6], seed=5),
    "dropout of parameters with a seed": lambda x: (
        x * layers.dropout(layers.create_parameter([6], "float32"), 0.5, seed=5)
    ),
    "what no loss reads": lambda x: layers.dropout(x, 0.5) and x,
}


def said(make, ranks=2, **options):
    """The warnings about random numbers."""
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        hidden = layers.fc(fluid.data("x", [None, 6]), 6)
        fluid.optimizer.SGD(0.1).minimize(layers.mean(make(hidden)))
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        DataParallel(ranks, **options)(main)
    return [str(each.message) for each in shown if "random numbers" in str(each.message)]


@pytest.mark.parametrize("name", DRAWING)
def test_what_each_rank_draws_for_itself_is_named_once(name):
    types = re.match(r"\w+(, \w+)*", name).group()
    for options in ({}, {"ragged": True}, {"sharded": True}):
        (text,) = said(DRAWING[name], **options)
        assert re.search(rf"the random numbers of {types} for itself.*exact=True.*created at .*test_drawing.py:", text)
    assert said(DRAWING[name], ranks=1) == []


@pytest.mark.parametrize("name", ALIKE)
def test_what_one_rank_draws_too_needs_no_word(name):
    assert said(ALIKE[name]) == []


@pytest.mark.parametrize("name", ["dropout", "dropout with a seed", "nce", "sample_logits", "random_crop"])
def test_draws_of_shards_are_those_on_every_number_of_ranks(name):
    assert said(DRAWING[name], exact=True) == []


def trained(layer=lambda x: layers.dropout(x, 0.5), places=2):
    """The warnings of a run on several places."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        loss = layers.mean(layer(layers.fc(fluid.data("x", [None, 6]), 6)))
        fluid.optimizer.SGD(0.1).minimize(loss)
    executor, scope = fluid.Executor(), fluid.Scope()
    executor.run(startup, scope=scope)
    compiled = fluid.CompiledProgram(main).with_data_parallel(loss.name, places=fluid.cpu_places(places))
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        for _ in range(2):
            executor.run(compiled, {"x": np.ones((4, 6), "float32")}, [loss], scope=scope)
    return [str(each.message) for each in shown if "random numbers" in str(each.message)]


@pytest.mark.slow
def test_what_each_place_draws_for_itself_is_named_once():
    (text,) = trained()
    assert re.search(r"each place draws the random numbers of dropout for itself.*parallel.DataParallel\(", text)
    assert trained(places=1) == trained(ALIKE["dropout of nothing"]) == trained(ALIKE["noise with a seed"]) == []


def imperative(layer, ranks=2):
    """The warnings of two steps of the imperative mode."""

    class Model(dygraph.Layer):
        def __init__(self):
            super().__init__()
            start = fluid.ParamAttr(initializer=fluid.initializer.Constant(0.5))
            self.linear = dygraph.Linear(6, 6, param_attr=start)

        def forward(self, x):
            return layer(self.linear(x))

    def run(rank):
        with dygraph.guard():
            model = dygraph.DataParallel(Model(), dygraph.prepare_context())
            for _ in range(2):
                loss = model.scale_loss(layers.mean(model(dygraph.to_variable(np.ones((4, 6), "float32")))))
                loss.backward()
                model.apply_collective_grads()
                model.clear_gradients()

    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        simulate(run, ranks)
    return [str(each.message) for each in shown if "random numbers" in str(each.message)]


@pytest.mark.parametrize("name", ["dropout", "dropout with a seed", "gaussian_random"])
def test_what_each_rank_draws_in_the_imperative_mode_is_named_once(name):
    said = imperative(DRAWING[name])
    assert len(said) == 2  # by each rank
    assert re.search(rf"the random numbers of {name.split()[0]} for itself.*created at .*test_drawing.py:", said[0])
    assert imperative(DRAWING[name], ranks=1) == []


@pytest.mark.parametrize("name", ["nothing", "dropout of a test", "dropout of nothing", "noise with a seed"])
def test_what_one_rank_draws_too_needs_no_word_in_the_imperative_mode(name):
    assert imperative(ALIKE[name]) == []
