"""The order of training: backward pass, accumulation, clipping, regularization, update, each with its role.

A gradient must be clipped once, when it is complete, and before the update reads it. A program that breaks this order
still runs and trains, but not as intended.
"""

from __future__ import annotations

from collections.abc import Iterator

from minigraph.errors import VerifyError
from minigraph.ir.block import Block
from minigraph.ir.operator import Operator
from minigraph.ir.role import Role


def check_clip_order(block: Block) -> None:
    """Raise unless the operators of `block` clip gradients in the right order.

    Raises
    ------
    VerifyError
        If a gradient is clipped after its parameter's update has read it, or a second time, or before the backward
        pass has added up all its parts; naming both operators.
    """
    seen = _Seen()
    for op in block.ops:
        if op.role & Role.CLIP:
            for param, grad in _served(op):
                _check_clip(op, param, grad, seen)
            seen.clip(op)
        elif op.role & Role.BACKWARD:
            _check_backward(op, seen)
            seen.accumulate(op)
        elif "Param" in op.inputs and "Grad" in op.inputs:
            seen.updates[op.inputs["Param"][0], op.inputs["Grad"][0]] = op


class _Seen:
    """The updates, clips and sums among the operators up to here, by the names of gradients."""

    def __init__(self) -> None:
        self.updates: dict[tuple[str, str], Operator] = {}
        self.clipped_by: dict[str, Operator] = {}
        """A gradient that a clip has read -> that clip."""
        self.clip_of: dict[str, Operator] = {}
        """A gradient that a clip has written -> that clip."""
        self.sum_of: dict[str, Operator] = {}
        """A part of a gradient -> the operator that adds it to the other parts."""

    def clip(self, op: Operator) -> None:
        served = {grad for _, grad in _served(op)}
        self.clipped_by.update(dict.fromkeys(served, op))
        # A group of operators may also make the gradient, or that of another parameter, which it does not read then.
        made = {name for name in op.output_arg_names if name in served or name.endswith("@GRAD")}
        made.difference_update(op.input_arg_names)
        self.clip_of.update({name: op for name in op.output_arg_names if name not in made})

    def accumulate(self, op: Operator) -> None:
        if op.type == "sum":
            self.sum_of.update({name: op for name in op.input_arg_names})


def _served(op: Operator) -> Iterator[tuple[str, str]]:
    """The (parameter, gradient) pairs that an operator serves."""
    return zip(op.role_vars[::2], op.role_vars[1::2], strict=False)


def _check_clip(op: Operator, param: str, grad: str, seen: _Seen) -> None:
    if (param, grad) in seen.updates:
        raise _error(
            f"{grad} is clipped after the update of {param} has read it", op, seen.updates[param, grad],
            "Clip before the optimizer appends its updates.",
        )  # fmt: skip
    if grad in seen.clip_of:
        raise _error(
            f"{grad} is clipped a second time", op, seen.clip_of[grad],
            "Put several strategies for one gradient into a ClipPipeline.",
        )  # fmt: skip
    if grad in seen.sum_of and _completes(seen.sum_of[grad], param, grad):
        raise _error(
            f"{grad} is clipped although it is a part of a gradient only", op, seen.sum_of[grad],
            "Clip the sum of the parts.",
        )  # fmt: skip


def _completes(total: Operator, param: str, grad: str) -> bool:
    """Whether a sum is the gradient of `param`, and not that of something else, to which an equal value flows."""
    (out,) = total.output_arg_names
    return param in total.role_vars[::2] or out.partition("@GRAD")[0] == grad.partition("@GRAD")[0]


def _check_backward(op: Operator, seen: _Seen) -> None:
    names = [*op.output_arg_names, *(op.input_arg_names if op.type == "sum" else ())]
    for name in names:
        clip = seen.clipped_by.get(name) or (seen.clip_of.get(name) if op.type == "sum" else None)
        if clip is not None:
            raise _error(
                f"{name} is clipped before the backward pass has completed it", clip, op,
                "Append the whole backward pass, then the clips.",
            )  # fmt: skip


_LAW = "a gradient is clipped once, when it is complete and before its update reads it"


def _error(message: str, clip: Operator, other: Operator, hint: str) -> VerifyError:
    details = [f"the clip: {clip.type}, created at {clip.site}", f"the other: {other.type}, created at {other.site}"]
    return VerifyError(message, details=details, law=_LAW, op=clip, hint=hint)
