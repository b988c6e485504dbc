"""Batch norms by the statistics of all ranks' samples: ranks train as one."""

from decimal import Decimal
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

import minigraph as fluid
from minigraph import dygraph, layers, nn, parallel
from minigraph.errors import ProgramError, VerifyError
from minigraph.passes import SyncBatchNorm

SAMPLES, STEPS = 12, 3
EVEN = [(6, 6), (3, 3, 3, 3)]
RAGGED = [(1, 11), (0, 12), (1, 3, 1, 7)]
TOLERANCE = {"float64": 1e-12, "float32": 1e-6}
SHAPES = {"NCHW": (3, 4, 5), "NHWC": (4, 5, 3)}


def build(dtype, layout):
    """A loss of two batch norms in a row, so that a gradient flows through the statistics of the first."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x = fluid.data("x", [None, *SHAPES[layout]], dtype)
        scale = fluid.ParamAttr(initializer=fluid.initializer.Constant(1.3))
        first = layers.tanh(layers.batch_norm(x, param_attr=scale, data_layout=layout))
        second = layers.batch_norm(layers.square(first), data_layout=layout, momentum=0.5)
        loss = layers.mean(layers.square(second) * layers.exp(first))
        fluid.optimizer.Momentum(0.1, 0.9).minimize(loss)
    return main, startup, loss


def batches(dtype, layout):
    """Samples with a mean that is large beside their differences."""
    rng = np.random.default_rng(0)
    return (rng.normal(size=(STEPS, SAMPLES, *SHAPES[layout])) * 3 + 20).astype(dtype)


def state(program, scope):
    names = [var.name for var in program.list_vars() if var.persistable and scope.find_var(var.name)]
    return {name: np.array(scope.find_var(name).get_tensor()) for name in names}


def train(rows, ranks, dtype, layout="NCHW"):
    main, startup, loss = build(dtype, layout)
    rewrite = parallel.DataParallel(ranks, ragged=True, sync_batch_norm=True)
    twin = rewrite(main)
    rewrite.prepare(startup, twin)
    executor, scope = fluid.Executor(), fluid.Scope()
    executor.run(startup, scope=scope)
    for batch in batches(dtype, layout):
        executor.run(twin, {"x": batch[rows]}, [loss], scope=scope)
    return state(twin, scope)


def parts(sizes):
    ends = np.cumsum([0, *sizes])
    return [slice(*pair) for pair in pairwise(ends)]


@pytest.mark.slow
@pytest.mark.parametrize("layout", SHAPES)
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("sizes", [*EVEN, *RAGGED], ids=str)
def test_ranks_train_as_one_with_the_same_statistics(sizes, dtype, layout):
    expected = train(slice(None), 1, dtype, layout)
    found = parallel.simulate(lambda rank: train(parts(sizes)[rank], len(sizes), dtype, layout), len(sizes))
    for name, value in expected.items():
        for each in found:
            assert np.array_equal(each[name], found[0][name]), name
        scale = max(1e-3, np.abs(value).max())
        np.testing.assert_allclose(found[0][name] / scale, value / scale, atol=TOLERANCE[dtype], rtol=0, err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("places", [2, 4])
def test_places_have_the_statistics_of_all_samples(places):
    found = []
    for synchronizes in (False, True):
        main, startup, loss = build("float64", "NCHW")
        strategy = fluid.BuildStrategy()
        strategy.sync_batch_norm = synchronizes
        compiled = fluid.CompiledProgram(main).with_data_parallel(
            loss.name, strategy, places=fluid.cpu_places(places if synchronizes else 1)
        )
        executor, scope = fluid.Executor(), fluid.Scope()
        executor.run(startup, scope=scope)
        for batch in batches("float64", "NCHW"):
            (value,) = executor.run(compiled, {"x": batch}, [loss], scope=scope)
        found.append(state(main, scope) | {"loss": value.mean()})
    for name, value in found[0].items():
        np.testing.assert_allclose(found[1][name], value, rtol=1e-11, atol=1e-13, err_msg=name)


@pytest.mark.parametrize("attrs", [{"is_test": True}, {"use_global_stats": True}])
def test_where_running_statistics_are_used_nothing_is_exchanged(attrs):
    main = fluid.Program()
    with fluid.program_guard(main):
        layers.batch_norm(fluid.data("x", [None, 3]), **attrs)
    assert SyncBatchNorm()(main).global_block().ops.of_type("batch_norm")


def test_a_clone_for_tests_runs_on_any_rank_alone():
    main, startup, _ = build("float32", "NCHW")
    twin = SyncBatchNorm()(main).clone(for_test=True)
    (normalized,) = twin.global_block().ops.of_type("sync_batch_norm")[-1].output("Y")

    def run(rank):
        if rank:
            return None
        executor, scope = fluid.Executor(), fluid.Scope()
        executor.run(startup, scope=scope)
        return executor.run(twin, {"x": batches("float32", "NCHW")[0]}, [normalized], scope=scope)[0]

    assert np.isfinite(parallel.simulate(run, 2)[0]).all()


def test_the_warning_about_statistics_of_a_rank_names_it_and_it_silences_the_warning(recwarn):
    main, _, _ = build("float32", "NCHW")
    parallel.DataParallel(2, ragged=True, sync_batch_norm=True)(main)
    assert not recwarn.list
    with pytest.warns(UserWarning, match="DataParallel.*sync_batch_norm=True.* for statistics of all ranks' samples"):
        parallel.DataParallel(2, ragged=True)(main)


def test_shards_have_statistics_of_their_own():
    with pytest.raises(ProgramError, match="needs all samples at once, but exact=True computes shard by shard"):
        parallel.DataParallel(2, exact=True, sync_batch_norm=True)


def test_statistics_that_are_exchanged_are_global_and_their_order_is_that_of_all_ranks():
    main, _, _ = build("float32", "NCHW")
    twin = parallel.DataParallel(2, ragged=True, sync_batch_norm=True)(main)
    parallel.verify(twin, statistics="global", ranks=2)
    other = twin.clone()
    other.global_block().remove(other.global_block().ops.of_type("sync_batch_norm_grad")[0])
    with pytest.raises(VerifyError, match="rank 0 and rank 1 exchange in different order"):
        parallel.verify(twin, other, ranks=2)


def test_ranks_with_other_layers_end_with_an_error():
    def run(rank):
        with fluid.program_guard(fluid.Program(), fluid.Program()):
            x = fluid.data("x", [None, 3])
            for _ in range(rank + 1):
                x = layers.batch_norm(x)
            program = SyncBatchNorm()(fluid.default_main_program())
            executor, scope = fluid.Executor(), fluid.Scope()
            executor.run(fluid.default_startup_program(), scope=scope)
            executor.run(program, {"x": np.ones((2, 3), "float32")}, [x.name], scope=scope)

    with pytest.raises(fluid.errors.CommunicationError, match=r"sync_batch_norm of statistics of 3 channels|has ended"):
        parallel.simulate(run, 2)


def imperative(rows, convert):
    with dygraph.guard():
        first, last = (fluid.ParamAttr(initializer=fluid.initializer.Constant(value)) for value in (0.5, 0.25))
        model = nn.Sequential(
            dygraph.Linear(3, 3, param_attr=first), nn.BatchNorm1D(3), dygraph.Linear(3, 1, param_attr=last)
        )
        if convert:
            model = nn.SyncBatchNorm.convert_sync_batchnorm(model)
        model = dygraph.DataParallel(model, dygraph.prepare_context())
        optimizer = fluid.optimizer.SGD(0.1, parameter_list=model.parameters())
        for batch in np.random.default_rng(1).normal(size=(STEPS, SAMPLES, 3)) * np.arange(1, 4):
            made = model(dygraph.to_variable(batch.astype("float32")[rows]))
            loss = model.scale_loss(layers.mean(layers.square(made - 1.0)))
            loss.backward()
            model.apply_collective_grads()
            optimizer.minimize(loss)
            model.clear_gradients()
        return {name: value.numpy() for name, value in model.state_dict().items()}


def test_layers_of_the_imperative_mode_train_as_one():
    expected = imperative(slice(None), convert=False)
    for found in parallel.simulate(lambda rank: imperative(parts((6, 6))[rank], convert=True), 2):
        for name, value in expected.items():
            np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=1e-6, err_msg=name)


def penalized(rows, ranks):
    """A step of a loss with a gradient of its own, which flows through the statistics of all ranks again."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x = fluid.data("x", [None, 3], "float64")
        x.stop_gradient = False
        constant = fluid.ParamAttr(name="w", initializer=fluid.initializer.NumpyArrayInitializer(np.eye(3) + 0.1))
        hidden = layers.batch_norm(layers.fc(x, 3, param_attr=constant))
        if ranks > 1:
            SyncBatchNorm().apply(main)
        critic = layers.reduce_sum(layers.exp(hidden))
        (flowing,) = fluid.gradients(critic, x)
        loss = layers.mean(layers.reduce_sum(layers.square(flowing), 1))
        fluid.optimizer.SGD(0.1).minimize(loss)
    twin = parallel.DataParallel(ranks)(main)
    executor, scope = fluid.Executor(), fluid.Scope()
    executor.run(startup, scope=scope)
    executor.run(twin, {"x": np.random.default_rng(2).normal(size=(SAMPLES, 3))[rows]}, [loss], scope=scope)
    return np.array(scope.find_var("w").get_tensor())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_gradients_of_gradients_are_those_of_one_rank():
    expected = penalized(slice(None), 1)
    for found in parallel.simulate(lambda rank: penalized(parts((6, 6))[rank], 2), 2):
        np.testing.assert_allclose(found, expected, rtol=1e-12)


EPSILON = float(np.float32(1e-5))
"""The attribute of a batch norm is a float32, as in Paddle."""

# Two processes of PyTorch 2.13 (gloo, float64), the first with samples 0 and 1: mean, variance and normalization by
# torch.distributed.nn.functional.all_reduce, gradients by autograd. Paddle 1.8.5 has no such operator for processors.
RECORDED = {
    "y": [
        -2.205283800716888, -1.0247027079128885, 0.15587838489111094, 0.2659750152452961, 0.9848507012836614,
        -0.9321511281519792, 0.5494054158257773, -2.205283800716888, -0.6311756769782221, -0.6925258994725243,
        0.2659750152452961, 1.2244759299631165, -1.0247027079128885, 0.9429324467604441, -1.418229738847555,
        0.9848507012836614, -0.45290067079306917, 0.7452254726042062, 1.7299865086297768, -0.23764864604355557,
        -2.205283800716888, 0.026349786565841027, 1.4641011586425714, 0.2659750152452961, 0.15587838489111094,
        -1.418229738847555, 1.3364594776951104, -0.9321511281519792, 0.7452254726042062, -0.21327544211361404,
    ],
    "d_x": [
        -2.5855056543480885, -0.3959589083888274, 1.7935878375704335, -0.6131966446092321, 0.5479817895099331,
        -0.6314922053722004, 0.9493286291515213, -1.0113975306094223, 1.9079981306695921, -1.202933642050299,
        0.3453042701085882, -1.4612110192448955, -0.3959589083888274, -0.6819846411367239, -0.3387537618392481,
        0.5479817895099331, 1.1011276654250635, 0.6401727688291216, -2.370503057974548, 1.8507929841200128,
        0.5627105931292433, -0.04175520793113359, -1.553401998564084, 1.3038051848264087, 1.7935878375704335,
        0.4483003000300848, -1.526243849555636, -0.6314922053722004, 1.119423226188032, 0.5296862287469649,
    ],
    "d_scale": [[2.0988108316515546, 1.5708764991208737], [-1.2330513635952882, 0.6869256555477685]],
    "d_bias": [[1.0, -1.25], [1.25, 2.25]],
}  # fmt: skip


def recorded_run():
    """What two ranks with 2 and 3 samples fetch: results, gradients and running statistics."""
    i, c, j = np.meshgrid(np.arange(5), np.arange(2), np.arange(3), indexing="ij")
    x = ((7 * i + 5 * c + 3 * j + i * j) % 11) / 8 + 20 * c
    weights = ((5 * i + 2 * c + 3 * j + i * i * j) % 7 - 3) / 4
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        given, factor = (fluid.data(name, [None, 2, 3], "float64") for name in ("x", "weights"))
        given.stop_gradient = False
        starts = [
            fluid.ParamAttr(initializer=fluid.initializer.NumpyArrayInitializer(np.array(values)))
            for values in ([1.25, 0.75], [-0.5, 0.25])
        ]
        y = layers.batch_norm(
            given, param_attr=starts[0], bias_attr=starts[1], momentum=0.0, moving_mean_name="mean",
            moving_variance_name="variance",
        )  # fmt: skip
        params = [main.global_block().var(name) for name in ("batch_norm_0.w_0", "batch_norm_0.b_0")]
        grads = fluid.gradients(layers.reduce_sum(y * factor), [given, *params])
    twin = SyncBatchNorm()(main)

    def run(rank):
        executor, scope, rows = fluid.Executor(), fluid.Scope(), [slice(0, 2), slice(2, 5)][rank]
        executor.run(startup, scope=scope)
        fetches = [y, *grads, "mean", "variance"]
        return executor.run(twin, {"x": x[rows], "weights": weights[rows]}, fetches, scope=scope)

    return x, parallel.simulate(run, 2)


def test_numbers_are_those_of_two_processes_of_torch():
    _, ranks = recorded_run()
    for at, name in enumerate(("y", "d_x")):
        found = np.concatenate([fetched[at] for fetched in ranks]).ravel()
        np.testing.assert_allclose(found, RECORDED[name], rtol=1e-12, atol=1e-13)
    for at, name in enumerate(("d_scale", "d_bias"), 2):
        np.testing.assert_allclose([fetched[at] for fetched in ranks], RECORDED[name], rtol=1e-12, atol=1e-13)


def test_statistics_are_those_of_exact_arithmetic():
    """Rounded once, of numbers whose mean is large beside their differences."""
    x, ranks = recorded_run()
    for channel in range(2):
        samples = [Fraction(float(each)) for each in x[:, channel].ravel()]
        mean = sum(samples) / len(samples)
        variance = sum((each - mean) ** 2 for each in samples) / len(samples)
        for *_, means, variances in ranks:
            np.testing.assert_allclose(means[channel], float(mean), rtol=3e-16)
            np.testing.assert_allclose(variances[channel], float(variance), rtol=1e-15)
        scale, bias = [(1.25, -0.5), (0.75, 0.25)][channel]
        root = (Decimal(variance.numerator) / variance.denominator + Decimal(EPSILON)).sqrt()
        exact = [
            float(Decimal((each - mean).numerator) / (each - mean).denominator / root * Decimal(scale) + Decimal(bias))
            for each in samples
        ]
        found = np.concatenate([fetched[0][:, channel] for fetched in ranks]).ravel()
        np.testing.assert_allclose(found, exact, rtol=1e-14, atol=1e-14)
