"""CIFAR-10 and CIFAR-100: 50,000 images for training and 10,000 for testing, 32x32 pixels in three colours each.

A sample is ``(image, label)``: float32[3072] in [0, 1], all red values first, and an int.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from minigraph.dataset import common
from minigraph.errors import DataError
from minigraph.io import pickles
from minigraph.reader import Reader
from minigraph.support.public import public, refuse_unknown_names

__all__ = ["test10", "test100", "train10", "train100"]

CIFAR10_URL = "https://dataset.bj.bcebos.com/cifar/cifar-10-python.tar.gz"
CIFAR10_MD5 = "c58f30108f718f92721af3b95e74349a"
CIFAR100_URL = "https://dataset.bj.bcebos.com/cifar/cifar-100-python.tar.gz"
CIFAR100_MD5 = "eb9058c3a382ffc7106e4002c42a8d85"

Sample: TypeAlias = tuple[NDArray[np.float32], int]


def train100() -> Reader[Sample]:
    """Reader of the images of 100 classes for training."""
    return _reader(CIFAR100_URL, CIFAR100_MD5, "train")


def test100() -> Reader[Sample]:
    """Reader of the images of 100 classes for testing."""
    return _reader(CIFAR100_URL, CIFAR100_MD5, "test")


@public
def train10(cycle: bool = False) -> Reader[Sample]:
    """Reader of the images of 10 classes for training, over and over again if `cycle` says so."""
    return _reader(CIFAR10_URL, CIFAR10_MD5, "data_batch", cycle)


@public
def test10(cycle: bool = False) -> Reader[Sample]:
    """Reader of the images of 10 classes for testing; `cycle` as for `train10`."""
    return _reader(CIFAR10_URL, CIFAR10_MD5, "test_batch", cycle)


def _reader(url: str, md5: str, part: str, cycle: bool = False) -> Reader[Sample]:
    path = common.download(url, "cifar", md5)

    def read_once() -> Iterator[Sample]:
        with tarfile.open(path) as archive:
            for each in archive:
                if part in each.name:
                    yield from _samples(common.member(archive, each.name).read(), f"{path}, {each.name}")

    def read() -> Iterator[Sample]:
        yield from read_once()
        while cycle:
            yield from read_once()

    return read


def _samples(data: bytes, source: str) -> Iterator[Sample]:
    batch = pickles.load(data, source)
    fields = (
        {str(key, "latin1") if isinstance(key, bytes) else key: batch[key] for key in batch}
        if isinstance(batch, dict)
        else {}
    )
    images, labels = fields.get("data"), fields.get("labels", fields.get("fine_labels"))
    if images is None or labels is None:
        raise DataError(f"{source} is no batch of CIFAR", hint="Replace it by the original archive.")
    for image, label in zip(images, labels, strict=True):
        yield (image / 255.0).astype(np.float32), int(label)


refuse_unknown_names(__name__)
