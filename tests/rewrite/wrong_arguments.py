"""More wrong passes: each rests on an argument that sounds right and is not."""

from __future__ import annotations

from wrong_passes import WRONG, is_plain_pair, keeping, ops_of, readers, rewire, swap_in, writer, wrong

from minigraph.ir import Role
from minigraph.types import DType

__all__ = ["WRONG"]


def is_private(op, slot="Out"):
    """Whether a result has a name of its own, which is neither fetched nor persistable nor read by a sub-block."""
    block, name = op.block, op.output(slot)[0]
    writers = [each for each in block.ops if name in each.output_arg_names]
    is_taken = name in (block.program.roots or ()) or block.vars[name].persistable or block.program.num_blocks > 1
    return writers == [op] and not is_taken


# Arithmetic


@wrong
def root_undoes_the_square(program):
    """``sqrt(x * x)`` is the magnitude of x."""
    changed = False
    for first, op in is_plain_pair(program, "sqrt", "square"):
        swap_in(op, "assign", {"X": first.input("X")}, keeping(op))
        first.block.remove(first)
        changed = True
    return changed


@wrong
def exponents_are_multiplied(program):
    """``(x ** a) ** b`` is ``x ** (a * b)`` for positive numbers only."""
    changed = False
    for first, op in is_plain_pair(program, "pow", "pow"):
        if first.inputs.get("FactorTensor") or op.inputs.get("FactorTensor"):
            continue
        factor = first.attr("factor") * op.attr("factor")
        swap_in(op, "pow", {"X": first.input("X")}, {"factor": factor, **keeping(op)})
        first.block.remove(first)
        changed = True
    return changed


exponents_are_multiplied.changes_rounding = True


@wrong
def not_less_is_greater_or_equal(program):
    """A comparison with NaN is false, and its negation true."""
    changed = False
    for first, op in is_plain_pair(program, "logical_not", "less_than"):
        swap_in(op, "greater_equal", dict(first.inputs), {"axis": first.attr("axis"), **keeping(op)})
        first.block.remove(first)
        changed = True
    return changed


@wrong
def addition_of_zero_is_left_out(program):
    """``-0.0 + 0.0`` is ``0.0``, and the zeros may have the larger shape."""
    changed = False
    for op in ops_of(program, "elementwise_add"):
        zero = writer(op.block, op.input("Y")[0], op)
        if zero is not None and zero.type == "fill_constant" and zero.attr("value") == 0.0:
            swap_in(op, "assign", {"X": op.input("X")}, keeping(op))
            changed = True
    return changed


@wrong
def scale_before_the_cast(program):
    """A cast to whole numbers cuts digits that a factor would have moved in front of the point."""
    changed = False
    for first, op in is_plain_pair(program, "scale", "cast"):
        block = op.block
        is_number = block.vars[first.input("X")[0]].dtype is not DType.BOOL
        if is_number and op.attr("bias") == 0.0 and not op.inputs.get("ScaleTensor"):
            with block.inserting_before(op):
                early = block.create_var(name=f"{op.output('Out')[0]}_early")
                block.append_op("scale", {"X": first.input("X")}, {"Out": early}, {**op.attrs, **keeping(op)})
            swap_in(op, "cast", {"X": early}, {**first.attrs, **keeping(op)})
            block.remove(first)
            changed = True
    return changed


@wrong
def scale_inside_of_a_clip(program):
    """``clip(x) * c`` is not ``clip(x * c)``: the bounds are scaled, too."""
    changed = False
    for first, op in is_plain_pair(program, "scale", "clip"):
        if op.inputs.get("ScaleTensor") or first.inputs.get("Min") or first.inputs.get("Max"):
            continue
        block = op.block
        with block.inserting_before(op):
            early = block.create_var(name=f"{op.output('Out')[0]}_early")
            block.append_op("scale", {"X": first.input("X")}, {"Out": early}, {**op.attrs, **keeping(op)})
        swap_in(op, "clip", {"X": early}, {**first.attrs, **keeping(op)})
        block.remove(first)
        scale_inside_of_a_clip(program)  # there may be another one before
        return True
    return changed


@wrong
def parts_that_are_added_twice(program):
    """A sum that names a value twice is written as if it named it once."""
    found = [op for op in ops_of(program, "sum") if len(set(op.input("X"))) < len(op.input("X"))]
    for op in found:
        op.set_input("X", list(dict.fromkeys(op.input("X"))))
    return bool(found)


@wrong
def default_epsilon(program):
    """The ``epsilon`` of a normalization is dropped with the other attributes."""
    found = [op for op in ops_of(program, "layer_norm") if abs(op.attr("epsilon") - 1e-5) > 1e-9]
    for op in found:
        op.set_attr("epsilon", 1e-5)
    return bool(found)


@wrong
def sums_run_the_other_way(program):
    """``reverse`` and ``exclusive`` of a running sum are dropped."""
    found = [op for op in ops_of(program, "cumsum") if op.attr("reverse") or op.attr("exclusive")]
    for op in found:
        op.set_attr("reverse", False)
        op.set_attr("exclusive", False)
    return bool(found)


# Shapes


@wrong
def joins_are_flattened(program):
    """A join of joins is one join only along the same dimension."""
    changed = False
    for op in ops_of(program, "concat"):
        for name in op.input("X"):
            inner = writer(op.block, name, op)
            if inner is None or inner.type != "concat" or not is_private(inner) or inner.inputs.get("AxisTensor"):
                continue
            given = op.input("X")
            parts = inner.input("X")
            if any(part in each.output_arg_names for part in parts for each in op.block.ops[inner.idx : op.idx]):
                continue
            if len(given) == 1:
                continue
            at = given.index(name)
            op.set_input("X", [*given[:at], *parts, *given[at + 1 :]])
            changed = True
            break
    return changed


@wrong
def transposes_are_all_of_the_last_dimensions(program):
    """A product that transposes its operand takes the place of any permutation."""
    changed = False
    for op in ops_of(program, "matmul"):
        first = writer(op.block, op.input("X")[0], op)
        if first is None or first.type != "transpose2":
            continue
        given = first.input("X")[0]
        shape = op.block.vars[given].shape
        if (*shape[:-2], shape[-1], shape[-2]) != op.block.vars[op.input("X")[0]].shape:
            continue
        if any(given in each.output_arg_names for each in op.block.ops[first.idx : op.idx]):
            continue
        op.set_input("X", [given])
        op.set_attr("transpose_X", not op.attr("transpose_X"))
        changed = True
    return changed


@wrong
def unknown_sizes_are_one(program):
    """A reduction over a dimension of unknown size is taken for one of size 1."""
    changed = False
    for op in ops_of(program, "reduce_sum", "reduce_max", "reduce_mean"):
        shape = op.block.vars[op.input("X")[0]].shape
        if op.attr("reduce_all") or not op.attr("keep_dim"):
            continue
        if all(abs(shape[axis]) == 1 for axis in op.attr("dim")):
            swap_in(op, "assign", {"X": op.input("X")}, keeping(op))
            changed = True
    return changed


# Sequences


@wrong
def softmax_of_a_sequence_is_one_of_all_rows(program):
    """Rows of all sequences are normalized together."""
    found = ops_of(program, "sequence_softmax")
    for op in found:
        swap_in(op, "softmax", {"X": op.input("X")}, {"axis": 0, **keeping(op)})
    return bool(found)


@wrong
def sequences_have_one_order(program):
    """A reversal inside of each sequence is taken for one of all rows, and the two cancel."""
    found = ops_of(program, "sequence_reverse")
    for op in found:
        block = op.block
        with block.inserting_before(op):
            turned = block.create_var(name=f"{op.output('Y')[0]}_turned")
            block.append_op("reverse", {"X": op.input("X")}, {"Out": turned}, {"axis": [0], **keeping(op)})
            block.append_op("lod_reset", {"X": turned, "Y": op.input("X")}, {"Out": op.output("Y")}, keeping(op))
        block.remove(op)
    return bool(found)


# Sub-blocks, state and random numbers


@wrong
def constants_leave_the_loop(program):
    """What reads nothing that the body writes moves in front of a loop, although the body overwrites its result."""
    changed = False
    for loop in ops_of(program, "while", "conditional_block"):
        inner = loop.sub_block
        written = {name for op in inner.ops for name in op.output_arg_names}
        for op in inner.ops[:]:
            outside = all(name not in inner.vars for name in op.input_arg_names)
            if op.definition.has_hidden_names or not outside or written & set(op.input_arg_names):
                continue
            if op.type not in ("fill_constant", "scale", "tanh", "relu", "increment", "uniform_random", "assign"):
                continue
            for name in op.output_arg_names:
                if name in inner.vars and name not in program.global_block().vars:
                    var = inner.vars.pop(name)
                    program.global_block().create_var(name=name, shape=var.shape, dtype=var.dtype)
            with loop.block.inserting_before(loop):
                loop.block.append_op(op.type, op.inputs, op.outputs, {**op.attrs, **keeping(op)})
            inner.remove(op)
            changed = True
    return changed


@wrong
def names_are_replaced_in_one_block(program):
    """Copies are read at their source, but a sub-block still reads the copy, which is gone."""
    changed = False
    for op in ops_of(program, "assign"):
        block, name = op.block, op.output("Out")[0]
        writers = [each for each in block.ops if name in each.output_arg_names]
        given = op.input("X")[0]
        if block.vars[name].persistable or name in (program.roots or ()) or writers != [op] or given == name:
            continue
        if any(given in each.output_arg_names for each in block.ops[op.idx :]):
            continue
        for other in readers(block, name, op):
            if name in [each for names in other.inputs.values() for each in names]:
                other.replace_input(name, given)
        block.remove(op)
        changed = True
    return changed


@wrong
def counters_count_once(program):
    """Two equal increments of a counter are taken for one."""
    seen, changed = set(), False
    for op in ops_of(program, "increment"):
        key = tuple(op.input("X")), tuple(op.output("Out")), op.attr("step")
        if key in seen and op.input("X") == op.output("Out"):
            op.block.remove(op)
            changed = True
        seen.add(key)
    return changed


@wrong
def dropout_in_a_test_is_left_out(program):
    """``downgrade_in_infer`` scales in a test."""
    found = [op for op in ops_of(program, "dropout") if op.attr("is_test")]
    found = [op for op in found if not any(readers(op.block, name, op) for name in op.output("Mask"))]
    for op in found:
        swap_in(op, "assign", {"X": op.input("X")}, keeping(op))
    return bool(found)


@wrong
def fetched_twice(program):
    """Equal values get one name, of which both were fetched."""
    block, seen, changed = program.global_block(), {}, False
    for op in ops_of(program, "scale", "tanh", "relu", "square"):
        key = op.type, op.input("X")[0], str(sorted(op.attrs.items()))
        if key in seen and program.num_blocks == 1 and seen[key].output("Out") != op.output("Out"):
            old, new = op.output("Out")[0], seen[key].output("Out")[0]
            if not block.vars[old].persistable:
                rewire(op, old, new)
                block.remove(op)
                program.roots = tuple(dict.fromkeys(new if name == old else name for name in program.roots or ()))
                fetched_twice(program)
                return True
        seen[key] = op
    return changed


# Training


@wrong
def velocities_are_shared(program):
    """Parameters of one shape get one velocity."""
    seen, changed = {}, False
    for op in ops_of(program, "momentum"):
        if not op.role & Role.OPTIMIZE:
            continue
        name = op.input("Velocity")[0]
        shape = op.block.vars[name].shape
        first = seen.setdefault(shape, name)
        if first != name:
            op.set_input("Velocity", [first])
            op.set_output("VelocityOut", [first])
            changed = True
    return changed


@wrong
def beta_powers_stand_still(program):
    """Powers of the betas are not multiplied any more."""
    found = [op for op in ops_of(program, "scale") if op.role & Role.OPTIMIZE and "pow_acc" in op.output("Out")[0]]
    for op in found:
        op.block.remove(op)
    changed = bool(found)
    for op in ops_of(program, "adam"):
        if op.attr("epsilon") != 0.5:
            op.set_attr("epsilon", 0.5)
            changed = True
    return changed


@wrong
def rates_of_single_parameters(program):
    """All updates read the learning rate of the first one."""
    updates, changed = ops_of(program, "sgd", "momentum", "adam"), False
    updates = [op for op in updates if op.role & Role.OPTIMIZE]
    for op in updates[1:]:
        if op.input("LearningRate") != updates[0].input("LearningRate"):
            op.set_input("LearningRate", updates[0].input("LearningRate"))
            changed = True
    return changed


@wrong
def partial_gradients_are_left_out(program):
    """Of the gradients of a value that is used twice the first one is kept."""
    found = [op for op in ops_of(program, "sum") if op.role & Role.BACKWARD and len(op.input("X")) > 1]
    for op in found:
        swap_in(op, "assign", {"X": op.input("X")[:1]}, keeping(op))
    return bool(found)


@wrong
def ignored_labels_count(program):
    """``ignore_index`` is dropped where softmax and cross entropy are fused."""
    found = [op for op in ops_of(program, "softmax_with_cross_entropy") if op.attr("ignore_index") != -100]
    for op in found:
        op.set_attr("ignore_index", -100)
    return bool(found)


@wrong
def statistics_are_not_kept(program):
    """A normalization in training is taken for one in a test, which leaves the running statistics alone."""
    found = [op for op in ops_of(program, "batch_norm") if not op.attr("is_test") and not op.attr("use_global_stats")]
    for op in found:
        op.set_attr("use_global_stats", True)
    return bool(found)
