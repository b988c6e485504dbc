"""Remove reads of copies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TypeAlias

from minigraph.ir import Block, Operator, Program, infer_outputs
from minigraph.opdef import EMPTY
from minigraph.passes.base import Pass
from minigraph.passes.rewriting import redirect, stops_gradient
from minigraph.passes.values import Value, Values
from minigraph.support.sizes import are_equal

_MAKE_ROWS = frozenset({
    "assign", "assign_value", "fill_constant", "mul", "mul_grad", "slice_grad", "split", "stack_grad", "unstack",
})  # fmt: skip
"""Operators whose results lie row by row in memory for any input."""

_KEEP_ROWS = frozenset({
    "abs", "abs_grad", "brelu", "brelu_grad", "cast", "ceil", "clip", "clip_grad", "concat", "concat_grad", "cos",
    "cos_grad", "cross_entropy", "cross_entropy2", "cross_entropy_grad", "cross_entropy_grad2", "dropout",
    "dropout_grad", "elementwise_add", "elementwise_add_grad", "elementwise_div", "elementwise_div_grad",
    "elementwise_floordiv", "elementwise_max", "elementwise_max_grad", "elementwise_min", "elementwise_min_grad",
    "elementwise_mod", "elementwise_mul", "elementwise_mul_grad", "elementwise_pow", "elementwise_pow_grad",
    "elementwise_sub", "elementwise_sub_grad", "elu", "elu_grad", "equal", "erf", "erf_grad", "exp", "exp_grad",
    "expand", "expand_grad", "fill_any_like", "fill_constant_batch_size_like", "fill_zeros_like", "flatten2",
    "flatten2_grad", "floor", "gather", "gather_grad", "gelu", "gelu_grad", "greater_equal", "greater_than",
    "hard_shrink", "hard_shrink_grad", "hard_sigmoid", "hard_sigmoid_grad", "hard_swish", "hard_swish_grad",
    "huber_loss", "huber_loss_grad", "increment", "isfinite", "kldiv_loss", "kldiv_loss_grad", "label_smooth",
    "label_smooth_grad", "layer_norm", "layer_norm_grad", "leaky_relu", "leaky_relu_grad", "less_equal", "less_than",
    "log", "log1p", "log1p_grad", "log_grad", "log_loss", "log_loss_grad", "log_softmax", "log_softmax_grad",
    "logical_and", "logical_not", "logical_or", "logical_xor", "logsigmoid", "logsigmoid_grad", "lookup_table",
    "lookup_table_grad", "lookup_table_v2", "lookup_table_v2_grad", "margin_rank_loss", "margin_rank_loss_grad",
    "matmul", "matmul_grad", "mean", "mean_grad", "mish", "mish_grad", "not_equal", "one_hot", "one_hot_v2", "pow",
    "pow_grad", "prelu", "prelu_grad", "rank_loss", "rank_loss_grad", "reciprocal", "reciprocal_grad", "reduce_max",
    "reduce_max_grad", "reduce_mean", "reduce_mean_grad", "reduce_min", "reduce_min_grad", "reduce_sum",
    "reduce_sum_grad", "relu", "relu6", "relu6_grad", "relu_grad", "reshape2", "reshape2_grad", "rnn_memory_helper",
    "rnn_memory_helper_grad", "round", "rsqrt", "rsqrt_grad", "scale", "selu", "selu_grad", "sigmoid",
    "sigmoid_cross_entropy_with_logits", "sigmoid_cross_entropy_with_logits_grad", "sigmoid_grad", "sign", "sin",
    "sin_grad", "smooth_l1_loss", "smooth_l1_loss_grad", "soft_relu", "soft_relu_grad", "softmax", "softmax_grad",
    "softmax_with_cross_entropy", "softmax_with_cross_entropy_grad", "softplus", "softplus_grad", "softshrink",
    "softshrink_grad", "softsign", "softsign_grad", "sqrt", "sqrt_grad", "square", "square_grad", "squeeze2",
    "squeeze2_grad", "stack", "stanh", "stanh_grad", "sum", "swish", "swish_grad", "tanh", "tanh_grad", "unsqueeze2",
    "unsqueeze2_grad", "unstack_grad", "where", "where_grad",
})  # fmt: skip
"""Operators whose results lie row by row in memory if all their inputs do."""

_Written: TypeAlias = "tuple[str, Operator | None]"
"""A name and the operator that wrote it; None stands for a value from outside."""

_RESHAPES = ("reshape2", "reshape2_grad")
_TRANSPOSES = ("transpose2", "transpose2_grad")
_REARRANGE = frozenset({*_RESHAPES, *_TRANSPOSES})

_PASS_ON = {"elementwise_add_grad": ("X", "Y"), "elementwise_sub_grad": ("X",)}
"""Operands whose gradient equals the incoming one, unless the operand was broadcast."""

_COPIES: dict[str, Callable[[Operator], bool]] = {
    "assign": lambda op: True,
    "cast": lambda op: op.attr("in_dtype") == op.attr("out_dtype"),
    "scale": lambda op: "ScaleTensor" not in op.inputs and op.attr("scale") == 1 and op.attr("bias") == 0,
    "sum": lambda op: len(op.inputs["X"]) == 1,
}
"""Operators that copy X, each with the condition under which it does."""

_PASS_THROUGH = {"rnn_memory_helper": "X", "rnn_memory_helper_grad": "Out@GRAD"}
"""Operators whose result is the array that they read in this slot."""

_MAY_GO = frozenset((*_PASS_ON, *_RESHAPES, *_TRANSPOSES, *_COPIES, *_PASS_THROUGH))


class CleanUp(Pass):
    """Let readers of a copy read the original, where nothing can tell them apart.

    Copies are the results of ``assign``, ``rnn_memory_helper``, ``scale`` by 1 without bias, ``cast`` to the same type,
    ``sum`` of one tensor, a reshape to the same shape and transposes that cancel. The gradient that an addition or
    subtraction passes on unchanged is a copy, too. A reshape of a reshape reads what the first one does.

    Law: every value keeps its bits, NaN and -0.0 included; adding a bias of 0 is left alone where it turns -0.0 into
    0.0. Sums round differently over another memory layout, so a copy that may change the layout is only left out if the
    original lies row by row; feeds and values in the scope count as such. Persistable variables are written as before.
    """

    def apply(self, program: Program) -> bool:
        block = program.global_block()
        found = (op for type, ops in block.ops.by_type.items() if type in _MAY_GO for op in ops)
        if not any(_may_go(op, block) for op in found):
            return False
        current, changed = _CurrentValues(program), False
        for op in block.ops:
            changed |= current.read_originals(op)
            if op.type in _RESHAPES and op.outputs:
                changed |= _skip_reshape(op, current)
            current.advance(op, _copies(op, current) if op.type in _MAY_GO else {})
        return changed


class _CurrentValues:
    """Current values of the names of a block, during a walk through its operators."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.block = program.global_block()
        self._writer: dict[str, Operator] = {}
        self._original: dict[str, _Written] = {}
        """Original of the value of a name, if that is a copy."""
        self._scattered: set[str] = set()
        """Names whose values may not lie row by row in memory."""
        self._rearranged: dict[Operator, _Written] = {}
        written = Counter(name for op in program.global_block().ops for name in op.output_arg_names)
        self._rewritten = set() if program.is_concrete else {name for name, count in written.items() if count > 1}
        """Names whose values may have several types."""

    @cached_property
    def values(self) -> Values:
        return Values(self.program)

    def shape_read(self, name: str, op: Operator) -> tuple[int, ...] | None:
        """Return the static shape of the value that `op` reads by a name; None if it is unknown."""
        return self._static_shape(name, self.values.read(name, op) if name in self._rewritten else None)

    def shape_written(self, name: str, op: Operator) -> tuple[int, ...] | None:
        """Return the static shape of the value that `op` writes by a name; None if it is unknown."""
        return self._static_shape(name, self.values.written(name, op) if name in self._rewritten else None)

    def _static_shape(self, name: str, value: Value | None) -> tuple[int, ...] | None:
        # A name is declared with the type of its last value; the others may have another one.
        known = self.program.global_block().vars[name].tensor_type if value is None else self.values.type_of(value)
        return None if known is None or -1 in known.shape else known.shape

    def value(self, name: str) -> _Written:
        return name, self._writer.get(name)

    def is_there(self, value: _Written) -> bool:
        """Whether the name of `value` still means that value."""
        return self._writer.get(value[0]) is value[1]

    def lies_in_rows(self, name: str) -> bool:
        return name not in self._scattered

    def defining_op(self, name: str, *types: str) -> Operator | None:
        """Return the operator that wrote the value of `name`, if it is of one of these types."""
        op = self._writer.get(name)
        return op if op is not None and op.type in types else None

    def rearranged_by(self, op: Operator) -> _Written:
        """Return the value that an earlier reshape or transpose has read."""
        return self._rearranged[op]

    def read_originals(self, op: Operator) -> bool:
        if not self._original or op.definition.has_hidden_names:
            return False
        found = {name: self._original.get(name) for names in op.inputs.values() for name in names}
        names = {name: value[0] for name, value in found.items() if value is not None and self.is_there(value)}
        redirect(op, names)
        return bool(names)

    def advance(self, op: Operator, copies: Mapping[str, _Written]) -> None:
        """Go past `op`, which writes copies of these values by these names."""
        if op.type in _REARRANGE:
            self._rearranged[op] = self.value(op.inputs[_slot(op)][0])
        names = op.output_arg_names
        if self._writes_rows(op):
            self._scattered.difference_update(names)
        else:
            self._scattered.update(names)
        for name in names:
            self._writer[name] = op
            self._original.pop(name, None)
        self._original.update(copies)

    def _writes_rows(self, op: Operator) -> bool:
        if op.type in _KEEP_ROWS or (op.type == "slice" and tuple(op.attr("axes")) == (0,)):
            return not self._scattered or self._scattered.isdisjoint(op.input_arg_names)
        return op.type in _MAKE_ROWS


def _copies(op: Operator, current: _CurrentValues) -> dict[str, _Written]:
    """Map results of `op` that are copies to their originals."""
    if op.type in _PASS_ON:
        return _passed_on(op, current)
    if any([stops_gradient(name, op) for name in op.output_arg_names[:1]]):
        return {}
    source = _copied(op, current) if op.output_arg_names else None
    return {} if source is None else {op.output_arg_names[0]: source}


def _copied(op: Operator, current: _CurrentValues) -> _Written | None:
    """Return the original of the first output of `op`, if that is a copy."""
    if op.type in _TRANSPOSES:
        return _before_transposes(op, current)
    if op.type in _RESHAPES:
        source = op.inputs[_slot(op)][0]
        shape = current.shape_read(source, op)
        is_same = shape is not None and are_equal(current.shape_written(op.output_arg_names[0], op), shape)
        return current.value(source) if is_same else None
    if op.type in _PASS_THROUGH:
        return current.value(op.inputs[_PASS_THROUGH[op.type]][0])
    if not _COPIES[op.type](op):
        return None
    source = op.inputs["X"][0]
    dtype = current.block.vars[source].dtype
    # The kernel skips a bias of 0 only after the product.
    if op.type == "scale" and dtype.is_floating and not op.attr("bias_after_scale"):
        return None
    return current.value(source) if current.lies_in_rows(source) else None


def _passed_on(op: Operator, current: _CurrentValues) -> dict[str, _Written]:
    """Map gradients that are copies to the incoming gradient."""
    source = op.inputs["Out@GRAD"][0]
    shape = current.shape_read(source, op)
    if shape is None or not current.lies_in_rows(source):
        return {}
    grads = [name for slot in _PASS_ON[op.type] for name in op.outputs.get(f"{slot}@GRAD", ()) if name != EMPTY]
    return {name: current.value(source) for name in grads if are_equal(current.shape_written(name, op), shape)}


def _may_go(op: Operator, block: Block) -> bool:
    """Whether `op`, of a type in `_MAY_GO`, may be a copy, judged by its attributes and shapes only."""
    if op.type in _PASS_ON:
        shape = block.vars[op.inputs["Out@GRAD"][0]].shape
        return any(name != EMPTY and are_equal(block.vars[name].shape, shape) for name in op.output_arg_names)
    return op.type in _REARRANGE or op.type in _PASS_THROUGH or _COPIES[op.type](op)


def _slot(op: Operator) -> str:
    """Return the slot of the tensor that a reshape or transpose, forward or backward, rearranges."""
    return "X" if "X" in op.inputs else "Out@GRAD"


def _permutation(op: Operator) -> Sequence[int]:
    axis = op.attr("axis")
    return axis if op.type == "transpose2" else sorted(range(len(axis)), key=axis.__getitem__)


def _before_transposes(op: Operator, current: _CurrentValues) -> _Written | None:
    """Return the value that `op` equals, if it transposes nothing or undoes the transpose before it.

    Transposes are views, so that the strides are equal too.
    """
    last, name = _permutation(op), op.inputs[_slot(op)][0]
    if list(last) == sorted(last):
        return current.value(name)
    before = current.defining_op(name, *_TRANSPOSES)
    if before is None or not _makes_first(before, name) or stops_gradient(name, before):
        return None
    first = _permutation(before)
    return current.rearranged_by(before) if [first[i] for i in last] == sorted(last) else None


def _makes_first(op: Operator, name: str) -> bool:
    """Whether `name` is the rearranged tensor that `op` writes, and not its ``XShape``."""
    return op.outputs.get("Out", op.outputs.get("X@GRAD", ("",)))[0] == name


def _skip_reshape(op: Operator, current: _CurrentValues) -> bool:
    """Let a reshape read what the reshape before it reads, unless its gradient needs the shape in between."""
    middle, wanted = op.inputs[_slot(op)][0], current.shape_written(op.output_arg_names[0], op)
    before = current.defining_op(middle, *_RESHAPES)
    if before is None or not _makes_first(before, middle) or wanted is None or len(op.inputs) > 2:
        return False
    source = current.rearranged_by(before)
    if stops_gradient(middle, before) or not current.is_there(source) or not current.lies_in_rows(source[0]):
        return False
    if op.type == "reshape2":
        noted = op.outputs.get("XShape", ())
        if len(op.inputs) > 1 or 0 in wanted or any(_is_read(current.values, name, op) for name in noted):
            return False
        op.set_attr("shape", wanted)
    redirect(op, {middle: source[0]})
    infer_outputs(op, current.block)  # XShape has the shape that is rearranged now
    return True


def _is_read(values: Values, name: str, op: Operator) -> bool:
    value = values.written(name, op)
    return bool(values.readers[value]) or values.is_live_out(value)
