"""Gradient operators on elements, rewritten by running their kernels on variables instead of arrays.

A kernel is a function of an array module and arrays. Here each function that it calls appends an operator, so that the
kernel is the only place where the slope is written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from minigraph.autodiff.decompositions.rewriting import Rewriting, rewritten_as
from minigraph.ir import Variable
from minigraph.kernels.tracing import Primitives, Traced, TracingModule
from minigraph.runtime.kernel_call import arguments_of, kernel_of, keywords_of
from minigraph.types import as_dtype

Operand = Variable | float

_TYPES = (
    "abs", "acos", "asin", "atan", "bce_loss", "brelu", "clip", "cos", "dropout", "elu_grad", "erf", "exp", "gelu",
    "hard_shrink", "hard_sigmoid", "hard_swish", "l1_norm", "label_smooth", "leaky_relu_grad", "log", "log1p",
    "log_loss", "log_softmax", "logsigmoid", "mish", "rank_loss", "reciprocal", "relu6",
    "relu_grad", "rsqrt", "selu", "sigmoid", "sin", "soft_relu", "softmax", "softplus", "softshrink", "softsign",
    "sqrt_grad", "square_grad", "squared_l2_norm", "stanh", "swish", "tanh", "tanh_shrink",
    "teacher_student_sigmoid_loss", "thresholded_relu",
)  # fmt: skip


@rewritten_as(*(f"{type}_grad" for type in _TYPES))
def _run_kernel(g: Rewriting) -> Mapping[str, Any]:
    kernel = kernel_of(g.op, "cpu", has_rows=False)
    operands = arguments_of(g.op, lambda name: _Array(g, g.var(name)))
    found = kernel.function(_Module(), *operands, **keywords_of(g.op, kernel))
    results = found if isinstance(found, tuple) else (found,)
    slots = (slot.name for slot in g.op.definition.outputs)
    return {slot: array and array.value for slot, array in zip(slots, results, strict=True)}


class _Module(TracingModule, Primitives):
    def logistic(self, x: _Array) -> _Array:
        return x.emit("sigmoid")

    def log_of_one_plus_exp(self, x: _Array) -> _Array:
        return x.emit("softplus")

    def erf(self, x: _Array) -> _Array:
        return x.emit("erf")

    def erfc(self, x: _Array) -> Any:
        return 1.0 - x.emit("erf")


class _Array(Traced):
    """A variable where a kernel expects an array."""

    def __init__(self, g: Rewriting, variable: Variable) -> None:
        self.g, self.value = g, variable
        self.dtype, self.shape = variable.dtype.numpy, variable.shape or ()
        self.ndim = len(self.shape)

    def apply(self, function: str, *operands: Any, **options: Any) -> _Array:
        values = (x.value if isinstance(x, _Array) else float(x) for x in operands)
        return _Array(self.g, _FUNCTIONS[function](self.g, *values, **options))

    def emit(self, type: str, **attrs: Any) -> _Array:
        return _Array(self.g, self.g.emit(type, X=self.value, **attrs))

    def clip(self, low: float, high: float, out: None = None) -> _Array:
        return self.emit("clip", min=low, max=high)

    def reshape(self, *shape: int) -> _Array:
        return _Array(self.g, self.g.like(self.value, shape))

    def astype(self, dtype: Any, copy: bool = True) -> _Array:
        return _Array(self.g, self.g.cast(self.value, as_dtype(dtype)))


def _where(g: Rewriting, condition: Variable, *choices: Operand) -> Variable:
    like = next(each for each in choices if isinstance(each, Variable))
    return g.where(condition, *(_filled(g, each, like) for each in choices))


def _filled(g: Rewriting, value: Operand, like: Variable) -> Variable:
    if isinstance(value, Variable):
        return value
    return g.zeros(like) if value == 0 else g.scale(g.ones(like), value)


def _add(g: Rewriting, x: Any, y: Any) -> Variable:
    if isinstance(x, float):
        x, y = y, x
    return g.scale(x, 1.0, y) if isinstance(y, float) else g.add(x, y)


def _subtract(g: Rewriting, x: Any, y: Any) -> Variable:
    if isinstance(y, float):
        return g.scale(x, 1.0, -y)
    return g.scale(y, -1.0, x) if isinstance(x, float) else g.sub(x, y)


def _multiply(g: Rewriting, x: Any, y: Any) -> Variable:
    if isinstance(x, float):
        x, y = y, x
    if isinstance(y, float):
        return g.scale(x, y)
    if not x.dtype.is_floating:
        x = g.mask(x, y)
    elif not y.dtype.is_floating:
        y = g.mask(y, x)
    return g.mul(x, y)


def _divide(g: Rewriting, x: Any, y: Any) -> Variable:
    if isinstance(y, float):
        return g.div(x, g.number(y, x))
    return g.scale(g.emit("reciprocal", X=y), x) if isinstance(x, float) else g.div(x, y)


def _of_one(type: str) -> Callable[[Rewriting, Variable], Variable]:
    return lambda g, x: g.emit(type, X=x)


def _extreme(type: str) -> Callable[[Rewriting, Variable, Operand], Variable]:
    return lambda g, x, y: g.emit(type, X=x, Y=y if isinstance(y, Variable) else g.number(y, x))


def _comparison(type: str) -> Callable[[Rewriting, Variable, Operand], Variable]:
    return lambda g, x, y: g.compare(type, x, y)


def _logical(type: str) -> Callable[[Rewriting, Variable, Variable], Variable]:
    return lambda g, x, y: g.emit(type, X=x, Y=y)


_FUNCTIONS: Mapping[str, Callable[..., Variable]] = {
    "add": _add, "subtract": _subtract, "multiply": _multiply, "divide": _divide, "true_divide": _divide,
    "negative": Rewriting.negative, "positive": lambda _, x: x, "square": Rewriting.square, "sign": Rewriting.sign,
    "expm1": lambda g, x: g.scale(g.emit("exp", X=x), 1.0, -1.0),
    "maximum": _extreme("elementwise_max"), "minimum": _extreme("elementwise_min"),
    "greater": _comparison("greater_than"), "greater_equal": _comparison("greater_equal"),
    "less": _comparison("less_than"), "less_equal": _comparison("less_equal"), "equal": _comparison("equal"),
    "bitwise_and": _logical("logical_and"), "bitwise_or": _logical("logical_or"),
    **{name: _of_one(name) for name in ("cos", "exp", "log", "reciprocal", "sin", "sqrt", "tanh")},
    "absolute": _of_one("abs"), "where": _where,
    "sum": lambda g, x, axis, keepdims, **_: g.sum(x, axis, keepdims),
}  # fmt: skip
"""Functions that append the operator for a NumPy function, by its name."""
