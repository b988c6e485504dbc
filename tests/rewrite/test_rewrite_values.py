"""Wrong arguments for the methods of `Values` end in errors of the project's own, which say what to do."""

import inspect

import pytest
from misuse import WRONG
from together import check_all

from minigraph import rewrite
from minigraph.errors import MinigraphError, WrongTypeError
from minigraph.ir import Program
from minigraph.rewrite import Use, Value

TEXT = """
block 0
  data x: float32[2]
  h: float32[2] = scale(X=x) {scale=2.0}
  y: float32[2] = scale(X=h) {scale=3.0}
"""
RIGHT = {
    "input": lambda first, second: {"op": first, "slot": "X", "index": 0},
    "output": lambda first, second: {"op": first, "slot": "Out", "index": 0},
    "producer": lambda first, second: {"value": Value("h", 1)},
    "users": lambda first, second: {"value": Value("h", 1)},
    "is_there": lambda first, second: {"value": Value("h", 1), "op": second},
    "is_live_out": lambda first, second: {"value": Value("h", 1)},
    "is_used_once": lambda first, second: {"value": Value("h", 1)},
    "type_of": lambda first, second: {"value": Value("h", 1)},
    "insert": lambda first, second: {
        "type": "relu", "inputs": {"X": "x"}, "outputs": {"Out": "new"}, "attrs": {}, "before": first,
    },
    "replace_op": lambda first, second: {
        "op": first, "type": "relu", "inputs": {"X": "x"}, "outputs": {"Out": "h"}, "attrs": {},
    },
    "replace_use": lambda first, second: {"use": Use(second, "X", 0), "value": Value("x", 0)},
    "replace_all_uses": lambda first, second: {"old": Value("h", 1), "new": Value("x", 0)},
    "erase": lambda first, second: {"op": second},
}  # fmt: skip


@pytest.mark.parametrize(
    ("method", "argument"), [(method, argument) for method, right in RIGHT.items() for argument in right(None, None)]
)
def test_a_wrong_argument_ends_in_an_error_that_says_what_to_do(method, argument):
    check_all(lambda wrong: check_wrong(method, argument, wrong), {name: name for name in WRONG})


def check_wrong(method, argument, wrong):
    program = Program.parse(inspect.cleandoc(TEXT))
    program.roots = ("x",)
    first, second = program.global_block().ops
    text, values = str(program), rewrite.Values(program)
    try:
        getattr(values, method)(**{**RIGHT[method](first, second), argument: WRONG[wrong]})
    except MinigraphError as error:
        assert error.hint, error
        assert "test_rewrite_values" in error.site.filename
        assert str(program) == text


TAKES_A_VALUE = [
    (method, argument)
    for method, right in RIGHT.items()
    for argument, given in right(None, None).items()
    if isinstance(given, Value)
]


@pytest.mark.parametrize(("method", "argument"), TAKES_A_VALUE)
@pytest.mark.parametrize("wrong", ["h", "variable", None])
def test_a_name_is_no_value(method, argument, wrong):
    """Nothing would be known about it, so that nobody seemed to read it."""
    program = Program.parse(inspect.cleandoc(TEXT))
    given = {**RIGHT[method](*program.global_block().ops), argument: wrong}
    if wrong == "variable":
        given[argument] = program.global_block().var("h")
    with pytest.raises(WrongTypeError, match=f"Values.{method} takes a Value as {argument}, got"):
        getattr(rewrite.Values(program), method)(**given)


@pytest.mark.parametrize("method", RIGHT)
def test_the_right_arguments_are_taken(method):
    program = Program.parse(inspect.cleandoc(TEXT))
    program.roots = ("x",)
    getattr(rewrite.Values(program), method)(**RIGHT[method](*program.global_block().ops))
