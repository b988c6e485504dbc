"""States of a program: cheap to take; made into text or a program again when somebody asks.

Passes replace the slots and attributes of an operator and never write into them. So a state only refers to them, and
the states of one program share what did not change between them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from math import prod
from operator import attrgetter
from types import SimpleNamespace
from typing import Any, NamedTuple

from minigraph.errors import Site
from minigraph.ir import Block, Operator, Parameter, Program, Role, Variable
from minigraph.ir.operator import Attrs, slot_names
from minigraph.ir.text.notation import PROGRAM_DEFAULTS, braces, fields_text
from minigraph.lowering.costs import VIEWS
from minigraph.opdef import OpDef
from minigraph.support.undo import Journal
from minigraph.types import TensorType


class OpState(NamedTuple):
    """The fields of an operator at some time."""

    definition: OpDef
    inputs: dict[str, tuple[str, ...]]
    outputs: dict[str, tuple[str, ...]]
    attrs: Attrs
    role: Role
    role_vars: tuple[str, ...]
    namescope: str
    site: Site | None


class Line(NamedTuple):
    """A line of a program's text."""

    key: object
    """The operator or variable that it shows, which is the same object when the line is another; None for a heading."""
    text: str
    block: int
    op: OpState | None = None
    reads: Sequence[str] = ()
    writes: Sequence[str] = ()


Fields = tuple[Any, ...]

_VARIABLE = tuple(name for name in Variable.__slots__ if name != "block")
_PARAMETER = (*_VARIABLE, *Parameter.__slots__)
_NAMES: dict[type, tuple[str, ...]] = {Variable: _VARIABLE, Parameter: _PARAMETER}
_NAME, _TYPE, _PERSISTABLE, _IS_DATA = map(_VARIABLE.index, ("name", "tensor_type", "_persistable", "is_data"))
_INPUTS, _OUTPUTS = map(OpState._fields.index, ("inputs", "outputs"))
fields_of_op = attrgetter(*OpState._fields)
_variable_fields = attrgetter(*_VARIABLE)
_parameter_fields = attrgetter(*_PARAMETER)


@dataclass(frozen=True, eq=False)
class _BlockState:
    indices: tuple[int, int, int]
    """Of the block, its parent and its forward block."""
    ops: list[Operator]
    op_fields: list[Fields]
    vars: list[Variable]
    """Never compared: ``==`` of variables appends an operator."""
    var_fields: list[Fields]
    first_names: dict[str, str]
    sizes: dict[str, int]
    """Bytes of each variable, once somebody has asked."""

    @classmethod
    def of(cls, block: Block, before: _BlockState | None) -> _BlockState:
        variables = list(block.vars.values())
        sizes: dict[str, int] = {}
        # Not by `_fields_of`: the call would double the time for a variable.
        fields = [(_parameter_fields if type(var) is Parameter else _variable_fields)(var) for var in variables]
        if before is not None and fields == before.var_fields and all(map(_is, variables, before.vars)):
            variables, fields, sizes = before.vars, before.var_fields, before.sizes
        ops = block.ops[:]
        indices = block.idx, block.parent_idx, block.forward_block_idx
        return cls(indices, ops, list(map(fields_of_op, ops)), variables, fields, dict(block.first_names), sizes)

    def holds(self, other: _BlockState) -> bool:
        return (
            self.indices == other.indices
            and self.var_fields is other.var_fields
            and self.ops == other.ops
            and self.op_fields == other.op_fields
        )


def _fields_of(var: Variable) -> Fields:
    fields: Fields = (_parameter_fields if type(var) is Parameter else _variable_fields)(var)
    return fields


def _bytes(type: TensorType, batch: int) -> int:
    return prod([batch if size < 0 else size for size in type.shape]) * type.dtype.numpy.itemsize


def _is(a: object, b: object) -> bool:
    return a is b


@dataclass(frozen=True, eq=False)
class _Patch:
    """What has changed in a program since an earlier state.

    Attributes
    ----------
    ops : list
        Operators that were inserted, removed or changed: block (-1 if in none), operator, the one before it, fields.
    variables : list
        Those that were made, removed or changed: block, name, variable (None if it is gone), fields.
    """

    ops: list[tuple[int, Operator, Operator | None, Fields]]
    variables: list[tuple[int, str, Variable | None, Fields]]


class _Draft:
    """A state of a block to which patches are applied, each in time that grows with its own size."""

    def __init__(self, state: _BlockState) -> None:
        self.start = state
        self.ops: dict[Operator, Fields] = dict(zip(state.ops, state.op_fields, strict=True))
        self.next: dict[Operator | None, Operator | None] = dict(
            zip([None, *state.ops], [*state.ops, None], strict=True)
        )
        self.previous = {op: before for before, op in self.next.items()}
        self.vars = {
            fields[_NAME]: (var, fields) for var, fields in zip(state.vars, state.var_fields, strict=True)
        }  # fmt: skip
        self.has_new_vars = False

    def apply(self, patch: _Patch) -> None:
        own = self.start.indices[0]
        for _, op, _, _ in patch.ops:
            if op in self.ops:
                del self.ops[op]
                before, after = self.previous.pop(op), self.next.pop(op)
                self.next[before], self.previous[after] = after, before
        waiting = {before: (op, fields) for index, op, before, fields in patch.ops if index == own}
        while waiting:  # those before come first
            before = next(each for each in waiting if each is None or each in self.ops)
            op, fields = waiting.pop(before)
            self.ops[op] = fields
            after = self.next[before]
            self.next[before], self.next[op], self.previous[op], self.previous[after] = op, after, before, op
        for index, name, var, fields in patch.variables:
            if index == own:
                self.has_new_vars = True
                if var is None:
                    self.vars.pop(name, None)
                else:
                    self.vars[name] = var, fields

    def state(self) -> _BlockState:
        ops: list[Operator] = []
        at = self.next[None]
        while at is not None:
            ops.append(at)
            at = self.next[at]
        found = replace(self.start, ops=ops, op_fields=[self.ops[op] for op in ops])
        if not self.has_new_vars:
            return found
        variables = list(self.vars.values())
        return replace(
            found, vars=[var for var, _ in variables], var_fields=[fields for _, fields in variables], sizes={}
        )  # fmt: skip


class Snapshot:
    """A state of a program.

    Parameters
    ----------
    before : Snapshot, optional
        An earlier state of the same program, with which this one shares what is equal.
    edits : Edits, optional
        All that has changed since `before`; then only that is looked at.
    """

    def __init__(self, program: Program, before: Snapshot | None = None, edits: Edits | None = None) -> None:
        self._fields = program._random_seed, program.backward_passes, program.roots
        self._blocks: list[_BlockState] | None = None
        self._patch = None if before is None or edits is None else (before, edits.patch(program))
        if self._patch is None:
            known = {} if before is None else {each.indices[0]: each for each in before.blocks}
            self._blocks = [_BlockState.of(block, known.get(block.idx)) for block in program.blocks]

    @property
    def blocks(self) -> list[_BlockState]:
        """The blocks; those of a patched state are made when somebody asks first."""
        if self._blocks is None:
            at, patches = self, []
            while at._patch is not None and at._blocks is None:
                patches.append(at._patch[1])
                at = at._patch[0]
            assert at._blocks is not None
            drafts = [_Draft(state) for state in at._blocks]
            for draft in drafts:
                for patch in reversed(patches):
                    draft.apply(patch)
            self._blocks, self._patch = [draft.state() for draft in drafts], None
        return self._blocks

    def holds(self, other: Snapshot) -> bool:
        """Whether `other`, which shares with this one, is the same state."""
        return (
            self._fields == other._fields
            and len(self.blocks) == len(other.blocks)
            and all(mine.holds(its) for mine, its in zip(self.blocks, other.blocks, strict=True))
        )

    @property
    def operators(self) -> int:
        """Number of operators in all blocks."""
        return sum(len(block.ops) for block in self.blocks)

    def bytes_moved(self, batch: int = 1) -> int:
        """Estimate the bytes that all operators read and write, each value once; an unknown dimension is `batch`."""
        total = 0
        for block in self.blocks:
            sizes = self._sizes(block, batch)
            for fields in block.op_fields:
                if fields[0].type not in VIEWS:
                    total += sum([sizes.get(name, 0) for slots in fields[1:3] for name in chain(*slots.values())])
        return total

    def _sizes(self, block: _BlockState, batch: int) -> dict[str, int]:
        """Bytes of the variables that a block sees."""
        if not block.sizes:
            types = {fields[_NAME]: fields[_TYPE] for fields in block.var_fields}
            own = {name: _bytes(type, batch) for name, type in types.items() if type is not None}
            parent = block.indices[1]
            block.sizes.update({**self._sizes(self.blocks[parent], batch), **own} if parent >= 0 else own)
        return block.sizes

    def global_block(self) -> tuple[list[tuple[Operator, Fields]], dict[str, tuple[Variable, Fields]]]:
        """The operators of the global block and its variables by name, with what their fields were."""
        block = self.blocks[0]
        variables = zip(block.vars, block.var_fields, strict=True)
        return list(zip(block.ops, block.op_fields, strict=True)), {each[1][_NAME]: each for each in variables}

    def program(self) -> Program:
        """Make a program in this state, whose operators have their source lines."""
        return self.restored()[0].clone()

    def restored(self) -> tuple[Program, dict[Operator, Operator]]:
        """Make a program in this state to be read only; returns also which operator each of its operators is."""
        program = Program()
        program._random_seed, program.backward_passes, program.roots = self._fields
        program.blocks[1:] = [Block(program, *state.indices[:2]) for state in self.blocks[1:]]
        originals: dict[Operator, Operator] = {}
        for block, state in zip(program.blocks, self.blocks, strict=True):
            block.forward_block_idx = state.indices[2]
            for var, fields in zip(state.vars, state.var_fields, strict=True):
                twin = block.vars[fields[_NAME]] = variable(var, fields)
                twin.block = block
            block.first_names.update(state.first_names)
            twins = [Operator(*fields) for fields in state.op_fields]
            for op in twins:
                op._block = block
            block.ops.extend(twins)
            originals.update(zip(twins, state.ops, strict=True))
        return program, originals


class Edits:
    """What the undo journal of a call says has changed; see `minigraph.support.undo`.

    Attributes
    ----------
    ops : dict of Operator
        Inserted, removed or changed.
    names : dict of (Block, str)
        Variables that were made, removed or changed.
    """

    def __init__(self) -> None:
        self.ops: dict[Operator, None] = {}
        self.names: dict[tuple[Block, str], None] = {}

    @classmethod
    def of(cls, program: Program, journal: Journal) -> Edits | None:
        """Read the part of a journal that is about `program`; None if it says too little."""
        found = cls()
        blocks = {id(block.vars): block for block in program.blocks}
        for undo, args in journal:
            owner = args[0] if undo is setattr else getattr(undo, "__self__", None)
            if isinstance(owner, Operator):
                found.ops[owner] = None
            elif isinstance(owner, Block):
                found.ops.update(
                    (each, None) for each in args if isinstance(each, Operator) and owner.program is program
                )
            elif isinstance(owner, Variable) and owner.block.program is program:
                found.names[owner.block, owner.name] = None
            elif isinstance(owner, dict) and id(owner) in blocks:
                found.names[blocks[id(owner)], args[0]] = None
            elif owner is program:
                return None
        return found

    def patch(self, program: Program) -> _Patch:
        """Return them with what they are now."""
        found = _Patch([], [])
        for op in self.ops:
            block = op._block if op._block is not None and op._block.program is program else None
            found.ops.append((-1 if block is None else block.idx, op, op._prev, fields_of_op(op)))
        for block, name in self.names:
            var = block.vars.get(name)
            found.variables.append((block.idx, name, var, () if var is None else _fields_of(var)))
        return found


def variable(var: Variable, fields: Fields) -> Variable:
    """The variable as it was when its fields were these, in no block."""
    twin = type(var).__new__(type(var))
    for name, value in zip(_NAMES[type(var)], fields, strict=True):
        setattr(twin, name, value)
    return twin


class Texts:
    """The lines of states; what a state shares with those before is not printed again."""

    def __init__(self) -> None:
        self._ops: dict[Operator, tuple[Fields, Line, list[Fields]]] = {}
        """For each operator its fields, its latest line, and the fields of the variables that are declared there."""
        self._vars: dict[int, tuple[Fields, Line]] = {}
        self._latest: tuple[Snapshot | None, list[Line]] = None, []

    def text(self, state: Snapshot) -> str:
        """The text of the program."""
        return "\n".join(line.text for line in self.lines(state))

    def lines(self, state: Snapshot) -> list[Line]:
        """The lines of the text, in its order."""
        if self._latest[0] is not state:
            self._latest = state, self._print(state)
        return self._latest[1]

    def _print(self, state: Snapshot) -> list[Line]:
        seed, passes, _ = state._fields
        header = braces(fields_text(SimpleNamespace(random_seed=seed, backward_passes=passes), PROGRAM_DEFAULTS))
        first = [Line(None, f"program{header}", 0)] if header else []
        return first + list(chain.from_iterable(map(self._block, state.blocks)))

    def _block(self, state: _BlockState) -> Iterator[Line]:
        index, parent, forward = state.indices
        heading = f"block {index}"
        heading += f" parent {parent}" if parent >= 0 else ""
        heading += f" forward {forward}" if forward >= 0 else ""
        yield Line(None, heading, index)
        latest = [self._ops.get(op) for op in state.ops]
        # States share the fields of operators that did not change.
        writes = [
            known[1].writes if known is not None and known[0] is fields else slot_names(fields[_OUTPUTS])
            for known, fields in zip(latest, state.op_fields, strict=True)
        ]
        written = set(chain.from_iterable(writes))
        pending: dict[str, tuple[Variable, Fields]] = {}
        for var, fields in zip(state.vars, state.var_fields, strict=True):
            is_plain = type(var) is Variable and not fields[_PERSISTABLE] and not fields[_IS_DATA]
            if is_plain and fields[_NAME] in written:
                pending[fields[_NAME]] = var, fields
            else:
                yield self._declaration(var, fields, index)
        for op, fields, names, known in zip(state.ops, state.op_fields, writes, latest, strict=True):
            declared = {name: pending.pop(name) for name in names if name in pending}
            types = [fields for _, fields in declared.values()]
            if known is None or known[0] != fields or known[1].block != index or known[2] != types:
                twins = {name: variable(var, fields) for name, (var, fields) in declared.items()}
                text = f"  {Operator(*fields).line(twins)}"
                line = Line(op, text, index, OpState._make(fields), slot_names(fields[_INPUTS]), names)
                known = self._ops[op] = fields, line, types
            yield known[1]

    def _declaration(self, var: Variable, fields: Fields, block: int) -> Line:
        known = self._vars.get(id(var))
        if known is None or known[0] != fields:
            twin = variable(var, fields)
            line = Line(var, f"  {twin.keyword} {twin.declaration()}", block, None, (), (twin.name,))
            known = self._vars[id(var)] = fields, line
        return known[1]
