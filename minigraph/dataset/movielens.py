"""MovieLens 1M: a million ratings of 3,900 films by 6,040 users.

A sample is ``[user, gender, age, job, film, categories, words of the title, [rating]]``: numbers, two lists of numbers,
and the rating from -3 to 5. A tenth of the ratings, drawn by NumPy's generator with seed 0, is for testing.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from minigraph.dataset import common
from minigraph.reader import Reader
from minigraph.support.public import refuse_unknown_names

__all__ = [
    "MovieInfo", "UserInfo", "age_table", "get_movie_title_dict", "max_job_id", "max_movie_id", "max_user_id",
    "movie_categories", "movie_info", "test", "train", "user_info",
]  # fmt: skip

URL = "https://dataset.bj.bcebos.com/movielens%2Fml-1m.zip"
MD5 = "c4d9eecfca2ab87c1945afe126590906"

age_table = [1, 18, 25, 35, 45, 50, 56]
"""First year of each age group."""

_TEST_SHARE = 0.1


@dataclass
class MovieInfo:
    """A film."""

    index: int
    categories: list[str]
    title: str
    _tables: _Tables = field(repr=False, compare=False)

    def value(self) -> list[Any]:
        """The number of the film, and those of its categories and of the words of its title."""
        words = [self._tables.words[word.lower()] for word in self.title.split()]
        return [self.index, [self._tables.categories[each] for each in self.categories], words]


@dataclass
class UserInfo:
    """A user; `age` is a place in `age_table`."""

    index: int
    is_male: bool
    age: int
    job_id: int

    def value(self) -> list[int]:
        """Numbers of the user, the gender, the age group and the job."""
        return [self.index, 0 if self.is_male else 1, self.age, self.job_id]


@dataclass
class _Tables:
    path: str
    films: dict[int, MovieInfo] = field(default_factory=dict)
    users: dict[int, UserInfo] = field(default_factory=dict)
    words: dict[str, int] = field(default_factory=dict)
    categories: dict[str, int] = field(default_factory=dict)


def _tables() -> _Tables:
    return _read_tables(common.download(URL, "movielens", MD5))


@lru_cache(maxsize=1)
def _read_tables(path: str) -> _Tables:
    tables = _Tables(path)
    with zipfile.ZipFile(path) as archive:
        for number, title, kinds in _records(archive, "movies"):
            title = re.sub(r"\(\d+\)$", "", title)  # of the year
            tables.films[int(number)] = MovieInfo(int(number), kinds.split("|"), title, tables)
        for number, gender, age, job, _ in _records(archive, "users"):
            tables.users[int(number)] = UserInfo(int(number), gender == "M", age_table.index(int(age)), int(job))
    words = sorted({word.lower() for film in tables.films.values() for word in film.title.split()})
    categories = sorted({each for film in tables.films.values() for each in film.categories})
    tables.words = {word: number for number, word in enumerate(words)}
    tables.categories = {each: number for number, each in enumerate(categories)}
    return tables


def _records(archive: zipfile.ZipFile, name: str) -> Iterator[list[str]]:
    with archive.open(f"ml-1m/{name}.dat") as file:
        for line in file:
            yield line.decode("latin").strip().split("::")


def train() -> Reader[list[Any]]:
    """Reader of nine tenths of the ratings."""
    return _reader(is_test=False)


def test() -> Reader[list[Any]]:
    """Reader of the other tenth."""
    return _reader(is_test=True)


def _reader(is_test: bool) -> Reader[list[Any]]:
    def read() -> Iterator[list[Any]]:
        tables = _tables()
        random = np.random.RandomState(0)  # the numbers that fluid draws from the global generator
        with zipfile.ZipFile(tables.path) as archive:
            for user, film, rating, _ in _records(archive, "ratings"):
                if (random.random_sample() < _TEST_SHARE) == is_test:
                    about = tables.users[int(user)].value() + tables.films[int(film)].value()
                    yield [*about, [float(rating) * 2 - 5.0]]

    return read


def get_movie_title_dict() -> dict[str, int]:
    """Numbers of the words of titles."""
    return _tables().words


def movie_categories() -> dict[str, int]:
    """Numbers of the categories."""
    return _tables().categories


def movie_info() -> dict[int, MovieInfo]:
    """Films by number."""
    return _tables().films


def user_info() -> dict[int, UserInfo]:
    """Users by number."""
    return _tables().users


def max_movie_id() -> int:
    """The largest number of a film."""
    return max(movie_info())


def max_user_id() -> int:
    """The largest number of a user."""
    return max(user_info())


def max_job_id() -> int:
    """The largest number of a job."""
    return max(user.job_id for user in user_info().values())


refuse_unknown_names(__name__)
