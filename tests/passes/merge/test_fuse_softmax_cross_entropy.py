"""FuseSoftmaxCrossEntropy changes one gradient, by the rounding that it states."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from pass_laws import assert_linear, keeps_trainings, op_lines, pipeline

import minigraph as fluid
from minigraph.passes import FuseSoftmaxCrossEntropy

pytestmark = pytest.mark.numbers

test_training = keeps_trainings(FuseSoftmaxCrossEntropy())

TEXT = """
    block 0
      data x: float32[4, 3]
      data label: int64[4, 1]
      data other: int64[4, 1]
      data d: float32[4, 1]
      p: float32[4, 3] = softmax(X=x)
      loss: float32[4, 1] = cross_entropy(X=p, Label=label)
      p@GRAD: float32[4, 3] = cross_entropy_grad(X=p, Label=label, Y@GRAD=d)
      x@GRAD: float32[4, 3] = softmax_grad(Out=p, Out@GRAD=p@GRAD)
"""
TEXT2 = """
    block 0
      data x: float32[4, 3]
      data label: int64[4, 1]
      data d: float32[4, 1]
      p: float32[4, 3] = softmax(X=x)
      Y=loss: float32[4, 1], XShape=s: float32[4, 3, 0], MatchX=m: float32[4, 1] = cross_entropy2(X=p, Label=label)
      p@GRAD: float32[4, 3] = cross_entropy_grad2(MatchX=m, Label=label, XShape=s, Y@GRAD=d)
      x@GRAD: float32[4, 3] = softmax_grad(Out=p, Out@GRAD=p@GRAD)
"""
FUSED = "x@GRAD = softmax_with_cross_entropy_grad(Softmax=p, Label=label, Loss@GRAD=d)"


@pytest.mark.parametrize("text", [TEXT, TEXT2], ids=["cross_entropy", "cross_entropy2"])
def test_two_gradients_become_one(text):
    lines = op_lines(FuseSoftmaxCrossEntropy(), text, ["loss", "x@GRAD"])
    assert lines[0] == "p = softmax(X=x)"
    assert lines[2:] == [FUSED]


LEFT_ALONE = {
    "the gradient in between is fetched": (TEXT, ["loss", "x@GRAD", "p@GRAD"]),
    "the loss is not used": (TEXT, ["x@GRAD"]),
    "an ignore_index that is a class": (TEXT.replace("label)", "label) {ignore_index=1}"), ["loss", "x@GRAD"]),
    "another axis": (TEXT.replace("p@GRAD)", "p@GRAD) {axis=0}"), ["loss", "x@GRAD"]),
    "float16": (TEXT.replace("float32", "float16"), ["loss", "x@GRAD"]),
    "other labels": (TEXT.replace("p@GRAD: ", "label = assign(X=other)\n      p@GRAD: ", 1), ["loss", "x@GRAD"]),
}


@pytest.mark.parametrize("what", LEFT_ALONE)
def test_what_may_differ_is_left_alone(what):
    text, fetch = LEFT_ALONE[what]
    text = text.replace("Y@GRAD=d)", "Y@GRAD=d) {ignore_index=1}") if "ignore_index" in what else text
    assert not any("softmax_with" in line for line in op_lines(FuseSoftmaxCrossEntropy(), text, fetch))


@pytest.mark.laws
@given(
    arrays("float32", (4, 3), elements=st.floats(-200, 200, width=32)),
    st.lists(st.sampled_from([0, 1, 2, -100]), min_size=4, max_size=4),
    arrays("float32", (4, 1), elements=st.floats(2**-10, 1000, width=32) | st.just(0.0)),
    st.sampled_from([TEXT, TEXT2]),
)
def test_the_gradient_differs_by_four_roundings_at_most(x, label, d, text):
    program = fluid.Program.parse(text.replace("\n    ", "\n").strip())
    feed = {"x": x, "label": np.array(label)[:, None], "d": d}
    fetch = ["loss", "p", "x@GRAD"]
    plain, fused = (
        fluid.Executor(passes=passes).run(program, feed=feed, fetch_list=fetch)
        for passes in (pipeline(), pipeline(FuseSoftmaxCrossEntropy()))
    )
    for a, b in zip(plain[:2], fused[:2], strict=True):
        assert a.tobytes() == b.tobytes()
    allowed = 4 * np.finfo("float32").eps * d
    assert (np.abs(fused[2] - plain[2]) <= allowed).all()
    counts = feed["label"] >= 0
    truth = np.where(counts, d.astype(float) * (plain[1].astype(float) - (feed["label"] == np.arange(3))), 0)
    assert (np.abs(fused[2] - truth) <= allowed).all()


def test_labels_are_checked_as_before():
    program = fluid.Program.parse(TEXT.replace("\n    ", "\n").strip())
    feed = {"x": np.zeros((4, 3), "float32"), "label": np.full((4, 1), 7), "d": np.ones((4, 1), "float32")}
    with pytest.raises(fluid.errors.ExecutionError, match="Label is 7 in row 0, but there are 3 classes"):
        fluid.Executor(passes=pipeline(FuseSoftmaxCrossEntropy())).run(
            program, feed=feed, fetch_list=["x@GRAD", "loss"]
        )


@pytest.mark.timing
def test_time_is_linear():
    def make(count):
        program = fluid.Program()
        with fluid.program_guard(program, fluid.Program()):
            label = fluid.data("label", [4, 1], "int64")
            weight = fluid.layers.create_parameter([4, 3], "float32")
            losses = [fluid.layers.cross_entropy(fluid.layers.softmax(weight), label) for _ in range(count // 6)]
            total = fluid.layers.mean(fluid.layers.sums(losses))
            fluid.append_backward(total)
        program.roots = (total.name, weight.name + "@GRAD")
        return program

    assert_linear(FuseSoftmaxCrossEntropy(), make)
