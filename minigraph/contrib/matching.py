"""Layers of ``fluid.contrib`` for networks that match texts."""

from __future__ import annotations

from typing import Any

from minigraph.errors import ProgramError
from minigraph.ir import Variable
from minigraph.layer_helper import LayerHelper, check_floating, layer

__all__ = ["match_matrix_tensor"]


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
