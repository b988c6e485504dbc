"""Find operators that read a different value of a name than before a pass.

A name may be written several times. Values are numbered by what computes them, in two programs alike: equal operators
on equal values make equal values, and a copy is the value itself.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from itertools import count
from typing import Any, NamedTuple

from minigraph.ir.block import Block
from minigraph.ir.operator import Operator


class OtherValue(NamedTuple):
    """An operator that reads a name while the name has the wrong value."""

    op: Operator
    name: str
    writer: Operator | None
    """The operator that makes the value that is read; None if it comes from outside of the block."""


def other_value_read(before: Block, after: Block) -> OtherValue | None:
    """Find a new operator of `after` that reads a different value of a name than the operators it replaces.

    The operator makes results that `before` makes, too. In `before` they depend on a value of the name, but not on the
    value that the operator reads.
    """
    again = _written_again(before)
    if not again or _uses(before, again) == _uses(after, again):
        return None
    numbers: dict[Any, int] = {}
    old, new = _Numbered(before, numbers), _Numbered(after, numbers)
    asked: dict[Operator, dict[str, int]] = {}
    for op in after.ops:
        if new.call[op] not in old.calls:
            asked[op] = {name: value for name, value in new.read[op].items() if value in old.values.get(name, ())}
    bit = (1 << place for place in count())
    names = dict.fromkeys([name for read in asked.values() for name in read if len(old.values[name]) > 1])
    bits = {name: {value: next(bit) for value in old.values[name]} for name in names}
    every = {name: sum(of_values.values()) for name, of_values in bits.items()}
    has_order = {name: _order(old, name) == _order(new, name) for name in bits}
    makers_of = _Results(new, _made_in(old, new, bits))
    alike = set(map(_signature, old.read))
    for op, values in asked.items():
        read = {name: value for name, value in values.items() if has_order.get(name)}
        makers = makers_of(op) if read else _NONE
        if makers.is_repeated:
            continue  # which of two equal operators this one takes the place of cannot be told
        has_twin = _signature(op) in alike
        for name, value in read.items():
            if makers.below & bits[name][value] or not makers.below & every[name]:
                continue
            # A new operator may compute a result from another one that stood after it.
            if has_twin or not _is_written_after(makers, name, value, old):
                return OtherValue(op, name, new.writer.get((name, value)))
    return None


def _is_written_after(makers: _Makers, name: str, value: int, block: _Numbered) -> bool:
    """Whether a value is written to a name after all of these operators."""
    writer = block.writer.get((name, value))
    return writer is not None and makers.last <= block.place[writer]


class _Numbered:
    """The values that the operators of a block read and make."""

    def __init__(self, block: Block, numbers: dict[Any, int]) -> None:
        self.read: dict[Operator, dict[str, int]] = {}
        self.made: dict[Operator, dict[str, int]] = {}
        self.call: dict[Operator, int] = {}
        """Numbers of what operators compute."""
        self.writer: dict[tuple[str, int], Operator] = {}
        self.makers: defaultdict[str, list[Operator]] = defaultdict(list)
        self.readers: defaultdict[tuple[str, int], list[Operator]] = defaultdict(list)
        self.place = {op: number for number, op in enumerate(block.ops)}
        now: dict[str, int] = {}
        outside: dict[str, int] = {}
        for op in block.ops:
            read = self.read[op] = {}
            for name in op.input_arg_names:
                value = now.get(name)
                if value is None:
                    value = outside[name] = _number(numbers, name)
                read[name] = value
                self.readers[name, value].append(op)
            call = self.call[op] = _call(op, read, numbers)
            is_copy = op.type == "assign"
            made = self.made[op] = {}
            for place, name in enumerate(op.output_arg_names):
                value = made[name] = read[op.inputs["X"][0]] if is_copy else _number(numbers, (call, place))
                self.writer.setdefault((name, value), op)
                self.makers[name].append(op)
            now.update(made)
        self.calls = Counter(self.call.values())
        self.values: dict[str, dict[int, None]] = {}
        """Names that are written, with their values."""
        for name, ops in self.makers.items():
            first = [outside[name]] if name in outside else []
            self.values[name] = dict.fromkeys([*first, *(self.made[op][name] for op in ops)])


def _signature(op: Operator) -> tuple[Any, ...]:
    return op.type, frozenset(op.inputs.items()), frozenset(op.outputs.items())


def _order(block: _Numbered, name: str) -> list[int]:
    """Return the values that are written to a name, in order.

    Where a pass has changed the order, an equal value may come from other operators.
    """
    return [block.made[op][name] for op in block.makers[name]]


def _written_again(block: Block) -> set[str]:
    """Return the names that have several values."""
    seen, found = set[str](), set[str]()
    for op in block.ops:
        seen.update(op.input_arg_names)
        names = op.output_arg_names
        found.update(seen.intersection(names))
        seen.update(names)
    return found


def _uses(block: Block, names: set[str]) -> list[Any]:
    """Return what uses these names, in order."""
    return [
        (op.type, op.inputs, op.outputs)
        for op in block.ops
        if not (names.isdisjoint(op.input_arg_names) and names.isdisjoint(op.output_arg_names))
    ]


def _number(numbers: dict[Any, int], what: Any) -> int:
    return numbers.setdefault(what, len(numbers))


def _call(op: Operator, read: dict[str, int], numbers: dict[Any, int]) -> int:
    """Return the number of what an operator computes."""
    key: tuple[Any, ...] = (
        op.type, tuple([(slot, tuple([read.get(name) for name in names])) for slot, names in op.inputs.items()]),
        tuple([(slot, len(names)) for slot, names in op.outputs.items()]), repr(dict(op.attrs)) if op.attrs else "",
    )  # fmt: skip
    if op.definition.has_hidden_names:
        key = (*key, tuple(read.items()))
    return _number(numbers, key)


def _below(block: _Numbered, bits: dict[str, dict[int, int]]) -> dict[Operator, int]:
    """Return for each operator the bits of the values on which its results depend."""
    found: dict[Operator, int] = {}
    for op, read in block.read.items():
        seen = 0
        for name, value in read.items():
            if name in bits:
                seen |= bits[name].get(value, 0)
            maker = block.writer.get((name, value))
            if maker is not None:
                seen |= found.get(maker, 0)
        found[op] = seen
    return found


class _Makers(NamedTuple):
    """The operators of the block before that make some names, as far as it is asked for."""

    is_repeated: bool
    """Whether one of them computes what another operator computes, too."""
    below: int
    """Bits of the values on which the removed operators depend."""
    last: int
    """Place of the last one."""


_NONE = _Makers(False, 0, -1)


def _together(makers: Iterable[_Makers]) -> _Makers:
    is_repeated, below, last = _NONE
    for each in makers:
        is_repeated, below, last = is_repeated or each.is_repeated, below | each.below, max(last, each.last)
    return _Makers(is_repeated, below, last)


def _made_in(old: _Numbered, new: _Numbered, bits: dict[str, dict[int, int]]) -> dict[str, _Makers]:
    """Return the makers of each name in `old`; an operator is gone where `new` has none that computes the same."""
    below = _below(old, bits)
    made = {
        op: _Makers(old.calls[call] > 1, 0 if call in new.calls else below[op], old.place[op])
        for op, call in old.call.items()
    }
    return {name: _together([made[op] for op in ops]) for name, ops in old.makers.items()}


class _Results:
    """The makers of the names that an operator of `block` writes and the block before has; else of its nearest readers.

    Each value is looked at once, whatever the number of operators that lead to it.
    """

    def __init__(self, block: _Numbered, made: dict[str, _Makers]) -> None:
        self._block, self._made = block, made
        self._found: dict[tuple[str, int], _Makers] = {}
        """For values of names that the block before does not have: what their readers make."""
        values = [key for key in reversed(block.writer) if key[0] not in made and key in block.readers]
        is_complete = False
        while not is_complete:  # more than once where a reader stands before, as of two names that are copies
            is_complete = True
            for key in values:
                found = _together(map(self, block.readers[key]))
                if found != self._found.get(key):
                    self._found[key], is_complete = found, False

    def __call__(self, op: Operator) -> _Makers:
        names = op.output_arg_names
        known = [self._made[name] for name in names if name in self._made]
        made = self._block.made[op]
        return _together(known or [self._found.get((name, made[name]), _NONE) for name in names])
