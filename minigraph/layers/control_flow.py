"""Branches and loops: layers whose operators run a sub-block, a part of the program of its own.

In the imperative mode `cond`, `case`, `switch_case` and `while_loop` decide at once, in Python.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from minigraph.defaults import default_main_program
from minigraph.errors import ProgramError, WrongTypeError, caller_site
from minigraph.ir import Block, Variable, VarKind
from minigraph.layer_helper import LayerHelper, check_variable
from minigraph.layers.compare import equal, logical_and, logical_not
from minigraph.layers.tensor import assign, cast, fill_constant
from minigraph.structures import difference, flatten, map_structure, pack
from minigraph.sub_blocks import outer_names
from minigraph.types import DType, product


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
            self.status = While.IN_WHILE_BLOCK
            yield
            self.status = While.AFTER_WHILE_BLOCK

    def _append(self, inside: Block) -> None:
        condition = self.cond_var.name
        touched, written = outer_names(inside)
        if condition not in written:
            raise ProgramError(
                f"While: the block never writes its condition {condition}, so it would never end", site=caller_site(),
                hint="Compare again inside: layers.less_than(i, n, cond=condition).",
            )  # fmt: skip
        read = _read_before_written(inside, touched, condition)
        outer = self.helper.block
        scopes = outer.create_var(type=VarKind.STEP_SCOPES)
        outputs = [condition, *(name for name in written if name != condition)]
        self.helper.append(
            "while", {"X": read, "Condition": [condition]}, {"Out": outputs, "StepScopes": scopes},
            {"sub_block": inside, "is_test": self.is_test},
        )  # fmt: skip


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
        From the loop variables to as many of the same shapes and element types, structured alike.
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
        _check_callable(function, f"while_loop: {what}")
    if not isinstance(loop_vars, list | tuple):
        raise WrongTypeError(
            f"while_loop: loop_vars must be a list or tuple, got {type(loop_vars).__name__}", site=caller_site()
        )
    if not loop_vars:
        raise ProgramError("while_loop: loop_vars is empty", site=caller_site())
    condition = cond(*loop_vars)
    if _is_imperative():
        return _loop_at_once(condition, cond, body, loop_vars)
    check_condition(condition, "while_loop: what cond returns")
    with While(condition, is_test, helper.name).block():
        results = _as_list(body(*loop_vars))
        different = difference(list(loop_vars), results)
        if different:
            raise ProgramError(
                f"while_loop: body must return what it takes, but they differ: {different}", site=caller_site()
            )
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
    while _truth(condition, "while_loop: what cond returns"):
        results = _as_list(body(*loop_vars))
        if len(results) != len(loop_vars):
            raise ProgramError(
                f"while_loop: body takes {len(loop_vars)} variables and returns {len(results)}", site=caller_site()
            )
        loop_vars = results
        condition = cond(*loop_vars)
    return loop_vars


def _as_list(results: Any) -> list[Any]:
    return list(results) if isinstance(results, list | tuple) else [results]


# Branches


class ConditionalBlock:
    """What is built inside ``block()`` runs only under a condition; otherwise what it would write stays as it is.

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
        touched, written = outer_names(inside)
        outer = self.helper.block
        scope = outer.create_var(type=VarKind.STEP_SCOPES)
        read = _read_before_written(inside, touched)
        self.helper.append(
            "conditional_block", {"Cond": self.inputs, "Input": read}, {"Out": written, "Scope": scope},
            {"sub_block": inside, "is_scalar_condition": self.is_scalar_condition},
        )  # fmt: skip


def cond(
    pred: Variable,
    true_fn: Callable[[], Any] | None = None,
    false_fn: Callable[[], Any] | None = None,
    name: str | None = None,
) -> Any:
    """What `true_fn` returns where `pred` holds, else what `false_fn` does; only one of them is computed.

    Parameters
    ----------
    pred : Variable, bool[1]
    true_fn, false_fn : callable, optional
        They return None, or variables, also nested in lists, tuples and dictionaries, of the same number, element types
        and numbers of dimensions. A dimension in which they differ is unknown in the result.

    Raises
    ------
    WrongTypeError
        If `pred` is not one boolean, or a branch is not callable.
    ProgramError
        If the branches return structures that differ, or variables of different element types.

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
            _check_callable(function, f"cond: {what}")
    if _is_imperative():
        chosen = true_fn if _truth(pred, "cond: pred") else false_fn
        return chosen() if chosen is not None else None
    check_condition(pred, "cond: pred")
    LayerHelper("cond", name)  # takes a name, as fluid does
    true_result = _branch(pred, true_fn) if true_fn is not None else None
    false_result = _branch(logical_not(pred), false_fn) if false_fn is not None else None
    if true_result is None and false_result is None:
        return None
    if true_result is None or false_result is None:
        name_of_none = "true_fn" if true_result is None else "false_fn"
        raise ProgramError(
            f"cond: {name_of_none} returns nothing, the other branch does", site=caller_site(),
            hint="Both branches return as much.",
        )  # fmt: skip
    different = difference(true_result, false_result)
    if different:
        raise ProgramError(f"cond: the branches return {different}", site=caller_site())
    for true_var, false_var in zip(flatten(true_result), flatten(false_result), strict=True):
        _check_alternatives(true_var, false_var)
    chosen_index = cast(pred, "int32")
    return map_structure(lambda false, true: _select(false, true, chosen_index), false_result, true_result)


def _branch(condition: Variable, function: Callable[[], Any]) -> Any:
    """What `function` returns, in variables of the block outside that only have values if the condition holds."""
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
    copied = outer.create_var(shape=var.shape, dtype=var.dtype, type=var.kind)
    assign(var, copied)
    return copied


def _check_alternatives(true_var: Variable, false_var: Variable) -> None:
    true_type, false_type = true_var.tensor_type, false_var.tensor_type
    fits = (
        true_type is not None
        and false_type is not None
        and true_var.kind is false_var.kind
        and true_type.dtype is false_type.dtype
        and true_type.rank == false_type.rank
    )
    if not fits:
        raise ProgramError(
            f"cond: true_fn returns {true_type}, false_fn {false_type} in its place", site=caller_site(),
            hint="Both need one element type (layers.cast) and number of dimensions (layers.reshape).",
        )  # fmt: skip


def _select(false: Variable, true: Variable, index: Variable) -> Variable:
    helper = LayerHelper("select_input")
    result = helper.block.create_var(type=false.kind, dtype=false.dtype)
    result.tensor_type = None
    helper.append("select_input", {"X": [false, true], "Mask": index}, {"Out": result})
    return result


def case(
    pred_fn_pairs: Sequence[tuple[Variable, Callable[[], Any]]],
    default: Callable[[], Any] | None = None,
    name: str | None = None,
) -> Any:
    """What the function of the first pair whose condition holds returns; if none does, what `default` returns.

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


def switch_case(
    branch_index: Variable,
    branch_fns: Mapping[int, Callable[[], Any]] | Sequence[Any],
    default: Callable[[], Any] | None = None,
    name: str | None = None,
) -> Any:
    """What the function with the number `branch_index` returns; if there is none, what `default` returns.

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
        raise WrongTypeError(
            f"switch_case: branch_index must be uint8, int32 or int64, got {branch_index}", site=caller_site()
        )
    if default is None:
        functions = dict(sorted(functions.items()))
        default = functions.popitem()[1]
    else:
        _check_callable(default, "switch_case: default")
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
        raise WrongTypeError(
            f"case: pred_fn_pairs must be a list or tuple, got {type(pairs).__name__}", site=caller_site()
        )
    if not pairs:
        raise ProgramError("case: pred_fn_pairs is empty", site=caller_site())
    for pair in pairs:
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise WrongTypeError(
                f"case: pred_fn_pairs must hold tuples of a condition and a function, got {pair!r:.60}",
                site=caller_site(),
            )
        if not _is_imperative():
            check_condition(pair[0], "case: a condition of pred_fn_pairs")
        _check_callable(pair[1], "case: a function of pred_fn_pairs")
    if default is not None:
        _check_callable(default, "case: default")
    return list(pairs)


def _functions_by_number(given: Any) -> dict[int, Callable[[], Any]]:
    if not isinstance(given, list | tuple | Mapping):
        raise WrongTypeError(
            f"switch_case: branch_fns must be a list, tuple or dict, got {type(given).__name__}", site=caller_site()
        )
    pairs = list(given.items()) if isinstance(given, Mapping) else list(given)
    if pairs and all(map(callable, pairs)):
        pairs = list(enumerate(pairs))
    functions: dict[int, Callable[[], Any]] = {}
    for pair in pairs:
        if not isinstance(pair, tuple) or len(pair) != 2 or isinstance(pair[0], bool) or not isinstance(pair[0], int):
            raise WrongTypeError(
                f"switch_case: branch_fns must hold functions, or all pairs of an int and a function, got {pair!r:.60}",
                site=caller_site(),
            )
        number, function = pair
        if number in functions:
            raise ProgramError(f"switch_case: branch_fns has {number} twice", site=caller_site())
        _check_callable(function, f"switch_case: the function {number} of branch_fns")
        functions[number] = function
    if not functions:
        raise ProgramError("switch_case: branch_fns is empty", site=caller_site())
    return functions


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
            raise ProgramError(
                "Switch.case belongs inside the switch", site=caller_site(), hint="with layers.Switch() as switch: ..."
            )
        check_condition(condition, "Switch.case: condition")
        if self._none_before is None:
            chosen = ConditionalBlock([condition], is_scalar_condition=True)
            self._none_before = logical_not(condition)
        else:
            before = self._none_before
            self._none_before = logical_and(before, logical_not(condition))
            chosen = ConditionalBlock([logical_and(before, condition)], is_scalar_condition=True)
        return chosen.block()

    def default(self) -> Any:
        """Operators made inside run if no condition holds."""
        if self._none_before is None:
            raise ProgramError("Switch.default comes after at least one case", site=caller_site())
        return ConditionalBlock([self._none_before], is_scalar_condition=True).block()


# What they share


@contextmanager
def building_sub_block(complete: Callable[[Block], None]) -> Iterator[None]:
    """Inside, operators go to a new block; afterwards `complete` appends the operator that runs it to its parent.

    If either fails, the program is left without the block.
    """
    program = default_main_program()
    if _is_imperative():
        raise ProgramError(
            "the imperative mode has no sub-blocks", site=caller_site(),
            hint="Use Python's own if and while, or layers.cond and layers.while_loop.",
        )  # fmt: skip
    inside = program.create_block()
    try:
        yield
        program.rollback()
        complete(inside)
    except BaseException:
        _give_up(inside)
        raise


def _give_up(block: Block) -> None:
    """Remove a block that could not be completed, and those made in it."""
    program = block.program
    program.current_block_idx = block.parent_idx
    del program.blocks[block.idx :]
    program.version += 1


def _read_before_written(block: Block, touched: Sequence[str], *written: str) -> list[str]:
    """Which of the outer variables `touched` a block reads before it writes them."""
    read: dict[str, None] = {}
    done = set(written)
    for op in block.ops:
        read.update((name, None) for name in op.input_arg_names if name not in done)
        done.update(op.output_arg_names)
    return [name for name in touched if name in read]


def check_condition(condition: Any, what: str) -> Variable:
    """`condition`, if it is a Variable of one boolean.

    Raises
    ------
    WrongTypeError
        Otherwise; `what` names the layer and the argument.
    """
    check_variable(condition, what)
    if condition.dtype is not DType.BOOL or product(condition.shape or (1,)) not in (1, -1):
        raise WrongTypeError(
            f"{what} must be one boolean, bool[1], got {condition}", site=caller_site(),
            hint="Compare with layers.less_than and the like; join several with layers.reduce_all.",
        )  # fmt: skip
    return condition


def _check_callable(function: Any, what: str) -> None:
    if not callable(function):
        raise WrongTypeError(f"{what} must be callable, got {type(function).__name__}", site=caller_site())


def _truth(condition: Any, what: str) -> bool:
    value = check_condition(condition, what).numpy()  # type: ignore[attr-defined]
    return bool(value.item())


def _is_imperative() -> bool:
    from minigraph.dygraph.base import enabled

    return enabled()
