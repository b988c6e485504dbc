"""Let operators write the variables that their results are copied to."""

from __future__ import annotations

from functools import cache

from minigraph.ir import Operator, Program, Role, VarKind
from minigraph.kernels import find_kernel
from minigraph.opdef import EMPTY
from minigraph.passes.base import Pass
from minigraph.passes.rewriting import redirect
from minigraph.passes.values import Value, Values
from minigraph.types import DType

_ONE_CALL = frozenset(
    f"elementwise_{name}" for name in ("add", "sub", "mul", "div", "max", "min")
) | {"scale"}  # fmt: skip
"""Operators that may write over an operand: they read each element once, before they write it."""


class SkipAssigns(Pass):
    """Turn ``y = tanh(X=x)`` followed by ``p = assign(X=y)`` into ``p = tanh(X=x)``, where `p` is persistable.

    `tanh` stands for any operator whose kernel writes to memory that it is given. One that reads `p` must be able to
    write over its operand, or be a group of operators, which never does so. Readers of `y` read `p`. A ``scale`` by 1
    is an assignment, too, and `p` may also be a variable that is fetched.

    Law: every value keeps its bits and its role. `y` is neither fetched nor persistable, nothing else writes `p`, and
    nothing between the two operators reads its old value.
    """

    def apply(self, program: Program) -> bool:
        block, fetched = program.global_block(), frozenset(program.roots or ())
        variables = block.vars
        assigns = [
            op
            for op in (*block.ops.of_type("assign"), *filter(_is_by_one, block.ops.of_type("scale")))
            if (var := variables.get(op.outputs["Out"][0])) is not None and (var.persistable or var.name in fetched)
        ]
        changed = False
        while assigns:
            values = Values(program)
            found = {source: op for op in assigns if (source := _skippable(op, values)) is not None}
            for source, assign in found.items():
                names = {source.name: assign.outputs["Out"][0]}
                for reader in values.readers[source]:
                    if reader is not assign:
                        redirect(reader, names)
                maker = values.writer[source]
                maker.replace_output(source.name, names[source.name])
                maker.role = assign.role
                block.remove(assign)
            changed = changed or bool(found)
            makers = [values.writer[source] for source in found]
            assigns = [maker for maker in makers if maker.type == "assign" or _is_by_one(maker)]
        return changed


def _is_by_one(op: Operator) -> bool:
    """Whether an operator is a ``scale`` that changes no bit: a bias before the factor would make -0.0 positive."""
    if op.type != "scale" or op.inputs.get("ScaleTensor") or (op.attr("scale"), op.attr("bias")) != (1, 0):
        return False
    return bool(op.attr("bias_after_scale")) and op.block.vars[op.inputs["X"][0]].dtype in (DType.FP32, DType.FP64)


def _skippable(assign: Operator, values: Values) -> Value | None:
    """The value that is assigned, if the operator that makes it may write the variable itself."""
    source, target = values.input(assign, "X"), assign.outputs["Out"][0]
    maker = values.producer(source)
    if maker is None or not _takes_memory(maker.type) or values.is_live_out(source):
        return None
    if maker.role != assign.role and not _may_take_role(maker, assign, values):
        return None
    given, kept = values.block.vars[source.name], values.block.vars[target]
    if given.kind is not VarKind.LOD_TENSOR or given.tensor_type != kept.tensor_type or -1 in (given.shape or ()):
        return None
    new = values.written(target, assign)
    if not values.is_only(source) or new.number > 1 or not values.is_live_out(new):
        return None
    first, last, readers = values.position[maker], values.position[assign], values.readers[values.read(target, assign)]
    if maker in readers and maker.type not in (*_ONE_CALL, "fused_elementwise"):
        return None
    reads_old = any(first < values.position[op] < last for op in readers)
    by_name = any(use.slot is None or use.op.definition.has_hidden_names for use in values.users(source))
    return None if reads_old or by_name else source


def _may_take_role(maker: Operator, assign: Operator, values: Values) -> bool:
    """Whether the roles differ in what marks the loss alone, and `maker` writes nothing else that is kept."""
    is_marked = not (maker.role ^ assign.role) & ~Role.LOSS
    return is_marked and not any(
        values.is_live_out(values.written(name, maker)) for name in maker.output_arg_names if name != EMPTY
    )


@cache
def _takes_memory(type: str) -> bool:
    """Whether the kernel writes its results to memory that it is given, and none of them is a view."""
    kernel = find_kernel(type, "cpu")
    return kernel is not None and kernel.takes_out and kernel.view_of is None
