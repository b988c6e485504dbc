"""Draw the values of attributes, mostly numbers and names that a pass is about."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from minigraph.ir import Operator
from minigraph.opdef import REQUIRED, definition_of
from minigraph.rewrite.random_programs.operator_types import by_type
from minigraph.rewrite.random_programs.sampling import Sample
from minigraph.types import DType, TensorType

NUMBERS = (-1.5, -1.0, -0.5, 0.0, 0.3, 0.5, 1.0, 2.0)
"""Values of attributes and of the numbers that steps take."""

_PLAIN = ("float", "bool")
"""Types of attributes of which other values suit the same operands."""

_OFTEN = (DType.INT32, DType.INT64, DType.FP32, DType.FP64)
"""Element types that most values have."""

_ASIDE = (-0.25, -1e-3, -(2**-20), 2**-20, 1e-3, 0.02, 0.25)
"""Relative distances between a number and others beside it."""


class AttrValues:
    """Values of attributes, all drawn by one generator.

    Parameters
    ----------
    choose : Random
        The generator of the program.
    numbers : sequence of float
        Numbers to draw more often than others.
    names : sequence of str
        Attributes to change more often than others.
    """

    def __init__(self, choose: Random, numbers: Sequence[float], names: Sequence[str]) -> None:
        self._choose = choose
        self._numbers, self._names = numbers, names

    def number(self) -> float:
        """A number, for an attribute or a step."""
        hinted = self._numbers if self._choose.random() < 0.7 else ()
        return float(self._choose.choice(hinted or NUMBERS))

    def number_beside(self) -> float:
        """A number; now and then one close to another, as a pass may take two close numbers for equal."""
        return self.number() * (1 + self._choose.choice(_ASIDE) if self._choose.random() < 0.1 else 1)

    def of_sample(self, sample: Sample) -> dict[str, Any]:
        """Attributes of the sample: some are changed, or numbers and booleans have their defaults."""
        attrs, declared = dict(sample.attrs), sample.definition.attrs
        for name in self._names if self._choose.random() < 0.5 else ():
            if isinstance(attrs.get(name), list | tuple) and attrs[name] and declared[name].type == "list[int]":
                attrs[name] = [self._choose.choice((each, each, 0, 1, 2, 3)) for each in attrs[name]]
        named = [name for name in self._names if name in declared and declared[name].type == "float"]
        if self._choose.random() < (0.5 if named else 0.25):
            attrs = {
                name: value for name, value in attrs.items()
                if name not in declared or declared[name].default is REQUIRED or declared[name].type not in _PLAIN
            }  # fmt: skip
            # One number that the pass names, with nothing else unusual: a pass mostly asks for that.
            return {**attrs, self._choose.choice(named): self.number()} if named else attrs
        for name, attr in declared.items():
            chance = self._choose.random()
            if name in self._names and attr.type in _PLAIN and attr.default is not REQUIRED and chance > 0.7:
                attrs.pop(name, None)
            elif chance < 0.3:
                if attr.type == "float":
                    attrs[name] = self.number_beside()
                elif attr.type == "bool":
                    attrs[name] = self._choose.random() < 0.5
                elif attr.type == "int" and name == "axis":
                    attrs[name] = self._choose.choice((-1, 0, 1))
                elif name == "out_dtype":
                    attrs[name] = int(self._choose.choice(_OFTEN))
        return attrs

    def one_changed(self, op: Operator) -> dict[str, Any]:
        """The attributes of an operator, with one number a bit larger or smaller, or one boolean turned around."""
        attrs = dict(op.attrs)
        kinds = {name: attr.type for name, attr in op.definition.attrs.items() if attr.type in _PLAIN}
        numbers = sorted(name for name, kind in kinds.items() if kind == "float")
        numbers = [name for name in numbers if name in self._names] or numbers
        if kinds:
            name = self._choose.choice(numbers if numbers and self._choose.random() < 0.7 else sorted(kinds))
            value, aside = attrs.get(name, op.definition.default_of(name)), self._choose.choice(_ASIDE)
            attrs[name] = not value if kinds[name] == "bool" else value * (1 + aside) if value else aside
        return attrs

    def one(self, type: str, name: str, operand: TensorType | None = None) -> Any:
        """A value of an attribute of operators of a type; one that may suit their first operand."""
        attr = definition_of(type).attrs[name]
        if attr.type == "float":
            return self.number_beside()
        if attr.type == "bool":
            return self._choose.random() < 0.5
        if operand is not None and name == "in_dtype":
            return int(operand.dtype)
        known = [sample.attrs[name] for sample in by_type().get(type, ()) if name in sample.attrs]
        known += [] if attr.default is REQUIRED else [attr.default]
        value = self._choose.choice(known)
        if operand is None or not operand.shape or self._choose.random() < 0.3:
            return value
        if attr.type == "list[int]":
            return self._reordered(list(value), len(operand.shape))
        if attr.type == "int" and name in ("axis", "dim"):
            return self._choose.randrange(-len(operand.shape), len(operand.shape))
        return value

    def _reordered(self, value: list[int], dimensions: int) -> list[int]:
        """Shuffle the numbers of a list, and repeat or leave out some to suit the dimensions of an operand."""
        if sorted(value) == list(range(len(value))):
            value = list(range(dimensions))
        elif len(value) > 1:
            value = [self._choose.choice(value) for _ in range(dimensions * self._choose.choice((1, 1, 2)))]
        self._choose.shuffle(value)
        return value
