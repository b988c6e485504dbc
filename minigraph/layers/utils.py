"""Nested structures of variables, and arguments that are a number or several, under fluid's names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from minigraph.errors import ProgramError, WrongTypeError
from minigraph.ir import Variable
from minigraph.support.nest import difference, flatten, is_nested, map_structure, pack
from minigraph.support.public import public

__all__ = [
    "assert_same_structure", "convert_to_list", "copy_mutable_vars", "flatten", "hold_mutable_vars", "is_sequence",
    "map_structure", "pack_sequence_as",
]  # fmt: skip

is_sequence = is_nested


@public
def convert_to_list(value: Any, n: int, name: str, dtype: type = int) -> list[Any]:
    """`n` numbers: `value` repeated if it is one, else its elements.

    Raises
    ------
    WrongTypeError
        If `value` is neither a `dtype` nor `n` numbers that can become one.

    Examples
    --------
    >>> convert_to_list(3, 2, "stride"), convert_to_list((1, 2), 2, "stride")
    ([3, 3], [1, 2])
    """
    if isinstance(value, dtype):
        return [value] * n
    try:
        found = list(value)
        for each in found:
            dtype(each)
    except (TypeError, ValueError):
        raise WrongTypeError(f"{name} must be {n} of {dtype.__name__}, got {value!r:.60}") from None
    if len(found) != n:
        raise WrongTypeError(f"{name} must have {n} elements, got {len(found)}: {value!r:.60}")
    return found


@public
def pack_sequence_as(structure: Any, flat_sequence: Sequence[Any]) -> Any:
    """A structure like `structure` that holds the elements of `flat_sequence`, in the order of `flatten`."""
    if len(flatten(structure)) != len(flat_sequence):
        raise ProgramError(f"a structure of {len(flatten(structure))} cannot hold {len(flat_sequence)} elements")
    return pack(structure, flat_sequence)


def hold_mutable_vars(structure: Any) -> bool:
    """Whether a list or a dictionary is among the elements of `structure`."""
    return any(is_nested(each) for each in structure)


def copy_mutable_vars(structure: Any) -> Any:
    """A copy of `structure` that holds the same variables in new lists and dictionaries."""
    return map_structure(lambda each: each, structure)


@public
def assert_same_structure(nest1: Any, nest2: Any, check_types: bool = True) -> None:
    """Raise unless two structures are nested alike and, with `check_types`, of the same kinds of sequences.

    Raises
    ------
    ProgramError
        If they are not.
    """
    different = difference(nest1, nest2)
    if not different and check_types and is_nested(nest1) and type(nest1) is not type(nest2):
        different = f"a {type(nest1).__name__} and a {type(nest2).__name__}"
    if different:
        raise ProgramError(f"the two structures differ: {different}")


def _contain_var(list_or_tuple: Sequence[Any]) -> bool:
    """Whether a variable is among the elements."""
    return any(isinstance(each, Variable) for each in list_or_tuple)


def _is_symmetric_padding(padding: Sequence[int], data_dim: int) -> bool:
    """Whether each of `data_dim` dimensions has as much padding before as after: one number each, or two that agree."""
    if len(padding) not in (data_dim, 2 * data_dim):
        raise ProgramError(f"padding must have {data_dim} or {2 * data_dim} elements, got {len(padding)}")
    return len(padding) == data_dim or list(padding[::2]) == list(padding[1::2])
