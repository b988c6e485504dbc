"""Trainings with loops, branches and sequences, whose bits must not depend on the number of ranks."""

from functools import partial

import numpy as np
import pytest
from built_once import built_once

import minigraph as fluid
from minigraph import layers, parallel
from minigraph.errors import ProgramError
from minigraph.parallel import DataParallel
from minigraph.passes import ShardBatch

SHARDS, BATCH = 4, 16
pytestmark = pytest.mark.filterwarnings("ignore:each rank averages", "ignore:exact=True")


def dense():
    return layers.fc(fluid.data("x", [None, 4]), 4, act="tanh")


def table(level=1):
    return layers.embedding(fluid.data("words", [None, 1], "int64", lod_level=level), [30, 5], is_sparse=level == 2)


def counted(hidden, count, body):
    start = layers.fill_constant([1], "int64", 0)
    return layers.while_loop(lambda i, _: i < count, lambda i, value: [i + 1, body(value)], [start, hidden])[1]


def loop():
    return counted(dense(), 3, lambda x: layers.fc(x, 4, param_attr="w", act="tanh"))


def loops_with_one_counter():
    """The second loop starts the counter of the first one anew."""
    hidden, i = dense(), layers.fill_constant([1], "int64", 0)
    for steps in (2, 3):
        layers.fill_constant([1], "int64", 0, out=i)
        limit = layers.fill_constant([1], "int64", steps)
        holds = layers.less_than(i, limit)
        repeat = layers.While(holds)
        with repeat.block():
            layers.assign(layers.fc(hidden, 4, param_attr="w", act="tanh"), hidden)
            layers.increment(i)
            layers.less_than(i, limit, cond=holds)
    return hidden


def constant_written_over():
    """A factor that depends on no sample is another one for the second product."""
    hidden, factor = dense(), layers.fill_constant([1], "float32", 2.0)
    hidden = layers.tanh(hidden * factor)
    layers.assign(np.array([0.5], "float32"), factor)
    return hidden * factor


def loop_of_as_many_steps_as_samples_say():
    x = fluid.data("x", [None, 4])
    hidden, start = layers.fc(x, 4), layers.fill_constant([1], "float32", 0)
    limit = layers.reduce_max(layers.cast(layers.abs(x) * 2.0, "int64"))
    limit = layers.cast(limit, "float32")
    return layers.while_loop(lambda i, _: i < limit, lambda i, value: [i + 1, layers.tanh(value)], [start, hidden])[1]


def branch_in_a_loop():
    def body(x):
        return layers.cond(layers.reduce_sum(x) > 0.1, lambda: layers.fc(x, 4, param_attr="w"), lambda: layers.tanh(x))

    return counted(dense(), 2, body)


def branch():
    hidden = dense()
    return layers.cond(layers.reduce_sum(hidden) > 0.0, lambda: layers.fc(hidden, 4), lambda: -hidden)


def branch_of_the_same_choice():
    return chosen(dense(), lambda hidden: layers.fc(hidden, 4))


def chosen(hidden, body):
    return layers.cond(layers.fill_constant([1], "bool", True), lambda: body(hidden), lambda: -hidden)


def branches_of_rows():
    hidden = dense()
    chosen = layers.IfElse(layers.reduce_sum(hidden, 1, keep_dim=True) > 0.0)
    with chosen.true_block():
        chosen.output(layers.fc(chosen.input(hidden), 3, param_attr="w"))
    with chosen.false_block():
        chosen.output(layers.fc(chosen.input(hidden), 3, param_attr="u"))
    return chosen()[0]


def recurrence_of_unknown_length():
    outputs, _ = layers.rnn(layers.GRUCell(4), layers.reshape(fluid.data("x", [None, 4]), [-1, 2, 2])[:, :, :])
    return layers.reduce_sum(outputs, 1)


def pooled():
    return layers.sequence_pool(layers.sequence_conv(table(), 4), "max")


def long_memory():
    hidden, _ = layers.dynamic_lstm(layers.fc(table(), 16), 16)
    return layers.sequence_last_step(hidden)


def dynamic():
    words, network = table(), layers.DynamicRNN()
    with network.block():
        word, memory = network.step_input(words), network.memory(shape=[6], value=0.0)
        after = layers.fc([word, memory], 6, act="tanh")
        network.update_memory(memory, after)
        network.output(after)
    return layers.sequence_last_step(network())


def sentences_of_words():
    return layers.sequence_pool(layers.sequence_pool(table(2), "sum"), "average")


NETWORKS = [
    loop, loops_with_one_counter, constant_written_over, loop_of_as_many_steps_as_samples_say, branch_in_a_loop, branch,
    branch_of_the_same_choice, branches_of_rows, recurrence_of_unknown_length, pooled, long_memory, dynamic,
    sentences_of_words,
]  # fmt: skip
DECIDED_BY_SHARDS = [branch, branch_in_a_loop, loop_of_as_many_steps_as_samples_say]
"""Networks whose branches or loops depend on several samples: shards are another training than the whole batch."""


def built(make):
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 3
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        loss = layers.mean(layers.square(layers.fc(make(), 1)))
        fluid.optimizer.Adam(0.1, grad_clip=fluid.clip.GradientClipByGlobalNorm(0.1)).minimize(loss)
    return main, startup, loss


def fed(block, rank, ranks, step):
    rng, mine = np.random.default_rng(step), slice(rank * BATCH // ranks, (rank + 1) * BATCH // ranks)
    if block.has_var("x"):
        return {"x": rng.normal(size=(BATCH, 4)).astype("float32")[mine]}
    texts = [[rng.integers(0, 30, (length, 1)) for length in rng.integers(1, 5, 3)] for _ in range(BATCH)]
    words = [[len(sentence) for sentence in text] for text in texts[mine]]
    lengths = [[len(text) for text in words], [length for text in words for length in text]]
    if block.var("words").lod_level == 1:
        lengths = [[sum(text) for text in words]]
    rows = np.concatenate([sentence for text in texts[mine] for sentence in text])
    return {"words": fluid.create_lod_tensor(rows, lengths, fluid.CPUPlace())}


@built_once
def rewritten(make, ranks, **options):
    main, startup, loss = built(make)
    rewrite = DataParallel(ranks, **options)
    twin = rewrite(main)
    rewrite.prepare(startup, twin)
    return main, startup, twin, loss


def train(rank, ranks, make, **options):
    """Parameters after some steps, and the losses."""
    main, startup, twin, loss = rewritten(make, ranks, **options)
    executor, scope = fluid.Executor(), fluid.Scope()
    executor.run(startup, scope=scope)
    losses = [
        executor.run(twin, fed(main.global_block(), rank, ranks, step), [loss], scope=scope)[0] for step in range(3)
    ]
    return [np.array(scope.find_var(param.name).get_tensor()) for param in main.all_parameters()], np.array(losses)


@pytest.mark.slow
@pytest.mark.numbers
@pytest.mark.filterwarnings(r"ignore:\w+ makes \w+ of all samples")
@pytest.mark.parametrize("make", NETWORKS)
def test_every_number_of_ranks_gives_the_same_bits(make):
    expected, losses = train(0, 1, make, shards=SHARDS, exact=True)
    if make not in DECIDED_BY_SHARDS:
        alone = train(0, 1, make)
        for found, other in zip((*expected, losses), (*alone[0], alone[1]), strict=True):
            np.testing.assert_allclose(found, other, rtol=1e-4, atol=2e-6)
    for ranks, sharded in ((4, False), (2, True)):
        run = partial(train, ranks=ranks, make=make, shards=SHARDS, exact=True, sharded=sharded)
        for params, _ in parallel.simulate(run, ranks):
            assert [each.tobytes() for each in params] == [each.tobytes() for each in expected]


def loop_up_to_a_number_of_the_batch():
    x = fluid.data("x", [None, 4])
    limit = layers.reduce_max(layers.cast(layers.abs(x) * 2.0, "int64"))
    return counted(layers.fc(x, 4), limit, layers.tanh)


@pytest.mark.parametrize("options", [{"shards": 4, "exact": True}, {"ragged": True}, {}])
@pytest.mark.parametrize(
    ("make", "decides"),
    [
        (branch, "greater_than"), (branch_in_a_loop, "reduce_sum"), (loop_up_to_a_number_of_the_batch, "less_than"),
        (loop_of_as_many_steps_as_samples_say, "less_than"),
    ],
)  # fmt: skip
def test_what_several_samples_decide_is_named(make, decides, options):
    with pytest.warns(UserWarning, match=rf"{decides} makes \S+ of all samples"):
        DataParallel(2, **options)(built(make)[0])


@pytest.mark.slow
@pytest.mark.filterwarnings("error:.* of all samples")
@pytest.mark.parametrize("make", [loop, dynamic, recurrence_of_unknown_length, branches_of_rows])
def test_loops_over_steps_are_decided_by_no_other_samples(make):
    for options in ({"shards": 4, "exact": True}, {"ragged": True}):
        DataParallel(2, **options)(built(make)[0])


def test_a_mean_over_rows_of_sequences_is_named():
    def rows():
        return layers.fc(table(), 3)

    with pytest.warns(UserWarning, match=r"each shard averages mean_0.tmp_0 over its own samples"):
        DataParallel(2, shards=4, exact=True)(built(rows)[0])


def test_sequences_are_joined_again():
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        rows = table(2)
        shown, pool = layers.scale(rows, 2.0), layers.sequence_pool(rows, "sum")
        loss = layers.mean(layers.fc(layers.sequence_pool(pool, "sum"), 1))
        last = layers.scale(pool, 3.0)
        fluid.optimizer.SGD(0.0).minimize(loss)
    executor, feed = fluid.Executor(), fed(main.global_block(), 0, 1, 0)
    executor.run(startup)
    plain, divided = (
        executor.run(each, feed, [shown, last], return_numpy=False) for each in (main, ShardBatch(4)(main))
    )
    for found, expected in zip(divided, plain, strict=True):
        assert found.lod() == expected.lod()
        np.testing.assert_allclose(np.array(found), np.array(expected), rtol=1e-6)


def test_sequences_that_cannot_be_divided_are_named():
    main, startup, _ = built(pooled)
    twin = ShardBatch(4)(main)
    executor = fluid.Executor()
    executor.run(startup)
    feed = {"words": fluid.create_lod_tensor(np.zeros((8, 1), "int64"), [[3, 2, 3]], fluid.CPUPlace())}
    with pytest.raises(fluid.errors.MinigraphError, match="3 sequences cannot be divided into 4 equal shards"):
        executor.run(twin, feed)


def test_effects_in_blocks_are_refused():
    for put_in, type, where in [(partial(counted, count=2), "while", "loop"), (chosen, "conditional_block", "branch")]:
        main = built(lambda put_in=put_in: put_in(dense(), body=layers.Print))[0]
        why = f"cannot divide {type}: print in its block does more than"
        with pytest.raises(ProgramError, match=rf"{why}[\s\S]*Move it out of the {where}"):
            ShardBatch(2)(main)
