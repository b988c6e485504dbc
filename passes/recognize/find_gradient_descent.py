"""Turn gradient descent that is written out into the operator that updates a parameter."""

from __future__ import annotations

from typing import NamedTuple

from minigraph.ir import Operator, Program, VarKind
from minigraph.passes.base import Pass
from minigraph.passes.rewriting import insert_for
from minigraph.passes.values import Value, Values
from minigraph.types import DType

_DIFFERENCES = ("elementwise_sub", "elementwise_add", "sum")
_FLOATS = (DType.FP32, DType.FP64)


class FindGradientDescent(Pass):
    """Turn ``p = assign(X=p - c * g)``, where `p` is persistable, into ``p = sgd(Param=p, Grad=g, LearningRate=c)``.

    So with a sum of p and ``-c * g``, and with a variable of one element in the place of the number c. `MergeUpdates`
    may then update many such variables by one operator, which writes over them.

    Law: every value keeps its bits, because ``sgd`` rounds the product and the difference as the single operators do.
    Nothing else reads the difference, and g and c have at the assignment the values that they had in the product.
    Selected rows, other types than float32 and float64, and unknown shapes are left alone.
    """

    def apply(self, program: Program) -> bool:
        ops = program.global_block().ops
        if not any(ops.of_type(type) for type in ("assign", *_DIFFERENCES)):
            return False
        variables = program.global_block().vars
        written = [
            op
            for type in ("assign", *_DIFFERENCES)
            for op in ops.of_type(type)
            if (var := variables.get(op.outputs["Out"][0])) is not None and var.persistable
        ]
        if not written:
            return False
        values = Values(program)
        found = [(op, step) for op in sorted(written, key=values.position.__getitem__) if (step := _step(op, values))]
        rates: dict[tuple[float, DType], str] = {}
        for op, step in found:
            step.replace(op, rates)
        return bool(found)


class _Step(NamedTuple):
    grad: Value
    rate: Value | float
    inner: list[Operator]
    """Operators whose results nothing else reads."""

    def replace(self, op: Operator, rates: dict[tuple[float, DType], str]) -> None:
        """Put an update in the place of the operator that writes the variable; `rates` are names of constants."""
        name, block = op.outputs["Out"][0], op.block
        if isinstance(self.rate, Value):
            rate = self.rate.name
        else:
            dtype = block.vars[name].dtype
            if (self.rate, dtype) not in rates:
                rates[self.rate, dtype] = block.free_name("learning_rate")
                attrs = {"shape": [1], "dtype": int(dtype), "value": self.rate}
                insert_for(op, "fill_constant", {}, {"Out": rates[self.rate, dtype]}, attrs)
            rate = rates[self.rate, dtype]
        inputs = {"Param": name, "Grad": self.grad.name, "LearningRate": rate}
        insert_for(op, "sgd", inputs, {"ParamOut": name}, {})
        for each in (op, *self.inner):
            block.remove(each)


def _step(op: Operator, values: Values) -> _Step | None:
    """The descent whose result `op` writes to a persistable variable."""
    old = values.read(op.outputs["Out"][0], op)
    difference, inner = op, list[Operator]()
    if op.type == "assign":
        result = values.input(op, "X")
        made = values.producer(result, *_DIFFERENCES)
        if made is None or not values.is_used_once(result):
            return None
        difference, inner = made, [made]
    operands = [values.read(name, difference) for slot in ("X", "Y") for name in difference.inputs.get(slot, ())]
    if len(operands) != 2 or operands.count(old) != 1 or (difference.type == "elementwise_sub" and operands[0] != old):
        return None
    change = operands[1 - operands.index(old)]
    found = _product(change, 1 if difference.type == "elementwise_sub" else -1, values)
    if found is None or not _are_alike(old, change, found[0], values):
        return None
    grad, rate, product = found
    if values.is_used_once(change):
        inner.append(product)
    read = [grad, rate] if isinstance(rate, Value) else [grad]
    return _Step(grad, rate, inner) if grad != old and all(values.is_there(each, op) for each in read) else None


def _product(change: Value, sign: int, values: Values) -> tuple[Value, Value | float, Operator] | None:
    """The gradient, the rate, and the operator that multiplies them; with ``sign = -1`` the product is added."""
    product = values.producer(change, "scale", "elementwise_mul")
    if product is None:
        return None
    if product.type == "scale":
        is_plain = not product.inputs.get("ScaleTensor") and product.attr("bias") == 0
        return (values.input(product, "X"), sign * product.attr("scale"), product) if is_plain else None
    rate = values.input(product, "Y")
    kind = values.type_of(rate)
    is_rate = kind is not None and kind.shape == (1,) and kind.dtype in _FLOATS and sign == 1
    return (values.input(product, "X"), rate, product) if is_rate else None


def _are_alike(old: Value, change: Value, grad: Value, values: Values) -> bool:
    """Whether all three are dense floats of one known shape."""
    first, *others = (values.type_of(each) for each in (old, change, grad))
    return (
        first is not None
        and first.kind is VarKind.LOD_TENSOR
        and first.dtype in _FLOATS
        and -1 not in first.shape
        and all(x is not None and (x.kind, x.dtype, x.shape) == (first.kind, first.dtype, first.shape) for x in others)
    )
