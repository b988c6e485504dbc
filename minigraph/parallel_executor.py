"""Fluid's path to `minigraph.executor.parallel_executor`."""

from minigraph.executor.parallel_executor import ParallelExecutor

__all__ = ["ParallelExecutor"]
