"""Parts of arrays: each of several ranks has one, of equal length, and the last ones end in padding."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from math import prod
from typing import Any, NamedTuple


class Division(NamedTuple):
    """Division of an array among ranks.

    Attributes
    ----------
    nranks : int
        Number of ranks.
    blocks : int
        Number of blocks of a part; ranks that divide an array into as many blocks in all have the same ones.
    by_rows : bool
        Whether parts are rows; otherwise they are pieces of the flat array, whatever its shape.
    """

    nranks: int
    blocks: int = 1
    by_rows: bool = False

    def shape_of(self, whole: tuple[int, ...]) -> tuple[int, ...]:
        """Shape of a part of an array of the shape `whole`."""
        first, *rest = whole if self.by_rows else (prod(whole),)
        return (self.blocks * -(-first // (self.nranks * self.blocks)), *rest)

    def part(self, xp: Any, array: Any, rank: int, out: Any = None) -> Any:
        """A copy of the part of a rank, in `out` if it is given."""
        shape = self.shape_of(array.shape)
        part = xp.empty(shape, array.dtype) if out is None else out
        rows = array if self.by_rows else array.reshape(-1)
        found = rows[rank * shape[0] : (rank + 1) * shape[0]]
        part[: len(found)] = found
        part[len(found) :] = 0
        return part

    def whole(self, parts: Any, shape: tuple[int, ...]) -> Any:
        """The array of this shape of the parts of all ranks, which lie one after the other."""
        return parts.reshape(-1)[: prod(shape)].reshape(shape)


def windows(arrays: Sequence[Any], lengths: Sequence[int], begin: int, rows: Any) -> Iterator[tuple[Any, Any]]:
    """Pairs of views of the same elements: one of a flat array, one of the buffer that ranks exchange.

    A row of the buffer has one rank's parts of all arrays, of these lengths, one after the other; `rows` are its
    columns from `begin`. Only the buffer has padding: where it begins, the first view is the shorter one.
    """
    at = -begin
    for flat, length in zip(arrays, lengths, strict=True):
        low, high = max(at, 0), min(at + length, rows.shape[1])
        for rank in range(len(rows)) if low < high else ():
            yield flat[rank * length + low - at : rank * length + high - at], rows[rank, low:high]
        at += length


def columns(flat: Any, lengths: Sequence[int]) -> Iterator[Any]:
    """Views of pieces of these lengths, one after the other."""
    bounds = [0, *accumulate(lengths)]
    return (flat[start:end] for start, end in pairwise(bounds))
