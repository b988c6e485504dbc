"""Names that fluid programs use through ``fluid.framework``; imports the engine, layers and dygraph."""

import functools
from collections.abc import Callable
from typing import Any

from minigraph import unique_name as unique_name
from minigraph.eager.block import EagerBlock
from minigraph.eager.guard import eager_block
from minigraph.eager.guard import enabled as in_dygraph_mode
from minigraph.eager.tensor import EagerParameter
from minigraph.errors import ProgramError
from minigraph.framework.flags import get_flags, set_flags
from minigraph.framework.op_library import load_op_library
from minigraph.framework.op_protos import OpProtoHolder
from minigraph.framework.version_check import require_version
from minigraph.ir import Block, Operator, Parameter, Program, Variable
from minigraph.ir.default_programs import (
    default_main_program,
    default_startup_program,
    program_guard,
    switch_main_program,
    switch_startup_program,
)
from minigraph.ir.name_scope import name_scope
from minigraph.opdef import GRAD_SUFFIX
from minigraph.runtime.place import (
    Place,
    cpu_places,
    cuda_pinned_places,
    cuda_places,
    device_guard,
    is_compiled_with_cuda,
)
from minigraph.support.public import public, refuse_unknown_names
from minigraph.types import DType, as_dtype

__all__ = [
    "Block", "OpProtoHolder", "Operator", "Parameter", "Program", "Variable", "convert_np_dtype_to_dtype_",
    "cpu_places", "cuda_pinned_places", "cuda_places", "default_main_program", "default_startup_program",
    "device_guard", "dtype_is_floating", "dygraph_not_support", "dygraph_only", "get_flags", "grad_var_name",
    "in_dygraph_mode", "is_compiled_with_cuda", "load_op_library", "name_scope", "program_guard", "require_version",
    "set_flags", "switch_main_program", "switch_startup_program",
]  # fmt: skip

# Fluid's other names.
ParamBase = EagerParameter
GRAD_VAR_SUFFIX, EMPTY_VAR_NAME = GRAD_SUFFIX, "@EMPTY@"

refuse_unknown_names(__name__)


def _get_var(name: str, program: Program | None = None) -> Variable:
    """The variable of this name in the global block of a program, by default the main program."""
    return (program or default_main_program()).global_block().var(name)


@public
def grad_var_name(var_name: str) -> str:
    """The name that the first backward pass gives to the gradient of a variable."""
    return f"{var_name}{GRAD_SUFFIX}"


@public
def convert_np_dtype_to_dtype_(np_dtype: Any) -> DType:
    """The element type that stands for a NumPy dtype."""
    return as_dtype(np_dtype)


@public
def dtype_is_floating(dtype: Any) -> bool:
    """Whether an element type is one of floating-point numbers."""
    return as_dtype(dtype).is_floating


def _dygraph_tracer() -> EagerBlock | None:
    """The tracer of the imperative mode; None while programs are written."""
    return eager_block() if in_dygraph_mode() else None


def _current_expected_place() -> Place | None:
    """The place of the imperative mode, None while programs are written."""
    return eager_block().place if in_dygraph_mode() else None


def _for_mode(function: Callable[..., Any], is_imperative: bool) -> Callable[..., Any]:
    @functools.wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        if in_dygraph_mode() is not is_imperative:
            place = "inside of" if is_imperative else "outside of"
            raise ProgramError(
                f"{function.__name__} is {'only' if is_imperative else 'not'} for the imperative mode",
                hint=f"Call it {place} fluid.dygraph.guard().",
            )
        return function(*args, **kwargs)

    return checked


@public
def dygraph_only(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a function that only the imperative mode may call."""
    return _for_mode(function, True)


@public
def dygraph_not_support(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a function that the imperative mode may not call."""
    return _for_mode(function, False)
