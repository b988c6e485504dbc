"""Updates along the gradient. Each output has the type of the input that it replaces; a program gives both the same
variable.

Where one of the flags in ``SkipUpdate`` is set, an update changes nothing.
"""

from __future__ import annotations

from minigraph.opdef import op
from minigraph.ops.tensor import require_one_element
from minigraph.types import DType, TensorType, merge_shapes, require, require_floating, require_same_dtype


def check_update(
    param: TensorType, rate: TensorType | None, skip: list[TensorType] | None, **like_param: TensorType
) -> None:
    """Check the inputs of an update; `rate` is None for one that has no learning rate."""
    require_floating(param, "Param")
    if rate is not None:
        require_one_number(rate, "LearningRate")
    for slot, tensor in like_param.items():
        require_same_dtype(f"Param and {slot}", param, tensor)
        merge_shapes(param.shape, tensor.shape, f"Param and {slot}")
    for flag in skip or ():
        require(flag.fits(TensorType(DType.BOOL, (1,))), f"SkipUpdate must hold bool[1], got {flag}")


def require_one_number(x: TensorType, slot: str) -> None:
    require_floating(x, slot)
    require_one_element(x, slot)


@op("sgd", inputs="Param LearningRate Grad SkipUpdate", outputs="ParamOut", rows="Grad", grad=None)
def sgd(param: TensorType, rate: TensorType, grad: TensorType, skip: list[TensorType] | None = None) -> TensorType:
    """Gradient descent, ``ParamOut = Param - LearningRate * Grad``."""
    check_update(param, rate, skip, Grad=grad)
    return param


@op(
    "momentum",
    inputs="Param Grad Velocity LearningRate SkipUpdate",
    outputs="ParamOut VelocityOut",
    rows="Grad",
    grad=None,
)
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
    check_update(param, rate, skip, Grad=grad, Velocity=velocity)
    return param, velocity


@op("lars_momentum", inputs="Param Grad Velocity LearningRate SkipUpdate", outputs="ParamOut VelocityOut", grad=None)
def lars_momentum(
    param: TensorType,
    grad: TensorType,
    velocity: TensorType,
    rate: TensorType,
    skip: list[TensorType] | None = None,
    *,
    mu: float,
    lars_coeff: float = 0.001,
    lars_weight_decay: float = 0.0005,
) -> tuple[TensorType, TensorType]:
    """Momentum, at a rate for each parameter in proportion to its length over that of its gradient.

    ``VelocityOut = mu * Velocity + rate * (Grad + lars_weight_decay * Param)`` and ``ParamOut = Param - VelocityOut``
    where ``rate = LearningRate * lars_coeff * |Param| / (|Grad| + lars_weight_decay * |Param|)``; it is
    ``LearningRate`` where one of the two L2 norms is 0.

    References
    ----------
    Y. You, I. Gitman, B. Ginsburg, "Large Batch Training of Convolutional Networks", arXiv:1708.03888, 2017.
    """
    check_update(param, rate, skip, Grad=grad, Velocity=velocity)
    return param, velocity


@op("dpsgd", inputs="Param Grad LearningRate SkipUpdate", outputs="ParamOut", grad=None)
def dpsgd(
    param: TensorType,
    grad: TensorType,
    rate: TensorType,
    skip: list[TensorType] | None = None,
    *,
    clip: float = 10.0,
    batch_size: float = 16.0,
    sigma: float = 1.0,
    seed: int = 0,
) -> TensorType:
    """Gradient descent with a clipped gradient and noise, ``ParamOut = Param - LearningRate * (clipped + noise)``.

    ``clipped = Grad / max(|Grad| / clip, 1)`` with the L2 norm, and ``noise`` is normal with standard deviation
    ``sigma / batch_size``, drawn for each element. With a `seed` other than 0 it is the same in every run.

    Notes
    -----
    Fluid draws one number and adds it to all elements, which hides no gradient from anyone who sees two of them.

    References
    ----------
    M. Abadi et al., "Deep Learning with Differential Privacy", CCS 2016. There the gradient of each example is clipped;
    here, as in fluid, that of the batch.
    """
    check_update(param, rate, skip, Grad=grad)
    require(clip > 0 and batch_size > 0, f"clip and batch_size must be positive, got {clip:g} and {batch_size:g}")
    require(sigma >= 0, f"sigma must not be negative, got {sigma:g}")
    return param
