"""Layers of the imperative mode in programs: their parameters become parameters of the program, as in fluid."""

from __future__ import annotations

from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any

from minigraph.eager.guard import in_dynamic_mode
from minigraph.eager.tensor import Eager, EagerParameter
from minigraph.initializer import NumpyArrayInitializer
from minigraph.ir import Parameter, Variable
from minigraph.ir.default_programs import default_main_program, default_startup_program
from minigraph.support.context import holding

_WRITES: ContextVar[bool] = ContextVar("writes", default=False)
"""Whether a layer is being called on variables of a program."""


def writes_program() -> bool:
    """Whether layers write to a program: one that `program_guard` or `enable_static` chose, or that of their inputs."""
    return _WRITES.get() or not in_dynamic_mode()


def has_variables(given: tuple[Any, ...]) -> bool:
    """Whether any input of a layer is a variable of a program."""
    return any(isinstance(each, Variable) and not isinstance(each, Eager) for each in given)


def writing() -> AbstractContextManager[None]:
    """Let layers write what they compute, and make parameters, in the default programs."""
    return holding(_WRITES, True)


def parameter_in_program(param: EagerParameter) -> Parameter:
    """The parameter of the default main program that stands for `param`, and starts with its value."""
    main, startup = default_main_program().global_block(), default_startup_program().global_block()
    found = main.vars.get(param.name)
    if isinstance(found, Parameter):  # shared by several layers
        return found
    startup.create_var(
        name=param.name, shape=param.shape, dtype=param.dtype, persistable=True,
        initializer=NumpyArrayInitializer(param.numpy()),
    )  # fmt: skip
    made = param._copy_to(main)
    assert isinstance(made, Parameter)
    main._add(made)
    return made
