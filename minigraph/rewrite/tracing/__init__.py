"""Record what rewrites do to programs, step by step."""

from minigraph.rewrite.tracing.trace import Step, Trace, Track, trace

__all__ = ["Step", "Trace", "Track", "trace"]
