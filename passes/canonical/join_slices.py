"""Cut a value once, and join its gradient once, where a program slices it several times."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import ClassVar, NamedTuple

from minigraph import unique_name
from minigraph.ir import Operator, Program
from minigraph.passes.base import Pass
from minigraph.passes.rewriting import insert_for
from minigraph.passes.values import Value, Values
from minigraph.support.slice_rules import span


class _Cut(NamedTuple):
    """Range of one dimension that a ``slice`` takes, or a ``slice_grad`` writes to."""

    axis: int
    is_dropped: bool
    """Whether the dimension, of which one element is taken, is left out."""
    start: int
    stop: int
    name: str
    """The slice, or its gradient."""
    op: Operator


class JoinSlices(Pass):
    """Turn slices that cut all of a dimension apart into one ``split`` or ``unstack``, and sums of their gradients.

    A sum of gradients of slices becomes ``concat`` or ``stack`` of the incoming gradients, with zeros for missing
    parts, if the slices do not overlap and take at least half of the dimension. Slices along the first dimension, which
    are views, stay; only their gradients are joined.

    Law: every value is the same, but zeros may change their sign, because ``0.0 + -0.0`` is 0.0. A slice then lies row
    by row in memory, so that later sums and products may round differently.
    """

    changes_rounding: ClassVar[bool] = True
    keeps_gradients: ClassVar[bool] = False

    def apply(self, program: Program) -> bool:
        ops = program.global_block().ops
        slices, gradients = ops.of_type("slice"), ops.of_type("slice_grad")
        if len(slices) < 2 and len(gradients) < 2:
            return False
        values = Values(program)
        cuts = [group for group in _groups(_slices(slices, values)) if _may_be_one(group, values)]
        for group in cuts:
            _cut_once(group, min((cut.op for cut in group), key=values.position.__getitem__))
        joined = [_join_gradients(op, values) for op in (ops.of_type("sum") if len(gradients) > 1 else ())]
        return bool(cuts) or any(joined)


def _groups(cuts: Iterable[tuple[Value, _Cut]]) -> list[list[_Cut]]:
    """Group what is cut from one value along one dimension, in the order of that dimension."""
    found: defaultdict[tuple[Value, int, bool], list[_Cut]] = defaultdict(list)
    for source, cut in cuts:
        found[source, cut.axis, cut.is_dropped].append(cut)
    groups = [sorted(group, key=lambda cut: cut.start) for group in found.values()]
    return [group for group in groups if len(group) > 1 and all(a.stop <= b.start for a, b in pairwise(group))]


def _cut_of(op: Operator, name: str) -> _Cut | None:
    """Describe a slice of one dimension of a tensor of known shape by attributes."""
    inputs = {slot for slot, names in op.inputs.items() if names}
    shape = op.block.vars[op.inputs["Input"][0]].shape or (-1,)
    axes, dropped = op.attr("axes"), op.attr("decrease_axis")
    if inputs - {"Input", "Out@GRAD"} or -1 in shape or len(axes) != 1 or (dropped and len(shape) < 2):
        return None
    taken = span(shape[axes[0]], op.attr("starts")[0], op.attr("ends")[0])
    return _Cut(axes[0] % len(shape), bool(dropped), taken.start, taken.stop, name, op)


def _length(cut: _Cut) -> int:
    """Return the number of elements of the dimension that is cut."""
    return (cut.op.block.vars[cut.op.inputs["Input"][0]].shape or ())[cut.axis]


def _slices(ops: Iterable[Operator], values: Values) -> Iterator[tuple[Value, _Cut]]:
    for op in ops:
        cut = _cut_of(op, op.outputs["Out"][0])
        if cut is not None and cut.axis > 0:
            yield values.input(op, "Input"), cut


def _may_be_one(cuts: Sequence[_Cut], values: Values) -> bool:
    """Whether the slices take all of the dimension, and nothing uses their names before the first of them."""
    is_whole = cuts[0].start == 0 and cuts[-1].stop == _length(cuts[0])
    is_whole = is_whole and all(a.stop == b.start for a, b in pairwise(cuts))
    # All slices are taken where the first one stands: their names must not mean something else there.
    return is_whole and all(values.is_first(values.written(cut.name, cut.op)) for cut in cuts)


def _cut_once(cuts: Sequence[_Cut], first: Operator) -> None:
    names, axis = [cut.name for cut in cuts], cuts[0].axis
    if cuts[0].is_dropped:
        insert_for(first, "unstack", {"X": first.inputs["Input"]}, {"Y": names}, {"axis": axis, "num": len(cuts)})
    else:
        sections = [cut.stop - cut.start for cut in cuts]
        insert_for(first, "split", {"X": first.inputs["Input"]}, {"Out": names}, {"axis": axis, "sections": sections})
    for cut in cuts:
        cut.op.block.remove(cut.op)


def _join_gradients(total: Operator, values: Values) -> bool:
    """Replace the gradients of slices in a sum by one value; returns whether there are several."""
    for group in _groups(_gradients(total, values)):
        # With more zeros than gradients the single operators write less.
        if 2 * sum(cut.stop - cut.start for cut in group) >= _length(group[0]):
            _join(total, group)
            return True  # others, of another dimension or form, stay
    return False


def _gradients(total: Operator, values: Values) -> Iterator[tuple[Value, _Cut]]:
    counts = Counter(total.inputs["X"])
    for name in total.inputs["X"]:
        part = values.read(name, total)
        grad = values.producer(part, "slice_grad")
        # Who else reads the gradient of the slice needs it by itself.
        if grad is None or counts[name] > 1 or not values.is_used_once(part):
            continue
        incoming = values.input(grad, "Out@GRAD")
        cut = _cut_of(grad, incoming[0])
        if cut is not None and values.is_there(incoming, total):
            yield Value("", 0), cut


def _join(total: Operator, cuts: Sequence[_Cut]) -> None:
    """Replace the gradients of `cuts` in a sum by the incoming gradients side by side."""
    # Between the slices lie elements that none of them takes, whose gradient is 0.
    names, at = list[str](), 0
    for cut in cuts:
        names += [*_zeros(total, cuts[0], cut.start - at), cut.name]
        at = cut.stop
    names += _zeros(total, cuts[0], _length(cuts[0]) - at)
    gone = {cut.op.outputs["Input@GRAD"][0] for cut in cuts}
    rest = [name for name in total.inputs["X"] if name not in gone]
    out = unique_name.generate(f"{total.outputs['Out'][0]}@JOINED") if rest else total.outputs["Out"][0]
    type, slot = ("stack", "Y") if cuts[0].is_dropped else ("concat", "Out")
    insert_for(total, type, {"X": names}, {slot: out}, {"axis": cuts[0].axis})
    if rest:
        total.set_input("X", [*rest, out])
    else:
        total.block.remove(total)
    for cut in cuts:
        cut.op.block.remove(cut.op)


def _zeros(total: Operator, cut: _Cut, length: int) -> list[str]:
    """Insert zeros for `length` elements of a dimension that no slice takes; returns their names."""
    if not length:
        return []
    var = total.block.vars[cut.name]
    shape = list(var.shape or ())
    if not cut.is_dropped:
        shape[cut.axis] = length
    name = unique_name.generate(f"{total.outputs['Out'][0]}@ZEROS")
    insert_for(total, "fill_constant", {}, {"Out": name}, {"shape": shape, "dtype": int(var.dtype)})
    return [name] * (length if cut.is_dropped else 1)
