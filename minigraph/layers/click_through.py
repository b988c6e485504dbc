"""Layers of networks that predict clicks: features normalized over all data, counts of shows and clicks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from minigraph.initializer import ConstantInitializer
from minigraph.ir import Variable
from minigraph.layer_helper import LayerHelper, check_floating, check_variable, layer
from minigraph.param_attr import ParamAttr
from minigraph.support.window_rules import require_layout

__all__ = ["continuous_value_model", "data_norm", "filter_by_instag"]


@layer
def continuous_value_model(input: Variable, cvm: Variable, use_cvm: bool = True) -> Variable:
    """Embeddings whose first two columns count shows and clicks, with logarithms of the counts or without them.

    Parameters
    ----------
    input : Variable, float[batch, 2 + size]
    cvm : Variable, float[batch, 2]
        The shows and clicks of this batch, which the two columns get for a gradient.
    use_cvm : bool
        Whether the first columns become ``log(shows + 1)`` and ``log(clicks + 1) - log(shows + 1)``, or are left out.

    Examples
    --------
    >>> import minigraph as fluid, numpy as np
    >>> with fluid.dygraph.guard():
    ...     x = fluid.dygraph.to_variable(np.array([[3.0, 1.0, 0.5]], "float32"))
    ...     counts = fluid.dygraph.to_variable(np.array([[1.0, 0.0]], "float32"))
    ...     fluid.layers.continuous_value_model(x, counts).numpy().round(2)
    array([[ 1.39, -0.69,  0.5 ]], dtype=float32)
    """
    helper, x = LayerHelper("cvm"), check_floating(input, "continuous_value_model: input")
    counts = check_variable(cvm, "continuous_value_model: cvm")
    return helper.emit("cvm", into=helper.create_variable(dtype=x.dtype), X=x, CVM=counts, use_cvm=use_cvm)


@layer
def data_norm(
    input: Variable,
    act: str | None = None,
    epsilon: float = 1e-05,
    param_attr: Mapping[str, float] | None = None,
    data_layout: str = "NCHW",
    in_place: bool = False,
    name: str | None = None,
    moving_mean_name: str | None = None,
    moving_variance_name: str | None = None,
    do_model_average_for_mean_and_var: bool = True,
    slot_dim: int = -1,
    sync_stats: bool = False,
    summary_decay_rate: float = 0.9999999,
    enable_scale_and_shift: bool = False,
) -> Variable:
    """Features normalized by counts over all data, which are parameters: an optimizer updates them.

    Parameters
    ----------
    input : Variable, float[batch, features]
    act : str, optional
    epsilon : float
        Part of what is counted for each square.
    param_attr : dict, optional
        Start values: ``batch_size`` (1e4), ``batch_sum`` (0), ``batch_square`` (1e4), ``scale_w`` (1), ``bias`` (0).
    in_place : bool
        Write the result over `input`.
    name : str, optional
        Prefix of the names of the parameters. Default: ``dn``.
    slot_dim : int
        Features of a slot, whose first counts shows: a slot that was never shown gives zeros. Default: no slots.
    enable_scale_and_shift : bool
        Multiply by a learned number for each feature, and add another one.
    data_layout, moving_mean_name, moving_variance_name, do_model_average_for_mean_and_var
    sync_stats, summary_decay_rate
        Without effect on the numbers, as in fluid on a processor.

    Returns
    -------
    Variable, float[batch, features]
    """
    helper = LayerHelper("data_norm", name)
    x = check_floating(input, "data_norm: input")
    require_layout(data_layout, "data_norm: data_layout")
    starts = {"scale_w": 1.0, "bias": 0.0} if enable_scale_and_shift else {}
    starts |= {"batch_size": 1e4, "batch_sum": 0.0, "batch_square": 1e4}
    starts |= {key: float(value) for key, value in (param_attr or {}).items() if key in starts}
    slots: dict[str, Any] = {"X": x}
    features = (x.shape or (0,))[-1]
    for key, value in starts.items():
        attr = ParamAttr(f"{name or 'dn'}.{_NAMES.get(key, key)}", ConstantInitializer(value))
        slots[_SLOTS.get(key, key)] = helper.parameter(attr, [features], x.dtype)
    attrs: dict[str, Any] = {"epsilon": epsilon, "sync_stats": sync_stats, "summary_decay_rate": summary_decay_rate}
    if slot_dim > 0:
        attrs["slot_dim"] = slot_dim
    if enable_scale_and_shift:
        attrs["enable_scale_and_shift"] = True
    out = helper.emit("data_norm", into=x if in_place else None, **slots, **attrs)
    return helper.activation(out, act)


_NAMES = {"batch_square": "batch_square_sum"}
_SLOTS = {"batch_size": "BatchSize", "batch_sum": "BatchSum", "batch_square": "BatchSquareSum"}


@layer
def filter_by_instag(
    ins: Variable, ins_tag: Variable, filter_tag: Variable, is_lod: bool, out_val_if_empty: int = 0
) -> list[Variable]:
    """Keep the samples that have at least one of some tags.

    Parameters
    ----------
    ins : Variable, [rows, size]
    ins_tag : Variable, int64
        A sequence of tags for each sample.
    filter_tag : Variable, int64
        The tags that are wanted.
    is_lod : bool
        Whether the samples are the sequences of `ins`, or its rows.
    out_val_if_empty : int
        Elements of the one row that stands for no sample.

    Returns
    -------
    list of Variable
        The samples, and the weight of each in a loss, float32[samples, 1]: 1, or 0 where no sample is left.
    """
    helper, x = LayerHelper("filter_by_instag"), check_variable(ins, "filter_by_instag: ins")
    tags, wanted = (check_variable(each, "filter_by_instag: tags") for each in (ins_tag, filter_tag))
    words = {"is_lod": is_lod, "out_val_if_empty": out_val_if_empty}
    out, weight, _ = helper.emit_all("filter_by_instag", Ins=x, Ins_tag=tags, Filter_tag=wanted, **words)
    return [out, weight]
