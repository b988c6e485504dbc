"""Runs plans: feeds, state, caches, CUDA graphs, profiler; imports lowering and what lies below it."""

from minigraph.executor.executor import Executor
from minigraph.executor.fetch_handler import FetchHandler
from minigraph.executor.fetches import as_numpy
from minigraph.executor.fetches import fetch_var as _fetch_var
from minigraph.runtime.scope import global_scope, scope_guard

__all__ = ["Executor", "FetchHandler", "_fetch_var", "as_numpy", "global_scope", "scope_guard"]
