"""Entering the imperative mode, making tensors, and gradients without ``backward``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any

import numpy as np

from minigraph.defaults import default_main_program, program_guard
from minigraph.dygraph.tensor import EagerBlock, EagerProgram, Tensor, _Recorded, guard, recording
from minigraph.errors import ProgramError, WrongTypeError, caller_site
from minigraph.place import CPUPlace

__all__ = ["eager_block", "enabled", "grad", "guard", "imperative", "no_grad", "to_variable"]

_DEFAULT: list[EagerProgram] = []


def enabled() -> bool:
    """Whether operators are computed as they are written."""
    return isinstance(default_main_program(), EagerProgram)


def eager_block() -> EagerBlock:
    """The block of the innermost `guard`; outside of any, one on the CPU that is made on first use."""
    program = default_main_program()
    if not isinstance(program, EagerProgram):
        if not _DEFAULT:
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
    if array.dtype.kind not in "biuf":
        raise WrongTypeError(f"a tensor cannot be made from {type(value).__name__}: {value!r:.60}", site=caller_site())
    block = eager_block()
    return Tensor.of(block, block.place.xp.array(array.reshape(1) if array.ndim == 0 else array), name=name)


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

    What was computed is kept, whatever `retain_graph` says. `no_grad_vars` and `backward_strategy` must stay None.

    Parameters
    ----------
    outputs, inputs : Tensor or sequence of Tensor
    grad_outputs : Tensor or sequence of Tensor or None, optional
        What flows into each output; ones where None.
    allow_unused : bool
        Give None for an input that the outputs do not depend on, instead of an error.

    Raises
    ------
    ProgramError
        If an input is not used and `allow_unused` is False, or gradients of gradients are asked for.
    """
    targets, sources = _as_list(outputs), _as_list(inputs)
    if create_graph or no_grad_vars or not only_inputs:
        raise ProgramError(
            "grad does not take create_graph=True, no_grad_vars or only_inputs=False", site=caller_site(),
            hint="Gradients of gradients are to be had in the static mode.",
        )  # fmt: skip
    seeds = None if grad_outputs is None else _as_list(grad_outputs)
    arrays = _Recorded(targets).gradients(targets, sources, seeds)
    for source, array in zip(sources, arrays, strict=True):
        if array is None and not allow_unused:
            raise ProgramError(
                f"the outputs do not depend on {source.name}",
                site=caller_site(),
                hint="Allow it with allow_unused=True.",
            )
    return [None if array is None else Tensor.of(eager_block(), array.copy()) for array in arrays]


def _as_list(given: Tensor | Sequence[Any]) -> list[Any]:
    return list(given) if isinstance(given, list | tuple) else [given]
