"""Parts finds values that are consecutive elements of others, and takes rows from where they are."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pass_laws import op_lines

import minigraph as fluid
from minigraph import layers
from minigraph.passes import MergeProducts
from minigraph.passes.parts import Parts

CUTS = {
    "reshape": lambda x, n: layers.reshape(x, [-1, x.shape[-1]]),
    "flatten": lambda x, n: layers.flatten(x, n % (len(x.shape) + 1)),
    "unsqueeze": lambda x, n: layers.unsqueeze(x, [n % (len(x.shape) + 1)]),
    "squeeze": lambda x, n: layers.squeeze(x, []) if np.prod(x.shape) > 1 else x,
    "unstack": lambda x, n: layers.unstack(x, n % len(x.shape))[-1] if len(x.shape) > 1 else x,
    "split": lambda x, n: layers.split(x, [1, -1], n % len(x.shape))[n % 2] if x.shape[n % len(x.shape)] > 1 else x,
    "slice": lambda x, n: layers.slice(x, [n % len(x.shape)], [-1], [10]),
    "some": lambda x, n: layers.slice(x, [0], [n % x.shape[0]], [x.shape[0]]),
    "subscript": lambda x, n: x[n % x.shape[0]] if len(x.shape) > 1 else x,
    "tanh": lambda x, n: layers.tanh(x),
}


@pytest.mark.slow
@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=4),
    st.lists(st.tuples(st.sampled_from(sorted(CUTS)), st.integers(0, 11)), max_size=6),
)
def test_a_part_holds_the_elements_that_it_is_said_to(shape, cuts):
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        y = x = fluid.data("x", shape)
        for kind, number in cuts:
            y = CUTS[kind](y, number)
    values = Parts(main)
    part = values.part((y.name, 0 if y is x else 1))
    fed = np.arange(np.prod(shape), dtype="float32").reshape(shape)
    found, whole = fluid.Executor().run(main, {"x": fed}, [y.name, part.whole[0]])
    assert part.size == found.size
    assert whole.ravel()[part.start : part.start + part.size].tolist() == found.ravel().tolist()


TEXT = """
    block 0
      param w: float32[2, 3]
      data x: float32[3, 4, 2]
      a: float32[4, 2] = slice(Input=x) {axes=[0], starts=[0], ends=[1], decrease_axis=[0]}
      p: float32[4, 3] = mul(X=a, Y=w)
      b: float32[1, 4, 2] = slice(Input=x) {axes=[0], starts=[1], ends=[2]}
      Out=c: float32[4, 2], XShape=s: float32[0, 1, 4, 2] = squeeze2(X=b) {axes=[0]}
      q: float32[4, 3] = mul(X=c, Y=w)
"""


def merged(text=TEXT):
    return [re.sub(r"_\d+", "", line) for line in op_lines(MergeProducts(least=2), text, ["p", "q"])]


def test_rows_are_taken_from_the_whole():
    assert merged() == [
        "Out=x@ROWS, XShape=x@SHAPE = reshape2(X=x) {shape=[12, 2]}",
        "x@ROWS@SOME = slice(Input=x@ROWS) {axes=[0], starts=[0], ends=[8]}",
        "p@MERGED = mul(X=x@ROWS@SOME, Y=w)",
        "[p, q] = split(X=p@MERGED) {sections=[4, 4]}",
    ]


def test_rows_that_do_not_follow_each_other_are_joined():
    lines = merged(TEXT.replace("starts=[1], ends=[2]", "starts=[2], ends=[3]"))
    assert [line.split(" = ")[1].split("(")[0] for line in lines] == [
        "reshape2", "slice", "reshape2", "slice", "concat", "mul", "split",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        TEXT.replace("b: float32", "x = relu(X=x)\n      b: float32"),
        TEXT.replace("axes=[0], starts=[1], ends=[2]}", "axes=[1], starts=[1], ends=[2]}").replace(
            "b: float32[1, 4, 2]", "b: float32[3, 1, 2]").replace("s: float32[0, 1, 4, 2]", "s: float32[0, 3, 1, 2]")
        .replace("c: float32[4, 2]", "c: float32[3, 2]").replace("q: float32[4, 3]", "q: float32[3, 3]")
        .replace("squeeze2(X=b) {axes=[0]}", "squeeze2(X=b) {axes=[1]}"),
    ],
    ids=["the whole is written in between", "not consecutive"],
)  # fmt: skip
def test_rows_that_are_not_known_at_the_first_product_stay(text):
    assert not any("split" in line for line in merged(text))
