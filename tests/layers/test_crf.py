"""Conditional random fields: sums over all paths, tensors of sequences, bad input."""

from itertools import pairwise, product

import numpy as np
import pytest
from jit_support import needs_numba
from lengths import check_gradient, run_both, tensor

import minigraph as fluid
from minigraph import layers
from minigraph.errors import ExecutionError, OpError, ProgramError
from minigraph.kernels import find_kernel, find_specializer

pytestmark = pytest.mark.usefixtures("new_program")

WEIGHTS = fluid.ParamAttr(name="crf", initializer=fluid.initializer.Normal(0, 1, seed=3))


def score(emission, weights, path):
    pairs = sum(weights[a + 2, b] for a, b in pairwise(path))
    return weights[0, path[0]] + weights[1, path[-1]] + pairs + sum(emission[t, tag] for t, tag in enumerate(path))


def test_the_likelihood_is_that_of_one_path_among_all():
    x, tags = fluid.data("x", [None, 4, 3], "float64"), fluid.data("tags", [None, 4], "int64")
    lengths = fluid.data("lengths", [None], "int64")
    cost = layers.linear_chain_crf(x, tags, WEIGHTS, lengths)
    best = layers.crf_decoding(x, WEIGHTS, length=lengths)
    executor, random = fluid.Executor(), np.random.RandomState(0)
    executor.run(fluid.default_startup_program())
    feed = {"x": random.randn(2, 4, 3) * 3, "tags": random.randint(0, 3, (2, 4)), "lengths": np.array([4, 2])}
    found, path, weights = executor.run(feed=feed, fetch_list=[cost, best, "crf"])
    for i, length in enumerate(feed["lengths"]):
        scores = {s: score(feed["x"][i], weights, s) for s in product(range(3), repeat=length)}
        right = scores[tuple(feed["tags"][i, :length])]
        assert found[i, 0] == pytest.approx(np.logaddexp.reduce(list(scores.values())) - right)
        assert tuple(path[i, :length]) == max(scores, key=scores.get)
        assert not path[i, length:].any()


def test_scores_far_apart_do_not_underflow():
    x, tags = fluid.data("x", [None, 3, 2]), fluid.data("tags", [None, 3], "int64")
    x.stop_gradient = False
    weights = fluid.ParamAttr(initializer=fluid.initializer.Constant(100.0))
    cost = layers.linear_chain_crf(x, tags, weights, layers.fill_constant([1], "int64", 3))
    (gradient,) = fluid.gradients(cost, x)
    executor = fluid.Executor()
    executor.run(fluid.default_startup_program())
    scores = np.array([[[300, 0], [0, 300], [300, 0]]], "float32")
    feed = {"x": scores, "tags": np.array([[3, 1, 0]])}
    with pytest.raises(ExecutionError, match=r"Label must be in \[0, 2\), but element 0 is 3"):
        executor.run(feed=feed, fetch_list=[cost])
    feed["tags"] = np.array([[0, 1, 0]])
    found, d_x = executor.run(feed=feed, fetch_list=[cost, gradient])
    assert found.item() == 0 and np.isfinite(d_x).all()


@pytest.mark.slow
@pytest.mark.parametrize("lengths", [[3, 0, 1, 4], [8]])
def test_gradients_of_sequences_are_those_of_central_differences(lengths):
    x, tags = fluid.data("x", [None, 3], "float64", 1), fluid.data("tags", [None, 1], "int64", 1)
    weights = fluid.data("weights", [5, 3], "float64")
    helper = fluid.layer_helper.LayerHelper("crf")
    inputs = {"Emission": x, "Transition": weights, "Label": tags}
    cost = helper.emit_all("linear_chain_crf", **inputs)[3]
    labels = fluid.create_lod_tensor(np.arange(8).reshape(8, 1) % 3, [lengths], fluid.CPUPlace())
    for each in (x, weights):
        each.stop_gradient = False
    feed = {"x": tensor(lengths, 3, dtype="float64"), "tags": labels}
    feed["weights"] = np.random.RandomState(0).randn(5, 3)
    check_gradient(cost, feed, ["x", "weights"])
    path = helper.emit("crf_decoding", Emission=x, Transition=weights)
    found, costs = run_both(path, cost, feed=feed)
    assert found.recursive_sequence_lengths() == [lengths] and found.shape() == [8, 1]
    assert costs.lod() == [] and not np.array(costs)[np.array(lengths) == 0].any()


def test_what_is_no_chain_is_refused():
    x, tags = fluid.data("x", [None, 3]), fluid.data("tags", [None], "int64")
    with pytest.raises(OpError, match=r"Emission must be \[batch, time, tags\] with Length"):
        layers.linear_chain_crf(x, tags, length=tags)
    with pytest.raises(ProgramError, match="param_attr must name the weights"):
        layers.crf_decoding(x, None)
    cost = layers.linear_chain_crf(x, tags)
    executor = fluid.Executor()
    executor.run(fluid.default_startup_program())
    with pytest.raises(ExecutionError, match="Emission has no lengths of sequences"):
        executor.run(feed={"x": np.zeros((2, 3), "float32"), "tags": np.zeros(2, "int64")}, fetch_list=[cost])
    long = layers.linear_chain_crf(fluid.data("y", [1, 2, 3]), fluid.data("z", [1, 2], "int64"), length=tags)
    executor.run(fluid.default_startup_program())
    feed = {"y": np.zeros((1, 2, 3), "float32"), "z": np.zeros((1, 2), "int64"), "tags": np.array([3])}
    with pytest.raises(ExecutionError, match=r"the lengths of Emission must be in \[0, 2\], got 3 to 3"):
        executor.run(feed=feed, fetch_list=[long])


def test_padded_sequences_train_in_the_imperative_mode():
    with fluid.dygraph.guard():
        x = fluid.to_tensor(np.random.RandomState(0).randn(2, 3, 2).astype("float32"), stop_gradient=False)
        tags, lengths = fluid.to_tensor(np.array([[0, 1, 0], [1, 0, 0]])), fluid.to_tensor(np.array([3, 2]))
        layers.reduce_sum(layers.linear_chain_crf(x, tags, WEIGHTS, lengths)).backward()
        assert not x.gradient()[1, 2].any() and x.gradient()[1, :2].all()


@pytest.mark.slow
@needs_numba
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("are_rows", [True, False])
def test_compiled_loops_agree_with_the_shared_kernels(are_rows, dtype):
    random, lengths, tags = np.random.RandomState(0), np.array([3, 0, 5, 1]), 7
    shape = (9,) if are_rows else (4, 5)
    x, weights = random.randn(*shape, tags).astype(dtype) * 3, random.randn(tags + 2, tags).astype(dtype)
    label = random.randint(0, tags, (*shape, 1))
    given = (None, [np.cumsum([0, *lengths])]) if are_rows else (lengths,)

    def both(type, *inputs, **attrs):
        offer = find_specializer(type, jit=True)
        shared, found = find_kernel(type, "cpu").function(np, *inputs, **attrs), offer(np, *inputs, **attrs)(*inputs)
        for a, b in zip(shared, found, strict=True):
            if a is not None and a.shape[:-1] == shape:  # what lies behind the end of a sequence has no meaning
                behind = np.ones(len(a), bool) if are_rows else np.arange(5) < lengths[:, None]
                a, b = a[behind], b[behind]
            assert a is b or a.dtype == b.dtype
            np.testing.assert_allclose(a, b, rtol=200 * np.finfo(dtype).eps, atol=200 * np.finfo(dtype).eps)
        return shared

    alpha, exps, of_weights, loss = both("linear_chain_crf", x, weights, label, *given)
    length, *levels = given
    inputs = x, weights, label, length, alpha, exps, of_weights, np.ones_like(loss), *levels
    both("linear_chain_crf_grad", *inputs, wanted=(True, True))
