"""Operators that run a sub-block, and the operators that their programs need.

What the former do is described in `minigraph.runtime.control_flow`. They write variables of whatever type these have,
so nothing is inferred here, and what happens backward is the affair of `minigraph.autodiff.block_gradients`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from minigraph.opdef import op
from minigraph.opdef.attr_types import BlockIndex
from minigraph.opdef.gradient_context import BlockGrad, GradContext, OpSpec
from minigraph.opdef.gradient_rules import fused
from minigraph.ops.tensor import require_one_integer
from minigraph.types import RAW, DType, TensorType, merge_shapes, require, require_same_dtype, same_dim, same_shape

_NONE: Any = ()


@op("while", inputs="X Condition", outputs="Out*? StepScopes", updates="Out", grad=BlockGrad(("X",), "StepScopes"))
def while_(
    x: list[TensorType] | None, condition: list[TensorType], *, sub_block: BlockIndex, is_test: bool = False
) -> Any:
    """Run the block `sub_block` as long as Condition, bool[1], holds.

    X names what the block reads of the variables outside of it, Out what it writes. With `is_test` nothing is kept for
    the gradient.
    """


@op(
    "while_grad", inputs="X Out Out@GRAD StepScopes", outputs="X@GRAD*?", grad=None, forward="while",
)  # fmt: skip
def while_grad(
    x: list[TensorType] | None,
    out: list[TensorType] | None,
    d_out: list[TensorType] | None,
    step_scopes: TensorType,
    *,
    sub_block: BlockIndex,
    is_test: bool = False,
    original_output_grad: list[str] = _NONE,
) -> Any:
    """Gradient of `while`: run the block `sub_block` once for each run that the loop made, the last one first.

    `original_output_grad` are the names in the block of what Out@GRAD names outside.
    """


@op("conditional_block", inputs="Cond Input", outputs="Out*? Scope", updates="Out", grad=BlockGrad(("Input",), "Scope"))
def conditional_block(
    cond: list[TensorType], input: list[TensorType] | None, *, sub_block: BlockIndex, is_scalar_condition: bool = False
) -> Any:
    """Run the block `sub_block` if Cond holds; otherwise the variables that it writes keep their values.

    With `is_scalar_condition` Cond is one boolean; without it, the block runs if nothing in Input is empty.
    """


@op(
    "conditional_block_grad", inputs="Cond Input Out Out@GRAD Scope", outputs="Input@GRAD*?", grad=None,
    forward="conditional_block",
)  # fmt: skip
def conditional_block_grad(
    cond: list[TensorType],
    input: list[TensorType] | None,
    out: list[TensorType] | None,
    d_out: list[TensorType] | None,
    scope: TensorType,
    *,
    sub_block: BlockIndex,
    is_scalar_condition: bool = False,
) -> Any:
    """Gradient of `conditional_block`: run the block `sub_block` if that has run its own; else gradients are zero."""


@op(
    "recurrent", inputs="inputs initial_states parameters", outputs="outputs*? step_scopes",
    grad=BlockGrad(("inputs", "initial_states", "parameters"), "step_scopes"),
)  # fmt: skip
def recurrent(
    inputs: list[TensorType],
    initial_states: list[TensorType] | None,
    parameters: list[TensorType] | None,
    *,
    ex_states: list[str],
    states: list[str],
    sub_block: BlockIndex,
    has_states: bool = False,
    reverse: bool = False,
    is_train: bool = True,
) -> Any:
    """Run the block `sub_block` for each entry of the first dimension of `inputs`, the last one first if `reverse`.

    In the block the entries have the names of `inputs`, and the entries of `outputs` those of `outputs`. What the block
    calls `states` is what it calls `ex_states` in its next run, `initial_states` in the first.
    """


@op(
    "recurrent_grad",
    inputs="inputs initial_states parameters outputs step_scopes outputs@GRAD step_scopes@GRAD",
    outputs="inputs@GRAD*? initial_states@GRAD*? parameters@GRAD*?", grad=None, forward="recurrent",
)  # fmt: skip
def recurrent_grad(
    inputs: list[TensorType],
    initial_states: list[TensorType] | None,
    parameters: list[TensorType] | None,
    outputs: list[TensorType],
    step_scopes: TensorType,
    d_outputs: list[TensorType],
    d_step_scopes: TensorType | None,
    *,
    ex_states: list[str],
    states: list[str],
    sub_block: BlockIndex,
    has_states: bool = False,
    reverse: bool = False,
    is_train: bool = True,
) -> Any:
    """Gradient of `recurrent`: run the block `sub_block` for each entry, in the opposite order."""


@op("rnn_memory_helper", inputs="X", outputs="Out", lod="X", grad=fused("X", "Out", linear=True))
def rnn_memory_helper(x: TensorType, *, dtype: int = 5) -> TensorType:
    """``Out = X``, under the name that `recurrent` looks for."""
    return x


def _select_input_grad(ctx: GradContext) -> Iterator[OpSpec]:
    yield OpSpec("select_output", {"X": ctx.d_output("Out"), "Mask": ctx.input("Mask")}, {"Out": ctx.d_input("X")}, {})


@op("select_input", inputs="X Mask", outputs="Out", arrays="X", lod="X", grad=_select_input_grad)
def select_input(x: list[TensorType], mask: TensorType) -> TensorType:
    """``Out = X[Mask]``; the others need no value.

    Where their element types or numbers of dimensions differ, only a run knows the type of Out.
    """
    require_one_integer(mask, "Mask")
    shape = x[0].shape
    for other in x[1:]:
        if (other.dtype, other.rank, other.kind) != (x[0].dtype, x[0].rank, x[0].kind):
            return RAW
        shape = tuple(a if a == b else -1 for a, b in zip(shape, other.shape, strict=True))
    return x[0].with_shape(shape).held_as(x[0].kind)


def _select_output_grad(ctx: GradContext) -> Iterator[OpSpec]:
    yield OpSpec("select_input", {"X": ctx.d_output("Out"), "Mask": ctx.input("Mask")}, {"Out": ctx.d_input("X")}, {})


@op("select_output", inputs="X Mask", outputs="Out*", arrays="X", grad=_select_output_grad)
def select_output(x: TensorType, mask: TensorType) -> list[TensorType]:
    """``Out[Mask] = X``; the other one of the two gets no value."""
    require_one_integer(mask, "Mask")
    return [x, x]


def _split_grad(ctx: GradContext) -> Iterator[OpSpec]:
    rows = {"InTrue": ctx.d_output("OutTrue"), "InFalse": ctx.d_output("OutFalse")}
    yield OpSpec(
        "merge_lod_tensor", {"X": ctx.input("X"), "Mask": ctx.input("Mask"), **rows}, {"Out": ctx.d_input("X")},
        dict(ctx.op.attrs),
    )  # fmt: skip


@op(
    "split_lod_tensor", inputs="X Mask Like", outputs="OutTrue? OutFalse?", grad=_split_grad, lod="X",
    lengths="X? Like?",
)  # fmt: skip
def split_lod_tensor(
    x: TensorType, mask: TensorType, like: TensorType | None, *, level: int = 0
) -> tuple[TensorType, TensorType]:
    """``OutTrue`` is the rows of X for which Mask, bool[rows, 1], holds, OutFalse the others.

    If X has sequences, Mask chooses among those of one level. If it has none, it has those of Like.
    """
    _require_mask(mask, x.shape[:1])
    rows = x.with_shape((-1, *x.shape[1:]))
    return rows, rows


def _merge_grad(ctx: GradContext) -> Iterator[OpSpec]:
    outs = {"OutTrue": ctx.d_input("InTrue"), "OutFalse": ctx.d_input("InFalse")}
    # The gradient may lack the lengths, which Out has.
    ins = {"X": ctx.d_output("Out"), "Mask": ctx.input("Mask"), "Like": ctx.output("Out")}
    yield OpSpec("split_lod_tensor", ins, outs, dict(ctx.op.attrs))


def _merged_levels(levels: Mapping[str, int], attrs: Mapping[str, Any]) -> int:
    return levels["InTrue"] if 0 < levels["InTrue"] == levels["InFalse"] else levels["X"]


@op(
    "merge_lod_tensor", inputs="X Mask InTrue InFalse", outputs="Out", grad=_merge_grad, lod=_merged_levels,
    lengths="X? InTrue? InFalse?",
)  # fmt: skip
def merge_lod_tensor(
    x: TensorType, mask: TensorType, in_true: TensorType, in_false: TensorType, *, level: int = 0
) -> TensorType:
    """``Out`` has a row for each of Mask: the next one of InTrue where it holds, else the next one of InFalse.

    If both have sequences, it has a sequence for each of Mask. If they have none, but X has, their rows are those of
    the sequences of X. One of InTrue and InFalse need not have a value, if Mask takes nothing from it.
    """
    _require_mask(mask, x.shape[:1])
    require_same_dtype("InTrue and InFalse", in_true, in_false)
    shape = merge_shapes(in_true.shape[1:], in_false.shape[1:], "the rows of InTrue and InFalse")
    return in_true.with_shape((mask.shape[0], *shape))


def _require_mask(mask: TensorType, rows: tuple[int, ...]) -> None:
    require(mask.dtype is DType.BOOL, f"Mask must hold booleans, got {mask.dtype}")
    column = len(mask.shape) == 1 or (len(mask.shape) == 2 and same_dim(mask.shape[1], 1))
    require(
        column and same_shape(mask.shape[:1], rows),
        f"Mask must have one boolean for each of {list(rows)} rows, got {mask}",
    )
