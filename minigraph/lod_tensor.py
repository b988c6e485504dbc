"""Tensors that note how their rows are grouped into sequences; see `minigraph.runtime.lod`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from minigraph.errors import ProgramError, WrongTypeError
from minigraph.runtime.lod import as_levels, check_levels, offsets_of
from minigraph.runtime.place import Place
from minigraph.runtime.scope_variable import LoDTensor
from minigraph.support.public import public

__all__ = ["LoDTensorArray", "create_lod_tensor", "create_random_int_lodtensor"]


@public
def create_lod_tensor(data: Any, recursive_seq_lens: Sequence[Sequence[int]], place: Place | None) -> LoDTensor:
    """A tensor with the lengths of the sequences that its rows make up.

    Parameters
    ----------
    data : ndarray, LoDTensor or list of lists of int
        Rows; or sequences of numbers, which become rows of one int64 each.
    recursive_seq_lens : sequence of sequence of int
        For each level, outermost first, the lengths of its sequences.
    place : Place

    Raises
    ------
    WrongTypeError
        If `data` is neither.
    ProgramError
        If the lengths do not fit the rows.

    Examples
    --------
    >>> tensor = create_lod_tensor([[1, 2, 3], [4, 5]], [[3, 2]], None)
    >>> tensor.shape(), tensor.lod()
    ([5, 1], [[0, 3, 5]])
    """
    if isinstance(data, list):
        found = [[len(sequence) for sequence in data]]
        if found != [list(level) for level in recursive_seq_lens]:
            raise ProgramError(f"create_lod_tensor: the sequences have lengths {found}, not {recursive_seq_lens!r:.80}")
        data = np.array([number for sequence in data for number in sequence], np.int64)[..., np.newaxis]
    elif not isinstance(data, np.ndarray | LoDTensor):
        raise WrongTypeError(
            f"create_lod_tensor takes an array, a LoDTensor or a list of sequences, got {type(data).__name__}"
        )
    tensor = LoDTensor()
    tensor.set(np.asarray(data), place)
    tensor.set_recursive_sequence_lengths(recursive_seq_lens)
    return tensor


@public
def create_random_int_lodtensor(
    recursive_seq_lens: Sequence[Sequence[int]], base_shape: Iterable[int], place: Place | None, low: int, high: int
) -> LoDTensor:
    """A tensor of random int64 from `low` to `high`, both included, with as many rows as the sequences have.

    Parameters
    ----------
    recursive_seq_lens, place
        As in `create_lod_tensor`.
    base_shape : iterable of int
        Of one row.
    """
    offsets = offsets_of(as_levels(recursive_seq_lens, "the lengths of sequences"))
    check_levels(offsets, None)
    if not offsets:
        raise ProgramError("create_random_int_lodtensor: no lengths of sequences are given")
    rows = np.random.randint(low, high + 1, [offsets[-1][-1], *base_shape]).astype(np.int64)
    return create_lod_tensor(rows, recursive_seq_lens, place)


@public
class LoDTensorArray(list[LoDTensor]):
    """A list of `LoDTensor`.

    Raises
    ------
    WrongTypeError
        When something else is put in.
    """

    def __init__(self, tensors: Iterable[LoDTensor] = ()) -> None:
        super().__init__()
        self.extend(tensors)

    def append(self, tensor: LoDTensor) -> None:
        super().append(_checked(tensor))

    def extend(self, tensors: Iterable[LoDTensor]) -> None:
        super().extend([_checked(tensor) for tensor in tensors])

    def insert(self, index: Any, tensor: LoDTensor) -> None:
        super().insert(index, _checked(tensor))

    def __setitem__(self, index: Any, tensor: Any) -> None:
        super().__setitem__(
            index, [_checked(each) for each in tensor] if isinstance(index, slice) else _checked(tensor)
        )


def _checked(tensor: Any) -> LoDTensor:
    if not isinstance(tensor, LoDTensor):
        raise WrongTypeError(
            f"a LoDTensorArray holds LoDTensors, got {type(tensor).__name__}",
            hint="Make one: tensor = LoDTensor(); tensor.set(array, place).",
        )  # fmt: skip
    return tensor
