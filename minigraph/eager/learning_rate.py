"""Learning rates that change from step to step in the imperative mode.

An optimizer made with one takes the next rate at each update. The classes named in `minigraph.layers` in small letters,
such as ``noam_decay``, compute the same rates inside a program. Rates are Python floats, so they are exact to float64;
an update rounds them to the dtype of its parameter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from minigraph.eager.guard import to_variable
from minigraph.errors import NotFoundError, ProgramError, WrongTypeError, caller_site, warn
from minigraph.support import rate_schedules as schedules
from minigraph.support.arguments import number
from minigraph.support.public import public
from minigraph.support.rate_schedules import Numbers


class Rate(float):
    """A learning rate as decays give it: a float that is read like fluid's tensor, too.

    Examples
    --------
    >>> rate = ExponentialDecay(0.1, decay_steps=2, decay_rate=0.5)()
    >>> rate * 2, rate.numpy()
    (0.2, array([0.1], dtype=float32))
    """

    __slots__ = ()

    shape = (1,)

    def __new__(cls, value: Any) -> Rate:
        # A power of a negative number is complex, and `number` says that it is no rate.
        return super().__new__(cls, number(value, "a learning rate") if isinstance(value, complex) else value)

    def numpy(self) -> np.ndarray[Any, Any]:
        """The rate as an array, float32[1]."""
        return np.array([self], np.float32)


@public
class LearningRateDecay:
    """Base of the decays: a rate for each step.

    Parameters
    ----------
    begin : int
        Number of the first step.
    step : int
        Increment of the step number after each update.
    dtype : str
        Of the tensors that `create_lr_var` makes.
    """

    _state_names: tuple[str, ...] = ("step_num",)

    def __init__(self, begin: int = 0, step: int = 1, dtype: str = "float32") -> None:
        self.step_num, self.step_size, self.dtype = begin, step, dtype

    def __call__(self) -> Rate:
        """The rate of this step; the next call is for the next step."""
        rate = self.current()
        self.step_num += self.step_size
        return rate

    def current(self) -> Rate:
        """The rate that the next update will take.

        Raises
        ------
        ProgramError
            If the formula has no value at this step, such as by a division by zero.
        """
        name = type(self).__name__
        try:
            return Rate(number(self.step(), f"the rate of {name}"))
        except ArithmeticError as error:
            raise ProgramError(
                f"{name} has no rate at this step: {error}",
                details=[f"{field} = {value!r:.80}" for field, value in vars(self).items()],
                hint="Give it numbers for which its formula has a value.",
            ) from error  # fmt: skip

    def step(self) -> float:
        """The rate of step number `step_num`."""
        raise TypeError(f"{type(self).__name__} does not define step")

    def create_lr_var(self, lr: float) -> Any:
        """A tensor, of shape [1], that holds `lr` (imperative mode)."""
        return to_variable(np.array([lr], self.dtype))

    def state_dict(self) -> dict[str, Any]:
        """The state with which a training can go on later."""
        return {name: getattr(self, name) for name in self._state_names}

    def set_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` has given.

        Raises
        ------
        NotFoundError
            If something is missing; nothing is changed then.

        Warns
        -----
        UserWarning
            If there is more than this decay uses.
        """
        missing = [name for name in self._state_names if name not in state_dict]
        if missing:
            raise NotFoundError(f"the state of {type(self).__name__} has no {missing[0]!r}", site=caller_site())
        unused = [name for name in state_dict if name not in self._state_names]
        if unused:
            warn(f"{type(self).__name__} does not use {', '.join(unused)} of the state; was it another decay's?")
        for name in self._state_names:
            setattr(self, name, state_dict[name])


@public
class PiecewiseDecay(LearningRateDecay):
    """``values[i]`` as long as the step number is less than ``boundaries[i]``, the last value afterwards.

    Examples
    --------
    >>> decay = PiecewiseDecay([2, 3], [0.1, 0.05, 0.01], begin=0)
    >>> [decay() for _ in range(4)]
    [0.1, 0.1, 0.05, 0.01]
    """

    def __init__(
        self, boundaries: Sequence[int], values: Sequence[float], begin: int, step: int = 1, dtype: str = "float32"
    ) -> None:
        super().__init__(begin, step, dtype)
        check_pieces(boundaries, values)
        self.boundaries = [number(boundary, "each of boundaries") for boundary in boundaries]
        self.values = [number(value, "each of values") for value in values]

    def step(self) -> Rate:
        for boundary, value in zip(self.boundaries, self.values, strict=False):
            if self.step_num < boundary:
                return Rate(value)
        return Rate(self.values[-1])


@public
class DecayPerSteps(LearningRateDecay):
    """Base of the decays by the step number divided by `decay_steps`, rounded down with `staircase`."""

    _formula: Callable[..., Any]

    def __init__(
        self,
        learning_rate: float,
        decay_steps: int,
        decay_rate: float,
        staircase: bool = False,
        begin: int = 0,
        step: int = 1,
        dtype: str = "float32",
    ) -> None:
        super().__init__(begin, step, dtype)
        self.learning_rate, self.decay_steps, self.decay_rate = learning_rate, decay_steps, decay_rate
        self.staircase = staircase

    def step(self) -> Rate:
        progress = schedules.progress(Numbers, self.step_num, self.decay_steps, self.staircase)
        return Rate(type(self)._formula(Numbers, progress, self.learning_rate, self.decay_rate))


class NaturalExpDecay(DecayPerSteps):
    """``learning_rate * exp(-decay_rate * step / decay_steps)``; with `staircase` the quotient is rounded down."""

    _formula = schedules.natural_exp


class ExponentialDecay(DecayPerSteps):
    """``learning_rate * decay_rate ** (step / decay_steps)``; with `staircase` the quotient is rounded down.

    Examples
    --------
    >>> decay = ExponentialDecay(0.1, decay_steps=2, decay_rate=0.5, staircase=True)
    >>> [decay() for _ in range(5)]
    [0.1, 0.1, 0.05, 0.05, 0.025]
    """

    _formula = schedules.exponential


class InverseTimeDecay(DecayPerSteps):
    """``learning_rate / (1 + decay_rate * step / decay_steps)``; with `staircase` the quotient is rounded down."""

    _formula = schedules.inverse_time


@public
class PolynomialDecay(LearningRateDecay):
    """``(learning_rate - end_learning_rate) * (1 - step / decay_steps) ** power + end_learning_rate``.

    Steps after `decay_steps` count as that; with `cycle`, `decay_steps` is multiplied by the least number that makes it
    as large as the step instead, and the rate jumps up.
    """

    def __init__(
        self,
        learning_rate: float,
        decay_steps: int,
        end_learning_rate: float = 0.0001,
        power: float = 1.0,
        cycle: bool = False,
        begin: int = 0,
        step: int = 1,
        dtype: str = "float32",
    ) -> None:
        super().__init__(begin, step, dtype)
        self.learning_rate, self.decay_steps, self.end_learning_rate = learning_rate, decay_steps, end_learning_rate
        self.power, self.cycle = power, cycle

    def step(self) -> Rate:
        start, end = self.learning_rate, self.end_learning_rate
        return Rate(schedules.polynomial(Numbers, self.step_num, start, self.decay_steps, end, self.power, self.cycle))


@public
class CosineDecay(LearningRateDecay):
    """``learning_rate / 2 * (cos(pi * epoch / epochs) + 1)`` where ``epoch = floor(step / step_each_epoch)``."""

    def __init__(
        self,
        learning_rate: float,
        step_each_epoch: int,
        epochs: int,
        begin: int = 0,
        step: int = 1,
        dtype: str = "float32",
    ) -> None:
        super().__init__(begin, step, dtype)
        self.learning_rate, self.step_each_epoch, self.epochs = learning_rate, step_each_epoch, epochs

    def step(self) -> Rate:
        return Rate(schedules.cosine(Numbers, self.step_num, self.learning_rate, self.step_each_epoch, self.epochs))


@public
class NoamDecay(LearningRateDecay):
    """``learning_rate * d_model ** -0.5 * min(step ** -0.5, step * warmup_steps ** -1.5)``.

    References
    ----------
    A. Vaswani et al., Attention is all you need, NIPS 2017, section 5.3.
    """

    def __init__(
        self,
        d_model: float,
        warmup_steps: float,
        begin: int = 1,
        step: int = 1,
        dtype: str = "float32",
        learning_rate: float = 1.0,
    ) -> None:
        super().__init__(begin, step, dtype)
        self.d_model, self.learning_rate = number(d_model, "d_model", at_least=0), learning_rate
        self.warmup_steps = number(warmup_steps, "warmup_steps", at_least=0)

    def step(self) -> Rate:
        return Rate(schedules.noam(Numbers, self.step_num, self.learning_rate, self.d_model, self.warmup_steps))


@public
class LinearLrWarmup(LearningRateDecay):
    """``start_lr + (end_lr - start_lr) * step / warmup_steps`` in the first `warmup_steps` steps, then `learning_rate`.

    If `learning_rate` is a decay, it is stepped during the warmup, too. As in fluid, steps count from 1.

    Notes
    -----
    Fluid 1.8.5 leaves out `start_lr` in the sum, but only in the imperative mode.
    """

    def __init__(
        self,
        learning_rate: float | LearningRateDecay,
        warmup_steps: int,
        start_lr: float,
        end_lr: float,
        begin: int = 1,
        step: int = 1,
        dtype: str = "float32",
    ) -> None:
        super().__init__(begin, step, dtype)
        if not isinstance(learning_rate, int | float | LearningRateDecay):
            raise WrongTypeError(f"learning_rate must be a number or a LearningRateDecay, got {learning_rate!r:.60}")
        if end_lr <= start_lr:
            raise ProgramError(f"end_lr={end_lr:g} must be greater than start_lr={start_lr:g}")
        self.learning_rate, self.warmup_steps = learning_rate, warmup_steps
        self.start_lr, self.end_lr = start_lr, end_lr

    def __call__(self) -> Rate:
        rate = super().__call__()
        if isinstance(self.learning_rate, LearningRateDecay):
            self.learning_rate()
        return rate

    def step(self) -> Rate:
        if self.step_num < self.warmup_steps:
            return Rate(schedules.warmup(self.step_num, self.warmup_steps, self.start_lr, self.end_lr))
        base = self.learning_rate
        return base.current() if isinstance(base, LearningRateDecay) else Rate(base)

    def state_dict(self) -> dict[str, Any]:
        state = super().state_dict()
        if isinstance(self.learning_rate, LearningRateDecay):
            state["learning_rate"] = self.learning_rate.state_dict()
        return state

    def set_dict(self, state_dict: Mapping[str, Any]) -> None:
        own = dict(state_dict)
        if isinstance(self.learning_rate, LearningRateDecay):
            inner = own.pop("learning_rate", None)
            if inner is None:
                raise NotFoundError("the state of LinearLrWarmup has no 'learning_rate'", site=caller_site())
            self.learning_rate.set_dict(inner)
        super().set_dict(own)


def check_pieces(boundaries: Sequence[int], values: Sequence[float]) -> None:
    """Refuse values that are not one more than the boundaries."""
    if len(values) != len(boundaries) + 1:
        raise ProgramError(f"{len(boundaries)} boundaries part {len(boundaries) + 1} values, got {len(values)}")
