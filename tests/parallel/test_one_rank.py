"""Several ranks, simulated and as places of one process, train like one rank that is fed all samples."""

from functools import partial
from threading import Barrier

import numpy as np
import pytest
from built_once import built_once

import minigraph as fluid
from minigraph import layers, optimizer, parallel
from minigraph.clip import GradientClipByGlobalNorm
from minigraph.parallel import DataParallel

RNG = np.random.default_rng(7)
FEED = {
    "x": RNG.normal(size=(16, 6)),
    "y": RNG.normal(size=(16, 1)),
    "words": RNG.integers(0, 9, (16, 3)),
    "series": RNG.normal(size=(16, 4, 6)),
}
PROGRAMS = {}
CLIP = GradientClipByGlobalNorm(0.2)


def program(make):
    PROGRAMS[make.__name__] = make
    return make


def fed(name):
    block = fluid.default_main_program().global_block()
    return block.vars.get(name) or fluid.data(name, [None, *FEED[name].shape[1:]], FEED[name].dtype.name)


def fc(x, size, name, **options):
    value = np.sin(np.arange(x.shape[-1] * size) + len(name)).reshape(x.shape[-1], size)
    start = fluid.ParamAttr(name, initializer=fluid.initializer.NumpyArrayInitializer(value))
    return layers.fc(x, size, param_attr=start, bias_attr=False, **options)


def hidden():
    return fc(fed("x"), 5, "w", act="tanh")


def error(predicted):
    return layers.mean(layers.square_error_cost(predicted, fed("y")))


def loss_of_rows():
    return error(fc(hidden(), 1, "v"))


def trained(minimize):
    def make():
        loss = loss_of_rows()
        minimize(loss)
        return loss

    return make


for name, chosen in {
    "sgd": partial(optimizer.SGD, 0.1), "lamb": partial(optimizer.Lamb, 0.1),
    "lars": partial(optimizer.LarsMomentum, 0.1, 0.9), "ftrl": partial(optimizer.Ftrl, 0.1),
}.items():  # fmt: skip
    PROGRAMS[name] = trained(lambda loss, chosen=chosen: chosen(grad_clip=CLIP).minimize(loss))


@program
def two_averages():
    """Counters of averages stand in front of all operators."""
    loss = loss_of_rows()
    optimizer.Adam(0.1).minimize(loss)
    for decay in (0.9, 0.5):
        optimizer.ExponentialMovingAverage(decay, name=f"average{decay}").update()
    return loss


@program
def means_of_windows():
    loss = loss_of_rows()
    optimizer.Adam(0.1).minimize(loss)
    optimizer.ModelAverage(0.15, min_average_window=2, max_average_window=4)
    return loss


@program
def look_ahead():
    loss = loss_of_rows()
    optimizer.LookaheadOptimizer(optimizer.SGD(0.1), 0.5, 2).minimize(loss)
    return loss


@program
def computed_again():
    middle = hidden()
    loss = error(fc(middle, 1, "v"))
    again = optimizer.RecomputeOptimizer(optimizer.Momentum(0.1, 0.9, grad_clip=CLIP))
    again._set_checkpoints([middle])
    again.minimize(loss)
    return loss


@program
def merged_gradients():
    loss = loss_of_rows()
    optimizer.GradientMergeOptimizer(optimizer.SGD(0.1), 2).minimize(loss)
    return loss


@program
def gradients_added_up_by_hand():
    loss = loss_of_rows()
    kept = []
    for param, grad in fluid.backward.append_backward(loss):
        total = layers.create_global_var(param.shape, 0.0, "float64", persistable=True)
        layers.assign(total * 0.5 + grad, total)
        kept.append((param, total))
    optimizer.SGD(0.1).apply_gradients(kept)
    return loss


@program
def gradients_clipped_by_hand():
    loss = loss_of_rows()
    pairs = fluid.backward.append_backward(loss)
    optimizer.SGD(0.1).apply_gradients([(param, layers.clip_by_norm(grad, 0.1)) for param, grad in pairs])
    return loss


@program
def two_losses_of_shared_weights():
    middle = hidden()
    first, second = error(fc(middle, 1, "u")), layers.mean(layers.square(fc(middle, 2, "v")))
    optimizer.SGD(0.1).minimize(first)
    optimizer.SGD(0.05, grad_clip=CLIP).minimize(second)
    return first


@program
def two_optimizers_of_one_loss():
    """The second is given the parameters as the first has left them."""
    loss = loss_of_rows()
    optimizer.SGD(0.1, parameter_list=["w"]).minimize(loss)
    second = layers.mean(layers.square(fc(hidden(), 1, "v")))
    optimizer.Adam(0.1, parameter_list=["w", "v"]).minimize(second)
    return loss


@program
def words():
    start = fluid.ParamAttr("table", initializer=fluid.initializer.Constant(0.3))
    table = fluid.embedding(fed("words"), [9, 4], is_sparse=True, param_attr=start, dtype="float64")
    loss = error(fc(layers.reduce_sum(table, 1), 1, "w"))
    optimizer.Adam(0.1, grad_clip=CLIP).minimize(loss)
    return loss


@program
def a_weight_used_twice():
    x = fc(fc(fed("x"), 6, "w", act="tanh"), 6, "w")
    loss = error(fc(x, 1, "v"))
    optimizer.SGD(0.1, grad_clip=CLIP).minimize(loss)
    return loss


@program
def steps():
    series = layers.transpose(fed("series"), [1, 0, 2])
    rnn = layers.StaticRNN()
    with rnn.step():
        word = rnn.step_input(series)
        before = rnn.memory(shape=[-1, 5], batch_ref=word)
        after = layers.tanh(fc(word, 5, "w") + fc(before, 5, "u"))
        rnn.update_memory(before, after)
        rnn.step_output(after)
    loss = error(fc(layers.reduce_sum(rnn(), 0), 1, "v"))
    optimizer.SGD(0.1, grad_clip=CLIP).minimize(loss)
    return loss


@program
def a_loop():
    count, end = layers.fill_constant([1], "int64", 0), layers.fill_constant([1], "int64", 3)
    _, x = layers.while_loop(
        lambda i, x: i < end, lambda i, x: [i + 1, fc(x, 6, "w", act="tanh")], [count, fed("x")]
    )  # fmt: skip
    loss = error(fc(x, 1, "v"))
    optimizer.SGD(0.1, grad_clip=CLIP).minimize(loss)
    return loss


@program
def a_branch_by_the_step():
    step = layers.create_global_var([1], 0.0, "float64", persistable=True)
    layers.increment(step)
    x = hidden()
    x = layers.cond(step > 2.0, lambda: layers.tanh(x), lambda: x * 0.5)
    loss = error(fc(x, 1, "v"))
    optimizer.Momentum(0.1, 0.9, grad_clip=CLIP).minimize(loss)
    return loss


@program
def a_gradient_in_the_loss():
    x = fed("x")
    x.stop_gradient = False
    score = fc(fc(x, 5, "w", act="tanh"), 1, "v")
    (slope,) = fluid.gradients(score, x)
    length = layers.sqrt(layers.reduce_sum(layers.square(slope), 1) + 1e-8)
    loss = layers.mean(score) + layers.mean(layers.square(length - 1.0))
    optimizer.Adam(0.1, grad_clip=CLIP).minimize(loss)
    return loss


@program
def a_decay_in_the_loss():
    loss = loss_of_rows()
    loss += 0.1 * layers.reduce_sum(layers.square(loss.block.var("w")))
    optimizer.SGD(layers.noam_decay(8, 3), grad_clip=CLIP).minimize(loss)
    return loss


WHOLE = {"merged_gradients", "lamb", "lars", "gradients_added_up_by_hand", "gradients_clipped_by_hand",
         "two_losses_of_shared_weights", "two_optimizers_of_one_loss"}  # fmt: skip
"""Programs whose state cannot be divided."""


def built(name):
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        loss = PROGRAMS[name]()
    return main, startup, loss


def fed_in(step, main):
    given = {name: array for name, array in FEED.items() if main.global_block().has_var(name)}
    return {name: array * (1 + 0.1 * step) if array.dtype == "float64" else array for name, array in given.items()}


def kept(main, scope):
    """Parameters and averages in the scope, by name."""
    names = [name for name, var in main.global_block().vars.items() if var.persistable and var.dtype.is_floating]
    return {name: np.array(scope.find_var(name).get_tensor()) for name in names}


@built_once
def rewritten(name, ranks, **options):
    main, startup, loss = built(name)
    rewrite = DataParallel(ranks, **options)
    twin = rewrite(main)
    rewrite.prepare(startup, twin)
    return main, startup, twin, loss


def train(name, rank=0, ranks=1, **options):
    main, startup, twin, loss = rewritten(name, ranks, **options)
    executor, scope = fluid.Executor(), fluid.Scope()
    executor.run(startup, scope=scope)
    for step in range(4):
        feed = {key: np.split(array, ranks)[rank] for key, array in fed_in(step, main).items()}
        executor.run(twin, feed, [loss], scope=scope)
    return kept(main, scope)


def train_on_places(name, count):
    main, startup, loss = built(name)
    executor, scope = fluid.Executor(), fluid.Scope()
    executor.run(startup, scope=scope)
    compiled = fluid.CompiledProgram(main).with_data_parallel(loss.name, places=fluid.cpu_places(count))
    for step in range(4):
        executor.run(compiled, fed_in(step, main), [loss], scope=scope)
    return kept(main, scope)


def assert_alike(found, expected):
    for name, array in found.items():
        if array.shape == expected[name].shape:  # of the state each rank may keep a part
            np.testing.assert_allclose(array, expected[name], rtol=1e-8, atol=1e-10, err_msg=name)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:each rank averages", "ignore:the gradients of")
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_of_the_public(name):
    expected = train(name)
    assert_alike(train_on_places(name, 4), expected)
    for options in [{}, {"ragged": True}, *([] if name in WHOLE else [{"sharded": True}])]:
        for found in parallel.simulate(partial(train, name, ranks=2, **options), 2):
            assert_alike(found, expected)


def test_a_call_that_fails_on_one_rank_leaves_what_others_build():
    """A failing call undoes what it has built."""
    barriers = [Barrier(2) for _ in range(2)]

    def build(rank):
        main = fluid.Program()
        with fluid.program_guard(main):
            if rank == 0:
                with pytest.raises(ZeroDivisionError):
                    parallel.simulate(lambda _: [each.wait() for each in barriers] and 1 / 0, 1)
            else:
                barriers[0].wait()
                fluid.data("x", [1])
                barriers[1].wait()
        return len(main.global_block().vars)

    assert parallel.simulate(build, 2) == [0, 1]
