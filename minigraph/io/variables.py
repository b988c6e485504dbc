"""Variables of a scope in files: one file each, named like the variable, or all in one.

Loading checks everything before it changes anything: names, shapes and element types.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from minigraph.errors import (
    DataError,
    MismatchError,
    MissingFileError,
    ProgramError,
    WrongTypeError,
    caller_site,
    warn,
)
from minigraph.executor.compiled_program import CompiledProgram
from minigraph.io.marks import Mark, Reading, folder_mark
from minigraph.io.tensors import Tensor, read_tensors, tensor_chunks
from minigraph.ir import Parameter, Program, Variable, VarKind
from minigraph.ir.default_programs import default_main_program
from minigraph.passes.ranks.shard_state import Sharded, sharded_state
from minigraph.runtime.place import Place
from minigraph.runtime.scope import global_scope
from minigraph.runtime.scope_variable import LoDTensor
from minigraph.support.atomic_files import Chunks, as_path, inside, write_files
from minigraph.support.communicator import Call, check_size, current
from minigraph.support.interrupts import deferred
from minigraph.support.public import public
from minigraph.types import TensorType, as_dtype

__all__ = [
    "get_parameter_value", "get_parameter_value_by_name", "get_program_parameter", "get_program_persistable_vars",
    "is_belong_to_optimizer", "is_parameter", "is_persistable", "load_params", "load_persistables", "load_vars",
    "save_params", "save_persistables", "save_vars",
]  # fmt: skip

Arrays = Mapping[str, Tensor]


@public
def is_parameter(var: Variable) -> bool:
    """Whether a variable is a parameter."""
    return isinstance(var, Parameter)


@public
def is_persistable(var: Variable) -> bool:
    """Whether a variable keeps its value in the scope from run to run."""
    return var.persistable and var.kind not in (VarKind.FEED_MINIBATCH, VarKind.FETCH_LIST)


@public
def is_belong_to_optimizer(var: Variable) -> bool:
    """Whether a variable is persistable and no parameter: accumulators, learning rates, states of clips, counters."""
    return is_persistable(var) and not isinstance(var, Parameter) and not var.need_check_feed


@public
def get_program_parameter(program: Program) -> list[Variable]:
    """Every parameter of a program, in order of creation."""
    return [var for var in program.list_vars() if is_parameter(var)]


@public
def get_program_persistable_vars(program: Program) -> list[Variable]:
    """Every persistable variable of a program, in order of creation."""
    return [var for var in program.list_vars() if is_persistable(var)]


@public
def get_parameter_value(para: Variable, executor: Any) -> np.ndarray[Any, Any]:
    """The value of a parameter in the current scope.

    Raises
    ------
    WrongTypeError
        If `para` is not a parameter.
    ProgramError
        If the scope has no value for it.
    """
    if not isinstance(para, Parameter):
        raise WrongTypeError(f"get_parameter_value takes a parameter, got {para!r:.60}")
    place_of(executor)
    return np.array(values_of([para], are_returned=True)[para.name])


@public
def get_parameter_value_by_name(name: str, executor: Any, program: Program | None = None) -> np.ndarray[Any, Any]:
    """The value of the parameter of this name in a program, by default the main program; see `get_parameter_value`."""
    return get_parameter_value(checked_program(program).global_block().var(name), executor)


# Saving


@public
def save_vars(
    executor: Any,
    dirname: str | os.PathLike[str] | None,
    main_program: Program | CompiledProgram | None = None,
    vars: Iterable[Variable] | None = None,
    predicate: Callable[[Variable], bool] | None = None,
    filename: str | None = None,
) -> bytes | None:
    """Save variables of the global scope in the layout of Paddle 1.8.5.

    Of state of which each rank keeps a part, the files hold the whole, and the first rank writes them for all.

    Parameters
    ----------
    executor : Executor
        As in fluid; saving needs none.
    dirname : path or None
        The folder. With `filename` also None, nothing is written and the bytes are returned.
    main_program : Program, optional
        By default the default main program.
    vars : list of Variable, optional
        Variables to save. Default: those of `main_program` for which `predicate` is true.
    filename : str, optional
        Save all in this one file, in order of their names. It is replaced whole or not at all. By default each
        variable has a file of its own.

    Raises
    ------
    ProgramError
        If a variable has no value.

    Examples
    --------
    >>> import minigraph as fluid, tempfile
    >>> main, startup, exe = fluid.Program(), fluid.Program(), fluid.Executor(fluid.CPUPlace())
    >>> with fluid.program_guard(main, startup), fluid.scope_guard(fluid.Scope()), tempfile.TemporaryDirectory() as tmp:
    ...     y = fluid.layers.fc(fluid.data("x", [None, 4]), 2)
    ...     _ = exe.run(startup)
    ...     fluid.io.save_vars(exe, tmp, main, predicate=lambda var: var.persistable, filename="weights")
    ...     fluid.io.load_vars(exe, tmp, main, predicate=lambda var: var.persistable, filename="weights")
    """
    chosen = _chosen(main_program, vars, predicate)
    arrays = values_of(chosen, are_returned=dirname is None and filename is None)
    if not arrays:
        warn("there is no variable to save")
        return None
    if dirname is None and filename is None:
        return b"".join(_in_order(arrays))
    folder = Path() if dirname is None else Path(os.path.normpath(dirname))
    path = None if filename is None else as_path(folder / filename, "filename")
    mark = Mark(folder_mark(folder if path is None else path.parent))
    write_once(chosen, lambda: write_files(files_of(arrays, folder, path), mark))
    return None


def write_once(variables: Iterable[Variable], write: Callable[[], None]) -> None:
    """Write files of these variables; where ranks keep parts of state, the first does, and the others wait for it."""
    is_sharded = bool(_sharded(variables))
    if not is_sharded or current().rank == 0:
        write()
    if is_sharded:
        current().barrier()


def files_of(arrays: Arrays, folder: Path, path: Path | None) -> dict[Path, Chunks]:
    """The contents of the file `path` that holds all arrays; if it is None, of a file for each in `folder`."""
    if path is not None:
        return {path: _in_order(arrays)}
    return {inside(folder, name): tensor_chunks(array) for name, array in arrays.items()}


def _in_order(arrays: Arrays) -> Iterator[bytes | memoryview]:
    return chain.from_iterable(tensor_chunks(arrays[name]) for name in sorted(arrays))


@public
def save_params(
    executor: Any,
    dirname: str | os.PathLike[str] | None,
    main_program: Program | CompiledProgram | None = None,
    filename: str | None = None,
) -> bytes | None:
    """Save the parameters of a program; see `save_vars`."""
    return save_vars(executor, dirname, main_program, predicate=is_parameter, filename=filename)


@public
def save_persistables(
    executor: Any,
    dirname: str | os.PathLike[str] | None,
    main_program: Program | CompiledProgram | None = None,
    filename: str | None = None,
) -> bytes | None:
    """Save every variable that a program keeps from run to run; see `save_vars`.

    These are its parameters, the optimizer's accumulators and learning rate, and the state of clips. Training goes on
    after `load_persistables` as if it had not been interrupted.
    """
    return save_vars(executor, dirname, main_program, predicate=is_persistable, filename=filename)


# Loading


@public
def load_vars(
    executor: Any,
    dirname: str | os.PathLike[str] | None,
    main_program: Program | CompiledProgram | None = None,
    vars: Iterable[Variable] | None = None,
    predicate: Callable[[Variable], bool] | None = None,
    filename: str | bytes | None = None,
) -> None:
    """Load files of `save_vars`, of minigraph or Paddle 1.8.5, into the global scope.

    Parameters
    ----------
    executor : Executor
        The values go to its place.
    dirname : path or None
        The folder; None if `filename` holds the bytes themselves.
    main_program, vars, predicate
        Which variables, as for `save_vars`. Of a file name exactly the variables that were saved in it: its tensors
        have no names and lie in the order of the names.
    filename : str or bytes, optional
        The file that holds all variables, or its contents. Default: each variable has a file of its own.

    Raises
    ------
    MissingFileError
        If a file is missing; all missing ones are listed.
    DataError
        If a file is damaged.
    MismatchError
        If a shape or element type is not that of its variable; all such are listed. Nothing is loaded then.
    """
    place = place_of(executor)
    chosen = _chosen(main_program, vars, predicate)
    if not chosen:
        warn("there is no variable to load")
        return
    load_chosen(place, chosen, dirname, filename)


def load_chosen(
    place: Place,
    chosen: Iterable[Variable],
    dirname: str | os.PathLike[str] | None,
    filename: str | bytes | None,
    reading: Reading | None = None,
) -> None:
    """Load these variables; `reading` has read other files of the same save."""
    variables = {var.name: var for var in chosen}
    assign(variables.values(), _read_arrays(sorted(variables), dirname, filename, reading), place)


@public
def load_params(
    executor: Any,
    dirname: str | os.PathLike[str] | None,
    main_program: Program | CompiledProgram | None = None,
    filename: str | bytes | None = None,
) -> None:
    """Load the parameters of a program; see `load_vars`."""
    load_vars(executor, dirname, main_program, predicate=is_parameter, filename=filename)


@public
def load_persistables(
    executor: Any,
    dirname: str | os.PathLike[str] | None,
    main_program: Program | CompiledProgram | None = None,
    filename: str | bytes | None = None,
) -> None:
    """Load every variable that a program keeps from run to run; see `load_vars`."""
    load_vars(executor, dirname, main_program, predicate=is_persistable, filename=filename)


def _read_arrays(
    names: list[str],
    dirname: str | os.PathLike[str] | None,
    filename: str | bytes | None,
    reading: Reading | None,
) -> Arrays:
    if filename is None:
        if dirname is None:
            raise ProgramError("neither dirname nor filename says what to load")
        return read_separate_files(Path(os.path.normpath(dirname)), names, reading)
    if isinstance(filename, bytes):
        data, source = filename, "the bytes given"
    else:
        path = as_path((Path() if dirname is None else Path(dirname)) / filename, "filename")
        reading = reading or Reading(folder_mark(path.parent))
        data, source = reading.read(path, f"{len(names)} variables"), str(path)
        reading.check()
    return dict(zip(names, read_tensors(data, source, len(names)), strict=True))


def read_separate_files(folder: Path, names: Iterable[str], reading: Reading | None = None) -> Arrays:
    """The arrays of these names, each from the file in `folder` with its name."""
    reading = reading or Reading(folder_mark(folder))
    paths = {name: inside(folder, name) for name in names}
    missing = [name for name, path in paths.items() if not path.is_file()]
    if missing:
        details = [f"no file {paths[name]} for the variable {name}" for name in missing]
        raise MissingFileError(
            f"{folder} does not hold all variables", details=details, site=caller_site(),
            hint="Give filename= if all variables were saved in one file." if len(missing) == len(paths) else "",
        )  # fmt: skip
    arrays = {name: read_tensors(reading.read(path, name), str(path), 1)[0] for name, path in paths.items()}
    reading.check()
    return arrays


# Between scope and arrays


def values_of(variables: Iterable[Variable], are_returned: bool = False) -> Arrays:
    """The values of these variables in the global scope; the whole of those of which each rank keeps a part.

    Unless the values are returned to the caller of the library, only the first rank, which writes files for all, keeps
    more than one whole array at a time.

    Raises
    ------
    ProgramError
        If some have none; all of these are listed.
    """
    scope, missing, variables = global_scope(), [], list(variables)
    arrays: dict[str, Tensor] = {}
    for var in variables:
        if var.kind is not VarKind.LOD_TENSOR:
            raise DataError(f"{var.name} holds rows of a sparse matrix, which cannot be saved")
        holder = scope.find_var(var.name)
        if holder is None or holder.value is None:
            missing.append(var.name)
        else:
            arrays[var.name] = holder.get_tensor() if holder.lod else holder.place.to_host(holder.value)
    if missing:
        raise ProgramError(
            "the scope has no value for variables that are to be saved", details=missing,
            hint="Run the startup program first, in the scope that is saved.",
        )  # fmt: skip
    for name, sharded in _sharded(variables).items():
        if name in arrays:
            whole = _gathered(name, np.asarray(arrays[name]), sharded)
            if are_returned or current().rank == 0:
                arrays[name] = whole
    return arrays


def _sharded(variables: Iterable[Variable]) -> dict[str, Sharded]:
    """The state of which each rank keeps a part, in the programs of these variables."""
    programs = dict.fromkeys(var.block.program for var in variables)
    return {name: sharded for program in programs for name, sharded in sharded_state(program).items()}


def _gathered(name: str, part: np.ndarray[Any, Any], sharded: Sharded) -> np.ndarray[Any, Any]:
    check_size(sharded.division.nranks)
    call = Call("gathering of a file", name, 0, str(part.dtype), part.shape)
    return sharded.division.whole(current().all_gather(part, call), sharded.whole.shape)


def assign(variables: Iterable[Variable], arrays: Mapping[str, Tensor], place: Place | None = None) -> None:
    """Set these variables in the global scope, all or none; of state that ranks divide, the part of this rank.

    Parameters
    ----------
    place : Place, optional
        The place that the values go to. Default: where each variable is now.

    Raises
    ------
    MismatchError
        If a shape or element type is not that of its variable; all such are listed.
    """
    chosen = {var.name: var for var in variables}
    divided, problems = _sharded(chosen.values()), []
    for name, var in chosen.items():
        array, expected = np.asarray(arrays[name]), divided[name].whole if name in divided else var.tensor_type
        found = TensorType(as_dtype(array.dtype), array.shape)
        if expected is not None and not expected.fits(found):
            problems.append(f"{name} is declared {expected}, the file has {found}")
    if problems:
        raise MismatchError(
            "what was saved does not fit the program", details=problems,
            hint="Load it with the program that it was saved from.",
        )  # fmt: skip
    # Ctrl-C waits, so that no part of a model is left without the rest.
    with deferred():
        for name in chosen:
            tensor, given = global_scope().var(name).get_tensor(), arrays[name]
            if name in divided:
                given = _part(np.asarray(given), divided[name])
            tensor.set(given, place)
            tensor.set_lod(given.lod() if isinstance(given, LoDTensor) else [])


def _part(whole: np.ndarray[Any, Any], sharded: Sharded) -> np.ndarray[Any, Any]:
    check_size(sharded.division.nranks)
    found: np.ndarray[Any, Any] = sharded.division.part(np, whole, current().rank)
    return found


def place_of(executor: Any) -> Place:
    """The place of an executor.

    Raises
    ------
    WrongTypeError
        If it is no executor.
    """
    place = getattr(executor, "place", None)
    if not isinstance(place, Place):
        raise WrongTypeError(f"an Executor is needed, got {executor!r:.80}")
    return place


def checked_program(program: Program | CompiledProgram | None) -> Program:
    """`program`, that of a `CompiledProgram`, or the default main program for None."""
    if program is None:
        return default_main_program()
    if isinstance(program, CompiledProgram):
        program = program.program
    if not isinstance(program, Program):
        raise WrongTypeError(f"a Program is needed, got {type(program).__name__}")
    return program


def _chosen(
    program: Program | CompiledProgram | None,
    variables: Iterable[Variable] | None,
    predicate: Callable[[Variable], bool] | None,
) -> list[Variable]:
    program = checked_program(program)
    if variables is None:
        if predicate is None:
            raise ProgramError("neither vars nor predicate says which variables")
        return [var for var in program.list_vars() if predicate(var)]
    found = [program.global_block().var(var) if isinstance(var, str) else var for var in variables]
    for var in found:
        if not isinstance(var, Variable):
            raise WrongTypeError(f"vars must hold Variables, got {var!r:.80}")
    return found
