"""Entering the imperative mode, making tensors, and gradients without ``backward``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any, TypeVar

import numpy as np

from minigraph.eager.block import EagerBlock, EagerProgram, guard
from minigraph.eager.tape import Tape, recording
from minigraph.eager.tensor import Eager, Tensor
from minigraph.errors import ProgramError, WrongTypeError
from minigraph.ir.default_programs import _DEFAULTS, default_main_program, program_guard
from minigraph.ir.default_programs import is_imperative as enabled
from minigraph.runtime.place import CPUPlace, Place
from minigraph.support.public import public
from minigraph.types import VarKind

__all__ = [
    "disable_dygraph", "disable_static", "eager_block", "enable_dygraph", "enable_static", "enabled", "grad", "guard",
    "imperative", "in_dynamic_mode", "no_grad", "to_variable",
]  # fmt: skip

F = TypeVar("F", bound=Callable[..., Any])

_DEFAULT: list[EagerProgram] = []
"""The program of the imperative mode outside of any guard, once there is one."""
_STATIC: ContextVar[bool] = ContextVar("static", default=False)
_SWITCHED_ON = ExitStack()
"""The mode that `enable_dygraph` or `disable_static` has entered."""


def eager_block() -> EagerBlock:
    """The block of the innermost `guard`; outside of any, one on the CPU that is made on first use."""
    program = default_main_program()
    if not isinstance(program, EagerProgram):
        if not _DEFAULT:
            # Paddle 2, which has no guards, adds gradients up; fluid's guard replaces them.
            _DEFAULT.append(EagerProgram(CPUPlace(), accumulates=True))
        program = _DEFAULT[0]
    block = program.blocks[0]
    assert isinstance(block, EagerBlock)
    return block


@contextmanager
def imperative() -> Iterator[None]:
    """Compute inside what is written, whether or not there is a `guard` around."""
    program = eager_block().program
    with program_guard(program, program):
        yield


def in_dynamic_mode() -> bool:
    """Whether what is written without saying where is computed at once, as Paddle 2 does.

    It is, unless `minigraph.program_guard` or `enable_static` chose a program to write to.
    """
    return enabled() or (not _STATIC.get() and default_main_program() is _DEFAULTS[0])


@public
def enable_dygraph(place: Place | None = None) -> None:
    """Compute operators as they are written from now on, as inside a `guard`; until `disable_dygraph`."""
    if not enabled():
        # An open guard, which `disable_dygraph` closes.
        _SWITCHED_ON.enter_context(guard(place))


def disable_dygraph() -> None:
    """End what `enable_dygraph` or `disable_static` began: operators are written to the default main program again."""
    _SWITCHED_ON.close()


def enable_static() -> None:
    """Write programs from now on, as Paddle 2's static programs begin."""
    disable_dygraph()
    _STATIC.set(True)


def disable_static() -> None:
    """Compute from now on, all functions of `minigraph.layers` included: undoes `enable_static`."""
    _STATIC.set(False)
    if not enabled():
        _SWITCHED_ON.enter_context(imperative())


@public
def to_variable(value: Any, name: str | None = None, zero_copy: bool | None = None) -> Tensor:
    """A tensor with the value of an array; no gradient flows to it unless ``stop_gradient`` is set to False.

    Parameters
    ----------
    value : array_like or Tensor
        A tensor is returned as it is. The array is copied.
    zero_copy : bool, optional
        Accepted because fluid has it; the array is copied in any case.

    Examples
    --------
    >>> with guard():
    ...     x = to_variable(np.array([1.0, 2.0]))
    ...     print((x * 2.0).numpy())
    [2. 4.]
    """
    if isinstance(value, Tensor):
        return value
    array = np.array(value)
    # Such as an array of objects, which `np.array` makes of ragged lists.
    if array.dtype.kind not in "biuf":
        raise WrongTypeError(f"a tensor cannot be made from {type(value).__name__}: {value!r:.60}")
    block = eager_block()
    # Fluid's tensors have at least one dimension.
    return block.tensor(block.place.xp.array(array.reshape(1) if array.ndim == 0 else array), name=name)


@public
def no_grad(func: Callable[..., Any] | None = None) -> Any:
    """Remember nothing for ``backward``: a context manager, or a decorator."""
    if func is None:
        return recording(False)
    decorated = func

    @wraps(decorated)
    def without(*args: Any, **kwargs: Any) -> Any:
        with recording(False):
            return decorated(*args, **kwargs)

    return without


@public
def grad(
    outputs: Any,
    inputs: Any,
    grad_outputs: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool = False,
    no_grad_vars: Any = None,
    backward_strategy: Any = None,
) -> list[Tensor | None]:
    """Gradients of `outputs` with respect to `inputs`, without touching their ``grad``.

    What was computed is kept, whatever `retain_graph` says, and gradients are always summed in the same order, whatever
    `backward_strategy` says.

    Parameters
    ----------
    outputs, inputs : Tensor or sequence of Tensor
    grad_outputs : Tensor or sequence of Tensor or None, optional
        What flows into each output; ones where None.
    create_graph : bool
        Remember how the gradients are computed, so that they have gradients themselves, as a penalty on them needs.
    no_grad_vars : Tensor or sequence of Tensor, optional
        What counts as a constant on the way.
    allow_unused : bool
        Give None for an input that the outputs do not depend on, instead of an error.

    Raises
    ------
    ProgramError
        If an input is not used and `allow_unused` is False, or `only_inputs` is False.

    Examples
    --------
    >>> with guard():
    ...     x = to_variable(np.array([1.0, 2.0]))
    ...     x.stop_gradient = False
    ...     (slope,) = grad(x * x * x, x, create_graph=True)
    ...     (slope * slope).backward(grad_tensor=to_variable(np.ones(2)))
    ...     print(slope.numpy(), x.gradient())  # 3 x ** 2, and the gradient of its square
    [ 3. 12.] [ 36. 288.]
    """
    targets, sources = _as_list(outputs), _as_list(inputs)
    constants = [] if no_grad_vars is None else _as_list(no_grad_vars)
    for tensor in (*targets, *sources, *constants):
        if not isinstance(tensor, Eager):
            raise WrongTypeError(f"grad needs tensors, got {tensor!r:.60}")
    if not only_inputs:
        raise ProgramError(
            "grad does not take only_inputs=False",
            hint="backward() gives every tensor on the way its gradient.",
        )  # fmt: skip
    given = [None] * len(targets) if grad_outputs is None else _as_list(grad_outputs)
    if len(given) != len(targets):
        raise ProgramError(f"{len(targets)} outputs but {len(given)} grad_outputs")
    block = targets[0].block
    seeds = [
        _ones_for(target) if seed is None else _seed(target, seed) for target, seed in zip(targets, given, strict=True)
    ]
    tape = Tape(targets)
    found: list[Tensor | None]
    if create_graph:
        with imperative():
            found = tape.gradient_tensors(block, sources, seeds, constants)
    else:
        arrays = tape.gradients(block.gradient_plans, sources, [seed.array for seed in seeds], constants)
        found = [None if array is None else block.tensor(array) for array in arrays]
    for source, gradient in zip(sources, found, strict=True):
        if gradient is None and not allow_unused:
            raise ProgramError(f"the outputs do not depend on {source.name}", hint="Allow it with allow_unused=True.")
    return found


def _ones_for(target: Tensor) -> Tensor:
    """The default gradient of an output: ones, dense also for selected rows."""
    held = target._held()
    return target.block.tensor(target.block.place.xp.ones(held.shape, held.dtype))


def _seed(target: Tensor, seed: Any) -> Any:
    assert target.tensor_type is not None
    if not isinstance(seed, Eager) or seed.tensor_type != target.tensor_type.held_as(VarKind.LOD_TENSOR):
        raise ProgramError(f"grad_outputs holds {seed!r:.60} for {target.name}, which is {target.tensor_type}")
    return seed


def _as_list(given: Tensor | Sequence[Any]) -> list[Any]:
    return list(given) if isinstance(given, list | tuple) else [given]
