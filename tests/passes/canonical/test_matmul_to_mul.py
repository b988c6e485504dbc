"""MatmulToMul writes products with a matrix in one way."""

import numpy as np
import pytest
from both_executors import data, numbers
from pass_laws import assert_linear, assert_same_bits, keeps_the_bits, op_lines, pipeline

import minigraph as fluid
from minigraph.executor.interpreter import Interpreter
from minigraph.passes import MatmulToMul

test_training, test_overwriting = keeps_the_bits(MatmulToMul())

TEXT = """
    block 0
      data x: float32[{x}]
      data y: float32[{y}]
      data d: float32[{z}]
      z: float32[{z}] = matmul(X=x, Y=y) {attrs}
      X@GRAD=dx: float32[{x}], Y@GRAD=dy: float32[{y}] = matmul_grad(X=x, Y=y, Out@GRAD=d) {attrs}
"""


def rewritten(x, y, z, attrs=""):
    return op_lines(MatmulToMul(), TEXT.format(x=x, y=y, z=z, attrs=attrs), ["z", "dx", "dy"])


def test_a_product_of_matrices_is_a_mul():
    assert rewritten("2, 3", "3, 4", "2, 4") == [
        "z = mul(X=x, Y=y)",
        "X@GRAD=dx, Y@GRAD=dy = mul_grad(X=x, Y=y, Out@GRAD=d)",
    ]


def test_leading_dimensions_count_rows():
    assert rewritten("5, 2, 3", "3, 4", "5, 2, 4") == [
        "z = mul(X=x, Y=y) {x_num_col_dims=2}",
        "X@GRAD=dx, Y@GRAD=dy = mul_grad(X=x, Y=y, Out@GRAD=d) {x_num_col_dims=2}",
    ]


@pytest.mark.parametrize(
    ("x", "y", "z", "attrs"),
    [
        ("3", "3, 4", "4", ""),
        ("2, 3", "3", "2", ""),
        ("5, 2, 3", "5, 3, 4", "5, 2, 4", ""),
        ("3, 2", "3, 4", "2, 4", "{transpose_X=True}"),
        ("2, 3", "4, 3", "2, 4", "{transpose_Y=True}"),
        ("2, 3", "3, 4", "2, 4", "{alpha=2.0}"),
    ],
)
def test_other_products_stay(x, y, z, attrs):
    assert all("matmul" in line for line in rewritten(x, y, z, attrs))


@pytest.mark.parametrize("shape", [(6, 5, 7), (1, 5, 7), (6, 1, 7), (6, 5, 1), (0, 5, 7), (2, 3, 5, 7)])
@pytest.mark.parametrize("swaps", [False, True])
def test_batches_keep_their_bits_in_any_layout(new_program, shape, swaps):
    layers = fluid.layers
    fed = (*shape[:-2], shape[-1], shape[-2]) if swaps else shape
    x, w = data("x", *fed, dtype="float32"), data("w", shape[-1], 4, dtype="float32")
    rank = len(shape)
    a = layers.transpose(x, [*range(rank - 2), rank - 1, rank - 2]) if swaps else x
    loss = layers.reduce_sum(layers.square(layers.matmul(a, w)))
    grads = fluid.gradients([loss], [x, w])
    feed = {"x": numbers(*fed, dtype="float32"), "w": numbers(shape[-1], 4, dtype="float32")}
    found, expected = (
        dict(enumerate(executor.run(feed=feed, fetch_list=[loss, *grads])))
        for executor in (fluid.Executor(passes=pipeline(MatmulToMul())), Interpreter())
    )
    assert_same_bits(found, {key: np.asarray(value) for key, value in expected.items()})


@pytest.mark.timing
def test_time_is_linear():
    def make(count):
        text = "\n".join(
            ["block 0", "  data x: float32[3, 3]"]
            + [f"  x{i}: float32[3, 3] = matmul(X={f'x{i - 1}' if i else 'x'}, Y=x)" for i in range(count)]
        )
        return fluid.Program.parse(text)

    assert_linear(MatmulToMul(), make)


def test_a_product_whose_shape_another_one_tells_is_a_mul_too():
    main = fluid.Program.parse(
        "block 0\n  data x: float32[4, 4]\n  data y: float32[4, 4]\n"
        "  z: float32[-1, 4] = matmul(X=x, Y=y)\n  out: float32[4, 4] = matmul(X=z, Y=z)"
    )
    assert MatmulToMul().apply(main)
    assert [op.type for op in main.global_block().ops] == ["mul", "mul"]


def test_a_gradient_gets_no_lengths():
    main = fluid.Program.parse(
        "block 0\n  data x: float32[1, 1]\n  data y: float32[1, 1] {lod_level=1}\n  data d: float32[1, 1]\n"
        "  Y@GRAD=y@GRAD: float32[1, 1] = matmul_grad(X=x, Y=y, Out@GRAD=d)"
    )
    assert not MatmulToMul().apply(main)
