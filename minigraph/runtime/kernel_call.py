"""The call of a kernel for an operator: which kernel, its arguments, its keywords, and where its results go."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from minigraph.errors import ExecutionError
from minigraph.ir import Block, Operator, VarKind
from minigraph.kernels import Kernel, find_kernel
from minigraph.opdef import EMPTY

T = TypeVar("T")


def kernel_of(op: Operator, place_kind: str, has_rows: bool) -> Kernel:
    """The kernel of an operator, for selected rows if it `has_rows`.

    Raises
    ------
    ExecutionError
        If the operator has no kernel for the place.
    """
    kernel = find_kernel(op.type, place_kind, has_rows)
    if kernel is None:
        raise ExecutionError(f"{op.type} has no kernel for {place_kind}", site=op.site)
    return kernel


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
    # A parameter whose name is a word of Python's ends in an underscore.
    return {name: op.attr(name.removesuffix("_")) for name in kernel.attrs}


def arguments_of(op: Operator, read: Callable[[str], T]) -> list[T | list[T | None] | None]:
    """Arguments of the kernel for the input slots: ``read(name)``, a list of these, or None for a slot left out."""
    found: list[T | list[T | None] | None] = []
    for slot in op.definition.inputs:
        names = op.inputs.get(slot.name, ())
        if slot.duplicable:
            values = [None if name == EMPTY else read(name) for name in names]
            found.append(values if values or not slot.dispensable else None)
        else:
            found.append(read(names[0]) if names and names[0] != EMPTY else None)
    return found


def keywords_of(op: Operator, kernel: Kernel) -> dict[str, Any]:
    """The keywords of the kernel's call that the operator determines: attributes, and which outputs are wanted."""
    keywords = attrs_for_kernel(op, kernel)
    if kernel.takes_wanted:
        keywords["wanted"] = wanted_outputs(op)
    return keywords


def results_of(op: Operator, result: Any) -> list[Any]:
    """Flatten the result of a kernel, by position of the output variables."""
    slots = op.definition.outputs
    if len(slots) == 1:
        return list(result) if slots[0].duplicable else [result]
    found: list[Any] = []
    for slot, value in zip(slots, result, strict=True):
        found.extend((value if slot.duplicable else (value,))[: len(op.outputs.get(slot.name, ()))])
    return found


def wanted_outputs(op: Operator) -> tuple[Any, ...]:
    """Flags of the outputs that a gradient kernel has to compute: one per slot, a tuple for a slot of several."""
    flags: list[Any] = []
    for slot in op.definition.outputs:
        present = tuple(name != EMPTY for name in op.outputs.get(slot.name, ()))
        flags.append(present if slot.duplicable else any(present))
    return tuple(flags)
