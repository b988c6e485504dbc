"""Pad sequences of different lengths to one length, with masks where rows of several places meet."""

from __future__ import annotations

from minigraph.errors import ProgramError
from minigraph.ir import Block, Operator, Program, Variable
from minigraph.passes.base import Pass
from minigraph.passes.padded import Padded, PaddedOp
from minigraph.passes.padded_forms import FORMS

_BY_ROWS = frozenset({
    "abs", "acos", "asin", "atan", "brelu", "cast", "ceil", "concat", "cos", "cross_entropy", "cross_entropy2",
    "elementwise_add", "elementwise_div", "elementwise_max", "elementwise_min", "elementwise_mul", "elementwise_pow",
    "elementwise_sub", "elu", "erf", "exp", "fill_zeros_like", "floor", "gelu", "hard_shrink", "hard_sigmoid",
    "hard_swish", "layer_norm", "leaky_relu", "log", "log1p", "logsigmoid", "lookup_table", "lookup_table_v2", "mul",
    "one_hot", "one_hot_v2", "pow", "reciprocal", "relu", "relu6", "reshape2", "round", "rsqrt", "scale", "sigmoid",
    "sign", "sin", "soft_relu", "softmax", "softmax_with_cross_entropy", "softplus", "softshrink", "softsign", "sqrt",
    "square", "stanh", "sum", "swish", "tanh", "tanh_shrink", "thresholded_relu",
})  # fmt: skip
"""Operators that can compute each row of a result from the rows of inputs with its number, and from no others."""


class PadSequences(Pass):
    """Let what is fed with sequences of rows (`lod_level` 1) be fed as ``[batch, time, ...]``, with their lengths.

    The lengths of `x` are fed as ``x.lengths``, int64, and its padding as anything finite, such as zeros. Operators
    that work row by row then work on the rows of all sequences, padded; `sequence_pool`, `sequence_softmax`,
    `sequence_conv`, `row_conv`, `sequence_expand` and `sequence_reverse` get masks, `dynamic_lstm` and `dynamic_gru`
    become loops over time whose states stay where a sequence ends. Results with sequences become the rows of all
    sequences with their padding. Apply it before gradients are appended.

    Law: every result without sequences is the same up to rounding, and so are the rows of the others, as long as what
    is computed of the padding is finite.

    Raises
    ------
    ProgramError
        If an operator may mix rows of several places and there is no padded form of it here, if gradients were
        appended, or if sequences have several levels.

    Examples
    --------
    >>> import minigraph as fluid, numpy as np
    >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
    ...     x = fluid.data("x", [None, 1], lod_level=1)
    ...     y = fluid.layers.sequence_pool(x, "max")
    ...     padded = PadSequences()(fluid.default_main_program())
    >>> feed = {"x": np.array([[[-2], [-1]], [[-3], [0]]], "float32"), "x.lengths": np.array([2, 1])}
    >>> fluid.Executor().run(padded, feed=feed, fetch_list=[y.name])[0].ravel().tolist()
    [-1.0, -3.0]
    """

    changes_rounding = True

    def apply(self, program: Program) -> bool:
        block = program.global_block()
        fed = [var for var in block.vars.values() if var.is_data and var.lod_level]
        if not fed:
            return False
        padder = _Padder(block)
        for var in fed:
            padder.declare(var)
        for op in block.ops[:]:
            padder.pad(op)
        for var in block.vars.values():
            var.lod_level = 0
        return True


class _Padder:
    def __init__(self, block: Block) -> None:
        self.block = block
        self.of: dict[str, Padded] = {}
        """The padding of variables that have sequences."""

    def declare(self, var: Variable) -> None:
        if var.lod_level > 1:
            raise ProgramError(f"{var.name} has sequences of {var.lod_level} levels, and only one can be padded")
        self.of[var.name] = Padded(self.block, var)

    def pad(self, op: Operator) -> None:
        """Make `op` work on padded rows."""
        given = [name for name in op.input_arg_names if name in self.of]
        if not given:
            return
        at = PaddedOp(self.block, op, self.of[given[0]], given)
        if any(self.of[name] is not at.padded for name in given):
            raise at.refused(f"{' and '.join(given)} have sequences of different variables")
        form = FORMS.get(op.type)
        if form is not None:
            form(at)
            self.block.remove(op)
            self.of |= dict.fromkeys(at.delivered, at.padded)
        elif self._is_by_rows(op):
            for slot, names in op.inputs.items():
                op.set_input(slot, [self._rows(name) for name in names])
            self.of |= {name: at.padded for name in op.output_arg_names}
        else:
            raise at.refused("it may mix rows of several places")

    def _rows(self, name: str) -> str:
        """The padded rows of a variable."""
        padded = self.of.get(name)
        return padded.rows.name if padded is not None and padded.var.name == name else name

    def _is_by_rows(self, op: Operator) -> bool:
        if op.type not in _BY_ROWS or not _attributes_fit(op):
            return False
        if op.type.startswith("elementwise"):
            ranks = {name: self.block.var(self._rows(name)).ndim for name in op.input_arg_names}
            x, y = op.input("X")[0], op.input("Y")[0]
            if x in self.of and y not in self.of:
                return ranks[y] < ranks[x] and op.attr("axis") != 0
            return x in self.of and ranks[x] == ranks[y]
        slot = {"lookup_table": "Ids", "lookup_table_v2": "Ids", "softmax_with_cross_entropy": "Logits"}.get(
            op.type, "X"
        )
        lists = [op.input(slot)] + ([op.input("Label")] if "Label" in op.inputs else [])
        return all(name in self.of for names in lists for name in names)


def _attributes_fit(op: Operator) -> bool:
    """Whether the attributes leave rows alone."""
    if op.type == "mul":
        return bool(op.attr("x_num_col_dims") == 1)
    if op.type == "concat":
        return op.attr("axis") != 0 and not op.inputs.get("AxisTensor")
    if op.type == "softmax":
        return bool(op.attr("axis") == -1)
    if op.type == "reshape2":
        return set(op.inputs) == {"X"} and tuple(op.attr("shape"))[:1] in ((-1,), (0,))
    return True
