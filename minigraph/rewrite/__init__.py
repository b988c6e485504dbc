"""Rewriting programs: the edits that passes are made of, and how to watch them.

Imported when it is asked for: by ``from minigraph import rewrite``.
"""

from minigraph.errors import RewriteError
from minigraph.passes.base import Pass, Pipeline
from minigraph.passes.values import Use, Value, Values
from minigraph.rewrite.tracing import Step, Trace, trace

__all__ = ["Pass", "Pipeline", "RewriteError", "Step", "Trace", "Use", "Value", "Values", "trace"]
