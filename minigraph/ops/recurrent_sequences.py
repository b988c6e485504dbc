"""Recurrent networks over sequences of different lengths."""

from __future__ import annotations

from minigraph.opdef import op
from minigraph.opdef.gradient_rules import fused
from minigraph.types import TensorType, require, require_floating, require_same_dtype, same_shape

ACTIVATIONS = ("sigmoid", "tanh", "relu", "identity")
"""Functions by their names in attributes."""


def _check_activations(**names: str) -> None:
    for what, name in names.items():
        require(name in ACTIVATIONS, f"{what} must be one of {', '.join(ACTIVATIONS)}, got {name!r}")


def _check_shape(slot: str, given: TensorType | None, shape: tuple[int, ...]) -> None:
    if given is not None:
        require(same_shape(given.shape, shape), f"{slot} must be {list(shape)}, got {given}")


def _size_of(x: TensorType, weight: TensorType, gates: int) -> int:
    """The size of the state, from the width of what is `gates` times as wide."""
    require(x.rank == 2 and weight.rank == 2, f"Input and Weight must be matrices, got {x} and {weight}")
    wide = x.shape[1] if x.shape[1] != -1 else weight.shape[1]
    require(wide == -1 or wide % gates == 0, f"Input must be {gates} times as wide as the state, got {x}")
    return -1 if wide == -1 else wide // gates


def _times(number: int, size: int) -> int:
    return -1 if size == -1 else number * size


@op(
    "lstm", inputs="Input H0 C0 Weight Bias", outputs="Hidden Cell BatchGate~ BatchCellPreAct~", lod="Input",
    lengths="Input",
    grad=fused(
        "Input", "H0", "C0", "Weight", "Bias", "Hidden", "Cell", "BatchGate", "BatchCellPreAct",
        to="Input H0 C0 Weight Bias", d_out="Hidden Cell?",
    ),
)  # fmt: skip
def lstm(
    x: TensorType,
    h0: TensorType | None,
    c0: TensorType | None,
    weight: TensorType,
    bias: TensorType,
    *,
    use_peepholes: bool = True,
    is_reverse: bool = False,
    gate_activation: str = "sigmoid",
    cell_activation: str = "tanh",
    candidate_activation: str = "tanh",
) -> tuple[TensorType, TensorType, TensorType, TensorType]:
    """A long short-term memory over each sequence; Hidden and Cell, ``[rows, size]``, are those after each row.

    Input, ``[rows, 4 * size]``, is the share of each row in the candidate g, the input gate i, the forget gate f and
    the output gate o, side by side, to which the previous output times Weight, ``[size, 4 * size]``, and Bias are
    added. With `use_peepholes` Bias, ``[1, 7 * size]``, also holds the weights of the cell in i, f and o::

        g, i, f = candidate(...), gate(... + w_i * c_before), gate(... + w_f * c_before)
        c = f * c_before + i * g
        o = gate(... + w_o * c)
        h = o * cell(c)

    H0 and C0, a row for each sequence, are what comes before the first row, zeros by default.

    References
    ----------
    S. Hochreiter and J. Schmidhuber, Long short-term memory, Neural Computation 9(8), 1997.
    """
    size = _size_of(x, weight, 4)
    _check_activations(
        gate_activation=gate_activation, cell_activation=cell_activation, candidate_activation=candidate_activation
    )
    _check_inputs(x, [h0, c0, weight, bias])
    _check_shape("H0", h0, (-1, size))
    _check_shape("C0", c0, (-1, size))
    _check_shape("Weight", weight, (size, _times(4, size)))
    _check_shape("Bias", bias, (1, _times(7 if use_peepholes else 4, size)))
    out = x.with_shape((x.shape[0], size))
    return out, out, x, out


def _check_inputs(x: TensorType, others: list[TensorType | None]) -> None:
    require_floating(x, "Input")
    require_same_dtype("all inputs", x, *(each for each in others if each is not None))


@op(
    "lstmp", inputs="Input H0 C0 Weight ProjWeight Bias",
    outputs="Projection Cell BatchGate~ BatchCellPreAct~ BatchHidden~", lod="Input", lengths="Input",
    grad=fused(
        "Input", "H0", "C0", "Weight", "ProjWeight", "Bias", "Projection", "Cell", "BatchGate", "BatchCellPreAct",
        "BatchHidden", to="Input H0 C0 Weight ProjWeight Bias", d_out="Projection Cell?",
    ),
)  # fmt: skip
def lstmp(
    x: TensorType,
    h0: TensorType | None,
    c0: TensorType | None,
    weight: TensorType,
    projection: TensorType,
    bias: TensorType,
    *,
    use_peepholes: bool = True,
    is_reverse: bool = False,
    cell_clip: float = 0.0,
    proj_clip: float = 0.0,
    gate_activation: str = "sigmoid",
    cell_activation: str = "tanh",
    candidate_activation: str = "tanh",
    proj_activation: str = "tanh",
) -> tuple[TensorType, TensorType, TensorType, TensorType, TensorType]:
    """An `lstm` whose output is projected: ``Projection = proj_activation(h @ ProjWeight)``, ``[rows, projected]``.

    The projected output goes to the next step, so that Weight is ``[projected, 4 * size]``. `cell_clip` and `proj_clip`
    bound the magnitude of the cells and of the projections, unless they are 0.

    References
    ----------
    H. Sak, A. Senior and F. Beaufays, Long short-term memory recurrent neural network architectures for large scale
    acoustic modeling, Interspeech 2014.
    """
    size = _size_of(x, weight, 4)
    _check_activations(
        gate_activation=gate_activation, cell_activation=cell_activation, candidate_activation=candidate_activation,
        proj_activation=proj_activation,
    )  # fmt: skip
    _check_inputs(x, [h0, c0, weight, projection, bias])
    require(projection.rank == 2, f"ProjWeight must be a matrix, got {projection}")
    projected = projection.shape[1]
    _check_shape("ProjWeight", projection, (size, projected))
    _check_shape("H0", h0, (-1, projected))
    _check_shape("C0", c0, (-1, size))
    _check_shape("Weight", weight, (projected, _times(4, size)))
    _check_shape("Bias", bias, (1, _times(7 if use_peepholes else 4, size)))
    require(cell_clip >= 0 and proj_clip >= 0, f"clips must not be negative, got {cell_clip:g} and {proj_clip:g}")
    out = x.with_shape((x.shape[0], size))
    return x.with_shape((x.shape[0], projected)), out, x, out, out


@op(
    "gru", inputs="Input H0 Weight Bias", outputs="BatchGate~ BatchResetHiddenPrev~ BatchHidden~ Hidden", lod="Input",
    lengths="Input",
    grad=fused(
        "Input", "H0", "Weight", "Bias", "BatchGate", "BatchResetHiddenPrev", "BatchHidden", "Hidden",
        to="Input H0 Weight Bias", d_out="Hidden",
    ),
)  # fmt: skip
def gru(
    x: TensorType,
    h0: TensorType | None,
    weight: TensorType,
    bias: TensorType | None,
    *,
    activation: str = "tanh",
    gate_activation: str = "sigmoid",
    is_reverse: bool = False,
    origin_mode: bool = False,
) -> tuple[TensorType, TensorType, TensorType, TensorType]:
    """A gated recurrent unit over each sequence; Hidden, ``[rows, size]``, is the state after each row.

    A row is a step of `gru_unit`. Input is ``[rows, 3 * size]``, Weight ``[size, 3 * size]``, Bias ``[1, 3 * size]``;
    H0, a row for each sequence, is the state before the first row, zeros by default.

    References
    ----------
    K. Cho et al., Learning phrase representations using RNN encoder-decoder for statistical machine translation,
    EMNLP 2014.
    """
    size = _size_of(x, weight, 3)
    _check_activations(activation=activation, gate_activation=gate_activation)
    _check_inputs(x, [h0, weight, bias])
    _check_shape("H0", h0, (-1, size))
    _check_shape("Weight", weight, (size, _times(3, size)))
    _check_shape("Bias", bias, (1, _times(3, size)))
    out = x.with_shape((x.shape[0], size))
    return x, out, out, out
