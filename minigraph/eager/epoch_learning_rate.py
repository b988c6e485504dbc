"""Learning rates that change from epoch to epoch in the imperative mode, when the program says that one has ended."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from minigraph.eager.learning_rate import LearningRateDecay, Rate
from minigraph.errors import ProgramError, WrongTypeError
from minigraph.support.arguments import number
from minigraph.support.public import public


@public
class _LearningRateEpochDecay(LearningRateDecay):
    """Base of the decays whose rate changes when `epoch` is called."""

    _state_names = ("epoch_num", "learning_rate")

    def __init__(self, learning_rate: float, dtype: str | None = None) -> None:
        super().__init__(dtype=dtype or "float32")
        if learning_rate < 0:
            raise ProgramError(f"learning_rate must not be negative, got {learning_rate:g}")
        self.base_lr = float(learning_rate)
        self.epoch_num = -1
        self.epoch()

    def epoch(self, epoch: int | None = None) -> None:
        """Go on to the next epoch, or to number `epoch`."""
        before = self.epoch_num
        try:
            self.epoch_num = before + 1 if epoch is None else epoch
            self.learning_rate = number(self.get_lr(), "learning_rate")
        except BaseException:
            self.epoch_num = before
            raise

    def step(self) -> Rate:
        return Rate(self.learning_rate)

    def get_lr(self) -> float:
        """The rate of epoch number `epoch_num`."""
        raise TypeError(f"{type(self).__name__} does not define get_lr")


@public
class StepDecay(_LearningRateEpochDecay):
    """``learning_rate * decay_rate ** floor(epoch / step_size)``.

    Examples
    --------
    >>> decay, rates = StepDecay(1.0, step_size=2, decay_rate=0.5), []
    >>> for epoch in range(5):
    ...     rates.append(decay())
    ...     decay.epoch()
    >>> rates
    [1.0, 1.0, 0.5, 0.5, 0.25]
    """

    def __init__(self, learning_rate: float, step_size: int, decay_rate: float = 0.1) -> None:

        _check_shrinks(decay_rate)
        self._epochs_per_step, self.decay_rate = step_size, decay_rate
        super().__init__(learning_rate)

    def get_lr(self) -> float:
        return self.base_lr * self.decay_rate ** (self.epoch_num // self._epochs_per_step)


@public
class MultiStepDecay(_LearningRateEpochDecay):
    """`learning_rate`, multiplied by `decay_rate` at each epoch in `milestones`."""

    def __init__(self, learning_rate: float, milestones: Sequence[int], decay_rate: float = 0.1) -> None:

        if any(a >= b for a, b in pairwise(milestones)):
            raise ProgramError(f"milestones must increase, got {list(milestones)}")
        _check_shrinks(decay_rate)
        self.milestones, self.decay_rate = milestones, decay_rate
        super().__init__(learning_rate)

    def get_lr(self) -> float:
        return self.base_lr * self.decay_rate ** sum(self.epoch_num >= milestone for milestone in self.milestones)


@public
class LambdaDecay(_LearningRateEpochDecay):
    """``learning_rate * lr_lambda(epoch)``."""

    def __init__(self, learning_rate: float, lr_lambda: Callable[[int], float]) -> None:

        self.lr_lambda = lr_lambda
        super().__init__(learning_rate)

    def get_lr(self) -> float:
        return self.base_lr * self.lr_lambda(self.epoch_num)


@public
class ReduceLROnPlateau(LearningRateDecay):
    """`learning_rate`, multiplied by `decay_rate` when the loss has not got better for more than `patience` epochs.

    Parameters
    ----------
    learning_rate : float
    mode : {'min', 'max'}
        Whether a smaller or a larger loss is better.
    decay_rate : float
        Less than 1.
    patience : int
    verbose : bool
        Print when the rate changes.
    threshold : float
        Minimum improvement that counts: a share of the best loss, or absolute, as `threshold_mode` says.
    threshold_mode : {'rel', 'abs'}
    cooldown : int
        Epochs after a change that do not count.
    min_lr : float
    eps : float
        A change by no more than this is left out.
    dtype : str
    """

    _state_names = ("cooldown_counter", "best_loss", "num_bad_epochs", "epoch_num", "learning_rate")

    def __init__(
        self,
        learning_rate: float,
        mode: str = "min",
        decay_rate: float = 0.1,
        patience: int = 10,
        verbose: bool = False,
        threshold: float = 1e-4,
        threshold_mode: str = "rel",
        cooldown: int = 0,
        min_lr: float = 0,
        eps: float = 1e-8,
        dtype: str = "float32",
    ) -> None:
        super().__init__(dtype=dtype)
        for name, value, allowed in (
            ("mode", mode, ("min", "max")),
            ("threshold_mode", threshold_mode, ("rel", "abs")),
        ):
            if value.lower() not in allowed:
                raise ProgramError(f"{name} must be {' or '.join(allowed)}, got {value!r}")
        _check_shrinks(decay_rate)
        self.mode, self.threshold_mode = mode.lower(), threshold_mode.lower()
        self.learning_rate, self.decay_rate, self.patience = float(learning_rate), decay_rate, patience
        self.verbose, self.threshold, self.cooldown, self.min_lr, self.eps = verbose, threshold, cooldown, min_lr, eps
        self.cooldown_counter = self.num_bad_epochs = self.epoch_num = 0
        self.best_loss: float | None = None

    def current(self) -> Rate:
        return Rate(self.learning_rate)

    def step(self, loss: Any = None) -> Rate:
        """Take note of an epoch's loss, a number or a tensor of one element; returns the rate from now on."""
        if loss is None:
            raise WrongTypeError("ReduceLROnPlateau.step needs the loss of the epoch")
        if np.size(loss) != 1:
            raise ProgramError(f"the loss must have one element, got shape {list(np.shape(loss))}")
        value = float(np.asarray(loss).reshape(-1)[0])
        self.epoch_num += 1
        if self.cooldown_counter > 0:
            self.cooldown_counter -= 1
            return Rate(self.learning_rate)
        if self.best_loss is None or self._is_better(value, self.best_loss):
            self.best_loss, self.num_bad_epochs = value, 0
        else:
            self.num_bad_epochs += 1
        if self.num_bad_epochs > self.patience:
            self.cooldown_counter, self.num_bad_epochs = self.cooldown, 0
            self._reduce()
        return Rate(self.learning_rate)

    def _reduce(self) -> None:
        reduced = max(self.learning_rate * self.decay_rate, self.min_lr)
        if self.learning_rate - reduced <= self.eps:
            return
        if self.verbose:
            print(f"Epoch {self.epoch_num}: reducing learning rate from {self.learning_rate} to {reduced}.")
        self.learning_rate = reduced

    def _is_better(self, loss: float, best: float) -> bool:
        margin = best * self.threshold if self.threshold_mode == "rel" else self.threshold
        return loss < best - margin if self.mode == "min" else loss > best + margin


def _check_shrinks(decay_rate: float) -> None:
    if decay_rate >= 1:
        raise ProgramError(f"decay_rate must be less than 1, got {decay_rate:g}")
