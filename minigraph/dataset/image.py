"""Images for training: decoded, resized, cropped and flipped; pixels are OpenCV's BGR, ``[height, width, colour]``.

OpenCV is needed for decoding and resizing only.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minigraph.errors import DataError, MissingExtraError
from minigraph.support.public import public, refuse_unknown_names

__all__ = [
    "center_crop", "left_right_flip", "load_and_transform", "load_image", "load_image_bytes", "random_crop",
    "resize_short", "simple_transform", "to_chw",
]  # fmt: skip


def _opencv() -> Any:
    try:
        return importlib.import_module("cv2")
    except ImportError:
        raise MissingExtraError(
            "decoding and resizing images need OpenCV", hint="Install it: pip install opencv-python-headless."
        ) from None


@public
def load_image_bytes(bytes: bytes, is_color: bool = True) -> NDArray[np.uint8]:  # noqa: A002
    """Decode an image file, in colour or in grey."""
    decoded: NDArray[np.uint8] | None = _opencv().imdecode(np.frombuffer(bytes, np.uint8), int(is_color))
    if decoded is None:
        raise DataError(f"{len(bytes)} bytes are no image that OpenCV reads")
    return decoded


@public
def load_image(file: str, is_color: bool = True) -> NDArray[np.uint8]:
    """Decode the image in a file, in colour or in grey."""
    with open(file, "rb") as opened:
        return load_image_bytes(opened.read(), is_color)


@public
def resize_short(im: NDArray[Any], size: int) -> NDArray[Any]:
    """Resize an image so that its shorter side has `size` pixels."""
    height, width = im.shape[:2]
    new = (size, size * height // width) if height > width else (size * width // height, size)
    resized: NDArray[Any] = _opencv().resize(im, new, interpolation=_opencv().INTER_CUBIC)
    return resized


@public
def to_chw(im: NDArray[Any], order: Sequence[int] = (2, 0, 1)) -> NDArray[Any]:
    """Put the colours first: ``[colour, height, width]``."""
    return im.transpose(order)


@public
def center_crop(im: NDArray[Any], size: int, is_color: bool = True) -> NDArray[Any]:
    """The square of `size` pixels in the middle."""
    top, left = ((side - size) // 2 for side in im.shape[:2])
    return im[top : top + size, left : left + size]


@public
def random_crop(im: NDArray[Any], size: int, is_color: bool = True) -> NDArray[Any]:
    """A square of `size` pixels at a place drawn by NumPy's global generator."""
    top, left = (np.random.randint(0, side - size + 1) for side in im.shape[:2])
    return im[top : top + size, left : left + size]


@public
def left_right_flip(im: NDArray[Any], is_color: bool = True) -> NDArray[Any]:
    """Exchange left and right."""
    return im[:, ::-1, :] if im.ndim == 3 and is_color else im[:, ::-1]


@public
def simple_transform(
    im: NDArray[Any], resize_size: int, crop_size: int, is_train: bool, is_color: bool = True, mean: Any = None
) -> NDArray[np.float32]:
    """Resize, crop, flip at random and centre an image; without `is_train` crop the middle and flip nothing.

    Parameters
    ----------
    im : ndarray, uint8[height, width] or [height, width, 3]
    resize_size, crop_size : int
        Pixels of the shorter side, and of the square that is cut out.
    mean : sequence of float, optional
        What to subtract: a number for each colour, or an array of the shape of the result.
    """
    im = resize_short(im, resize_size)
    if is_train:
        im = random_crop(im, crop_size, is_color)
        if np.random.randint(2) == 0:
            im = left_right_flip(im, is_color)
    else:
        im = center_crop(im, crop_size, is_color)
    pixels = (to_chw(im) if im.ndim == 3 else im).astype(np.float32)
    if mean is not None:
        mean = np.asarray(mean, np.float32)
        pixels -= mean[:, np.newaxis, np.newaxis] if mean.ndim == 1 and is_color else mean
    return pixels


@public
def load_and_transform(
    filename: str, resize_size: int, crop_size: int, is_train: bool, is_color: bool = True, mean: Any = None
) -> NDArray[np.float32]:
    """`simple_transform` of the image in a file."""
    return simple_transform(load_image(filename, is_color), resize_size, crop_size, is_train, is_color, mean)


refuse_unknown_names(__name__)
