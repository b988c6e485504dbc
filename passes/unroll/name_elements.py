"""Put variables in the place of the elements of arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, TypeAlias

from minigraph import unique_name
from minigraph.ir import Block, Operator, Program, VarKind
from minigraph.opdef import EMPTY
from minigraph.passes.base import Pass
from minigraph.passes.canonical.dead_ops import remove_dead
from minigraph.passes.rewriting import insert_for
from minigraph.passes.unroll.known_numbers import KnownNumbers
from minigraph.types import DType


class NameElements(Pass):
    """Turn writes to an array, and reads of it, into copies to and from a variable for each element.

    Their indices must follow from constants. ``tensor_array_to_tensor`` becomes ``concat`` or ``stack``, its gradient
    ``split`` or ``unstack``, a sum of gradients ``sum``, and the length of an array a constant. Arrays stay that are
    fetched, fed, persistable, used by a sub-block, or made of arrays. So does every array that an operator reads or
    writes together with one of these.

    Law: every value keeps its bits.
    """

    keeps_gradients: ClassVar[bool] = False

    def apply(self, program: Program) -> bool:
        block = program.global_block()
        if not block.ops.of_type("write_to_array"):
            return False
        changed = False
        while edits := _Arrays(block).edits():
            for op, made in edits:
                for type, inputs, outputs, attrs in made:
                    insert_for(op, type, inputs, outputs, attrs)
                block.remove(op)
            # Such as gradients that flow to an element before the first run of a loop, or what kept another array.
            remove_dead(program, trims=True)
            changed = True
        return changed


Made: TypeAlias = "tuple[str, dict[str, Any], dict[str, Any], dict[str, Any]]"
"""Type, inputs, outputs and attributes of a new operator."""


class _Element(NamedTuple):
    name: str
    like: str
    """A variable that has its type."""


class _Array:
    """What is known of an array at a place of the block."""

    def __init__(self, elements: Mapping[int, _Element] | None = None, length: int = 0) -> None:
        self.elements = dict(elements or {})
        self.length = length

    def copy(self) -> _Array:
        return _Array(self.elements, self.length)

    def all(self) -> list[_Element] | None:
        """The elements in order, None if one of them or all are missing."""
        found = [self.elements.get(index) for index in range(self.length)]
        return [each for each in found if each is not None] if found and None not in found else None


class _Unknown(Exception):
    """An operator uses an array in a way that has to wait for the run."""


class _Arrays:
    """The arrays of a block, followed from operator to operator."""

    def __init__(self, block: Block) -> None:
        self._block = block
        self._numbers = KnownNumbers(block)
        self._names = {name for name, var in block.vars.items() if var.kind is VarKind.LOD_TENSOR_ARRAY}
        self._arrays: dict[str, _Array] = {}

    def edits(self) -> list[tuple[Operator, list[Made]]]:
        """The operators that go, each with those that take its place."""
        users = {op: self._arrays_of(op) for op in self._block.ops}
        group_of = _joined(filter(None, users.values()))
        open_groups = {id(group_of[name]) for name in group_of if self._is_open(name)}
        found: list[tuple[Operator, list[Made]]] = []
        for op in self._block.ops:
            names = users[op]
            if names and id(group_of[names[0]]) not in open_groups:
                try:
                    found.append((op, self._made(op)))
                except _Unknown:
                    open_groups.add(id(group_of[names[0]]))
            self._numbers.note(op)
        return [(op, made) for op, made in found if id(group_of[users[op][0]]) not in open_groups]

    def _arrays_of(self, op: Operator) -> list[str]:
        return [name for name in (*op.input_arg_names, *op.output_arg_names) if name in self._names]

    def _is_open(self, name: str) -> bool:
        """Whether others than the operators of the block may use an array."""
        var, roots = self._block.vars[name], self._block.program.roots
        return bool(var.persistable or var.is_data or var.lod_level or roots is None or name in roots)

    def _made(self, op: Operator) -> list[Made]:
        make = _MAKERS.get(op.type)
        if make is None:
            raise _Unknown
        return make(self, op)

    def _array(self, op: Operator, slot: str = "X") -> _Array:
        return self._arrays.setdefault(op.inputs[slot][0], _Array())

    def _index(self, op: Operator) -> int:
        index = self._numbers.integers(op.inputs["I"])
        if index is None or index[0] < 0:
            raise _Unknown
        return index[0]

    def _element(self, array: str, index: int, like: str) -> _Element:
        return _Element(unique_name.generate(f"{array}@ELEMENT.{index}"), like)

    def _shape(self, element: _Element) -> Sequence[int]:
        shape = self._block.vars[element.like].shape
        if shape is None or -1 in shape:
            raise _Unknown
        return shape

    def _write(self, op: Operator) -> list[Made]:
        (given,), (name,), index = op.inputs["X"], op.outputs["Out"], self._index(op)
        if given in self._names:
            raise _Unknown
        array = self._arrays.setdefault(name, _Array())
        held = array.elements.get(index) if op.attr("add") else None
        array.elements[index] = element = self._element(name, index, given)
        array.length = max(array.length, index + 1)
        if held is None:
            return [("assign", {"X": given}, {"Out": element.name}, {})]
        return [("sum", {"X": [held.name, given]}, {"Out": element.name}, {})]

    def _read(self, op: Operator) -> list[Made]:
        array, index, like = self._array(op), self._index(op), op.inputs.get("X_W", ())
        held = array.elements.get(index)
        out, rest = op.outputs.get("Out", ()), op.outputs.get("Rest", ())
        made: list[Made] = []
        if out and out[0] != EMPTY:
            if op.attr("is_array") or out[0] in self._names or not (held or like):
                raise _Unknown
            type, given = ("fill_zeros_like", like[0]) if held is None else ("assign", held.name)
            made = [(type, {"X": given}, {"Out": out[0]}, {})]
        if rest and rest[0] != EMPTY:
            left = array.copy()
            left.elements.pop(index, None)
            self._arrays[rest[0]] = left
        return made

    def _copy(self, op: Operator) -> list[Made]:
        self._arrays[op.outputs["Out"][0]] = self._array(op).copy()
        return []

    def _add(self, op: Operator) -> list[Made]:
        (name,), arrays = op.outputs["Out"], [self._arrays.setdefault(each, _Array()) for each in op.inputs["X"]]
        total, made = _Array(length=max(each.length for each in arrays)), list[Made]()
        for index in range(total.length):
            found = [each.elements[index] for each in arrays if index in each.elements]
            if found:
                total.elements[index] = element = self._element(name, index, found[0].like)
                made.append(("sum", {"X": [each.name for each in found]}, {"Out": element.name}, {}))
        self._arrays[name] = total
        return made

    def _clear(self, op: Operator) -> list[Made]:
        self._arrays[op.outputs["Out"][0]] = _Array()
        return []

    def _length(self, op: Operator) -> list[Made]:
        attrs = {"shape": [1], "dtype": int(DType.INT64), "value": float(self._array(op).length)}
        return [("fill_constant", {}, dict(op.outputs), attrs)]

    def _join(self, op: Operator) -> list[Made]:
        elements, axis = self._array(op).all(), op.attr("axis")
        if elements is None:
            raise _Unknown
        lengths = self._lengths(elements, op)
        given, out = {"X": [each.name for each in elements]}, op.outputs["Out"]
        type, slot = ("stack", "Y") if op.attr("use_stack") else ("concat", "Out")
        attrs = {"shape": [len(elements)], "dtype": int(DType.INT32), "int32_values": lengths}
        return [
            (type, given, {slot: out}, {"axis": axis}),
            ("assign_value", {}, {"Out": op.outputs["OutIndex"]}, attrs),
        ]

    def _lengths(self, elements: Sequence[_Element], op: Operator) -> list[int]:
        shapes = list(map(self._shape, elements))
        at = op.attr("axis") % (len(shapes[0]) + op.attr("use_stack"))
        return [shape[at] if at < len(shape) else 1 for shape in shapes]

    def _cut(self, op: Operator) -> list[Made]:
        elements, (name,) = self._array(op).all(), op.outputs["X@GRAD"]
        if elements is None:
            raise _Unknown
        lengths, axis, d_out = self._lengths(elements, op), op.attr("axis"), {"X": op.inputs["Out@GRAD"]}
        parts = [self._element(name, index, each.like) for index, each in enumerate(elements)]
        self._arrays[name] = _Array(dict(enumerate(parts)), len(parts))
        names = [each.name for each in parts]
        if op.attr("use_stack"):
            return [("unstack", d_out, {"Y": names}, {"axis": axis, "num": len(parts)})]
        return [("split", d_out, {"Out": names}, {"axis": axis, "sections": lengths})]


_MAKERS: dict[str, Callable[[_Arrays, Operator], list[Made]]] = {
    "write_to_array": _Arrays._write,
    "read_from_array": _Arrays._read,
    "assign": _Arrays._copy,
    "sum": _Arrays._add,
    "empty_array": _Arrays._clear,
    "lod_array_length": _Arrays._length,
    "tensor_array_to_tensor": _Arrays._join,
    "tensor_array_to_tensor_grad": _Arrays._cut,
}
"""What takes the place of an operator on arrays, by its type."""


def _joined(groups: Iterable[list[str]]) -> dict[str, list[str]]:
    """For each name the list, which is one object for all in it, of the names that groups tie together."""
    found: dict[str, list[str]] = {}
    for names in groups:
        for name in names:
            one, other = found.setdefault(names[0], [names[0]]), found.setdefault(name, [name])
            if one is not other:
                small, large = sorted((one, other), key=len)
                large += small
                found.update(dict.fromkeys(small, large))
    return found
