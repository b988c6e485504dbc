"""Names that fluid programs use through ``fluid.framework``; a face, which the engine never imports."""

from minigraph.eager.guard import enabled as in_dygraph_mode
from minigraph.framework.flags import get_flags, set_flags
from minigraph.framework.op_protos import OpProtoHolder
from minigraph.framework.version_check import require_version
from minigraph.ir import Block, Operator, Parameter, Program, Variable
from minigraph.ir.default_programs import default_main_program, default_startup_program, program_guard
from minigraph.ir.name_scope import name_scope
from minigraph.runtime.place import cpu_places, cuda_pinned_places, cuda_places, device_guard, is_compiled_with_cuda
from minigraph.support.public import refuse_unknown_names

__all__ = [
    "Block", "OpProtoHolder", "Operator", "Parameter", "Program", "Variable", "cpu_places", "cuda_pinned_places",
    "cuda_places", "default_main_program", "default_startup_program", "device_guard", "get_flags", "in_dygraph_mode",
    "is_compiled_with_cuda", "name_scope", "program_guard", "require_version", "set_flags",
]  # fmt: skip

refuse_unknown_names(__name__)


def _get_var(name: str, program: Program | None = None) -> Variable:
    """The variable of this name in the global block of a program, by default the main program."""
    return (program or default_main_program()).global_block().var(name)
