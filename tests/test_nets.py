"""The networks of fluid.nets; what they compute is held to Paddle 1.8.5 by test_golden_scripts.py."""

import numpy as np
import pytest
from both_executors import check_gradient, data, numbers, run

import minigraph as fluid
from minigraph import layers, nets
from minigraph.errors import OpError, WrongTypeError


def softmax(x):
    exps = np.exp(x - x.max(-1, keepdims=True))
    return exps / exps.sum(-1, keepdims=True)


pytestmark = pytest.mark.usefixtures("new_program")


def types():
    return [op.type for op in fluid.default_main_program().global_block().ops]


@pytest.mark.slow
def test_attention_is_the_mean_of_the_values_by_likeness():
    q, k, v = numbers(2, 3, 4), numbers(2, 5, 4, seed=1), numbers(2, 5, 6, seed=2)
    out = nets.scaled_dot_product_attention(data("q", *q.shape), data("k", *k.shape), data("v", *v.shape))
    assert out.shape == (2, 3, 6)
    feed = {"q": q, "k": k, "v": v}
    (found,) = run(out, feed=feed)
    np.testing.assert_allclose(found, softmax(q @ k.transpose(0, 2, 1) / 2) @ v, rtol=1e-12)
    check_gradient(layers.reduce_sum(out * out), feed)


def test_attention_takes_any_batch_and_drops_weights():
    q = fluid.data("q", [None, 3, 4])
    out = nets.scaled_dot_product_attention(q, q, q, num_heads=2, dropout_rate=0.5)
    assert out.shape == (-1, 3, 4)
    assert types().count("dropout") == 1
    assert types().count("mul") == 3
    assert nets.scaled_dot_product_attention(q, q, q, 2).shape == (-1, 3, 4)


@pytest.mark.parametrize(
    ("shapes", "heads", "message"),
    [
        (([2, 3], [2, 3], [2, 3]), 1, "three dimensions"),
        (([2, 3, 4], [2, 3, 5], [2, 3, 4]), 1, "a query has 4 features but a key has 5"),
        (([2, 3, 4], [2, 3, 4], [2, 6, 4]), 1, "3 keys but 6 values"),
        (([2, 3, 4], [2, 3, 4], [2, 3, 5]), 2, "4 and 5 features cannot be split among 2 heads"),
        (([2, 3, 4], [2, 3, 4], [2, 3, 4]), 0, "num_heads must be a positive int"),
    ],
)
def test_attention_of_what_does_not_fit_is_refused(shapes, heads, message):
    variables = [fluid.data(f"x{i}", shape) for i, shape in enumerate(shapes)]
    with pytest.raises(OpError, match=message):
        nets.scaled_dot_product_attention(*variables, num_heads=heads)
    with pytest.raises(WrongTypeError, match="one dtype"):
        nets.scaled_dot_product_attention(variables[0], variables[1], fluid.data("d", [2, 3, 4], "float64"))


def test_a_gated_unit_is_half_of_its_input_times_the_sigmoid_of_the_other():
    x = numbers(3, 4, 5)
    out = nets.glu(data("x", 3, 4, 5), dim=1)
    (found,) = run(out, feed={"x": x})
    np.testing.assert_allclose(found, x[:, :2] / (1 + np.exp(-x[:, 2:])), rtol=1e-12)
    check_gradient(layers.reduce_sum(out * out), {"x": x})


def test_a_group_of_convolutions_takes_an_option_for_each():
    image = fluid.data("image", [None, 3, 8, 8])
    out = nets.img_conv_group(
        image, [4, 5], 2, conv_padding=[1, 2], conv_filter_size=[3, 5], conv_act="relu", param_attr=["a", "b"],
        conv_with_batchnorm=[False, True], conv_batchnorm_drop_rate=[0.5, 0.3], pool_stride=2, pool_type="avg",
    )  # fmt: skip
    assert out.shape == (-1, 5, 4, 4)
    assert types() == [
        "conv2d", "elementwise_add", "relu", "conv2d", "elementwise_add", "batch_norm", "relu", "dropout", "pool2d",
    ]  # fmt: skip
    block = fluid.default_main_program().global_block()
    assert block.var("b").shape == (5, 4, 5, 5)
    with pytest.raises(OpError, match=r"conv_filter_size has 3 elements for 2 convolutions"):
        nets.img_conv_group(image, [4, 5], 2, conv_filter_size=[3, 3, 3])
    with pytest.raises(WrongTypeError, match="conv_num_filter must be a list"):
        nets.img_conv_group(image, 4, 2)
