"""Penn Treebank in Mikolov's form: windows of n words for language models, or sentences and the words that follow."""

from __future__ import annotations

import tarfile
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from minigraph.dataset import common
from minigraph.errors import ProgramError
from minigraph.reader import Reader
from minigraph.support.public import public, refuse_unknown_names

__all__ = ["DataType", "build_dict", "test", "train"]

URL = "https://dataset.bj.bcebos.com/imikolov%2Fsimple-examples.tgz"
MD5 = "30177ea32e27c525793142b6bf2c8e2d"

_TRAIN, _TEST = (f"./simple-examples/data/ptb.{part}.txt" for part in ("train", "valid"))


class DataType:
    """Kinds of samples."""

    NGRAM = 1
    """Windows of n words."""
    SEQ = 2
    """Pairs of a sentence that begins with ``<s>`` and the same sentence that ends with ``<e>``."""


@public
def build_dict(min_word_freq: int = 50) -> dict[Any, int]:
    """Numbers of the words that occur more than `min_word_freq` times in both parts; words of the text are bytes."""
    counts: Counter[Any] = Counter()
    with tarfile.open(common.download(URL, "imikolov", MD5)) as archive:
        for name in (_TRAIN, _TEST):
            for line in common.member(archive, name):
                counts.update(line.split())
                counts.update(("<s>", "<e>"))
    return common.numbered(counts, min_word_freq)


@public
def train(word_idx: Mapping[Any, int], n: int, data_type: int = DataType.NGRAM) -> Reader[Any]:
    """Reader of the training text.

    Parameters
    ----------
    word_idx : dict
        Numbers of the words, from `build_dict`.
    n : int
        Number of words in a window; of sentences, the maximum length, or 0 for any.
    data_type : int
        ``DataType.NGRAM`` or ``DataType.SEQ``.
    """
    return _reader(_TRAIN, word_idx, n, data_type)


@public
def test(word_idx: Mapping[Any, int], n: int, data_type: int = DataType.NGRAM) -> Reader[Any]:
    """Reader of the validation text; see `train`."""
    return _reader(_TEST, word_idx, n, data_type)


def _reader(name: str, word_idx: Mapping[Any, int], n: int, data_type: int) -> Reader[Any]:
    if data_type not in (DataType.NGRAM, DataType.SEQ) or (data_type == DataType.NGRAM and n < 0):
        raise ProgramError(f"imikolov: there are no samples of data_type {data_type!r:.40} with n = {n!r:.40}")

    def read() -> Iterator[Any]:
        unknown = word_idx["<unk>"]
        with tarfile.open(common.download(URL, "imikolov", MD5)) as archive:
            for line in common.member(archive, name):
                words = line.split()
                if data_type == DataType.NGRAM:
                    numbers = [word_idx.get(word, unknown) for word in ["<s>", *words, "<e>"]]
                    yield from (tuple(numbers[end - n : end]) for end in range(n, len(numbers) + 1))
                    continue
                numbers = [word_idx.get(word, unknown) for word in words]
                if n <= 0 or len(numbers) + 1 <= n:
                    yield [word_idx["<s>"], *numbers], [*numbers, word_idx["<e>"]]

    return read


refuse_unknown_names(__name__)
