"""Operators: one step of a program each, by type, slots, attributes and role."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from minigraph.errors import NotFoundError, ProgramError, Site, WrongTypeError, suggest
from minigraph.ir.block_arguments import each_of
from minigraph.ir.description import Description
from minigraph.ir.op_list import Node
from minigraph.ir.role import Role
from minigraph.ir.text.notation import attr_text, braces, name_text, names_text, quoted, role_text
from minigraph.ir.variable import Variable, name_of
from minigraph.opdef import EMPTY, REQUIRED, SUB_BLOCK, OpDef
from minigraph.opdef.attr_types import AttrType, attr_type, attr_type_of
from minigraph.support.public import explained
from minigraph.support.undo import note

if TYPE_CHECKING:
    from minigraph.ir.block import Block


class HiddenNames(NamedTuple):
    """Variables that an operator reads or writes although they stand in no slot of that side."""

    read: list[str]
    written: list[str]


class OuterNames(NamedTuple):
    """The outer variables that a sub-block uses, in order of first use."""

    touched: tuple[str, ...]
    written: tuple[str, ...]
    incremented: frozenset[str]
    """Variables that are only incremented in place."""


NO_OUTER_NAMES = OuterNames((), (), frozenset())


class Attrs(dict[str, Any]):
    r"""Attributes of an operator by name: holds values that differ from defaults, and gives the others, too.

    Examples
    --------
    >>> from minigraph import Program
    >>> text = "block 0\n  data x: float32[2]\n  y: float32[2] = scale(X=x) {scale=2.0}"
    >>> op = Program.parse(text).global_block().ops[0]
    >>> op.attrs["scale"], op.attrs["bias"], dict(op.attrs)
    (2.0, 0.0, {'scale': 2.0})
    """

    __slots__ = ("_definition",)

    _definition: OpDef

    @classmethod
    def of(cls, definition: OpDef, held: Mapping[str, Any]) -> Attrs:
        """Attributes of an operator with this definition."""
        attrs = cls(held)
        attrs._definition = definition
        return attrs

    def __missing__(self, name: str) -> Any:
        return self._definition.default_of(name)

    def get(self, name: str, default: Any = None) -> Any:
        """Value of an attribute, or its default; `default` if operators of this type have no such attribute."""
        if name in self:
            return self[name]
        declared = self._definition.attrs.get(name)
        return default if declared is None or declared.default is REQUIRED else declared.default


_OWN_SLOTS = frozenset({"Like", "SkipUpdate"})
"""Input slots that operators of fluid do not have."""


class Operator(Node):
    """One operator of a block: a type, variable names by slot, attributes, a role, the user's line that made it.

    ``op.attrs["scale"]`` is the value of an attribute, or its default; `attrs` holds values that differ from it.
    `role_vars` names the parameter and gradient pairs that the operator completes or serves, flat, as fluid's
    ``op_role_var`` does.
    """

    __slots__ = (
        "__dict__", "_hidden", "attrs", "definition", "inputs", "namescope", "outputs", "role", "role_vars", "site",
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
        self.attrs = held = Attrs(attrs)
        held._definition = definition
        self.role = role
        self.role_vars = role_vars
        self.namescope = namescope
        self.site = site

    @property
    def type(self) -> str:
        return self.definition.type

    @property
    def desc(self) -> Description:
        return Description(self)

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
        self._require_slot(name, self.definition.input_slots)
        return list(self.inputs.get(name, ()))

    def output(self, name: str) -> list[str]:
        """Names in an output slot; empty when the slot is left out."""
        self._require_slot(name, self.definition.output_slots)
        return list(self.outputs.get(name, ()))

    def _require_slot(self, name: str, slots: Mapping[str, Any]) -> None:
        if not isinstance(name, str) or name not in slots:
            hint = (suggest(name, slots) if isinstance(name, str) else "") or f"It has {', '.join(slots)}."
            raise NotFoundError(f"{self.type} has no slot {name!r}", site=self.site, hint=hint)

    @property
    def input_names(self) -> list[str]:
        """Input slots in the order of their names, with those left out; of a gradient operator those in use."""
        left_out = () if self.definition.forward is not None else self.definition.input_slots
        return sorted({*self.inputs, *(slot for slot in left_out if slot not in _OWN_SLOTS)})

    @property
    def output_names(self) -> list[str]:
        """Output slots in use, in the order of their names."""
        return sorted(self.outputs)

    @property
    def input_arg_names(self) -> list[str]:
        """Names of all variables read, slot by slot, followed by those in no slot.

        Those in no slot are outer variables that a sub-block reads, and outputs that may keep their old value.
        """
        names = slot_names(self.inputs)
        return names + self.hidden_names.read if self.definition.has_hidden_names else names

    @property
    def output_arg_names(self) -> list[str]:
        """Names of all variables written, slot by slot, followed by outer variables that a sub-block writes."""
        names = slot_names(self.outputs)
        return names + self.hidden_names.written if self.definition.has_hidden_names else names

    @property
    def hidden_names(self) -> HiddenNames:
        """Variables that the operator reads or writes although they stand in no slot of that side.

        An outer variable that a sub-block writes counts as read, too: it keeps its value if the block does not run, and
        a later run may read what an earlier one wrote.
        """
        sub_block = None if self._block is None else self.sub_block
        changes = -1 if self._block is None else self._block.program.unnoted_changes
        outer = NO_OUTER_NAMES if sub_block is None else sub_block.outer_names
        if self._hidden is not None and self._hidden[0] == changes >= 0 and self._hidden[1] is outer:
            return self._hidden[2]
        kept = [name for slot in self.definition.updates for name in self.outputs.get(slot, ()) if name != EMPTY]
        found = HiddenNames(
            _beyond((*outer.touched, *kept), slot_names(self.inputs)), _beyond(outer.written, slot_names(self.outputs))
        )
        self._hidden = changes, outer, found
        return found

    @property
    def is_in_place_increment(self) -> bool:
        return self.type == "increment" and self.inputs["X"] == self.outputs["Out"]

    def _is_optimize_op(self) -> bool:
        """Fluid's question whether the operator is part of an update; the learning rate is not."""
        return bool(self.role & Role.OPTIMIZE)

    @property
    def sub_block(self) -> Block | None:
        """The sub-block that the operator runs; None if it has none."""
        index = self.attrs.get(SUB_BLOCK)
        return None if index is None else self.block.program.block(index)

    @property
    def attr_names(self) -> list[str]:
        return list(self.definition.attrs)

    def has_attr(self, name: str) -> bool:
        return name in self.definition.attrs or name in self.definition.backend_attrs or name in _FIELD_ATTRS

    def attr(self, name: str) -> Any:
        """Value of an attribute, or its default; also fluid's ``op_role`` and ``op_role_var``."""
        if not isinstance(name, str):
            raise WrongTypeError(
                f"{self.type}: the name of an attribute must be a str, got {name!r:.60}",
                hint=f"Give one of {', '.join(self.definition.attrs) or 'none: it has no attributes'}.",
            )  # fmt: skip
        return _FIELD_ATTRS[name](self) if name in _FIELD_ATTRS else self.attrs[name]

    def attr_type(self, name: str) -> AttrType:
        """The type of an attribute in fluid's descriptions, a member of ``core.AttrType``."""
        value = self.attr(name)
        declared = self.definition.attrs.get(name)
        return attr_type(self.type, name, declared.type, value) if declared else attr_type_of(value)

    def all_attrs(self) -> dict[str, Any]:
        """Every attribute with its value."""
        return {**{name: attr.default for name, attr in self.definition.attrs.items()}, **self.attrs}

    def _block_attr_id(self, name: str) -> int:
        return int(self.attr(name))

    def _block_attr(self, name: str) -> Block:
        return self.block.program.block(self._block_attr_id(name))

    @explained
    def set_attr(self, name: str, value: Any) -> None:
        """Change an attribute; checked like one given to ``append_op``."""
        self._change("attrs", Attrs.of(self.definition, self.definition.convert_attrs({**self.attrs, name: value})))

    @explained
    def set_input(self, slot: str, values: Variable | str | Sequence[Variable | str]) -> None:
        """Read another variable, or several, in a slot, which may have been left out before.

        Raises
        ------
        NotFoundError
            If the operator has no such slot.
        """
        self._require_slot(slot, self.definition.input_slots)
        self._change("inputs", {**self.inputs, slot: tuple(map(name_of, each_of(values)))})

    @explained
    def set_output(self, slot: str, values: Variable | str | Sequence[Variable | str]) -> None:
        """Write another variable, or several, in a slot.

        Raises
        ------
        NotFoundError
            If the operator has no such slot.
        """
        self._require_slot(slot, self.definition.output_slots)
        self._change("outputs", {**self.outputs, slot: tuple(map(name_of, each_of(values)))})

    @explained
    def replace_input(self, old: Variable | str, new: Variable | str) -> None:
        """Read `new` wherever this operator reads `old`."""
        self._change("inputs", renamed(self.inputs, {name_of(old): name_of(new)}))

    @explained
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
        known = [] if self._block is None else [self._block.vars.get(name) for name in self.output_arg_names]
        return self.line({var.name: var for var in known if var is not None and var.keyword == "var"})

    def line(self, pending: dict[str, Variable]) -> str:
        """The operator in a program's text; variables in `pending` are declared here and removed from it."""

        def written(name: str) -> str:
            return pending.pop(name).declaration() if name in pending else name_text(name)

        slots = self.definition.output_slots
        outputs = ", ".join(
            ("" if len(slots) == 1 else f"{name_text(slot)}=")
            + names_text(map(written, names), slots.get(slot), len(names))
            for slot, names in self.outputs.items()
        )
        inputs = ", ".join(
            f"{name_text(slot)}={names_text(map(name_text, names), self.definition.input_slots.get(slot), len(names))}"
            for slot, names in self.inputs.items()
        )
        return f"{outputs}{' = ' if outputs else ''}{name_text(self.type)}({inputs}){braces(self._fields())}"

    def _fields(self) -> dict[str, str]:
        declared = self.definition.attrs
        fields = {name: attr_text(attr, self.attrs[name]) for name, attr in declared.items() if name in self.attrs}
        if self.role != Role.FORWARD:
            fields["role"] = role_text(self.role)
        if self.role_vars:
            fields["role_vars"] = f"[{', '.join(map(name_text, self.role_vars))}]"
        if self.namescope != "/":
            fields["namescope"] = quoted(self.namescope, "'")
        return fields

    def to_string(self, throw_on_error: bool = False) -> str:
        return str(self)

    def __repr__(self) -> str:
        return f"<Operator {self}>"

    def _twin(self, block: Block) -> Operator:
        """A copy for another block that shares slots and attributes: edits replace these and never change them."""
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
        twin.attrs = Attrs.of(self.definition, self.attrs)
        return twin


_FIELD_ATTRS: dict[str, Callable[[Operator], Any]] = {
    "op_role": lambda op: int(op.role) & 0xFFFF,
    "op_role_var": lambda op: list(op.role_vars),
    "op_namescope": lambda op: op.namescope,
    "op_input_names": lambda op: tuple(op.input_arg_names),
}


def renamed(slots: dict[str, tuple[str, ...]], names: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Slots with each name replaced by `names[name]`, if there is one."""
    return {slot: tuple([names.get(name, name) for name in given]) for slot, given in slots.items()}


def slot_names(slots: dict[str, tuple[str, ...]]) -> list[str]:
    """The names that stand in the slots of an operator."""
    found = list(chain.from_iterable(slots.values()))
    return [name for name in found if name != EMPTY] if EMPTY in found else found


def _beyond(names: Iterable[str], known: Iterable[str]) -> list[str]:
    there = set(known)
    return [name for name in dict.fromkeys(names) if name not in there]
