"""From steps to instructions: which function is called with what is in which registers, and what is let go behind it.

A register is a number; in a run it holds an array, or whatever else steps read and write. The instructions of a plan
are one table that is used in two ways: `Instructions.run` walks through it, which is how a plan runs for the first
time, and `minigraph.lowering.codegen` writes it as Python source, which runs quicker but takes longer to compile than
that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import FrameType
from typing import Any, NamedTuple, TypeAlias

from minigraph.kernels import find_specializer
from minigraph.kernels.numbers import are_numbers, on_numbers
from minigraph.lowering.memory_plan import Layout
from minigraph.lowering.steps import Joined, Step, Steps, Value
from minigraph.runtime.kernel_call import keywords_of
from minigraph.runtime.place import Place
from minigraph.support.interrupts import Saved, hold
from minigraph.types import product

NOTHING, XP, RNG, DROPPED, FIRST_BUFFER = range(5)
"""The registers of None, the array module, the random generator and what nobody wants; then come the buffers."""

Operand: TypeAlias = "int | list[Any] | tuple[Any, ...]"
"""A register, or a list or tuple of them: as an argument what is there, as a target where results go."""


_MOST_COPIES, _MOST_COPIED = 8, 32_768
"""Maximum numbers of arrays and of bytes that a run copies, so that what it writes over them can be undone."""


class Function(NamedTuple):
    """What is called for a step."""

    call: Callable[..., Any]
    name: str
    """What source calls it, with a number behind it where another one has that name."""
    takes_xp: bool
    constants: dict[str, Any]
    """Keywords that are the same in every run."""


@dataclass(slots=True, eq=False)
class Instruction:
    """What happens for one step."""

    step: Step
    copies: Sequence[tuple[int, int]] = ()
    """What is copied before: to a buffer, from a register."""
    function: Function | None = None
    """None if there is nothing else to do."""
    arguments: Sequence[Operand] = ()
    keywords: dict[str, Operand] | None = None
    """Beside the constants."""
    target: Operand | None = None
    """None if all results go to the memory of arguments."""
    released: Sequence[int] = ()


@dataclass(eq=False)
class Instructions:
    """The instructions of a plan.

    Attributes
    ----------
    rows : list of Instruction
        One for each step.
    buffers : int
        How many of them a run is given.
    values : list of Value or Joined
        What is in the registers behind the buffers.
    feeds, state, fetches, new_state : list of int
        The registers of what a run is given and of what it returns.
    short_state : list of int
        The registers of the state that is written over, if it is so short that to copy it takes less time than to let
        signals wait.
    """

    rows: list[Instruction] = field(default_factory=list)
    buffers: int = 0
    values: list[Value | Joined] = field(default_factory=list)
    feeds: list[int] = field(default_factory=list)
    state: list[int] = field(default_factory=list)
    fetches: list[int] = field(default_factory=list)
    new_state: list[int] = field(default_factory=list)
    short_state: list[int] = field(default_factory=list)

    @cached_property
    def first_in_place(self) -> Instruction | None:
        """The first that writes over state, which all behind it do, too."""
        return next((row for row in self.rows if row.step.in_place), None)

    @property
    def state_values(self) -> list[Value | Joined]:
        """What is in the registers of the state."""
        return [self.values[register - FIRST_BUFFER - self.buffers] for register in self.state]

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
        """What is fetched and the new state.

        Before state is written over, it goes to `saved`, or signals wait until the caller's `release`. In `ticks`, if
        given, nanoseconds are noted: when the run began, and when each row ended.
        """
        registers: list[Any] = [None, place.xp, rng, None, *buffers, *[None] * len(self.values)]
        for registered, given in ((self.feeds, feeds), (self.state, state)):
            for register, value in zip(registered, given, strict=True):
                registers[register] = value
        if ticks is not None:
            ticks[:] = [place.now()]
        for row in self.rows:
            if row is self.first_in_place:
                if self.short_state:
                    saved += [(registers[i], registers[i].copy()) for i in self.short_state]
                else:
                    hold()
            for buffer, source in row.copies:
                registers[buffer][...] = registers[source]
            if row.function is not None:
                call, _, _, constants = row.function
                arguments = [
                    registers[each] if isinstance(each, int) else _fetch(registers, each) for each in row.arguments
                ]
                keywords = constants
                if row.keywords:
                    found = {word: _fetch(registers, operand) for word, operand in row.keywords.items()}
                    keywords = {**constants, **found}
                # The result has no name here, so that it is gone when its register is given up.
                if isinstance(row.target, int):
                    registers[row.target] = call(*arguments, **keywords)
                else:
                    _store(registers, row.target, call(*arguments, **keywords))
            for register in row.released:
                registers[register] = None
            if ticks is not None:
                ticks.append(place.now())
        return [registers[i] for i in self.fetches], [registers[i] for i in self.new_state]

    def step_in(self, frame: FrameType) -> Step | None:
        """The step at hand in a frame that is a run of these instructions; None for another frame."""
        if frame.f_code is not Instructions.run.__code__ or frame.f_locals["self"] is not self:
            return None
        row: Instruction | None = frame.f_locals.get("row")
        return None if row is None else row.step


def _flat(operand: Operand) -> list[int]:
    return [operand] if isinstance(operand, int) else [i for each in operand for i in _flat(each)]


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


class TypeOfArray(NamedTuple):
    """What a specializer sees of an array."""

    shape: tuple[int, ...]
    dtype: Any


def assemble(
    steps: Steps, place: Place, layout: Layout, jit: bool, run_body: Callable[[Step], Callable[..., Any]]
) -> Instructions:
    """The instructions for `steps`, with values at their places in `layout`.

    `run_body` makes the function for a step of control flow. With `jit`, loops that numba compiles are called where
    they are offered.
    """
    return _Assembler(steps, place, layout, jit, run_body).assemble()


class _Assembler:
    def __init__(
        self, steps: Steps, place: Place, layout: Layout, jit: bool, run_body: Callable[[Step], Callable[..., Any]]
    ) -> None:
        self.steps = steps
        self.place = place
        self.layout = layout
        self.jit = jit and place.kind == "cpu"
        self.run_body = run_body
        self.values: list[Value | Joined] = []
        self._first = FIRST_BUFFER + len(layout.places)
        self._written_over = {id(v) for step in steps.steps if step.in_place for v in step.values_written()}
        """New values in the memory of old ones, which they share a register with."""
        self._made_free = {id(v) for step in steps.steps if step.is_free for v in step.values_written()}
        self._copied = {id(value) for values in steps.copied.values() for value in values}
        self._functions: dict[Any, Function] = {}
        _forget_registers(steps)

    def assemble(self) -> Instructions:
        steps = self.steps
        rows = [
            self._row(step, steps.copied.get(number, ()), steps.released[number])
            for number, step in enumerate(steps.steps)
        ]
        fetches = self._operands(steps.fetches)
        new_state = self._operands(steps.replaced_state.values())
        feeds = self._operands(steps.feeds)
        state = [
            self._first + i
            for i, value in enumerate(self.values)
            if isinstance(value, Joined) or value.origin == "state"
        ]
        short_state = self._short_state(rows)
        return Instructions(rows, len(self.layout.places), self.values, feeds, state, fetches, new_state, short_state)

    def _short_state(self, rows: Sequence[Instruction]) -> list[int]:
        if self.place.kind != "cpu":
            return []
        outs = [row.keywords["out"] for row in rows if row.step.in_place and row.keywords is not None]
        found = sorted({i for operand in outs for i in _flat(operand) if i != NOTHING})
        types = [self.values[i - self._first].tensor_type for i in found]
        size = sum(product(each.shape) * each.dtype.numpy.itemsize for each in types)
        return found if len(found) <= _MOST_COPIES and size <= _MOST_COPIED else []

    def _row(self, step: Step, copied: Sequence[Value], released: Sequence[Value]) -> Instruction:
        row = Instruction(step)
        if copied:
            row.copies = [(self._buffer(value), self._operand(value)) for value in copied]
        if not step.is_free:
            row.function = function = self._function(step)
            entries = (
                [step.joined.get(i, entry) for i, entry in enumerate(step.inputs)] if step.has_joined else step.inputs
            )
            row.arguments = arguments = [
                self._operands(entry) if isinstance(entry, list) else self._operand(entry) for entry in entries
            ]
            keywords: dict[str, Operand] = {}
            if function.takes_xp:
                arguments.insert(0, XP)
                if step.kernel.takes_rng:
                    keywords["rng"] = RNG
            out = self._out(step) if step.in_place or step.writes_over or self.layout.places else None
            if out is not None:
                keywords["out"] = out
            row.keywords = keywords or None
            if not step.in_place:
                row.target = self._target(step)
        if released:
            # What never had a register of its own is nothing to give up.
            row.released = [value.register for value in released if value.register >= self._first]
        return row

    # Registers

    def _operands(self, values: Iterable[Value | Joined | None]) -> list[Any]:
        new = self._operand
        return [NOTHING if value is None else value.register or new(value) for value in values]

    def _operand(self, value: Value | Joined | None) -> int:
        if value is None:
            return NOTHING
        if not value.register:
            value.register = self._new_register(value)
        return value.register

    def _new_register(self, value: Value | Joined) -> int:
        if id(value) in self._written_over:
            assert isinstance(value, Value) and value.storage is not None
            return self._operand(value.storage)
        if (isinstance(value, Joined) or id(value) in self._made_free) and id(value) in self.layout.place_of:
            return self._buffer(value)
        self.values.append(value)
        return self._first + len(self.values) - 1

    def _buffer(self, value: Value | Joined) -> int:
        return FIRST_BUFFER + self.layout.place_of[id(value)]

    def _out(self, step: Step) -> Operand | None:
        """The arrays that the function is to write to; None if it may choose."""
        if step.in_place:
            outs = [self._written_to(step, i) for i, values in enumerate(step.outputs) if values]
        else:
            places = [None if not slot or slot[0] is None else self._place(slot[0]) for slot in step.outputs]
            if all(place is None for place in places):
                return self._memory_of_input(step) if step.writes_over else None
            outs = [NOTHING if place is None else FIRST_BUFFER + place for place in places]
        return outs[0] if len(outs) == 1 else tuple(outs)

    def _memory_of_input(self, step: Step) -> Operand | None:
        """What `step` reads, unless that lies among other values."""
        given = step.values_read()[0]
        return None if id(given) in self.layout.place_of else self._operand(given)

    def _place(self, value: Value) -> int | None:
        """The number of the place that a function is to write `value` to."""
        return None if id(value) in self._copied else self.layout.place_of.get(id(value))

    def _written_to(self, step: Step, slot: int) -> Operand:
        """The state that an output takes over: an array, a list of them, or one vector in a list."""
        if step.targets is not None:
            return self._operands(step.targets[slot]) if step.targets[slot] else NOTHING
        storage = [value.storage for value in step.outputs[slot] if value is not None]
        if not storage:
            return NOTHING
        return self._operands(storage) if step.op.definition.outputs[slot].duplicable else self._operand(storage[0])

    def _target(self, step: Step) -> Operand:
        slots: list[Operand] = []
        for slot, values in zip(step.op.definition.outputs, step.outputs, strict=True):
            if slot.duplicable and values:
                slots.append([DROPPED if value is None else self._operand(value) for value in values])
            else:
                slots.append(self._operand(values[0]) if values and values[0] is not None else DROPPED)
        return tuple(slots) if len(slots) > 1 else slots[0]

    # Functions

    def _function(self, step: Step) -> Function:
        """What to call: the kernel, or a quicker function for these shapes; steps that are alike share it."""
        if step.call is not None:  # `while` is a keyword
            return Function(self.run_body(step), f"run_{step.op.type}", True, {})
        if step.handed is not None:
            return Function(step.handed, f"own_{step.op.type}", False, {})
        op, kernel = step.op, step.kernel
        types = tuple(map(_types, step.inputs)), tuple(map(_types, step.outputs))
        # As text, attributes are told apart to the bit.
        key = op.type, id(kernel), repr(op.attrs) if op.attrs else "", types, step.in_place
        found = self._functions.get(key)
        if found is None:
            keywords = keywords_of(op, kernel)
            if are_numbers(v.tensor_type.shape for v in (*step.values_read(), *step.values_written())):
                found = Function(on_numbers(kernel.function), op.type, True, keywords)
            else:
                found = self._specialized(step, keywords) or Function(kernel.function, op.type, True, keywords)
            if keywords.keys() <= {*op.definition.attrs, "wanted"}:  # what else it takes belongs to this operator alone
                self._functions[key] = found
        return found

    def _specialized(self, step: Step, keywords: dict[str, Any]) -> Function | None:
        """A quicker function for these shapes, if the operator has one."""
        found = [("jit", find_specializer(step.op.type, jit=True))] if self.jit else []
        if not step.in_place:
            found.append(("fast", find_specializer(step.op.type)))
        offers = [(kind, offer) for kind, offer in found if offer is not None]
        if not offers or not all(v.has_known_size for v in (*step.values_read(), *step.values_written())):
            return None
        arguments = types_of_inputs(step)
        for kind, offer in offers:
            function = offer(self.place.xp, *arguments, **keywords)
            if function is not None:
                return Function(function, f"{kind}_{step.op.type}", False, {})
        return None


def types_of_inputs(step: Step) -> list[Any]:
    """What a specializer sees of what `step` reads."""
    return [
        None if v is None else [_type_of(each) for each in v if each] if isinstance(v, list) else _type_of(v)
        for v in step.inputs
    ]


def _forget_registers(steps: Steps) -> None:
    """Forget what other instructions had the values in."""
    for values in (steps.feeds, steps.state, *[step.values_written() for step in steps.steps]):
        for value in values:
            value.register = NOTHING
    for vector in steps.vectors:
        vector.register = NOTHING


def _types(entry: Value | Sequence[Value | None] | None) -> Any:
    if entry is None:
        return None
    if isinstance(entry, Value):
        return entry.tensor_type
    return tuple([None if value is None else value.tensor_type for value in entry])


def _type_of(value: Value) -> TypeOfArray:
    return TypeOfArray(value.tensor_type.shape, value.tensor_type.dtype.numpy)
