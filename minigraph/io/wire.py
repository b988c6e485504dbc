"""The wire format of protocol buffers, for messages that are dataclasses.

A message class lists its fields with `proto`; a field that is None, or an empty list, is not in the encoded message.
Fields are written in order of their numbers and repeated numbers one by one, as by Google's encoder for proto2: its
messages are decoded and encoded to the same bytes. Fields of unknown numbers are skipped, so that the format can grow.

References
----------
Protocol Buffers documentation, *Encoding*, https://protobuf.dev/programming-guides/encoding/
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple, TypeVar

from minigraph.errors import DataError

M = TypeVar("M")

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_LAST_NUMBER = (1 << 29) - 1


class Field(NamedTuple):
    """Encoding of one field of a message class."""

    name: str
    number: int
    kind: Any
    """A key of `_WRITERS`, or the class of a message."""
    repeated: bool
    required: bool


def proto(number: int, kind: Any, *, repeated: bool = False, required: bool = False) -> Any:
    """A dataclass field: its number in the message and its kind, a name of a scalar type or a message class."""
    metadata = {"number": number, "kind": kind, "repeated": repeated, "required": required}
    if repeated:
        return dataclasses.field(default_factory=list, metadata=metadata)
    return dataclasses.field(default=None, metadata=metadata)


def _find_fields(message: type) -> tuple[Field, ...]:
    found = [Field(f.name, **f.metadata) for f in dataclasses.fields(message)]
    return tuple(sorted(found, key=lambda field: field.number))


_fields: Callable[[type], tuple[Field, ...]] = cache(_find_fields)
_by_number: Callable[[type], dict[int, Field]] = cache(lambda message: {f.number: f for f in _fields(message)})


# Writing


def encode(message: Any) -> bytes:
    """The bytes of a message.

    Examples
    --------
    >>> @dataclasses.dataclass
    ... class Point:
    ...     x: int = proto(1, "int64")
    ...     label: str = proto(2, "string")
    >>> encode(Point(x=150, label="a")).hex(" ")
    '08 96 01 12 01 61'
    >>> decode(Point, encode(Point(x=-1))) == Point(x=-1)
    True
    """
    parts: list[bytes] = []
    for field in _fields(type(message)):
        value = getattr(message, field.name)
        if value is None:
            if field.required:
                raise DataError(f"{type(message).__name__}.{field.name} is not set")
            continue
        for item in value if field.repeated else (value,):
            _write_field(parts, field, item)
    return b"".join(parts)


def _write_field(parts: list[bytes], field: Field, value: Any) -> None:
    if isinstance(field.kind, str):
        wire_type, write = _WRITERS[field.kind]
        payload = write(value)
    else:
        wire_type, payload = _LENGTH, encode(value)
    parts.append(_varint(field.number << 3 | wire_type))
    if wire_type == _LENGTH:
        parts.append(_varint(len(payload)))
    parts.append(payload)


def _varint(value: int) -> bytes:
    if not -(1 << 63) <= value < 1 << 64:
        raise DataError(f"{value} does not fit 64 bits")
    value &= (1 << 64) - 1  # a negative number takes ten bytes
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _int32(value: int) -> bytes:
    if not -(1 << 31) <= value < 1 << 31:
        raise DataError(f"{value} does not fit 32 bits")
    return _varint(value)


# surrogateescape keeps bytes that are not UTF-8 as they are, in both directions.
_WRITERS: dict[str, tuple[int, Callable[[Any], bytes]]] = {
    "int32": (_VARINT, _int32),
    "int64": (_VARINT, _varint),
    "enum": (_VARINT, _int32),
    "bool": (_VARINT, _varint),
    "float": (_FIXED32, lambda value: struct.pack("<f", value)),
    "double": (_FIXED64, lambda value: struct.pack("<d", value)),
    "string": (_LENGTH, lambda value: value.encode("utf-8", "surrogateescape")),
}


# Reading


def decode(message: type[M], data: bytes) -> M:
    """The message of class `message` that `data` holds.

    Raises
    ------
    DataError
        If the bytes are no such message; it says at which byte.
    """
    return _Reader(data).message(message, len(data))


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def message(self, cls: type[M], end: int, found: M | None = None) -> M:
        """Read a message up to `end`, into `found` where a part of it was read before."""
        fields = _by_number(cls)
        if found is None:
            found = cls()
        while self.at < end:
            start = self.at
            key = self.varint(end)
            if not 0 < key >> 3 <= _LAST_NUMBER:
                self.fail(f"there is no field number {key >> 3}", start)
            field, wire_type = fields.get(key >> 3), key & 7
            if field is None:
                self.skip(wire_type, end, start)
            else:
                self.field(found, field, wire_type, end, start)
        for field in fields.values():
            if field.required and getattr(found, field.name) is None:
                self.fail(f"a {cls.__name__} without {field.name}", end)
        return found

    def field(self, message: Any, field: Field, wire_type: int, end: int, start: int) -> None:
        expected = _WRITERS[field.kind][0] if isinstance(field.kind, str) else _LENGTH
        if field.repeated and wire_type == _LENGTH != expected:  # numbers packed into one field
            stop = self.length(end)
            while self.at < stop:
                getattr(message, field.name).append(self.value(field.kind, stop))
            return
        if wire_type != expected:
            self.fail(f"{type(message).__name__}.{field.name} has the wire type {wire_type}, not {expected}", start)
        if field.repeated:
            getattr(message, field.name).append(self.value(field.kind, end))
        else:
            setattr(message, field.name, self.value(field.kind, end, getattr(message, field.name)))

    def value(self, kind: Any, end: int, before: Any = None) -> Any:
        if not isinstance(kind, str):
            return self.message(kind, self.length(end), before)
        if kind == "string":
            return self.take(self.length(end) - self.at, end).decode("utf-8", "surrogateescape")
        if kind == "float":
            return struct.unpack("<f", self.take(4, end))[0]
        if kind == "double":
            return struct.unpack("<d", self.take(8, end))[0]
        number = self.varint(end)
        bits = 32 if kind in ("int32", "enum") else 64
        number &= (1 << bits) - 1
        if kind == "bool":
            return number != 0
        return number - (1 << bits) if number >> (bits - 1) else number

    def varint(self, end: int) -> int:
        value, start = 0, self.at
        for shift in range(0, 70, 7):
            if self.at >= end:
                self.fail("a number is cut off", start)
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        return self.fail("a number has more than ten bytes", start)

    def length(self, end: int) -> int:
        """Read a length; returns where what follows ends."""
        start = self.at
        size = self.varint(end)
        if size > end - self.at:
            self.fail(f"{size} bytes should follow, {end - self.at} are left", start)
        return self.at + size

    def take(self, size: int, end: int) -> bytes:
        if size > end - self.at:
            self.fail(f"{size} bytes should follow, {end - self.at} are left", self.at)
        taken = self.data[self.at : self.at + size]
        self.at += size
        return taken

    def skip(self, wire_type: int, end: int, start: int) -> None:
        if wire_type == _VARINT:
            self.varint(end)
        elif wire_type == _LENGTH:
            self.at = self.length(end)
        elif wire_type in (_FIXED32, _FIXED64):
            self.take(4 if wire_type == _FIXED32 else 8, end)
        else:
            self.fail(f"there is no wire type {wire_type}", start)

    def fail(self, problem: str, at: int) -> Any:
        raise DataError(f"at byte {at}: {problem}")
