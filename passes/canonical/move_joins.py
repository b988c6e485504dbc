"""Join parts of the channels before operators on elements, and not what these make of each part."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, NamedTuple

from minigraph import unique_name
from minigraph.ir import Operator, Program
from minigraph.kernels.formulas import OF_ONE
from minigraph.opdef import EMPTY
from minigraph.passes.base import Pass
from minigraph.passes.rewriting import completed_pairs, insert_for
from minigraph.passes.values import Value, Values

_OF_TWO = ("elementwise_add", "elementwise_div", "elementwise_mul", "elementwise_sub")
_FORWARD = frozenset({*_OF_TWO, *(type for type in OF_ONE if not type.endswith("_grad"))})


class MoveJoins(Pass):
    """Turn ``concat([relu(a), relu(b)])`` into ``relu(concat([a, b]))`` where a and b are convolutions, and gradients.

    So with every operator on elements that is applied alike to all parts, and with sums, differences, products and
    quotients of parts and vectors of their channels, which are joined too. The parts are at last results of ``conv2d``,
    each of a part of a ``split``: `GroupConvolutions` then makes them one.

    Law: every element is computed as before, but the gradients of vectors of channels may be added in another order.
    """

    changes_rounding: ClassVar[bool] = True

    def apply(self, program: Program) -> bool:
        ops = program.global_block().ops
        if len(ops.of_type("conv2d")) < 2 or not ops.of_type("split"):
            return False  # the quick way out for most programs
        joins, changed = list(ops.of_type("concat")), False
        while joins:  # each round moves joins past one operator
            values = Values(program)
            layers = [found for join in joins if (found := _find(join, values)) is not None]
            joins = [layer.replace() for layer in layers]
            changed |= bool(layers)
        return changed


class _Layer(NamedTuple):
    """An operator on each part, whose results `join` joins, and their gradients."""

    join: Operator
    parts: Sequence[Operator]
    cut: Operator | None
    """The ``concat_grad``."""
    gradients: Sequence[Operator]
    """That of each part; none without `cut`."""

    def replace(self) -> Operator:
        """Insert the operator on the joined operands, and its gradient; returns the new ``concat``."""
        join, first = self.join, self.parts[0]
        axis = join.attr("axis")
        whole = {slot: unique_name.generate(f"{names[0]}@JOINED") for slot, names in first.inputs.items() if names}
        moved = _concatenate(join, self.parts, "X", whole["X"], axis)
        if "Y" in whole:
            _concatenate(join, self.parts, "Y", whole["Y"], 0)
        insert_for(join, first.type, whole, join.outputs, first.attrs)
        if self.cut is not None:
            self._replace_gradients(self.cut, {**whole, "Out": join.outputs["Out"][0]}, axis)
        for op in (*self.parts, join):
            op.block.remove(op)
        return moved

    def _replace_gradients(self, cut: Operator, whole: Mapping[str, str], axis: int) -> None:
        first, flowing = self.gradients[0], cut.inputs["Out@GRAD"][0]
        inputs = {slot: whole[slot] for slot, names in first.inputs.items() if names and slot != "Out@GRAD"}
        made = {slot: unique_name.generate(f"{names[0]}@JOINED") for slot, names in _made(first).items()}
        insert_for(cut, first.type, {**inputs, "Out@GRAD": flowing}, made, first.attrs)
        operands = [op.inputs["X"][0] for op in self.parts]
        for slot, name in made.items():
            names = [op.outputs[slot][0] for op in self.gradients]
            if slot == "X@GRAD":
                given = {"X": operands, "Out@GRAD": name}
                by = insert_for(cut, "concat_grad", given, {"X@GRAD": names}, {"axis": axis})
            else:
                by = insert_for(cut, "split", {"X": name}, {"Out": names}, {"axis": 0, "num": len(names)})
            pairs = [pair for op in self.gradients for pair in completed_pairs(op) if pair[1] in names]
            by.role_vars = tuple([name for pair in pairs for name in pair])
        for op in (*self.gradients, cut):
            op.block.remove(op)


def _concatenate(place: Operator, parts: Sequence[Operator], slot: str, whole: str, axis: int) -> Operator:
    names = [op.inputs[slot][0] for op in parts]
    return insert_for(place, "concat", {"X": names}, {"Out": whole}, {"axis": axis})


def _made(grad: Operator) -> dict[str, Sequence[str]]:
    return {slot: names for slot, names in grad.outputs.items() if names and names[0] != EMPTY}


def _find(join: Operator, values: Values) -> _Layer | None:
    """Return the operators on the parts that `join` joins, if they are alike and lead to convolutions."""
    made = [values.input(join, "X", i) for i in range(len(join.inputs["X"]))]
    if len(made) < 2 or len(set(made)) < len(made) or join.inputs.get("AxisTensor"):
        return None
    parts = _alike(made, values)
    if not parts or not _leads_to_convolutions(parts, join, values):
        return None
    outer = [value for op in parts for value in _operands(op, values)]
    if any(map(values.is_live_out, made)) or not all(values.is_there(value, join) for value in outer):
        return None
    others = {op for value in made for op in values.readers[value] if op is not join}
    if not others:
        return _Layer(join, parts, None, ())
    return _with_gradients(join, parts, made, others, values)


def _alike(made: Sequence[Value], values: Values) -> list[Operator]:
    """The operators on elements that make these values, if they differ in their operands only; else none."""
    first = values.writer.get(made[0])
    if first is None or first.type not in _FORWARD:
        return []
    ops = [op for value in made if (op := values.producer(value, first.type)) is not None]
    same = len(ops) == len(made) and all(
        op.attrs == first.attrs and op.inputs.keys() == first.inputs.keys() for op in ops
    )
    slots = {"X", "Y"} if first.type in _OF_TWO else {"X"}
    is_plain = {slot for slot, names in first.inputs.items() if names} == slots
    return ops if same and is_plain and len(first.output_arg_names) == 1 else []


def _leads_to_convolutions(parts: Sequence[Operator], join: Operator, values: Values) -> bool:
    """Whether below operators on elements there are convolutions of the parts of a ``split``, along one dimension."""
    while parts and parts[0].type != "conv2d":
        kinds = {(values.type_of(values.input(op, "X")), values.type_of(values.output(op, "Out"))) for op in parts}
        if len(kinds) != 1 or not all(_is_of_channels(op, join, values) for op in parts):
            return False
        ((given, made),) = kinds
        if given is None or given != made or not given.is_static or len(given.shape) != 4 or 0 in given.shape:
            return False
        below = [values.input(op, "X") for op in parts]
        parts = _alike(below, values) or [op for each in below if (op := values.producer(each, "conv2d")) is not None]
    cuts = {values.producer(values.input(op, "Input"), "split") for op in parts}
    return len(parts) == len(join.inputs["X"]) and len(cuts) == 1 and None not in cuts


def _is_of_channels(op: Operator, join: Operator, values: Values) -> bool:
    """Whether the second operand, if there is one, has an element for each channel."""
    if "Y" not in op.inputs:
        return True
    whole, vector = (values.type_of(values.input(op, slot)) for slot in "XY")
    axis = join.attr("axis") % 4
    if whole is None or vector is None or len(whole.shape) != 4 or vector.dtype is not whole.dtype:
        return False
    at = op.attr("axis") if op.attr("axis") >= 0 else 4 - len(vector.shape)
    return at == axis and vector.shape == whole.shape[axis : axis + 1]


def _operands(op: Operator, values: Values) -> Iterator[Value]:
    return (values.read(name, op) for name in op.input_arg_names)


def _with_gradients(
    join: Operator, parts: Sequence[Operator], made: Sequence[Value], others: set[Operator], values: Values
) -> _Layer | None:
    """Return the layer with its gradients, if these are all that reads what `join` joins."""
    cuts = [op for op in others if op.type == "concat_grad"]
    if len(cuts) != 1:
        return None
    (cut,) = cuts
    flowing = [values.written(name, cut) for name in cut.outputs["X@GRAD"] if name != EMPTY]
    same = [values.input(cut, "X", i) for i in range(len(cut.inputs["X"]))] == list(made)
    if not same or cut.attr("axis") % 4 != join.attr("axis") % 4 or len(flowing) < len(made):
        return None
    if not all(map(values.is_used_once, flowing)) or not values.is_there(values.output(join, "Out"), cut):
        return None
    gradients = [values.readers[value][0] for value in flowing]
    if others - {cut} - set(gradients) or not all(map(_fits, gradients, parts, flowing, [values] * len(parts))):
        return None
    slots = {tuple(_made(grad)) for grad in gradients}
    early = [values.written(name, grad) for grad in gradients for names in _made(grad).values() for name in names]
    outer = [value for op in parts for value in _operands(op, values)]
    if len(slots) != 1 or not all(map(values.is_first, early)):
        return None
    return _Layer(join, parts, cut, gradients) if all(values.is_there(value, cut) for value in outer) else None


def _fits(grad: Operator, op: Operator, flowing: Value, values: Values) -> bool:
    """Whether `grad` is the gradient of `op` by `flowing`."""
    if grad.type != f"{op.type}_grad" or values.input(grad, "Out@GRAD") != flowing:
        return False
    meant = {**{slot: values.input(op, slot) for slot in op.inputs}, "Out": values.output(op, "Out")}
    read = {slot for slot, names in grad.inputs.items() if names and slot != "Out@GRAD"}
    return (
        read <= meant.keys()
        and all(values.input(grad, slot) == meant[slot] for slot in read)
        and all(grad.attr(each) == op.attr(each) for each in grad.definition.attrs)
    )
