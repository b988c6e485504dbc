"""Turn clips by norm that are written out into the operators that clip."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar

import numpy as np

from minigraph import unique_name
from minigraph.ir import Operator, Program, VarKind
from minigraph.opdef import EMPTY
from minigraph.passes.base import Pass
from minigraph.passes.canonical.dead_ops import remove_dead
from minigraph.passes.rewriting import insert_for
from minigraph.passes.values import Value, Values
from minigraph.types import DType, TensorType

_FLOATS = (DType.FP32, DType.FP64)
_GREATER, _LESS = ("greater_than", "greater_equal"), ("less_than", "less_equal")
_TOTALS = ("elementwise_add", "reduce_sum", "squared_l2_norm", "sum")


class FindGlobalNorm(Pass):
    """Turn ``g_i * (c / max(n, c))`` into ``clip_by_global_norm``, where n is the root of the sum of squares of all g.

    With one g it becomes ``clip_by_norm``. The factor may also be ``min(c / n, 1)``, limited to 1 by ``clip``, or
    chosen by ``where(n > c, c / n, 1)``; factors, quotients and n may be multiples of these. Squares are added by
    ``reduce_sum`` of ``square``, by ``squared_l2_norm`` or along joined values, and their sums by ``sum``,
    ``elementwise_add``, or along a ``concat`` or ``stack``; the root of a sum may be squared again. A root of several
    such sums that is no part of a clip becomes the norm of ``clip_factor``.

    Law: norm and products change by rounding only, as long as squares, sums and quotients are finite and no smaller
    than the smallest normal number; elsewhere the new ones are right, and zeros with a norm of 0 stay zeros. Selected
    rows, float16, a sum that others read, and a tensor that counts twice are left alone.
    """

    changes_rounding: ClassVar[bool] = True
    keeps_gradients: ClassVar[bool] = False

    def apply(self, program: Program) -> bool:
        ops = program.global_block().ops
        if not ops.of_type("sqrt"):
            return False
        totals = {name for type in _TOTALS for op in ops.of_type(type) for name in op.output_arg_names}
        scaled = [op for op in ops.of_type("scale") if not totals.isdisjoint(op.inputs["X"])]
        totals.update(name for op in scaled for name in op.output_arg_names)
        if not any(not totals.isdisjoint(op.inputs["X"]) for op in ops.of_type("sqrt")):
            return False
        changed = remove_dead(program)  # whose operators read what nothing else reads
        while _replace_norms(program):  # a root that is read beside the clip is a norm on its own then
            remove_dead(program)
            changed = True
        return changed


def _replace_norms(program: Program) -> bool:
    """Replace clips and norms that are there; returns whether there were any."""
    values, gone = Values(program), list[Operator]()
    found = [norm for op in values.block.ops.of_type("sqrt") if (norm := _norm(op, values)) is not None]
    for norm in found:
        gone += norm.replace()
    for op in gone:
        op.block.remove(op)
    return bool(gone)


@dataclass(frozen=True)
class _Product:
    """An operator that computes a multiple of a clipped tensor."""

    op: Operator
    tensor: Value
    multiple: float


def _norm(op: Operator, values: Values) -> _Norm | None:
    root = values.output(op, "Out")
    tensors = _summed(values.input(op, "X"), values)
    kind = values.type_of(root)
    if not tensors or kind is None or kind.dtype not in _FLOATS or kind.shape != (1,):
        return None
    if len(set(tensors)) < len(tensors) or not all(_fits(values.type_of(each), kind) for each in tensors):
        return None
    # The norm of `clip_factor` is written in the place of the root.
    is_plain = len(tensors) > 1 and all(values.is_there(each, op) for each in tensors)
    clip = _clip(op, root, tensors, values)
    if clip is not None and not _has_attributes(clip, kind.dtype, len(tensors)):
        return None
    return _Norm(op, tensors, clip, values) if clip is not None or is_plain else None


def _has_attributes(clip: _Clip, dtype: DType, count: int) -> bool:
    """Whether attributes, which are float32, can hold the numbers of a clip of `count` tensors."""
    numbers = [each.multiple for each in clip.products if not _is_1(each.multiple, dtype)]
    numbers += [clip.threshold] * (count == 1)
    return dtype is DType.FP32 or all(float(np.float32(number)) == number for number in numbers)


def _is_1(number: float, dtype: DType) -> bool:
    """Whether a quotient of numbers is 1 but for its rounding."""
    return abs(number - 1) < np.finfo(dtype.numpy).eps


def _fits(kind: TensorType | None, norm: TensorType) -> bool:
    return kind is not None and kind.kind is VarKind.LOD_TENSOR and kind.dtype is norm.dtype and kind.is_static


def _summed(total: Value, values: Values) -> list[Value]:
    """The tensors whose squared elements are added in `total`, which nothing else reads; empty if it is another sum."""
    found: list[Value] = []
    pending = [total]
    while pending:
        value = pending.pop()
        op = values.producer(value)
        if op is None or not values.is_used_once(value):
            return []
        parts, squared = _parts(op, values)
        if not parts and not squared:
            return []
        pending += reversed(parts)
        found += squared
    return found


def _parts(op: Operator, values: Values) -> tuple[list[Value], list[Value]]:
    """The sums, and the tensors of which the squares are added, of which `op` computes the sum."""
    inputs = [values.read(name, op) for slot in ("X", "Y") for name in op.inputs.get(slot, ())]
    if op.type in ("sum", "elementwise_add"):
        return (inputs if all(_is_number(each, values) for each in inputs) else []), []
    if op.type == "squared_l2_norm":
        return [], _joined(inputs[0], values)
    if op.type == "square" and _is_number(inputs[0], values):
        root = values.producer(inputs[0], "sqrt")
        is_own = root is not None and values.is_used_once(inputs[0])
        return ([values.input(root, "X")] if is_own and root is not None else []), []
    is_copied = op.type == "reshape2" or (op.type == "scale" and _multiple(op) == 1)
    if is_copied and _is_number(inputs[0], values):
        return inputs, []
    if op.type != "reduce_sum" or not _adds_all(op, values) or not values.is_used_once(inputs[0]):
        return [], []
    return _along(inputs[0], values)


def _along(value: Value, values: Values) -> tuple[list[Value], list[Value]]:
    """The parts of the sum of all elements of a value, as `_parts` returns them."""
    op = values.producer(value, "square", "concat", "stack")
    if op is None:
        return [], []
    inputs = [values.read(name, op) for name in op.inputs["X"]]
    if op.type == "square":
        return [], _joined(inputs[0], values)
    return (inputs if all(_is_number(each, values) for each in inputs) else []), []


def _joined(value: Value, values: Values) -> list[Value]:
    """The tensors that a value is joined from; itself if it is not joined."""
    op = values.producer(value, "concat")
    if op is None or not values.is_used_once(value):
        return [value]
    parts = [values.read(name, op) for name in op.inputs["X"]]
    makers = [values.producer(part, "reshape2", "flatten2") for part in parts]
    return [part if maker is None else values.input(maker, "X") for part, maker in zip(parts, makers, strict=True)]


def _adds_all(op: Operator, values: Values) -> bool:
    kind = values.type_of(values.input(op, "X"))
    return bool(op.attr("reduce_all")) or (kind is not None and len(set(op.attr("dim"))) == len(kind.shape))


def _is_number(value: Value, values: Values) -> bool:
    kind = values.type_of(value)
    return kind is not None and kind.kind is VarKind.LOD_TENSOR and kind.is_static and prod(kind.shape) == 1


def _multiple(op: Operator) -> float | None:
    """The number by which a ``scale`` multiplies; None if it adds another one, or a tensor says the number."""
    return op.attr("scale") if set(op.inputs) == {"X"} and op.attr("bias") == 0 else None


def _constant(value: Value, values: Values) -> float | None:
    """The number of a value of one element that ``fill_constant`` makes."""
    op = values.producer(value, "fill_constant")
    if op is None or op.inputs or not _is_number(value, values):
        return None
    dtype = op.block.vars[value.name].dtype
    return float(dtype.numpy.type(op.attr("str_value") or op.attr("value"))) if dtype in _FLOATS else None


@dataclass(frozen=True)
class _Clip:
    threshold: float
    products: list[_Product]


def _clip(op: Operator, root: Value, tensors: Sequence[Value], values: Values) -> _Clip | None:
    """The clip that uses the norm `root`; all its products must have one threshold."""
    found: dict[float, list[_Product]] = {}
    for threshold, factor, multiple, divides in _factors(root, values):
        for product in _products(factor, tensors, multiple, divides, values):
            found.setdefault(threshold, []).append(product)
    if len(found) != 1:
        return None
    ((threshold, products),) = found.items()
    first = min((each.op for each in products), key=values.position.__getitem__)
    is_there = all(values.is_there(each, first) for each in tensors)
    # Products are computed where the first one is.
    outs = [values.output(each.op, "Out") for each in products]
    are_own = all(values.is_only(out) and not op.block.vars[out.name].persistable for out in outs)
    is_each_once = len({each.tensor for each in products}) == len(products)
    return _Clip(threshold, products) if is_there and are_own and is_each_once else None


def _factors(root: Value, values: Values) -> Iterator[tuple[float, Value, float, bool]]:
    """Yield threshold, value, the multiple that it is of the factor of a clip, and whether it divides instead."""
    for divisor, times in _multiples(root, values):
        for use in values.users(divisor):
            op = use.op
            if op.type == "elementwise_max":
                least = _constant(_other(use.op, use.slot, values), values)
                if least is None or not 0 < least < np.inf or not 0 < least / times < np.inf:
                    continue
                limited = values.output(op, "Out")
                yield least / times, limited, 1 / least, True
                for value, number in _quotients(limited, values):
                    yield least / times, value, number / least, False
        for ratio, number in _quotients(divisor, values):
            threshold = number / times
            if not 0 < threshold < np.inf:
                continue
            for use in values.users(ratio):
                if _limits_to_1(use.op, use.slot, values) or _is_chosen(use.op, use.slot, root, threshold, values):
                    yield threshold, values.output(use.op, "Out"), 1.0, False


def _multiples(root: Value, values: Values) -> Iterator[tuple[Value, float]]:
    """Yield the norm and its multiples, each with the number that the norm is multiplied by."""
    yield root, 1.0
    for use in values.users(root):
        times = _multiple(use.op) if use.op.type == "scale" and use.slot == "X" else None
        if times is not None and times > 0:
            yield values.output(use.op, "Out"), times


def _is_chosen(op: Operator, slot: str | None, root: Value, threshold: float, values: Values) -> bool:
    """Whether `op` chooses the ratio where the norm is greater than `threshold`, and else 1."""
    if op.type != "where" or _constant(_other(op, slot, values), values) != 1.0:
        return False
    test = values.producer(values.input(op, "Condition"), *_GREATER, *_LESS)
    if test is None:
        return False
    given = [values.input(test, each) for each in "XY"]
    # A norm that is equal to the threshold has the ratio 1.
    if (test.type in _GREATER) != (slot == "X"):
        given.reverse()
    return given[0] == root and _constant(given[1], values) == threshold


def _other(op: Operator, slot: str | None, values: Values) -> Value:
    return values.input(op, "Y" if slot == "X" else "X")


def _quotients(divisor: Value, values: Values) -> Iterator[tuple[Value, float]]:
    """Yield the values that are a constant number divided by `divisor`, with the number."""
    for use in values.users(divisor):
        if use.op.type == "reciprocal":
            yield values.output(use.op, "Out"), 1.0
        elif use.op.type == "elementwise_div" and use.slot == "Y":
            number = _constant(values.input(use.op, "X"), values)
            if number is not None and number > 0:
                yield values.output(use.op, "Out"), number


def _limits_to_1(op: Operator, slot: str | None, values: Values) -> bool:
    if op.type == "elementwise_min":
        return _constant(_other(op, slot, values), values) == 1.0
    return op.type == "clip" and set(op.inputs) == {"X"} and op.attr("max") == 1.0 and op.attr("min") <= 0.0


def _products(
    factor: Value, tensors: Sequence[Value], multiple: float, divides: bool, values: Values
) -> Iterator[_Product]:
    for use in values.users(factor):
        op = use.op
        if divides:
            given = values.input(op, "X") if op.type == "elementwise_div" and use.slot == "Y" else None
        elif op.type == "elementwise_mul":
            given = _other(op, use.slot, values)
        else:
            is_scale = op.type == "scale" and use.slot == "ScaleTensor" and op.attr("bias") == 0
            given = values.input(op, "X") if is_scale else None
        if given is None:
            continue
        scale = values.producer(given, "scale")
        if given in tensors:
            yield _Product(op, given, multiple)
        elif scale is not None and (number := _multiple(scale)):
            source = values.input(scale, "X")
            if source in tensors:
                yield _Product(op, source, multiple * number)


@dataclass(frozen=True)
class _Norm:
    op: Operator
    """The root."""
    tensors: list[Value]
    clip: _Clip | None
    values: Values

    def replace(self) -> list[Operator]:
        """Insert what computes the norm and the products; returns the operators that may go."""
        if self.clip is None:
            factor = unique_name.generate("clip_factor")
            outputs = {"Factor": factor, "Norm": self.op.outputs["Out"][0]}
            insert_for(self.op, "clip_factor", self._inputs(self.op, 1.0), outputs, {})
            return [self.op]
        products = {each.tensor: each for each in self.clip.products}
        first = min((each.op for each in products.values()), key=self.values.position.__getitem__)
        outs = {tensor: self._out(each) for tensor, each in products.items()}
        # In the order of the updates tensors are parts of one vector, which is faster to measure.
        self.tensors.sort(key=lambda each: self._position_of_reader(products.get(each)))
        if len(self.tensors) == 1:
            ((tensor, out),) = outs.items()
            insert_for(first, "clip_by_norm", {"X": tensor.name}, {"Out": out}, {"max_norm": self.clip.threshold})
        else:
            names = [outs.get(each, EMPTY) for each in self.tensors]
            norm = unique_name.generate(f"{self.op.outputs['Out'][0]}@NORM")
            inputs = self._inputs(first, self.clip.threshold)
            insert_for(first, "clip_by_global_norm", inputs, {"Out": names, "Norm": norm}, {})
        for tensor, each in products.items():
            if outs[tensor] != each.op.outputs["Out"][0]:
                multiple = {"scale": each.multiple}
                insert_for(each.op, "scale", {"X": outs[tensor]}, {"Out": each.op.outputs["Out"]}, multiple)
        return [each.op for each in products.values()]

    def _position_of_reader(self, product: _Product | None) -> float:
        """The position of the first operator that reads a product."""
        readers = () if product is None else self.values.readers[self.values.output(product.op, "Out")]
        return min(map(self.values.position.__getitem__, readers), default=np.inf)

    def _out(self, product: _Product) -> str:
        (name,) = product.op.outputs["Out"]
        return (
            name if _is_1(product.multiple, self.op.block.vars[name].dtype) else unique_name.generate(f"{name}@CLIPPED")
        )

    def _inputs(self, anchor: Operator, threshold: float) -> dict[str, Any]:
        name = unique_name.generate("clip_norm")
        dtype = self.op.block.vars[self.op.outputs["Out"][0]].dtype
        attrs = {"shape": [1], "dtype": int(dtype), "value": threshold, "str_value": repr(threshold)}
        insert_for(anchor, "fill_constant", {}, {"Out": name}, attrs)
        return {"X": [each.name for each in self.tensors], "ClipNorm": name}
