"""Make convolutions of parts of the channels, whose results are joined again, one convolution with groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from minigraph import unique_name
from minigraph.ir import Names, Operator, Program
from minigraph.opdef import EMPTY
from minigraph.passes.base import Pass
from minigraph.passes.rewriting import completed_pairs, insert_for
from minigraph.passes.values import Value, Values
from minigraph.support.window_rules import is_channels_last


class GroupConvolutions(Pass):
    """Turn ``concat([conv2d(part, w) for part, w in zip(split(x, n), ws)])`` into one ``conv2d`` of x, and gradients.

    The split, the convolutions and the concat are along the channels; all filters have one shape. They are joined, and
    their gradients cut out of that of the whole. The results of the single convolutions must have no other readers.

    Law: every element is the same sum of products, whose terms may be added in another order.
    """

    changes_rounding: ClassVar[bool] = True
    keeps_gradients: ClassVar[bool] = False

    def apply(self, program: Program) -> bool:
        ops = program.global_block().ops
        if len(ops.of_type("conv2d")) < 2 or not ops.of_type("split"):
            return False  # the quick way out for most programs
        values, changed = Values(program), False
        for join in list(ops.of_type("concat")):
            found = _find(join, values)
            if found is not None:
                _replace(found)
                changed = True
        return changed


class _Backward(NamedTuple):
    """Operators of the gradient of grouped convolutions."""

    cut: Operator
    """The ``concat_grad``."""
    gradients: Sequence[Operator]
    first: Operator
    """The gradient that stands first; that of the whole takes its place."""
    join: Operator | None
    """The ``concat`` of the gradients of the parts, if these have no other reader."""


class _Grouped(NamedTuple):
    """Operators that one convolution, and one gradient, replace."""

    split: Operator
    convolutions: Sequence[Operator]
    join: Operator
    backward: Sequence[_Backward]


def _find(join: Operator, values: Values) -> _Grouped | None:
    """Return what becomes one convolution whose result is that of the ``concat`` `join`."""
    made = _all(values, join, "X")
    convolutions = [op for value in made if (op := values.producer(value, "conv2d")) is not None]
    if len(made) < 2 or len(convolutions) < len(made) or len(set(made)) < len(made):
        return None
    split = values.producer(values.input(convolutions[0], "Input"), "split")
    if split is None or not _fit(split, convolutions, join, values):
        return None
    cuts = dict.fromkeys(op for value in made for op in values.readers[value] if op is not join)
    backward = [_backward(cut, split, convolutions, made, values) for cut in cuts]
    if any(values.is_live_out(value) for value in made) or None in backward:
        return None
    given = [values.input(split, "X"), *(values.input(op, "Filter") for op in convolutions)]
    places = [join, *(each.first for each in backward if each is not None)]
    if not all(values.is_there(value, place) for value in given for place in places):
        return None
    return _Grouped(split, convolutions, join, [each for each in backward if each is not None])


def _all(values: Values, op: Operator, slot: str) -> list[Value]:
    return [values.input(op, slot, i) for i in range(len(op.inputs[slot]))]


def _fit(split: Operator, convolutions: Sequence[Operator], join: Operator, values: Values) -> bool:
    """Whether the convolutions are alike, and take all parts of the channels in the order in which they are joined."""
    first = convolutions[0]
    axis = _channel_dim(first)
    kinds = {values.type_of(values.input(op, "Filter")) for op in convolutions}
    (kind,) = kinds if len(kinds) == 1 else (None,)
    if kind is None or not kind.is_static or 0 in kind.shape:
        return False
    parts = [values.output(split, "Out", i) for i in range(len(split.outputs["Out"]))]
    return (
        [values.input(op, "Input") for op in convolutions] == parts
        and all(op.attrs == first.attrs and not _has_more(op, "Input", "Filter") for op in convolutions)
        and all(_size(values, part, axis) == kind.shape[1] * first.attr("groups") for part in parts)
        and all(op.attr("axis") % 4 == axis and not _has_more(op, "X") for op in (split, join))
    )


def _channel_dim(op: Operator) -> int:
    return 3 if is_channels_last(op.attr("data_format")) else 1


def _has_more(op: Operator, *slots: str) -> bool:
    return any(names and slot not in slots for slot, names in op.inputs.items())


def _size(values: Values, value: Value, axis: int) -> int:
    kind = values.type_of(value)
    return -1 if kind is None else kind.shape[axis]


def _backward(
    cut: Operator, split: Operator, convolutions: Sequence[Operator], made: Sequence[Value], values: Values
) -> _Backward | None:
    """Return the gradients of the convolutions that `cut` cuts the gradient of the joined results for."""
    is_cut = cut.type == "concat_grad" and cut.attr("axis") % 4 == _channel_dim(convolutions[0])
    if not is_cut or _has_more(cut, "X", "Out@GRAD") or _all(values, cut, "X") != made:
        return None
    names = cut.outputs["X@GRAD"]
    flowing = [values.written(name, cut) for name in names if name != EMPTY]
    if len(flowing) < len(made) or not all(map(values.is_used_once, flowing)):
        return None
    gradients = [values.readers[value][0] for value in flowing]
    of_each = zip(gradients, convolutions, flowing, strict=True)
    if not all(_is_gradient(op, convolution, d_out, values) for op, convolution, d_out in of_each):
        return None
    first = min(gradients, key=values.position.__getitem__)
    early = [values.written(name, op) for op in gradients for name in op.output_arg_names if name != EMPTY]
    if not all(map(values.is_first, early)) or not values.is_there(values.input(cut, "Out@GRAD"), first):
        return None
    return _Backward(cut, gradients, first, _join_of(gradients, split, values))


def _is_gradient(op: Operator, convolution: Operator, d_out: Value, values: Values) -> bool:
    """Whether `op` is the gradient of `convolution` by `d_out`."""
    if op.type != "conv2d_grad" or _has_more(op, "Input", "Filter", "Output@GRAD"):
        return False
    return (
        values.input(op, "Output@GRAD") == d_out
        and all(values.input(op, slot) == values.input(convolution, slot) for slot in ("Input", "Filter"))
        and all(op.attr(name) == convolution.attr(name) for name in op.definition.attrs)
    )


def _join_of(gradients: Sequence[Operator], split: Operator, values: Values) -> Operator | None:
    """Return the ``concat`` that alone reads the gradients of all parts, and joins them as `split` cuts."""
    parts = [values.written(name, op) for op in gradients for name in op.outputs.get("Input@GRAD", ()) if name != EMPTY]
    readers = {op for value in parts for op in values.readers[value]}
    if len(readers) != 1 or len(parts) < len(gradients) or not all(map(values.is_used_once, parts)):
        return None
    (join,) = readers
    is_join = join.type == "concat" and not _has_more(join, "X") and join.attr("axis") % 4 == split.attr("axis") % 4
    # Its result is made where the first gradient stands: its name must not mean something else there.
    is_join = is_join and _all(values, join, "X") == parts and values.is_first(values.output(join, "Out"))
    return join if is_join else None


def _replace(found: _Grouped) -> None:
    first = found.convolutions[0]
    attrs = {**first.attrs, "groups": first.attr("groups") * len(found.convolutions)}
    filters = [op.inputs["Filter"][0] for op in found.convolutions]
    x = found.split.inputs["X"]
    whole = _joined(found.join, filters)
    insert_for(found.join, "conv2d", {"Input": x, "Filter": whole}, {"Output": found.join.outputs["Out"]}, attrs)
    for each in found.backward:
        _append_gradient(each, x, filters, attrs)
    for op in (*found.convolutions, found.join):
        op.block.remove(op)


def _joined(place: Operator, filters: Sequence[str]) -> str:
    whole = unique_name.generate(f"{filters[0]}@GROUPED")
    insert_for(place, "concat", {"X": filters}, {"Out": whole}, {"axis": 0})
    return whole


def _append_gradient(backward: _Backward, x: Names, filters: Sequence[str], attrs: Mapping[str, Any]) -> None:
    """Insert one gradient for those of the single convolutions, which are removed."""
    first, gradients = backward.first, backward.gradients
    made = {slot: _made(gradients, slot) for slot in ("Input@GRAD", "Filter@GRAD")}
    wholes = {slot: unique_name.generate(f"{names[0]}@GROUPED") for slot, names in made.items() if names}
    if backward.join is not None:
        (wholes["Input@GRAD"],) = backward.join.outputs["Out"]
    inputs = {"Input": x, "Filter": _joined(first, filters), "Output@GRAD": backward.cut.inputs["Out@GRAD"]}
    own = {name: value for name, value in attrs.items() if name in first.definition.attrs}
    whole = insert_for(first, "conv2d_grad", inputs, wholes, own)
    if backward.join is not None:
        whole.role_vars = backward.join.role_vars
        backward.join.block.remove(backward.join)
    elif made["Input@GRAD"]:
        _cut(first, wholes["Input@GRAD"], made["Input@GRAD"], _channel_dim(first))
    if made["Filter@GRAD"]:
        split = _cut(first, wholes["Filter@GRAD"], made["Filter@GRAD"], 0)
        split.role_vars = tuple([name for op in gradients for pair in completed_pairs(op) for name in pair])
    for op in (*gradients, backward.cut):
        op.block.remove(op)


def _made(gradients: Sequence[Operator], slot: str) -> list[str]:
    """The results in a slot, with new names for missing ones; empty if all are missing."""
    names = [op.outputs.get(slot, (EMPTY,))[0] for op in gradients]
    if set(names) == {EMPTY}:
        return []
    return [unique_name.generate(f"{slot}@GROUPED") if name == EMPTY else name for name in names]


def _cut(place: Operator, whole: str, names: Sequence[str], axis: int) -> Operator:
    return insert_for(place, "split", {"X": whole}, {"Out": names}, {"axis": axis, "num": len(names)})
