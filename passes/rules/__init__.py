"""Rules: rewrites that are written as the fragment to look for and the fragment to put in its place."""

from minigraph.passes.rules.fragments import attr, marked, op, value
from minigraph.passes.rules.gradients import gradient_of, with_gradients
from minigraph.passes.rules.matcher import Match
from minigraph.passes.rules.rule import Rule, Rules, rule

__all__ = ["Match", "Rule", "Rules", "attr", "gradient_of", "marked", "op", "rule", "value", "with_gradients"]
