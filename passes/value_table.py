"""Values of the names of a block, and the operators that write and read them.

A name may be written several times, a value is written once.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from math import inf
from typing import Any, NamedTuple

from minigraph.errors import RewriteError, WrongTypeError
from minigraph.ir import Block, Operator, Program
from minigraph.ir.dataflow import is_persistable
from minigraph.ir.operator import slot_names
from minigraph.ir.role import Role
from minigraph.opdef import DECLARED, EMPTY, SUB_BLOCK
from minigraph.runtime.control_flow import call_of
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


class Edit(NamedTuple):
    """Operators that took the place of others."""

    old: Sequence[Operator]
    new: Sequence[Operator]
    places: Sequence[Operator | None]
    """The operators before which the new ones stand; None is the end of the block."""
    numbers: dict[str, int]
    """Names that the new ones write, with the numbers of the values that the old ones wrote."""


_TRAINING = Role.BACKWARD | Role.OPTIMIZE
_value = partial(tuple.__new__, Value)
_GAP = 1 << 20
"""Distance between the positions of neighbours, so that operators may be inserted between them."""


class ValueTable:
    """Writers and readers of the values of a block.

    Parameters
    ----------
    types : iterable of str, optional
        Look only at names that operators of these types use until somebody asks for another one.
    """

    def __init__(self, block: Program | Block, types: Iterable[str] | None = None) -> None:
        if not isinstance(block, Program | Block):
            raise WrongTypeError(
                f"Values are those of a Program or a Block, got {block!r:.60}",
                hint="Give program, or program.block(1).",
            )
        self.block = block if isinstance(block, Block) else block.global_block()
        self._fresh = itertools.count(_GAP)
        """Numbers of values that edits make."""
        self._build(types)

    def _build(self, types: Iterable[str] | None = None) -> None:
        """Look at all operators."""
        self._edit: Edit | None = None
        """The last edit, as long as the tables do not show it."""
        self._roots: tuple[str, ...] | None = None
        self._fetched: frozenset[str] = frozenset()
        """The names in `_roots`, which are those of the program when they were last asked for."""
        self._taken: frozenset[str] | None = None
        """Names that the operator of a sub-block takes from it, once they are asked for."""
        self._types: dict[Value, TensorType | None] = {}
        """Types that were asked for; edits keep them."""
        self._version = self.block.program.version
        self.readers: defaultdict[Value, list[Operator]] = defaultdict(list)
        """Operators that read a value, in order, each once."""
        self.writer: dict[Value, Operator] = {}
        self._writes: dict[str, list[int]] = {}
        """Positions of the operators that write a name, in order."""
        self._numbers: dict[str, list[int]] = {}
        """Numbers of these values, where edits have made others than 1, 2, ..."""
        ops = self.block.ops[:]
        self.position = dict(zip(ops, range(0, len(ops) * _GAP, _GAP), strict=True))
        """Positions of operators, which say who comes first."""
        self._known: set[str] | None = None
        """Names that the tables are about; None if they are about all."""
        near = [op for type in dict.fromkeys(types or ()) for op in self.block.ops.of_type(type)]
        if types is not None and 4 * len(near) < len(ops):  # else leaving names out takes longer than they do
            self._known = {name for op in near for name in (*op.input_arg_names, *op.output_arg_names)}
            ops = [op for op in ops if not _is_apart(op, self._known)]
        self._note_all(ops)

    def _note_all(self, ops: Iterable[Operator]) -> None:
        """Note what operators read and write, in order."""
        readers_of: Any = self.readers  # a tuple equals a `Value`, and is made faster
        writer: Any = self.writer
        known, positions_of = self._known, self._writes
        for op in ops:
            position, has_hidden = self.position[op], op.definition.has_hidden_names
            reads: Iterable[str] = op.input_arg_names if has_hidden else chain.from_iterable(op.inputs.values())
            writes: Iterable[str] = op.output_arg_names if has_hidden else chain.from_iterable(op.outputs.values())
            if known is not None:
                reads, writes = [name for name in reads if name in known], [name for name in writes if name in known]
            for name in reads:
                positions = positions_of.get(name)
                readers = readers_of[name, len(positions) if positions else 0]
                if not readers or readers[-1] is not op:  # once, even if it reads the value in two slots
                    readers.append(op)
            for name in writes:
                positions = positions_of.setdefault(name, [])
                positions.append(position)
                writer[name, len(positions)] = op
        for number in range(len(positions_of.pop(EMPTY, ())) + 1):  # it stands for no value
            readers_of.pop((EMPTY, number), None)
            writer.pop((EMPTY, number), None)

    def _refresh(self) -> None:
        """Look at the operators again if others have changed the program; values that are still there stay the same."""
        if self._edit is not None and self._version == self.block.program.version:
            self._follow(self._edit)
        self._edit = None
        if self._version != self.block.program.version:
            self._look_again()

    def _look_again(self) -> None:
        known = {(op, name): number for (name, number), op in self.writer.items()}
        self._build()
        for (name, _), op in self.writer.items():  # the values of a name in order
            self._numbers.setdefault(name, []).append(known.get((op, name)) or next(self._fresh))
        self.writer = {self._renumbered(value): op for value, op in self.writer.items()}
        found = {self._renumbered(value): ops for value, ops in self.readers.items()}
        self.readers = defaultdict(list, found)

    def _look_at(self, op: Operator) -> None:
        """Look at all operators unless the tables are about every name that `op` uses."""
        if self._known is not None and not self._known.issuperset([*op.input_arg_names, *op.output_arg_names]):
            self._look_again()

    def _renumbered(self, value: Value) -> Value:
        name, number = value
        return _value((name, self._numbers[name][number - 1] if number else 0))

    # Questions

    def input(self, op: Operator, slot: str, index: int = 0) -> Value:
        """Return the value that `op` reads in an input slot."""
        try:
            return self.read(op.inputs[slot][index], op)
        except (KeyError, IndexError):
            raise self._no_such_place(op, slot, index, op.input(slot)) from None

    def output(self, op: Operator, slot: str, index: int = 0) -> Value:
        """Return the value that `op` writes to an output slot."""
        try:
            return self.written(op.outputs[slot][index], op)
        except (KeyError, IndexError):
            raise self._no_such_place(op, slot, index, op.output(slot)) from None

    def read(self, name: str, op: Operator) -> Value:
        """Return the value that `op` reads under this name."""
        # An operator reads before it writes, so its own write does not count.
        positions = self._writes.get(name) or self._written_at(name)
        count = bisect_left(positions, self.position[op]) if positions else 0
        return self._numbered(name, count) if self._numbers else _value((name, count))

    def _reaching(self, name: str, position: float) -> Value:
        """Return the value that a name has at a position."""
        positions = self._written_at(name)
        return self._numbered(name, bisect_left(positions, position) if positions else 0)

    def _written_at(self, name: str) -> Sequence[int]:
        """Return the positions of the operators that write a name."""
        positions = self._writes.get(name, ())
        if not positions and self._known is not None and name not in self._known:
            self._look_again()
            positions = self._writes.get(name, ())
        return positions

    def _numbered(self, name: str, count: int) -> Value:
        """Return the value that a name has after so many writes."""
        numbers = self._numbers.get(name)
        return _value((name, numbers[count - 1] if numbers and count else count))

    def written(self, name: str, op: Operator) -> Value:
        """Return the value that `op` writes under this name."""
        positions = self._writes.get(name) or self._written_at(name)
        count = bisect_right(positions, self.position[op])
        return self._numbered(name, count) if self._numbers else _value((name, count))

    def producer(self, value: Value, *types: str) -> Operator | None:
        """Return the operator that writes `value`, if it is of one of these types; None for a value from outside."""
        op = self.writer.get(value)
        return op if op is not None and (not types or op.type in types) else None

    def users(self, value: Value) -> list[Use]:
        """Return the places where operators read `value`, in order."""
        return [use for op in self.readers.get(value, ()) for use in _uses(op, value[0])]

    def is_there(self, value: Value, op: Operator) -> bool:
        """Whether the name of `value` means that value where `op` reads."""
        return self.read(value[0], op) == value

    def lasts_until(self, value: Value) -> float:
        """Position of the operator that writes the name of `value` again, which may still read it; infinite if none."""
        positions, op = self._written_at(value[0]), self.writer.get(value)
        index = 0 if op is None else bisect_right(positions, self.position[op])
        return positions[index] if index < len(positions) else inf

    def is_live_out(self, value: Value) -> bool:
        """Whether the value may be read outside of the block: the last of its name, which is fetched or persistable.

        In a program without `roots` any variable may be fetched. From a sub-block its operator takes results, states
        and what gradients read. The last value that a clone for a test computes counts, too.
        """
        name = value[0]
        is_read = self._is_taken(name) or is_persistable(self.block.find_var(name))
        return is_read and (value == self._reaching(name, inf) or self._is_last_of_test(value))

    def _is_last_of_test(self, value: Value) -> bool:
        """Whether only gradients and updates, which a clone for a test leaves out, write the name afterwards."""
        op = self.writer.get(value)
        if op is None or op.role & _TRAINING:
            return False
        name, numbers = value[0], range(1, len(self._written_at(value[0])) + 1)
        writers = [self.writer[self._numbered(name, number)] for number in numbers]
        return all([each.role & _TRAINING for each in writers[writers.index(op) + 1 :]])

    def _is_taken(self, name: str) -> bool:
        """Whether the last value of a name is fetched, or taken from a sub-block."""
        if self.block.idx == 0:
            roots = self.block.program.roots
            if roots is not self._roots:
                self._roots, self._fetched = roots, frozenset(roots or ())
            return roots is None or name in self._fetched
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
        if value in self._types:
            return self._types[value]
        if self._has_declared_type(value):
            return self._declared_type(value[0])
        pending = [value]
        while pending:
            each = pending[-1]
            op = self.writer.get(each)
            if each in self._types:
                pending.pop()
            elif op is None or self._has_declared_type(each):
                self._types[each] = self._declared_type(each[0])
            elif missing := [v for name in slot_names(op.inputs) if (v := self.read(name, op)) not in self._types]:
                pending += missing
            else:
                self._infer(op)
        return self._types[value]

    def _has_declared_type(self, value: Value) -> bool:
        """Whether the type of a value is that with which its name is declared; its operators tell the others."""
        op = self.writer.get(value)
        return op is None or self.block.program.is_concrete or SUB_BLOCK in op.attrs or self._is_last(value[0], op)

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
            found = map(self._declared_type, names) if inferred[slot] is DECLARED else inferred[slot]
            for name, tensor_type in zip(names, found, strict=True):
                if name != EMPTY:
                    self._types[self.written(name, op)] = tensor_type

    def is_first(self, value: Value) -> bool:
        """Whether the name of a written value is neither written nor read before."""
        name = value[0]
        return value == self._numbered(name, 1) and not self.readers.get(_value((name, 0)))

    def is_only(self, value: Value) -> bool:
        """Whether the name of a written value has no other value."""
        return self.is_first(value) and len(self._written_at(value.name)) == 1

    def _place(self, op: Operator | None) -> float:
        """Return the position of an operator; None is the end of the block."""
        return inf if op is None else self.position[op]

    def _is_last(self, name: str, op: Operator) -> bool:
        """Whether `op` is the last that writes a name."""
        positions = self._writes.get(name)
        return positions is not None and positions[-1] == self.position[op]

    def _no_such_place(self, op: Operator, slot: str, index: int, names: Sequence[str]) -> RewriteError:
        if op not in self.position:
            return self._not_in_block(op)
        held = f"holds {', '.join(names)}" if names else "is left out"
        return RewriteError(
            f"{op.type}: there is nothing at place {index} of {slot}, which {held}", site=op.site, details=[str(op)],
            hint="Look at op.inputs and op.outputs first.",
        )  # fmt: skip

    def _not_in_block(self, op: Operator) -> RewriteError:
        return RewriteError(
            f"{op.type} is no operator of block {self.block.idx}, or was removed from it", site=op.site,
            hint="Give one of block.ops.",
        )  # fmt: skip

    # Changes, by which the table stays right

    def _follow(self, edit: Edit) -> None:
        """Bring the tables up to date."""
        if len(edit.old) == len(edit.new) == 1 and self._stands_in(*edit.old, *edit.new):
            return
        # Readers first, because what an operator reads is found by who has written it.
        for op in sorted(edit.old, key=self.position.__getitem__, reverse=True) if edit.old[1:] else edit.old:
            self._forget(op)
        for op, place in zip(edit.new, edit.places, strict=True):
            self.position[op] = self._make_room(op, place)
            for name in op.output_arg_names:
                self._note_write(op, name, edit.numbers.get(name) or next(self._fresh))
            self._note_reads(op)

    def _stands_in(self, old: Operator, new: Operator) -> bool:
        """Give an operator the place of one that wrote the same names, and has gone; False if it has another one."""
        made = old.output_arg_names
        if old._next is not new._next or old._prev is not new._prev or made != new.output_arg_names:
            return False
        self._forget_reads(old)
        position = self.position[new] = self.position.pop(old)
        for name in made:
            self.writer[self._numbered(name, bisect_right(self._writes[name], position))] = new
        self._note_reads(new)
        return True

    def _make_room(self, op: Operator, after: Operator | None) -> int:
        """Return a position for an operator that has been linked in before `after`."""
        before = op._prev
        if after is None:
            return _GAP if before is None else self.position[before] + _GAP
        start = -2 * _GAP if before is None else self.position[before]
        position = (start + self.position[after]) // 2
        if position > start:
            return position
        known = [each for each in self.block.ops[:] if each in self.position]
        moved = {self.position[each]: i * _GAP for i, each in enumerate(known)}
        self.position = {each: moved[old] for each, old in self.position.items()}
        self._writes = {name: [moved[old] for old in positions] for name, positions in self._writes.items()}
        return self._make_room(op, after)

    def _note_write(self, op: Operator, name: str, number: int) -> None:
        position = self.position[op]
        if self._known is not None:
            self._known.add(name)  # nothing else uses a new name
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
            # Most values have one reader.
            del readers[bisect_left(readers, self.position[op], key=self.position.__getitem__) if readers[1:] else 0]

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


def _is_apart(op: Operator, names: set[str]) -> bool:
    """Whether an operator reads and writes none of these names."""
    if op.definition.has_hidden_names:
        return names.isdisjoint(op.input_arg_names) and names.isdisjoint(op.output_arg_names)
    for used in (*op.inputs.values(), *op.outputs.values()):  # noqa: SIM110 - all() takes twice as long
        if not names.isdisjoint(used):
            return False
    return True


def _uses(op: Operator, name: str) -> Iterator[Use]:
    """Yield the places where `op` reads a name; one without a slot if it stands in none."""
    places = [
        Use(op, slot, index) for slot, names in op.inputs.items() for index, each in enumerate(names) if each == name
    ]
    yield from places or [Use(op, None, 0)]
