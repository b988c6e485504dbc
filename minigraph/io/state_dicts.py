"""State dictionaries of the imperative mode in files: names to tensors, and other values of a training loop."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from minigraph.eager.guard import in_dynamic_mode
from minigraph.errors import DataError, ProgramError, WrongTypeError
from minigraph.io import pickles
from minigraph.io.marks import Mark, Reading, moment
from minigraph.io.safetensors_files import SUFFIX, load_safetensors, save_safetensors
from minigraph.ir import Parameter
from minigraph.ir.variable_operators import is_eager
from minigraph.support.atomic_files import as_path, read_file, write_files
from minigraph.support.public import public
from minigraph.tensor.creation import to_tensor

__all__ = ["load_dygraph", "save_dygraph"]

PARAMS_SUFFIX, OPTIMIZER_SUFFIX, MODEL_SUFFIX, MARK_SUFFIX = ".pdparams", ".pdopt", ".pdmodel", ".pdmark"
NAME_TABLE = "StructuredToParameterName@@"
"""The key under which a file keeps the names of the tensors themselves, by their names in the dictionary."""

_SLICES = "UnpackBigParamInfor@@"


@public
def save_dygraph(state_dict: Mapping[str, Any], model_path: str | os.PathLike[str]) -> None:
    """Save the state of a layer as ``<model_path>.pdparams``, or that of an optimizer as ``<model_path>.pdopt``.

    Parameters
    ----------
    state_dict : mapping
        Result of a ``state_dict()``. It belongs to a layer if it holds a parameter.
    model_path : path
        Without the suffix. A path that ends in ``.safetensors`` is written in that format instead.

    Raises
    ------
    ProgramError
        If there is nothing to save, or the path names no file.

    Examples
    --------
    >>> import minigraph as fluid, tempfile
    >>> with fluid.dygraph.guard(), tempfile.TemporaryDirectory() as folder:
    ...     layer = fluid.dygraph.Linear(2, 1)
    ...     fluid.save_dygraph(layer.state_dict(), folder + "/net")
    ...     params, optimizer = fluid.load_dygraph(folder + "/net")
    ...     layer.set_dict(params)
    >>> list(params), optimizer
    (['weight', 'bias'], None)
    """
    if not state_dict:
        raise ProgramError("state_dict is empty, there is nothing to save")
    path = as_path(model_path, "model_path")
    if path.suffix == SUFFIX:
        save_safetensors(state_dict, path)
        return
    # As in fluid: the state of an optimizer has no parameters.
    is_layer = any(isinstance(value, Parameter) for value in state_dict.values())
    suffix = PARAMS_SUFFIX if is_layer else OPTIMIZER_SUFFIX
    # Layer and optimizer are saved by two calls; their marks tell whether both are of one moment.
    partners = [with_suffix(path, each) for each in (PARAMS_SUFFIX, OPTIMIZER_SUFFIX) if each != suffix]
    mark = Mark(prefix_mark(path), moment(), partners)
    write_files({with_suffix(path, suffix): [pickles.dump(_with_name_table(state_dict))]}, mark)


@public
def load_dygraph(
    model_path: str | os.PathLike[str], keep_name_table: bool = False
) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Load files of `save_dygraph`, of minigraph or Paddle 1.8.5: the state of the layer and that of the optimizer.

    Parameters
    ----------
    model_path : path
        With or without one of the suffixes. A file that ends in ``.safetensors`` is the state of a layer.
    keep_name_table : bool
        Keep the names of the parameters themselves, under ``StructuredToParameterName@@``.

    Returns
    -------
    tuple of dict
        Names to arrays. The second is None if no ``.pdopt`` file is there.

    Raises
    ------
    MissingFileError
        If there is no file with the state of a layer.
    DataError
        If a file is damaged, or holds anything but arrays and plain containers.
    """
    path = as_path(model_path, "model_path")
    if path.suffix == SUFFIX:
        return dict(load_safetensors(path)), None
    prefix = without_suffix(path)
    reading = Reading(prefix_mark(prefix), is_one_save=True)
    params = read_pickle(with_suffix(prefix, PARAMS_SUFFIX), "the state of a layer", keep_name_table, reading)
    optimizer = with_suffix(prefix, OPTIMIZER_SUFFIX)
    if not optimizer.exists():
        return params, None
    state = read_pickle(optimizer, "the state of an optimizer", keep_name_table, reading)
    reading.check()
    return params, state


def save_object(obj: Any, path: str | os.PathLike[str], protocol: int = 4) -> None:
    """Write tensors, arrays, numbers and strings in any plain container to exactly this path; see `minigraph.save`."""
    target = as_path(path, "path")
    if target.suffix == SUFFIX:
        if not isinstance(obj, Mapping):
            raise WrongTypeError(f"a safetensors file holds a dict, not a {type(obj).__name__}")
        save_safetensors(obj, target)
        return
    if isinstance(protocol, bool) or not isinstance(protocol, int) or not 2 <= protocol <= 4:
        raise ProgramError(f"the protocol of a pickle must be 2, 3 or 4, got {protocol!r}")
    is_state = isinstance(obj, Mapping) and obj and all(is_eager(value) for value in obj.values())
    value = _with_name_table(obj) if is_state else _as_arrays(obj)
    mark = Mark(prefix_mark(without_suffix(target)), moment()) if without_suffix(target) != target else None
    write_files({target: [pickles.dump(value, protocol)]}, mark)


def load_object(path: str | os.PathLike[str], keep_name_table: bool = False, return_numpy: bool = False) -> Any:
    """The contents of a file of `save_object`; see `minigraph.load`."""
    source = as_path(path, "path")
    if source.suffix == SUFFIX:
        found: Any = load_safetensors(source)
    else:
        found = _without_name_table(pickles.load(read_file(source, "a saved object"), str(source)), keep_name_table)
    if return_numpy or not in_dynamic_mode():
        return found
    return _each(lambda leaf: to_tensor(leaf) if isinstance(leaf, np.ndarray) else leaf, found)


def read_pickle(path: Path, what: str, keep_name_table: bool, reading: Reading) -> dict[str, Any]:
    """The dictionary in a ``.pdparams`` or ``.pdopt`` file."""
    found = _without_name_table(pickles.load(reading.read(path, what), str(path)), keep_name_table)
    if not isinstance(found, dict) or not all(isinstance(name, str) for name in found):
        raise DataError(f"{path} holds a {type(found).__name__}, not names and values")
    return found


def with_suffix(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def prefix_mark(prefix: Path) -> Path:
    """The mark of the files that have `prefix` and a suffix."""
    return with_suffix(prefix, MARK_SUFFIX)


def without_suffix(path: Path) -> Path:
    """`path` without a suffix that saving has added."""
    known = path.suffix in (PARAMS_SUFFIX, OPTIMIZER_SUFFIX, MODEL_SUFFIX)
    return path.with_suffix("") if known else path


def _with_name_table(state: Mapping[str, Any]) -> dict[str, Any]:
    table = {name: value.name for name, value in state.items() if is_eager(value)}
    return {**_as_arrays(state), NAME_TABLE: table}


def _without_name_table(found: Any, keep: bool) -> Any:
    if isinstance(found, dict):
        if _SLICES in found:
            raise DataError("the file holds parameters cut into slices, which is not read")
        if not keep:
            found.pop(NAME_TABLE, None)
    return found


def _as_arrays(value: Any) -> Any:
    return _each(lambda leaf: leaf.numpy() if is_eager(leaf) else leaf, value)


def _each(function: Callable[[Any], Any], value: Any) -> Any:
    """`value` with `function` of everything in its plain containers."""
    if isinstance(value, Mapping):
        return {key: _each(function, item) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_each(function, item) for item in value)
    return function(value)
