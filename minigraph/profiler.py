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

__all__ = [
    "KINDS",
    "SORTED_KEYS",
    "TRACER_OPTIONS",
    "Profile",
    "Row",
    "is_active",
    "note",
    "profile",
    "profiler",
    "reset_profiler",
    "start_profiler",
    "stop_profiler",
]
