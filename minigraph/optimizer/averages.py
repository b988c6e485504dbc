"""Averages of parameters over the steps of a training, to be used in their place for a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from minigraph.executor import Executor
from minigraph.ir import Parameter, Program, Role, Variable
from minigraph.ir.default_programs import default_main_program, program_guard, refuse_imperative_mode
from minigraph.ir.name_scope import name_scope
from minigraph.layers.elementwise import elementwise_max, elementwise_min, elementwise_pow
from minigraph.layers.learning_rate_scheduler import autoincreased_step_counter
from minigraph.layers.reduce import sums
from minigraph.layers.tensor import assign, cast, create_global_var, fill_constant
from minigraph.optimizer.base import Optimizer
from minigraph.regularizer import WeightDecayRegularizer
from minigraph.runtime.scope import global_scope
from minigraph.support.interrupts import deferred
from minigraph.support.public import public
from minigraph.unique_name import generate

_SUMS = ("sum_1", "sum_2", "sum_3")
_COUNTS = ("num_accumulates", "old_num_accumulates", "num_updates")


@public
class _Averages:
    """Averages of the parameters of the default main program, which can stand in for the parameters for a while.

    Attributes
    ----------
    apply_program, restore_program : Program
        They put the averages in the place of the parameters, and the parameters back.
    """

    def _begin(self, word: str) -> None:
        """Note the parameters; variables ``<name>.<word>`` keep their values while averages replace them."""
        self._params = [p for p in default_main_program().global_block().all_parameters() if p.do_model_average]
        self.apply_program, self.restore_program = Program(), Program()
        self._backups = {param.name: generate(f"{param.name}.{word}") for param in self._params}

    @contextmanager
    def _averaging(self) -> Iterator[None]:
        """Inside, layers append to `apply_program`."""
        with program_guard(self.apply_program, Program()):
            yield

    def _replace(self, param: Parameter, average: Variable) -> None:
        """Append to both programs what concerns `param`; within `_averaging`."""
        own = twin(self.apply_program, param)
        assign(own, _persistable(self.apply_program, self._backups[param.name], param))
        assign(average, own)
        with program_guard(self.restore_program, Program()):
            backup = _persistable(self.restore_program, self._backups[param.name], param)
            assign(backup, twin(self.restore_program, param))

    @contextmanager
    def apply(self, executor: Executor, need_restore: bool = True) -> Iterator[None]:
        """Inside, the parameters in the global scope are the averages.

        Parameters
        ----------
        executor : Executor
        need_restore : bool
            Put the parameters back in the end; otherwise `restore` does.
        """
        # An interrupt before the averages are stored must not restore what was not backed up.
        is_applied: list[bool] = []
        # An interrupt on the way into the block ends this after the guard of the scope has ended.
        scope = global_scope()
        try:
            executor.compute(self.apply_program, {}, (), scope, then=lambda: is_applied.append(True))
            yield
        finally:
            if need_restore and is_applied:
                # A second Ctrl-C waits until all parameters are back.
                with deferred():
                    executor.run(self.restore_program, scope=scope)

    def restore(self, executor: Executor) -> None:
        """Put the parameters back that `apply` has replaced."""
        executor.run(self.restore_program)


def twin(program: Program, var: Variable) -> Variable:
    """The variable of `program` that is the same in the scope as `var`, which is another program's."""
    return _persistable(program, var.name, var)


def _persistable(program: Program, name: str, like: Variable) -> Variable:
    return program.global_block().create_var(name=name, shape=like.shape, dtype=like.dtype, persistable=True)


@public
class ExponentialMovingAverage(_Averages):
    """Averages of all parameters that forget: ``ema = decay * ema + (1 - decay) * param`` in each step.

    Make one and call `update` after ``minimize``. Within `apply` the parameters are ``ema / (1 - decay ** steps)``: the
    averages start from 0, and the divisor undoes that.

    Parameters
    ----------
    decay : float
    thres_steps : Variable, optional
        With it the decay is at most ``(thres_steps + 1) / (thres_steps + 10)``, so that the first steps count less.
    name : str, optional
        Prefix of the names of the averages.

    Raises
    ------
    ProgramError
        In the imperative mode.

    Notes
    -----
    When fluid 1.8.5 applies averages, it also divides those with which training continues; here these do not change.

    Examples
    --------
    >>> import numpy as np
    >>> import minigraph as fluid
    >>> main, startup = fluid.Program(), fluid.Program()
    >>> with fluid.program_guard(main, startup):
    ...     w = fluid.layers.create_parameter([1], "float32", name="w")
    ...     _ = fluid.optimizer.SGD(1.0).minimize(fluid.layers.mean(w))
    ...     ema = ExponentialMovingAverage(0.5)
    ...     ema.update()
    >>> executor, scope = fluid.Executor(), fluid.Scope()
    >>> with fluid.scope_guard(scope):
    ...     _ = executor.run(startup)
    ...     scope.find_var("w").get_tensor().set(np.array([3.0], "float32"), fluid.CPUPlace())
    ...     _ = executor.run(main), executor.run(main)
    ...     with ema.apply(executor):
    ...         average = np.array(scope.find_var("w").get_tensor())
    ...     print(average.round(3), np.array(scope.find_var("w").get_tensor()))
    [1.333] [1.]
    """

    def __init__(self, decay: float = 0.999, thres_steps: Variable | None = None, name: str | None = None) -> None:
        refuse_imperative_mode("ExponentialMovingAverage")
        prefix = name or ""
        self._decay = decay
        self._decay_var = self._scheduled_decay(thres_steps)
        self._step_counter_name = "@EMA_STEP_COUNTER@"
        self._begin("ema_tmp")
        self._averages: dict[str, Variable] = {}
        for param in self._params:
            assert param.shape is not None
            with self._updating(param):
                self._averages[param.name] = create_global_var(
                    param.shape, 0.0, param.dtype, persistable=True, name=generate(f"{prefix}{param.name}_ema")
                )
        with program_guard(self.apply_program):
            counter = create_global_var([1], 0, "int64", persistable=True, name=self._step_counter_name)
        self._append_exchange(counter)

    def update(self) -> None:
        """Append to the program what brings the averages up to date.

        All averages of a program share the counter of its runs.
        """
        with default_main_program().role_guard(Role.OPTIMIZE):
            autoincreased_step_counter(self._step_counter_name)
        for param in self._params:
            average = self._averages[param.name]
            with self._updating(param):
                decay = _in_dtype(self._decay_var, param)
                assign(average * decay + param * (1 - decay), average)

    def _scheduled_decay(self, thres_steps: Variable | None) -> Variable:
        with default_main_program().role_guard(Role.LR_SCHED):
            decay = create_global_var([1], self._decay, "float32", persistable=True, name="scheduled_ema_decay_rate")
            if thres_steps is not None:
                steps = thres_steps if thres_steps.dtype.is_floating else cast(thres_steps, "float32")
                warm = (steps + 1.0) / (steps + 10.0)
                assign(elementwise_min(_in_dtype(warm, decay), fill_constant([1], "float32", self._decay)), decay)
        return decay

    def _append_exchange(self, counter: Variable) -> None:
        program = self.apply_program
        with self._averaging():
            # At step 0 any divisor will do, as the averages are 0.
            steps = cast(counter, "float32")
            steps = elementwise_max(steps, fill_constant([1], "float32", 1.0))
            correction = 1.0 - elementwise_pow(twin(program, self._decay_var), steps)
            for param in self._params:
                average = twin(program, self._averages[param.name])
                self._replace(param, average / _in_dtype(correction, param))

    @contextmanager
    def _updating(self, param: Parameter) -> Iterator[None]:
        with param.block.program.role_guard(Role.OPTIMIZE, [param]), name_scope("moving_average"):
            yield


@public
class ModelAverage(_Averages, Optimizer):
    """Plain averages of all parameters over a window of the last steps.

    Make one after ``minimize``. Within `apply` the parameters are the averages, before the first step, when there are
    none, NaN. How long the window is says `minigraph.ops.averaging.average_accumulates`: about `average_window_rate`
    times the number of steps so far.

    Parameters
    ----------
    average_window_rate : float
    min_average_window, max_average_window : int
        Bounds of the window, in steps.
    regularization, name
        As in `Optimizer`; the first has no meaning here.

    Raises
    ------
    ProgramError
        In the imperative mode.
    """

    def __init__(
        self,
        average_window_rate: float,
        min_average_window: int = 10000,
        max_average_window: int = 10000,
        regularization: WeightDecayRegularizer | None = None,
        name: str | None = None,
    ) -> None:
        refuse_imperative_mode("ModelAverage")
        super().__init__(0.0, regularization=regularization, name=name)
        self.average_window = average_window_rate
        self.min_average_window, self.max_average_window = min_average_window, max_average_window
        self._begin("tmp")
        for param in self._params:
            with param.block.program.role_guard(Role.OPTIMIZE, [param]), name_scope("move_average"):
                self._append_accumulation(param)
        with self._averaging():
            for param in self._params:
                self._replace(param, self._average(param))

    def _append_accumulation(self, param: Parameter) -> None:
        for kind in _SUMS:
            self._add_accumulator(kind, param)
        for kind in _COUNTS:
            self._add_accumulator(kind, param, shape=[1], dtype="int64")
        state = {kind: self._get_accumulator(kind, param) for kind in (*_SUMS, *_COUNTS)}
        attrs = {
            "average_window": self.average_window, "min_average_window": self.min_average_window,
            "max_average_window": self.max_average_window,
        }  # fmt: skip
        param.block.append_op(
            "average_accumulates",
            {"param": param, **{f"in_{kind}": var for kind, var in state.items()}},
            {f"out_{kind}": var for kind, var in state.items()},
            attrs,
        )

    def _average(self, param: Parameter) -> Variable:
        state = {kind: self._state_of(param, kind) for kind in (*_SUMS, "num_accumulates", "old_num_accumulates")}
        count = sums([state["num_accumulates"], state["old_num_accumulates"]])
        return sums([state[kind] for kind in _SUMS]) / cast(count, param.dtype)

    def _state_of(self, param: Parameter, kind: str) -> Variable:
        return twin(self.apply_program, self._state_by_program[param.block.program.serial, kind, param.name])


def _in_dtype(x: Variable, like: Variable) -> Variable:
    return x if x.dtype is like.dtype else cast(x, like.dtype)
