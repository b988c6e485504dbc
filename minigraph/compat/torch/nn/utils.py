"""PyTorch's functions that clip gradients in place, after ``backward`` and before the optimizer's step.

They take tensors of the imperative mode and change the value of their ``grad``, which stays the same object. The
definitions are PyTorch's, `EPSILON` and the norm of norms among them; the arithmetic is that of minigraph's operators,
so that norms neither overflow nor underflow.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from minigraph.compat.torch.norms import as_number, is_finite_in_torch, number, total_norm
from minigraph.dygraph import Tensor, no_grad
from minigraph.eager.tensor import Eager
from minigraph.errors import ClipError, ExecutionError, WrongTypeError, caller_site, warn
from minigraph.support.public import public, refuse_unknown_names
from minigraph.types import DType

EPSILON = 1e-6
"""Added to a norm before dividing by it, as in PyTorch; nothing else in minigraph adds it."""

Tensors = Eager | Iterable[Eager]


@public
def clip_grad_norm_(
    parameters: Tensors,
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """Scale all gradients together, in place: ``grad * min(1, max_norm / (total_norm + 1e-6))``.

    Parameters
    ----------
    parameters : tensor or iterable of tensors
        Those whose ``grad`` is None are skipped. An iterator is read once. Element types may differ; each gradient
        keeps its own. A parameter given twice counts twice in the norm, and is scaled once.
    max_norm : float
        The largest norm, not negative. Infinity leaves gradients as they are, and 0 makes them 0.
    norm_type : float or str
        The order of the norm: any number, also ``"inf"``, 0 and below.
    error_if_nonfinite : bool
        Raise if the norm is not finite. Else a norm of NaN makes all gradients NaN; an infinite one makes finite
        elements 0, and infinite ones NaN.
    foreach : bool, optional
        Accepted because PyTorch has it, where it chooses one of two equal implementations.

    Returns
    -------
    Tensor
        The norm of all gradients before clipping, of shape [1], in their widest element type, at least float32. 0 if
        there are no gradients.

    Raises
    ------
    ClipError
        If `max_norm` is negative or NaN, or `norm_type` is NaN.
    ExecutionError
        If `error_if_nonfinite` and the norm is not finite. Gradients are unchanged then. As in PyTorch, that is also
        where PyTorch's sum of powers would overflow. Also if a gradient is empty and `norm_type` infinite or negative.
    WrongTypeError
        If `parameters` holds something else than tensors.

    Warns
    -----
    UserWarning
        If `parameters` is an iterator that is exhausted.

    Notes
    -----
    Norms near 1e-6 become much shorter than `max_norm`, because 1e-6 is added to them; the clips of `minigraph.clip`
    add nothing. The norm that is returned is the one before clipping.

    References
    ----------
    PyTorch 2.13, ``torch.nn.utils.clip_grad_norm_``.

    Examples
    --------
    >>> import numpy as np
    >>> import minigraph as fluid
    >>> import minigraph.compat.torch as torch
    >>> with fluid.dygraph.guard():
    ...     model = fluid.dygraph.Linear(2, 1)
    ...     x = fluid.dygraph.to_variable(np.array([[3.0, 4.0]], "float32"))
    ...     fluid.layers.reduce_sum(model(x)).backward()
    >>> total_norm = torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
    >>> print(round(total_norm.item(), 4))
    5.099
    >>> print(model.weight.grad.numpy().ravel().round(4))
    [0.5883 0.7845]
    """
    tensors = _as_list(parameters)
    limit, order = _threshold(max_norm, "max_norm"), as_number(norm_type, "norm_type")
    grads = [tensor.grad for tensor in tensors if tensor.grad is not None]
    total = get_total_norm(grads, order, error_if_nonfinite, foreach)
    if grads and order > 0:
        _scale_together(grads, limit, total.item(), order)
    else:
        clip_grads_with_norm_(tensors, limit, total, foreach)
    return total


@public
def get_total_norm(
    tensors: Tensors, norm_type: float = 2.0, error_if_nonfinite: bool = False, foreach: bool | None = None
) -> Tensor:
    """The norm of all tensors together, which may be gradients; nothing is changed.

    Parameters, returns and errors as of `clip_grad_norm_`, except that the tensors themselves are measured.

    Examples
    --------
    >>> import numpy as np
    >>> from minigraph.dygraph import to_variable
    >>> tensors = [to_variable(np.array([3.0, 0.0])), to_variable(np.array([-4.0]))]
    >>> [get_total_norm(tensors, order).item() for order in (1, 2, "inf")]
    [7.0, 5.0, 4.0]
    """
    found, order = _as_list(tensors, "tensors"), as_number(norm_type, "norm_type")
    total = total_norm(found, order)
    if error_if_nonfinite:
        _require_finite(found, total, order)
    return total


@public
def clip_grads_with_norm_(
    parameters: Tensors, max_norm: float, total_norm: Tensor, foreach: bool | None = None
) -> None:
    """Scale gradients in place by a norm known already: ``grad * min(1, max_norm / (total_norm + 1e-6))``.

    Parameters
    ----------
    total_norm : Tensor of one element, or float
        From `get_total_norm`. Where it is NaN all gradients become NaN.
    parameters, max_norm, foreach
        As of `clip_grad_norm_`.
    """
    limit, norm = _threshold(max_norm, "max_norm"), as_number(total_norm, "total_norm")
    grads = [tensor.grad for tensor in _as_list(parameters) if tensor.grad is not None]
    factor = limit / (norm + EPSILON)
    if factor >= 1:
        return
    for grad in grads:
        _scale(grad, factor)


@public
def clip_grad_value_(parameters: Tensors, clip_value: float, foreach: bool | None = None) -> None:
    """Limit each element of the gradients to [`-clip_value`, `clip_value`], in place; NaN stays NaN.

    Parameters
    ----------
    clip_value : float
        The largest magnitude, not negative.
    parameters, foreach
        As of `clip_grad_norm_`.

    Raises
    ------
    ClipError
        If `clip_value` is negative or NaN.
    """
    limit = _threshold(clip_value, "clip_value")
    for tensor in _as_list(parameters):
        if tensor.grad is not None:
            _limit(tensor.grad, limit)


@public
def clip_grad_norm(
    parameters: Tensors,
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """`clip_grad_norm_` under the name that PyTorch has deprecated, with its warning."""
    warn(
        "`torch.nn.utils.clip_grad_norm` is now deprecated in favor of `torch.nn.utils.clip_grad_norm_`.", FutureWarning
    )
    return clip_grad_norm_(parameters, max_norm, norm_type, error_if_nonfinite, foreach)


# Arguments


def _as_list(tensors: Any, what: str = "parameters") -> list[Eager]:
    """The tensors as a list, so that an iterator is read only once."""
    if isinstance(tensors, Eager):
        return [tensors]
    if not isinstance(tensors, Iterable) or isinstance(tensors, str):
        raise WrongTypeError(f"{what} must be a tensor or an iterable of tensors, got {tensors!r:.60}")
    found = list(tensors)
    for item in found:
        if not isinstance(item, Eager):
            raise WrongTypeError(
                f"{what} holds {item!r:.60}, which is no tensor of the imperative mode",
                hint="Give the optimizer of a program a grad_clip to clip its gradients.",
            )  # fmt: skip
    if not found and isinstance(tensors, Iterator):
        warn(f"`{what}` is an empty generator, no gradient clipping will occur.")
    return found


def _threshold(value: Any, what: str) -> float:
    threshold = as_number(value, what)
    if not threshold >= 0:
        raise ClipError(
            f"{what} must not be negative or NaN, got {threshold}",
            hint="Give 0 or more: PyTorch would reverse the gradients, or make them NaN.",
        )  # fmt: skip
    return threshold


def _require_finite(tensors: Sequence[Any], total: Any, order: float) -> None:
    """Raise PyTorch's error where PyTorch does, with the tensors whose norms are not finite."""
    norms = [(tensor, total_norm([tensor], order).item()) for tensor in tensors]
    wrong = [(tensor, norm) for tensor, norm in norms if not is_finite_in_torch(norm, order, tensor.dtype)]
    widest = max([tensor.dtype for tensor in tensors], default=DType.FP32)
    # A negative order takes the reciprocal of an infinite norm: 0, which leaves the total finite.
    if (wrong and order > 0) or not is_finite_in_torch(total.item(), order, widest):
        raise ExecutionError(
            f"The total norm of order {order} for gradients from `parameters` is non-finite, so it cannot be clipped. "
            "To disable this error and scale the gradients by the non-finite norm anyway, set "
            "`error_if_nonfinite=False`",
            details=[f"{tensor.name}: {tensor.tensor_type}, its norm is {norm:g}" for tensor, norm in wrong],
            site=caller_site(),
            hint="Use a wider type: PyTorch adds powers in that of the gradients, where the sum may overflow.",
        )


# Computing: each function sets the value of a gradient, whose object stays the same.


@no_grad
def _scale_together(grads: Sequence[Any], max_norm: float, norm: float, order: float) -> None:
    """Clip to the norm that PyTorch's formula leaves, by an operator that neither overflows nor underflows."""
    # c / (n + e) = c' / n, and n exceeds c' exactly where n + e exceeds c.
    limit = max_norm / (1 + EPSILON / norm) if norm else max_norm
    block = grads[0].block
    clipped: list[Any] = [block.create_var() for _ in grads]
    inputs = {"X": list(grads), "ClipNorm": number(block, limit, DType.FP64)}
    block.append_op("clip_by_global_norm", inputs, {"Out": clipped, "Norm": block.create_var()}, {"p": order})
    for grad, result in zip(grads, clipped, strict=True):
        grad.array = result.array


@no_grad
def _scale(grad: Any, factor: float) -> None:
    """Multiply in float64: a small factor would lose digits in a narrower type."""
    wide = grad.astype(DType.FP64)
    scaled = grad.block.emit("scale", X=wide, ScaleTensor=number(grad.block, factor, DType.FP64))
    grad.array = scaled.astype(grad.dtype).array


@no_grad
def _limit(grad: Any, limit: float) -> None:
    low, high = (number(grad.block, bound, grad.dtype) for bound in (-limit, limit))
    if grad.tensor_type.is_rows:
        grad.array = grad.block.emit("clip", X=grad, Min=low, Max=high, min=-1.0, max=1.0).array
        return
    raised = grad.block.emit("elementwise_max", X=grad, Y=low)
    limited = grad.block.emit("elementwise_min", X=raised, Y=high)
    grad.array = limited.array.reshape(grad.array.shape)  # the bounds make [1] of a shape without dimensions


refuse_unknown_names(__name__)
