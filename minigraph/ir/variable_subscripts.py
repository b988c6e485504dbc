"""Subscripts of variables: ``x[0]``, ``x[1:-1, ::2]``, ``x[..., None]``, ``x[::-1]``.

They become the operators that fluid appends, ``slice``, ``strided_slice`` and ``reverse``, with its attributes where
these mean what Python means; ``None`` becomes ``unsqueeze2``. `Subscripts` gives a class these subscripts.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

from minigraph.errors import SubscriptError, WrongTypeError
from minigraph.ir.variable_operators import Operand, V, is_eager
from minigraph.support.slice_rules import TO_THE_END
from minigraph.support.undo import all_or_nothing
from minigraph.unique_name import generate


@dataclass
class _Plan:
    """The slices, steps and added dimensions that a subscript asks for."""

    axes: list[int] = field(default_factory=list)
    starts: list[Any] = field(default_factory=list)
    ends: list[Any] = field(default_factory=list)
    strides: list[int] = field(default_factory=list)
    dropped: list[int] = field(default_factory=list)
    """Dimensions of which one element is taken."""
    reversed: list[int] = field(default_factory=list)
    thinned: dict[int, int] = field(default_factory=dict)
    """Dimension to the step to take once it is cut and reversed."""
    added: list[int] = field(default_factory=list)
    """Places of new dimensions of size 1 in the result."""

    def take(self, axis: int, start: Any, end: Any, stride: int = 1) -> None:
        self.axes.append(axis)
        self.starts.append(start)
        self.ends.append(end)
        self.strides.append(stride)

    def after_dropping(self, axis: int) -> int:
        return axis - sum(dropped < axis for dropped in self.dropped)


_MOST_CUTS = 1024
"""Maximum number of subscripts of the imperative mode whose attributes are kept."""
_CUTS: dict[Any, dict[str, Any] | None] = {}
"""Attributes of the ``slice`` that subscripts of plain numbers ask for, None where they ask for more, by shape."""


def _subscript_at_once(x: V, item: Any) -> V:
    """`_subscript` of a tensor; what a subscript means for a shape is worked out once."""
    key: list[Any] = [x.shape]
    for each in item if item.__class__ is tuple else (item,):
        numbers = (each.start, each.stop, each.step) if each.__class__ is slice else (each,)
        for number in numbers:
            if number.__class__ is not int and (number is not None or len(numbers) == 1):
                return _subscript(x, item)
        key.append(numbers)
    known = tuple(key)
    attrs = _CUTS.get(known, _UNKNOWN)
    if attrs is _UNKNOWN:
        plan = _planned(x, item)
        is_cut = not (plan.reversed or plan.thinned or plan.added) and plan.axes and set(plan.strides) == {1}
        is_plain = all(number.__class__ is int for number in (*plan.starts, *plan.ends))
        if len(_CUTS) >= _MOST_CUTS:
            _CUTS.clear()
        attrs = _CUTS[known] = _cut_attrs(plan) if is_cut and is_plain else None
    return _subscript(x, item) if attrs is None else _emit(x, "", "slice", {"Input": x}, attrs)


_UNKNOWN: Any = {}


def _subscript(x: V, item: Any) -> V:
    return _apply(_planned(x, item), x)


def _planned(x: Operand, item: Any) -> _Plan:
    shape = x.shape or ()
    plan, axis = _Plan(), 0
    for each in _spelled_out(item if isinstance(item, tuple) else (item,), x):
        if each is None:
            plan.added.append(plan.after_dropping(axis) + len(plan.added))
            continue
        if isinstance(each, slice):
            _plan_slice(plan, axis, shape[axis], each)
        else:
            _plan_element(plan, axis, shape[axis], each, x)
        axis += 1
    if plan.dropped and len(plan.dropped) == len(shape):
        plan.added = plan.added[1:]  # the operator leaves one dimension of size 1
    return plan


def _spelled_out(items: tuple[Any, ...], x: Operand) -> tuple[Any, ...]:
    """`items` with slices in place of an Ellipsis."""
    rank = len(x.shape or ())
    named = sum(1 for each in items if each is not None and each is not Ellipsis)
    if named > rank:
        raise SubscriptError(f"{x} has {rank} dimensions but {named} subscripts")
    places = [i for i, each in enumerate(items) if each is Ellipsis]
    if len(places) > 1:
        raise SubscriptError(f"{x}: only one subscript may be an Ellipsis")
    if not places:
        return items
    return (*items[: places[0]], *[slice(None)] * (rank - named), *items[places[0] + 1 :])


def _plan_element(plan: _Plan, axis: int, length: int, given: Any, x: Operand) -> None:
    index = _number(given)
    if isinstance(index, Operand):
        plan.take(axis, index, _successor(index))
    else:
        if length != -1 and not -length <= index < length:
            raise SubscriptError(
                f"{x}: dimension {axis} has {length} elements, none is number {index!r:.60}",
                hint=f"Give a number from {-length} to {length - 1}." if length else "Give a slice.",
            )  # fmt: skip
        plan.take(axis, index, TO_THE_END if index == -1 else index + 1)
    plan.dropped.append(axis)


def _plan_slice(plan: _Plan, axis: int, length: int, given: slice) -> None:
    start, stop, step = (None if n is None else _number(n) for n in (given.start, given.stop, given.step))
    if isinstance(step, Operand) or step == 0:
        raise WrongTypeError(f"a step must be an integer other than 0, got {given.step!r:.60}", hint="Give 1 or -1.")
    step = 1 if step is None else step
    if start is None and stop is None and step in (1, -1):
        if step == -1:
            plan.reversed.append(axis)
    elif step > 0:
        plan.take(axis, 0 if start is None else start, TO_THE_END if stop is None else stop, step)
    elif length != -1 and not isinstance(start, Operand) and not isinstance(stop, Operand):
        _plan_backwards(plan, axis, length, slice(start, stop, step))
    else:
        if stop == -1:
            raise SubscriptError(f"there is nothing after the last element by {step}", hint="Leave out the stop.")
        # Where a dimension ends is not known, so neither is which elements a longer step hits when counted from there.
        plan.take(axis, -1 if start is None else start, -1 if stop is None else stop, -1)
        if step != -1:
            plan.thinned[axis] = -step


def _plan_backwards(plan: _Plan, axis: int, length: int, part: slice) -> None:
    """Bounds with which ``strided_slice``, which counts from the far end, hits the elements that Python means."""
    places = range(*part.indices(length))
    if not places:
        raise SubscriptError(f"there is nothing in {part} of {length} elements", hint="Give a start above the stop.")
    plan.take(axis, places[0], places[-1] - 1, part.step)


def _number(given: Any) -> Any:
    value: Any = given
    if isinstance(given, Operand) and not is_eager(given):
        if given.dtype.numpy.kind in "iu" and given.shape in ((1,), ()):
            return given
    elif not isinstance(given, bool):
        try:
            return operator.index(value.item() if isinstance(given, Operand) else value)
        except (TypeError, ValueError):
            pass
    raise WrongTypeError(
        f"a subscript must be an integer, a slice, None or Ellipsis, got {given!r:.60}",
        hint="Use layers.gather or layers.gather_nd to select several elements by index.",
    )  # fmt: skip


def _constant(x: V, number: int, dtype: Any) -> V:
    """`number` as a tensor of one element."""
    block = x.block.program.current_block()
    out: V = block.create_var(name=generate("_generated_var"), stop_gradient=True)
    attrs = {"shape": [1], "dtype": int(dtype), "value": float(number), "force_cpu": True}
    block.append_op("fill_constant", {}, {"Out": out}, attrs)
    return out


def _successor(index: V) -> V:
    block = index.block.program.current_block()
    one = _constant(index, 1, index.dtype)
    out: V = block.create_var(name=generate("_generated_var"), stop_gradient=True)
    block.append_op("elementwise_add", {"X": index, "Y": one}, {"Out": out}, {"axis": -1})
    return out


def _apply(plan: _Plan, x: V) -> V:
    if plan.axes:
        x = _cut(plan, x)
    if plan.reversed:
        x = _emit(x, "_slice_reverse", "reverse", {"X": x}, {"axis": [plan.after_dropping(i) for i in plan.reversed]})
    if plan.thinned:
        axes = [plan.after_dropping(i) for i in plan.thinned]
        attrs = {
            "axes": axes, "starts": [0] * len(axes), "ends": [TO_THE_END] * len(axes),
            "strides": list(plan.thinned.values()), "infer_flags": [1] * len(axes),
        }  # fmt: skip
        x = _emit(x, "_strided_slice", "strided_slice", {"Input": x}, attrs)
    return _with_dimensions(plan, x)


def _cut(plan: _Plan, x: V) -> V:
    attrs = _cut_attrs(plan)
    inputs: dict[str, Any] = {"Input": x}
    for slot, numbers in (("StartsTensorList", plan.starts), ("EndsTensorList", plan.ends)):
        if any(isinstance(n, Operand) for n in numbers):
            inputs[slot] = [n if isinstance(n, Operand) else _constant(x, n, 2) for n in numbers]
            flags = zip(attrs["infer_flags"], numbers, strict=True)
            attrs["infer_flags"] = [-1 if isinstance(n, Operand) else flag for flag, n in flags]
    if all(stride == 1 for stride in plan.strides):
        return _emit(x, "_slice", "slice", inputs, attrs)
    return _emit(x, "_strided_slice", "strided_slice", inputs, {**attrs, "strides": plan.strides})


def _cut_attrs(plan: _Plan) -> dict[str, Any]:
    return {
        "axes": plan.axes, "decrease_axis": plan.dropped, "infer_flags": [1] * len(plan.axes),
        "starts": [-1 if isinstance(n, Operand) else n for n in plan.starts],
        "ends": [-1 if isinstance(n, Operand) else n for n in plan.ends],
    }  # fmt: skip


def _with_dimensions(plan: _Plan, x: V) -> V:
    if not plan.added:
        return x
    block = x.block.program.current_block()
    out, x_shape = (block.create_var(name=generate("unsqueeze2.tmp")) for _ in range(2))
    block.append_op("unsqueeze2", {"X": x}, {"Out": out, "XShape": x_shape}, {"axes": plan.added})
    return out


def _emit(x: V, suffix: str, op_type: str, inputs: dict[str, Any], attrs: dict[str, Any]) -> V:
    block = x.block.program.current_block()
    # Names of tensors are many and soon forgotten: none is made of another.
    out: V = block.fresh("tmp" if is_eager(x) else x.name + suffix)
    block.append_op(op_type, inputs, {"Out": out}, attrs)
    return out


S = TypeVar("S", bound="Subscripts")


class Subscripts(Operand):
    """Subscripts of variables, read and assigned."""

    __slots__ = ()

    def __getitem__(self: V, item: Any) -> V:
        """``self[item]``, as Python and NumPy read it.

        Parameters
        ----------
        item : int, slice, None, Ellipsis, Variable of one integer, or a tuple of these
            A Variable must not be negative where a program is built.

        Raises
        ------
        WrongTypeError
            For any other subscript.
        SubscriptError
            If there are more subscripts than dimensions, or a number lies outside of its dimension.
        OpError
            If a slice is empty.

        Notes
        -----
        As in fluid, what has no dimension left has shape [1].

        Examples
        --------
        >>> import minigraph as paddle
        >>> x = paddle.to_tensor([[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]])
        >>> x[1].numpy(), x[:, ::-2].numpy().tolist()
        (array([3., 4., 5.], dtype=float32), [[2.0, 0.0], [5.0, 3.0]])
        """
        if is_eager(self):
            return _subscript_at_once(self, item)
        with all_or_nothing():
            return _subscript(self, item)

    def __iter__(self: S) -> Iterator[S]:
        """``self[0], self[1], ...``, if the program knows how many there are."""
        if not self.shape or self.shape[0] < 0:
            raise SubscriptError(
                f"{self} has no known number of elements to iterate over",
                hint="Give its first dimension a size, or loop with layers.while_loop or layers.StaticRNN.",
            )  # fmt: skip
        return (self[i] for i in range(self.shape[0]))
