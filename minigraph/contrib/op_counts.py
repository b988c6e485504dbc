"""Counts of a program's operators, and of pairs in which one operator reads what the other has written."""

from __future__ import annotations

from collections import Counter

from minigraph.ir import Program
from minigraph.support.public import public

__all__ = ["op_freq_statistic"]


@public
def op_freq_statistic(program: Program) -> tuple[list[tuple[str, int]], list[tuple[str, int]]]:
    """Count the operators in the global block of a program, and the pairs of which one reads the other's result.

    Parameters are left out: operators that write only parameters, and reads of parameters, do not count.

    Returns
    -------
    tuple of list of tuple of str, int
        Operator types, and pairs such as ``mul->elementwise_add``, each with its number, the most frequent first.

    Examples
    --------
    >>> import minigraph as fluid
    >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
    ...     y = fluid.layers.relu(fluid.layers.relu(fluid.data("x", [None, 3])))
    ...     op_freq_statistic(fluid.default_main_program())
    ([('relu', 2)], [('relu->relu', 1)])
    """
    block = program.global_block()
    parameters = {parameter.name for parameter in block.all_parameters()}
    types: Counter[str] = Counter()
    pairs: Counter[str] = Counter()
    writers: dict[str, str] = {}
    for op in block.ops:
        types[op.type] += any(name not in parameters for name in op.output_arg_names)
        read = (name for name in op.input_arg_names if name not in parameters)
        pairs.update(f"{writers[name]}->{op.type}" for name in read if name in writers)
        writers.update(dict.fromkeys(op.output_arg_names, op.type))
    return (+types).most_common(), pairs.most_common()
