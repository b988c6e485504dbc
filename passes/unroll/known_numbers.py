"""Integers and booleans that operators compute from constants, such as the counters of loops and indices of arrays."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from minigraph.errors import MinigraphError
from minigraph.ir import Block, Operator, VarKind
from minigraph.opdef import EMPTY
from minigraph.passes.rewriting import is_random
from minigraph.runtime.evaluate import evaluate
from minigraph.runtime.place import CPUPlace

_MOST_ELEMENTS = 16


class KnownNumbers:
    """The known numbers of a block, by name, at a place in it: after the operators that were noted, in their order.

    Numbers are those of variables of at most 16 integers or booleans; these are the same on every device.
    """

    def __init__(self, block: Block) -> None:
        self._block = block
        self._arrays: dict[str, Any] = {}

    def note(self, op: Operator) -> None:
        """Go on behind `op`, which computes known numbers or others."""
        names = op.output_arg_names
        found = self._computed(op) if any(map(self._may_be_known, names)) else {}
        for name in names:
            self._arrays.pop(name, None)
        self._arrays.update(found)

    def integers(self, names: Sequence[str]) -> list[int] | None:
        """All integers of several variables, None if one is not known."""
        if not self._arrays.keys() >= set(names):
            return None
        return [int(number) for name in names for number in self._arrays[name].ravel()]

    def runs(self, ops: Sequence[Operator], condition: str, most: int) -> int:
        """How often a loop runs `ops` until its condition does not hold; 0 if that is not known or above `most`."""
        ops = _slice(ops, condition)
        inside = KnownNumbers(ops[0].block if ops else self._block)
        inside._arrays = dict(self._arrays)
        count = 0
        while (value := inside._arrays.get(condition)) is not None and value.size == 1 and count <= most:
            if not value.item():
                return count
            for op in ops:
                inside.note(op)
            count += 1
        return 0

    def _may_be_known(self, name: str) -> bool:
        var = None if name == EMPTY else self._block.find_var(name)
        if var is None or var.kind is not VarKind.LOD_TENSOR or var.dtype.is_floating or var.lod_level:
            return False
        return var.shape is not None and -1 not in var.shape and prod(var.shape) <= _MOST_ELEMENTS

    def _computed(self, op: Operator) -> dict[str, Any]:
        """The results by name; none if an input is not known or the kernel raises an error, as the run will."""
        definition = op.definition
        if definition.has_hidden_names or definition.handles_lengths or is_random(op.type):
            return {}
        if not self._arrays.keys() >= set(op.input_arg_names) or not all(map(self._may_be_known, op.output_arg_names)):
            return {}
        try:
            with np.errstate(all="ignore"):
                return evaluate(op, self._arrays.__getitem__, CPUPlace(), None)
        except (MinigraphError, ArithmeticError, ValueError, LookupError):
            return {}


def _slice(ops: Sequence[Operator], name: str) -> list[Operator]:
    """The operators of a loop that a variable depends on, in order."""
    wanted, kept = {name}, set[Operator]()
    while found := [op for op in ops if op not in kept and not wanted.isdisjoint(op.output_arg_names)]:
        kept.update(found)
        wanted.update(name for op in found for name in op.input_arg_names)
    return [op for op in ops if op in kept]
