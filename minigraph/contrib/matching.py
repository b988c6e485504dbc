"""Layers of ``fluid.contrib`` for networks that match texts, and over trees."""

from __future__ import annotations

from typing import Any

from minigraph.errors import ProgramError
from minigraph.ir import Variable
from minigraph.layer_helper import LayerHelper, check_floating, check_variable, layer

__all__ = ["match_matrix_tensor", "tree_conv"]


@layer
def tree_conv(
    nodes_vector: Variable,
    edge_set: Variable,
    output_size: int,
    num_filters: int = 1,
    max_depth: int = 2,
    act: str | None = "tanh",
    param_attr: Any = None,
    bias_attr: Any = None,
    name: str | None = None,
) -> Variable:
    """Convolve over trees: each node's result depends on the nodes below it, fewer than `max_depth` edges away.

    Parameters
    ----------
    nodes_vector : Variable, float[batch, nodes, features]
    edge_set : Variable, int[batch, edges, 2]
        Numbers of parent and child, from 1 on; the edges of a tree end at the first 0.
    output_size, num_filters : int
        The last dimensions of the result, [batch, nodes, output_size, num_filters].

    References
    ----------
    L. Mou et al., Convolutional neural networks over tree structures for programming language processing, AAAI 2016.
    """
    nodes = check_floating(nodes_vector, "tree_conv: nodes_vector")
    if len(nodes.shape or ()) != 3:
        raise ProgramError(f"tree_conv: nodes_vector must be [batch, nodes, features], got {nodes!r:.80}")
    helper = LayerHelper("tree_conv", name=name)
    assert nodes.shape is not None
    weight = helper.required(param_attr, [nodes.shape[2], 3, output_size, num_filters], nodes.dtype, "tree_conv")
    edges = check_variable(edge_set, "tree_conv: edge_set")
    result = helper.emit("tree_conv", NodesVector=nodes, EdgeSet=edges, Filter=weight, max_depth=max_depth)
    return helper.activation(helper.bias(result, bias_attr), act)


@layer
def match_matrix_tensor(
    x: Variable,
    y: Variable,
    channel_num: int,
    act: str | None = None,
    param_attr: Any = None,
    dtype: Any = "float32",
    name: str | None = None,
) -> tuple[Variable, Variable]:
    """Compare each row of a sequence of `x` with each row of the sequence of `y`: ``A @ W[:, c] @ B.T``.

    Parameters
    ----------
    x, y : Variable, float[rows, m] and float[rows, n], of as many sequences
    channel_num : int
        Number of matrices ``W[:, c]``, which are learned.

    Returns
    -------
    tuple of Variable
        Sequences of ``channel_num * length of A * length of B`` rows [1], channel after channel, and ``x @ W``.
    """
    check_floating(x, "match_matrix_tensor: x")
    check_floating(y, "match_matrix_tensor: y")
    if len(x.shape or ()) != 2 or len(y.shape or ()) != 2:
        raise ProgramError(f"match_matrix_tensor: x and y must be matrices, got {x!r:.80} and {y!r:.80}")
    helper = LayerHelper("match_matrix_tensor", name=name)
    assert x.shape is not None and y.shape is not None
    weight = helper.required(param_attr, [x.shape[1], channel_num, y.shape[1]], dtype, "match_matrix_tensor")
    out, products = helper.emit_all("match_matrix_tensor", X=x, Y=y, W=weight, dim_t=channel_num)
    products.stop_gradient = True
    return helper.activation(out, act), products
