"""Variables that change their type while a program runs: each type gets a variable of its own.

`reshape(x, inplace=True)`, or any operator that writes to a variable that others have written to before, may give it
another shape. In the program that an executor makes its plan of, a variable has one type, whenever one looks at it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from minigraph.ir.effects import body_of, rename_in
from minigraph.ir.operator import renamed
from minigraph.ir.program import Block, Operator
from minigraph.opdef import SUB_BLOCK
from minigraph.types import TensorType

Changes: TypeAlias = "dict[tuple[Operator, str], TensorType]"
"""The operators that write a value of another type to a variable that has one, with the type that it had."""


def separate(changes: Changes) -> None:
    """Give the values that a variable has before its last type variables of their own."""
    for block in dict.fromkeys(op.block for op, _ in changes):
        _separate(block, {key: old for key, old in changes.items() if key[0].block is block})


def _separate(block: Block, changes: Mapping[tuple[Operator, str], TensorType]) -> None:
    """Rename variables from operator to operator; the last value of each keeps the name, which others may ask for."""
    left: dict[str, list[str]] = {}
    for op in block.ops:
        for name in op.output_arg_names:
            if (op, name) in changes:
                left.setdefault(name, []).append(_version(block, name, len(left.get(name, ())), changes[op, name]))
    names = {name: versions.pop(0) for name, versions in left.items()}
    block.first_names.update(names)
    seen_by: dict[int, dict[str, str]] = {}
    """By number of a sub-block, what it calls which version."""
    for op in block.ops:
        if SUB_BLOCK in op.attrs:
            body, used = body_of(op), {*op.input_arg_names, *op.output_arg_names}
            seen_by[body.idx] = {name: version for name, version in names.items() if name in used}
            # A block of gradients finds variables as the block that it is the gradient of did.
            rename_in(op, names | seen_by.get(body.forward_block_idx, {}))
            continue
        op.inputs = renamed(op.inputs, names)
        for name in op.output_arg_names:
            if (op, name) in changes:
                names[name] = left[name].pop(0) if left[name] else name
        op.outputs = renamed(op.outputs, names)
    block.program.version += 1


def _version(block: Block, name: str, number: int, tensor_type: TensorType) -> str:
    """The name of a new variable like one there is, of another type."""
    new = f"{name}@{number}"
    while block.find_var(new) is not None:
        new += "_"
    version = block.vars[name]._copy_to(block)
    version.name, version.tensor_type = new, tensor_type
    block.vars[new] = version
    return new
