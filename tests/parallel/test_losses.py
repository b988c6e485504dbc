"""Losses that are no means over samples are named, because ranks with their own samples do not train as one."""

import re
import warnings

import pytest

import minigraph as fluid
from minigraph import layers
from minigraph.parallel import DataParallel

MEANS = {
    "mean": lambda each, mask: layers.mean(each),
    "of rows, then of all": lambda each, mask: layers.mean(layers.reduce_sum(each, dim=1)),
    "over the first dimension": lambda each, mask: layers.mean(layers.reduce_mean(each, dim=[0])),
    "with a decay": lambda each, mask: layers.mean(each) * 2.0 + layers.reduce_sum(layers.square(weight())),
    "of several": lambda each, mask: layers.sums([layers.mean(each), layers.scale(layers.mean(mask), 0.1, bias=1.0)]),
    "sum by a count": lambda each, mask: layers.reduce_sum(each * mask) / (layers.reduce_sum(mask) + 1e-6),
    "rows by a count": lambda each, mask: layers.reduce_sum(each / layers.reduce_sum(mask)),
    "means by a count": lambda each, mask: layers.mean(each * mask) / layers.mean(mask),
    "sum by at least one": lambda each, mask: (
        layers.reduce_sum(each * mask) / layers.clip(layers.reduce_sum(mask), 1.0, 1e6)
    ),
    "by the batch": lambda each, mask: layers.reduce_sum(each) / layers.cast(layers.shape(each)[0], "float32"),
    "divergence": lambda each, mask: layers.kldiv_loss(each, mask, "batchmean"),
    "of reshaped rows": lambda each, mask: layers.mean(layers.reshape(layers.softmax(each), [-1])),
}
SUMS = {
    "sum": lambda each, mask: layers.reduce_sum(each),
    "scaled sum": lambda each, mask: layers.reduce_sum(each) * (1.0 / 16),
    "rows by a mean": lambda each, mask: layers.reduce_sum(each / layers.mean(mask)),
    "mean of sums": lambda each, mask: layers.mean(layers.reduce_sum(each, dim=0)),
}
OTHERS = {
    "sqrt": lambda each, mask: layers.sqrt(layers.mean(each)),
    "reduce_max": lambda each, mask: layers.reduce_max(each),
    "elementwise_sub": lambda each, mask: layers.mean(layers.square(each - layers.mean(each))),
    "matmul": lambda each, mask: layers.mean(layers.matmul(each, each, transpose_y=True)),
    "softmax": lambda each, mask: layers.mean(layers.softmax(each, axis=0) * mask),
    "elementwise_mul": lambda each, mask: layers.mean(each) * layers.mean(mask),
    "clip": lambda each, mask: layers.reduce_sum(each * mask) / layers.clip(layers.reduce_sum(each), 1.0, 1e6),
    "mean": lambda each, mask: layers.mean(each / layers.reduce_sum(mask)),
    "greater_than": lambda each, mask: layers.mean(
        layers.cond(layers.reduce_sum(each) > 1.0, lambda: each, lambda: each * 0.5)
    ),
}
STILL_MIXED = ("matmul", "softmax", "greater_than")
"""What `ragged=True` does not mend: each sample sees the others, or a branch does."""


def weight():
    return fluid.default_main_program().global_block().var("w")


def training(make):
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        x, mask = fluid.data("x", [None, 3]), fluid.data("mask", [None, 1])
        each = layers.square(layers.fc(x, 1, param_attr="w", bias_attr=False))
        fluid.optimizer.SGD(0.1).minimize(make(each, mask))
    return main


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", MEANS)
def test_means_over_samples_are_taken_as_they_are(name):
    DataParallel(2, ragged=True)(training(MEANS[name]))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", SUMS)
def test_sums_over_samples_are_named_where_the_gradient_is_divided(name):
    with pytest.warns(UserWarning, match=r"the loss .* adds up samples"):
        DataParallel(2)(training(SUMS[name]))
    DataParallel(2, scales_loss=False, ragged=True)(training(SUMS[name]))
    DataParallel(1)(training(SUMS[name]))


@pytest.mark.parametrize("name", OTHERS)
def test_what_mixes_samples_is_named(name):
    with pytest.warns(UserWarning, match=rf"{name} makes .* of all samples of a rank.*test_losses.py:") as shown:
        DataParallel(2)(training(OTHERS[name]))
    assert ("or say DataParallel(..., ragged=True)" in str(shown[0].message)) == (name not in STILL_MIXED)


@pytest.mark.parametrize("name", STILL_MIXED)
def test_what_compares_samples_with_each_other_is_named_for_ragged_ranks(name):
    with pytest.warns(UserWarning, match=rf"{name} makes .* of all samples of a rank.*test_losses.py:"):
        DataParallel(2, ragged=True)(training(OTHERS[name]))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", sorted(OTHERS.keys() - set(STILL_MIXED)))
def test_values_of_all_ranks_need_no_warning(name):
    DataParallel(2, ragged=True)(training(OTHERS[name]))


def test_shards_that_count_are_named():
    with pytest.warns(UserWarning, match=r"each shard averages tmp_2 over its own samples"):
        DataParallel(1, shards=4, exact=True)(training(MEANS["sum by a count"]))


def test_shards_that_select_rows_are_named():
    def of_some(each, mask):
        return layers.mean(layers.gather(each, layers.slice(layers.where(mask > 0.5), [1], [0], [1])))

    with pytest.warns(UserWarning, match=r"each shard averages mean_0.tmp_0 over its own samples"):
        DataParallel(1, shards=4, exact=True)(training(of_some))


STATISTICS = {
    "batch_norm normalizes batch_norm_0.tmp_2 by statistics of a rank's own": lambda hidden, label: layers.batch_norm(
        hidden
    ),
    "batch_norm normalizes inplace_abn_0.tmp_2 by statistics of a rank's own": lambda hidden, label: layers.reshape(
        layers.inplace_abn(layers.reshape(hidden, [-1, 2, 1, 1])), [-1, 2]
    ),
    "center_loss keeps center_loss_0.w_0 of a rank's own samples": lambda hidden, label: layers.center_loss(
        hidden, label, 2, 0.1, fluid.initializer.Constant(0.0)
    ),
    "auc keeps .* of a rank's own samples": lambda hidden, label: (
        layers.softmax(hidden) + 0.0 * layers.cast(layers.auc(layers.softmax(hidden), label)[0], "float32")
    ),
}
OF_SINGLE_SAMPLES = {
    "batch_norm of a test": lambda hidden: layers.batch_norm(hidden, is_test=True),
    "batch_norm by running statistics": lambda hidden: layers.batch_norm(hidden, use_global_stats=True),
    "data_norm": layers.data_norm,
    "layer_norm": layers.layer_norm,
    "group_norm": lambda hidden: layers.group_norm(layers.reshape(hidden, [-1, 2, 1, 1]), 2),
    "instance_norm": lambda hidden: layers.instance_norm(layers.reshape(hidden, [-1, 1, 2, 1])),
    "spectral_norm": lambda hidden: layers.matmul(
        hidden, layers.spectral_norm(layers.create_parameter([2, 2], "float32"))
    ),
    "accuracy": lambda hidden: (
        layers.accuracy(layers.softmax(hidden), layers.cast(hidden[:, :1] > 0.0, "int64")) and hidden
    ),
}


def network(make):
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        hidden = layers.fc(fluid.data("x", [None, 6]), 2)
        fluid.optimizer.SGD(0.1).minimize(layers.mean(make(hidden)))
    return main


def said(make, ranks=2, **options):
    """The warnings about statistics and state."""
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        DataParallel(ranks, **options)(network(make))
    return [str(each.message) for each in shown if "of a rank's own samples" in str(each.message)]


@pytest.mark.parametrize("message", STATISTICS)
def test_statistics_and_state_of_one_rank_are_named(message):
    def make(hidden):
        return STATISTICS[message](hidden, fluid.data("label", [None, 1], "int64"))

    for options in ({}, {"ragged": True}):
        (text,) = said(make, **options)
        assert re.search(rf"^{message}.*created at .*test_losses.py:", text)
    assert said(make, ranks=1) == []


@pytest.mark.parametrize("name", OF_SINGLE_SAMPLES)
def test_what_each_sample_has_for_itself_needs_no_word(name):
    for options in ({}, {"ragged": True}):
        assert said(OF_SINGLE_SAMPLES[name], **options) == []


def test_statistics_of_shards_are_those_on_every_number_of_ranks():
    assert said(layers.batch_norm, exact=True) == []
