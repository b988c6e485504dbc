"""Branches: a condition chooses which part of the program runs.

In the imperative mode `cond`, `case` and `switch_case` decide at once, in Python.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from minigraph.errors import ProgramError, WrongTypeError
from minigraph.ir import Block, Variable, VarKind
from minigraph.ir.default_programs import default_main_program, is_imperative
from minigraph.ir.effects import outer_names
from minigraph.layer_helper import LayerHelper, check_variable, layer
from minigraph.layers.compare import equal, logical_and, logical_not
from minigraph.layers.sub_block import (
    building_sub_block,
    check_callable,
    check_condition,
    read_before_written,
    truth_of,
)
from minigraph.layers.tensor import assign, cast, fill_constant
from minigraph.support.nest import difference, flatten, map_structure, pack
from minigraph.support.public import public
from minigraph.support.undo import all_or_nothing, note
from minigraph.types import DType

__all__ = ["Switch", "case", "cond", "switch_case"]


class ConditionalBlock:
    """Run what is built inside ``block()`` only under a condition; else the variables that it writes stay as they are.

    Parameters
    ----------
    inputs : list of Variable
        With `is_scalar_condition` one condition, bool[1]; without it, tensors none of which may be empty.
    """

    def __init__(self, inputs: Sequence[Variable], is_scalar_condition: bool = False, name: str | None = None) -> None:
        self.inputs = [check_variable(each, "ConditionalBlock: inputs") for each in inputs]
        self.is_scalar_condition = is_scalar_condition
        self.helper = LayerHelper("conditional_block", name)

    @contextmanager
    def block(self) -> Iterator[None]:
        """Operators made inside run under the condition."""
        with building_sub_block(self._append):
            yield

    def _append(self, inside: Block) -> None:
        # Only now, when the block is complete, is it known which outer variables it reads and writes.
        touched, written = outer_names(inside)
        outer = self.helper.block
        scope = outer.create_var(type=VarKind.STEP_SCOPES)
        read = read_before_written(inside, touched)
        self.helper.append(
            "conditional_block", {"Cond": self.inputs, "Input": read}, {"Out": written, "Scope": scope},
            {"sub_block": inside, "is_scalar_condition": self.is_scalar_condition},
        )  # fmt: skip


@layer
def cond(
    pred: Variable,
    true_fn: Callable[[], Any] | None = None,
    false_fn: Callable[[], Any] | None = None,
    name: str | None = None,
) -> Any:
    """The result of `true_fn` if `pred` holds, else that of `false_fn`; only one of them is computed.

    Parameters
    ----------
    pred : Variable, bool[1]
    true_fn, false_fn : callable, optional
        They return None, or as many variables, also nested in lists, tuples and dictionaries. A dimension in which
        they differ is unknown in the result. Where their element types or numbers of dimensions differ, the result can
        be fetched or returned from another branch, and no other operator takes it.

    Raises
    ------
    WrongTypeError
        If `pred` is not one boolean, or a branch is not callable.
    ProgramError
        If the branches return structures that differ.

    Examples
    --------
    >>> import minigraph as fluid, numpy as np
    >>> from minigraph import layers
    >>> with fluid.program_guard(fluid.Program()):
    ...     x = fluid.data("x", [1])
    ...     y = cond(x < 0.0, lambda: -x, lambda: x * 10.0)
    ...     run = lambda x: fluid.Executor().run(feed={"x": np.array([x], "float32")}, fetch_list=[y])[0]
    ...     run(-2.0), run(3.0)
    (array([2.], dtype=float32), array([30.], dtype=float32))
    """
    for what, function in (("true_fn", true_fn), ("false_fn", false_fn)):
        if function is not None:
            check_callable(function, f"cond: {what}")
    if is_imperative():
        chosen = true_fn if truth_of(pred, "cond: pred") else false_fn
        return chosen() if chosen is not None else None
    check_condition(pred, "cond: pred")
    LayerHelper("cond", name)  # takes a name, as fluid does
    # Two blocks under opposite conditions, as in fluid, whose operator has one block.
    true_result = _branch(pred, true_fn) if true_fn is not None else None
    false_result = _branch(logical_not(pred), false_fn) if false_fn is not None else None
    if true_result is None and false_result is None:
        return None
    if true_result is None or false_result is None:
        name_of_none = "true_fn" if true_result is None else "false_fn"
        raise ProgramError(
            f"cond: {name_of_none} returns nothing, the other branch does",
            hint="Return the same number of variables from both branches.",
        )  # fmt: skip
    different = difference(true_result, false_result)
    if different:
        raise ProgramError(f"cond: the branches return {different}")
    chosen_index = cast(pred, "int32")
    return map_structure(lambda false, true: _select(false, true, chosen_index), false_result, true_result)


def _branch(condition: Variable, function: Callable[[], Any]) -> Any:
    """The result of `function`, in variables of the outer block that have values only if the condition holds."""
    result = None
    with ConditionalBlock([condition], is_scalar_condition=True).block():
        returned = function()
        if returned is not None:
            result = pack(returned, [_copy_outside(var) for var in flatten(returned)])
    return result


def _copy_outside(var: Variable) -> Variable:
    check_variable(var, "cond: what a branch returns")
    outer = default_main_program().current_block().parent_block
    assert outer is not None
    # Variables of the block are gone when it has run.
    copied = outer.create_var(shape=var.shape, dtype=var.dtype, type=var.kind)
    assign(var, copied)
    return copied


def _select(false: Variable, true: Variable, index: Variable) -> Variable:
    helper = LayerHelper("select_input")
    result = helper.block.create_var(type=false.kind, dtype=false.dtype)
    # Inferred anew by the operator, which knows both branches: they may differ in a dimension.
    result.tensor_type = None
    helper.append("select_input", {"X": [false, true], "Mask": index}, {"Out": result})
    return result


@layer
def case(
    pred_fn_pairs: Sequence[tuple[Variable, Callable[[], Any]]],
    default: Callable[[], Any] | None = None,
    name: str | None = None,
) -> Any:
    """The result of the function of the first pair whose condition holds, or else of `default`.

    Parameters
    ----------
    pred_fn_pairs : list of (Variable, callable)
        Conditions, bool[1], and functions whose results are as `cond` takes them.
    default : callable, optional
        Default: the function of the last pair, whose condition is not asked then.

    Raises
    ------
    WrongTypeError
        If something is not what it should be.
    ProgramError
        If there are no pairs, or results differ.
    """
    LayerHelper("case", name)  # takes a name, as fluid does
    pairs = _checked_pairs(pred_fn_pairs, default)
    if default is None:
        default, pairs = pairs[-1][1], pairs[:-1]
    return _chain(pairs, default)


@layer
def switch_case(
    branch_index: Variable,
    branch_fns: Mapping[int, Callable[[], Any]] | Sequence[Any],
    default: Callable[[], Any] | None = None,
    name: str | None = None,
) -> Any:
    """The result of the function with the number `branch_index`, or else of `default`.

    Parameters
    ----------
    branch_index : Variable, uint8, int32 or int64[1]
    branch_fns : dict, or list of callables or of (int, callable)
        Functions by number, whose results are as `cond` takes them.
    default : callable, optional
        Default: the function with the largest number.

    Raises
    ------
    WrongTypeError
        If something is not what it should be.
    ProgramError
        If there are no functions, a number is given twice, or results differ.
    """
    LayerHelper("switch_case", name)  # takes a name, as fluid does
    functions = _functions_by_number(branch_fns)
    check_variable(branch_index, "switch_case: branch_index")
    if branch_index.dtype not in (DType.UINT8, DType.INT32, DType.INT64):
        raise WrongTypeError(f"switch_case: branch_index must be uint8, int32 or int64, got {branch_index}")
    if default is None:
        # The function with the largest number is the default.
        functions = dict(sorted(functions.items()))
        default = functions.popitem()[1]
    else:
        check_callable(default, "switch_case: default")
    # Both sides of a comparison have one element type.
    index = branch_index if branch_index.dtype is DType.INT64 else cast(branch_index, "int64")
    pairs = []
    for number, function in functions.items():
        pairs.append((equal(index, fill_constant([1], "int64", number)), function))
    # The last one is asked first, as in fluid; at most one holds.
    return _chain(pairs[::-1], default)


def _chain(pairs: Sequence[tuple[Variable, Callable[[], Any]]], default: Callable[[], Any]) -> Any:
    """Each pair in the false branch of the one before."""
    if not pairs:
        return default()
    (condition, function), *others = pairs
    return cond(condition, function, lambda: _chain(others, default))


def _checked_pairs(pairs: Any, default: Any) -> list[tuple[Variable, Callable[[], Any]]]:
    if not isinstance(pairs, list | tuple):
        raise WrongTypeError(f"case: pred_fn_pairs must be a list or tuple, got {type(pairs).__name__}")
    if not pairs:
        raise ProgramError("case: pred_fn_pairs is empty")
    for pair in pairs:
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise WrongTypeError(
                f"case: pred_fn_pairs must hold tuples of a condition and a function, got {pair!r:.60}"
            )
        if not is_imperative():
            check_condition(pair[0], "case: a condition of pred_fn_pairs")
        check_callable(pair[1], "case: a function of pred_fn_pairs")
    if default is not None:
        check_callable(default, "case: default")
    return list(pairs)


def _functions_by_number(given: Any) -> dict[int, Callable[[], Any]]:
    if not isinstance(given, list | tuple | Mapping):
        raise WrongTypeError(f"switch_case: branch_fns must be a list, tuple or dict, got {type(given).__name__}")
    pairs = list(given.items()) if isinstance(given, Mapping) else list(given)
    if pairs and all(map(callable, pairs)):
        pairs = list(enumerate(pairs))
    functions: dict[int, Callable[[], Any]] = {}
    for pair in pairs:
        if not isinstance(pair, tuple) or len(pair) != 2 or isinstance(pair[0], bool) or not isinstance(pair[0], int):
            raise WrongTypeError(
                f"switch_case: branch_fns must hold functions, or all pairs of an int and a function, got {pair!r:.60}"
            )
        number, function = pair
        if number in functions:
            raise ProgramError(f"switch_case: branch_fns has {number} twice")
        check_callable(function, f"switch_case: the function {number} of branch_fns")
        functions[number] = function
    if not functions:
        raise ProgramError("switch_case: branch_fns is empty")
    return functions


@public
class Switch:
    """Cases of which the first whose condition holds runs; what they write has to be made before, outside.

    Examples
    --------
    >>> import minigraph as fluid, numpy as np
    >>> from minigraph import layers
    >>> with fluid.program_guard(fluid.Program()):
    ...     x, y = fluid.data("x", [1]), layers.fill_constant([1], "float32", 0.0)
    ...     with Switch() as switch:
    ...         with switch.case(x < 0.0):
    ...             _ = layers.assign(-x, y)
    ...         with switch.default():
    ...             _ = layers.assign(x * 10.0, y)
    ...     fluid.Executor().run(feed={"x": np.array([3.0], "float32")}, fetch_list=[y])
    [array([30.], dtype=float32)]
    """

    def __init__(self, name: str | None = None) -> None:
        self.helper = LayerHelper("switch", name)
        self._is_open = False
        self._none_before: Variable | None = None
        """Whether the conditions of all cases before are false."""

    def __enter__(self) -> Switch:
        self._is_open = True
        return self

    def __exit__(self, *exception: Any) -> None:
        self._is_open = False

    def case(self, condition: Variable) -> Any:
        """Operators made inside run if `condition`, bool[1], holds, and those of no case before."""
        if not self._is_open:
            raise ProgramError("Switch.case belongs inside the switch", hint="with layers.Switch() as switch: ...")
        check_condition(condition, "Switch.case: condition")
        return self._case(condition)

    @contextmanager
    def _case(self, condition: Variable) -> Iterator[None]:
        with all_or_nothing():
            # If building the case fails, the next case must not wait for its condition to be false.
            note(setattr, self, "_none_before", self._none_before)
            if self._none_before is None:
                chosen = ConditionalBlock([condition], is_scalar_condition=True)
                self._none_before = logical_not(condition)
            else:
                before = self._none_before
                self._none_before = logical_and(before, logical_not(condition))
                chosen = ConditionalBlock([logical_and(before, condition)], is_scalar_condition=True)
            with chosen.block():
                yield

    def default(self) -> Any:
        """Operators made inside run if no condition holds."""
        if self._none_before is None:
            raise ProgramError("Switch.default comes after at least one case")
        return ConditionalBlock([self._none_before], is_scalar_condition=True).block()
