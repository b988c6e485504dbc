"""Which memory is alive at each step of a plan, and how much that is at most."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import accumulate

from minigraph.lowering.costs import PASSES_ON, VIEWS, size_in_bytes
from minigraph.lowering.flat_buffers import is_state
from minigraph.lowering.steps import Joined, Step, Steps, Value
from minigraph.types import TensorType, product

Owner = Value | Joined
"""What has memory: a value, or an arena as a whole."""


class Lifetimes:
    """From which step to which the memory of each value is in use.

    A view, the state that an update writes over and what lies in an arena have memory together. An arena of temporaries
    is taken as a whole, from the first value that is written to it on.

    Parameters
    ----------
    steps : Steps
    with_arenas : bool
        Without, every value has memory of its own until its last use.
    """

    def __init__(self, steps: Steps, with_arenas: bool = True) -> None:
        self._count = len(steps.steps)
        homes = _homes(steps) if with_arenas else {}
        owners = _owners(steps, homes)
        self._span: dict[int, list[int]] = {}
        """By identity of an owner, the first step that needs its memory, -1 for what is there before, and the last."""
        self._owners: list[Owner] = []
        for value in (*steps.feeds, *steps.state):
            self._begin(value, -1)
        for number, step in enumerate(steps.steps):
            for value in steps.copied.get(number, ()) if with_arenas else ():
                self._begin(homes[id(value)], number)
            for value in step.values_written():
                self._begin(owners[id(value)], number)
        for number, released in enumerate(steps.released):
            for value in released:
                self._span[id(owners[id(value)])][1] = number
                if id(value) in homes:
                    self._span[id(homes[id(value)])][1] = number
        for value in (*steps.feeds, *steps.state, *steps.fetches, *steps.new_state.values()):
            self._span[id(owners[id(value)])][1] = self._count  # the caller's, the scope's

    def _begin(self, owner: Owner, number: int) -> None:
        if id(owner) not in self._span:
            self._span[id(owner)] = [number, self._count]
            self._owners.append(owner)

    def peak(self) -> tuple[int, int]:
        """The most bytes that are alive together, and the first step at which they are; -1 is before all steps."""
        changes: defaultdict[int, int] = defaultdict(int)
        for owner in self._owners:
            first, last = self._span[id(owner)]
            changes[first] += size_in_bytes(owner)
            changes[last + 1] -= size_in_bytes(owner)
        sizes = list(accumulate(changes[number] for number in range(-1, self._count)))
        most = max(sizes)
        return most, sizes.index(most) - 1

    def at(self, number: int) -> Iterator[Owner]:
        """What is alive while a step runs."""
        return (owner for owner in self._owners if self._span[id(owner)][0] <= number <= self._span[id(owner)][1])


def _homes(steps: Steps) -> dict[int, Joined]:
    """By identity of each value that lies in an arena of temporaries, or covers one, the whole arena."""
    found: dict[int, Joined] = {}
    for arena in steps.arenas:
        if not is_state(arena):
            size = sum(product(value.tensor_type.shape) for value in arena)
            whole = Joined(
                f"{arena[0].name} and {len(arena) - 1} more", TensorType(arena[0].tensor_type.dtype, (size,)), arena
            )
            found.update({id(value): whole for value in arena})
    return found | {id(whole): found[id(parts[0])] for whole, parts in steps.covers}


def _owners(steps: Steps, homes: Mapping[int, Joined]) -> dict[int, Owner]:
    """By identity of each value what surely has its memory: itself, unless it is a view, an update or in an arena."""
    copied = {id(value) for values in steps.copied.values() for value in values}
    owners: dict[int, Owner] = {id(value): value for value in (*steps.feeds, *steps.state)}
    for step in steps.steps:
        for value in step.values_written():
            shares = step.in_place or step.op.type in VIEWS or _passes_on(step, value)
            if id(value) in homes and id(value) not in copied:
                owners[id(value)] = homes[id(value)]
            else:
                owners[id(value)] = owners[id(value.storage)] if shares and value.storage is not None else value
    return owners


def last_uses(steps: Steps) -> list[list[int]]:
    """For each step the identities of the values whose memory nothing reads later."""
    leaving: list[list[int]] = [[] for _ in steps.steps]
    seen: set[int] = set()
    for index in range(len(steps.steps) - 1, -1, -1):
        step = steps.steps[index]
        for value in (*step.values_read(), *step.values_written()):
            root = id(value.root)
            if root not in seen:
                seen.add(root)
                leaving[index].append(root)
    return leaving


def _passes_on(step: Step, value: Value) -> bool:
    """Whether the kernel returns an argument as it is."""
    source = value.storage
    return step.op.type in PASSES_ON and source is not None and source.tensor_type == value.tensor_type
