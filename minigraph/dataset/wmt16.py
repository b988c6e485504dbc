"""WMT16's Multi30K, captions of images in English and German; the dictionaries are made from the training captions.

A sample is ``(source, target, target shifted by one word)``: numbers of words, with ``<s>`` and ``<e>`` around them.
"""

from __future__ import annotations

import tarfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

from minigraph.dataset import common
from minigraph.errors import MissingFileError, ProgramError
from minigraph.reader import Reader
from minigraph.support.atomic_files import write_files
from minigraph.support.public import public, refuse_unknown_names

__all__ = ["get_dict", "test", "train", "validation"]

DATA_URL = "http://paddlemodels.bj.bcebos.com/wmt/wmt16.tar.gz"
DATA_MD5 = "0c38be43600334966403524a40dcd81e"

START_MARK, END_MARK, UNK_MARK = "<s>", "<e>", "<unk>"
_LANGUAGES = ("en", "de")  # in the order of the columns of the files
_MOST_WORDS = {"en": 11250, "de": 19220}

Sample: TypeAlias = tuple[list[int], list[int], list[int]]


@public
def train(src_dict_size: int, trg_dict_size: int, src_lang: str = "en") -> Reader[Sample]:
    """Reader of the training captions.

    Parameters
    ----------
    src_dict_size, trg_dict_size : int
        Number of words in each dictionary, with ``<s>``, ``<e>`` and ``<unk>``.
    src_lang : str
        Language to translate from: ``"en"`` or ``"de"``.
    """
    return _reader("wmt16/train", src_dict_size, trg_dict_size, src_lang)


@public
def test(src_dict_size: int, trg_dict_size: int, src_lang: str = "en") -> Reader[Sample]:
    """Reader of the test captions; see `train`."""
    return _reader("wmt16/test", src_dict_size, trg_dict_size, src_lang)


@public
def validation(src_dict_size: int, trg_dict_size: int, src_lang: str = "en") -> Reader[Sample]:
    """Reader of the validation captions; see `train`."""
    return _reader("wmt16/val", src_dict_size, trg_dict_size, src_lang)


@public
def get_dict(lang: str, dict_size: int, reverse: bool = False) -> dict[Any, Any]:
    """A dictionary that a reader has made: numbers by word, or words by number if `reverse`.

    Raises
    ------
    MissingFileError
        If no reader has made a dictionary of this size yet.
    """
    path = _dictionary_path(lang, dict_size)
    if not path.exists():
        raise MissingFileError(
            f"wmt16: there is no dictionary {path}", hint="Make a reader with this size first, such as train(...)()."
        )
    words = _lines(path)
    return dict(enumerate(words)) if reverse else {word: number for number, word in enumerate(words)}


def _dictionary_path(lang: str, size: int) -> Path:
    if lang not in _LANGUAGES:
        raise ProgramError(f"wmt16: the languages are 'en' and 'de', not {lang!r:.40}")
    return Path(common.DATA_HOME) / "wmt16" / f"{lang}_{min(size, _MOST_WORDS[lang])}.dict"


def _lines(path: Path) -> list[str]:
    return [line.strip().decode() for line in path.read_bytes().splitlines()]


def _dictionary(archive: tarfile.TarFile, lang: str, size: int) -> dict[str, int]:
    """The dictionary in its file, which is made from the training captions if it is not there."""
    path = _dictionary_path(lang, size)
    size = min(size, _MOST_WORDS[lang])
    if not path.exists() or len(_lines(path)) != size:
        counts: Counter[str] = Counter()
        for columns in _captions(archive, "wmt16/train"):
            counts.update(columns[_LANGUAGES.index(lang)].split())
        frequent = [word for word, _ in counts.most_common(max(size - 3, 0))]
        write_files({path: ["".join(f"{word}\n" for word in [START_MARK, END_MARK, UNK_MARK, *frequent]).encode()]})
    return {word: number for number, word in enumerate(_lines(path))}


def _captions(archive: tarfile.TarFile, name: str) -> Iterator[list[str]]:
    for line in common.member(archive, name):
        columns = line.decode().strip().split("\t")
        if len(columns) == 2:
            yield columns


def _reader(name: str, source_size: int, target_size: int, lang: str) -> Reader[Sample]:
    _dictionary_path(lang, source_size)
    path = common.download(DATA_URL, "wmt16", DATA_MD5, "wmt16.tar.gz")
    column = _LANGUAGES.index(lang)

    def read() -> Iterator[Sample]:
        with tarfile.open(path) as archive:
            source = _dictionary(archive, lang, source_size)
            target = _dictionary(archive, _LANGUAGES[1 - column], target_size)
            start, end, unknown = (source[mark] for mark in (START_MARK, END_MARK, UNK_MARK))
            for columns in _captions(archive, name):
                words = [source.get(word, unknown) for word in columns[column].split()]
                translated = [target.get(word, unknown) for word in columns[1 - column].split()]
                yield [start, *words, end], [start, *translated], [*translated, end]

    return read


refuse_unknown_names(__name__)
