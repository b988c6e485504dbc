"""Cut and join along a dimension that a program reshapes into two first."""

from __future__ import annotations

from typing import ClassVar

from minigraph.ir import Operator, Program
from minigraph.opdef import EMPTY
from minigraph.passes.base import Pass
from minigraph.passes.rewriting import insert_for
from minigraph.passes.values import Value, Values

_CUTS = {"unstack": ("X", "Y"), "stack_grad": ("Y@GRAD", "X@GRAD")}
"""Operators that cut a dimension into its elements, with the slots of the whole and of the parts."""

_JOINS = {"stack": ("X", "Y"), "unstack_grad": ("Y@GRAD", "X@GRAD")}
"""Operators that make a dimension of parts, with the slots of the parts and of the whole."""

_RESHAPES = {"reshape2": ("X", "Out"), "reshape2_grad": ("Out@GRAD", "X@GRAD")}


class SplitReshaped(Pass):
    """Turn ``unstack(reshape(x))`` into ``split(x)`` where one dimension becomes two and the first of them is cut.

    Likewise ``reshape(stack(parts))`` becomes ``concat(parts)``, and so do the gradients of both. The gates of a
    recurrent network are then cut in one way. Elements of the first dimension are views, and stay.

    Law: every value keeps its bits, because each element goes to the same place.
    """

    keeps_gradients: ClassVar[bool] = False

    def apply(self, program: Program) -> bool:
        of_type = program.global_block().ops.of_type
        cuts, joins = ([op for type in types for op in of_type(type)] for types in (_CUTS, _JOINS))
        reshapes = [op for type in _RESHAPES for op in of_type(type)]
        if not reshapes or not (cuts or joins):
            return False
        values = Values(program)
        split = [_split(op, values) for op in cuts]
        joined = [_concatenate(op, values) for op in (reshapes if joins else ())]
        return any(split) or any(joined)


def _split(op: Operator, values: Values) -> bool:
    """Replace a cut of a reshaped value by a cut of that value; returns whether it could."""
    given, parts = _CUTS[op.type]
    apart, names = values.input(op, given), op.outputs[parts]
    reshape = values.producer(apart, *_RESHAPES)
    if reshape is None or EMPTY in names:
        return False
    whole = values.input(reshape, _RESHAPES[reshape.type][0])
    axis = _axis_of_two(whole, apart, op, values)
    if axis is None or not values.is_there(whole, op):
        return False
    insert_for(op, "split", {"X": whole.name}, {"Out": names}, {"num": len(names), "axis": axis})
    op.block.remove(op)
    return True


def _concatenate(op: Operator, values: Values) -> bool:
    """Replace a reshape of joined values by values that are joined along the dimension; returns whether it could."""
    given, made = _RESHAPES[op.type]
    apart, whole = values.input(op, given), values.output(op, made)
    join = values.producer(apart, *_JOINS)
    if join is None or not values.is_used_once(apart):
        return False
    names, axis = join.inputs[_JOINS[join.type][0]], _axis_of_two(whole, apart, join, values)
    others = [values.written(name, op) for slot, names in op.outputs.items() if slot != made for name in names]
    if axis is None or EMPTY in names or any(values.readers[each] or values.is_live_out(each) for each in others):
        return False
    if not all(values.is_there(values.read(name, join), op) for name in names):
        return False
    insert_for(op, "concat", {"X": names}, {"Out": whole.name}, {"axis": axis})
    for each in (op, join):
        each.block.remove(each)
    return True


def _axis_of_two(whole: Value, apart: Value, op: Operator, values: Values) -> int | None:
    """The dimension of `whole` that is two in `apart`, where `op` cuts or makes the first of them; None for others."""
    one, two = values.type_of(whole), values.type_of(apart)
    if one is None or two is None or not (one.is_static and two.is_static) or len(two.shape) != len(one.shape) + 1:
        return None
    axis = op.attr("axis") % len(two.shape)
    if not 0 < axis < len(one.shape):
        return None
    joined = (*two.shape[:axis], two.shape[axis] * two.shape[axis + 1], *two.shape[axis + 2 :])
    return axis if joined == tuple(one.shape) else None
