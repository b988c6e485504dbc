"""Instructions: the function of each step, the registers of its arguments and results, and the registers it releases.

A register is a number; in a run it holds an array, or whatever else steps read and write. The first run of a plan walks
through its table of instructions (`Instructions.run`). For later runs `minigraph.lowering.codegen` writes the table as
Python source, which runs faster but takes longer to compile.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import FrameType
from typing import Any, NamedTuple, TypeAlias

from minigraph.kernels.numbers import are_numbers
from minigraph.lowering.costs import size_in_bytes
from minigraph.lowering.flat_buffers import FlatView
from minigraph.lowering.functions import OWN, Function, FunctionChoice, FunctionKey
from minigraph.lowering.memory_plan import BufferPlan
from minigraph.lowering.output_buffers import OutputPlan
from minigraph.lowering.resized import Resized
from minigraph.lowering.steps import Step, Steps, Value
from minigraph.runtime.kernel_call import keywords_of
from minigraph.runtime.place import Place
from minigraph.support.interrupts import Saved, hold
from minigraph.types import TensorType

NOTHING, XP, RNG, DROPPED, FIRST_VALUE = range(5)
"""Registers of None, the array module, the random generator and unwanted results; the registers of values follow.

Those of buffers are negative, from -1 down, so that the number of buffers, which depends on sizes, moves no other.
"""

Operand: TypeAlias = "int | list[Any] | tuple[Any, ...]"
"""A register, or a list or tuple of them."""


_MOST_COPIES, _MOST_COPIED = 8, 32_768
"""Maximum numbers of arrays and of bytes that a run copies so that it can restore state after an interrupt."""


@dataclass(slots=True, eq=False)
class Instruction:
    """One step as a call on registers."""

    step: Step
    copies: Sequence[tuple[int, int]] = ()
    """Copies made before the call: to a buffer, from a register."""
    function: Function | None = None
    """Function to call; None if there is none."""
    arguments: Sequence[Operand] = ()
    keywords: dict[str, Operand] | None = None
    """Keyword arguments beside the constants."""
    target: Operand | None = None
    """Registers of the results; None if all of them go to the memory of arguments."""
    released: Sequence[int] = ()


@dataclass(frozen=True, eq=False)
class Instructions:
    """The instructions of a plan.

    Attributes
    ----------
    steps : Steps
    rows : list of Instruction
        One for each step.
    buffers : int
        Number of buffers that a run is given, spare arrays of the scope after the places of the layout.
    values : list of Value or FlatView
        Values of the registers from `FIRST_VALUE` on.
    feeds, state, fetches, new_state : list of int
        Registers of what a run is given and of what it returns.
    short_state : list of int
        Registers of the state that is written over, if it is so short that a copy takes less time than to let signals
        wait; else none.
    given : mapping
        Numbers of the buffers that values lie in, or are written to.
    numbers : mapping
        Numbers of the types in the keys of functions.
    alike : list of _Alike
        Rows that call one function at every size; empty until a plan for other sizes is made.
    """

    steps: Steps
    rows: Sequence[Instruction]
    buffers: int
    values: Sequence[Value | FlatView]
    feeds: Sequence[int]
    state: Sequence[int]
    fetches: Sequence[int]
    new_state: Sequence[int]
    short_state: Sequence[int]
    given: Mapping[Value | FlatView, int]
    numbers: Mapping[TensorType, int]
    alike: list[_Alike] = field(default_factory=list)

    @cached_property
    def first_in_place(self) -> Instruction | None:
        """The first row that writes over state; all later rows do, too."""
        return next((row for row in self.rows if row.step.in_place), None)

    @property
    def state_values(self) -> list[Value | FlatView]:
        """Values in the registers of the state."""
        return [self.values[register - FIRST_VALUE] for register in self.state]

    def run(
        self,
        place: Place,
        feeds: Iterable[Any],
        state: Iterable[Any],
        rng: Any,
        buffers: Iterable[Any],
        saved: Saved,
        ticks: list[int] | None = None,
    ) -> tuple[Sequence[Any], Sequence[Any]]:
        """Return the fetches and the new state.

        Before state is written over, it goes to `saved`, or signals wait until the caller's `release`. In `ticks`, if
        given, nanoseconds are noted: when the run began, and when each row ended.
        """
        registers: list[Any] = [None, place.xp, rng, None, *[None] * len(self.values), *reversed(list(buffers))]
        for registered, given in ((self.feeds, feeds), (self.state, state)):
            for register, value in zip(registered, given, strict=True):
                registers[register] = value
        if ticks is not None:
            ticks[:] = [place.now()]
        for row in self.rows:
            if row is self.first_in_place:  # nothing can fail from here on
                self._keep_state(registers, saved)
            for buffer, source in row.copies:
                registers[buffer][...] = registers[source]
            if row.function is not None:
                _call(registers, row, row.function)
            for register in row.released:
                registers[register] = None
            if ticks is not None:
                ticks.append(place.now())
        return [registers[i] for i in self.fetches], [registers[i] for i in self.new_state]

    def _keep_state(self, registers: Sequence[Any], saved: Saved) -> None:
        """Copy the state that is about to be written over, or let signals wait if it is long."""
        if self.short_state:
            saved += [(registers[i], registers[i].copy()) for i in self.short_state]
        else:
            hold()

    def step_in(self, frame: FrameType) -> Step | None:
        """Return the current step of a frame that runs these instructions; None for another frame."""
        if frame.f_code is not Instructions.run.__code__ or frame.f_locals["self"] is not self:
            return None
        row: Instruction | None = frame.f_locals.get("row")
        return None if row is None else row.step


def _flat(operand: Operand) -> list[int]:
    return [operand] if isinstance(operand, int) else [i for each in operand for i in _flat(each)]


def _call(registers: list[Any], row: Instruction, function: Function) -> None:
    keywords = function.constants
    if row.keywords:
        keywords = keywords | {word: _fetch(registers, operand) for word, operand in row.keywords.items()}
    arguments = [registers[each] if isinstance(each, int) else _fetch(registers, each) for each in row.arguments]
    _store(registers, row.target, function.call(*arguments, **keywords))


def _fetch(registers: Sequence[Any], operand: Operand) -> Any:
    if isinstance(operand, int):
        return registers[operand]
    found = [_fetch(registers, each) for each in operand]
    return tuple(found) if isinstance(operand, tuple) else found


def _store(registers: list[Any], target: Operand | None, result: Any) -> None:
    if isinstance(target, int):
        registers[target] = result
    elif target is not None:
        for each, value in zip(target, result, strict=True):
            _store(registers, each, value)


def assemble(
    steps: Steps,
    buffers: BufferPlan,
    place: Place,
    jit: bool,
    run_body: Callable[[Step], Callable[..., Any]],
    like: tuple[Instructions, OutputPlan, Resized] | None = None,
) -> Instructions:
    """Make the instructions for `steps`, with values in the places that `buffers` gives them.

    `run_body` makes the function for a step of control flow. With `jit`, steps call loops that numba compiles, if there
    are any for them. `like` are instructions for the steps that these are resized from, with the same flat buffers.
    """
    assembler = _Assembler(steps, buffers, place, jit, run_body, None if like is None else like[0].numbers)
    return assembler.assemble() if like is None else assembler.assemble_like(*like)


class _Assembler:
    def __init__(
        self,
        steps: Steps,
        buffers: BufferPlan,
        place: Place,
        jit: bool,
        run_body: Callable[[Step], Callable[..., Any]],
        numbers: Mapping[TensorType, int] | None,
    ) -> None:
        self.steps = steps
        self.place = place
        self.flat, self.outputs, self.storage = buffers.flat, buffers.outputs, buffers.storage
        self.layout = buffers.layout
        self.liveness = buffers.liveness
        self.values: list[Value | FlatView] = []
        places, spares = len(self.layout.places), self.outputs.to_scope
        self._given = dict(self.layout.place_of)
        self._given.update((value, places + i) for i, value in enumerate(spares))
        """Numbers of the buffers of values."""
        self._buffers = places + len(spares)
        self._written_over = {v for step in steps.steps if step.in_place for v in step.writes}
        """New values that share memory, and so a register, with old ones."""
        self._taken_over = {steps.storage.shared[value] for value in self._written_over}
        self._in_buffers = {v for step in (*self.flat.free, *self.flat.over) for v in step.writes}
        """Values that are there, in their places, when their step has run."""
        self._registers: dict[Value | FlatView | None, int] = {None: NOTHING}
        self._functions = FunctionChoice(place, jit, self.outputs.functions, run_body, numbers)

    def assemble(self) -> Instructions:
        steps = self.steps
        rows = [self._row(step, None if step in self.flat.free else self._functions.of(step)) for step in steps.steps]
        fetches = self._operands(steps.fetches)
        new_state = self._operands(steps.replaced_state.values())
        feeds = self._operands(steps.feeds)
        # Registers are given on demand: `values` has the state that a step reads or a fetch asks for, and no other.
        state = [
            FIRST_VALUE + i
            for i, value in enumerate(self.values)
            if isinstance(value, FlatView) or value.origin == "state"
        ]
        short_state = self._short_state(rows)
        return Instructions(
            steps, rows, self._buffers, self.values, feeds, state, fetches, new_state, short_state, self._given,
            self._functions.numbers,
        )  # fmt: skip

    def assemble_like(self, like: Instructions, outputs: OutputPlan, resized: Resized) -> Instructions:
        """Instructions that differ from `like` in functions and buffers only."""
        twin_of = resized.twin_of
        self.values = list(map(twin_of, like.values))
        self._registers.update({value: FIRST_VALUE + i for i, value in enumerate(self.values)})
        given = {resized.value_of(value): number for value, number in self._given.items()}
        moved = {value for value, _ in like.given.items() ^ given.items()}
        rows, steps, functions = list(like.rows), self.steps.steps, self._functions_like(like, resized)
        for number, function in enumerate(functions):
            row, step = rows[number], steps[number]
            is_moved = not moved.isdisjoint(row.step.writes)
            if function is row.function and step is row.step and not is_moved:
                continue
            takes_xp = row.function is not None and row.function.takes_xp
            is_over_input = step in self.outputs.over_input or row.step in outputs.over_input
            arguments, keywords = row.arguments, row.keywords
            if function is not None and (is_over_input or is_moved or function.takes_xp is not takes_xp):
                arguments, keywords = self._arguments(step, function), self._keywords(step, function)
            rows[number] = Instruction(step, row.copies, function, arguments, keywords, row.target, row.released)
        return replace(
            like, steps=self.steps, rows=rows, buffers=self._buffers, values=self.values,
            short_state=self._short_state(rows), given=self._given,
        )  # fmt: skip

    def _functions_like(self, like: Instructions, resized: Resized) -> list[Function | None]:
        """The function of each step, found once for all that are alike."""
        if not like.alike:
            key_of = self._functions.key
            groups = [(like.rows[numbers[0]].step, numbers) for numbers in _alike(like.rows, resized)]
            # At once, because another thread may make a plan for other sizes at the same time.
            like.alike[:] = [_Alike(key_of(step), keywords_of(step.op, step.kernel), each) for step, each in groups]
        steps, functions = self.steps.steps, [row.function for row in like.rows]
        for each in like.alike:
            step, known = steps[each.numbers[0]], functions[each.numbers[0]]
            if step is like.rows[each.numbers[0]].step:  # steps whose types become equal to these get the function, too
                assert known is not None
                self._functions.keep(each.key, known)
            else:
                found = self._functions.of(step, each.key, each.keywords)
                for number in each.numbers:
                    functions[number] = found
        for number, step in enumerate(steps if self.outputs.functions else ()):
            if step in self.outputs.functions:
                functions[number] = self._functions.of(step)
        return functions

    def _short_state(self, rows: Sequence[Instruction]) -> list[int]:
        if self.place.kind != "cpu":
            return []
        outs = [row.keywords["out"] for row in rows if row.step.in_place and row.keywords is not None]
        found = sorted({i for operand in outs for i in _flat(operand) if i != NOTHING})
        size = sum(size_in_bytes(self.values[i - FIRST_VALUE]) for i in found)
        return found if len(found) <= _MOST_COPIES and size <= _MOST_COPIED else []

    def _row(self, step: Step, function: Function | None) -> Instruction:
        row = Instruction(step)
        copied, released = self.flat.copies.get(step), self.liveness.released.get(step)
        if copied:
            row.copies = [(self._buffer(value), self._operand(value)) for value in copied]
        if function is not None:
            row.function = function
            row.arguments, row.keywords = self._arguments(step, function), self._keywords(step, function)
            if not (step.in_place or step in self.flat.over):
                row.target = self._target(step)
        if released:
            # Buffers keep their registers, and what is written over does, because the new value has it.
            registers = [self._registers.get(value, NOTHING) for value in released if value not in self._taken_over]
            row.released = [register for register in registers if register >= FIRST_VALUE]
        return row

    def _arguments(self, step: Step, function: Function) -> list[Operand]:
        views = self.flat.inputs.get(step)
        entries = [views.get(i, entry) for i, entry in enumerate(step.inputs)] if views else step.inputs
        arguments: list[Operand] = [
            self._operand(entry) if entry is None or isinstance(entry, Value) else self._operands(entry)
            for entry in entries
        ]
        return [XP, *arguments] if function.takes_xp else arguments

    def _keywords(self, step: Step, function: Function) -> dict[str, Operand] | None:
        keywords: dict[str, Operand] = {}
        if function.takes_xp and step.kernel.takes_rng:
            keywords["rng"] = RNG
        if step in self.flat.over:
            keywords["over"] = self._operand(self.flat.inputs[step][0][0])
        elif step.in_place or step in self.outputs.over_input or not self._given.keys().isdisjoint(step.writes):
            out = self._out(step)
            if out is not None:
                keywords["out"] = out
        return keywords or None

    # Registers

    def _operands(self, values: Iterable[Value | FlatView | None]) -> list[Any]:
        known, new = self._registers.get, self._operand
        return [known(value) or new(value) for value in values]

    def _operand(self, value: Value | FlatView | None) -> int:
        register = self._registers.get(value)
        if register is None:
            assert value is not None
            register = self._registers[value] = self._new_register(value)
        return register

    def _new_register(self, value: Value | FlatView) -> int:
        if value in self._written_over:
            old = self.storage.shared[value]
            return self._buffer(old) if old in self.flat.copied else self._operand(old)
        if (isinstance(value, FlatView) or value in self._in_buffers) and value in self.layout.place_of:
            return self._buffer(value)
        self.values.append(value)
        return FIRST_VALUE + len(self.values) - 1

    def _buffer(self, value: Value | FlatView) -> int:
        return -1 - self.layout.place_of[value]

    def _out(self, step: Step) -> Operand | None:
        """The arrays that the function writes to; None if it allocates them."""
        if step.in_place:
            outs = [self._written_to(step, i) for i, values in enumerate(step.outputs) if values]
        else:
            outs = [
                list(map(self._place, slot)) if declared.duplicable and slot else self._place(slot[0] if slot else None)
                for declared, slot in zip(step.op.definition.outputs, step.outputs, strict=True)
            ]
            if not any(_flat(outs)):
                return self._memory_of_input(step) if step in self.outputs.over_input else None
        return outs[0] if len(outs) == 1 else tuple(outs)

    def _memory_of_input(self, step: Step) -> Operand | None:
        """The input of a clip that writes over it; None if the input has a place in the block."""
        given = step.reads[0]
        return None if given in self.layout.place_of else self._operand(given)

    def _place(self, value: Value | None) -> int:
        """The register of the buffer that a function is to write `value` to."""
        buffer = None if value is None or value in self.flat.copied else self._given.get(value)
        return NOTHING if buffer is None else -1 - buffer

    def _written_to(self, step: Step, slot: int) -> Operand:
        """The state that an output takes over: an array, a list of them, or one vector in a list."""
        targets = self.flat.targets.get(step)
        if targets is not None:
            return self._operands(targets[slot]) if targets[slot] else NOTHING
        storage = [self.storage.shared[value] for value in step.outputs[slot] if value is not None]
        if not storage:
            return NOTHING
        return self._operands(storage) if step.op.definition.outputs[slot].duplicable else self._operand(storage[0])

    def _target(self, step: Step) -> Operand | None:
        slots: list[Operand] = []
        for slot, values in zip(step.op.definition.outputs, step.outputs, strict=True):
            if slot.duplicable and values:
                slots.append([DROPPED if value is None else self._operand(value) for value in values])
            else:
                slots.append(self._operand(values[0]) if values and values[0] is not None else DROPPED)
        if not slots:
            return None
        return tuple(slots) if len(slots) > 1 else slots[0]


class _Alike(NamedTuple):
    """Rows that call one function at every size."""

    key: FunctionKey
    """Of the first row, at the sizes of the first plan."""
    keywords: dict[str, Any]
    """Keywords of the kernel's call."""
    numbers: list[int]
    """Numbers of the rows."""


def _alike(rows: Sequence[Instruction], resized: Resized) -> list[list[int]]:
    """Numbers of rows that call one function at every size, in groups; first one row for each function that stays."""
    kept: dict[int, list[int]] = {}
    found: defaultdict[Any, list[int]] = defaultdict(list)
    twins = resized.twins
    for number, (row, step) in enumerate(zip(rows, resized.steps.steps, strict=True)):
        function, before = row.function, row.step
        if function is None or before.call is not None:
            continue
        if step is before:
            if function.kind != OWN:
                kept.setdefault(id(function), [number])
            continue
        values = (*before.reads, *before.writes)
        is_on_numbers = are_numbers([value.tensor_type.shape for value in values if value not in twins])
        # Types that do not change are equal where functions are, and types that are one object at every size.
        changing = [value in twins and id(value.tensor_type) for value in values]
        found[(id(function), is_on_numbers, *changing)].append(number)
    return [*kept.values(), *found.values()]
