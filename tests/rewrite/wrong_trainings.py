"""Wrong passes that keep every value, and change how a program trains when gradients are appended later."""

from wrong_passes import ops_of, readers, wrong
from wrong_readers import WRONG

from minigraph import unique_name
from minigraph.ir import Parameter

__all__ = ["LATER", "WRONG"]

LATER = []
"""Names of the passes."""


def later(apply):
    LATER.append(apply.__name__)
    return wrong(apply)


def _is_once(op, name):
    return sum(name in each.output_arg_names for each in op.block.ops) == 1


def _own_output(op, name, **fields):
    """Let an operator write a new variable, which later operators read; False if the old one must stay."""
    block, (old,) = op.block, op.output("Out")
    followers = readers(block, old, op)
    roots = block.program.roots
    if roots is None or old in roots or not followers or not _is_once(op, old) or block.program.num_blocks > 1:
        return False
    var = block.vars[old]
    if var.persistable:
        return False
    new = block.create_var(name=name, shape=var.shape, dtype=var.dtype, lod_level=var.lod_level, **fields)
    op.set_output("Out", [new.name])
    for each in followers:
        each.replace_input(old, new.name)
    return True


@later
def copies_that_stop_gradients_are_left_out(program):
    """Readers of a copy with ``stop_gradient`` read its source, through which gradients flow."""
    changed = False
    for op in ops_of(program, "assign"):
        (source,), (copy,) = op.input("X"), op.output("Out")
        block, roots = op.block, program.roots
        if roots is None or copy in roots or not (_is_once(op, copy) and block.vars[copy].stop_gradient):
            continue
        if program.num_blocks > 1 or block.vars[copy].persistable or source == copy:
            continue
        if sum(source in each.output_arg_names for each in block.ops) > 1 or block.vars[source].persistable:
            continue
        for each in readers(block, copy, op):
            each.replace_input(copy, source)
        block.remove(op)
        changed = True
    return changed


@later
def new_values_stop_gradients(program):
    """The variable that a pass makes has ``stop_gradient``, and the one in whose place it is had not."""
    changed = False
    for op in ops_of(program, "relu"):
        if not op.block.vars[op.output("Out")[0]].stop_gradient:
            changed = _own_output(op, unique_name.generate("relued"), stop_gradient=True) or changed
    return changed


@later
def values_are_called_gradients(program):
    """A forward value has the name that the gradient of an operand should get."""
    changed = False
    for op in ops_of(program, "tanh"):
        name = f"{op.input('X')[0]}@GRAD"
        if op.block.find_var(name) is None and op.output("Out") != op.input("X"):
            changed = _own_output(op, name) or changed
    return changed


@later
def probabilities_beside_a_loss_have_no_gradient(program):
    """The softmax is that of a ``softmax_with_cross_entropy``, whose gradient is that of the loss alone."""
    changed = False
    for loss in ops_of(program, "softmax_with_cross_entropy"):
        (x,), (p,) = loss.input("Logits"), loss.output("Softmax")
        for op in ops_of(program, "softmax"):
            if op.block is loss.block and op.input("X") == [x] and not op.attrs["axis"] - loss.attrs["axis"]:
                changed = _reads_instead(op, p, loss) or changed
    return changed


def _reads_instead(op, name, maker):
    """Let readers of a result read what another operator before has made."""
    block, (old,), ops = op.block, op.output("Out"), list(op.block.ops)
    if ops.index(maker) > ops.index(op) or block.program.num_blocks > 1 or block.program.roots is None:
        return False
    names = (old, name, *op.input_arg_names)
    if not all(sum(each in other.output_arg_names for other in ops) <= 1 for each in names):
        return False
    if old in block.program.roots or not readers(block, old, op) or block.vars[old].persistable:
        return False
    for each in readers(block, old, op):
        each.replace_input(old, name)
    block.remove(op)
    return True


@later
def parameters_are_read_through_a_constant_copy(program):
    """Operators read a copy of a parameter, and the copy stops the gradient."""
    block, changed = program.global_block(), False
    for param in [var for var in block.vars.values() if isinstance(var, Parameter) and var.trainable]:
        name = f"{param.name}.copy"
        ops = [op for op in block.ops if param.name in op.input_arg_names]
        if name in block.vars or not ops or any(param.name in op.output_arg_names for op in block.ops):
            continue
        if program.num_blocks > 1 or any(op.role for op in block.ops):
            continue
        copy = block.create_var(name=name, shape=param.shape, dtype=param.dtype, stop_gradient=True)
        with block.inserting_before(block.ops[0]):
            block.append_op("assign", {"X": param}, {"Out": copy})
        for op in ops:
            op.replace_input(param.name, name)
        changed = True
    return changed


@later
def equal_values_are_shared_whatever_stops_gradients(program):
    """Of two equal operators the second goes, although gradients flow through its result only."""
    changed = False
    for first in ops_of(program, "tanh", "relu", "sigmoid", "exp"):
        for op in ops_of(program, first.type):
            if op is not first and op._block is first._block is not None and op.inputs == first.inputs:
                changed = _reads_instead(op, first.output("Out")[0], first) or changed
    return changed
