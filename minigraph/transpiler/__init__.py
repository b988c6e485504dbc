"""Names of ``fluid.transpiler``, which rewrites programs before they run; imports the IR."""

from __future__ import annotations

from collections.abc import Iterable

from minigraph.ir import Program, Variable
from minigraph.support.public import public, refuse_unknown_names
from minigraph.transpiler import collective, details, distribute_transpiler
from minigraph.transpiler.distribute_transpiler import DistributeTranspiler, DistributeTranspilerConfig

__all__ = [
    "DistributeTranspiler",
    "DistributeTranspilerConfig",
    "collective",
    "details",
    "distribute_transpiler",
    "memory_optimize",
    "release_memory",
]


@public
def memory_optimize(
    input_program: Program | None,
    skip_opt_set: Iterable[str | Variable] | None = None,
    print_log: bool = False,
    level: int = 0,
    skip_grads: bool = True,
) -> None:
    """Do nothing, as in fluid 1.8: the executor shares memory between results by itself."""


@public
def release_memory(input_program: Program, skip_opt_set: Iterable[str | Variable] | None = None) -> None:
    """Do nothing, as in fluid 1.8: the executor releases results after their last use by itself."""


refuse_unknown_names(__name__)
