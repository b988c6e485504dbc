"""Layers with parameters, and the products they are made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from minigraph.errors import ProgramError, WrongTypeError, on_one_line
from minigraph.ir import Variable
from minigraph.layer_helper import LayerHelper, check_floating, check_variable, emit, features_of, layer
from minigraph.support.arguments import as_float
from minigraph.support.public import refuse_unknown_names

__all__ = ["dropout", "embedding", "fc", "fluid_embedding", "matmul", "mul"]


@layer
@on_one_line
def fc(
    input: Variable | Sequence[Variable],
    size: int,
    num_flatten_dims: int = 1,
    param_attr: Any = None,
    bias_attr: Any = None,
    act: str | None = None,
    name: str | None = None,
) -> Variable:
    """Fully connected layer: ``act(sum_i input_i @ w_i + b)``.

    Parameters
    ----------
    input : Variable or list of Variable, float[..., features]
        Dimensions from `num_flatten_dims` on count as features (-1: the last one only).
    size : int
        Number of outputs.
    param_attr, bias_attr : ParamAttr, str, Initializer, bool, optional
        A list of `param_attr` goes with a list of inputs. ``bias_attr=False``: no bias.
    act : str, optional
        Operator applied to the result.

    Returns
    -------
    Variable, float[..., size]

    Raises
    ------
    WrongTypeError
        If an input is not a floating-point Variable.
    """
    helper = LayerHelper("fc", name)
    inputs = list(input) if isinstance(input, list | tuple) else [input]
    products = [
        _times_weight(helper, check_floating(x, "fc: input"), size, num_flatten_dims, attr)
        for x, attr in zip(inputs, _attr_for_each(param_attr, len(inputs)), strict=True)
    ]
    # As fluid writes it: one product for each input and their sum, rather than a product of joined inputs.
    total = products[0] if len(products) == 1 else helper.emit("sum", X=products)
    assert total.shape is not None
    dim_start = num_flatten_dims if num_flatten_dims != -1 else len(total.shape) - 1
    return helper.activation(helper.bias(total, bias_attr, dim_start), act)


def _times_weight(helper: LayerHelper, x: Variable, size: int, num_flatten_dims: int, attr: Any) -> Variable:
    assert x.shape is not None
    columns = num_flatten_dims if num_flatten_dims != -1 else len(x.shape) - 1
    features = features_of(x, columns, "fc")
    weight = helper.required(attr, [features, size], x.dtype)
    return helper.emit("mul", X=x, Y=weight, x_num_col_dims=columns, y_num_col_dims=1)


def _attr_for_each(attr: Any, count: int) -> list[Any]:
    if not isinstance(attr, list | tuple):
        return [attr] * count
    if len(attr) != count:
        raise WrongTypeError(f"fc: {count} inputs but {len(attr)} param_attr")
    return list(attr)


@layer
def mul(
    x: Variable, y: Variable, x_num_col_dims: int = 1, y_num_col_dims: int = 1, name: str | None = None
) -> Variable:
    """Matrix product of `x` and `y`, each flattened to a matrix at the given dimension."""
    check_floating(y, "mul: y")
    dims: dict[str, Any] = {"x_num_col_dims": x_num_col_dims, "y_num_col_dims": y_num_col_dims}
    return emit("mul", name, X=check_floating(x, "mul: x"), Y=y, **dims)


@layer
def matmul(
    x: Variable,
    y: Variable,
    transpose_x: bool = False,
    transpose_y: bool = False,
    alpha: float = 1.0,
    name: str | None = None,
) -> Variable:
    """``alpha * x @ y`` over the last two dimensions, each operand transposed first if asked."""
    check_floating(x, "matmul: x")
    check_floating(y, "matmul: y")
    return emit("matmul", name, X=x, Y=y, transpose_X=transpose_x, transpose_Y=transpose_y, alpha=as_float(alpha))


@layer
def dropout(
    x: Variable,
    dropout_prob: float,
    is_test: bool = False,
    seed: int | None = None,
    name: str | None = None,
    dropout_implementation: str = "downgrade_in_infer",
) -> Variable:
    """Zero each element with probability `dropout_prob`.

    Parameters
    ----------
    dropout_implementation : {'downgrade_in_infer', 'upscale_in_train'}
        Whether inference multiplies by ``1 - dropout_prob`` or training divides by it.
    seed : int, optional
        The same mask in each run; default: the program's ``random_seed``, and if that is 0 another mask in each run.

    References
    ----------
    N. Srivastava et al., Dropout: a simple way to prevent neural networks from overfitting, JMLR 2014.
    """
    helper = LayerHelper("dropout", name)
    check_floating(x, "dropout: x")
    program_seed = x.block.program.random_seed
    if not seed and program_seed:
        seed = program_seed
    out, mask = helper.temporary(), helper.temporary(stop_gradient=True)
    attrs = {
        "dropout_prob": dropout_prob, "is_test": is_test, "fix_seed": seed is not None, "seed": seed or 0,
        "dropout_implementation": dropout_implementation,
    }  # fmt: skip
    helper.append("dropout", {"X": x}, {"Out": out, "Mask": mask}, attrs)
    return out


@layer
def embedding(
    input: Variable,
    size: Sequence[int],
    is_sparse: bool = False,
    is_distributed: bool = False,
    padding_idx: int | None = None,
    param_attr: Any = None,
    dtype: Any = "float32",
) -> Variable:
    """A learned row for each id, for ids whose last dimension is 1; see `minigraph.embedding` for others.

    Parameters
    ----------
    input : Variable, int[..., 1]
    size : sequence of int
        Number of rows, and of elements in each row.
    is_sparse : bool
        Whether the gradient of the table is selected rows, those that were looked up, so that an update need not look
        at the others.
    is_distributed : bool
        Kept as an attribute.
    padding_idx : int, optional
        An id that stands for a row of zeros that is not learned. A negative one counts from the end.

    Returns
    -------
    Variable, dtype[..., size[1]]
    """
    return _embedding("lookup_table", input, size, is_sparse, is_distributed, padding_idx, param_attr, dtype)


@layer
def fluid_embedding(
    input: Variable,
    size: Sequence[int],
    is_sparse: bool = False,
    is_distributed: bool = False,
    padding_idx: int | None = None,
    param_attr: Any = None,
    dtype: Any = "float32",
) -> Variable:
    """A learned row for each id, for ids of any shape; else as `minigraph.layers.embedding`.

    Parameters
    ----------
    input : Variable, int[...]

    Returns
    -------
    Variable, dtype[..., size[1]]
    """
    return _embedding("lookup_table_v2", input, size, is_sparse, is_distributed, padding_idx, param_attr, dtype)


def _embedding(
    type: str,
    ids: Variable,
    size: Sequence[int],
    is_sparse: bool,
    is_distributed: bool,
    padding_idx: int | None,
    param_attr: Any,
    dtype: Any,
) -> Variable:
    check_integers(ids, "embedding: input")
    helper = LayerHelper("embedding")
    attrs = embedding_attrs(size, is_sparse, is_distributed, padding_idx)
    table = helper.required(param_attr, list(size), dtype)
    return helper.emit(type, W=table, Ids=ids, **attrs)


def check_integers(x: Any, what: str) -> Variable:
    """`x`, if it is a Variable of integers.

    Raises
    ------
    WrongTypeError
        Otherwise.
    """
    if check_variable(x, what).dtype.numpy.kind not in "iu":
        raise WrongTypeError(f"{what} must hold integers, got {x}", hint="Convert with layers.cast.")
    return x


def embedding_attrs(
    size: Sequence[int], is_sparse: bool, is_distributed: bool, padding_idx: int | None
) -> dict[str, Any]:
    """The attributes of a ``lookup_table``; there `padding_idx` is -1 where no row is for padding.

    Raises
    ------
    ProgramError
        If `size` is not two numbers, or `padding_idx` not the number of a row, counted from either end.
    """
    if len(size) != 2:
        raise ProgramError(f"embedding: size must be (rows, columns), got {list(size)}")
    rows = size[0]
    if padding_idx is not None and not -rows <= padding_idx < rows:
        raise ProgramError(f"embedding: padding_idx must be in [{-rows}, {rows}), got {padding_idx}")
    # The operator counts rows from the front, and takes -1 for no padding.
    padding = -1 if padding_idx is None else padding_idx % rows
    return {
        "is_sparse": is_sparse, "is_distributed": is_distributed, "padding_idx": padding,
        "remote_prefetch": is_sparse and not is_distributed,
    }  # fmt: skip


refuse_unknown_names(__name__, others="minigraph.layers")
