"""Layers of ``fluid.contrib`` for networks that match texts, and over trees."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from minigraph.errors import ProgramError
from minigraph.ir import Variable
from minigraph.layer_helper import LayerHelper, check_floating, check_variable, layer
from minigraph.layers.image import pair

__all__ = ["match_matrix_tensor", "sequence_topk_avg_pooling", "tree_conv", "var_conv_2d"]


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


@layer
def var_conv_2d(
    input: Variable,
    row: Variable,
    col: Variable,
    input_channel: int,
    output_channel: int,
    filter_size: int | Sequence[int],
    stride: int | Sequence[int] = 1,
    param_attr: Any = None,
    act: str | None = None,
    dtype: Any = "float32",
    name: str | None = None,
) -> Variable:
    """Convolve over images of different sizes, such as the results of `match_matrix_tensor`.

    Parameters
    ----------
    input : Variable, float[rows, 1]
        Each sequence has the elements of an image ``[input_channel, height, width]``.
    row, col : Variable
        The lengths of the sequences are the heights and the widths.
    filter_size, stride : int or two int
        Down and across. Zeros surround the images, so that with a stride of 1 they keep their size.

    Returns
    -------
    Variable, float[rows, 1]
        Each sequence has the elements of ``[output_channel, ceil(height / stride), ceil(width / stride)]``.
    """
    x = check_floating(input, "var_conv_2d: input")
    kernel, step = pair(filter_size, "var_conv_2d: filter_size"), pair(stride, "var_conv_2d: stride")
    helper = LayerHelper("var_conv_2d", name=name)
    shape = [output_channel, input_channel * kernel[0] * kernel[1]]
    weight = helper.required(param_attr, shape, dtype, "var_conv_2d")
    out, windows = helper.emit_all(
        "var_conv_2d", X=x, ROW=check_variable(row, "var_conv_2d: row"), COLUMN=check_variable(col, "var_conv_2d: col"),
        W=weight, InputChannel=input_channel, OutputChannel=output_channel, StrideH=step[0], StrideW=step[1],
        KernelH=kernel[0], KernelW=kernel[1],
    )  # fmt: skip
    windows.stop_gradient = True
    return helper.activation(out, act)


@layer
def sequence_topk_avg_pooling(
    input: Variable, row: Variable, col: Variable, topks: Sequence[int], channel_num: int
) -> Variable:
    """Means of the largest elements of each row of images of different sizes, for several numbers of elements.

    Parameters
    ----------
    input : Variable, float[rows, 1]
        Each sequence has the elements of an image ``[channel_num, height, width]``.
    row, col : Variable
        The lengths of the sequences are the heights and the widths.
    topks : sequence of int
        Numbers of elements, increasing. A row with fewer elements counts zeros for the rest.

    Returns
    -------
    Variable, float[rows of `row`, channel_num * len(topks)]
    """
    x = check_floating(input, "sequence_topk_avg_pooling: input")
    helper = LayerHelper("sequence_topk_avg_pooling")
    out, places = helper.emit_all(
        "sequence_topk_avg_pooling", X=x, ROW=check_variable(row, "sequence_topk_avg_pooling: row"),
        COLUMN=check_variable(col, "sequence_topk_avg_pooling: col"), topks=list(topks), channel_num=channel_num,
    )  # fmt: skip
    places.stop_gradient = True
    return out
