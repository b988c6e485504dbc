"""Write in one way what picks an element of each row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ceil, isnan, nan
from typing import Any, NamedTuple

from minigraph.ops.tensor import VALUES_OF
from minigraph.passes.rules import Match, Rule, Rules, attr, marked, op, rule, with_gradients
from minigraph.passes.values import Value, Values
from minigraph.support.sizes import as_attr
from minigraph.types import DType, as_dtype

_VIEWS = ("reshape2", "squeeze2", "unsqueeze2", "flatten2", "assign")
"""Operators that keep the elements and their order."""


class _Counting(NamedTuple):
    """The whole numbers ``start``, ``start + step``, ..., `size` of them."""

    start: float
    step: float
    size: int


def _counting(values: Values, value: Value) -> _Counting | None:
    """The numbers of a constant that counts up, of whatever shape; None for other values."""
    made = values.producer(value, "assign_value", "range", *_VIEWS)
    if made is None:
        return None
    if made.type in _VIEWS:
        return _counting(values, values.input(made, "X")) if set(made.inputs) == {"X"} else None
    if made.type == "range":
        numbers = [_number(values, values.input(made, slot)) for slot in ("Start", "End", "Step")]
        start, end, step = (nan if each is None else each for each in numbers)
        count = (end - start) / step if step else nan
        return None if isnan(count) else _Counting(start, step, ceil(count))
    slot = VALUES_OF.get(as_dtype(made.attr("dtype")))
    given: Sequence[float] = made.attr(slot) if slot is not None else ()
    if len(given) < 2:
        return None
    found = _Counting(given[0], given[1] - given[0], len(given))
    is_even = all([number == found.start + i * found.step for i, number in enumerate(given)])
    return found if is_even else None


def _number(values: Values, value: Value) -> float | None:
    made = values.producer(value, "fill_constant")
    return None if made is None or made.inputs else float(made.attr("str_value") or made.attr("value"))


def _index(type: str, rows: Any, label: Any) -> Any:
    """Numbers of row and column side by side; others may read them, too."""
    index = op(type, X=[rows, label], axis=attr(), **({"outputs": ["Y"]} if type == "stack" else {}))
    return marked(index, shared=True)


def _rules(type: str) -> Iterator[Rule]:
    @rule
    def picked(x: Any, rows: Any, label: Any) -> Any:
        return op("gather_nd", X=x, Index=_index(type, rows, label))

    @picked.where
    def _(m: Match) -> Iterator[tuple[bool, str]]:
        shape = m.x.shape or (-1,)
        yield len(shape) == 2 and min(shape) > 0 and m.x.dtype.is_floating, "x must be a matrix of known shape"
        column = (shape[0], 1) if type == "concat" else (shape[0],)
        yield m.label.shape == column, "there must be a number for each row"
        yield not any(each.lod_level for each in (m.x, m.rows, m.label)), "there must be no sequences"
        yield m.axis in (-1, 1), "the numbers of row and column must stand side by side"
        yield m.label.dtype in (DType.INT32, DType.INT64), "the numbers must be integers"
        yield _counting(m.values, m.value("rows")) == (0, 1, shape[0]), "the rows must be all rows in order"

    @picked.to
    def _(m: Match, x: Any, label: Any) -> Any:
        rows = m.x.shape[0]
        column = label if type == "concat" else _reshaped(label, [rows, 1])
        return _reshaped(op("index_sample", X=x, Index=column), [rows])

    yield from with_gradients(picked, "x")


@rule
def _hot_rows(label: Any) -> Any:
    return op("one_hot_v2", X=label, depth=attr(), dtype=attr())


@_hot_rows.where
def _(m: Match) -> Iterator[tuple[bool, str]]:
    is_plain = -1 not in (m.label.shape or (-1,)) and not m.label.lod_level
    yield is_plain, "the labels must have a known shape, and be no sequences"


@_hot_rows.to
def _(m: Match, label: Any, depth: int, dtype: int) -> Any:
    return op("one_hot", X=_reshaped(label, [*m.label.shape, 1]), depth=depth, dtype=dtype)


def _reshaped(x: Any, shape: Sequence[int]) -> Any:
    return op("reshape2", X=x, shape=as_attr(shape), outputs=["Out", "XShape"])[0]


class PickElements(Rules):
    """Turn a ``gather_nd`` of one element of each row of a matrix into ``index_sample``; likewise for its gradient.

    Likewise ``one_hot_v2`` of labels into ``one_hot`` of a column of them. The index of ``gather_nd`` is the numbers of
    all rows, which are constants, beside those of the columns, joined by ``concat`` or ``stack``. `FindCrossEntropy`
    looks for ``index_sample`` and ``one_hot``.

    Law: every value keeps its bits; a number that is no column is an error as before.
    """

    needs = (frozenset({"gather_nd"}), frozenset({"gather_nd_grad"}), frozenset({"one_hot_v2"}))

    rules = (_hot_rows, *(each for type in ("concat", "stack") for each in _rules(type)))
