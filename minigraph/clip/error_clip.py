"""Clip the gradient of one variable inside the backward pass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from minigraph.clip.standard import GradientClipByValue
from minigraph.errors import WrongTypeError
from minigraph.ir import Block, Operator
from minigraph.ir.printable import Strategy, printable
from minigraph.opdef import GRAD_SUFFIX
from minigraph.support.public import public

__all__ = ["BaseErrorClipAttr", "ErrorClipByValue", "error_clip_callback"]


@public
@dataclass(frozen=True)
class BaseErrorClipAttr(Strategy):
    """Base of the clips of one variable's gradient inside the backward pass.

    A subclass defines `append_clip_op`, or ``_append_clip_op``, as it is called in fluid.
    """

    def append_clip_op(self, block: Block, grad_name: str) -> None:
        """Append the operator that clips the gradient `grad_name` in place."""
        raise TypeError(f"{type(self).__name__} does not define append_clip_op")

    def _append_clip_op(self, block: Block, grad_name: str) -> None:
        self.append_clip_op(block, grad_name)


@public
@printable
@dataclass(frozen=True)
class ErrorClipByValue(BaseErrorClipAttr):
    """Limit each element of a variable's gradient to [`min`, `max`] before it flows further back.

    Set it on a variable: ``x.error_clip = ErrorClipByValue(max=1.0)``. Optimizers apply it by themselves;
    `append_backward` does with ``callbacks=[error_clip_callback]``.

    Parameters
    ----------
    max : float
    min : float, optional
        Default: ``-max``.
    """

    max: float
    min: float | None = None

    def __post_init__(self) -> None:
        checked = GradientClipByValue(self.max, self.min)
        self._settle(max=checked.max, min=checked.min)

    def append_clip_op(self, block: Block, grad_name: str) -> None:
        block.append_op("clip", {"X": grad_name}, {"Out": grad_name}, {"min": self.min, "max": self.max})


@public
def error_clip_callback(block: Block, context: dict[str, Any]) -> None:
    """Apply the ``error_clip`` of variables to their gradients, as a callback of `append_backward`.

    Raises
    ------
    WrongTypeError
        If a variable's ``error_clip`` is not an error clip.
    """
    op: Operator = context["__current_op_desc__"]
    for grad_name in op.output_arg_names:
        # The backward pass maps the name of each gradient to that of its variable.
        name = context.get(grad_name)
        var = block.find_var(name) if isinstance(name, str) and grad_name.endswith(GRAD_SUFFIX) else None
        error_clip = getattr(var, "error_clip", None)
        if error_clip is None:
            continue
        if not isinstance(error_clip, BaseErrorClipAttr):
            raise WrongTypeError(
                f"error_clip of {name} must be an ErrorClipByValue, got {error_clip!r:.60}", site=op.site
            )
        # By fluid's name, under which subclasses written for fluid define it.
        error_clip._append_clip_op(block, grad_name)
