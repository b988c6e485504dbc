"""A tensor of the imperative mode as a variable of a scope."""

from __future__ import annotations

from typing import Any

from minigraph.runtime.place import Place
from minigraph.runtime.scope_variable import ScopeVariable, moved, type_of


class SharedVariable(ScopeVariable):
    """A slot of a scope whose value is that of a tensor.

    Executors may write to arrays that they find in a scope, tensors never share theirs: each side has its own copy,
    made when the other side has another value.
    """

    __slots__ = ("_copied", "_own", "_place", "_tensor")

    def __init__(self, name: str, tensor: Any) -> None:
        self._tensor = tensor
        self._own = self._copied = self._spare = None
        self.lod = ()
        self.name = name
        self._place: Place = tensor.block.place

    @property
    def place(self) -> Place:
        return self._place

    @place.setter
    def place(self, place: Place) -> None:
        self._place = place
        here = self._tensor.block.place
        if place != here and self._own is not None:
            # The array was made on `place`; the operators of the tensor run on its own.
            self._copied = self._tensor.array = moved(self._own, place, here)

    @property
    def value(self) -> Any:
        if self._tensor.array is not self._copied:
            self._copied = self._tensor.array
            self._own = None if self._copied is None else self._copied.copy()
        return self._own

    @value.setter
    def value(self, value: Any) -> None:
        self._own = value
        self._copied = self._tensor.array = None if value is None else value.copy()
        if value is not None:
            self._tensor.tensor_type = type_of(value)

    def replace(self, value: Any, place: Place, keep_old: bool) -> None:
        self.value, self.place = value, place  # the tensor's, too

    def move(self, value: Any, place: Place) -> None:
        self.value, self.place = value, place
