"""Matrix products."""

from __future__ import annotations

from minigraph.opdef import op
from minigraph.opdef.gradient_rules import DoubleGrad, fused
from minigraph.types import TensorType, product, require, require_floating, require_same_dtype, same_dim


@op(
    "mul", inputs="X Y", outputs="Out", lod="X", grad=fused("X", "Y", grad=DoubleGrad({"DX": "DDY", "DY": "DDX"})),
    backend_attrs={"scale_x": 1.0, "scale_y": [1.0], "scale_out": 1.0, "force_fp32_output": False},
)  # fmt: skip
def mul(x: TensorType, y: TensorType, *, x_num_col_dims: int = 1, y_num_col_dims: int = 1) -> TensorType:
    """Matrix product of X and Y, each flattened to a matrix.

    The first `x_num_col_dims` dimensions of X become the rows and the others the columns, likewise those of Y with
    `y_num_col_dims`. ``Out`` has X's row dimensions followed by Y's column dimensions.
    """
    require_same_dtype("X and Y", x, y)
    require_floating(x)
    for name, matrix, split in (("x", x, x_num_col_dims), ("y", y, y_num_col_dims)):
        require(
            1 <= split < matrix.rank,
            f"{name}_num_col_dims must be in [1, {matrix.rank}) for {list(matrix.shape)}, got {split}",
        )
    columns, rows = product(x.shape[x_num_col_dims:]), product(y.shape[:y_num_col_dims])
    require(
        same_dim(columns, rows),
        f"X has {columns} columns but Y has {rows} rows",
        hint=f"Give Y {columns} rows, or set x_num_col_dims so that X flattens to {rows} columns.",
    )
    return x.with_shape(x.shape[:x_num_col_dims] + y.shape[y_num_col_dims:])


@op(
    "matmul", inputs="X Y", outputs="Out", lod="X", grad=fused("X", "Y", lod=False),
    backend_attrs={
        "fused_reshape_Out": [], "fused_transpose_Out": [], "head_number": 1,
        "Scale_x": 1.0, "Scale_y": 1.0, "Scale_out": 1.0, "force_fp32_output": False,
    },
)  # fmt: skip
def matmul(
    x: TensorType, y: TensorType, *, transpose_X: bool = False, transpose_Y: bool = False, alpha: float = 1.0
) -> TensorType:
    """``Out = alpha * X @ Y``, for matrices, vectors and batches of matrices.

    ``transpose_X`` and ``transpose_Y`` swap the last two dimensions first. A vector X is a row, a vector Y a column, or
    the other way round when transposed; the dimension of 1 that this adds to ``Out`` is dropped. Batch dimensions
    multiply out to the same number on both sides, or one side has none and goes with every matrix of the other.
    """
    require_same_dtype("X and Y", x, y)
    require_floating(x)
    require(x.rank > 0 and y.rank > 0, f"X and Y must have dimensions, got {list(x.shape)} and {list(y.shape)}")
    rows, columns = _matrix_dims(x.shape, transpose_X, is_left=True)
    y_rows, y_columns = _matrix_dims(y.shape, transpose_Y, is_left=False)
    require(
        same_dim(columns, y_rows),
        f"X has {columns} columns but Y has {y_rows} rows"
        + (", once transposed" if transpose_X or transpose_Y else ""),
        hint="Check transpose_X and transpose_Y.",
    )
    x_batch, y_batch = x.shape[:-2], y.shape[:-2]
    require(
        not x_batch or not y_batch or same_dim(product(x_batch), product(y_batch)),
        f"X holds {product(x_batch)} matrices but Y holds {product(y_batch)}",
        hint="Give both the same number of matrices, or one of them a single matrix.",
    )
    return x.with_shape(matmul_shape(x_batch or y_batch, rows, y_columns, x.rank == 1, y.rank == 1))


def _matrix_dims(shape: tuple[int, ...], transposed: bool, is_left: bool) -> tuple[int, int]:
    if len(shape) == 1:
        shape = (1, *shape) if is_left else (*shape, 1)
    rows, columns = shape[-2:]
    return (columns, rows) if transposed else (rows, columns)


def matmul_shape(
    batch: tuple[int, ...], rows: int, columns: int, x_is_vector: bool, y_is_vector: bool
) -> tuple[int, ...]:
    """Shape of ``matmul``'s result once the dimensions of 1 that vectors brought are dropped."""
    shape = (*batch, rows, columns)
    if x_is_vector and rows == 1:
        shape = (*batch, columns)
    if y_is_vector and shape[-1] == 1:
        shape = shape[:-1]
    return shape or (1,)
