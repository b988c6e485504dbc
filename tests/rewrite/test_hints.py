"""What hints read in the code of a pass, in every version of Python."""

from dataclasses import dataclass
from enum import Enum

from minigraph.passes import Pass
from minigraph.rewrite.hints import hints_of


class Kind(Enum):
    """Its own code stands in `enum`, and names numbers."""

    ONE = "one"


def is_wanted(op):
    return op.type == "leaky_relu" and op.attr("alpha") == 7


@dataclass(frozen=True)
class Picks(Pass):
    """Name operators in a function that a comprehension calls, and a small number there."""

    limit: float = 0.25
    kind: Kind = Kind.ONE

    def apply(self, program):
        return any([is_wanted(op) for op in program.global_block().ops if op.attr("axis") != 3])


def test_numbers_and_names_of_helpers_are_found():
    hints = hints_of(Picks())
    assert hints.types == ("leaky_relu",)
    assert hints.attrs == ("alpha", "axis")


def test_other_numbers_are_those_of_its_flags():
    assert {0.0, 1.0}.union(hints_of(Picks()).numbers) == {0.0, 0.25, 1.0, 3.0, 7.0}
