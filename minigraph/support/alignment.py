"""Positions of arrays in a block of memory that several share."""

ALIGNMENT = 64
"""Alignment of arrays in bytes: a cache line."""


def aligned(address: int) -> int:
    """The first aligned address at `address` or above."""
    return -(-address // ALIGNMENT) * ALIGNMENT


def room_for(size: int) -> int:
    """Bytes that an array of `size` bytes takes of a block, so that the next array is aligned and does not adjoin it.

    NumPy 1.26 takes arrays that adjoin for overlapping, and then rounds exponentials and logarithms of float64
    otherwise.
    """
    return aligned(size + 1)
