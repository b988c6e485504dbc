"""MergeMatmuls adds up the parts of a weight's gradient in fewer products, within the rounding that it states."""

import re

import numpy as np
import pytest
from networks import rnn
from pass_laws import assert_linear, keeps_trainings, op_lines, pipeline

import minigraph as fluid
from minigraph.passes import MergeMatmuls

pytestmark = pytest.mark.numbers

test_training = keeps_trainings(MergeMatmuls(least=2))

TEXT = """
    block 0
      param w: float32[2, 3]
      data a: float32[5, 2]
      data b: float32[4, 2]
      data c: float32[5, 3]
      data d: float32[4, 3]
      X@GRAD=s: float32[5, 2], Y@GRAD=p: float32[2, 3] = mul_grad(X=a, Y=w, Out@GRAD=c)
      Y@GRAD=q: float32[2, 3] = mul_grad(X=b, Y=w, Out@GRAD=d)
      w@GRAD: float32[2, 3] = sum(X=[p, q])
"""


def merged(text, fetch):
    lines = op_lines(MergeMatmuls(least=2), text, fetch)
    return [re.sub(r"@MERGED_\d+", "@MERGED", line) for line in lines]


def test_a_sum_of_products_is_one_product():
    assert merged(TEXT, ["w@GRAD"]) == [
        "w@GRAD@MERGED = concat(X=[b, a])",
        "w@GRAD@MERGED = concat(X=[d, c])",
        "Y@GRAD=w@GRAD = mul_grad(X=w@GRAD@MERGED, Y=w, Out@GRAD=w@GRAD@MERGED)",
    ]


def test_the_gradient_of_the_other_operand_stays():
    assert merged(TEXT, ["w@GRAD", "s"])[0] == "X@GRAD=s, Y@GRAD=@EMPTY@ = mul_grad(X=a, Y=w, Out@GRAD=c)"


def test_other_parts_are_added_as_before():
    text = TEXT.replace("sum(X=[p, q])", "sum(X=[p, w, q])")
    assert merged(text, ["w@GRAD"])[-1] == "w@GRAD = sum(X=[w, w@GRAD@MERGED])"


LEFT_ALONE = {
    "a part is fetched": (TEXT, ["w@GRAD", "q"]),
    "a part is added twice": (TEXT.replace("[p, q]", "[p, q, q]"), ["w@GRAD"]),
    "an operand was written again": (TEXT.replace("w@GRAD: ", "a = tanh(X=a)\n      w@GRAD: "), ["w@GRAD"]),
    "another weight": (TEXT.replace("mul_grad(X=b, Y=w", "mul_grad(X=b, Y=p"), ["w@GRAD"]),
}


@pytest.mark.parametrize("what", LEFT_ALONE)
def test_what_cannot_be_merged_stays(what):
    text, fetch = LEFT_ALONE[what]
    assert not any("concat" in line for line in merged(text, fetch))


def test_large_parts_are_left_alone():
    lines = op_lines(MergeMatmuls(least=2, most_elements=15), TEXT, ["w@GRAD"])
    assert any("concat" in line for line in lines)
    lines = op_lines(MergeMatmuls(least=2, most_elements=14), TEXT, ["w@GRAD"])
    assert not any("concat" in line for line in lines)


def test_the_gradients_of_a_network_differ_by_the_rounding_that_is_stated():
    steps, rows = 12, 6
    main, startup, loss, grads = rnn(steps, rows)
    scope, random = fluid.Scope(), np.random.default_rng(3)
    fluid.Executor().run(startup, scope=scope)
    feed = {f"x{t}": random.normal(size=(rows, 4)).astype("float32") for t in range(steps)}
    block = main.global_block()
    products = [op for op in block.ops if op.type == "mul_grad"]
    operands = [op.input(slot)[0] for op in products for slot in ("X", "Out@GRAD")]
    fetch = [loss.name, *(grad.name for grad in grads), *dict.fromkeys(operands)]
    plain, merged_values = (
        dict(zip(fetch, fluid.Executor(passes=passes).run(main, feed=feed, fetch_list=fetch, scope=scope), strict=True))
        for passes in (pipeline(), pipeline(MergeMatmuls()))
    )
    assert plain[loss.name].tobytes() == merged_values[loss.name].tobytes()
    for grad in grads:
        ops = [op for op in products if op.output("Y@GRAD")[0].startswith(grad.name)]
        assert len(ops) == steps
        pairs = [(plain[op.input("X")[0]].astype(float), plain[op.input("Out@GRAD")[0]].astype(float)) for op in ops]
        bound = sum(abs(x).T @ abs(d) for x, d in pairs) * 2 * (rows * steps + steps) * np.finfo("float32").eps
        assert (abs(plain[grad.name] - merged_values[grad.name]) <= bound).all()
        assert (abs(sum(x.T @ d for x, d in pairs) - merged_values[grad.name]) <= bound).all()


@pytest.mark.timing
def test_time_is_linear():
    def make(count):
        main, _, loss, grads = rnn(count // 12)
        main.roots = (loss.name, *(grad.name for grad in grads))
        return main

    assert_linear(MergeMatmuls(), make)
