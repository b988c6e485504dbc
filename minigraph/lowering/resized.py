"""The steps of a plan for other sizes: they are made of the steps of an earlier plan, without a look at operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from minigraph.lowering.steps import Step, Steps, Storage, Value
from minigraph.types import TensorType

_T = TypeVar("_T")


class _Twin(Step):
    """A step on values of other sizes. It looks its values up when somebody asks: a plan does for few steps."""

    __slots__ = ("like", "twins")

    like: Step
    twins: Mapping[Value, Value]

    def __getattr__(self, name: str) -> Any:
        if name not in ("inputs", "outputs", "reads", "writes"):
            raise AttributeError(name)
        get, like = self.twins.get, self.like
        self.inputs = [
            get(each, each) if isinstance(each, Value) else each and [value and get(value, value) for value in each]
            for each in like.inputs
        ]
        self.outputs = [[value and get(value, value) for value in slot] for slot in like.outputs]
        self.reads = [get(value, value) for value in like.reads]
        self.writes = [get(value, value) for value in like.writes]
        return getattr(self, name)


_new_twin = _Twin.__new__


def _on(step: Step, twins: Mapping[Value, Value]) -> Step:
    """The same step on the twins of its values."""
    twin = _new_twin(_Twin)  # without `__init__`, which would look for the values
    twin.op, twin.kernel, twin.in_place, twin.call, twin.body = (
        step.op,
        step.kernel,
        step.in_place,
        step.call,
        step.body,
    )
    twin.like, twin.twins = step, twins
    return twin


@dataclass(frozen=True, eq=False)
class Resized:
    """Steps for other sizes than those of earlier ones.

    Attributes
    ----------
    before, steps : Steps
        The same steps in the same order; those on values that keep their types are the same objects.
    twins : mapping
        Value of `steps` for each value of `before` whose type differs.
    numbers : sequence of int
        Numbers of the steps on such values.
    """

    before: Steps
    steps: Steps
    twins: Mapping[Value, Value]
    numbers: Sequence[int]

    def twin_of(self, value: _T) -> _T:
        """The value in the place of an earlier one, which is itself if its type is the same."""
        return self.twins.get(value, value)  # type: ignore[call-overload]  # a flat view has no twin

    def value_of(self, twin: _T) -> _T:
        """The earlier value in the place of `twin`."""
        return self._values.get(twin, twin)  # type: ignore[call-overload]

    @cached_property
    def _values(self) -> Mapping[Value, Value]:
        return {twin: value for value, twin in self.twins.items()}


class Resizing:
    """The parts of the steps of a program that all sizes share.

    Parameters
    ----------
    steps : Steps
    types : sequence of TensorType
        Types that depend on the sizes; the values of `steps` have these objects.
    """

    def __init__(self, steps: Steps, types: Sequence[TensorType]) -> None:
        self.steps = steps
        index_of = {id(each): index for index, each in enumerate(types)}
        self._values = [
            (value, index_of[id(value.tensor_type)]) for value in steps.values() if id(value.tensor_type) in index_of
        ]
        varying = {value for value, _ in self._values}
        self.numbers = [
            number
            for number, step in enumerate(steps.steps)
            if not (varying.isdisjoint(step.reads) and varying.isdisjoint(step.writes))
        ]
        """Numbers of the steps on values whose sizes vary."""
        self._can_be_resized = (
            varying.isdisjoint(steps.state)
            and varying.isdisjoint(steps.new_state.values())
            and all([steps.steps[number].body is None for number in self.numbers])
        )

    def at(self, types: Sequence[TensorType]) -> Resized | None:
        """Return the steps with other types for the values whose types depend on sizes.

        None if a sub-block reads or writes values of these types, or if state has one of them: which steps write over
        state depends on its sizes.
        """
        if not self._can_be_resized:
            return None
        before = self.steps
        twins = {value: Value(value.name, types[index], value.origin) for value, index in self._values}
        get, steps = twins.get, list(before.steps)
        for number in self.numbers:
            steps[number] = _on(steps[number], twins)
        shared = {get(value, value): get(other, other) for value, other in before.storage.shared.items()}
        feeds, fetches = ([get(value, value) for value in values] for values in (before.feeds, before.fetches))
        found = Steps(feeds, before.state, steps, fetches, before.new_state, Storage(shared), before.found)
        return Resized(before, found, twins, self.numbers)
