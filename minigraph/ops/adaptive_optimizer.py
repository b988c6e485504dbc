"""Updates that scale each element's step by the sizes of its past gradients.

Each output has the type of the input that it replaces; a program gives both the same variable. Where one of the flags
in ``SkipUpdate`` is set, an update changes nothing.
"""

from __future__ import annotations

from minigraph.opdef import op
from minigraph.ops.optimizer import check_update, require_one_number
from minigraph.types import DType, TensorType, require, require_same_dtype


def _check_adaptive(
    param: TensorType, rate: TensorType | None, skip: list[TensorType] | None, **like_param: TensorType
) -> None:
    check_update(param, rate, skip, **like_param)
    require(
        param.dtype is not DType.FP16,
        "Param must be float32 or float64, got float16, in which epsilon and squares of gradients underflow",
        hint="Keep the parameter in float32 and convert it with layers.cast where it is used.",
    )


def _check_powers(param: TensorType, **powers: TensorType) -> None:
    for slot, power in powers.items():
        require_same_dtype(f"Param and {slot}", param, power)
        require_one_number(power, slot)


def _check_betas(**betas: TensorType | None) -> None:
    for slot, beta in betas.items():
        if beta is not None:
            require_one_number(beta, slot)


@op(
    "adam",
    inputs="Param Grad LearningRate Moment1 Moment2 Beta1Pow Beta2Pow Beta1Tensor Beta2Tensor SkipUpdate",
    outputs="ParamOut Moment1Out Moment2Out Beta1PowOut Beta2PowOut",
    rows="Grad",
    grad=None,
)
def adam(
    param: TensorType,
    grad: TensorType,
    rate: TensorType,
    moment1: TensorType,
    moment2: TensorType,
    beta1_pow: TensorType,
    beta2_pow: TensorType,
    beta1_tensor: TensorType | None = None,
    beta2_tensor: TensorType | None = None,
    skip: list[TensorType] | None = None,
    *,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-8,
    lazy_mode: bool = False,
) -> tuple[TensorType, ...]:
    """Adam, with running means of the gradient and of its square, which decay by `beta1` and `beta2`.

    ``Moment1Out = beta1 * Moment1 + (1 - beta1) * Grad``,
    ``Moment2Out = beta2 * Moment2 + (1 - beta2) * Grad ** 2`` and
    ``ParamOut = Param - rate * Moment1Out / (sqrt(Moment2Out) + epsilon)`` where
    ``rate = LearningRate * sqrt(1 - Beta2Pow) / (1 - Beta1Pow)``. ``Beta1Pow`` and ``Beta2Pow`` are the powers of the
    betas that undo the bias of the means toward zero; each is multiplied by its beta. ``Beta1Tensor`` and
    ``Beta2Tensor`` stand in for the attributes where given.

    A gradient may be selected rows. In `lazy_mode` only these rows of the parameter and of the means change. As in
    fluid, the powers are then multiplied before they are used, so the bias undone is that of the next step.

    Notes
    -----
    As in fluid, `epsilon` is what the end of the paper's section 2 calls epsilon hat: added before the bias is undone.

    References
    ----------
    D. P. Kingma, J. Ba, "Adam: A Method for Stochastic Optimization", ICLR 2015.
    """
    _check_adaptive(param, rate, skip, Grad=grad, Moment1=moment1, Moment2=moment2)
    _check_powers(param, Beta1Pow=beta1_pow, Beta2Pow=beta2_pow)
    _check_betas(Beta1Tensor=beta1_tensor, Beta2Tensor=beta2_tensor)
    return param, moment1, moment2, beta1_pow, beta2_pow


@op(
    "adamw",
    inputs="Param Grad LearningRate Moment1 Moment2 Beta1Pow Beta2Pow Beta1Tensor Beta2Tensor SkipUpdate",
    outputs="ParamOut Moment1Out Moment2Out Beta1PowOut Beta2PowOut",
    rows="Grad",
    grad=None,
)
def adamw(
    param: TensorType,
    grad: TensorType,
    rate: TensorType,
    moment1: TensorType,
    moment2: TensorType,
    beta1_pow: TensorType,
    beta2_pow: TensorType,
    beta1_tensor: TensorType | None = None,
    beta2_tensor: TensorType | None = None,
    skip: list[TensorType] | None = None,
    *,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-8,
    coeff: float = 0.01,
    with_decay: bool = False,
    lr_ratio: float = 1.0,
    lazy_mode: bool = False,
) -> tuple[TensorType, ...]:
    """Adam with weight decay apart from the gradient.

    ``ParamOut = (1 - rate * coeff) * Param - rate * m / (sqrt(v) + epsilon)`` where ``rate = lr_ratio * LearningRate``,
    ``m = Moment1Out / (1 - Beta1Pow)`` and ``v = Moment2Out / (1 - Beta2Pow)``, the moments as in `adam`. Without
    `with_decay` nothing decays. If the gradient is selected rows, in `lazy_mode` only these rows of the means change,
    and of the parameter, apart from its decay.

    Notes
    -----
    This is Paddle 2's operator; fluid 1.8 has none. `epsilon` is the paper's, not that of fluid's `adam`.

    References
    ----------
    I. Loshchilov, F. Hutter, "Decoupled Weight Decay Regularization", ICLR 2019.
    """
    return adam(param, grad, rate, moment1, moment2, beta1_pow, beta2_pow, beta1_tensor, beta2_tensor, skip)


@op(
    "adamax",
    inputs="Param Grad LearningRate Moment InfNorm Beta1Pow SkipUpdate",
    outputs="ParamOut MomentOut InfNormOut Beta1PowOut?",
    grad=None,
)
def adamax(
    param: TensorType,
    grad: TensorType,
    rate: TensorType,
    moment: TensorType,
    inf_norm: TensorType,
    beta1_pow: TensorType,
    skip: list[TensorType] | None = None,
    *,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-8,
) -> tuple[TensorType, ...]:
    """Adam by the largest gradient instead of the mean square.

    ``MomentOut = beta1 * Moment + (1 - beta1) * Grad``, ``InfNormOut = max(|Grad|, beta2 * InfNorm + epsilon)`` and
    ``ParamOut = Param - LearningRate / (1 - Beta1Pow) * MomentOut / InfNormOut``. In a program as fluid makes it the
    power of `beta1` is kept up to date by an operator ``scale``; ``Beta1PowOut`` is ``beta1 * Beta1Pow`` for an update
    that may be skipped.

    References
    ----------
    D. P. Kingma, J. Ba, "Adam: A Method for Stochastic Optimization", ICLR 2015, section 7.1.
    """
    _check_adaptive(param, rate, skip, Grad=grad, Moment=moment, InfNorm=inf_norm)
    _check_powers(param, Beta1Pow=beta1_pow)
    return param, moment, inf_norm, beta1_pow


@op(
    "lamb",
    inputs="Param Grad LearningRate Moment1 Moment2 Beta1Pow Beta2Pow SkipUpdate",
    outputs="ParamOut Moment1Out Moment2Out",
    rows="Grad",
    grad=None,
)
def lamb(
    param: TensorType,
    grad: TensorType,
    rate: TensorType,
    moment1: TensorType,
    moment2: TensorType,
    beta1_pow: TensorType,
    beta2_pow: TensorType,
    skip: list[TensorType] | None = None,
    *,
    weight_decay: float,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-6,
) -> tuple[TensorType, ...]:
    """Adam's direction, at a rate for each parameter in proportion to its length.

    ``ParamOut = Param - LearningRate * |Param| / |step| * step`` where
    ``step = Moment1Out / (sqrt(Moment2Out) + epsilon) + weight_decay * Param``, the moments as in `adam`. The ratio of
    the two L2 norms is left out where one of them is 0.

    Notes
    -----
    As in fluid 1.8.5, the bias of the moments toward zero is not undone: ``Beta1Pow`` and ``Beta2Pow`` are not used.

    References
    ----------
    Y. You et al., "Large Batch Optimization for Deep Learning: Training BERT in 76 minutes", ICLR 2020.
    """
    _check_adaptive(param, rate, skip, Grad=grad, Moment1=moment1, Moment2=moment2)
    _check_powers(param, Beta1Pow=beta1_pow, Beta2Pow=beta2_pow)
    return param, moment1, moment2


@op("adagrad", inputs="Param Grad Moment LearningRate SkipUpdate", outputs="ParamOut MomentOut", rows="Grad", grad=None)
def adagrad(
    param: TensorType,
    grad: TensorType,
    moment: TensorType,
    rate: TensorType,
    skip: list[TensorType] | None = None,
    *,
    epsilon: float = 1e-6,
) -> tuple[TensorType, TensorType]:
    """Steps divided by the root of the sum of all squared gradients so far.

    ``MomentOut = Moment + Grad ** 2`` and ``ParamOut = Param - LearningRate * Grad / (sqrt(MomentOut) + epsilon)``.

    References
    ----------
    J. Duchi, E. Hazan, Y. Singer, "Adaptive Subgradient Methods for Online Learning and Stochastic Optimization",
    JMLR 12, 2011.
    """
    _check_adaptive(param, rate, skip, Grad=grad, Moment=moment)
    return param, moment


@op("decayed_adagrad", inputs="Param Grad Moment LearningRate SkipUpdate", outputs="ParamOut MomentOut", grad=None)
def decayed_adagrad(
    param: TensorType,
    grad: TensorType,
    moment: TensorType,
    rate: TensorType,
    skip: list[TensorType] | None = None,
    *,
    decay: float = 0.95,
    epsilon: float = 1e-6,
) -> tuple[TensorType, TensorType]:
    """Adagrad with a running mean of the squares, which decays by `decay`.

    ``MomentOut = decay * Moment + (1 - decay) * Grad ** 2`` and
    ``ParamOut = Param - LearningRate * Grad / (sqrt(MomentOut) + epsilon)``.
    """
    _check_adaptive(param, rate, skip, Grad=grad, Moment=moment)
    return param, moment


@op(
    "adadelta",
    inputs="Param Grad AvgSquaredGrad AvgSquaredUpdate SkipUpdate",
    outputs="ParamOut AvgSquaredGradOut AvgSquaredUpdateOut",
    grad=None,
)
def adadelta(
    param: TensorType,
    grad: TensorType,
    squared_grad: TensorType,
    squared_update: TensorType,
    skip: list[TensorType] | None = None,
    *,
    rho: float = 0.95,
    epsilon: float = 1e-6,
) -> tuple[TensorType, ...]:
    """Steps in the ratio of past steps to past gradients, without a learning rate.

    ``AvgSquaredGradOut = rho * AvgSquaredGrad + (1 - rho) * Grad ** 2``,
    ``AvgSquaredUpdateOut = rho * AvgSquaredUpdate + (1 - rho) * step(AvgSquaredUpdate) ** 2`` and
    ``ParamOut = Param - step(AvgSquaredUpdateOut)`` where
    ``step(a) = sqrt((a + epsilon) / (AvgSquaredGradOut + epsilon)) * Grad``.

    Notes
    -----
    In the paper ``ParamOut`` is ``Param - step(AvgSquaredUpdate)``. Fluid's operator, which writes over its inputs,
    takes the mean that it has just written; the numbers here are fluid's.

    References
    ----------
    M. D. Zeiler, "ADADELTA: An Adaptive Learning Rate Method", arXiv:1212.5701, 2012.
    """
    _check_adaptive(param, None, skip, Grad=grad, AvgSquaredGrad=squared_grad, AvgSquaredUpdate=squared_update)
    return param, squared_grad, squared_update


@op(
    "rmsprop",
    inputs="Param MeanSquare MeanGrad LearningRate Grad Moment SkipUpdate",
    outputs="ParamOut MomentOut MeanSquareOut MeanGradOut",
    rows="Grad",
    grad=None,
)
def rmsprop(
    param: TensorType,
    mean_square: TensorType,
    mean_grad: TensorType | None,
    rate: TensorType,
    grad: TensorType,
    moment: TensorType,
    skip: list[TensorType] | None = None,
    *,
    epsilon: float = 1e-10,
    decay: float = 0.9,
    momentum: float = 0.0,
    centered: bool = False,
) -> tuple[TensorType, ...]:
    """Steps divided by the root of a mean of the squared gradients, with momentum.

    ``MeanSquareOut = decay * MeanSquare + (1 - decay) * Grad ** 2``,
    ``MomentOut = momentum * Moment + LearningRate * Grad / sqrt(MeanSquareOut + epsilon)`` and
    ``ParamOut = Param - MomentOut``. With `centered` the variance takes the place of the mean square, with
    ``MeanGradOut = decay * MeanGrad + (1 - decay) * Grad``: ``sqrt(MeanSquareOut - MeanGradOut ** 2 + epsilon)``.
    Otherwise ``MeanGradOut`` is ``MeanGrad``, zeros where that is not given.

    References
    ----------
    T. Tieleman, G. Hinton, "Lecture 6.5: rmsprop", Coursera, 2012; centered in A. Graves, "Generating Sequences With
    Recurrent Neural Networks", arXiv:1308.0850, 2013.
    """
    given = {"MeanGrad": mean_grad} if mean_grad is not None else {}
    _check_adaptive(param, rate, skip, Grad=grad, MeanSquare=mean_square, Moment=moment, **given)
    require(mean_grad is not None or not centered, "centered needs MeanGrad")
    return param, moment, mean_square, param if mean_grad is None else mean_grad


@op(
    "ftrl",
    inputs="Param SquaredAccumulator LinearAccumulator Grad LearningRate SkipUpdate",
    outputs="ParamOut SquaredAccumOut LinearAccumOut",
    grad=None,
)
def ftrl(
    param: TensorType,
    squared: TensorType,
    linear: TensorType,
    grad: TensorType,
    rate: TensorType,
    skip: list[TensorType] | None = None,
    *,
    l1: float = 0.0,
    l2: float = 0.0,
    lr_power: float = -0.5,
) -> tuple[TensorType, ...]:
    """Follow the regularized leader: the parameter that is best for all gradients so far and the penalties.

    ``SquaredAccumOut = SquaredAccumulator + Grad ** 2``, with ``s`` for ``SquaredAccumOut ** -lr_power`` and ``s_old``
    for ``SquaredAccumulator ** -lr_power``
    ``LinearAccumOut = LinearAccumulator + Grad - (s - s_old) / LearningRate * Param``, and
    ``ParamOut = (l1 * sign(LinearAccumOut) - LinearAccumOut) / (s / LearningRate + 2 * l2)``, but 0 where
    ``|LinearAccumOut| <= l1``.

    References
    ----------
    H. B. McMahan et al., "Ad Click Prediction: a View from the Trenches", KDD 2013.
    """
    _check_adaptive(param, rate, skip, SquaredAccumulator=squared, LinearAccumulator=linear, Grad=grad)
    return param, squared, linear
