"""Files of public data sets: fluid's folder, which they are looked for in, and what their readers share.

Paddle downloads the same files to the same folders, so that its cache can be used as it is. Nothing is
downloaded here: a file that is not there is an error that says where to get it and where to put it.
"""

from __future__ import annotations

import glob
import hashlib
import string
import tarfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import IO, Any

from minigraph.errors import DataError, MissingFileError, WrongTypeError
from minigraph.io import pickles
from minigraph.reader import Reader, count
from minigraph.support.public import public, refuse_unknown_names

__all__ = ["DATA_HOME", "cluster_files_reader", "download", "md5file", "split"]

DATA_HOME = str(Path.home() / ".cache" / "paddle" / "dataset")
"""Folder of the data sets, with one folder for each; a program may set it."""

PUNCTUATION = string.punctuation.encode()


@public
def md5file(fname: str) -> str:
    """The MD5 of a file, in hexadecimal digits."""
    found = hashlib.md5(usedforsecurity=False)
    with open(fname, "rb") as file:
        while piece := file.read(1 << 20):
            found.update(piece)
    return found.hexdigest()


@public
def download(url: str, module_name: str, md5sum: str, save_name: str | None = None) -> str:
    """Path of a file of a data set in ``DATA_HOME``, where it must lie already.

    Parameters
    ----------
    url : str
        Where the file comes from; its last part is the name of the file, unless `save_name` is given.
    module_name : str
        Folder of the data set.
    md5sum : str
        MD5 of the right file.

    Raises
    ------
    MissingFileError
        If the file is not there.
    DataError
        If it is another file.
    """
    path = Path(DATA_HOME) / module_name / (save_name or url.split("/")[-1])
    details = [f"file: {path}", f"from: {url}", f"md5: {md5sum}"]
    if not path.exists():
        raise MissingFileError(
            f"{path.name} of the data set {module_name} is not there", details=details,
            hint="Download it from there to this path, or set dataset.common.DATA_HOME to the folder that has it.",
        )  # fmt: skip
    if (found := md5file(str(path))) != md5sum:
        raise DataError(
            f"{path.name} of the data set {module_name} is not the right file", details=[*details, f"found: {found}"],
            hint="Replace it by the file from this address.",
        )  # fmt: skip
    return str(path)


def _dump(samples: list[Any], file: IO[bytes]) -> None:
    file.write(pickles.dump(samples))


def _load(file: IO[bytes]) -> Any:
    return pickles.load(file.read(), file.name)


@public
def split(
    reader: Reader[Any], line_count: int, suffix: str = "%05d.pickle", dumper: Callable[[Any, Any], Any] = _dump
) -> None:
    """Write the samples of a reader to files of `line_count` samples each.

    Parameters
    ----------
    reader : callable
    line_count : int
    suffix : str
        Names of the files, with a place for their numbers.
    dumper : callable
        ``dumper(samples, file)`` writes a list of samples.
    """
    size, samples = count("line_count", line_count), iter(reader())
    number = 0
    while lines := list(islice(samples, size)):
        with open(suffix % number, "wb") as file:
            dumper(lines, file)
        number += 1


@public
def cluster_files_reader(
    files_pattern: str, trainer_count: int, trainer_id: int, loader: Callable[[Any], Iterable[Any]] = _load
) -> Reader[Any]:
    """Reader of the samples in every `trainer_count`-th file, from number `trainer_id` on, as `split` wrote them.

    Parameters
    ----------
    files_pattern : str
        Pattern of the files' names, with ``*``.
    trainer_count, trainer_id : int
    loader : callable
        ``loader(file)`` reads a list of samples.
    """
    if not callable(loader):
        raise WrongTypeError(f"cluster_files_reader: loader must be a function, got {loader!r:.60}")
    ranks = count("trainer_count", trainer_count)

    def read() -> Iterator[Any]:
        for path in sorted(glob.glob(files_pattern))[trainer_id::ranks]:
            with open(path, "rb") as file:
                yield from loader(file)

    return read


# Shared by readers


def member(archive: tarfile.TarFile, name: str) -> IO[bytes]:
    """A file in an archive."""
    try:
        found = archive.extractfile(name)
    except KeyError:
        found = None
    if found is None:
        raise DataError(
            f"an archive of a data set has no file {name}", details=[f"file: {archive.name!r}"],
            hint="Replace it by the original archive.",
        )  # fmt: skip
    return found


def numbered(counts: Counter[Any], more_than: int) -> dict[Any, int]:
    """Numbers of the words that occur more often than that, the most frequent first, ``"<unk>"`` last."""
    frequent = [word for word, times in counts.items() if times > more_than]
    # Words are bytes where they come from a file and str where a reader adds them.
    frequent.sort(key=lambda word: (-counts[word], word if isinstance(word, bytes) else word.encode()))
    return {word: number for number, word in enumerate(frequent)} | {"<unk>": len(frequent)}


refuse_unknown_names(__name__)
