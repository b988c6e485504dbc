"""Turn momentum that is written out into the operator that updates a parameter and its velocity."""

from __future__ import annotations

from typing import NamedTuple

from minigraph.ir import Operator, Program, VarKind
from minigraph.opdef import EMPTY
from minigraph.passes.base import Pass
from minigraph.passes.merge.merge_elementwise import FORWARD
from minigraph.passes.rewriting import insert_for
from minigraph.passes.values import Value, Values
from minigraph.types import DType

_SUMS = ("elementwise_add", "sum")
_FLOATS = (DType.FP32, DType.FP64)

_MOST_FOLLOWED = 16
"""Maximum values that are looked at between a gradient and the state that it may be computed from."""


class FindMomentum(Pass):
    """Turn ``v = assign(X=m)`` and ``p = sgd(Param=p, Grad=m)``, where ``m = v * mu + g``, into ``momentum``.

    So with the step of Nesterov, ``p = sgd(Param=p, Grad=m * mu + g)``. `FindGradientDescent` makes ``sgd`` of a
    descent that is written out; `MergeUpdates` may then update many parameters by one operator.

    Law: every value keeps its bits, because ``momentum`` rounds as the single operators do. Nothing else reads the sum,
    and p, v, g and the rate have at the update the values that the single operators read. Selected rows, other types
    than float32 and float64, and unknown shapes are left alone; so are gradients divided by other state, such as that
    of RMSProp, which `MergeElementwise` updates together with the velocity.
    """

    def apply(self, program: Program) -> bool:
        ops = program.global_block().ops
        if not ops.of_type("sgd") or not ops.of_type("scale"):
            return False
        values = Values(program)
        found = [(op, step) for op in ops.of_type("sgd") if (step := _step(op, values)) is not None]
        for op, step in found:
            step.replace(op)
        return bool(found)


class _Step(NamedTuple):
    velocity: str
    grad: str
    mu: float
    is_nesterov: bool
    gone: list[Operator]
    """Operators whose results nothing else reads."""

    def replace(self, op: Operator) -> None:
        name, block = op.outputs["ParamOut"][0], op.block
        inputs = {**op.inputs, "Grad": self.grad, "Velocity": self.velocity}
        outputs = {"ParamOut": name, "VelocityOut": self.velocity}
        insert_for(op, "momentum", inputs, outputs, {"mu": self.mu, "use_nesterov": self.is_nesterov})
        for each in (op, *self.gone):
            block.remove(each)


class _Faded(NamedTuple):
    """A sum ``old * mu + grad``."""

    old: Value
    mu: float
    grad: Value
    gone: list[Operator]


def _step(op: Operator, values: Values) -> _Step | None:
    """The update with momentum that ends in the descent `op`."""
    if op.inputs.get("SkipUpdate"):
        return None
    moved = values.input(op, "Grad")
    steps = [
        step
        for found in _faded_sums(moved, values)
        for step in (_checked(op, found, moved, [], values), *_steps_of_nesterov(op, found, moved, values))
    ]
    return next(filter(None, steps), None)


def _steps_of_nesterov(op: Operator, ahead: _Faded, moved: Value, values: Values) -> list[_Step | None]:
    """The updates in which `ahead` fades the new velocity once more and adds the gradient again."""
    if not values.is_used_once(moved):
        return []
    return [
        _checked(op, found, ahead.old, ahead.gone, values)
        for found in _faded_sums(ahead.old, values)
        if (found.mu, found.grad) == (ahead.mu, ahead.grad)
    ]


def _faded_sums(total: Value, values: Values) -> list[_Faded]:
    """The ways to read a sum of two as a faded value and a gradient."""
    made = values.producer(total, *_SUMS)
    if made is None:
        return []
    operands = [values.read(name, made) for slot in ("X", "Y") for name in made.inputs.get(slot, ())]
    found = []
    for faded, grad in (operands, operands[::-1]) if len(operands) == 2 else ():
        scale = values.producer(faded, "scale")
        if scale is not None and scale.attr("bias") == 0 and not scale.inputs.get("ScaleTensor") and faded != grad:
            gone = [made, scale] if values.is_used_once(faded) else [made]
            found.append(_Faded(values.input(scale, "X"), scale.attr("scale"), grad, gone))
    return found


def _checked(op: Operator, found: _Faded, new: Value, more: list[Operator], values: Values) -> _Step | None:
    """The update in the place of `op`, if `new` becomes the velocity, and nothing else reads it."""
    readers = [each for each in values.readers[new] if each not in (op, *more)]
    name, block = found.old.name, op.block
    if new.name == name:
        write, assigns = values.writer[new], list[Operator]()
    elif len(readers) == 1 and readers[0].type == "assign" and readers[0].outputs["Out"] == (name,):
        (write,) = assigns = readers
        readers = []
        if values.is_live_out(new):
            return None
    else:
        return None
    var = block.vars.get(name)
    if readers or var is None or not var.persistable or not _are_alike(op, found, new, values):
        return None
    if _follows_state(found.grad, op, values) or not values.is_there(found.grad, op):
        return None
    if not _may_move(write, op, found, values):
        return None
    return _Step(name, found.grad.name, found.mu, bool(more), [*found.gone, *more, *assigns])


def _follows_state(grad: Value, op: Operator, values: Values) -> bool:
    """Whether operators on elements compute a gradient from state, and not only from the parameter."""
    pending, seen = [grad], set[Value]()
    while pending and len(seen) < _MOST_FOLLOWED:
        value = pending.pop()
        var = op.block.vars.get(value.name)
        if var is not None and var.persistable and value.name != op.inputs["Param"][0] and var.shape != (1,):
            return True
        made = values.writer.get(value)
        if made is not None and made.type in FORWARD and value not in seen:
            pending += [values.read(name, made) for name in made.input_arg_names if name != EMPTY]
        seen.add(value)
    return False


def _may_move(write: Operator, op: Operator, found: _Faded, values: Values) -> bool:
    """Whether the velocity may be written by `op` and not by `write`: in between nobody reads or writes it."""
    name = found.old.name
    first, last = sorted((values.position[write], values.position[op]))
    old, new = found.old, values.written(name, write)
    # Between both, the name means the old value if `op` comes first, else the new one.
    between = old if values.position[op] == first else new
    is_read = any(first < values.position[each] < last for each in values.readers[between] if each not in found.gone)
    return not is_read and values.read(name, write) == old and values.read(name, op) == between


def _are_alike(op: Operator, found: _Faded, new: Value, values: Values) -> bool:
    """Whether parameter, velocity and gradient are dense floats of one known shape."""
    kinds = [values.type_of(each) for each in (values.input(op, "Param"), found.old, found.grad, new)]
    first = kinds[0]
    return (
        first is not None
        and first.is_static
        and first.kind is VarKind.LOD_TENSOR
        and first.dtype in _FLOATS
        and all(kind == first for kind in kinds)
    )
