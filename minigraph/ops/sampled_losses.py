"""Losses of many classes that compute the scores of some only: of samples, or of the nodes of a tree."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from minigraph.opdef import op
from minigraph.opdef.gradient_context import GradContext, OpSpec
from minigraph.opdef.gradient_rules import fused
from minigraph.ops.tensor import require_integers
from minigraph.types import (
    DType,
    TensorType,
    merge_shapes,
    require,
    require_floating,
    require_same_dtype,
    same_dim,
)

_NONE: Any = ()
_BACKEND_ATTRS: dict[str, Any] = {"trainer_id": 0, "height_sections": [], "epmap": [], "table_names": []}
UNIFORM, LOG_UNIFORM, CUSTOM = range(3)
"""Values of the attribute ``sampler`` of ``nce``."""


def _check_rows(x: TensorType, slot: str, weight: TensorType, weight_slot: str, bias: TensorType | None) -> None:
    require_floating(x, slot)
    require_same_dtype(f"{slot}, {weight_slot} and Bias", x, weight, *([bias] if bias else []))
    require(x.rank == weight.rank == 2, f"{slot} and {weight_slot} must be matrices, got {x} and {weight}")
    fits = same_dim(x.shape[1], weight.shape[1])
    require(fits, f"{slot} has {x.shape[1]} columns but {weight_slot} has {weight.shape[1]}")
    if bias is not None:
        fits = bias.rank == 2 and same_dim(bias.shape[0], weight.shape[0]) and same_dim(bias.shape[1], 1)
        require(fits, f"Bias must have shape [{weight.shape[0]}, 1], got {list(bias.shape)}")


@op(
    "nce", inputs="Input Label Weight Bias SampleWeight CustomDistProbs CustomDistAlias CustomDistAliasProbs",
    outputs="Cost SampleLogits~ SampleLabels~",
    grad=fused(
        "Input", "Label", "Weight", "Bias", "SampleWeight", "CustomDistProbs", "SampleLogits", "SampleLabels",
        to="Input Weight Bias", lod=False,
    ),
    backend_attrs=_BACKEND_ATTRS,
)  # fmt: skip
def nce(
    x: TensorType,
    label: TensorType,
    weight: TensorType,
    bias: TensorType | None,
    sample_weight: TensorType | None,
    probabilities: TensorType | None,
    alias: TensorType | None,
    alias_probabilities: TensorType | None,
    *,
    num_total_classes: int,
    num_neg_samples: int = 10,
    sampler: int = UNIFORM,
    seed: int = 0,
    is_sparse: bool = False,
    remote_prefetch: bool = False,
    custom_neg_classes: list[int] = _NONE,
) -> tuple[TensorType, TensorType, TensorType]:
    """Noise contrastive estimation: classes of a row are told from `num_neg_samples` that are drawn at random.

    Each class has the chance ``o / (o + b)`` of being no sample, with ``o = sigmoid(Input @ Weight[class] + Bias)`` and
    ``b = num_neg_samples * probability of the class``. Cost, [batch, 1], is minus the sum of logarithms, times
    SampleWeight: of the chances of the classes of Label, [batch, classes of a row], and of one minus the chances of the
    samples.

    SampleLabels are the classes and samples of each row, SampleLogits the numbers ``o``. `sampler` is 0 for uniform
    samples, 1 for ``log((class + 2) / (class + 1)) / log(num_total_classes)``, and 2 for CustomDistProbs, drawn by
    means of CustomDistAlias and CustomDistAliasProbs. `custom_neg_classes` are the samples themselves. `is_sparse` and
    `remote_prefetch` change nothing.

    References
    ----------
    M. Gutmann and A. Hyvarinen, Noise-contrastive estimation, AISTATS 2010.
    """
    _check_rows(x, "Input", weight, "Weight", bias)
    require_integers(label, "Label")
    require(label.rank == 2, f"Label must be [batch, classes of a row], got {label}")
    rows = merge_shapes(x.shape[:1], label.shape[:1], "rows of Input and Label")
    require(same_dim(weight.shape[0], num_total_classes), f"Weight must have {num_total_classes} rows, got {weight}")
    require(sampler in (UNIFORM, LOG_UNIFORM, CUSTOM), f"sampler must be 0, 1 or 2, got {sampler}")
    if sampler == CUSTOM:
        for table in (probabilities, alias, alias_probabilities):
            fits = table is not None and table.rank == 1 and same_dim(table.shape[0], num_total_classes)
            require(
                fits,
                f"sampler 2 needs CustomDistProbs, CustomDistAlias and CustomDistAliasProbs of {num_total_classes} "
                f"numbers, got {table}",
            )
    require(num_neg_samples > 0, f"num_neg_samples must be positive, got {num_neg_samples}")
    samples = len(custom_neg_classes) or num_neg_samples
    fits = samples == num_neg_samples
    require(fits, f"custom_neg_classes must be {num_neg_samples} classes, got {list(custom_neg_classes)}")
    shape = (*rows, -1 if label.shape[1] == -1 else label.shape[1] + samples)
    return x.with_shape((*rows, 1)), x.with_shape(shape), TensorType(DType.INT64, shape)


@op(
    "hierarchical_sigmoid", inputs="X W Label PathTable PathCode Bias", outputs="Out PreOut~ W_Out~?",
    lod={"Out": "X"},
    grad=fused("X", "W", "Label", "PathTable", "PathCode", "Bias", "PreOut", to="X W Bias", lod="X"),
    backend_attrs=_BACKEND_ATTRS,
)  # fmt: skip
def hierarchical_sigmoid(
    x: TensorType,
    weight: TensorType,
    label: TensorType,
    path_table: TensorType | None,
    path_code: TensorType | None,
    bias: TensorType | None,
    *,
    num_classes: int = 2,
    is_sparse: bool = False,
    remote_prefetch: bool = False,
) -> tuple[TensorType, TensorType, TensorType]:
    """The cross entropy of a class whose probability is a product over the nodes of its path in a binary tree.

    Each node has a row of W and of Bias, and turns to a side with probability ``sigmoid(X @ W[node] + Bias[node])``.
    The tree is a complete one of `num_classes` leaves; or PathTable has the nodes of the path of each row, and
    PathCode the sides, both with -1 after the end of a path. PreOut is ``log(1 + exp(score))`` for each node.
    `is_sparse` and `remote_prefetch` change nothing.

    Notes
    -----
    As in fluid a path counts log(2) for each node by which it is shorter than the longest.

    References
    ----------
    F. Morin and Y. Bengio, Hierarchical probabilistic neural network language model, AISTATS 2005.
    """
    _check_rows(x, "X", weight, "W", bias)
    require_integers(label, "Label")
    fits = label.rank == 2 and same_dim(label.shape[1], 1)
    require(fits, f"Label must have shape [{x.shape[0]}, 1], got {list(label.shape)}")
    rows = merge_shapes(x.shape[:1], label.shape[:1], "rows of X and Label")
    require((path_table is None) == (path_code is None), "PathTable and PathCode go together, got only one of them")
    if path_table is None or path_code is None:
        require(num_classes >= 2, f"num_classes must be at least 2, got {num_classes}")
        length = (num_classes - 1).bit_length()
    else:
        require(path_table.rank == 2, f"PathTable must be [batch, nodes], got {path_table}")
        rows = merge_shapes((*rows, -1), path_table.shape, "X and PathTable")[:1]
        length = merge_shapes(path_table.shape, path_code.shape, "PathTable and PathCode")[1]
    return x.with_shape((*rows, 1)), x.with_shape((*rows, length)), weight


def _sampled_again(ctx: GradContext) -> Iterator[OpSpec]:
    inputs = {"X": ctx.d_output("Logits@GRAD"), "Index": ctx.input("Samples")}
    yield OpSpec("index_sample", inputs, {"Out": ctx.d_input("SampledLogits@GRAD")}, {})


@op(
    "sample_logits", inputs="Logits Labels CustomizedSamples CustomizedProbabilities",
    outputs="Samples~ Probabilities~ LogitsDim~ LabelsDim~ SampledLogits SampledLabels",
    grad=fused(
        "Samples", "LogitsDim", to="Logits", d_out="SampledLogits", grad=_sampled_again,
        like={"Logits": ("LogitsDim", lambda dims: dims.with_shape(dims.shape[1:]))}, lod=False,
    ),
)  # fmt: skip
def sample_logits(
    logits: TensorType,
    labels: TensorType,
    samples: TensorType | None,
    probabilities: TensorType | None,
    *,
    use_customized_samples: bool = False,
    uniq: bool = True,
    remove_accidental_hits: bool = True,
    num_samples: int,
    seed: int = 0,
) -> tuple[TensorType, TensorType, TensorType, TensorType, TensorType, TensorType]:
    """The logits of the classes of Labels and of `num_samples` others, minus the logarithms of their probabilities.

    All rows have the same samples, each at most once, drawn with probabilities that fall with the number of the class
    like ``log((class + 2) / (class + 1))``; or Samples and Probabilities are CustomizedSamples and
    CustomizedProbabilities. With `remove_accidental_hits` a sample that is a class of the row gets a logit of -1e20.
    SampledLabels are the places of the classes of Labels among the samples.

    References
    ----------
    S. Jean et al., On using very large target vocabulary for neural machine translation, ACL 2015.
    """
    require_floating(logits, "Logits")
    require_integers(labels, "Labels")
    require(logits.rank == labels.rank == 2, f"Logits and Labels must be matrices, got {logits} and {labels}")
    require(num_samples > 0, f"num_samples must be positive, got {num_samples}")
    require(uniq, "uniq must be True: samples with repetition are not supported")
    classes = logits.shape[1]
    fits = classes == -1 or num_samples <= classes or use_customized_samples
    require(fits, f"num_samples must be at most the number of classes, {classes}, got {num_samples}")
    rows = merge_shapes(logits.shape[:1], labels.shape[:1], "rows of Logits and Labels")
    shape = (*rows, -1 if labels.shape[1] == -1 else labels.shape[1] + num_samples)
    if use_customized_samples:
        given = samples is not None and probabilities is not None
        require(given, "use_customized_samples needs CustomizedSamples and CustomizedProbabilities")
        assert samples is not None and probabilities is not None
        shape = merge_shapes(shape, samples.shape, "the classes with the samples, and CustomizedSamples,")
        merge_shapes(shape, probabilities.shape, "CustomizedSamples and CustomizedProbabilities")
    index = TensorType(DType.INT64, shape)
    dims = [each.with_shape((0, *each.shape)) for each in (logits, labels)]
    sampled = logits.with_shape(shape)
    return index, sampled, dims[0], dims[1], sampled, TensorType(DType.INT64, (*rows, labels.shape[1]))
