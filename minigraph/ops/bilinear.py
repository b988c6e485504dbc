"""Operators that are linear in each of two inputs."""

from __future__ import annotations

from minigraph.opdef import op
from minigraph.opdef.gradient_rules import fused, of_bilinear
from minigraph.types import DType, TensorType, require, require_floating, require_same_dtype, same_dim


@op(
    "bilinear_tensor_product", inputs="X Y Weight Bias", outputs="Out", lod="X",
    grad=fused(
        "X", "Y", "Weight", to="X Y Weight Bias",
        like={"Bias": ("Weight", lambda weight: weight.with_shape((1, weight.shape[0])))}, lod=False,
    ),
)  # fmt: skip
def bilinear_tensor_product(x: TensorType, y: TensorType, weight: TensorType, bias: TensorType | None) -> TensorType:
    """``Out[:, i] = sum(X @ Weight[i] * Y, axis=1) + Bias[:, i]``.

    X is ``[batch, m]``, Y ``[batch, n]``, Weight ``[size, m, n]``, Bias ``[1, size]`` and Out ``[batch, size]``.
    """
    require_floating(x)
    require_same_dtype("X, Y, Weight and Bias", x, y, weight, *([bias] if bias else []))
    require(x.rank == y.rank == 2 and weight.rank == 3, f"X and Y must be matrices and Weight a list of them, got {x}")
    fits = same_dim(x.shape[1], weight.shape[1]) and same_dim(y.shape[1], weight.shape[2])
    expected = [weight.shape[0], x.shape[1], y.shape[1]]
    require(fits, f"Weight must have shape {expected}, got {list(weight.shape)}")
    require(same_dim(x.shape[0], y.shape[0]), f"X has {x.shape[0]} rows but Y has {y.shape[0]}")
    size = weight.shape[0]
    if bias is not None:
        fits = bias.rank == 2 and same_dim(bias.shape[0], 1) and same_dim(bias.shape[1], size)
        require(fits, f"Bias must have shape {[1, size]}, got {list(bias.shape)}")
    return x.with_shape((max(x.shape[0], y.shape[0]), size))


@op("fsp", inputs="X Y", outputs="Out", lod="X", grad=fused("X", "Y", grad=of_bilinear("X", "Y", "Out"), lod=False))
def fsp(x: TensorType, y: TensorType) -> TensorType:
    """The matrix of the mean products of each channel of X with each of Y, over all places of images of one size.

    References
    ----------
    J. Yim et al., A gift from knowledge distillation, CVPR 2017.
    """
    require_floating(x)
    require_same_dtype("X and Y", x, y)
    require(x.rank == y.rank == 4, f"X and Y must be [batch, channels, height, width], got {x} and {y}")
    fits = all(same_dim(x.shape[i], y.shape[i]) for i in (0, 2, 3))
    require(fits, f"X and Y must be images of one size, got {x} and {y}")
    return x.with_shape((max(x.shape[0], y.shape[0]), x.shape[1], y.shape[1]))


@op(
    "tree_conv", inputs="NodesVector EdgeSet Filter", outputs="Out",
    grad=fused(
        "NodesVector", "EdgeSet", "Filter", to="NodesVector Filter",
        grad=of_bilinear("NodesVector", "Filter", "Out", "EdgeSet"), lod=False,
    ),
)  # fmt: skip
def tree_conv(nodes: TensorType, edges: TensorType, filter: TensorType, *, max_depth: int = 2) -> TensorType:
    """For each node of a tree the sum over the nodes below it, fewer than `max_depth` edges away, itself among them.

    NodesVector is ``[batch, nodes, features]``; EdgeSet ``[batch, edges, 2]`` the numbers, from 1 on, of parent and
    child, up to the first pair with a 0; Filter ``[features, 3, size, filters]`` has a weight for what lies at the
    left, at the right and at the top, between which a node's is interpolated. Out is
    ``[batch, nodes, size, filters]``, 0 where there is no node.

    References
    ----------
    L. Mou et al., Convolutional neural networks over tree structures for programming language processing, AAAI 2016.
    """
    require_floating(nodes)
    require_same_dtype("NodesVector and Filter", nodes, filter)
    require(nodes.rank == 3, f"NodesVector must be [batch, nodes, features], got {nodes}")
    is_edges = edges.dtype in (DType.INT32, DType.INT64) and edges.rank == 3 and same_dim(edges.shape[2], 2)
    require(is_edges, f"EdgeSet must be integers [batch, edges, 2], got {edges}")
    require(same_dim(edges.shape[0], nodes.shape[0]), f"EdgeSet must have a tree for each of {nodes}, got {edges}")
    fits = filter.rank == 4 and same_dim(filter.shape[0], nodes.shape[2]) and same_dim(filter.shape[1], 3)
    require(fits, f"Filter must have shape [{nodes.shape[2]}, 3, size, filters], got {list(filter.shape)}")
    require(max_depth > 1, f"max_depth must be more than 1, got {max_depth}")
    return nodes.with_shape((*nodes.shape[:2], *filter.shape[2:]))


@op(
    "row_conv", inputs="X Filter", outputs="Out", lod="X", lengths="X?",
    grad=fused("X", "Filter", grad=of_bilinear("X", "Filter", "Out"), lod=False),
)  # fmt: skip
def row_conv(x: TensorType, filter: TensorType) -> TensorType:
    """Lookahead convolution: ``Out[:, t] = sum(X[:, t + i] * Filter[i])`` over the rows of Filter, up to the last step.

    X is ``[batch, steps, features]``, or ``[rows, features]`` with the lengths of sequences; Filter
    ``[1 + steps ahead, features]``.

    References
    ----------
    D. Amodei et al., Deep Speech 2: End-to-end speech recognition in English and Mandarin, ICML 2016.
    """
    require_floating(x)
    require_same_dtype("X and Filter", x, filter)
    require(x.rank in (2, 3), f"X must be [batch, steps, features] or [rows, features], got {x}")
    fits = filter.rank == 2 and same_dim(filter.shape[1], x.shape[-1])
    require(fits, f"Filter must have shape [..., {x.shape[-1]}], got {list(filter.shape)}")
    return x
