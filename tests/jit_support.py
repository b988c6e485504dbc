"""A mark for tests of compiled loops."""

import importlib.util

import pytest

needs_numba = pytest.mark.skipif(
    importlib.util.find_spec("numba") is None, reason="needs numba, which the extra jit installs"
)
