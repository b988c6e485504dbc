"""Fluid's path to `minigraph.executor.compiled_program`."""

from minigraph.executor.compiled_program import (
    BuildStrategy,
    CompiledProgram,
    ExecutionStrategy,
    GradientScaleStrategy,
    ReduceStrategy,
)

__all__ = ["BuildStrategy", "CompiledProgram", "ExecutionStrategy", "GradientScaleStrategy", "ReduceStrategy"]
