"""Blocks: operators in order, over variables that the blocks around see, too."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from minigraph import unique_name
from minigraph.errors import MinigraphError, NotFoundError, OpError, ProgramError, Site, WrongTypeError, caller_site
from minigraph.ir.block_arguments import Names, bind_slots, each_of
from minigraph.ir.block_variables import BlockVariables
from minigraph.ir.description import Description
from minigraph.ir.name_scope import current_name_scope
from minigraph.ir.op_list import OpList
from minigraph.ir.operator import NO_OUTER_NAMES, Operator, OuterNames, slot_names
from minigraph.ir.role import Role
from minigraph.ir.type_inference import explain, infer_outputs
from minigraph.ir.variable import Variable
from minigraph.opdef import SUB_BLOCK, definition_of
from minigraph.support.undo import note

if TYPE_CHECKING:
    from minigraph.ir.program import Program

_FIELDS = frozenset({"op_role", "op_role_var", "op_namescope"})
"""Attributes of fluid that are fields of an `Operator`."""


class Block(BlockVariables):
    """Variables by name and operators in order; a sub-block sees the variables of its parents."""

    def __init__(self, program: Program, idx: int, parent_idx: int = -1, forward_block_idx: int = -1) -> None:
        self.program = program
        self.idx = idx
        self.parent_idx = parent_idx
        self._forward_block_idx = -1
        self.forward_block_idx = forward_block_idx
        self.vars: dict[str, Variable] = {}
        self.ops: OpList[Operator] = OpList()
        self.first_names: dict[str, str] = {}
        """Names of the first values of variables that change their type, see `minigraph.ir.versions`."""
        self._anchor: Operator | None = None
        self._outer: tuple[int, OuterNames] | None = None
        """Cached `outer_names`, and the `Program.unnoted_changes` that they belong to."""

    def _changed(self) -> None:
        """Invalidate the cached outer names of this block and of those around it."""
        self.program.version += 1
        self.program.noted_changes += 1
        block: Block | None = self
        # Outer names depend on all blocks inside. A block without a cache ends the loop: its parents have none either.
        while block is not None and block._outer is not None:
            block._outer = None
            block = block.parent_block

    @property
    def outer_names(self) -> OuterNames:
        """Outer variables that the block uses; cached until the block, or a block inside it, changes."""
        changes = self.program.unnoted_changes
        if self._outer is None or self._outer[0] != changes:
            self._outer = changes, self._find_outer_names()
        return self._outer[1]

    def _find_outer_names(self) -> OuterNames:
        local = set(self.vars)
        # The variables of the forward block are saved with each run, and so are not outer ones.
        if self.forward_block is not None:
            local.update(self.forward_block.vars)
        touched: dict[str, None] = {}
        written: dict[str, bool] = {}
        for op in self.ops:
            touched.update((name, None) for name in op.input_arg_names if name not in local)
            inside = NO_OUTER_NAMES if op.sub_block is None else op.sub_block.outer_names
            is_step = op.is_in_place_increment
            for name in op.output_arg_names:
                if name not in local:
                    touched[name] = None
                    written[name] = written.get(name, True) and (is_step or name in inside.incremented)
        incremented = frozenset(name for name, is_only_incremented in written.items() if is_only_incremented)
        return OuterNames(tuple(touched), tuple(written), incremented)

    @property
    def forward_block_idx(self) -> int:
        """Index of the block that a block of gradients differentiates, and whose variables it sees too; else -1."""
        return self._forward_block_idx

    @forward_block_idx.setter
    def forward_block_idx(self, index: int) -> None:
        if index == self._forward_block_idx:
            return
        if self._forward_block_idx >= 0:
            self.program.gradient_blocks[self._forward_block_idx].remove(self)
        if index >= 0:
            self.program.gradient_blocks.setdefault(index, []).append(self)
        self._forward_block_idx = index

    @property
    def desc(self) -> Description:
        return Description(self)

    def _rename_var(self, name: str, new_name: str) -> Variable:
        """Give a variable another name, in the operators of this block, too; returns it.

        Raises
        ------
        NotFoundError
            If the block has no such variable.
        ProgramError
            If it has one of the new name.
        """
        var = self.var(name)
        if new_name in self.vars:
            raise ProgramError(f"the block has a variable {new_name!r} already", hint="Choose another name.")
        twin = var._copy_to(self)
        twin.name = new_name
        self.vars = {each.name: each for each in (twin if old is var else old for old in self.vars.values())}
        for op in self.ops[:]:
            if name in op.input_arg_names:
                op.replace_input(name, new_name)
            if name in op.output_arg_names:
                op.replace_output(name, new_name)
        self.program.version += 1
        return twin

    def append_op(
        self,
        type: str,
        inputs: Mapping[str, Names] | None = None,
        outputs: Mapping[str, Names] | None = None,
        attrs: Mapping[str, Any] | None = None,
        stop_gradient: bool = False,
    ) -> Operator:
        """Add an operator at the end (inside `inserting_before`: at that place), checked against its definition.

        Parameters
        ----------
        type : str
            Operator type.
        inputs, outputs : mapping
            Slot to a variable, a name, or a list of them. Output variables get the inferred shape and dtype.
        attrs : mapping
            Attributes; those left out have their defaults.

        Raises
        ------
        NotFoundError
            Unknown operator type or variable.
        OpError
            The slots, attributes, shapes or dtypes do not fit the definition.
        """
        return self.insert(self._anchor, type, inputs, outputs, attrs)

    def insert(
        self,
        before: Operator | int | None,
        type: str,
        inputs: Mapping[str, Names] | None = None,
        outputs: Mapping[str, Names] | None = None,
        attrs: Mapping[str, Any] | None = None,
    ) -> Operator:
        """Insert an operator in front of `before`: an operator of this block, its index, or None for the end."""
        if before is not None and not isinstance(before, Operator):
            before = self._operator_at(before)
        # An operator that a pass inserts before another one serves that one, and gets its source line.
        site = (before.site if before is not None and before is self._anchor else None) or caller_site()
        try:
            op = self._make_op(type, inputs or {}, outputs or {}, attrs or {}, site)
        except (TypeError, AttributeError, ValueError) as error:
            if isinstance(error, MinigraphError):
                raise
            given = {"type": type, "inputs": inputs, "outputs": outputs, "attrs": attrs}
            raise WrongTypeError(
                f"an operator cannot be made of these: {error}", details=[f"{k} = {v!r:.80}" for k, v in given.items()],
                site=site, hint="Give the type as a str, and inputs, outputs and attrs as dicts by name.",
            ) from error  # fmt: skip
        try:
            if SUB_BLOCK in op.attrs:
                self.infer(op)
            else:
                infer_outputs(op, self)
        except MinigraphError as error:
            self._name_foreign_variables(error, inputs or {}, outputs or {})
            raise explain(error, op, self) from None
        self._link(before, op)
        return op

    def _operator_at(self, index: Any) -> Operator | None:
        """The operator at an index, None after the last one."""
        if not isinstance(index, int) or not -len(self.ops) <= index <= len(self.ops):
            raise WrongTypeError(
                f"before must be an operator or an index up to {len(self.ops)}, got {index!r:.80}",
                hint="Give an operator of the block, such as block.ops[0]; None stands for the end.",
            )  # fmt: skip
        return self.ops[index] if index != len(self.ops) else None

    def infer(self, op: Operator) -> None:
        """Set the types of what an operator writes, which need not be linked in yet.

        Raises
        ------
        NotFoundError
            If the operator names a variable that does not exist.
        OpError
            If the inputs do not fit, or an output variable is declared otherwise.
        """
        if SUB_BLOCK not in op.attrs:
            infer_outputs(op, self)
            return
        index, blocks = op.attrs[SUB_BLOCK], self.program.blocks
        if not 0 < index < len(blocks) or blocks[index].parent_idx != self.idx:
            raise OpError(
                f"{op.type}: block {index} is no sub-block of block {self.idx}",
                hint="Make one with program.create_block().",
            )
        op._block = self
        op.definition.call(op).settle_types()

    def _name_foreign_variables(self, error: MinigraphError, *slots: Mapping[str, Names]) -> None:
        """Say of an error which of the variables given, that are not known here, belong to another program."""
        given = [each for by_slot in slots for names in by_slot.values() for each in each_of(names)]
        foreign = [
            var for var in given
            if isinstance(var, Variable) and var.block.program is not self.program and self.find_var(var.name) is None
        ]  # fmt: skip
        if foreign and isinstance(error, NotFoundError):
            var = foreign[0]
            error.message = f"{var.name} belongs to another program than the one that is being built"
            error.details = tuple(f"{each}, of {each.block.program!r}" for each in foreign)
            error.hint = (
                "Build inside `with fluid.program_guard(main, startup):`, with the program that has the variable."
            )

    def prepend_op(
        self, type: str, inputs: Any = None, outputs: Any = None, attrs: Any = None, stop_gradient: bool = False
    ) -> Operator:
        """Insert an operator in front of all others; arguments as for `append_op`."""
        return self.insert(self.ops.first, type, inputs, outputs, attrs)

    def _stranger(self, op: Operator) -> ProgramError:
        return ProgramError(
            f"{op.type} is not an operator of block {self.idx}, or was removed from it", hint="Give one of block.ops."
        )

    def _link(self, before: Operator | None, op: Operator) -> None:
        if before is not None and before._block is not self:
            raise self._stranger(before)
        self.ops.insert_before(before, op)
        op._block = self
        note(self.remove, op)
        self._changed()

    def append_copies(self, ops: Iterable[Operator], private: bool = False) -> list[Operator]:
        """Add copies of the operators of another block at the end; `private` ones, which no user sees, may share."""
        copies = [op._twin(self) if private else op._copy(self) for op in ops]
        self.ops.extend(copies)
        for op in copies:
            note(self.remove, op)
        self._changed()
        return copies

    def remove(self, op: Operator | int) -> None:
        """Take an operator (or the one at an index) out of the block."""
        if isinstance(op, int):
            op = self.ops[op]
        if op._block is not self:
            raise self._stranger(op)
        note(self._link, op._next, op)
        self.ops.unlink(op)
        op._block = None
        self._changed()

    def emit(
        self, type: str, *, name: str | None = None, stop_gradient: bool = False, **slots_and_attrs: Any
    ) -> Variable:
        """Append an operator with a fresh output variable and return that: the short form for passes.

        Keywords that name an input slot are inputs, the others attributes. The output is called ``<name>.tmp_0``, where
        `name` is by default the operator type with a number. The other outputs get names too.
        """
        definition = definition_of(type)
        layer = name or unique_name.generate(type)
        inputs: dict[str, Any] = {}
        attrs: dict[str, Any] = {}
        for key, value in slots_and_attrs.items():
            (inputs if key in definition.input_slots else attrs)[key] = value
        outs = {}
        for slot in definition.outputs:
            outs[slot.name] = self.create_var(self.free_name(f"{layer}.tmp"), stop_gradient=stop_gradient)
        self.append_op(type, inputs, outs, attrs)
        return outs[definition.outputs[0].name]

    @contextmanager
    def inserting_before(self, anchor: Operator | None, *, role: Role | None = None) -> Iterator[None]:
        """Inside, `append_op` and `emit` add in front of `anchor`, with its source line and optionally another role."""
        old = self._anchor
        self._anchor = anchor
        try:
            with self.program.role_guard(self.program.current_role if role is None else role):
                yield
        finally:
            self._anchor = old

    def _make_op(
        self,
        type: str,
        inputs: Mapping[str, Names],
        outputs: Mapping[str, Names],
        attrs: Mapping[str, Any],
        site: Site | None,
    ) -> Operator:
        program = self.program
        role, role_vars, namescope = program.current_role, program._role_vars, current_name_scope()
        if not _FIELDS.isdisjoint(attrs):
            own = {name: value for name, value in attrs.items() if name not in _FIELDS}
            role = Role(attrs.get("op_role", role))
            role_vars = tuple(attrs.get("op_role_var", role_vars))
            namescope = attrs.get("op_namescope") or namescope
            attrs = own
        try:
            definition = definition_of(type)
            return Operator(
                definition,
                bind_slots(type, definition.input_slots, definition.required_inputs, inputs, "input"),
                bind_slots(type, definition.output_slots, definition.required_outputs, outputs, "output"),
                definition.convert_attrs(attrs),
                role, role_vars, namescope, site,
            )  # fmt: skip
        except MinigraphError as error:
            error.site = error.site or site
            raise

    # Fluid's spellings
    _insert_op = insert
    _prepend_op = prepend_op
    _remove_op = remove

    def __str__(self) -> str:
        """A heading, the declarations, the operators."""
        return "\n  ".join([self.heading(), *(text for text, _ in self.lines())])

    def heading(self) -> str:
        """The first line of the block's text."""
        heading = f"block {self.idx}"
        heading += f" parent {self.parent_idx}" if self.parent_idx >= 0 else ""
        return heading + (f" forward {self.forward_block_idx}" if self.forward_block_idx >= 0 else "")

    def lines(self) -> Iterator[tuple[str, Operator | None]]:
        """The other lines of the block's text, declarations before operators, with the operators."""
        written = {name for op in self.ops for name in slot_names(op.outputs)}
        pending = {name: var for name, var in self.vars.items() if name in written and var.keyword == "var"}
        for name, var in self.vars.items():
            if name not in pending:
                yield f"{var.keyword} {var.declaration()}", None
        for op in self.ops:
            yield op.line(pending), op

    def to_string(self, throw_on_error: bool = False, with_details: bool = False) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        from minigraph.ir.text.html import program_html

        return program_html(f"Block {self.idx}", self.program.blocks, self.idx)

    def __repr__(self) -> str:
        return f"<Block {self.idx}: {len(self.vars)} variables, {len(self.ops)} operators>"
