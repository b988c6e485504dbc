"""Fluid's path to `minigraph.executor.profiler`."""

from minigraph.executor.profiler import (
    KINDS,
    SORTED_KEYS,
    TRACER_OPTIONS,
    Profile,
    Row,
    is_active,
    note,
    profile,
    profiler,
    reset_profiler,
    start_profiler,
    stop_profiler,
)
from minigraph.support.public import refuse_unknown_names

__all__ = [
    "KINDS", "SORTED_KEYS", "TRACER_OPTIONS", "Profile", "Row", "is_active", "note", "profile", "profiler",
    "reset_profiler", "start_profiler", "stop_profiler",
]  # fmt: skip

refuse_unknown_names(__name__)
