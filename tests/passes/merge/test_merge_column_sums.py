"""MergeColumnSums adds up the gradients of a bias in one sum."""

import re

import pytest
from networks import rnn
from pass_laws import assert_linear, keeps_trainings, op_lines

from minigraph.passes import MergeColumnSums

pytestmark = pytest.mark.numbers

test_training = keeps_trainings(MergeColumnSums(least=2))

TEXT = """
    block 0
      param b: float32[3]
      data x: float32[4, 3]
      data y: float32[5, 3]
      data c: float32[4, 3]
      data d: float32[5, 3]
      X@GRAD=r: float32[4, 3], Y@GRAD=p: float32[3] = elementwise_add_grad(X=x, Y=b, Out@GRAD=c)
      Y@GRAD=q: float32[3] = elementwise_add_grad(X=y, Y=b, Out@GRAD=d)
      b@GRAD: float32[3] = sum(X=[p, q])
"""


def merged(text, fetch, **options):
    lines = op_lines(MergeColumnSums(**{"least": 2, **options}), text, fetch)
    return [re.sub(r"@MERGED_\d+", "@MERGED", line) for line in lines]


def test_a_sum_of_sums_is_one_sum():
    assert merged(TEXT, ["b@GRAD"]) == [
        "b@GRAD@MERGED = concat(X=[d, c])",
        "b@GRAD = reduce_sum(X=b@GRAD@MERGED)",
    ]


def test_the_gradient_of_the_matrix_stays():
    assert merged(TEXT, ["b@GRAD", "r"])[0] == "X@GRAD=r, Y@GRAD=@EMPTY@ = elementwise_add_grad(X=x, Y=b, Out@GRAD=c)"


def test_other_parts_are_added_as_before():
    assert merged(TEXT.replace("[p, q]", "[p, b, q]"), ["b@GRAD"])[-1] == "b@GRAD = sum(X=[b, b@GRAD@MERGED])"


LEFT_ALONE = {
    "a part is fetched": (TEXT, ["b@GRAD", "q"], {}),
    "a part is added twice": (TEXT.replace("[p, q]", "[p, q, q]"), ["b@GRAD"], {}),
    "what flows in was written again": (TEXT.replace("b@GRAD: ", "c = tanh(X=c)\n      b@GRAD: "), ["b@GRAD"], {}),
    "too large": (TEXT, ["b@GRAD"], {"most_elements": 14}),
    "too few": (TEXT, ["b@GRAD"], {"least": 3}),
    "a bias along the other dimension": (
        TEXT.replace("4, 3]", "3, 3]").replace("Out@GRAD=c)", "Out@GRAD=c) {axis=0}"), ["b@GRAD"], {},
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", LEFT_ALONE)
def test_what_cannot_be_merged_stays(what):
    text, fetch, options = LEFT_ALONE[what]
    assert not any("concat" in line for line in merged(text, fetch, **options))


@pytest.mark.timing
def test_time_is_linear():
    def make(count):
        main, _, loss, grads = rnn(count // 12, bias_attr="b")
        main.roots = (loss.name, *(grad.name for grad in grads))
        return main

    assert_linear(MergeColumnSums(), make)
