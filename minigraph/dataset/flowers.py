"""Oxford's 102 flowers: 6,149 images for training, 1,020 for testing and as many for validation.

A sample is ``(image, label)``: float32[3 * 224 * 224] and an int from 0 to 101. Fluid trains with the larger of the two
parts, which the authors call the test set. The default mappers need OpenCV, see `minigraph.dataset.image`.
"""

from __future__ import annotations

import functools
import os
import struct
import tarfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from minigraph.dataset import common
from minigraph.dataset.image import load_image_bytes, simple_transform
from minigraph.errors import DataError
from minigraph.reader import Reader, map_readers, xmap_readers
from minigraph.support.public import public, refuse_unknown_names

__all__ = ["test", "train", "valid"]

DATA_URL = "http://paddlemodels.bj.bcebos.com/flowers/102flowers.tgz"
LABEL_URL = "http://paddlemodels.bj.bcebos.com/flowers/imagelabels.mat"
SETID_URL = "http://paddlemodels.bj.bcebos.com/flowers/setid.mat"
DATA_MD5 = "52808999861908f626f3c1f4e79d11fa"
LABEL_MD5 = "e0620be6f572b9609742df49c70aed4d"
SETID_MD5 = "a5357ecc9cb78c4bef273ce3793fc85c"
TRAIN_FLAG, TEST_FLAG, VALID_FLAG = "tstid", "trnid", "valid"

_MEAN = [103.94, 116.78, 123.68]
_MOST_THREADS = 4

Mapper: TypeAlias = Callable[[tuple[bytes, int]], Any]


def default_mapper(is_train: bool, sample: tuple[bytes, int]) -> tuple[NDArray[np.float32], int]:
    """Decode an image, resize it to 256 pixels and crop it to 224."""
    data, label = sample
    return simple_transform(load_image_bytes(data), 256, 224, is_train, mean=_MEAN).ravel(), label


train_mapper, test_mapper = functools.partial(default_mapper, True), functools.partial(default_mapper, False)


@public
def train(
    mapper: Mapper = train_mapper, buffered_size: int = 1024, use_xmap: bool = True, cycle: bool = False
) -> Reader[Any]:
    """Reader of the images for training.

    Parameters
    ----------
    mapper : callable
        Makes a sample of ``(bytes of an image file, label)``.
    buffered_size : int
        Maximum number of samples that are mapped ahead.
    use_xmap : bool
        Whether threads map; the order of the samples then changes from run to run.
    cycle : bool
        Whether to read over and over again.
    """
    return _reader(TRAIN_FLAG, mapper, buffered_size, use_xmap, cycle)


@public
def test(
    mapper: Mapper = test_mapper, buffered_size: int = 1024, use_xmap: bool = True, cycle: bool = False
) -> Reader[Any]:
    """Reader of the images for testing; see `train`."""
    return _reader(TEST_FLAG, mapper, buffered_size, use_xmap, cycle)


@public
def valid(mapper: Mapper = test_mapper, buffered_size: int = 1024, use_xmap: bool = True) -> Reader[Any]:
    """Reader of the images for validation; see `train`."""
    return _reader(VALID_FLAG, mapper, buffered_size, use_xmap, False)


def _reader(part: str, mapper: Mapper, buffered_size: int, use_xmap: bool, cycle: bool) -> Reader[Any]:
    images = common.download(DATA_URL, "flowers", DATA_MD5)
    labels = _matrix(common.download(LABEL_URL, "flowers", LABEL_MD5), "labels")
    numbers = _matrix(common.download(SETID_URL, "flowers", SETID_MD5), part)
    by_name = {f"jpg/image_{number:05d}.jpg": int(labels[number - 1]) - 1 for number in numbers.tolist()}

    def read() -> Iterator[tuple[bytes, int]]:
        while True:
            with tarfile.open(images) as archive:
                for each in archive:
                    if each.name in by_name:
                        yield common.member(archive, each.name).read(), by_name[each.name]
            if not cycle:
                return

    if use_xmap:
        return xmap_readers(mapper, read, min(_MOST_THREADS, os.cpu_count() or 1), buffered_size)
    return map_readers(mapper, read)


# MATLAB 5 files: a header of 128 bytes, then elements, each with its type and its length

_COMPRESSED, _MATRIX = 15, 14
_NUMBERS = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}


def _matrix(path: str, name: str) -> NDArray[Any]:
    """The elements of the matrix of real numbers with this name."""
    try:
        for kind, data in _elements(Path(path).read_bytes()[128:]):
            if kind == _COMPRESSED:
                kind, data = next(_elements(zlib.decompress(data)))
            parts = list(_elements(data)) if kind == _MATRIX else []
            if len(parts) >= 4 and parts[2][1].decode("latin") == name:  # flags, dimensions, name, numbers
                return np.frombuffer(parts[3][1], "<" + _NUMBERS[parts[3][0]])
    except (KeyError, ValueError, StopIteration, struct.error, zlib.error) as error:
        raise DataError(f"{path} is no MATLAB 5 file: {error}", hint="Replace it by the original file.") from error
    raise DataError(f"{path} has no matrix {name!r}", hint="Replace it by the original file.")


def _elements(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at < len(data):
        kind, size = struct.unpack_from("<II", data, at)
        if kind >> 16:  # a short element: type, length and data share eight bytes
            yield kind & 0xFFFF, data[at + 4 : at + 4 + (kind >> 16)]
            at += 8
        else:
            yield kind, data[at + 8 : at + 8 + size]
            at += 8 + size
            at += -at % 8 if kind != _COMPRESSED else 0


refuse_unknown_names(__name__)
