"""Helpers of layers that run a sub-block."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from minigraph.errors import ProgramError, WrongTypeError
from minigraph.ir import Block, Variable
from minigraph.ir.default_programs import default_main_program, is_imperative
from minigraph.ir.operator import slot_names
from minigraph.layer_helper import check_variable
from minigraph.support.undo import all_or_nothing
from minigraph.types import DType, product


@contextmanager
def building_sub_block(complete: Callable[[Block], None]) -> Iterator[None]:
    """Inside, operators go to a new block; afterwards `complete` appends the operator that runs it to its parent.

    If either fails, the program is left as it was.
    """
    program = default_main_program()
    if is_imperative():
        raise ProgramError(
            "the imperative mode has no sub-blocks",
            hint="Use Python's own if and while, or layers.cond and layers.while_loop.",
        )  # fmt: skip
    with all_or_nothing():
        inside = program.create_block()
        yield
        # Back to the outer block, to which `complete` appends.
        program.rollback()
        complete(inside)


def read_before_written(block: Block, touched: Sequence[str], *written: str) -> list[str]:
    """The outer variables among `touched` that a block reads before it writes them.

    An array that the block only writes elements to is not read, though it keeps its other elements.
    """
    read: dict[str, None] = {}
    done = set(written)
    for op in block.ops:
        updated = {name for slot in op.definition.updates for name in op.outputs.get(slot, ())}
        updated.difference_update(slot_names(op.inputs))
        read.update((name, None) for name in op.input_arg_names if name not in done and name not in updated)
        done.update(op.output_arg_names)
    return [name for name in touched if name in read]


def check_condition(condition: Any, what: str) -> Variable:
    """`condition`, if it is a Variable of one boolean.

    Raises
    ------
    WrongTypeError
        Otherwise; `what` names the layer and the argument.
    """
    check_variable(condition, what)
    # -1: a size that only a run knows.
    if condition.dtype is not DType.BOOL or product(condition.shape or (1,)) not in (1, -1):
        raise WrongTypeError(
            f"{what} must be one boolean, bool[1], got {condition}",
            hint="Compare with layers.less_than and the like; join several with layers.reduce_all.",
        )  # fmt: skip
    return condition


def check_callable(function: Any, what: str) -> None:
    if not callable(function):
        raise WrongTypeError(f"{what} must be callable, got {type(function).__name__}")


def truth_of(condition: Any, what: str) -> bool:
    value = check_condition(condition, what).numpy()
    return bool(value.item())
