"""Rewrite programs: the edits that passes are made of, and tools that watch, check and score passes.

Imports passes, the executor and the faces up to optimizers. ``import minigraph`` does not load it; ``from minigraph
import rewrite`` does.
"""

from typing import TYPE_CHECKING

from minigraph.errors import PassError, RewriteError, RuleError
from minigraph.passes.base import Pass, Pipeline
from minigraph.passes.rules import (
    Match,
    Rule,
    Rules,
    attr,
    gradient_of,
    marked,
    op,
    rule,
    value,
    with_gradients,
)
from minigraph.passes.rules.reasons import WhyNot
from minigraph.passes.values import Use, Value
from minigraph.rewrite.tracing import Step, Trace, trace
from minigraph.rewrite.values import Values
from minigraph.support.public import refuse_unknown_names

if TYPE_CHECKING:
    from minigraph.rewrite.checking import check
    from minigraph.rewrite.counter_examples import CounterExample
    from minigraph.rewrite.reducing import reduce
    from minigraph.rewrite.scoring import Score, score

__all__ = [
    "CounterExample",
    "Match",
    "Pass",
    "PassError",
    "Pipeline",
    "RewriteError",
    "Rule",
    "RuleError",
    "Rules",
    "Score",
    "Step",
    "Trace",
    "Use",
    "Value",
    "Values",
    "WhyNot",
    "attr",
    "check",
    "gradient_of",
    "marked",
    "op",
    "reduce",
    "rule",
    "score",
    "trace",
    "value",
    "with_gradients",
]

refuse_unknown_names(  # modules that draw programs are imported when they are asked for
    __name__,
    CounterExample=f"{__name__}.counter_examples",
    check=f"{__name__}.checking",
    reduce=f"{__name__}.reducing",
    **dict.fromkeys(("Score", "score"), f"{__name__}.scoring"),
)
