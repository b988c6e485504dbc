"""Loaders of data sets: batches that a thread reads ahead, for a loop over them or for the runs of a program.

Batches come in the order of the reader. Each is a copy that nothing else writes to. An error in a reader is raised
where its batch would have been taken.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from minigraph.errors import ProgramError, WrongTypeError
from minigraph.ir import Variable
from minigraph.ir.default_programs import is_imperative
from minigraph.reader import Reader, xmap_readers
from minigraph.reader.data_sets import BatchSampler, check_has_samples
from minigraph.reader.generator_loader import GeneratorLoader
from minigraph.reader.slot_files import SlotFiles
from minigraph.support.public import public

__all__ = ["DataLoader", "default_collate_fn"]


@public
class DataLoader(GeneratorLoader):
    """Batches of the samples of a data set, or of a generator: `from_generator`.

    Parameters
    ----------
    dataset : Dataset
        Gives the sample of a number.
    feed_list : sequence of Variable, optional
        Variables to feed; needed where an iteration gives feeds.
    places : Place or sequence of Place
        Each iteration gives a batch for each; not needed in the imperative mode.
    return_list : bool
        As in `from_generator`.
    batch_sampler : BatchSampler, optional
        Gives the numbers of the samples of each batch; takes the place of the three parameters that follow.
    batch_size : int
    shuffle : bool
        Whether each epoch has another order, which NumPy's global generator draws, as in fluid.
    drop_last : bool
        Whether to leave out a last batch that is not full.
    collate_fn : callable, optional
        Makes the fields of a batch of a list of samples. Default: `default_collate_fn`.
    num_workers : int
        Number of threads that make batches; the order of batches does not depend on it. Fluid starts processes.
    use_buffer_reader, use_shared_memory, timeout, worker_init_fn
        Accepted because fluid has them. A thread always reads ahead, and there are no processes.

    Raises
    ------
    ProgramError
        If there are no variables to feed or no places, or if the batches are described twice.
    WrongTypeError
        If `dataset` gives no samples by number.

    Examples
    --------
    >>> import minigraph as fluid, numpy as np
    >>> class Squares(fluid.io.Dataset):
    ...     def __getitem__(self, idx):
    ...         return np.array([idx * idx], "float32")
    ...
    ...     def __len__(self):
    ...         return 5
    >>> with fluid.dygraph.guard():
    ...     loader = fluid.io.DataLoader(Squares(), batch_size=2)
    ...     [fields[0].numpy().ravel().tolist() for fields in loader]
    [[0.0, 1.0], [4.0, 9.0], [16.0]]
    """

    def __init__(
        self,
        dataset: Any,
        feed_list: Sequence[Variable] | None = None,
        places: Any = None,
        return_list: bool = False,
        batch_sampler: BatchSampler | None = None,
        batch_size: int = 1,
        shuffle: bool = False,
        drop_last: bool = False,
        collate_fn: Callable[[list[Any]], Sequence[Any]] | None = None,
        num_workers: int = 0,
        use_buffer_reader: bool = True,
        use_shared_memory: bool = True,
        timeout: float = 0,
        worker_init_fn: Callable[[int], Any] | None = None,
    ) -> None:
        check_has_samples(dataset)
        if batch_sampler is None:
            batch_sampler = BatchSampler(dataset, shuffle=shuffle, batch_size=batch_size, drop_last=drop_last)
        elif batch_size != 1 or shuffle or drop_last:
            raise ProgramError(
                "DataLoader: batch_size, shuffle and drop_last are those of batch_sampler",
                hint="Leave them out, or leave batch_sampler out.",
            )
        if num_workers < 0:
            raise ProgramError(f"DataLoader: num_workers must not be negative, got {num_workers}")
        # Lists need no variables; the imperative mode gives lists whatever `return_list` says.
        is_list = return_list or is_imperative()
        super().__init__(feed_list, 2 * max(1, num_workers), return_list=is_list, needs_variables=not is_list)
        self.dataset, self.batch_sampler, self.collate_fn = dataset, batch_sampler, collate_fn
        read: Reader[Sequence[Any]] = lambda: map(self._batch_of, iter(self.batch_sampler))  # noqa: E731
        if num_workers:
            read = xmap_readers(self._batch_of, lambda: iter(self.batch_sampler), num_workers, 2 * num_workers, True)
        self.set_batch_generator(read, places)

    def _batch_of(self, indices: Sequence[int]) -> Sequence[Any]:
        return (self.collate_fn or default_collate_fn)([self.dataset[index] for index in indices])

    def __len__(self) -> int:
        return len(self.batch_sampler)

    @staticmethod
    def from_generator(
        feed_list: Sequence[Variable] | None = None,
        capacity: int | None = None,
        use_double_buffer: bool = True,
        iterable: bool = True,
        return_list: bool = False,
        use_multiprocess: bool = False,
        drop_last: bool = True,
    ) -> GeneratorLoader:
        """A loader without data; one of its methods ``set_...`` sets them.

        Parameters
        ----------
        feed_list : sequence of Variable
            Variables to feed; not needed in the imperative mode.
        capacity : int
            Maximum number of batches read ahead.
        iterable : bool
            Whether to loop over the loader; else it feeds the default main program.
        return_list : bool
            Whether an iteration gives ``[[tensor, ...]]``, else ``[{name: tensor, ...}]``: a list with one entry for
            each place. In the imperative mode it gives the tensors, ``[tensor, ...]``.
        use_double_buffer, use_multiprocess : bool
            Accepted because fluid has them. A thread always reads ahead.
        drop_last : bool
            Whether to leave out the last batches if there are fewer than places.
        """
        return GeneratorLoader(feed_list, capacity, iterable, return_list, drop_last)

    @staticmethod
    def from_dataset(dataset: SlotFiles, places: Any, drop_last: bool = True) -> GeneratorLoader:
        """An iterable loader of the batches of a data set of slot files.

        Parameters
        ----------
        dataset : InMemoryDataset or QueueDataset
        places : Place or sequence of Place
            Each iteration gives a batch for each.
        drop_last : bool
            Whether to leave out a last batch that is not full.

        Raises
        ------
        WrongTypeError
            If `dataset` is no data set of slot files.
        """
        if not isinstance(dataset, SlotFiles):
            raise WrongTypeError(
                f"from_dataset: dataset must be one of slot files, got {dataset!r:.60}",
                hint="Make it with fluid.DatasetFactory().create_dataset().",
            )
        loader = GeneratorLoader(dataset.variables, 1, drop_last=drop_last)
        return loader.set_batch_generator(lambda: (list(feed.values()) for feed in dataset.batches(drop_last)), places)


@public
def default_collate_fn(batch: Sequence[Any]) -> list[np.ndarray[Any, Any]]:
    """The fields of samples, each stacked.

    Parameters
    ----------
    batch : sequence of samples
        A sample is a sequence of fields, or an array, which is the only field.

    Examples
    --------
    >>> default_collate_fn([[np.zeros(2), 1], [np.ones(2), 2]])
    [array([[0., 0.],
           [1., 1.]]), array([1, 2])]
    """
    if isinstance(batch[0], np.ndarray):
        return [np.stack(batch)]
    return [np.stack(column) for column in zip(*batch, strict=True)]
