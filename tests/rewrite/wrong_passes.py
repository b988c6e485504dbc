"""Passes that are wrong, each in a way that a pass may well be; `rewrite.check` finds a program for each.

A pass here is a function that changes a program in place and says whether it did.
"""

from __future__ import annotations

from collections.abc import Callable

from minigraph.ir import Program, Role
from minigraph.ir.type_inference import infer_outputs
from minigraph.passes.rewriting import is_random
from minigraph.types import DType

WRONG: dict[str, Callable[[Program], bool]] = {}


def wrong(apply):
    """Register a wrong pass; its docstring says what is wrong with it."""
    WRONG[apply.__name__] = apply
    return apply


def ops_of(program, *types):
    return [op for op in program.global_block().ops[:] if op.type in types]


def readers(block, name, after):
    """Operators after `after` that read a name."""
    position = after.idx
    return [op for op in block.ops[position + 1 :] if name in op.input_arg_names]


def writer(block, name, before):
    """The last operator before `before` that writes a name."""
    found = [op for op in block.ops[: before.idx] if name in op.output_arg_names]
    return found[-1] if found else None


def swap_in(op, type, inputs, attrs=None, **fields):
    """Put an operator in the place of `op`, without thinking of roles."""
    block = op.block
    with block.inserting_before(op):
        new = block.append_op(type, inputs, {"Out": op.output("Out")}, {**(attrs or {}), **fields})
    block.remove(op)
    return new


def keeping(op):
    """The role of an operator, for the one that replaces it."""
    return {"op_role": op.role, "op_role_var": op.role_vars, "op_namescope": op.namescope}


def rewire(op, old, new):
    """Let all that reads `old` after `op` read `new`; the next writer of `old` is not thought of."""
    for other in readers(op.block, old, op):
        other.replace_input(old, new)


def is_plain_pair(program, outer, inner):
    """Pairs of operators of which the second alone reads what the first writes; it is written once and not fetched."""
    block = program.global_block()
    for op in ops_of(program, outer):
        name = op.input("X")[0]
        first = writer(block, name, op)
        fetched = name in (program.roots or ())
        writers = [each for each in block.ops if name in each.output_arg_names]
        if first is not None and first.type == inner and len(writers) == 1 and not fetched:
            given = first.input("X")[0]
            between = block.ops[first.idx + 1 : op.idx]
            if len(readers(block, name, first)) == 1 and not any(given in each.output_arg_names for each in between):
                if block.vars[name].persistable or given == name:
                    continue
                yield first, op


# Arithmetic


@wrong
def product_with_zero_is_zero(program):
    """``x * 0`` is NaN where x is infinite."""
    found = [op for op in ops_of(program, "scale") if op.attr("scale") == 0.0 and op.attr("bias") == 0.0]
    for op in found:
        swap_in(op, "fill_zeros_like", {"X": op.input("X")}, keeping(op))
    return bool(found)


@wrong
def difference_with_itself_is_zero(program):
    """``x - x`` is NaN where x is infinite."""
    found = [op for op in ops_of(program, "elementwise_sub") if op.input("X") == op.input("Y")]
    for op in found:
        swap_in(op, "fill_zeros_like", {"X": op.input("X")}, keeping(op))
    return bool(found)


@wrong
def quotient_with_itself_is_one(program):
    """``x / x`` is NaN where x is 0."""
    found = [op for op in ops_of(program, "elementwise_div") if op.input("X") == op.input("Y")]
    for op in found:
        shape = op.block.vars[op.output("Out")[0]].shape
        if -1 in shape:
            return False
        dtype = op.block.vars[op.output("Out")[0]].dtype
        swap_in(op, "fill_constant", {}, {"shape": list(shape), "value": 1.0, "dtype": dtype}, **keeping(op))
    return bool(found)


@wrong
def relu_of_a_negation(program):
    """``relu(-x)`` is not ``-relu(x)``."""
    changed = False
    for first, op in is_plain_pair(program, "relu", "scale"):
        if first.attr("scale") < 0 and first.attr("bias") == 0.0:
            op.set_input("X", first.input("X"))
            swap_in(op, "relu", {"X": first.input("X")}, keeping(op))
            first.block.remove(first)
            changed = True
    return changed


@wrong
def subtraction_commutes(program):
    """``x - y`` is not ``y - x``; written for the order of names."""
    found = [
        op
        for op in ops_of(program, "elementwise_sub")
        if op.input("X") > op.input("Y")
        and op.block.vars[op.input("X")[0]].shape == op.block.vars[op.input("Y")[0]].shape
    ]
    for op in found:
        swap_in(op, "elementwise_sub", {"X": op.input("Y"), "Y": op.input("X")}, keeping(op))
    return bool(found)


@wrong
def addition_commutes_whatever_the_shapes(program):
    """The second operand is the one that is repeated: wrong broadcast."""
    found = [op for op in ops_of(program, "elementwise_add") if op.input("X") > op.input("Y")]
    for op in found:
        x, y = op.input("Y"), op.input("X")
        swap_in(op, "elementwise_add", {"X": x, "Y": y}, {**op.attrs, **keeping(op)})
    return bool(found)


@wrong
def axis_is_forgotten(program):
    """A broadcast along the first dimension is not one along the last."""
    found = [op for op in ops_of(program, "elementwise_add", "elementwise_mul") if op.attr("axis") == 0]
    for op in found:
        op.set_attr("axis", -1)
    return bool(found)


@wrong
def sums_are_associative(program):
    """``(a + b) + c`` rounds otherwise than ``a + (b + c)``, and the pass does not say that it changes the rounding."""
    changed = False
    for first, op in is_plain_pair(program, "elementwise_add", "elementwise_add"):
        block, (a, b, c) = op.block, (first.input("X"), first.input("Y"), op.input("Y"))
        shapes = {block.vars[name].shape for name in (*a, *b, *c)}
        if len(shapes) == 1 and a < b < c:
            block.remove(first)
            with block.inserting_before(op):
                inner = block.create_var(name=f"{first.output('Out')[0]}_inner")
                block.append_op("elementwise_add", {"X": b, "Y": c}, {"Out": inner}, keeping(first))
            swap_in(op, "elementwise_add", {"X": a, "Y": [inner.name]}, keeping(op))
            changed = True
    return changed


@wrong
def scales_are_multiplied_without_bias(program):
    """The bias of the inner ``scale`` is lost."""
    changed = False
    for first, op in is_plain_pair(program, "scale", "scale"):
        both = {"scale": first.attr("scale") * op.attr("scale"), "bias": op.attr("bias")}
        swap_in(op, "scale", {"X": first.input("X")}, {**both, **keeping(op)})
        first.block.remove(first)
        changed = True
    return changed


@wrong
def exponential_undoes_the_logarithm(program):
    """Not for negative numbers, and elsewhere only up to rounding."""
    changed = False
    for first, op in is_plain_pair(program, "exp", "log"):
        swap_in(op, "assign", {"X": first.input("X")}, keeping(op))
        first.block.remove(first)
        changed = True
    return changed


@wrong
def mean_by_sum(program):
    """The mean of nothing divides by zero, and elsewhere the rounding differs."""
    found = ops_of(program, "mean")
    for op in found:
        size = 1
        for dim in op.block.vars[op.input("X")[0]].shape:
            size *= dim
        factor = 1.0 / size
        whole = op.block.create_var(name=f"{op.output('Out')[0]}_whole")
        with op.block.inserting_before(op):
            op.block.append_op("reduce_sum", {"X": op.input("X")}, {"Out": whole}, {"reduce_all": True, **keeping(op)})
        swap_in(op, "scale", {"X": [whole.name]}, {"scale": factor, **keeping(op)})
    return bool(found)


@wrong
def clips_are_merged(program):
    """Intervals that do not meet have no common part."""
    changed = False
    for first, op in is_plain_pair(program, "clip", "clip"):
        bounds = max(first.attr("min"), op.attr("min")), min(first.attr("max"), op.attr("max"))
        swap_in(op, "clip", {"X": first.input("X")}, {"min": bounds[0], "max": bounds[1], **keeping(op)})
        first.block.remove(first)
        changed = True
    return changed


# Shapes and types


@wrong
def casts_cancel(program):
    """A cast to a narrower type and back loses digits."""
    changed = False
    for first, op in is_plain_pair(program, "cast", "cast"):
        block = op.block
        if block.vars[first.input("X")[0]].dtype == block.vars[op.output("Out")[0]].dtype:
            swap_in(op, "assign", {"X": first.input("X")}, keeping(op))
            block.remove(first)
            changed = True
    return changed


@wrong
def transposes_cancel(program):
    """A permutation need not be its own inverse."""
    changed = False
    for first, op in is_plain_pair(program, "transpose2", "transpose2"):
        if first.attr("axis") == op.attr("axis"):
            swap_in(op, "assign", {"X": first.input("X")}, keeping(op))
            first.block.remove(first)
            changed = True
    return changed


@wrong
def reshape_is_a_name(program):
    """Readers of a reshaped value read the value, whose shape is another."""
    found = [op for op in ops_of(program, "reshape2") if op.output("Out")[0] not in (program.roots or ())]
    found = [op for op in found if not any(readers(op.block, name, op) for name in op.output("XShape"))]
    for op in found:
        rewire(op, op.output("Out")[0], op.input("X")[0])
        op.block.remove(op)
    return bool(found)


@wrong
def concatenation_is_sorted(program):
    """The order of what is joined matters."""
    found = [op for op in ops_of(program, "concat") if list(op.input("X")) != sorted(op.input("X"))]
    for op in found:
        op.set_input("X", sorted(op.input("X")))
    return bool(found)


@wrong
def softmax_along_the_last_dimension(program):
    """The attribute ``axis`` is dropped."""
    found = [op for op in ops_of(program, "softmax") if op.attr("axis") not in (-1,)]
    for op in found:
        op.set_attr("axis", -1)
    return bool(found)


# Values and names


@wrong
def lost_fetch(program):
    """An ``assign`` is removed although its result is fetched."""
    found = ops_of(program, "assign")
    for op in found:
        if not op.block.vars[op.output("Out")[0]].persistable:
            rewire(op, op.output("Out")[0], op.input("X")[0])
            op.block.remove(op)
    return bool([op for op in found if op._block is None])


@wrong
def copy_of_what_is_overwritten(program):
    """An ``assign`` is removed although its source is written over before the copy is read."""
    changed = False
    for op in ops_of(program, "assign"):
        name = op.output("Out")[0]
        others = [each for each in op.block.ops if name in each.output_arg_names and each is not op]
        if name in (program.roots or ()) or op.block.vars[name].persistable or others or program.num_blocks > 1:
            continue
        rewire(op, name, op.input("X")[0])
        op.block.remove(op)
        changed = True
    return changed


@wrong
def common_subexpressions_by_name(program):
    """Two operators that read equal names need not read equal values."""
    block, seen, changed = program.global_block(), {}, False
    for op in block.ops[:]:
        if is_random(op.type) or op.role or len(op.output_arg_names) != 1 or op.definition.has_hidden_names:
            continue
        key = op.type, tuple(op.inputs.items()), tuple(sorted(map(str, op.attrs.items())))
        name = op.output_arg_names[0]
        writers = [each for each in block.ops if name in each.output_arg_names]
        if len(writers) != 1 or name in (program.roots or ()) or block.vars[name].persistable:
            continue
        if key in seen and program.num_blocks == 1:
            rewire(op, name, seen[key])
            block.remove(op)
            changed = True
        elif program.num_blocks == 1:
            seen[key] = name
    return changed


@wrong
def random_numbers_are_shared(program):
    """Two draws are two values."""
    block, seen, changed = program.global_block(), {}, False
    for op in ops_of(program, "uniform_random", "gaussian_random", "dropout"):
        key = op.type, tuple(op.inputs.items()), tuple(sorted(map(str, op.attrs.items())))
        name = op.output("Out")[0]
        if key in seen and len(op.output_arg_names) == len(seen[key].output_arg_names):
            for old, new in zip(op.output_arg_names, seen[key].output_arg_names, strict=True):
                if old != new:
                    with block.inserting_before(op):
                        block.append_op("assign", {"X": new}, {"Out": old}, keeping(op))
            block.remove(op)
            changed = True
        elif len([each for each in block.ops if name in each.output_arg_names]) == 1:
            seen[key] = op
    return changed


@wrong
def random_operators_are_reordered(program):
    """The generator gives its numbers in the order of the operators."""
    block = program.global_block()
    drawing = ops_of(program, "uniform_random", "gaussian_random", "randint", "randperm")
    plain = [op for op in drawing if not op.input_arg_names]
    if len(plain) < 2 or plain == sorted(plain, key=lambda op: op.output("Out")[0], reverse=True):
        return False
    ordered = sorted(plain, key=lambda op: op.output("Out")[0], reverse=True)
    first = block.ops[0]
    kept = [(op.type, dict(op.outputs), {**op.attrs, **keeping(op)}) for op in ordered]
    for op in plain:
        if op is first:
            first = block.ops[1] if len(block.ops) > 1 else None
        block.remove(op)
    names = [outputs["Out"][0] for _, outputs, _ in kept]
    if first is not None and first._block is None:
        first = block.ops[0] if len(block.ops) else None
    for type, outputs, attrs in kept:
        if first is None:
            block.append_op(type, {}, outputs, attrs)
        else:
            with block.inserting_before(first):
                block.append_op(type, {}, outputs, attrs)
    return bool(names)


@wrong
def in_place_where_the_input_is_read_later(program):
    """A result is written over the input, which a later operator still reads."""
    changed = False
    for op in ops_of(program, "relu", "tanh", "sigmoid", "exp"):
        given, made = op.input("X")[0], op.output("Out")[0]
        block = op.block
        var = block.vars[given]
        if given == made or var.is_data or var.persistable or {given, made} & set(program.roots or ()):
            continue
        writers = [each for each in block.ops if made in each.output_arg_names]
        if len(writers) > 1 or block.vars[made].persistable or program.num_blocks > 1:
            continue
        rewire(op, made, given)
        op.set_output("Out", [given])
        changed = True
    return changed


@wrong
def dead_code_without_state(program):
    """What is persistable is a result, too."""
    block, wanted = program.global_block(), set(program.roots or ())
    dead = []
    for op in reversed(block.ops[:]):
        if wanted.isdisjoint(op.output_arg_names) and not op.definition.has_effect and not is_random(op.type):
            dead.append(op)
        else:
            wanted.update(op.input_arg_names)
    for op in dead:
        block.remove(op)
    return bool(dead)


@wrong
def dead_code_without_sub_blocks(program):
    """A sub-block reads values of the block around it."""
    block = program.global_block()
    wanted = set(program.roots or ()) | {name for name, var in block.vars.items() if var.persistable}
    dead = []
    for op in reversed(block.ops[:]):
        names = [name for given in op.outputs.values() for name in given]
        if wanted.isdisjoint(op.output_arg_names) and not is_random(op.type):
            dead.append(op)
        elif op.sub_block is None:
            wanted.update(op.input_arg_names)
        else:
            wanted.update(list(op.inputs.get("Cond", ())) + list(op.inputs.get("Condition", ())) + names)
    for op in dead:
        block.remove(op)
    return bool(dead)


@wrong
def dropout_is_left_out(program):
    """In training it is not neutral."""
    found = [op for op in ops_of(program, "dropout") if not op.attr("is_test")]
    found = [op for op in found if not any(readers(op.block, name, op) for name in op.output("Mask"))]
    for op in found:
        swap_in(op, "assign", {"X": op.input("X")}, keeping(op))
    return bool(found)


@wrong
def branches_are_always_taken(program):
    """The condition is folded to true."""
    changed = False
    for op in ops_of(program, "conditional_block"):
        block, condition = op.block, op.input("Cond")[0]
        with block.inserting_before(op):
            yes = block.create_var(name=f"{condition}_yes")
            block.append_op(
                "fill_constant", {}, {"Out": yes}, {"shape": [1], "dtype": int(DType.BOOL), "value": 1.0, **keeping(op)}
            )
        if not condition.endswith("_yes"):
            op.replace_input(condition, yes.name)
            changed = True
    return changed


# Training


@wrong
def fused_scales_drop_the_role(program):
    """The new operator has the role of the forward part."""
    changed = False
    for first, op in is_plain_pair(program, "scale", "scale"):
        if first.attr("bias") == op.attr("bias") == 0.0 and first.attr("scale") == 1.0 and op.role:
            swap_in(op, "scale", {"X": first.input("X")}, dict(op.attrs))
            first.block.remove(first)
            changed = True
    return changed


@wrong
def updates_drop_the_role(program):
    """An update without its role also runs in a clone for a test."""
    found = [op for op in ops_of(program, "sgd") if op.role]
    for op in found:
        with op.block.inserting_before(op):
            op.block.append_op("sgd", op.inputs, op.outputs, {**op.attrs, "op_role_var": op.role_vars})
        op.block.remove(op)
    return bool(found)


@wrong
def updates_drop_their_role_vars(program):
    """Optimizers and clips look for gradients by ``role_vars``."""
    found = [op for op in program.global_block().ops[:] if "Grad" in op.inputs and op.role_vars]
    for op in found:
        op.role_vars = ()
    return bool(found)


@wrong
def clip_over_decay(program):
    """The decay is clipped as well."""
    block, changed = program.global_block(), False
    for total in ops_of(program, "sum"):
        if not total.role & Role.REGULARIZE or len(total.input("X")) != 2:
            continue
        clipped = total.input("X")[0]
        clip = writer(block, clipped, total)
        if clip is None or clip.type != "clip_by_norm":
            continue
        raw, out = clip.input("X")[0], total.output("Out")[0]
        inner = block.create_var(name=f"{out}_unclipped")
        total.set_input("X", [raw, *total.input("X")[1:]])
        total.set_output("Out", [inner])
        following = block.ops[total.idx + 1]
        with block.inserting_before(following):
            infer_outputs(total, block)
            block.append_op("clip_by_norm", {"X": inner}, {"Out": out}, {**clip.attrs, **keeping(clip)})
        changed = True
    return changed


@wrong
def clip_over_a_sum(program):
    """Parts of a gradient are clipped, and then added: the norm of a sum is not the sum of norms."""
    block, changed = program.global_block(), False
    for clip in ops_of(program, "clip_by_norm", "clip"):
        name = clip.input("X")[0]
        total = writer(block, name, clip)
        if total is None or total.type != "sum" or len(total.input("X")) < 2 or name in clip.output("Out"):
            continue
        if any(part in each.output_arg_names for part in total.input("X") for each in block.ops[total.idx : clip.idx]):
            continue
        parts = []
        with block.inserting_before(clip):
            for number, part in enumerate(total.input("X")):
                small = block.create_var(name=f"{part}_part_{number}_of_{clip.output('Out')[0]}")
                block.append_op(clip.type, {"X": part}, {"Out": small}, {**clip.attrs, **keeping(clip)})
                parts.append(small.name)
            block.append_op("sum", {"X": parts}, {"Out": clip.output("Out")}, keeping(clip))
        block.remove(clip)
        changed = True
    return changed


@wrong
def a_gradient_without_its_clip(program):
    """The update reads the gradient before the clip."""
    changed = False
    for op in program.global_block().ops[:]:
        if "Grad" in op.inputs and op.role & Role.OPTIMIZE:
            clip = writer(op.block, op.input("Grad")[0], op)
            if clip is not None and clip.type in ("clip_by_norm", "clip") and clip.input("X") != clip.output("Out"):
                op.set_input("Grad", clip.input("X"))
                changed = True
    return changed


@wrong
def updates_before_the_last_gradient(program):
    """An update moves to where its parameter's gradient is first written, before others have read the parameter."""
    block, changed = program.global_block(), False
    for op in ops_of(program, "sgd", "momentum"):
        grad = op.input("Grad")[0]
        first = next((each for each in block.ops if grad in each.output_arg_names), None)
        if first is None or first is op:
            continue
        following = block.ops[first.idx + 1]
        outside = {name for slot in ("Param", "LearningRate", "Velocity") for name in op.inputs.get(slot, ())}
        made = {name for each in block.ops[first.idx : op.idx] for name in each.output_arg_names}
        if following is op or outside & made:
            continue
        with block.inserting_before(following):
            block.append_op(op.type, op.inputs, op.outputs, {**op.attrs, **keeping(op)})
        block.remove(op)
        changed = True
    return changed


@wrong
def momentum_is_sgd(program):
    """The velocity is forgotten."""
    found = ops_of(program, "momentum")
    for op in found:
        inputs = {slot: op.input(slot) for slot in ("Param", "Grad", "LearningRate")}
        with op.block.inserting_before(op):
            op.block.append_op("sgd", inputs, {"ParamOut": op.output("ParamOut")}, keeping(op))
        op.block.remove(op)
    return bool(found)


@wrong
def global_norm_of_all_but_one(program):
    """A gradient is left out of a global norm."""
    found = [
        op
        for op in ops_of(program, "sum")
        if op.role & Role.CLIP and len(op.input("X")) > 2 and len(op.output("Out")) == 1
    ]
    for op in found:
        op.set_input("X", op.input("X")[:2])
    return bool(found)


@wrong
def recomputed_after_the_update(program):
    """A forward value is computed late, from a parameter that has been updated since: stale the other way round."""
    block = program.global_block()
    updates = [op for op in block.ops if "ParamOut" in op.outputs]
    changed = False
    for op in ops_of(program, "scale", "tanh", "relu", "square"):
        if op.role or not updates or op.idx > updates[-1].idx or op is block.ops[-1]:
            continue
        name = op.output("Out")[0]
        if readers(block, name, op) or [each for each in block.ops if name in each.output_arg_names] != [op]:
            continue
        block.append_op(op.type, op.inputs, op.outputs, {**op.attrs, **keeping(op)})
        block.remove(op)
        changed = True
    return changed


# What a pass says


@wrong
def says_nothing(program):
    """It changes the program and says that it did not."""
    found = ops_of(program, "relu")
    for op in found:
        op.namescope = "/seen/"
    return False


@wrong
def says_always(program):
    """It says that it changed what it left alone."""
    return bool(ops_of(program, "relu"))


@wrong
def never_ends(program):
    """Each time it adds another copy."""
    found = ops_of(program, "softmax")
    for op in found:
        block = op.block
        copy = block.create_var(name=f"{op.input('X')[0]}_copy_{len(block.vars)}")
        with block.inserting_before(op):
            block.append_op("assign", {"X": op.input("X")}, {"Out": copy}, keeping(op))
        op.set_input("X", [copy])
    return bool(found)


@wrong
def expects_an_input(program):
    """An operator without inputs has no first one."""
    return any(op.input_arg_names[0] == "" for op in program.global_block().ops)


@wrong
def forgets_the_readers(program):
    """It removes what others read."""
    found = [op for op in ops_of(program, "tanh") if op.output("Out")[0] not in (program.roots or ())]
    for op in found:
        op.block.remove(op)
    return bool(found)


@wrong
def constant_of_another_type(program):
    """A constant and its cast become one constant, of the type before the cast."""
    block, changed = program.global_block(), False
    for op in ops_of(program, "cast"):
        first, name = writer(block, op.input("X")[0], op), op.output("Out")[0]
        if first is None or first.type != "fill_constant" or op.input("X") == [name]:
            continue
        if sum(name in each.output_arg_names for each in block.ops) > 1:
            continue
        with block.inserting_before(op):
            block.vars[name].tensor_type = None
            block.append_op("fill_constant", {}, {"Out": name}, {**first.attrs, **keeping(op)})
        block.remove(op)
        changed = True
    return changed
