"""Runs plans: feeds, state, caches, CUDA graphs, profiler; imports lowering and what lies below it."""

from minigraph.executor.executor import (
    Executor,
)

__all__ = [
    "Executor",
]
