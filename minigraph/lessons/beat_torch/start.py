"""Lesson 10: multiply matrices in the cheaper order."""

from minigraph import layers, rewrite  # noqa: F401

# Write rules, and name the pass that runs them `reassociate`, such as rewrite.Rules(first, second).
# Decorate rules with @rewrite.rule(changes_rounding=True).
