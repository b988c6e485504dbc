"""ScaleByConstants writes factors and addends that are numbers in one way."""

import numpy as np
import pytest
from both_executors import data, numbers
from pass_laws import assert_linear, keeps_trainings, pipeline, repeated, with_and_without

import minigraph as fluid
from minigraph import layers
from minigraph.passes import ScaleByConstants

pytestmark = pytest.mark.numbers

test_training = keeps_trainings(ScaleByConstants())


def number(value, dtype="float32"):
    return layers.fill_constant([1], dtype, value)


def for_batch(value, x):
    return layers.fill_constant_batch_size_like(x, [-1, 4], "float32", value)


def types_left(*fetch):
    program = fluid.default_main_program().clone()
    program.roots = tuple(each.name for each in fetch)
    pipeline(ScaleByConstants()).apply(program)
    return [op.type for op in program.global_block().ops]


def full(value, dtype="float32"):
    return layers.fill_constant([8, 4], dtype, value)


FORMS = {
    "product": lambda x: layers.elementwise_mul(x, number(0.3)),
    "quotient": lambda x: layers.elementwise_div(x, number(3.0)),
    "sum": lambda x: layers.elementwise_add(x, number(0.3)),
    "difference": lambda x: layers.elementwise_sub(x, number(0.3)),
    "product with as many": lambda x: layers.elementwise_mul(x, full(0.3)),
    "product of the number": lambda x: layers.elementwise_mul(full(0.3), x),
    "sum with the number": lambda x: layers.elementwise_add(full(0.3), x),
    "difference from the number": lambda x: layers.elementwise_sub(full(0.3), x),
    "factors in a row": lambda x: layers.scale(layers.scale(x, 3.0), -0.2),
    "factors and a bias": lambda x: layers.scale(layers.scale(x, 3.0), 0.7, bias=0.1),
    "products and a sum": lambda x: x * 2.0 / 3.0 + 0.25,
    "product of a quotient": lambda x: layers.elementwise_mul(layers.elementwise_div(x, number(3.0)), number(0.5)),
}


@pytest.mark.usefixtures("new_program")
@pytest.mark.parametrize("form", FORMS)
def test_values_and_gradients_are_those_of_the_interpreter(form):
    x = data("x", 8, 4, dtype="float32")
    out = FORMS[form](x)
    fetch, feed = [out, *fluid.gradients([layers.reduce_sum(out)], [x])], {"x": numbers(8, 4, dtype="float32")}
    assert types_left(out) == ["scale"]
    assert not any(type.startswith("elementwise") for type in types_left(*fetch))
    found, expected = with_and_without(ScaleByConstants(), feed, fetch)
    for a, b in zip(found, expected, strict=True):
        # Terms that are added are of a size of 1 to 10.
        np.testing.assert_allclose(a, b, rtol=4 * np.finfo("float32").eps, atol=16 * np.finfo("float32").eps)


@pytest.mark.usefixtures("new_program")
def test_numbers_of_float64_that_attributes_have_exactly_are_joined():
    out = layers.scale(layers.scale(layers.cast(data("x", 8, 4), "float64"), 0.5), 4.0, bias=0.25)
    assert types_left(out).count("scale") == 1


@pytest.mark.usefixtures("new_program")
@pytest.mark.parametrize("number_first", [False, True])
def test_powers_and_quotients_of_a_number_have_operators_of_one_operand(number_first):
    x = data("x", 8, 4, dtype="float32")
    out = layers.elementwise_div(full(3.0), x) if number_first else layers.elementwise_pow(x, number(2.5))
    fetch = [out, *fluid.gradients([layers.reduce_sum(out)], [x])]
    feed = {"x": np.abs(numbers(8, 4, dtype="float32")) + 0.1}
    assert types_left(out) == (["reciprocal", "scale"] if number_first else ["pow"])
    assert "elementwise_pow_grad" not in types_left(*fetch)
    found, expected = with_and_without(ScaleByConstants(), feed, fetch)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=4 * np.finfo("float32").eps)


@pytest.mark.usefixtures("new_program")
@pytest.mark.parametrize("is_for_batch", [False, True])
@pytest.mark.parametrize("dividend", [1.0, 3.0])
def test_the_gradient_of_a_divisor_has_no_quotient(dividend, is_for_batch):
    x = data("x", 8, 4, dtype="float32")
    out = layers.elementwise_div(for_batch(dividend, x) if is_for_batch else full(dividend), x)
    (grad,) = fluid.gradients([layers.reduce_sum(out)], [x])
    assert not any(type.startswith("elementwise_div") for type in types_left(out, grad))
    feed = {"x": np.abs(numbers(8, 4, dtype="float32")) + 0.1}
    found, expected = with_and_without(ScaleByConstants(), feed, [out, grad])
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=8 * np.finfo("float32").eps)


@pytest.mark.usefixtures("new_program")
def test_a_gradient_whose_out_is_no_quotient_stays():
    """Of -dOut * Out / x nothing is known then."""
    x, out, d = (data(name, 8, 4, dtype="float32") for name in ("x", "out", "d"))
    block = x.block
    grad = block.create_var(name="grad", shape=[8, 4], dtype="float32")
    inputs = {"X": full(3.0), "Y": x, "Out": out, "Out@GRAD": d}
    block.append_op("elementwise_div_grad", inputs, {"Y@GRAD": grad})
    assert "elementwise_div_grad" in types_left(grad)


@pytest.mark.usefixtures("new_program")
def test_a_gradient_whose_number_is_an_integer_stays():
    x, d = (data(name, 8, 4, dtype="float32") for name in ("x", "d"))
    grad = x.block.create_var(name="grad", shape=[8, 4], dtype="float32")
    inputs = {"X": x, "Y": layers.fill_constant([1], "int64", 2.5), "Out": d, "Out@GRAD": d}
    x.block.append_op("elementwise_div_grad", inputs, {"X@GRAD": grad})
    assert "elementwise_div_grad" in types_left(grad)


@pytest.mark.usefixtures("new_program")
@pytest.mark.parametrize("rows", [0, 1])
def test_few_elements_have_numbers_as_well(rows):
    x = data("x", rows, 4, dtype="float32")
    out = layers.elementwise_sub(layers.fill_constant([rows, 4], "float32", 1.0), x)
    assert types_left(out) == ["scale"]
    found, expected = with_and_without(ScaleByConstants(), {"x": numbers(rows, 4, dtype="float32")}, [out])
    assert found[0].tobytes() == expected[0].tobytes()


OTHERS = {
    "zero": lambda x: layers.elementwise_div(x, number(0.0)),
    "infinite": lambda x: layers.elementwise_mul(x, number(float("inf"))),
    "rows of a number": lambda x: layers.elementwise_mul(x, layers.fill_constant([4], "float32", 2.0)),
    "more numbers than x": lambda x: layers.elementwise_sub(full(2.0), layers.reduce_sum(x, dim=[1], keep_dim=True)),
    "a bias between": lambda x: layers.scale(layers.scale(x, 3.0, bias=1.0), 2.0),
    "a bias before": lambda x: layers.scale(layers.scale(x, 3.0), 2.0, bias=0.3, bias_after_scale=False),
    "a large bias between": lambda x: layers.scale(layers.scale(x, 3.0, bias=2.0**23), 1.0, bias=-(2.0**23)),
    "zero before, for -0.0": lambda x: layers.scale(
        layers.scale(x, bias_after_scale=False), 1.0, bias_after_scale=False
    ),
    "no factor": lambda x: layers.scale(layers.scale(x, 3.0, bias=1.0), 0.0, bias=2.0),
    "float64": lambda x: layers.elementwise_mul(layers.cast(x, "float64"), number(0.3, "float64")),
    "factors of float64": lambda x: layers.scale(layers.scale(layers.cast(x, "float64"), 0.3), 0.3),
}


@pytest.mark.usefixtures("new_program")
@pytest.mark.parametrize("form", OTHERS)
def test_others_stay(form):
    out = OTHERS[form](data("x", 8, 4, dtype="float32"))
    assert types_left(out) == [op.type for op in fluid.default_main_program().global_block().ops]


@pytest.mark.timing
def test_time_is_linear():
    assert_linear(ScaleByConstants(), repeated(lambda x: layers.scale(layers.elementwise_mul(x, number(2.0)), 3.0)))
