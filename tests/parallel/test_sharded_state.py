"""Ranks that each update a part of the parameters train like ranks that update all, and keep a part of the state."""

import re
from functools import partial

import numpy as np
import pytest
from built_once import built_once
from pass_laws import assert_linear, op_lines

import minigraph as fluid
from minigraph import layers, parallel
from minigraph.clip import ClipPipeline, GradientClipByGlobalNorm, GradientClipByNorm, GradientClipByValue
from minigraph.errors import ProgramError
from minigraph.io.program_bytes import serialize_program
from minigraph.ir import Role
from minigraph.parallel import DataParallel
from minigraph.passes import GradAllReduce, ShardOptimizerState
from minigraph.support.communicator import current

ROWS = np.random.default_rng(5).normal(size=(16, 7)).astype("float32")
pytestmark = pytest.mark.filterwarnings("ignore:each rank averages", "ignore:exact=True")

OPTIMIZERS = {
    "sgd": partial(fluid.optimizer.SGD, 0.1),
    "momentum": partial(fluid.optimizer.Momentum, 0.1, 0.9),
    "nesterov": partial(fluid.optimizer.Momentum, 0.1, 0.9, use_nesterov=True),
    "adam": partial(fluid.optimizer.Adam, 0.1),
    "adamax": partial(fluid.optimizer.Adamax, 0.1),
    "adagrad": partial(fluid.optimizer.Adagrad, 0.1, initial_accumulator_value=0.2),
    "decayed adagrad": partial(fluid.optimizer.DecayedAdagrad, 0.1),
    "adadelta": partial(fluid.optimizer.Adadelta, 0.1),
    "rmsprop": partial(fluid.optimizer.RMSProp, 0.1, momentum=0.9, centered=True),
    "ftrl": partial(fluid.optimizer.Ftrl, 0.1, l1=0.01, l2=0.01),
}
CLIPS = {
    "none": None,
    "value": GradientClipByValue(0.01),
    "norm": GradientClipByNorm(0.05),
    "global norm": GradientClipByGlobalNorm(0.1),
    "global norm of float64": GradientClipByGlobalNorm(0.1 + 1e-12),
    "some": GradientClipByGlobalNorm(0.1, need_clip=lambda param: ".w_" in param.name),
    "one after the other": ClipPipeline([
        GradientClipByNorm(0.05, need_clip=lambda param: param.name == "fc_0.w_0"), GradientClipByGlobalNorm(0.08),
    ]),
}  # fmt: skip


def network(is_sparse=False):
    x = fluid.data("x", [None, 7])
    if is_sparse:
        words = layers.cast(layers.abs(x), "int64")
        x = layers.reduce_sum(fluid.embedding(words, [13, 3], is_sparse=True), 1)
    hidden = layers.fc(x, 5, act="tanh")
    return layers.mean(layers.square(layers.fc(hidden, 1) - 1.0))


def built(minimize, make=network):
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 3
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        minimize(make())
    return main, startup


@built_once
def rewritten(minimize, make, ranks, **options):
    """The program of a training, and those that ranks run to start and to train."""
    main, startup = built(minimize, make)
    rewrite = DataParallel(ranks, **options)
    twin = rewrite(main)
    rewrite.prepare(startup, twin)
    return main, startup, twin


def train(rank, ranks, minimize, make=network, steps=4, **options):
    """The parameters after some steps."""
    main, startup, twin = rewritten(minimize, make, ranks, **options)
    executor, scope = fluid.Executor(), fluid.Scope()
    executor.run(startup, scope=scope)
    for step in range(steps):
        executor.run(twin, {"x": np.split(ROWS * (step + 1), ranks)[rank]}, scope=scope)
    return [np.array(scope.find_var(p.name).get_tensor()) for p in main.all_parameters()]


def assert_trains_alike(minimize, make=network):
    """Alike with and without parts, and with `exact` to the last bit on any number of ranks."""
    for param, expected in zip(parallel.simulate(partial(
        train, ranks=4, minimize=minimize, make=make, sharded=True
    ), 4)[1], train(0, 1, minimize, make), strict=True):  # fmt: skip
        np.testing.assert_allclose(param, expected, rtol=1e-6, atol=1e-6)
    expected = [each.tobytes() for each in train(0, 1, minimize, make, shards=8, exact=True)]
    for ranks in (1, 4):
        run = partial(train, ranks=ranks, minimize=minimize, make=make, shards=8, exact=True, sharded=True)
        for params in parallel.simulate(run, ranks):
            assert [each.tobytes() for each in params] == expected


@pytest.mark.slow
@pytest.mark.numbers
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers(name):
    decay = fluid.regularizer.L2Decay(0.1)

    def minimize(loss):
        OPTIMIZERS[name](grad_clip=CLIPS["global norm"], regularization=decay).minimize(loss)

    assert_trains_alike(minimize)


@pytest.mark.slow
@pytest.mark.numbers
@pytest.mark.parametrize("name", CLIPS)
def test_clips(name):
    assert_trains_alike(lambda loss: fluid.optimizer.Momentum(0.1, 0.9, grad_clip=CLIPS[name]).minimize(loss))


def network_of_float64():
    hidden = layers.fc(layers.cast(fluid.data("x", [None, 7]), "float64"), 301, act="tanh")
    return layers.mean(layers.square(layers.fc(hidden, 1) - 1.0))


@pytest.mark.slow
@pytest.mark.numbers
@pytest.mark.parametrize("name", ["norm", "global norm", "one after the other"])
def test_clips_of_float64(name):
    """No digit is lost where norms of parts are joined."""
    assert_trains_alike(
        lambda loss: fluid.optimizer.Adam(0.1, grad_clip=CLIPS[name]).minimize(loss), network_of_float64
    )


@pytest.mark.slow
@pytest.mark.numbers
@pytest.mark.parametrize("name", ["none", "value", "norm", "global norm"])
@pytest.mark.parametrize("decay", [None, fluid.regularizer.L2Decay(0.1)])
def test_selected_rows(name, decay):
    def minimize(loss):
        fluid.optimizer.Adam(0.1, lazy_mode=decay is None, grad_clip=CLIPS[name], regularization=decay).minimize(loss)

    assert_trains_alike(minimize, partial(network, is_sparse=True))


def by_global_norm(pairs):
    squares = [layers.reduce_sum(layers.square(grad)) for _, grad in pairs]
    bound = layers.fill_constant([1], "float32", 0.05)
    factor = 0.05 / layers.elementwise_max(layers.sqrt(layers.sums(squares)), bound)
    return [(param, grad * factor) for param, grad in pairs]


def by_root_of_mean_square(pairs):
    return [
        (param, grad / (layers.sqrt(layers.reduce_mean(layers.square(grad), dim=[0, -1][: len(grad.shape)])) + 1.0))
        for param, grad in pairs
    ]


def by_largest(pairs):
    """With numbers above 0 where the padding is, which must not count; and the least one."""
    largest = [layers.reduce_max(layers.exp(layers.abs(grad)), keep_dim=True) for _, grad in pairs]
    least = [layers.reduce_min(layers.exp(grad) + 1.0) for _, grad in pairs]
    total = layers.sums([layers.reshape(each, [1]) for each in largest] + least)
    return [(param, grad / total) for param, grad in pairs]


def by_length_of_vectors(pairs):
    sizes = [layers.reduce_sum(layers.reshape(layers.abs(grad), [-1]), dim=0) for _, grad in pairs]
    few = [layers.reduce_sum(layers.cast(layers.abs(grad) > 0.01, "float32")) for _, grad in pairs]
    total = layers.sums([layers.mean(grad) for _, grad in pairs]) + layers.sums(sizes) + layers.sums(few)
    return [(param, grad / total) for param, grad in pairs]


def by_ratio_to_the_parameter(pairs):
    def length(x):
        return layers.sqrt(layers.reduce_sum(layers.square(x)) + 0.01)

    return [(param, grad * length(param) / length(grad) * 0.1) for param, grad in pairs]


@pytest.mark.slow
@pytest.mark.numbers
@pytest.mark.parametrize(
    "change", [by_global_norm, by_root_of_mean_square, by_largest, by_length_of_vectors, by_ratio_to_the_parameter]
)
def test_norms_that_are_written_out(change):
    def minimize(loss):
        optimizer = fluid.optimizer.Momentum(0.1, 0.9)
        optimizer.apply_gradients(change(optimizer.backward(loss)))

    alone = train(0, 1, minimize)
    found = []
    for ranks in (1, 4):
        if ranks > 1:
            for params in parallel.simulate(partial(train, ranks=ranks, minimize=minimize, sharded=True), ranks):
                for param, expected in zip(params, alone, strict=True):
                    np.testing.assert_allclose(param, expected, rtol=1e-5, atol=1e-6)
        run = partial(train, ranks=ranks, minimize=minimize, shards=8, exact=True, sharded=True)
        found += [[each.tobytes() for each in params] for params in parallel.simulate(run, ranks)]
    assert found == found[:1] * 5


@pytest.mark.parametrize("change", [by_global_norm, by_root_of_mean_square, by_largest, by_ratio_to_the_parameter])
def test_numbers_of_norms_are_exchanged_at_once(change):
    def minimize(loss):
        optimizer = fluid.optimizer.Momentum(0.1, 0.9)
        optimizer.apply_gradients(change(optimizer.backward(loss)))

    twin = DataParallel(2, sharded=True)(built(minimize)[0])
    assert len(twin.global_block().ops.of_type("c_allgather")) == 1


def average(loss):
    fluid.optimizer.Adam(0.1).minimize(loss)
    fluid.optimizer.ExponentialMovingAverage(0.9).update()


def scheduled(loss):
    fluid.optimizer.Momentum(layers.exponential_decay(0.1, 1, 0.5), 0.9).minimize(loss)


def bounded(loss):
    _, pairs = fluid.optimizer.SGD(0.1).minimize(loss)
    for param, _ in pairs:
        layers.assign(layers.clip(param, -0.3, 0.3), param)


def look_ahead(loss):
    fluid.optimizer.LookaheadOptimizer(fluid.optimizer.Momentum(0.1, 0.9), k=2).minimize(loss)


@pytest.mark.slow
@pytest.mark.numbers
@pytest.mark.parametrize("minimize", [average, scheduled, bounded, look_ahead])
def test_what_follows_the_updates_sees_whole_parameters(minimize):
    assert_trains_alike(minimize)


def test_text():
    text = """
    block 0
      param w: float32[3]
      persist v: float32[3]
      persist lr: float32[1]
      data x: float32[3]
      w@GRAD: float32[3] = scale(X=x) {role='backward', role_vars=[w, w@GRAD]}
      w@GRAD = c_sync_calc_stream(X=w@GRAD) {role='backward'}
      w@GRAD = c_allreduce_sum(X=w@GRAD) {role='backward'}
      w@GRAD = c_sync_comm_stream(X=w@GRAD) {role='backward'}
      c: float32[3] = clip_by_norm(X=w@GRAD) {max_norm=2.0, role='optimize|clip', role_vars=[w, w@GRAD]}
      ParamOut=w, VelocityOut=v = momentum(Param=w, Grad=c, Velocity=v, LearningRate=lr) {mu=0.9, role='optimize', role_vars=[w, c]}
    """  # noqa: E501
    lines = op_lines(ShardOptimizerState(2, shards=4), text, ["w", "v"])
    assert [re.sub(r"(, | \{)role=.*", lambda found: "}" * (found[1] == ", "), line) for line in lines] == [
        "w@GRAD = scale(X=x)",
        "[w@GRAD.part] = c_reduce_parts(X=[w@GRAD]) {nranks=2, blocks=2}",
        "w.part = c_part(X=w) {nranks=2, blocks=2}",
        "w@GRAD.part.norms_1 = part_norms(X=[w@GRAD.part]) {blocks=2}",
        "w@GRAD.part.norms_1.all = c_allgather(X=w@GRAD.part.norms_1) {nranks=2, use_calc_stream=True}",
        "Out=[c.part], Norm=c.part.norm = clip_parts(X=[w@GRAD.part], Norms=w@GRAD.part.norms_1.all) "
        "{columns=[0], max_norm=2.0}",
        "ParamOut=w.part, VelocityOut=v = momentum(Param=w.part, Grad=c.part, Velocity=v, LearningRate=lr) {mu=0.9}",
        "[w] = c_gather_parts(X=[w.part], Whole=[w]) {nranks=2}",
    ]


@pytest.mark.parametrize(
    ("clip", "expected"),
    [("none", 2), ("value", 2), ("norm", 3), ("global norm", 3), ("one after the other", 4)],
)
def test_exchanges_of_a_step(clip, expected):
    main, startup = built(lambda loss: fluid.optimizer.Adam(0.1, grad_clip=CLIPS[clip]).minimize(loss))
    twin = ShardOptimizerState(2)(GradAllReduce(2)(main))
    parallel.verify(twin)
    DataParallel(2, sharded=True).prepare(startup, twin)

    def run(rank):
        executor, scope = fluid.Executor(), fluid.Scope()
        executor.run(startup, scope=scope)
        executor.run(twin, {"x": ROWS}, scope=scope)  # the first run also compares parameters
        history = current()._meeting.histories[rank]
        before = len(history)
        executor.run(twin, {"x": ROWS}, scope=scope)
        return [call.operator for call in history[before:]]

    for calls in parallel.simulate(run, 2):
        assert [calls[0], calls[-1], len(calls)] == ["c_reduce_parts", "c_gather_parts", expected]


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 4, pytest.param(8, marks=pytest.mark.slow)])
def test_each_rank_keeps_its_part_of_the_state(ranks):
    def keep(rank, sharded):
        _, startup, twin = rewritten(minimize, wide, ranks, sharded=sharded)
        executor, scope = fluid.Executor(), fluid.Scope()
        executor.run(startup, scope=scope)
        executor.run(twin, {"x": ROWS}, scope=scope)
        state = [var.name for var in twin.list_vars() if fluid.io.is_belong_to_optimizer(var)]
        return sum(np.array(scope.find_var(name).get_tensor()).nbytes for name in state)

    def minimize(loss):
        fluid.optimizer.Adam(0.1).minimize(loss)

    def wide():
        hidden = layers.fc(fluid.data("x", [None, 7]), 300, act="relu")
        return layers.mean(layers.fc(layers.fc(hidden, 301), 3))

    (whole, *_) = parallel.simulate(partial(keep, sharded=False), ranks)
    params, states, numbers = 6, 2, 3  # an element of padding for each, and numbers such as the learning rate
    for part in parallel.simulate(partial(keep, sharded=True), ranks):
        assert part <= whole / ranks + 4 * params * (states + numbers)


def test_parameters_and_parts_of_the_state_are_written_over():
    main, startup = built(lambda loss: fluid.optimizer.Adam(0.1, grad_clip=CLIPS["global norm"]).minimize(loss))
    twin = DataParallel(2, sharded=True)(main)
    DataParallel(2, sharded=True).prepare(startup, twin)
    names = [var.name for var in twin.list_vars() if var.persistable]

    def run(rank):
        executor, scope = fluid.Executor(), fluid.Scope()
        executor.run(startup, scope=scope)
        addresses = []
        for _ in range(4):
            executor.run(twin, {"x": ROWS}, scope=scope)
            addresses.append([scope.find_var(name).value.ctypes.data for name in names])
        return addresses

    for addresses in parallel.simulate(run, 2):
        assert addresses[1:] == addresses[:1] * 3


@pytest.mark.slow
def test_programs_are_cloned_compared_and_written():
    main, _ = built(lambda loss: fluid.optimizer.Adam(0.1, grad_clip=CLIPS["global norm"]).minimize(loss))
    twin = DataParallel(2, shards=8, exact=True, sharded=True)(main)
    assert not fluid.diff(twin, twin.clone())
    assert str(fluid.Program.parse(str(twin))) == str(twin)
    read = fluid.Program.parse_from_string(serialize_program(twin))
    first, second = ([(op.type, op.inputs, op.outputs) for op in each.global_block().ops] for each in (read, twin))
    assert first == second
    assert not ShardOptimizerState(2, shards=8).apply(twin)


def optimizer(make, **options):
    return built(lambda loss: make(0.1, **options).minimize(loss))[0]


def with_error_clip():
    def clipped():
        loss = network()
        loss.block.program.global_block().var("fc_0.w_0").error_clip = fluid.clip.ErrorClipByValue(0.1)
        return loss

    return built(lambda loss: fluid.optimizer.SGD(0.1).minimize(loss), clipped)[0]


def twice():
    def minimize(loss):
        fluid.optimizer.SGD(0.1, parameter_list=["fc_0.w_0"]).minimize(loss)
        fluid.optimizer.SGD(0.1, parameter_list=["fc_1.w_0"]).minimize(loss)

    return built(minimize)[0]


def accumulated():
    inner = fluid.optimizer.SGD(0.1)
    return built(lambda loss: fluid.optimizer.GradientMergeOptimizer(inner, 2).minimize(loss))[0]


def statistics():
    return optimizer(fluid.optimizer.SGD, grad_clip=GradientClipByGlobalNorm(1.0, telemetry=True))


def by_hand(change, make=network):
    def minimize(loss):
        optimizer = fluid.optimizer.SGD(0.1)
        optimizer.apply_gradients([(param, change(grad)) for param, grad in optimizer.backward(loss)])

    return built(minimize, make)[0]


def of_rows(grad):
    if grad.type == fluid.core.VarDesc.VarType.SELECTED_ROWS:
        layers.reduce_sum(layers.get_tensor_from_selected_rows(layers.merge_selected_rows(grad)))
    return grad


def overwritten():
    main = optimizer(fluid.optimizer.SGD)
    block = main.global_block()
    (first, *_) = block.ops.of_type("sgd")
    attrs = {"shape": [1], "op_role": Role.OPTIMIZE}
    block.insert(first, "fill_constant", {}, {"Out": "fc_1.b_0@GRAD"}, attrs)
    return main


@pytest.mark.parametrize(
    ("make", "shown"),
    [
        (overwritten, "cannot divide fill_constant: it needs whole gradients"),
        (partial(optimizer, fluid.optimizer.Lamb), "cannot divide lamb: its update of an element depends on other"),
        (partial(optimizer, fluid.optimizer.LarsMomentum, momentum=0.9), "cannot divide lars_momentum"),
        (statistics, "cannot divide clip_statistics: it needs whole gradients"),
        (with_error_clip, "cannot divide clip: it reads a whole gradient, as an error_clip of a parameter does"),
        (twice, "it updates in front of another backward pass"),
        (partial(by_hand, lambda grad: grad - layers.reduce_mean(grad, 0, keep_dim=True)), "cannot divide reduce_mean"),
        (partial(by_hand, lambda grad: layers.reduce_prod(grad) * grad), "cannot divide reduce_prod"),
        (partial(by_hand, of_rows, lambda: network(is_sparse=True)), "cannot divide"),
        (accumulated, "no update outside of branches"),
    ],
)
def test_what_needs_whole_gradients_is_refused(make, shown):
    with pytest.raises(ProgramError, match=shown):
        DataParallel(2, sharded=True)(make())


def test_wrong_calls():
    main, startup = built(lambda loss: fluid.optimizer.SGD(0.1).minimize(loss))
    with pytest.raises(ProgramError, match=r"fc_0\.b_0@GRAD is not summed over the ranks"):
        ShardOptimizerState(2)(main)
    with pytest.raises(ProgramError, match="Give the rewritten program too"):
        DataParallel(2, sharded=True).prepare(startup)
    with pytest.raises(ProgramError, match="3 ranks cannot share 8 shards"):
        ShardOptimizerState(3, shards=8)


@pytest.mark.timing
def test_time_is_linear():
    def make(count):
        main = fluid.Program()
        with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
            hidden = fluid.data("x", [None, 2])
            for _ in range(count // 8):
                hidden = layers.fc(hidden, 2, act="relu")
            fluid.optimizer.Adam(0.1, grad_clip=GradientClipByGlobalNorm(1.0)).minimize(layers.mean(hidden))
        return GradAllReduce(2)(main)

    assert_linear(ShardOptimizerState(2), make)
