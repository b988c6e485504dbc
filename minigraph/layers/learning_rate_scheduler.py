"""Learning rates that a program computes from the number of its step.

All count steps with one variable, ``@LR_DECAY_COUNTER@``, which an operator at the start of the program increments.
In the imperative mode each function returns the `LearningRateDecay` of its name instead.

Examples
--------
>>> import minigraph as fluid
>>> main, startup = fluid.Program(), fluid.Program()
>>> with fluid.program_guard(main, startup):
...     rate = exponential_decay(0.5, decay_steps=2, decay_rate=0.25, staircase=True)
>>> executor, scope = fluid.Executor(), fluid.Scope()
>>> _ = executor.run(startup, scope=scope)
>>> [executor.run(main, fetch_list=[rate], scope=scope)[0].item() for _ in range(5)]
[0.5, 0.5, 0.125, 0.125, 0.03125]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from minigraph.eager import learning_rate as imperative
from minigraph.errors import WrongTypeError
from minigraph.ir import Role, Variable
from minigraph.ir.default_programs import default_main_program, is_imperative
from minigraph.ir.variable_operators import equal, is_eager, less_than, to_power
from minigraph.layer_helper import LayerHelper, create_state, emit, layer, layer_called
from minigraph.layers.branches import Switch
from minigraph.layers.elementwise import elementwise_min
from minigraph.layers.tensor import assign, cast, create_global_var, fill_constant
from minigraph.support import rate_schedules as schedules
from minigraph.support.arguments import as_float

__all__ = [
    "autoincreased_step_counter", "cosine_decay", "exponential_decay", "inverse_time_decay", "linear_lr_warmup",
    "natural_exp_decay", "noam_decay", "piecewise_decay", "polynomial_decay",
]  # fmt: skip

COUNTER = "@LR_DECAY_COUNTER@"

Decayed = Any
"""A Variable, float[1], in a program; a LearningRateDecay in the imperative mode."""


@layer
def autoincreased_step_counter(counter_name: str | None = None, begin: int = 1, step: int = 1) -> Variable:
    """A counter, int64[1], that each run of the program increases by `step` before anything else.

    Parameters
    ----------
    counter_name : str, optional
        The counter of this name is made once and shared afterwards. Default: ``@STEP_COUNTER@``.
    begin : int
        What the first run sees.
    step : int
    """
    LayerHelper("global_step_counter")  # takes a name, as fluid does
    name = counter_name or "@STEP_COUNTER@"
    block = default_main_program().global_block()
    # One increment for each run, however many schedules read the counter.
    if block.has_var(name):
        return block.var(name)
    counter = create_state(name, [1], "int64", begin - 1, force_cpu=True, stop_gradient=True)
    # In front of all that reads it; so it begins one below.
    block.prepend_op("increment", {"X": counter}, {"Out": counter}, {"step": float(step)})
    return counter


@layer
def noam_decay(d_model: float, warmup_steps: float, learning_rate: float | Variable = 1.0) -> Decayed:
    """``learning_rate * d_model ** -0.5 * min(step ** -0.5, step * warmup_steps ** -1.5)``, steps counted from 1.

    References
    ----------
    A. Vaswani et al., Attention is all you need, NIPS 2017, section 5.3.
    """
    if is_imperative():
        return imperative.NoamDecay(d_model, warmup_steps, learning_rate=_number(learning_rate))
    with _scheduling():
        return schedules.noam(_Layers, _step(begin=1), learning_rate, d_model, warmup_steps)


class DecayPerSteps(Protocol):
    def __call__(
        self, learning_rate: float | Variable, decay_steps: int, decay_rate: float, staircase: bool = False
    ) -> Decayed: ...


def _per_steps(name: str, kind: type[imperative.DecayPerSteps]) -> DecayPerSteps:
    @layer_called(name, (kind.__doc__ or "").partition("\n")[0])
    def decay(learning_rate: float | Variable, decay_steps: int, decay_rate: float, staircase: bool = False) -> Decayed:
        if is_imperative():
            return kind(_number(learning_rate), decay_steps, decay_rate, staircase)
        with _scheduling():
            progress = schedules.progress(_Layers, _step(), decay_steps, staircase)
            return kind._formula(_Layers, progress, learning_rate, decay_rate)

    return decay


exponential_decay = _per_steps("exponential_decay", imperative.ExponentialDecay)
natural_exp_decay = _per_steps("natural_exp_decay", imperative.NaturalExpDecay)
inverse_time_decay = _per_steps("inverse_time_decay", imperative.InverseTimeDecay)


@layer
def polynomial_decay(
    learning_rate: float | Variable,
    decay_steps: int,
    end_learning_rate: float = 0.0001,
    power: float = 1.0,
    cycle: bool = False,
) -> Decayed:
    """``(learning_rate - end_learning_rate) * (1 - step / decay_steps) ** power + end_learning_rate``.

    Steps after `decay_steps` count as that; with `cycle`, `decay_steps` is multiplied by the least number that makes it
    as large as the step instead, and the rate jumps up.
    """
    if is_imperative():
        return imperative.PolynomialDecay(_number(learning_rate), decay_steps, end_learning_rate, power, cycle)
    with _scheduling():
        return schedules.polynomial(_Layers, _step(), learning_rate, decay_steps, end_learning_rate, power, cycle)


@layer
def piecewise_decay(boundaries: Sequence[int], values: Sequence[float]) -> Decayed:
    """``values[i]`` as long as the step is less than ``boundaries[i]``, the last value afterwards.

    Raises
    ------
    ProgramError
        If there is not one value more than boundaries.
    """
    if is_imperative():
        return imperative.PiecewiseDecay(boundaries, values, 0)
    imperative.check_pieces(boundaries, values)
    with _scheduling():
        step = _step()
        # Made outside of the cases, each of which writes it.
        rate = create_global_var([1], 0.0, "float32", persistable=True, name="learning_rate")
        if len(boundaries) == 0:
            assign(fill_constant([1], "float32", as_float(values[0])), rate)
            return rate
        with Switch() as switch:
            for boundary, value in zip(boundaries, values, strict=False):
                limit = fill_constant([1], "float32", as_float(boundary), force_cpu=True)
                constant = fill_constant([1], "float32", as_float(value))
                with switch.case(less_than(step, limit)):
                    assign(constant, rate)
            constant = fill_constant([1], "float32", as_float(values[-1]))
            with switch.default():
                assign(constant, rate)
        return rate


@layer
def cosine_decay(learning_rate: float | Variable, step_each_epoch: int, epochs: int) -> Decayed:
    """``learning_rate / 2 * (cos(pi * epoch / epochs) + 1)`` where ``epoch = floor(step / step_each_epoch)``."""
    if not isinstance(learning_rate, float | Variable):
        raise WrongTypeError(f"cosine_decay: learning_rate must be a float or a Variable, got {learning_rate!r:.60}")
    if is_imperative():
        return imperative.CosineDecay(_number(learning_rate), step_each_epoch, epochs)
    with _scheduling():
        return schedules.cosine(_Layers, _step(), learning_rate, step_each_epoch, epochs)


@layer
def linear_lr_warmup(
    learning_rate: float | Variable | imperative.LearningRateDecay, warmup_steps: int, start_lr: float, end_lr: float
) -> Decayed:
    """``start_lr + (end_lr - start_lr) * step / warmup_steps`` in the first `warmup_steps` steps, then `learning_rate`.

    Parameters
    ----------
    learning_rate : float or Variable, float[1]
        It may follow a schedule of its own; in the imperative mode a `LearningRateDecay`.
    warmup_steps : int
    start_lr, end_lr : float

    References
    ----------
    T. He et al., Bag of tricks for image classification with convolutional neural networks, CVPR 2019, section 3.1.
    """
    if is_imperative():
        return imperative.LinearLrWarmup(learning_rate, warmup_steps, start_lr, end_lr)  # type: ignore[arg-type]
    dtype = learning_rate.dtype if isinstance(learning_rate, Variable) else "float32"
    with _scheduling():
        # As above: written by both cases.
        rate = create_global_var([1], 0.0, dtype, persistable=True, name="learning_rate_warmup")
        step = _step()
        with Switch() as switch:
            with switch.case(less_than(step, warmup_steps)):
                rising = schedules.warmup(step, warmup_steps, start_lr, end_lr)
                assign(rising if rising.dtype is rate.dtype else cast(rising, rate.dtype), rate)
            with switch.default():
                base = learning_rate
                if not isinstance(base, Variable):
                    base = fill_constant([1], dtype, float(base))  # type: ignore[arg-type]
                assign(base, rate)
        return rate


def _number(learning_rate: Any) -> float:
    """A learning rate of the imperative mode, which may be a tensor, as a number."""
    return float(learning_rate.array.item()) if is_eager(learning_rate) else float(learning_rate)


@contextmanager
def _scheduling() -> Iterator[None]:
    with default_main_program().role_guard(Role.LR_SCHED):
        yield


def _step(begin: int = 0) -> Variable:
    return cast(autoincreased_step_counter(COUNTER, begin), "float32")


_decay_step_counter = _step  # fluid's name, which programs use for rates of their own


def _unary(op_type: str) -> Callable[[Variable], Variable]:
    return staticmethod(lambda x: emit(op_type, X=x))


class _Layers:
    """The functions that the formulas need, of variables."""

    ceil, cos, exp, floor = map(_unary, ("ceil", "cos", "exp", "floor"))
    power = staticmethod(to_power)

    @staticmethod
    def inverse_root(x: Variable) -> Variable:
        return to_power(x, -0.5)

    @staticmethod
    def minimum(x: Variable, y: Variable | float) -> Variable:
        return elementwise_min(x, y if isinstance(y, Variable) else fill_constant([1], "float32", float(y)))

    @staticmethod
    def cycles(step: Variable, length: float) -> Variable:
        """The number of cycles of `length` steps that have begun, at least 1."""
        count = _Layers.ceil(step / length)
        zero, one = fill_constant([1], "float32", 0.0), fill_constant([1], "float32", 1.0)
        # In the first step no cycle has begun, but the rate is that of the first one.
        with Switch() as switch, switch.case(equal(step, zero)):
            assign(one, count)
        return count
