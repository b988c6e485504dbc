"""Liveness: after which step nothing needs a value or its memory, and the peak of the bytes in use."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

from minigraph.lowering.costs import PASSES_ON, VIEWS, size_in_bytes
from minigraph.lowering.flat_buffers import FlatBuffers, FlatView, is_state
from minigraph.lowering.steps import Step, Steps, Storage, Value
from minigraph.types import TensorType, product

Owner = Value | FlatView
"""A value, or a flat buffer as a whole."""


@dataclass(frozen=True, eq=False)
class Liveness:
    """Last uses of values and of memory."""

    steps: Steps
    storage: Storage

    @cached_property
    def released(self) -> Mapping[Step, Sequence[Value]]:
        """Values that no later step reads, by step; without fetches and state."""
        # Writes count as well as reads, so that a value that nothing reads is released after the step that writes it.
        last = {value: step for step in self.steps.steps for values in (step.reads, step.writes) for value in values}
        for value in (*self.steps.fetches, *self.steps.new_state.values(), *self.steps.state):
            last.pop(value, None)
        return _by_step(last)

    @cached_property
    def leaving(self) -> Mapping[Step, Sequence[Value]]:
        """Roots whose memory no later step reads, by step; see `Storage.root`."""
        root = self.storage.root
        return _by_step(
            {root(value): step for step in self.steps.steps for values in (step.reads, step.writes) for value in values}
        )


def _by_step(last: Mapping[Value, Step]) -> Mapping[Step, Sequence[Value]]:
    found: defaultdict[Step, list[Value]] = defaultdict(list)
    for value, step in last.items():
        found[step].append(value)
    return found


class Lifetimes:
    """First and last step at which the memory of each value is in use.

    A view and its source share memory, so do new state and the state that it is written over, and the values of a flat
    buffer. A flat buffer of temporaries is in use as a whole, from the first write to it on.
    """

    def __init__(self, steps: Steps, flat: FlatBuffers, liveness: Liveness) -> None:
        self._count = len(steps.steps)
        homes = _homes(flat)
        owners = _owners(steps, flat, liveness.storage, homes)
        self._span: dict[Owner, list[int]] = {}
        """First step that uses the memory of an owner, -1 for feeds and state, and the last one."""
        for value in (*steps.feeds, *steps.state):
            self._begin(value, -1)
        for number, step in enumerate(steps.steps):
            for value in flat.copies.get(step, ()):
                self._begin(homes[value], number)
            for value in step.writes:
                self._begin(owners[value], number)
        for number, step in enumerate(steps.steps):
            for value in liveness.released.get(step, ()):
                # A value that is copied to a flat buffer has two pieces of memory: its own, and its part of the buffer.
                for owner in (owners[value], homes.get(value, owners[value])):
                    self._span[owner][1] = number
        for value in (*steps.feeds, *steps.state, *steps.fetches, *steps.new_state.values()):
            self._span[owners[value]][1] = self._count  # the caller's, the scope's

    def _begin(self, owner: Owner, number: int) -> None:
        self._span.setdefault(owner, [number, self._count])

    def peak(self) -> tuple[int, int]:
        """Maximum bytes in use at once, and the first step at which they are; -1 is before all steps."""
        changes: defaultdict[int, int] = defaultdict(int)
        for owner, (first, last) in self._span.items():
            changes[first] += size_in_bytes(owner)
            changes[last + 1] -= size_in_bytes(owner)
        sizes = list(accumulate(changes[number] for number in range(-1, self._count)))
        most = max(sizes)
        return most, sizes.index(most) - 1

    def at(self, number: int) -> Iterator[Owner]:
        """The owners that are alive while a step runs."""
        return (owner for owner, (first, last) in self._span.items() if first <= number <= last)


def _homes(flat: FlatBuffers) -> dict[Value, FlatView]:
    """Map each value in a flat buffer of temporaries, and each alias of its values, to the whole buffer."""
    found: dict[Value, FlatView] = {}
    for values in flat.buffers:
        if not is_state(values):
            size = sum(product(value.tensor_type.shape) for value in values)
            name = f"{values[0].name} and {len(values) - 1} more"
            whole = FlatView(name, TensorType(values[0].tensor_type.dtype, (size,)), values)
            found.update(dict.fromkeys(values, whole))
    return found | {whole: found[parts[0]] for whole, parts in flat.aliases.items()}


def _owners(steps: Steps, flat: FlatBuffers, storage: Storage, homes: dict[Value, FlatView]) -> dict[Value, Owner]:
    """Map each value to the owner of its memory: itself, unless it is a view, an update or in a flat buffer."""
    owners: dict[Value, Owner] = {value: value for value in (*steps.feeds, *steps.state)}
    for step in steps.steps:
        for value in step.writes:
            source = storage.shared.get(value)
            if value in homes and value not in flat.copied:
                owners[value] = homes[value]
            elif source is not None and (step.in_place or step.op.type in VIEWS or _passes_on(step, source, value)):
                owners[value] = owners[source]
            else:
                owners[value] = value
    return owners


def _passes_on(step: Step, source: Value, value: Value) -> bool:
    """Tell whether the kernel returns an argument as it is."""
    return step.op.type in PASSES_ON and source.tensor_type == value.tensor_type
