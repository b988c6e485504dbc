"""More wrong passes: each overlooks who reads a value, or what a result has besides its numbers."""

from __future__ import annotations

from wrong_passes import is_plain_pair, keeping, ops_of, readers, swap_in, writer, wrong
from wrong_state import WRONG

from minigraph.ir import Role

__all__ = ["WRONG"]


def is_fetched(program, name):
    return program.roots is None or name in program.roots


# Who reads it


@wrong
def nothing_is_fetched_where_nobody_says_what(program):
    """Where `roots` are None any value may be fetched, and the first of two operators is gone."""
    if program.roots is not None:
        return False
    changed = False
    for first, op in is_plain_pair(program, "relu", "relu"):
        op.set_input("X", first.input("X"))
        first.block.remove(first)
        changed = True
    return changed


@wrong
def branches_without_readers_are_dead(program):
    """A branch may write what outlives the run."""
    changed = False
    for op in ops_of(program, "conditional_block"):
        names = op.output_arg_names
        if not any(readers(op.block, name, op) or is_fetched(program, name) for name in names):
            op.block.remove(op)
            changed = True
    return changed


@wrong
def normalizations_without_readers_are_dead(program):
    """``batch_norm`` writes the running statistics as well."""
    changed = False
    for op in ops_of(program, "batch_norm"):
        read = any(readers(op.block, name, op) for name in op.output_arg_names)
        if not read and not is_fetched(program, op.output("Y")[0]):
            op.block.remove(op)
            changed = True
    return changed


# Numbers and shapes


@wrong
def sign_times_magnitude_is_the_number(program):
    """The sign of -0.0 is 0.0."""
    changed = False
    for op in ops_of(program, "elementwise_mul"):
        block, given = op.block, [writer(op.block, op.input(slot)[0], op) for slot in "XY"]
        if (
            None in given
            or [each.type for each in given] != ["sign", "abs"]
            or given[0].input("X") != given[1].input("X")
        ):
            continue
        source = given[0].input("X")
        if not any(source[0] in each.output_arg_names for each in block.ops[min(each.idx for each in given) : op.idx]):
            swap_in(op, "assign", {"X": source}, keeping(op))
            changed = True
    return changed


@wrong
def squeezes_undo_each_other(program):
    """The axis that is squeezed need not be the one that was put in."""
    changed = False
    for first, op in is_plain_pair(program, "squeeze2", "unsqueeze2"):
        shapes = [first.block.vars[name].shape for name in (first.input("X")[0], op.output("Out")[0])]
        if len(shapes[0]) == len(shapes[1]) and not readers(first.block, first.output("XShape")[0], first):
            swap_in(op, "assign", {"X": first.input("X")}, keeping(op))
            first.block.remove(first)
            changed = True
    return changed


@wrong
def roots_of_lengths_are_left_out(program):
    """``SQRT`` divides the sum of a sequence by the root of its length."""
    found = [op for op in ops_of(program, "sequence_pool") if op.attr("pooltype") == "SQRT"]
    for op in found:
        op.set_attr("pooltype", "SUM")
    return bool(found)


# Training


@wrong
def gradients_are_named_in_the_wrong_order(program):
    """The ``role_vars`` of an update name the gradient of another parameter."""
    updates = [op for op in program.global_block().ops if "Grad" in op.inputs and len(op.role_vars) == 2]
    if len(updates) < 2 or updates[0].role_vars[1] == updates[1].role_vars[1]:
        return False
    updates[0].role_vars = (updates[0].role_vars[0], updates[1].role_vars[1])
    return True


@wrong
def groups_of_a_norm_are_joined(program):
    """Gradients of two groups are clipped by a norm of their own each."""
    sums = [op for op in ops_of(program, "sum") if op.role & Role.CLIP]
    if len(sums) < 2 or set(sums[1].input("X")) >= set(sums[0].input("X")):
        return False
    sums[1].set_input("X", [*sums[0].input("X"), *sums[1].input("X")])
    return True


@wrong
def error_clips_are_left_out(program):
    """A clip in the backward pass, in place, bounds the gradient that others read."""
    found = [op for op in ops_of(program, "clip") if op.input("X") == op.output("Out") and op.role == Role.BACKWARD]
    for op in found:
        op.block.remove(op)
    return bool(found)


@wrong
def gradients_are_clipped_before_they_are_summed(program):
    """The clip of a sum over ranks is not the sum of the clips of each rank."""
    block, changed = program.global_block(), False
    for total in ops_of(program, "c_allreduce_sum"):
        name = total.input("X")[0]
        clip = next(iter(readers(block, name, total)), None)
        if clip is None or clip.type not in ("clip", "clip_by_norm") or clip.output("Out") == [name]:
            continue
        own = block.create_var(name=f"{name}_clipped")
        with block.inserting_before(total):
            block.append_op(clip.type, {"X": name}, {"Out": own}, {**clip.attrs, **keeping(clip)})
        swap_in(clip, total.type, {"X": own}, {**total.attrs, **keeping(clip)})
        if not readers(block, name, total):
            block.remove(total)
        changed = True
    return changed
