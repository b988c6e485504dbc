"""Sequences among the rows of a tensor, and sequences of those: fluid's level of detail (LoD).

As in fluid, each level, outermost first, holds the offsets at which its sequences begin and end:
``[[0, 2, 3], [0, 1, 3, 6]]``. The same as lengths: ``[[2, 1], [1, 2, 3]]``.
"""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import Any, TypeAlias

from minigraph.errors import ProgramError, WrongTypeError

Levels: TypeAlias = tuple[tuple[int, ...], ...]


def as_levels(given: Any, what: str) -> Levels:
    """Lists of whole numbers, checked.

    Raises
    ------
    WrongTypeError
        If `given` is anything else.
    """
    try:
        levels = tuple(tuple(int(number) for number in level) for level in given)
        same = all(a == b for level, made in zip(given, levels, strict=True) for a, b in zip(level, made, strict=True))
    except (TypeError, ValueError):
        same = False
    if not same:
        raise WrongTypeError(f"{what} must be lists of whole numbers, such as [[2, 3]], got {given!r:.80}")
    return levels


def offsets_of(lengths: Levels) -> Levels:
    """
    Examples
    --------
    >>> offsets_of(((2, 1), (1, 2, 3)))
    ((0, 2, 3), (0, 1, 3, 6))
    """
    return tuple(tuple(accumulate(level, initial=0)) for level in lengths)


def lengths_of(offsets: Levels) -> Levels:
    """The reverse of `offsets_of`."""
    return tuple(tuple(end - begin for begin, end in pairwise(level)) for level in offsets)


def is_valid(offsets: Levels, rows: int | None = None) -> bool:
    """Whether each level divides the sequences of the next one, and the last one `rows` rows (any, if None).

    Examples
    --------
    >>> is_valid(((0, 2, 3), (0, 1, 3, 6)), 6), is_valid(((0, 2, 3), (0, 1, 3, 6)), 7), is_valid(((0, 4, 2),), 2)
    (True, False, False)
    """
    if any(len(level) < 2 or level[0] != 0 or list(level) != sorted(level) for level in offsets):
        return False
    counts = [*(len(level) - 1 for level in offsets[1:]), rows]
    return all(count in (None, level[-1]) for level, count in zip(offsets, counts, strict=False))


def check_levels(offsets: Levels, rows: int | None) -> None:
    """
    Raises
    ------
    ProgramError
        Unless `is_valid`.
    """
    if not is_valid(offsets, rows):
        shown = [list(level) for level in lengths_of(offsets)]
        raise ProgramError(
            f"sequences of lengths {shown} do not make up {'a tensor' if rows is None else f'{rows} rows'}",
            details=[f"level {i}: {len(level)} sequences, {sum(level)} in all" for i, level in enumerate(shown)],
            hint="Make each level add up to the number of sequences of the next one, and the last one to that of rows.",
        )
