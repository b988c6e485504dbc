"""Strategies whose threshold depends on the size of the parameter or on the norms of earlier steps."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from numbers import Integral
from typing import Any, ClassVar

from minigraph.clip.base import (
    GradientClipBase,
    GroupClip,
    NeedClip,
    ParamsGrads,
    check_flag,
    check_number,
    check_threshold,
    emit_clipped,
    emit_for,
)
from minigraph.errors import ClipError
from minigraph.ir import Block, Parameter, Variable
from minigraph.ir.printable import printable
from minigraph.layer_helper import create_state
from minigraph.support.public import public
from minigraph.unique_name import generate

__all__ = ["AdaptiveGradientClip", "AutoClip", "ZClip"]


@public
@printable
@dataclass(frozen=True)
class AdaptiveGradientClip(GradientClipBase):
    """Scale the gradient of each unit down to a norm of at most `clipping` times that of the unit's weights.

    A unit makes one output: it is a column of a matrix ``[in, out]``, a filter of a convolution ``[out, in, h, w]``, or
    a vector as a whole. As in the paper the final layer is left alone: the weight created last among the parameters
    that are clipped together, and its bias.

    Parameters
    ----------
    clipping : float
        Maximum ratio of the norms, positive.
    eps : float
        Minimum norm that weights count as, so that a unit that starts at zero can move.
    clip_final_layer : bool
        Clip the final layer too.
    need_clip : callable, optional
        Called with each Parameter; says whether its gradient is to be clipped.

    Raises
    ------
    ClipError
        If `clipping` or `eps` is not positive and finite.

    References
    ----------
    A. Brock, S. De, S. L. Smith and K. Simonyan, High-Performance Large-Scale Image Recognition Without Normalization,
    ICML 2021, section 4.
    """

    clipping: float = 0.01
    eps: float = 1e-3
    clip_final_layer: bool = False
    need_clip: NeedClip = None

    _checks: ClassVar = {"clipping": check_threshold, "eps": check_threshold, "clip_final_layer": check_flag}

    def emit(self, block: Block, pairs: ParamsGrads, threshold_first: bool = False) -> list[Variable]:
        final = set() if self.clip_final_layer else _final_layer([param for param, _ in pairs])
        clipped = []
        for param, grad in pairs:
            attrs = {"axes": _unit_axes(len(param.shape or ())), "clipping": self.clipping, "eps": self.eps}
            is_final = param.name in final
            clipped.append(grad if is_final else emit_for(block, (param, grad), "adaptive_clip", Param=param, **attrs))
        return clipped


def _unit_axes(rank: int) -> list[int]:
    """Dimensions that a unit runs over: all but the first of a filter, the first of a matrix."""
    return list(range(1, rank)) if rank > 3 else [0] if rank > 1 else []


def _final_layer(params: list[Parameter]) -> set[str]:
    """Return the names of the weight created last and of the parameters created after it."""
    # A layer creates its weight before its bias.
    weights = [param.creation for param in params if len(param.shape or ()) > 1]
    return {param.name for param in params if weights and param.creation >= max(weights)}


def _percentile(value: Any, what: str) -> float:
    if not 0 <= (number := check_number(value, what)) <= 100:
        raise ClipError(f"{what} must be from 0 to 100, got {number}")
    return number


def _share(value: Any, what: str) -> float:
    if not 0 <= (number := check_number(value, what)) < 1:
        raise ClipError(f"{what} must be from 0 to below 1, got {number}")
    return number


def _count(value: Any, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
        raise ClipError(f"{what} must be a positive int, got {value!r:.60}")
    return int(value)


@public
class _ClipByHistory(GroupClip):
    """A global norm whose threshold an operator computes from the norms of earlier steps."""

    def emit(self, block: Block, pairs: ParamsGrads, threshold_first: bool = False) -> list[Variable]:
        return emit_clipped(block, pairs, self._emit_threshold(block, [grad for _, grad in pairs]), 2.0)

    def _emit_threshold(self, block: Block, grads: list[Variable]) -> Variable:
        """Append the operator that computes the threshold of this step and updates the statistics."""
        kind, sizes, attrs = self._statistics()
        layer, create = generate(kind), partial(create_state, program=block.program, stop_gradient=True)
        state = {
            slot: create(f"{layer}.{slot.lower()}", [size], "int64" if slot == "Count" else "float64")
            for slot, size in sizes.items()
        }
        threshold = block.create_var(name=f"{layer}.threshold", stop_gradient=True)
        updated = {f"{slot}Out": var for slot, var in state.items()}
        block.append_op(f"{kind}_threshold", {"X": grads, **state}, {"Threshold": threshold, **updated}, attrs)
        return threshold

    def _statistics(self) -> tuple[str, dict[str, int], dict[str, Any]]:
        """Return the kind of threshold, the sizes of its statistics by slot, and its attributes."""
        raise TypeError(f"{type(self).__name__} does not define its threshold")


@public
@printable
@dataclass(frozen=True)
class AutoClip(_ClipByHistory):
    """Scale all gradients of a group down to a percentile of the norms that they have had so far.

    The current norm is part of the history, so the first step is not clipped.

    Parameters
    ----------
    percentile : float
        From 0 to 100, by linear interpolation.
    history : int
        Number of the last norms that count. A persistable variable, float64[history], keeps them.
    group_name : str
        Parameters whose strategies name the same group are clipped together.
    need_clip : callable, optional
        Called with each Parameter; one that needs no clip is no part of the norm either.

    Raises
    ------
    ClipError
        If `percentile` or `history` is out of range.

    References
    ----------
    P. Seetharaman, G. Wichern, B. Pardo and J. Le Roux, AutoClip: Adaptive Gradient Clipping for Source Separation
    Networks, MLSP 2020.
    """

    percentile: float = 10.0
    history: int = 10_000
    group_name: str = "default_group"
    need_clip: NeedClip = None

    _checks: ClassVar = {"percentile": _percentile, "history": _count}

    def _statistics(self) -> tuple[str, dict[str, int], dict[str, Any]]:
        return "autoclip", {"History": self.history, "Count": 1}, {"percentile": self.percentile}


@public
@printable
@dataclass(frozen=True)
class ZClip(_ClipByHistory):
    """Scale all gradients of a group down when their norm lies far above its running mean.

    With mean m and standard deviation s of the norms so far and ``z = (norm - m) / s``, a norm with
    ``z > z_threshold`` is scaled down to ``m + z_threshold ** 2 / z * s``: the farther out, the more.

    Parameters
    ----------
    z_threshold : float
        Minimum z of a norm that is scaled down.
    alpha : float
        Share of the running mean and variance that each step keeps, from 0 to below 1.
    warmup_steps : int
        Number of first steps without clipping, whose mean and variance are those of all norms so far.
    group_name : str
        Parameters whose strategies name the same group are clipped together.
    need_clip : callable, optional
        Called with each Parameter; one that needs no clip is no part of the norm either.

    Raises
    ------
    ClipError
        If an option is out of range.

    References
    ----------
    A. Kumar, L. Owen, N. R. Chowdhury and F. Güra, ZClip: Adaptive Spike Mitigation for LLM Pre-Training, 2025.
    """

    z_threshold: float = 2.5
    alpha: float = 0.97
    warmup_steps: int = 25
    group_name: str = "default_group"
    need_clip: NeedClip = None

    _checks: ClassVar = {"z_threshold": check_threshold, "alpha": _share, "warmup_steps": _count}

    def _statistics(self) -> tuple[str, dict[str, int], dict[str, Any]]:
        attrs = {"z_threshold": self.z_threshold, "alpha": self.alpha, "warmup_steps": self.warmup_steps}
        return "zclip", {"Mean": 1, "Variance": 1, "Count": 1}, attrs
