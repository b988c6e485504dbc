"""Tables that are looked up with `is_distributed`: plain gradient descent, recorded from Paddle 1.8.5."""

import numpy as np
import pytest

import minigraph as fluid
from minigraph import clip, layers
from minigraph.regularizer import L2DecayRegularizer

pytestmark = pytest.mark.usefixtures("new_program")

SAID = "emb is a distributed table: as in fluid its update is plain gradient descent"


def loss_of(names, **options):
    ids = fluid.data("ids", [None, 1], "int64")
    attrs = [fluid.ParamAttr(name, fluid.initializer.Constant(0.5), learning_rate=0.5) for name in names]
    found = [layers.embedding(ids, [5, 2], is_distributed=True, param_attr=attr, **options) for attr in attrs]
    fixed = fluid.initializer.Constant(0.25)
    return layers.mean(layers.square(layers.fc(layers.concat(found, axis=1), 1, param_attr=fixed, bias_attr=False)))


def trained(loss, table, steps=1):
    exe = fluid.Executor()
    exe.run(fluid.default_startup_program())
    tensor = fluid.global_scope().find_var(table).get_tensor()
    before, grads = np.array(tensor), []
    for _ in range(steps):
        (grad,) = exe.run(feed={"ids": [[1], [3], [3]]}, fetch_list=[f"{table}@GRAD"])
        grads.append(grad)
    return before - np.array(tensor), grads


@pytest.mark.parametrize("optimizer", [fluid.optimizer.Adam, fluid.optimizer.Adagrad, fluid.optimizer.Ftrl])
def test_the_optimizer_updates_the_other_parameters(optimizer):
    loss = loss_of(["emb"])
    with pytest.warns(UserWarning, match=SAID):
        ops, pairs = optimizer(0.1).minimize(loss)
    assert [op.type for op in ops] == [optimizer(0.1).type, "sgd"]
    assert {param.name for param, _ in pairs} == {"emb", "fc_0.w_0"}
    change, grads = trained(loss, "emb", steps=2)
    np.testing.assert_allclose(change, 0.05 * sum(grads), rtol=1e-5)


def test_neither_clip_nor_decay_concern_it():
    loss = loss_of(["emb"])
    with pytest.warns(UserWarning, match=SAID):
        fluid.optimizer.SGD(
            0.1, grad_clip=clip.GradientClipByGlobalNorm(1e-3), regularization=L2DecayRegularizer(0.5)
        ).minimize(loss)
    block = fluid.default_main_program().global_block()
    types = [op.type for op in block.ops]
    assert types.index("sgd") < types.index("square", types.index("sgd")) < len(types) - 1
    change, (grad,) = trained(loss, "emb")
    np.testing.assert_allclose(change, 0.05 * grad, rtol=1e-5)


def test_a_table_alone_leaves_the_optimizer_nothing():
    loss = layers.mean(layers.embedding(fluid.data("ids", [None, 1], "int64"), [5, 2], is_distributed=True))
    with pytest.warns(UserWarning, match="plain gradient descent"):
        ops, _ = fluid.optimizer.Adam(0.1).minimize(loss)
    assert [op.type for op in ops] == ["sgd"]


def test_several_tables_are_updated_alike():
    loss = loss_of(["emb", "other"])
    with pytest.warns(UserWarning, match="plain gradient descent"):
        ops, _ = fluid.optimizer.Momentum(0.1, 0.9).minimize(loss)
    assert [op.type for op in ops] == ["momentum", "sgd", "sgd"]


def test_plain_descent_says_nothing(recwarn):
    fluid.optimizer.SGD(0.1).minimize(loss_of(["emb"]))
    assert not recwarn.list


def test_embedding_of_fluid_is_updated_by_the_optimizer():
    found = fluid.embedding(fluid.data("ids", [None], "int64"), [5, 2], is_distributed=True)
    ops, _ = fluid.optimizer.Adam(0.1).minimize(layers.mean(found))
    assert [op.type for op in ops] == ["adam"]
