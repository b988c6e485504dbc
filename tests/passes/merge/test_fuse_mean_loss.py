"""FuseMeanLoss makes one operator of a classifier's loss and its gradient, and keeps every bit."""

import inspect
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from pass_laws import assert_linear, keeps_the_bits, op_lines, pipeline

import minigraph as fluid
from minigraph.errors import ExecutionError
from minigraph.executor.interpreter import Interpreter
from minigraph.passes import FuseMeanLoss

pytestmark = pytest.mark.numbers

test_training, test_overwriting = keeps_the_bits(FuseMeanLoss())

HEAD = """
    block 0
      data x: float32[4, 3]
      data label: int64[4, 1]
      data other: int64[4, 1]
"""
CHAIN = """\
      p#: float32[4, 3] = softmax(X=x)
      Y=loss#: float32[4, 1], XShape=s#: float32[4, 3, 0], MatchX=m#: float32[4, 1] = cross_entropy2(X=p#, Label=label)
      mean#: float32[1] = mean(X=loss#)
      mean#@GRAD: float32[1] = fill_constant() {shape=[1], value=1.0}
      loss#@GRAD: float32[4, 1] = mean_grad(X=loss#, Out@GRAD=mean#@GRAD)
      p#@GRAD: float32[4, 3] = cross_entropy_grad2(MatchX=m#, Label=label, XShape=s#, Y@GRAD=loss#@GRAD)
      x#@GRAD: float32[4, 3] = softmax_grad(Out=p#, Out@GRAD=p#@GRAD)
"""
TEXT = HEAD + CHAIN.replace("#", "")
OF_LOGITS = """\
      Softmax=p#: float32[4, 3], Loss=loss#: float32[4, 1] = softmax_with_cross_entropy(Logits=x, Label=label)
      mean#: float32[1] = mean(X=loss#)
      mean#@GRAD: float32[1] = fill_constant() {shape=[1], value=1.0}
      loss#@GRAD: float32[4, 1] = mean_grad(X=loss#, Out@GRAD=mean#@GRAD)
      x#@GRAD: float32[4, 3] = softmax_with_cross_entropy_grad(Softmax=p#, Label=label, Loss@GRAD=loss#@GRAD)
"""
LOGITS = HEAD + OF_LOGITS.replace("#", "")
TEXTS = pytest.mark.parametrize("text", [TEXT, LOGITS], ids=["of probabilities", "of logits"])
FETCH = ["mean", "x@GRAD"]


def test_seven_operators_become_one():
    assert op_lines(FuseMeanLoss(), TEXT, FETCH) == ["Loss=mean, Gradient=x@GRAD = fused_mean_loss(X=x, Label=label)"]


def with_attrs(text, attrs):
    """The text with these attributes of the loss and of its gradient."""
    return re.sub(r"(.*Label=label.*)", rf"\1 {{{attrs}}}", text)


def test_the_loss_of_logits_keeps_its_law():
    fused = "Loss=mean, Gradient=x@GRAD = fused_mean_loss(X=x, Label=label)"
    assert op_lines(FuseMeanLoss(), LOGITS, FETCH) == [f"{fused} {{from_logits=True}}"]
    (line,) = op_lines(FuseMeanLoss(), with_attrs(LOGITS, "numeric_stable_mode=False, ignore_index=1, axis=1"), FETCH)
    assert line == f"{fused} {{ignore_index=1, from_logits=True}}"
    text = LOGITS + "      top: float32[4, 3] = scale(X=p) {scale=2.0}\n"
    fused = f"Out=p, {fused} {{from_logits=True}}"
    assert op_lines(FuseMeanLoss(), text, [*FETCH, "top"])[0] == fused
    assert op_lines(FuseMeanLoss(), LOGITS, [*FETCH, "p"]) == [fused]


def test_persistable_probabilities_are_kept():
    program = fluid.Program.parse(inspect.cleandoc(LOGITS))
    program.global_block().var("p").persistable = True
    program.roots = tuple(FETCH)
    (op,) = FuseMeanLoss()(program).global_block().ops
    assert op.outputs["Out"] == ("p",)


def test_probabilities_are_kept_for_who_wants_them_later():
    text = TEXT + "      top: float32[4, 3] = scale(X=p) {scale=2.0}\n"
    fused = "Out=p, Loss=mean, Gradient=x@GRAD = fused_mean_loss(X=x, Label=label)"
    assert op_lines(FuseMeanLoss(), text, [*FETCH, "top"])[0] == fused
    assert op_lines(FuseMeanLoss(), TEXT, [*FETCH, "p"]) == [fused]


def test_attributes_go_along():
    text = TEXT.replace("Label=label)", "Label=label) {ignore_index=1}")
    text = text.replace("Y@GRAD=loss@GRAD)", "Y@GRAD=loss@GRAD) {ignore_index=1}").replace("value=1.0", "value=0.5")
    (line,) = op_lines(FuseMeanLoss(), text, FETCH)
    assert line.endswith("(X=x, Label=label) {ignore_index=1, slope=0.5}")


@TEXTS
def test_the_number_that_the_gradient_begins_with_stays_for_others(text):
    kept = "mean@GRAD = fill_constant() {shape=[1], value=1.0}"
    assert op_lines(FuseMeanLoss(), text, [*FETCH, "mean@GRAD"])[-1] == kept
    assert any("fused" in line for line in op_lines(FuseMeanLoss(), text, [*FETCH, "mean@GRAD"]))
    decayed = text + "      d: float32[1] = scale(X=mean@GRAD) {scale=0.1}\n"
    lines = op_lines(FuseMeanLoss(), decayed, [*FETCH, "d"])
    assert [line.split(" = ")[1].split("(")[0] for line in lines] == ["fused_mean_loss", "fill_constant", "scale"]


def between(line, before, text=TEXT):
    return text.replace(f"      {before}", f"      {line}\n      {before}", 1)


LEFT_ALONE = {
    **{f"{name} is fetched": (TEXT, [*FETCH, name]) for name in ("loss", "m", "loss@GRAD", "p@GRAD")},
    "the probabilities are read before the loss": (
        between("q: float32[4, 3] = scale(X=p) {scale=2.0}", "Y=loss"), [*FETCH, "q"],
    ),
    "the loss is read by others": (between("q: float32[4, 1] = scale(X=loss)", "mean:"), [*FETCH, "q"]),
    "the gradient's name means something else before": (
        between("x@GRAD: float32[4, 3] = scale(X=x)\n      q: float32[4, 3] = exp(X=x@GRAD)", "p@GRAD").replace(
            "x@GRAD: float32[4, 3] = softmax_grad", "x@GRAD = softmax_grad"
        ),
        [*FETCH, "q"],
    ),
    "another axis": (TEXT.replace("softmax(X=x)", "softmax(X=x) {axis=0}"), FETCH),
    "other labels": (between("label = assign(X=other)", "p@GRAD"), FETCH),
    "another x": (between("x = scale(X=x) {scale=2.0}", "Y=loss"), FETCH),
    "float16": (
        TEXT.replace("float32", "float16").replace("value=1.0", "value=1.0, dtype=4"), FETCH,
    ),
    "an index that only the loss ignores": (
        TEXT.replace("X=p, Label=label)", "X=p, Label=label) {ignore_index=1}"), FETCH,
    ),
    "an incoming gradient that is computed": (
        TEXT.replace("fill_constant() {shape=[1], value=1.0}", "reduce_sum(X=x) {reduce_all=True}"), FETCH,
    ),
    **{
        f"{name} of logits is fetched": (LOGITS, [*FETCH, name]) for name in ("loss", "loss@GRAD")
    },
    "the loss of logits is read by others": (
        between("q: float32[4, 1] = scale(X=loss)", "mean:", LOGITS), [*FETCH, "q"],
    ),
    "another axis of logits": (with_attrs(LOGITS, "axis=0").replace("label: int64[4, 1]", "label: int64[1, 3]").replace(
        "float32[4, 1]", "float32[1, 3]"
    ), FETCH),
    "soft labels": (
        with_attrs(LOGITS, "soft_label=True").replace("label: int64[4, 1]", "label: float32[4, 3]"), FETCH,
    ),
    "other labels of logits": (between("label = assign(X=other)", "x@GRAD", LOGITS), FETCH),
    "float16 logits": (
        LOGITS.replace("float32", "float16").replace("value=1.0", "value=1.0, dtype=4"), FETCH,
    ),
    "an index that only the loss of logits ignores": (
        LOGITS.replace("Logits=x, Label=label)", "Logits=x, Label=label) {ignore_index=1}"), FETCH,
    ),
    "no mean": (
        TEXT.replace("= mean(X=loss)", "= reduce_sum(X=loss) {reduce_all=True}"), FETCH,
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", LEFT_ALONE)
def test_what_may_differ_is_left_alone(what):
    text, fetch = LEFT_ALONE[what]
    assert not any("fused" in line for line in op_lines(FuseMeanLoss(), text, fetch))


SPECIAL = st.sampled_from([float("nan"), float("inf"), -float("inf"), 0.0, -0.0, float(np.float32(3e38))])


@pytest.mark.laws
@TEXTS
@given(
    arrays("float32", (4, 3), elements=st.floats(-200, 200, width=32) | SPECIAL),
    st.lists(st.sampled_from([0, 1, 2, -100]), min_size=4, max_size=4),
    st.sampled_from([1.0, 0.5, -3.0, 0.0, 1e30]),
    st.booleans(),
    st.sampled_from(["-100", "1"]),
)
def test_every_bit_is_kept(text, x, label, slope, wants_p, ignore_index):
    if ignore_index == "1":
        label = [1 if each == -100 else each for each in label]
        text = with_attrs(text, "ignore_index=1")
    program = fluid.Program.parse(inspect.cleandoc(text.replace("value=1.0", f"value={slope}")))
    feed = {"x": x, "label": np.array(label)[:, None]}
    fetch = [*FETCH, "p"] if wants_p else FETCH
    expected = Interpreter().run(program, feed=feed, fetch_list=fetch)
    found = fluid.Executor(passes=pipeline(FuseMeanLoss()), jit=False).run(program, feed=feed, fetch_list=fetch)
    for value, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(np.isnan(value), np.isnan(other))
        assert np.nan_to_num(value, nan=0).tobytes() == np.nan_to_num(other, nan=0).tobytes()


@pytest.mark.parametrize("rows", [0, 1, 33, 300])
@pytest.mark.parametrize("classes", [1, 16, 17, 32, 33])
@TEXTS
def test_every_bit_is_kept_however_rows_are_gone_through(text, rows, classes):
    rng = np.random.default_rng(classes)
    feed = {"x": rng.normal(0, 5, (rows, classes)).astype("float32"), "label": rng.integers(0, classes, (rows, 1))}
    text = text.replace("[4, 3]", f"[{rows}, {classes}]").replace("[4, 1]", f"[{rows}, 1]")
    program = fluid.Program.parse(inspect.cleandoc(text))
    expected = Interpreter().run(program, feed=feed, fetch_list=FETCH)
    exe = fluid.Executor(passes=pipeline(FuseMeanLoss()), jit=False)
    assert "fused_mean_loss" in str(exe.explain(program, feed=feed, fetch_list=FETCH))
    for value, other in zip(exe.run(program, feed=feed, fetch_list=FETCH), expected, strict=True):
        assert value.tobytes() == other.tobytes()


@TEXTS
@pytest.mark.parametrize("wants_p", [False, True])
def test_logits_of_another_order_of_elements_give_the_same_bits(text, wants_p):
    text = text.replace("data x: float32[4, 3]", "data z: float32[3, 4]")
    cut = text.index("      p:" if "      p:" in text else "      Softmax=p")
    made = "      Out=x: float32[4, 3], XShape=zs: float32[0, 3, 4] = transpose2(X=z) {axis=[1, 0]}\n"
    program = fluid.Program.parse(inspect.cleandoc(text[:cut] + made + text[cut:]))
    feed = {
        "z": np.random.default_rng(0).normal(0, 5, (3, 4)).astype("float32"),
        "label": np.array([[0], [1], [2], [1]]),
    }
    fetch = [*FETCH, "p"] if wants_p else FETCH
    expected = Interpreter().run(program, feed=feed, fetch_list=fetch)
    exe = fluid.Executor(passes=pipeline(FuseMeanLoss()), jit=False)
    assert "fused_mean_loss" in str(exe.explain(program, feed=feed, fetch_list=fetch))
    for value, other in zip(exe.run(program, feed=feed, fetch_list=fetch), expected, strict=True):
        assert value.tobytes() == other.tobytes()


LOSSES = {
    "cross_entropy": lambda x, y: fluid.layers.cross_entropy(fluid.layers.softmax(x), y),
    "softmax_with_cross_entropy": lambda x, y: fluid.layers.softmax_with_cross_entropy(x, y),
}


@pytest.mark.parametrize("what", LOSSES)
def test_a_wrong_label_is_an_error_at_the_line_of_the_loss(what):
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup):
        x = fluid.layers.create_parameter([5, 3], "float32")
        label = fluid.data("label", [5, 1], "int64")
        loss = fluid.layers.mean(LOSSES[what](x, label))
        ((_, grad),) = fluid.append_backward(loss)
    exe, scope = fluid.Executor(jit=False), fluid.Scope()
    exe.run(startup, scope=scope)
    wrong = {"label": np.array([[0], [1], [3], [2], [0]])}
    assert "fused_mean_loss" in str(exe.explain(main, feed=wrong, fetch_list=[loss, grad]))
    with pytest.raises(ExecutionError, match="Label is 3 in row 2, but there are 3 classes") as caught:
        exe.run(main, feed=wrong, fetch_list=[loss, grad], scope=scope)
    assert f"fluid.layers.{what}(" in str(caught.value)


@pytest.mark.timing
def test_time_is_linear():
    def make(count):
        text = HEAD + "".join(CHAIN.replace("#", f"_{i}") for i in range(count // 7))
        program = fluid.Program.parse(inspect.cleandoc(text))
        program.roots = tuple(
            f"{name}_{i}{end}" for i in range(count // 7) for name, end in (("mean", ""), ("x", "@GRAD"))
        )
        return program

    assert_linear(FuseMeanLoss(), make)
