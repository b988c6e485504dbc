"""Fluid's strategies: by value, by norm, by global norm."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from minigraph.clip.base import (
    GradientClipBase,
    GroupClip,
    NeedClip,
    ParamsGrads,
    check_number,
    check_threshold,
    emit_clipped,
    emit_constant,
    emit_for,
    fits_attribute,
)
from minigraph.errors import ClipError, on_one_line
from minigraph.ir import Block, Variable, VarKind
from minigraph.ir.printable import printable
from minigraph.support.public import public

__all__ = ["GradientClipByGlobalNorm", "GradientClipByNorm", "GradientClipByValue"]


@public
@printable
@dataclass(frozen=True)
class GradientClipByValue(GradientClipBase):
    """Limit each element to [`min`, `max`].

    Parameters
    ----------
    max : float
        Upper bound.
    min : float, optional
        Lower bound. Default: ``-max``.
    need_clip : callable, optional
        Called with each Parameter; says whether its gradient is to be clipped.

    Raises
    ------
    ClipError
        If a bound is NaN, `min` is not below `max`, or `max` is not positive while `min` is left out.
    """

    max: float
    min: float | None = None
    need_clip: NeedClip = None

    def __post_init__(self) -> None:
        super().__post_init__()
        upper = check_number(self.max, "max")
        if self.min is None and not upper > 0:
            raise ClipError(f"max must be positive when min is left out, got {upper}", hint="Give min too.")
        lower = -upper if self.min is None else check_number(self.min, "min")
        if not lower < upper:
            raise ClipError(f"min must be below max, got min={lower}, max={upper}")
        self._settle(max=upper, min=lower)

    @on_one_line
    def __str__(self) -> str:
        return f"Gradient Clip By Value, min = {self.min:f}, max={self.max:f}"

    def emit(self, block: Block, pairs: ParamsGrads, threshold_first: bool = False) -> list[Variable]:
        assert self.min is not None
        if fits_attribute(self.min) and fits_attribute(self.max):
            return [emit_for(block, pair, "clip", min=self.min, max=self.max) for pair in pairs]
        # Attributes are float32; where a bound does not fit, tensors of the gradient's dtype override both.
        clipped = []
        for pair in pairs:
            low, high = (emit_constant(block, bound, pair, pair[1].dtype) for bound in (self.min, self.max))
            clipped.append(emit_for(block, pair, "clip", min=-1.0, max=1.0, Min=low, Max=high))
        return clipped


@public
@printable
@dataclass(frozen=True)
class GradientClipByNorm(GradientClipBase):
    """Scale each gradient down to an L2 norm of at most `clip_norm`: ``g * clip_norm / max(norm(g), clip_norm)``.

    Parameters
    ----------
    clip_norm : float
        Maximum norm, positive and finite.
    need_clip : callable, optional
        Called with each Parameter; says whether its gradient is to be clipped.

    Raises
    ------
    ClipError
        If `clip_norm` is not positive and finite.

    References
    ----------
    R. Pascanu, T. Mikolov and Y. Bengio, On the difficulty of training recurrent neural networks, ICML 2013.
    """

    clip_norm: float
    need_clip: NeedClip = None

    _checks: ClassVar = {"clip_norm": check_threshold}

    @on_one_line
    def __str__(self) -> str:
        return f"Gradient Clip By Norm, clip_norm={self.clip_norm:f}"

    def emit(self, block: Block, pairs: ParamsGrads, threshold_first: bool = False) -> list[Variable]:
        if fits_attribute(self.clip_norm):
            return [emit_for(block, pair, "clip_by_norm", max_norm=self.clip_norm) for pair in pairs]
        return [
            clipped
            for pair in pairs
            # Of one gradient the joint norm is its own, and the joint clip reads its threshold from a float64 tensor.
            for clipped in emit_clipped(block, [pair], emit_constant(block, self.clip_norm, pair), 2.0)
        ]


@public
@printable
@dataclass(frozen=True)
class GradientClipByGlobalNorm(GroupClip):
    """Scale all gradients of a group by one factor: ``g * clip_norm / max(norm of all together, clip_norm)``.

    Parameters
    ----------
    clip_norm : float
        Maximum norm, positive and finite.
    group_name : str
        Parameters whose strategies name the same group are clipped together.
    need_clip : callable, optional
        Called with each Parameter; one that needs no clip is no part of the norm either.

    Raises
    ------
    ClipError
        If `clip_norm` is not positive and finite, or, when operators are made, a group has two thresholds.
    """

    clip_norm: float
    group_name: str = "default_group"
    need_clip: NeedClip = None

    _checks: ClassVar = {"clip_norm": check_threshold}

    @on_one_line
    def __str__(self) -> str:
        return f"Gradient Clip By GlobalNorm, global_norm={self.clip_norm:f}"

    def emit(self, block: Block, pairs: ParamsGrads, threshold_first: bool = False) -> list[Variable]:
        """Fluid's operators; `threshold_first` puts the constant in front, as ``append_gradient_clip_ops`` has it."""
        program, role = block.program, block.program.current_role
        threshold = emit_constant(block, self.clip_norm, pairs[0], pairs[0][1].dtype) if threshold_first else None
        squares = []
        for pair in pairs:
            with program.role_guard(role, pair):
                square = block.emit("square", X=_elements(block, pair[1]))
                squares.append(block.emit("reduce_sum", X=square, dim=[0], reduce_all=True))
        # Operators that serve all pairs have the `role_vars` of one of them, as fluid records it.
        with program.role_guard(role, pairs[0 if threshold_first else -1]):
            norm = block.emit("sqrt", X=block.emit("sum", X=squares))
            if threshold is None:
                threshold = emit_constant(block, self.clip_norm, pairs[-1], pairs[-1][1].dtype)
            factor = block.emit("elementwise_div", X=threshold, Y=block.emit("elementwise_max", X=threshold, Y=norm))
        return [emit_for(block, pair, "elementwise_mul", Y=factor) for pair in pairs]


def _elements(block: Block, grad: Variable) -> Variable:
    """Return the nonzero elements of a gradient, each once."""
    if grad.kind is not VarKind.SELECTED_ROWS:
        return grad
    return block.emit("get_tensor_from_selected_rows", X=block.emit("merge_selected_rows", X=grad))
