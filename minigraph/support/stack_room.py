"""Room on Python's stack for the calls of a function.

CPython keeps frames in chunks of 16 KiB, and returns a chunk to the system as soon as its first frame ends. A function
whose frame ends just before the end of a chunk takes a new chunk for each call that it makes: two system calls and a
page fault, which may take longer than a kernel.
"""

from __future__ import annotations

from types import FunctionType

try:
    from resource import RUSAGE_SELF, getrusage
except ImportError:  # as on Windows
    getrusage = None  # type: ignore[assignment]

_WORDS_OF_CHUNK = 2048
"""Words of 8 bytes in a chunk of CPython's stack for frames: a frame that asks for as many gets a chunk of its own."""


def with_room(function: FunctionType) -> FunctionType:
    """The same function, whose frame begins a chunk of its own: it is larger than what a chunk may have left.

    In a new chunk CPython leaves 8 kB after the first frame.
    """
    code = function.__code__
    large = code.replace(co_stacksize=max(code.co_stacksize, _WORDS_OF_CHUNK))
    made = FunctionType(large, function.__globals__, function.__name__, function.__defaults__, function.__closure__)
    made.__kwdefaults__ = function.__kwdefaults__
    return made


def page_faults() -> int:
    """Pages that this process has got from the system; 0 where nobody counts them."""
    return 0 if getrusage is None else getrusage(RUSAGE_SELF).ru_minflt
