"""A mark for tests of compiled loops, and pieces for their threads."""

import importlib.util

import pytest

needs_numba = pytest.mark.skipif(
    importlib.util.find_spec("numba") is None, reason="needs numba, which the extra jit installs"
)


def few_pieces(count):
    """Ends of that many pieces of anything."""
    return lambda size, *_: [(size * i // count, size * (i + 1) // count) for i in range(count)]
