"""Lesson 3: one clip instead of two."""

from typing import Any

from minigraph import layers, rewrite


@rewrite.rule
def clip_of_clip(
    x: Any,
    a: Any = rewrite.attr("min"),
    b: Any = rewrite.attr("max"),
    c: Any = rewrite.attr("min"),
    d: Any = rewrite.attr("max"),
) -> Any:
    """Clip once, to the interval that both have in common.

    Law: every element keeps its bits.
    """
    return layers.clip(layers.clip(x, min=a, max=b), min=c, max=d)


@clip_of_clip.where
def _(m: Any) -> Any:
    yield max(m.a, m.c) < min(m.b, m.d), "the intervals must overlap"


@clip_of_clip.to
def _(x: Any, a: float, b: float, c: float, d: float) -> Any:
    return layers.clip(x, min=max(a, c), max=min(b, d))
