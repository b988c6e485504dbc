"""Record what rewrites do to programs, step by step."""

from minigraph.rewrite.tracing.steps import Step, Track
from minigraph.rewrite.tracing.trace import Trace, trace

__all__ = ["Step", "Trace", "Track", "trace"]
