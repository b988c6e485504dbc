"""MergeProducts multiplies many matrices by one weight in one product."""

import re

import pytest
from networks import rnn
from pass_laws import assert_linear, keeps_trainings, op_lines

from minigraph.passes import MergeProducts

pytestmark = pytest.mark.numbers

test_training = keeps_trainings(MergeProducts(least=2))

TEXT = """
    block 0
      param w: float32[2, 3]
      data a: float32[5, 2]
      data b: float32[4, 2]
      p: float32[5, 3] = mul(X=a, Y=w)
      r: float32[5, 3] = tanh(X=p)
      q: float32[4, 3] = mul(X=b, Y=w)
"""


def merged(text, fetch, **options):
    lines = op_lines(MergeProducts(**{"least": 2, **options}), text, fetch)
    return [re.sub(r"@MERGED_\d+", "@MERGED", line) for line in lines]


def test_products_with_one_weight_are_one():
    assert merged(TEXT, ["r", "q"]) == [
        "p@MERGED = concat(X=[a, b])",
        "p@MERGED = mul(X=p@MERGED, Y=w)",
        "[p, q] = split(X=p@MERGED) {sections=[5, 4]}",
        "r = tanh(X=p)",
    ]


LEFT_ALONE = {
    "an operand is made in between": (TEXT.replace("q: float32", "b = relu(X=b)\n      q: float32"), {}),
    "the weight is written in between": (TEXT.replace("q: float32", "w = relu(X=w)\n      q: float32"), {}),
    "another weight": (
        TEXT.replace("X=b, Y=w", "X=b, Y=v").replace("data a", "param v: float32[2, 3]\n      data a"),
        {},
    ),
    "the result has a value before": (
        TEXT.replace("      p:", "      q: float32[4, 3] = uniform_random() {shape=[4, 3]}\n      p:").replace(
            "q: float32[4, 3] = mul", "q = mul"
        ),
        {},
    ),
    "too large": (TEXT, {"most_elements": 9}),
    "too few": (TEXT, {"least": 3}),
}


@pytest.mark.parametrize("what", LEFT_ALONE)
def test_what_cannot_be_merged_stays(what):
    text, options = LEFT_ALONE[what]
    assert not any("concat" in line for line in merged(text, ["r", "q"], **options))


def test_each_step_that_reads_the_one_before_is_left_alone():
    text = "\n".join(
        ["    block 0", "      param u: float32[3, 3]", "      data x0: float32[2, 3]"]
        + [f"      x{i + 1}: float32[2, 3] = mul(X=x{i}, Y=u)" for i in range(6)]
    )
    assert not any("concat" in line for line in merged(text, ["x6"]))


@pytest.mark.timing
def test_time_is_linear():
    def make(count):
        main, _, loss, grads = rnn(count // 12)
        main.roots = (loss.name, *(grad.name for grad in grads))
        return main

    assert_linear(MergeProducts(), make)
