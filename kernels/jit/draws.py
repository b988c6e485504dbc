"""Random numbers in tables of calls: drawn by NumPy's own functions, from the generator of the run.

NumPy documents the functions of C behind its generators, and that a module exports them ("Extending numpy.random").
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from math import prod
from typing import Any

import numpy as np

from minigraph.kernels.jit.functions import UnsupportedError, address_of
from minigraph.kernels.jit.recording import Recording, Symbol

_ENDS = {np.dtype(np.float32): "_f", np.dtype(np.float64): ""}
"""Ends of the names of the functions that fill arrays of each type."""


class Draws:
    """Stand-in for the generator of a run, which records what is drawn."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording

    def random(self, size: Any = None, dtype: Any = np.float64) -> Symbol:
        return self._filled("random_standard_uniform_fill", size, dtype)

    def standard_normal(self, size: Any = None, dtype: Any = np.float64) -> Symbol:
        return self._filled("random_standard_normal_fill", size, dtype)

    def _filled(self, name: str, size: Any, dtype: Any) -> Symbol:
        shape = (size,) if isinstance(size, int) else size
        if np.dtype(dtype) not in _ENDS or shape is None or not prod(shape):
            raise UnsupportedError("one number, none, or those of another type")
        recording = self._recording
        result = recording.new(shape, dtype)
        recording.work += _WORK * result.size
        function = _function(name + _ENDS[np.dtype(dtype)])
        recording.emit(address_of("draw"), [recording.generator(), result], [result.size], [], function)
        return result


_WORK = 4
"""Elements of other calls that take as long as one random number."""


@cache
def _function(name: str) -> int:
    """Address of a function of C that fills an array."""
    try:
        from numpy.random import _generator

        found = ctypes.cast(getattr(ctypes.CDLL(_generator.__file__), name), ctypes.c_void_p).value
    except (AttributeError, ImportError, OSError) as error:  # not exported, as on Windows
        raise UnsupportedError(name) from error
    return found or 0


def drawing(call: Callable[[tuple[Any, ...]], int], at: int) -> Callable[[tuple[Any, ...]], int]:
    """`call`, for a tuple that has a generator in the place of the array with the address of its bits.

    No other thread draws from the generator meanwhile.
    """
    latest: tuple[Any, Any] = None, None

    def locked(arrays: tuple[Any, ...]) -> int:
        nonlocal latest
        bits, known = arrays[at].bit_generator, latest
        if known[0] is not bits:
            latest = known = bits, np.array([_address(bits)])
        with bits.lock:
            return call((*arrays[:at], known[1], *arrays[at + 1 :]))

    return locked


def _address(bits: Any) -> int:
    """Address of the struct ``bitgen_t`` of a bit generator."""
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    address: int = pointer(bits.capsule, b"BitGenerator")
    return address
