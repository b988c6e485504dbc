"""Sources of the lengths of sequences that an operator's results have, as definitions name them in a word.

Lengths come in levels, outermost first (`minigraph.runtime.lod`). Here a level is whatever the caller has for it: the
name of a variable where a plan is made, nothing where only the number of levels matters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

Levels: TypeAlias = Sequence[Any]

Count: TypeAlias = Callable[[Mapping[str, int], Mapping[str, Any]], int]
"""Function from the number of levels by input slot, and the attributes, to the number of levels that a kernel makes."""


@dataclass(frozen=True, slots=True)
class LengthSource:
    """Source of the lengths of a result.

    Attributes
    ----------
    kind : {'of', 'rows', 'pooled', 'new'}
        'of': the lengths of an input. 'rows': the lengths of an input, if the result has as many rows. 'pooled': the
        lengths of an input without the last level. 'new': lengths that the kernel makes.
    slots : tuple of str
        Input slots, of which the first with any lengths counts.
    count : callable
        Number of levels that the kernel makes.
    """

    kind: str
    slots: tuple[str, ...] = ()
    count: Count = lambda levels, attrs: 1

    def levels(self, of: Callable[[str], Levels], new: Levels) -> Levels:
        """The levels of a result, from those of a variable of each input slot, see `counterpart`, and the new ones."""
        if self.kind == "new":
            return new
        found = next((levels for slot in self.slots if (levels := of(slot))), ())
        return found[:-1] if self.kind == "pooled" else found


def counterpart(at: int, results: int, inputs: int) -> int:
    """The variable of an input slot whose lengths count for result `at`: the first, unless there is one for each.

    The gradients of several inputs, as of `sequence_concat`, have the lengths of their inputs.
    """
    return at if results == inputs else 0


def length_source_of(text: str | Count) -> LengthSource | None:
    """The source that a definition names; None for no lengths.

    Examples
    --------
    >>> length_source_of("pooled X").slots, length_source_of("X Y").kind, length_source_of("")
    (('X',), 'of', None)
    """
    if not isinstance(text, str):
        return LengthSource("new", (), text)
    words = text.split()
    if not words:
        return None
    if words[0] == "new":
        number = int(words[1]) if words[1:] else 1
        return LengthSource("new", (), lambda levels, attrs: number)
    if words[0] in ("pooled", "rows"):
        return LengthSource(words[0], tuple(words[1:]))
    return LengthSource("of", tuple(words))
