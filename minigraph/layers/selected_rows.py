"""Selected rows: what the gradient of a sparse embedding is."""

from __future__ import annotations

from minigraph.errors import WrongTypeError
from minigraph.ir import Variable, VarKind
from minigraph.layer_helper import check_variable, emit, layer

__all__ = ["get_tensor_from_selected_rows", "merge_selected_rows"]


@layer
def merge_selected_rows(x: Variable, name: str | None = None) -> Variable:
    """Selected rows with each row there once, in ascending order: rows of one number are added up.

    Parameters
    ----------
    x : Variable
        Selected rows.

    Raises
    ------
    WrongTypeError
        If `x` is dense.
    """
    return _emit("merge_selected_rows", x, name)


@layer
def get_tensor_from_selected_rows(x: Variable, name: str | None = None) -> Variable:
    """The rows that are there, one below the other, as a dense tensor; their numbers are lost.

    Parameters
    ----------
    x : Variable
        Selected rows.

    Raises
    ------
    WrongTypeError
        If `x` is dense.

    Examples
    --------
    >>> import minigraph as fluid
    >>> with fluid.program_guard(fluid.Program()), fluid.unique_name.guard():
    ...     ids = fluid.data("ids", [None], "int64")
    ...     loss = fluid.layers.mean(fluid.embedding(ids, [100, 8], is_sparse=True))
    ...     ((table, gradient),) = fluid.append_backward(loss)
    ...     print(gradient.type.name, gradient.shape, get_tensor_from_selected_rows(gradient).shape)
    SELECTED_ROWS (100, 8) (-1, 8)
    """
    return _emit("get_tensor_from_selected_rows", x, name)


def _emit(layer: str, x: Variable, name: str | None) -> Variable:
    if check_variable(x, f"{layer}: x").kind is not VarKind.SELECTED_ROWS:
        raise WrongTypeError(
            f"{layer}: x must be selected rows, got {x}",
            hint="Give the gradient of an embedding with is_sparse=True.",
        )  # fmt: skip
    return emit(layer, name, X=x)
