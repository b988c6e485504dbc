"""Data sets whose samples have numbers, and the batches of their numbers: ``fluid.io.Dataset`` and ``BatchSampler``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from minigraph.errors import ProgramError, WrongTypeError
from minigraph.support.public import public

__all__ = ["BatchSampler", "Dataset"]


@public
class Dataset:
    """Base of data sets that give the sample of a number.

    Examples
    --------
    >>> class Squares(Dataset):
    ...     def __getitem__(self, idx):
    ...         return np.array([idx, idx * idx])
    ...
    ...     def __len__(self):
    ...         return 3
    >>> Squares()[2]
    array([2, 4])
    """

    def __getitem__(self, idx: int) -> Any:
        raise NotImplementedError(f"{type(self).__name__} does not define __getitem__")

    def __len__(self) -> int:
        raise NotImplementedError(f"{type(self).__name__} does not define __len__")


@public
class BatchSampler:
    """Batches of the numbers of samples.

    Parameters
    ----------
    dataset : Dataset, optional
        Samples to number, all of them.
    indices : sequence of int, optional
        Numbers in place of those of `dataset`.
    shuffle : bool
        Whether each pass goes through the numbers in another order, which NumPy's global generator draws, as in fluid.
    batch_size : int
    drop_last : bool
        Whether to leave out a last batch that is not full.

    Examples
    --------
    >>> sampler = BatchSampler(indices=[4, 5, 6], batch_size=2)
    >>> list(sampler), len(sampler)
    ([[4, 5], [6]], 2)
    """

    def __init__(
        self,
        dataset: Any = None,
        indices: Sequence[int] | None = None,
        shuffle: bool = False,
        batch_size: int = 1,
        drop_last: bool = False,
    ) -> None:
        if (dataset is None) is (indices is None):
            raise ProgramError(
                "a BatchSampler needs either dataset or indices", hint="Give it the data set whose samples it numbers."
            )
        if batch_size < 1:
            raise ProgramError(f"batch_size must be at least 1, got {batch_size}")
        if indices is None:
            check_has_samples(dataset)
            indices = range(len(dataset))
        self.indices = list(indices)
        self.shuffle, self.batch_size, self.drop_last = shuffle, batch_size, drop_last

    def __iter__(self) -> Iterator[list[int]]:
        if self.shuffle:
            np.random.shuffle(self.indices)
        indices = list(self.indices)  # another pass may shuffle them before this one ends
        for begin in range(0, len(self) * self.batch_size, self.batch_size):
            yield indices[begin : begin + self.batch_size]

    def __len__(self) -> int:
        full, rest = divmod(len(self.indices), self.batch_size)
        return full + (rest > 0 and not self.drop_last)


def check_has_samples(dataset: Any) -> None:
    """Refuse what gives no samples by number."""
    if not (hasattr(type(dataset), "__getitem__") and hasattr(type(dataset), "__len__")):
        raise WrongTypeError(
            f"dataset must have samples by number and a length, got {dataset!r:.60}",
            hint="Derive it from fluid.io.Dataset, with __getitem__ and __len__; or use DataLoader.from_generator.",
        )
