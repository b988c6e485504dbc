"""TransposeOnce copies the transpose of a weight for all gradients that are products with it."""

import re

import pytest
from networks import rnn
from pass_laws import assert_linear, keeps_trainings, op_lines

from minigraph.passes import MergeMatmuls, TransposeOnce

test_training = keeps_trainings(MergeMatmuls(least=2), TransposeOnce(least=2))

TEXT = """
    block 0
      param w: float32[2, 3]
      data a: float32[5, 2]
      data c: float32[5, 3]
      data d: float32[5, 3]
      X@GRAD=p: float32[5, 2] = mul_grad(X=a, Y=w, Out@GRAD=c)
      X@GRAD=q: float32[5, 2] = mul_grad(X=a, Y=w, Out@GRAD=d)
"""


def rewritten(text, **options):
    lines = op_lines(TransposeOnce(**{"least": 2, **options}), text, ["p", "q"])
    return [re.sub(r"@(TRANSPOSED?|SHAPE)_\d+", r"@\1", line) for line in lines]


def test_gradients_are_products_with_the_copy():
    assert rewritten(TEXT) == [
        "Out=w@TRANSPOSE, XShape=w@SHAPE = transpose2(X=w) {axis=[1, 0]}",
        "w@TRANSPOSED = assign(X=w@TRANSPOSE)",
        "p = mul(X=c, Y=w@TRANSPOSED)",
        "q = mul(X=d, Y=w@TRANSPOSED)",
    ]


LEFT_ALONE = {
    "the gradient of the weight too": (TEXT.replace("      X@GRAD=q", "      Y@GRAD=g: float32[2, 3], X@GRAD=q"), {}),
    "the weight is written in between": (TEXT.replace("      X@GRAD=q", "      w = relu(X=w)\n      X@GRAD=q"), {}),
    "too large": (TEXT, {"most_elements": 14}),
    "too few": (TEXT, {"least": 3}),
}


@pytest.mark.parametrize("what", LEFT_ALONE)
def test_what_gains_nothing_stays(what):
    text, options = LEFT_ALONE[what]
    assert not any("transpose2" in line for line in rewritten(text, **options))


@pytest.mark.timing
def test_time_is_linear():
    def make(count):
        main, _, loss, grads = rnn(count // 12)
        main.roots = (loss.name, *(grad.name for grad in grads))
        MergeMatmuls().apply(main)
        return main

    assert_linear(TransposeOnce(), make)
