"""One step of recurrent cells with learned weights."""

from __future__ import annotations

from typing import Any

from minigraph.errors import NotFoundError, ProgramError, caller_site, suggest
from minigraph.ir import Variable
from minigraph.layer_helper import LayerHelper, check_floating, layer
from minigraph.layers.nn import fc
from minigraph.layers.tensor import concat
from minigraph.ops.recurrent import ACTIVATIONS

__all__ = ["gru_unit", "lstm_unit"]


@layer
def gru_unit(
    input: Variable,
    hidden: Variable,
    size: int,
    param_attr: Any = None,
    bias_attr: Any = None,
    activation: str = "tanh",
    gate_activation: str = "sigmoid",
    origin_mode: bool = False,
) -> tuple[Variable, Variable, Variable]:
    """One step of a gated recurrent unit with learned weights, ``(1 - u) * hidden + u * c``.

    Parameters
    ----------
    input : Variable, float[batch, size]
        What an `fc` layer made of the step's input: its share in the two gates and in the candidate.
    hidden : Variable, float[batch, size / 3]
        The state before.
    size : int
        Three times the number of units.
    activation, gate_activation : {'identity', 'sigmoid', 'tanh', 'relu'}
        Of the candidate and of the gates.
    origin_mode : bool
        ``u * hidden + (1 - u) * c``, as in the paper.

    Returns
    -------
    tuple of Variable
        The state, float[batch, size / 3]; the state before times the reset gate, of that shape; the gates and the
        candidate, float[batch, size].

    Raises
    ------
    ProgramError
        If `size` is no multiple of 3, or `param_attr` is False.
    NotFoundError
        If an activation is not one of these.

    References
    ----------
    K. Cho et al., Learning phrase representations using RNN encoder-decoder for statistical machine translation,
    EMNLP 2014.
    """
    helper = LayerHelper("gru_unit")
    check_floating(input, "gru_unit: input")
    check_floating(hidden, "gru_unit: hidden")
    if size % 3:
        raise ProgramError(f"gru_unit: size must be three times the number of units, got {size}")
    weight = helper.required(param_attr, [size // 3, size], input.dtype)
    bias = helper.parameter(bias_attr, [1, size], input.dtype, is_bias=True)
    attrs = gru_attrs(activation, gate_activation, origin_mode, "gru_unit")
    return append_gru(helper, input, hidden, weight, bias, attrs)


def gru_attrs(activation: str, gate_activation: str, origin_mode: bool, what: str) -> dict[str, Any]:
    """The attributes of a ``gru_unit``."""
    # The operator knows activations by numbers.
    numbers = (activation_number(name, what) for name in (activation, gate_activation))
    return dict(zip(("activation", "gate_activation", "origin_mode"), (*numbers, origin_mode), strict=True))


def append_gru(
    helper: LayerHelper, x: Variable, hidden: Variable, weight: Variable, bias: Variable | None, attrs: dict[str, Any]
) -> tuple[Variable, Variable, Variable]:
    """Append a ``gru_unit``: the state, the state before times the reset gate, and the gates with the candidate."""
    inputs = {"Input": x, "HiddenPrev": hidden, "Weight": weight, "Bias": bias}
    gate, kept, updated = helper.emit_all("gru_unit", **inputs, **attrs)
    return updated, kept, gate


def activation_number(name: str, what: str) -> int:
    """The number that an operator knows an activation by."""
    if name not in ACTIVATIONS:
        raise NotFoundError(
            f"{what}: there is no activation {name!r:.60}", site=caller_site(),
            hint=suggest(str(name), ACTIVATIONS) or f"Use one of {', '.join(ACTIVATIONS)}.",
        )  # fmt: skip
    return ACTIVATIONS.index(name)


@layer
def lstm_unit(
    x_t: Variable,
    hidden_t_prev: Variable,
    cell_t_prev: Variable,
    forget_bias: float = 0.0,
    param_attr: Any = None,
    bias_attr: Any = None,
    name: str | None = None,
) -> tuple[Variable, Variable]:
    """One step of a long short-term memory with learned weights: the output and the cell.

    Parameters
    ----------
    x_t : Variable, float[batch, features]
    hidden_t_prev, cell_t_prev : Variable, float[batch, units]
        Output and cell before.
    forget_bias : float
        Added to what goes into the forget gate.

    Returns
    -------
    tuple of Variable, float[batch, units]

    Raises
    ------
    ProgramError
        If one of the inputs is no matrix, or their shapes do not fit.

    References
    ----------
    S. Hochreiter and J. Schmidhuber, Long short-term memory, Neural Computation 9(8), 1997.
    """
    helper = LayerHelper("lstm_unit", name)
    for what, x in (("x_t", x_t), ("hidden_t_prev", hidden_t_prev), ("cell_t_prev", cell_t_prev)):
        if len(check_floating(x, f"lstm_unit: {what}").shape or ()) != 2:
            raise ProgramError(f"lstm_unit: {what} must be a matrix, got {x}")
    assert hidden_t_prev.shape is not None and cell_t_prev.shape is not None
    if hidden_t_prev.shape[1] != cell_t_prev.shape[1] or cell_t_prev.shape[1] < 0:
        raise ProgramError(
            f"lstm_unit: output and cell must have one known width, got {hidden_t_prev} and {cell_t_prev}"
        )
    gates = fc(concat([x_t, hidden_t_prev], axis=1), 4 * cell_t_prev.shape[1], 1, param_attr, bias_attr)
    cell, out = helper.emit_all("lstm_unit", X=gates, C_prev=cell_t_prev, forget_bias=forget_bias)
    return out, cell
