"""Reductions of the sequences of a tensor to one row each."""

from __future__ import annotations

from minigraph.errors import ProgramError
from minigraph.ir import Variable
from minigraph.layer_helper import LayerHelper, layer

__all__ = ["sequence_first_step", "sequence_last_step", "sequence_pool"]


@layer
def sequence_pool(input: Variable, pool_type: str, is_test: bool = False, pad_value: float = 0.0) -> Variable:
    """One row for each sequence of `input`.

    Parameters
    ----------
    input : Variable
        float32 or float64, of sequences; of two levels, the inner one is pooled and the outer one is left.
    pool_type : {'average', 'sum', 'sqrt', 'max', 'last', 'first'}
        ``sqrt`` is the sum divided by the root of the length.
    is_test : bool
        Accepted because fluid has it.
    pad_value : float
        The row of a sequence without rows.

    Examples
    --------
    >>> import minigraph as fluid, numpy as np
    >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
    ...     x = fluid.data("x", [None, 1], lod_level=1)
    ...     y = fluid.layers.sequence_pool(x, "sum")
    ...     rows = fluid.create_lod_tensor(np.array([[1.0], [2.0], [4.0]], "float32"), [[2, 1]], None)
    ...     fluid.Executor().run(feed={"x": rows}, fetch_list=[y])
    [array([[3.],
           [4.]], dtype=float32)]
    """
    if not isinstance(pool_type, str):
        raise ProgramError(f"sequence_pool: pool_type must be a str, got {pool_type!r:.80}")
    return LayerHelper("sequence_pool").emit(
        "sequence_pool", X=input, pooltype=pool_type.upper(), is_test=is_test, pad_value=pad_value
    )


@layer
def sequence_first_step(input: Variable) -> Variable:
    """The first row of each sequence of `input`."""
    return sequence_pool(input, "first")


@layer
def sequence_last_step(input: Variable) -> Variable:
    """The last row of each sequence of `input`."""
    return sequence_pool(input, "last")
