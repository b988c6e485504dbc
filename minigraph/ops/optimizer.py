"""Update rules. Each output has the type of the input that it replaces; a program gives both the same variable.

Where one of the flags in ``SkipUpdate`` is set, an update changes nothing.
"""

from __future__ import annotations

from minigraph.opdef import op
from minigraph.types import DType, TensorType, merge_shapes, product, require, require_floating, require_same_dtype


def _check_update(param: TensorType, rate: TensorType, skip: list[TensorType] | None, **like_param: TensorType) -> None:
    require_floating(param, "Param")
    require_floating(rate, "LearningRate")
    require(product(rate.shape) in (1, -1), f"LearningRate must hold one number, got {list(rate.shape)}")
    for slot, tensor in like_param.items():
        require_same_dtype(f"Param and {slot}", param, tensor)
        merge_shapes(param.shape, tensor.shape, f"Param and {slot}")
    for flag in skip or ():
        require(flag.fits(TensorType(DType.BOOL, (1,))), f"SkipUpdate must hold bool[1], got {flag}")


@op("sgd", inputs="Param LearningRate Grad SkipUpdate", outputs="ParamOut", grad=None)
def sgd(param: TensorType, rate: TensorType, grad: TensorType, skip: list[TensorType] | None = None) -> TensorType:
    """Gradient descent, ``ParamOut = Param - LearningRate * Grad``."""
    _check_update(param, rate, skip, Grad=grad)
    return param


@op("momentum", inputs="Param Grad Velocity LearningRate SkipUpdate", outputs="ParamOut VelocityOut", grad=None)
def momentum(
    param: TensorType,
    grad: TensorType,
    velocity: TensorType,
    rate: TensorType,
    skip: list[TensorType] | None = None,
    *,
    mu: float,
    use_nesterov: bool = False,
) -> tuple[TensorType, TensorType]:
    """Gradient descent with momentum.

    ``VelocityOut = mu * Velocity + Grad`` and ``ParamOut = Param - LearningRate * VelocityOut``, or with `use_nesterov`
    ``ParamOut = Param - LearningRate * (Grad + mu * VelocityOut)``.

    References
    ----------
    I. Sutskever, J. Martens, G. Dahl, G. Hinton, "On the importance of initialization and momentum in deep learning",
    ICML 2013.
    """
    _check_update(param, rate, skip, Grad=grad, Velocity=velocity)
    return param, velocity


@op(
    "adam",
    inputs="Param Grad LearningRate Moment1 Moment2 Beta1Pow Beta2Pow Beta1Tensor Beta2Tensor SkipUpdate",
    outputs="ParamOut Moment1Out Moment2Out Beta1PowOut Beta2PowOut",
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
    """Adam, with means of the gradient and of its square that forget at the rates `beta1` and `beta2`.

    ``Moment1Out = beta1 * Moment1 + (1 - beta1) * Grad``,
    ``Moment2Out = beta2 * Moment2 + (1 - beta2) * Grad ** 2`` and
    ``ParamOut = Param - rate * Moment1Out / (sqrt(Moment2Out) + epsilon)`` where
    ``rate = LearningRate * sqrt(1 - Beta2Pow) / (1 - Beta1Pow)``. ``Beta1Pow`` and ``Beta2Pow`` are the powers of the
    betas that undo the bias of the means toward zero; each is multiplied by its beta. ``Beta1Tensor`` and
    ``Beta2Tensor`` stand in for the attributes where given. `lazy_mode` concerns row-sparse gradients only.

    Notes
    -----
    As in fluid, `epsilon` is what the end of the paper's section 2 calls epsilon hat: added before the bias is undone.

    References
    ----------
    D. P. Kingma, J. Ba, "Adam: A Method for Stochastic Optimization", ICLR 2015.
    """
    _check_update(param, rate, skip, Grad=grad, Moment1=moment1, Moment2=moment2)
    require(
        param.dtype is not DType.FP16,
        "Param must be float32 or float64, got float16, in which epsilon and squares of gradients underflow",
        hint="Keep the parameter in float32 and convert it with layers.cast where it is used.",
    )
    for slot, power in (("Beta1Pow", beta1_pow), ("Beta2Pow", beta2_pow)):
        require_same_dtype(f"Param and {slot}", param, power)
    for slot, number in (
        ("Beta1Pow", beta1_pow), ("Beta2Pow", beta2_pow), ("Beta1Tensor", beta1_tensor), ("Beta2Tensor", beta2_tensor)
    ):  # fmt: skip
        if number is not None:
            require_floating(number, slot)
            require(product(number.shape) in (1, -1), f"{slot} must hold one number, got {list(number.shape)}")
    return param, moment1, moment2, beta1_pow, beta2_pow
