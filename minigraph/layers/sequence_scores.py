"""Scores of predicted sequences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from minigraph.ir import Variable
from minigraph.layer_helper import LayerHelper, constant, layer
from minigraph.layers.nn import check_integers

__all__ = ["chunk_eval", "edit_distance"]


@layer
def chunk_eval(
    input: Variable,
    label: Variable,
    chunk_scheme: str,
    num_chunk_types: int,
    excluded_chunk_types: Sequence[int] | None = None,
    seq_length: Variable | None = None,
) -> tuple[Variable, ...]:
    """Precision, recall and F1 of chunks, such as named entities, that tags mark in sequences.

    Parameters
    ----------
    input, label : Variable, int64[batch, time] or int64[rows, 1] with sequences
        Predicted and right tags; see the operator for what their numbers mean.
    chunk_scheme : str
        ``IOB``, ``IOE``, ``IOBES`` or ``plain``.
    num_chunk_types : int
    excluded_chunk_types : list of int, optional
        Types of chunks that do not count.
    seq_length : Variable, int64[batch], optional
        How many steps of each sequence count.

    Returns
    -------
    tuple of Variable
        Precision, recall and F1, float32[1], and the numbers of chunks that were found, that there are, and that were
        found rightly, int64[1], as `minigraph.metrics.ChunkEvaluator` takes them.

    Examples
    --------
    >>> import numpy as np
    >>> import minigraph as fluid
    >>> with fluid.dygraph.guard():
    ...     tags, right, length = (
    ...         fluid.dygraph.to_variable(np.array(each)) for each in ([[0, 1, 4, 2]], [[0, 1, 2, 2]], [4])
    ...     )
    ...     [result.numpy().item() for result in chunk_eval(tags, right, "IOB", 2, seq_length=length)[3:]]
    [2, 3, 2]
    """
    helper = LayerHelper("chunk_eval")
    inputs: dict[str, Any] = {"Inference": check_integers(input, "chunk_eval: input")}
    inputs.update(Label=check_integers(label, "chunk_eval: label"), SeqLength=seq_length)
    attrs = {"num_chunk_types": num_chunk_types, "chunk_scheme": chunk_scheme}
    results = helper.emit_all("chunk_eval", **inputs, **attrs, excluded_chunk_types=list(excluded_chunk_types or ()))
    return tuple(constant(result) for result in results)


@layer
def edit_distance(
    input: Variable,
    label: Variable,
    normalized: bool = True,
    ignored_tokens: Sequence[int] | None = None,
    input_length: Variable | None = None,
    label_length: Variable | None = None,
) -> tuple[Variable, Variable]:
    """The edit distance of each pair of sequences: how many tokens to insert, delete or replace.

    Parameters
    ----------
    input, label : Variable, int64[batch, time] or int64[rows, 1] with sequences
    normalized : bool
        Divide by the length of `label`.
    ignored_tokens : list of int, optional
        Tokens that are taken out before, of tensors of sequences only.
    input_length, label_length : Variable, int64[batch], optional
        How many tokens of each sequence count.

    Returns
    -------
    tuple of Variable
        The distances, float32[batch, 1], and the number of pairs, int64[1].

    Examples
    --------
    >>> import numpy as np
    >>> import minigraph as fluid
    >>> with fluid.dygraph.guard():
    ...     words, right, length = (
    ...         fluid.dygraph.to_variable(np.array(each)) for each in ([[1, 2, 3]], [[1, 3, 3]], [3])
    ...     )
    ...     edit_distance(words, right, False, None, length, length)[0].numpy().item()
    1.0
    """
    helper = LayerHelper("edit_distance")
    check_integers(input, "edit_distance: input")
    check_integers(label, "edit_distance: label")
    if ignored_tokens:
        input, label = (helper.emit("sequence_erase", X=x, tokens=list(ignored_tokens)) for x in (input, label))
    inputs: dict[str, Any] = {"Hyps": input, "Refs": label}
    # As in fluid, one of them alone has no effect.
    if input_length is not None and label_length is not None:
        inputs.update(HypsLength=input_length, RefsLength=label_length)
    distances = helper.temporary(stop_gradient=True)
    outputs = {"Out": distances, "SequenceNum": helper.temporary(stop_gradient=True)}
    helper.append("edit_distance", inputs, outputs, {"normalized": normalized})
    return distances, outputs["SequenceNum"]
