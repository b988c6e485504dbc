"""A set of names never contains an element type, and a rule or pass that looks in one is told so."""

import warnings

import pytest

from minigraph import layers, rewrite
from minigraph.passes import Pass
from minigraph.passes.rules.element_types import warn_of_sets

FLOATS = ("float32", "float64")

SILENT = [
    lambda m: m.x.dtype in ("float32", "float64"),
    lambda m: m.x.dtype in FLOATS,
    lambda m: m.x.dtype.text in {"float32", "float64"},
    lambda m: str(m.x.dtype) in {"float32"},
    lambda m: m.kind in {"float32"},
    lambda m: m.x.dtype in {5, 6},
    lambda m: m.attr("act") in {"relu", "float32"},
]
WRONG = [
    lambda m: m.x.dtype in {"float32", "float64"},
    lambda m: m.x.dtype not in {"float32"},
    lambda m: m.attr("out_dtype") in {"int64"},
    lambda m: m.attrs["dtype"] in {"int64", "int32"},
    lambda m: [each for each in m.ops if each.dtype in {"bool"}],
]


@pytest.mark.parametrize("function", SILENT, ids=range(len(SILENT)))
def test_what_finds_element_types_is_not_told(function):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_sets(function)


@pytest.mark.parametrize("function", WRONG, ids=range(len(WRONG)))
def test_a_set_of_names_is_told_with_its_line(function):
    with pytest.warns(UserWarning, match="a set of names never contains an element type") as said:
        warn_of_sets(function)
    assert f"test_element_types.py:{function.__code__.co_firstlineno}" in str(said[0].message)


def test_a_condition_of_a_rule_is_looked_through():
    @rewrite.rule
    def relu_twice(x):
        return layers.relu(layers.relu(x))

    with pytest.warns(UserWarning, match=r"Look in a tuple: in \('float32',\)"):

        @relu_twice.where
        def _(m):
            yield m.x.dtype in {"float32"}, "x must be float32"


class LooksInASet(Pass):
    """Law: none."""

    def apply(self, program):
        return any(var.dtype in {"int8"} for var in program.list_vars())


@pytest.mark.filterwarnings("ignore:LooksInASet has changed none")
def test_a_pass_that_is_checked_is_looked_through():
    with pytest.warns(UserWarning, match="'int8'.* at .*test_element_types.py"):
        rewrite.check(LooksInASet(), programs=1)
