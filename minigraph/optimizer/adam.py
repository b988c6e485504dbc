"""Adam and its relatives: running means of the gradient and of its size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from minigraph.autodiff.backward import ParamsGrads
from minigraph.clip import GradientClipBase
from minigraph.errors import WrongTypeError, caller_site
from minigraph.ir import Block, Operator, Parameter, Role, Variable
from minigraph.ir.name_scope import name_scope
from minigraph.optimizer.base import LearningRate, Optimizer, Parameters
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
        self._beta1, self._beta2 = _share(beta1, "beta1"), _share(beta2, "beta2")
        self._epsilon, self._lazy_mode = number(epsilon, "epsilon", at_least=0), lazy_mode

    def _create_state(self, block: Block, param: Parameter) -> None:
        self._add_accumulator("moment1", param)
        self._add_accumulator("moment2", param)
        for kind, beta, default in (("beta1_pow_acc", self._beta1, 0.9), ("beta2_pow_acc", self._beta2, 0.999)):
            self._add_accumulator(kind, param, fill_value=default if isinstance(beta, Variable) else beta, shape=[1])

    def _append_update(self, block: Block, param: Parameter, grad: Variable) -> Operator:
        return block.append_op("adam", *self._operands(param, grad))

    def _operands(self, param: Parameter, grad: Variable) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        """Inputs, outputs and attributes of the update."""
        state = {
            kind: self._get_accumulator(kind, param)
            for kind in ("moment1", "moment2", "beta1_pow_acc", "beta2_pow_acc")
        }
        inputs: dict[str, Any] = {
            "Param": param, "Grad": grad, "LearningRate": self._rate_for(param), "Moment1": state["moment1"],
            "Moment2": state["moment2"], "Beta1Pow": state["beta1_pow_acc"], "Beta2Pow": state["beta2_pow_acc"],
        }  # fmt: skip
        outputs = {
            "ParamOut": param, "Moment1Out": state["moment1"], "Moment2Out": state["moment2"],
            "Beta1PowOut": state["beta1_pow_acc"], "Beta2PowOut": state["beta2_pow_acc"],
        }  # fmt: skip
        attrs: dict[str, Any] = {"epsilon": self._epsilon, "lazy_mode": self._lazy_mode}
        for slot, attr, beta in (("Beta1Tensor", "beta1", self._beta1), ("Beta2Tensor", "beta2", self._beta2)):
            if isinstance(beta, Variable):
                inputs[slot] = beta
            else:
                attrs[attr] = beta
        return inputs, outputs, attrs


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
        if isinstance(weight_decay, bool) or not isinstance(weight_decay, int | float):
            raise WrongTypeError(f"weight_decay must be a number, got {weight_decay!r:.60}", site=caller_site())
        super().__init__(
            learning_rate, beta1, beta2, epsilon, parameters, grad_clip=grad_clip, name=name, lazy_mode=lazy_mode
        )
        self._coeff, self._lr_ratio, self._decays = float(weight_decay), lr_ratio, apply_decay_param_fun

    def _append_update(self, block: Block, param: Parameter, grad: Variable) -> Operator:
        inputs, outputs, attrs = self._operands(param, grad)
        attrs |= {
            "coeff": self._coeff,
            "with_decay": self._decays is None or bool(self._decays(param.name)),
            "lr_ratio": 1.0 if self._lr_ratio is None else float(self._lr_ratio(param)),
        }
        return block.append_op("adamw", inputs, outputs, attrs)


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

    def _append_update(self, block: Block, param: Parameter, grad: Variable) -> Operator:
        inputs, outputs, attrs = self._operands(param, grad)
        for slot in ("Beta1PowOut", "Beta2PowOut"):
            del outputs[slot]
        del attrs["lazy_mode"]
        is_excluded = self._is_excluded is not None and self._is_excluded(param)
        attrs["weight_decay"] = 0.0 if is_excluded else self._weight_decay
        return block.append_op("lamb", inputs, outputs, attrs)


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
        self._beta1 = number(beta1, "beta1", at_least=0, below=1)
        self._beta2 = number(beta2, "beta2", at_least=0, below=1)
        self._epsilon = number(epsilon, "epsilon", at_least=0)

    def _create_state(self, block: Block, param: Parameter) -> None:
        self._add_accumulator("moment", param)
        self._add_accumulator("inf_norm", param)
        self._add_accumulator("beta1_pow_acc", param, fill_value=self._beta1, shape=[1])

    def _append_update(self, block: Block, param: Parameter, grad: Variable) -> Operator:
        moment, inf_norm = self._get_accumulator("moment", param), self._get_accumulator("inf_norm", param)
        inputs = {
            "Param": param, "Grad": grad, "LearningRate": self._rate_for(param), "Moment": moment, "InfNorm": inf_norm,
            "Beta1Pow": self._get_accumulator("beta1_pow_acc", param),
        }  # fmt: skip
        outputs = {"ParamOut": param, "MomentOut": moment, "InfNormOut": inf_norm}
        attrs = {"beta1": self._beta1, "beta2": self._beta2, "epsilon": self._epsilon}
        return block.append_op("adamax", inputs, outputs, attrs)

    def _finish_update(self, block: Block, parameters_and_grads: ParamsGrads) -> None:
        for param, grad in parameters_and_grads:
            with block.program.role_guard(Role.OPTIMIZE, (param, grad)), name_scope("adamx"):
                power = self._get_accumulator("beta1_pow_acc", param)
                block.append_op("scale", {"X": power}, {"Out": power}, {"scale": self._beta1})
