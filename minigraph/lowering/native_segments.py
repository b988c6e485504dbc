"""Native segments: instructions in a row that one table of C calls does, with no Python between them.

A table has memory for values that only its own steps read. Other values lie in arrays: the plan hands over those that
exist, and makes new ones before the call. A call ends early where an array is not as the table expects it, or where a
label is no class. All that the segment reads is whole then, and the plan makes the ordinary calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from minigraph.kernels import Kernel
from minigraph.kernels.jit.call_table import CallTable, Memory
from minigraph.kernels.jit.draws import drawing
from minigraph.kernels.jit.functions import IS_KNOWN
from minigraph.kernels.jit.recorders import MOST_ELEMENTS, MOST_VIEWED, record
from minigraph.kernels.jit.recording import STATUS, Recording, Symbol
from minigraph.kernels.registry import LOOP
from minigraph.lowering.instructions import (
    DROPPED,
    FIRST_VALUE,
    NOTHING,
    RNG,
    XP,
    Instruction,
    Instructions,
    Operand,
)
from minigraph.lowering.memory_plan import BufferPlan
from minigraph.lowering.steps import Value
from minigraph.runtime.kernel_call import keywords_of
from minigraph.types import product


class ArrayKind(NamedTuple):
    """Properties that a segment expects of an array."""

    shape: tuple[int, ...]
    dtype: np.dtype
    is_transposed: bool = False
    """Whether a matrix lies in memory column by column."""


Recorded: TypeAlias = "tuple[Recording, list[Any]]"
"""A recording and the symbols of its results."""

_MOST_WORK = 32_768
"""Maximum elements that the calls of a step go through: beyond, the step's other loops are as quick or quicker.

A step of many calls may have `MOST_ELEMENTS` for each of them.
"""

_LEAST_STEPS = 2
"""Minimum steps of a segment."""


@dataclass(eq=False)
class Segment:
    """Instructions from number `start` to before `end`.

    Attributes
    ----------
    call : callable
        Make the calls on a tuple of arrays; returns 0, or another number where the ordinary calls have to be made.
    arrays : list of int
        Registers of the arrays.
    new : dict
        Types of the arrays that are made before the call, by register.
    same : dict
        Registers that get the array of another register.
    inner : set of int
        Registers that have a value only if the ordinary calls are made.
    """

    start: int
    end: int
    call: Callable[[tuple[Any, ...]], int] | None = None
    arrays: list[int] = field(default_factory=list)
    new: dict[int, ArrayKind] = field(default_factory=dict)
    same: dict[int, int] = field(default_factory=dict)
    inner: set[int] = field(default_factory=set)


def form_segments(instructions: Instructions, buffers: BufferPlan) -> list[Segment]:
    """Find the segments of a plan, in order."""
    return _Former(instructions, buffers).segments() if IS_KNOWN else []


class _Former:
    def __init__(self, instructions: Instructions, buffers: BufferPlan) -> None:
        self._rows = instructions.rows
        self._values = instructions.values
        self._root = buffers.storage.root
        self._buffers = [ArrayKind(shape, dtype) for _, dtype, shape in buffers.layout.places]
        spares = [value.tensor_type for value in buffers.outputs.to_scope]
        self._buffers += [ArrayKind(spare.shape, spare.dtype.numpy) for spare in spares]
        self._transposed: set[int] = set()
        """Registers of matrices that lie column by column."""
        self._recordings: dict[Any, Recorded | None] = {}
        self._last_read = {
            register: number for number, row in enumerate(self._rows) for register in _registers_read(row)
        }
        self._last_read.update(dict.fromkeys((*instructions.fetches, *instructions.new_state), len(self._rows)))

    def segments(self) -> list[Segment]:
        found: list[Segment] = []
        start = 0
        known = [self._recording(row) for row in self._rows]
        for number in range(len(self._rows) + 1):
            rows = self._rows[start:number]
            is_native = number < len(known) and (known[number] is not None or self._rows[number].function is None)
            # The ordinary calls after a label that is no class start with the segment: they read what it has read, and
            # draw what it has drawn.
            if is_native and not (_may_end_early(known[number]) and any(map(_has_effects, rows))):
                continue
            if sum(map(_work, rows, known[start:number])) >= _LEAST_STEPS:
                segment = Segment(start, number)
                found.append(_Binder(self, segment).bound(rows, known[start:number]))
            start = number if is_native else number + 1
        return found

    def type_of(self, register: int) -> ArrayKind:
        """The type of the array in a register."""
        if register == RNG:  # the address of the generator
            return ArrayKind((1,), np.dtype(np.int64))
        if register < 0:
            return self._buffers[-1 - register]
        found = self._values[register - FIRST_VALUE].tensor_type
        return ArrayKind(found.shape, found.dtype.numpy, register in self._transposed)

    def is_read_from(self, register: int, number: int) -> bool:
        """Whether an instruction from `number` on, or the end of a run, needs the register."""
        return self._last_read.get(register, -1) >= number

    def _recording(self, row: Instruction) -> Recorded | None:
        """Record what the instruction computes; None if it stays an ordinary call."""
        step = row.step
        if row.function is None or step.call is not None or not step.has_known_sizes:
            return None
        types = [
            _mapped(lambda i: None if i == NOTHING else self.type_of(i), each) for each in row.arguments if each != XP
        ]
        attrs = keywords_of(step.op, step.kernel)
        key = step.op.type, row.function.kind, id(step.kernel), repr(attrs), repr(types)
        if key not in self._recordings:
            # A recording has no call for the effects of an operator beside its results.
            kernel = None if step.op.definition.has_hidden_names else step.kernel
            self._recordings[key] = _recorded(step.op.type, row.function.kind, kernel, types, attrs)
        found = self._recordings[key]
        sources = list(map(self._source, _arguments(row)))
        if found and any(sources[i : i + 1] == sources[j : j + 1] for i, j in found[0].distinct):
            return None
        if found and not self._fits(row, found[1]):
            return None
        if found and step.kernel.view_of is None and not self._can_be_in_place(row, *found):
            return None
        for result, target in zip(found[1], _by_slot(row.target, len(found[1])), strict=True) if found else ():
            if isinstance(result, Symbol) and result.is_transposed and isinstance(target, int):
                self._transposed.add(target)
        return found

    def _fits(self, row: Instruction, results: Sequence[Any]) -> bool:
        """Whether the results have the sizes and dtypes of the registers that they go to: tables check no bounds."""
        for symbol, register in _with_registers(row, results):
            shape, dtype, _ = self.type_of(register)
            if symbol.size != product(shape) or symbol.dtype != dtype:
                return False
        return True

    def _can_be_in_place(self, row: Instruction, recording: Recording, results: Sequence[Any]) -> bool:
        """Whether each result that is an input goes to the memory of that input, or can be copied there first."""
        arguments, seen = _arguments(row), set[int]()
        outs = _by_slot(row.keywords.get("out") if row.keywords else None, len(results))
        targets = _by_slot(row.target, len(results))
        for slot in zip(results, outs, targets, strict=True):
            for symbol, out, _ in _each(*slot):
                number = symbol.value.memory
                if number >= len(arguments) or arguments[number] == out:
                    continue
                # Memory that is given may be that of an input which is read later, and long arrays have quicker loops.
                is_short = recording.is_whole(symbol) and 0 < symbol.size <= MOST_VIEWED
                if out is not None or number in seen or not is_short:
                    return False
                seen.add(number)
        return True

    def _source(self, register: int) -> Any:
        """The memory that a register may share: a caller may feed one array by several names."""
        value = self._values[register - FIRST_VALUE] if register >= FIRST_VALUE else register
        root = self._root(value) if isinstance(value, Value) else value
        return "feed" if isinstance(root, Value) and root.origin == "feed" else root


def _with_registers(row: Instruction, results: Sequence[Any]) -> Iterator[tuple[Symbol, int]]:
    """The symbols of results that somebody wants, each with the register of its memory, or else of its value."""
    outs = _by_slot(row.keywords.get("out") if row.keywords else None, len(results))
    for slot in zip(results, outs, _by_slot(row.target, len(results)), strict=True):
        for symbol, out, target in _each(*slot):
            register = target if out is None else out
            assert register is not None
            yield symbol, register


def _may_end_early(recorded: Recorded | None) -> bool:
    """Whether a call looks at numbers that may be wrong, such as labels, and then ends the walk."""
    return recorded is not None and any(call.own == STATUS for call in recorded[0].calls)


def _has_effects(row: Instruction) -> bool:
    """Whether an instruction draws random numbers, or writes to arrays that exist before the segment.

    Those an earlier instruction may have read.
    """
    return bool(row.copies) or not {"out", "rng"}.isdisjoint(row.keywords or ())


def _work(row: Instruction, recorded: Recorded | None) -> int:
    """Number of steps that an instruction counts for: each function of C that it calls saves a call from Python."""
    if row.function is None or recorded is None:
        return len(row.copies)
    functions = {call.function for call in recorded[0].calls}
    return len(row.copies) + max(len(functions), _LEAST_STEPS if row.function.kind == LOOP else 1)


def _recorded(
    type: str, kind: str, kernel: Kernel | None, types: Sequence[Any], attrs: dict[str, Any]
) -> Recorded | None:
    found = record(type, kind, kernel, types, attrs)
    return None if found is None or found[0].work > max(_MOST_WORK, MOST_ELEMENTS * len(found[0].calls)) else found


@dataclass(eq=False)
class _Home:
    """Memory of one or more registers."""

    memory: Memory
    size: int
    """Bytes."""
    registers: int = 0
    """Number of registers that still need it."""


class _Binder:
    """Places of the operands of a segment's calls in memory."""

    def __init__(self, former: _Former, segment: Segment) -> None:
        self._former, self._segment = former, segment
        self._table = CallTable()
        self._homes: dict[int, tuple[_Home, int]] = {}
        """Memory of each register, and the offset there."""

    def bound(self, rows: Sequence[Instruction], known: Sequence[Recorded | None]) -> Segment:
        for row, recorded in zip(rows, known, strict=True):
            for buffer, source in row.copies:
                self._copy(source, buffer)
            if recorded is not None:
                self._bind(row, *recorded)
            for register in row.released:
                if register in self._homes:
                    self._leave(self._homes[register][0])
        segment = self._segment
        written = {register for row in rows for register in _flat(row.target or ())}
        segment.inner = written.difference(segment.new, segment.same)
        segment.call = self._table.finish()
        if RNG in segment.arrays:
            segment.call = drawing(segment.call, segment.arrays.index(RNG))
        return segment

    def _copy(self, source: int, buffer: int) -> None:
        """Append a copy of a value to a buffer, row by row."""
        given, wanted = map(self._former.type_of, (source, buffer))
        recording = Recording()
        recording.copy(recording.of(*given), recording.new(*wanted[:2]))
        memories = self._memory(source), self._memory(buffer, written=True)
        for call in recording.calls:
            self._table.add(call, [(memories[number], offset) for number, offset in call.operands])

    def _bind(self, row: Instruction, recording: Recording, results: Sequence[Any]) -> None:
        """Append the calls of an instruction."""
        arguments = _arguments(row)
        memories = {number: self._memory(register) for number, register in enumerate(arguments)}
        copies = self._bind_results(row, recording, results, memories)
        mine = list[_Home]()
        for number in range(len(arguments), len(recording.memories)):
            if number in recording.constants:
                memories[number] = self._table.constant(recording.constants[number])
            elif number == recording.drawn_from:
                memories[number] = self._memory(RNG)
            elif number not in memories:
                mine.append(self._temporary(recording.memories[number].nbytes))
                memories[number] = mine[-1].memory
        for call in recording.calls:
            self._table.add(call, [(memories[number], offset) for number, offset in call.operands])
        for symbol, memory in copies:
            number, offset = recording.place_of(symbol)
            self._table.copy(memories[number].moved(offset), memory, symbol.value.layout.nbytes)
        for home in mine:
            self._leave(home)

    def _bind_results(
        self, row: Instruction, recording: Recording, results: Sequence[Any], memories: dict[int, Memory]
    ) -> list[tuple[Symbol, Memory]]:
        """Give the results their memory, and return what has to be copied there after the calls."""
        arguments, is_view = _arguments(row), row.step.kernel.view_of is not None
        outs = _by_slot(row.keywords.get("out") if row.keywords else None, len(results))
        targets = _by_slot(row.target, len(results))
        copies = list[tuple[Symbol, Memory]]()
        for slot, entries in enumerate(zip(results, outs, targets, strict=True)):
            for symbol, out, target in _each(*entries):
                number, offset = recording.place_of(symbol)
                if target is not None and is_view and not slot and number in memories and self._is_hidden(out, target):
                    self._share(target, arguments[number], offset)
                    continue
                memory = self._memory_for(symbol, out, target)
                if number < len(arguments) and not is_view and memories[number] != memory:
                    # The call writes over its input: give it a copy in the memory of the result.
                    self._table.copy(memories[number], memory, symbol.value.layout.nbytes)
                    memories[number] = memory
                elif recording.is_whole(symbol) and _is_free(memory, recording, memories, number):
                    memories[number] = memory
                elif memories.get(number) != memory:
                    copies.append((symbol, memory))
        return copies

    def _is_seen(self, register: int) -> bool:
        """Whether something outside reads what the segment writes to the register."""
        return self._former.is_read_from(register, self._segment.end)

    def _is_hidden(self, out: int | None, target: int) -> bool:
        """Whether a result may lie anywhere: it is given no memory, and nothing outside reads it."""
        return out is None and not self._is_seen(target)

    def _memory(self, register: int, written: bool = False) -> Memory:
        """The memory of a register; that of an array from outside, if nothing here wrote it."""
        if register not in self._homes:
            type = self._former.type_of(register)
            self._segment.arrays.append(register)
            self._homes[register] = _Home(self._table.array(*type), _bytes(type), 1), 0
        home, offset = self._homes[register]
        if written:
            self._table.note_written(home.memory)
        return home.memory.moved(offset)

    def _memory_for(self, symbol: Symbol, out: int | None, target: int | None) -> Memory:
        """Destination of a result: memory that is given, a new array, or a temporary."""
        if out is not None and (out not in self._homes or self._homes[out][0].memory.kind == "array"):
            memory = self._memory(out, written=True)
            if target is not None:
                self._share(target, out, 0)
                if self._is_seen(target):
                    self._segment.same[target] = out
            return memory
        assert target is not None
        if self._is_seen(target):
            self._segment.new[target] = self._former.type_of(target)
            return self._memory(target, written=True)
        home = self._temporary(symbol.value.layout.nbytes)
        self._homes[target] = home, 0
        return home.memory

    def _share(self, register: int, other: int, offset: int) -> None:
        """Give a register the memory of another one."""
        home, before = self._homes[other]
        home.registers += 1
        self._homes[register] = home, before + offset

    def _temporary(self, size: int) -> _Home:
        return _Home(self._table.temporary(size), size, 1)

    def _leave(self, home: _Home) -> None:
        home.registers -= 1
        if not home.registers and home.memory.kind == "temporary":
            self._table.release(home.memory, home.size)


def _is_free(memory: Memory, recording: Recording, memories: dict[int, Memory], number: int) -> bool:
    """Whether a result with memory of its own may be written at once: no call still reads an input that lies there."""
    if number in memories or number in recording.constants:
        return False
    inputs = {each for each, other in memories.items() if other.may_overlap(memory)}
    if not inputs:
        return True
    if any(memories[each] != memory for each in inputs):
        return False
    writes = [call.operands[-1][0] for call in recording.calls]
    if number not in writes:  # a loop writes several results at once
        return False
    first, *later = recording.calls[writes.index(number) :]
    if any(each in inputs for call in later for each, _ in call.operands[:-1]):
        return False
    return all(first.may_write_over(i) for i, (each, _) in enumerate(first.operands[:-1]) if each in inputs)


def _each(result: Any, out: Any, target: Any) -> Iterator[tuple[Symbol, int | None, int | None]]:
    """The symbols of a slot that somebody wants, each with the registers of the memory for it and of its value."""
    results = result if isinstance(result, list) else [result]
    outs, targets = (each if isinstance(each, list) else [each] * len(results) for each in (out, target))
    for symbol, one, other in zip(results, map(_register, outs), map(_register, targets), strict=True):
        if symbol is not None and (one is not None or other is not None):
            yield symbol, one, other


def _register(entry: Any) -> int | None:
    assert not isinstance(entry, list)
    return None if entry in (None, NOTHING, DROPPED) else entry


def _by_slot(operand: Operand | None, count: int) -> Sequence[Any]:
    """One entry for each of `count` results; the last ones may be left out."""
    given = operand if isinstance(operand, tuple) else (operand,) if count == 1 else ()
    return (*given, *[None] * (count - len(given)))


def _registers_read(row: Instruction) -> Iterator[int]:
    yield from _flat(row.arguments)
    for operand in (row.keywords or {}).values():
        yield from _flat(operand)
    for pair in row.copies:
        yield from pair


def _arguments(row: Instruction) -> list[int]:
    """The registers of arrays among the arguments, in order."""
    return [register for register in _flat(row.arguments) if register not in (NOTHING, XP)]


def _flat(operand: Any) -> list[Any]:
    return [each for part in operand for each in _flat(part)] if isinstance(operand, list | tuple) else [operand]


def _mapped(function: Callable[[int], Any], operand: Any) -> Any:
    return [_mapped(function, each) for each in operand] if isinstance(operand, list | tuple) else function(operand)


def _bytes(type: ArrayKind) -> int:
    return product(type.shape) * type.dtype.itemsize
