"""Adam and its relatives: running means of the gradient and of its size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from minigraph.autodiff.backward import ParamsGrads
from minigraph.clip import GradientClipBase
from minigraph.ir import Block, Parameter, Role, Variable
from minigraph.ir.name_scope import name_scope
from minigraph.optimizer.base import Optimizer
from minigraph.optimizer.state import LearningRate, Parameters
from minigraph.regularizer import WeightDecayRegularizer
from minigraph.support.arguments import number
from minigraph.support.public import public


def _share(beta: float | Variable, name: str) -> float | Variable:
    """Check the share of a running mean that stays: a number in [0, 1), or a variable."""
    return beta if isinstance(beta, Variable) else number(beta, name, at_least=0, below=1)


@public
class AdamOptimizer(Optimizer):
    """Adam: steps scaled by running means of the gradient and of its square.

    Parameters
    ----------
    learning_rate, parameter_list, regularization, grad_clip, name, parameters, weight_decay
        As in `Optimizer`.
    beta1, beta2 : float or Variable, float[1]
        Decay of the two means.
    epsilon : float
        Added to the root of the second mean.
    lazy_mode : bool
        For row-sparse gradients: update only the rows that have one.

    References
    ----------
    D. P. Kingma and J. Ba, Adam: a method for stochastic optimization, ICLR 2015.
    """

    type = "adam"
    _state: ClassVar = {
        "Moment1": "moment1",
        "Moment2": "moment2",
        "Beta1Pow": "beta1_pow_acc",
        "Beta2Pow": "beta2_pow_acc",
    }

    def __init__(
        self,
        learning_rate: LearningRate = 0.001,
        beta1: float | Variable = 0.9,
        beta2: float | Variable = 0.999,
        epsilon: float = 1e-08,
        parameter_list: Parameters = None,
        regularization: WeightDecayRegularizer | None = None,
        grad_clip: GradientClipBase | None = None,
        name: str | None = None,
        lazy_mode: bool = False,
        *,
        parameters: Parameters = None,
        weight_decay: float | WeightDecayRegularizer | None = None,
    ) -> None:
        super().__init__(
            learning_rate, parameter_list, regularization, grad_clip, name, parameters=parameters,
            weight_decay=weight_decay,
        )  # fmt: skip
        self._betas = {"beta1": _share(beta1, "beta1"), "beta2": _share(beta2, "beta2")}
        self._op_attrs = {"epsilon": number(epsilon, "epsilon", at_least=0), "lazy_mode": lazy_mode}
        self._op_attrs |= {name: beta for name, beta in self._betas.items() if not isinstance(beta, Variable)}

    def _create_state(self, block: Block, param: Parameter) -> None:
        self._add_accumulator("moment1", param)
        self._add_accumulator("moment2", param)
        for name, default in (("beta1", 0.9), ("beta2", 0.999)):
            # The variable of a share is not known here; fluid starts its power from the default.
            self._add_accumulator(f"{name}_pow_acc", param, fill_value=self._op_attrs.get(name, default), shape=[1])

    def _inputs_besides(self) -> dict[str, Variable]:
        return {f"{name.title()}Tensor": beta for name, beta in self._betas.items() if isinstance(beta, Variable)}


@public
class AdamW(AdamOptimizer):
    """Adam with weight decay that is no part of the gradient: besides, ``param *= 1 - learning_rate * weight_decay``.

    Parameters
    ----------
    learning_rate, parameters, grad_clip, name
        As in `Optimizer`.
    beta1, beta2, epsilon, lazy_mode
        As in `AdamOptimizer`; `epsilon` is added once the bias of the means is undone, as in the paper.
    weight_decay : float
    lr_ratio : callable, optional
        ``lr_ratio(param)`` is a factor of the learning rate for a parameter.
    apply_decay_param_fun : callable, optional
        ``apply_decay_param_fun(name)`` says whether the parameter of this name decays. Default: all do.

    Notes
    -----
    The signature is Paddle 2's; fluid 1.8 has no such optimizer.

    References
    ----------
    I. Loshchilov, F. Hutter, Decoupled weight decay regularization, ICLR 2019.

    Examples
    --------
    >>> import minigraph as paddle
    >>> from minigraph.optimizer import AdamW
    >>> updates = AdamW(1e-3, weight_decay=0.1, apply_decay_param_fun=lambda name: ".w_" in name)
    """

    type = "adamw"

    def __init__(
        self,
        learning_rate: LearningRate = 0.001,
        beta1: float | Variable = 0.9,
        beta2: float | Variable = 0.999,
        epsilon: float = 1e-08,
        parameters: Parameters = None,
        weight_decay: float = 0.01,
        lr_ratio: Callable[[Any], float] | None = None,
        apply_decay_param_fun: Callable[[str], bool] | None = None,
        grad_clip: GradientClipBase | None = None,
        lazy_mode: bool = False,
        name: str | None = None,
    ) -> None:

        super().__init__(
            learning_rate, beta1, beta2, epsilon, parameters, grad_clip=grad_clip, name=name, lazy_mode=lazy_mode
        )
        self._coeff, self._lr_ratio, self._decays = float(weight_decay), lr_ratio, apply_decay_param_fun

    def _attrs_for(self, param: Parameter) -> dict[str, Any]:
        return {
            **self._op_attrs,
            "coeff": self._coeff,
            "with_decay": self._decays is None or bool(self._decays(param.name)),
            "lr_ratio": 1.0 if self._lr_ratio is None else float(self._lr_ratio(param)),
        }


@public
class LambOptimizer(AdamOptimizer):
    """Adam's direction where each parameter has a rate of its own, in proportion to its length.

    ``param -= learning_rate * |param| / |step| * step`` where
    ``step = moment1 / (sqrt(moment2) + epsilon) + lamb_weight_decay * param``.

    Parameters
    ----------
    learning_rate, parameter_list, regularization, grad_clip, name, parameters, weight_decay
        As in `Optimizer`.
    lamb_weight_decay : float
    beta1, beta2 : float
        Decay of the two means.
    epsilon : float
    exclude_from_weight_decay_fn : callable, optional
        ``exclude_from_weight_decay_fn(param)`` says whether a parameter is not to decay.

    Notes
    -----
    As in fluid 1.8.5 the bias of the means toward zero is not undone.

    References
    ----------
    Y. You et al., Large batch optimization for deep learning: training BERT in 76 minutes, ICLR 2020.
    """

    type = "lamb"
    _state: ClassVar = {"Moment1": "moment1", "Moment2": "moment2"}
    _read_state: ClassVar = {"Beta1Pow": "beta1_pow_acc", "Beta2Pow": "beta2_pow_acc"}

    def __init__(
        self,
        learning_rate: LearningRate = 0.001,
        lamb_weight_decay: float = 0.01,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-6,
        parameter_list: Parameters = None,
        regularization: WeightDecayRegularizer | None = None,
        grad_clip: GradientClipBase | None = None,
        exclude_from_weight_decay_fn: Callable[[Any], bool] | None = None,
        name: str | None = None,
        *,
        parameters: Parameters = None,
        weight_decay: float | WeightDecayRegularizer | None = None,
    ) -> None:
        super().__init__(
            learning_rate, beta1, beta2, epsilon, parameter_list, regularization, grad_clip, name,
            parameters=parameters, weight_decay=weight_decay,
        )  # fmt: skip
        self._weight_decay, self._is_excluded = lamb_weight_decay, exclude_from_weight_decay_fn
        # The operator lamb has no such attribute.
        del self._op_attrs["lazy_mode"]

    def _attrs_for(self, param: Parameter) -> dict[str, Any]:
        is_excluded = self._is_excluded is not None and self._is_excluded(param)
        return {**self._op_attrs, "weight_decay": 0.0 if is_excluded else self._weight_decay}


@public
class AdamaxOptimizer(Optimizer):
    """Adam by the largest gradient instead of the mean square.

    ``moment = beta1 * moment + (1 - beta1) * grad``, ``inf_norm = max(|grad|, beta2 * inf_norm + epsilon)`` and
    ``param -= learning_rate / (1 - beta1 ** step) * moment / inf_norm``.

    Parameters
    ----------
    learning_rate, parameter_list, regularization, grad_clip, name, parameters, weight_decay
        As in `Optimizer`.
    beta1, beta2 : float
        Decay of the mean and of the largest gradient.
    epsilon : float

    References
    ----------
    D. P. Kingma and J. Ba, Adam: a method for stochastic optimization, ICLR 2015, section 7.1.
    """

    type = "adamax"
    _state: ClassVar = {"Moment": "moment", "InfNorm": "inf_norm"}
    _read_state: ClassVar = {"Beta1Pow": "beta1_pow_acc"}

    def __init__(
        self,
        learning_rate: LearningRate = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
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
            "beta1": number(beta1, "beta1", at_least=0, below=1),
            "beta2": number(beta2, "beta2", at_least=0, below=1),
            "epsilon": number(epsilon, "epsilon", at_least=0),
        }

    def _create_state(self, block: Block, param: Parameter) -> None:
        super()._create_state(block, param)
        self._add_accumulator("beta1_pow_acc", param, fill_value=self._op_attrs["beta1"], shape=[1])

    def _finish_update(self, block: Block, parameters_and_grads: ParamsGrads) -> None:
        # The operator adamax only reads the power, unlike adam, which writes it, too.
        for param, grad in parameters_and_grads:
            with block.program.role_guard(Role.OPTIMIZE, (param, grad)), name_scope("adamx"):
                power = self._get_accumulator("beta1_pow_acc", param)
                block.append_op("scale", {"X": power}, {"Out": power}, {"scale": self._op_attrs["beta1"]})
