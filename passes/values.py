"""Values of a program, and the edits that passes are made of: insert, replace a use, replace an operator, erase.

A name may be written several times, a value is written once. An edit under which a name would mean another value than
before is refused.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any, NamedTuple, TypeAlias

from minigraph import unique_name
from minigraph.errors import RewriteError, WrongTypeError
from minigraph.ir import Block, Operator, Program, Variable
from minigraph.ir.block_arguments import each_of
from minigraph.ir.dataflow import is_persistable
from minigraph.ir.operator import slot_names
from minigraph.ir.variable import name_of
from minigraph.opdef import EMPTY, SUB_BLOCK, definition_of
from minigraph.runtime.control_flow import call_of
from minigraph.support.undo import all_or_nothing
from minigraph.types import TensorType


class Value(NamedTuple):
    """One of the values that a name has one after the other.

    Attributes
    ----------
    name : str
        The name.
    number : int
        How often the name had been written until then when the `Values` were made, so 0 is the value from outside of
        the block. Values written by operators that were inserted since have higher numbers.
    """

    name: str
    number: int


@dataclass(frozen=True)
class Use:
    """One place where an operator reads a value.

    Attributes
    ----------
    op : Operator
        The reader.
    slot : str or None
        Its input slot; None if a sub-block reads the value by name, or if a result may keep it.
    index : int
        The place in the slot.
    """

    op: Operator
    slot: str | None
    index: int


Given: TypeAlias = "Value | Variable | str"
"""A value, or a name, which means the value that it has at the place of the edit."""
Slots: TypeAlias = "Mapping[str, Given | Sequence[Given]]"

_value = partial(tuple.__new__, Value)
_GAP = 1 << 20
"""Distance between the positions of neighbours, so that operators may be inserted between them."""


class Values:
    """Values that the operators of a block read and write.

    They are right after edits by the methods of this class, and after operators were removed and inputs replaced by
    others. The methods that edit notice other changes and look at the block anew.

    Parameters
    ----------
    block : Program or Block
        A program stands for its global block.

    Examples
    --------
    The name ``h`` means two values; only the first is scaled twice.

    >>> from minigraph import Program, rewrite
    >>> program = Program.parse('''
    ... block 0
    ...   data x: float32[2]
    ...   h: float32[2] = scale(X=x) {scale=2.0}
    ...   y: float32[2] = scale(X=h) {scale=3.0}
    ...   h = relu(X=y)
    ... ''')
    >>> program.roots = ("h",)
    >>> values = rewrite.Values(program)
    >>> first, second, _ = program.global_block().ops
    >>> values.input(second, "X"), values.is_used_once(values.input(second, "X"))
    (Value(name='h', number=1), True)
    >>> fused = values.replace_op(second, "scale", {"X": values.input(first, "X")}, attrs={"scale": 6.0})
    >>> values.erase(first)
    >>> print(program.global_block())
    block 0
      data x: float32[2]
      y: float32[2] = scale(X=x) {scale=6.0}
      h: float32[2] = relu(X=y)
    """

    def __init__(self, block: Program | Block) -> None:
        if not isinstance(block, Program | Block):
            raise WrongTypeError(
                f"Values are those of a Program or a Block, got {block!r:.60}",
                hint="Give program, or program.block(1).",
            )
        self.block = block if isinstance(block, Block) else block.global_block()
        self._fresh = itertools.count(_GAP)
        """Numbers of values that edits make."""
        self._build()

    def _build(self) -> None:
        """Look at all operators."""
        program = self.block.program
        self._roots = None if program.roots is None else frozenset(program.roots)
        self._taken: frozenset[str] | None = None
        self._types: dict[Value, TensorType | None] = {}
        """Types that were asked for; edits keep them."""
        self._version = program.version
        self.position: dict[Operator, int] = {}
        """Positions of operators, which say who comes first."""
        self.readers: defaultdict[Value, list[Operator]] = defaultdict(list)
        """Operators that read a value, in order, each once."""
        self.writer: dict[Value, Operator] = {}
        self._writes: dict[str, list[int]] = {}
        """Positions of the operators that write a name, in order."""
        self._numbers: dict[str, list[int]] = {}
        """Numbers of these values, where edits have made others than 1, 2, ..."""
        key: Any  # a tuple equals a `Value`, and is made faster
        for index, op in enumerate(self.block.ops[:]):
            self.position[op] = position = index * _GAP
            for name in op.input_arg_names:
                positions = self._writes.get(name)
                key = name, len(positions) if positions else 0
                readers = self.readers[key]
                if not readers or readers[-1] is not op:  # once, even if it reads the value in two slots
                    readers.append(op)
            for name in op.output_arg_names:
                positions = self._writes.setdefault(name, [])
                positions.append(position)
                key = name, len(positions)
                self.writer[key] = op

    def _refresh(self) -> None:
        """Look at the operators again if others have changed the program; values that are still there stay the same."""
        if self._version == self.block.program.version:
            return
        known = {(op, name): number for (name, number), op in self.writer.items()}
        self._build()
        for (name, _), op in self.writer.items():  # the values of a name in order
            self._numbers.setdefault(name, []).append(known.get((op, name)) or next(self._fresh))
        self.writer = {self._renumbered(value): op for value, op in self.writer.items()}
        found = {self._renumbered(value): ops for value, ops in self.readers.items()}
        self.readers = defaultdict(list, found)

    def _renumbered(self, value: Value) -> Value:
        name, number = value
        return _value((name, self._numbers[name][number - 1] if number else 0))

    # Questions

    def input(self, op: Operator, slot: str, index: int = 0) -> Value:
        """Return the value that `op` reads in an input slot."""
        try:
            return self.read(op.inputs[slot][index], op)
        except (KeyError, IndexError):
            raise _no_such_place(op, slot, index, op.input(slot)) from None

    def output(self, op: Operator, slot: str, index: int = 0) -> Value:
        """Return the value that `op` writes to an output slot."""
        try:
            return self.written(op.outputs[slot][index], op)
        except (KeyError, IndexError):
            raise _no_such_place(op, slot, index, op.output(slot)) from None

    def read(self, name: str, op: Operator) -> Value:
        """Return the value that `op` reads under this name."""
        # An operator reads before it writes, so its own write does not count.
        return self._reaching(name, self.position[op])

    def _reaching(self, name: str, position: float) -> Value:
        """Return the value that a name has at a position."""
        positions = self._writes.get(name)
        count = bisect_left(positions, position) if positions else 0
        return self._numbered(name, count)

    def _numbered(self, name: str, count: int) -> Value:
        """Return the value that a name has after so many writes."""
        numbers = self._numbers.get(name) if count else None
        return _value((name, numbers[count - 1] if numbers else count))

    def written(self, name: str, op: Operator) -> Value:
        """Return the value that `op` writes under this name."""
        return self._numbered(name, bisect_right(self._writes.get(name, ()), self.position[op]))

    def producer(self, value: Value, *types: str) -> Operator | None:
        """Return the operator that writes `value`, if it is of one of these types; None for a value from outside."""
        op = self.writer.get(value)
        return op if op is not None and (not types or op.type in types) else None

    def users(self, value: Value) -> list[Use]:
        """Return the places where operators read `value`, in order."""
        return [use for op in self.readers.get(value, ()) for use in _uses(op, value.name)]

    def is_there(self, value: Value, op: Operator) -> bool:
        """Whether the name of `value` means that value where `op` reads."""
        return self.read(value[0], op) == value

    def is_live_out(self, value: Value) -> bool:
        """Whether the value may be read outside of the block: the last of its name, which is fetched or persistable.

        In a program without `roots` any variable may be fetched. From a sub-block its operator takes results, states
        and what gradients read.
        """
        name = value[0]
        if value != self._reaching(name, inf):
            return False
        return is_persistable(self.block.find_var(name)) or self._is_taken(name)

    def _is_taken(self, name: str) -> bool:
        """Whether the last value of a name is fetched, or taken from a sub-block."""
        if self.block.idx == 0:
            return self._roots is None or name in self._roots
        if self._taken is None:
            parent = self.block.parent_block
            runs = [] if parent is None else [op for op in parent.ops if op.attrs.get(SUB_BLOCK) == self.block.idx]
            self._taken = frozenset(name for op in runs for name in call_of(op).taken)
        return name in self._taken or name not in self.block.vars

    def is_used_once(self, value: Value) -> bool:
        """Whether exactly one operator reads the value, and nothing outside of the block."""
        return len(self.readers[value]) == 1 and not self.is_live_out(value)

    def type_of(self, value: Value) -> TensorType | None:
        """Return the type of a value, None if it is not known; a name is declared with the type of its last value."""
        pending = [value]
        while pending:
            each = pending[-1]
            op = self.writer.get(each)
            if each in self._types:
                pending.pop()
            elif op is None or SUB_BLOCK in op.attrs or self._is_last(each.name, op):
                self._types[each] = self._declared_type(each.name)
            elif missing := [v for name in slot_names(op.inputs) if (v := self.read(name, op)) not in self._types]:
                pending += missing
            else:
                self._infer(op)
        return self._types[value]

    def _declared_type(self, name: str) -> TensorType | None:
        var = self.block.find_var(name)
        return None if var is None else var.tensor_type

    def _infer(self, op: Operator) -> None:
        """Note the types of what an operator writes, those of what it reads being known."""
        inputs = {
            slot: [None if name == EMPTY else self._types[self.read(name, op)] for name in names]
            for slot, names in op.inputs.items()
        }
        inferred = op.definition.infer_types(inputs, op.attrs)
        for slot, names in op.outputs.items():
            for name, tensor_type in zip(names, inferred[slot], strict=True):
                if name != EMPTY:
                    self._types[self.written(name, op)] = tensor_type

    def is_first(self, value: Value) -> bool:
        """Whether the name of a written value is neither written nor read before."""
        name = value[0]
        return value == self._numbered(name, 1) and not self.readers.get(_value((name, 0)))

    # Edits

    def insert(
        self,
        type: str,
        inputs: Slots,
        outputs: Mapping[str, Any] | None = None,
        attrs: Mapping[str, Any] | None = None,
        *,
        before: Operator | None = None,
        after: Operator | None = None,
    ) -> Operator:
        """Insert an operator with the role, the name scope and the source line of the one beside it.

        Parameters
        ----------
        inputs : mapping
            Slot to a value or a name, or several. A name means the value that it has there.
        outputs : mapping, optional
            Slot to a name, or several; new names if it is left out.
        before, after : Operator
            The operator beside it; give one of the two.

        Raises
        ------
        RewriteError
            If an input is not there any more or not yet, or if an output is a name whose value is still read.
        """
        anchor = before or after
        if anchor is None or (before is not None and after is not None):
            raise RewriteError(f"{type}: a place is before one operator, or after one", hint="Give before=op.")
        self._require(anchor)
        place = before if after is None else after._next
        given = self._fresh_outputs(type) if outputs is None else outputs
        names = self._names_at(place, type, inputs)
        for name in _each_name(given):
            self._require_free(name, place, type)
        return self._link(anchor, place, type, names, given, attrs or {}, ())

    def replace_op(
        self,
        op: Operator,
        type: str,
        inputs: Slots,
        outputs: Mapping[str, Any] | None = None,
        attrs: Mapping[str, Any] | None = None,
    ) -> Operator:
        """Put another operator in the place of `op`, with its role, its role_vars, its name scope and its source line.

        Parameters
        ----------
        outputs : mapping, optional
            Slot to a name, or several. Left out: what `op` writes in the slots of the same names, or in its only slot.
            What `op` writes and the new operator does not must be read by nobody.

        Raises
        ------
        RewriteError
            If an input is not there, a result that is read would get lost, or another name would change its value.
        """
        self._require(op)
        given = self._outputs_like(op, type) if outputs is None else outputs
        names = self._names_at(op, type, inputs)
        kept = set(_each_name(given))
        own = set(op.output_arg_names)
        for name in op.output_arg_names:
            if name not in kept:
                self._require_unused(name, op)
        for name in kept - own:
            self._require_free(name, op, type)
        return self._link(op, op, type, names, given, attrs or {}, own, replaced=op)

    def replace_use(self, use: Use, value: Value) -> None:
        """Let an operator read `value` in one place.

        Raises
        ------
        RewriteError
            If the name of `value` means another value there, or if a sub-block reads the old one by name.
        """
        self._require(use.op)
        self._require_replaceable(use, value)
        self._set_input(use, value)

    def replace_all_uses(self, old: Value, new: Value) -> None:
        """Let all operators that read `old` read `new`, but for the one that makes `new`.

        A value that is fetched or persistable keeps its name.

        Raises
        ------
        RewriteError
            If one of them cannot; then none is changed.
        """
        self._refresh()
        maker = self.writer.get(new)
        uses = [use for use in self.users(old) if use.op is not maker]
        for use in uses:
            self._require_replaceable(use, new)
        for use in uses:
            self._set_input(use, new)

    def erase(self, op: Operator) -> None:
        """Remove an operator whose results nobody reads.

        Raises
        ------
        RewriteError
            If an operator reads one, or if it may be fetched or is persistable.
        """
        self._require(op)
        for name in op.output_arg_names:
            self._require_unused(name, op)
        last = [name for name in op.output_arg_names if self._is_last(name, op)]
        self._forget(op)
        self.block.remove(op)
        for name in last:
            if name in self._writes:  # an earlier value is the last one now
                self.block.vars[name].tensor_type = self.type_of(self._reaching(name, inf))
        self._version = self.block.program.version

    # Checks

    def _require(self, op: Operator) -> None:
        if not isinstance(op, Operator):
            raise WrongTypeError(f"an edit takes an Operator, got {op!r:.60}", hint="Give one of block.ops.")
        self._refresh()
        if op not in self.position:
            raise RewriteError(
                f"{op.type} is no operator of block {self.block.idx}, or was removed from it", site=op.site,
                hint="Give one of block.ops.",
            )  # fmt: skip

    def _names_at(self, place: Operator | None, type: str, inputs: Slots) -> dict[str, list[str]]:
        """Return names that mean the given values in front of `place`."""
        names = {}
        for slot, given in inputs.items():
            # A value is a tuple, and yet one.
            several = (given,) if isinstance(given, Value) else each_of(given)
            for each in several:
                if isinstance(each, Value):
                    self._require_there(each, place, f"{type} cannot read {each.name} in {slot}")
            names[slot] = [each.name if isinstance(each, Value) else name_of(each) for each in several]
        return names

    def _place(self, op: Operator | None) -> float:
        """Return the position of an operator; None is the end of the block."""
        return inf if op is None else self.position[op]

    def _require_there(self, value: Value, place: Operator | None, refusal: str) -> None:
        found = self._reaching(value.name, self._place(place))
        if found == value:
            return
        writer, maker = self.writer.get(found), self.writer.get(value)
        if value.number and maker is None:
            reason = "the operator that makes the value is gone"
        elif writer is None or (maker is not None and self.position[writer] < self.position[maker]):
            reason = "the value is made later"
        else:
            reason = "the name has been written again, and means another value there"
        raise RewriteError(
            f"{refusal}: {reason}",
            details=[*([f"made by {maker}"] if maker else []), *([f"written by {writer}"] if writer else [])],
            site=None if place is None else place.site,
            hint=f"Keep the value under a name of its own: insert an assign of {value.name} where it is there.",
        )

    def _require_free(self, name: str, place: Operator | None, type: str) -> None:
        """Raise unless an operator may write `name` in front of `place`: nothing that reads it then changes."""
        if name == EMPTY or (name not in self._writes and self.block.find_var(name) is None):
            return
        start = self._place(place)
        old = self._reaching(name, start)
        later = [op for op in self.readers.get(old, ()) if self.position[op] >= start]
        if later:
            who = f"{later[0].type} still reads its value"
        elif self.is_live_out(old) and not is_persistable(self.block.find_var(name)):
            who = "its value may be fetched, or is taken from the block"
        else:
            return
        raise RewriteError(
            f"{type} cannot write {name}: {who}", details=[f"read by {op}" for op in later],
            site=None if place is None else place.site,
            hint="Leave outputs out for new names, then replace the uses that are to read the result.",
        )  # fmt: skip

    def _require_unused(self, name: str, op: Operator) -> None:
        value = self.written(name, op)
        readers = self.readers.get(value, ())
        if readers:
            raise RewriteError(
                f"{op.type} cannot go: {readers[0].type} reads {name}", details=[f"read by {each}" for each in readers],
                site=op.site, hint="Replace the uses of its results first: values.replace_all_uses(old, new).",
            )  # fmt: skip
        if self.is_live_out(value):
            var = self.block.find_var(name)
            why = "is persistable" if is_persistable(var) else "may be fetched, or is taken from the block"
            is_open = self._roots is None and self.block.idx == 0 and not is_persistable(var)
            raise RewriteError(
                f"{op.type} cannot go: {name} {why}", details=[str(op)], site=op.site,
                hint="Set program.roots to the names that are fetched." if is_open else
                "Keep the operator, or put one in its place that writes the name: values.replace_op.",
            )  # fmt: skip

    def _require_replaceable(self, use: Use, value: Value) -> None:
        op, slot, index = use.op, use.slot, use.index
        if slot is None or SUB_BLOCK in op.attrs:
            raise RewriteError(
                f"{op.type} reads the value by name, in its sub-block or because a result may keep it", site=op.site,
                details=[str(op)], hint="Leave operators with a sub-block as they are.",
            )  # fmt: skip
        if index >= len(op.inputs.get(slot, ())):
            raise _no_such_place(op, slot, index, op.input(slot))
        self._require_there(value, op, f"{op.type} cannot read {value.name} in {slot}")
        old, new = self.type_of(self.read(op.inputs[slot][index], op)), self.type_of(value)
        if old is not None and new is not None and not old.fits(new):
            raise RewriteError(
                f"{op.type} cannot read {value.name} in {slot}: it is {new}, but the value there is {old}",
                site=op.site, details=[str(op)], hint="Put another operator in its place: values.replace_op.",
            )  # fmt: skip

    # Changes of the program and of the tables

    def _link(
        self, anchor: Operator, place: Operator | None, type: str, inputs: Any, outputs: Any,
        attrs: Mapping[str, Any], own: Iterable[str], replaced: Operator | None = None,
    ) -> Operator:  # fmt: skip
        """Link an operator in, before `place`; it writes the `own` values of the operator that it replaces."""
        fields = {"op_role": anchor.role, "op_namescope": anchor.namescope}
        fields["op_role_var"] = () if replaced is None else replaced.role_vars
        numbers = {name: self.written(name, replaced).number for name in own} if replaced is not None else {}
        results = {
            name: self.type_of(Value(name, numbers[name])) if name in numbers else self._declared_type(name)
            for name in _each_name(outputs)
        }
        read = {name: self.type_of(self._reaching(name, self._place(place))) for name in _each_name(inputs)}
        with all_or_nothing(), self._declared({**results, **read}):
            op = self.block.insert(place, type, inputs, outputs, {**fields, **attrs})
            op.site = anchor.site
            require_same_types(op, results)
            if replaced is not None:
                self.block.remove(replaced)
        if replaced is None:
            position = self._make_room(op)
        else:
            position = self.position[replaced]
            self._forget(replaced)
        self.position[op] = position
        for name in op.output_arg_names:
            self._note_write(op, name, numbers.get(name) or next(self._fresh))
        self._note_reads(op)
        self._version = self.block.program.version
        return op

    @contextmanager
    def _declared(self, types: Mapping[str, TensorType | None]) -> Iterator[None]:
        """Inside, known variables are declared with other types; outside, with those of their last values."""
        known = [(var, var.tensor_type) for name in types if (var := self.block.find_var(name)) is not None]
        try:
            for var, _ in known:
                var.tensor_type = types[var.name]
            yield
        finally:
            for var, last in known:
                var.tensor_type = last or var.tensor_type

    def _make_room(self, op: Operator) -> int:
        """Return a position for an operator that has been linked in."""
        before, after = op._prev, op._next
        if after is None:
            return _GAP if before is None else self.position[before] + _GAP
        start = -2 * _GAP if before is None else self.position[before]
        position = (start + self.position[after]) // 2
        if position > start:
            return position
        moved = {self.position[each]: i * _GAP for i, each in enumerate(self.block.ops[:]) if each is not op}
        self.position = {each: moved[old] for each, old in self.position.items()}
        self._writes = {name: [moved[old] for old in positions] for name, positions in self._writes.items()}
        return self._make_room(op)

    def _note_write(self, op: Operator, name: str, number: int) -> None:
        position = self.position[op]
        positions = self._writes.setdefault(name, [])
        numbers = self._numbers.setdefault(name, list(range(1, len(positions) + 1)))
        index = bisect_right(positions, position)
        positions.insert(index, position)
        numbers.insert(index, number)
        self.writer[_value((name, number))] = op

    def _note_reads(self, op: Operator) -> None:
        for name in dict.fromkeys(op.input_arg_names):
            insort(self.readers[self.read(name, op)], op, key=self.position.__getitem__)

    def _forget_reads(self, op: Operator) -> None:
        for name in dict.fromkeys(op.input_arg_names):
            readers = self.readers[self.read(name, op)]
            del readers[bisect_left(readers, self.position[op], key=self.position.__getitem__)]

    def _forget(self, op: Operator) -> None:
        """Take an operator out of the tables."""
        self._forget_reads(op)
        position = self.position[op]
        for name in op.output_arg_names:
            positions = self._writes[name]
            numbers = self._numbers.setdefault(name, list(range(1, len(positions) + 1)))
            index = bisect_right(positions, position) - 1
            del self.writer[_value((name, numbers[index]))], positions[index], numbers[index]
            if not positions:
                del self._writes[name]
        del self.position[op]

    def _set_input(self, use: Use, value: Value) -> None:
        op, slot, index = use.op, use.slot, use.index
        assert slot is not None
        self._forget_reads(op)
        names = list(op.inputs[slot])
        names[index] = value.name
        op.set_input(slot, names)
        self._note_reads(op)
        self._version = self.block.program.version

    def _is_last(self, name: str, op: Operator) -> bool:
        """Whether `op` is the last that writes a name."""
        positions = self._writes.get(name)
        return positions is not None and positions[-1] == self.position[op]

    # Names of results

    def _fresh_outputs(self, type: str, slots: Iterable[str] | None = None) -> dict[str, Any]:
        """Return new names for the results of an operator."""
        definition, layer = definition_of(type), unique_name.generate(type)
        found = {}
        for slot in definition.outputs:
            if slot.dispensable or (slots is not None and slot.name not in slots):
                continue
            if slot.duplicable:
                raise RewriteError(
                    f"{type}: how many variables {slot.name} has is not known",
                    hint=f"Give outputs={{'{slot.name}': [...]}}.",
                )
            found[slot.name] = self.block.free_name(f"{layer}.tmp")
        return found

    def _outputs_like(self, op: Operator, type: str) -> dict[str, Any]:
        """Return the names that `op` writes, for an operator of another type."""
        slots = definition_of(type).output_slots
        found = {slot: names for slot, names in op.outputs.items() if slot in slots}
        if not found:
            own = [names for slot, names in op.outputs.items() if not op.definition.output_slots[slot].intermediate]
            main = [slot.name for slot in slots.values() if not slot.intermediate and not slot.dispensable]
            if len(own) == len(main) == 1:
                found[main[0]] = own[0]
        missing = [slot for slot in slots if slot not in found]
        return {**found, **(self._fresh_outputs(type, missing) if missing else {})}


def _uses(op: Operator, name: str) -> Iterator[Use]:
    """Yield the places where `op` reads a name; one without a slot if it stands in none."""
    places = [
        Use(op, slot, index) for slot, names in op.inputs.items() for index, each in enumerate(names) if each == name
    ]
    yield from places or [Use(op, None, 0)]


def _each_name(slots: Mapping[str, Any]) -> list[str]:
    """The names in slots as they are given to an operator."""
    names = {slot: tuple(map(name_of, each_of(given))) for slot, given in slots.items()}
    return slot_names(names)


def require_same_types(op: Operator, types: Mapping[str, TensorType | None]) -> None:
    """Raise if variables no longer have these types, which those that read them expect."""
    for name, old in types.items():
        var = op.block.find_var(name)
        new = None if var is None else var.tensor_type
        if old is not None and new is not None and not old.fits(new):
            raise RewriteError(
                f"{op.type} makes {name} {new}, but those that read it expect {old}", site=op.site, details=[str(op)],
                hint="Insert the operator with a new name for the result, then replace the uses that may read it.",
            )  # fmt: skip


def _no_such_place(op: Operator, slot: str, index: int, names: Sequence[str]) -> RewriteError:
    held = f"holds {', '.join(names)}" if names else "is left out"
    return RewriteError(
        f"{op.type}: there is nothing at place {index} of {slot}, which {held}", site=op.site, details=[str(op)],
        hint="Look at op.inputs and op.outputs first.",
    )  # fmt: skip
