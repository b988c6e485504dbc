"""Split variables that change their type while a program runs: each type gets its own variable.

`reshape(x, inplace=True)`, or any operator that writes to a variable again, may give it another shape. In an executor's
private program each variable has one type.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeAlias

from minigraph.errors import MinigraphError, OpError
from minigraph.ir.block import Block
from minigraph.ir.effects import body_of, rename_in
from minigraph.ir.operator import Operator, renamed
from minigraph.ir.type_inference import explain
from minigraph.opdef import DECLARED, EMPTY, SUB_BLOCK
from minigraph.types import TensorType

Changes: TypeAlias = "dict[tuple[Operator, str], TensorType]"
"""Operators that change the type of a variable by writing to it, with the type before."""


def separate(changes: Changes) -> None:
    """Give each value of a variable before its last type a new variable."""
    for block in dict.fromkeys(op.block for op, _ in changes):
        _separate(block, {key: old for key, old in changes.items() if key[0].block is block})


def _separate(block: Block, changes: Mapping[tuple[Operator, str], TensorType]) -> None:
    """Rename variables from operator to operator; the last value of each keeps its name, because it may be fetched."""
    left: dict[str, list[str]] = {}
    for op in block.ops:
        for name in op.output_arg_names:
            if (op, name) in changes:
                left.setdefault(name, []).append(_version(block, name, len(left.get(name, ())), changes[op, name]))
    names = {name: versions.pop(0) for name, versions in left.items()}
    block.first_names.update(names)
    seen_by: dict[int, dict[str, str]] = {}
    """Index of a sub-block -> name that it uses -> version."""
    for op in block.ops:
        if SUB_BLOCK in op.attrs:
            body, used = body_of(op), {*op.input_arg_names, *op.output_arg_names}
            seen_by[body.idx] = {name: version for name, version in names.items() if name in used}
            # A block of gradients must see the versions that its forward block saw.
            rename_in(op, names | seen_by.get(body.forward_block_idx, {}))
            continue
        op.inputs = renamed(op.inputs, names)
        for name in op.output_arg_names:
            if (op, name) in changes:
                names[name] = left[name].pop(0) if left[name] else name
        op.outputs = renamed(op.outputs, names)
    block.program.version += 1


def _version(block: Block, name: str, number: int, tensor_type: TensorType) -> str:
    """The name of a new variable, a copy of variable `name` with another type."""
    new = f"{name}@{number}"
    while block.find_var(new) is not None:
        new += "_"
    version = block.vars[name]._copy_to(block)
    version.name, version.tensor_type = new, tensor_type
    block.vars[new] = version
    return new


def types_in_order(block: Block) -> Iterator[tuple[Operator, dict[str, TensorType]]]:
    """Each operator with the types it writes that differ from the declared types of its variables.

    A variable is declared with the type of its last value; earlier values may have other types.

    Raises
    ------
    MinigraphError
        If an operator does not accept what it reads.
    """
    current: dict[str, TensorType] = {}
    for op in block.ops:
        if SUB_BLOCK in op.attrs:  # what a block writes outside keeps its type
            yield op, {name: current[name] for name in op.output_arg_names if name in current}
            continue
        inputs = {slot: [_type_in(block, name, current) for name in names] for slot, names in op.inputs.items()}
        try:
            inferred = op.definition.infer_types(inputs, op.attrs)
        except MinigraphError as error:
            raise explain(error, op, block) from error
        written: dict[str, TensorType] = {}
        for slot, names in op.outputs.items():
            if inferred[slot] is DECLARED:
                continue
            if len(names) != len(inferred[slot]):
                message = f"{slot} has {len(names)} variables for {len(inferred[slot])}"
                raise explain(OpError(message), op, block)
            for name, tensor_type in zip(names, inferred[slot], strict=True):
                current.pop(name, None)
                declared = _type_in(block, name, current)
                if name != EMPTY and (declared is None or not declared.fits(tensor_type)):
                    written[name] = tensor_type
        current.update(written)
        yield op, written


def _type_in(block: Block, name: str, current: Mapping[str, TensorType]) -> TensorType | None:
    if name in current:
        return current[name]
    var = block.find_var(name) if name != EMPTY else None
    return None if var is None else var.tensor_type
