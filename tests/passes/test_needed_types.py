"""Passes of rules that say which types of operators their patterns need make no pattern in a program without them."""

import pytest

from minigraph.passes import IN_ORDER
from minigraph.passes.rules import Rules
from minigraph.passes.rules.rule import Rule

PREPARING = {"FindNormalizations", "MultiplyPowers", "SliceRows", "SumSquares"}
"""Some of their rules only bring what the others look for into one form."""

SAYING = [each for each in IN_ORDER if isinstance(each, Rules) and each.needs and each.name not in PREPARING]


@pytest.mark.parametrize("rules", SAYING, ids=lambda each: each.name)
def test_every_pattern_needs_the_types_of_one_set(rules):
    patterns = [each.pattern for each in rules.rules if isinstance(each, Rule)]
    assert patterns
    assert all(any(needed <= pattern.types for needed in rules.needs) for pattern in patterns)
