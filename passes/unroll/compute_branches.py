"""Compute branches of few small operators whether or not their condition holds, and choose among the results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import ClassVar, NamedTuple, TypeAlias

from minigraph import unique_name
from minigraph.ir import Block, Operator, Parameter, Program, VarKind
from minigraph.kernels.formulas import TYPES
from minigraph.opdef import EMPTY, SUB_BLOCK
from minigraph.passes.base import Pass
from minigraph.passes.rewriting import insert_for
from minigraph.passes.unroll.copies import Copies
from minigraph.passes.values import Value, Values
from minigraph.runtime.control_flow import BlockCall, call_of
from minigraph.types import DType, TensorType

_ON_FLOATS = frozenset(type for type in TYPES if not type.endswith("_grad")) | {"mean", "reduce_mean", "reduce_sum"}
_OTHERS = frozenset({
    "assign", "assign_value", "cast", "equal", "fill_constant", "greater_equal", "greater_than", "less_equal",
    "less_than", "logical_and", "logical_not", "logical_or", "not_equal", "select_input", "where",
})  # fmt: skip
"""Operators that raise no error, whatever numbers they read, and change nothing but their results."""

_MOST_OPERATORS = 16
_MOST_ELEMENTS = 4096
"""Maximum elements that the operators of a branch read and write: more take longer than to run a sub-block."""

_Literals: TypeAlias = "frozenset[tuple[Value, bool]]"
"""Values of one boolean, and what each must be."""


@dataclass(frozen=True)
class ComputeBranches(Pass):
    """Put the operators of a ``conditional_block`` in its place, and choose its results by ``where``.

    So rates that a ``Switch`` chooses, and a ``cond`` of a few numbers, run no sub-block. Of cases one of which always
    holds, as those of a ``Switch`` with a default, the first that holds gives the value. A result that had no value
    before gets that of the branch: ``select_input`` reads only what was chosen.

    Law: every value that a run has without the pass keeps its bits, because the same kernels compute it. Branches have
    few operators, which read and write few elements of known number, raise no error and draw no random numbers. Left
    alone are branches that are differentiated, and results whose old value may be missing.
    """

    keeps_gradients: ClassVar[bool] = False
    """A gradient through the branch that is not chosen may be NaN times zero."""

    def apply(self, program: Program) -> bool:
        changed = False
        for block in reversed(program.blocks):  # a branch inside first
            while block.ops.of_type("conditional_block") and _replace(block):
                changed = True
        if changed:
            program.drop_unused_blocks()
        return changed


def _replace(block: Block) -> bool:
    """Replace the branches of a block that are there; returns whether there were any."""
    values = Values(block)
    branches = [each for op in block.ops.of_type("conditional_block") if (each := _branch(op, values)) is not None]
    branches.sort(key=lambda each: values.position[each.op])
    replaced = False
    while branches:
        cases = _cases(branches)
        if (plan := _plan(cases, values)) is None:
            cases = cases[:1]
            plan = _plan(cases, values)
        if plan is not None:
            _emit(cases, plan)
            replaced = True
        branches = [each for each in branches if each not in cases]
    if replaced:
        _choose_by_where(block)
    return replaced


class _Branch(NamedTuple):
    op: Operator
    call: BlockCall
    literals: _Literals
    """The values of booleans for which the branch is run."""


class _Result(NamedTuple):
    name: str
    is_new: bool
    """Whether there was no value before."""
    is_always: bool
    """Whether one of the cases always writes it."""


def _branch(op: Operator, values: Values) -> _Branch | None:
    """Describe a branch that may be computed always."""
    call = call_of(op)
    if not op.attr("is_scalar_condition") or values.readers[values.output(op, "Scope")]:
        return None
    read = _read(call)
    if set(op.outputs.get("Out", ())) != set(call.written) or not read.issubset(op.inputs.get("Input", ())):
        return None
    if not all(_has_value(values.read(name, op), values) for name in read):
        return None
    condition = values.input(op, "Cond")
    kind = values.type_of(condition)
    if kind is None or kind.dtype is not DType.BOOL or kind.shape != (1,):
        return None
    ops = call.body.ops[:]
    if len(ops) > _MOST_OPERATORS or not all(map(_is_harmless, ops)) or not _are_few(call):
        return None
    return _Branch(op, call, _literals(condition, values))


def _read(call: BlockCall) -> set[str]:
    """The names that the sub-block reads before it writes them."""
    found, written = set[str](), set[str]()
    for op in call.body.ops:
        found.update(name for name in op.input_arg_names if name not in written)
        written.update(op.output_arg_names)
    return found - {EMPTY}


def _is_harmless(op: Operator) -> bool:
    if SUB_BLOCK in op.attrs or (op.type in ("fill_constant", "assign_value") and op.inputs):
        return False
    if op.type in _OTHERS:
        return True
    kinds = [_kind(op.block, name) for name in (*op.input_arg_names, *op.output_arg_names)]
    return op.type in _ON_FLOATS and all(kind is not None and kind.dtype.is_floating for kind in kinds)


def _kind(block: Block, name: str) -> TensorType | None:
    var = block.find_var(name)
    return None if var is None else var.tensor_type


def _are_few(call: BlockCall) -> bool:
    """Whether the sub-block reads and writes few elements, of tensors that are no state of parameters."""
    block, total = call.body, 0
    for op in block.ops:
        for name in (*op.input_arg_names, *op.output_arg_names):
            kind = _kind(block, name)
            if kind is None or kind.kind is not VarKind.LOD_TENSOR or not kind.is_static:
                return False
            total += prod(kind.shape)
    variables = [call.op.block.find_var(name) for name in call.written]
    return total <= _MOST_ELEMENTS and all(
        var is not None and not isinstance(var, Parameter) and not var.lod_level for var in variables
    )


def _literals(value: Value, values: Values) -> _Literals:
    """The values of which a condition is the conjunction; itself if it is none."""
    op = values.producer(value, "logical_and", "logical_not")
    if op is None:
        return frozenset({(value, True)})
    if op.type == "logical_and":
        return _literals(values.input(op, "X"), values) | _literals(values.input(op, "Y"), values)
    return _opposite(values.input(op, "X"), values)


def _opposite(value: Value, values: Values) -> _Literals:
    """What the negation of a condition says."""
    found = _literals(value, values)
    return _negated(found) if len(found) == 1 else frozenset({(value, False)})


def _negated(literals: _Literals) -> _Literals:
    return frozenset((value, not holds) for value, holds in literals)


def _cases(branches: Sequence[_Branch]) -> list[_Branch]:
    """The first branch, with those that are run where it is not, if one of all these always is; else that alone."""
    first, *others = branches
    found, before = [first], _negated(first.literals)
    if len(first.literals) == 1:
        for each in others:
            if each.literals == before:
                return [*found, each]
            own = each.literals - before
            if each.literals > before and len(own) == 1:
                found.append(each)
                before |= _negated(own)
    return [first]


def _plan(cases: Sequence[_Branch], values: Values) -> list[_Result] | None:
    """The results of branches, given the ways to write them; None if the branches must stay."""
    names = dict.fromkeys(name for each in cases for name in each.call.written)
    found = [_result(name, cases, values) for name in names]
    return [each for each in found if each is not None] if None not in found else None


def _result(name: str, cases: Sequence[_Branch], values: Values) -> _Result | None:
    writers = [each for each in cases if name in each.call.written]
    last, kind = writers[-1].op, _kind(writers[0].op.block, name)
    if kind is None or any(_kind(each.call.body, name) != kind for each in writers):
        return None
    written = [values.written(name, each.op) for each in writers]
    if len(cases) > 1 and len(writers) == len(cases):
        is_read = any(name in _read(each.call) for each in cases)
        atoms = [value for each in cases[:-1] for value, _ in each.literals]
        is_alone = all(
            new.number == old.number + 1
            and not values.is_live_out(old)
            and {each.op for each in cases}.issuperset(values.readers[old])
            for old, new in pairwise(written)
        )
        is_given = not is_read or _has_value(values.read(name, cases[0].op), values)
        if is_alone and is_given and all(values.is_there(atom, last) for atom in atoms):
            return _Result(name, False, True)
    old = [values.read(name, each.op) for each in writers]
    if len(writers) == 1 and old[0].number == 0 and _is_only_chosen(written[0], writers[0], values):
        return _Result(name, True, False)
    # After the first of them there is a value in any case.
    return _Result(name, False, False) if values.producer(old[0]) is not None and _has_value(old[0], values) else None


def _is_only_chosen(value: Value, branch: _Branch, values: Values) -> bool:
    """Whether ``select_input`` alone reads a value, and only in runs in which the branch is run."""
    if values.is_live_out(value):
        return False
    for use in values.users(value):
        if use.op.type != "select_input" or use.slot != "X" or len(use.op.inputs["X"]) != 2:
            return False
        mask = values.producer(values.input(use.op, "Mask"), "cast")
        condition = None if mask is None else values.input(mask, "X")
        kind = None if condition is None else values.type_of(condition)
        if condition is None or kind is None or kind.dtype is not DType.BOOL:
            return False
        says = _literals(condition, values) if use.index == 1 else _opposite(condition, values)
        if says != branch.literals:
            return False
    return True


def _has_value(value: Value, values: Values) -> bool:
    """Whether a value is there in every run, if the state of the program is."""
    maker = values.producer(value)
    if maker is not None:
        return not _may_leave_out(maker)
    var = values.block.find_var(value.name)
    if var is None or var.persistable or var.is_data:
        return var is not None
    outside = var.block.ops if var.block is not values.block else ()
    makers = [op for op in outside if value.name in op.output_arg_names]
    # An operator with a sub-block may leave a name as it was, not without the value that it has.
    return bool(makers) and not _may_leave_out(makers[0]) and all(op.type != "select_output" for op in makers)


def _may_leave_out(op: Operator) -> bool:
    """Whether an operator may leave a result without a value."""
    return SUB_BLOCK in op.attrs or op.type == "select_output"


def _emit(cases: Sequence[_Branch], results: Sequence[_Result]) -> None:
    new = []
    for each in cases:
        copies = Copies(each.call, each.op, (), {})
        new.append(copies.append(0, {}))
        for result in results:
            if result.name in each.call.written and not result.is_always:
                _write(each.op, result, new[-1][result.name])
    for result in results:
        if result.is_always:
            _write_first(cases, result.name, [names[result.name] for names in new])
    for each in cases:
        each.op.block.remove(each.op)


def _write(op: Operator, result: _Result, new: str) -> None:
    if result.is_new:
        insert_for(op, "assign", {"X": new}, {"Out": result.name}, {})
    else:
        _choose(op, op.inputs["Cond"][0], new, result.name, result.name)


def _write_first(cases: Sequence[_Branch], name: str, new: Sequence[str]) -> None:
    """Write the value of the first case whose condition holds, and else of the last one."""
    last, chosen = cases[-1].op, new[-1]
    known = frozenset[tuple[Value, bool]]()
    deciding = []
    for each in cases[:-1]:
        ((value, holds),) = each.literals - known
        known |= _negated(frozenset({(value, holds)}))
        deciding.append((value.name, holds))
    for i, (condition, holds) in reversed(list(enumerate(deciding))):
        out = name if i == 0 else unique_name.generate(f"{name}@CHOSEN")
        yes, no = (new[i], chosen) if holds else (chosen, new[i])
        _choose(last, condition, yes, no, out)
        chosen = out


def _choose(op: Operator, condition: str, yes: str, no: str, out: str) -> None:
    """Insert what makes `out` of one of two values."""
    if _kind(op.block, yes).shape == (1,):  # type: ignore[union-attr]
        insert_for(op, "where", {"Condition": condition, "X": yes, "Y": no}, {"Out": out}, {})
        return
    mask = unique_name.generate(f"{out}@MASK")
    attrs = {"in_dtype": int(DType.BOOL), "out_dtype": int(DType.INT32)}
    insert_for(op, "cast", {"X": condition}, {"Out": mask}, attrs)
    insert_for(op, "select_input", {"X": [no, yes], "Mask": mask}, {"Out": out}, {})


def _choose_by_where(block: Block) -> None:
    """Let ``where`` choose between numbers that are always there."""
    values = Values(block)
    for op, condition in list(_choices(block, values)):
        no, yes = op.inputs["X"]
        insert_for(op, "where", {"Condition": condition, "X": yes, "Y": no}, op.outputs, {})
        block.remove(op)


def _choices(block: Block, values: Values) -> Iterator[tuple[Operator, str]]:
    for op in block.ops.of_type("select_input"):
        mask = values.producer(values.input(op, "Mask"), "cast")
        given = [values.read(name, op) for name in op.inputs["X"]]
        kinds = [values.type_of(each) for each in given]
        if mask is None or len(given) != 2 or kinds[0] is None or kinds[0] != kinds[1] or kinds[0].shape != (1,):
            continue
        makers = [values.producer(each) for each in given]
        condition = values.input(mask, "X")
        kind = values.type_of(condition)
        if kind is None or kind.dtype is not DType.BOOL or kind.shape != (1,) or not values.is_there(condition, op):
            continue
        if all(maker is not None and not _may_leave_out(maker) for maker in makers):
            yield op, condition.name
