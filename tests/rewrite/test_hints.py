"""Hints are read from the code of a pass in every version of Python."""

from dataclasses import dataclass
from enum import Enum
from functools import cached_property

import pytest

import minigraph as fluid
from minigraph.passes import Pass
from minigraph.rewrite.hints import hints_of
from minigraph.types import DType


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


def test_a_cached_value_is_no_hint_but_the_code_that_computes_it_is():
    class Cached(Pass):
        @cached_property
        def wanted(self):
            return "_".join(["leaky", "relu"]), "softmax", 3 + len("axis")

        def apply(self, program):
            return bool(program.global_block().ops.of_type(self.wanted[0]))

    each = Cached()
    before = hints_of(each)
    assert each.wanted == ("leaky_relu", "softmax", 7)
    assert hints_of(each) == before
    assert before.types == ("relu", "softmax") and before.attrs == ("axis",) and 3.0 in before.numbers


@pytest.mark.parametrize(
    ("is_wanted", "dtypes"),
    [
        (lambda op, dtype: dtype == "float16", (DType.FP16,)),
        (lambda op, dtype: dtype is fluid.core.VarDesc.VarType.INT8, (DType.INT8,)),
        (lambda op, dtype: dtype in (DType.UINT8, DType.INT16), (DType.INT16, DType.UINT8)),
        (lambda op, dtype: op.attr("dtype") == "float32" and dtype is DType.INT64, ()),
    ],
)
def test_element_types_that_programs_seldom_have_are_found(is_wanted, dtypes):
    assert hints_of(is_wanted).dtypes == dtypes
