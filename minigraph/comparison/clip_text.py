"""Clipping strategies as text, for a command line and for headings."""

from __future__ import annotations

import math
from typing import Any, Final

from minigraph.clip import GradientClipBase, GradientClipByGlobalNorm, GradientClipByNorm, GradientClipByValue
from minigraph.errors import ClipError, NotFoundError, ParseError, suggest
from minigraph.ir.text.lexer import Line
from minigraph.ir.text.notation import value_text

CLIP_KINDS: Final[dict[str, type[Any]]] = {
    "norm": GradientClipByNorm,
    "global_norm": GradientClipByGlobalNorm,
    "value": GradientClipByValue,
}
"""Strategies by the kind that `parse_clip` reads."""


def parse_clip(text: str) -> GradientClipBase:
    """The strategy of a text ``KIND=THRESHOLD``, with a kind of `CLIP_KINDS`, or of the call of a strategy's class.

    Raises
    ------
    NotFoundError
        If the kind is unknown.
    ClipError
        If the threshold is missing, no number, not finite, or not positive, or the call cannot be read.

    Examples
    --------
    >>> parse_clip("norm=2") == parse_clip("GradientClipByNorm(clip_norm=2)") == GradientClipByNorm(2.0)
    True
    >>> parse_clip("value=-0.05:0.1") == GradientClipByValue(max=0.1, min=-0.05)
    True
    """
    if "(" in text:
        return _parse_call(text)
    kind, _, threshold = text.partition("=")
    if kind not in CLIP_KINDS:
        known = f"The kinds are {', '.join(CLIP_KINDS)}."
        raise NotFoundError(f"unknown kind of clip {kind!r}", hint=suggest(kind, CLIP_KINDS) or known)
    if kind == "value" and ":" in threshold:
        low, _, high = threshold.partition(":")
        return GradientClipByValue(max=_finite(text, high), min=_finite(text, low))
    number = _finite(text, threshold)
    if number <= 0:
        raise ClipError(f"the threshold of {text!r} must be positive", hint=f"Write {kind}=1, for example.")
    return CLIP_KINDS[kind](number)


def _parse_call(text: str) -> GradientClipBase:
    line = Line(1, text)
    try:
        strategy = line.value()
    except ParseError as error:
        raise ClipError(f"{text!r}: {error.message.partition(': ')[2]}", hint=error.hint) from None
    if line.peek() or not isinstance(strategy, GradientClipBase):
        raise ClipError(f"{text!r} is not the call of one strategy", hint="Write GradientClipByNorm(clip_norm=1).")
    return strategy


def _finite(text: str, threshold: str) -> float:
    try:
        number = float(threshold)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ClipError(
            f"the threshold of {text!r} must be a finite number, got {threshold!r}",
            hint="Write norm=2, global_norm=1, value=0.1 or value=-0.05:0.1, for example.",
        )
    return number


def clip_text(clip: Any) -> str:
    """The inverse of `parse_clip`; a strategy of another kind is written as in the text of a program.

    Examples
    --------
    >>> clip_text(GradientClipByNorm(2.0)), clip_text(GradientClipByValue(max=0.1, min=-0.05))
    ('norm=2', 'value=-0.05:0.1')
    """
    kind = next((kind for kind, strategy in CLIP_KINDS.items() if type(clip) is strategy), None)
    if kind is None:
        return value_text(clip)
    if isinstance(clip, GradientClipByValue):
        bounds = [clip.max] if clip.min == -clip.max else [clip.min, clip.max]
    else:
        bounds = [clip.clip_norm]
    short = f"{kind}={':'.join(repr(bound).removesuffix('.0') for bound in bounds)}"
    # A threshold alone does not tell a strategy with other options.
    return short if parse_clip(short) == clip else value_text(clip)


def strategy_text(strategy: Any) -> str:
    """A strategy for a heading, such as ``GradientClipByNorm(clip_norm=2.0)``; ``unclipped`` for None."""
    return "unclipped" if strategy is None else value_text(strategy)
