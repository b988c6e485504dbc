"""Transpose operands of batched products so that their rows stay rows in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from minigraph.passes.rules import Match, Rules, attr, op, rule, with_gradients


def _turned(axes: Sequence[int]) -> list[int]:
    return [*axes[:-2], axes[-1], axes[-2]]


def _moves_last(axes: Sequence[int]) -> bool:
    return len(axes) >= 3 and axes[-2] == len(axes) - 1 and _turned(axes) != [*range(len(axes))]


def _transposed(x: Any) -> Any:
    return op("transpose2", X=x, axis=attr(fits=_moves_last), outputs=["Out", "XShape"])[0]


def _product(x: Any, y: Any) -> Any:
    return op("matmul", X=x, Y=y, transpose_X=attr(), transpose_Y=attr(), alpha=attr())


@rule
def _of_x(x: Any, y: Any) -> Any:
    return _product(_transposed(x), y)


@rule
def _of_y(x: Any, y: Any) -> Any:
    return _product(x, _transposed(y))


@_of_x.where
@_of_y.where
def _(m: Match) -> Iterator[tuple[bool, str]]:
    inner = m.inner
    yield len(m.x.shape or ()) == len(m.y.shape or ()) == len(m.axis), "both operands must be batches"
    yield all(map(m.values.is_only, inner)), "what changes its shape must have names of its own"
    yield not any([m.value(name) in inner for name in m.pattern.numbers]), "one operand must be transposed"


@_of_x.edit
@_of_y.edit
def _(m: Match) -> bool:
    axes, out = _turned(m.axis), m.ops[0].outputs["Out"]
    for each in m.ops:
        if "axis" in each.attrs:
            m.values.set_attr(each, "axis", axes)
        else:
            slot = "transpose_X" if each.inputs["X"] == out else "transpose_Y"
            m.values.set_attr(each, slot, not each.attr(slot))
    return True


class TurnTransposes(Rules):
    """Leave the last dimension of a transposed operand of a ``matmul`` last, and let the product transpose it.

    ``matmul(q, transpose2(k, [0, 2, 3, 1]))`` becomes ``matmul(q, transpose2(k, [0, 2, 1, 3]), transpose_Y)``, and the
    gradients likewise, if nothing else reads what changes its shape. A transpose of the last two dimensions alone is
    left to `TransposeIntoMatmul`.

    Law: every element is the same sum of products, whose terms a product of transposed matrices may add in another
    order.
    """

    changes_rounding: ClassVar[bool] = True

    needs = (frozenset({"matmul", "transpose2"}),)

    rules = (*with_gradients(_of_x, *"xy", with_results=True), *with_gradients(_of_y, *"xy", with_results=True))
