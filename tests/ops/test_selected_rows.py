"""Selected rows: the gradients of sparse embeddings, from the lookup to the update.

The truth is the dense gradient of the same program, wherever the mathematics are the same.
"""

import numpy as np
import pytest
from sparse_models import CLIPS, IDS, OPTIMIZERS, SIZE, Model, starting_from

import minigraph as fluid
from minigraph import clip, layers
from minigraph.clip import ClipPipeline
from minigraph.compat import tensorflow
from minigraph.compat.torch.nn import utils as torch_utils
from minigraph.errors import (
    DataError,
    ExecutionError,
    MinigraphError,
    NonfiniteError,
    OpError,
    ProgramError,
    VerifyError,
    WrongTypeError,
)
from minigraph.executor.interpreter import Interpreter
from minigraph.ir import Program, VarKind
from minigraph.ir.verifier import verify
from minigraph.runtime.scope_variable import SelectedRows
from minigraph.types import DType, TensorType


@pytest.fixture(autouse=True)
def _names():
    with fluid.unique_name.guard():
        yield


def assert_close(found, expected, rtol=1e-11):
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, rtol=rtol, atol=rtol, err_msg=name)


def assert_trains_alike(make_optimizer, rtol=1e-11, **options):
    states = []
    for is_sparse in (True, False):
        with fluid.unique_name.guard():
            model = Model(is_sparse, **options).minimize(make_optimizer())
            assert model.main.global_block().var("table@GRAD").kind is (
                VarKind.SELECTED_ROWS if is_sparse else VarKind.LOD_TENSOR
            )
            verify(model.main)
            states.append(model.train()[0])
    assert_close(*states, rtol)


TAKES_ROWS = {**OPTIMIZERS, "adam": fluid.optimizer.Adam, "lazy": lambda: fluid.optimizer.Adam(0.1, lazy_mode=True)}


@pytest.mark.parametrize("kind", CLIPS)
def test_a_clip_gives_what_it_gives_for_the_dense_gradient(kind):
    assert_trains_alike(lambda: fluid.optimizer.SGD(0.1, grad_clip=CLIPS[kind]))


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("kind", ["none", "global norm", "skip"])
def test_an_optimizer_gives_what_it_gives_for_the_dense_gradient(name, kind):
    assert_trains_alike(lambda: OPTIMIZERS[name](grad_clip=CLIPS[kind]))


@pytest.mark.parametrize("decay", [fluid.regularizer.L1Decay(0.1), fluid.regularizer.L2Decay(0.1)])
def test_decay_makes_the_gradient_dense(decay):
    assert_trains_alike(lambda: fluid.optimizer.SGD(0.1, regularization=decay, grad_clip=CLIPS["norm"]))
    model = Model().minimize(fluid.optimizer.SGD(0.1, regularization=decay))
    update = next(op for op in model.main.global_block().ops if op.inputs.get("Param") == ("table",))
    # The name is fluid's.
    assert update.input("Grad") == ["table@GRAD@NEWGRAD@"]
    assert model.main.global_block().var("table@GRAD@NEWGRAD@").kind is VarKind.LOD_TENSOR


def test_adam_gives_what_it_gives_for_the_dense_gradient_with_its_powers_one_step_ahead():
    """As in fluid, whose sparse kernel has multiplied them when it uses them."""

    def ahead(scope):
        for name, beta in (("table_beta1_pow_acc_0", 0.9), ("table_beta2_pow_acc_0", 0.999)):
            tensor = scope.find_var(name).get_tensor()
            tensor.set(np.array(tensor) * np.float32(beta))

    sparse, _ = Model().minimize(fluid.optimizer.Adam(0.1)).train()
    with fluid.unique_name.guard():
        expected, _ = Model(is_sparse=False).minimize(fluid.optimizer.Adam(0.1)).train(prepare=ahead)
    for name in ("table", "weight", "table_moment1_0", "table_moment2_0"):
        np.testing.assert_allclose(sparse[name], expected[name], rtol=1e-6, atol=1e-9, err_msg=name)


def test_adam_has_no_gradient_for_rows_that_nothing_has_looked_up():
    """Fluid reads on behind the list of rows, and finds 33 there: what the allocator keeps behind a small array."""
    main, startup, scope = fluid.Program(), fluid.Program(), fluid.Scope()
    with fluid.program_guard(main, startup):
        ids = fluid.data("ids", [None, 1], "int64")
        rows = fluid.embedding(ids, [40, 3], is_sparse=True, param_attr=fluid.ParamAttr(name="table"))
        fluid.optimizer.Adam(0.1).minimize(layers.reduce_sum(rows))
    executor = fluid.Executor()
    executor.run(startup, scope=scope)
    executor.run(main, {"ids": np.array([[9], [2], [9]])}, scope=scope)
    moments = np.array(scope.find_var("table_moment1_0").get_tensor())
    np.testing.assert_allclose(moments[[2, 9]], [[0.1] * 3, [0.2] * 3], rtol=1e-6)
    assert np.flatnonzero(moments.any(axis=1)).tolist() == [2, 9]


@pytest.mark.parametrize("make", [fluid.optimizer.Adam, fluid.optimizer.AdamW])
def test_lazy_updates_change_only_the_rows_looked_up(make):
    options = {"weight_decay": 0.0} if make is fluid.optimizer.AdamW else {}
    model = Model().minimize(make(0.1, lazy_mode=True, **options))
    executor, scope = fluid.Executor(), fluid.Scope()
    executor.run(model.startup, scope=scope)
    names = ["table", "table_moment1_0", "table_moment2_0"]
    for ids in IDS:
        before = [np.array(scope.find_var(name).get_tensor()) for name in names]
        executor.run(model.main, {"ids": ids}, scope=scope)
        for name, old in zip(names, before, strict=True):
            changed = (np.array(scope.find_var(name).get_tensor()) != old).any(axis=1)
            assert np.flatnonzero(changed).tolist() == sorted(set(ids.ravel().tolist())), name


@pytest.mark.parametrize("name", TAKES_ROWS)
def test_a_plan_gives_the_bits_of_the_interpreter(name):
    with fluid.unique_name.guard():
        model = Model(dtype="float32").minimize(TAKES_ROWS[name]())
    found, fetched = model.train(fetch=["table@GRAD", model.loss])
    expected, again = model.train(Interpreter, fetch=["table@GRAD", model.loss])
    for key, array in expected.items():
        assert found[key].tobytes() == array.tobytes(), key
    for (rows, loss), (other, other_loss) in zip(fetched, again, strict=True):
        assert rows.rows() == other.rows()
        assert np.array(rows.get_tensor()).tobytes() == np.array(other.get_tensor()).tobytes()
        assert loss.tobytes() == other_loss.tobytes()


@pytest.mark.parametrize("kind", CLIPS)
def test_a_clip_in_a_plan_gives_the_bits_of_the_interpreter(kind):
    model = Model(dtype="float32").minimize(fluid.optimizer.SGD(0.1, grad_clip=CLIPS[kind]))
    (found, _), (expected, _) = model.train(), model.train(Interpreter)
    for key, array in expected.items():
        assert found[key].tobytes() == array.tobytes(), key


# In programs


def test_a_table_looked_up_twice_gets_the_rows_of_both_lookups():
    values = {}
    for is_sparse in (True, False):
        main, startup = fluid.Program(), fluid.Program()
        with fluid.program_guard(main, startup), fluid.unique_name.guard():
            a, b = fluid.data("a", [3], "int64"), fluid.data("b", [2], "int64")
            attr = starting_from(np.arange(10.0).reshape(5, 2).astype("float32"))
            sums = [
                layers.reduce_sum(layers.square(fluid.embedding(x, [5, 2], is_sparse, param_attr=attr))) for x in (a, b)
            ]
            ((_, gradient),) = fluid.append_backward(sums[0] + sums[1] * 2.0)
        executor, scope = fluid.Executor(), fluid.Scope()
        executor.run(startup, scope=scope)
        feed = {"a": np.array([0, 4, 4]), "b": np.array([4, 1])}
        (values[is_sparse],) = executor.run(main, feed, [gradient], scope=scope)
    assert sorted(values[True].rows()) == [0, 1, 4, 4, 4]
    assert np.array_equal(values[True].numpy(), values[False])


@pytest.mark.slow
@pytest.mark.parametrize("with_decay", [False, True])
def test_no_pass_takes_rows_for_an_array(with_decay):
    """A table large enough for fusions, looked up twice: the sum of the rows, the clip and the decay stay apart."""
    states = []
    for is_sparse in (True, False):
        main, startup = fluid.Program(), fluid.Program()
        with fluid.program_guard(main, startup), fluid.unique_name.guard():
            ids = fluid.data("ids", [None], "int64")
            initial = np.random.default_rng(0).standard_normal((3000, 8)).astype("float32")
            found = [
                fluid.embedding(x, [3000, 8], is_sparse, param_attr=starting_from(initial)) for x in (ids, ids + 1)
            ]
            loss = layers.reduce_sum(layers.square(found[0] * 2.0 - found[1]))
            decay = fluid.regularizer.L1Decay(0.1) if with_decay else None
            clips = ClipPipeline([clip.GradientClipByValue(2.0), clip.GradientClipByValue(1.0)])
            fluid.optimizer.SGD(0.1, regularization=decay, grad_clip=clips).minimize(loss)
        executor, scope = fluid.Executor(), fluid.Scope()
        executor.run(startup, scope=scope)
        executor.run(main, {"ids": np.arange(0, 2998, 3)}, scope=scope)
        states.append(np.array(scope.find_var("table").get_tensor()))
    np.testing.assert_allclose(*states, rtol=1e-6, atol=1e-7)


def test_a_table_that_is_also_multiplied_has_a_dense_gradient():
    def tied(is_sparse):
        model = Model(is_sparse)
        with fluid.program_guard(model.main, model.startup):
            scores = layers.matmul(layers.reshape(model.found, [-1, SIZE[1]]), model.table, transpose_y=True)
            model.loss = model.loss + layers.reduce_sum(layers.square(scores))
        model.minimize(fluid.optimizer.Momentum(0.001, 0.9, grad_clip=CLIPS["global norm"]))
        assert model.main.global_block().var("table@GRAD").kind is VarKind.LOD_TENSOR
        return model.train()[0]

    with fluid.unique_name.guard():
        expected = tied(False)
    assert_close(tied(True), expected)


def test_a_fetched_gradient_has_rows_height_and_values():
    model = Model()
    with fluid.program_guard(model.main, model.startup):
        gradient = dict((p.name, g) for p, g in fluid.append_backward(model.loss))["table"]
    executor, scope = fluid.Executor(), fluid.Scope()
    executor.run(model.startup, scope=scope)
    for return_numpy in (True, False):
        (found,) = executor.run(model.main, {"ids": IDS[0]}, [gradient], scope=scope, return_numpy=return_numpy)
        assert isinstance(found, SelectedRows)
        assert found.rows() == [3, 1, 3, 3, 10, 0]
        assert found.height() == SIZE[0]
        assert (found.shape, found.dtype) == (tuple(SIZE), np.dtype("float64"))
        assert np.array(found.get_tensor()).shape == (6, SIZE[1])
        assert found.get_tensor().shape() == [6, SIZE[1]]
        assert np.asarray(found, "float32").dtype == np.float32
        whole = np.zeros(SIZE)
        np.add.at(whole, found.rows(), np.array(found.get_tensor()))
        assert np.array_equal(found.numpy(), whole)
        assert np.array_equal(np.array(found), whole)
        assert "rows=[3, 1, 3, 3, 10, 0]" in repr(found)


def test_what_is_fetched_is_the_callers_own():
    """The values are a view of what flows into the lookup, here of what was fed."""
    main = fluid.Program()
    with fluid.program_guard(main):
        table = main.global_block().create_var(name="w", shape=[3, 2], dtype="float32", stop_gradient=False)
        found = main.global_block().create_var(name="found")
        ids, flowing = fluid.data("ids", [2], "int64"), fluid.data("flowing", [2, 2], "float32")
        main.global_block().append_op("lookup_table_v2", {"W": table, "Ids": ids}, {"Out": found}, {"is_sparse": True})
        (gradient,) = fluid.gradients([found], [table], [flowing])
    feed = {"w": np.zeros((3, 2), "float32"), "ids": np.array([2, 0]), "flowing": np.ones((2, 2), "float32")}
    for executor in (fluid.Executor(), Interpreter()):
        (got,) = executor.run(main, feed, [gradient])
        feed["flowing"][:] = 7
        feed["ids"][:] = 1
        assert got.numpy().tolist() == [[1, 1], [0, 0], [1, 1]]
        feed["flowing"][:], feed["ids"][:] = 1, [2, 0]


def test_a_persistable_gradient_stays_in_the_scope():
    model = Model()
    with fluid.program_guard(model.main, model.startup):
        gradient = dict((p.name, g) for p, g in fluid.append_backward(model.loss))["table"]
        gradient.persistable = True
    for executor in (fluid.Executor(), Interpreter()):
        scope = fluid.Scope()
        executor.run(model.startup, scope=scope)
        executor.run(model.main, {"ids": IDS[0]}, scope=scope)
        held = scope.find_var(gradient.name).get_selected_rows()
        assert (held.rows(), held.height()) == ([3, 1, 3, 3, 10, 0], SIZE[0])
        with pytest.raises(ProgramError, match="holds selected rows"):
            np.array(scope.find_var(gradient.name).get_tensor())
    with pytest.raises(DataError, match=r"table@GRAD holds rows of a sparse matrix"), fluid.scope_guard(scope):
        fluid.io.save_vars(executor, "unused", model.main, vars=[gradient])


def test_rows_can_be_set_in_a_scope_and_read_by_a_program():
    main, scope = fluid.Program(), fluid.Scope()
    with fluid.program_guard(main):
        x = main.global_block().create_var(
            name="x", shape=[4, 2], dtype="float32", type=fluid.core.VarDesc.VarType.SELECTED_ROWS, persistable=True
        )
        once = layers.merge_selected_rows(x)
        values = layers.get_tensor_from_selected_rows(once)
    held = scope.var("x").get_selected_rows()
    held.set_height(4)
    held.set_rows([2, 0, 2])
    held.get_tensor().set(np.array([[1, 2], [3, 4], [5, 6]], "float32"), fluid.CPUPlace())
    held.sync_index()
    for executor in (fluid.Executor(), Interpreter()):
        merged_rows, array = executor.run(main, fetch_list=[once, values], scope=scope)
        assert (merged_rows.rows(), merged_rows.height()) == ([0, 2], 4)
        assert array.tolist() == [[3, 4], [6, 8]]
    assert held.rows() == [2, 0, 2]
    scope.var("x").get_tensor().set(np.zeros((4, 2), "float32"))
    with pytest.raises(ExecutionError, match=r"declared float32\[4, 2\] as selected rows but .* float32\[4, 2\]"):
        fluid.Executor().run(main, fetch_list=[values], scope=scope)
    with pytest.raises(ProgramError, match="x holds a dense tensor"):
        held.rows()
    with pytest.raises(ProgramError, match="y holds no value yet"):
        scope.var("y").get_selected_rows().rows()


@pytest.mark.slow
def test_an_update_writes_over_the_table_and_nothing_of_its_size_is_made():
    for make in (TAKES_ROWS["sgd"], TAKES_ROWS["adagrad"], TAKES_ROWS["lazy"]):
        with fluid.unique_name.guard():
            model = Model().minimize(make())
        report = fluid.Executor().explain(model.main, {"ids": IDS[0]})
        (update,) = [step for step in report.steps if step.op.inputs.get("Param") == ("table",)]
        assert update.in_place
        assert "table@GRAD" in report.memory.unknown or "table@GRAD" not in dict(report.memory.alive)
        executor, scope = fluid.Executor(), fluid.Scope()
        executor.run(model.startup, scope=scope)
        before = scope.find_var("table").value
        executor.run(model.main, {"ids": IDS[0]}, scope=scope)
        assert scope.find_var("table").value is before


def test_the_cost_of_an_update_does_not_depend_on_the_size_of_the_table():
    costs = []
    for height in (100, 100_000):
        main, startup = fluid.Program(), fluid.Program()
        with fluid.program_guard(main, startup), fluid.unique_name.guard():
            found = fluid.embedding(fluid.data("ids", [8], "int64"), [height, 4], is_sparse=True)
            fluid.optimizer.SGD(0.1).minimize(layers.mean(found))
        report = fluid.Executor().explain(main, {"ids": np.arange(8)})
        costs.append(next(each for each in report.costs if each.op_type == "sgd"))
    assert costs[0] == costs[1]


def test_padding_gets_a_gradient_as_in_fluid():
    """Only where it is the number of a row; what is looked up there is zero all the same."""
    model = Model(padding_idx=3).minimize(fluid.optimizer.SGD(0.1))
    state, fetched = model.train(fetch=["table@GRAD", model.found])
    assert fetched[0][0].rows() == [3, 1, 3, 3, 10, 0]
    for (_, found), ids in zip(fetched, IDS, strict=True):
        assert not found[ids == 3].any()
    with fluid.unique_name.guard():
        expected, _ = Model(padding_idx=3, is_sparse=False).minimize(fluid.optimizer.SGD(0.1)).train()
    others = np.arange(SIZE[0]) != 3
    np.testing.assert_allclose(state["table"][others], expected["table"][others], rtol=1e-12)
    np.testing.assert_allclose(state["weight"], expected["weight"], rtol=1e-12)


def test_a_clip_whose_interval_leaves_out_zero_concerns_only_rows_that_are_there():
    """As in fluid; the dense gradient would get the bound in all other rows."""
    model = Model().minimize(fluid.optimizer.SGD(1.0, grad_clip=clip.GradientClipByValue(2.0, 1.0)))
    executor, scope = fluid.Executor(), fluid.Scope()
    executor.run(model.startup, scope=scope)
    before = np.array(scope.find_var("table").get_tensor())
    executor.run(model.main, {"ids": IDS[0]}, scope=scope)
    step = before - np.array(scope.find_var("table").get_tensor())
    looked_up = sorted(set(IDS[0].ravel().tolist()))
    assert (step[looked_up] > 0.99).all()
    assert not np.delete(step, looked_up, axis=0).any()


def test_an_error_clip_on_the_table_clips_its_rows():
    def with_error_clip(is_sparse):
        model = Model(is_sparse)
        model.table.error_clip = clip.ErrorClipByValue(0.25)
        return model.minimize(fluid.optimizer.SGD(0.1)).train()[0]

    with fluid.unique_name.guard():
        expected = with_error_clip(False)
    assert_close(with_error_clip(True), expected)


def test_a_gradient_that_is_not_finite_is_traced_to_its_origin():
    model = Model(dtype="float32").minimize(
        fluid.optimizer.SGD(0.1, grad_clip=clip.GradientClipByGlobalNorm(1.0, nonfinite="raise"))
    )
    executor, scope = fluid.Executor(), fluid.Scope()
    executor.run(model.startup, scope=scope)
    scope.find_var("weight").get_tensor().set(np.full((8, 3), 1e30, "float32"))
    with pytest.raises(NonfiniteError, match="the gradient of table is not finite") as error:
        executor.run(model.main, {"ids": IDS[0]}, scope=scope)
    assert "the first such value is" in str(error.value)


@pytest.mark.slow
def test_a_guard_that_skips_leaves_all_state_alone():
    for make in TAKES_ROWS:
        with fluid.unique_name.guard():
            strategy = clip.GradientClipByGlobalNorm(1.0, nonfinite="skip")
            build = {**OPTIMIZERS, "adam": fluid.optimizer.Adam, "lazy": fluid.optimizer.Adam}[make]
            model = Model(dtype="float32").minimize(
                build(grad_clip=strategy, **({"lazy_mode": True} if make == "lazy" else {}))
            )
        for executor in (fluid.Executor(), Interpreter()):
            scope = fluid.Scope()
            executor.run(model.startup, scope=scope)
            scope.find_var("weight").get_tensor().set(np.full((8, 3), 1e30, "float32"))
            names = [name for name in scope.local_var_names() if "skipped" not in name]
            before = {name: np.array(scope.find_var(name).get_tensor()) for name in names}
            executor.run(model.main, {"ids": IDS[0]}, scope=scope)
            for name, old in before.items():
                assert np.array(scope.find_var(name).get_tensor()).tobytes() == old.tobytes(), (make, name)


def test_layers_that_take_rows_agree_with_the_dense_gradient():
    results = {}
    for is_sparse in (True, False):
        with fluid.unique_name.guard():
            model = Model(is_sparse)
            with fluid.program_guard(model.main, model.startup):
                gradient = dict((p.name, g) for p, g in fluid.append_backward(model.loss))["table"]
                two = layers.fill_constant([1], "float64", 2.0)
                block = model.main.global_block()
                zeros = layers.fill_constant(SIZE, "float64", 0.0)
                made = [
                    layers.assign(gradient), layers.scale(gradient, 0.5), layers.elementwise_mul(gradient, two),
                    layers.scale(layers.merge_selected_rows(gradient) if is_sparse else gradient, 0.5),
                    layers.sum([gradient, gradient]), layers.sum([gradient]), layers.clip(gradient, -1.0, 1.0),
                    layers.clip_by_norm(gradient, 1.0), block.emit("squared_l2_norm", X=gradient),
                    block.emit("l1_norm", X=gradient), block.emit("global_norm", X=[gradient, model.found]),
                    layers.isfinite(gradient), layers.sum([zeros, gradient, zeros, gradient]),
                    layers.sum([gradient, zeros]),
                ]  # fmt: skip
            verify(model.main)
            executor, scope = fluid.Executor(), fluid.Scope()
            executor.run(model.startup, scope=scope)
            results[is_sparse] = executor.run(model.main, {"ids": IDS[0]}, made, scope=scope)
    for found, expected in zip(results[True], results[False], strict=True):
        np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-12, atol=1e-12)


def test_an_empty_batch_changes_nothing():
    for name, make in {"sgd": OPTIMIZERS["sgd"], "lazy": TAKES_ROWS["lazy"]}.items():
        with fluid.unique_name.guard():
            model = Model().minimize(make())
        executor, scope = fluid.Executor(), fluid.Scope()
        executor.run(model.startup, scope=scope)
        before = np.array(scope.find_var("table").get_tensor())
        (found,) = executor.run(model.main, {"ids": np.zeros((0, 2), "int64")}, ["table@GRAD"], scope=scope)
        assert found.rows() == []
        assert found.numpy().tolist() == np.zeros(SIZE).tolist()
        assert np.array_equal(np.array(scope.find_var("table").get_tensor()), before), name


@pytest.mark.parametrize("ids", [[0, 11], [-1, 0]])
def test_an_id_that_is_no_row_is_an_error_even_if_only_the_gradient_is_computed(ids):
    main = fluid.Program()
    with fluid.program_guard(main):
        table = main.global_block().create_var(name="w", shape=[11, 2], dtype="float32", stop_gradient=False)
        found = main.global_block().create_var(name="found")
        inputs = {"W": table, "Ids": fluid.data("ids", [2], "int64")}
        main.global_block().append_op("lookup_table_v2", inputs, {"Out": found}, {"is_sparse": True})
        (gradient,) = fluid.gradients([found], [table], [fluid.data("flowing", [2, 2], "float32")])
    feed = {"w": np.zeros((11, 2), "float32"), "ids": np.array(ids), "flowing": np.ones((2, 2), "float32")}
    with pytest.raises(ExecutionError, match="W has 11 rows"):
        fluid.Executor().run(main, feed, [gradient])


def test_a_gradient_may_flow_on_from_a_sparse_lookup_twice():
    """A penalty on the gradient of what was looked up reaches the table through the lookup."""
    results = []
    for is_sparse in (True, False):
        with fluid.unique_name.guard():
            model = Model(is_sparse)
            with fluid.program_guard(model.main, model.startup):
                (slope,) = fluid.gradients([model.loss], [model.found])
                penalty = layers.reduce_sum(layers.square(slope))
                (gradient,) = fluid.gradients([penalty], [model.table])
            executor, scope = fluid.Executor(), fluid.Scope()
            executor.run(model.startup, scope=scope)
            results.append(np.asarray(executor.run(model.main, {"ids": IDS[0]}, [gradient], scope=scope)[0]))
    np.testing.assert_allclose(*results, rtol=1e-12)
    assert results[0].any()


# As data


@pytest.mark.slow
def test_text_clone_and_description_keep_the_kind():
    model = Model(dtype="float32").minimize(fluid.optimizer.SGD(0.1, grad_clip=CLIPS["global norm"]))
    assert "table@GRAD: float32[11, 4] {kind='selected_rows'} = lookup_table_v2_grad(" in str(model.main)
    for twin in (
        fluid.Program.parse(str(model.main)),
        model.main.clone(),
        fluid.Program.parse_from_string(model.main.serialize_to_string()),
    ):
        verify(twin)
        assert [v.name for v in twin.list_vars() if v.kind is VarKind.SELECTED_ROWS] == [
            v.name for v in model.main.list_vars() if v.kind is VarKind.SELECTED_ROWS
        ]
        model.main, original = twin, model.main
        (found, _), model.main = model.train(), original
        assert_close(found, model.train()[0])


def test_the_verifier_knows_which_values_are_rows():
    model = Model().minimize(fluid.optimizer.SGD(0.1))
    model.main.global_block().var("table@GRAD").kind = VarKind.LOD_TENSOR
    with pytest.raises(VerifyError, match=r"table@GRAD is declared float32|table@GRAD is declared float64"):
        verify(model.main)


def test_kinds_are_part_of_a_type():
    dense_type = TensorType(DType.FP32, (3, 2))
    rows = dense_type.held_as(VarKind.SELECTED_ROWS)
    assert rows != dense_type
    assert not rows.fits(dense_type)
    assert rows.fits(rows)
    assert str(rows) == "float32[3, 2] as selected rows"
    assert rows.with_shape((1,)) == TensorType(DType.FP32, (1,))
    assert fluid.core.VarDesc.VarType.SELECTED_ROWS is VarKind.SELECTED_ROWS
    assert fluid.core.VarDesc.VarType.FP32 is fluid.core.VarDesc.VarType(5) is DType.FP32
    with pytest.raises(AttributeError, match="no member 'FP33'"):
        _ = fluid.core.VarDesc.VarType.FP33


# Errors


@pytest.mark.parametrize(
    "make",
    [
        fluid.optimizer.Adamax, fluid.optimizer.DecayedAdagrad, fluid.optimizer.Adadelta, fluid.optimizer.Ftrl,
        fluid.optimizer.Dpsgd, lambda rate: fluid.optimizer.LarsMomentum(rate, 0.9),
    ],
)  # fmt: skip
def test_other_optimizers_name_the_parameter_and_those_that_do(make):
    model = Model()
    with pytest.raises(OpError, match="Grad must be dense, got selected rows") as error:
        model.minimize(make(0.1))
    text = str(error.value)
    assert "Param = table: float64[11, 4]" in text
    assert "Grad = table@GRAD: float64[11, 4] as selected rows" in text
    assert "Updates that take it: adagrad, adam, adamw, lamb, momentum, rmsprop, sgd." in text
    assert "is_sparse=False" in text


def test_operators_that_need_a_dense_tensor_say_so():
    model = Model()
    with fluid.program_guard(model.main, model.startup):
        gradient = dict((p.name, g) for p, g in fluid.append_backward(model.loss))["table"]
        for refused in (
            lambda: layers.relu(gradient),
            lambda: layers.elementwise_add(gradient, gradient),
            lambda: layers.reduce_sum(gradient),
        ):
            with pytest.raises(OpError, match=r"X must be dense, got selected rows[\s\S]*is_sparse=False"):
                refused()
        with pytest.raises(OpError, match="Y must hold one number where X is selected rows"):
            layers.elementwise_mul(gradient, model.table)
        with pytest.raises(OpError, match="selected rows cannot be shifted"):
            layers.scale(gradient, 2.0, bias=1.0)
        for layer in (layers.merge_selected_rows, layers.get_tensor_from_selected_rows):
            with pytest.raises(WrongTypeError, match="x must be selected rows, got table"):
                layer(model.table)
        with pytest.raises(OpError, match="X must be selected rows, got a dense tensor"):
            model.main.global_block().emit("merge_selected_rows", X=model.table)


def test_a_gradient_through_rows_is_refused():
    model = Model()
    with fluid.program_guard(model.main, model.startup):
        gradient = dict((p.name, g) for p, g in fluid.append_backward(model.loss))["table"]
        length = model.main.global_block().emit("squared_l2_norm", X=gradient)
        with pytest.raises(MinigraphError, match="selected rows"):
            fluid.gradients([length], [model.table])


# Elsewhere


@pytest.mark.slow
def test_comparisons_measure_what_they_measure_for_the_dense_gradient():
    reports = []
    clips = {"norm": CLIPS["norm"], "global": CLIPS["global norm"]}
    feeds = [{"ids": ids} for ids in IDS]
    for is_sparse in (True, False):
        with fluid.unique_name.guard():
            model = Model(is_sparse)
            given = {"startup": model.startup, "feeds": feeds}
            compared = fluid.compare_gradients(model.main, model.loss, clips, **given)
            trained = fluid.compare_training(
                model.main, model.loss, clips, optimizer=lambda: fluid.optimizer.Adagrad(0.1), **given
            )
            lines = [*str(compared).splitlines(), *str(trained).splitlines()]
            # A sparse gradient has more operators, not other numbers.
            reports.append([line for line in lines if "operator" not in line and "rows" not in line])
    assert reports[0] == reports[1]
    assert sum(line.startswith("table") for line in reports[0]) == 2
    assert any(line.startswith("global") for line in reports[0])


def test_other_systems_clips_give_what_they_give_for_the_dense_gradient():
    clipped = {}
    for is_sparse in (True, False):
        with fluid.unique_name.guard():
            model = Model(is_sparse)
            with fluid.program_guard(model.main, model.startup):
                gradient, other = (grad for _, grad in fluid.append_backward(model.loss)[:2])
                several, norm = tensorflow.clip_by_global_norm([gradient, other], 0.5)
                made = [
                    *several, norm, tensorflow.clip_by_norm(gradient, 0.5), tensorflow.linalg.global_norm([gradient]),
                    tensorflow.clip_by_value(gradient, -0.25, 0.25),
                ]  # fmt: skip
            executor, scope = fluid.Executor(), fluid.Scope()
            executor.run(model.startup, scope=scope)
            found = executor.run(model.main, {"ids": IDS[0]}, made, scope=scope)
        for clip_in_place in (
            lambda params: torch_utils.clip_grad_norm_(params, 0.5),
            lambda params: torch_utils.clip_grad_norm_(params, 0.5, norm_type=1.0, error_if_nonfinite=True),
            lambda params: torch_utils.clip_grad_value_(params, 0.75),
        ):
            layer = fluid.nn.Embedding(5, 2, sparse=is_sparse)
            fluid.sum(layer(fluid.to_tensor(np.array([4, 0, 4])))).backward()
            clip_in_place(layer.parameters())
            assert layer.weight.grad.tensor_type.is_rows is is_sparse
            found.append(layer.weight.grad.numpy())
        clipped[is_sparse] = found
    for found, expected in zip(clipped[True], clipped[False], strict=True):
        np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-6, atol=1e-9)


# In sub-blocks


def table_of(ids, is_sparse):
    initial = np.random.default_rng(0).standard_normal((10, 3)).astype("float32")
    return fluid.embedding(ids, [10, 3], is_sparse, param_attr=starting_from(initial))


def recurrent(is_sparse):
    """Each step of a network looks up an input."""
    ids = fluid.data("ids", [5, 4], "int64")
    network = layers.StaticRNN()
    start = layers.fill_constant([4, 3], "float32", 0.0)
    with network.step():
        found, before = table_of(network.step_input(ids), is_sparse), network.memory(init=start)
        weight = fluid.ParamAttr("weight", fluid.initializer.Constant(0.3))
        state = layers.tanh(found + layers.fc(before, 3, bias_attr=False, param_attr=weight))
        network.update_memory(before, state)
        network.step_output(state)
    return layers.reduce_sum(layers.square(network()))


def repeated(is_sparse, times=3):
    """A loop multiplies by the same rows again and again."""
    ids = fluid.data("ids", [5, 4], "int64")
    i, count = layers.fill_constant([1], "int64", 0), layers.fill_constant([1], "int64", times)
    x = layers.fill_constant([5, 4, 3], "float32", 1.0)
    x.stop_gradient = False
    _, x = layers.while_loop(
        lambda i, x: layers.less_than(i, count),
        lambda i, x: (layers.increment(i), x * table_of(ids, is_sparse)),
        [i, x],
    )
    return layers.reduce_sum(x)


def never_repeated(is_sparse):
    return repeated(is_sparse, times=0)


def chosen(is_sparse):
    """Of two branches one looks rows up, the other uses rows from outside."""
    ids = fluid.data("ids", [5, 4], "int64")
    outside = table_of(ids, is_sparse)
    is_small = layers.less_than(
        layers.cast(layers.slice(ids, [0, 1], [0, 0], [1, 1]), "float32"), layers.fill_constant([1], "float32", 5.0)
    )
    found = layers.cond(
        layers.reshape(is_small, [1]),
        lambda: layers.reduce_sum(layers.square(table_of(ids, is_sparse))),
        lambda: layers.reduce_sum(outside),
    )
    return found + layers.reduce_sum(outside * 0.5)


@pytest.mark.slow
@pytest.mark.parametrize("build", [recurrent, repeated, never_repeated, chosen])
def test_a_lookup_in_a_sub_block_has_a_sparse_gradient_too(build):
    tables = []
    for is_sparse in (True, False):
        main, startup = fluid.Program(), fluid.Program()
        with fluid.program_guard(main, startup), fluid.unique_name.guard():
            loss = build(is_sparse)
            strategy = clip.GradientClipByGlobalNorm(0.5)
            fluid.optimizer.Adagrad(0.1, grad_clip=strategy).minimize(loss)
        assert (main.global_block().var("table@GRAD").kind is VarKind.SELECTED_ROWS) is is_sparse
        verify(main)
        assert Program.parse(str(main)).equals(main)
        for kind_of_executor in (fluid.Executor, Interpreter):
            executor, scope = kind_of_executor(), fluid.Scope()
            executor.run(startup, scope=scope)
            for seed in range(3):
                ids = np.random.default_rng(seed).integers(0, 10, (5, 4))
                executor.run(main, {"ids": ids}, scope=scope)
            tables.append(np.array(scope.find_var("table").get_tensor()))
    by_plan, by_interpreter, expected, _ = tables
    assert by_plan.tobytes() == by_interpreter.tobytes()
    np.testing.assert_allclose(by_plan, expected, rtol=1e-5, atol=1e-6)
