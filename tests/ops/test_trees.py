"""Convolutions over trees; golden_layers.py has what Paddle 1.8.5 computes."""

import numpy as np
import pytest

import minigraph as fluid
from minigraph.contrib.layers import tree_conv
from minigraph.errors import ExecutionError, OpError

EDGES = np.array([[[1, 2], [1, 3], [3, 4]], [[1, 2], [0, 0], [1, 3]]], "int32")
RANDOM = np.random.RandomState(0)
NODES, WEIGHT = RANDOM.uniform(-1, 1, (2, 5, 3)).astype("float32"), RANDOM.uniform(-1, 1, (3, 3, 2, 2))


@pytest.fixture
def convolved(new_program, new_scope):
    """A function of nodes and edges, and the gradient of its sum of squares for the nodes."""
    x, edges = fluid.data("x", [None, 5, 3]), fluid.data("edges", [None, None, 2], "int32")
    x.stop_gradient = False
    start = fluid.initializer.NumpyArrayInitializer(WEIGHT.astype("float32"))
    out = tree_conv(x, edges, 2, 2, 3, None, fluid.ParamAttr(initializer=start), bias_attr=False)
    loss = fluid.layers.reduce_sum(out * out)
    [gradient] = fluid.gradients(loss, x)
    executor = fluid.Executor()
    executor.run(fluid.default_startup_program())
    return lambda nodes=NODES, trees=EDGES: executor.run(
        feed={"x": nodes, "edges": trees}, fetch_list=[out, gradient, loss]
    )


def test_a_node_in_no_tree_gets_zeros(convolved):
    out, gradient, _ = convolved()
    assert not out[0, 4].any()
    assert not out[1, 2:].any()
    assert not gradient[1, 2:].any()
    # A leaf is at the top of its own patch.
    np.testing.assert_allclose(out[1, 1], np.einsum("f,fom->om", NODES[1, 1], WEIGHT[:, 2]), rtol=1e-5)


def test_the_gradient_of_several_filters_is_the_central_difference(convolved):
    gradient = convolved()[1]
    for place in np.ndindex(2, 4, 3):
        step = np.zeros_like(NODES)
        step[place] = 0.5
        slope = convolved(NODES + step)[2] - convolved(NODES - step)[2]
        np.testing.assert_allclose(gradient[place], slope.item(), rtol=1e-4, atol=1e-4)


def test_a_number_of_no_node_is_an_error(convolved):
    with pytest.raises(ExecutionError, match=r"EdgeSet must be in \[0, 6\), but element 1 is 6"):
        convolved(trees=np.array([[[1, 6]]] * 2, "int32"))


def test_a_filter_covers_more_than_the_node_itself(new_program):
    x, edges = fluid.data("x", [None, 5, 3]), fluid.data("edges", [None, 2, 2], "int32")
    with pytest.raises(OpError, match="max_depth must be more than 1, got 1"):
        tree_conv(x, edges, 2, max_depth=1)


def test_each_filter_has_its_bias():
    with fluid.dygraph.guard():
        layer = fluid.dygraph.TreeConv(3, 2, 2, act=None, bias_attr=fluid.ParamAttr())
        layer.bias.set_value(np.array([1.0, 2.0], "float32"))
        nodes, trees = (fluid.dygraph.to_variable(each) for each in (NODES, EDGES))
        biased = layer(nodes, trees).numpy()
        layer.bias.set_value(np.zeros(2, "float32"))
        plain = layer(nodes, trees).numpy()
    np.testing.assert_allclose(biased - plain, np.broadcast_to([1.0, 2.0], plain.shape), rtol=1e-5)
