"""Parse text into a program: a recursive descent through the statements of `minigraph.ir.text`.

A statement is one line, read once from left to right, with at most four tokens of lookahead.
"""

from __future__ import annotations

import copy
from typing import Any

from minigraph.errors import MinigraphError, Site, WrongTypeError, caller_site, suggest
from minigraph.ir.block import Block
from minigraph.ir.effects import DEEPEST
from minigraph.ir.program import Program
from minigraph.ir.role import Role
from minigraph.ir.text.lexer import Line
from minigraph.ir.text.notation import DEFAULTS, PROGRAM_DEFAULTS
from minigraph.ir.variable import Parameter, Variable
from minigraph.opdef import EMPTY, SUB_BLOCK, OpDef, definition_of
from minigraph.support.gc_pause import without_collector

_SHAPE_OF_A_LINE = "An operator reads `y: float32[4] = relu(X=x) {attribute=value}`."
_FIELDS = {"op_role": "role", "op_role_var": "role_vars", "op_namescope": "namescope"}
"""Fluid's attributes for the fields of an operator, and what the fields are called."""


@without_collector
def parse(text: str) -> Program:
    """The program that `text` describes.

    Slots and attributes are checked against the operator definitions; the types of variables are those written.

    Raises
    ------
    ParseError
        With the line, the place in it, and the nearest known word where one is unknown.

    Examples
    --------
    >>> program = parse('''
    ...     block 0
    ...       data x: float32[-1, 4]
    ...       y: float32[-1, 4] = relu(X=x)
    ... ''')
    >>> program.global_block().var("y").shape
    (-1, 4)
    """
    if not isinstance(text, str):
        raise WrongTypeError(f"a program's text must be a str, got {type(text).__name__}")
    reader = _Reader(caller_site())
    for number, source in enumerate(text.split("\n"), 1):
        line = Line(number, source)
        if line.peek():
            reader.read_statement(line)
    return reader.finish()


class _Reader:
    """Builds a program statement by statement."""

    def __init__(self, site: Site | None) -> None:
        self.site = site
        self.program = Program()
        self.program.random_seed = 0  # not that of `global_seed`: the text has any other seed
        self.block: Block | None = None
        self.unseen: list[tuple[Block, str, Line, int]] = []
        """Uses of names that were not declared before, with their positions."""
        self.sub_blocks: list[tuple[Block, int, Line, int]] = []
        """Blocks that operators of other blocks run, with the positions of these operators."""

    def read_statement(self, line: Line) -> None:
        word = line.peek()
        if word == "program" and line.peek(1) == "{":
            self._read_header(line)
        elif not line.is_name() or not line.is_name(1):
            self._read_operator(self._current_block(line), line)
        elif word == "block":
            self._read_heading(line)
        elif word in DEFAULTS:
            line.take()
            self._declare(self._current_block(line), word, line)
        else:
            hint = (
                suggest(word, ["program", "block", *DEFAULTS])
                or f"A line starts with {', '.join(DEFAULTS)} or an output."
            )
            line.fail(f"{word} does not start a statement", hint, line.at)
        line.expect_end()

    def finish(self) -> Program:
        """The program, once every name and block that was used is there."""
        for block, index, line, at in self.sub_blocks:
            if not 0 < index < len(self.program.blocks) or self.program.blocks[index].parent_idx != block.idx:
                hint = f"Write `block {max(index, 1)} parent {block.idx}` below."
                raise line.error(f"block {block.idx} has no sub-block {index}", at, hint)
        for block, name, line, at in self.unseen:
            if block.find_var(name) is None:
                hint = (
                    suggest(name, block.vars)
                    or f"Declare it where it is first written, as {name}: float32[...], or above."
                )
                raise line.error(f"{name} is not declared", at, hint)
        return self.program

    def _current_block(self, line: Line) -> Block:
        if self.block is None:
            line.fail("this stands in no block", "The first line is `block 0`.", line.at)
        return self.block

    def _read_header(self, line: Line) -> None:
        if self.block is not None:
            line.fail("the fields of the program stand above its blocks", at=line.at)
        line.take()
        for name, value in line.fields(dict(PROGRAM_DEFAULTS), "a program has no field").items():
            setattr(self.program, name, value)

    def _read_heading(self, line: Line) -> None:
        line.take()
        expected = 0 if self.block is None else self.block.idx + 1
        if line.take() != str(expected):
            line.fail(f"expected block {expected}, found block {line.peek(-1):.80}", "Blocks are numbered in order.")
        parent = -1
        if line.skip("parent"):
            parent = line.integer(line.take()) if line.peek().isdecimal() else expected
            if not 0 <= parent < expected:
                line.fail("the parent of a block must stand above it", f"Write `block {expected} parent 0`.")
        forward = -1
        if line.skip("forward"):
            forward = line.integer(line.take()) if line.peek().isdecimal() else expected
            if not 0 < forward < expected:
                line.fail("the block that this one is the gradient of must stand above it, and is not block 0")
        if expected == 0:
            self.block = self.program.blocks[0]
        else:
            self.block = Block(self.program, expected, parent, forward)
            self.program.blocks.append(self.block)
            if self.block.depth > DEEPEST:
                line.fail(f"block {expected} is in more than {DEEPEST} blocks")

    def _declare(self, block: Block, keyword: str, line: Line) -> str:
        """Read ``name: type {fields}`` and add the variable."""
        name = line.name("the name of a variable")
        if name in block.vars:
            line.fail(f"{name} is declared twice")
        line.expect(":", f"A declaration reads `{keyword} {name}: float32[-1, 4]`.")
        tensor_type = line.tensor_type()
        if keyword == "param" and tensor_type is None:
            line.fail("the type of a parameter must be known")
        kind = Parameter if keyword == "param" else Variable
        var = kind(block, name, tensor_type)  # type: ignore[arg-type]
        for field, value in line.fields(dict(DEFAULTS[keyword]), f"a {keyword} has no field").items():
            setattr(var, field, copy.copy(value))
        block.vars[name] = var
        return name

    # Operators

    def _read_operator(self, block: Block, line: Line) -> None:
        written = [] if line.peek(1) == "(" else self._read_outputs(block, line)
        start = line.at
        type_ = line.name("the type of an operator")
        line.expect("(", _SHAPE_OF_A_LINE)
        try:
            definition = definition_of(type_)
        except MinigraphError as error:
            raise line.error(error.message, start, error.hint) from None
        inputs = self._read_inputs(block, definition, line)
        attrs = self._read_attrs(line)
        outputs = self._by_slot(definition, written, line)
        try:
            op = block._make_op(type_, inputs, outputs, attrs, self.site)
        except MinigraphError as error:
            raise line.error(error.message, start, error.hint) from None
        block._link(None, op)
        if SUB_BLOCK in op.attrs:
            self.sub_blocks.append((block, op.attrs[SUB_BLOCK], line, start))

    def _read_outputs(self, block: Block, line: Line) -> list[tuple[str | None, list[str], int]]:
        """Read the outputs in front of the operator type: slot or None, names, position."""
        written: list[tuple[str | None, list[str], int]] = []
        while not written or line.skip(","):
            start, slot = line.at, None
            # `a = op(` is an output and its operator, `A=b` a slot and what is in it.
            if line.peek(1) == "=" and line.peek(3) != "(":
                slot = line.name("an output slot")
                line.take()
            if line.skip("["):
                names = line.many(lambda: self._read_output(block, line), "]")
            else:
                names = [self._read_output(block, line)]
            written.append((slot, names, start))
        line.expect("=", _SHAPE_OF_A_LINE)
        return written

    def _read_output(self, block: Block, line: Line) -> str:
        if line.peek(1) == ":":
            return self._declare(block, "var", line)
        return self._used(block, line.name("an output"), line)

    def _used(self, block: Block, name: str, line: Line) -> str:
        if name != EMPTY and name not in block.vars:
            self.unseen.append((block, name, line, line.at - 1))
        return name

    def _read_inputs(self, block: Block, definition: OpDef, line: Line) -> dict[str, list[str]]:
        inputs: dict[str, list[str]] = {}

        def read() -> None:
            slot = line.name("an input slot")
            line.check_known(slot, definition.input_slots, f"{definition.type} has no input slot")
            if slot in inputs:
                line.fail(f"{slot} is given twice", f"Several variables in one slot read {slot}=[a, b].")
            line.expect("=", f"An input reads {slot}=x.")

            def read_one() -> str:
                return self._used(block, line.name("a variable"), line)

            inputs[slot] = line.many(read_one, "]") if line.skip("[") else [read_one()]

        line.many(read, ")")
        return inputs

    def _by_slot(
        self, definition: OpDef, written: list[tuple[str | None, list[str], int]], line: Line
    ) -> dict[str, list[str]]:
        slots = definition.output_slots
        outputs: dict[str, list[str]] = {}
        for given, names, start in written:
            slot = next(iter(slots)) if given is None and len(slots) == 1 else given
            if slot is None:
                line.fail(f"{definition.type} has the outputs {', '.join(slots)}: say which", "Write Slot=name.", start)
            if slot not in slots:
                hint = suggest(slot, slots) or f"It has {', '.join(slots) or 'none'}."
                line.fail(f"{definition.type} has no output slot {slot!r}", hint, start)
            if slot in outputs:
                line.fail(f"{slot} is written twice", f"Several variables in one slot read {slot}=[a, b].", start)
            outputs[slot] = names
        return outputs

    def _read_attrs(self, line: Line) -> dict[str, Any]:
        """Attributes in braces and fluid's names for the fields of an operator."""

        def check(name: str) -> None:
            if name in _FIELDS:
                line.fail(f"{name} is written {_FIELDS[name]} in text")

        given = line.assignments("}", check) if line.skip("{") else {}
        role = line.role(given.pop("role", int(Role.FORWARD)))
        fields = {
            "op_role": role,
            "op_role_var": given.pop("role_vars", ()),
            "op_namescope": given.pop("namescope", "/"),
        }
        if not isinstance(fields["op_namescope"], str):
            line.fail("namescope must be a string")
        return {**fields, **given}
