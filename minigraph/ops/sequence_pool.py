"""Reductions of the sequences of a tensor to one row each."""

from __future__ import annotations

from collections.abc import Iterator

from minigraph.opdef import op
from minigraph.opdef.gradient_context import GradContext, OpSpec
from minigraph.types import TensorType, require, require_floating

_KINDS = ("AVERAGE", "SUM", "SQRT", "MAX", "LAST", "FIRST")


def _sequence_pool_grad(ctx: GradContext) -> Iterator[OpSpec]:
    inputs = {"X": ctx.input("X"), "Out@GRAD": ctx.d_output("Out")}
    if ctx.attr("pooltype") == "MAX":
        inputs["MaxIndex"] = ctx.output("MaxIndex")
    yield OpSpec("sequence_pool_grad", inputs, {"X@GRAD": ctx.d_input("X")}, dict(ctx.op.attrs))


@op(
    "sequence_pool", inputs="X", outputs="Out MaxIndex~", grad=_sequence_pool_grad, lod={"Out": "pooled X"},
    lengths="X",
)  # fmt: skip
def sequence_pool(
    x: TensorType, *, is_test: bool = False, pooltype: str = "AVERAGE", pad_value: float = 0.0
) -> tuple[TensorType, TensorType]:
    """``Out`` is one row for each sequence of X: average, sum, sum over the root of the length, maximum, or a row.

    A sequence without rows gives `pad_value`. MaxIndex is the row of each maximum, if that is asked for: int32, though
    declared like X, as in fluid's files.
    """
    require(pooltype in _KINDS, f"pooltype must be one of {', '.join(_KINDS)}, got {pooltype!r}")
    require_floating(x)
    require(x.rank > 0, "X must have rows")
    pooled = x.with_shape((-1, *x.shape[1:]))
    return pooled, pooled if pooltype == "MAX" else x.with_shape(())


@op(
    "sequence_pool_grad", inputs="X MaxIndex Out@GRAD", outputs="X@GRAD?", grad=None, forward="sequence_pool",
    lod="X", lengths="X",
)  # fmt: skip
def sequence_pool_grad(
    x: TensorType,
    max_index: TensorType | None,
    d_out: TensorType,
    *,
    is_test: bool = False,
    pooltype: str = "AVERAGE",
    pad_value: float = 0.0,
) -> TensorType:
    """Gradient of `sequence_pool`."""
    return x
