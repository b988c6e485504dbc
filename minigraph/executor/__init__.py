"""Running programs: lowered once for each way of being called, then a function call a run."""

from minigraph.executor.executor import (
    Executor,
)

__all__ = [
    "Executor",
]
