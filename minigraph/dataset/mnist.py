"""MNIST: 60,000 handwritten digits for training and 10,000 for testing, 28x28 pixels each.

The four IDX files, as they are or gzipped, are looked for in ``$MINIGRAPH_DATA_HOME/mnist`` (by default
``~/.cache/minigraph/dataset/mnist``). When none of them is there they are downloaded; when that fails too, `train` and
`test` serve the bundled `digits` in MNIST's form, with a warning, so that a program runs anywhere. A damaged file is an
error, never a reason to look elsewhere.

Environment variables: ``MINIGRAPH_DATA_HOME`` as above; ``MINIGRAPH_OFFLINE=1`` never tries the network;
``MINIGRAPH_STRICT_DATA=1`` makes missing data an error instead of a warning.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import math
import os
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from minigraph.dataset import digits
from minigraph.errors import DataError, warn
from minigraph.reader import Reader, count
from minigraph.support.atomic_files import read_file, replacing
from minigraph.support.public import public, refuse_unknown_names

__all__ = ["BundledDigitsWarning", "fetch", "reader_creator", "test", "train"]

Sample: TypeAlias = tuple[NDArray[np.float32], int]

MIRRORS = (
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
)
TRAIN_IMAGES = "train-images-idx3-ubyte.gz"
TRAIN_LABELS = "train-labels-idx1-ubyte.gz"
TEST_IMAGES = "t10k-images-idx3-ubyte.gz"
TEST_LABELS = "t10k-labels-idx1-ubyte.gz"
MD5 = {
    TRAIN_IMAGES: "f68b3c2dcbeaaa9fbdd348bbdeb94873",
    TRAIN_LABELS: "d53e105ee54ea40749a09fcbcd1e9432",
    TEST_IMAGES: "9fb629c4189551a2d022fa330f9573f3",
    TEST_LABELS: "ec29112dd5afa0611ce80d1b7f02629c",
}

_TIMEOUT = 5.0  # seconds to wait for an answer of a mirror
_SIDE = 28
_ALLOWANCE, _RATIO = 64 << 20, 16  # maximum bytes that a gzip file may unpack to: for any file, plus per packed byte
_BLOCK = 500  # images converted to float32 at a time; all of them would take four times the memory of the files


class BundledDigitsWarning(UserWarning):
    """MNIST is not available, and the bundled digits are served in its place."""


@public
def train(strict: bool | None = None) -> Reader[Sample]:
    """Reader of the 60,000 training images.

    Parameters
    ----------
    strict : bool, optional
        Whether it is an error if MNIST is not on disk and cannot be downloaded. If not, the bundled digits are served,
        with a `BundledDigitsWarning`. Default: ``MINIGRAPH_STRICT_DATA``.

    Returns
    -------
    callable
        A reader of (float32[784] in [-1, 1], int in [0, 9]).

    Raises
    ------
    DataError
        If a file is damaged, if only some of the four are there and the others cannot be downloaded, or if there is
        none and `strict` holds.
    """
    return _reader(TRAIN_IMAGES, TRAIN_LABELS, digits.train, strict)


@public
def test(strict: bool | None = None) -> Reader[Sample]:
    """Reader of the 10,000 test images; everything else as for `train`."""
    return _reader(TEST_IMAGES, TEST_LABELS, digits.test, strict)


def fetch() -> None:
    """Download those of the four files that are not there yet.

    Raises
    ------
    DataError
        If one cannot be downloaded.
    """
    _failures.pop(_directory(), None)  # a call of fetch tries the network again
    for name in MD5:
        if _find(name) is None:
            _download(name)


@public
def reader_creator(
    image_filename: str | os.PathLike[str], label_filename: str | os.PathLike[str], buffer_size: int = _BLOCK
) -> Reader[Sample]:
    """Reader of a pair of IDX files, gzipped or not, which are read and checked now.

    Parameters
    ----------
    image_filename, label_filename : path
    buffer_size : int
        How many images are converted to float32 at a time.

    Raises
    ------
    DataError
        If a file is damaged or the two do not belong together.
    """
    size = count("buffer_size", buffer_size)
    images = _read_idx(Path(image_filename), (_SIDE, _SIDE)).reshape(-1, _SIDE * _SIDE)
    labels = _read_idx(Path(label_filename), ())
    if len(images) != len(labels):
        raise _bad_file(
            Path(label_filename), "images and labels differ in number",
            f"{len(images)} labels, one for each image of {image_filename}", f"{len(labels)} labels",
        )  # fmt: skip
    if labels.max(initial=0) > 9:
        raise _bad_file(Path(label_filename), "not labels of digits", "labels from 0 to 9", f"label {labels.max()}")

    def mnist_reader() -> Iterator[Sample]:
        for start in range(0, len(images), size):
            block = slice(start, start + size)
            # This order of operations gives every pixel the bits of fluid's reader.
            pixels = images[block].astype(np.float32) / 255.0 * 2.0 - 1.0
            yield from zip(pixels, labels[block].tolist(), strict=True)

    return mnist_reader


def _reader(
    image_name: str, label_name: str, bundled: Callable[[int], Reader[Sample]], strict: bool | None
) -> Reader[Sample]:
    try:
        images, labels = (_find(name) or _download(name) for name in (image_name, label_name))
    except _NotDownloaded as failure:
        # With a part of MNIST on disk, the digits would mix two data sets: one for training, one for testing.
        there = [name for name in MD5 if _find(name) is not None]
        if there or (_is_set("MINIGRAPH_STRICT_DATA") if strict is None else strict):
            raise
        warn(
            f"MNIST IS NOT BEING USED: {failure}\n  Serving the bundled 8x8 digits, enlarged to 28x28, in its place.",
            BundledDigitsWarning,
        )
        return bundled(_SIDE)
    return reader_creator(images, labels)


def _directory() -> Path:
    home = os.environ.get("MINIGRAPH_DATA_HOME") or Path.home() / ".cache" / "minigraph" / "dataset"
    return Path(home).expanduser() / "mnist"


def _find(name: str) -> Path | None:
    """The file `name` in the data directory, or its unpacked form."""
    packed = _directory() / name
    return next((path for path in (packed, packed.with_suffix("")) if path.exists()), None)


def _is_set(variable: str) -> bool:
    return os.environ.get(variable, "").strip().lower() not in ("", "0", "false", "no", "off")


# IDX files: a magic number that ends in the number of dimensions, the dimensions, the bytes


def _read_idx(path: Path, item_shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """The bytes of an IDX file as an array ``[count, *item_shape]``."""
    content = _unpacked(path)
    header = 8 + 4 * len(item_shape)
    if len(content) < header:
        raise _bad_file(path, "cut short", f"a header of {header} bytes", f"{len(content)} bytes")
    magic, count, *shape = np.frombuffer(content, ">u4", count=header // 4).tolist()
    expected_magic = 0x0801 + len(item_shape)  # 08: unsigned bytes; 01 or 03: dimensions
    if magic != expected_magic:
        raise _bad_file(path, "wrong magic number", f"{expected_magic:#010x}", f"{magic:#010x}")
    if tuple(shape) != item_shape:
        raise _bad_file(path, "wrong image size", f"{_SIDE}x{_SIDE} pixels", "x".join(map(str, shape)))
    size = header + count * math.prod(item_shape)
    if len(content) != size:
        problem = "cut short" if len(content) < size else "longer than its header says"
        raise _bad_file(path, problem, f"{size} bytes for {count} items", f"{len(content)} bytes")
    return np.frombuffer(content, np.uint8, offset=header).reshape(count, *item_shape)


def _unpacked(path: Path) -> bytes | bytearray:
    """The contents of a file, unpacked if they are gzipped; the name does not matter."""
    content = read_file(path, "images or labels")
    if not content.startswith(b"\x1f\x8b"):
        return content
    most = _ALLOWANCE + _RATIO * len(content)
    unpacked = bytearray()
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as file:
            while len(unpacked) <= most and (piece := file.read(1 << 20)):
                unpacked += piece
    except (EOFError, OSError, zlib.error) as error:
        raise _bad_file(path, "damaged gzip file", "an intact gzip file", f"{len(content)} bytes; {error}") from error
    if len(unpacked) > most:
        raise _bad_file(
            path, "unpacks to more than images do", f"at most {most} bytes", f"more, packed in {len(content)} bytes"
        )
    return unpacked


def _bad_file(path: Path, problem: str, expected: str, found: str) -> DataError:
    return DataError(
        f"{path.name}: {problem}",
        details=[f"file: {path}", f"expected: {expected}", f"found: {found}"],
        hint="Replace the file by an intact copy, or delete it to have it downloaded again.",
    )


# Downloading


class _NotDownloaded(DataError):
    """A file is not there and could not be downloaded."""


# Reasons why downloading failed, by data directory: a network that is out of reach is not tried for each reader.
_failures: dict[Path, str] = {}


def _download(name: str) -> Path:
    """Put the file `name` into the data directory; raise `_NotDownloaded` when that cannot be done."""
    from http.client import HTTPException  # late: importing it takes a tenth of the time of importing minigraph
    from urllib.error import HTTPError

    directory = _directory()
    reason = "MINIGRAPH_OFFLINE is set" if _is_set("MINIGRAPH_OFFLINE") else _failures.get(directory)
    if reason is None:
        reasons = []
        for mirror in MIRRORS:
            try:
                return _download_from(mirror + name, directory / name)
            except (OSError, HTTPException, DataError) as error:
                reasons.append(f"{mirror}: {error or type(error).__name__}")
                if isinstance(error, HTTPError):  # an HTTPError keeps the connection open
                    error.close()
        reason = _failures[directory] = "; ".join(reasons)
    raise _NotDownloaded(
        f"{name} is not in {directory} and was not downloaded",
        details=[f"reason: {reason}"],
        hint=f"Put {', '.join(MD5)} there (or unpacked, without .gz), or name their place with MINIGRAPH_DATA_HOME.",
    )


def _download_from(url: str, path: Path) -> Path:
    """Download `url` to `path`: whole and with the right checksum, or not at all."""
    from urllib.request import urlopen

    path.parent.mkdir(parents=True, exist_ok=True)
    digest = hashlib.md5(usedforsecurity=False)
    with replacing(path) as partial:
        with (
            urlopen(url, timeout=_TIMEOUT) as response,
            partial.open("wb") as file,
            _progress(path.name, response.length) as advance,
        ):
            while chunk := response.read(1 << 16):
                file.write(chunk)
                digest.update(chunk)
                advance(len(chunk))
        if digest.hexdigest() != MD5[path.name]:
            raise DataError(f"wrong MD5 checksum: expected {MD5[path.name]}, found {digest.hexdigest()}")
    return path


@contextlib.contextmanager
def _progress(name: str, size: int | None) -> Iterator[Callable[[int], None]]:
    """A progress bar on standard error, moved on by the function it yields."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn()
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(name, total=size)
        yield lambda count: progress.advance(task, count)


refuse_unknown_names(__name__)
