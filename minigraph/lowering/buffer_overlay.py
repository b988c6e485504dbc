"""Values that live for a while in an arena of gradients, where none has been written yet.

An arena is taken as a whole when the first gradient is written to it, while activations are still needed for the
others. So that a plan needs no more memory than one that gives every value memory of its own until its last use,
activations are put where the gradients come later: the backward pass frees them in the order in which it writes the
gradients. Law: no two values that are needed at one time share a byte.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from minigraph.lowering.costs import size_in_bytes
from minigraph.lowering.flat_buffers import IN_PLACE, can_be_placed, is_state, take_apart
from minigraph.lowering.liveness import Lifetimes, last_uses
from minigraph.lowering.steps import Step, Steps, Value
from minigraph.runtime.place import ALIGNMENT

_LARGE = 512
"""Values of so many bytes begin with a line of the cache; others where their elements may."""

_TRIES = 64
"""So many places are looked at for each value."""


@dataclass(frozen=True, eq=False)
class Guest:
    """A value in an arena of others, with the offset in bytes from where the arena begins."""

    value: Value
    arena: list[Value]
    offset: int


def find_guests(steps: Steps, limit: Callable[[], int]) -> dict[int, Guest]:
    """By their identities, values to be put into arenas, if the arenas need more memory than values by themselves.

    Where that is not enough the arenas are given up: small programs may have nothing to put there.

    Parameters
    ----------
    steps : Steps
    limit : callable
        How many bytes a run may need at most; asked only where more are needed than by values by themselves.
    """
    arenas = [arena for arena in steps.arenas if not is_state(arena)]
    if not arenas:
        return {}
    bound, _ = Lifetimes(steps, with_arenas=False).peak()
    if Lifetimes(steps).peak()[0] <= bound:
        return {}
    rooms = [_Room(arena, steps) for arena in arenas]
    rooms.sort(key=lambda room: -room.size)
    guests = {id(guest.value): guest for guest in _lodge(steps, _candidates(steps), rooms)}
    needed, _ = Lifetimes(steps, guests={number: guest.arena for number, guest in guests.items()}).peak()
    if needed > bound and needed > limit():
        take_apart(steps)
        return {}
    return guests


def _candidates(steps: Steps) -> list[tuple[int, int, Value]]:
    """First and last step of values that can be written to any place, and the values."""
    kept = {id(value.root) for value in (*steps.fetches, *steps.new_state.values())}
    last_use = {root: number for number, gone in enumerate(last_uses(steps)) for root in gone if root not in kept}
    in_arenas = {id(value) for arena in steps.arenas for value in arena}
    # A sub-block may keep the values it reads for its gradient.
    taken = {id(whole) for whole, _ in steps.covers} | {
        id(value.root) for step in steps.steps if step.call is not None for value in step.values_read()
    }
    found = []
    for number, step in enumerate(steps.steps):
        rest = [value for value in step.values_written() if id(value) not in in_arenas]
        for value in can_be_placed(step):
            last = last_use.get(id(value))
            if last is None or id(value) in in_arenas or id(value) in taken:
                continue
            # Some kernels take memory for all that they write or for nothing; for a gradient all take it.
            if len(rest) == 1 or id(_written_over(steps.steps[last], value)) in in_arenas:
                found.append((number, last, value))
    return found


def _alignment(size: int) -> int:
    return ALIGNMENT if size >= _LARGE else 8


class _Room:
    """The bytes of an arena, each free until the step that writes the value that lies there."""

    def __init__(self, arena: list[Value], steps: Steps) -> None:
        self.arena = arena
        self.until = _first_writes(arena, steps)
        """For each value of the arena, the step from which on its bytes are taken."""
        self._ends = list(accumulate(map(size_in_bytes, arena)))
        self.size = self._ends[-1]
        self._number = {id(value): i for i, value in enumerate(arena)}

    def place_of(self, result: Value, first: int, last: int) -> int | None:
        """The offset of `result`, for what the step `last` makes it of, from the step `first` on; None if not here."""
        i = self._number.get(id(result))
        if i is None or self.until[i] != last:
            return None
        self.until[i] = first
        return self._ends[i - 1] if i else 0

    def open(self) -> None:
        """From now on places are looked for."""
        self._in_order = sorted(range(len(self.arena)), key=lambda i: self.until[i])
        self._steps_in_order = [self.until[i] for i in self._in_order]
        self._there: list[tuple[int, int, int, int]] = []
        """Offset and end of each guest with its first and last step, by offset."""
        self._longest = 0

    def take(self, size: int, first: int, last: int) -> int | None:
        """The offset of room for a value that is needed from one step to another; None where none is found soon."""
        offset = self._find(size, first, last)
        if offset is not None:
            insort(self._there, (offset, offset + size, first, last))
            self._longest = max(self._longest, size)
        return offset

    def _find(self, size: int, first: int, last: int) -> int | None:
        step = _alignment(size)
        # Best where a value is written soonest afterwards: the others stay free for what lives longer.
        soonest = self._in_order[(at := bisect_right(self._steps_in_order, last)) : at + _TRIES]
        for i in soonest:
            start, end = self._ends[i - 1] if i else 0, self._ends[i]
            if size <= end - start and (found := self._first_fit(start, size, first, last, end)) is not None:
                return found
        for i in soonest:
            offset = (self._ends[i] - size) // step * step
            if offset >= 0 and self._end_of_conflict(offset, offset + size, first, last) is None:
                return offset
        return self._first_fit(0, size, first, last, self.size)

    def _first_fit(self, start: int, size: int, first: int, last: int, end: int) -> int | None:
        step = _alignment(size)
        for _ in range(_TRIES):
            offset = -(-start // step) * step
            if offset + size > end:
                return None
            conflict = self._end_of_conflict(offset, offset + size, first, last)
            if conflict is None:
                return offset
            start = conflict
        return None

    def _end_of_conflict(self, start: int, end: int, first: int, last: int) -> int | None:
        """The end of something that is in the way between two offsets from one step to another; None if nothing is."""
        for i in range(bisect_left(self._there, (end,)) - 1, -1, -1):
            other, other_end, other_first, other_last = self._there[i]
            if other <= start - self._longest:
                break
            if other_end > start and other_first <= last and first <= other_last:
                return other_end
        for i in range(bisect_left(self._ends, end), bisect_right(self._ends, start) - 1, -1):
            if self.until[i] <= last:
                return self._ends[i]
        return None


def _first_writes(arena: Iterable[Value], steps: Steps) -> list[int]:
    """For each value of an arena, the step that is the first to write to its place."""
    first: dict[int, int] = {}
    copied = {id(value) for values in steps.copied.values() for value in values}
    covered = {id(whole): parts for whole, parts in steps.covers}
    for number, step in enumerate(steps.steps):
        for value in steps.copied.get(number, ()):
            first.setdefault(id(value), number)
        for value in step.values_written():
            if id(value) not in copied:
                first.setdefault(id(value), number)
                for part in covered.get(id(value), ()):
                    first.setdefault(id(part), number)
    return [first[id(value)] for value in arena]


def _written_over(step: Step, value: Value) -> Value | None:
    """What `step` makes of `value` and may write over it."""
    if step.op.type not in IN_PLACE or step.inputs[0] is not value or len(step.values_written()) != 1:
        return None
    (result,) = step.values_written()
    return result if result.tensor_type == value.tensor_type else None


def _lodge(steps: Steps, candidates: Sequence[tuple[int, int, Value]], rooms: Sequence[_Room]) -> list[Guest]:
    """Places for values, as long as there is room."""
    found: list[Guest] = []
    others = []
    for first, last, value in candidates:
        result = _written_over(steps.steps[last], value)
        places = [] if result is None else [(room, room.place_of(result, first, last)) for room in rooms]
        taken = [Guest(value, room.arena, offset) for room, offset in places if offset is not None]
        found += taken
        if not taken:
            others.append((first, last, value))
    for room in rooms:
        room.open()
    # What lives long has the choice: it is what is left when the first gradients are written.
    others.sort(key=lambda each: each[0] - each[1])
    for first, last, value in others:
        for room in rooms:
            offset = room.take(size_in_bytes(value), first, last)
            if offset is not None:
                found.append(Guest(value, room.arena, offset))
                break
    return found
