"""Variables that a strategy keeps from step to step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from minigraph.initializer import Constant
from minigraph.ir import Block, Variable
from minigraph.ir.default_programs import default_startup_program


def persistent(block: Block, name: str, shape: Sequence[int], dtype: Any, value: float) -> Variable:
    """Create a persistable variable that the default startup program sets to `value`."""
    main, startup = block.program.global_block(), default_startup_program().global_block()
    startup.create_var(name=name, shape=shape, dtype=dtype, persistable=True, initializer=Constant(value))
    return main.create_var(name=name, shape=shape, dtype=dtype, persistable=True, stop_gradient=True)
