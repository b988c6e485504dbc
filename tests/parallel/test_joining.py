"""Metrics with state are those of all ranks' samples in exact mode; state that can't be joined is named."""

from functools import partial

import numpy as np
import pytest
from built_once import built_once

import minigraph as fluid
from minigraph import layers, parallel
from minigraph.parallel import DataParallel

pytestmark = pytest.mark.filterwarnings("ignore:exact=True", "ignore:each rank averages")


def state(name, shape=(1,), dtype="float32"):
    return layers.create_global_var(list(shape), 0, dtype, persistable=True, name=name)


def area_under_curve(chances, labels, loss):
    layers.auc(chances, labels)


def area_of_last_steps(chances, labels, loss):
    layers.auc(layers.scale(chances, 0.5), labels, slide_steps=2, num_thresholds=50)


def counts(chances, labels, loss):
    """Of right answers and of all, as the evaluators of fluid keep them."""
    right, seen = (layers.create_tensor("int32") for _ in range(2))
    layers.accuracy(chances, labels, correct=right, total=seen)
    for name, count in [("right", right), ("seen", seen)]:
        total = state(name, dtype="int64")
        layers.assign(total + layers.cast(count, "int64"), total)


def running_loss(chances, labels, loss):
    kept = state("kept")
    layers.assign(0.9 * kept + 0.1 * layers.square(loss), kept)


def confusion(chances, labels, loss):
    """Sums over rows of products, which no operator of metrics makes."""
    matrix = state("matrix", (2, 2))
    guessed = layers.one_hot(layers.reshape(layers.argmax(chances, 1), [-1, 1]), 2)
    found = layers.matmul(layers.one_hot(labels, 2), guessed, transpose_x=True)
    layers.assign(matrix + found, matrix)


def several(chances, labels, loss):
    """Of which one reads what another keeps."""
    counts(chances, labels, loss)
    running_loss(chances, labels, loss)
    program = fluid.default_main_program().global_block()
    share = state("share", dtype="float64")
    layers.assign(layers.cast(program.var("right"), "float64") / layers.cast(program.var("seen"), "float64"), share)


METRICS = [area_under_curve, area_of_last_steps, counts, running_loss, confusion, several]


@built_once
def built(ranks, metric, is_behind, **options):
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 3
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        labels = fluid.data("y", [None, 1], "int64")
        chances = layers.softmax(layers.fc(layers.dropout(fluid.data("x", [None, 4]), 0.2), 2))
        loss = layers.mean(layers.cross_entropy(chances, labels))
        if not is_behind:
            metric(chances, labels, loss)
        fluid.optimizer.SGD(0.3).minimize(loss)
        if is_behind:
            metric(chances, labels, loss)
    rewrite = DataParallel(ranks, shards=8, exact=True, **options)
    twin = rewrite(main)
    rewrite.prepare(startup, twin)
    return main, startup, twin


def train(rank, ranks, metric, is_behind, **options):
    """The state after some steps, without the learning rate."""
    main, startup, twin = built(ranks, metric, is_behind, **options)
    executor, scope = fluid.Executor(), fluid.Scope()
    executor.run(startup, scope=scope)
    rng = np.random.default_rng(1)
    for _ in range(4):
        fed = {"x": rng.normal(size=(16, 4)).astype("float32"), "y": rng.integers(0, 2, (16, 1))}
        executor.run(twin, {name: np.split(array, ranks)[rank] for name, array in fed.items()}, scope=scope)
    kept = [var.name for var in main.list_vars() if var.persistable and "learning_rate" not in var.name]
    return {name: np.array(scope.find_var(name).get_tensor()).tobytes() for name in kept}


@pytest.mark.slow
@pytest.mark.parametrize("is_behind", [False, True])
@pytest.mark.parametrize("metric", METRICS)
def test_state_has_the_bits_of_one_rank(metric, is_behind, recwarn):
    expected = train(0, 1, metric, is_behind=is_behind)
    for ranks, options in [(2, {}), (4, {"sharded": True}), (8, {})]:
        run = partial(train, ranks=ranks, metric=metric, is_behind=is_behind, **options)
        for found in parallel.simulate(run, ranks):
            assert found == expected
    assert not [each for each in recwarn if "keeps" in str(each.message)]


def test_the_program_gathers_rows_and_averages_means():
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        labels = fluid.data("y", [None, 1], "int64")
        chances = layers.softmax(layers.fc(fluid.data("x", [None, 4]), 2))
        loss = layers.mean(layers.cross_entropy(chances, labels))
        several(chances, labels, loss)
        fluid.optimizer.SGD(0.3).minimize(loss)
    twin = DataParallel(2, exact=True)(main)
    parallel.verify(twin, ranks=2)  # statistics='global': nothing is of one rank
    ops = twin.global_block().ops
    assert [op.input("X") for op in ops.of_type("c_allgather")] == [["softmax_0.tmp_0"], ["y"]]
    (total,) = [op for op in ops.of_type("c_allreduce_sum") if op.input("X") == ["mean_0.tmp_0"]]
    (mean,) = [op for op in ops.of_type("scale") if op.input("X") == total.output("Out")]
    assert mean.attr("scale") == 0.5


def of_sequences(chances, labels, loss):
    words = fluid.data("words", [None, 1], "int64", lod_level=1)
    seen = state("seen", dtype="int64")
    layers.assign(
        seen + layers.cast(layers.reduce_sum(layers.sequence_pool(layers.cast(words, "float32"), "sum")), "int64"), seen
    )


def of_drawn_samples(chances, labels, loss):
    seen = state("seen")
    layers.assign(seen + layers.reduce_mean(layers.dropout(chances, 0.5)), seen)


@pytest.mark.parametrize("metric", [of_sequences, of_drawn_samples])
def test_what_cannot_be_joined_is_named(metric):
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        labels = fluid.data("y", [None, 1], "int64")
        chances = layers.softmax(layers.fc(fluid.data("x", [None, 4]), 2))
        loss = layers.mean(layers.cross_entropy(chances, labels))
        fluid.optimizer.SGD(0.3).minimize(loss)
        metric(chances, labels, loss)
    with pytest.warns(UserWarning, match="assign keeps seen of a rank's own samples: add counts up"):
        DataParallel(2, exact=True)(main)
