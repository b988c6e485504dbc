"""Plans for other sizes of a feed, and all that they say."""

from unittest import mock

from minigraph import unique_name
from minigraph.errors import MinigraphError
from minigraph.executor import plan as plans
from minigraph.executor.plan import lower
from minigraph.passes import LOWERING
from minigraph.runtime.place import CPUPlace


def planned(program, feed_types, fetch, like=None, passes=LOWERING):
    """A plan, or the error of making it; names that passes make up do not depend on earlier ones."""
    with unique_name.guard():
        try:
            return lower(program, feed_types, fetch, CPUPlace(), passes, like=like)
        except MinigraphError as error:
            return error


def from_nothing(*args):
    """A plan as if no dimension was open."""
    with mock.patch.object(plans, "rewrite", lambda *_: None):
        return planned(*args)


def text(plan):
    """All that a plan says."""
    if isinstance(plan, MinigraphError):
        return str(plan)
    steps = [
        f"{plan.source.op_of(step)}; {list(map(_type_of, (*step.reads, *step.writes)))}; {step.in_place}"
        for step in plan.steps.steps
    ]
    rest = plan.compiled.listing(), repr(plan.buffers.layout.places), repr((plan.must_copy, plan.state_must_copy))
    return "\n".join([str(plan.program), *steps, *rest])


def is_rewritten_again(plan, like):
    return plan.source.rewritten is not like.source.rewritten


def _type_of(value):
    return str(value.tensor_type)
