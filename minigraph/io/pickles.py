"""Dictionaries of arrays in Python's pickle format, in which Paddle keeps its ``.pdparams`` and ``.pdopt`` files.

Reading never runs anything that a file names. A pickle is a program for a stack machine, which may import and call. The
machine here knows only the operations and names that arrays and plain containers need, and its work is bounded by the
length of the pickle. The result is made of arrays, numbers, strings and plain containers.

References
----------
Python documentation, *pickle: Restricting Globals*.
"""

from __future__ import annotations

import pickle
import pickletools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, NoReturn

import numpy as np

from minigraph.errors import DataError, MinigraphError, WrongTypeError
from minigraph.io.tensors import shaped_as
from minigraph.support.interrupts import is_interrupt
from minigraph.types import as_dtype

_PLAIN = (str, bytes, bool, int, float, type(None))
_DEEPEST = 64
"""Maximum levels of nesting: a file of deeper ones would exhaust Python's stack."""

_ALLOWANCE, _GROWTH = 1 << 18, 4
"""Maximum number of elements that a pickle may expand to by sharing: for any pickle, plus for each of its bytes."""
_BYTES = 16
"""Number of bytes of an array that count as one element."""

_OLD_MODULE, _NEW_MODULE = b"cnumpy.core.multiarray\n", b"cnumpy._core.multiarray\n"


# Writing


def dump(value: Any, protocol: int = 2) -> bytes:
    """The pickle of a value made of arrays, numbers, strings and plain containers.

    Functions have the names of NumPy 1, which NumPy 2 reads too, so that Paddle 1.8.5 can read the pickle.

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
        raise WrongTypeError(f"{where} is nested more than {_DEEPEST} levels deep")
    if isinstance(value, np.generic):
        value = value.item()
    if type(value) in _PLAIN:
        return value
    if isinstance(value, np.ndarray):
        # With one object for each element type, the pickle holds each type once.
        dtype = as_dtype(value.dtype).numpy
        return np.asarray(value).astype(dtype, copy=False).view(dtype)
    if isinstance(value, Mapping):
        return {_checked(k, where, depth + 1): _checked(v, f"{where}[{k!r}]", depth + 1) for k, v in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_checked(item, f"{where}[{i}]", depth + 1) for i, item in enumerate(value))
    raise WrongTypeError(
        f"{where} is a {type(value).__name__}, which is not saved",
        hint="Give arrays, tensors, numbers, strings, dicts, lists and tuples only.",
    )


def _with_old_names(data: bytes) -> bytes:
    """`data` with NumPy's functions imported from the module that NumPy 1 has them in.

    A pickle imports each name once, before any array's elements, and recalls it by number afterwards.
    """
    for opcode, _, at in pickletools.genops(data):
        if opcode.name == "GLOBAL" and at is not None and data.startswith(_NEW_MODULE, at):
            return data[:at] + _OLD_MODULE + data[at + len(_NEW_MODULE) :]
    return data


# Reading


def load(data: bytes, source: str) -> Any:
    """The contents of a pickle of arrays and plain containers; `source` names the file for errors.

    Raises
    ------
    DataError
        If the pickle is damaged, imports a name that arrays and plain containers do not need, nests containers deeper
        than 64 levels, or expands to far more than its length, as by one list that is in many others.
    """
    try:
        machine = _Machine(data)
        return machine.plain(machine.run(), 0)[0]
    except MinigraphError as error:
        raise DataError(f"{source}: {error.message}", hint=error.hint) from None
    except Exception as error:  # a damaged file may cause any error
        if is_interrupt(error):
            raise
        raise DataError(f"{source} is damaged or no pickle: {error!s:.200}") from None


class _Name(NamedTuple):
    """An object that the pickle imports; a call of it runs a method of `_Machine`."""

    call: Callable[..., Any]


class _DType:
    """An element type under construction."""

    __slots__ = ("order", "text")

    def __init__(self, text: Any) -> None:
        self.text = text
        self.order: Any = "="

    def set_state(self, state: tuple[Any, ...]) -> None:
        version, self.order, *parts = state
        if version not in range(5) or any(part is not None for part in parts[:3]):
            raise DataError("is damaged: an array has records as elements, or NumPy is newer than this reader")

    def dtype(self) -> np.dtype[Any]:
        if not isinstance(self.text, str) or len(self.text) > 8 or self.order not in ("<", ">", "=", "|"):
            raise DataError("is damaged: an array has no element type")
        # Only numbers: as_dtype refuses objects, records and text.
        return as_dtype(np.dtype(self.text)).numpy.newbyteorder(self.order)


class _Array:
    """An array under construction, or with `is_number` a NumPy number."""

    __slots__ = ("dtype", "elements", "in_fortran_order", "is_number", "shape")

    def __init__(self, dtype: Any = None, elements: Any = None, is_number: bool = False) -> None:
        self.shape: Any = ()
        self.dtype, self.elements, self.in_fortran_order, self.is_number = dtype, elements, False, is_number

    def set_state(self, state: tuple[Any, ...]) -> None:
        version, self.shape, self.dtype, self.in_fortran_order, self.elements = (
            state if len(state) == 5 else (1, *state)
        )
        if version != 1:
            raise DataError(f"is damaged: an array of version {version!r:.40}, only 1 is known")

    def array(self) -> np.ndarray[Any, Any]:
        elements = self.elements
        if isinstance(elements, str):  # as Python 2 has it
            elements = elements.encode("latin1")
        if not isinstance(elements, bytes) or not isinstance(self.dtype, _DType):
            raise DataError("is damaged: an array has no elements, or they are no numbers")
        flat = np.frombuffer(elements, self.dtype.dtype())
        shaped = shaped_as(flat, self.shape, "F" if self.in_fortran_order else "C")
        return shaped.astype(shaped.dtype.newbyteorder("="), order="C")


class _Machine:
    """The stack machine that a pickle is a program for, with the operations that plain containers and arrays need.

    Each operation takes time and memory in proportion to its bytes. Three things could take more and are charged to a
    budget: bytes that several arrays share, tuples that are keys, and the size of the result without any sharing.
    """

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.stack: list[Any] = []
        self.outer: list[list[Any]] = []
        """Stacks below each mark, in order."""
        self.memo: dict[int, Any] = {}
        self.found: dict[int, tuple[Any, int, int] | None] = {}
        """Results of `plain` for containers and arrays, by identity; None while one is being made."""
        self.budget = self.left = _ALLOWANCE + _GROWTH * len(data)

    def spend(self, amount: int) -> None:
        self.left -= amount
        if self.left < 0:
            self.refuse()

    def refuse(self) -> NoReturn:
        raise DataError(
            f"stands for more than {self.budget} elements in {len(self.data)} bytes, by sharing containers",
            hint="Load a file that you trust with the program that wrote it, and save its arrays.",
        )

    def run(self) -> Any:
        """Run the pickle and return the object that it leaves on the stack."""
        for opcode, arg, at in pickletools.genops(self.data):
            if opcode.name in _VALUES:
                self.stack.append(arg)
            elif opcode.name in _STEPS:
                _STEPS[opcode.name](self, arg)
            elif opcode.name != "STOP":
                raise DataError(f"has {opcode.name} at byte {at}, which neither arrays nor plain containers need")
        return self.stack.pop()

    # Operations

    def check_protocol(self, version: int) -> None:
        if version > pickle.HIGHEST_PROTOCOL:
            raise DataError(
                f"has the protocol {version}, of which only those up to {pickle.HIGHEST_PROTOCOL} are known"
            )

    def mark(self) -> None:
        self.outer.append(self.stack)
        self.stack = []

    def pop_mark(self) -> list[Any]:
        """Take the objects above the last mark from the stack."""
        taken, self.stack = self.stack, self.outer.pop()
        return taken

    def put_dict(self, items: list[Any]) -> None:
        self.stack.append({})
        self.update(items)

    def push(self, value: Any) -> None:
        self.stack.append(value)

    def note(self, number: int) -> None:
        self.memo[number] = self.stack[-1]

    def recall(self, number: int) -> None:
        if number not in self.memo:
            raise DataError(f"is damaged or no pickle: it recalls number {number}, which it never noted")
        self.stack.append(self.memo[number])

    def top(self, wanted: type) -> Any:
        if type(self.stack[-1]) is not wanted:
            raise DataError(f"is damaged or no pickle: it adds to a {type(self.stack[-1]).__name__.strip('_')}")
        return self.stack[-1]

    def put_tuple(self, size: int) -> None:
        items = tuple(self.stack[-size:])
        if len(items) < size:
            raise DataError(f"is damaged or no pickle: a tuple of {size} has {len(items)} items")
        self.stack[-size:] = [items]

    def extend(self, items: list[Any]) -> None:
        self.top(list).extend(items)

    def update(self, items: list[Any]) -> None:
        target = self.top(dict)
        for key, value in zip(items[::2], items[1::2], strict=True):
            self.check_key(key, 0)
            target[key] = value

    def check_key(self, key: Any, depth: int) -> None:
        """Refuse keys without a hash, with a hash that takes long, or with one that is easily made equal to others."""
        if type(key) is tuple and depth < _DEEPEST:
            self.spend(len(key))
            for item in key:
                self.check_key(item, depth + 1)
        elif type(key) not in _PLAIN or (type(key) is int and key.bit_length() > 60):
            raise DataError(f"has a {type(key).__name__.strip('_')} as a key that cannot be one")

    def put_name(self, module: Any, name: Any) -> None:
        if (module, name) not in _KNOWN:
            raise DataError(
                f"it wants to import {module!s:.100}.{name!s:.100}, which is not allowed: "
                "only arrays and plain containers are read",
                hint="Load a file that you trust with the program that wrote it, and save its arrays.",
            )
        self.stack.append(_Name(_KNOWN[module, name]))

    def reduce(self) -> None:
        args, name = self.stack.pop(), self.stack.pop()
        if type(args) is not tuple or not isinstance(name, _Name):
            raise DataError("is damaged or no pickle: it calls what is no function")
        self.stack.append(name.call(self, *args))

    def build(self) -> None:
        state, target = self.stack.pop(), self.stack[-1]
        if type(state) is not tuple or not isinstance(target, _Array | _DType):
            raise DataError("is damaged or no pickle: it sets the state of what has none")
        target.set_state(state)

    # Names

    def empty_array(self, kind: Any, shape: Any, code: Any) -> _Array:
        if not isinstance(kind, _Name) or kind.call is not _Machine.array_class:
            raise DataError("is damaged or no pickle: an array of no class")
        return _Array()

    def array_class(self, *_args: Any) -> NoReturn:
        raise DataError("is damaged or no pickle: it calls the class of arrays")

    def number(self, dtype: Any, elements: Any) -> _Array:
        return _Array(dtype, elements, is_number=True)

    def element_type(self, text: Any, *_flags: Any) -> _DType:
        return _DType(text)

    def encoded(self, text: Any, encoding: Any) -> bytes:
        """Bytes, which old pickles spell as text."""
        if encoding != "latin1" or not isinstance(text, str):
            raise DataError(f"is damaged or no pickle: bytes encoded as {encoding!s:.40}")
        self.spend(len(text) // _BYTES)
        return text.encode("latin1")

    def no_bytes(self) -> bytes:
        return b""

    def ordered(self, pairs: Any = ()) -> dict[Any, Any]:
        """A dictionary; Python 2 gives its items as a list of pairs."""
        self.spend(len(pairs))
        self.put_dict([part for key, value in pairs for part in (key, value)])
        return self.stack.pop()

    # The result

    def plain(self, value: Any, depth: int) -> tuple[Any, int, int]:
        """`value` with finished arrays, its size counted without sharing, and its depth."""
        if type(value) in _PLAIN:
            return value, 1, 0
        if id(value) not in self.found:
            self.found[id(value)] = None
            self.found[id(value)] = self._plain(value, depth)
        known = self.found[id(value)]
        if known is None:
            raise DataError("is damaged or no pickle: a container holds itself")
        if depth + known[2] > _DEEPEST:
            raise DataError(f"is nested more than {_DEEPEST} levels deep")
        return known

    def _plain(self, value: Any, depth: int) -> tuple[Any, int, int]:
        if isinstance(value, _Array):
            self.spend(len(value.elements or ()) // _BYTES)
            array = value.array()
            return (array.item(), 1, 0) if value.is_number else (array, 1 + array.nbytes // _BYTES, 0)
        if type(value) not in (dict, list, tuple):
            raise DataError(f"holds a {type(value).__name__.strip('_')}, which is neither array nor plain container")
        if depth == _DEEPEST:
            raise DataError(f"is nested more than {_DEEPEST} levels deep")
        inner = [self.plain(item, depth + 1) for item in (value.values() if type(value) is dict else value)]
        size, height = 1 + sum(size for _, size, _ in inner), 1 + max((height for *_, height in inner), default=0)
        if size > self.budget:
            self.refuse()
        items = [item for item, *_ in inner]
        return (dict(zip(value, items, strict=True)) if type(value) is dict else type(value)(items)), size, height


_VALUES = frozenset([
    "INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT",
    "STRING", "BINSTRING", "SHORT_BINSTRING", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8",
    "UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8",
])  # fmt: skip
"""Operations that put their argument on the stack."""

_STEPS: Mapping[str, Callable[[_Machine, Any], Any]] = {
    "PROTO": lambda machine, version: machine.check_protocol(version),
    "FRAME": lambda machine, _: None,
    "NONE": lambda machine, _: machine.push(None),
    "NEWTRUE": lambda machine, _: machine.push(True),
    "NEWFALSE": lambda machine, _: machine.push(False),
    "EMPTY_LIST": lambda machine, _: machine.push([]),
    "EMPTY_DICT": lambda machine, _: machine.push({}),
    "EMPTY_TUPLE": lambda machine, _: machine.push(()),
    "MARK": lambda machine, _: machine.mark(),
    "DUP": lambda machine, _: machine.push(machine.stack[-1]),
    "LIST": lambda machine, _: machine.push(machine.pop_mark()),
    "DICT": lambda machine, _: machine.put_dict(machine.pop_mark()),
    "TUPLE": lambda machine, _: machine.push(tuple(machine.pop_mark())),
    "TUPLE1": lambda machine, _: machine.put_tuple(1),
    "TUPLE2": lambda machine, _: machine.put_tuple(2),
    "TUPLE3": lambda machine, _: machine.put_tuple(3),
    "APPEND": lambda machine, _: machine.extend([machine.stack.pop()]),
    "APPENDS": lambda machine, _: machine.extend(machine.pop_mark()),
    "SETITEM": lambda machine, _: machine.update([machine.stack.pop(-2), machine.stack.pop()]),
    "SETITEMS": lambda machine, _: machine.update(machine.pop_mark()),
    **dict.fromkeys(("GET", "BINGET", "LONG_BINGET"), lambda machine, number: machine.recall(number)),
    **dict.fromkeys(("PUT", "BINPUT", "LONG_BINPUT"), lambda machine, number: machine.note(number)),
    "MEMOIZE": lambda machine, _: machine.note(len(machine.memo)),
    "GLOBAL": lambda machine, names: machine.put_name(*names.split(" ", 1)),
    "STACK_GLOBAL": lambda machine, _: machine.put_name(machine.stack.pop(-2), machine.stack.pop()),
    "REDUCE": lambda machine, _: machine.reduce(),
    "BUILD": lambda machine, _: machine.build(),
}

_KNOWN: Mapping[tuple[str, str], Callable[..., Any]] = {
    **{(f"numpy.{core}.multiarray", "_reconstruct"): _Machine.empty_array for core in ("core", "_core")},
    **{(f"numpy.{core}.multiarray", "scalar"): _Machine.number for core in ("core", "_core")},
    ("numpy", "ndarray"): _Machine.array_class,
    ("numpy", "dtype"): _Machine.element_type,
    ("_codecs", "encode"): _Machine.encoded,
    ("__builtin__", "bytes"): _Machine.no_bytes,
    ("builtins", "bytes"): _Machine.no_bytes,
    ("collections", "OrderedDict"): _Machine.ordered,
}
"""Methods that stand for the names that a pickle may import."""
