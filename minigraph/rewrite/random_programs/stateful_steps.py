"""Steps of random programs whose values depend on what was written when.

They have values that outlive a run, bodies that write a value several times, tables that are looked up twice, sequences
of sequences, and whole numbers of any size.
"""

from __future__ import annotations

from minigraph import layers
from minigraph.ir import Variable
from minigraph.layers.io import fluid_data as data
from minigraph.rewrite.random_programs.free_steps import CLASSES, FreeStep, Sources, Unfit, fitted, like, recurrent


def state(k: Sources, x: Variable, y: Variable, c: float) -> list[Variable]:
    """Read a persistable variable before it is written, and after each of one or two writes."""
    shape = x.shape
    if not x.dtype.is_floating or shape is None or -1 in shape:
        raise Unfit("no numbers of known shape")
    kept = layers.create_global_var(list(shape), 0.5, x.dtype.value, persistable=True, name=k.name("State"))
    made = [layers.elementwise_add(x, kept)]
    for written in (layers.tanh(like(x, y)), layers.scale(x, c))[: 1 + (c > 0)]:
        layers.assign(written, kept)
        made.append(layers.scale(kept, c))
    return made


def _written_twice(kept: Variable, other: Variable) -> None:
    """Write a value that is read, and write it again."""
    layers.assign(layers.tanh(kept) if kept.dtype.is_floating else layers.scale(kept, 2.0), kept)
    layers.assign(layers.elementwise_add(kept, other), kept)


def _with_copy(x: Variable, c: float) -> tuple[Variable, list[Variable]]:
    """A variable for a block to write, with now and then a copy of what it is before."""
    kept = layers.scale(x, 1.0)
    return kept, [layers.assign(kept)] if c >= 0.5 else []


def loop_in_place(k: Sources, x: Variable, y: Variable, c: float) -> list[Variable]:
    """A loop that changes outer values, its counter and its condition in place."""
    other = like(x, y)
    number, end = (layers.fill_constant([1], "int64", each) for each in (0, 1 + int(abs(c))))
    (kept, copies), goes_on = _with_copy(x, c), layers.less_than(number, end)
    with layers.While(goes_on).block():
        _written_twice(kept, other)
        layers.increment(number)
        layers.less_than(number, end, cond=goes_on)
    return [layers.assign(kept), *map(layers.assign, copies)]


def branch_on_numbers(k: Sources, x: Variable, y: Variable, c: float) -> list[Variable]:
    """A branch, taken for some numbers and not for others, that changes an outer value in place."""
    other, (kept, copies) = like(x, y), _with_copy(x, c)
    total = layers.reshape(layers.reduce_sum(layers.cast(x, "float32")), [1])
    with layers.Switch() as switch:
        with switch.case(layers.less_than(total, layers.fill_constant([1], "float32", c))):
            _written_twice(kept, other)
        with switch.default():
            layers.assign(other, kept)
    return [layers.assign(kept), *map(layers.assign, copies)]


def state_in_a_branch(k: Sources, x: Variable, y: Variable, c: float) -> Variable:
    """A branch, taken for some numbers and not for others, of which only what outlives the run shows the results."""
    if not x.dtype.is_floating or x.shape is None or -1 in x.shape:
        raise Unfit("no numbers of known shape")
    kept = layers.create_global_var(list(x.shape), 0.5, x.dtype.value, persistable=True, name=k.name("State"))
    total = layers.reshape(layers.reduce_sum(layers.cast(x, "float32")), [1])
    with layers.Switch() as switch, switch.case(layers.less_than(total, layers.fill_constant([1], "float32", c))):
        _written_twice(kept, like(x, y))
    return layers.assign(x)


def backward_recurrent(k: Sources, x: Variable, y: Variable, c: float) -> Variable:
    """A recurrent network that begins with the last step."""
    made = recurrent(k, x, y, c)
    next(op for op in reversed(made.block.ops) if op.type == "recurrent").set_attr("reverse", True)
    return made


def look_ups(k: Sources, x: Variable, y: Variable, c: float) -> list[Variable]:
    """Rows of one table for the labels, and for others."""
    others = layers.scale(k.label, -1.0, bias=CLASSES - 1.0)
    return k.look_ups((k.label, others), is_sparse=c > 0, table=k.name("Table"))


def nested_sequences(k: Sources, x: Variable, y: Variable, c: float) -> Variable:
    """Rows of `x`, repeated as often as sequences of sequences are long."""
    level = 0 if c > 0 else -1
    rows = fitted(x, [2 if level == 0 else 5, k.columns], k.dtype)
    outer = layers.lod_reset(k.fed(k.random.uniform(-1, 1, (5, 1)).astype(k.dtype)), target_lod=[0, 2, 5])
    return layers.sequence_expand(rows, layers.lod_append(outer, [0, 1, 1, 3, 4, 5]), ref_level=level)


_OF_WHOLE = (
    layers.elementwise_add, layers.elementwise_sub, layers.elementwise_mul, layers.elementwise_max,
    layers.elementwise_floordiv, layers.elementwise_mod,
)  # fmt: skip


def whole_numbers(k: Sources, x: Variable, y: Variable, c: float) -> list[Variable]:
    """Fed whole numbers, which may be negative or large, and what an operator makes of two of them."""
    dtype = "int32" if k.random.random() < 0.6 else "int64"
    one, other = (data(k.name("Whole"), [2, 3], dtype) for _ in range(2))
    return [one, other, _OF_WHOLE[int(k.random.integers(len(_OF_WHOLE)))](one, other)]


STATEFUL: dict[str, FreeStep] = {
    "backward_recurrent": backward_recurrent, "branch_on_numbers": branch_on_numbers, "look_ups": look_ups,
    "loop_in_place": loop_in_place, "nested_sequences": nested_sequences, "state": state,
    "state_in_a_branch": state_in_a_branch, "whole_numbers": whole_numbers,
}  # fmt: skip
"""Functions of two values and a number that append a step, by name."""

MADE_BY = {
    "backward_recurrent": {"recurrent"}, "branch_on_numbers": {"conditional_block"}, "loop_in_place": {"while"},
    "look_ups": {
        "lookup_table", "lookup_table_v2", "lookup_table_grad", "lookup_table_v2_grad", "merge_selected_rows",
        "lazy_mode",
    },
    "state": {"assign"}, "state_in_a_branch": {"conditional_block"},
    "nested_sequences": {"sequence_expand", "lod_reset"},
    "whole_numbers": {"elementwise_floordiv", "elementwise_mod", "elementwise_mul"},
}  # fmt: skip
"""Types of operators that each of them appends, and attributes that decide what others do with its results."""
