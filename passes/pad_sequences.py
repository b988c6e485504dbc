"""Pad sequences of different lengths to one length, with masks where rows of several places meet."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from minigraph.errors import ProgramError
from minigraph.ir import Block, Operator, Program, Variable
from minigraph.passes.base import Pass
from minigraph.types import DType

_FAR = 1e30
"""What is subtracted from padding before a maximum, so that no padding is one."""

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


@dataclass(frozen=True)
class PadSequences(Pass):
    """Let what is fed with sequences of rows (`lod_level` 1) be fed as ``[batch, time, ...]``, with their lengths.

    The lengths of `x` are fed as ``x.lengths``, int64, and its padding as anything finite, such as zeros. Operators
    that work row by row then work on the rows of all sequences, padded; `sequence_pool` gets masks. Results with
    sequences become the rows of all sequences with their padding. Apply it before gradients are appended.

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


class _Padded:
    """What is fed for the sequences of one variable, and what operators need to know of it, made when one does."""

    def __init__(self, block: Block, var: Variable) -> None:
        assert var.tensor_type is not None
        self.block = block
        self.row = list(var.tensor_type.shape[1:])
        self.first = next(iter(block.ops), None)
        """The operator before which everything is made that others use."""
        var.tensor_type = var.tensor_type.with_shape((-1, -1, *self.row))
        self.var = var
        self.lengths = block.create_var(
            f"{var.name}.lengths", shape=[-1], dtype="int64", is_data=True, stop_gradient=True
        )

    def made(self, type: str, **fields: Any) -> Variable:
        with self.block.inserting_before(self.first):
            return self.block.emit(type, stop_gradient=True, **fields)

    @cached_property
    def rows(self) -> Variable:
        rows = self.made("reshape2", X=self.var, shape=[-1, *self.row])
        rows.stop_gradient = self.var.stop_gradient
        return rows

    @cached_property
    def sizes(self) -> Variable:
        """Numbers of sequences and of places in each, int32[2]."""
        shape = self.made("shape", Input=self.var)
        return self.made("slice", Input=shape, axes=[0], starts=[0], ends=[2])

    @cached_property
    def counts(self) -> Variable:
        """The lengths, float32."""
        return self.made("cast", X=self.lengths, in_dtype=int(DType.INT64), out_dtype=int(DType.FP32))

    @cached_property
    def longest(self) -> Variable:
        """Number of places, int32[1]."""
        return self.made("slice", Input=self.sizes, axes=[0], starts=[1], ends=[2])

    def mask(self, lengths: Variable | None = None) -> Variable:
        """1 for places before the end of each sequence, or of as many as `lengths` says; ``[batch, time]``."""
        counted = lengths or self.lengths
        return self.made("sequence_mask", X=counted, MaxLenTensor=self.longest, out_dtype=int(DType.FP32))


class _Padder:
    def __init__(self, block: Block) -> None:
        self.block = block
        self.of: dict[str, _Padded] = {}
        """The padding of variables that have sequences."""
        self.rows: dict[str, str] = {}

    def declare(self, var: Variable) -> None:
        if var.lod_level > 1:
            raise ProgramError(f"{var.name} has sequences of {var.lod_level} levels, and only one can be padded")
        self.of[var.name] = _Padded(self.block, var)

    def pad(self, op: Operator) -> None:
        """Make `op` work on padded rows."""
        given = [name for name in op.input_arg_names if name in self.of]
        if not given:
            return
        padded = self.of[given[0]]
        if any(self.of[name] is not padded for name in given):
            raise self._refused(op, f"{' and '.join(given)} have sequences of different variables")
        special = _SPECIAL.get(op.type)
        if special is not None:
            special(self, op, padded)
        elif self._is_by_rows(op):
            for slot, names in op.inputs.items():
                op.set_input(slot, [self._rows(name) for name in names])
            self.of |= {name: padded for name in op.output_arg_names}
        else:
            raise self._refused(op, "it may mix rows of several places")

    def _refused(self, op: Operator, why: str) -> ProgramError:
        return ProgramError(
            f"PadSequences: {op.type} has no padded form: {why}", site=op.site,
            hint="Keep the sequences as they are for programs with this operator, or with gradients.",
        )  # fmt: skip

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

    # Operators that look at lengths

    def _emit(self, op: Operator, type: str, **fields: Any) -> Variable:
        with self.block.inserting_before(op):
            return self.block.emit(type, **fields)

    def _steps(self, op: Operator, name: str, padded: _Padded) -> Variable:
        """Rows as ``[batch, time, values]``."""
        rows = self.block.var(self._rows(name))
        width = 1
        for size in (rows.shape or ())[1:]:
            width *= size
        if width < 0:
            raise self._refused(op, f"the size of the rows of {name} is not known")
        last = self._emit(
            op, "fill_constant", shape=[1], dtype=int(DType.INT32), value=float(width), stop_gradient=True
        )
        shape = self._emit(op, "concat", X=[padded.sizes, last], stop_gradient=True)
        return self._emit(op, "reshape2", X=rows, Shape=shape, shape=[-1, -1, width])

    def _pool(self, op: Operator, padded: _Padded) -> None:
        (name,) = op.input("X")
        steps, row = self._steps(op, name, padded), list(self.block.var(self._rows(name)).shape or ())[1:]
        kind, value = op.attr("pooltype"), op.attr("pad_value")

        def alike(mask: Variable) -> Variable:
            types = {"in_dtype": int(mask.dtype), "out_dtype": int(steps.dtype)}
            return mask if mask.dtype is steps.dtype else padded.made("cast", X=mask, **types)

        is_filled = padded.made("clip", X=padded.counts, min=0.0, max=1.0)
        weights = self._first_largest(op, steps, padded, alike) if kind == "MAX" else self._weights(padded, kind)
        pooled = self._emit(op, "elementwise_mul", X=steps, Y=alike(weights), axis=0)
        pooled = self._emit(op, "reduce_sum", X=pooled, dim=[1])
        pooled = self._emit(op, "elementwise_mul", X=pooled, Y=alike(is_filled), axis=0)
        missing = padded.made("scale", X=is_filled, scale=-value, bias=value)
        pooled = self._emit(op, "elementwise_add", X=pooled, Y=alike(missing), axis=0)
        shape = self.block.create_var(self.block.free_name(f"{op.type}.tmp"))
        (out,) = op.output("Out")
        with self.block.inserting_before(op):
            self.block.append_op("reshape2", {"X": pooled}, {"Out": out, "XShape": shape.name}, {"shape": [-1, *row]})
        self.block.remove(op)

    def _first_largest(
        self, op: Operator, steps: Variable, padded: _Padded, alike: Callable[[Variable], Variable]
    ) -> Variable:
        """1 at the first place of each maximum: ``reduce_max`` would give a gradient to each place that has it."""

        def emit(type: str, **fields: Any) -> Variable:
            return self._emit(op, type, stop_gradient=True, **fields)

        far = padded.made("scale", X=padded.mask(), scale=_FAR, bias=-_FAR)
        place = emit("arg_max", X=emit("elementwise_add", X=steps, Y=alike(far), axis=0), axis=1)
        chosen = emit("one_hot_v2", X=place, depth_tensor=padded.longest, depth=-1, dtype=int(steps.dtype))
        return emit("transpose2", X=chosen, axis=[0, 2, 1])

    def _weights(self, padded: _Padded, kind: str) -> Variable:
        """What each place counts in a sum, ``[batch, time]``."""
        mask = padded.mask()
        if kind in ("FIRST", "LAST"):
            one = padded.made("fill_any_like", X=padded.lengths, value=1.0, dtype=-1)
            if kind == "FIRST":
                return padded.mask(padded.made("elementwise_min", X=padded.lengths, Y=one))
            before = padded.made("elementwise_sub", X=padded.lengths, Y=one)
            return padded.made("elementwise_sub", X=mask, Y=padded.mask(before))
        if kind == "SUM":
            return mask
        counts = padded.made("clip", X=padded.counts, min=1.0, max=_FAR)
        if kind == "SQRT":
            counts = padded.made("sqrt", X=counts)
        return padded.made("elementwise_div", X=mask, Y=counts, axis=0)


_SPECIAL: dict[str, Callable[[_Padder, Operator, _Padded], None]] = {"sequence_pool": _Padder._pool}


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
