"""Fluid's path to `minigraph.executor.compiled_program`."""

from minigraph.executor.compiled_program import (
    BuildStrategy,
    CompiledProgram,
    ExecutionStrategy,
    ReduceStrategy,
)
from minigraph.executor.replicas import GradientScaleStrategy

__all__ = ["BuildStrategy", "CompiledProgram", "ExecutionStrategy", "GradientScaleStrategy", "ReduceStrategy"]
