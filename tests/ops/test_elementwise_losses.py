"""Edge facts about losses of single numbers, and normalization of samples."""

import math

import numpy as np
import pytest
from one_op import append, gradient, run

import minigraph as fluid
from minigraph import layers
from minigraph.errors import OpError, ProgramError

pytestmark = pytest.mark.numbers

FLOATS = pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])

# Losses


@FLOATS
def test_the_cross_entropy_of_a_logit_does_not_overflow(dtype):
    x = np.array([-60000, -100, 0, 100, 60000], dtype)
    for label, expected in ((0.0, [0, 0, math.log(2), 100, 60000]), (1.0, [60000, 100, math.log(2), 0, 0])):
        found = run("sigmoid_cross_entropy_with_logits", {"X": x, "Label": np.full(5, label, dtype)})
        assert np.allclose(found, np.array(expected).astype(dtype), rtol=1e-3, atol=1e-30)


def test_where_everything_is_ignored_loss_and_gradient_are_zero():
    inputs = {"X": np.array([1.0, -2.0], "float32"), "Label": np.full(2, -1, "float32")}
    type = "sigmoid_cross_entropy_with_logits"
    for normalize in (False, True):
        attrs = {"ignore_index": -1, "normalize": normalize}
        assert run(type, inputs, **attrs).tolist() == [0, 0]
        assert gradient(type, inputs, "X", **attrs).tolist() == [0, 0]


@pytest.mark.parametrize(
    ("ignore_index", "expected", "slopes"),
    [
        (
            0,
            [0, 0, 0, 0.4740769841801067, 0, -1.8730719889570273, 2.1531860488854577, 1.154355244468527],
            [0, 0, 0, -0.3775406687981454, 0, 1.1192029220221176, 2.1681877721681664, -1.574442516811659],
        ),
        (
            -1,
            [1.3132616875182228, 1.6269280110429727, 1.312261687518223, 0.4740769841801067, 4.548587351573742, 0, 0,
             1.154355244468527],
            [0.7310585786300049, 0.6307970779778823, -0.7300585786300049, -0.3775406687981454, 1.4525741268224333, 0, 0,
             -1.574442516811659],
        ),
        (
            1,
            [1.3132616875182228, 1.6269280110429727, 1.312261687518223, 0, 4.548587351573742, -1.8730719889570273,
             2.1531860488854577, 1.154355244468527],
            [0.7310585786300049, 0.6307970779778823, -0.7300585786300049, 0, 1.4525741268224333, 1.1192029220221176,
             2.1681877721681664, -1.574442516811659],
        ),
    ],
)  # fmt: skip
def test_the_whole_part_of_a_label_is_ignored(ignore_index, expected, slopes):
    """The losses and slopes are those of Paddle 1.8.5; normalized, they are divided by the labels that count."""
    label = np.array([0, 0.25, 0.999, 1, -0.5, -1, -1.5, 2])
    inputs = {"X": np.array([1, 2, -1, 0.5, 3, -2, 0.7, -0.3]), "Label": label}
    for normalize in (False, True):
        attrs = {"ignore_index": ignore_index, "normalize": normalize}
        share = np.count_nonzero(expected) if normalize else 1
        found = run("sigmoid_cross_entropy_with_logits", inputs, **attrs)
        np.testing.assert_allclose(found * share, expected, rtol=1e-14)
        found = gradient("sigmoid_cross_entropy_with_logits", inputs, "X", cotangent=np.ones(8), **attrs)
        np.testing.assert_allclose(found * share, slopes, rtol=1e-14)


@FLOATS
def test_normalized_losses_are_divided_by_how_many_count(dtype):
    inputs = {"X": np.array([1, 2, 3, 4], dtype), "Label": np.array([1, 0, -1, 1], dtype)}
    type, attrs = "sigmoid_cross_entropy_with_logits", {"ignore_index": -1}
    plain, normalized = run(type, inputs, **attrs), run(type, inputs, **attrs, normalize=True)
    assert plain[2] == 0 and np.allclose(normalized, plain / 3, rtol=1e-3)


@FLOATS
def test_huber_loss_is_a_square_up_to_delta_and_a_line_beyond(dtype):
    x, y = np.zeros(5, dtype), np.array([-300, -2, 0.5, 2, 300], dtype)
    residual, loss = run("huber_loss", {"X": x, "Y": y}, delta=2.0)
    assert residual.tolist() == y.tolist()
    assert loss.tolist() == [598, 2, 0.125, 2, 598]
    slopes = gradient("huber_loss", {"X": x, "Y": y}, "X", delta=2.0)
    assert slopes.tolist() == [2, 2, -0.5, -2, -2]
    with pytest.raises(OpError, match="delta must be positive"):
        append("huber_loss", {"X": x, "Y": y}, delta=0.0)


def test_smooth_l1_adds_up_each_sample():
    x = np.array([[[0.5, -3.0], [0.0, 1.0]], [[0.0, 0.0], [0.0, 0.25]]])
    zeros = np.zeros_like(x)
    diff, loss = run("smooth_l1_loss", {"X": x, "Y": zeros})
    assert diff.tolist() == x.tolist()
    assert loss.tolist() == [[0.125 + 2.5 + 0.5], [0.03125]]
    weights = {"InsideWeight": np.full_like(x, 2.0), "OutsideWeight": np.full_like(x, 10.0)}
    _, loss = run("smooth_l1_loss", {"X": x, "Y": zeros, **weights})
    assert loss.tolist() == [[10 * (0.5 + 5.5 + 1.5)], [1.25]]
    for missing in weights:
        given = {slot: weight for slot, weight in weights.items() if slot != missing}
        with pytest.raises(OpError, match="go together"):
            append("smooth_l1_loss", {"X": x, "Y": zeros, **given})
    with pytest.raises(OpError, match="at least 2 dimensions"):
        append("smooth_l1_loss", {"X": np.zeros(3), "Y": np.zeros(3)})


def test_log_loss_takes_a_column():
    with pytest.raises(OpError, match=r"Predicted must have shape \[rows, 1\]"):
        append("log_loss", {"Predicted": np.zeros((2, 3)), "Labels": np.zeros((2, 3))}, epsilon=1e-4)
    predicted, labels = np.array([[0.0], [1.0], [0.25]]), np.array([[1.0], [0.0], [1.0]])
    loss = run("log_loss", {"Predicted": predicted, "Labels": labels}, epsilon=0.0)
    assert loss[:2].tolist() == [[np.inf], [np.inf]]


def test_what_is_compared_has_one_shape():
    for type in ("huber_loss", "smooth_l1_loss", "sigmoid_cross_entropy_with_logits"):
        y = "Label" if type.startswith("sigmoid") else "Y"
        attrs = {"delta": 1.0} if type == "huber_loss" else {}
        with pytest.raises(OpError, match="must have equal shapes"):
            append(type, {"X": np.zeros((2, 3)), y: np.zeros((2, 1))}, **attrs)


# Normalization of samples


def normalized(x, epsilon, axes):
    """In float64, by the definition."""
    x = x.astype("float64")
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + epsilon)


@FLOATS
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_a_group_is_normalized_whatever_the_rank(layout, dtype):
    rng = np.random.default_rng(2)
    for shape in ((2, 6), (2, 6, 5), (3, 6, 2, 4), (2, 6, 2, 3, 2)):
        x = rng.standard_normal(shape).astype(dtype)
        groups = x.astype("float64").reshape(shape[0], 3, -1)
        expected = normalized(groups, 1e-5, 2).reshape(shape)
        given = np.moveaxis(x, 1, -1).copy() if layout == "NHWC" else x
        y, mean, variance = run("group_norm", {"X": given, "Scale": np.ones(6, dtype)}, groups=3, data_layout=layout)
        y = np.moveaxis(y, -1, 1) if layout == "NHWC" else y
        assert np.allclose(y, expected, atol=5e-3 if dtype == "float16" else 1e-5)
        assert np.allclose(mean, groups.mean(2), atol=1e-3) and np.allclose(variance, groups.var(2), atol=1e-3)
        assert mean.dtype == ("float64" if dtype == "float64" else "float32")


def test_a_scale_of_zero_has_a_gradient():
    x = np.random.default_rng(3).standard_normal((2, 4, 3))
    cotangent = np.random.default_rng(4).standard_normal(x.shape)
    inputs = {"X": x, "Scale": np.zeros(4), "Bias": np.ones(4)}
    found = gradient("group_norm", inputs, "Scale", of="Y", cotangent=cotangent, groups=2)
    expected = (normalized(x.reshape(2, 2, 6), 1e-5, 2).reshape(x.shape) * cotangent).sum((0, 2))
    assert np.allclose(found, expected)


@pytest.mark.parametrize("scale", [0.0, 1e-6, 1e-4])
@pytest.mark.parametrize("slot", ["X", "Scale"])
def test_a_small_scale_beside_a_large_bias_loses_no_digits(slot, scale):
    rng = np.random.default_rng(5)
    inputs = {"X": rng.standard_normal((2, 4, 3)), "Scale": np.array([scale, 1, 1, 1]), "Bias": np.full(4, 100.0)}
    cotangent = rng.standard_normal((2, 4, 3))
    expected = gradient("group_norm", inputs, slot, of="Y", cotangent=cotangent, groups=2)
    narrow = {name: array.astype("float32") for name, array in inputs.items()}
    found = gradient("group_norm", narrow, slot, of="Y", cotangent=cotangent.astype("float32"), groups=2)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_attributes_of_what_is_not_learned_are_left_out_with_a_warning():
    x = np.arange(8, dtype="float32").reshape(2, 4)
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        with pytest.warns(UserWarning, match="param_attr is given, but scale is False"):
            y = fluid.layers.layer_norm(fluid.data("x", [2, 4]), scale=False, shift=False, param_attr="w")
        assert fluid.default_main_program().all_parameters() == []
        (found,) = fluid.Executor().run(feed={"x": x}, fetch_list=[y])
    np.testing.assert_allclose(found[0], [-1.34164, -0.44721, 0.44721, 1.34164], atol=1e-5)  # of Paddle 1.8.5
    with fluid.dygraph.guard(), pytest.warns(UserWarning, match="bias_attr is given, but shift is False"):
        assert fluid.dygraph.LayerNorm(4, shift=False, bias_attr="b").bias is None


@pytest.mark.parametrize(
    ("shape", "attrs", "message"),
    [
        ((2, 4, 3), {"groups": 0}, "groups must be positive"),
        ((2, 4, 3), {"groups": 3}, "4 channels cannot be split into 3 groups"),
        ((2, 4, 3), {"groups": 2, "epsilon": -0.5}, r"epsilon must be in \[0, 1\]"),
        ((2, 3, 4), {"groups": 2}, "3 channels cannot be split"),
        ((4,), {"groups": 2}, "at least 2 dimensions"),
        ((2, 4, 3), {"groups": 2, "data_layout": "CHWN"}, "data_layout must be"),
    ],
)
def test_groups_that_make_no_sense_are_refused(shape, attrs, message):
    with pytest.raises(OpError, match=message):
        append("group_norm", {"X": np.zeros(shape)}, **attrs)


def test_scales_belong_to_channels():
    x = np.zeros((2, 4, 3), "float32")
    with pytest.raises(OpError, match="Scale must hold a number for each of the 4 channels"):
        append("group_norm", {"X": x, "Scale": np.zeros(3, "float32")}, groups=2)
    with pytest.raises(OpError, match="Bias must be float32"):
        append("instance_norm", {"X": x, "Scale": np.zeros(4, "float32"), "Bias": np.zeros(4)})
    with pytest.raises(OpError, match="2 to 5 dimensions"):
        append("instance_norm", {"X": np.zeros(3), "Scale": np.zeros(1), "Bias": np.zeros(1)})
    with pytest.raises(OpError, match=r"epsilon must be in \[0, 0.001\]"):
        append("instance_norm", {"X": x, "Scale": x[0, :, 0], "Bias": x[0, :, 0]}, epsilon=0.5)


def test_a_channel_of_one_element_becomes_its_bias():
    x = np.array([[1.0, -5.0], [7.0, 2.0]])
    y, mean, inverse = run("instance_norm", {"X": x, "Scale": np.ones(2), "Bias": np.array([3.0, 4.0])})
    assert y.tolist() == [[3, 4], [3, 4]] and mean.tolist() == x.ravel().tolist()
    assert np.allclose(inverse, 1e5**0.5, rtol=1e-6)


def central_difference(function, x, step=1e-6):
    slopes = np.empty_like(x)
    for index in np.ndindex(x.shape):
        up, down = x.copy(), x.copy()
        up[index] += step
        down[index] -= step
        slopes[index] = (function(up) - function(down)) / (2 * step)
    return slopes


def test_the_gradient_of_the_layer_without_a_scale_is_right():
    """That of fluid is not, since its operator's is not."""
    x = np.random.default_rng(5).standard_normal((2, 4, 3))
    weights = np.random.default_rng(6).standard_normal(x.shape)
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        var = fluid.data("x", x.shape, "float64")
        var.stop_gradient = False
        out = layers.group_norm(var, 2, param_attr=False, bias_attr=False)
        total = layers.reduce_sum(out * layers.assign(weights))
        (grad,) = fluid.gradients([total], [var])
        program, executor = fluid.default_main_program(), fluid.Executor()
        assert not program.global_block().all_parameters()

        def loss(value):
            return executor.run(program, feed={"x": value}, fetch_list=[total])[0].item()

        (found,) = executor.run(program, feed={"x": x}, fetch_list=[grad])
    assert np.allclose(found, central_difference(loss, x), atol=1e-6)


def test_layers_learn_a_scale_and_a_shift_unless_told_otherwise():
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
        x = fluid.data("x", [None, 4, 5])
        layers.group_norm(x, 2)
        layers.instance_norm(x)
        names = [param.name for param in fluid.default_main_program().all_parameters()]
        assert names == ["group_norm_0.w_0", "group_norm_0.b_0", "instance_norm_0.w_0", "instance_norm_0.b_0"]
        with pytest.raises(ProgramError, match="instance_norm: bias_attr cannot be False"):
            layers.instance_norm(x, bias_attr=False)
        with pytest.raises(ProgramError, match=r"the number of channels .* is not known"):
            layers.group_norm(fluid.data("z", [None, -1, 5]), 2)


def test_a_vector_is_normalized_along_its_only_dimension():
    x = np.array([3.0, 4.0], "float32")
    with fluid.dygraph.guard():
        for axis in (None, 1, 0):
            found = layers.l2_normalize(fluid.dygraph.to_variable(x), axis).numpy()
            assert np.allclose(found, [0.6, 0.8])
