"""Tensors in the layout of Paddle's ``save`` and ``save_combine`` operators.

One tensor is: uint32 0 (the version), uint64 0 (no LoD level), uint32 0 (the version of what follows), int32 length of
the description, the description (``TensorDesc`` of ``framework.proto``), the elements in C order; all little-endian. A
file of several tensors holds them one after another, without names: the reader has to know the names in order.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from minigraph.errors import DataError, MinigraphError
from minigraph.io.framework_proto import TensorDesc
from minigraph.io.wire import decode, encode
from minigraph.types import DType, as_dtype, product

_HEADER = struct.Struct("<IQIi")
_LONGEST_DESCRIPTION = 1 << 16
_MOST_DIMENSIONS = 64


def tensor_chunks(array: NDArray[Any]) -> Iterator[bytes | memoryview]:
    """The bytes of one tensor, in pieces.

    Examples
    --------
    >>> b"".join(tensor_chunks(np.array([1.0], "float32"))).hex(" ", 4)
    '00000000 00000000 00000000 00000000 04000000 08051001 0000803f'
    """
    description = encode(TensorDesc(int(as_dtype(array.dtype)), list(array.shape)))
    yield _HEADER.pack(0, 0, 0, len(description)) + description
    elements = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    yield elements.reshape(-1).view(np.uint8).data


def read_tensors(data: bytes, source: str, count: int | None = None) -> list[NDArray[Any]]:
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
    tensors: list[NDArray[Any]] = []
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


def _read_tensor(data: bytes, at: int) -> tuple[NDArray[Any], int]:
    if len(data) - at < _HEADER.size:
        raise DataError(f"{_HEADER.size} bytes should follow, {len(data) - at} are left")
    # The header has a fixed size only without LoD levels, whose data would follow their number.
    version, levels, inner_version, length = _HEADER.unpack_from(data, at)
    if version != 0 or (levels == 0 and inner_version != 0):
        raise DataError(f"it has version {version or inner_version}, only 0 is known")
    if levels:
        raise DataError(f"it has {levels} LoD levels; LoD tensors are out of scope")
    at += _HEADER.size
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
