"""MultiplyPowers computes small powers by products, quotients and roots."""

import numpy as np
import pytest
from both_executors import data, numbers
from pass_laws import assert_linear, keeps_trainings, op_lines, repeated, with_and_without

import minigraph as fluid
from minigraph import layers
from minigraph.passes import MultiplyPowers

pytestmark = pytest.mark.numbers

test_training = keeps_trainings(MultiplyPowers())


def left(factor):
    text = f"    block 0\n      data x: float32[4, 2]\n      w: float32[4, 2] = pow(X=x) {{factor={factor}}}"
    return op_lines(MultiplyPowers(), text, ["w"])


def test_a_square_is_a_square():
    assert left(2.0) == ["w = square(X=x)"]


def test_a_cube_is_a_product():
    assert [line.split("(")[0].split(" = ")[-1] for line in left(3.0)] == ["square", "elementwise_mul"]


def test_a_root_is_that_of_a_number_without_a_sign_at_0():
    assert [line.split("(")[0].split(" = ")[-1] for line in left(-0.5)] == ["scale", "rsqrt"]


@pytest.mark.parametrize(
    ("attrs", "is_biased"), [("bias=0.5", True), ("scale=2.0", False), ("bias=0.5, bias_after_scale=False", False)]
)
@pytest.mark.parametrize(("factor", "root"), [(0.5, "sqrt"), (-0.5, "rsqrt")])
def test_the_root_of_a_biased_number_needs_no_other_sign(factor, root, attrs, is_biased):
    text = f"""
        block 0
          data x: float32[4, 2]
          v: float32[4, 2] = scale(X=x) {{{attrs}}}
          w: float32[4, 2] = pow(X=v) {{factor={factor}}}
    """
    found = [line.split("(")[0].split(" = ")[-1] for line in op_lines(MultiplyPowers(), text, ["w"])]
    assert found == (["scale", root] if is_biased else ["scale", "scale", root])


def test_a_negative_power_of_integers_stays():
    text = "    block 0\n      data x: int64[4]\n      w: int64[4] = pow(X=x) {factor=-1.0}"
    assert len(op_lines(MultiplyPowers(), text, ["w"])) == 1


@pytest.mark.parametrize("factor", [0.0, 1.0, 1.5, -2.0, 5.0])
def test_other_powers_stay(factor):
    assert len(left(factor)) == 1
    assert "pow(X=x)" in left(factor)[0]


@pytest.mark.usefixtures("new_program")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("factor", [2.0, 3.0, 4.0, -1.0, 0.5, -0.5])
def test_powers_and_gradients_are_those_of_the_interpreter(factor, dtype):
    x = data("x", 8, 4, dtype=dtype)
    out = layers.pow(x, factor)
    fetch, feed = [out, *fluid.gradients([out], [x])], {"x": numbers(8, 4, dtype=dtype)}
    feed["x"][0] = [0, -0.0, np.inf, -np.inf if factor.is_integer() else np.inf]
    program = fluid.default_main_program().clone()
    MultiplyPowers().apply(program)
    assert {op.type for op in program.global_block().ops}.isdisjoint({"pow", "pow_grad"})
    found, expected = with_and_without(MultiplyPowers(), feed, fetch)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=8 * np.finfo(dtype).eps)


@pytest.mark.usefixtures("new_program")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_product_of_a_value_and_itself_is_a_square(dtype):
    x = data("x", 8, 4, dtype=dtype)
    out = layers.elementwise_mul(x, x)
    fetch, feed = [out, *fluid.gradients([out], [x])], {"x": numbers(8, 4, dtype=dtype)}
    feed["x"][0] = [0, -0.0, np.inf, -1e-6]
    program = fluid.default_main_program().clone()
    program.roots = tuple(each.name for each in fetch)
    MultiplyPowers().apply(program)
    types = [op.type for op in program.global_block().ops]
    assert {"square", "square_grad"} <= set(types)
    assert not any(type.startswith("elementwise_mul") for type in types)
    found, expected = with_and_without(MultiplyPowers(), feed, fetch)
    for a, b in zip(found, expected, strict=True):
        assert a.tobytes() == b.tobytes()


@pytest.mark.parametrize(
    "line", ["elementwise_mul(X=x, Y=y)", "elementwise_mul(X=i, Y=i)", "elementwise_mul(X=y, Y=x)"]
)
def test_products_of_two_values_or_of_integers_stay(line):
    lines = ["data x: float32[4]", "data y: float32[4]", "data i: int64[4]"]
    lines.append(f"w: {'int64' if 'X=i' in line else 'float32'}[4] = {line}")
    text = "\n".join(["    block 0", *(f"      {each}" for each in lines)])
    assert op_lines(MultiplyPowers(), text, ["w"]) == [f"w = {line}"]


@pytest.mark.usefixtures("new_program")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("rows", [0, 1, 8])
def test_the_reciprocal_of_a_root_is_one_operator(rows, dtype):
    x = data("x", rows, 4, dtype=dtype)
    out = layers.reciprocal(layers.sqrt(x))
    fetch, feed = [out, *fluid.gradients([out], [x])], {"x": np.abs(numbers(rows, 4, dtype=dtype))}
    feed["x"][:1] = [0, -0.0, np.inf, 1e-6]
    program = fluid.default_main_program().clone()
    program.roots = tuple(each.name for each in fetch)
    MultiplyPowers().apply(program)
    assert {op.type for op in program.global_block().ops} >= {"rsqrt", "rsqrt_grad"}
    found, expected = with_and_without(MultiplyPowers(), feed, fetch)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=8 * np.finfo(dtype).eps)


def test_a_root_that_is_read_elsewhere_stays():
    text = """
        block 0
          data x: float32[4]
          s: float32[4] = sqrt(X=x)
          w: float32[4] = reciprocal(X=s)
    """
    assert op_lines(MultiplyPowers(), text, ["w", "s"]) == ["s = sqrt(X=x)", "w = reciprocal(X=s)"]


@pytest.mark.usefixtures("new_program")
@pytest.mark.parametrize("order", [1, -1])
def test_the_gradient_of_a_square_may_be_added_to_others(order):
    x = data("x", 8, 4, dtype="float64")
    terms = [x * x, layers.tanh(x), layers.sin(x)][::order]
    out = layers.reduce_sum(layers.sums(terms))
    fetch, feed = [out, *fluid.gradients([out], [x])], {"x": numbers(8, 4, dtype="float64")}
    program = fluid.default_main_program().clone()
    program.roots = tuple(each.name for each in fetch)
    MultiplyPowers().apply(program)
    assert not MultiplyPowers().apply(program)
    types = [op.type for op in program.global_block().ops]
    assert "square_grad" in types
    assert "elementwise_mul_grad" not in types
    found, expected = with_and_without(MultiplyPowers(), feed, fetch)
    for new, old in zip(found, expected, strict=True):
        np.testing.assert_allclose(new, old, rtol=1e-14)


@pytest.mark.usefixtures("new_program")
def test_a_part_of_the_gradient_that_is_fetched_stays():
    x = data("x", 8, 4, dtype="float64")
    out = layers.reduce_sum(layers.sums([x * x, layers.tanh(x), layers.sin(x)]))
    (grad,) = fluid.gradients([out], [x])
    program = fluid.default_main_program().clone()
    parts = program.global_block().ops.of_type("elementwise_mul_grad")[0].output_arg_names
    program.roots = (grad.name, parts[1])
    MultiplyPowers().apply(program)
    assert "elementwise_mul_grad" in [op.type for op in program.global_block().ops]


@pytest.mark.timing
def test_time_is_linear():
    assert_linear(MultiplyPowers(), repeated(lambda x: layers.pow(x, 3.0)))
