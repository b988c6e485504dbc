"""Norms of tensors as PyTorch defines them: the norm of the norms of the single tensors, of any order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from minigraph.dygraph import Tensor, no_grad
from minigraph.eager.guard import eager_block
from minigraph.errors import ClipError, ExecutionError, WrongTypeError, caller_site
from minigraph.types import DType


@no_grad
def total_norm(tensors: Sequence[Any], order: float) -> Any:
    """The norm of the norms of `tensors`, float[1]; 0 if there are none.

    For an order above 0 that is the joint norm of all elements. Order 0 counts: the norm of a tensor is the number of
    its elements that are not 0, and the total is the number of tensors whose norm is not 0. A negative order is the
    reciprocal of the opposite order's norm of the reciprocals; of order -inf that is the least magnitude.

    Raises
    ------
    ClipError
        If `order` is NaN.
    ExecutionError
        If a tensor is empty and the order infinite or negative.
    """
    if math.isnan(order):
        raise ClipError("the order of a norm must not be NaN")
    if not tensors:
        return number(eager_block(), 0.0, DType.FP32)
    block = tensors[0].block
    if order < 0 or order == math.inf:
        _require_elements(tensors, order)
    if order > 0:
        return block.emit("global_norm", X=list(tensors), p=order)
    wide = [tensor.astype(DType.FP64) for tensor in tensors]
    total = _count(block, wide) if order == 0 else _reciprocal_norm(block, wide, -order)
    return total.astype(max(DType.FP32, *(tensor.dtype for tensor in tensors)))


def _require_elements(tensors: Sequence[Any], order: float) -> None:
    for tensor in tensors:
        if 0 in tensor.shape:
            raise ExecutionError(
                f"cannot compute the {order:g} norm on an empty tensor because the operation does not have an identity",
                details=[f"{tensor.name}: {tensor.tensor_type}"],
                site=caller_site(),
            )


def _count(block: Any, tensors: Sequence[Any]) -> Any:
    """Number of tensors with an element that is not 0. NaN is not 0."""
    counts = []
    for tensor in tensors:
        is_some = tensor.astype("bool").astype("float64")
        count = block.emit("reduce_sum", X=is_some, reduce_all=True)
        counts.append(count.astype("bool").astype("float64"))
    return block.emit("sum", X=counts)


def _reciprocal_norm(block: Any, tensors: Sequence[Any], order: float) -> Any:
    reciprocals = []
    for tensor in tensors:
        ones = block.emit("fill_any_like", X=tensor, value=1.0)
        reciprocals.append(block.emit("elementwise_div", X=ones, Y=tensor))
    return 1.0 / block.emit("global_norm", X=reciprocals, p=order)


def is_finite_in_torch(norm: float, order: float, dtype: DType) -> bool:
    """Whether PyTorch's norm is finite too: it adds the powers in the tensor's type, or in float32 for float16."""
    if not 0 < norm < math.inf or not 0 < order < math.inf:
        return math.isfinite(norm)
    adds_in = np.finfo(max(DType.FP32, dtype).numpy)
    return order * math.log(norm) < math.log(float(adds_in.max)) and norm <= float(np.finfo(dtype.numpy).max)


def as_number(value: Any, what: str) -> float:
    """`value` as a Python number."""
    try:
        return float(value)
    except (TypeError, ValueError):
        raise WrongTypeError(f"{what} must be a number, got {value!r:.60}") from None


def number(block: Any, value: float, dtype: DType) -> Tensor:
    """A tensor of shape [1], because an attribute would round the number to float32."""
    with np.errstate(over="ignore"):
        return block.tensor(block.place.xp.array([value], dtype.numpy))
