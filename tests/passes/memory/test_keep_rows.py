"""KeepRows keeps the gradient of a table as the rows that were looked up."""

from functools import partial

import numpy as np
import pytest
from pass_laws import assert_linear, pipeline, rewritten

import minigraph as fluid
from minigraph import clip, layers
from minigraph.executor.interpreter import Interpreter
from minigraph.executor.plan import lower
from minigraph.passes import KeepRows
from minigraph.runtime.place import CPUPlace, CUDAPlace
from minigraph.types import DType, TensorType

CLIPS = {
    "none": None,
    "global norm": clip.GradientClipByGlobalNorm(0.01),
    "a norm each": clip.GradientClipByNorm(0.01),
    "a high threshold": clip.GradientClipByGlobalNorm(100.0),
}


def network(grad_clip=None, optimizer=fluid.optimizer.SGD, lookups=1, rows=20, width=2, **options):
    """Two programs in which tables are looked up, the loss, and the tables' names."""
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 3
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        common = {"size": [rows, 8], "param_attr": "table", "dtype": "float64"}
        found = [fluid.embedding(fluid.data("ids", [None], "int64"), **common, **options)]
        if lookups > 1:
            found.append(layers.embedding(fluid.data("more", [None, 1], "int64"), **common))
        score = layers.fc(layers.concat(found, axis=1), width)
        loss = layers.mean(layers.square(score))
        optimizer(0.1, grad_clip=grad_clip).minimize(loss)
    return main, startup, loss


FEED = {"ids": np.array([3, 1, 3, 7]), "more": np.array([[0], [3], [19], [19]])}


def trained(executor, main, startup, loss, steps=3):
    scope = fluid.Scope()
    executor.run(startup, scope=scope)
    feed = {name: ids for name, ids in FEED.items() if name in main.global_block().vars}
    losses = [executor.run(main, feed=feed, fetch_list=[loss], scope=scope)[0].item() for _ in range(steps)]
    return losses, {param.name: np.array(scope.find_var(param.name).get_tensor()) for param in main.all_parameters()}


def kinds(program):
    """Whether each lookup's gradient is selected rows."""
    block = program.global_block()
    grads = [op for op in block.ops if op.type.startswith("lookup_table") and op.type.endswith("_grad")]
    return [block.vars[op.outputs["W@GRAD"][0]].tensor_type.is_rows for op in grads]


def rows_kept(main, loss, least=100, fetch=()):
    twin = main.clone()
    twin.roots = (loss.name, *fetch)
    pipeline(KeepRows(least)).apply(twin)
    return kinds(twin)


@pytest.mark.parametrize("lookups", [1, 2])
@pytest.mark.parametrize("name", CLIPS)
@pytest.mark.parametrize("optimizer", [fluid.optimizer.SGD, fluid.optimizer.Adagrad])
def test_training_is_that_of_the_dense_gradient(optimizer, name, lookups):
    built = network(CLIPS[name], optimizer, lookups=lookups)
    assert rows_kept(built[0], built[2]) == [True] * lookups
    losses, params = trained(fluid.Executor(passes=pipeline(KeepRows(100))), *built)
    expected, expected_params = trained(Interpreter(), *built)
    np.testing.assert_allclose(losses, expected, rtol=1e-12)
    for key, value in expected_params.items():
        np.testing.assert_allclose(params[key], value, rtol=1e-12, err_msg=key)
    untouched = [row for row in range(20) if row not in (3, 1, 7, 0, 19)]
    start = trained(Interpreter(), *built, steps=0)[1]["table"]
    assert params["table"][untouched].tobytes() == start[untouched].tobytes()


LEFT_ALONE = {
    "a small table": (lambda: network(), {"least": 1000}),
    "a gradient that is fetched": (lambda: network(), {"fetch": ["table@GRAD"]}),
    "an update that reads zeros, too": (lambda: network(optimizer=fluid.optimizer.Adam), {}),
    "an update that divides 0 by 0": (lambda: network(optimizer=partial(fluid.optimizer.Adagrad, epsilon=0.0)), {}),
    "rows that get no gradient": (lambda: network(padding_idx=3), {}),
    "a table beside larger gradients": (lambda: network(CLIPS["global norm"], width=100), {}),
}


@pytest.mark.parametrize("what", LEFT_ALONE)
def test_the_gradient_stays_dense(what):
    make, options = LEFT_ALONE[what]
    main, _, loss = make()
    assert rows_kept(main, loss, **options) == [False]


def test_a_table_whose_size_counts_in_the_loss_stays_dense():
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        found = fluid.embedding(fluid.data("ids", [None], "int64"), [20, 8], param_attr="table")
        table = main.global_block().var("table")
        loss = layers.mean(found) + layers.reduce_sum(layers.square(table))
        fluid.optimizer.SGD(0.1).minimize(loss)
    assert rows_kept(main, loss) == [False]


@pytest.mark.parametrize(("count", "expected"), [(10, True), (11, False)])
def test_as_many_ids_as_half_the_rows_are_worthwhile(count, expected):
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        loss = layers.mean(fluid.embedding(fluid.data("ids", [count], "int64"), [20, 8]))
        fluid.optimizer.SGD(0.1).minimize(loss)
    assert rows_kept(main, loss) == [expected]


def test_a_width_beside_the_table_counts_with_the_clip_only():
    main, _, loss = network(width=100)
    assert rows_kept(main, loss) == [True]


def test_other_rows_stay_where_the_norm_is_no_number():
    main, startup, loss = network(CLIPS["global norm"])
    scope, executor = fluid.Scope(), fluid.Executor(passes=pipeline(KeepRows(100)))
    executor.run(startup, scope=scope)
    tensor = scope.find_var("table").get_tensor()
    start = np.array(tensor)
    start[3] = np.nan
    tensor.set(start, CPUPlace())
    executor.run(main, feed={"ids": FEED["ids"]}, fetch_list=[loss], scope=scope)
    is_lost = np.isnan(np.array(tensor)).any(1)
    assert is_lost.nonzero()[0].tolist() == [1, 3, 7]


def test_twice_is_once():
    main, _, loss = network(CLIPS["global norm"], lookups=2)
    assert kinds(rewritten(KeepRows(100), main, [loss.name])) == [False, False]  # the clip is still fluid's chain


def test_plans_for_a_processor_have_it_only(host_cuda):
    main, _, loss = network(rows=1 << 15)
    types = {"ids": TensorType(DType.INT64, (4,))}
    assert kinds(lower(main, types, [loss.name], CPUPlace()).program) == [True]
    assert kinds(lower(main, types, [loss.name], CUDAPlace(0)).program) == [False]


@pytest.mark.timing
def test_time_is_linear():
    def make(count):
        main = fluid.Program()
        with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
            ids = fluid.data("ids", [None], "int64")
            found = [fluid.embedding(ids, [20, 8]) for _ in range(count // 8)]
            loss = layers.mean(layers.sums(found))
            fluid.optimizer.SGD(0.1, grad_clip=clip.GradientClipByGlobalNorm(1.0)).minimize(loss)
        main.roots = (loss.name,)
        pipeline().apply(main)
        return main

    assert_linear(KeepRows(100), make, size=160)
