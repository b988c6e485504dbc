"""Find losses whose mean over ranks is not their mean over all samples."""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from typing import NamedTuple

from minigraph.ir import Block, Operator, Program, Role
from minigraph.opdef import EMPTY, SUB_BLOCK
from minigraph.parallel.mixing import joins_rows, mixes_rows
from minigraph.passes.ranks.weighted_means import Samples
from minigraph.types import DType


class _Kind(enum.Enum):
    """Dependence of a value on the samples of a rank."""

    ROWS = "one row for each sample"
    SHARES = "rows that are divided by the number of samples"
    MEAN = "a mean over samples"
    SUM = "a sum over samples"
    MIXED = "something else of several samples"


class _Value(NamedTuple):
    kind: _Kind
    op: Operator | None = None
    """The operator that mixed samples."""


ROWS, SHARES, MEAN, SUM, MIXED = _Kind

_MEANS = frozenset({"mean", "reduce_mean"})
_SUMS = frozenset({"reduce_sum", "sum", "shape", "size"})
_LINEAR = frozenset({
    "assign", "cast", "concat", "elementwise_add", "elementwise_sub", "expand", "mean", "reduce_mean", "reduce_sum",
    "reshape", "reshape2", "scale", "slice", "squeeze", "squeeze2", "stack", "sum", "unsqueeze", "unsqueeze2",
})  # fmt: skip
"""Operators whose result is a sum or mean over samples where their input is one."""
_BOUNDS = frozenset({"clip", "elementwise_max"})
"""Operators that bound a count, which may be zero."""


def describe_mixed_samples(program: Program, scales_loss: bool, ragged: bool = False) -> str | None:
    """Say why ranks do not train as one by the mean of their losses; None if nothing is known.

    With `ragged` gradients read values of all ranks' samples, see `minigraph.passes.WeightMeans`.

    What a loss makes of rows is followed through the forward pass. An operator makes a value of all samples where the
    dimension of unknown size, which the batch has, is gone; with feeds of fixed sizes, that of the size of the batch.
    """
    block = program.global_block()
    values = _follow(block, ragged, scales_loss)
    for op in block.ops:
        if not op.role & Role.LOSS or op.role & Role.BACKWARD:
            continue
        for name in op.output_arg_names:
            kind, mixing = values.get(name, _Value(MEAN))
            if mixing is not None:
                out = mixing.output_arg_names[0]
                return (
                    f"{mixing.type} makes {out} of all samples of a rank, so that the loss is no mean over samples "
                    "and ranks do not train as one: let each sample have its own loss, and average in the end "
                    f"(created at {mixing.site})"
                )
            if kind is SUM and scales_loss:
                return (
                    f"the loss {name} adds up samples, and its gradient is divided by the number of ranks, which "
                    "do not train as one: average over the samples, or say DataParallel(..., scales_loss=False) "
                    "without exact"
                )
    return None


def _follow(block: Block, ragged: bool, scales_loss: bool) -> dict[str, _Value]:
    """Dependence of values on samples, by name; values that do not depend on any are left out."""
    samples = Samples(block)
    joined: set[str] = set()
    values = {
        name: _Value(ROWS)
        for name, var in block.vars.items()
        if var.is_data and name in samples.rows and samples.has_rows(block, name)
    }
    for op in block.ops:
        if op.role & (Role.OPTIMIZE | Role.LR_SCHED):
            continue
        given = {name: values[name] for name in op.input_arg_names if name in values}
        rows = [name for name, value in given.items() if value.kind in (ROWS, SHARES)]
        mixes = not op.role & Role.BACKWARD and mixes_rows(op, rows, samples, joined)
        if joins_rows(op, samples) or not joined.isdisjoint(op.input_arg_names):
            joined.update(op.output_arg_names)
        mixed = next((value for value in given.values() if value.kind is MIXED), None)
        for name in op.output_arg_names if given else ():
            if name == EMPTY:
                continue
            kinds = {key: value.kind for key, value in given.items()}
            kind: _Kind | None = MIXED
            if mixed is None and op.role & Role.BACKWARD:
                kind = _of_gradient(op, name, samples)
            elif mixed is None and ragged:
                kind = _of_all_ranks(op, name, kinds, samples, scales_loss, mixes)
            elif mixed is None:
                kind = _kind(op, name, kinds, samples, mixes)
            values.pop(name, None)
            if kind is not None:
                values[name] = mixed or _Value(kind, _mixing(op, samples) if kind is MIXED else None)
    return values


def _mixing(op: Operator, samples: Samples) -> Operator:
    """The operator to name: what decides a branch or a loop, if that is known."""
    return (samples.decider(op) if SUB_BLOCK in op.attrs else None) or op


def _kind(op: Operator, out: str, given: Mapping[str, _Kind], samples: Samples, mixes: bool) -> _Kind | None:
    """The kind of a result, None if it does not depend on samples or nothing is known."""
    if SUB_BLOCK in op.attrs:
        if samples.decider(op) is not None:
            return MIXED
        return ROWS if samples.has_rows(op.block, out) else None
    rows = {kind for kind in given.values() if kind in (ROWS, SHARES)}
    totals = {name: kind for name, kind in given.items() if kind in (MEAN, SUM) and _is_floating(op.block, name)}
    if not rows:
        kind = _of_totals(op, totals or given, samples)
        decides = bool(totals) and (_is_floating(op.block, out) or op.block.var(out).dtype is DType.BOOL)
        return kind if kind is not MIXED or decides else None
    if totals:
        if op.type != "elementwise_div" or op.input("X")[0] in totals or not samples.has_rows(op.block, out):
            return MIXED
        return SHARES if set(totals.values()) == {SUM} else ROWS
    if mixes:
        return MIXED
    if samples.has_rows(op.block, out) and not samples.reduces(op):
        return SHARES if SHARES in rows else ROWS
    reduction = op.attr("reduction") if "reduction" in op.attrs else None
    if op.type in _MEANS or reduction in ("mean", "batchmean"):
        return MIXED if SHARES in rows else MEAN
    if op.type in _SUMS or reduction == "sum":
        return MEAN if SHARES in rows else SUM
    return MIXED if _is_floating(op.block, out) else None


def _of_all_ranks(
    op: Operator, out: str, given: Mapping[str, _Kind], samples: Samples, scales: bool, mixes: bool
) -> _Kind | None:
    """The kind of a result where gradients read values of all ranks' samples, and sums count once for each rank."""
    several, learned = samples.of_several, samples.learned
    if SUB_BLOCK in op.attrs and not several.isdisjoint(op.input_arg_names):
        return MIXED
    if out not in several:
        return _kind(op, out, given, samples, mixes)
    if out not in learned:
        return ROWS if samples.has_rows(op.block, out) else None
    if ROWS not in given.values():
        return MEAN if scales or samples.is_by_totals(op) else _of_totals(op, given, samples)
    if mixes:
        return MIXED
    if samples.has_rows(op.block, out) and not samples.reduces(op):
        return ROWS
    return MEAN if samples.averages(op) or samples.adds_up(op, scales) else SUM


def _of_gradient(op: Operator, out: str, samples: Samples) -> _Kind | None:
    """The kind of a result of the backward pass, which a loss reads that penalizes gradients."""
    if not samples.has_rows(op.block, out):
        return None
    return MIXED if op.type.removesuffix("_grad") in _MEANS else ROWS


def _of_totals(op: Operator, given: Mapping[str, _Kind], samples: Samples) -> _Kind:
    """The kind of what is computed from sums and means over samples.

    A bound is one of counts only: gradients that flow through it would be stopped by the total of one rank.
    """
    kinds = set(given.values())
    if op.type == "elementwise_div" and op.input("Y")[0] in given:
        return MEAN if op.input("X")[0] in given and len(kinds) == 1 else MIXED
    (kind,) = kinds if len(kinds) == 1 else {MIXED}
    if kind is SUM and _divides_by(op, samples.batch):
        return MEAN
    if op.type in _LINEAR or (op.type in _BOUNDS and samples.learned.isdisjoint(op.input_arg_names)):
        return kind
    is_factor = op.type in ("elementwise_mul", "elementwise_div") and len(given) == 1
    return kind if is_factor and op.input("X") != op.input("Y") else MIXED


def _divides_by(op: Operator, batch: int | None) -> bool:
    """Whether an operator divides by a fixed number of samples, or of their elements."""
    if batch is None or op.type != "scale" or op.attr("bias") or not op.attr("scale"):
        return False
    share = 1 / (op.attr("scale") * batch)
    return share >= 1 and math.isclose(share, round(share), rel_tol=1e-6)


def _is_floating(block: Block, name: str) -> bool:
    var = block.find_var(name)
    return var is not None and var.dtype.is_floating
