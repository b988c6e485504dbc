"""A plan of a recorded program for other sizes of the feed equals the plan that is made from nothing."""

import pytest
from golden_programs import run_case
from plans_by_size import from_nothing, planned, text
from test_golden_programs import CASES

from minigraph.executor import plan as plans
from minigraph.executor.plan import Plan, lower

pytestmark = [pytest.mark.laws, pytest.mark.filterwarnings("ignore")]


def resized(feed_types, numbers, change):
    """The types with other sizes where dimensions are open."""
    return {
        name: kind.with_shape(tuple(change(s) if (name, axis) in numbers else s for axis, s in enumerate(kind.shape)))
        for name, kind in feed_types.items()
    }


@pytest.mark.parametrize("name", [*CASES][::2])  # many are alike
def test_plans_for_other_sizes_equal_those_made_from_nothing(name, monkeypatch):
    def compared(program, feed_types, fetch, *args, **options):
        first = planned(program, feed_types, fetch)
        if isinstance(first, Plan) and first.source.rewritten is not None:
            last = first
            for change in (lambda size: size + 1, lambda size: 3 * size, lambda size: 40 * size + 7):
                types = resized(feed_types, first.source.rewritten.numbers, change)
                plan = planned(program, types, fetch, last)
                assert text(plan) == text(from_nothing(program, types, fetch))
                last = plan if isinstance(plan, Plan) else last
        return lower(program, feed_types, fetch, *args, **options)

    monkeypatch.setattr(plans, "lower", compared)
    case, _ = CASES[name]
    run_case(case["builder"], case["arguments"])
