"""UCI housing: 506 districts of Boston, of which 404 are for training.

A sample is ``(features, price)``, float64[13] and float64[1]; the features are centred and divided by their range.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from minigraph.dataset import common
from minigraph.errors import DataError
from minigraph.reader import Reader
from minigraph.support.public import refuse_unknown_names

__all__ = ["feature_names", "predict_reader", "test", "train"]

URL = "http://paddlemodels.bj.bcebos.com/uci_housing/housing.data"
MD5 = "d4accdce7a25600298819f8e28e8d593"

feature_names = ["CRIM", "ZN", "INDUS", "CHAS", "NOX", "RM", "AGE", "DIS", "RAD", "TAX", "PTRATIO", "B", "LSTAT"]

Sample: TypeAlias = tuple[NDArray[np.float64], NDArray[np.float64]]

_TRAIN_SHARE = 0.8


def train() -> Reader[Sample]:
    """Reader of the first 404 districts."""
    return _reader(is_test=False)


def test() -> Reader[Sample]:
    """Reader of the last 102 districts."""
    return _reader(is_test=True)


def predict_reader() -> tuple[NDArray[np.float64]]:
    """The features of the first district for testing."""
    return (_parts()[1][0, :-1],)


def _parts() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    path = common.download(URL, "uci_housing", MD5)
    try:
        # Not `np.fromfile`, which NumPy 1 lets end in front of a word that is no number.
        rows = np.array(Path(path).read_text(encoding="utf-8").split(), np.float64).reshape(-1, len(feature_names) + 1)
    except ValueError as error:
        raise DataError(f"{path}: {error!s:.80}", hint="Replace it by the original file.") from None
    features = rows[:, :-1]
    # The sum over the number, and not the mean: fluid's bits.
    features[:] = (features - features.sum(axis=0) / len(rows)) / (features.max(axis=0) - features.min(axis=0))
    count = int(len(rows) * _TRAIN_SHARE)
    return rows[:count], rows[count:]


def _reader(is_test: bool) -> Reader[Sample]:
    rows = _parts()[is_test]

    def read() -> Iterator[Sample]:
        for row in rows:
            yield row[:-1], row[-1:]

    return read


refuse_unknown_names(__name__)
