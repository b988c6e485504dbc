"""Replace gradient operators: the table of rules, and the short forms that rules are written in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from minigraph.autodiff.overwritten import Overwritten, is_copy
from minigraph.errors import OpError, ProgramError
from minigraph.ir import Block, Operator, Role, Variable
from minigraph.opdef import EMPTY
from minigraph.types import DType, product

Rule = Callable[["Rewriting"], Mapping[str, Any]]
"""Function from a `Rewriting` to variables by output slot; None, also in a list, for a gradient not asked for."""

RULES: dict[str, Rule] = {}


_WHERE: dict[str, Callable[[Operator], bool]] = {}


def rewritten_as(*types: str, where: Callable[[Operator], bool] | None = None) -> Callable[[Rule], Rule]:
    """Register the rule for gradient operators of these types.

    With `where`, the rule is only for operators that fulfil it. The others have a gradient rule of their own.
    """

    def decorate(rule: Rule) -> Rule:
        for type in types:
            RULES[type] = rule
            if where is not None:
                _WHERE[type] = where
        return rule

    return decorate


def has_rule(op: Operator) -> bool:
    """Whether there is a rule for the operator."""
    if op.type not in RULES:
        return False
    where = _WHERE.get(op.type)
    return where is None or where(op)


def is_norm_of_clip(op: Operator) -> bool:
    """Whether this is the root in fluid's chain for a global norm, whose gradient is NaN at zero."""
    return op.type == "sqrt" and bool(op.role & Role.CLIP)


def rewrite(block: Block, ops: Sequence[Operator]) -> None:
    """Replace the operators of `ops` that need it, see `minigraph.autodiff.decompositions.rewrite`."""
    has_norm = any(map(is_norm_of_clip, ops))
    if gradient_ops := list(filter(has_rule, ops)):
        forward = Forward(block)
        for op in gradient_ops:
            with block.inserting_before(op, role=op.role):
                Rewriting(op, forward).write(RULES[op.type])
            block.remove(op)
    if has_norm:
        from minigraph.passes.recognize.fuse_global_norm import FuseGlobalNorm  # late: few programs have one

        FuseGlobalNorm().apply(block.program)


class Forward:
    """Forward operators of the gradient operators of one block."""

    def __init__(self, block: Block) -> None:
        self._blocks = [block] if block.forward_block is None else [block.forward_block, block]
        self._places: dict[Operator, int] = {}
        self._writers: dict[str, list[Operator]] = {}
        self._overwritten: dict[Block, Overwritten] = {}
        for each in self._blocks:
            for op in each.ops:
                self._places[op] = len(self._places)
                for name in op.output_arg_names:
                    self._writers.setdefault(name, []).append(op)

    def writers(self, name: str) -> Sequence[Operator]:
        """The operators that write a variable, in order."""
        return self._writers.get(name, ())

    def maker(self, name: str, reader: Operator) -> Operator | None:
        """The operator that computed the value of `name` that `reader` reads; copies are followed to their source."""
        at = self._places[reader]
        made = next((op for op in reversed(self.writers(name)) if self._places[op] < at), None)
        return self.maker(made.inputs["X"][0], made) if made is not None and is_copy(made) else made

    def input(self, maker: Operator, slot: str) -> str:
        """A variable that still has the value that `maker` read in a slot of one variable."""
        if maker.block not in self._overwritten:
            self._overwritten[maker.block] = Overwritten(maker.block)
        (name,) = maker.inputs[slot]
        return self._overwritten[maker.block].kept(name, maker, (name,))


class Rewriting:
    """A gradient operator that is being replaced: its inputs, and short forms for new operators in front of it.

    The results of the new operators may be differentiated again. Bounds and masks are constants, since their derivative
    is 0 almost everywhere.
    """

    def __init__(self, op: Operator, forward: Forward) -> None:
        self.op, self.block = op, op.block
        self._forward = forward

    def write(self, rule: Rule) -> None:
        """Append the operators of the rule, and give the results the names of the operator's outputs."""
        results = rule(self)
        with self.block.program.role_guard(self.op.role, self.op.role_vars):
            for slot, names in self.op.outputs.items():
                made = results[slot] if isinstance(results[slot], Sequence) else [results[slot]]
                for name, value in zip(names, made, strict=True):
                    if name != EMPTY and value.name != name:
                        self.block.append_op("assign", {"X": value}, {"Out": name})

    # The operator

    def var(self, name: str) -> Variable:
        """A variable of the operator's block, or of a block around it."""
        found = self.block.find_var(name)
        assert found is not None, name
        return found

    def __getitem__(self, slot: str) -> Variable:
        return self.var(self.op.inputs[slot][0])

    def given(self, slot: str) -> Variable | None:
        """The variable in an input slot that may be left out."""
        return self[slot] if self.op.inputs.get(slot) else None

    def all(self, slot: str) -> list[Variable]:
        """The variables in an input slot that takes several."""
        return [self.var(name) for name in self.op.inputs[slot]]

    def forward(self, slot: str, through: str) -> Variable:
        """An input of the forward operator that its gradient does not read, by way of an output that it does."""
        return self.var(self._forward.input(self.maker(through), slot))

    def maker(self, through: str) -> Operator:
        """The forward operator, which wrote what is in the input slot `through`."""
        maker = self._forward.maker(self[through].name, self.op)
        if maker is None or maker.type != self.op.definition.forward:
            raise ProgramError(
                f"{self.op.type} cannot be differentiated: no {self.op.definition.forward} that wrote its {through}, "
                f"{self[through].name}, is in the program",
                site=self.op.site,
            )
        return maker

    def writers(self, name: str) -> Sequence[Operator]:
        """The operators that write a variable, in the block that the operator's block differentiates and in its own."""
        return self._forward.writers(name)

    def wants(self, slot: str) -> bool:
        """Whether the gradient in this output slot is asked for."""
        return any(name != EMPTY for name in self.op.outputs.get(slot, ()))

    def attr(self, name: str) -> Any:
        return self.op.attr(name)

    # New operators

    def emit(self, type: str, **slots_and_attrs: Any) -> Variable:
        return self.block.emit(type, **slots_and_attrs)

    def mul(self, x: Variable, y: Variable, axis: int = -1) -> Variable:
        return self.emit("elementwise_mul", X=x, Y=y, axis=axis)

    def div(self, x: Variable, y: Variable, axis: int = -1) -> Variable:
        return self.emit("elementwise_div", X=x, Y=y, axis=axis)

    def add(self, x: Variable, y: Variable) -> Variable:
        return self.emit("elementwise_add", X=x, Y=y)

    def sub(self, x: Variable, y: Variable) -> Variable:
        return self.emit("elementwise_sub", X=x, Y=y)

    def scale(self, x: Variable, factor: float, bias: float = 0.0) -> Variable:
        """``x * factor + bias``; an attribute is rounded to float32, so other numbers are constants."""
        if all(float(np.float32(number)) == number for number in (factor, bias)):
            return self.emit("scale", X=x, scale=factor, bias=bias)
        scaled = self.mul(x, self.number(factor, x))
        return scaled if bias == 0 else self.add(scaled, self.number(bias, x))

    def negative(self, x: Variable) -> Variable:
        return self.scale(x, -1.0)

    def square(self, x: Variable) -> Variable:
        return self.emit("square", X=x)

    def power(self, x: Variable, exponent: float) -> Variable:
        """``x ** exponent`` for a number."""
        return self.emit("pow", X=x, FactorTensor=self.number(exponent, x))

    def matmul(self, x: Variable, y: Variable, **transposed: bool) -> Variable:
        return self.emit("matmul", X=x, Y=y, **transposed)

    def sum(self, x: Variable, axes: Sequence[int], keep: bool = False) -> Variable:
        return self.emit("reduce_sum", X=x, dim=list(axes), keep_dim=keep)

    def total(self, x: Variable) -> Variable:
        """The sum of all elements, of shape [1]."""
        return self.emit("reduce_sum", X=x, reduce_all=True)

    def mean(self, x: Variable, axes: Sequence[int]) -> Variable:
        """The mean over `axes`, which are kept as 1."""
        return self.emit("reduce_mean", X=x, dim=list(axes), keep_dim=True)

    def transpose(self, x: Variable, axis: Sequence[int]) -> Variable:
        return x if list(axis) == sorted(axis) else self.emit("transpose2", X=x, axis=list(axis))

    def piece(self, x: Variable, axis: int, start: int, end: int) -> Variable:
        """The elements of `x` from `start` up to `end` along `axis`."""
        return self.emit("slice", Input=x, axes=[axis], starts=[start], ends=[end])

    def concat(self, parts: Sequence[Variable], axis: int) -> Variable:
        return self.emit("concat", X=list(parts), axis=axis)

    def where(self, condition: Variable, x: Variable, y: Variable) -> Variable:
        return self.emit("where", Condition=condition, X=x, Y=y)

    def cast(self, x: Variable, dtype: DType) -> Variable:
        if x.dtype is dtype:
            return x
        return self.emit("cast", X=x, in_dtype=int(x.dtype), out_dtype=int(dtype))

    # Constants

    def ones(self, like: Variable) -> Variable:
        return self.emit("fill_any_like", X=like, value=1.0, stop_gradient=True)

    def zeros(self, like: Variable) -> Variable:
        return self.emit("fill_zeros_like", X=like, stop_gradient=True)

    def number(self, value: float, like: Variable) -> Variable:
        """A number of the type of `like`, of shape [1]."""
        # As text besides, because attributes are rounded to float32.
        spelled = str(int(value)) if not like.dtype.is_floating else repr(float(value))
        return self.emit(
            "fill_constant", shape=[1], dtype=int(like.dtype), value=float(value), str_value=spelled, stop_gradient=True
        )

    def constant(self, x: Variable) -> Variable:
        """`x`, with no gradient flowing back to it."""
        return self.emit("assign", X=x, stop_gradient=True)

    def sign(self, x: Variable) -> Variable:
        return self.emit("sign", X=x, stop_gradient=True)

    def compare(self, type: str, x: Variable, y: Variable | float, axis: int = -1) -> Variable:
        """Booleans of a comparison of `type`, such as greater_than for ``x > y``."""
        return self.emit(type, X=x, Y=y if isinstance(y, Variable) else self.number(y, x), axis=axis)

    def mask(self, condition: Variable, like: Variable) -> Variable:
        """1 where the condition holds and 0 elsewhere, in the type of `like`."""
        return self.emit(
            "cast", X=condition, in_dtype=int(condition.dtype), out_dtype=int(like.dtype), stop_gradient=True
        )  # fmt: skip

    def not_zero(self, x: Variable, condition: Variable) -> Variable:
        """`x` where the condition holds and 1 elsewhere, to divide by; no gradient flows to the replaced elements."""
        kept = self.mask(condition, x)
        return self.add(self.mul(x, kept), self.scale(kept, -1.0, 1.0))

    # Shapes

    def dim(self, x: Variable, axis: int) -> int | Variable:
        """The size of a dimension: a number, or where that is unknown a variable of shape [1]."""
        size = (x.shape or ())[axis]
        if size >= 0:
            return size
        return self.piece(self.emit("shape", Input=x), 0, axis % len(x.shape or ()), axis % len(x.shape or ()) + 1)

    def like(self, x: Variable, shape: Sequence[int], of: Variable | None = None) -> Variable:
        """`x` in another shape; if more than one dimension is unknown, in the shape of `of`."""
        if tuple(shape) == x.shape:
            return x
        if 0 in shape:  # `reshape2` copies a dimension where its attribute is 0; no elements have no gradient
            if -1 not in shape:
                return self.emit(
                    "fill_constant", shape=list(shape), dtype=int(x.dtype), value=0.0, stop_gradient=True
                )  # fmt: skip
        elif sum(size < 0 for size in shape) <= 1:
            return self.emit("reshape2", X=x, shape=list(shape))
        if of is None:
            raise OpError(
                f"{self.op.type}: the gradient of the gradient needs the shape {list(shape)}", site=self.op.site,
                hint="Declare the inputs with at most one unknown size.",
            )  # fmt: skip
        return self.emit("reshape2", X=x, Shape=self.emit("shape", Input=of), shape=list(shape))

    def count(self, x: Variable, axes: Sequence[int]) -> Variable:
        """Number of elements of `x` over `axes`, of shape [1], in float64."""
        sizes = [(x.shape or ())[axis] for axis in axes]
        double = int(DType.FP64)
        if -1 not in sizes:
            return self.emit("fill_constant", shape=[1], dtype=double, str_value=str(product(sizes)))
        dims = self.cast(self.emit("shape", Input=x), DType.FP64)
        return self.emit(
            "reduce_prod", X=self.emit("gather", X=dims, Index=self._numbers(axes)), reduce_all=True, stop_gradient=True
        )

    def _numbers(self, values: Sequence[int]) -> Variable:
        return self.emit("assign_value", shape=[len(values)], dtype=int(DType.INT32), int32_values=list(values))
