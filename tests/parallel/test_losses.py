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
    "scaled sum": lambda each, mask: layers.reduce_sum(each) * (1.0 / 20),
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
BATCH = 8
"""Size of a batch that is declared: equal to no other dimension."""
STILL_MIXED = ("matmul", "softmax", "greater_than")
"""What `ragged=True` does not mend: each sample sees the others, or a branch does."""


def weight():
    return fluid.default_main_program().global_block().var("w")


def training(make, batch=None):
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        x, mask = fluid.data("x", [batch, 3]), fluid.data("mask", [batch, 1])
        each = layers.square(layers.fc(x, 1, param_attr="w", bias_attr=False))
        fluid.optimizer.SGD(0.1).minimize(make(each, mask))
    return main


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("batch", [None, BATCH])
@pytest.mark.parametrize("name", MEANS)
def test_means_over_samples_are_taken_as_they_are(name, batch):
    DataParallel(2, ragged=True)(training(MEANS[name], batch))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("batch", [None, BATCH])
@pytest.mark.parametrize("name", SUMS)
def test_sums_over_samples_are_named_where_the_gradient_is_divided(name, batch):
    with pytest.warns(UserWarning, match=r"the loss .* adds up samples"):
        DataParallel(2)(training(SUMS[name], batch))
    DataParallel(2, scales_loss=False, ragged=True)(training(SUMS[name], batch))
    DataParallel(1)(training(SUMS[name], batch))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("by", [BATCH, 3 * BATCH])
def test_a_sum_that_is_divided_by_a_fixed_number_of_samples_is_a_mean(by):
    DataParallel(2)(training(lambda each, mask: layers.reduce_sum(each) / float(by), BATCH))


DIVISIONS = {
    "scale": lambda loss: loss / 2.0,
    "elementwise_div": lambda loss: loss / layers.fill_constant([1], "float32", 2.0),
    "elementwise_mul": lambda loss: layers.elementwise_mul(loss, layers.fill_constant([1], "float32", 0.5)),
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("type", DIVISIONS)
def test_a_loss_that_is_divided_by_hand_is_named(type):
    main = training(lambda each, mask: DIVISIONS[type](layers.mean(each)), BATCH)
    with pytest.warns(UserWarning, match=rf"{type} divides the loss .* by 2, .* once more.*test_losses.py:"):
        twin = DataParallel(2)(main)
    # 1.8.5's transpiler divides once more as well: by scale in place, then by the gradient of the user's scale.
    ops = [op.type for op in twin.global_block().ops if op.role & 1]
    assert ops[1] == "scale"
    assert type != "scale" or ops[:4] == ["fill_constant", "scale", "scale", "mean_grad"]
    DataParallel(4)(main)
    DataParallel(2, scales_loss=False)(main)
    DataParallel(1)(main)


@pytest.mark.filterwarnings("error")
def test_ranks_with_a_fixed_number_of_samples_have_as_many_each():
    DataParallel(2)(training(MEANS["of rows, then of all"], BATCH))
    with pytest.warns(UserWarning, match="each rank averages tmp_2 over its own samples.*divide by a constant, or say"):
        DataParallel(2)(training(MEANS["sum by a count"], BATCH))


@pytest.mark.parametrize("batch", [None, BATCH])
@pytest.mark.parametrize("name", OTHERS)
def test_what_mixes_samples_is_named(name, batch):
    with pytest.warns(UserWarning, match=rf"{name} makes .* of all samples of a rank.*test_losses.py:") as shown:
        DataParallel(2)(training(OTHERS[name], batch))
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
    "random_crop": lambda hidden: hidden + layers.random_crop(hidden, [1]),
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


MIXING = {
    "softmax": lambda x: layers.softmax(turned(x)),
    "softmax along the first": lambda x: layers.softmax(x, axis=0),
    "softmax in a line": lambda x: layers.softmax(layers.reshape(x, [1, -1])),
    "cumsum": lambda x: layers.cumsum(turned(x), axis=1),
    "argsort": lambda x: layers.argsort(turned(x), axis=-1)[0],
    "top_k": lambda x: layers.topk(turned(x), 1)[0],
    "norm": lambda x: layers.l2_normalize(turned(x), axis=1),
    "layer_norm": lambda x: layers.layer_norm(turned(x), scale=False, shift=False),
    "reverse": lambda x: x * layers.reverse(x, 0),
    "reverse columns": lambda x: turned(x) * layers.reverse(turned(x), 1),
    "roll": lambda x: x * appended("roll", x, shifts=[1], dims=[0]),
    "flip": lambda x: x * appended("flip", x, dims=[0]),
    "shuffle_batch": lambda x: x * fluid.contrib.layers.shuffle_batch(x),
    "slice": lambda x: x - layers.slice(x, [0], [0], [1]),
    "split": lambda x: layers.elementwise_mul(*layers.split(x, 2, 0)),
    "pad": lambda x: layers.pad(x, [1, 0, 0, 0]),
    "elementwise_sub": lambda x: layers.unsqueeze(x, [0]) - layers.unsqueeze(x, [1]),
    "matmul": lambda x: layers.matmul(turned(x), turned(x), transpose_x=True),
    "matmul over samples": lambda x: layers.matmul(x, layers.matmul(x, x, transpose_x=True)),
    "matmul of steps": lambda x: layers.matmul(steps(x), steps(x), transpose_y=True),
    "matmul of pairs": lambda x: layers.npair_loss(x, x, fluid.data("labels", [8], "int64")),
    "reduce_max": lambda x: steps(x) - layers.reduce_max(steps(x), dim=[1], keep_dim=True),
}
APART = {
    "softmax": layers.softmax,
    "softmax of columns": lambda x: layers.softmax(turned(x), axis=0),
    "cumsum": lambda x: layers.cumsum(turned(x), axis=0),
    "top_k": lambda x: x - layers.topk(x, 1)[0],
    "reverse": lambda x: turned(x) * layers.reverse(turned(x), 0),
    "roll": lambda x: x * appended("roll", x, shifts=[1], dims=[1]),
    "slice": lambda x: steps(x) - layers.slice(steps(x), [0], [0], [1]),
    "split": lambda x: layers.elementwise_mul(*layers.split(x, 2, 1)),
    "two batches in one": lambda x: layers.elementwise_mul(
        *layers.split(layers.tanh(layers.concat([x, x * 2.0])), 2, 0)
    ),
    "matmul": lambda x: layers.matmul(layers.reshape(x, [-1, 2, 2]), layers.reshape(x, [-1, 2, 2])),
    "matmul by weights": lambda x: layers.matmul(x, layers.create_parameter([4, 3], "float32")),
    "weights of features": lambda x: layers.elementwise_mul(x, layers.create_parameter([4], "float32"), axis=1),
    "reduce_max": lambda x: steps(x) - layers.reduce_max(steps(x), dim=[0], keep_dim=True),
}


def turned(x):
    """Samples along the second dimension."""
    return layers.transpose(x, [1, 0])


def steps(x):
    """Samples along the second of three dimensions, as recurrent networks have them."""
    return layers.transpose(layers.reshape(x, [-1, 2, 2]), [1, 0, 2])


def appended(type, x, **attrs):
    out = x.block.create_var(name=f"{type}.out")
    x.block.append_op(type, {"X": x}, {"Out": out}, attrs)
    return out


def mixing(make, batch=None):
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        hidden = layers.fc(fluid.data("x", [batch, 6]), 4)
        fluid.optimizer.SGD(0.1).minimize(layers.mean(layers.square(make(hidden))))
    return main


@pytest.mark.parametrize("batch", [None, BATCH])
@pytest.mark.parametrize("name", MIXING)
def test_samples_that_see_each_other_are_named_wherever_they_lie(name, batch):
    with pytest.warns(UserWarning, match=rf"^{name.split()[0]} makes .* of all samples of a rank.*test_losses.py:"):
        DataParallel(2)(mixing(MIXING[name], batch))


@pytest.mark.parametrize("name", sorted(MIXING.keys() - {"reduce_max"}))
def test_they_are_named_for_ragged_ranks_too(name):
    with pytest.warns(UserWarning, match=rf"^{name.split()[0]} makes .* of all samples of a rank"):
        DataParallel(2, ragged=True)(mixing(MIXING[name]))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("batch", [None, BATCH])
@pytest.mark.parametrize("name", APART)
def test_what_each_sample_makes_of_itself_needs_no_warning(name, batch):
    DataParallel(2, ragged=True)(mixing(APART[name], batch))
