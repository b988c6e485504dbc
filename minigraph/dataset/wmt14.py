"""WMT14 from English to French, the small part that Paddle offers, and its dictionaries.

A sample is ``(source, target, target shifted by one word)``: numbers of words, with ``<s>`` and ``<e>`` around them.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from itertools import islice
from typing import Any, TypeAlias

from minigraph.dataset import common
from minigraph.errors import DataError
from minigraph.reader import Reader
from minigraph.support.public import public, refuse_unknown_names

__all__ = ["gen", "get_dict", "test", "train"]

URL_TRAIN = "http://paddlemodels.bj.bcebos.com/wmt/wmt14.tgz"
MD5_TRAIN = "0791583d57d5beb693b9414c5b36798c"

START, END, UNK, UNK_IDX = "<s>", "<e>", "<unk>", 2
_MOST_WORDS = 80

Sample: TypeAlias = tuple[list[int], list[int], list[int]]


@public
def train(dict_size: int) -> Reader[Sample]:
    """Reader of the training sentences, with the first `dict_size` words of each dictionary."""
    return _reader("train/train", dict_size)


@public
def test(dict_size: int) -> Reader[Sample]:
    """Reader of the test sentences; see `train`."""
    return _reader("test/test", dict_size)


@public
def gen(dict_size: int) -> Reader[Sample]:
    """Reader of the sentences to translate; see `train`."""
    return _reader("gen/gen", dict_size)


@public
def get_dict(dict_size: int, reverse: bool = True) -> tuple[dict[Any, Any], dict[Any, Any]]:
    """The dictionaries of both languages: words by number, or numbers by word if not `reverse`."""
    with tarfile.open(common.download(URL_TRAIN, "wmt14", MD5_TRAIN)) as archive:
        source, target = _dictionaries(archive, dict_size)
    if reverse:
        return {number: word for word, number in source.items()}, {number: word for word, number in target.items()}
    return source, target


def _dictionaries(archive: tarfile.TarFile, size: int) -> list[dict[str, int]]:
    found = []
    for suffix in ("src.dict", "trg.dict"):
        names = [name for name in archive.getnames() if name.endswith(suffix)]
        if len(names) != 1:
            raise DataError(f"wmt14: the archive must have one {suffix}, and has {len(names)}")
        lines = islice(common.member(archive, names[0]), size)
        found.append({line.strip().decode(): number for number, line in enumerate(lines)})
    return found


def _reader(part: str, dict_size: int) -> Reader[Sample]:
    path = common.download(URL_TRAIN, "wmt14", MD5_TRAIN)

    def read() -> Iterator[Sample]:
        with tarfile.open(path) as archive:
            source, target = _dictionaries(archive, dict_size)
            for name in archive.getnames():
                if not name.endswith(part):
                    continue
                for line in common.member(archive, name):
                    columns = line.decode().strip().split("\t")
                    if len(columns) != 2:
                        continue
                    words = [source.get(word, UNK_IDX) for word in [START, *columns[0].split(), END]]
                    translated = [target.get(word, UNK_IDX) for word in columns[1].split()]
                    if max(len(words), len(translated)) <= _MOST_WORDS:
                        yield words, [target[START], *translated], [*translated, target[END]]

    return read


refuse_unknown_names(__name__)
