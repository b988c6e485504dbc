"""Rewrites that a program runs with: fluid's `BuildStrategy`, `ExecutionStrategy` and `CompiledProgram`."""

from __future__ import annotations

import enum
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from copy import copy
from functools import cache
from typing import Any
from weakref import WeakKeyDictionary

from minigraph.errors import NotFoundError, ProgramError, WrongTypeError, suggest, warn
from minigraph.executor.replicas import Exchange, GradientScaleStrategy, Replicas, States, Trainer
from minigraph.ir import Program, Role
from minigraph.passes.base import Pass, Pipeline
from minigraph.runtime.place import Place, as_places, cpu_places
from minigraph.runtime.scope import Scope
from minigraph.support.public import public


class ReduceStrategy(enum.Enum):
    """Way in which gradients of several devices are added up."""

    AllReduce = 0
    Reduce = 1


def _field_of(each: Pass) -> str:
    """The field that turns a pass on and off: ``clean_up`` for `CleanUp`."""
    return re.sub("(?<=[a-z])(?=[A-Z])", "_", each.name).lower()


@cache
def _switches() -> Mapping[str, bool]:
    """Defaults of the boolean fields; some switch passes on."""
    from minigraph.passes.pipelines import IN_ORDER, LEGALIZE, LOWERING  # late: not every program runs

    of_passes = {_field_of(each): each in LOWERING.passes for each in IN_ORDER if each not in LEGALIZE.passes}
    others = {"enable_auto_fusion": False, "exact": False, "jit": True, "cuda_graph": True, "sync_batch_norm": False}
    return {**of_passes, **others}


_WITHOUT_EFFECT: dict[str, Any] = {
    "cache_runtime_context": False,
    "debug_graphviz_path": "",
    "enable_backward_optimizer_op_deps": True,
    "enable_inplace": True,
    "enable_sequential_execution": False,
    "hierarchical_allreduce_inter_nranks": 0,
    "nccl_comm_num": 1,
    "use_hierarchical_allreduce": False,
    "fuse_all_optimizer_ops": False,
    "fuse_all_reduce_ops": True,
    "fuse_bn_act_ops": False,
    "fuse_broadcast_ops": True,
    "fuse_elewise_add_act_ops": False,
    "fuse_relu_depthwise_conv": False,
    "memory_optimize": None,
    "reduce_strategy": ReduceStrategy.AllReduce,
    "remove_unnecessary_lock": True,
}
"""Fluid's fields about speed, memory, order or devices: they change no result on processors."""

_ONE_VALUE: dict[str, Any] = {
    "async_mode": False,
    "is_distribution": False,
    "mkldnn_enabled_op_types": set(),
}
"""Fluid's fields that ask for what minigraph does not have."""

_OF_RANKS: dict[str, Any] = {"num_trainers": 1, "trainer_id": 0, "trainers_endpoints": []}
"""Fluid's fields that say which of several processes this one is."""


class _Strategy(ABC):
    """An object that has fields of some names only, each with a default."""

    @classmethod
    @abstractmethod
    def _defaults(cls) -> Mapping[str, Any]:
        """The default of each field."""

    def __init__(self) -> None:
        # Past `__setattr__`, which checks; copies, because some defaults are mutable.
        self.__dict__.update({name: copy(value) for name, value in self._defaults().items()})

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self._defaults():
            raise NotFoundError(f"{type(self).__name__} has no field {name!r}", hint=suggest(name, self._defaults()))
        self._check(name, value)
        self.__dict__[name] = value

    @abstractmethod
    def _check(self, name: str, value: Any) -> None:
        """Raise if the field `name` cannot be `value`, warn if that has no effect."""

    def __repr__(self) -> str:
        defaults = self._defaults()
        changed = [f"{name}={value!r}" for name, value in vars(self).items() if value != defaults[name]]
        return f"<{type(self).__name__} {' '.join(changed) or 'as by default'}>"


class BuildStrategy(_Strategy):
    """Rewrites that an executor applies to its private copy of a program.

    Attributes
    ----------
    merge_exchanges, compute_branches, unroll_recurrent, unroll_loops, name_elements, number_bounds : bool
    write_out_units : bool
    pick_elements, fold_constants, slice_rows, split_reshaped, matmul_to_mul : bool
    clean_up, share_common_subexpressions, find_gradient_descent, find_momentum, merge_elementwise : bool
    merge_updates, shrink_in_update, fuse_mean_loss, free_addends, write_where_assigned : bool
    fuse_elementwise, skip_assigns : bool
        Run `MergeExchanges`, `ComputeBranches`, `UnrollRecurrent`, `UnrollLoops`, `NameElements`, `NumberBounds`,
        `WriteOutUnits`, `PickElements`, `FoldConstants`, `SliceRows`, `SplitReshaped`, `MatmulToMul`, `CleanUp`,
        `ShareCommonSubexpressions`, `FindGradientDescent`, `FindMomentum`, `MergeElementwise`, `MergeUpdates`,
        `ShrinkInUpdate`, `FuseMeanLoss`, `FreeAddends`, `WriteWhereAssigned`, `FuseElementwise`, `SkipAssigns`; True by
        default. They keep every bit.
    transpose_into_matmul : bool
        Run `TransposeIntoMatmul`, which keeps every bit, too; False by default.
    share_gradients, mean_of_all, find_normalizations, find_cross_entropy, find_global_norm, multiply_powers : bool
    sum_squares, scale_by_constants, broadcast_expanded, join_slices, group_convolutions, fold_batch_norms : bool
    split_products, split_operands, scale_into_matmul, turn_transposes, skip_joins, merge_matmuls : bool
    merge_column_sums, merge_products, move_factors, move_joins, transpose_once, transpose_weights, keep_rows : bool
    write_out_gates : bool
        Run `WriteOutGates`, `MoveFactors`, `MoveJoins`, `ShareGradients`, `MeanOfAll`, `FindNormalizations`,
        `FindCrossEntropy`, `FindGlobalNorm`, `MultiplyPowers`, `SumSquares`, `ScaleByConstants`, `BroadcastExpanded`,
        `JoinSlices`, `GroupConvolutions`, `FoldBatchNorms`, `SplitProducts`, `SplitOperands`, `ScaleIntoMatmul`,
        `TurnTransposes` and `SkipJoins`, which find what can be written more simply, and `MergeMatmuls`,
        `MergeColumnSums`, `MergeProducts`, `TransposeOnce`, `TransposeWeights`, for weights that are used many times,
        and `KeepRows`, for large tables; True by default. They change the rounding; the docstring of each pass says by
        how much.
    fuse_softmax_cross_entropy : bool
        Run `FuseSoftmaxCrossEntropy`, which changes the rounding, too; False by default.
    enable_auto_fusion : bool
        Run all passes that change the rounding.
    exact : bool
        Run no pass that changes the rounding and no compiled loop: results are those of the interpreter, bit for bit.
    jit : bool
        Let an executor that compiles loops with numba do so, see `minigraph.kernels.jit`; True by default.
    cuda_graph : bool
        Let an executor that records CUDA graphs do so, see `minigraph.executor.cuda.graph_capture`; True by default.
    gradient_scale_strategy : GradientScaleStrategy
        Where the gradient of the loss begins with `CompiledProgram.with_data_parallel`: at 1 / number of ranks by
        default, at 1, or at what is fed as ``loss@GRAD``.
    sync_batch_norm : bool
        Let each ``batch_norm`` use the mean and the variance of the samples of all places, or processes, with
        `CompiledProgram.with_data_parallel`, see `minigraph.passes.SyncBatchNorm`; False by default.
    num_trainers, trainer_id : int
        Number of processes in which the program runs with `CompiledProgram.with_data_parallel`, and of this one.

    Raises
    ------
    NotFoundError
        If there is no such field.
    WrongTypeError
        If a switch is set to anything but a bool.
    ProgramError
        If a field asks for a feature that minigraph does not have, such as asynchronous updates.

    Warns
    -----
    UserWarning
        If a field of fluid's is set that has no effect here.

    Examples
    --------
    >>> import minigraph as fluid
    >>> strategy = fluid.BuildStrategy()
    >>> strategy.fuse_softmax_cross_entropy = True
    >>> strategy.fold_constants = False
    >>> [each.name for each in strategy.pipeline()]  # doctest: +NORMALIZE_WHITESPACE
    ['FuseGlobalNorm', 'MergeExchanges', 'ComputeBranches', 'UnrollRecurrent', 'UnrollLoops', 'NameElements',
     'NumberBounds', 'WriteOutUnits', 'WriteOutGates', 'OrderOperands', 'PickElements', 'MoveFactors', 'ShareGradients',
     'FindCrossEntropy', 'MeanOfAll', 'FindNormalizations', 'ScaleByConstants', 'MultiplyPowers', 'SumSquares',
     'BroadcastExpanded', 'SliceRows', 'JoinSlices', 'SplitReshaped', 'MoveJoins', 'GroupConvolutions',
     'FoldBatchNorms', 'MatmulToMul', 'TransposeWeights', 'SplitProducts', 'SplitOperands', 'CleanUp',
     'ScaleIntoMatmul', 'TurnTransposes', 'ShareCommonSubexpressions', 'FuseSoftmaxCrossEntropy', 'SkipJoins',
     'MergeMatmuls', 'MergeColumnSums', 'MergeProducts', 'TransposeOnce', 'FindGlobalNorm', 'FindGradientDescent',
     'FindMomentum', 'KeepRows', 'MergeElementwise', 'MergeUpdates', 'ShrinkInUpdate', 'FuseMeanLoss', 'FreeAddends',
     'RemoveDeadOps', 'WriteWhereAssigned', 'FuseElementwise', 'SkipAssigns']
    """

    enable_auto_fusion: bool
    exact: bool
    fuse_elementwise: bool
    jit: bool
    cuda_graph: bool
    sync_batch_norm: bool
    gradient_scale_strategy: GradientScaleStrategy

    GradientScaleStrategy = GradientScaleStrategy
    ReduceStrategy = ReduceStrategy

    @classmethod
    def _defaults(cls) -> Mapping[str, Any]:
        first = GradientScaleStrategy.CoeffNumDevice
        return {**_switches(), **_WITHOUT_EFFECT, **_ONE_VALUE, **_OF_RANKS, "gradient_scale_strategy": first}

    def _check(self, name: str, value: Any) -> None:
        if name in _switches():
            if not isinstance(value, bool):
                raise WrongTypeError(f"{name} must be True or False, got {value!r:.80}")
        elif name in _WITHOUT_EFFECT:
            if value != _WITHOUT_EFFECT[name]:
                shown = f"BuildStrategy.{name} = {value!r:.80}"
                warn(f"{shown} has no effect: minigraph manages memory and scheduling itself")
        elif name in _OF_RANKS:
            if type(value) is not type(_OF_RANKS[name]) or (name == "num_trainers" and value < 1):
                raise WrongTypeError(f"{name} must be like {_OF_RANKS[name]!r}, got {value!r:.80}")
        elif name == "gradient_scale_strategy":
            if not isinstance(value, GradientScaleStrategy):
                raise ProgramError(
                    f"gradient_scale_strategy must be CoeffNumDevice, One or Customized, got {value!r:.80}",
                    hint="Write fluid.BuildStrategy.GradientScaleStrategy.One, for example.",
                )
        elif value != _ONE_VALUE[name]:
            raise ProgramError(
                f"BuildStrategy.{name} = {value!r:.80} asks for what minigraph does not have",
                hint=f"Leave it at {_ONE_VALUE[name]!r}.",
            )

    def pipeline(self) -> Pipeline:
        """The passes that the fields ask for, in order."""
        from minigraph.passes.pipelines import IN_ORDER, LEGALIZE

        return Pipeline(tuple(each for each in IN_ORDER if each in LEGALIZE.passes or self._wants(each)))

    def _wants(self, each: Pass) -> bool:
        is_on: bool = getattr(self, _field_of(each))
        # `exact` wins over the field of a pass.
        if each.changes_rounding:
            return not self.exact and (is_on or self.enable_auto_fusion)
        return is_on


_EXECUTION: dict[str, Any] = {
    "allow_op_delay": False,
    "num_iteration_per_drop_scope": 100,
    "num_iteration_per_run": 1,
    "num_threads": 0,
    "use_cuda": True,
    "use_experimental_executor": True,
    "use_thread_barrier": False,
}
"""Fluid's fields and their defaults."""


class ExecutionStrategy(_Strategy):
    """Schedule of operators on threads in fluid; `CompiledProgram.with_data_parallel` accepts it without effect.

    Attributes
    ----------
    num_threads, num_iteration_per_drop_scope, num_iteration_per_run : int
        In fluid the number of threads, the runs after which temporaries are dropped, and the runs of a program within
        one call, of which a processor makes one, whatever the number.
    allow_op_delay, use_cuda, use_experimental_executor, use_thread_barrier : bool

    Raises
    ------
    NotFoundError
        If there is no such field.
    WrongTypeError
        If a field is set to a value of another type.

    Examples
    --------
    >>> import minigraph as fluid
    >>> strategy = fluid.ExecutionStrategy()
    >>> strategy.num_threads = 4
    >>> strategy
    <ExecutionStrategy num_threads=4>
    """

    @classmethod
    def _defaults(cls) -> Mapping[str, Any]:
        return _EXECUTION

    def _check(self, name: str, value: Any) -> None:
        wanted = type(_EXECUTION[name])
        if type(value) is not wanted:
            raise WrongTypeError(f"{name} must be of type {wanted.__name__}, got {value!r:.80}")
        if name == "num_iteration_per_run" and value != 1:
            warn(f"ExecutionStrategy.num_iteration_per_run = {value} has no effect: a call runs the program once")


@public
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
        self.program = program_or_graph
        self._use(build_strategy or BuildStrategy())
        self.is_data_parallel = False
        self.places: list[Place] = []
        """The one to run on, if it was given."""
        self._places: list[Place] | None = None
        """Fluid's name of the places of its runs; as there, None before the first."""
        self._replicas: Replicas | Trainer | None = None
        self._states: States = WeakKeyDictionary()
        self._shared: CompiledProgram | None = None
        self._scope: Scope | None = None

    def _use(self, strategy: BuildStrategy) -> None:
        self.passes = strategy.pipeline()
        self._exchange = Exchange(strategy.gradient_scale_strategy, strategy.sync_batch_norm)
        self._trainers, self._trainer = (vars(strategy)[name] for name in ("num_trainers", "trainer_id"))
        # Compiled sums add in another order.
        self.jit = strategy.jit and not strategy.exact
        self.cuda_graph = strategy.cuda_graph

    def with_data_parallel(
        self,
        loss_name: str | None = None,
        build_strategy: BuildStrategy | None = None,
        exec_strategy: ExecutionStrategy | None = None,
        share_vars_from: CompiledProgram | None = None,
        places: Any = None,
    ) -> CompiledProgram:
        """Run on every place of `places`: each place has its part of what is fed, and gradients are summed.

        What is fed is divided along the first dimension; what is fetched is joined along it, see `Executor.run`.

        Parameters
        ----------
        loss_name : str, optional
            Name of the loss, for a program with gradients.
        build_strategy : BuildStrategy, optional
            Replaces the strategy that the `CompiledProgram` was made with.
        exec_strategy : ExecutionStrategy, optional
            Changes no result.
        share_vars_from : CompiledProgram, optional
            Program whose scope is used, whatever scope a run is given, and on several places the values of each place,
            such as statistics of batch norm. It must have run already.
        places : Place or sequence of Place, optional
            Several must be CPU places. Default: as many as the environment variable ``CPU_NUM`` says, or one.

        Returns
        -------
        CompiledProgram
            The same object.

        Raises
        ------
        ProgramError
            If several places are not of the processor, on a second call, or if the program has gradients and there is
            no `loss_name`.
        NotFoundError
            If the program has no variable `loss_name`.
        WrongTypeError
            If an argument has the wrong type.
        """
        if self.is_data_parallel:
            raise ProgramError("with_data_parallel was called before", hint="Call it once.")
        _check_type("build_strategy", build_strategy, BuildStrategy)
        _check_type("exec_strategy", exec_strategy, ExecutionStrategy)
        _check_type("share_vars_from", share_vars_from, CompiledProgram)
        given = as_places(places)
        if len(given) > 1 and any(place.kind != "cpu" for place in given):
            raise ProgramError(
                f"with_data_parallel got {len(given)} places that are not all CPU places",
                details=[", ".join(map(repr, given))],
                hint="Give one GPU; several take a process each.",
            )
        self._check_loss(loss_name)
        if build_strategy is not None:
            self._use(build_strategy)
        if not 0 <= self._trainer < self._trainers:
            raise ProgramError(f"trainer_id must be from 0 to {self._trainers - 1}, got {self._trainer}")
        self.is_data_parallel, self.places, self._shared = True, given, share_vars_from
        if share_vars_from is not None:
            self._states = share_vars_from._states
        self._places = None
        return self

    def _check_loss(self, name: str | None) -> None:
        block = self.program.global_block()
        if name is None:
            # Fluid asks for it, because it scales the gradient of the loss by the number of devices.
            if any(op.role & Role.BACKWARD for op in block.ops):
                raise ProgramError(
                    "the program has gradients, so with_data_parallel needs the name of its loss",
                    hint="Write with_data_parallel(loss_name=loss.name).",
                )
        elif name not in block.vars:
            raise NotFoundError(
                f"the program has no variable {name!r} to be its loss",
                hint=suggest(name, block.vars),
            )

    def replicas_on(self, place: Place) -> Replicas | Trainer | None:
        """The program on all its places, for an executor on `place`; None if on one place it runs as it is."""
        if self._places is None:
            places = [place]
            if self.is_data_parallel:
                places = self.places or ([*cpu_places()] if place.kind == "cpu" else [place])
                if self._trainers > 1:
                    self._replicas = self._of_processes(places)
                elif len(places) > 1 or self._exchange.gradient_of_loss is GradientScaleStrategy.Customized:
                    self._replicas = Replicas(self.program, places, self._exchange, self._states)
            self._places = places
        return self._replicas

    def _of_processes(self, places: Sequence[Place]) -> Trainer:
        """The program of this process, one of `BuildStrategy.num_trainers`."""
        if len(places) > 1:
            raise ProgramError(
                f"the program is for {self._trainers} processes with {len(places)} places each",
                hint="Give one place, and start a process for each.",
            )
        return Trainer(self.program, self._trainers, self._trainer, self._exchange)

    def scope_for(self, place: Place, scope: Scope) -> Scope:
        """The scope of a run on `place` that was given `scope`.

        Raises
        ------
        ProgramError
            If the program is for another place, or shares the scope of a program that has not run yet.
        """
        if self.places and set(self.places) != {place}:
            raise ProgramError(
                f"the program was compiled for {self.places[0]}, the executor runs on {place}",
                hint="Give both the same place.",
            )
        if self._shared is not None:
            if self._shared._scope is None:
                raise ProgramError("the program given as share_vars_from did not run yet", hint="Run that one first.")
            scope = self._shared._scope
        # For programs that share variables with this one.
        self._scope = scope
        return scope


def _check_type(what: str, given: Any, wanted: type) -> None:
    if given is not None and not isinstance(given, wanted):
        raise WrongTypeError(f"{what} must be a {wanted.__name__}, got {given!r:.60}")
