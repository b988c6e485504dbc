"""Let matrix products transpose their operands themselves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from minigraph.ir import Operator, Program
from minigraph.passes.base import Pass
from minigraph.passes.rewriting import insert_for
from minigraph.passes.values import Value, Values


class TransposeIntoMatmul(Pass):
    """Turn a ``transpose2`` of the last two dimensions in front of a product into ``transpose_X`` or ``transpose_Y``.

    A ``mul`` of matrices becomes the ``matmul`` that computes the same.

    Law: every value is the same up to rounding. A ``matmul`` keeps its bits, because its kernel sees the same array
    with the same strides; the kernel of ``mul`` calls another function, which may add the products of a single row in
    another order. Gradients go on reading the transposed operand.

    Off by default: with NumPy a transpose is a view that costs a fraction of a microsecond.
    """

    changes_rounding: ClassVar[bool] = True
    keeps_gradients: ClassVar[bool] = False

    def apply(self, program: Program) -> bool:
        values = Values(program)
        transposed: dict[Value, _Transposed] = {}
        changed = False
        for op in program.global_block().ops:
            if op.type == "transpose2":
                _note(op, values, transposed)
            elif transposed and (op.type == "matmul" or (op.type == "mul" and _multiplies_matrices(op, values))):
                sources = {slot: found for slot in "XY" if (found := _untransposed(values, op, slot, transposed))}
                if sources:
                    _read_untransposed(op, sources)
                    changed = True
        return changed


def _multiplies_matrices(op: Operator, values: Values) -> bool:
    return all(len(values.block.vars[op.inputs[slot][0]].shape or ()) == 2 for slot in "XY")


@dataclass(frozen=True, slots=True)
class _Source:
    """A value whose last two dimensions are exchanged, perhaps several times.

    Only sources that last longer than all before them are linked. So a walk back finds the first source that is still
    there at some place.
    """

    value: Value
    lasts: float
    """Position of the operator that writes its name again."""
    is_odd: bool
    """Whether the last two dimensions of the first source of all are exchanged an odd number of times in it."""
    before: _Source | None = None
    far_before: _Source | None = None
    """A source from which a walk goes on that need not see those in between: a walk takes logarithmic time."""
    depth: int = 0


@dataclass(frozen=True, slots=True)
class _Transposed:
    """A value that transposes have made of others, the last of which is `source`."""

    is_odd: bool
    source: _Source


def _note(op: Operator, values: Values, transposed: dict[Value, _Transposed]) -> None:
    """Note the sources of what a transpose makes, if it exchanges the last two dimensions."""
    axis = list(op.attr("axis"))
    rank = len(axis)
    if rank < 2 or axis != [*range(rank - 2), rank - 1, rank - 2]:
        return
    value = values.input(op, "X")
    if values.block.vars[value.name].lod_level > 0:
        return  # a product keeps the lengths of what it reads, a transpose does not
    lasts, known = values.lasts_until(value), transposed.get(value)
    is_odd = known is not None and known.is_odd
    if known is None:
        source = _Source(value, lasts, is_odd)
    elif lasts > known.source.lasts:
        source = _after(known.source, value, lasts, is_odd)
    else:
        source = known.source
    transposed[values.output(op, "Out")] = _Transposed(not is_odd, source)


def _after(last: _Source, value: Value, lasts: float, is_odd: bool) -> _Source:
    """Link a source behind `last`, with a far link as in a skew-binary list (Myers, 1983)."""
    far = last.far_before
    far_of_far = far and far.far_before
    is_even = far is not None and far_of_far is not None and last.depth - far.depth == far.depth - far_of_far.depth
    return _Source(value, lasts, is_odd, last, far_of_far if is_even else last, last.depth + 1)


def _untransposed(
    values: Values, op: Operator, slot: str, transposed: dict[Value, _Transposed]
) -> tuple[Value, bool] | None:
    """Return what the transposes in front of an operand read, and whether their number is odd; None if there is none.

    It is the first of the sources that are there, so that a second application finds nothing.
    """
    operand, place = transposed.get(values.input(op, slot)), values.position[op]
    if operand is None or operand.source.lasts < place:
        return None
    source = operand.source
    while source.before is not None and source.before.lasts >= place:
        far = source.far_before
        source = far if far is not None and far.lasts >= place else source.before
    return source.value, source.is_odd != operand.is_odd


def _read_untransposed(op: Operator, sources: dict[str, tuple[Value, bool]]) -> None:
    inputs = {slot: sources[slot][0][0] if slot in sources else op.inputs[slot][0] for slot in "XY"}
    turned = [slot for slot, (_, is_odd) in sources.items() if is_odd]
    if op.type == "mul" and turned:
        flags = {f"transpose_{slot}": True for slot in turned}
        insert_for(op, "matmul", inputs, {"Out": op.outputs["Out"]}, flags)
        op.block.remove(op)
        return
    for slot in sources:
        op.set_input(slot, [inputs[slot]])
    for slot in turned:
        op.set_attr(f"transpose_{slot}", not op.attr(f"transpose_{slot}"))
