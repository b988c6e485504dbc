"""1,797 handwritten digits, bundled with the package.

They are the test set of *Optical Recognition of Handwritten Digits* [1]_: 8x8 images by 13 writers. The split into
training and test images is by position and never changes: the first 1,500 and the last 297.

References
----------
.. [1] E. Alpaydin and C. Kaynak, UCI Machine Learning Repository, 1998, https://doi.org/10.24432/C50P49 (CC BY 4.0)
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import resources
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from minigraph.errors import ProgramError
from minigraph.reader import Reader
from minigraph.support.public import public, refuse_unknown_names

__all__ = ["load", "test", "train"]

Sample: TypeAlias = tuple[NDArray[np.float32], int]

_TRAIN_COUNT = 1500
_WHITE = 16  # the largest value in the file
_SIDE, _BOX, _MNIST_SIDE = 8, 20, 28


@public
def train(size: int = 8) -> Reader[Sample]:
    """Reader of the first 1,500 digits.

    Parameters
    ----------
    size : int
        Side of the images: 8 as they were recorded, or 28 for MNIST's form.

    Examples
    --------
    >>> image, label = next(iter(train(size=28)()))
    >>> image.shape, image.dtype, label
    ((784,), dtype('float32'), 0)
    """
    return _reader(size, slice(None, _TRAIN_COUNT))


@public
def test(size: int = 8) -> Reader[Sample]:
    """Reader of the last 297 digits; `size` as for `train`.

    Examples
    --------
    >>> sum(1 for sample in test()())
    297
    """
    return _reader(size, slice(_TRAIN_COUNT, None))


@public
def load(size: int = 8) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """All 1,797 digits as arrays.

    Parameters
    ----------
    size : int
        Side of the images: 8 as they were recorded, or 28 for MNIST's form, in which the digit fills the middle 20x20.

    Returns
    -------
    images : ndarray, float32[1797, size * size]
        Values in [-1, 1], -1 being background.
    labels : ndarray, int64[1797]

    Raises
    ------
    ProgramError
        If `size` is neither 8 nor 28.

    Examples
    --------
    >>> images, labels = load()
    >>> images.shape, labels[:5].tolist()
    ((1797, 64), [0, 1, 2, 3, 4])
    """
    _check_size(size)
    with (resources.files("minigraph.dataset") / "data" / "digits.npz").open("rb") as file, np.load(file) as arrays:
        images, labels = arrays["images"], arrays["labels"]
    pixels = images.astype(np.float32) / _WHITE if size == _SIDE else _in_mnist_form(images)
    return (pixels * 2 - 1).reshape(len(images), -1), labels.astype(np.int64)


def _check_size(size: int) -> None:
    if size not in (_SIDE, _MNIST_SIDE):
        raise ProgramError(
            f"digits: size must be {_SIDE} or {_MNIST_SIDE}, got {size!r:.80}",
            hint=f"Give size={_SIDE} for the digits as they were recorded, or size={_MNIST_SIDE} for MNIST's form.",
        )


def _reader(size: int, part: slice) -> Reader[Sample]:
    _check_size(size)

    def digits_reader() -> Iterator[Sample]:
        images, labels = load(size)  # anew in each run: a consumer may write to its images
        yield from zip(images[part], labels[part].tolist(), strict=True)

    return digits_reader


def _in_mnist_form(images: NDArray[Any]) -> NDArray[np.float32]:
    """8x8 images of 0 to 16, resampled to 20x20 in the middle of 28x28 images of 0 to 1."""
    # Bilinear resampling multiplies by a small matrix on either side. In tenths its entries are whole numbers, so that
    # the sums are exact and every machine gets the same bits.
    tenths = np.rint(_interpolation(_SIDE, _BOX) * 10)
    margin = (_MNIST_SIDE - _BOX) // 2
    matrix = np.pad(tenths, ((margin, margin), (0, 0))).astype(np.float32)
    return (matrix @ images.astype(np.float32) @ matrix.T) / np.float32(100 * _WHITE)


def _interpolation(source: int, target: int) -> NDArray[np.float64]:
    """The matrix of linear interpolation, ``[target, source]``, between pixel centres; the borders repeat outwards.

    Examples
    --------
    >>> _interpolation(2, 4)
    array([[1.  , 0.  ],
           [0.75, 0.25],
           [0.25, 0.75],
           [0.  , 1.  ]])
    """
    centres = np.clip((np.arange(target) + 0.5) * source / target - 0.5, 0, source - 1)
    return np.maximum(0, 1 - np.abs(centres[:, None] - np.arange(source)))


refuse_unknown_names(__name__)
