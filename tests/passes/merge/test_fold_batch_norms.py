"""FoldBatchNorms multiplies filters by the factors of batch norms, and keeps results up to rounding."""

import numpy as np
import pytest
from both_executors import data, numbers
from pass_laws import assert_linear, op_lines, pipeline, with_and_without

import minigraph as fluid
from minigraph import layers
from minigraph.passes import FoldBatchNorms

pytestmark = [pytest.mark.numbers, pytest.mark.usefixtures("new_program")]


def normalized(dtype="float32", channels=4, side=24, depthwise=False, layout="NCHW", **attrs):
    """The result, what may be differentiated, and the feed, of a convolution that is normalized."""
    block = fluid.default_main_program().current_block()
    shape = [4, channels, side, side] if layout == "NCHW" else [4, side, side, channels]
    shapes = {"x": shape, "w": [channels, 1 if depthwise else channels, 3, 3]}
    shapes |= {name: [channels] for name in ("scale", "bias", "mean", "variance")}
    feed = {name: numbers(*shape, seed=i, dtype=dtype) for i, (name, shape) in enumerate(shapes.items())}
    feed["variance"] = np.abs(feed["variance"]) + np.asarray(0.5, dtype)
    x, w, *vectors = (data(name, *shape, dtype=dtype) for name, shape in shapes.items())
    type, groups = ("depthwise_conv2d", channels) if depthwise else ("conv2d", 1)
    y = block.emit(type, Input=layers.tanh(x), Filter=w, groups=groups, data_format=layout)
    names = {"Y": "y", "MeanOut": "mean", "VarianceOut": "variance", "SavedMean": "m", "SavedVariance": "v"}
    for name in ("y", "m", "v"):
        block.create_var(name)
    given = dict(zip(("Scale", "Bias", "Mean", "Variance"), vectors, strict=True))
    block.append_op(
        "batch_norm", {"X": y, **given}, names, {"is_test": True, "epsilon": 0.001, "data_layout": layout, **attrs}
    )
    return block.var("y"), [x, w, *vectors[:2]], feed


def types_left(fetch):
    program = fluid.default_main_program().clone()
    program.roots = tuple(each.name for each in fetch)
    pipeline(FoldBatchNorms()).apply(program)
    assert not FoldBatchNorms().apply(program)
    return [op.type for op in program.global_block().ops]


WANTED = {"all": "0123", "none": "", "x": "0", "filters": "1", "scale": "2", "bias and x": "03"}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("wanted", WANTED)
@pytest.mark.parametrize(
    "options",
    [{}, {"depthwise": True}, {"layout": "NHWC"}, {"is_test": False, "use_global_stats": True}],
    ids=["conv2d", "depthwise", "channels last", "global statistics"],
)
def test_a_folded_normalization_is_the_same_up_to_rounding(options, wanted, dtype):
    y, leaves, feed = normalized(dtype, **options)
    chosen = [leaves[int(each)] for each in WANTED[wanted]]
    fetch = [y, *(fluid.gradients([layers.reduce_mean(layers.tanh(y))], chosen) if chosen else [])]
    found, expected = with_and_without(FoldBatchNorms(), feed, fetch)
    # Without a gradient that reaches the convolution, that of the scale reads its result.
    is_folded = not any(type.startswith("batch_norm") for type in types_left(fetch))
    assert is_folded or wanted in ("scale", "bias and x")
    for new, old in zip(found, expected, strict=True):
        assert (new.dtype, new.shape) == (old.dtype, old.shape)
        np.testing.assert_allclose(new, old, rtol=0, atol=64 * np.finfo(dtype).eps * np.abs(old).max())


@pytest.mark.parametrize(
    "options",
    [
        {"side": 8},
        {"channels": 64, "side": 10},
        {"is_test": False},
        {"trainable_statistics": True},
        {"dtype": "float16"},
    ],
    ids=["few elements", "many filters", "training", "own statistics", "float16"],
)
def test_other_normalizations_stay(options):
    y, _, _ = normalized(**options)
    assert "batch_norm" in types_left([y])


TEXT = """
    block 0
      data x: float32[4, 2, 30, 30]
      param w: float32[3, 2, 1, 1]
      param s: float32[3]
      param b: float32[3]
      persist mean: float32[3]
      persist variance: float32[3]
      data d: float32[4, 3, 30, 30]
      c: float32[4, 3, 30, 30] = conv2d(Input=x, Filter=w)
      Y=y: float32[4, 3, 30, 30], MeanOut=mean, VarianceOut=variance, SavedMean=m: float32[3], SavedVariance=v: \
float32[3] = batch_norm(X=c, Scale=s, Bias=b, Mean=mean, Variance=variance) {is_test=True}
      X@GRAD=c@GRAD: float32[4, 3, 30, 30], Scale@GRAD=s@GRAD: float32[3], Bias@GRAD=b@GRAD: float32[3] = \
batch_norm_grad(X=c, Scale=s, Bias=b, SavedMean=m, SavedVariance=v, Y@GRAD=d) {is_test=True}
      Input@GRAD=x@GRAD: float32[4, 2, 30, 30], Filter@GRAD=w@GRAD: float32[3, 2, 1, 1] = \
conv2d_grad(Input=x, Filter=w, Output@GRAD=c@GRAD)
"""
FETCH = ["y", "x@GRAD", "w@GRAD", "s@GRAD", "b@GRAD"]


def is_folded(text, fetch=FETCH):
    return not any("batch_norm" in line for line in op_lines(FoldBatchNorms(), text, fetch))


def test_both_gradients_are_folded():
    assert is_folded(TEXT)


@pytest.mark.parametrize("other", ["c", "c@GRAD", "m"])
def test_what_is_read_elsewhere_stays(other):
    assert not is_folded(TEXT, [*FETCH, other])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("MeanOut=mean,", "MeanOut=other: float32[3],"),
        ("conv2d_grad(Input=x, Filter=w,", "conv2d_grad(Input=x, Filter=s2,"),
        ("batch_norm_grad(X=c, Scale=s, Bias=b,", "batch_norm_grad(X=c, Scale=b, Bias=b,"),
        ("Y@GRAD=d) {is_test=True}", "Y@GRAD=d) {is_test=True, epsilon=0.001}"),
        ("      Y=y:", "      w = tanh(X=w)\n      Y=y:"),
        ("      X@GRAD=c@GRAD:", "      s = tanh(X=s)\n      X@GRAD=c@GRAD:"),
        ("      X@GRAD=c@GRAD:", "      mean = tanh(X=mean)\n      X@GRAD=c@GRAD:"),
        ("      Input@GRAD=x@GRAD:", "      d = tanh(X=d)\n      Input@GRAD=x@GRAD:"),
        ("      Input@GRAD=x@GRAD:", "      s = tanh(X=s@GRAD)\n      Input@GRAD=x@GRAD:"),
    ],
)
def test_other_operators_stay(old, new):
    assert old in TEXT
    text = TEXT.replace("      data d:", "      param s2: float32[3, 2, 1, 1]\n      data d:").replace(old, new)
    assert not is_folded(text)


@pytest.mark.timing
def test_time_is_linear():
    def make(size):
        main = fluid.Program()
        with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
            x = fluid.data("x", [1, 4, 40, 40])
            for _ in range(size // 2):
                x = layers.batch_norm(layers.conv2d(x, 4, 1, bias_attr=False), is_test=True)
        return main

    assert_linear(FoldBatchNorms(), make)
