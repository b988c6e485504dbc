"""States of a program: cheap to take; made into text or a program again when somebody asks.

Passes replace the slots and attributes of an operator and never write into them. So a state only refers to them, and
the states of one program share what did not change between them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, count
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
class _Asked:
    """Answers about the variables of a state, kept for the next question; states with the same variables share them."""

    sizes: dict[str, int] = field(default_factory=dict)
    """Bytes of each variable."""
    moved: dict[int, tuple[int, Fields]] = field(default_factory=dict)
    """Bytes that an operator moves, by the `id` of its fields."""
    by_name: dict[str, tuple[Variable, Fields]] = field(default_factory=dict)
    """Each variable with its fields."""
    twins: dict[str, Variable] = field(default_factory=dict)
    """Variables with these fields, in no block."""
    plain: dict[str, tuple[Variable, Fields]] = field(default_factory=dict)
    """Variables that are declared by the first operator that writes them."""


@dataclass(frozen=True, eq=False)
class _BlockState:
    indices: tuple[int, int, int]
    """Numbers of the block, its parent and its forward block."""
    ops: list[Operator]
    op_fields: list[Fields]
    vars: list[Variable]
    """Never compared: ``==`` of variables appends an operator."""
    var_fields: list[Fields]
    first_names: dict[str, str]
    asked: _Asked = field(default_factory=_Asked)

    @property
    def by_name(self) -> dict[str, tuple[Variable, Fields]]:
        """Each variable with its fields."""
        if not self.asked.by_name:
            self.asked.by_name.update(
                {fields[_NAME]: (var, fields) for var, fields in zip(self.vars, self.var_fields, strict=True)}
            )
        return self.asked.by_name

    def variable(self, name: str) -> Variable:
        """The variable of a name, to be read only; a KeyError if there is none."""
        found = self.asked.twins.get(name)
        if found is None:
            found = self.asked.twins[name] = variable(*self.by_name[name])
        return found

    @property
    def plain(self) -> dict[str, tuple[Variable, Fields]]:
        """The variables that are declared where an operator first writes them, with their fields."""
        if not self.asked.plain:
            self.asked.plain.update({
                name: (var, fields) for name, (var, fields) in self.by_name.items()
                if type(var) is Variable and not fields[_PERSISTABLE] and not fields[_IS_DATA]
            })  # fmt: skip
        return self.asked.plain

    @classmethod
    def of(cls, block: Block, before: _BlockState | None) -> _BlockState:
        variables = list(block.vars.values())
        # Not by `_fields_of`: the call would double the time for a variable.
        fields = [(_parameter_fields if type(var) is Parameter else _variable_fields)(var) for var in variables]
        asked = _Asked()
        if before is not None and fields == before.var_fields and all(map(_is, variables, before.vars)):
            variables, fields, asked = before.vars, before.var_fields, before.asked
        ops = block.ops[:]
        indices, names = (block.idx, block.parent_idx, block.forward_block_idx), dict(block.first_names)
        return cls(indices, ops, list(map(fields_of_op, ops)), variables, fields, names, asked)

    def patched(self, patches: Sequence[_Patch]) -> _BlockState:
        """The state with patches, one after the other; takes time that grows with the operators and the edits."""
        own = self.indices[0]
        row = _Row(self)
        named = [each for patch in patches for each in patch.variables if each[0] == own]
        for patch in patches:
            row.patch(own, patch.ops)
        if not row.has_changed and not named:
            return self
        ops = list(row)
        found = replace(self, ops=ops, op_fields=[row.fields[op] for op in ops])
        if not named:
            return found
        variables = dict(self.by_name)
        for _, name, var, fields in named:
            if var is None:
                variables.pop(name, None)
            else:
                variables[name] = var, fields
        return replace(
            found, vars=[var for var, _ in variables.values()], var_fields=[each for _, each in variables.values()],
            asked=_Asked(),
        )  # fmt: skip

    def holds(self, other: _BlockState) -> bool:
        return (
            self.indices == other.indices
            and self.var_fields is other.var_fields
            and self.ops == other.ops
            and self.op_fields == other.op_fields
        )


class _Row:
    """The operators of a state, linked one to the next so that patches change few links."""

    def __init__(self, state: _BlockState) -> None:
        self.fields = dict(zip(state.ops, state.op_fields, strict=True))
        self.has_changed = False
        # None stands before the first operator, and after the last one.
        self._next: dict[Operator | None, Operator | None] = dict(
            zip([None, *state.ops], [*state.ops, None], strict=True)
        )
        self._prev: dict[Operator | None, Operator | None] = dict(
            zip([*state.ops, None], [None, *state.ops], strict=True)
        )

    def __iter__(self) -> Iterator[Operator]:
        op = self._next[None]
        while op is not None:
            yield op
            op = self._next[op]

    def patch(self, block: int, edits: Sequence[tuple[int, Operator, Operator | None, Fields]]) -> None:
        """Take out the operators of a patch, and link those in that are in the block now."""
        for _, op, _, _ in edits:
            if self.fields.pop(op, None) is not None:
                self._link(self._prev[op], self._next[op])
                self.has_changed = True
        behind = {before: (op, fields) for index, op, before, fields in edits if index == block}
        inserted = {op for op, _ in behind.values()}
        for at in [each for each in behind if each not in inserted]:
            while at in behind:
                op, self.fields[op] = behind[at]
                self._link(op, self._next[at])
                self._link(at, op)
                at, self.has_changed = op, True

    def _link(self, op: Operator | None, following: Operator | None) -> None:
        self._next[op], self._prev[following] = following, op


def _fields_of(var: Variable) -> Fields:
    fields: Fields = (_parameter_fields if type(var) is Parameter else _variable_fields)(var)
    return fields


def _bytes(type: TensorType, batch: int) -> int:
    return prod([batch if size < 0 else size for size in type.shape]) * type.dtype.numpy.itemsize


def _is(a: object, b: object) -> bool:
    return a is b


@dataclass(frozen=True, eq=False)
class _Patch:
    """Changes of a program since an earlier state.

    Attributes
    ----------
    ops : list
        Operators that were inserted, removed or changed: block (-1 if in none), operator, the one before it, fields.
    variables : list
        Those that were made, removed or changed: block, name, variable (None if it is gone), fields.
    """

    ops: list[tuple[int, Operator, Operator | None, Fields]]
    variables: list[tuple[int, str, Variable | None, Fields]]


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
            self._blocks = [state.patched(patches[::-1]) for state in at._blocks]
            self._patch = None
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
            sizes, moved = self._sizes(block, batch), block.asked.moved
            for fields in [each for each in block.op_fields if id(each) not in moved]:
                names = () if fields[0].type in VIEWS else chain(*fields[1].values(), *fields[2].values())
                moved[id(fields)] = sum([sizes.get(name, 0) for name in names]), fields
            total += sum([moved[id(each)][0] for each in block.op_fields])
        return total

    def _sizes(self, block: _BlockState, batch: int) -> dict[str, int]:
        """Bytes of the variables that a block sees."""
        sizes = block.asked.sizes
        if not sizes:
            types = {fields[_NAME]: fields[_TYPE] for fields in block.var_fields}
            own = {name: _bytes(type, batch) for name, type in types.items() if type is not None}
            parent = block.indices[1]
            sizes.update({**self._sizes(self.blocks[parent], batch), **own} if parent >= 0 else own)
        return sizes

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
    """Changes that the undo journal of a call notes; see `minigraph.support.undo`.

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
    """The lines of states; what a state shares with the one before is not printed again."""

    def __init__(self) -> None:
        self._blocks: dict[int, _Printed] = {}
        self._latest: tuple[Snapshot | None, list[Line]] = None, []

    def text(self, state: Snapshot) -> str:
        """The text of the program."""
        return "\n".join([line.text for line in self.lines(state)])

    def lines(self, state: Snapshot) -> list[Line]:
        """The lines of the text, in its order."""
        if self._latest[0] is not state:
            self._latest = state, self._print(state)
        return self._latest[1]

    def _print(self, state: Snapshot) -> list[Line]:
        seed, passes, _ = state._fields
        header = braces(fields_text(SimpleNamespace(random_seed=seed, backward_passes=passes), PROGRAM_DEFAULTS))
        found = [Line(None, f"program{header}", 0)] if header else []
        for block in state.blocks:
            found += self._blocks.setdefault(block.indices[0], _Printed()).lines(block)
        return found


class _Printed:
    """The lines of a block in its latest state."""

    def __init__(self) -> None:
        self._state: _BlockState | None = None
        self._lines: list[Line] = []
        self._ops: dict[Operator, tuple[Fields, Line]] = {}
        self._vars: dict[int, tuple[Fields, Line]] = {}
        self._writers: defaultdict[str, set[Operator]] = defaultdict(set)

    def lines(self, state: _BlockState) -> list[Line]:
        """The heading, the variables that no operator declares, and the operators."""
        if state is not self._state:
            self._note_ops(state)
            self._lines = [self._heading(state), *self._declarations(state), *[self._ops[op][1] for op in state.ops]]
            self._state = state
        return self._lines

    def _heading(self, state: _BlockState) -> Line:
        index, parent, forward = state.indices
        heading = f"block {index}"
        heading += f" parent {parent}" if parent >= 0 else ""
        heading += f" forward {forward}" if forward >= 0 else ""
        return Line(None, heading, index)

    def _note_ops(self, state: _BlockState) -> None:
        """Print the operators that have changed, and operators that declare other variables than before."""
        known, place = self._ops, dict(zip(state.ops, count(), strict=False))
        changed = {
            op: fields for op, fields in zip(state.ops, state.op_fields, strict=True)
            if op not in known or known[op][0] is not fields
        }  # fmt: skip
        names = self._new_names(state)
        for op in [*filter(known.__contains__, changed), *(known.keys() - place.keys())]:
            for name in known.pop(op)[1].writes:
                self._writers[name].discard(op)
                names.add(name)
        for op, fields in changed.items():
            for name in slot_names(fields[_OUTPUTS]):
                self._writers[name].add(op)
                names.add(name)
        for op in set(changed).union(*[self._writers[name] for name in names]):
            fields = state.op_fields[place[op]]
            reads, writes = slot_names(fields[_INPUTS]), slot_names(fields[_OUTPUTS])
            first = [name for name in writes if op is min(self._writers[name], key=place.__getitem__)]
            declared = {name: variable(*state.plain[name]) for name in first if name in state.plain}
            text = f"  {Operator(*fields).line(declared)}"
            known[op] = fields, Line(op, text, state.indices[0], OpState._make(fields), reads, writes)

    def _new_names(self, state: _BlockState) -> set[str]:
        """Names of variables that an operator may declare, and that are others than in the state before."""
        old, new = {} if self._state is None else self._state.plain, state.plain
        if old is new:
            return set()
        kept = [name for name, (_, fields) in new.items() if name in old and old[name][1] is fields]
        return old.keys() ^ new.keys() | new.keys() - set(kept)

    def _declarations(self, state: _BlockState) -> Iterator[Line]:
        """The lines of variables that no operator declares."""
        for var, fields in zip(state.vars, state.var_fields, strict=True):
            name = fields[_NAME]
            if name not in state.plain or not self._writers.get(name):
                known = self._vars.get(id(var))
                if known is None or known[0] != fields:
                    twin = variable(var, fields)
                    line = Line(var, f"  {twin.keyword} {twin.declaration()}", state.indices[0], None, (), (name,))
                    known = self._vars[id(var)] = fields, line
                yield known[1]
