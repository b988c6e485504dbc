"""An estimate of the memory that a program takes."""

from __future__ import annotations

from minigraph.errors import ProgramError
from minigraph.ir import Program
from minigraph.support.public import public
from minigraph.types import VarKind, product

__all__ = ["memory_usage"]


@public
def memory_usage(program: Program, batch_size: int) -> tuple[float, float, str]:
    """Estimate how much the results of a program's operators take together, as fluid does.

    A run needs less, because results share memory: see `Executor.explain`.

    Parameters
    ----------
    program : Program
    batch_size : int
        Stands for -1 in shapes.

    Returns
    -------
    (float, float, str)
        1.05 and 1.1 times the sum, and the unit: B, KB or MB.

    Raises
    ------
    ProgramError
        If `batch_size` is not positive, or a shape has several unknown dimensions.

    Examples
    --------
    >>> import minigraph as fluid
    >>> with fluid.program_guard(fluid.Program()):
    ...     y = fluid.layers.relu(fluid.data("x", [None, 5]))
    ...     fluid.contrib.memory_usage(fluid.default_main_program(), batch_size=10)
    (210.0, 220.00000000000003, 'B')
    """
    if batch_size <= 0:
        raise ProgramError(f"the batch size must be positive, got {batch_size}")
    block = program.global_block()
    names = dict.fromkeys(name for op in block.ops for name in op.output_arg_names)
    total = 0.0
    for var in [block.vars[name] for name in names if name in block.vars]:
        shape = var.shape or ()
        if var.kind is not VarKind.LOD_TENSOR:
            continue
        if shape.count(-1) > 1:
            raise ProgramError(f"{var} has several dimensions of unknown size")
        total += product([batch_size if size == -1 else size for size in shape]) * var.dtype.numpy.itemsize
    units = ["B", "KB", "MB"]
    while total > 1024 and len(units) > 1:
        total, units = total / 1024, units[1:]
    return total * 1.05, total * 1.1, units[0]
