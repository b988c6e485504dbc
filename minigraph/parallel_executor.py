"""Fluid's path to `minigraph.executor.parallel_executor` and the strategies that it takes."""

from minigraph.executor.compiled_program import BuildStrategy, ExecutionStrategy
from minigraph.executor.parallel_executor import ParallelExecutor

__all__ = ["BuildStrategy", "ExecutionStrategy", "ParallelExecutor"]
