"""Remove ``expand`` before operators on elements, which repeat an operand themselves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from minigraph.passes.rules import Match, Rule, Rules, attr, marked, op, rule, with_gradients


def _rules(type: str) -> Iterator[Rule]:
    @rule
    def expanded(x: Any, y: Any) -> Any:
        return op(type, X=x, Y=marked(op("expand", X=y, expand_times=attr()), shared=True), axis=attr())

    @rule
    def expanded_as(x: Any, y: Any, like: Any) -> Any:
        return op(type, X=x, Y=marked(op("expand_as", X=y, target_tensor=like), shared=True), axis=attr())

    @expanded.where
    @expanded_as.where
    def _(m: Match) -> Iterator[tuple[bool, str]]:
        x, y = m.x.shape or (-1,), m.y.shape or (-1,)
        yield -1 not in (*x, *y) and len(x) == len(y), "x and y must have known shapes of one rank"
        yield m.axis in (-1, 0), "the operands must be aligned"
        yield not m.y.lod_level, "y must not be divided into sequences, as its gradient would be"
        repeated: Sequence[int] = getattr(m, "expand_times", None) or [
            a // max(b, 1) for a, b in zip(x, y, strict=True)
        ]
        fits = [b == a if times == 1 else b == 1 and times == a for a, b, times in zip(x, y, repeated, strict=True)]
        yield all(fits), "y must be repeated where it has one element, as often as x has elements"

    @expanded_as.where
    def _(m: Match) -> Iterator[tuple[bool, str]]:
        yield m.like.shape == m.x.shape, "y must be repeated to the shape of x"

    @expanded.to
    @expanded_as.to
    def _(x: Any, y: Any) -> Any:
        return op(type, X=x, Y=y)

    for each in (expanded, expanded_as):
        yield from with_gradients(each, "x", "y")


class BroadcastExpanded(Rules):
    """Let a sum, difference or product broadcast Y, where ``expand`` or ``expand_as`` repeats Y to the shape of X.

    Likewise for the gradients, which then add up in one operator.

    Law: results keep their bits, and gradients of Y are the same up to rounding, by at most ``2 n eps`` times the sum
    of n magnitudes, which may be added in another order.
    """

    changes_rounding: ClassVar[bool] = True

    needs = (frozenset({"expand"}), frozenset({"expand_as"}))

    rules = tuple(each for name in ("add", "sub", "mul") for each in _rules(f"elementwise_{name}"))
