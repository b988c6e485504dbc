"""Names that fluid programs reach through ``fluid.framework``."""

from minigraph.defaults import default_main_program, default_startup_program, program_guard
from minigraph.ir import Block, Operator, Parameter, Program, Variable
from minigraph.name_scope import name_scope
from minigraph.place import cpu_places, cuda_places, is_compiled_with_cuda

__all__ = [
    "Block", "Operator", "Parameter", "Program", "Variable", "cpu_places", "cuda_places", "default_main_program",
    "default_startup_program", "is_compiled_with_cuda", "name_scope", "program_guard",
]  # fmt: skip
