"""Checked runs: no value changes while it is needed, and results are the caller's own.

The functions in a plan's table of instructions are wrapped in checks; the generated source, the kernels and the places
of values are those of every run. Law: a kernel returns new memory, its ``out``, or a view that its registration
declares; it writes to no other memory, and to none after it has returned. Whenever a step reads a value, the value is
compared bit for bit with a copy from when it was computed. Memory that nothing needs any more is filled with a pattern,
so that a wrong read of it shows.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from minigraph.errors import MemoryUseError
from minigraph.ir.operator import Operator
from minigraph.kernels.sparse_rows import SparseRows
from minigraph.lowering.buffer_pool import BufferPool
from minigraph.lowering.codegen import Compiled, Origin
from minigraph.lowering.flat_buffers import FlatView
from minigraph.lowering.functions import Function
from minigraph.lowering.instructions import Instruction
from minigraph.lowering.memory_plan import BufferPlan
from minigraph.lowering.resized import Resized
from minigraph.lowering.steps import Step, Steps, Value
from minigraph.runtime.place import Place
from minigraph.support.interrupts import Saved
from minigraph.types import product

_PATTERNS = {
    "f2": 0x7D5A, "f4": 0x7FA55A5A, "f8": 0x7FF55A5A5A5A5A5A,  # signalling NaN
    "i1": 0x5A, "u1": 0xA5, "b1": 0xA5, "i2": 0xA55A, "i4": 0xA55A5A5A, "i8": 0xA55A5A5A5A5A5A5A,
}  # fmt: skip
"""Bits of released memory, by element type."""

_MOST_HANDED_OUT = 256
"""Maximum number of earlier results that a run is compared with."""

_HINT = "Let the kernel return new memory or its `out`, or declare the view where it is registered."


def fill_with_pattern(array: Any) -> None:
    """Fill the memory of `array` with the pattern of its element type."""
    kind = array.dtype.str[1:]
    if kind in _PATTERNS and getattr(array.flags, "writeable", True):
        array.view(f"u{array.dtype.itemsize}")[...] = _PATTERNS[kind]


def arrays_in(value: Any) -> list[Any]:
    """The arrays of a value: the value itself, the arrays of selected rows, or the elements of a list or tuple.

    A NumPy scalar, which some kernels return for an array without dimensions, is left out: nothing can change it.
    """
    if isinstance(value, SparseRows):
        return [value.rows, value.value]
    if isinstance(value, list | tuple):
        return [array for each in value for array in arrays_in(each)]
    return [value] if hasattr(value, "dtype") and not isinstance(value, np.generic) else []


class _Piece:
    """An array, with the addresses at which its memory begins and ends."""

    def __init__(self, array: Any, place: Place) -> None:
        self.array, self.is_exact = array, place.kind == "cpu"
        self.begin = self.end = place.address(array)
        if array.size:
            reach = [(size - 1) * stride for size, stride in zip(array.shape, array.strides, strict=True)]
            self.begin, self.end = (
                self.begin + sum(step for step in reach if step < 0),
                self.begin + sum(step for step in reach if step > 0) + array.dtype.itemsize,
            )

    def overlaps(self, other: _Piece) -> bool:
        """Whether a byte belongs to both; on a GPU, whether one may."""
        if self.begin >= other.end or other.begin >= self.end:
            return False
        return not self.is_exact or bool(np.shares_memory(self.array, other.array))


def _pieces(value: Any, place: Place) -> list[_Piece]:
    return [_Piece(array, place) for array in arrays_in(value)]


def _change(array: Any, was: Any, place: Place) -> str:
    """Describe how the bits of an array differ from those of `was`; empty if they are equal."""
    bits = f"u{array.dtype.itemsize}"
    # As bits, because NaN != NaN and 0.0 == -0.0.
    is_different = array.ravel().view(bits) != was.ravel().view(bits)
    if not is_different.any():
        return ""
    at = int(is_different.argmax())
    index = list(map(int, np.unravel_index(at, array.shape)))
    old, new = (place.to_host(each).reshape(-1)[at] for each in (was, array))
    is_released = new.view(bits) == _PATTERNS.get(array.dtype.str[1:])
    return (
        f"{int(is_different.sum())} of {array.size} elements differ: the one at {index} was {old}, "
        f"is {'the pattern of released memory' if is_released else new}"
    )


class _Held:
    """A value that a later step reads, or that the run returns."""

    def __init__(self, value: Value, array: Any, made: int, place: Place) -> None:
        self.value, self.place = value, place
        self.made = made
        """The step that made it; -1 for feeds and state."""
        self.arrays = arrays_in(array)
        self.was = [each.copy() for each in self.arrays]
        # Kernels replace lists and row numbers instead of changing them, so that values may share these.
        own = self.arrays[1:] if isinstance(array, SparseRows) else [] if isinstance(array, list) else self.arrays
        self.pieces = [_Piece(each, place) for each in own]

    def overlaps(self, other: _Held) -> bool:
        return any(mine.overlaps(theirs) for mine in self.pieces for theirs in other.pieces)

    def change(self) -> str:
        changes = (_change(array, was, self.place) for array, was in zip(self.arrays, self.was, strict=True))
        return next(filter(None, changes), "")


class _HandedOut(NamedTuple):
    """A result of a run; `array` refers to it as long as the caller holds it."""

    name: str
    maker: Operator | None
    array: weakref.ref[Any]


class _State(threading.local):
    """Checked runs of one thread, and the results handed out to it."""

    def __init__(self) -> None:
        self.runs: list[_Run] = []
        """Runs under way, the innermost last."""
        self.ended: _Run | None = None
        """The latest run that has ended."""
        self.handed_out: deque[_HandedOut] = deque(maxlen=_MOST_HANDED_OUT)


_STATE = _State()


class Checked(Compiled):
    """A plan's function whose steps are checked."""

    def __init__(
        self,
        steps: Steps,
        buffers: BufferPlan,
        place: Place,
        timed: bool,
        jit: bool,
        blocks: BufferPool,
        like: tuple[Origin, Resized] | None = None,
    ) -> None:
        super().__init__(steps, buffers, place, timed, jit, blocks)
        self.steps, self.buffers, self.place = steps, buffers, place
        self.root = root = buffers.storage.root
        kept = set(map(root, (*steps.feeds, *steps.state, *steps.fetches, *steps.new_state.values())))
        # The step scopes of a sub-block may keep the values that it reads, for its gradient.
        seen = {root(value) for step in steps.steps if step.call is not None for value in step.reads}
        self.leaving = [set(buffers.liveness.leaving.get(step, ())) - kept for step in steps.steps]
        """Roots whose memory nothing needs after a step, by step."""
        self.spoiled = [roots - seen for roots in self.leaving]
        self.related = {
            pair
            for whole, parts in buffers.flat.aliases.items()
            for part in parts
            for pair in ((root(whole), root(part)), (root(part), root(whole)))
        }
        """Pairs of roots of which one lies in the memory of the other."""
        rows = [replace(row, function=_watched(number, row)) for number, row in enumerate(self.instructions.rows)]
        self.instructions = replace(self.instructions, rows=rows)
        self.is_native = False

    def run(
        self, feeds: Iterable[Any], state: Iterable[Any], rng: Any, buffers: Iterable[Any], saved: Saved
    ) -> tuple[Sequence[Any], Sequence[Any]]:
        given = list(feeds), list(state), list(buffers)
        run = _Run(self, *given, is_outermost=not _STATE.runs)
        _STATE.runs.append(run)
        try:
            feeds, state, buffers = given
            returned = super().run(feeds, state, rng, buffers, saved)
        finally:
            _STATE.runs.pop()
        run.finish()
        _STATE.ended = run
        return returned

    def hand_out(self, fetched: Sequence[Any], new_state: Mapping[str, Any]) -> None:
        """Check that the results of the latest run, and its new state, are in memory of their own.

        Raises
        ------
        MemoryUseError
            If a result shares memory with something that outlives the run, or is read-only.
        """
        run, _STATE.ended = _STATE.ended, None
        if run is not None:
            run.hand_out(fetched, new_state)


def _watched(number: int, row: Instruction) -> Function:
    """The function of a row, with a check of its arguments before the call and of its results after it."""
    function = row.function
    if function is None:

        def placed() -> None:
            _STATE.runs[-1].after(number, None, None)

        return Function(placed, f"placed_{row.step.op.type}", False, {})
    call = function.call

    def watched(*arguments: Any, **keywords: Any) -> Any:
        run = _STATE.runs[-1]
        run.before(number)
        result = call(*arguments, **keywords)
        run.after(number, result, keywords.get("out"))
        return result

    return function._replace(call=watched)


class _Run:
    """One run of a plan, or of a sub-block."""

    def __init__(
        self, plan: Checked, feeds: Sequence[Any], state: Sequence[Any], buffers: Sequence[Any], is_outermost: bool
    ) -> None:
        self.plan, self._places = plan, buffers[: len(plan.buffers.layout.places)]  # without spare arrays
        self.held: dict[Value, _Held] = {}
        self.family: dict[Value, list[_Held]] = {}
        """Values that may lie in the memory of a root, by root."""
        self.writes: list[tuple[int, int, int]] = []
        """Begin and end of the memory that a step wrote, and the number of the step."""
        for buffer in buffers:
            fill_with_pattern(buffer)
        self.given = [self._hold(value, array, -1) for value, array in zip(plan.steps.feeds, feeds, strict=True)]
        for value, array in zip(plan.state, state, strict=True):
            self.given += [self._hold(part, piece, -1) for part, piece in _parts(value, array)]
        self.related = set(_neighbours(self.given, plan.root))
        """Pairs of roots that share memory because the caller gave them so."""
        self.earlier = [
            (each, array, array.copy())
            for each in (_STATE.handed_out if is_outermost and plan.place.kind == "cpu" else ())
            if (array := each.array()) is not None
        ]
        """Results of earlier runs that the caller still holds, and a copy of each."""

    def _hold(self, value: Value, array: Any, made: int) -> _Held:
        return self._keep(_Held(value, array, made, self.plan.place))

    def _keep(self, held: _Held) -> _Held:
        self.held[held.value] = held
        self.family.setdefault(self.plan.root(held.value), []).append(held)
        self.writes += [(piece.begin, piece.end, held.made) for piece in held.pieces]
        return held

    def before(self, number: int) -> None:
        """Check that the values a step reads have not changed."""
        step = self.plan.steps.steps[number]
        for value in (*step.reads, *self.plan.buffers.flat.copies.get(step, ())):
            held = self.held.get(value)
            if held is not None and (change := held.change()):
                raise self._changed(held, f"before {step.op.type} reads it", change)

    def after(self, number: int, result: Any, out: Any) -> None:
        """Check that a step's results are its own and that its inputs have not changed."""
        steps = self.plan.steps
        step = steps.steps[number]
        self._note_copies(self.plan.buffers.flat.copies.get(step, ()), number)
        outs = _pieces(out, self.plan.place)
        made = [_Held(value, array, number, self.plan.place) for value, array in self._results(step, result)]
        # In place, the results are the state that was replaced.
        for held in () if step.in_place else made:
            for other in [*self.held.values(), *made]:
                if other is not held and held.overlaps(other) and not self._may_share(held, other, number, outs):
                    raise self._fault(
                        step.op,
                        f"{held.value.name} shares memory with {other.value.name}",
                        [self._origin(other)],
                        _HINT,
                    )
        for value in step.reads:
            read = self.held.get(value)
            if read is not None and not self._is_written_over(read, step, number, made) and (change := read.change()):
                raise self._fault(step.op, f"{value.name} is an input and was written to", [change], _HINT)
        if step.in_place:
            for value in step.writes:
                self.held.pop(self.plan.buffers.storage.shared[value], None)
        for held in made:
            self._keep(held)
        self._release(number)

    def _results(self, step: Step, result: Any) -> Iterator[tuple[Value, Any]]:
        """The values that a step wrote, with what they are."""
        if step.in_place:
            for value in step.writes:
                old = self.held.get(self.plan.buffers.storage.shared[value])
                if old is not None:
                    yield value, old.pieces[0].array
            return
        if step in self.plan.buffers.flat.free or step in self.plan.buffers.flat.over:
            for value in step.writes:
                yield value, self._place_of(value)
            return
        slots = step.op.definition.outputs
        for slot, values, given in zip(slots, step.outputs, result if len(slots) != 1 else (result,), strict=True):
            several = given if slot.duplicable and values else [given]
            yield from ((value, array) for value, array in zip(values, several, strict=False) if value is not None)

    def _place_of(self, value: Value) -> Any:
        return self._places[self.plan.buffers.layout.place_of[value]]

    def _may_share(self, new: _Held, other: _Held, number: int, outs: Sequence[_Piece]) -> bool:
        """Tell whether the plan lets two values share memory."""
        roots = self.plan.root(new.value), self.plan.root(other.value)
        if roots[0] is roots[1] or roots in self.plan.related or roots in self.related:
            return True
        # A step may write over memory that it is the last to read, but only if the plan gave it that memory as `out`.
        is_last_use = roots[1] in self.plan.leaving[number]
        return is_last_use and all(any(piece.overlaps(out) for out in outs) for piece in new.pieces)

    def _is_written_over(self, held: _Held, step: Step, number: int, made: Sequence[_Held]) -> bool:
        shared = self.plan.buffers.storage.shared
        if step.in_place and any(shared[value] is held.value for value in step.writes):
            return True
        if step in self.plan.buffers.outputs.over_input and step.inputs[0] is held.value:
            return True
        if step in self.plan.buffers.flat.over:
            return True
        return self.plan.root(held.value) in self.plan.leaving[number] and any(each.overlaps(held) for each in made)

    def _note_copies(self, values: Iterable[Value], number: int) -> None:
        for value in values:
            piece = _Piece(self._place_of(value), self.plan.place)
            self.writes.append((piece.begin, piece.end, number))

    def _release(self, number: int) -> None:
        """Forget values that nothing reads later, and fill their memory with a pattern."""
        for value in self.plan.buffers.liveness.released.get(self.plan.steps.steps[number], ()):
            if value.origin == "step":
                self.held.pop(value, None)
        gone = [held for root in self.plan.spoiled[number] for held in self.family.pop(root, ())]
        for piece in [piece for held in gone for piece in held.pieces]:
            if not any(piece.overlaps(other) for each in self.held.values() for other in each.pieces):
                fill_with_pattern(piece.array)

    def finish(self) -> None:
        """Check that feeds, state and results have not changed."""
        for held in self.held.values():
            if change := held.change():
                raise self._changed(held, "before the end of the run", change)
        for each, array, was in self.earlier:
            piece = _Piece(array, self.plan.place)
            is_given = any(piece.overlaps(other) for held in self.given for other in held.pieces)
            if not is_given and (change := _change(array, was, self.plan.place)):
                raise self._fault(
                    each.maker, f"{each.name} was handed out by an earlier run and was changed by this one", [change]
                )

    def hand_out(self, fetched: Sequence[Any], new_state: Mapping[str, Any]) -> None:
        """Check that results share memory with nothing that lives on."""
        place = self.plan.place
        others = [(f"{held.value.name} ({held.value.origin})", piece) for held in self.given for piece in held.pieces]
        others += [("the memory of the plan", _Piece(buffer, place)) for buffer in self._places]
        others += [(f"{each.name} of an earlier run", _Piece(array, place)) for each, array, _ in self.earlier]
        for name, value in new_state.items():
            others += self._handed_out(f"the new value of {name}", None, value, others)
        for wanted, result in zip(self.plan.steps.fetches, fetched, strict=True):
            op = self._maker(wanted)
            pieces = self._handed_out(wanted.name, op, result, others)
            others += pieces
            if place.kind == "cpu":
                _STATE.handed_out.extend(_HandedOut(wanted.name, op, weakref.ref(piece.array)) for _, piece in pieces)

    def _handed_out(
        self, name: str, op: Operator | None, result: Any, others: Sequence[tuple[str, _Piece]]
    ) -> list[tuple[str, _Piece]]:
        """The memory of a result, checked to be writable and apart from `others`."""
        pieces = _pieces(result, self.plan.place)
        for piece in pieces:
            if not getattr(piece.array.flags, "writeable", True):
                raise self._fault(op, f"{name} is handed out and cannot be written to")
            for whose, other in others:
                if piece.overlaps(other):
                    raise self._fault(op, f"{name} is handed out and shares memory with {whose}")
        return [(name, piece) for piece in pieces]

    # Errors

    def _maker(self, value: Value) -> Operator | None:
        return next((step.op for step in self.plan.steps.steps if value in step.writes), None)

    def _origin(self, held: _Held) -> str:
        if held.made < 0:
            return f"{held.value.name} is {'fed' if held.value.origin == 'feed' else 'state'}"
        op = self.plan.steps.steps[held.made].op
        return f"{held.value.name} was made by {op.type}" + (f", created at {op.site}" if op.site else "")

    def _changed(self, held: _Held, when: str, change: str) -> MemoryUseError:
        """The error about a value that changed, with the operators that wrote to its memory."""
        later = [
            number
            for begin, end, number in self.writes
            if number > held.made and any(begin < piece.end and piece.begin < end for piece in held.pieces)
        ]
        writers = [self.plan.steps.steps[number].op for number in dict.fromkeys(later)]
        details = [change, self._origin(held)]
        details += [f"{op.type} wrote there" + (f", created at {op.site}" if op.site else "") for op in writers]
        maker = self.plan.steps.steps[held.made].op if held.made >= 0 else None
        return self._fault(
            maker or (writers[-1] if writers else None), f"{held.value.name} changed {when}", details, _HINT
        )

    def _fault(self, op: Operator | None, message: str, details: Sequence[str] = (), hint: str = "") -> MemoryUseError:
        return MemoryUseError(
            f"{op.type}: {message}" if op is not None else message,
            details=details,
            site=None if op is None else op.site,
            hint=hint,
        )


def _neighbours(given: Sequence[_Held], root: Callable[[Value], Value]) -> Iterator[tuple[Value, Value]]:
    """The roots of values that share memory, in both orders."""
    pieces = sorted(((piece, held) for held in given for piece in held.pieces), key=lambda each: each[0].begin)
    for number, (one, held) in enumerate(pieces):
        for other, neighbour in pieces[number + 1 :]:
            if other.begin >= one.end:
                break
            if one.overlaps(other):
                roots = root(held.value), root(neighbour.value)
                yield from (roots, roots[::-1])


def _parts(value: Value | FlatView, array: Any) -> Iterator[tuple[Value, Any]]:
    """The values that an array of the state stands for, with their arrays."""
    if isinstance(value, Value):
        yield value, array
        return
    start = 0
    for part in value.parts:
        size = product(part.tensor_type.shape)
        yield part, array[start : start + size].reshape(part.tensor_type.shape)
        start += size
