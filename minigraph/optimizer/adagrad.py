"""Adagrad and its relatives: steps in proportion to the inverse root of squared gradients."""

from __future__ import annotations

from typing import ClassVar

from minigraph.clip import GradientClipBase
from minigraph.errors import warn
from minigraph.ir import Block, Parameter
from minigraph.optimizer.base import Optimizer
from minigraph.optimizer.state import LearningRate, Parameters
from minigraph.regularizer import WeightDecayRegularizer
from minigraph.support.arguments import number
from minigraph.support.public import public


@public
class AdagradOptimizer(Optimizer):
    """Steps divided by the root of the sum of all squared gradients so far.

    ``moment += grad ** 2; param -= learning_rate * grad / (sqrt(moment) + epsilon)``.

    Parameters
    ----------
    learning_rate, parameter_list, regularization, grad_clip, name, parameters, weight_decay
        As in `Optimizer`.
    epsilon : float
    initial_accumulator_value : float
        What the sum starts from.

    References
    ----------
    J. Duchi, E. Hazan, Y. Singer, Adaptive subgradient methods for online learning and stochastic optimization, JMLR
    12, 2011.
    """

    type = "adagrad"
    _state: ClassVar = {"Moment": "moment"}

    def __init__(
        self,
        learning_rate: LearningRate,
        epsilon: float = 1e-6,
        parameter_list: Parameters = None,
        regularization: WeightDecayRegularizer | None = None,
        grad_clip: GradientClipBase | None = None,
        name: str | None = None,
        initial_accumulator_value: float = 0.0,
        *,
        parameters: Parameters = None,
        weight_decay: float | WeightDecayRegularizer | None = None,
    ) -> None:
        super().__init__(
            learning_rate, parameter_list, regularization, grad_clip, name, parameters=parameters,
            weight_decay=weight_decay,
        )  # fmt: skip
        self._op_attrs = {"epsilon": number(epsilon, "epsilon", at_least=0)}
        self._start = number(initial_accumulator_value, "initial_accumulator_value")

    def _create_state(self, block: Block, param: Parameter) -> None:
        self._add_accumulator("moment", param, fill_value=self._start)


@public
class DecayedAdagradOptimizer(Optimizer):
    """Adagrad with a mean of the squares that forgets.

    ``moment = decay * moment + (1 - decay) * grad ** 2; param -= learning_rate * grad / (sqrt(moment) + epsilon)``.

    Parameters
    ----------
    learning_rate, parameter_list, regularization, grad_clip, name, parameters, weight_decay
        As in `Optimizer`.
    decay : float
    epsilon : float
    """

    type = "decayed_adagrad"
    _state: ClassVar = {"Moment": "moment"}

    def __init__(
        self,
        learning_rate: LearningRate,
        decay: float = 0.95,
        epsilon: float = 1e-6,
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
        self._op_attrs = {"decay": number(decay, "decay"), "epsilon": number(epsilon, "epsilon", at_least=0)}


@public
class AdadeltaOptimizer(Optimizer):
    """Steps in the ratio of past steps to past gradients.

    ``squares = rho * squares + (1 - rho) * grad ** 2``,
    ``updates = rho * updates + (1 - rho) * step(updates) ** 2`` and
    ``param -= step(updates)`` where ``step(a) = sqrt((a + epsilon) / (squares + epsilon)) * grad``.

    Parameters
    ----------
    learning_rate, parameter_list, regularization, grad_clip, name, parameters, weight_decay
        As in `Optimizer`.
    epsilon : float
    rho : float
        Decay of the two means.

    Notes
    -----
    The learning rate has no influence, as in fluid and in the paper. In the paper the step is the one taken with the
    mean before it is brought up to date.

    References
    ----------
    M. D. Zeiler, ADADELTA: an adaptive learning rate method, arXiv:1212.5701, 2012.
    """

    type = "adadelta"
    _has_rate = False
    _state: ClassVar = {"AvgSquaredGrad": "_avg_squared_grad", "AvgSquaredUpdate": "_avg_squared_update"}

    def __init__(
        self,
        learning_rate: LearningRate,
        epsilon: float = 1e-6,
        rho: float = 0.95,
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
        self._op_attrs = {"epsilon": number(epsilon, "epsilon", at_least=0), "rho": number(rho, "rho")}


@public
class RMSPropOptimizer(Optimizer):
    """Steps divided by the root of a mean of the squared gradients, with momentum.

    ``square = rho * square + (1 - rho) * grad ** 2``,
    ``velocity = momentum * velocity + learning_rate * grad / sqrt(square + epsilon); param -= velocity``.

    Parameters
    ----------
    learning_rate, parameter_list, regularization, grad_clip, name, parameters, weight_decay
        As in `Optimizer`.
    rho : float
        Decay of the mean.
    epsilon : float
    momentum : float
    centered : bool
        Divide by the root of the variance of the gradient instead.

    References
    ----------
    T. Tieleman, G. Hinton, Lecture 6.5: rmsprop, Coursera, 2012; centered in A. Graves, Generating sequences with
    recurrent neural networks, arXiv:1308.0850, 2013.
    """

    type = "rmsprop"
    _state: ClassVar = {"Moment": "momentum", "MeanSquare": "mean_square", "MeanGrad": "mean_grad"}

    def __init__(
        self,
        learning_rate: LearningRate,
        rho: float = 0.95,
        epsilon: float = 1e-6,
        momentum: float = 0.0,
        centered: bool = False,
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
            "decay": number(rho, "rho"),
            "epsilon": number(epsilon, "epsilon", at_least=0),
            "momentum": number(momentum, "momentum"),
            "centered": centered,
        }


@public
class FtrlOptimizer(Optimizer):
    """Follow the regularized leader: the parameter that is best for all gradients so far and the penalties.

    ``new = squared + grad ** 2``,
    ``linear += grad - (new ** -lr_power - squared ** -lr_power) / learning_rate * param``,
    ``param = (l1 * sign(linear) - linear) / (new ** -lr_power / learning_rate + 2 * l1)``, or 0 where
    ``|linear| <= l1``, and ``squared = new``.

    Parameters
    ----------
    learning_rate, parameter_list, regularization, grad_clip, name, parameters, weight_decay
        As in `Optimizer`.
    l1 : float
        Weight of both penalties.
    l2 : float
        Not used.
    lr_power : float

    Warns
    -----
    UserWarning
        If `l2` is not `l1`.

    Notes
    -----
    Fluid 1.8.5 hands `l1` to the operator ``ftrl`` in the place of `l2` too, and the numbers here are fluid's. The
    operator itself knows both.

    References
    ----------
    H. B. McMahan et al., Ad click prediction: a view from the trenches, KDD 2013.
    """

    type = "ftrl"
    _state: ClassVar = {"SquaredAccumulator": "squared", "LinearAccumulator": "linear"}

    def __init__(
        self,
        learning_rate: LearningRate,
        l1: float = 0.0,
        l2: float = 0.0,
        lr_power: float = -0.5,
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
        if l2 != l1:
            warn(f"as in fluid 1.8.5, Ftrl takes l1={l1:g} as the weight of both penalties; l2={l2:g} is not used")
        weight = number(l1, "l1")
        self._op_attrs = {"l1": weight, "l2": weight, "lr_power": number(lr_power, "lr_power")}
