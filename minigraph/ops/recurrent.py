"""One step of recurrent cells."""

from __future__ import annotations

from minigraph.opdef import op
from minigraph.opdef.gradient_rules import fused
from minigraph.types import (
    TensorType,
    merge_shapes,
    require,
    require_floating,
    require_same_dtype,
    same_dim,
    same_shape,
)

ACTIVATIONS = ("identity", "sigmoid", "tanh", "relu")
"""Functions by the numbers in the attributes of ``gru_unit``."""


@op(
    "gru_unit", inputs="Input HiddenPrev Weight Bias", outputs="Gate~ ResetHiddenPrev~ Hidden",
    grad=fused(
        "Input", "HiddenPrev", "Weight", "Bias", "Gate", "ResetHiddenPrev", to="Input HiddenPrev Weight Bias",
        lod=False,
    ),
)  # fmt: skip
def gru_unit(
    x: TensorType,
    hidden: TensorType,
    weight: TensorType,
    bias: TensorType | None,
    *,
    activation: int = 2,
    gate_activation: int = 1,
    origin_mode: bool = False,
) -> tuple[TensorType, TensorType, TensorType]:
    """One step of a gated recurrent unit, ``Hidden = (1 - u) * HiddenPrev + u * c``, for a batch.

    Input, ``[batch, 3 * size]``, plus Bias, ``[1, 3 * size]``, is the share of the step's input in the update gate u,
    the reset gate r and the candidate c, side by side. HiddenPrev is ``[batch, size]``. The elements of Weight,
    ``[size, 3 * size]``, are row by row first those of a matrix ``[size, 2 * size]`` for both gates, then those of one
    ``[size, size]`` for the candidate::

        u, r = gate_activation(Input[:, : 2 * size] + HiddenPrev @ W_gates)
        c = activation(Input[:, 2 * size :] + (r * HiddenPrev) @ W_candidate)

    Gate is u, r and c side by side, ResetHiddenPrev is ``r * HiddenPrev``. The activations are 0 (none), 1 (sigmoid),
    2 (tanh) or 3 (relu). With `origin_mode` ``Hidden = u * HiddenPrev + (1 - u) * c``, as in the paper.

    References
    ----------
    K. Cho et al., Learning phrase representations using RNN encoder-decoder for statistical machine translation,
    EMNLP 2014.
    """
    require_floating(x, "Input")
    given = [x, hidden, weight, *([bias] if bias else [])]
    require_same_dtype("Input, HiddenPrev, Weight and Bias", *given)
    require(all(t.rank == 2 for t in given), f"all inputs must be matrices, got {', '.join(map(str, given))}")
    for name, number in (("activation", activation), ("gate_activation", gate_activation)):
        require(0 <= number < len(ACTIVATIONS), f"{name} must be 0, 1, 2 or 3, got {number}")
    size = next((dim for dim in (hidden.shape[1], weight.shape[0]) if dim != -1), -1)
    wide = 3 * size if size != -1 else -1
    require(same_shape(x.shape, (hidden.shape[0], wide)), f"Input must be [batch, 3 * size], got {x} for {hidden}")
    require(same_shape(weight.shape, (size, wide)), f"Weight must be [size, 3 * size], got {weight} for {hidden}")
    require(same_shape(hidden.shape, (-1, size)), f"HiddenPrev must be [batch, {size}], got {hidden}")
    if bias is not None:
        require(same_shape(bias.shape, (1, wide)), f"Bias must be [1, 3 * size], got {bias} for {hidden}")
    batch = x.shape[0] if hidden.shape[0] == -1 else hidden.shape[0]
    return x.with_shape((batch, wide)), x.with_shape((batch, size)), x.with_shape((batch, size))


@op("lstm_unit", inputs="X C_prev", outputs="C H", grad=fused("X", "C_prev", "C", d_out="C H"))
def lstm_unit(x: TensorType, c_prev: TensorType, *, forget_bias: float = 0.0) -> tuple[TensorType, TensorType]:
    """One step of a long short-term memory, for a batch: the cell ``C`` and the output ``H``.

    X, ``[batch, 4 * size]``, holds i, f, o and g side by side, C_prev is ``[batch, size]``::

        C = sigmoid(f + forget_bias) * C_prev + sigmoid(i) * tanh(g)
        H = sigmoid(o) * tanh(C)

    References
    ----------
    S. Hochreiter and J. Schmidhuber, Long short-term memory, Neural Computation 9(8), 1997.
    """
    require_floating(x)
    require_same_dtype("X and C_prev", x, c_prev)
    require(x.rank == 2 and c_prev.rank == 2, f"X and C_prev must be matrices, got {x} and {c_prev}")
    size = c_prev.shape[1]
    fits = same_dim(x.shape[1], -1 if size == -1 else 4 * size)
    require(fits, f"X must be four times as wide as C_prev, got {x} for {c_prev}")
    if size == -1 and x.shape[1] != -1:
        require(x.shape[1] % 4 == 0, f"X must be four times as wide as C_prev, got {x}")
        size = x.shape[1] // 4
    (batch,) = merge_shapes(x.shape[:1], c_prev.shape[:1], "the rows of X and C_prev")
    out = x.with_shape((batch, size))
    return out, out
