"""Which rewrites a program is run with: fluid's `BuildStrategy` and `CompiledProgram`."""

from __future__ import annotations

import enum
from typing import Any

from minigraph.errors import NotFoundError, ProgramError, WrongTypeError, caller_site, suggest, warn
from minigraph.ir import Program
from minigraph.passes import (
    CleanUp,
    FoldConstants,
    FuseElementwise,
    FuseGlobalNorm,
    FuseSoftmaxCrossEntropy,
    MergeColumnSums,
    MergeMatmuls,
    MergeProducts,
    MergeUpdates,
    Pass,
    Pipeline,
    RemoveDeadOps,
    ShareCommonSubexpressions,
    ShrinkInUpdate,
    TransposeIntoMatmul,
    TransposeOnce,
)


class GradientScaleStrategy(enum.Enum):
    """What the gradient of a loss begins with on each of several devices."""

    CoeffNumDevice = 0
    One = 1
    Customized = 2


class ReduceStrategy(enum.Enum):
    """How gradients of several devices are added up."""

    AllReduce = 0
    Reduce = 1


_PASSES: dict[str, Pass] = {
    "fold_constants": FoldConstants(),
    "clean_up": CleanUp(),
    "transpose_into_matmul": TransposeIntoMatmul(),
    "share_common_subexpressions": ShareCommonSubexpressions(),
    "fuse_softmax_cross_entropy": FuseSoftmaxCrossEntropy(),
    "merge_matmuls": MergeMatmuls(),
    "merge_column_sums": MergeColumnSums(),
    "merge_products": MergeProducts(),
    "transpose_once": TransposeOnce(),
    "merge_updates": MergeUpdates(),
    "shrink_in_update": ShrinkInUpdate(),
}
"""In the order in which they run."""

_OFF = frozenset({"transpose_into_matmul", "fuse_softmax_cross_entropy"})
_ROUND_OTHERWISE = (
    "fuse_softmax_cross_entropy", "merge_matmuls", "merge_column_sums", "merge_products", "transpose_once",
)  # fmt: skip

_SWITCHES = {
    **{name: name not in _OFF for name in _PASSES},
    "fuse_elementwise": True,
    "enable_auto_fusion": False,
    "exact": False,
    "jit": True,
    "cuda_graph": False,
}
"""Fields that say which passes run and whether loops are compiled, and their defaults."""

_WITHOUT_EFFECT: dict[str, Any] = {
    "cache_runtime_context": False,
    "enable_backward_optimizer_op_deps": True,
    "enable_inplace": True,
    "enable_sequential_execution": False,
    "fuse_all_optimizer_ops": False,
    "fuse_all_reduce_ops": True,
    "fuse_bn_act_ops": False,
    "fuse_broadcast_ops": True,
    "fuse_elewise_add_act_ops": False,
    "fuse_relu_depthwise_conv": False,
    "memory_optimize": None,
    "reduce_strategy": ReduceStrategy.AllReduce,
    "remove_unnecessary_lock": True,
    "sync_batch_norm": False,
}
"""Fluid's fields about speed, memory, order or devices: they change no result."""

_ONE_VALUE: dict[str, Any] = {
    "async_mode": False,
    "debug_graphviz_path": "",
    "hierarchical_allreduce_inter_nranks": 0,
    "is_distribution": False,
    "mkldnn_enabled_op_types": set(),
    "nccl_comm_num": 1,
    "num_trainers": 1,
    "trainer_id": 0,
    "trainers_endpoints": [],
    "use_hierarchical_allreduce": False,
}
"""Fluid's fields that ask for what minigraph does not have."""

_FIELDS = {
    **_SWITCHES, **_WITHOUT_EFFECT, **_ONE_VALUE, "gradient_scale_strategy": GradientScaleStrategy.CoeffNumDevice,
}  # fmt: skip


class BuildStrategy:
    """Which rewrites an executor applies to its private copy of a program.

    Attributes
    ----------
    fold_constants, clean_up, share_common_subexpressions, merge_updates, shrink_in_update, fuse_elementwise : bool
        Run `FoldConstants`, `CleanUp`, `ShareCommonSubexpressions`, `MergeUpdates`, `ShrinkInUpdate`,
        `FuseElementwise`; True by default. They keep every bit.
    transpose_into_matmul : bool
        Run `TransposeIntoMatmul`, which keeps every bit, too; False by default.
    merge_matmuls, merge_column_sums, merge_products, transpose_once : bool
        Run `MergeMatmuls`, `MergeColumnSums`, `MergeProducts`, `TransposeOnce`, which find weights that are used many
        times; True by default. They round otherwise, see there how much.
    fuse_softmax_cross_entropy : bool
        Run `FuseSoftmaxCrossEntropy`, which rounds otherwise, too; False by default.
    enable_auto_fusion : bool
        Run all that round otherwise.
    exact : bool
        Run nothing that rounds otherwise, compiled loops included: results are those of the interpreter, bit for bit.
    jit : bool
        Let an executor that compiles loops with numba do so, see `minigraph.kernels.jit`; True by default.
    cuda_graph : bool
        On a GPU, record what can be recorded as CUDA graphs, see `minigraph.cuda_graph`; False by default, because
        nobody has measured it yet.

    Raises
    ------
    NotFoundError
        When a field is set that there is none of.
    WrongTypeError
        When a switch is not set to a bool.
    ProgramError
        When a field is set to what minigraph does not have, such as several trainers.

    Warns
    -----
    UserWarning
        When a field of fluid's is set that changes no result and has no effect here.

    Examples
    --------
    >>> import minigraph as fluid
    >>> strategy = fluid.BuildStrategy()
    >>> strategy.fuse_softmax_cross_entropy = True
    >>> strategy.fold_constants = False
    >>> [each.name for each in strategy.pipeline()]  # doctest: +NORMALIZE_WHITESPACE
    ['FuseGlobalNorm', 'CleanUp', 'ShareCommonSubexpressions', 'FuseSoftmaxCrossEntropy', 'MergeMatmuls',
     'MergeColumnSums', 'MergeProducts', 'TransposeOnce', 'MergeUpdates', 'ShrinkInUpdate', 'RemoveDeadOps',
     'FuseElementwise']
    """

    enable_auto_fusion: bool
    exact: bool
    fuse_elementwise: bool
    jit: bool
    cuda_graph: bool

    GradientScaleStrategy = GradientScaleStrategy
    ReduceStrategy = ReduceStrategy

    def __init__(self) -> None:
        self.__dict__.update(_FIELDS, mkldnn_enabled_op_types=set(), trainers_endpoints=[])

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in _FIELDS:
            raise NotFoundError(f"BuildStrategy has no field {name!r}", site=caller_site(), hint=suggest(name, _FIELDS))
        if name in _SWITCHES:
            if not isinstance(value, bool):
                raise WrongTypeError(f"{name} must be True or False, got {value!r:.80}", site=caller_site())
        elif name in _WITHOUT_EFFECT:
            if value != _WITHOUT_EFFECT[name]:
                warn(f"BuildStrategy.{name} = {value!r:.80} has no effect: minigraph runs on one device and sees to "
                     "memory, order and speed itself")  # fmt: skip
        elif name == "gradient_scale_strategy":
            # On one device the coefficient of the number of devices is one, too.
            if value not in (GradientScaleStrategy.CoeffNumDevice, GradientScaleStrategy.One):
                raise ProgramError(
                    f"gradient_scale_strategy must be CoeffNumDevice or One, got {value!r:.80}", site=caller_site(),
                    hint="Scale the loss, or give fluid.gradients its target_gradients.",
                )  # fmt: skip
        elif value != _ONE_VALUE[name]:
            raise ProgramError(
                f"BuildStrategy.{name} = {value!r:.80} asks for what minigraph does not have", site=caller_site(),
                hint=f"Leave it at {_ONE_VALUE[name]!r}.",
            )  # fmt: skip
        self.__dict__[name] = value

    def pipeline(self) -> Pipeline:
        """The passes that the fields ask for, in order."""
        wanted = [
            name for name in _PASSES if getattr(self, name) or (self.enable_auto_fusion and name in _ROUND_OTHERWISE)
        ]
        if self.exact:
            wanted = [name for name in wanted if name not in _ROUND_OTHERWISE]
        last = [FuseElementwise()] if self.fuse_elementwise else []
        return Pipeline((FuseGlobalNorm(), *(_PASSES[name] for name in wanted), RemoveDeadOps(), *last))

    def __repr__(self) -> str:
        changed = [f"{name}={value!r}" for name, value in vars(self).items() if value != _FIELDS[name]]
        return f"<BuildStrategy {' '.join(changed) or 'as by default'}>"


class CompiledProgram:
    """A program and the rewrites it is run with; `Executor.run` takes it in place of the program.

    Parameters
    ----------
    program_or_graph : Program
    build_strategy : BuildStrategy, optional
        Read when the `CompiledProgram` is made.

    Raises
    ------
    WrongTypeError
        For another kind of argument.

    Examples
    --------
    >>> import minigraph as fluid, numpy as np
    >>> main = fluid.Program()
    >>> with fluid.program_guard(main):
    ...     y = fluid.layers.scale(fluid.data("x", [None]), 2.0)
    >>> strategy = fluid.BuildStrategy()
    >>> strategy.enable_auto_fusion = True
    >>> fluid.Executor().run(fluid.CompiledProgram(main, strategy), {"x": np.ones(2, "float32")}, [y])
    [array([2., 2.], dtype=float32)]
    """

    def __init__(self, program_or_graph: Program, build_strategy: BuildStrategy | None = None) -> None:
        if not isinstance(program_or_graph, Program):
            raise WrongTypeError(
                f"CompiledProgram needs a Program, got {type(program_or_graph).__name__}", site=caller_site()
            )
        if build_strategy is not None and not isinstance(build_strategy, BuildStrategy):
            raise WrongTypeError(
                f"build_strategy must be a BuildStrategy, got {type(build_strategy).__name__}", site=caller_site()
            )
        self.program = program_or_graph
        strategy = build_strategy or BuildStrategy()
        self.passes = strategy.pipeline()
        self.jit = strategy.jit and not strategy.exact
        self.cuda_graph = strategy.cuda_graph

    def with_data_parallel(self, *args: Any, **kwargs: Any) -> CompiledProgram:
        """Out of scope: minigraph runs a program on one device.

        Raises
        ------
        ProgramError
            Always.
        """
        raise ProgramError(
            "with_data_parallel is out of scope: minigraph runs a program on one device", site=caller_site(),
            hint="Run the CompiledProgram, or the program, as it is.",
        )  # fmt: skip
