"""Random numbers of trainings with `exact=True` follow from the seed, the step and the shard alone."""

from functools import partial

import numpy as np
import pytest
from built_once import built_once

import minigraph as fluid
from minigraph import layers, parallel
from minigraph.errors import VerifyError
from minigraph.parallel import DataParallel

SHARDS, BATCH, CLASSES = 8, 16, 12
pytestmark = pytest.mark.filterwarnings("ignore:each", "ignore:exact=True", r"ignore:\w+ makes")


def squares(x, y=0.0):
    return layers.mean(layers.square(x - y))


def given():
    return fluid.data("x", [None, 6])


def labels():
    return fluid.data("label", [None, 1], "int64")


def drawn(type, dtype="float32", **attrs):
    block = fluid.default_main_program().current_block()
    out = block.create_var(name=f"{type}.drawn", dtype=dtype)
    block.append_op(type, {}, {"Out": out}, attrs)
    return out


def denoising():
    x = given()
    return squares(layers.fc(layers.fc(x + layers.uniform_random_batch_size_like(x, [-1, 6]), 4, act="tanh"), 6), x)


def noise_with_a_seed():
    x = given()
    return squares(layers.fc(x + layers.gaussian_random_batch_size_like(x, [-1, 6], seed=5), 6), x)


def noisy_exploration():
    """A policy samples actions, and follows random ones now and then."""
    chances = layers.softmax(layers.fc(given(), CLASSES))
    chosen = layers.reshape(layers.sampling_id(chances), [-1, 1])
    other = layers.randint(0, CLASSES, [1])
    explores = layers.cast(layers.uniform_random([1], min=0.0, max=1.0) < 0.5, "int64")
    action = layers.elementwise_add(chosen * (1 - explores), layers.cast(other, "int64") * explores)
    return layers.mean(layers.cross_entropy(chances, action))


def scheduled_sampling():
    """Each step is given the word or, by chance, what the network has said."""
    words = fluid.data("words", [None, 4], "int64")
    word, state, losses = layers.slice(words, [1], [0], [1]), None, []
    for step in range(3):
        table = layers.reshape(fluid.embedding(word, [CLASSES, 5], param_attr="table"), [-1, 5])
        before = layers.fill_constant_batch_size_like(table, [-1, 4], "float32", 0.0) if state is None else state
        state = layers.fc([table, before], 4, act="tanh", param_attr=["in", "rec"], bias_attr="bias")
        scores = layers.fc(state, CLASSES, param_attr="out", bias_attr="out.bias")
        target = layers.slice(words, [1], [step + 1], [step + 2])
        losses.append(layers.mean(layers.softmax_with_cross_entropy(scores, target)))
        coin = layers.cond(layers.uniform_random([1], min=0.0, max=1.0) < 0.3, lambda: layers.ones([1], "int64"),
                           lambda: layers.zeros([1], "int64"))  # fmt: skip
        said = layers.reshape(layers.argmax(scores, -1), [-1, 1])
        word = layers.elementwise_add(said * coin, target * (1 - coin))
    return layers.sums(losses)


def dropout_in_a_loop():
    hidden, start = layers.fc(given(), 6), layers.fill_constant([1], "int64", 0)

    def body(i, value):
        return [i + 1, layers.dropout(layers.fc(value, 6, param_attr="w", act="tanh"), 0.3)]

    return squares(layers.while_loop(lambda i, _: i < 3, body, [start, hidden])[1])


def recurrence_of_unknown_length():
    network = layers.StaticRNN()
    x = layers.transpose(fluid.data("long", [None, None, 3]), [1, 0, 2])
    with network.step():
        word, memory = network.step_input(x), network.memory(shape=[-1, 3], batch_ref=x)
        network.update_memory(memory, layers.dropout(word + memory, 0.5))
        network.step_output(word + memory)
    return squares(layers.fc(layers.reduce_sum(network(), 0), 1))


def shuffled():
    x = given()
    return squares(layers.fc(x, 3), layers.fc(fluid.contrib.layers.shuffle_batch(x), 3))


def cropped():
    return squares(layers.fc(layers.random_crop(given(), [4]), 3))


def permuted():
    hidden = layers.gather(layers.transpose(layers.fc(given(), 6), [1, 0]), drawn("randperm", "int64", n=6))
    return squares(layers.fc(layers.transpose(hidden, [1, 0]), 2))


def perturbed_features():
    return squares(layers.fc(given(), 6) * drawn("truncated_gaussian_random", shape=[6]))


def noise_contrastive():
    return layers.mean(layers.nce(layers.fc(given(), 4), labels(), CLASSES, num_neg_samples=3))


def sampled_softmax():
    return layers.mean(layers.sampled_softmax_with_cross_entropy(layers.fc(given(), CLASSES), labels(), 5))


TRAININGS = [
    denoising, noise_with_a_seed, noisy_exploration, scheduled_sampling, dropout_in_a_loop,
    recurrence_of_unknown_length, shuffled, cropped, permuted, perturbed_features, noise_contrastive, sampled_softmax,
]  # fmt: skip


def fed(main, rank, ranks, step):
    rng = np.random.default_rng(step)
    made = {
        "x": rng.normal(size=(BATCH, 6)).astype("float32"),
        "long": rng.normal(size=(BATCH, 4, 3)).astype("float32"),
        "label": rng.integers(0, CLASSES, (BATCH, 1)),
        "words": rng.integers(0, CLASSES, (BATCH, 4)),
    }
    return {name: np.split(each, ranks)[rank] for name, each in made.items() if main.global_block().has_var(name)}


def minimized(make):
    optimizer = fluid.optimizer.Adam(0.05, grad_clip=fluid.clip.GradientClipByGlobalNorm(0.1))
    optimizer.minimize(make())


@built_once
def built(make, ranks, **options):
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 3
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        make()
    rewrite = DataParallel(ranks, shards=SHARDS, exact=True, **options)
    twin = rewrite(main)
    rewrite.prepare(startup, twin)
    return main, startup, twin


def train(rank, ranks, make, steps=3, **options):
    """Bytes of the parameters after some steps."""
    main, startup, twin = built(make, ranks, **options)
    executor, scope = fluid.Executor(), fluid.Scope()
    executor.run(startup, scope=scope)
    for step in range(steps):
        executor.run(twin, fed(main, rank, ranks, step), scope=scope)
    return [np.array(scope.find_var(param.name).get_tensor()).tobytes() for param in main.all_parameters()]


def assert_same_bits(make, sharded=(False, True)):
    expected = train(0, 1, make)
    for parts in sharded:
        for ranks in (4,) if parts else (2, 8):
            run = partial(train, ranks=ranks, make=make, sharded=parts)
            assert parallel.simulate(run, ranks) == [expected] * ranks, (ranks, parts)


@pytest.mark.slow
@pytest.mark.numbers
@pytest.mark.parametrize("make", TRAININGS)
def test_every_number_of_ranks_draws_the_same(make):
    assert_same_bits(partial(minimized, make))


def noisy_gradients():
    optimizer = fluid.optimizer.Momentum(0.1, 0.9)
    pairs = optimizer.backward(squares(layers.fc(given(), 3)))
    optimizer.apply_gradients([(param, grad + layers.gaussian_random(list(grad.shape))) for param, grad in pairs])


def noise_made_before():
    """What no loss reads is the same for all shards."""
    noise = 0.1 * layers.gaussian_random([6, 3])
    optimizer = fluid.optimizer.SGD(0.1)
    ((weight, grad),) = optimizer.backward(squares(layers.fc(given(), 3, bias_attr=False)))
    optimizer.apply_gradients([(weight, grad + noise)])


def private():
    fluid.optimizer.Dpsgd(0.1, clip=1.0, batch_size=float(BATCH), sigma=1.0).minimize(squares(layers.fc(given(), 3)))


@pytest.mark.slow
@pytest.mark.numbers
@pytest.mark.parametrize("make", [noisy_gradients, noise_made_before, private])
def test_noise_for_gradients_is_the_same_on_all_ranks(make):
    assert_same_bits(make, sharded=(False,))


def test_noise_that_each_rank_draws_for_itself_is_refused():
    for make, why in [
        (noisy_gradients, "changed after its sum by numbers of one rank"),
        (private, "adds noise to fc_0.b_0 that each rank draws for itself"),
    ]:
        main = fluid.Program()
        with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
            make()
        with pytest.raises(VerifyError, match=why):
            DataParallel(2)(main)


@built_once
def adversaries(ranks):
    """The programs that train a generator and a discriminator in turns, and what their ranks run instead."""
    startup, programs = fluid.Program(), []
    startup.random_seed = 3
    rewrite = DataParallel(ranks, shards=SHARDS, exact=True)

    def layer(x, size, name, act=None):
        return layers.fc(x, size, act=act, param_attr=f"{name}.w", bias_attr=f"{name}.b")

    for player in "dg":
        main = fluid.Program()
        main.random_seed = 3
        with fluid.program_guard(main, startup):
            x = given()
            noise = layers.gaussian_random_batch_size_like(x, [-1, 2])
            made = layers.batch_norm(layer(noise, 6, "g"), param_attr="g.s", bias_attr="g.o", moving_mean_name="g.m",
                                     moving_variance_name="g.v")  # fmt: skip
            judged = [layer(layer(each, 4, "d0", "relu"), 1, "d1") for each in (x, made)]
            signs = (-1.0, 1.0) if player == "d" else (0.0, -1.0)
            loss = layers.mean(
                layers.sums([sign * layers.logsigmoid(-1.0 * each) for sign, each in zip(signs, judged, strict=True)])
            )
            names = [p.name for p in main.all_parameters() if p.trainable and p.name.startswith(player)]
            fluid.optimizer.Adam(0.01).minimize(loss, parameter_list=names)
        programs.append((main, rewrite(main)))
    rewrite.prepare(startup)
    return startup, programs


def train_in_turns(rank, ranks):
    startup, programs = adversaries(ranks)
    executor, scope = fluid.Executor(), fluid.Scope()
    executor.run(startup, scope=scope)
    for step in range(4):
        main, twin = programs[step % 2]
        executor.run(twin, fed(main, rank, ranks, step), scope=scope)
    return [np.array(scope.find_var(p.name).get_tensor()).tobytes() for p in programs[1][0].all_parameters()]


@pytest.mark.slow
@pytest.mark.numbers
def test_two_programs_train_in_turns():
    expected = train_in_turns(0, 1)
    for ranks in (2, 4):
        assert parallel.simulate(partial(train_in_turns, ranks=ranks), ranks) == [expected] * ranks


def test_steps_shards_and_operators_draw_their_own():
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x = given()
        noises = [layers.gaussian_random_batch_size_like(x, [-1, 6]) for _ in range(2)]
        fluid.optimizer.SGD(0.0).minimize(squares(layers.fc(x + noises[0] * noises[1], 1)))
    rewrite = DataParallel(1, shards=2, exact=True)
    rewrite.prepare(startup)
    twin = rewrite(main)
    executor = fluid.Executor()
    executor.run(startup)
    names = [op.output("Out")[0] for op in twin.global_block().ops if op.type.startswith("gaussian")]
    feed = {"x": np.ones((2, 6), "float32")}
    found = [each.tobytes() for _ in range(3) for each in executor.run(twin, feed, names)]
    assert len(set(found)) == len(found) == 12


FIXED = {
    "dropout": lambda x: layers.dropout(x, 0.5, seed=5),
    "gaussian_random_batch_size_like": lambda x: layers.gaussian_random_batch_size_like(x, [-1, 6], seed=5),
    "uniform_random_batch_size_like": lambda x: layers.uniform_random_batch_size_like(x, [-1, 6], seed=5),
    "sampling_id": lambda x: sampled(layers.softmax(x)),
    "seed": lambda x: masked(x, drawn("seed", "int32", seed=5)),
    "gaussian_random": lambda x: x + layers.gaussian_random([6], seed=5),
}  # fmt: skip


def sampled(chances):
    return layers.cast(layers.reshape(layers.sampling_id(chances, seed=5), [-1, 1]), "float32")


def masked(x, seed):
    """A dropout by a seed that it reads."""
    block = fluid.default_main_program().current_block()
    out, mask = (block.create_var(name=f"dropped.{seed.name}.{which}") for which in ("out", "mask"))
    block.append_op("dropout", {"X": x, "Seed": seed}, {"Out": out, "Mask": mask}, {"dropout_prob": 0.5})
    return out


def steps_of(make, shards, steps=3):
    """What `make` draws in some steps by each shard; the first row of the batch is that of the others."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        values = make(given())
        values = values if isinstance(values, tuple) else (values,)
        fluid.optimizer.SGD(0.0).minimize(squares(layers.fc(layers.sums([layers.fc(each, 1) for each in values]), 1)))
    rewrite = DataParallel(1, shards=shards, exact=True)
    rewrite.prepare(startup)
    twin = rewrite(main) if shards else main
    executor, scope = fluid.Executor(), fluid.Scope()
    executor.run(startup, scope=scope)
    names = [f"{each.name}.shard_{shard}" for each in values for shard in range(shards)]
    feed = {"x": np.tile(np.arange(6, dtype="float32") / 6, (8, 1))}
    return [[each.tobytes() for each in executor.run(twin, feed, names, scope=scope)] for _ in range(steps)]


@pytest.mark.parametrize("name", FIXED)
def test_a_seed_of_an_operator_fixes_its_numbers_for_all_steps(name):
    first, *others = steps_of(FIXED[name], 2)
    assert all(each == first for each in others)
    assert (first[0] != first[1]) == (name != "gaussian_random")


def test_numbers_with_a_seed_that_read_no_samples_are_those_without_shards():
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        projection = layers.gaussian_random([6, 3], seed=3)
        fluid.optimizer.SGD(0.1).minimize(squares(layers.fc(layers.matmul(given(), projection), 1)))
    executor = fluid.Executor()
    executor.run(startup)
    feed = {"x": np.ones((4, 6), "float32")}
    (plain,) = executor.run(main, feed, [projection])
    (exact,) = executor.run(DataParallel(1, shards=2, exact=True)(main), feed, [projection])
    np.testing.assert_array_equal(exact, plain)


@pytest.mark.slow
def test_operators_with_one_seed_draw_the_same_in_shards_too():
    same = steps_of(lambda x: (layers.dropout(x, 0.5, seed=5), layers.dropout(x, 0.5, seed=5)), 2)
    assert all(drawn[:2] == drawn[2:] for drawn in same)
    other = steps_of(lambda x: (layers.dropout(x, 0.5, seed=5), layers.dropout(x, 0.5, seed=6)), 2)
    assert all(drawn[:2] != drawn[2:] for drawn in other)


def both_kinds_in_a_loop(x):
    """A dropout with a seed and one without, three times: the last masks of each."""
    ones, start = layers.ones_like(x), layers.fill_constant([1], "int64", 0)

    def body(i, fixed, free, before):
        return [i + 1, layers.dropout(ones, 0.5, seed=5), free * 2.0 + layers.dropout(ones, 0.5), fixed]

    _, fixed, free, before = layers.while_loop(lambda i, *_: i < 3, body, [start, x * 0.0, x * 0.0, x * 0.0])
    return fixed, free, before


@pytest.mark.slow
def test_a_seed_in_a_loop_fixes_every_iteration_and_no_other_draw():
    first, second, third = steps_of(both_kinds_in_a_loop, 2)
    fixed, free, before = (slice(2 * number, 2 * number + 2) for number in range(3))
    assert first[fixed] == second[fixed] == third[fixed] == first[before]
    assert len({*first[free], *second[free], *third[free]}) == 6
    assert first[fixed][0] != first[fixed][1]
    for each in np.frombuffer(first[free][0], "float32").reshape(4, 6).T:
        assert set(each) <= set(range(8))


def noise_in_a_loop():
    hidden, start = layers.fc(given(), 6), layers.fill_constant([1], "int64", 0)

    def body(i, value):
        noise = layers.gaussian_random_batch_size_like(value, [-1, 6], seed=5)
        return [i + 1, layers.dropout(layers.fc(value + noise, 6, param_attr="w", act="tanh"), 0.3)]

    return squares(layers.while_loop(lambda i, _: i < 3, body, [start, hidden])[1])


def a_fixed_dropout():
    return squares(layers.fc(layers.dropout(layers.dropout(given(), 0.5, seed=5), 0.3), 3))


@pytest.mark.slow
@pytest.mark.numbers
@pytest.mark.parametrize("make", [noise_in_a_loop, a_fixed_dropout])
def test_every_number_of_ranks_has_the_numbers_of_a_seed(make):
    assert_same_bits(partial(minimized, make), sharded=(False,))


def test_running_statistics_are_the_mean_over_the_shards():
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        hidden = layers.batch_norm(given(), moving_mean_name="mean", moving_variance_name="variance", momentum=0.5)
        fluid.optimizer.SGD(0.1).minimize(squares(hidden))
    x = np.random.default_rng(0).normal(size=(8, 6)).astype("float32")
    executor, scope = fluid.Executor(), fluid.Scope()
    executor.run(startup, scope=scope)
    executor.run(DataParallel(1, shards=4, exact=True)(main), {"x": x}, scope=scope)
    shards = np.split(x, 4)
    for name, start, of_shards in [
        ("mean", 0.0, [each.mean(0) for each in shards]),
        ("variance", 1.0, [each.var(0) for each in shards]),
    ]:
        expected = 0.5 * start + 0.5 * np.mean(of_shards, axis=0)
        np.testing.assert_allclose(np.array(scope.find_var(name).get_tensor()), expected, rtol=1e-5, atol=1e-6)


def test_statistics_are_exchanged_with_the_gradients():
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup):
        fluid.optimizer.SGD(0.1).minimize(squares(layers.batch_norm(layers.fc(given(), 4))))
    executor = fluid.Executor()
    executor.run(startup)
    plan = executor.plan_for(DataParallel(2, shards=2, exact=True)(main), {"x": np.zeros((4, 6), "float32")}, [])
    assert [step.op.type for step in plan.steps.steps if "allreduce" in step.op.type] == ["merged_c_allreduce_sum"]
