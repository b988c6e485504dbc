"""Optimizers that step along the gradient, or a sum of past ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from minigraph.clip import GradientClipBase
from minigraph.errors import ProgramError, warn
from minigraph.optimizer.base import Optimizer
from minigraph.optimizer.state import LearningRate, Parameters
from minigraph.regularizer import WeightDecayRegularizer
from minigraph.support.arguments import number
from minigraph.support.public import public


class SGDOptimizer(Optimizer):
    """Gradient descent: ``param -= learning_rate * grad``."""

    type = "sgd"


@public
class MomentumOptimizer(Optimizer):
    """Gradient descent with momentum: ``velocity = momentum * velocity + grad; param -= learning_rate * velocity``.

    With `use_nesterov`, ``param -= learning_rate * (grad + momentum * velocity)``.

    Parameters
    ----------
    learning_rate, parameter_list, regularization, grad_clip, name, parameters, weight_decay
        As in `Optimizer`.
    momentum : float
    use_nesterov : bool

    References
    ----------
    I. Sutskever et al., On the importance of initialization and momentum in deep learning, ICML 2013.
    """

    type = "momentum"
    _state: ClassVar = {"Velocity": "velocity"}

    def __init__(
        self,
        learning_rate: LearningRate = 0.001,
        momentum: float = 0.9,
        parameter_list: Parameters = None,
        use_nesterov: bool = False,
        regularization: WeightDecayRegularizer | None = None,
        grad_clip: GradientClipBase | None = None,
        name: str | None = None,
        *,
        parameters: Parameters = None,
        weight_decay: float | WeightDecayRegularizer | None = None,
    ) -> None:
        super().__init__(
            learning_rate, parameter_list, regularization, grad_clip, name, parameters=parameters,
            weight_decay=weight_decay,
        )  # fmt: skip
        self._op_attrs = {"mu": number(momentum, "momentum"), "use_nesterov": bool(use_nesterov)}


@public
class DGCMomentumOptimizer(MomentumOptimizer):
    """Momentum for ranks that exchange compressed gradients; here there is one rank, and nothing to exchange.

    Before step `rampup_begin_step` fluid exchanges them as they are. Later it sends only the largest of them, which it
    refuses to do for a single rank.

    Parameters
    ----------
    learning_rate, momentum, use_nesterov, parameter_list, regularization, grad_clip, name
        As in `MomentumOptimizer`.
    rampup_begin_step, rampup_step : int
        Step in which compression begins, and number of steps until it is complete.
    sparsity : list of float
        Share of each gradient that is not sent.
    num_trainers : int, optional
        Number of ranks.

    Warns
    -----
    UserWarning
        That gradients are not compressed.
    """

    def __init__(
        self,
        learning_rate: LearningRate,
        momentum: float,
        rampup_begin_step: int,
        rampup_step: int = 1,
        sparsity: Sequence[float] = (0.999,),
        parameter_list: Parameters = None,
        use_nesterov: bool = False,
        num_trainers: int | None = None,
        regularization: WeightDecayRegularizer | None = None,
        grad_clip: GradientClipBase | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(learning_rate, momentum, parameter_list, use_nesterov, regularization, grad_clip, name)
        if num_trainers not in (None, 1):
            raise ProgramError(f"DGCMomentumOptimizer runs on one rank, not {num_trainers!r:.40}")
        warn("DGCMomentumOptimizer compresses no gradients: one rank has nothing to send, its updates are Momentum's")


@public
class LarsMomentumOptimizer(Optimizer):
    """Momentum where each parameter has a rate of its own, in proportion to its length over that of its gradient.

    ``velocity = momentum * velocity + rate * (grad + lars_weight_decay * param); param -= velocity`` where
    ``rate = learning_rate * lars_coeff * |param| / (|grad| + lars_weight_decay * |param|)``, or ``learning_rate`` where
    one of the L2 norms is 0.

    Parameters
    ----------
    learning_rate, parameter_list, regularization, grad_clip, name, parameters, weight_decay
        As in `Optimizer`.
    momentum : float
    lars_coeff : float
        Maximum length of a step, as a share of the parameter's length.
    lars_weight_decay : float

    References
    ----------
    Y. You, I. Gitman, B. Ginsburg, Large batch training of convolutional networks, arXiv:1708.03888, 2017.
    """

    type = "lars_momentum"
    _state: ClassVar = {"Velocity": "velocity"}

    def __init__(
        self,
        learning_rate: LearningRate,
        momentum: float,
        lars_coeff: float = 0.001,
        lars_weight_decay: float = 0.0005,
        parameter_list: Parameters = None,
        regularization: WeightDecayRegularizer | None = None,
        grad_clip: GradientClipBase | None = None,
        name: str | None = None,
        *,
        parameters: Parameters = None,
        weight_decay: float | WeightDecayRegularizer | None = None,
    ) -> None:
        super().__init__(
            learning_rate, parameter_list, regularization, grad_clip, name, parameters=parameters,
            weight_decay=weight_decay,
        )  # fmt: skip
        self._op_attrs = {
            "mu": number(momentum, "momentum"),
            "lars_coeff": number(lars_coeff, "lars_coeff"),
            "lars_weight_decay": number(lars_weight_decay, "lars_weight_decay"),
        }


@public
class DpsgdOptimizer(Optimizer):
    """Gradient descent with a clipped gradient and noise: ``param -= learning_rate * (clipped + noise)``.

    ``clipped = grad / max(|grad| / clip, 1)``; ``noise`` is normal with standard deviation ``sigma / batch_size``.

    Parameters
    ----------
    learning_rate, parameter_list, parameters
        As in `Optimizer`.
    clip : float
        Largest L2 norm of a parameter's gradient.
    batch_size : float
        Number of examples that the gradient is the mean of.
    sigma : float

    Notes
    -----
    What is clipped is the mean gradient of a batch, as in fluid. Differential privacy asks for clipping the gradient of
    each example.

    References
    ----------
    M. Abadi et al., Deep learning with differential privacy, CCS 2016.
    """

    type = "dpsgd"

    def __init__(
        self,
        learning_rate: LearningRate = 0.001,
        clip: float = 0.9,
        batch_size: float = 0.999,
        sigma: float = 1e-8,
        parameter_list: Parameters = None,
        *,
        parameters: Parameters = None,
    ) -> None:
        super().__init__(learning_rate, parameter_list, parameters=parameters)
        self._op_attrs = {
            "clip": number(clip, "clip"),
            "batch_size": number(batch_size, "batch_size"),
            "sigma": number(sigma, "sigma"),
        }
