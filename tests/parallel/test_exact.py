"""Trainings with `exact=True` have the same bits on any number of ranks."""

import re
from functools import cache, partial

import numpy as np
import pytest
from built_once import built_once
from exact_trainings import BOTH, FEW, NETWORKS, SHORT, built, train
from pass_laws import assert_linear
from test_launch import HERE, launched, needs_mpi

import minigraph as fluid
from minigraph import layers, parallel
from minigraph.errors import ProgramError
from minigraph.parallel import DataParallel
from minigraph.passes import ShardBatch


@pytest.mark.slow
@pytest.mark.numbers
@pytest.mark.parametrize("name", NETWORKS)
def test_every_number_of_ranks_gives_the_same_bits(name):
    expected = train(built(name, 1), 0, 1, BOTH[name])
    few, many = SHORT[name], BOTH[name]
    for sharded, ranks, marks in [(False, 2, many), (False, 4, few), (False, 8, many), (True, 1, few), (True, 4, few)]:
        programs = built(name, ranks, sharded)
        found = parallel.simulate(partial(train, programs, ranks=ranks, marks=marks), ranks)
        assert found == [expected[: len(marks)]] * ranks, (ranks, sharded)


@cache
def launched_digests(ranks, *arguments):
    """Lines that each rank of a launch prints; one thread, so that products of one size have the same bits."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENBLAS_NUM_THREADS", "1")
        status, output, errors, _ = launched(ranks, HERE / "exact_trainings.py", *arguments)
    assert status == 0, errors
    return [sorted(re.findall(rf"^\[{rank}\] (.*)", output, re.MULTILINE)) for rank in range(ranks)]


@needs_mpi
@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 4])
def test_ranks_that_mpi_connects_give_the_same_bits(ranks):
    (expected,) = launched_digests(1, "both")
    networks = NETWORKS if ranks == 2 else FEW
    expected = [line for line in expected if line.split()[1] == "10" and line.split()[0] in networks]
    assert len(expected) == len(networks)
    # With whole state and with sharded state in one launch: a rank takes long to start.
    assert launched_digests(ranks, "short" if ranks == 2 else "few", "sharded") == [sorted(2 * expected)] * ranks


@needs_mpi
@pytest.mark.slow
def test_eight_processes_give_the_same_bits():
    (expected,) = launched_digests(1, "both")
    expected = [line for line in expected if line.split()[1] == "100"]
    assert len(expected) == 3
    assert launched_digests(8, "long") == [expected] * 8


def regression(**options):
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x, y = fluid.data("x", [None, 3]), fluid.data("y", [None, 1])
        start = fluid.initializer.Constant(0.5)
        hidden = layers.fc(x, 4, param_attr=fluid.ParamAttr(initializer=start), act="tanh")
        predicted = layers.fc(hidden, 1, param_attr=fluid.ParamAttr(initializer=start))
        loss = layers.mean(layers.square_error_cost(predicted, y))
        top = layers.scale(predicted, 2.0)
        fluid.optimizer.Momentum(0.1, 0.9, **options).minimize(loss)
    return main, startup, [loss, top]


@pytest.mark.slow
def test_shards_train_like_the_whole_batch():
    rng = np.random.default_rng(0)
    feed = {"x": rng.normal(size=(8, 3)).astype("float32"), "y": rng.normal(size=(8, 1)).astype("float32")}
    found = []
    for shards in (0, 1, 4):
        main, startup, fetches = regression(grad_clip=fluid.clip.GradientClipByGlobalNorm(0.1))
        twin = ShardBatch(shards)(main) if shards else main
        executor, scope = fluid.Executor(), fluid.Scope()
        executor.run(startup, scope=scope)
        results = [executor.run(twin, feed, fetches, scope=scope) for _ in range(3)]
        found.append((results, [np.array(scope.find_var(p.name).get_tensor()) for p in main.all_parameters()]))
    for results, params in found[1:]:
        for step, expected in zip(results, found[0][0], strict=True):
            for value, other in zip(step, expected, strict=True):
                np.testing.assert_allclose(value, other, rtol=1e-5, atol=1e-6)
        for param, other in zip(params, found[0][1], strict=True):
            np.testing.assert_allclose(param, other, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_samples_may_lie_along_the_second_dimension():
    """As in recurrent networks, which are fed [steps, samples, size]."""
    rng = np.random.default_rng(0)
    feed = {name: rng.normal(size=(4, 8, size)).astype("float32") for name, size in [("x", 3), ("y", 1)]}
    found = []
    for shards in (0, 1, 4):
        main, startup = fluid.Program(), fluid.Program()
        startup.random_seed = 1
        with fluid.program_guard(main, startup), fluid.unique_name.guard():
            x, y = fluid.data("x", [4, None, 3]), fluid.data("y", [4, None, 1])
            outputs, _ = layers.rnn(layers.GRUCell(5), x, time_major=True)
            predicted = layers.fc(outputs, 1, num_flatten_dims=2)
            loss = layers.mean(layers.square(predicted - y))
            fluid.optimizer.SGD(0.5).minimize(loss)
        twin = ShardBatch(shards)(main) if shards else main
        executor, scope = fluid.Executor(), fluid.Scope()
        executor.run(startup, scope=scope)
        found.append([executor.run(twin, feed, [loss, predicted], scope=scope) for _ in range(3)])
    for steps in found[1:]:
        for step, expected in zip(steps, found[0], strict=True):
            for value, other in zip(step, expected, strict=True):
                np.testing.assert_allclose(value, other, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_metrics_see_the_whole_batch():
    """Also those with state, behind the updates, and of a loss that is persistable."""
    rng = np.random.default_rng(1)
    feeds = [{"x": rng.normal(size=(8, 3)).astype("float32"), "y": rng.integers(0, 2, size=(8, 1))} for _ in range(3)]
    found = []
    for shards in (0, 2, 4):
        main, startup = fluid.Program(), fluid.Program()
        startup.random_seed = 1
        with fluid.program_guard(main, startup), fluid.unique_name.guard():
            x, y = fluid.data("x", [None, 3]), fluid.data("y", [None, 1], "int64")
            chance = layers.softmax(layers.fc(x, 2))
            area, *_ = layers.auc(chance, y)
            loss = layers.mean(layers.cross_entropy(chance, y))
            loss.persistable = True
            fluid.optimizer.SGD(0.5).minimize(loss)
            right = layers.accuracy(chance, y)
            squares = layers.reduce_sum(layers.square(chance))
        twin = ShardBatch(shards)(main) if shards else main
        executor, scope = fluid.Executor(), fluid.Scope()
        executor.run(startup, scope=scope)
        found.append([executor.run(twin, feed, [area, loss, right, squares], scope=scope) for feed in feeds])
        np.testing.assert_array_equal(found[-1][-1][1], np.array(scope.find_var(loss.name).get_tensor()))
    for steps in found[1:]:
        for step, expected in zip(steps, found[0], strict=True):
            for value, other in zip(step, expected, strict=True):
                np.testing.assert_allclose(value, other, rtol=1e-5)


def test_what_cannot_read_joined_results_is_repeated_with_what_it_needs():
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x, rate = fluid.data("x", [None, 3]), fluid.data("rate", [1])
        parts = layers.reduce_sum(layers.cast(x > 0.0, "float32"))
        twice = layers.scale(x, 2.0)
        together = layers.elementwise_mul(twice, parts)
        loss = layers.mean(layers.fc(x, 1) * rate) * parts
        fluid.optimizer.SGD(0.5).minimize(loss)
    feed = {"x": np.ones((4, 3), "float32"), "rate": np.ones(1, "float32")}
    executor = fluid.Executor()
    executor.run(startup)
    (found,) = executor.run(ShardBatch(2)(main), feed, [together])
    np.testing.assert_array_equal(found, np.full((4, 3), 2.0 * 6.0))  # the ones of one shard are 6


def test_what_the_shards_have_parts_of_is_not_read_behind_the_backward_pass():
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        x = fluid.data("x", [None, 3])
        count = layers.reduce_sum(layers.cast(x > 0.0, "int64"))
        loss = layers.reduce_sum(layers.fc(x, 1)) / layers.cast(count, "float32")
        fluid.optimizer.SGD(0.5).minimize(loss)
        layers.scale(count, 2.0)
    with pytest.raises(ProgramError, match=r"cannot divide scale: it reads reduce_sum_0\.tmp_0, of which each shard"):
        ShardBatch(2)(main)


def by_value(pairs):
    return [(param, layers.clip(grad, -0.01, 0.01)) for param, grad in pairs]


def by_norm(pairs):
    return [(param, layers.clip_by_norm(grad, 0.02)) for param, grad in pairs]


def by_global_norm(pairs):
    squares = [layers.reduce_sum(layers.square(grad)) for _, grad in pairs]
    factor = 0.05 / layers.elementwise_max(
        layers.sqrt(layers.sums(squares)), layers.fill_constant([1], "float32", 0.05)
    )
    return [(param, grad * factor) for param, grad in pairs]


def decayed(pairs):
    return [(param, grad + param * 0.1) for param, grad in pairs]


@built_once
def clipped_by_hand(change, ranks, **options):
    """The programs of a training whose clip is written out between the backward pass and the updates."""
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 3
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        loss = layers.mean(layers.square(layers.fc(layers.fc(fluid.data("x", [None, 3]), 4, act="tanh"), 1)))
        optimizer = fluid.optimizer.Momentum(0.1, 0.9)
        optimizer.apply_gradients(change(optimizer.backward(loss)))
    rewrite = DataParallel(ranks, **options)
    twin = rewrite(main)
    rewrite.prepare(startup, twin)
    return main, startup, twin


def train_clipped(rank, ranks, change, **options):
    main, startup, twin = clipped_by_hand(change, ranks, **options)
    executor, scope = fluid.Executor(), fluid.Scope()
    executor.run(startup, scope=scope)
    for step in range(4):
        rows = np.random.default_rng(step).normal(size=(8, 3)).astype("float32")
        executor.run(twin, {"x": np.split(rows, ranks)[rank]}, scope=scope)
    return [np.array(scope.find_var(param.name).get_tensor()) for param in main.all_parameters()]


@pytest.mark.slow
@pytest.mark.numbers
@pytest.mark.filterwarnings("ignore:each rank averages", "ignore:exact=True")
@pytest.mark.parametrize("change", [by_value, by_norm, by_global_norm, decayed])
def test_clips_and_decays_that_are_written_out_see_the_sums(change):
    alone = train_clipped(0, 1, change)
    expected = train_clipped(0, 1, change, shards=4, exact=True)
    for param, other in zip(expected, alone, strict=True):
        np.testing.assert_allclose(param, other, rtol=1e-5, atol=1e-6)
    for sharded in (False, True) if change is not by_global_norm else (False,):
        for ranks in (2, 4):
            run = partial(train_clipped, ranks=ranks, change=change, shards=4, exact=True, sharded=sharded)
            for params in parallel.simulate(run, ranks):
                assert [each.tobytes() for each in params] == [each.tobytes() for each in expected]
        for param, other in zip(
            parallel.simulate(partial(train_clipped, ranks=2, change=change, sharded=sharded), 2)[1],
            alone, strict=True,
        ):  # fmt: skip
            np.testing.assert_allclose(param, other, rtol=1e-5, atol=1e-6)


def test_statistics_that_are_only_used_are_the_same_for_all_shards():
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 3
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        hidden = layers.batch_norm(layers.fc(fluid.data("x", [None, 3]), 4), use_global_stats=True)
        loss = layers.mean(layers.square(hidden))
        fluid.optimizer.SGD(0.1).minimize(loss)
    feed = {"x": np.arange(12, dtype="float32").reshape(4, 3)}
    found = []
    for program in (main, ShardBatch(4)(main)):
        executor, scope = fluid.Executor(), fluid.Scope()
        executor.run(startup, scope=scope)
        found.append([executor.run(program, feed, [loss], scope=scope)[0] for _ in range(3)])
    np.testing.assert_allclose(*found, rtol=1e-5)


def dense(x, size, name, act=None):
    return layers.fc(x, size, act=act, param_attr=f"{name}.w", bias_attr=f"{name}.b")


def two_optimizers(x):
    loss = layers.mean(layers.square(dense(dense(x, 4, "low", "tanh"), 1, "top")))
    clip = fluid.clip.GradientClipByGlobalNorm(0.1)
    fluid.optimizer.SGD(0.1, grad_clip=clip).minimize(loss, parameter_list=["low.w", "low.b"])
    fluid.optimizer.Adam(0.01, grad_clip=fluid.clip.GradientClipByValue(0.1)).minimize(loss, parameter_list=["top.w"])


def adversaries(x):
    """Both play in one program: the generator's gradient goes through a discriminator that was just updated."""
    made = dense(layers.gaussian_random_batch_size_like(x, [-1, 2]), 3, "g")
    real, false = (dense(dense(each, 4, "d0", "relu"), 1, "d1") for each in (x, made))
    clip = fluid.clip.GradientClipByNorm(0.1)
    fluid.optimizer.Adam(0.01, grad_clip=clip).minimize(
        layers.mean(-1.0 * layers.logsigmoid(real) - layers.logsigmoid(-1.0 * false)),
        parameter_list=["d0.w", "d0.b", "d1.w", "d1.b"],
    )
    loss = layers.mean(-1.0 * layers.logsigmoid(false))
    fluid.optimizer.Momentum(0.01, 0.9).minimize(loss, parameter_list=["g.w", "g.b"])


def actor_and_critic(x):
    """Two losses by turns, which share a layer."""
    hidden = dense(x, 5, "shared", "tanh")
    value, chances = dense(hidden, 1, "value"), layers.softmax(dense(hidden, 4, "policy"))
    gain = layers.reduce_sum(x, 1, keep_dim=True) - value
    gain.stop_gradient = True
    names = [f"{name}.{kind}" for name in ("shared", "value", "policy") for kind in "wb"]
    clip = fluid.clip.GradientClipByGlobalNorm(0.1)
    critic = fluid.optimizer.SGD(0.05, grad_clip=clip)
    critic.minimize(
        layers.mean(layers.square(value - layers.reduce_sum(x, 1, keep_dim=True))), parameter_list=names[:4]
    )
    action = layers.argmax(chances, 1)
    loss = layers.mean(layers.cross_entropy(chances, layers.reshape(action, [-1, 1])) * gain)
    fluid.optimizer.Adam(0.01, grad_clip=clip).minimize(loss, parameter_list=names[:2] + names[4:])


@built_once
def played(make, ranks, **options):
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 3
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        make(fluid.data("x", [None, 3]))
    rewrite = DataParallel(ranks, **options)
    twin = rewrite(main)
    rewrite.prepare(startup)
    return main, startup, twin


def play(rank, ranks, make, **options):
    main, startup, twin = played(make, ranks, **options)
    executor, scope = fluid.Executor(), fluid.Scope()
    executor.run(startup, scope=scope)
    for step in range(3):
        rows = np.random.default_rng(step).normal(size=(16, 3)).astype("float32")
        executor.run(twin, {"x": np.split(rows, ranks)[rank]}, scope=scope)
    return [np.array(scope.find_var(param.name).get_tensor()) for param in main.all_parameters()]


@pytest.mark.slow
@pytest.mark.numbers
@pytest.mark.filterwarnings("ignore:the gradients of .* are appended a second time", "ignore:exact=True")
@pytest.mark.parametrize("make", [two_optimizers, adversaries, actor_and_critic])
def test_updates_between_two_backward_passes_see_the_sums(make):
    expected = play(0, 1, make, shards=8, exact=True)
    if make is not adversaries:  # whose noise the shards draw
        for param, other in zip(expected, play(0, 1, make), strict=True):
            np.testing.assert_allclose(param, other, rtol=1e-5, atol=1e-6)
    for ranks in (2, 8):
        for params in parallel.simulate(partial(play, ranks=ranks, make=make, shards=8, exact=True), ranks):
            assert [each.tobytes() for each in params] == [each.tobytes() for each in expected]


def test_a_gradient_that_a_later_loss_reads_is_refused():
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        x = fluid.data("x", [None, 3])
        scores = layers.fc(x, 1, param_attr="w", bias_attr=False)
        _, grad = fluid.backward.append_backward(layers.mean(scores))[0]
        fluid.optimizer.SGD(0.1).minimize(layers.mean(layers.matmul(x, grad) + layers.fc(x, 1)))
    with pytest.raises(ProgramError, match="cannot divide matmul: it reads a gradient of a parameter"):
        ShardBatch(2)(main)


def test_dropouts_of_shards_and_steps_draw_their_own():
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x = fluid.data("x", [None, 50])
        dropped = layers.dropout(x, 0.5)
        loss = layers.mean(layers.fc(dropped, 1) + layers.reduce_sum(layers.dropout(x, 0.5)))
        fluid.optimizer.SGD(0.0).minimize(loss)
    DataParallel(1, shards=2, exact=True).prepare(startup)
    twin = DataParallel(1, shards=2, exact=True)(main)
    executor = fluid.Executor()
    executor.run(startup)
    masks = [op.output("Out")[0] for op in twin.global_block().ops if op.type == "dropout"]
    feed = {"x": np.ones((2, 50), "float32")}
    drawn = [each.tobytes() for _ in range(3) for each in executor.run(twin, feed, masks)]
    assert len(set(drawn)) == len(drawn) == 12


def test_what_depends_on_other_samples_is_refused():
    def pulled_to_centers(x):
        label = layers.cast(layers.slice(x, [1], [0], [1]) > 0.0, "int64")
        return layers.center_loss(x, label, 2, 0.1, fluid.initializer.Constant(0.0))

    def by_slots(x):
        return layers.data_norm(x, slot_dim=2)

    for network, why in [
        (pulled_to_centers, "cannot divide center_loss: it updates"),
        (by_slots, "cannot divide data_norm_grad: it averages over the rows of a shard"),
    ]:
        main = fluid.Program()
        with fluid.program_guard(main, fluid.Program()):
            hidden = layers.fc(fluid.data("x", [None, 4]), 4)
            fluid.optimizer.SGD(0.1).minimize(layers.mean(network(hidden)))
        with pytest.raises(ProgramError, match=why):
            ShardBatch(2)(main)
    with pytest.raises(ProgramError, match="no backward pass"):
        ShardBatch(2)(fluid.Program())
    for shards in (0, 3):
        with pytest.raises(ProgramError, match="power of two"):
            ShardBatch(shards)
    with pytest.raises(ProgramError, match="3 ranks cannot share 8 shards"):
        DataParallel(3, shards=8, exact=True)
    with pytest.raises(ProgramError, match="needs exact=True"):
        DataParallel(2, shards=8)


@pytest.mark.timing
def test_time_is_linear():
    def make(count):
        main = fluid.Program()
        with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
            hidden = fluid.data("x", [None, 2])
            for _ in range(count // 8):
                hidden = layers.dropout(layers.fc(hidden, 2, act="relu"), 0.1)
            fluid.optimizer.SGD(0.1).minimize(layers.mean(hidden))
        return main

    assert_linear(ShardBatch(2), make)
    assert_linear(DataParallel(2, ragged=True), make)
