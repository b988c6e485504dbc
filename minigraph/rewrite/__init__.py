"""Rewriting programs: the edits that passes are made of.

Imported when it is asked for: by ``from minigraph import rewrite``.
"""

from minigraph.errors import RewriteError
from minigraph.passes.base import Pass, Pipeline
from minigraph.passes.values import Use, Value, Values

__all__ = ["Pass", "Pipeline", "RewriteError", "Use", "Value", "Values"]
