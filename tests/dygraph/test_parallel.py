"""Training in the imperative mode on several ranks, against one rank with all samples."""

import numpy as np
import pytest

import minigraph as fluid
from minigraph import dygraph, parallel


class Model(dygraph.Layer):
    def __init__(self):
        super().__init__()
        start = np.sin(np.arange(60.0)).astype("float32").reshape(20, 3)
        self.table = dygraph.Embedding([20, 3], is_sparse=True, param_attr=initialized(start))
        self.linear = dygraph.Linear(3, 2, param_attr=initialized(start[:3, :2]))

    def forward(self, words):
        return self.linear(self.table(words))


def initialized(array):
    return fluid.ParamAttr(initializer=fluid.initializer.NumpyArrayInitializer(array))


def train(words, targets, ranks):
    """The parameters after three steps of one rank."""
    with dygraph.guard():
        strategy = dygraph.parallel.ParallelStrategy()
        strategy.nranks = ranks
        model = Model()
        wrapped = dygraph.DataParallel(model, dygraph.prepare_context(strategy))
        clip = fluid.clip.GradientClipByGlobalNorm(0.05)
        optimizer = fluid.optimizer.SGD(0.5, parameter_list=wrapped.parameters(), grad_clip=clip)
        for _ in range(3):
            given = wrapped(dygraph.to_variable(words))
            loss = fluid.layers.mean(fluid.layers.square_error_cost(given, dygraph.to_variable(targets)))
            wrapped.scale_loss(loss).backward()
            wrapped.apply_collective_grads()
            optimizer.minimize(loss)
            wrapped.clear_gradients()
        return [param.numpy() for param in model.parameters()]


@pytest.mark.parametrize("ranks", [2, 4])
def test_ranks_together_train_as_one(ranks):
    rng = np.random.default_rng(4)
    words, targets = rng.integers(0, 20, 8), rng.normal(size=(8, 2)).astype("float32")
    alone = train(words, targets, 1)
    parts = list(zip(np.split(words, ranks), np.split(targets, ranks), strict=True))
    found = parallel.simulate(lambda rank: train(*parts[rank], ranks), ranks)
    for params in found:
        for param, first, expected in zip(params, found[0], alone, strict=True):
            assert np.array_equal(param, first)
            np.testing.assert_allclose(param, expected, rtol=1e-5, atol=1e-6)
