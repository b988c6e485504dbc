"""OrderOperands writes the larger operand of sums and products first."""

import numpy as np
import pytest
from both_executors import data, numbers
from pass_laws import assert_linear, keeps_the_bits, op_lines, repeated, with_and_without

import minigraph as fluid
from minigraph import layers
from minigraph.passes import OrderOperands

pytestmark = pytest.mark.numbers

test_training, test_overwriting = keeps_the_bits(OrderOperands())

SHAPES = {
    "a row": ([5], [3, 5]), "a row of two dimensions": ([1, 5], [3, 5]), "a column": ([3, 1], [3, 5]),
    "a number": ([1], [3, 5]), "no rows": ([5], [0, 5]), "one element": ([1], [1, 1]),
    "both ends": ([1, 4, 1], [3, 4, 5]),
}  # fmt: skip


@pytest.mark.usefixtures("new_program")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("layer", [layers.elementwise_add, layers.elementwise_mul])
@pytest.mark.parametrize("shapes", SHAPES.values(), ids=SHAPES)
def test_values_and_gradients_keep_their_bits(shapes, layer, dtype):
    x, y = (data(name, *shape, dtype=dtype) for name, shape in zip("xy", shapes, strict=True))
    out = layer(x, y)
    fetch = [out, *fluid.gradients([layers.square(out)], [x, y])]
    feed = {each.name: numbers(*each.shape, dtype=dtype) for each in (x, y)}
    program = fluid.default_main_program().clone()
    assert OrderOperands().apply(program)
    ops = [op for op in program.global_block().ops if op.type.startswith("elementwise")]
    assert all(op.input("X") == ["y"] for op in ops)
    for a, b in zip(*with_and_without(OrderOperands(), feed, fetch), strict=True):
        assert (a.shape, a.dtype, a.tobytes()) == (b.shape, b.dtype, b.tobytes())


OTHERS = {
    "larger first": "elementwise_add(X=y, Y=x)",
    "one shape": "elementwise_add(X=y, Y=z)",
    "both repeated": "elementwise_add(X=x, Y=c)",
    "a difference": "elementwise_sub(X=x, Y=y)",
    "a maximum": "elementwise_max(X=x, Y=y)",
}


@pytest.mark.parametrize("line", OTHERS.values(), ids=OTHERS)
def test_others_stay(line):
    text = f"""
        block 0
          data x: float32[5]
          data y: float32[3, 5]
          data z: float32[3, 5]
          data c: float32[3, 1]
          o: float32[3, 5] = {line}
    """
    assert op_lines(OrderOperands(), text, ["o"]) == [f"o = {line}"]


def test_an_open_batch_stays():
    text = """
        block 0
          data x: float32[5]
          data y: float32[-1, 5]
          o: float32[-1, 5] = elementwise_add(X=x, Y=y)
    """
    assert op_lines(OrderOperands(), text, ["o"]) == ["o = elementwise_add(X=x, Y=y)"]


@pytest.mark.timing
def test_time_is_linear():
    small = np.ones(2, "float32")
    assert_linear(OrderOperands(), repeated(lambda x: layers.elementwise_add(layers.assign(small), x)))
