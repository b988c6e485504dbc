"""Models for inference: a pruned program and its parameters in a folder that Paddle 1.8.5 reads too."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from minigraph.errors import NotFoundError, ProgramError, WrongTypeError, suggest
from minigraph.executor.compiled_program import CompiledProgram
from minigraph.io import variables
from minigraph.io.marks import Mark, Reading, folder_mark
from minigraph.io.program_bytes import serialize_program
from minigraph.io.program_desc import FEED, FETCH, describe
from minigraph.io.program_reading import read_program
from minigraph.ir import Block, Program, Variable, VarKind
from minigraph.support.atomic_files import inside, write_files
from minigraph.support.public import public

__all__ = ["append_fetch_ops", "load_inference_model", "prepend_feed_ops", "save_inference_model"]

MODEL_FILENAME = "__model__"


@public
def save_inference_model(
    dirname: str | os.PathLike[str],
    feeded_var_names: str | Sequence[str],
    target_vars: Variable | Sequence[Variable],
    executor: Any,
    main_program: Program | CompiledProgram | None = None,
    model_filename: str | None = None,
    params_filename: str | None = None,
    export_for_deployment: bool = True,
    program_only: bool = False,
) -> list[str]:
    """Save the operators that compute `target_vars` from the fed variables, and the parameters that they need.

    The program saved is ``main_program.clone(for_test=True)``, pruned, with a ``scale`` by 1 after each target as in
    Paddle; `main_program` itself stays as it is. Program and parameters are written whole or not at all.

    Parameters
    ----------
    dirname : path
        The folder.
    feeded_var_names : list of str
        Names of the variables to feed, in this order.
    target_vars : list of Variable
        Variables to fetch.
    executor : Executor
        As in fluid; saving needs none.
    main_program : Program, optional
        By default the default main program.
    model_filename : str, optional
        Default: ``__model__``.
    params_filename : str, optional
        Save all parameters in this one file; by default each has a file of its own.
    export_for_deployment : bool
        Must be True, the only documented value in Paddle 1.8.5.
    program_only : bool
        Leave the parameters out.

    Returns
    -------
    list of str
        The names of the variables to fetch.

    Raises
    ------
    NotFoundError
        If a fed variable is unknown.
    ProgramError
        If a target depends on a variable that is neither fed nor persistable, or a parameter has no value.

    Examples
    --------
    >>> import minigraph as fluid, numpy as np, tempfile
    >>> main, startup, exe = fluid.Program(), fluid.Program(), fluid.Executor(fluid.CPUPlace())
    >>> with fluid.program_guard(main, startup), fluid.scope_guard(fluid.Scope()), tempfile.TemporaryDirectory() as tmp:
    ...     y = fluid.layers.scale(fluid.data("x", [None, 2]), 3.0)
    ...     fluid.io.save_inference_model(tmp, ["x"], [y], exe, main)
    ...     program, feeds, fetches = fluid.io.load_inference_model(tmp, exe)
    ...     exe.run(program, feed={feeds[0]: np.ones((1, 2), "float32")}, fetch_list=fetches)
    ['save_infer_model/scale_0.tmp_0']
    [array([[3., 3.]], dtype=float32)]
    """
    if not export_for_deployment:
        raise ProgramError(
            "export_for_deployment=False is not supported",
            hint="Use fluid.save for the whole program with all its variables.",
        )
    feeds = [feeded_var_names] if isinstance(feeded_var_names, str) else list(feeded_var_names)
    program, fetches = _pruned(variables.checked_program(main_program), feeds, _checked_targets(target_vars))
    folder = Path(os.path.normpath(dirname))
    # As in fluid, only the name counts: the file is in the folder.
    model = inside(folder, os.path.basename(model_filename or MODEL_FILENAME))
    persistables = variables.get_program_persistable_vars(program)
    files: dict[Path, Any] = {model: [_described(program, feeds, fetches)]}
    if not program_only:
        arrays = variables.values_of(persistables)
        path = None if params_filename is None else inside(folder, os.path.basename(params_filename))
        files.update(variables.files_of(arrays, folder, path))
    write_files(files, Mark(folder_mark(folder)))
    return fetches


@public
def prepend_feed_ops(
    inference_program: Program, feed_target_names: Sequence[str], feed_holder_name: str = FEED
) -> None:
    """Put operators ``feed`` in front, by which a saved model says what it is fed; runs leave them out."""
    block = inference_program.global_block()
    holder = _holder(block, feed_holder_name, VarKind.FEED_MINIBATCH) if feed_target_names else ""
    for column, name in enumerate(feed_target_names):
        block.prepend_op("feed", {"X": holder}, {"Out": block.var(name)}, {"col": column})


@public
def append_fetch_ops(
    inference_program: Program, fetch_target_names: Sequence[str], fetch_holder_name: str = FETCH
) -> None:
    """Append operators ``fetch``, by which a saved model says what is fetched; runs leave them out."""
    block = inference_program.global_block()
    holder = _holder(block, fetch_holder_name, VarKind.FETCH_LIST)
    for column, name in enumerate(fetch_target_names):
        block.append_op("fetch", {"X": name}, {"Out": holder}, {"col": column})


def _holder(block: Block, name: str, kind: VarKind) -> Variable:
    """The variable of all operators that feed, or that fetch."""
    if block.has_var(name) and block.var(name).kind is not kind:
        raise ProgramError(
            f"a program with a variable {name!r} cannot be saved as a model",
            hint=f"Give it another name: Paddle's operators that {name} need this one.",
        )
    return block.create_var(name=name, type=kind, persistable=True)


@public
def load_inference_model(
    dirname: str | os.PathLike[str] | None,
    executor: Any,
    model_filename: str | bytes | None = None,
    params_filename: str | bytes | None = None,
    pserver_endpoints: Sequence[str] | None = None,
) -> list[Any]:
    """Load files of `save_inference_model`, of minigraph or Paddle 1.8.5; the parameters enter the global scope.

    Parameters
    ----------
    dirname : path or None
        The folder. None: `model_filename` and `params_filename` are the contents of the files, bytes.
    executor : Executor
        The parameters go to its place.
    pserver_endpoints : None
        Parameter servers are out of scope.

    Returns
    -------
    list
        The program, the names to feed, the variables to fetch.

    Raises
    ------
    MissingFileError
        If a file is missing.
    DataError
        If a file is damaged.
    NotFoundError
        If the program has operators that minigraph does not have; all of them are listed.
    MismatchError
        If the parameters do not fit the program.
    """
    if pserver_endpoints:
        raise ProgramError("pserver_endpoints: parameter servers are out of scope")
    place, reading = variables.place_of(executor), None
    if dirname is None:
        if not isinstance(model_filename, bytes) or not isinstance(params_filename, bytes | None):
            raise WrongTypeError("without dirname, model_filename and params_filename must be the bytes of the files")
        data, source = model_filename, "the model given"
    else:
        path = Path(os.path.normpath(dirname)) / os.path.basename(_as_text(model_filename) or MODEL_FILENAME)
        reading = Reading(folder_mark(path.parent))
        data, source = reading.read(path, "a model"), str(path)
        params_filename = os.path.basename(_as_text(params_filename) or "") or None
    program, feeds, fetches = read_program(data, source)
    persistables = variables.get_program_persistable_vars(program)
    if persistables:
        variables.load_chosen(place, persistables, dirname, params_filename, reading)
    return [program, feeds, [program.global_block().var(name) for name in fetches]]


def _as_text(name: str | bytes | None) -> str | None:
    return os.fsdecode(name) if name is not None else None


def _checked_targets(targets: Variable | Sequence[Variable]) -> list[Variable]:
    found = [targets] if isinstance(targets, Variable) else list(targets)
    if not found or not all(isinstance(target, Variable) for target in found):
        raise WrongTypeError(f"target_vars must be a list of Variable, got {targets!r:.80}")
    return found


def _pruned(main_program: Program, feeds: Sequence[str], targets: Sequence[Variable]) -> tuple[Program, list[str]]:
    """A program of only the operators that compute the targets, and the names of its results."""
    program = main_program.clone(for_test=True)
    block = program.global_block()
    for name in feeds:
        if name not in block.vars:
            raise NotFoundError(f"the program has no variable {name!r} to feed", hint=suggest(name, block.vars))
    fetches = [_append_scale(program, block.var(target.name), index) for index, target in enumerate(targets)]
    needed = program.keep_needed(set(feeds), fetches)
    # Now, not when the model is used where nobody can mend it.
    missing = [name for name in sorted(needed) if not block.var(name).persistable]
    if missing:
        raise ProgramError(
            "the targets depend on variables that are neither fed nor persistable", details=missing,
            hint="Name them in feeded_var_names.",
        )  # fmt: skip
    return program, fetches


def _described(program: Program, feeds: Sequence[str], fetches: Sequence[str]) -> bytes:
    """The bytes of a pruned program with operators that feed and fetch; those it was read from, if it is the same."""
    if program.origin is not None:
        original, *columns = read_program(program.origin, "the origin")
        if columns == [list(feeds), list(fetches)]:
            targets = [original.global_block().var(name) for name in fetches]
            if describe(_pruned(original, feeds, targets)[0]) == describe(program):
                return program.origin
    prepend_feed_ops(program, feeds)
    append_fetch_ops(program, fetches)
    return serialize_program(program)


def _append_scale(program: Program, target: Variable, index: int) -> str:
    """Append ``scale`` by 1 to a target; names the result like Paddle, with the next number that is free.

    The target of a model that was loaded is such a result already.
    """
    block, number = program.global_block(), 0
    if program.origin is not None and target.name.startswith(f"save_infer_model/scale_{index}.tmp_"):
        return target.name
    while block.has_var(name := f"save_infer_model/scale_{index}.tmp_{number}"):
        number += 1
    out = block.create_var(name=name)
    block.append_op("scale", {"X": target}, {"Out": out}, {"scale": 1.0})
    return name
