"""Recurrent networks with learned weights over sequences of different lengths."""

from __future__ import annotations

from typing import Any

from minigraph.errors import ProgramError
from minigraph.ir import Variable
from minigraph.layer_helper import LayerHelper, check_floating, layer

__all__ = ["dynamic_gru", "dynamic_lstm", "dynamic_lstmp"]


def _inputs(what: str, x: Variable, **states: Variable | None) -> dict[str, Variable]:
    """Input, H0 and C0 of an operator, checked."""
    given = {"Input": check_floating(x, f"{what}: input")}
    for slot, state in states.items():
        if state is not None:
            given[slot] = check_floating(state, f"{what}: {slot.lower().replace('0', '_0')}")
    return given


def _cell_bias(helper: LayerHelper, attr: Any, size: int, use_peepholes: bool, dtype: Any) -> Variable:
    bias = helper.parameter(attr, [1, (7 if use_peepholes else 4) * size], dtype, is_bias=True)
    if bias is None:
        raise ProgramError(
            f"{helper.layer_type}: bias_attr must not be False",
            hint="Leave bias_attr out; a bias of zeros changes nothing.",
        )
    return bias


@layer
def dynamic_lstm(
    input: Variable,
    size: int,
    h_0: Variable | None = None,
    c_0: Variable | None = None,
    param_attr: Any = None,
    bias_attr: Any = None,
    use_peepholes: bool = True,
    is_reverse: bool = False,
    gate_activation: str = "sigmoid",
    cell_activation: str = "tanh",
    candidate_activation: str = "tanh",
    dtype: Any = "float32",
    name: str | None = None,
) -> tuple[Variable, Variable]:
    """A long short-term memory over each sequence: the output and the cell after each row.

    Parameters
    ----------
    input : Variable, float[rows, size] with lengths
        What an `fc` layer made of each row: its share in the candidate and in the three gates.
    size : int
        Four times the number of units.
    h_0, c_0 : Variable, float[sequences, size / 4], optional
        Output and cell before the first row. Default: zeros.
    use_peepholes : bool
        Whether the gates see the cell.
    is_reverse : bool
        Go from the last row of each sequence to the first.
    gate_activation, cell_activation, candidate_activation : {'sigmoid', 'tanh', 'relu', 'identity'}

    Returns
    -------
    tuple of Variable, float[rows, size / 4]
        With the lengths of `input`.

    Raises
    ------
    ProgramError
        If `bias_attr` is False.

    References
    ----------
    S. Hochreiter and J. Schmidhuber, Long short-term memory, Neural Computation 9(8), 1997.
    """
    helper = LayerHelper("lstm", name)
    given = _inputs("dynamic_lstm", input, H0=h_0, C0=c_0)
    units = size // 4
    weight = helper.required(param_attr, [units, 4 * units], dtype)
    bias = _cell_bias(helper, bias_attr, units, use_peepholes, dtype)
    attrs = {
        "use_peepholes": use_peepholes, "is_reverse": is_reverse, "gate_activation": gate_activation,
        "cell_activation": cell_activation, "candidate_activation": candidate_activation,
    }  # fmt: skip
    hidden, cell, *_ = helper.emit_all("lstm", **given, Weight=weight, Bias=bias, **attrs)
    return hidden, cell


@layer
def dynamic_lstmp(
    input: Variable,
    size: int,
    proj_size: int,
    param_attr: Any = None,
    bias_attr: Any = None,
    use_peepholes: bool = True,
    is_reverse: bool = False,
    gate_activation: str = "sigmoid",
    cell_activation: str = "tanh",
    candidate_activation: str = "tanh",
    proj_activation: str = "tanh",
    dtype: Any = "float32",
    name: str | None = None,
    h_0: Variable | None = None,
    c_0: Variable | None = None,
    cell_clip: float | None = None,
    proj_clip: float | None = None,
) -> tuple[Variable, Variable]:
    """`dynamic_lstm` whose output is projected to `proj_size` numbers, which go to the next step.

    Parameters
    ----------
    proj_size : int
    proj_activation : {'sigmoid', 'tanh', 'relu', 'identity'}
        Of the projection.
    h_0 : Variable, float[sequences, proj_size], optional
    cell_clip, proj_clip : float, optional
        Bounds of the magnitude of the cells and of the projections.

    Returns
    -------
    tuple of Variable
        The projections, float[rows, proj_size], and the cells, float[rows, size / 4].

    Raises
    ------
    ProgramError
        If `bias_attr` is False.

    References
    ----------
    H. Sak, A. Senior and F. Beaufays, Long short-term memory recurrent neural network architectures for large scale
    acoustic modeling, Interspeech 2014.
    """
    helper = LayerHelper("lstmp", name)
    given = _inputs("dynamic_lstmp", input, H0=h_0, C0=c_0)
    units = size // 4
    weight = helper.required(param_attr, [proj_size, 4 * units], dtype)
    proj_weight = helper.required(param_attr, [units, proj_size], dtype)
    bias = _cell_bias(helper, bias_attr, units, use_peepholes, dtype)
    attrs = {
        "use_peepholes": use_peepholes, "cell_clip": cell_clip or 0.0, "proj_clip": proj_clip or 0.0,
        "is_reverse": is_reverse, "gate_activation": gate_activation, "cell_activation": cell_activation,
        "candidate_activation": candidate_activation, "proj_activation": proj_activation,
    }  # fmt: skip
    inputs = {**given, "Weight": weight, "ProjWeight": proj_weight, "Bias": bias}
    made = {
        slot: helper.temporary() for slot in ("Projection", "Cell", "", "BatchHidden", "BatchGate", "BatchCellPreAct")
    }
    del made[""]  # a number that fluid gives to a variable of no use
    helper.append("lstmp", inputs, made, attrs)
    return made["Projection"], made["Cell"]


@layer
def dynamic_gru(
    input: Variable,
    size: int,
    param_attr: Any = None,
    bias_attr: Any = None,
    is_reverse: bool = False,
    gate_activation: str = "sigmoid",
    candidate_activation: str = "tanh",
    h_0: Variable | None = None,
    origin_mode: bool = False,
) -> Variable:
    """A gated recurrent unit over each sequence: the state after each row.

    Parameters
    ----------
    input : Variable, float[rows, 3 * size] with lengths
        What an `fc` layer made of each row: its share in the two gates and in the candidate.
    size : int
        Number of units.
    is_reverse : bool
        Go from the last row of each sequence to the first.
    gate_activation, candidate_activation : {'sigmoid', 'tanh', 'relu', 'identity'}
    h_0 : Variable, float[sequences, size], optional
        State before the first row. Default: zeros.
    origin_mode : bool
        ``u * before + (1 - u) * c``, as in the paper, instead of ``(1 - u) * before + u * c``.

    Returns
    -------
    Variable, float[rows, size]
        With the lengths of `input`.

    References
    ----------
    K. Cho et al., Learning phrase representations using RNN encoder-decoder for statistical machine translation,
    EMNLP 2014.
    """
    helper = LayerHelper("gru")
    given = _inputs("dynamic_gru", input, H0=h_0)
    weight = helper.required(param_attr, [size, 3 * size], input.dtype)
    bias = helper.parameter(bias_attr, [1, 3 * size], input.dtype, is_bias=True)
    inputs = {**given, "Weight": weight, **({} if bias is None else {"Bias": bias})}
    attrs = {
        "is_reverse": is_reverse, "gate_activation": gate_activation, "activation": candidate_activation,
        "origin_mode": origin_mode,
    }  # fmt: skip
    made = {slot: helper.temporary() for slot in ("Hidden", "BatchGate", "BatchResetHiddenPrev", "BatchHidden")}
    helper.append("gru", inputs, made, attrs)
    return made["Hidden"]
