"""Formulas of learning-rate schedules, for numbers and for variables of a program.

The first parameter of each formula, `m`, has the functions that it needs: `Numbers`, or ones that append operators.
"""

from __future__ import annotations

import math
from typing import Any


class Numbers:
    """The functions that the formulas need, of numbers."""

    ceil, cos, exp, floor = math.ceil, math.cos, math.exp, math.floor
    minimum, power = min, pow

    @staticmethod
    def inverse_root(x: float) -> float:
        """``x ** -0.5``, infinite where x is not positive."""
        return x**-0.5 if x > 0 else math.inf

    @staticmethod
    def cycles(step: float, length: float) -> int:
        """The number of cycles of `length` steps that have begun, at least 1."""
        return max(1, math.ceil(step / length))


def noam(m: Any, step: Any, learning_rate: Any, d_model: float, warmup_steps: float) -> Any:
    falling, rising = m.inverse_root(step), warmup_steps**-1.5 * step
    return learning_rate * d_model**-0.5 * m.minimum(falling, rising)


def exponential(m: Any, progress: Any, learning_rate: Any, decay_rate: float) -> Any:
    return learning_rate * decay_rate**progress


def natural_exp(m: Any, progress: Any, learning_rate: Any, decay_rate: float) -> Any:
    return learning_rate * m.exp(-1 * decay_rate * progress)


def inverse_time(m: Any, progress: Any, learning_rate: Any, decay_rate: float) -> Any:
    return learning_rate / (1 + decay_rate * progress)


def progress(m: Any, step: Any, decay_steps: int, staircase: bool) -> Any:
    """The step number divided by `decay_steps`, rounded down with `staircase`."""
    return m.floor(step / decay_steps) if staircase else step / decay_steps


def polynomial(
    m: Any, step: Any, learning_rate: Any, decay_steps: int, end_learning_rate: float, power: float, cycle: bool
) -> Any:
    if cycle:
        decay_steps = decay_steps * m.cycles(step, decay_steps)
    else:
        step = m.minimum(step, decay_steps)
    return (learning_rate - end_learning_rate) * m.power(1 - step / decay_steps, power) + end_learning_rate


def cosine(m: Any, step: Any, learning_rate: Any, step_each_epoch: int, epochs: int) -> Any:
    epoch = m.floor(step / step_each_epoch)
    return learning_rate * 0.5 * (m.cos(epoch * math.pi / epochs) + 1)


def warmup(step: Any, warmup_steps: float, start_lr: float, end_lr: float) -> Any:
    """The rate in the steps before `warmup_steps`."""
    return start_lr + (float(end_lr) - float(start_lr)) * (step / float(warmup_steps))
