"""Python's arithmetic on variables: ``x + y``, ``2 * x``, ``-x``, ``x.astype("float64")``.

With a Python number, addition, subtraction, multiplication and division become one ``scale`` operator. Results have
bare names ``tmp_<n>``, as in fluid. Importing this module gives `minigraph.ir.Variable` its operators.
"""

from __future__ import annotations

from typing import Any

from minigraph.errors import WrongTypeError, caller_site
from minigraph.ir import Variable
from minigraph.types import as_dtype
from minigraph.unique_name import generate


def _append(x: Variable, op_type: str, inputs: dict[str, Any], attrs: dict[str, Any]) -> Variable:
    block = x.block.program.current_block()
    out = block.create_var(name=generate("tmp"))
    block.append_op(op_type, inputs, {"Out": out}, attrs)
    return out


def _affine(x: Variable, scale: float, bias: float) -> Variable:
    if not x.dtype.is_floating and (scale != int(scale) or bias != int(bias)):
        raise WrongTypeError(f"{x} holds integers, which a number with a fraction would not stay", site=caller_site())
    return _append(x, "scale", {"X": x}, {"scale": scale, "bias": bias})


def _binary(op_type: str, x: Variable, y: Variable) -> Variable:
    if y.dtype is not x.dtype:
        y = astype(y, x.dtype)
    # A leading -1 is a batch dimension, to be laid over the other's first.
    axis = 0 if y.shape and y.shape[0] == -1 else -1
    return _append(x, op_type, {"X": x, "Y": y}, {"axis": axis})


def _constant_like(x: Variable, value: float) -> Variable:
    """A tensor of `x`'s shape filled with `value`."""
    assert x.shape is not None
    if -1 not in x.shape:
        filled = _append(x, "fill_constant", {}, {"shape": x.shape, "dtype": int(x.dtype), "value": value})
    else:
        batch = x.shape.index(-1)
        shape = [1 if dim < 0 and i != batch else dim for i, dim in enumerate(x.shape)]
        attrs = {"shape": shape, "dtype": int(x.dtype), "value": value, "input_dim_idx": batch, "output_dim_idx": batch}
        filled = _append(x, "fill_constant_batch_size_like", {"Input": x}, attrs)
    filled.stop_gradient = True
    return filled


def _scalar(x: Variable, value: float) -> Variable:
    filled = _append(x, "fill_constant", {}, {"shape": [1], "dtype": int(x.dtype), "value": value})
    filled.stop_gradient = True
    return filled


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) or (getattr(value, "shape", None) == () and not isinstance(value, Variable))


def add(x: Variable, y: Any) -> Variable:
    if _is_number(y):
        return _affine(x, 1.0, float(y))
    return _binary("elementwise_add", x, y) if isinstance(y, Variable) else NotImplemented


def subtract(x: Variable, y: Any) -> Variable:
    if _is_number(y):
        return _affine(x, 1.0, -float(y))
    return _binary("elementwise_sub", x, y) if isinstance(y, Variable) else NotImplemented


def subtract_from(x: Variable, y: Any) -> Variable:
    return _affine(x, -1.0, float(y)) if _is_number(y) else NotImplemented


def multiply(x: Variable, y: Any) -> Variable:
    if _is_number(y):
        return _affine(x, float(y), 0.0)
    return _binary("elementwise_mul", x, y) if isinstance(y, Variable) else NotImplemented


def divide(x: Variable, y: Any) -> Variable:
    if _is_number(y):
        # Integers are divided by the operator, which truncates; as a factor 1/y they would lose that.
        return _affine(x, 1.0 / y, 0.0) if x.dtype.is_floating else _binary("elementwise_div", x, _scalar(x, float(y)))
    return _binary("elementwise_div", x, y) if isinstance(y, Variable) else NotImplemented


def divide_into(x: Variable, y: Any) -> Variable:
    return _binary("elementwise_div", _constant_like(x, float(y)), x) if _is_number(y) else NotImplemented


def negate(x: Variable) -> Variable:
    return _affine(x, -1.0, 0.0)


def astype(x: Variable, dtype: Any) -> Variable:
    """`x` converted to `dtype`."""
    return _append(x, "cast", {"X": x}, {"in_dtype": int(x.dtype), "out_dtype": int(as_dtype(dtype))})


_METHODS = {
    "__add__": add, "__radd__": add, "__sub__": subtract, "__rsub__": subtract_from, "__mul__": multiply,
    "__rmul__": multiply, "__truediv__": divide, "__rtruediv__": divide_into, "__neg__": negate, "astype": astype,
}  # fmt: skip
for _name, _method in _METHODS.items():
    setattr(Variable, _name, _method)
# NumPy scalars on the left must leave the operation to the variable.
Variable.__array_ufunc__ = None  # type: ignore[attr-defined]
