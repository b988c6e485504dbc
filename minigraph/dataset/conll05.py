"""CoNLL 2005, semantic roles: the free test set, and the dictionaries and word vectors that Paddle offers with it.

A sample is nine lists with a number for each word of a sentence: words, the five words around the predicate (each
repeated), the predicate, marks of the five words, labels.
"""

from __future__ import annotations

import gzip
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

from minigraph.dataset import common
from minigraph.errors import DataError
from minigraph.reader import Reader
from minigraph.support.public import refuse_unknown_names

__all__ = ["get_dict", "get_embedding", "test"]

DATA_URL = "http://paddlemodels.bj.bcebos.com/conll05st/conll05st-tests.tar.gz"
DATA_MD5 = "387719152ae52d60422c016e92a742fc"
WORDDICT_URL = "http://paddlemodels.bj.bcebos.com/conll05st%2FwordDict.txt"
WORDDICT_MD5 = "ea7fb7d4c75cc6254716f0177a506baa"
VERBDICT_URL = "http://paddlemodels.bj.bcebos.com/conll05st%2FverbDict.txt"
VERBDICT_MD5 = "0d2977293bbb6cbefab5b0f97db1e77c"
TRGDICT_URL = "http://paddlemodels.bj.bcebos.com/conll05st%2FtargetDict.txt"
TRGDICT_MD5 = "d8c7f03ceb5fc2e5a0fa7503a4353751"
EMB_URL = "http://paddlemodels.bj.bcebos.com/conll05st%2Femb"
EMB_MD5 = "bf436eb0faa1f6f9103017f8be57cdb7"

UNK_IDX = 0

_FOLDER = "conll05st-release/test.wsj/{0}/test.wsj.{0}.gz"

Sample: TypeAlias = tuple[list[int], ...]


def get_dict() -> tuple[dict[str, int], dict[str, int], dict[str, int]]:
    """Numbers of the words, of the predicates and of the labels."""
    words = _lines(WORDDICT_URL, WORDDICT_MD5)
    verbs = _lines(VERBDICT_URL, VERBDICT_MD5)
    roles = dict.fromkeys(line[2:] for line in _lines(TRGDICT_URL, TRGDICT_MD5) if line[:2] in ("B-", "I-"))
    labels = [f"{mark}-{role}" for role in roles for mark in "BI"] + ["O"]
    return _numbers(words), _numbers(verbs), _numbers(labels)


def get_embedding() -> str:
    """Path of the file of word vectors."""
    return common.download(EMB_URL, "conll05st", EMB_MD5)


def test() -> Reader[Sample]:
    """Reader of the test set, with which Paddle trains, because the training set is not free."""
    words, verbs, labels = get_dict()
    path = common.download(DATA_URL, "conll05st", DATA_MD5)

    def read() -> Iterator[Sample]:
        for sentence, verb, tags in _sentences(path):
            at, length = tags.index("B-V"), len(sentence)
            padded = ["bos", "bos", *sentence, "eos", "eos"]
            around = ([words.get(word, UNK_IDX)] * length for word in padded[at : at + 5])
            marks = [int(abs(place - at) <= 2) for place in range(length)]
            yield (
                [words.get(word, UNK_IDX) for word in sentence], *around, [_number(verbs, verb)] * length, marks,
                [_number(labels, tag) for tag in tags],
            )  # fmt: skip

    return read


def _lines(url: str, md5: str) -> list[str]:
    return [line.strip() for line in Path(common.download(url, "conll05st", md5)).read_text("utf-8").splitlines()]


def _numbers(words: list[str]) -> dict[str, int]:
    return {word: number for number, word in enumerate(words)}


def _number(numbers: dict[str, int], word: str) -> int:
    if word not in numbers:
        raise DataError(
            f"conll05: {word!r:.40} is not in its dictionary", hint="Replace the files by the original ones."
        )
    return numbers[word]


def _sentences(path: str) -> Iterator[tuple[list[str], str, list[str]]]:
    """Each sentence with each of its predicates and its labels."""
    with tarfile.open(path) as archive:
        words, props = (
            gzip.GzipFile(fileobj=common.member(archive, _FOLDER.format(kind))) for kind in ("words", "props")
        )
        sentence: list[str] = []
        rows: list[list[str]] = []
        for word, row in zip(words, props, strict=True):
            columns = row.decode().split()
            if columns:
                sentence.append(word.decode().strip())
                rows.append(columns)
                continue
            if rows:
                verbs, *brackets = zip(*rows, strict=True)
                named = [verb for verb in verbs if verb != "-"]
                for verb, column in zip(named, brackets, strict=True):
                    yield sentence, verb, _tags(column)
            sentence, rows = [], []


def _tags(column: tuple[str, ...]) -> list[str]:
    """Labels of the words: ``(A0*``, ``*``, ``*)`` become ``B-A0``, ``I-A0``, ``I-A0``, and ``*`` outside ``O``."""
    tags, role, is_inside = [], "O", False
    for part in column:
        if part.startswith("("):
            role = part[1 : part.index("*")]
            tags.append(f"B-{role}")
            is_inside = not part.endswith(")")
        elif part == "*":
            tags.append(f"I-{role}" if is_inside else "O")
        elif part == "*)":
            tags.append(f"I-{role}")
            is_inside = False
        else:
            raise DataError(f"conll05: {part!r:.40} is no label", hint="Replace the archive by the original one.")
    return tags


refuse_unknown_names(__name__)
