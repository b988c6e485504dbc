"""Carry the lengths of sequences beside a private program's tensors.

Each level of lengths is an int64 vector of offsets, a variable of its own: ``x@LOD0`` is the outermost level of a fed
`x`. What an operator passes on is known before a run, so that it costs nothing. An operator whose kernel reads lengths
gets one more slot for each such input. An operator that makes lengths gets a slot ``@LOD`` for them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import chain
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

from minigraph.errors import ExecutionError, MinigraphError
from minigraph.ir import Block, Operator, Program
from minigraph.ir.effects import body_of, outer_names
from minigraph.opdef import EMPTY, SUB_BLOCK, OpDef, Slot, definition_of
from minigraph.opdef.lengths import counterpart
from minigraph.types import DType, TensorType, VarKind

_MARK = "@LOD"
_ROWS = 1_000_003
"""A number of rows that no shape of a program has."""
_LEVEL = TensorType(DType.INT64, (-1,))

Names: TypeAlias = tuple[str, ...]
"""Variables of the levels, outermost first."""


def level_name(name: str, level: int) -> str:
    """The name of what holds a level of a fed variable's lengths."""
    return f"{name}{_MARK}{level}"


def fed_levels(names: Collection[str]) -> dict[str, Names]:
    """Fed variables that have lengths, with the fed levels.

    Examples
    --------
    >>> fed_levels(["x", "x@LOD0", "x@LOD1", "y"])
    {'x': ('x@LOD0', 'x@LOD1')}
    """
    found: dict[str, Names] = {}
    for name in sorted(name for name in names if _MARK in name):
        owner = name.rpartition(_MARK)[0]
        found[owner] = (*found.get(owner, ()), name)
    return found


def has_lengths(program: Program, feed_names: Collection[str]) -> bool:
    """Whether anything that a run feeds or computes may have lengths."""
    if any(_MARK in name for name in feed_names):
        return True
    return any(definition_of(type).handles_lengths for block in program.blocks for type in block.ops.by_type)


class CarriedLevels(NamedTuple):
    """Variables that hold the lengths of what a run gives away, all of which are roots of its program."""

    fetched: Sequence[Names] = ()
    """Those of each fetch; empty if nothing has lengths."""
    kept: Mapping[str, Names] = MappingProxyType({})
    """Those of the persistable variables that a run writes or is fed."""

    @property
    def names(self) -> list[str]:
        """All of them, those of the fetches first."""
        return [*chain(*self.fetched), *chain(*self.kept.values())]


def carry_lengths(program: Program, feed_names: Collection[str], fetch_names: Sequence[str]) -> CarriedLevels:
    """Add to a pruned private program what carries lengths, and tell where they are in the end.

    Raises
    ------
    ExecutionError
        If an operator looks at lengths that nothing has.
    """
    if not has_lengths(program, feed_names):
        return CarriedLevels()
    fed = fed_levels(feed_names)
    block = program.global_block()
    for names in fed.values():
        for name in names:
            block.create_var(name, shape=[-1], dtype="int64", is_data=True, stop_gradient=True)
    carrier = _Carrier(block, dict(fed))
    levels = carrier.carry()
    stored = carrier.written.union(fed)
    kept = sorted(name for name in stored if levels.get(name) and _outlives_runs(block, name))
    found = CarriedLevels([levels.get(name, ()) for name in fetch_names], {name: levels[name] for name in kept})
    program.roots = (*fetch_names, *found.names)
    return found


def _outlives_runs(block: Block, name: str) -> bool:
    var = block.find_var(name)
    return var is not None and var.persistable and var.kind is VarKind.LOD_TENSOR


class _Carrier:
    """Walks through the operators of a block, and knows the levels of what each name holds by then."""

    def __init__(
        self, block: Block, levels: dict[str, Names], of_blocks: dict[int, dict[str, Names]] | None = None
    ) -> None:
        self.block = block
        self.levels = levels
        self.of_blocks = {} if of_blocks is None else of_blocks
        """Levels at the end of each block, which its block of gradients sees."""
        self.written: set[str] = set()
        """Variables that operators of the block have written."""

    def carry(self) -> dict[str, Names]:
        for op in self.block.ops[:]:
            if SUB_BLOCK in op.attrs:
                self._carry_inside(op)
            elif op.type in _OF_THEIR_OWN:
                _OF_THEIR_OWN[op.type](self, op)
            else:
                self._carry(op)
            self.written.update(op.output_arg_names)
        self.of_blocks[self.block.idx] = self.levels
        return self.levels

    def _of(self, name: str) -> Names:
        return self.levels.get(name, ())

    def _carry(self, op: Operator) -> None:
        definition = op.definition
        inputs = {slot: [self._of(name) for name in names] for slot, names in op.inputs.items() if names}
        given: dict[str, Names] = {}
        for text in definition.lengths:
            slot = text.removesuffix("?")
            given[slot + _MARK] = self._looked_at(op, slot, is_optional=text != slot)
        new = self._new(op, {slot: len(found[0]) for slot, found in inputs.items()})
        for slot, names in op.outputs.items():
            source = definition.lod.get(slot)
            if source is not None and source.kind == "rows" and not self._keeps_rows(op, source.slots[0], slot):
                source = None
            for at, name in enumerate(names):
                levels: Names = ()
                if source is not None:
                    own = {slot: found[counterpart(at, len(names), len(found))] for slot, found in inputs.items()}
                    levels = tuple(source.levels((dict.fromkeys(source.slots, ()) | own).__getitem__, new))
                if levels:
                    self.levels[name] = levels
                else:
                    self.levels.pop(name, None)
        if given or new:
            op.definition = _with_lengths(definition, tuple(given), len(new))
            op.inputs = op.inputs | given
            op.outputs = op.outputs | {_MARK: new} if new else op.outputs
            self.block._changed()

    def _keeps_rows(self, op: Operator, given: str, made: str) -> bool:
        """Whether a result has the rows of an input, as inference shows for a number of rows that is nowhere else."""
        inputs = []
        for slot, names in op.inputs.items():
            variables = [self.block.find_var(name) for name in names]
            types = [None if var is None else var.tensor_type for var in variables]
            if slot == given:
                types = [None if each is None else each.with_shape((_ROWS, *each.shape[1:])) for each in types]
            inputs.append((slot, tuple(types)))
        try:
            found = op.definition.inferred(tuple(inputs), op.attrs)[made][0]
        except MinigraphError:
            return False
        return bool(found.shape[:1] == (_ROWS,))

    def _looked_at(self, op: Operator, slot: str, is_optional: bool) -> Names:
        """The levels of what is in an input slot; in a slot of several variables, the last level of each."""
        names = [name for name in op.inputs.get(slot, ()) if name != EMPTY]
        found = [self._of(name) for name in names]
        for name, levels in zip(names, found, strict=True):
            if not levels and not is_optional:
                raise ExecutionError(
                    f"{op.type}: {slot} = {name} has no sequences", site=op.site,
                    hint="Feed it, or what it is computed from, as a LoDTensor: fluid.create_lod_tensor(array, "
                    "[[lengths]], place).",
                )  # fmt: skip
        if op.definition.input_slots[slot].duplicable:
            return tuple(levels[-1] for levels in found if levels)
        return found[0] if found else ()

    def _new(self, op: Operator, counts: Mapping[str, int]) -> Names:
        """Variables for the levels that the kernel makes."""
        for slot, source in op.definition.lod.items():
            if source.kind == "new":
                names = op.outputs.get(slot, ())
                shown = next((name for name in names if name != EMPTY), op.type)
                return tuple(self._level(shown, level) for level in range(source.count(counts, op.attrs)))
        return ()

    def _level(self, owner: str, level: int, block: Block | None = None, kind: VarKind | None = None) -> str:
        """A new variable for a level of what `owner` holds."""
        block = block or self.block
        name = level_name(owner, level)
        while block.find_var(name) is not None:
            name += "_"
        block.create_var(name, shape=[-1], dtype="int64", stop_gradient=True, type=kind)
        return name

    # Sub-blocks

    def _carry_inside(self, op: Operator) -> None:
        """Carry lengths in a sub-block; what it overwrites outside keeps its variables for levels from run to run."""
        body = body_of(op)
        written = [name for name in outer_names(body)[1] if self._of(name) and not self._is_array(name)]
        for name in written:
            own = tuple(self._level(name, level) for level in range(len(self._of(name))))
            self._assign(self.block, op, self._of(name), own)
            self.levels[name] = own
        inside = {name: levels for name, levels in self.levels.items() if name not in body.vars}
        inside |= self.of_blocks.get(body.forward_block_idx, {})
        after = _Carrier(body, inside, self.of_blocks).carry()
        for name in written:
            if len(after.get(name, ())) == len(self.levels[name]):
                self._assign(body, None, after[name], self.levels[name])
        for name in self._first_written_in(body):
            if after.get(name) and not self._is_array(name):
                self.levels[name] = tuple(self._level(name, level) for level in range(len(after[name])))
                self._assign(body, None, after[name], self.levels[name])
        for name in outer_names(body)[1]:
            if self._is_array(name) and after.get(name):
                self.levels[name] = after[name]

    def _first_written_in(self, body: Block) -> list[str]:
        """The outer variables that have no value before a sub-block writes them."""
        found = (name for name in outer_names(body)[1] if name not in self.written and not self._of(name))
        variables = ((name, self.block.find_var(name)) for name in found)
        return [name for name, var in variables if var is not None and not (var.is_data or var.persistable)]

    def _is_array(self, name: str) -> bool:
        var = self.block.find_var(name)
        return var is not None and var.kind is VarKind.LOD_TENSOR_ARRAY

    def _assign(self, block: Block, before: Operator | None, sources: Iterable[str], targets: Iterable[str]) -> None:
        for source, target in zip(sources, targets, strict=True):
            if source != target:
                block.insert(before, "assign", {"X": source}, {"Out": target})

    # Arrays of tensors

    def _write_array(self, op: Operator) -> None:
        """Write the levels of X to arrays beside the array."""
        (array,) = op.outputs["Out"]
        levels = self._of(op.inputs["X"][0])
        if not levels:
            return
        var = self.block.find_var(array)
        assert var is not None
        arrays = self._of(array) or tuple(
            self._level(array, level, var.block, VarKind.LOD_TENSOR_ARRAY) for level in range(len(levels))
        )
        self.levels[array] = arrays
        for level, target in zip(levels, arrays, strict=False):
            inputs = {"X": level, "I": op.inputs["I"]}
            self.block.insert(op._next, "write_to_array", inputs, {"Out": target}, dict(op.attrs))

    def _join(self, op: Operator) -> None:
        """Join the sequences of what `concat` joins along the rows; along others, the first tensor's are kept.

        Where only a run knows the dimension, they are kept, too, as in fluid.
        """
        levels = [self._of(name) for name in op.inputs["X"]]
        (out,) = op.outputs["Out"]
        self._carry(op)
        if not levels[0] or op.inputs.get("AxisTensor") or self._keeps_rows(op, "X", "Out"):
            return
        self.levels.pop(out)
        if len(set(map(len, levels))) == 1:
            self.levels[out] = tuple(self._level(out, level) for level in range(len(levels[0])))
            for joined, parts in zip(self.levels[out], zip(*levels, strict=True), strict=True):
                self.block.insert(op, "join_offsets", {"X": list(parts)}, {"Out": joined})

    def _select(self, op: Operator) -> None:
        """Select the levels, too, where all alternatives have as many."""
        levels = [self._of(name) for name in op.inputs["X"]]
        self._carry(op)
        (out,) = op.outputs["Out"]
        if self.levels.pop(out, ()) and len(set(map(len, levels))) == 1:
            self.levels[out] = tuple(self._level(out, level) for level in range(len(levels[0])))
            for selected, choices in zip(self.levels[out], zip(*levels, strict=True), strict=True):
                inputs = {"X": list(choices), "Mask": op.inputs["Mask"]}
                self.block.insert(op, "select_input", inputs, {"Out": selected})

    def _split(self, op: Operator) -> None:
        """Split the levels, too."""
        self._carry(op)
        given = next(
            (found for slot in ("X", "Like") for found in [self._of(*op.inputs.get(slot, ("",)))] if found), ()
        )
        levels = given[op.attr("level") :]
        parts: dict[str, list[str]] = {}
        for slot in ("OutTrue", "OutFalse"):
            owner = next(iter(op.outputs.get(slot, ())), EMPTY)
            self.levels.pop(owner, None)
            names = tuple(self._level(owner, level) for level in range(len(levels)))
            parts[slot] = list(names)
            if names and owner != EMPTY:
                self.levels[owner] = names
        if levels:
            self.block.insert(op, "split_offsets", {"X": list(levels), "Mask": op.inputs["Mask"]}, parts)

    def _merge(self, op: Operator) -> None:
        """Let the result have any number of rows if it has sequences: Mask chooses among these."""
        self._carry(op)
        if _MARK in op.outputs:
            op.definition = _with_any_rows(op.definition)

    def _read_array(self, op: Operator) -> None:
        for slot in ("Out", "Rest"):
            for name in op.outputs.get(slot, ()):
                self.levels.pop(name, None)
        arrays, results = self._of(op.inputs["X"][0]), op.outputs.get("Out", ())
        if not arrays or not results or results[0] == EMPTY or op.inputs.get("X_W"):
            return
        levels = tuple(self._level(results[0], level) for level in range(len(arrays)))
        for array, level in zip(arrays, levels, strict=True):
            self.block.insert(op, "read_from_array", {"X": array, "I": op.inputs["I"]}, {"Out": level})
        self.levels[results[0]] = levels


_OF_THEIR_OWN = {
    "write_to_array": _Carrier._write_array, "read_from_array": _Carrier._read_array, "concat": _Carrier._join,
    "select_input": _Carrier._select, "split_lod_tensor": _Carrier._split, "merge_lod_tensor": _Carrier._merge,
}  # fmt: skip
"""Operators whose results have lengths by rules of their own."""


@cache
def _with_lengths(definition: OpDef, given: Names, new: int) -> OpDef:
    """The definition with slots for the lengths that the kernel gets and makes."""
    # The lengths of an array of tensors are arrays, too.
    slots = [definition.input_slots[name.removesuffix(_MARK)] for name in given]
    levels = [Slot(n, True, True, takes_arrays=slot.takes_arrays) for n, slot in zip(given, slots, strict=True)]
    inputs = (*definition.inputs, *levels)
    outputs = (*definition.outputs, *[Slot(_MARK, duplicable=True)] * bool(new))
    count = len(definition.inputs)

    def infer(*types: Any, **attrs: Any) -> Any:
        found = definition.infer(*types[:count], **attrs)
        if not new:
            return found
        return *(found if type(found) is tuple else (found,)), [_LEVEL] * new

    return replace(definition, inputs=inputs, outputs=outputs, infer=infer)


@cache
def _with_any_rows(definition: OpDef) -> OpDef:
    """The definition with an unknown number of rows in the first result."""

    def infer(*types: Any, **attrs: Any) -> Any:
        first, *others = definition.infer(*types, **attrs)
        return first.with_shape((-1, *first.shape[1:])), *others

    return replace(definition, infer=infer)
