"""Dictionaries of arrays in Python's pickle format, in which Paddle keeps its ``.pdparams`` and ``.pdopt`` files.

Reading never runs anything that a file names. A pickle is a small program for a stack machine that may import and call;
here every name it may import stands for an object of this module, which only notes what an array is made of. What comes
out is arrays, numbers, strings and plain containers of them.

References
----------
Python documentation, *pickle: Restricting Globals*.
"""

from __future__ import annotations

import io
import pickle
import pickletools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from minigraph.errors import DataError, MinigraphError, WrongTypeError, caller_site
from minigraph.types import as_dtype

_PLAIN = (str, bytes, bool, int, float, type(None))
_DEEPEST = 64
_MEMO_CODES = {"PUT", "BINPUT", "LONG_BINPUT"}
_OLD_MODULE, _NEW_MODULE = b"cnumpy.core.multiarray\n", b"cnumpy._core.multiarray\n"


# Writing


def dump(value: Any, protocol: int = 2) -> bytes:
    """The pickle of a value made of arrays, numbers, strings and plain containers.

    It names functions as NumPy 1 does, which NumPy 2 understands too, so that Paddle 1.8.5 can read it.

    Raises
    ------
    WrongTypeError
        If the value holds anything else.

    Examples
    --------
    >>> load(dump({"w": np.zeros(2, "float32"), "epoch": 3}), "the example")
    {'w': array([0., 0.], dtype=float32), 'epoch': 3}
    """
    data = pickle.dumps(_checked(value, "the value", 0), protocol=min(protocol, pickle.HIGHEST_PROTOCOL))
    return _with_old_names(data) if protocol < 4 else data


def _checked(value: Any, where: str, depth: int) -> Any:
    """`value` with NumPy's numbers as Python's."""
    if depth > _DEEPEST:
        raise WrongTypeError(f"{where} is nested more than {_DEEPEST} levels deep", site=caller_site())
    if isinstance(value, np.generic):
        value = value.item()
    if type(value) in _PLAIN:
        return value
    if isinstance(value, np.ndarray):
        # One object stands for each element type, which is then written once.
        dtype = as_dtype(value.dtype).numpy
        return np.asarray(value).astype(dtype, copy=False).view(dtype)
    if isinstance(value, Mapping):
        return {_checked(k, where, depth + 1): _checked(v, f"{where}[{k!r}]", depth + 1) for k, v in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_checked(item, f"{where}[{i}]", depth + 1) for i, item in enumerate(value))
    raise WrongTypeError(
        f"{where} is a {type(value).__name__}, which is not saved", site=caller_site(),
        hint="Arrays, tensors, numbers, strings, dicts, lists and tuples are.",
    )  # fmt: skip


def _with_old_names(data: bytes) -> bytes:
    """`data` with NumPy's functions imported from where NumPy 1 has them.

    Each name is imported once, before any array's elements, and recalled by number afterwards.
    """
    for opcode, _, at in pickletools.genops(data):
        if opcode.name == "GLOBAL" and at is not None and data.startswith(_NEW_MODULE, at):
            return data[:at] + _OLD_MODULE + data[at + len(_NEW_MODULE) :]
    return data


# Reading


def load(data: bytes, source: str) -> Any:
    """What a pickle of arrays and plain containers holds; `source` names the file for errors.

    Raises
    ------
    DataError
        If the pickle is damaged, or imports anything but what arrays and plain containers need.
    """
    try:
        _check_opcodes(data)
        found = _Unpickler(io.BytesIO(data), encoding="latin1").load()
        return _plain(found, 0)
    except MinigraphError as error:
        raise DataError(f"{source}: {error.message}", site=caller_site(), hint=error.hint) from None
    except Exception as error:  # what the machine meets in a damaged file depends on where it is damaged
        raise DataError(f"{source} is damaged or no pickle: {error}", site=caller_site()) from None


def _check_opcodes(data: bytes) -> None:
    """Refuse memo numbers far beyond what a pickle of this length has: the machine would reserve memory for them."""
    count = 0
    for count, (opcode, arg, _) in enumerate(pickletools.genops(data)):
        if opcode.name in _MEMO_CODES and isinstance(arg, int) and arg > count:
            raise DataError(f"is damaged or no pickle: memo number {arg}")


class _Stand:
    """What a pickle gets for a name that it imports: called or not, it can only do what `call` does."""

    __slots__ = ("_call",)

    def __init__(self, call: Callable[..., Any]) -> None:
        self._call = call

    def __call__(self, *args: Any) -> Any:
        return self._call(*args)

    def __setstate__(self, state: Any) -> None:
        raise DataError("is damaged or no pickle: it sets the state of a function")


class _DType:
    """An element type under construction."""

    __slots__ = ("order", "text")

    def __init__(self, text: Any, *_flags: Any) -> None:
        self.text = text
        self.order: Any = "="

    def __setstate__(self, state: Any) -> None:
        self.order = state[1]

    def dtype(self) -> np.dtype[Any]:
        if not isinstance(self.text, str) or self.order not in ("<", ">", "=", "|"):
            raise DataError("is damaged: an array has no element type")
        # Only numbers: as_dtype refuses objects, records and text.
        return as_dtype(np.dtype(self.text)).numpy.newbyteorder(self.order)


class _Array:
    """An array under construction."""

    __slots__ = ("dtype", "elements", "in_fortran_order", "shape")

    def __init__(self, *_args: Any) -> None:
        self.elements: Any = None

    def __setstate__(self, state: Any) -> None:
        self.shape, self.dtype, self.in_fortran_order, self.elements = state[-4:]

    def array(self) -> np.ndarray[Any, Any]:
        if not isinstance(self.elements, bytes) or not isinstance(self.dtype, _DType):
            raise DataError("is damaged: an array has no elements, or they are no numbers")
        flat = np.frombuffer(self.elements, self.dtype.dtype())
        shaped = flat.reshape(self.shape, order="F" if self.in_fortran_order else "C")
        return shaped.astype(shaped.dtype.newbyteorder("="), order="C")


class _Scalar(_Array):
    """A NumPy number."""

    __slots__ = ()

    def __init__(self, dtype: Any = None, elements: Any = None) -> None:
        self.shape, self.dtype, self.in_fortran_order, self.elements = (), dtype, False, elements

    def number(self) -> Any:
        return self.array().item()


def _encoded(text: Any, encoding: Any) -> bytes:
    """Bytes, which old pickles spell as text."""
    if encoding != "latin1" or not isinstance(text, str):
        raise DataError(f"is damaged or no pickle: bytes encoded as {encoding!r:.40}")
    return text.encode("latin1")


def _no_bytes(*args: Any) -> bytes:
    if args:
        raise DataError("is damaged or no pickle: bytes of something")
    return b""


def _ordered(*args: Any) -> Any:
    return dict(*args)


_KNOWN: Mapping[tuple[str, str], Callable[..., Any]] = {
    **{(f"numpy.{core}.multiarray", "_reconstruct"): _Array for core in ("core", "_core")},
    **{(f"numpy.{core}.multiarray", "scalar"): _Scalar for core in ("core", "_core")},
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _DType,
    ("_codecs", "encode"): _encoded,
    ("__builtin__", "bytes"): _no_bytes,
    ("builtins", "bytes"): _no_bytes,
    ("collections", "OrderedDict"): _ordered,
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        known = _KNOWN.get((module, name))
        if known is None:
            raise DataError(
                f"it wants to import {module}.{name}, which is not allowed: only arrays and plain containers are read",
                hint="If you trust the file, load it with what wrote it and save its arrays.",
            )
        return _Stand(known)


def _plain(value: Any, depth: int) -> Any:
    """`value` with arrays for what stands for them."""
    if depth > _DEEPEST:
        raise DataError(f"is nested more than {_DEEPEST} levels deep")
    if isinstance(value, _Scalar):
        return value.number()
    if isinstance(value, _Array):
        return value.array()
    if type(value) in _PLAIN:
        return value
    if type(value) is dict:
        return {_plain(key, depth + 1): _plain(item, depth + 1) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_plain(item, depth + 1) for item in value)
    raise DataError(f"holds a {type(value).__name__.strip('_')}, which is neither array nor plain container")
