"""Refuse programs of several ranks in which a value has another source than its readers need, or none."""

from __future__ import annotations

from minigraph.ir import Block, Operator, Program, Role, VarKind
from minigraph.opdef import EMPTY, GRAD_SUFFIX
from minigraph.parallel.wrong import wrong

_LAW = "what updates a parameter flows back from a loss"
_FILLS = "fill_"
"""Beginning of the types of operators that fill a gradient with a number, whatever they take its shape from."""


def check_sources(program: Program) -> None:
    """Raise unless gradients flow back from losses, and something makes what the backward pass and updates read.

    Raises
    ------
    VerifyError
    """
    walk = _Walk(program.global_block())
    for op in program.global_block().ops:
        walk.visit(op)


class _Walk:
    """Follow which values exist, and which of them are gradients, from operator to operator."""

    def __init__(self, block: Block) -> None:
        forward = [op for op in block.ops if not op.role & (Role.BACKWARD | Role.OPTIMIZE | Role.LR_SCHED)]
        self.made = {name for name, var in block.vars.items() if var.is_data or var.persistable}
        self.made.update(name for op in forward for name in op.input_arg_names)  # may be fed without a declaration
        # The gradient of a loss may be fed.
        self.gradients = {name for name, var in block.vars.items() if var.is_data and GRAD_SUFFIX in name}

    def visit(self, op: Operator) -> None:
        _check_in_place(op)
        if op.role & (Role.BACKWARD | Role.OPTIMIZE):
            self._check_makers(op)
        if op.role & Role.BACKWARD:
            self._check_gradients(op)
        outs = set(op.output_arg_names) - {EMPTY}
        self.made |= outs
        is_filled = not op.input_arg_names or op.type.startswith(_FILLS) or bool(op.role & Role.LOSS)
        if (op.role & Role.BACKWARD and is_filled) or not self.gradients.isdisjoint(op.input_arg_names):
            self.gradients |= outs
        else:
            self.gradients -= outs

    def _check_makers(self, op: Operator) -> None:
        for name in op.input_arg_names:
            if name != EMPTY and name not in self.made and op.block.has_var(name):
                raise wrong(
                    op, f"reads {name}, which nothing makes before it", "it has no value, or that of an older run",
                    "Put the operator that makes it in front of this one, such as c_part or c_allgather for parts.",
                    law="a value is made before it is read",
                )  # fmt: skip

    def _check_gradients(self, op: Operator) -> None:
        """Raise if a gradient operator takes another value for the gradient that flows into it."""
        if not op.type.endswith("_grad"):
            return
        for slot, names in op.inputs.items():
            for name in names if slot.endswith(GRAD_SUFFIX) else ():
                if name not in self.gradients and _is_value(op.block, name):
                    raise wrong(
                        op, f"takes {name} for {slot}, which flows back from no loss",
                        "it is not divided by the number of ranks, so that the update depends on how many there are",
                        f"Give {slot} the gradient of {_of(op, slot)}.", law=_LAW,
                    )  # fmt: skip


def _is_value(block: Block, name: str) -> bool:
    """Whether a name is that of a value, and not of the scopes that a recurrent network has kept."""
    return name != EMPTY and block.var(name).kind is not VarKind.STEP_SCOPES


def _of(op: Operator, slot: str) -> str:
    """Name the value whose gradient a slot takes."""
    names = op.inputs.get(slot.removesuffix(GRAD_SUFFIX), ())
    return ", ".join(names) or f"the result {slot.removesuffix(GRAD_SUFFIX)} that it differentiates"


def _check_in_place(op: Operator) -> None:
    """Raise if an operator that waits is taken for one that copies."""
    if op.type.startswith("c_sync") and op.inputs["X"] != op.outputs["Out"]:
        (x,), (out,) = op.inputs["X"], op.outputs["Out"]
        raise wrong(
            op, f"reads {x} and writes {out}", "it only waits, and the original copies nothing",
            f"Give it {x} for X and for Out; use assign to copy.", law="an operator that waits changes no value",
        )  # fmt: skip
