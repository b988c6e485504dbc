"""Apply several strategies, one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from minigraph.clip.base import GradientClipBase, NeedClip, ParamsGrads
from minigraph.errors import ClipError, WrongTypeError
from minigraph.ir import Block, Variable
from minigraph.ir.printable import printable
from minigraph.support.public import public

__all__ = ["ClipPipeline"]


@public
@printable
@dataclass(frozen=True)
class ClipPipeline(GradientClipBase):
    """Apply several strategies in order, each to the results of the one before it.

    Each strategy picks its parameters by its own ``need_clip``, so different parameters can go different ways.

    Parameters
    ----------
    strategies : sequence of GradientClipBase
    need_clip : callable, optional
        Called with each Parameter; says whether the pipeline concerns its gradient at all.

    Raises
    ------
    ClipError
        If there is no strategy.
    WrongTypeError
        If one is no strategy.

    Examples
    --------
    Bound the elements of the embedding's gradient, then the norm of everything::

        ClipPipeline([
            GradientClipByValue(0.1, need_clip=lambda param: param.name == "embedding_0.w_0"),
            GradientClipByGlobalNorm(1.0),
        ])
    """

    strategies: Sequence[GradientClipBase]
    need_clip: NeedClip = None

    def __post_init__(self) -> None:
        super().__post_init__()
        strategies = tuple(self.strategies) if isinstance(self.strategies, Sequence) else (self.strategies,)
        if not strategies:
            raise ClipError("a ClipPipeline needs a strategy")
        for strategy in strategies:
            if not isinstance(strategy, GradientClipBase):
                raise WrongTypeError(f"a ClipPipeline holds strategies, got {strategy!r:.60}")
        self._settle(strategies=strategies)

    def emit(self, block: Block, pairs: ParamsGrads, threshold_first: bool = False) -> list[Variable]:
        current = list(pairs)
        for strategy in self.strategies:
            chosen = [i for i, (param, _) in enumerate(current) if strategy.wants(param)]
            if not chosen:
                continue
            # For a later strategy, too, `role_vars` name the gradients of the backward pass.
            raw = {
                now.name: first.name for (_, now), (_, first) in zip(current, pairs, strict=True) if now is not first
            }
            with block.program.standing_for(raw):
                # Not `emit`: each strategy has its own guard against nonfinite values and its own telemetry.
                clipped = strategy.insert(block, [current[i] for i in chosen], threshold_first=threshold_first)
            for i, grad in zip(chosen, clipped, strict=True):
                current[i] = (current[i][0], grad)
        return [grad for _, grad in current]
