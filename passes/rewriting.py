"""Edits that keep an operator's role and line, and what several passes look for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from math import inf, prod
from typing import Any, ClassVar

from minigraph import unique_name
from minigraph.ir import Block, Names, Operator, Program, Role, Variable
from minigraph.ir.block_arguments import each_of
from minigraph.ir.dataflow import is_persistable
from minigraph.ir.variable import name_of
from minigraph.kernels import find_kernel
from minigraph.opdef import EMPTY, SUB_BLOCK, definition_of
from minigraph.passes.base import Pass
from minigraph.passes.values import Values


@dataclass(frozen=True)
class MergeSmall(Pass):
    """Base of the passes that merge operators on many small matrices, such as those of the steps of a network.

    Attributes
    ----------
    least : int
        Minimum parts that are merged.
    most_elements : int
        Maximum elements of a part; for a larger one the arithmetic takes longer than the call.
    """

    changes_rounding: ClassVar[bool] = True
    keeps_gradients: ClassVar[bool] = False

    least: int = 4
    most_elements: int = 65536


def is_matrix(block: Block, name: str, most_elements: float = inf) -> bool:
    """Whether a variable is a matrix of known shape with at most `most_elements` elements."""
    shape = block.vars[name].shape or ()
    return len(shape) == 2 and -1 not in shape and prod(shape) <= most_elements


def stops_gradient(name: str, op: Operator) -> bool:
    """Whether a result of `op` keeps gradients, which may be appended later, from what it is computed of.

    In programs that have their gradients, and in the private ones of executors, this no longer matters.
    """
    block = op.block
    var = block.find_var(name)
    if var is None or not var.stop_gradient or block.program.backward_passes or block.program.is_concrete:
        return False
    read = map(block.find_var, op.input_arg_names)
    return any(
        each is not None and not each.stop_gradient and (each.tensor_type is None or each.dtype.is_floating)
        for each in read
    )


def insert_for(
    op: Operator, type: str, inputs: Mapping[str, Names], outputs: Mapping[str, Names], attrs: Mapping[str, Any]
) -> Operator:
    """Insert an operator before `op`, with the role, name scope and source line of `op`.

    Of the `role_vars` of a backward operator it gets those whose gradient it makes.
    """
    made = [name_of(name) for names in outputs.values() for name in each_of(names)]
    fields = {"op_role": op.role, "op_role_var": served_by(op, made), "op_namescope": op.namescope}
    with op.block.inserting_before(op):
        return op.block.append_op(type, inputs, outputs, {**attrs, **fields})


def served_by(op: Operator, made: Iterable[str]) -> tuple[str, ...]:
    """Return the `role_vars` for an operator that makes these results in the place of `op`.

    Of those of a backward operator it gets those whose gradient it makes.
    """
    role_vars = op.role_vars
    if not role_vars or not op.role & Role.BACKWARD:
        return role_vars
    made = set(made)
    pairs = zip(role_vars[::2], role_vars[1::2], strict=False)
    return tuple([name for pair in pairs if pair[1] in made for name in pair])


def completed_pairs(op: Operator) -> list[tuple[str, str]]:
    """Parameters and gradients that a backward operator completes."""
    return list(zip(op.role_vars[::2], op.role_vars[1::2], strict=True)) if op.role & Role.BACKWARD else []


def redirect(op: Operator, names: Mapping[str, str]) -> None:
    """Let `op` read other names; an operator that reads names outside of its slots is left alone."""
    if not names or op.definition.has_hidden_names:
        return
    for slot, given in list(op.inputs.items()):
        if any(name in names for name in given):
            op.set_input(slot, [names.get(name, name) for name in given])


@cache
def is_random(op_type: str) -> bool:
    """Whether operators of this type may draw random numbers or have other effects, as those with a sub-block may."""
    definition = definition_of(op_type)
    if SUB_BLOCK in definition.attrs or definition.has_effect:
        return True
    kernel = find_kernel(op_type, "cpu")
    return kernel is not None and kernel.takes_rng


def open_axes(var: Variable | None) -> list[int]:
    """The dimensions of unknown size, as that of the batch is."""
    return [axis for axis, size in enumerate((var.shape or ()) if var is not None else ()) if size == -1]


def draws(op: Operator) -> bool:
    """Whether an operator itself draws random numbers; an operator that runs a block does not."""
    is_other = SUB_BLOCK in op.attrs or op.definition.has_effect or op.attrs.get("is_test", False)
    return is_random(op.type) and not is_other


def outputs_in_use(op: Operator, block: Block, wanted: set[str]) -> dict[str, tuple[str, ...]]:
    """The output slots of `op` without those of a gradient that is neither wanted later nor persisted."""
    if not any(map(wanted.isdisjoint, op.outputs.values())):
        return op.outputs
    kernel, slots = find_kernel(op.type, "cpu"), op.definition.output_slots
    if kernel is None or not kernel.takes_wanted:
        return op.outputs
    return {
        slot: names
        for slot, names in op.outputs.items()
        if not wanted.isdisjoint(names)
        or slots[slot].duplicable
        or not slots[slot].dispensable
        or any([is_persistable(block.find_var(name)) for name in names])
    }


def sums_of(program: Program, type: str, least: int) -> list[Operator]:
    """Return the sums of at least `least` gradients that operators of this type write to ``Y@GRAD``."""
    ops = program.global_block().ops
    sums = [op for op in ops.of_type("sum") if len(op.inputs["X"]) >= least]
    parts = {name for op in ops.of_type(type) for name in op.outputs.get("Y@GRAD", ())} if sums else ()
    return [op for op in sums if sum(name in parts for name in op.inputs["X"]) >= least]


def parts_of(total: Operator, type: str, values: Values) -> Iterator[tuple[str, Operator]]:
    """Yield the parts of a sum that operators of this type write to ``Y@GRAD``, with these, in forward order.

    Parts that others read or that are added twice are left out.
    """
    counts = Counter(total.inputs["X"])
    for name in reversed(total.inputs["X"]):
        part = values.read(name, total)
        grad = values.producer(part, type)
        is_own = counts[name] == 1 and values.is_used_once(part)
        if is_own and grad is not None and grad.outputs.get("Y@GRAD") == (name,):
            yield name, grad


def is_read_by_many(program: Program, type: str, least: int) -> bool:
    """Whether at least `least` operators of a type read one name in ``Y``."""
    weights = Counter([op.inputs["Y"][0] for op in program.global_block().ops.of_type(type)])
    return any(count >= least for count in weights.values())


def replace_parts(
    total: Operator, parts: Mapping[str, Operator], type: str, inputs: Mapping[str, Names], slot: str,
    attrs: Mapping[str, Any],
) -> None:  # fmt: skip
    """Insert an operator whose output `slot` replaces `parts` in the sum `total`, or the whole sum.

    The gradient operators in `parts` no longer compute them.
    """
    rest = [name for name in total.inputs["X"] if name not in parts]
    out = unique_name.generate(f"{total.outputs['Out'][0]}@MERGED") if rest else total.outputs["Out"][0]
    insert_for(total, type, inputs, {slot: out}, attrs)
    if rest:
        total.set_input("X", [*rest, out])
    else:
        total.block.remove(total)
    for name, grad in parts.items():
        if any(each != EMPTY for each in grad.outputs.get("X@GRAD", ())):
            grad.replace_output(name, EMPTY)
        else:
            grad.block.remove(grad)
