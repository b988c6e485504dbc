"""Operators that call a function of the user's."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from minigraph.errors import NotFoundError, ProgramError, WrongTypeError, caller_site
from minigraph.ir import Variable
from minigraph.layer_helper import LayerHelper, layer
from minigraph.runtime.scope_variable import LoDTensor, ScopeVariable
from minigraph.support import py_functions as callables
from minigraph.support.undo import note

__all__ = ["py_func"]

Variables = Variable | Sequence[Variable] | None


@layer
def py_func(
    func: Callable[..., Any],
    x: Variables,
    out: Variables,
    backward_func: Callable[..., Any] | None = None,
    skip_vars_in_backward_input: Variables = None,
) -> Variables:
    """``out = func(x)``, computed by a function of Python whenever the program runs.

    It runs in the order of the program and in every run, whether `out` is needed or not, so that it may also print, or
    write a file.

    Parameters
    ----------
    func : callable
        Called with a `LoDTensor` for each of `x`, of which NumPy's functions and ``np.array`` make arrays. It returns
        an array for each of `out`, or None if there are none. Floats are rounded to the dtype of `out`.
    x : Variable or sequence of Variable, optional
    out : Variable or sequence of Variable, optional
        Made before by ``create_var``, with shape and dtype.
    backward_func : callable, optional
        Called with `x`, `out` and the gradients of `out`; returns the gradients of `x`, with None for one that is not
        wanted. Without it `out` counts as a constant.
    skip_vars_in_backward_input : Variable or sequence of Variable, optional
        Which of `x` and `out` `backward_func` is not called with.

    Returns
    -------
    Variable or sequence of Variable
        `out`, as it was given.

    Raises
    ------
    WrongTypeError
        If an argument has the wrong type.
    ProgramError
        If the shape of one of `out` is not known.
    NotFoundError
        If what is to be skipped is neither among `x` nor `out`.

    Notes
    -----
    Such a program works in the process that built it: it cannot be saved, and a text of it is of use there only.
    Functions are kept as long as the process lives. On a GPU the arrays go to the processor and back. Gradients of
    gradients do not go through it.

    Examples
    --------
    >>> import minigraph as fluid, numpy as np
    >>> with fluid.program_guard(fluid.Program()):
    ...     x = fluid.data("x", [None, 2])
    ...     block = fluid.default_main_program().current_block()
    ...     y = block.create_var(name="y", shape=[-1, 2], dtype="float32")
    ...     _ = fluid.layers.py_func(np.tanh, x, y, backward_func=lambda y, dy: np.array(dy) * (1 - np.square(y)),
    ...                              skip_vars_in_backward_input=x)
    ...     fluid.Executor().run(feed={"x": np.array([[0.0, 1.0]], "float32")}, fetch_list=[y])
    [array([[0.       , 0.7615942]], dtype=float32)]
    """
    functions = {"func": func} if backward_func is None else {"func": func, "backward_func": backward_func}
    for what, function in functions.items():
        if not callable(function):
            raise WrongTypeError(f"py_func: {what} must be a function, got {function!r:.60}")
    inputs, outputs = _listed("x", x), _listed("out", out)
    skipped = _listed("skip_vars_in_backward_input", skip_vars_in_backward_input) if backward_func is not None else []
    for var in outputs:
        if not var.shape:
            raise ProgramError(
                f"py_func: the shape of {var.name} is not known",
                hint="Make it with create_var(name=..., shape=..., dtype=...).",
            )  # fmt: skip
    for var in skipped:
        if not any(var is each for each in (*inputs, *outputs)):
            raise NotFoundError(
                f"py_func: {var.name}, which is to be skipped, is neither in x nor in out", site=caller_site()
            )
    # An attribute cannot hold a function; it holds the number under which the process keeps it.
    numbers = [callables.register(function, _on_tensors(function)) for function in functions.values()]
    LayerHelper("py_func").append(
        "py_func",
        {"X": inputs},
        {"Out": outputs},
        {
            "forward_callable_id": numbers[0],
            "backward_callable_id": numbers[1] if len(numbers) > 1 else -1,
            "backward_skip_vars": list(dict.fromkeys(var.name for var in skipped)),
            "functions": [callables.function_name(function) for function in functions.values()],
            # Inference cannot look into a function.
            "out_types": [str(var.tensor_type) for var in outputs],
        },
    )
    for var in outputs if backward_func is None else ():
        note(setattr, var, "stop_gradient", var.stop_gradient)
        var.stop_gradient = True
    return out


def _on_tensors(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` for arrays, of which it is given tensors; one without parameters is given none."""
    try:
        takes_some = bool(inspect.signature(function).parameters)
    except (TypeError, ValueError):  # compiled functions may not tell
        takes_some = True

    def on_arrays(*arrays: Any) -> Any:
        return function(*(LoDTensor(ScopeVariable("the tensor", array)) for array in arrays if takes_some))

    return on_arrays


def _listed(what: str, given: Variables) -> list[Variable]:
    found = [given] if isinstance(given, Variable) else [] if given is None else given
    if not isinstance(found, list | tuple) or not all(isinstance(var, Variable) for var in found):
        raise WrongTypeError(f"py_func: {what} must be a Variable or a list of them, got {given!r:.60}")
    return list(found)


py_func.registered_func = callables.registered  # type: ignore[attr-defined]
