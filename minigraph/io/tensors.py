"""Tensors in the layout of Paddle's ``save`` and ``save_combine`` operators.

One tensor is: uint32 0 (the version), uint64 number of LoD levels, for each of them uint64 number of bytes and the
offsets of its sequences as uint64, uint32 0 (the version of what follows), int32 length of the description, the
description (``TensorDesc`` of ``framework.proto``), the elements in C order; all little-endian. A file of several
tensors holds them one after another, without names: the reader has to know the names in order.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from minigraph.errors import DataError, MinigraphError
from minigraph.io.framework_proto import TensorDesc
from minigraph.io.wire import decode, encode
from minigraph.runtime.scope_variable import LoDTensor
from minigraph.types import DType, as_dtype, product

_LEVELS = struct.Struct("<IQ")
_HEADER = struct.Struct("<Ii")
_MOST_LEVELS, _MOST_DIMENSIONS = 64, 64
_LONGEST_DESCRIPTION = 1 << 16
"""Maximum bytes. Beyond these limits a file is damaged: no tensor needs as much."""


Tensor: TypeAlias = "NDArray[Any] | LoDTensor"
"""An array, or with the lengths of sequences a LoDTensor."""


def tensor_chunks(tensor: Tensor) -> Iterator[bytes | memoryview]:
    """The bytes of one tensor, in pieces.

    Examples
    --------
    >>> b"".join(tensor_chunks(np.array([1.0], "float32"))).hex(" ", 4)
    '00000000 00000000 00000000 00000000 04000000 08051001 0000803f'
    """
    levels, array = tensor.lod() if isinstance(tensor, LoDTensor) else [], np.asarray(tensor)
    description = encode(TensorDesc(int(as_dtype(array.dtype)), list(array.shape)))
    offsets = [struct.pack(f"<{1 + len(level)}Q", 8 * len(level), *level) for level in levels]
    yield _LEVELS.pack(0, len(levels)) + b"".join(offsets) + _HEADER.pack(0, len(description)) + description
    elements = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    yield elements.reshape(-1).view(np.uint8).data


def read_tensors(data: bytes, source: str, count: int | None = None) -> list[Tensor]:
    """All tensors of a file.

    Parameters
    ----------
    data : bytes
        What the file holds.
    source : str
        The name of the file, for errors.
    count : int, optional
        Number of elements that there must be.

    Raises
    ------
    DataError
        If the file is damaged, no file of tensors, or holds more or fewer of them.
    """
    tensors: list[Tensor] = []
    at = 0
    while (at < len(data) or not data) and len(tensors) != count:
        try:
            array, at = _read_tensor(data, at)
        except MinigraphError as error:
            where = f"tensor {len(tensors)}, from byte {at}" if tensors else "its first tensor"
            raise DataError(f"{source} is damaged or no file of tensors: {where}: {error.message}") from None
        tensors.append(array)
    left = len(data) - at
    if count is not None and (left or len(tensors) != count):
        problem = f"more than {count} tensors" if left else f"{len(tensors)} tensors, not {count}"
        raise DataError(
            f"{source} holds {problem}", details=[f"{left} bytes are left"] if left else (),
            hint="Load exactly the variables that were saved: tensors in a file have no names.",
        )  # fmt: skip
    return tensors


def _read_tensor(data: bytes, at: int) -> tuple[Tensor, int]:
    (version, count), at = _unpacked(_LEVELS, data, at)
    if count > _MOST_LEVELS:
        raise DataError(f"it has {count} LoD levels, more than {_MOST_LEVELS}")
    levels = []
    for _ in range(count):
        (size,), at = _unpacked(struct.Struct("<Q"), data, at)
        if size % 8 or size > len(data) - at:
            raise DataError(f"a level of {size} bytes should follow, {len(data) - at} are left")
        offsets, at = _unpacked(struct.Struct(f"<{size // 8}Q"), data, at)
        levels.append(offsets)
    (inner_version, length), at = _unpacked(_HEADER, data, at)
    if version or inner_version:
        raise DataError(f"it has version {version or inner_version}, only 0 is known")
    array, at = _read_array(data, at, length)
    if not levels:
        return array, at
    tensor = LoDTensor()
    tensor.set(array)
    tensor.set_lod(levels)
    return tensor, at


def _unpacked(fields: struct.Struct, data: bytes, at: int) -> tuple[tuple[int, ...], int]:
    """The fields at a place, and the place after them."""
    if len(data) - at < fields.size:
        raise DataError(f"{fields.size} bytes should follow, {len(data) - at} are left")
    return fields.unpack_from(data, at), at + fields.size


def _read_array(data: bytes, at: int, length: int) -> tuple[NDArray[Any], int]:
    """The array whose description has this length."""
    if not 0 <= length <= min(_LONGEST_DESCRIPTION, len(data) - at):
        raise DataError(f"a description of {length} bytes should follow, {len(data) - at} are left")
    description = decode(TensorDesc, data[at : at + length])
    at += length
    if description.data_type not in DType._value2member_map_:
        raise DataError(f"it has the element type number {description.data_type}, which minigraph does not have")
    dtype, shape = DType(description.data_type), tuple(description.dims)
    if len(shape) > _MOST_DIMENSIONS:
        raise DataError(f"it has {len(shape)} dimensions, more than {_MOST_DIMENSIONS}")
    size = product(shape) * dtype.numpy.itemsize
    if min(shape, default=0) < 0 or size > len(data) - at:
        raise DataError(f"it is {dtype}{list(shape)}, {len(data) - at} bytes are left")
    elements = np.frombuffer(data, dtype.numpy.newbyteorder("<"), product(shape), at)
    return shaped_as(elements.astype(dtype.numpy), shape), at + size


def shaped_as(elements: NDArray[Any], shape: Any, order: Literal["C", "F"] = "C") -> NDArray[Any]:
    """`elements` in the shape that a file states; truth values become 0 or 1.

    Raises
    ------
    DataError
        If it is no shape, one of another number of elements, or one that NumPy does not have.
    """
    if type(shape) is not tuple or len(shape) > _MOST_DIMENSIONS or not all(type(n) is int and n >= 0 for n in shape):
        raise DataError(f"is damaged: an array has the shape {shape!r:.80}")
    if product(shape) != elements.size:
        raise DataError(f"is damaged: an array of shape {list(shape)} has {elements.size} elements")
    if elements.dtype == bool:
        elements = elements.view(np.uint8) != 0
    try:
        return elements.reshape(shape, order=order)
    except ValueError as error:  # no elements, and other dimensions too large for NumPy
        raise DataError(f"is damaged: an array has the shape {list(shape)}: {error}") from None
