"""Selected rows in the imperative mode: the gradients of sparse layers."""

import numpy as np
import pytest
from sparse_models import IDS, OPTIMIZERS, SIZE, starting_from

import minigraph as fluid
from minigraph import clip, layers
from minigraph.ir import VarKind


@pytest.fixture(autouse=True)
def _names():
    with fluid.unique_name.guard():
        yield


def imperative_training(is_sparse, make, strategy=None, guard=fluid.dygraph.guard):
    with guard():
        rng = np.random.default_rng(2)
        layer = fluid.dygraph.Embedding(SIZE, is_sparse=is_sparse, dtype="float32")
        layer.weight.set_value(rng.standard_normal(SIZE).astype("float32"))
        optimizer = make(parameter_list=layer.parameters(), grad_clip=strategy)
        gradients = []
        for ids in IDS:
            loss = layers.reduce_sum(layers.square(layer(fluid.dygraph.to_variable(ids))))
            loss.backward()
            gradients.append(layer.weight.gradient())
            optimizer.minimize(loss)
            layer.clear_gradients()
        return layer.weight.numpy(), gradients


@pytest.mark.slow
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_imperative_mode_trains_alike(name):
    def make(parameter_list, grad_clip):
        given = {"parameters" if name == "adamw" else "parameter_list": parameter_list}
        return OPTIMIZERS[name](grad_clip=grad_clip, **given)

    for strategy in (None, clip.GradientClipByGlobalNorm(1.0), clip.GradientClipByNorm(1.0, nonfinite="zero")):
        found, gradients = imperative_training(True, make, strategy)
        expected, dense_gradients = imperative_training(False, make, strategy)
        np.testing.assert_allclose(found, expected, rtol=2e-5, atol=1e-6)
        for (value, rows), whole, ids in zip(gradients, dense_gradients, IDS, strict=True):
            assert rows.tolist() == ids.ravel().tolist()
            total = np.zeros_like(whole)
            np.add.at(total, rows, value)
            np.testing.assert_allclose(total, whole, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("lazy_mode", [False, True])
def test_adam_does_the_same_in_the_imperative_mode_and_in_a_program(lazy_mode):
    def make(**options):
        return fluid.optimizer.Adam(0.1, lazy_mode=lazy_mode, **options)

    found, _ = imperative_training(True, make)
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup):
        initial = np.random.default_rng(2).standard_normal(SIZE).astype("float32")
        rows = fluid.embedding(fluid.data("ids", [None, 2], "int64"), SIZE, True, param_attr=starting_from(initial))
        make().minimize(layers.reduce_sum(layers.square(rows)))
    executor, scope = fluid.Executor(), fluid.Scope()
    executor.run(startup, scope=scope)
    for ids in IDS:
        executor.run(main, {"ids": ids}, scope=scope)
    assert np.array(scope.find_var("table").get_tensor()).tobytes() == found.tobytes()


@pytest.mark.slow
def test_imperative_gradients_add_up_and_are_cleared():
    layer = fluid.nn.Embedding(5, 2, sparse=True)
    ids = fluid.to_tensor(np.array([4, 0, 4]))
    for times in (1, 2):
        fluid.sum(layer(ids)).backward()
        assert layer.weight.grad.kind is VarKind.SELECTED_ROWS
        assert layer.weight.grad.numpy().tolist() == [[times, times], [0, 0], [0, 0], [0, 0], [2 * times, 2 * times]]
    held = layer.weight.grad
    layer.weight.clear_grad()
    assert layer.weight.grad.numpy().tolist() == np.zeros((5, 2)).tolist()
    layer.weight.grad = held
    assert layer.weight.grad.numpy()[4].tolist() == [4, 4]
    assert "selected rows" in repr(held)
    layer.weight.clear_grad(set_to_zero=False)
    assert layer.weight.grad is None
    ((_, clipped),) = clip.GradientClipByNorm(1.0)([(layer.weight, held)])
    np.testing.assert_allclose(np.linalg.norm(clipped.numpy()), 1.0, rtol=1e-6)


@pytest.mark.slow
def test_a_table_is_not_shown_as_a_whole():
    layer = fluid.nn.Embedding(10**6, 2, sparse=True)
    fluid.sum(layer(fluid.to_tensor(np.array([7, 999_999])))).backward()
    assert "float32[1000000, 2] as selected rows, [     7, 999999]: [[1., 1.],\n [1., 1.]]" in repr(layer.weight.grad)
