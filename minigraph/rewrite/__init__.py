"""Rewriting programs: the edits that passes are made of, and how to watch them.

Imported when it is asked for: by ``from minigraph import rewrite``.
"""

from minigraph.errors import RewriteError, RuleError
from minigraph.passes.base import Pass, Pipeline
from minigraph.passes.rules import Match, Rule, Rules, attr, marked, op, rule, value
from minigraph.passes.values import Use, Value, Values
from minigraph.rewrite.tracing import Step, Trace, trace

__all__ = [
    "Match",
    "Pass",
    "Pipeline",
    "RewriteError",
    "Rule",
    "RuleError",
    "Rules",
    "Step",
    "Trace",
    "Use",
    "Value",
    "Values",
    "attr",
    "marked",
    "op",
    "rule",
    "trace",
    "value",
]
