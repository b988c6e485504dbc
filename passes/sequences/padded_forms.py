"""Forms of operators on sequences for a padded batch, which `PadSequences` gives them."""

from __future__ import annotations

from collections.abc import Callable

from minigraph.ir import Variable
from minigraph.passes.sequences.padded import FAR, Padded, PaddedOp
from minigraph.passes.sequences.padded_networks import gru, lstm
from minigraph.types import DType


def _pool(at: PaddedOp) -> None:
    steps, padded = at.steps("X"), at.padded
    kind, value = at.op.attr("pooltype"), at.op.attr("pad_value")
    is_filled = padded.made("clip", X=padded.counts, min=0.0, max=1.0)
    weights = _first_largest(at, steps) if kind == "MAX" else _weights(padded, kind)
    pooled = at.emit("reduce_sum", X=at.masked(steps, weights), dim=[1])
    pooled = at.masked(pooled, is_filled)
    missing = padded.made("scale", X=is_filled, scale=-value, bias=value)
    pooled = at.emit("elementwise_add", X=pooled, Y=at.alike(missing, steps), axis=0)
    at.deliver("Out", pooled, has_sequences=False)


def _first_largest(at: PaddedOp, steps: Variable) -> Variable:
    """1 at the first place of each maximum: ``reduce_max`` would give a gradient to each place that has it."""
    constant = {"stop_gradient": True}
    far = at.emit("elementwise_add", X=steps, Y=at.alike(at.padded.far, steps), axis=0, **constant)
    place = at.emit("arg_max", X=far, axis=1, **constant)
    depth = {"depth_tensor": at.padded.longest, "depth": -1}
    chosen = at.emit("one_hot_v2", X=place, **depth, dtype=int(steps.dtype), **constant)
    return at.emit("transpose2", X=chosen, axis=[0, 2, 1], **constant)


def _weights(padded: Padded, kind: str) -> Variable:
    """Weight of each place in a sum, ``[batch, time]``."""
    mask = padded.mask()
    if kind in ("FIRST", "LAST"):
        one = padded.made("fill_any_like", X=padded.lengths, value=1.0, dtype=-1)
        if kind == "FIRST":
            return padded.mask(padded.made("elementwise_min", X=padded.lengths, Y=one))
        before = padded.made("elementwise_sub", X=padded.lengths, Y=one)
        return padded.made("elementwise_sub", X=mask, Y=padded.mask(before))
    if kind == "SUM":
        return mask
    counts = padded.made("clip", X=padded.counts, min=1.0, max=FAR)
    if kind == "SQRT":
        counts = padded.made("sqrt", X=counts)
    return padded.made("elementwise_div", X=mask, Y=counts, axis=0)


def _softmax(at: PaddedOp) -> None:
    steps = at.steps("X")
    steps = at.emit("elementwise_add", X=steps, Y=at.alike(at.padded.far, steps), axis=0)
    at.deliver("Out", at.masked(at.emit("softmax", X=steps, axis=1)))


def _conv(at: PaddedOp) -> None:
    """Windows are slices of the steps with zeros around them, side by side."""
    length, start = at.op.attr("contextLength"), at.op.attr("contextStart")
    before, behind = max(0, -start), max(0, start + length - 1)
    steps = at.emit("pad", X=at.masked(at.steps("X")), paddings=[0, 0, before, behind, 0, 0])
    windows = []
    for first in range(before + start, before + start + length):
        cut = before + behind - first
        ends = [-cut] if cut else [_END]
        windows.append(at.emit("slice", Input=steps, axes=[1], starts=[first], ends=ends))
    joined = at.emit("concat", X=windows, axis=2) if length > 1 else windows[0]
    width = (joined.shape or ())[2]
    rows = at.emit("reshape2", X=joined, shape=[-1, width])
    at.deliver("Out", at.emit("mul", X=rows, Y=at.input("Filter")))


_END = 2**31 - 1
"""End of a slice that leaves nothing out."""


def _row_conv(at: PaddedOp) -> None:
    at.deliver("Out", at.emit("row_conv", X=at.masked(at.steps("X")), Filter=at.input("Filter")))


def _expand(at: PaddedOp) -> None:
    """Rows without sequences times the masks."""
    x = at.input("X")
    assert x is not None
    if (
        at.op.input("X")[0] in at.given
        or x.ndim != 2
        or -1 in (x.shape or ())[1:]
        or x.dtype not in (DType.FP32, DType.FP64)
    ):
        raise at.refused(f"{x.name} must hold a row of floating-point numbers for each sequence")
    mask = at.padded.made("reshape2", X=at.padded.mask(), shape=[0, 0, 1])
    rows = at.emit("reshape2", X=x, shape=[-1, 1, *(x.shape or ())[1:]])
    at.deliver("Out", at.emit("matmul", X=at.alike(mask, rows), Y=rows))


def _reverse(at: PaddedOp) -> None:
    if at.op.input("X")[0] not in at.given:
        raise at.refused("X has no sequences of its own")
    at.deliver("Y", at.emit("gather", X=at.input("X"), Index=at.padded.reversed_rows))


def _total(at: PaddedOp) -> Variable:
    """The sum of all numbers that are no padding, ``[1]``."""
    return at.emit("reduce_sum", X=at.masked(at.steps("X")), reduce_all=True)


def _sum(at: PaddedOp) -> None:
    _require_all(at)
    at.deliver("Out", _total(at), has_sequences=False)


def _mean(at: PaddedOp) -> None:
    _require_all(at)
    steps = at.steps("X")
    rows = at.padded.made("reduce_sum", X=at.padded.counts, reduce_all=True)
    size = at.padded.made("scale", X=rows, scale=float((steps.shape or ())[2]))
    mean = at.emit("elementwise_div", X=_total(at), Y=at.alike(size, steps))
    at.deliver("Out", mean, has_sequences=False)


def _require_all(at: PaddedOp) -> None:
    """Raise unless the operator reduces all numbers to one, ``[1]``."""
    if at.op.type != "mean" and (not at.op.attr("reduce_all") or at.block.var(at.op.output("Out")[0]).shape != (1,)):
        raise at.refused("it reduces some dimensions, of which rows may be one")


def _with_lengths(*slots: str) -> Callable[[PaddedOp], None]:
    """The form of an operator that takes steps with their lengths."""

    def form(at: PaddedOp) -> None:
        given = {slot: at.steps(slot) for slot in slots if slot in at.op.inputs}
        others = {slot: at.input(slot) for slot in at.op.inputs if slot not in slots}
        at.rewrite(**others, **given, **{_LENGTHS[at.op.type]: at.padded.lengths})

    return form


_LENGTHS = {"linear_chain_crf": "Length", "chunk_eval": "SeqLength"}
"""Slots of lengths."""


def _decoding(at: PaddedOp) -> None:
    given = {slot: at.steps(slot) for slot in ("Emission", "Label") if at.op.inputs.get(slot)}
    path = at.emit("crf_decoding", **given, Transition=at.input("Transition"), Length=at.padded.lengths)
    at.deliver("ViterbiPath", path)


FORMS: dict[str, Callable[[PaddedOp], None]] = {
    "chunk_eval": _with_lengths("Inference", "Label"), "crf_decoding": _decoding, "gru": gru,
    "linear_chain_crf": _with_lengths("Emission", "Label"), "lstm": lstm, "mean": _mean, "reduce_mean": _mean,
    "reduce_sum": _sum, "row_conv": _row_conv, "sequence_conv": _conv, "sequence_expand": _expand,
    "sequence_expand_as": _expand, "sequence_pool": _pool, "sequence_reverse": _reverse, "sequence_softmax": _softmax,
}  # fmt: skip
"""Functions that append the padded form of an operator, by its type."""
