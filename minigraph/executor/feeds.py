"""Check feeds: names, shapes and dtypes against what the program declares."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np

from minigraph.errors import FeedError, WrongTypeError, suggest, warn
from minigraph.ir import Block, Program, Variable
from minigraph.lowering.lengths import fed_levels, level_name
from minigraph.runtime.place import Place
from minigraph.runtime.scope import Scope
from minigraph.runtime.scope_variable import LoDTensor, is_rows, moved, type_of
from minigraph.support.interrupts import is_interrupt
from minigraph.types import TensorType, same_shape

T = TypeVar("T")


_FEW = 16
"""Maximum number of arrays fed that are looked at for gaps: 100 ns for each."""


def prepare_feed(program: Program, feed: Any, place: Place, scope: Scope | None = None) -> dict[str, Any]:
    """Arrays of the place by name, in order of the names, each checked against the variable it is for.

    Parameters
    ----------
    feed : mapping or a list holding one, or None
        Name to an array or what NumPy can make one of, a number or a list of numbers.
    scope : Scope, optional
        Holds persistable variables whose sizes only a run knows: a plan depends on them as on what is fed.

    Raises
    ------
    FeedError
        A shape that does not fit, or a dtype whose conversion would change values.
    """
    feed = feed_of_one(feed)
    block = program.global_block()
    arrays = {}
    for name, value in feed.items():
        var = block.vars.get(name)
        if var is None:
            # A program for tests, or one that was loaded, may lack what is fed to train.
            hint = _names_to_feed(str(name), [v.name for v in block.vars.values() if v.is_data])
            warn(f"the program has no variable {name!r} to feed, which is left out. {hint}", registry=_WARNED)
            continue
        arrays[name] = _as_array(var, value, place)
        if isinstance(value, LoDTensor):
            arrays.update(offsets_by_level(name, value))
    if scope is not None:
        arrays.update(_state_of_any_size(block, arrays, scope, place))
    # In one order, because the order is part of the key of a plan.
    return dict(sorted(arrays.items()))


def without_gaps(feeds: dict[str, Any]) -> dict[str, Any]:
    """The arrays of a feed. Views of parts of rows are copied, unless they are many.

    Tables of C calls take no such array, and products copy it each time.
    """
    if len(feeds) > _FEW or not any(map(_has_gaps, feeds.values())):
        return feeds
    return {name: array.copy() if _has_gaps(array) else array for name, array in feeds.items()}


def _has_gaps(array: Any) -> bool:
    return type(array) is np.ndarray and not array.flags.forc


def with_batches(
    program: Program,
    feeds: list[dict[str, Any]],
    run: Callable[[list[dict[str, Any]], Callable[[], None]], T],
) -> T:
    """Run on the feed of each place and batches of the program's loaders, by ``run(feeds, go_on)``.

    `run` calls ``go_on()`` when it has stored its results: then the loaders drop the batches.
    """
    for loader in program.loaders:
        feeds = loader.fill(feeds)

    def go_on() -> None:
        for loader in program.loaders:
            loader.go_on()

    try:
        return run(feeds, go_on)
    except Exception as error:
        # A batch that makes a run fail is gone; after an interrupt the same batch comes again.
        if not is_interrupt(error):
            go_on()
        raise


def _state_of_any_size(block: Block, fed: Mapping[str, Any], scope: Scope, place: Place) -> dict[str, Any]:
    """Values in `scope` of persistable variables whose sizes are not declared, with their lengths."""
    names = {
        name for name, var in block.vars.items()
        if var.persistable and name not in fed and var.shape is not None and (-1 in var.shape or var.lod_level)
    }  # fmt: skip
    arrays = {}
    for name in sorted(_needed(block, names)):
        holder = scope.find_var(name)
        if holder is not None and holder.value is not None and not is_rows(holder.value):
            _check_shape(block.vars[name], holder.value.shape)
            arrays[name] = moved(holder.value, holder.place, place)
            arrays.update(offsets_by_level(name, LoDTensor(holder)))
    return arrays


def _needed(block: Block, names: set[str]) -> set[str]:
    """The `names` that no operator writes before one reads them."""
    found, left = set(names), set(names)
    for op in block.ops if names else ():
        left.difference_update(op.input_arg_names)
        found.difference_update(left.intersection(op.output_arg_names))
    return found


def offsets_by_level(name: str, tensor: LoDTensor) -> dict[str, Any]:
    """The offsets of a tensor's sequences by level, on the host for every place: kernels decide by them."""
    if not tensor.has_valid_recursive_sequence_lengths():
        raise FeedError(
            f"{name}: sequences of lengths {tensor.recursive_sequence_lengths()!s:.80} do not make up "
            f"{tensor.shape()[0]} rows",
            hint="Set the lengths after the array: tensor.set_recursive_sequence_lengths([[...]]).",
        )
    return {level_name(name, level): np.array(offsets, np.int64) for level, offsets in enumerate(tensor.lod())}


def feed_of_one(feed: Any) -> Mapping[str, Any]:
    """Return the feed of one place as a mapping; given None, a mapping, or a list of one mapping as fluid allows."""
    if isinstance(feed, list | tuple) and len(feed) == 1:
        feed = feed[0]
    if feed is not None and not isinstance(feed, Mapping):
        raise WrongTypeError(f"feed must be a dict from names to arrays, got {type(feed).__name__}")
    return feed or {}


def types_of(feeds: Mapping[str, Any]) -> dict[str, TensorType]:
    """The types of checked arrays by name; what has lengths has any number of rows."""
    types = {name: type_of(array) for name, array in feeds.items()}
    for name, levels in fed_levels(types).items():
        types[name] = types[name].with_shape((-1, *types[name].shape[1:]))
        types.update({level: types[level].with_shape((-1,)) for level in levels})
    return types


def _names_to_feed(name: str, data: list[str]) -> str:
    """A hint that suggests the nearest names, or names that differ in case only, and lists what can be fed."""
    near = suggest(name, data) or suggest(name.lower(), [each for each in data if each.lower() == name.lower()])
    listed = ", ".join(data[:10]) + (", ..." if len(data) > 10 else "")
    return f"{near} It takes {listed}.".strip() if data else "The program has no data to feed: leave it out."


def _as_array(var: Variable, value: Any, place: Place) -> Any:
    # The type is looked at first because NumPy imports np.ma, 7 ms, when it is first named.
    if type(value) is not np.ndarray and isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        raise FeedError(
            f"{var.name}: the array fed is masked at {np.ma.count_masked(value)} of {value.size} elements, and a "
            "program knows no masks",
            hint="Feed array.filled(0.0), or the mask beside it, or array.data to ignore the mask.",
        )
    if type(value) is np.ndarray or hasattr(value, "__cuda_array_interface__"):
        array = value
    elif hasattr(value, "__array__"):
        array = np.asarray(value)
    else:
        array = _from_python(var, value)
    # Kernels, compiled ones above all, know the processor's byte order only.
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    if array.dtype != var.dtype.numpy:
        array = _convert(var, array)
    if array.ndim == 0 and var.shape != ():
        array = array.reshape(1)  # fluid has no rank 0
    if var.shape is not None and (var.is_data or var.persistable):
        _check_shape(var, array.shape)
    return place.to_device(array)


def _from_python(var: Variable, value: Any) -> np.ndarray[Any, Any]:
    """A number or a list of numbers as an array of the declared dtype.

    Fractions are rounded to that dtype. Integers that it cannot hold keep theirs, so that the check of dtypes refuses
    them.
    """
    try:
        array = np.asarray(value)
    except ValueError:
        raise FeedError(
            f"{var.name}: the list fed is not rectangular", details=[f"{value!r:.80}"],
            hint="Pad its rows to one length.",
        ) from None  # fmt: skip
    if array.dtype.kind not in "biuf":
        raise FeedError(
            f"{var.name}: cannot be fed from {type(value).__name__}: {value!r:.80}",
            hint=f"Feed an array of {var.dtype}, or a list of numbers.",
        )  # fmt: skip
    # Python's fractions are float64 for want of another type; an integer variable refuses them below.
    if array.dtype.kind == "f":
        return array.astype(var.dtype.numpy) if var.dtype.is_floating else array
    converted = _unchanged(array, var.dtype.numpy)
    return array if converted is None else converted


def _convert(var: Variable, array: Any) -> Any:
    """`array` in the declared dtype, if that changes no value and the variable does not insist on its dtype."""
    expected = var.dtype.numpy
    # `layers.data` is lenient in fluid, and `fluid.data` is not.
    if not var.need_check_feed and (np.can_cast(array.dtype, expected, "same_kind") or array.dtype.kind in "biu"):
        converted = _unchanged(array, expected)
        if converted is not None:
            return converted
    raise FeedError(
        f"{var.name} is {var.dtype} but {array.dtype} was fed",
        details=[f"declared {var}", f"fed {array.dtype}{list(array.shape)}"],
        hint=f"Feed {var.name}.astype('{expected.name}')."
        if expected.kind == "f"
        else f"Convert it to {expected.name}.",
    )


def _unchanged(array: Any, dtype: np.dtype[Any]) -> Any:
    """`array` as `dtype`; None if the conversion changes a value, as converting it back shows."""
    with np.errstate(all="ignore"):
        converted = array.astype(dtype)
        back = converted.astype(array.dtype)
    # NaN equals nothing, not even itself.
    same = (back == array) | ((back != back) & (array != array))
    if array.dtype.kind in "iu":
        same &= (converted < 0) == (array < 0)  # 2**64 - 1 becomes -1 and back
        if dtype.kind == "f":  # a rounded 2**63 is 2**63 - 1 again where the processor converts to the nearest integer
            same &= converted < np.ldexp(1.0, np.iinfo(array.dtype).max.bit_length())
    return converted if bool(same.all()) else None


def _check_shape(var: Variable, shape: tuple[int, ...]) -> None:
    """Raise unless the declared shape fits.

    Warn where operators may accept another shape and fluid leaves it to them: always for `layers.data`, and for `data`
    where the last dimensions are missing, as when a label [None, 1] is fed as a vector.
    """
    declared = var.shape
    assert declared is not None
    if same_shape(shape, declared):
        return
    message = f"{var.name} is declared {list(declared)} but {list(shape)} was fed"
    lacks_last = var.is_data and len(shape) > 0 and same_shape(shape, declared[: len(shape)])
    if not lacks_last and (var.need_check_feed or not var.is_data):
        raise FeedError(
            message, details=[f"declared {var}"], hint="-1 stands for any size; the other dimensions must be equal."
        )
    warn(f"{message}: the program runs if each operator accepts it", registry=_WARNED)


_WARNED: dict[Any, Any] = {}
"""Warnings of feeds that have been shown, as Python keeps them."""
