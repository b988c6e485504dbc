"""Pad sequences of different lengths to one length, with masks where rows of several places meet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container
from dataclasses import dataclass
from typing import ClassVar

from minigraph.errors import ProgramError
from minigraph.ir import Block, Operator, Program, Variable
from minigraph.passes.base import Pass
from minigraph.passes.sequences.padded import Padded, PaddedOp
from minigraph.passes.sequences.padded_forms import FORMS

_BY_ROWS = frozenset({
    "abs", "acos", "asin", "atan", "brelu", "cast", "ceil", "concat", "cos", "cross_entropy", "cross_entropy2",
    "elementwise_add", "elementwise_div", "elementwise_max", "elementwise_min", "elementwise_mul", "elementwise_pow",
    "elementwise_sub", "elu", "erf", "exp", "fill_zeros_like", "floor", "gelu", "hard_shrink", "hard_sigmoid",
    "hard_swish", "layer_norm", "leaky_relu", "log", "log1p", "logsigmoid", "lookup_table", "lookup_table_v2", "mul",
    "one_hot", "one_hot_v2", "pow", "reciprocal", "reduce_max", "reduce_mean", "reduce_min", "reduce_prod",
    "reduce_sum", "relu", "relu6", "reshape2", "round", "rsqrt", "scale", "sigmoid", "sign", "sin", "soft_relu",
    "softmax", "softmax_with_cross_entropy", "softplus", "softshrink", "softsign", "sqrt", "square", "stanh", "sum",
    "swish", "tanh", "tanh_shrink", "thresholded_relu",
})  # fmt: skip
"""Operators that can compute each row of a result from the rows of inputs with its number, and from no others."""


@dataclass(frozen=True)
class PadSequences(Pass):
    """Let what is fed with sequences of rows (`lod_level` 1) be fed as ``[batch, time, ...]``, with their lengths.

    The lengths of `x` are fed as ``x.lengths``, int64, and its padding as anything finite, such as zeros. Operators
    that work row by row then work on the rows of all sequences, padded; `sequence_pool`, `sequence_softmax`,
    `sequence_conv`, `row_conv`, `sequence_expand` and `sequence_reverse` get masks, `dynamic_lstm` and `dynamic_gru`
    become loops over time whose states stay where a sequence ends. Means and sums of all rows count what is no padding.
    `linear_chain_crf`, `crf_decoding` and `chunk_eval` get the lengths. Results with sequences become the rows of all
    sequences with their padding. Apply it before gradients are appended.

    Law: every result without sequences is the same up to rounding, and so are the rows of the others, as long as what
    is computed of the padding is finite.

    Attributes
    ----------
    alike : tuple of tuple of str
        Groups of fed variables whose sequences have the same lengths, such as words and their tags. The lengths of the
        first of a group are fed.

    Raises
    ------
    ProgramError
        If an operator may mix rows of several places and there is no padded form of it here, if gradients were
        appended, if sequences have several levels, or if `alike` names a variable that is not fed with sequences, or
        one twice.

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

    changes_rounding: ClassVar[bool] = True

    alike: tuple[tuple[str, ...], ...] = ()

    def apply(self, program: Program) -> bool:
        block = program.global_block()
        fed = {name: var for name, var in block.vars.items() if var.is_data and var.lod_level}
        if not fed:
            return False
        self._check_groups(fed)
        padder = _Padder(block)
        first = {name: group[0] for group in self.alike for name in group}
        # The first of a group has the lengths.
        for var in sorted(fed.values(), key=lambda var: first.get(var.name, var.name) != var.name):
            padder.declare(var, first.get(var.name, var.name))
        for op in block.ops[:]:
            padder.pad(op)
        for var in block.vars.values():
            var.lod_level = 0
        return True

    def _check_groups(self, fed: Container[str]) -> None:
        names = Counter(name for group in self.alike for name in group)
        for name, times in names.items():
            if name not in fed:
                raise ProgramError(
                    f"PadSequences: alike names {name!r}, which is not fed with sequences",
                    hint="Name variables of fluid.data(..., lod_level=1).",
                )
            if times > 1:
                raise ProgramError(
                    f"PadSequences: alike names {name!r} {times} times", hint="Name each variable in one group, once."
                )


class _Padder:
    def __init__(self, block: Block) -> None:
        self.block = block
        self.of: dict[str, Padded] = {}
        """The padding of variables that have sequences."""

    def declare(self, var: Variable, like: str) -> None:
        """Let a variable be fed padded, with lengths of its own or with those of `like`."""
        if var.lod_level > 1:
            raise ProgramError(f"{var.name} has sequences of {var.lod_level} levels, and only one can be padded")
        if like == var.name:
            self.of[var.name] = Padded(self.block, var)
        else:
            self.of[var.name] = self.of[like]
            self.of[like].add(var)

    def pad(self, op: Operator) -> None:
        """Make `op` work on padded rows."""
        given = [name for name in op.input_arg_names if name in self.of]
        if not given:
            return
        at = PaddedOp(self.block, op, self.of[given[0]], given)
        if any(self.of[name] is not at.padded for name in given):
            raise at.refused(
                f"{' and '.join(given)} have sequences of different variables",
                "If their lengths are always equal, name them: PadSequences(alike=((..., ...),)).",
            )
        form = FORMS.get(op.type)
        if self._is_by_rows(op):
            for slot, names in op.inputs.items():
                op.set_input(slot, [self._rows(name) for name in names])
            self.of |= {name: at.padded for name in op.output_arg_names}
        elif form is not None:
            form(at)
            self.block.remove(op)
            self.of |= dict.fromkeys(at.delivered, at.padded)
        else:
            raise at.refused("it may mix rows of several places")

    def _rows(self, name: str) -> str:
        """The padded rows of a variable."""
        padded = self.of.get(name)
        return padded.rows_of(name).name if padded is not None else name

    def _is_by_rows(self, op: Operator) -> bool:
        if op.type not in _BY_ROWS or not _attributes_fit(op):
            return False
        if op.type.startswith("reduce"):
            rank = self.block.var(self._rows(op.input("X")[0])).ndim
            return not op.attr("reduce_all") and all(dim % rank for dim in op.attr("dim"))
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
