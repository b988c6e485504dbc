"""Names of ``fluid.transpiler.details``, with which public scripts print programs and edit blocks; imports the IR."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TextIO

from minigraph.ir import Block, Operator, Program, Variable
from minigraph.support.public import public, refuse_unknown_names

__path__: list[str] = []  # lets Python ask for fluid's modules in it, see `minigraph.support.fluid_paths`
__all__ = [
    "block_to_code", "delete_ops", "find_op_by_input_arg", "find_op_by_output_arg", "op_to_code", "program_to_code",
    "variable_to_code",
]  # fmt: skip


@public
def program_to_code(prog: Program, fout: TextIO | None = None, skip_op_callstack: bool = True) -> None:
    """Print a program to a file, or to standard output, as `str` writes it."""
    print(prog, file=fout)


@public
def block_to_code(block: Block, block_idx: int, fout: TextIO | None = None, skip_op_callstack: bool = False) -> None:
    """Print a block to a file, or to standard output, as `str` writes it."""
    print(block, file=fout)


@public
def op_to_code(op: Operator, skip_op_callstack: bool = True) -> str:
    """The text of an operator."""
    return str(op)


@public
def variable_to_code(var: Variable) -> str:
    """The text of a variable."""
    return str(var)


@public
def find_op_by_input_arg(block: Block, arg_name: str) -> int:
    """Index of the first operator that reads a name; -1 if none does."""
    return next((i for i, op in enumerate(block.ops) if arg_name in op.input_arg_names), -1)


@public
def find_op_by_output_arg(block: Block, arg_name: str, reverse: bool = False) -> int:
    """Index of the first operator that writes a name, or with `reverse` of the last; -1 if none does."""
    found = [i for i, op in enumerate(block.ops) if arg_name in op.output_arg_names]
    return found[-1 if reverse else 0] if found else -1


@public
def delete_ops(block: Block, ops: Iterable[Operator]) -> None:
    """Remove operators from a block."""
    for op in list(ops):
        block.remove(block.ops.index(op))


refuse_unknown_names(__name__)
