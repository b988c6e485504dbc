"""A training program is data: build it, differentiate it, clip its gradients, print it, compare it, run it.

``import minigraph as fluid`` and ``import minigraph as paddle`` both run programs written for Paddle fluid 1.x.
"""

# For what importing them does: variables get their arithmetic, operators and kernels are registered.
import minigraph.arithmetic
import minigraph.kernels
import minigraph.ops  # noqa: F401
from minigraph import (
    backward,
    clip,
    core,
    dataset,
    dygraph,
    errors,
    framework,
    initializer,
    layers,
    metrics,
    optimizer,
    passes,
    reader,
    regularizer,
    unique_name,
)
from minigraph.backward import append_backward, gradients
from minigraph.data_feeder import DataFeeder
from minigraph.defaults import default_main_program, default_startup_program, program_guard
from minigraph.errors import MinigraphError
from minigraph.executor import Executor
from minigraph.interpreter import Interpreter
from minigraph.ir import Block, Operator, Parameter, Program, Variable
from minigraph.layers.io import fluid_data as data
from minigraph.name_scope import name_scope
from minigraph.param_attr import ParamAttr
from minigraph.place import CPUPlace, CUDAPlace, cpu_places, cuda_places, is_compiled_with_cuda
from minigraph.reader import batch
from minigraph.scope import LoDTensor, Scope, global_scope, scope_guard
from minigraph.text import diff
from minigraph.verify import verify
from minigraph.version import __version__

__all__ = [
    "Block", "CPUPlace", "CUDAPlace", "DataFeeder", "Executor", "Interpreter", "LoDTensor", "MinigraphError",
    "Operator", "ParamAttr", "Parameter", "Program", "Scope", "Variable", "__version__", "append_backward",
    "backward", "batch", "clip", "core", "cpu_places", "cuda_places", "data", "dataset", "default_main_program",
    "default_startup_program", "diff", "dygraph", "errors", "framework", "global_scope", "gradients", "initializer",
    "is_compiled_with_cuda", "layers", "metrics", "name_scope", "optimizer", "passes", "program_guard",
    "reader", "regularizer", "scope_guard", "unique_name", "verify",
]  # fmt: skip
