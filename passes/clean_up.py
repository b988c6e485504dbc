"""Leave out operators that change nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from minigraph.ir import Block, Operator, Program
from minigraph.opdef import EMPTY
from minigraph.passes.base import Pass
from minigraph.passes.rewriting import Value, Values, redirect
from minigraph.types import DType

_MAKE_ROWS = frozenset({"assign", "assign_value", "fill_constant", "mul", "mul_grad"})
"""Operators whose results lie row by row in memory, whatever they are given."""

_KEEP_ROWS = frozenset({
    "abs", "abs_grad", "cast", "clip", "clip_grad", "concat", "concat_grad", "cross_entropy", "cross_entropy_grad",
    "elementwise_add", "elementwise_add_grad", "elementwise_div", "elementwise_div_grad", "elementwise_max",
    "elementwise_max_grad", "elementwise_min", "elementwise_min_grad", "elementwise_mul", "elementwise_mul_grad",
    "elementwise_sub", "elementwise_sub_grad", "exp", "exp_grad", "increment", "log", "log_grad", "log_softmax",
    "log_softmax_grad", "matmul", "matmul_grad", "mean", "mean_grad", "reduce_mean", "reduce_mean_grad", "reduce_sum",
    "reduce_sum_grad", "relu", "relu_grad", "reshape2", "reshape2_grad", "scale", "sigmoid", "sigmoid_grad", "softmax",
    "softmax_grad", "softmax_with_cross_entropy", "softmax_with_cross_entropy_grad", "sqrt", "sqrt_grad", "square",
    "square_grad", "sum", "tanh", "tanh_grad",
})  # fmt: skip
"""Operators whose results lie row by row if all that they read does."""

_RESHAPES = ("reshape2", "reshape2_grad")
_TRANSPOSES = ("transpose2", "transpose2_grad")


@dataclass(frozen=True)
class CleanUp(Pass):
    """Let readers of a copy read the original, where nothing can tell them apart.

    Copies are the results of ``assign``, of ``scale`` by 1 without bias, of ``cast`` to the same type, of ``sum`` of
    one tensor, of a reshape to the same shape and of transposes that cancel, and the gradient that an addition or
    subtraction passes on as it is. A reshape of a reshape reads what the first one does.

    Law: every value keeps its bits, NaN and -0.0 included; adding a bias of 0 is left alone where it turns -0.0 into
    0.0. Sums round differently over another layout in memory, so a copy that may change the layout is only left out
    if the original lies row by row, as what is fed and what the scope holds are taken to. Persistable variables are
    written as before.
    """

    def apply(self, program: Program) -> bool:
        block = program.global_block()
        if not any(_may_go(op, block) for op in block.ops):
            return False
        values, rows = Values(program), _Rows()
        original: dict[Value, Value] = {}
        changed = False
        for op in program.global_block().ops:
            changed |= _read_originals(op, values, original)
            if op.type in _RESHAPES:
                changed |= _skip_reshape(op, values, rows)
            rows.note(op, values)
            source = _copied(op, values, rows)
            if source is not None:
                original[values.written(op.output_arg_names[0], op)] = source
            elif op.type in _PASS_ON:
                original.update(_passed_on(op, values, rows))
        return changed


def _read_originals(op: Operator, values: Values, original: dict[Value, Value]) -> bool:
    names: dict[str, str] = {}
    for name in () if op.definition.has_hidden_names else op.input_arg_names:
        source = original.get(values.read(name, op))
        if source is not None and values.is_there(source, op):
            names[name] = source[0]
    redirect(op, names)
    return bool(names)


class _Rows:
    """Which values surely lie row by row in memory."""

    def __init__(self) -> None:
        self._known: set[Value] = set()

    def holds(self, value: Value) -> bool:
        return value[1] == 0 or value in self._known

    def note(self, op: Operator, values: Values) -> None:
        if op.type in _MAKE_ROWS or (
            op.type in _KEEP_ROWS and all(self.holds(values.read(name, op)) for name in op.input_arg_names)
        ):
            self._known.update(values.written(name, op) for name in op.output_arg_names)


def _copied(op: Operator, values: Values, rows: _Rows) -> Value | None:
    """The value that the first output of `op` is a copy of."""
    if not op.output_arg_names:
        return None
    if op.type in _TRANSPOSES:
        return _before_transposes(op, values)
    if op.type in _RESHAPES:
        shape = _shape(op, "in", values)
        is_same = shape is not None and shape == _shape(op, "out", values)
        return values.input(op, _slot(op)) if is_same else None
    if op.type not in _COPIES or not _COPIES[op.type](op):
        return None
    source = values.input(op, "X")
    dtype = values.block.vars[source[0]].dtype
    # The kernel leaves a bias of 0 out only behind the product, and for float16 not even there.
    if op.type == "scale" and dtype.is_floating and (dtype is DType.FP16 or not op.attr("bias_after_scale")):
        return None
    return source if rows.holds(source) else None


_PASS_ON = {"elementwise_add_grad": ("X", "Y"), "elementwise_sub_grad": ("X",)}
"""Operands whose gradient is the one that flows in, where none was repeated."""


def _passed_on(op: Operator, values: Values, rows: _Rows) -> dict[Value, Value]:
    """The gradients that are copies of the one that flows in."""
    source = values.input(op, "Out@GRAD")
    shape = values.block.vars[source[0]].shape
    if shape is None or -1 in shape or not rows.holds(source):
        return {}
    grads = [name for slot in _PASS_ON[op.type] for name in op.outputs.get(f"{slot}@GRAD", ()) if name != EMPTY]
    return {values.written(name, op): source for name in grads if values.block.vars[name].shape == shape}


_COPIES: dict[str, Callable[[Operator], bool]] = {
    "assign": lambda op: True,
    "cast": lambda op: op.attr("in_dtype") == op.attr("out_dtype"),
    "scale": lambda op: "ScaleTensor" not in op.inputs and op.attr("scale") == 1 and op.attr("bias") == 0,
    "sum": lambda op: len(op.inputs["X"]) == 1,
}


def _may_go(op: Operator, block: Block) -> bool:
    """Whether `op` may be left out, as far as one can tell without a look at what it reads."""
    if op.type in _PASS_ON:
        shape = block.vars[op.inputs["Out@GRAD"][0]].shape
        return any(name != EMPTY and block.vars[name].shape == shape for name in op.output_arg_names)
    return op.type in _RESHAPES or op.type in _TRANSPOSES or (op.type in _COPIES and _COPIES[op.type](op))


def _slot(op: Operator) -> str:
    """Where a reshape or transpose, forward or backward, reads what it rearranges."""
    return "X" if "X" in op.inputs else "Out@GRAD"


def _shape(op: Operator, side: str, values: Values) -> tuple[int, ...] | None:
    """Shape of what is rearranged or of the result, None unless it is known."""
    name = op.inputs[_slot(op)][0] if side == "in" else op.output_arg_names[0]
    shape = values.block.vars[name].shape
    return None if shape is None or -1 in shape else shape


def _permutation(op: Operator) -> Sequence[int]:
    axis = op.attr("axis")
    return axis if op.type == "transpose2" else sorted(range(len(axis)), key=axis.__getitem__)


def _before_transposes(op: Operator, values: Values) -> Value | None:
    """What `op`, or the transpose before it and `op` together, leave as it is; views all, their strides are equal."""
    last, source = _permutation(op), values.input(op, _slot(op))
    if list(last) == sorted(last):
        return source
    before = values.maker(source, *_TRANSPOSES)
    if before is None or not _makes_first(before, source):
        return None
    first = _permutation(before)
    return values.input(before, _slot(before)) if [first[i] for i in last] == sorted(last) else None


def _makes_first(op: Operator, value: Value) -> bool:
    """Whether `value` is what `op` rearranges, and not the note of its shape."""
    return op.outputs.get("Out", op.outputs.get("X@GRAD", ("",)))[0] == value[0]


def _skip_reshape(op: Operator, values: Values, rows: _Rows) -> bool:
    """Let a reshape read what the reshape before it reads, unless its gradient needs the shape in between."""
    middle, wanted = values.input(op, _slot(op)), _shape(op, "out", values)
    before = values.maker(middle, *_RESHAPES)
    if before is None or not _makes_first(before, middle) or wanted is None or len(op.inputs) > 2:
        return False
    source = values.input(before, _slot(before))
    if not rows.holds(source) or not values.is_there(source, op):
        return False
    if op.type == "reshape2":
        noted = op.outputs.get("XShape", ())
        if len(op.inputs) > 1 or 0 in wanted or any(_is_read(values, name, op) for name in noted):
            return False
        op.set_attr("shape", wanted)
    redirect(op, {middle[0]: source[0]})
    return True


def _is_read(values: Values, name: str, op: Operator) -> bool:
    value = values.written(name, op)
    return bool(values.readers[value]) or values.outlives(value)
