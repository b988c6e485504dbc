"""A training program is data: build it, differentiate it, clip its gradients, print it, compare it, run it.

``import minigraph as fluid`` runs programs written for Paddle fluid 1.x, ``import minigraph as paddle`` also what is
written for Paddle 2's imperative mode, as far as the operators go.
"""

# ruff: noqa: E402 -- imports stand behind the pause of the collector

import gc as _gc
import sys
from typing import TYPE_CHECKING

# Before all that may lie in the current folder, too.
import minigraph.support.current_folder

# isort: split
# Before all that takes time to import.
import minigraph.support.interrupted_import

# isort: split
# Loads NumPy, and so has to come first.
import minigraph.support.blas

# isort: split
# Has arrays reuse memory that others have freed.
import minigraph.support.freed_memory

# isort: split
# Says what to do in a copy of the project that does not run as it is.
import minigraph.support.linked_folders

if TYPE_CHECKING:  # what a run of a program does not need is imported when it is asked for, see the end
    from minigraph import (
        contrib,
        dataset,
        dygraph,
        evaluator,
        incubate,
        io,
        metrics,
        nets,
        nn,
        reader,
        rewrite,
        transpiler,
        wrapped_decorator,
    )  # fmt: skip
    from minigraph.comparison import compare_gradients, compare_training
    from minigraph.dygraph.layer import Layer
    from minigraph.io.programs import load, load_program_state, save, set_program_state
    from minigraph.io.state_dicts import load_dygraph, save_dygraph
    from minigraph.reader import batch
    from minigraph.reader.feeder import DataFeeder
    from minigraph.reader.slot_files import DatasetFactory, InMemoryDataset, QueueDataset
    from minigraph.transpiler import (
        DistributeTranspiler,
        DistributeTranspilerConfig,
        memory_optimize,
        release_memory,
    )

# isort: split
# Modules live on: to look for dead objects among them, now and when the process ends, is a sixth of the import. Where
# many objects are there before, some may be a user's that die later.
_collects, _few = _gc.isenabled(), len(_gc.get_objects()) < 30_000
_gc.disable()
try:
    # For what importing them does: variables get their arithmetic and subscripts, operators and kernels are registered.
    import minigraph.ops  # noqa: F401
    from minigraph import (
        average,
        backward,
        clip,
        compiler,
        core,
        errors,
        framework,
        initializer,
        layers,
        optimizer,
        passes,
        profiler,
        regularizer,
        tensor,
        unique_name,
    )

    if _few:
        _gc.freeze()
finally:
    if _collects:
        _gc.enable()

from minigraph.autodiff.backward import append_backward, gradients
from minigraph.eager.guard import (
    disable_dygraph,
    disable_static,
    enable_dygraph,
    enable_static,
    grad,
    in_dynamic_mode,
    no_grad,
)
from minigraph.eager.guard import enabled as in_dygraph_mode
from minigraph.eager.tensor import Tensor
from minigraph.errors import MinigraphError
from minigraph.executor import Executor
from minigraph.executor.compiled_program import BuildStrategy, CompiledProgram, ExecutionStrategy
from minigraph.executor.interpreter import Interpreter
from minigraph.executor.parallel_executor import ParallelExecutor
from minigraph.framework.flags import get_flags, set_flags
from minigraph.framework.op_library import load_op_library
from minigraph.framework.version_check import require_version
from minigraph.ir import Block, Operator, Parameter, Program, Variable
from minigraph.ir.default_programs import default_main_program, default_startup_program, program_guard
from minigraph.ir.name_scope import name_scope
from minigraph.ir.text.diff import diff
from minigraph.ir.verifier import verify
from minigraph.layers.io import fluid_data as data
from minigraph.layers.nn import fluid_embedding as embedding
from minigraph.lod_tensor import LoDTensorArray, create_lod_tensor, create_random_int_lodtensor
from minigraph.param_attr import ParamAttr, WeightNormParamAttr
from minigraph.runtime.place import (
    CPUPlace,
    CUDAPinnedPlace,
    CUDAPlace,
    cpu_places,
    cuda_pinned_places,
    cuda_places,
    device_guard,
    is_compiled_with_cuda,
)
from minigraph.runtime.scope import Scope, global_scope, scope_guard
from minigraph.runtime.scope_variable import LoDTensor
from minigraph.support.fluid_paths import open_paths
from minigraph.support.public import refuse_unknown_names
from minigraph.tensor import *
from minigraph.types import DType
from minigraph.version import __version__

# Paddle 2's names of the element types. Its function `clip` is only a method here: the name is fluid's module.
float16, float32, float64 = DType.FP16, DType.FP32, DType.FP64
bool, uint8, int8, int16, int32, int64 = DType.BOOL, DType.UINT8, DType.INT8, DType.INT16, DType.INT32, DType.INT64
enable_imperative, disable_imperative = enable_dygraph, disable_dygraph  # fluid's older names
fluid = sys.modules[__name__]  # `import minigraph as paddle` gives `paddle.fluid`

__all__ = [
    "Block",
    "BuildStrategy",
    "CPUPlace",
    "CUDAPinnedPlace",
    "CUDAPlace",
    "CompiledProgram",
    "DataFeeder",
    "DatasetFactory",
    "DistributeTranspiler",
    "DistributeTranspilerConfig",
    "ExecutionStrategy",
    "Executor",
    "InMemoryDataset",
    "Interpreter",
    "Layer",
    "LoDTensor",
    "LoDTensorArray",
    "MinigraphError",
    "Operator",
    "ParallelExecutor",
    "ParamAttr",
    "Parameter",
    "Program",
    "QueueDataset",
    "Scope",
    "Tensor",
    "Variable",
    "WeightNormParamAttr",
    "__version__",
    "append_backward",
    "average",
    "backward",
    "batch",
    "bool",
    "clip",
    "compare_gradients",
    "compare_training",
    "compiler",
    "contrib",
    "core",
    "cpu_places",
    "create_lod_tensor",
    "create_random_int_lodtensor",
    "cuda_pinned_places",
    "cuda_places",
    "data",
    "dataset",
    "default_main_program",
    "default_startup_program",
    "device_guard",
    "diff",
    "disable_dygraph",
    "disable_imperative",
    "disable_static",
    "dygraph",
    "embedding",
    "enable_dygraph",
    "enable_imperative",
    "enable_static",
    "errors",
    "evaluator",
    "float16",
    "float32",
    "float64",
    "framework",
    "get_flags",
    "global_scope",
    "grad",
    "gradients",
    "in_dygraph_mode",
    "in_dynamic_mode",
    "incubate",
    "initializer",
    "int8",
    "int16",
    "int32",
    "int64",
    "io",
    "is_compiled_with_cuda",
    "layers",
    "load",
    "load_dygraph",
    "load_op_library",
    "load_program_state",
    "memory_optimize",
    "metrics",
    "name_scope",
    "nets",
    "nn",
    "no_grad",
    "optimizer",
    "passes",
    "profiler",
    "program_guard",
    "reader",
    "regularizer",
    "release_memory",
    "require_version",
    "rewrite",
    "save",
    "save_dygraph",
    "scope_guard",
    "set_flags",
    "set_program_state",
    "transpiler",
    "uint8",
    "unique_name",
    "verify",
    "wrapped_decorator",
]  # fmt: skip
__all__ += tensor.__all__

_LATE = (
    "comparison", "contrib", "data_feeder", "dataset", "dygraph", "evaluator", "incubate", "io", "metrics", "nets",
    "nn", "parallel_executor", "reader", "rewrite", "transpiler", "wrapped_decorator",
)  # fmt: skip

open_paths()
refuse_unknown_names(
    __name__,
    **{name: f"{__name__}.{name}" for name in _LATE},
    DataFeeder="minigraph.reader.feeder",
    **dict.fromkeys(("DatasetFactory", "InMemoryDataset", "QueueDataset"), "minigraph.reader.slot_files"),
    Layer="minigraph.dygraph.layer",
    VarBase="minigraph.core",
    batch="minigraph.reader",
    **dict.fromkeys(("compare_gradients", "compare_training"), "minigraph.comparison"),
    **dict.fromkeys(("load", "load_program_state", "save", "set_program_state"), "minigraph.io.programs"),
    **dict.fromkeys(
        ("DistributeTranspiler", "DistributeTranspilerConfig", "memory_optimize", "release_memory"),
        "minigraph.transpiler",
    ),
    **dict.fromkeys(("load_dygraph", "save_dygraph"), "minigraph.io.state_dicts"),
    **dict.fromkeys(
        (
            "BCELoss",
            "BatchNorm",
            "BilinearTensorProduct",
            "Conv2D",
            "Conv2DTranspose",
            "Conv3D",
            "Conv3DTranspose",
            "Dropout",
            "Embedding",
            "GRUUnit",
            "GroupNorm",
            "InstanceNorm",
            "L1Loss",
            "LayerNorm",
            "Linear",
            "MSELoss",
            "NCE",
            "NLLLoss",
            "PRelu",
            "Pool2D",
            "SpectralNorm",
        ),
        "minigraph.dygraph",
    ),
)
