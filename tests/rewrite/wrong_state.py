"""More wrong passes: each overlooks what was written when, or how values are held."""

from __future__ import annotations

from itertools import pairwise

from wrong_arguments import WRONG, is_private
from wrong_passes import is_plain_pair, keeping, ops_of, readers, rewire, swap_in, wrong

from minigraph.ir import Role
from minigraph.passes.rewriting import is_random
from minigraph.types import DType

__all__ = ["WRONG"]


def moved(op, before):
    """Put a copy of an operator before another one, and take it away."""
    with before.block.inserting_before(before):
        before.block.append_op(op.type, op.inputs, op.outputs, {**op.attrs, **keeping(op)})
    op.block.remove(op)


@wrong
def state_is_written_before_it_is_read(program):
    """A write of what outlives the run moves in front of a reader of the old value."""
    for op in ops_of(program, "assign"):
        out, given, before = op.output("Out")[0], op.input("X")[0], op._prev
        if before is None or not op.block.vars[out].persistable or before.sub_block is not None:
            continue
        if out in before.input_arg_names and not {out, given} & set(before.output_arg_names):
            moved(op, before)
            return True
    return False


@wrong
def only_the_last_write_counts(program):
    """Of two writes of what outlives the run the first is dropped, although it is read in between."""
    block, changed = program.global_block(), False
    for name, var in block.vars.items():
        writers = [op for op in block.ops[:] if name in op.output_arg_names]
        if not var.persistable or len(writers) < 2 or len(writers[0].output_arg_names) > 1:
            continue
        if not is_random(writers[0].type) and name not in writers[1].input_arg_names:
            block.remove(writers[0])
            changed = True
    return changed


@wrong
def state_is_computed_with_once(program):
    """What is computed of a value that outlives the run is taken for the same after its next write."""
    block, seen, changed = program.global_block(), {}, False
    for op in ops_of(program, "scale", "square", "relu", "assign"):
        if not block.vars[op.input("X")[0]].persistable or not is_private(op):
            continue
        key = op.type, op.input("X")[0], tuple(sorted(map(str, op.attrs.items())))
        first = seen.setdefault(key, op)
        if first is not op:
            rewire(op, op.output("Out")[0], first.output("Out")[0])
            block.remove(op)
            changed = True
    return changed


@wrong
def the_first_writer_in_a_body_is_dropped(program):
    """A name that a body writes twice is taken for dead after the first write."""
    changed = False
    for block in program.blocks[1:]:
        seen = {}
        for op in block.ops[:]:
            for name in op.output_arg_names:
                first = seen.get(name)
                is_plain = first is not None and len(first.output_arg_names) == 1 and first.sub_block is None
                if is_plain and first._block is block and name not in op.input_arg_names and not is_random(first.type):
                    block.remove(first)
                    changed = True
                seen[name] = op
    return changed


@wrong
def the_body_runs_once(program):
    """The condition that a body computes is folded to false."""
    changed = False
    for op in ops_of(program, "while"):
        body, condition = op.sub_block, op.input("Condition")[0]
        for each in body.ops[:]:
            if condition in each.output_arg_names and each.type.startswith("less"):
                attrs = {"shape": [1], "dtype": int(DType.BOOL), "value": 0.0, **keeping(each)}
                with body.inserting_before(each):
                    body.append_op("fill_constant", {}, {"Out": condition}, attrs)
                body.remove(each)
                changed = True
    return changed


@wrong
def branches_are_entered_early(program):
    """The first operator of a branch moves in front of it, although it writes an outer value."""
    changed = False
    for op in ops_of(program, "conditional_block"):
        outer, first = op.block, op.sub_block.ops.first
        if first is None or first.sub_block is not None or is_random(first.type):
            continue
        if all(outer.find_var(name) is not None for name in (*first.input_arg_names, *first.output_arg_names)):
            moved(first, op)
            changed = True
    return changed


@wrong
def recurrent_networks_run_forward(program):
    """The attribute ``reverse`` is dropped."""
    found = [op for op in ops_of(program, "recurrent") if op.attr("reverse")]
    for op in found:
        op.set_attr("reverse", False)
    return bool(found)


@wrong
def sequences_have_one_level(program):
    """The attribute ``ref_level`` is dropped: the innermost level decides."""
    found = [op for op in ops_of(program, "sequence_expand") if op.attr("ref_level") != -1]
    for op in found:
        op.set_attr("ref_level", -1)
    return bool(found)


@wrong
def gradients_of_a_table_are_shared(program):
    """Gradients of two lookups in one table read the same rows."""
    found, changed = ops_of(program, "lookup_table_grad", "lookup_table_v2_grad"), False
    for first, op in pairwise(found):
        shapes = {op.block.vars[each.input("Ids")[0]].shape for each in (first, op)}
        if first.input("W") == op.input("W") and first.input("Ids") != op.input("Ids") and len(shapes) == 1:
            op.set_input("Ids", first.input("Ids"))
            changed = True
    return changed


@wrong
def repeated_rows_are_not_merged(program):
    """Selected rows may have a row twice, which then counts as its sum."""
    found = ops_of(program, "merge_selected_rows")
    for op in found:
        swap_in(op, "assign", {"X": op.input("X")}, keeping(op))
    return bool(found)


@wrong
def every_row_is_updated(program):
    """The attribute ``lazy_mode`` is dropped: moments of rows without a gradient decay, too."""
    found = [op for op in ops_of(program, "adam") if op.attr("lazy_mode")]
    for op in found:
        op.set_attr("lazy_mode", False)
    return bool(found)


@wrong
def gradients_are_clipped_in_place(program):
    """The clipped gradient gets the name of the gradient, which is fetched or read elsewhere."""
    block, changed = program.global_block(), False
    for op in ops_of(program, "clip_by_norm", "clip"):
        grad, out = op.input("X")[0], op.output("Out")[0]
        if op.role & Role.CLIP and grad != out and is_private(op) and readers(block, out, op):
            rewire(op, out, grad)
            op.set_output("Out", [grad])
            changed = True
    return changed


@wrong
def products_are_widened_late(program):
    """A product of whole numbers is computed in a wider type: in the narrower one it wraps around."""
    changed = False
    for first, op in is_plain_pair(program, "cast", "elementwise_mul"):
        block, out = op.block, op.output("Out")[0]
        if (block.vars[first.input("X")[0]].dtype, block.vars[out].dtype) != (DType.INT32, DType.INT64):
            continue
        wide = {slot: block.create_var(name=f"{out}_{slot}") for slot in "XY"}
        with block.inserting_before(op):
            for slot, var in wide.items():
                block.append_op("cast", {"X": first.input(slot)}, {"Out": var}, {**op.attrs, **keeping(op)})
        swap_in(op, "elementwise_mul", wide, {**first.attrs, **keeping(op)})
        block.remove(first)
        changed = True
    return changed
