"""Estimates of an operator's arithmetic and memory traffic by its shapes, in one table by type.

A multiplication, an addition, a comparison and a transcendental function count one each. Bytes are those of inputs and
outputs, each moved once, without temporaries of the kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

from minigraph.lowering.flat_buffers import FlatView
from minigraph.lowering.steps import Step, Value


@dataclass(frozen=True)
class Cost:
    """Estimates for one call of an operator."""

    op_type: str
    flops: int
    bytes: int

    def __str__(self) -> str:
        return f"{self.op_type}: {self.flops:,} flops, {self.bytes:,} bytes"


def cost(step: Step) -> Cost:
    """Estimate one step; a dimension that is known only when it runs counts as 1, and so does the number of rows."""
    if step.op.type in VIEWS:
        return Cost(step.op.type, 0, 0)
    if _updates_rows_only(step):
        gradient = _of(step, "Grad")[0]
        state = len(step.writes)
        return Cost(step.op.type, 4 * state * elements(gradient), (2 * state + 1) * size_in_bytes(gradient))
    moved = sum(size_in_bytes(value) for value in (*step.reads, *step.writes))
    return Cost(step.op.type, FLOPS.get(step.op.type, _per_output(1))(step), moved)


def size_in_bytes(value: Value | FlatView) -> int:
    return elements(value) * value.tensor_type.dtype.numpy.itemsize


def elements(value: Value | FlatView) -> int:
    kind = value.tensor_type
    dims: Sequence[int] = (1, *kind.shape[1:]) if kind.is_rows else kind.shape
    return prod([1 if dim < 0 else dim for dim in dims] if -1 in dims else dims)


def _updates_rows_only(step: Step) -> bool:
    """Whether an update leaves alone all rows but those of its gradient."""
    is_local = step.op.type in ("sgd", "adagrad") or (step.op.type == "adam" and step.op.attr("lazy_mode"))
    return is_local and _of(step, "Grad")[0].tensor_type.is_rows


Estimate = Callable[[Step], int]


def _per_output(count: int) -> Estimate:
    """Estimate `count` for each element of the outputs."""
    return lambda step: count * sum(map(elements, step.writes))


def _per_element(slot: str, count: int) -> Estimate:
    """Estimate `count` for each element of an input slot."""
    return lambda step: count * sum(map(elements, _of(step, slot)))


def _of(step: Step, slot: str) -> list[Value]:
    names = [each.name for each in step.op.definition.inputs]
    entry = step.inputs[names.index(slot)]
    values = [entry] if entry is None or isinstance(entry, Value) else entry
    return [value for value in values if value is not None]


def _shape(step: Step, slot: str) -> tuple[int, ...]:
    return tuple(abs(dim) for dim in _of(step, slot)[0].tensor_type.shape)


def _mul(step: Step) -> int:
    """``2 * rows * inner * columns``, for each product that is asked for."""
    x, y = _shape(step, "X"), _shape(step, "Y")
    split, y_split = step.op.attr("x_num_col_dims"), step.op.attr("y_num_col_dims")
    return 2 * prod(x[:split]) * prod(x[split:]) * prod(y[y_split:]) * _products(step)


def _matmul(step: Step) -> int:
    x = _shape(step, "X")
    inner = x[-2] if step.op.attr("transpose_X") and len(x) > 1 else x[-1]
    result = _shape(step, "Out@GRAD") if _is_gradient(step) else _result_shape(step)
    return 2 * prod(result) * inner * _products(step)


def _conv(step: Step) -> int:
    """``2 * elements of the result * elements of a filter``, for each product that is asked for."""
    one_filter = prod(_shape(step, "Filter")[1:])
    result = _shape(step, "Output@GRAD") if _is_gradient(step) else _result_shape(step)
    return 2 * prod(result) * one_filter * _products(step)


def _result_shape(step: Step) -> tuple[int, ...]:
    return tuple(abs(dim) for dim in step.writes[0].tensor_type.shape)


def _products(step: Step) -> int:
    """A gradient operator computes as many products as it has outputs."""
    return len(step.writes) if _is_gradient(step) else 1


def _is_gradient(step: Step) -> bool:
    return step.op.definition.forward is not None


def _none(step: Step) -> int:
    return 0


FLOPS: dict[str, Estimate] = {
    "mul": _mul,
    "mul_grad": _mul,
    "matmul": _matmul,
    "matmul_grad": _matmul,
    "conv2d": _conv,
    "conv2d_grad": _conv,
    "depthwise_conv2d": _conv,
    "depthwise_conv2d_grad": _conv,
    "conv3d": _conv,
    "conv3d_grad": _conv,
    # The maximum, a difference, an exponential, a sum and a quotient.
    "softmax": _per_output(5),
    "softmax_with_cross_entropy": _per_element("Logits", 5),
    # A product and a sum for the norm, a product for the result.
    "clip_by_norm": _per_output(3),
    "clip_by_global_norm": _per_element("X", 3),
    "squared_l2_norm": _per_element("X", 2),
    "clip": _per_output(2),
    "mean": _per_element("X", 1),
    "reduce_sum": _per_element("X", 1),
    "reduce_mean": _per_element("X", 1),
    "sum": _per_element("X", 1),
    "scale": _per_output(2),
    "fused_elementwise": lambda step: len(step.op.attr("steps")) * elements(step.writes[0]),
    # A softmax and its gradient.
    "fused_mean_loss": _per_element("X", 9),
    "sgd": _per_element("Param", 2),
    "momentum": _per_element("Param", 4),
    "adam": _per_element("Param", 11),
    # Memory only.
    "assign": _none,
    "cast": _none,
    "concat": _none,
    "fill_constant": _none,
    "lookup_table": _none,
    "lookup_table_v2": _none,
}
"""Estimates by operator type; other types count one for each element of their outputs."""

VIEWS = frozenset(
    name + ending
    for name in ("flatten2", "reshape2", "squeeze2", "transpose2", "unsqueeze2")
    for ending in ("", "_grad")
) | {"reverse", "slice", "strided_slice"}
"""Types that move nothing: the result is the argument's memory, seen in another shape.

Kernels of other types may return an argument as it is, as a clip does below its threshold; their cost is the maximum.
"""

PASSES_ON = frozenset({"elementwise_add_grad"})
"""Types that return an argument as it is where a result has its type, as the gradient of an addend of full shape."""
