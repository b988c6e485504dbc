"""Losses of many classes that compute the scores of some only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from minigraph.errors import ProgramError
from minigraph.initializer import NumpyArrayInitializer
from minigraph.ir import Variable
from minigraph.layer_helper import LayerHelper, check_floating, check_variable, layer
from minigraph.layers.tensor import cast
from minigraph.param_attr import ParamAttr

__all__ = ["hsigmoid", "nce", "sampled_softmax_with_cross_entropy"]

_SAMPLERS = ("uniform", "log_uniform", "custom_dist")
DEFAULT_SAMPLES = 10
"""Number of samples where none is given."""


def nce_attrs(num_total_classes: int, num_neg_samples: int | None, sampler: str, seed: int, is_sparse: bool) -> Any:
    """The attributes of an ``nce``.

    Raises
    ------
    ProgramError
        If the sampler is not known.
    """
    if sampler not in _SAMPLERS:
        raise ProgramError(f"nce: sampler must be uniform, log_uniform or custom_dist, got {sampler!r:.60}")
    return {
        "num_total_classes": int(num_total_classes),
        "num_neg_samples": DEFAULT_SAMPLES if num_neg_samples is None else int(num_neg_samples), "seed": seed,
        "sampler": _SAMPLERS.index(sampler), "is_sparse": is_sparse, "remote_prefetch": is_sparse,
    }  # fmt: skip


def alias_tables(custom_dist: Sequence[float] | None, classes: int) -> dict[str, np.ndarray[Any, Any]]:
    """Inputs of an ``nce`` that draws classes with these probabilities by the alias method.

    Raises
    ------
    ProgramError
        If there is no probability for each class.
    """
    if custom_dist is None or len(custom_dist) != classes:
        raise ProgramError(f"nce: custom_dist must be a probability for each of {classes} classes")
    shares = [float(p) * classes for p in custom_dist]
    alias, chances = [0] * classes, [0.0] * classes
    larger = [i for i in range(classes) if shares[i] > 1]
    smaller = [i for i in range(classes) if shares[i] < 1]
    for i in range(classes):
        if shares[i] == 1:
            alias[i], chances[i] = -1, 1.0
    while larger and smaller:
        big, small = larger.pop(0), smaller.pop(0)
        alias[small], chances[small] = big, shares[small]
        shares[big] += shares[small] - 1
        if shares[big] == 1:
            alias[big], chances[big] = -1, 1.0
        else:
            (larger if shares[big] > 1 else smaller).append(big)
    for i in larger[:1] + smaller[:1]:  # what rounding left over
        alias[i], chances[i] = -1, 1.0
    return {
        "CustomDistProbs": np.array(custom_dist, "float32"), "CustomDistAlias": np.array(alias, "int32"),
        "CustomDistAliasProbs": np.array(chances, "float32"),
    }  # fmt: skip


def append_nce(helper: LayerHelper, inputs: dict[str, Any], attrs: dict[str, Any]) -> Variable:
    """Append an ``nce`` and the mean of its cost."""
    cost = helper.temporary()
    outputs = {"Cost": cost, "SampleLogits": helper.temporary(), "SampleLabels": helper.temporary()}
    helper.append("nce", {slot: x for slot, x in inputs.items() if x is not None}, outputs, attrs)
    return cost / (attrs["num_neg_samples"] + 1)


@layer
def nce(
    input: Variable,
    label: Variable,
    num_total_classes: int,
    sample_weight: Variable | None = None,
    param_attr: Any = None,
    bias_attr: Any = None,
    num_neg_samples: int | None = None,
    name: str | None = None,
    sampler: str = "uniform",
    custom_dist: Sequence[float] | None = None,
    seed: int = 0,
    is_sparse: bool = False,
) -> Variable:
    """Noise contrastive estimation: the classes of a row are told from some that are drawn at random.

    Parameters
    ----------
    input : Variable, float[batch, features]
    label : Variable, int64[batch, classes of a row]
    sample_weight : Variable, float[batch, 1], optional
    num_neg_samples : int, optional
        Number of samples of each row. Default: 10.
    sampler : {'uniform', 'log_uniform', 'custom_dist'}
    custom_dist : sequence of float, optional
        The probability of each class.
    seed : int
        0 draws other samples in each run.
    is_sparse : bool
        Changes nothing: the gradient of the weight is a whole tensor.

    Returns
    -------
    Variable, float[batch, 1]

    References
    ----------
    M. Gutmann and A. Hyvarinen, Noise-contrastive estimation, AISTATS 2010.
    """
    helper = LayerHelper("nce", name)
    x = check_floating(input, "nce: input")
    check_variable(label, "nce: label")
    attrs = nce_attrs(num_total_classes, num_neg_samples, sampler, seed, is_sparse)
    assert x.shape is not None
    weight = helper.required(param_attr, [num_total_classes, x.shape[1]], x.dtype, "nce")
    bias = helper.parameter(bias_attr, [num_total_classes, 1], x.dtype, is_bias=True)
    inputs = {"Input": x, "Label": label, "Weight": weight, "Bias": bias, "SampleWeight": sample_weight}
    if sampler == "custom_dist":
        for slot, table in alias_tables(custom_dist, num_total_classes).items():
            start = NumpyArrayInitializer(table)
            fixed = helper.required(ParamAttr(), table.shape, table.dtype, "nce", default_initializer=start)
            fixed.stop_gradient = True
            inputs[slot] = fixed
    return append_nce(helper, inputs, attrs)


@layer
def hsigmoid(
    input: Variable,
    label: Variable,
    num_classes: int | None,
    param_attr: Any = None,
    bias_attr: Any = None,
    name: str | None = None,
    path_table: Variable | None = None,
    path_code: Variable | None = None,
    is_custom: bool = False,
    is_sparse: bool = False,
) -> Variable:
    """Hierarchical softmax: cross entropy of classes whose probability is a product along a path in a binary tree.

    Parameters
    ----------
    input : Variable, float[batch, features]
    label : Variable, int64[batch, 1]
    num_classes : int
        With a tree of your own, the number of its nodes.
    path_table, path_code : Variable, int64[batch, nodes], optional
        With `is_custom` the nodes of the path of each row, and the sides taken there, with -1 after the end.
    is_sparse : bool
        Changes nothing: the gradient of the weight is a whole tensor.

    Returns
    -------
    Variable, float[batch, 1]

    Raises
    ------
    ProgramError
        If there are less than two classes, or `is_custom` and the paths do not go together.

    References
    ----------
    F. Morin and Y. Bengio, Hierarchical probabilistic neural network language model, AISTATS 2005.
    """
    helper = LayerHelper("hierarchical_sigmoid", name)
    x = check_floating(input, "hsigmoid: input")
    if num_classes is None or (num_classes < 2 and not is_custom):
        raise ProgramError(f"hsigmoid: num_classes must be at least 2, got {num_classes}")
    if any((path is not None) != is_custom for path in (path_table, path_code)):
        raise ProgramError("hsigmoid: path_table and path_code go with is_custom=True, and it with them")
    out, losses = helper.temporary(), helper.temporary()
    rows = num_classes if is_custom else num_classes - 1
    assert x.shape is not None
    weight = helper.required(param_attr, [rows, x.shape[1]], x.dtype, "hsigmoid")
    bias = helper.parameter(bias_attr, [rows, 1], x.dtype, is_bias=True)
    inputs = {
        "X": x, "W": weight, "PathTable": path_table, "PathCode": path_code, "Label": label, "Bias": bias,
    }  # fmt: skip
    helper.append(
        "hierarchical_sigmoid", {slot: x for slot, x in inputs.items() if x is not None},
        {"Out": out, "PreOut": losses},
        {"num_classes": num_classes, "is_sparse": is_sparse and is_custom, "remote_prefetch": is_sparse and is_custom},
    )  # fmt: skip
    return out


@layer
def sampled_softmax_with_cross_entropy(
    logits: Variable,
    label: Variable,
    num_samples: int,
    num_true: int = 1,
    remove_accidental_hits: bool = True,
    use_customized_samples: bool = False,
    customized_samples: Variable | None = None,
    customized_probabilities: Variable | None = None,
    seed: int = 0,
) -> Variable:
    """Cross entropy of a softmax over the class of a row and some that are drawn at random.

    Parameters
    ----------
    logits : Variable, float[batch, classes]
    label : Variable, int64[batch, 1]
    num_samples : int
    num_true : int
        Divides the loss.
    remove_accidental_hits : bool
        Whether samples that are the class of the row count nothing.
    use_customized_samples : bool
        Take `customized_samples`, int64[batch, 1 + num_samples], the class of the row first, which have
        `customized_probabilities`.
    seed : int
        0 draws other samples in each run.

    Returns
    -------
    Variable, float[batch, 1]

    References
    ----------
    S. Jean et al., On using very large target vocabulary for neural machine translation, ACL 2015.
    """
    helper = LayerHelper("sample_logits")
    x = check_floating(logits, "sampled_softmax_with_cross_entropy: logits")
    inputs = {"Logits": x, "Labels": check_variable(label, "sampled_softmax_with_cross_entropy: label")}
    if use_customized_samples:
        inputs |= {
            "CustomizedSamples": check_variable(customized_samples, "customized_samples"),
            "CustomizedProbabilities": check_variable(customized_probabilities, "customized_probabilities"),
        }
    samples, probabilities = helper.temporary(), helper.temporary()
    sampled, places, soft = helper.temporary(), helper.temporary(), helper.temporary()
    helper.append(
        "sample_logits", inputs,
        {
            "Samples": samples, "Probabilities": probabilities, "SampledLabels": places, "SampledLogits": sampled,
            "LogitsDim": helper.temporary(), "LabelsDim": helper.temporary(),
        },
        {
            "use_customized_samples": use_customized_samples, "uniq": True,
            "remove_accidental_hits": remove_accidental_hits, "num_samples": num_samples, "seed": seed,
        },
    )  # fmt: skip
    loss, softmax = helper.temporary(), helper.temporary()
    helper.append("one_hot", {"X": places}, {"Out": soft}, {"depth": num_samples + 1})
    if soft.dtype is not x.dtype:  # with logits of float64, which fluid builds and cannot run
        soft = cast(soft, x.dtype)
    helper.append(
        "softmax_with_cross_entropy", {"Logits": sampled, "Label": soft}, {"Softmax": softmax, "Loss": loss},
        {"soft_label": True, "numeric_stable_mode": False},
    )  # fmt: skip
    return loss / num_true
