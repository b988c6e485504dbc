"""Gradients and updates of the imperative mode with compiled loops and tables of C calls: the numbers without them."""

import numpy as np
import pytest
from jit_support import needs_numba

import minigraph as fluid
from minigraph.lowering import codegen

dygraph, layers = fluid.dygraph, fluid.layers

pytestmark = [pytest.mark.numbers, needs_numba]


class Words(dygraph.Layer):
    """The states of a recurrent network on rows of a table, of which each step takes a slice."""

    def __init__(self):
        super().__init__()
        self.table = dygraph.Embedding([10, 6], is_sparse=True)
        self.cell = dygraph.GRUUnit(6)

    def forward(self, words):
        rows = layers.reshape(self.table(words), [2, 3, 6])
        state = dygraph.to_variable(np.zeros((2, 2), "float32"))
        for i in range(3):
            state, _, _ = self.cell(layers.reshape(rows[:, i : i + 1, :], [2, 6]), state)
        return layers.mean(layers.square(state))


class Heads(dygraph.Layer):
    """An attention with heads, which are transposed."""

    def __init__(self):
        super().__init__()
        self.first, self.second = dygraph.Linear(6, 6), dygraph.Linear(6, 6)

    def forward(self, words):
        x = layers.reshape(layers.cast(layers.one_hot(words, 6), "float32"), [2, 3, 6])
        one, other = (layers.transpose(layers.reshape(each(x), [2, 3, 2, 3]), [0, 2, 1, 3]) for each in self.children())
        return layers.mean(layers.square(layers.matmul(layers.softmax(one), other, transpose_y=True)))

    def children(self):
        return self.first, self.second


def history(network, clip):
    with dygraph.guard():
        fluid.default_startup_program().random_seed = fluid.default_main_program().random_seed = 1
        model = network()
        rule = fluid.optimizer.Adam(0.1, parameter_list=model.parameters(), grad_clip=clip)
        losses = []
        for i in range(6):
            loss = model(dygraph.to_variable(np.arange(i, i + 6).reshape(6, 1) % 5))
            loss.backward()
            rule.minimize(loss)
            model.clear_gradients()
            losses.append(loss.numpy())
        return losses + [param.numpy() for param in model.parameters()]


@pytest.mark.laws
@pytest.mark.parametrize("clip", [None, fluid.clip.GradientClipByNorm(0.01)], ids=["no clip", "clip"])
@pytest.mark.parametrize("network", [Words, Heads])
def test_training_gives_the_same_numbers_with_tables(network, clip, monkeypatch):
    monkeypatch.setattr(codegen, "RUNS_BEFORE_NATIVE", 2)
    expected = history(network, clip)
    monkeypatch.setenv("MINIGRAPH_JIT", "on")
    for found, value in zip(history(network, clip), expected, strict=True):
        np.testing.assert_allclose(found, value, rtol=2e-4, atol=1e-6)


def test_updates_of_small_parameters_follow_what_else_sets_them():
    with dygraph.guard():
        model = dygraph.Linear(2, 1, bias_attr=False)
        rule = fluid.optimizer.SGD(0.5, parameter_list=model.parameters())
        before = []
        for start in (1.0, None, 3.0, None):
            if start is not None:
                model.weight.set_value(np.full((2, 1), start, "float32"))
            before.append(model.weight.numpy())
            kept = model(dygraph.to_variable(np.ones((1, 2), "float32")))
            kept.backward()
            rule.minimize(kept)
            model.clear_gradients()
        np.testing.assert_array_equal(np.ravel(before), np.repeat([1, 0.5, 3, 2.5], 2))
