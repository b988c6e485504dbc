"""From an operator to the call of its kernel: which kernel, which attributes, which of its results are wanted."""

from __future__ import annotations

from typing import Any

from minigraph.ir import Block, Operator, VarKind
from minigraph.kernels import Kernel
from minigraph.opdef import EMPTY


def has_rows(op: Operator, block: Block) -> bool:
    """Whether an input or output of `op` is selected rows."""
    variables = block.vars
    for names in (*op.inputs.values(), *op.outputs.values()):
        for name in names:
            var = variables.get(name)
            if var is None:
                var = block.find_var(name)
            if var is not None and var.kind is VarKind.SELECTED_ROWS:
                return True
    return False


def attrs_for_kernel(op: Operator, kernel: Kernel) -> dict[str, Any]:
    """The attributes that the kernel takes, with their values."""
    return {name: op.attr(name.removesuffix("_")) for name in kernel.attrs}


def wanted_outputs(op: Operator) -> tuple[Any, ...]:
    """Which outputs a gradient kernel has to compute: a flag for each slot, a tuple of them for a slot of several."""
    flags: list[Any] = []
    for slot in op.definition.outputs:
        present = tuple(name != EMPTY for name in op.outputs.get(slot.name, ()))
        flags.append(present if slot.duplicable else any(present))
    return tuple(flags)
