"""Executor: lowers a program once for its feed types and fetches, then calls the plan."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Mapping, Sequence
from copy import deepcopy
from functools import cached_property
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from minigraph.errors import MinigraphError, NonfiniteError
from minigraph.executor import nonfinite_check, profiler
from minigraph.executor.call_cache import CallCache, names_in
from minigraph.executor.compiled_program import CompiledProgram
from minigraph.executor.feeds import prepare_feed, types_of, without_gaps
from minigraph.executor.fetches import (
    fetch_names,
    keep_lengths,
    refuse_lengths,
    results_of,
    unshared_results,
    with_lengths,
)
from minigraph.executor.first_run import compare_starts
from minigraph.executor.runner import Runner, check_program
from minigraph.ir import Program
from minigraph.ir.type_inference import blame, explain
from minigraph.kernels.jit import is_available as is_jit_available
from minigraph.kernels.jit import require as require_jit
from minigraph.lowering.buffer_pool import BufferPool
from minigraph.passes import Pipeline, events
from minigraph.runtime.place import Place
from minigraph.runtime.scope import Scope
from minigraph.support.communicator import current
from minigraph.support.float_errors import IgnoringErrors
from minigraph.support.interrupts import Saved, deferred, hold, is_held, is_interrupt, put_back, release
from minigraph.support.public import public

if TYPE_CHECKING:
    from minigraph.executor.cuda.feed_staging import Staging
    from minigraph.executor.cuda.graph_capture import GraphRuns
    from minigraph.executor.explain import RunExplanation
    from minigraph.executor.plan import Plan


def _is_checking() -> bool:
    """Whether executors that are not told otherwise check their runs."""
    return os.environ.get("MINIGRAPH_CHECK", "").strip().lower() not in ("", "0", "off")


class Executor(Runner):
    """Runs programs on a place.

    A program is lowered on its first run with given feed shapes, dtypes and fetches; later runs reuse the plan as long
    as the program does not change. The most recently used plans are kept.

    Parameters
    ----------
    place : Place, optional
        Default: `CPUPlace`.
    passes : Pipeline, optional
        The rewrites of the private copy. Default: `minigraph.passes.LOWERING`.
    cache_size : int
        Maximum number of plans that are kept.
    jit : bool, optional
        Compile loops with numba on a processor, see `minigraph.kernels.jit`. Default: if numba is installed and
        ``MINIGRAPH_JIT=off`` is not in the environment.
    cuda_graph : bool
        On a GPU, record what can be recorded as CUDA graphs and send what is fed from pinned memory, see
        `minigraph.executor.cuda.graph_capture`. A recording keeps its memory as long as its plan.
    check : bool, optional
        Check in each run that no value changes while it is needed and that results are the caller's own, see
        `minigraph.executor.checking`; runs take several times as long. Default: if ``MINIGRAPH_CHECK=1`` is in the
        environment.

    Raises
    ------
    MissingExtraError
        If `jit` is True and numba is not installed.

    Examples
    --------
    >>> import minigraph as fluid, numpy as np
    >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
    ...     x = fluid.data("x", [None, 2])
    ...     y = fluid.layers.scale(x, 10.0)
    ...     exe = fluid.Executor(fluid.CPUPlace())
    ...     exe.run(feed={"x": np.ones((1, 2), "float32")}, fetch_list=[y])
    [array([[10., 10.]], dtype=float32)]
    """

    @public
    def __init__(
        self,
        place: Place | None = None,
        passes: Pipeline | None = None,
        cache_size: int = 64,
        jit: bool | None = None,
        cuda_graph: bool = True,
        check: bool | None = None,
    ) -> None:
        super().__init__(place)
        if passes is not None:
            self.passes = passes
        self.cache_size = cache_size
        if jit:
            require_jit()
        self.jit = is_jit_available() if jit is None else bool(jit)
        self._calls = CallCache(cache_size)
        self.check = _is_checking() if check is None else bool(check)
        self.cuda_graph = cuda_graph and self.place.kind == "cuda" and not self.check
        # One executor for each set of options of compiled programs, so that their plans do not push out one another's.
        self._others: dict[tuple[Pipeline, bool, bool], Executor] = {}
        self._blocks = BufferPool(self.place)
        self._graphs: WeakKeyDictionary[Plan, GraphRuns] = WeakKeyDictionary()

    @cached_property
    def passes(self) -> Pipeline:
        """The rewrites of the private copy."""
        from minigraph.passes.pipelines import LOWERING  # late: a program that is only built needs no plan

        return LOWERING

    def _run_fed(
        self,
        program: Program,
        feed: Any,
        fetch_list: Any,
        scope: Scope,
        return_numpy: bool,
        then: Callable[[], None] | None = None,
    ) -> list[Any]:
        if program.is_exact and (exact := self._exact()) is not self:
            return exact._run_fed(program, feed, fetch_list, scope, return_numpy, then)
        # A call that was made before was checked then, so that its names and arrays are only compared.
        names = names_in(fetch_list)
        if names is None:
            names = fetch_names(program, fetch_list)
        numbers = None
        found = None if nonfinite_check.is_on else self._calls.find(self._subject(program, names), feed)
        if found is None or found[0].levels:
            fetch_names(program, fetch_list)
            feeds = prepare_feed(program, feed, self.place, scope)
            values = self._run(program, feeds, names, scope, then, return_numpy)
        elif self.place.kind == "cpu":
            values, numbers = self._run_plan(*found, program, scope, then=then), found[0].numbers
        else:
            values = self._send_and_run(*found, program, scope, then)
        return results_of(values, self.place, return_numpy, names, numbers)

    def _send_and_run(
        self, plan: Plan, fed: dict[str, Any], program: Program, scope: Scope, then: Callable[[], None] | None
    ) -> list[Any]:
        """Run a plan on a GPU with arrays of the processor."""
        if not self.cuda_graph:
            feeds = {name: self.place.to_device(array) for name, array in fed.items()}
            return self._run_plan(plan, feeds, program, scope, then=then)
        # From pinned memory: the copy runs beside the kernels of the step before.
        feeds, used = self._staging.send(fed)
        try:
            return self._run_plan(plan, feeds, program, scope, fed=fed, then=then)
        finally:
            self._staging.done(used)

    def twin(self) -> Executor:
        """Another executor with the same options and a generator of random numbers of its own."""
        return Executor(self.place, self.passes, self.cache_size, self.jit, self.cuda_graph, self.check)

    def _for_compiled(self, program: CompiledProgram) -> Executor:
        """Return the executor that runs with the rewrites of `program` on the same place, with the same generator."""
        return self._with(program.passes, self.jit and program.jit, self.cuda_graph and program.cuda_graph)

    def _exact(self) -> Executor:
        """Return the executor for programs whose every bit is kept, on the same place, with the same generator."""
        from minigraph.passes.pipelines import EXACT

        return self if self.passes is EXACT and not self.jit else self._with(EXACT, False, self.cuda_graph)

    def _with(self, passes: Pipeline, jit: bool, cuda_graph: bool) -> Executor:
        """Return the executor with these options on the same place, with the same generator."""
        key = passes, jit, cuda_graph
        if key == (self.passes, self.jit, self.cuda_graph):
            return self
        if key not in self._others:
            self._others[key] = Executor(self.place, passes, self.cache_size, jit, cuda_graph, self.check)
        other = self._others[key]
        other._rng = self._rng  # in each run, because a new seed replaces the generator
        return other

    @public
    def explain(self, program: Program | None = None, feed: Any = None, fetch_list: Any = None) -> RunExplanation:
        """Tell what `run` would make of the arguments, without running: every stage, steps, memory, source and costs.

        Only names, dtypes and shapes of the feed matter; persistable variables need no values.

        Returns
        -------
        RunExplanation
            Prints as text; its attributes are the parts.

        Raises
        ------
        MinigraphError
            If the program cannot run with these feeds and fetches.

        Examples
        --------
        >>> import minigraph as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
        ...     y = fluid.layers.relu(fluid.data("x", [None, 2]))
        ...     report = fluid.Executor().explain(feed={"x": np.ones((3, 2), "float32")}, fetch_list=[y])
        >>> print(report.costs[0])
        relu: 6 flops, 48 bytes
        """
        from minigraph.executor.explain import explain_run

        program = check_program(program)
        names = fetch_names(program, fetch_list)
        feeds = prepare_feed(program, feed, self.place)
        return explain_run(program, types_of(feeds), names, self.place, self.passes, self.jit)

    @property
    def plans(self) -> tuple[Plan, ...]:
        """The plans that are kept, the least recently used first."""
        return self._calls.plans()

    @public
    def plan_for(
        self, program: Program | CompiledProgram | None = None, feed: Any = None, fetch_list: Any = None
    ) -> Plan:
        """The plan with which `run` computes these arguments, made now if there is none.

        Raises
        ------
        MinigraphError
            If the program cannot run with these feeds and fetches.

        Examples
        --------
        >>> import minigraph as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
        ...     y = fluid.layers.relu(fluid.data("x", [None, 2]))
        ...     plan = fluid.Executor().plan_for(feed={"x": np.ones((3, 2), "float32")}, fetch_list=[y])
        >>> [step.op.type for step in plan.steps.steps]
        ['relu']
        """
        self._check_open()
        if isinstance(program, CompiledProgram):
            return self._for_compiled(program).plan_for(program.program, feed, fetch_list)
        program = check_program(program)
        if program.is_exact and (exact := self._exact()) is not self:
            return exact.plan_for(program, feed, fetch_list)
        names = fetch_names(program, fetch_list)
        return self._plan(program, prepare_feed(program, feed, self.place), names)

    @cached_property
    def _staging(self) -> Staging:
        from minigraph.executor.cuda.feed_staging import Staging

        return Staging(self.place)

    def _run(
        self,
        program: Program,
        feeds: dict[str, Any],
        names: tuple[str, ...],
        scope: Scope,
        then: Callable[[], None] | None = None,
        as_arrays: bool = True,
    ) -> list[Any]:
        if nonfinite_check.is_on:
            checking = nonfinite_check.CheckingInterpreter(self.place)
            checking._rng = self._rng
            return checking._run(program, feeds, names, scope, then)
        events.runs(program, feeds, scope)
        known = self._calls.find(self._subject(program, names), feeds)
        plan, feeds = (self._plan(program, feeds, names), feeds) if known is None else known
        if as_arrays:
            refuse_lengths(names, plan.levels)
        return with_lengths(self._run_plan(plan, feeds, program, scope, then=then), plan.levels)

    def _run_plan(
        self,
        plan: Plan,
        feeds: dict[str, Any],
        program: Program,
        scope: Scope,
        fed: Mapping[str, Any] | None = None,
        then: Callable[[], None] | None = None,
    ) -> list[Any]:
        """Run a plan; an error or an interrupt ends the run before it has changed anything, or after all is changed.

        `fed` are the arrays on the processor that `feeds` were sent from, if there are any. `then` is called when the
        scope changes, to change other things with it; it may be called twice.
        """
        if (ranks := current()).size > 1 and not ranks.shares_state:
            compare_starts(program, scope, ranks)
        state = plan.binding.arrays(scope)
        if self.cuda_graph:
            values = self._run_graph(plan, fed or feeds, feeds, state, scope, then)
            if values is not None:
                return values
        # A run that fails must not change what the next run draws.
        drawn = self._draws_so_far() if plan.draws else None
        saved: Saved = []
        was_held, is_done = is_held(), False
        try:
            fetched, new_state = self._call(plan, feeds, state, scope, drawn, saved)
            if plan.copies_fetches:
                results = unshared_results(fetched, plan.must_copy, [*feeds.values(), *state], new_state)
            else:
                results = list(fetched)
            given: dict[str, Any] = {}
            if new_state:
                copied = zip(plan.compiled.replaces, new_state, plan.state_must_copy, strict=True)
                binding = plan.binding
                given = {n: binding.copy(scope, n, value) if copy else value for n, value, copy in copied}
            if self.check:
                plan.compiled.hand_out(results, given)
            lengths: list[Any] = []
            if plan.kept_levels:
                results, lengths = _apart(plan, results)
            # Nothing but state in place has changed until here, and `saved` or `hold` protects that.
            if plan.compiled.ticks is not None:
                hold()
                profiler.note(program, plan.steps.steps, plan.compiled.ticks, self.place)
            is_done = True  # before the commit, so that an interrupt in the middle of it has it made again
            self._commit(plan, scope, given, lengths, then)
        except BaseException:
            with deferred():
                if is_done:  # a second commit stores the same arrays
                    self._commit(plan, scope, given, lengths, then)
                else:
                    put_back(saved)
                    self._draw_again(drawn)
            raise
        finally:
            if not was_held:
                release()
        return results

    def _commit(
        self, plan: Plan, scope: Scope, given: dict[str, Any], lengths: list[Any], then: Callable[[], None] | None
    ) -> None:
        """Store the results of a run."""
        if given:
            plan.binding.store(scope, given)
        if lengths:
            keep_lengths(scope, plan.kept_levels, lengths)
        if plan.written_over:
            scope.note_written(plan.written_over)
        if then is not None:
            then()

    def _run_graph(
        self,
        plan: Plan,
        fed: Mapping[str, Any],
        feeds: dict[str, Any],
        state: list[Any],
        scope: Scope,
        then: Callable[[], None] | None,
    ) -> list[Any] | None:
        """Fetches of a run as a CUDA graph; None if the plan is not run as one."""
        if plan.compiled.ticks is not None:
            return None
        with deferred():  # a launch is short, and nothing undoes it
            runs = self._graphs.get(plan)
            if runs is None:
                from minigraph.executor.cuda.graph_capture import GraphRuns

                runs = self._graphs[plan] = GraphRuns(plan, self.place)
            found = runs.run(plan, fed, feeds, state, lambda name: scope.var(name).value)
            if found is None:
                return None
            scope.note_written((*plan.written_over, *plan.compiled.replaces))
            values, lengths = _apart(plan, found)
            keep_lengths(scope, plan.kept_levels, lengths)
            if then is not None:
                then()
            return values

    @IgnoringErrors()
    def _call(
        self, plan: Plan, feeds: dict[str, Any], state: list[Any], scope: Scope, drawn: Any, saved: Saved
    ) -> tuple[Sequence[Any], Sequence[Any]]:
        """Return the fetches and the new state; errors name the operator. `drawn` is the generator's state before."""
        if self.jit and self.place.kind == "cpu":
            feeds = without_gaps(feeds)
        try:
            layout = plan.buffers.layout
            spares = plan.binding.spares(scope)
            if not layout.places:
                return plan.compiled.run(feeds.values(), state, self._rng, spares, saved)
            # Borrowed, because another thread may run the same plan at the same time.
            block = self._blocks.borrow(layout)
            try:
                return plan.compiled.run(feeds.values(), state, self._rng, [*block.arrays(layout), *spares], saved)
            finally:
                self._blocks.give_back(block)
        except NonfiniteError as error:
            self._draw_again(drawn)
            raise self._find_origin(plan, error, feeds, scope) from error
        except Exception as error:
            if is_interrupt(error):
                raise
            raise self._blame(plan, error) from error

    def _subject(self, program: Program, names: tuple[str, ...]) -> tuple[Hashable, ...]:
        """Everything that a plan depends on but the names, dtypes and shapes of the feed."""
        # Not the program itself: a plan must not keep it alive, and an `id` is used again.
        return program.serial, program.version, names, profiler.is_active(self.place)

    def _plan(self, program: Program, feeds: dict[str, Any], names: tuple[str, ...]) -> Plan:
        subject = self._subject(program, names)
        plan = self._calls.get(subject, feeds)
        if plan is None:
            from minigraph.executor.plan import lower

            types = types_of(feeds)
            plan = lower(
                program, types, names, self.place, self.passes,
                jit=self.jit, blocks=self._blocks, check=self.check, like=self._calls.like(subject, types),
            )  # fmt: skip
            # State of unknown size has no value yet: with one, the plan is another, although the call is the same.
            if not any(-1 in v.tensor_type.shape for v in plan.steps.state if not v.tensor_type.is_array):
                self._calls.add(subject, feeds, plan)
        return plan

    def _blame(self, plan: Plan, error: Exception) -> MinigraphError:
        step = plan.compiled.failing_step(error.__traceback__)
        return blame(error, plan.source.op_of(step) if step is not None else None)

    def _find_origin(self, plan: Plan, error: NonfiniteError, feeds: dict[str, Any], scope: Scope) -> MinigraphError:
        from minigraph.executor.nonfinite_origin import origin

        step = plan.compiled.failing_step(error.__traceback__)
        if step is None:
            return error
        op, ops = plan.source.op_of(step), list(plan.program.global_block().ops)
        holders = {value.name: scope.find_var(value.name) for value in plan.steps.state}
        values = {**feeds, **{name: holder.value for name, holder in holders.items() if holder is not None}}
        first_names = plan.program.global_block().first_names
        values |= {first: feeds[name] for name, first in first_names.items() if name in feeds}
        wanted = op.input("X")[op.attr("params").index(error.param)]
        # A copy, because the user may catch the error and run again: diagnosis must not change what is drawn then.
        rng = deepcopy(self._rng) if self.place.kind == "cpu" else self._rng
        details = [origin(ops[: ops.index(op)], [wanted], values, self.place, rng)]
        return explain(NonfiniteError(error.message, error.param, details=details), op, op.block)

    def close(self) -> None:
        """Drop the plans and refuse further runs."""
        self._calls.clear()
        self._others.clear()
        super().close()


def _apart(plan: Plan, values: list[Any]) -> tuple[list[Any], list[Any]]:
    """The fetched values, and the lengths of persistable variables behind them."""
    count = plan.kept_count
    return (values[:-count], values[-count:]) if count else (values, [])
