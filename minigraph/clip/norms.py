"""Strategies with other norms than fluid's: of any order, along dimensions, relative to the size of the tensor."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any, ClassVar

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
)
from minigraph.errors import ClipError, WrongTypeError
from minigraph.ir import Block, Variable
from minigraph.ir.printable import printable
from minigraph.support.public import public
from minigraph.types import product

__all__ = ["GradientClipByAxisNorm", "GradientClipByBlockRMS", "GradientClipByGlobalPNorm", "GradientClipByPNorm"]


def _order(p: Any, what: str) -> float:
    order = check_number(p, what)
    if not order > 0:
        raise ClipError(f"{what} must be positive, got {order}", hint="float('inf') is the largest magnitude.")
    return order


def _axes(axes: Any, what: str) -> tuple[int, ...]:
    given = list(axes) if isinstance(axes, Iterable) and not isinstance(axes, str) else [axes]
    if not all(isinstance(axis, Integral) and not isinstance(axis, bool) for axis in given):
        raise WrongTypeError(f"{what} must be ints, got {axes!r:.60}")
    if len(set(given)) < len(given):
        raise ClipError(f"{what} names a dimension twice: {axes!r:.60}")
    return tuple(map(int, given))


@public
@printable
@dataclass(frozen=True)
class GradientClipByPNorm(GradientClipBase):
    """Scale each gradient down to a norm of order `p` of at most `clip_norm`.

    Parameters
    ----------
    clip_norm : float
        Maximum norm, positive and finite.
    p : float
        Order of the norm, ``sum(|g| ** p) ** (1 / p)``: positive; infinity stands for the largest magnitude.
    need_clip : callable, optional
        Called with each Parameter; says whether its gradient is to be clipped.

    Raises
    ------
    ClipError
        If `clip_norm` is not positive and finite, or `p` is not positive.
    """

    clip_norm: float
    p: float = 2.0
    need_clip: NeedClip = None

    _checks: ClassVar = {"clip_norm": check_threshold, "p": _order}

    def emit(self, block: Block, pairs: ParamsGrads, threshold_first: bool = False) -> list[Variable]:
        clipped = []
        for pair in pairs:
            threshold = emit_constant(block, self.clip_norm, pair)
            clipped += emit_clipped(block, [pair], threshold, self.p)
        return clipped


@public
@printable
@dataclass(frozen=True)
class GradientClipByGlobalPNorm(GroupClip):
    """Scale all gradients of a group by one factor, so that their joint norm of order `p` is at most `clip_norm`.

    Parameters
    ----------
    clip_norm : float
        Maximum norm, positive and finite.
    p : float
        Order of the norm: positive; infinity stands for the largest magnitude of all elements.
    group_name : str
        Parameters whose strategies name the same group are clipped together.
    need_clip : callable, optional
        Called with each Parameter; one that needs no clip is no part of the norm either.

    Raises
    ------
    ClipError
        If `clip_norm` is not positive and finite, `p` is not positive, or, when operators are made, the strategies of
        a group differ.
    """

    clip_norm: float
    p: float = 2.0
    group_name: str = "default_group"
    need_clip: NeedClip = None

    _checks: ClassVar = {"clip_norm": check_threshold, "p": _order}

    def emit(self, block: Block, pairs: ParamsGrads, threshold_first: bool = False) -> list[Variable]:
        return emit_clipped(block, pairs, emit_constant(block, self.clip_norm, pairs[0]), self.p)


@public
@printable
@dataclass(frozen=True)
class GradientClipByAxisNorm(GradientClipBase):
    """Scale each slice of each gradient down to a norm of at most `clip_norm`.

    A slice runs over the dimensions `axes` at one index of the others: of a matrix ``[n, m]``, ``axes=[1]`` clips each
    row and ``axes=[0]`` each column.

    Parameters
    ----------
    clip_norm : float
        Maximum norm, positive and finite.
    axes : int or sequence of int
        Dimensions that a norm runs over; negative ones count from the end. A gradient that lacks one of them, such as
        that of a bias, is clipped as a whole.
    p : float
        Order of the norm: positive; infinity stands for the largest magnitude.
    need_clip : callable, optional
        Called with each Parameter; says whether its gradient is to be clipped.

    Raises
    ------
    ClipError
        If `clip_norm` is not positive and finite, `p` is not positive, or `axes` names a dimension twice.
    WrongTypeError
        If `axes` are no ints.
    """

    clip_norm: float
    axes: int | Sequence[int] = (-1,)
    p: float = 2.0
    need_clip: NeedClip = None

    _checks: ClassVar = {"clip_norm": check_threshold, "p": _order, "axes": _axes}

    def emit(self, block: Block, pairs: ParamsGrads, threshold_first: bool = False) -> list[Variable]:
        # A tensor: as an attribute the threshold would be rounded to float32.
        threshold = emit_constant(block, self.clip_norm, pairs[0])
        return [
            emit_for(block, pair, "clip_by_axis_norm", MaxNorm=threshold, axes=self._axes_of(pair[1]), p=self.p)
            for pair in pairs
        ]

    def _axes_of(self, grad: Variable) -> Sequence[int]:
        assert isinstance(self.axes, Sequence) and grad.shape is not None
        rank = len(grad.shape)
        has_all = all(-rank <= axis < rank for axis in self.axes)
        # Of a vector 0 and -1 are the same dimension.
        return sorted({axis % rank for axis in self.axes}) if has_all and rank else ()


@public
@printable
@dataclass(frozen=True)
class GradientClipByBlockRMS(GradientClipBase):
    """Scale each gradient down to a root mean square of at most `threshold`.

    The norm of a tensor of n elements may then be up to ``threshold * sqrt(n)``.

    Parameters
    ----------
    threshold : float
        Maximum root mean square, positive and finite.
    need_clip : callable, optional
        Called with each Parameter; says whether its gradient is to be clipped.

    Raises
    ------
    ClipError
        If `threshold` is not positive and finite.

    References
    ----------
    N. Shazeer and M. Stern, Adafactor: Adaptive Learning Rates with Sublinear Memory Cost, ICML 2018, section 6.
    """

    threshold: float
    need_clip: NeedClip = None

    _checks: ClassVar = {"threshold": check_threshold}

    def emit(self, block: Block, pairs: ParamsGrads, threshold_first: bool = False) -> list[Variable]:
        clipped = []
        for param, grad in pairs:
            size = product(param.shape or ())
            # Without elements there is no mean.
            if not size:
                clipped.append(grad)
                continue
            # A root mean square of t is an L2 norm of t * sqrt(n).
            threshold = emit_constant(block, self.threshold * math.sqrt(size), (param, grad))
            clipped += emit_clipped(block, [(param, grad)], threshold, 2.0)
        return clipped
