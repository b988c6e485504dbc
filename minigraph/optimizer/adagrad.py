"""Adagrad and its relatives: steps in proportion to the inverse root of squared gradients."""

from __future__ import annotations

from minigraph.clip import GradientClipBase
from minigraph.errors import warn
from minigraph.ir import Block, Operator, Parameter, Variable
from minigraph.optimizer.base import LearningRate, Optimizer, Parameters
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
        self._epsilon = number(epsilon, "epsilon", at_least=0)
        self._start = number(initial_accumulator_value, "initial_accumulator_value")

    def _create_state(self, block: Block, param: Parameter) -> None:
        self._add_accumulator("moment", param, fill_value=self._start)

    def _append_update(self, block: Block, param: Parameter, grad: Variable) -> Operator:
        moment = self._get_accumulator("moment", param)
        inputs = {"Param": param, "Grad": grad, "Moment": moment, "LearningRate": self._rate_for(param)}
        outputs = {"ParamOut": param, "MomentOut": moment}
        return block.append_op("adagrad", inputs, outputs, {"epsilon": self._epsilon})


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
        self._forgetting, self._epsilon = number(decay, "decay"), number(epsilon, "epsilon", at_least=0)

    def _create_state(self, block: Block, param: Parameter) -> None:
        self._add_accumulator("moment", param)

    def _append_update(self, block: Block, param: Parameter, grad: Variable) -> Operator:
        moment = self._get_accumulator("moment", param)
        inputs = {"Param": param, "Grad": grad, "Moment": moment, "LearningRate": self._rate_for(param)}
        outputs = {"ParamOut": param, "MomentOut": moment}
        return block.append_op(
            "decayed_adagrad", inputs, outputs, {"decay": self._forgetting, "epsilon": self._epsilon}
        )


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
        self._epsilon, self._rho = number(epsilon, "epsilon", at_least=0), number(rho, "rho")

    def _create_state(self, block: Block, param: Parameter) -> None:
        self._add_accumulator("_avg_squared_grad", param)
        self._add_accumulator("_avg_squared_update", param)

    def _append_update(self, block: Block, param: Parameter, grad: Variable) -> Operator:
        squares = self._get_accumulator("_avg_squared_grad", param)
        updates = self._get_accumulator("_avg_squared_update", param)
        inputs = {"Param": param, "Grad": grad, "AvgSquaredGrad": squares, "AvgSquaredUpdate": updates}
        outputs = {"ParamOut": param, "AvgSquaredGradOut": squares, "AvgSquaredUpdateOut": updates}
        return block.append_op("adadelta", inputs, outputs, {"epsilon": self._epsilon, "rho": self._rho})


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
        self._rho, self._epsilon = number(rho, "rho"), number(epsilon, "epsilon", at_least=0)
        self._momentum, self._centered = number(momentum, "momentum"), centered

    def _create_state(self, block: Block, param: Parameter) -> None:
        for kind in ("momentum", "mean_square", "mean_grad"):
            self._add_accumulator(kind, param)

    def _append_update(self, block: Block, param: Parameter, grad: Variable) -> Operator:
        moment, square = self._get_accumulator("momentum", param), self._get_accumulator("mean_square", param)
        mean = self._get_accumulator("mean_grad", param)
        inputs = {
            "Param": param, "MeanSquare": square, "MeanGrad": mean, "LearningRate": self._rate_for(param),
            "Grad": grad, "Moment": moment,
        }  # fmt: skip
        outputs = {"ParamOut": param, "MomentOut": moment, "MeanSquareOut": square, "MeanGradOut": mean}
        attrs = {
            "epsilon": self._epsilon, "decay": self._rho, "momentum": self._momentum, "centered": self._centered
        }  # fmt: skip
        return block.append_op("rmsprop", inputs, outputs, attrs)


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
        self._l1, self._lr_power = number(l1, "l1"), number(lr_power, "lr_power")

    def _create_state(self, block: Block, param: Parameter) -> None:
        self._add_accumulator("squared", param)
        self._add_accumulator("linear", param)

    def _append_update(self, block: Block, param: Parameter, grad: Variable) -> Operator:
        squared, linear = self._get_accumulator("squared", param), self._get_accumulator("linear", param)
        inputs = {
            "Param": param, "SquaredAccumulator": squared, "LinearAccumulator": linear, "Grad": grad,
            "LearningRate": self._rate_for(param),
        }  # fmt: skip
        outputs = {"ParamOut": param, "SquaredAccumOut": squared, "LinearAccumOut": linear}
        attrs = {"l1": self._l1, "l2": self._l1, "lr_power": self._lr_power}
        return block.append_op("ftrl", inputs, outputs, attrs)
