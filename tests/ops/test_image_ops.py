"""Convolution, pooling, normalization and lookup where the recorded cases and the samples do not reach."""

from fractions import Fraction

import numpy as np
import pytest
from convolutions import convolved, integers
from one_op import append, gradient, run

import minigraph as fluid
from minigraph import layers
from minigraph.errors import ExecutionError, OpError, ProgramError, WrongTypeError
from minigraph.support.window_rules import lay_windows

pytestmark = pytest.mark.numbers


@pytest.mark.parametrize("data_format", ["NCHW", "NHWC"])
@pytest.mark.parametrize(
    ("strides", "paddings", "dilations", "groups"),
    [((1, 1), (0, 0, 0, 0), (1, 1), 1), ((2, 3), (1, 0, 2, 1), (1, 2), 2), ((1, 2), (2, 2, 1, 1), (3, 1), 4)],
)
def test_a_convolution_is_exactly_what_its_definition_says(strides, paddings, dilations, groups, data_format):
    x, w = integers(2, 4, 9, 8), integers(8, 4 // groups, 3, 2, seed=1)
    expected = convolved(x, w, strides, paddings, dilations, groups)
    if data_format == "NHWC":
        x, expected = x.transpose(0, 2, 3, 1), expected.transpose(0, 2, 3, 1)
    found = run(
        "conv2d", {"Input": x, "Filter": w}, strides=strides, paddings=paddings, dilations=dilations, groups=groups,
        data_format=data_format,
    )  # fmt: skip
    assert np.array_equal(found, expected)


def test_a_bias_is_added_to_each_filter():
    x, w = integers(2, 3, 4, 4), integers(2, 3, 2, 2, seed=1)
    plain = run("conv2d", {"Input": x, "Filter": w})
    found = run("conv2d", {"Input": x, "Filter": w, "Bias": np.array([5.0, -7.0])})
    assert np.array_equal(found - plain, np.broadcast_to(np.array([5.0, -7.0])[:, None, None], plain.shape))
    w = integers(3, 2, 2, 2, seed=1)
    plain = run("conv2d_transpose", {"Input": x, "Filter": w})
    found = run("conv2d_transpose", {"Input": x, "Filter": w, "Bias": np.array([5.0, -7.0])})
    assert np.array_equal(found - plain, np.broadcast_to(np.array([5.0, -7.0])[:, None, None], plain.shape))


@pytest.mark.parametrize(
    ("attrs", "words"),
    [
        ({"groups": 2}, "3 channels but Filter takes 3"),
        ({"strides": [0, 1]}, "strides must be two numbers"),
        ({"paddings": [1]}, "paddings must be"),
        ({"paddings": [-1, 0]}, "not negative"),
        ({"padding_algorithm": "FULL"}, "EXPLICIT, VALID or SAME"),
        ({"data_format": "NCDHW"}, "NCHW or NHWC"),
        ({"dilations": [3, 3]}, "a window of 3 does not fit in 5"),
    ],
)
def test_a_convolution_that_cannot_be_is_refused_when_it_is_written(attrs, words):
    with pytest.raises(OpError, match=words):
        append("conv2d", {"Input": integers(1, 3, 5, 5), "Filter": integers(2, 3, 3, 3)}, **attrs)


@pytest.mark.parametrize(
    ("type", "attrs", "expected"),
    [("max", {}, 35.0), ("avg", {}, 17.5), ("avg", {"exclusive": False}, 630 / 49)],
)
@pytest.mark.parametrize("stride", [2, 7])
def test_a_single_window_may_be_larger_than_its_image_by_less_than_the_stride(type, attrs, expected, stride):
    """The numbers are those of Paddle 1.8.5; with stride 1 it refuses the window, too."""
    x = np.arange(36.0).reshape(1, 1, 6, 6)
    pooled = run("pool2d", {"X": x}, pooling_type=type, ksize=[7, 7], strides=[stride, stride], **attrs)
    np.testing.assert_allclose(pooled, [[[[expected]]]], rtol=1e-12)
    found = run("conv2d", {"Input": x, "Filter": np.full((1, 1, 7, 7), 0.5)}, strides=[stride, stride])
    np.testing.assert_allclose(found, [[[[315.0]]]], rtol=1e-12)
    with pytest.raises(OpError, match="a window of 7 does not fit in 6"):
        append("pool2d", {"X": x}, pooling_type=type, ksize=[7, 7], **attrs)


def test_a_window_of_padding_gives_the_least_number_or_no_average():
    x = integers(1, 1, 5, 5)
    attrs = {"ksize": [2, 2], "strides": [3, 3], "paddings": [1, 1], "ceil_mode": True}
    assert (run("pool2d", {"X": x}, pooling_type="max", **attrs)[..., 2, :] == np.finfo("float64").min).all()
    assert np.isnan(run("pool2d", {"X": x}, pooling_type="avg", **attrs)[..., 2, :]).all()
    assert (run("pool2d", {"X": x}, pooling_type="avg", exclusive=False, **attrs)[..., 2, :] == 0).all()


def test_the_first_of_equal_elements_gets_the_gradient_of_the_greatest():
    x = np.zeros((1, 1, 2, 4))
    expected = np.array([[[[1.0, 0, 1, 0], [0, 0, 0, 0]]]])
    for attrs in ({"ksize": [2, 2], "strides": [2, 2]}, {"ksize": [2, 2], "strides": [2, 2], "ceil_mode": True}):
        assert np.array_equal(gradient("pool2d", {"X": x}, "X", pooling_type="max", **attrs), expected)
    whole = gradient("pool2d", {"X": x}, "X", pooling_type="max", ksize=[1, 1], global_pooling=True)
    assert np.array_equal(whole.ravel(), [1, 0, 0, 0, 0, 0, 0, 0])


def test_the_windows_of_an_adaptive_average_cover_the_image_evenly():
    x = np.arange(7.0).reshape(1, 1, 7, 1)
    found = run("pool2d", {"X": x}, pooling_type="avg", ksize=[3, 1], adaptive=True)
    assert np.array_equal(found.ravel(), [1, 3, 5])  # of 0 1 2, 2 3 4 and 4 5 6


@pytest.mark.parametrize(
    ("attrs", "words"),
    [
        ({"pooling_type": "sum"}, "max or avg"),
        ({"ksize": [0, 1]}, "ksize must be two numbers"),
        ({"ksize": [-1, 2]}, "ksize must be two numbers"),
        ({"adaptive": True, "strides": [1, -1]}, "strides must be two numbers"),
        ({"ksize": [6, 6]}, "does not fit"),
        ({"adaptive": True, "global_pooling": True}, "exclude each other"),
    ],
)
def test_a_pooling_that_cannot_be_is_refused_when_it_is_written(attrs, words):
    with pytest.raises(OpError, match=words):
        append("pool2d", {"X": integers(1, 1, 5, 5)}, **{"pooling_type": "max", "ksize": [2, 2], **attrs})


@pytest.mark.parametrize("length", range(1, 9))
@pytest.mark.parametrize("stride", [1, 2, 3])
def test_same_padding_gives_a_window_for_each_stride(length, stride):
    for along in lay_windows((length, length), (3, 2), (stride, stride), (5, 5), "SAME"):
        assert along.count == -(-length // stride)
        assert 0 <= along.after - along.before <= 1


def test_batch_normalization_is_that_of_exact_arithmetic():
    x = integers(4, 2, 3)
    y, mean, variance, saved_mean, saved_inverse = run(
        "batch_norm",
        {"X": x, "Scale": np.array([2.0, 3.0]), "Bias": np.array([1.0, -1.0]), "Mean": np.array([4.0, 8.0]),
         "Variance": np.array([1.0, 2.0])},
        momentum=0.75, epsilon=0.0,
    )  # fmt: skip
    for channel in range(2):
        numbers = [Fraction(int(n)) for n in x[:, channel].ravel()]
        average = sum(numbers) / len(numbers)
        spread = sum((n - average) ** 2 for n in numbers) / len(numbers)
        assert saved_mean[channel] == pytest.approx(float(average), rel=1e-14)
        assert saved_inverse[channel] == pytest.approx(float(spread) ** -0.5, rel=1e-14)
        assert mean[channel] == pytest.approx(float(Fraction(3, 4) * (4, 8)[channel] + average / 4), rel=1e-14)
        assert variance[channel] == pytest.approx(float(Fraction(3, 4) * (1, 2)[channel] + spread / 4), rel=1e-14)
        expected = [(2, 3)[channel] * float(n - average) / float(spread) ** 0.5 + (1, -1)[channel] for n in numbers]
        assert np.allclose(y[:, channel].ravel(), expected, rtol=1e-13, atol=1e-13)


def test_an_empty_batch_and_a_single_element_leave_the_running_statistics_alone():
    given = {"Scale": np.ones(2), "Bias": np.zeros(2), "Mean": np.array([4.0, 8.0]), "Variance": np.array([1.0, 2.0])}
    for x in (np.zeros((0, 2, 3)), np.array([[5.0, 6.0]])):
        y, mean, variance, *_ = run("batch_norm", {"X": x, **given})
        assert y.shape == x.shape and np.array_equal(mean, [4, 8]) and np.array_equal(variance, [1, 2])
    assert np.array_equal(y, [[5, 6]])


def test_normalizations_refuse_what_does_not_fit():
    vectors = {"Scale": np.ones(2), "Bias": np.ones(2), "Mean": np.ones(2), "Variance": np.ones(2)}
    with pytest.raises(OpError, match="each of the 3 channels"):
        append("batch_norm", {"X": integers(4, 3), **vectors})
    with pytest.raises(OpError, match=r"epsilon must be in \[0, 0.001\]"):
        append("batch_norm", {"X": integers(4, 2), **vectors}, epsilon=0.01)
    with pytest.raises(OpError, match="begin_norm_axis must be between"):
        append("layer_norm", {"X": integers(4, 3)}, begin_norm_axis=2)
    with pytest.raises(OpError, match="each of the 3 features"):
        append("layer_norm", {"X": integers(4, 3), "Scale": np.ones(2)})


def test_rows_looked_up_twice_get_both_gradients():
    table, ids = integers(4, 2), np.array([3, 1, 3, 2])
    cotangent = integers(4, 2, seed=1)
    expected = np.zeros((4, 2))
    for row, flowing in zip(ids, cotangent, strict=True):
        expected[row] += flowing if row != 2 else 0
    found = gradient("lookup_table_v2", {"W": table, "Ids": ids}, "W", cotangent=cotangent, padding_idx=2)
    assert np.array_equal(found, expected)


@pytest.mark.parametrize(("ids", "element"), [([0, 4], 1), ([-1, 0], 0)])
def test_an_id_that_is_no_row_is_named(ids, element):
    with pytest.raises(ExecutionError, match=f"W has 4 rows, but element {element} of Ids is {ids[element]}"):
        run("lookup_table_v2", {"W": integers(4, 2), "Ids": np.array(ids)})


@pytest.mark.parametrize(
    "call",
    [
        lambda x: fluid.layers.conv2d(x, 2, 3, groups=2),
        lambda x: fluid.layers.conv2d(x, 2, 3, param_attr=False),
        lambda x: fluid.layers.conv2d(x, 2, "3"),
        lambda x: fluid.layers.conv2d(x, 2, 3, padding="FULL"),
        lambda x: fluid.layers.conv2d(x, 2, 3, padding=[[1, 1], [0, 0], [0, 0], [0, 0]]),
        lambda x: fluid.layers.conv2d(x, 2, 3, data_format="CHWN"),
        lambda x: fluid.layers.pool2d(x),
        lambda x: fluid.layers.pool2d(x, 2, "sum"),
        lambda x: fluid.layers.pool2d(x, 2, pool_padding="VALID", ceil_mode=True),
        lambda x: fluid.layers.batch_norm(x, bias_attr=False),
        lambda x: fluid.layers.layer_norm(x, param_attr=False),
        lambda x: fluid.layers.embedding(x, [4, 2]),
        lambda x: fluid.embedding(fluid.data("ids", [None, 1], "int64"), [4, 2], padding_idx=4),
    ],
)
def test_layers_refuse_what_they_cannot_mean(call):
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
        x = fluid.data("x", [None, 3, 5, 5], "float32")
        with pytest.raises((ProgramError, WrongTypeError)):
            call(x)


def test_a_depthwise_convolution_has_its_own_operator_unless_cudnn_is_used():
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
        x = fluid.data("x", [None, 3, 5, 5], "float32")
        for use_cudnn in (True, False):
            fluid.layers.conv2d(x, 6, 3, groups=3, use_cudnn=use_cudnn, bias_attr=False)
        assert [op.type for op in x.block.ops] == ["conv2d", "depthwise_conv2d"]
        assert x.block.ops[1].output("Output") == ["depthwise_conv2d_0.tmp_0"]


# Transposed convolution


def transposed(x, filter, strides, paddings, dilations, groups, size):
    """The sum of what each element of `x` adds, one by one."""
    (batch, channels, height, width), (_, per_group, rows, columns) = x.shape, filter.shape
    top, left = paddings
    y = np.zeros((batch, per_group * groups, *size))
    for b, c, i, j, k, m, n in np.ndindex(batch, channels, height, width, per_group, rows, columns):
        row = i * strides[0] - top + m * dilations[0]
        column = j * strides[1] - left + n * dilations[1]
        if 0 <= row < size[0] and 0 <= column < size[1]:
            y[b, c // (channels // groups) * per_group + k, row, column] += x[b, c, i, j] * filter[c, k, m, n]
    return y


@pytest.mark.parametrize(
    ("filter_shape", "attrs", "paddings", "size"),
    [
        ((4, 3, 3, 2), {}, (0, 0), (5, 5)),
        ((4, 3, 3, 2), {"strides": [2, 3]}, (0, 0), (7, 11)),
        ((4, 3, 3, 2), {"strides": [2, 3], "output_size": [8, 12]}, (0, 0), (8, 12)),
        ((4, 3, 3, 2), {"strides": [2, 1], "paddings": [1, 0, 2, 1]}, (1, 2), (6, 2)),
        ((4, 1, 3, 3), {"groups": 4, "dilations": [2, 1]}, (0, 0), (7, 6)),
        ((4, 2, 2, 2), {"groups": 2, "padding_algorithm": "VALID", "paddings": [1, 1]}, (0, 0), (4, 5)),
        # As Paddle 1.8.5: SAME takes off what a convolution of the smaller images would add.
        ((4, 3, 3, 3), {"strides": [2, 2], "padding_algorithm": "SAME"}, (1, 0), (5, 8)),
        ((4, 3, 3, 3), {"dilations": [2, 2], "padding_algorithm": "SAME"}, (1, 1), (3, 4)),
    ],
)
@pytest.mark.parametrize("data_format", ["NCHW", "NHWC"])
def test_a_transposed_convolution_adds_up_windows(filter_shape, attrs, paddings, size, data_format):
    rng = np.random.default_rng(2)
    x, filter = rng.standard_normal((2, 4, 3, 4)), rng.standard_normal(filter_shape)
    dilations = attrs.get("dilations", (1, 1)) if attrs.get("padding_algorithm") != "SAME" else (1, 1)
    expected = transposed(x, filter, attrs.get("strides", (1, 1)), paddings, dilations, attrs.get("groups", 1), size)
    is_last = data_format == "NHWC"
    inputs = {"Input": x.transpose(0, 2, 3, 1) if is_last else x, "Filter": filter}
    found = run("conv2d_transpose", inputs, data_format=data_format, **attrs)
    assert np.allclose(found, expected.transpose(0, 2, 3, 1) if is_last else expected)


@pytest.mark.parametrize(
    ("x", "filter", "attrs", "message"),
    [
        ((1, 3, 3, 3), (2, 2, 3, 3), {}, "Input has 3 channels but Filter takes 2"),
        ((1, 2, 3, 3), (2, 2, 3, 3), {"groups": 3}, "2 channels cannot be split into 3 groups"),
        ((1, 2, 3, 3), (2, 2, 3, 3), {"output_size": [9, 7], "strides": [2, 2]}, r"output_size must be in \[7, 9\)"),
        ((1, 2, 3, 3), (2, 2, 3, 3), {"output_size": [6, 7], "strides": [2, 2]}, r"output_size must be in \[7, 9\)"),
        ((1, 2, 3, 3), (2, 2, 3, 3), {"output_size": [5]}, "output_size must be two numbers or none"),
        ((1, 2, 1, 1), (2, 2, 3, 3), {"paddings": [2, 2]}, "do not fill the padding"),
        ((1, 2, 3, 3), (2, 2, 3), {}, "must have 4 dimensions"),
    ],
)
def test_a_transposed_convolution_that_does_not_fit_is_refused(x, filter, attrs, message):
    with pytest.raises(OpError, match=message):
        append("conv2d_transpose", {"Input": np.ones(x), "Filter": np.ones(filter)}, **attrs)


def test_the_layer_of_a_transposed_convolution_is_that_of_the_original():
    program = fluid.Program()
    with fluid.program_guard(program, fluid.Program()), fluid.unique_name.guard():
        x = fluid.data("x", [None, 3, 8, 8])
        layers.conv2d_transpose(x, 6, filter_size=3, stride=2, padding=1)
        y = layers.conv2d_transpose(x, 3, output_size=16, stride=2, padding=1, groups=3, use_cudnn=False, act="relu")
    assert y.shape == (-1, 3, 16, 16)
    assert [op.type for op in program.global_block().ops] == [
        "conv2d_transpose", "elementwise_add", "depthwise_conv2d_transpose", "elementwise_add", "relu",
    ]  # fmt: skip
    assert [(p.name, p.shape) for p in program.all_parameters()] == [
        ("conv2d_transpose_0.w_0", (3, 6, 3, 3)), ("conv2d_transpose_0.b_0", (6,)),
        ("depthwise_conv2d_transpose_0.w_0", (3, 1, 4, 4)), ("depthwise_conv2d_transpose_0.b_0", (3,)),
    ]  # fmt: skip


def test_a_layer_of_a_transposed_convolution_that_makes_no_sense_is_refused():
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x = fluid.data("x", [None, 4, None, 8])
        for attrs, message in [
            ({}, "output_size and the size of"), ({"output_size": 9}, "the size of x.* must be known"),
            ({"filter_size": 3, "groups": 4}, "6 filters cannot be split into 4 groups"),
            ({"filter_size": 3, "param_attr": False}, "param_attr cannot be False, .* without a weight"),
        ]:  # fmt: skip
            with pytest.raises(ProgramError, match=message):
                layers.conv2d_transpose(x, 6, **attrs)


def test_shuffled_channels_of_float64_keep_all_elements():
    x = np.arange(8.0).reshape(1, 2, 2, 2)
    assert np.array_equal(run("shuffle_channel", {"X": x}, group=1), x)


def test_the_gradient_of_shuffled_channels_puts_them_back():
    main = fluid.Program()
    with fluid.program_guard(main):
        x = fluid.data("x", [1, 8, 1, 1])
        x.stop_gradient = False
        shuffled = fluid.layers.shuffle_channel(x, 4)
        loss = fluid.layers.reduce_sum(shuffled * shuffled)
        (grad,) = fluid.gradients(loss, x)
    fed = np.arange(8, dtype="float32").reshape(1, 8, 1, 1)
    got = fluid.Executor().run(main, feed={"x": fed}, fetch_list=[grad])[0]
    np.testing.assert_array_equal(got, 2 * fed)
