"""Fluid's older executor for several places."""

from __future__ import annotations

from typing import Any

from minigraph.errors import WrongTypeError
from minigraph.executor.compiled_program import BuildStrategy, CompiledProgram, ExecutionStrategy
from minigraph.executor.executor import Executor
from minigraph.ir import Program
from minigraph.ir.default_programs import default_main_program
from minigraph.runtime.place import CPUPlace, CUDAPlace, Place, cpu_places
from minigraph.runtime.scope import Scope, global_scope
from minigraph.support.public import public

__all__ = ["ParallelExecutor"]


@public
class ParallelExecutor:
    """An `Executor` for one program; see `CompiledProgram.with_data_parallel`.

    Parameters
    ----------
    use_cuda : bool
        Run on ``CUDAPlace(0)``; else on as many places of the processor as the environment variable ``CPU_NUM`` says,
        or one.
    loss_name, build_strategy, exec_strategy
        As in `CompiledProgram.with_data_parallel`.
    main_program : Program, optional
        Default: the default main program.
    share_vars_from : ParallelExecutor, optional
        Executor whose scope is used, and its values on each place. It must have run already.
    num_trainers, trainer_id : int
        Number of processes and of this one, as `BuildStrategy.num_trainers`.
    scope : Scope, optional
        Where persistable variables live. Default: what is the global scope now.

    Raises
    ------
    ProgramError
        As `CompiledProgram.with_data_parallel`.
    WrongTypeError
        If an argument has the wrong type.

    Examples
    --------
    >>> import minigraph as fluid, numpy as np
    >>> with fluid.program_guard(fluid.Program()):
    ...     y = fluid.layers.scale(fluid.data("x", [None]), 2.0)
    ...     executor = fluid.ParallelExecutor(use_cuda=False)
    >>> executor.run([y.name], feed={"x": np.ones(2, "float32")})
    [array([2., 2.], dtype=float32)]
    """

    def __init__(
        self,
        use_cuda: bool,
        loss_name: str | None = None,
        main_program: Program | None = None,
        share_vars_from: ParallelExecutor | None = None,
        exec_strategy: ExecutionStrategy | None = None,
        build_strategy: BuildStrategy | None = None,
        num_trainers: int = 1,
        trainer_id: int = 0,
        scope: Scope | None = None,
    ) -> None:
        for what, given, wanted in (("share_vars_from", share_vars_from, ParallelExecutor), ("scope", scope, Scope)):
            if given is not None and not isinstance(given, wanted):
                raise WrongTypeError(f"{what} must be a {wanted.__name__}, got {given!r:.60}")
        strategy = build_strategy or BuildStrategy()
        if num_trainers != 1:
            strategy.num_trainers = num_trainers
        if trainer_id != 0:
            strategy.trainer_id = trainer_id
        place = CUDAPlace(0) if use_cuda else CPUPlace()
        self._places: list[Place] = [place] if use_cuda else list(cpu_places())
        self._compiled: CompiledProgram = CompiledProgram(main_program or default_main_program()).with_data_parallel(
            loss_name,
            strategy,
            exec_strategy,
            share_vars_from._compiled if share_vars_from is not None else None,
            self._places,
        )
        self._scope: Scope = share_vars_from._scope if share_vars_from is not None else scope or global_scope()
        self._executor = Executor(place)

    def run(self, fetch_list: Any, feed: Any = None, feed_dict: Any = None, return_numpy: bool = True) -> list[Any]:
        """`Executor.run` of the program; `feed_dict` is an older name of `feed`."""
        feed = feed_dict if feed is None else feed
        return self._executor.run(self._compiled, feed, fetch_list, scope=self._scope, return_numpy=return_numpy)

    @property
    def device_count(self) -> int:
        """Number of places."""
        return len(self._places)

    def drop_local_exe_scopes(self) -> None:
        """Accepted because fluid has it; temporaries do not outlive a run."""
