"""Loops: a part of the program that runs as long as a condition holds.

In the imperative mode `while_loop` decides at once, in Python.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from minigraph.errors import ProgramError, WrongTypeError
from minigraph.ir import Block, Variable, VarKind
from minigraph.ir.default_programs import is_imperative
from minigraph.ir.effects import outer_names
from minigraph.layer_helper import LayerHelper, check_variable, layer
from minigraph.layers.sub_block import (
    building_sub_block,
    check_callable,
    check_condition,
    read_before_written,
    truth_of,
)
from minigraph.layers.tensor import assign
from minigraph.support.nest import difference, flatten, map_structure
from minigraph.support.public import public
from minigraph.support.undo import note

__all__ = ["While", "while_loop"]


@public
class While:
    """Repeat what is built inside ``block()`` as long as a condition holds.

    What the block computes is new in each run, but for variables made outside of it: written inside, with `assign`,
    ``increment`` or the argument for the result that many layers have, they go from run to run. Among them has to be
    the condition.

    Parameters
    ----------
    cond : Variable, bool[1]
    is_test : bool
        Keep nothing for a gradient.
    name : str, optional

    Raises
    ------
    WrongTypeError
        If `cond` is not a Variable of one boolean.
    ProgramError
        If the block does not write `cond`.

    Examples
    --------
    >>> import minigraph as fluid
    >>> from minigraph import layers
    >>> with fluid.program_guard(fluid.Program()):
    ...     i, n = layers.fill_constant([1], "int64", 0), layers.fill_constant([1], "int64", 10)
    ...     condition = layers.less_than(i, n)
    ...     with layers.While(condition).block():
    ...         _ = layers.increment(i, 3)
    ...         _ = layers.less_than(i, n, cond=condition)
    ...     fluid.Executor().run(fetch_list=[i])
    [array([12])]
    """

    BEFORE_WHILE_BLOCK, IN_WHILE_BLOCK, AFTER_WHILE_BLOCK = 0, 1, 2

    def __init__(self, cond: Variable, is_test: bool = False, name: str | None = None) -> None:
        self.helper = LayerHelper("while", name)
        self.status = While.BEFORE_WHILE_BLOCK
        self.cond_var = check_condition(cond, "While: cond")
        self.is_test = is_test

    @contextmanager
    def block(self) -> Iterator[None]:
        """Operators made inside are run again and again."""
        with building_sub_block(self._append):
            note(setattr, self, "status", self.status)
            self.status = While.IN_WHILE_BLOCK
            yield
            self.status = While.AFTER_WHILE_BLOCK

    def _append(self, inside: Block) -> None:
        condition = self.cond_var.name
        touched, written = outer_names(inside)
        if condition not in written:
            raise ProgramError(
                f"While: the block never writes its condition {condition}, so it would never end",
                hint="Compare again inside: layers.less_than(i, n, cond=condition).",
            )  # fmt: skip
        read = read_before_written(inside, touched, condition)
        outer = self.helper.block
        scopes = outer.create_var(type=VarKind.STEP_SCOPES)
        outputs = [condition, *(name for name in written if name != condition)]
        self.helper.append(
            "while", {"X": read, "Condition": [condition]}, {"Out": outputs, "StepScopes": scopes},
            {"sub_block": inside, "is_test": self.is_test},
        )  # fmt: skip


@layer
def while_loop(
    cond: Callable[..., Variable],
    body: Callable[..., Any],
    loop_vars: Sequence[Any],
    is_test: bool = False,
    name: str | None = None,
) -> Sequence[Any]:
    """Replace `loop_vars` by ``body(*loop_vars)`` as long as ``cond(*loop_vars)`` holds.

    Parameters
    ----------
    cond : callable
        From the loop variables to a Variable, bool[1].
    body : callable
        From the loop variables to as many of the same element types and ranks, structured alike. Sizes may change.
    loop_vars : list or tuple
        Variables, also nested in lists, tuples and dictionaries. They hold the result afterwards.
    is_test : bool
        Keep nothing for a gradient.

    Returns
    -------
    list or tuple
        `loop_vars`.

    Raises
    ------
    WrongTypeError
        If `cond` or `body` is not callable, or `cond` gives anything but one boolean.
    ProgramError
        If there are no `loop_vars`, or `body` gives other ones.

    Examples
    --------
    >>> import minigraph as fluid
    >>> from minigraph import layers
    >>> with fluid.program_guard(fluid.Program()):
    ...     start = [layers.fill_constant([1], "int64", 0), layers.fill_constant([2], "float32", 1.0)]
    ...     i, x = while_loop(lambda i, x: i < 3, lambda i, x: [i + 1, x * 2.0], start)
    ...     fluid.Executor().run(fetch_list=[i, x])
    [array([3]), array([8., 8.], dtype=float32)]
    """
    helper = LayerHelper("while_loop", name)
    for what, function in (("cond", cond), ("body", body)):
        check_callable(function, f"while_loop: {what}")
    if not isinstance(loop_vars, list | tuple):
        raise WrongTypeError(f"while_loop: loop_vars must be a list or tuple, got {type(loop_vars).__name__}")
    if not loop_vars:
        raise ProgramError("while_loop: loop_vars is empty")
    condition = cond(*loop_vars)
    if is_imperative():
        return _loop_at_once(condition, cond, body, loop_vars)
    check_condition(condition, "while_loop: what cond returns")
    with While(condition, is_test, helper.name).block():
        # Copies of lists and dictionaries, which the body may change.
        results = _as_list(body(*map_structure(lambda variable: variable, list(loop_vars))))
        different = difference(list(loop_vars), results)
        if different:
            raise ProgramError(f"while_loop: body must return what it takes, but they differ: {different}")
        # Before the variables are written: the condition is computed from the new values, of which some may be old
        # variables.
        again = cond(*results)
        _assign_all(flatten(results), flatten(loop_vars))
        assign(again, condition)
    return loop_vars


def _assign_all(results: Sequence[Variable], variables: Sequence[Variable]) -> None:
    """Write results to variables as if all at once: a result that is another of the variables is copied before."""
    written: set[str] = set()
    late = []
    for result, variable in zip(results, variables, strict=True):
        late.append(
            assign(result) if check_variable(result, "while_loop: what body returns").name in written else result
        )
        written.add(variable.name)
    for result, variable in zip(late, variables, strict=True):
        assign(result, variable)


def _loop_at_once(
    condition: Variable, cond: Callable[..., Variable], body: Callable[..., Any], loop_vars: Sequence[Any]
) -> Sequence[Any]:
    while truth_of(condition, "while_loop: what cond returns"):
        results = _as_list(body(*loop_vars))
        if len(results) != len(loop_vars):
            raise ProgramError(f"while_loop: body takes {len(loop_vars)} variables and returns {len(results)}")
        loop_vars = results
        condition = cond(*loop_vars)
    return loop_vars


def _as_list(results: Any) -> list[Any]:
    return list(results) if isinstance(results, list | tuple) else [results]
