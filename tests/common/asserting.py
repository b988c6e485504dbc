"""What tests of programs compare."""

from __future__ import annotations

from textwrap import dedent
from typing import Any

import numpy as np

from minigraph.ir import Program
from minigraph.ir.verifier import verify


def assert_text(program: Program, expected: str) -> None:
    """The program is sound and prints as `expected`, whose indentation is free."""
    verify(program)
    assert str(program) == dedent(expected).strip("\n").rstrip()


def assert_same_bits(found: Any, expected: Any) -> None:
    """Arrays have the same type, shape and bits."""
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    assert found.tobytes() == expected.tobytes(), f"{found} is not {expected}"


def assert_same(found: Any, expected: Any) -> None:
    """The arrays of two dictionaries have the same types and numbers."""
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array)


def assert_close(found: Any, expected: Any, tolerance: float = 2e-5) -> None:
    """The values of two dictionaries agree."""
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert found[name].dtype == value.dtype
        np.testing.assert_allclose(found[name], value, rtol=tolerance, atol=tolerance, err_msg=str(name))
