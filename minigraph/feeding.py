"""What may be fed: names, shapes and dtypes against what the program declares."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from minigraph.errors import FeedError, WrongTypeError, suggest
from minigraph.ir import Program, Variable
from minigraph.place import Place
from minigraph.scope import LoDTensor
from minigraph.types import same_dim


def prepare_feed(program: Program, feed: Any, place: Place) -> dict[str, Any]:
    """Arrays of the place by name, each checked against the variable it is for.

    Parameters
    ----------
    feed : mapping or a list holding one, or None
        Name to an array, a `LoDTensor`, a number or a list of numbers.

    Raises
    ------
    FeedError
        An unknown name, a shape that does not fit, or a dtype whose conversion would change values.
    """
    if feed is None:
        return {}
    if isinstance(feed, list | tuple) and len(feed) == 1:
        feed = feed[0]
    if not isinstance(feed, Mapping):
        raise WrongTypeError(f"feed must be a dict from names to arrays, got {type(feed).__name__}")
    block = program.global_block()
    arrays = {}
    for name, value in feed.items():
        var = block.vars.get(name)
        if var is None:
            raise FeedError(
                f"the program has no variable {name!r} to feed",
                hint=suggest(str(name), (v.name for v in block.vars.values() if v.is_data)),
            )
        arrays[name] = _as_array(var, value, place)
    return arrays


def _as_array(var: Variable, value: Any, place: Place) -> Any:
    expected = var.dtype.numpy
    if isinstance(value, LoDTensor):
        value = np.asarray(value)
    if not hasattr(value, "dtype"):
        value = _from_python(var, value)
    if value.dtype != expected:
        value = _convert(var, value, expected)
    if var.shape is not None and (var.is_data or var.persistable):
        _check_shape(var, value.shape)
    return place.to_device(value)


def _from_python(var: Variable, value: Any) -> np.ndarray[Any, Any]:
    """A number or a list of numbers; a literal has no dtype of its own, so floats round to the declared one."""
    try:
        array = np.asarray(value)
    except ValueError:
        raise FeedError(f"{var.name}: the list fed is not rectangular") from None
    if array.dtype.kind not in "biuf":
        raise FeedError(f"{var.name}: cannot be fed from {type(value).__name__}: {value!r:.80}")
    if array.dtype.kind == "f" and var.dtype.is_floating:
        array = array.astype(var.dtype.numpy)
    return array.reshape(1) if array.ndim == 0 else array


def _convert(var: Variable, array: Any, expected: np.dtype[Any]) -> Any:
    """`array` as `expected`, if that changes no value and the variable does not insist on its dtype."""
    if (not var.need_check_feed and np.can_cast(array.dtype, expected, "same_kind")) or array.dtype.kind in "biu":
        converted = array.astype(expected)
        if not var.need_check_feed and _same_values(converted, array):
            return converted
    raise FeedError(
        f"{var.name} is {var.dtype} but {array.dtype} was fed",
        details=[f"declared {var}", f"fed {array.dtype}{list(array.shape)}"],
        hint=f"Feed {var.name}.astype('{expected.name}')."
        if expected.kind == "f"
        else f"Convert it to {expected.name}.",
    )


def _same_values(converted: Any, original: Any) -> bool:
    return bool(((converted == original) | ((converted != converted) & (original != original))).all())


def _check_shape(var: Variable, shape: tuple[int, ...]) -> None:
    declared = var.shape
    assert declared is not None
    if len(shape) != len(declared) or not all(map(same_dim, declared, shape)):
        raise FeedError(
            f"{var.name} is declared {list(declared)} but {list(shape)} was fed",
            details=[f"declared {var}"],
            hint="-1 stands for any size; the other dimensions must be equal.",
        )
