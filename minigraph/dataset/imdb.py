"""IMDB: 50,000 reviews of films, half of them for training; words are bytes without punctuation, in lower case.

A sample is ``(numbers of the words, label)``, where the label is 0 for a positive review and 1 for a negative one.
"""

from __future__ import annotations

import re
import tarfile
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from minigraph.dataset import common
from minigraph.reader import Reader
from minigraph.support.public import public, refuse_unknown_names

__all__ = ["build_dict", "test", "tokenize", "train", "word_dict"]

URL = "https://dataset.bj.bcebos.com/imdb%2FaclImdb_v1.tar.gz"
MD5 = "7c2ac02c03563afcf9b574c7e56c153a"

Sample: TypeAlias = tuple[list[int], int]


@public
def tokenize(pattern: re.Pattern[str]) -> Iterator[list[bytes]]:
    """The words of each file of the archive whose name matches, in the archive's order."""
    with tarfile.open(common.download(URL, "imdb", MD5)) as archive:
        for each in archive:
            if pattern.match(each.name):
                text = common.member(archive, each.name).read().rstrip(b"\n\r")
                yield text.translate(None, common.PUNCTUATION).lower().split()


@public
def build_dict(pattern: re.Pattern[str], cutoff: int) -> dict[Any, int]:
    """Numbers of the words that occur more than `cutoff` times in the files whose names match."""
    return common.numbered(Counter(word for document in tokenize(pattern) for word in document), cutoff)


@public
def train(word_idx: Mapping[Any, int]) -> Reader[Sample]:
    """Reader of the 25,000 reviews for training, the positive ones first.

    Parameters
    ----------
    word_idx : dict
        Numbers of the words, from `word_dict`.
    """
    return _reader("train", word_idx)


@public
def test(word_idx: Mapping[Any, int]) -> Reader[Sample]:
    """Reader of the 25,000 reviews for testing; see `train`."""
    return _reader("test", word_idx)


def word_dict() -> dict[Any, int]:
    """Numbers of the words that occur more than 150 times in all reviews."""
    return build_dict(re.compile(r"aclImdb/((train)|(test))/((pos)|(neg))/.*\.txt$"), 150)


def _reader(part: str, word_idx: Mapping[Any, int]) -> Reader[Sample]:
    unknown = word_idx["<unk>"]
    samples = [
        ([word_idx.get(word, unknown) for word in document], label)
        for label, kind in enumerate(("pos", "neg"))
        for document in tokenize(re.compile(rf"aclImdb/{part}/{kind}/.*\.txt$"))
    ]

    def read() -> Iterator[Sample]:
        yield from samples

    return read


refuse_unknown_names(__name__)
