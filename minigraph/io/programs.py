"""Whole programs in files: description, parameters, state of the optimizer and of clips."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from minigraph.errors import DataError, MismatchError, NotFoundError, ProgramError, WrongTypeError, warn
from minigraph.io import pickles, state_dicts, variables
from minigraph.io.inference_model import MODEL_FILENAME
from minigraph.io.marks import Mark, Reading, folder_mark
from minigraph.io.program_bytes import serialize_program
from minigraph.io.safetensors_files import SUFFIX, load_safetensors, save_safetensors
from minigraph.io.tensors import Tensor, read_tensors
from minigraph.io.variables import Arrays, assign, values_of, write_once
from minigraph.ir import Program, Variable
from minigraph.support.atomic_files import as_path, inside, is_left_over, read_file, write_files
from minigraph.support.public import public

__all__ = ["load", "load_program_state", "save", "set_program_state"]


@public
def save(program: Any, model_path: str | os.PathLike[str], protocol: int = 4) -> None:
    """Save a program and the values of its persistable variables, or, as in Paddle 2, a state dictionary.

    Parameters
    ----------
    program : Program or dict
        A program is saved as ``<model_path>.pdparams`` (its parameters), ``<model_path>.pdopt`` (its other persistable
        variables) and ``<model_path>.pdmodel`` (its description). Tensors, arrays, numbers and strings in plain
        containers are saved in exactly the file `model_path`.
    model_path : path
        If it ends in ``.safetensors``, that one file holds all persistable variables, or the dictionary, in that
        format, which is the recommended one.
    protocol : int
        The pickle protocol, 2 to 4, for a dictionary.

    Raises
    ------
    ProgramError
        If a variable has no value, or the path names no file.

    Examples
    --------
    >>> import minigraph as fluid, tempfile
    >>> main, startup, exe = fluid.Program(), fluid.Program(), fluid.Executor(fluid.CPUPlace())
    >>> with fluid.program_guard(main, startup), fluid.scope_guard(fluid.Scope()), tempfile.TemporaryDirectory() as tmp:
    ...     y = fluid.layers.fc(fluid.data("x", [None, 4]), 2)
    ...     _ = exe.run(startup)
    ...     fluid.save(main, tmp + "/net")
    ...     fluid.load(main, tmp + "/net")
    """
    if program is None:
        raise WrongTypeError(
            "save: program must be a Program, or an object to keep, got None",
            hint="Give fluid.default_main_program().",
        )
    if not isinstance(program, Program):
        state_dicts.save_object(program, model_path, protocol)
        return
    path = as_path(model_path, "model_path")
    if path.suffix == SUFFIX:
        values = values_of(variables.get_program_persistable_vars(program))
        write_once(program.list_vars(), lambda: save_safetensors(values, path))
        return
    states = {
        state_dicts.PARAMS_SUFFIX: values_of(variables.get_program_parameter(program)),
        state_dicts.OPTIMIZER_SUFFIX: values_of(filter(variables.is_belong_to_optimizer, program.list_vars())),
    }
    files = {state_dicts.with_suffix(path, suffix): [pickles.dump(arrays)] for suffix, arrays in states.items()}
    files[state_dicts.with_suffix(path, state_dicts.MODEL_SUFFIX)] = [serialize_program(program)]
    mark = Mark(state_dicts.prefix_mark(path))
    write_once(program.list_vars(), lambda: write_files(files, mark))


@public
def load(
    program: Any,
    model_path: str | os.PathLike[str] | None = None,
    executor: Any = None,
    var_list: Sequence[Variable] | None = None,
    *,
    keep_name_table: bool = False,
    return_numpy: bool = False,
) -> Any:
    """Load files of `save` into the global scope, or, as in Paddle 2, return the contents of a file.

    Parameters
    ----------
    program : Program or path
        The program whose persistable variables are set; or the path of a file, whose contents are returned.
    model_path : path
        With or without one of the suffixes; or a folder or a file of `save_vars`, `save_params` or `save_persistables`.
        A folder may lack some variables, which then keep their values; a warning names them.
    executor : Executor, optional
        The values go to its place. Default: each stays on the place where its variable is.
    var_list : list of Variable, optional
        The variables in a file of `save_vars`, whose tensors have no names.
    keep_name_table, return_numpy : bool
        When a path is read: keep the names of the parameters themselves, return arrays even in the imperative mode.

    Returns
    -------
    None or object
        For a path, the contents of the file, arrays as tensors in the imperative mode.

    Raises
    ------
    MissingFileError
        If there is no such file.
    DataError
        If a file is damaged, or holds anything but arrays and plain containers.
    NotFoundError
        If the file has nothing for a variable of the program; all such are listed.
    MismatchError
        If a shape or element type is not that of its variable. Nothing is loaded then.
    """
    if model_path is None and not isinstance(program, Program):
        return state_dicts.load_object(program, keep_name_table, return_numpy)
    variables.checked_program(program)
    place = variables.place_of(executor) if executor is not None else None
    path = _any_path(model_path)
    state = _read_state(path, var_list, program)
    if var_list is not None:
        wanted = list(var_list)
    elif path.is_dir():
        # A folder of save_params has no file for the state of the optimizer.
        wanted = [var for var in variables.get_program_persistable_vars(program) if var.name in state]
        _warn_unused(state, wanted)
        absent = [var.name for var in variables.get_program_persistable_vars(program) if var.name not in state]
        if absent:
            warn(f"{path} has no file for {', '.join(absent)}: they keep their values")
    else:
        wanted = variables.get_program_persistable_vars(program)
    missing = [var.name for var in wanted if var.name not in state]
    if missing:
        raise NotFoundError(
            f"{path} does not hold all variables of the program", details=missing,
            hint="Load it with the program that it was saved from.",
        )  # fmt: skip
    assign(wanted, _arrays_only(state, wanted), place)


@public
def load_program_state(
    model_path: str | os.PathLike[str], var_list: Sequence[Variable] | None = None
) -> dict[str, Any]:
    """The values in files of `save`, `save_vars`, `save_params` or `save_persistables`, by name.

    Parameters
    ----------
    model_path : path
        With or without one of the suffixes; or a folder with a file for each variable; or one file of several.
    var_list : list of Variable, optional
        The variables to read from a folder, or those in a file of several, whose tensors have no names.

    Raises
    ------
    MissingFileError
        If there is no such file.
    DataError
        If a file is damaged.
    """
    return _read_state(_any_path(model_path), var_list, None)


@public
def set_program_state(program: Program, state_dict: Mapping[str, Any]) -> None:
    """Set the persistable variables of a program, in the global scope, to the values in `state_dict`.

    Values of no variable cause a warning; variables without a value keep theirs.

    Raises
    ------
    MismatchError
        If a shape or element type is not that of its variable. Nothing is changed then.
    """
    variables.checked_program(program)
    if not isinstance(state_dict, Mapping):
        raise WrongTypeError(f"state_dict must be a dict, got {type(state_dict).__name__}")
    found = [var for var in variables.get_program_persistable_vars(program) if var.name in state_dict]
    assign(found, _arrays_only(state_dict, found))
    _warn_unused(state_dict, found)


def _read_state(path: Path, var_list: Iterable[Variable] | None, program: Program | None) -> dict[str, Any]:
    prefix = state_dicts.without_suffix(path)
    params = state_dicts.with_suffix(prefix, state_dicts.PARAMS_SUFFIX)
    if path.suffix == SUFFIX:
        return dict(load_safetensors(path))
    if params.exists():
        optimizer = state_dicts.with_suffix(prefix, state_dicts.OPTIMIZER_SUFFIX)
        needs_optimizer = program is not None and any(map(variables.is_belong_to_optimizer, program.list_vars()))
        reading = Reading(state_dicts.prefix_mark(prefix), is_one_save=True)
        state = state_dicts.read_pickle(params, "parameters", False, reading)
        if optimizer.exists() or needs_optimizer:
            state.update(state_dicts.read_pickle(optimizer, "the state of an optimizer", False, reading))
        reading.check()
        return state
    names = [var.name for var in var_list] if var_list is not None else None
    if path.is_dir():
        return dict(variables.read_separate_files(path, names if names is not None else _names_in(path)))
    if path.is_file():
        return dict(_read_combined(path, names))
    read_file(params, "parameters")  # raises: the file is missing
    raise AssertionError(params)


def _read_combined(path: Path, names: list[str] | None) -> Arrays:
    if names is None:
        raise ProgramError(
            f"{path} holds tensors without names",
            hint="Give var_list, the variables that were saved in it.",
        )
    tensors = read_tensors(read_file(path, f"{len(names)} variables"), str(path), len(names))
    return dict(zip(sorted(names), tensors, strict=True))


def _names_in(folder: Path) -> list[str]:
    """Names of the variables that have files in a folder, or below."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and not is_left_over(path))
    own = folder / MODEL_FILENAME, folder_mark(folder)
    names = [path.relative_to(folder).as_posix() for path in paths if path not in own]
    return [name for name in names if inside(folder, name)]


def _arrays_only(state: Mapping[str, Any], variables: Iterable[Variable]) -> Arrays:
    arrays: dict[str, Tensor] = {}
    problems = []
    for var in variables:
        value = state[var.name]
        if isinstance(value, np.ndarray) or hasattr(value, "__array__"):
            arrays[var.name] = np.asarray(value)
        else:
            problems.append(f"{var.name} is a {type(value).__name__}")
    if problems:
        raise MismatchError("what was saved for variables is no array", details=problems)
    return arrays


def _warn_unused(state: Mapping[str, Any], used: Iterable[Variable]) -> None:
    names = {var.name for var in used}
    unused = [name for name in state if name not in names]
    if unused:
        warn(f"the program has no variable for {', '.join(unused)}")


def _any_path(path: Any) -> Path:
    """`path`, which may be a folder."""
    if not os.fspath(path):
        raise DataError("model_path is empty")
    return Path(path)
