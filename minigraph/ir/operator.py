"""Operators: one step of a program each, by type, slots, attributes and role."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from minigraph.errors import NotFoundError, ProgramError, Site, WrongTypeError, caller_site, suggest
from minigraph.ir.variable import Variable, name_of
from minigraph.opdef import EMPTY, SUB_BLOCK, OpDef
from minigraph.support.undo import note

if TYPE_CHECKING:
    from minigraph.ir.program import Block


class Role(enum.IntFlag):
    """What an operator is for, with fluid's numbers for ``op_role``."""

    FORWARD = 0
    BACKWARD = 1
    OPTIMIZE = 2
    RPC = 4
    DIST = 8
    LR_SCHED = 16
    LOSS = 256
    # Finer than fluid, whose ``op_role`` leaves them out.
    CLIP = 1 << 16
    REGULARIZE = 1 << 17
    RECOMPUTE = 1 << 18

    __and__ = int.__and__  # type: ignore[assignment]  # asked of every operator; that of enum makes a Role, in Python


class HiddenNames(NamedTuple):
    """Variables that an operator reads or writes although they stand in no slot of that side."""

    read: list[str]
    written: list[str]


class Attrs(dict[str, Any]):
    """Attributes of an operator that differ from their defaults, by name."""

    __slots__ = ()

    def __missing__(self, name: str) -> Any:
        raise NotFoundError(
            f"attribute {name!r} is at its default, or the operator has none of this name", site=caller_site(),
            hint=f"Ask op.attr({name!r}), which knows defaults.",
        )  # fmt: skip


class Operator:
    """One operator of a block: a type, variable names by slot, attributes, a role, the user's line that made it.

    `attrs` holds the attributes that differ from their defaults; `attr` knows the defaults too. `role_vars` names the
    parameter and gradient pairs that the operator completes or serves, flat, as fluid's ``op_role_var`` does.
    """

    __slots__ = (
        "_block", "_hidden", "_next", "_prev", "attrs", "definition", "inputs", "namescope", "outputs", "role",
        "role_vars", "site",
    )  # fmt: skip

    def __init__(
        self,
        definition: OpDef,
        inputs: dict[str, tuple[str, ...]],
        outputs: dict[str, tuple[str, ...]],
        attrs: Mapping[str, Any],
        role: Role = Role.FORWARD,
        role_vars: tuple[str, ...] = (),
        namescope: str = "/",
        site: Site | None = None,
    ) -> None:
        self._block: Block | None = None
        self._prev: Operator | None = None
        self._next: Operator | None = None
        self._hidden: tuple[int, Any, HiddenNames] | None = None
        self.definition = definition
        self.inputs = inputs
        self.outputs = outputs
        self.attrs = Attrs(attrs)
        self.role = role
        self.role_vars = role_vars
        self.namescope = namescope
        self.site = site

    @property
    def type(self) -> str:
        return self.definition.type

    @property
    def block(self) -> Block:
        if self._block is None:
            raise ProgramError(f"this {self.type} was removed from its block", site=self.site)
        return self._block

    @property
    def idx(self) -> int:
        """Position in the block."""
        return list(self.block.ops).index(self)

    def input(self, name: str) -> list[str]:
        """Names in an input slot; empty when the slot is left out."""
        if not isinstance(name, str) or name not in self.definition.input_slots:
            self._no_slot(name, self.definition.input_slots)
        return list(self.inputs.get(name, ()))

    def output(self, name: str) -> list[str]:
        """Names in an output slot; empty when the slot is left out."""
        if not isinstance(name, str) or name not in self.definition.output_slots:
            self._no_slot(name, self.definition.output_slots)
        return list(self.outputs.get(name, ()))

    def _no_slot(self, name: str, slots: Mapping[str, Any]) -> None:
        raise NotFoundError(
            f"{self.type} has no slot {name!r}",
            site=self.site,
            hint=(suggest(name, slots) if isinstance(name, str) else "") or f"It has {', '.join(slots)}.",
        )

    @property
    def input_names(self) -> list[str]:
        """Slots in use."""
        return list(self.inputs)

    @property
    def output_names(self) -> list[str]:
        """Slots in use."""
        return list(self.outputs)

    @property
    def input_arg_names(self) -> list[str]:
        """Names of all variables read, slot by slot, and behind them those that are read without standing in one.

        These are what a sub-block reads from outside, and variables that may keep a value that they held.
        """
        names = [name for names in self.inputs.values() for name in names if name != EMPTY]
        return names + self.hidden_names.read if self.definition.has_hidden_names else names

    @property
    def output_arg_names(self) -> list[str]:
        """Names of all variables written, slot by slot, and behind them what a sub-block writes besides."""
        names = [name for names in self.outputs.values() for name in names if name != EMPTY]
        return names + self.hidden_names.written if self.definition.has_hidden_names else names

    @property
    def hidden_names(self) -> HiddenNames:
        """What the operator reads and writes that stands in no slot of that side."""
        from minigraph.ir.effects import hidden_names

        return hidden_names(self)

    @property
    def sub_block(self) -> Block | None:
        """The block that the operator runs; None if it is none of control flow."""
        index = self.attrs.get(SUB_BLOCK)
        return None if index is None else self.block.program.block(index)

    @property
    def attr_names(self) -> list[str]:
        return list(self.definition.attrs)

    def has_attr(self, name: str) -> bool:
        return name in self.definition.attrs or name in self.definition.backend_attrs or name in _FIELD_ATTRS

    def attr(self, name: str) -> Any:
        """Value of an attribute, its default when it was not given; also fluid's ``op_role``, ``op_role_var``."""
        if not isinstance(name, str):
            raise WrongTypeError(
                f"{self.type}: the name of an attribute must be a str, got {name!r:.60}", site=caller_site(),
                hint=f"Give one of {', '.join(self.definition.attrs) or 'none: it has no attributes'}.",
            )  # fmt: skip
        if name in self.attrs:
            return self.attrs[name]
        if name in self.definition.attrs:
            return self.definition.attrs[name].default
        if name in self.definition.backend_attrs:
            return self.definition.backend_attrs[name]
        if name in _FIELD_ATTRS:
            return _FIELD_ATTRS[name](self)
        raise NotFoundError(
            f"{self.type} has no attribute {name!r}", site=self.site, hint=suggest(name, self.definition.attrs)
        )

    def all_attrs(self) -> dict[str, Any]:
        """Every attribute with its value."""
        return {**{name: attr.default for name, attr in self.definition.attrs.items()}, **self.attrs}

    def _block_attr_id(self, name: str) -> int:
        return int(self.attr(name))

    def _block_attr(self, name: str) -> Block:
        return self.block.program.block(self._block_attr_id(name))

    def set_attr(self, name: str, value: Any) -> None:
        """Change an attribute; checked like one given to ``append_op``."""
        self._change("attrs", Attrs(self.definition.convert_attrs({**self.attrs, name: value})))

    def set_input(self, slot: str, values: Sequence[Variable | str]) -> None:
        """Read other variables in a slot, which may have been left out before.

        Raises
        ------
        NotFoundError
            If the operator has no such slot.
        """
        if slot not in self.definition.input_slots:
            self._no_slot(slot, self.definition.input_slots)
        self._change("inputs", {**self.inputs, slot: tuple(map(name_of, values))})

    def set_output(self, slot: str, values: Sequence[Variable | str]) -> None:
        """Write other variables in a slot.

        Raises
        ------
        NotFoundError
            If the operator has no such slot.
        """
        if slot not in self.definition.output_slots:
            self._no_slot(slot, self.definition.output_slots)
        self._change("outputs", {**self.outputs, slot: tuple(map(name_of, values))})

    def replace_input(self, old: Variable | str, new: Variable | str) -> None:
        """Read `new` wherever this operator reads `old`."""
        self._change("inputs", renamed(self.inputs, {name_of(old): name_of(new)}))

    def replace_output(self, old: Variable | str, new: Variable | str) -> None:
        """Write `new` wherever this operator writes `old`."""
        self._change("outputs", renamed(self.outputs, {name_of(old): name_of(new)}))

    # Fluid's spellings
    _set_attr = set_attr
    _rename_input = replace_input
    _rename_output = replace_output

    def _change(self, field: str, value: Any) -> None:
        note(self._change, field, getattr(self, field))
        setattr(self, field, value)
        self._changed()

    def _changed(self) -> None:
        self._hidden = None
        if self._block is not None:
            self._block._changed()

    def structure(self) -> tuple[Any, ...]:
        """Every field but the source line; equal for equal operators."""
        return (
            self.type, tuple(self.inputs.items()), tuple(self.outputs.items()), tuple(sorted(self.attrs.items())),
            self.role, self.role_vars, self.namescope,
        )  # fmt: skip

    def __str__(self) -> str:
        from minigraph.ir.text.printer import operator_line

        return operator_line(self)

    def to_string(self, throw_on_error: bool = False) -> str:
        return str(self)

    def __repr__(self) -> str:
        return f"<Operator {self}>"

    def _twin(self, block: Block) -> Operator:
        """A copy for another block that shares slots and attributes, which edits replace and never change."""
        twin = Operator.__new__(Operator)
        twin._block = block
        twin._prev = twin._next = twin._hidden = None
        twin.definition = self.definition
        twin.inputs = self.inputs
        twin.outputs = self.outputs
        twin.attrs = self.attrs
        twin.role = self.role
        twin.role_vars = self.role_vars
        twin.namescope = self.namescope
        twin.site = self.site
        return twin

    def _copy(self, block: Block) -> Operator:
        """A copy for another block."""
        twin = self._twin(block)
        twin.inputs = self.inputs.copy()
        twin.outputs = self.outputs.copy()
        twin.attrs = Attrs(self.attrs)
        return twin


_FIELD_ATTRS = {
    "op_role": lambda op: int(op.role) & 0xFFFF,
    "op_role_var": lambda op: list(op.role_vars),
    "op_namescope": lambda op: op.namescope,
    "op_input_names": lambda op: tuple(op.input_arg_names),
}


def renamed(slots: dict[str, tuple[str, ...]], names: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Slots that hold `names[name]` in the place of each name there."""
    return {slot: tuple([names.get(name, name) for name in given]) for slot, given in slots.items()}
