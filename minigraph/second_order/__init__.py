"""Gradient operators as ordinary ones, so that gradients of gradients need no second set of kernels.

A rule says how to compute what a ``*_grad`` operator computes, by operators that have gradient rules themselves.
`minigraph.backward` rewrites by these rules the gradient operators that it is to differentiate. Their values change by
rounding only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from minigraph.ir import Operator, Variable
from minigraph.opdef import EMPTY, GRAD_SUFFIX
from minigraph.types import align_shape, normalize_axis, product

Rule = Callable[["Rewriting"], Mapping[str, Any]]

RULES: dict[str, Rule] = {}


def rewritten_as(*types: str) -> Callable[[Rule], Rule]:
    """Register the rule for gradient operators of these types: from a `Rewriting` to variables by output slot."""

    def decorate(rule: Rule) -> Rule:
        for type in types:
            RULES[type] = rule
        return rule

    return decorate


def has_rule(op: Operator) -> bool:
    """Whether there is a rule for the operator."""
    return op.type in RULES


def rewrite(ops: Iterable[Operator]) -> None:
    """Put ordinary operators in the place of gradient operators that have a rule."""
    for op in ops:
        block = op.block
        with block.inserting_before(op, role=op.role):
            Rewriting(op).write(RULES[op.type])
        block.remove(op)


class Rewriting:
    """A gradient operator that is being replaced: its inputs, and short forms for new operators in front of it."""

    def __init__(self, op: Operator) -> None:
        self.op, self.block = op, op.block

    def write(self, rule: Rule) -> None:
        """Append what the rule says, and give the results the names of the operator's outputs."""
        results = rule(self)
        with self.block.program.role_guard(self.op.role, self.op.role_vars):
            for slot, names in self.op.outputs.items():
                made = results[slot] if isinstance(results[slot], Sequence) else [results[slot]]
                for name, value in zip(names, made, strict=True):
                    if name != EMPTY:
                        self.block.append_op("assign", {"X": value}, {"Out": name})

    def __getitem__(self, slot: str) -> Variable:
        return self.block.var(self.op.inputs[slot][0])

    def wants(self, slot: str) -> bool:
        """Whether the gradient in this output slot is asked for."""
        return any(name != EMPTY for name in self.op.outputs.get(slot, ()))

    def attr(self, name: str) -> Any:
        return self.op.attr(name)

    def emit(self, type: str, **slots_and_attrs: Any) -> Variable:
        return self.block.emit(type, **slots_and_attrs)

    def mul(self, x: Variable, y: Variable, axis: int = -1) -> Variable:
        return self.emit("elementwise_mul", X=x, Y=y, axis=axis)

    def div(self, x: Variable, y: Variable, axis: int = -1) -> Variable:
        return self.emit("elementwise_div", X=x, Y=y, axis=axis)

    def sub(self, x: Variable, y: Variable) -> Variable:
        return self.emit("elementwise_sub", X=x, Y=y)

    def scale(self, x: Variable, factor: float, bias: float = 0.0) -> Variable:
        return self.emit("scale", X=x, scale=factor, bias=bias)

    def matmul(self, x: Variable, y: Variable, **transposed: bool) -> Variable:
        return self.emit("matmul", X=x, Y=y, **transposed)

    def sum(self, x: Variable, axes: Sequence[int], keep: bool = False) -> Variable:
        return self.emit("reduce_sum", X=x, dim=list(axes), keep_dim=keep)

    def ones(self, like: Variable) -> Variable:
        return self.emit("fill_any_like", X=like, value=1.0, stop_gradient=True)

    def like(self, x: Variable, shape: Sequence[int]) -> Variable:
        """`x` in another shape, of which the first dimension may be unknown."""
        return x if tuple(shape) == x.shape else self.emit("reshape2", X=x, shape=[-1 if s < 0 else s for s in shape])


# Functions of one element


@rewritten_as("tanh_grad")
def _tanh(g: Rewriting) -> Mapping[str, Any]:
    slope = g.scale(g.emit("square", X=g["Out"]), -1.0, 1.0)
    return {"X@GRAD": g.mul(g["Out@GRAD"], slope)}


@rewritten_as("sigmoid_grad")
def _sigmoid(g: Rewriting) -> Mapping[str, Any]:
    slope = g.mul(g["Out"], g.scale(g["Out"], -1.0, 1.0))
    return {"X@GRAD": g.mul(g["Out@GRAD"], slope)}


@rewritten_as("relu_grad")
def _relu(g: Rewriting) -> Mapping[str, Any]:
    return {"X@GRAD": g.mul(g["Out@GRAD"], g.emit("sign", X=g["Out"]))}


@rewritten_as("abs_grad")
def _abs(g: Rewriting) -> Mapping[str, Any]:
    return {"X@GRAD": g.mul(g["Out@GRAD"], g.emit("sign", X=g["X"]))}


@rewritten_as("exp_grad")
def _exp(g: Rewriting) -> Mapping[str, Any]:
    return {"X@GRAD": g.mul(g["Out@GRAD"], g["Out"])}


@rewritten_as("log_grad")
def _log(g: Rewriting) -> Mapping[str, Any]:
    return {"X@GRAD": g.div(g["Out@GRAD"], g["X"])}


@rewritten_as("sqrt_grad")
def _sqrt(g: Rewriting) -> Mapping[str, Any]:
    return {"X@GRAD": g.scale(g.div(g["Out@GRAD"], g["Out"]), 0.5)}


@rewritten_as("square_grad")
def _square(g: Rewriting) -> Mapping[str, Any]:
    return {"X@GRAD": g.scale(g.mul(g["Out@GRAD"], g["X"]), 2.0)}


# Functions of two tensors


@rewritten_as("elementwise_add_grad")
def _add(g: Rewriting) -> Mapping[str, Any]:
    return _to_operands(g, lambda: g["Out@GRAD"], lambda: g["Out@GRAD"])


@rewritten_as("elementwise_sub_grad")
def _sub(g: Rewriting) -> Mapping[str, Any]:
    return _to_operands(g, lambda: g["Out@GRAD"], lambda: g.scale(g["Out@GRAD"], -1.0))


@rewritten_as("elementwise_mul_grad")
def _mul(g: Rewriting) -> Mapping[str, Any]:
    axis = g.attr("axis")
    return _to_operands(g, lambda: g.mul(g["Out@GRAD"], g["Y"], axis), lambda: g.mul(g["Out@GRAD"], g["X"]))


@rewritten_as("elementwise_div_grad")
def _div(g: Rewriting) -> Mapping[str, Any]:
    axis = g.attr("axis")

    def to_y() -> Variable:
        quotient = g.div(g["X"], g["Y"], axis)
        return g.scale(g.div(g.mul(g["Out@GRAD"], quotient), g["Y"], axis), -1.0)

    return _to_operands(g, lambda: g.div(g["Out@GRAD"], g["Y"], axis), to_y)


def _to_operands(g: Rewriting, to_x: Callable[[], Variable], to_y: Callable[[], Variable]) -> Mapping[str, Any]:
    """Both gradients, summed along the dimensions that an operand was repeated in."""
    results: dict[str, Any] = {"X@GRAD": None, "Y@GRAD": None}
    full = g["Out@GRAD"].shape or ()
    for slot, make in (("X", to_x), ("Y", to_y)):
        if g.wants(slot + GRAD_SUFFIX):
            shape = g[slot].shape or ()
            aligned = shape if slot == "X" else align_shape(g["X"].shape or (), shape, g.attr("axis"))
            aligned = (1,) * (len(full) - len(aligned)) + tuple(aligned)
            axes = [i for i, (size, own) in enumerate(zip(full, aligned, strict=True)) if own == 1 and size != 1]
            value = make()
            results[slot + GRAD_SUFFIX] = g.like(g.sum(value, axes, keep=True) if axes else value, shape)
    return results


# Matrix products


@rewritten_as("mul_grad")
def _mul_matrix(g: Rewriting) -> Mapping[str, Any]:
    x, y, d_out = g["X"], g["Y"], g["Out@GRAD"]
    x_dims, y_dims = g.attr("x_num_col_dims"), g.attr("y_num_col_dims")
    a, b = _as_matrix(g, x, x_dims), _as_matrix(g, y, y_dims)
    assert a.shape is not None and b.shape is not None
    d = g.like(d_out, (a.shape[0], b.shape[1]))
    results: dict[str, Any] = {"X@GRAD": None, "Y@GRAD": None}
    if g.wants("X@GRAD"):
        results["X@GRAD"] = g.like(g.matmul(d, b, transpose_Y=True), x.shape or ())
    if g.wants("Y@GRAD"):
        results["Y@GRAD"] = g.like(g.matmul(a, d, transpose_X=True), y.shape or ())
    return results


def _as_matrix(g: Rewriting, x: Variable, dims: int) -> Variable:
    shape = x.shape or ()
    return g.like(x, (product(shape[:dims]), product(shape[dims:])))


@rewritten_as("matmul_grad")
def _matmul(g: Rewriting) -> Mapping[str, Any]:
    x, y, d = g["X"], g["Y"], g["Out@GRAD"]
    t_x, t_y = g.attr("transpose_X"), g.attr("transpose_Y")
    a, b, d = _as_batches(g, x, y, d if g.attr("alpha") == 1.0 else g.scale(d, g.attr("alpha")))
    results: dict[str, Any] = {"X@GRAD": None, "Y@GRAD": None}
    if g.wants("X@GRAD"):
        made = g.matmul(b, d, transpose_X=t_y, transpose_Y=True) if t_x else g.matmul(d, b, transpose_Y=not t_y)
        results["X@GRAD"] = g.like(_without_batch(g, made, a), x.shape or ())
    if g.wants("Y@GRAD"):
        made = g.matmul(d, a, transpose_X=True, transpose_Y=t_x) if t_y else g.matmul(a, d, transpose_X=not t_x)
        results["Y@GRAD"] = g.like(_without_batch(g, made, b), y.shape or ())
    return results


def _as_batches(g: Rewriting, x: Variable, y: Variable, d: Variable) -> tuple[Variable, Variable, Variable]:
    """Operands and result of a product as matrices or batches of them: vectors are rows on the left, columns else."""
    a = g.like(x, (1, *x.shape)) if x.shape is not None and len(x.shape) == 1 else x
    b = g.like(y, (*y.shape, 1)) if y.shape is not None and len(y.shape) == 1 else y
    a_shape, b_shape = a.shape or (), b.shape or ()
    batch = a_shape[:-2] or b_shape[:-2]
    if len(a_shape) > 2 and len(b_shape) > 2:
        b = g.like(b, (*batch, *b_shape[-2:]))
    rows = a_shape[-1 if g.attr("transpose_X") else -2]
    columns = b_shape[-2 if g.attr("transpose_Y") else -1]
    return a, b, g.like(d, (*batch, rows, columns))


def _without_batch(g: Rewriting, made: Variable, operand: Variable) -> Variable:
    extra = len(made.shape or ()) - len(operand.shape or ())
    return g.sum(made, range(extra)) if extra > 0 else made


# Reductions and shapes


@rewritten_as("mean_grad")
def _mean(g: Rewriting) -> Mapping[str, Any]:
    ones = g.ones(g["X"])
    share = g.div(ones, g.emit("reduce_sum", X=ones, reduce_all=True))
    return {"X@GRAD": g.mul(share, g["Out@GRAD"])}


@rewritten_as("reduce_sum_grad")
def _reduce_sum(g: Rewriting) -> Mapping[str, Any]:
    return {"X@GRAD": _spread(g, g["Out@GRAD"])}


@rewritten_as("reduce_mean_grad")
def _reduce_mean(g: Rewriting) -> Mapping[str, Any]:
    ones = g.ones(g["X"])
    count = g.emit("reduce_sum", X=ones, dim=list(g.attr("dim")), keep_dim=True, reduce_all=g.attr("reduce_all"))
    return {"X@GRAD": g.div(_spread(g, g["Out@GRAD"]), g.mul(ones, count))}


def _spread(g: Rewriting, d_out: Variable) -> Variable:
    """What a reduction made of X, repeated to the shape of X."""
    x = g["X"]
    shape = x.shape or ()
    axes = set(range(len(shape)))
    if not g.attr("reduce_all"):
        axes = {normalize_axis(axis, len(shape)) for axis in g.attr("dim")}
    kept = tuple(1 if i in axes else size for i, size in enumerate(shape))
    return g.mul(g.ones(x), g.like(d_out, kept))


@rewritten_as("squared_l2_norm_grad")
def _squared_l2_norm(g: Rewriting) -> Mapping[str, Any]:
    return {"X@GRAD": g.scale(g.mul(g["X"], g["Out@GRAD"]), 2.0)}


@rewritten_as("reshape2_grad")
def _reshape(g: Rewriting) -> Mapping[str, Any]:
    return {"X@GRAD": g.like(g["Out@GRAD"], (g["XShape"].shape or ())[1:])}


@rewritten_as("transpose2_grad")
def _transpose(g: Rewriting) -> Mapping[str, Any]:
    axis = list(g.attr("axis"))
    return {"X@GRAD": g.emit("transpose2", X=g["Out@GRAD"], axis=[axis.index(i) for i in range(len(axis))])}


# Probabilities


@rewritten_as("softmax_grad")
def _softmax(g: Rewriting) -> Mapping[str, Any]:
    weighted = g.mul(g["Out@GRAD"], g["Out"])
    total = g.mul(g["Out"], g.sum(weighted, [g.attr("axis")], keep=True))
    return {"X@GRAD": g.sub(weighted, total)}


@rewritten_as("log_softmax_grad")
def _log_softmax(g: Rewriting) -> Mapping[str, Any]:
    total = g.sum(g["Out@GRAD"], [g.attr("axis")], keep=True)
    return {"X@GRAD": g.sub(g["Out@GRAD"], g.mul(g.emit("exp", X=g["Out"]), total))}
