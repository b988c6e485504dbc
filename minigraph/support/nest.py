"""Nested lists, tuples and dictionaries of variables, as the functions given to control flow take and return them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any


def is_nested(seq: Any) -> bool:
    return isinstance(seq, list | tuple | Mapping)


def flatten(nest: Any) -> list[Any]:
    """The leaves of a structure, from left to right; dictionaries in the order of their keys.

    Examples
    --------
    >>> flatten([1, (2, {"b": 4, "a": 3})])
    [1, 2, 3, 4]
    """
    if not is_nested(nest):
        return [nest]
    return [leaf for item in _items(nest) for leaf in flatten(item)]


def pack(structure: Any, leaves: Sequence[Any]) -> Any:
    """A structure like `structure` that holds `leaves`.

    Examples
    --------
    >>> pack([1, (2, {"b": 4, "a": 3})], "wxyz")
    ['w', ('x', {'a': 'y', 'b': 'z'})]
    """
    return _packed(structure, iter(leaves))


def map_structure(func: Callable[..., Any], structure: Any, *others: Any) -> Any:
    """`func` of each leaf and its counterparts in `others`, in the structure of the first."""
    return pack(structure, [func(*leaves) for leaves in zip(flatten(structure), *map(flatten, others), strict=True)])


def difference(a: Any, b: Any) -> str:
    """Describe the difference of two structures; empty if they do not differ.

    Examples
    --------
    >>> difference([1, 2], [1, [2]]), difference([1, 2], (3, 4))
    ('one variable and 1 of them', '')
    """
    if not is_nested(a) or not is_nested(b):
        return "" if is_nested(a) == is_nested(b) else f"{_size(a)} and {_size(b)}"
    if isinstance(a, Mapping) and isinstance(b, Mapping) and sorted(a) != sorted(b):
        return f"the keys {sorted(a)} and {sorted(b)}"
    if isinstance(a, Mapping) != isinstance(b, Mapping):
        return f"a {type(a).__name__} and a {type(b).__name__}"
    if len(a) != len(b):
        return f"{len(a)} and {len(b)} variables"
    return next(filter(None, map(difference, _items(a), _items(b))), "")


def _items(structure: Any) -> list[Any]:
    return [structure[key] for key in sorted(structure)] if isinstance(structure, Mapping) else list(structure)


def _packed(structure: Any, leaves: Iterator[Any]) -> Any:
    if not is_nested(structure):
        return next(leaves)
    if isinstance(structure, Mapping):
        return {key: _packed(structure[key], leaves) for key in sorted(structure)}
    items = [_packed(item, leaves) for item in structure]
    return type(structure)(*items) if hasattr(structure, "_fields") else type(structure)(items)


def _size(structure: Any) -> str:
    return f"{len(structure)} of them" if is_nested(structure) else "one variable"
