"""Keep the gradient of a table as the rows that were looked up."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import ClassVar, NamedTuple

from minigraph.ir import Operator, Program, VarKind
from minigraph.passes.base import Pass
from minigraph.passes.values import Value, Values

_LOOKUPS = ("lookup_table_grad", "lookup_table_v2_grad")
_CLIPS = ("clip_by_global_norm", "clip_by_norm")
_UPDATES = ("sgd", "adagrad")
"""Updates that leave a row alone whose gradient is 0."""


@dataclass(frozen=True)
class KeepRows(Pass):
    """Make the gradient of a table selected rows, as with ``is_sparse=True``, for ``sgd`` and ``adagrad`` alone.

    Between the lookups and the update there may be a sum of the gradients of several lookups and a clip by the norm or
    the global norm. What the step costs then depends on the number of ids, not on the size of the table. The pass does
    this for large tables only, and if the table is larger than all other gradients of the clip, because an update of
    rows cannot read unclipped gradients as `ShrinkInUpdate` lets merged ones.

    Parameters
    ----------
    least : int
        Elements of the smallest table: the update of a smaller one is fast as part of a vector of updates.

    Law: every value is the same up to the rounding of the norm, which sums its squares in another order, as long as
    the norm and the rate are finite. If one is not, rows that were not looked up stay as they are; zeros times NaN
    would make them NaN, too.
    """

    changes_rounding: ClassVar[bool] = True
    for_processors: ClassVar[bool] = True

    least: int = 1 << 18

    def apply(self, program: Program) -> bool:
        by_type = program.global_block().ops.by_type
        updates = [op for type in _UPDATES for op in by_type.get(type, ())]
        if not updates or not any(type in by_type for type in _LOOKUPS):
            return False
        values = Values(program)
        clips = {op: _Clip(op) for type in _CLIPS for op in by_type.get(type, ())}
        found = [table for op in updates if (table := _table(op, clips, values)) is not None]
        tables = [table for table in found if table.elements >= self.least]
        for table in tables:
            if table.clip is not None:
                table.clip.rows[table.grad.name] = table.elements
        worthwhile = [table for table in tables if table.clip is None or table.clip.is_worthwhile]
        for table in worthwhile:
            table.keep_rows(values)
        return bool(worthwhile)


class _Clip:
    """A clip of gradients."""

    def __init__(self, op: Operator) -> None:
        self.op, self.given = op, op.inputs["X"]
        self.sources = dict(zip(op.outputs["Out"], self.given, strict=True))
        self.rows: dict[str, int] = {}
        """Elements of the gradients that may be selected rows, by name."""

    @cached_property
    def is_worthwhile(self) -> bool:
        """Whether the other gradients, which are written then, have no more elements; none is given twice."""
        block, others = self.op.block, [name for name in self.given if name not in self.rows]
        elements = sum(prod(block.vars[name].shape or ()) for name in others)
        return elements <= sum(self.rows.values()) and len(set(self.given)) == len(self.given)


class _Table(NamedTuple):
    elements: int
    lookups: list[Operator]
    total: Operator | None
    """The sum of the gradients of several lookups."""
    clip: _Clip | None
    grad: Value
    """The gradient in front of the clip."""

    def keep_rows(self, values: Values) -> None:
        for op in self.lookups:
            values.set_attr(op, "is_sparse", True)
        for changed in (self.total, None if self.clip is None else self.clip.op):
            if changed is not None:
                changed.block.infer(changed)


def _table(update: Operator, clips: dict[Operator, _Clip], values: Values) -> _Table | None:
    """The table that `update` changes by a gradient that may be selected rows."""
    shape = update.block.vars[update.inputs["Param"][0]].shape
    grad = values.input(update, "Grad")
    if shape is None or not _may_change(grad, values) or not _leaves_zeros_alone(update):
        return None
    made = values.producer(grad, *_CLIPS)
    clip = None if made is None else clips[made]
    if clip is not None:
        grad = values.read(clip.sources[grad.name], clip.op)
        if not _may_change(grad, values):
            return None
    total = values.producer(grad, "sum")
    parts = [grad] if total is None else [values.read(name, total) for name in total.inputs["X"]]
    if len(set(parts)) < len(parts) or not all(_may_change(part, values) for part in parts):
        return None
    lookups = [op for part in parts if (op := values.producer(part, *_LOOKUPS)) is not None and _is_dense(op)]
    return _Table(prod(shape), lookups, total, clip, grad) if len(lookups) == len(parts) else None


def _leaves_zeros_alone(update: Operator) -> bool:
    # Adagrad divides by the root of a sum that may be 0 too, which an epsilon keeps from giving NaN.
    return update.type == "sgd" or update.attr("epsilon") > 0


def _may_change(value: Value, values: Values) -> bool:
    """Whether one operator alone reads the value, and its name has no other."""
    return values.is_used_once(value) and values.is_only(value)


def _is_dense(op: Operator) -> bool:
    """Whether a lookup has a dense gradient that selected rows would equal, and as few ids as may be worthwhile."""
    table, ids = (op.block.vars[op.inputs[slot][0]] for slot in ("W", "Ids"))
    is_plain = not op.attr("is_sparse") and op.attr("padding_idx") == -1 and table.kind is VarKind.LOD_TENSOR
    count = prod(ids.shape or ())
    # Nearly as many ids as rows leave little to gain; where only a run knows their number, they count as few.
    return is_plain and (-1 in (ids.shape or ()) or table.shape is None or count * 2 <= table.shape[0])
