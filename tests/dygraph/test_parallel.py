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


@pytest.mark.slow
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


def steps(rank, what):
    """Three steps of two batches each, with a mistake; the parameters, and the warnings by what they begin with."""
    rng = np.random.default_rng(rank)
    with dygraph.guard():
        model = dygraph.Linear(
            3, 1, param_attr=initialized(np.ones((3, 1), "float32") * (1 + rank * (what == "start")))
        )
        wrapped = dygraph.DataParallel(model, dygraph.prepare_context())
        optimizer = fluid.optimizer.SGD(0.1, parameter_list=model.parameters())
        for _ in range(3):
            for is_last in (False, True):
                loss = fluid.layers.mean(wrapped(dygraph.to_variable(rng.normal(size=(4, 3)).astype("float32"))))
                wrapped.scale_loss(loss).backward()
                if (is_last or what == "each") and what != "none":
                    wrapped.apply_collective_grads()
            if what == "twice":
                wrapped.apply_collective_grads()
            optimizer.minimize(loss)
            wrapped.clear_gradients()
        return [param.numpy().tobytes() for param in model.parameters()]


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("none", "gradients were cleared that were not summed"),
        ("each", "gradients are summed over the ranks that were summed already"),
        ("twice", "gradients are summed over the ranks that were summed already"),
        ("start", "ranks begin with different parameters"),
    ],
)
def test_steps_after_which_ranks_do_not_train_as_one_are_named(what, message):
    with pytest.warns(UserWarning, match=message) as found:
        parallel.simulate(lambda rank: steps(rank, what), 2)
    assert len(found) == 2  # once on each rank


@pytest.mark.filterwarnings("error")
def test_gradients_of_several_batches_are_summed_once():
    first, second = parallel.simulate(lambda rank: steps(rank, "last"), 2)
    assert first == second
