"""ScaleIntoMatmul gives factors to the products beside them."""

import numpy as np
import pytest
from both_executors import data, numbers
from pass_laws import assert_linear, keeps_trainings, op_lines, pipeline

import minigraph as fluid
from minigraph import layers
from minigraph.executor.interpreter import Interpreter
from minigraph.passes import ScaleIntoMatmul

pytestmark = pytest.mark.numbers

test_training = keeps_trainings(ScaleIntoMatmul())

HEAD = ["    block 0", "      data x: float32[2, 3, 4]", "      data y: float32[2, 4, 5]"]


def left(*lines):
    return op_lines(ScaleIntoMatmul(), "\n".join([*HEAD, *(f"      {line}" for line in lines)]), ["w"])


SCALED = {
    "result": ["z: float32[2, 3, 5] = matmul(X=x, Y=y)", "w: float32[2, 3, 5] = scale(X=z) {scale=0.5}"],
    "X": ["s: float32[2, 3, 4] = scale(X=x) {scale=0.5}", "w: float32[2, 3, 5] = matmul(X=s, Y=y)"],
    "Y": ["s: float32[2, 4, 5] = scale(X=y) {scale=0.5}", "w: float32[2, 3, 5] = matmul(X=x, Y=s)"],
}


@pytest.mark.parametrize("what", SCALED)
def test_a_product_scales_by_itself(what):
    assert left(*SCALED[what]) == ["w = matmul(X=x, Y=y) {alpha=0.5}"]


@pytest.mark.parametrize(
    "lines",
    [
        [line.replace("scale=0.5", "scale=0.5, bias=1.0") for line in SCALED["X"]],
        [line.replace("scale=0.5", "scale=0.0") for line in SCALED["Y"]],
        [line.replace("scale=0.5", "scale=1e-50") for line in SCALED["result"]],
        [line.replace("scale=0.5", "scale=1e50") for line in SCALED["X"]],
        [line.replace("Y=y)", "Y=y) {alpha=3.0}") for line in SCALED["result"]],
        [SCALED["X"][0], "x = relu(X=x)", SCALED["X"][1]],
        [SCALED["result"][0], "x = relu(X=x)", SCALED["result"][1]],
        [*SCALED["result"][:1], "v: float32[2, 3, 5] = scale(X=z) {scale=0.5}", "w: float32[2, 3, 5] = sum(X=[v, z])"],
    ],
    ids=[
        "bias",
        "0",
        "0 in float32",
        "infinite in float32",
        "another factor",
        "operand written",
        "operand of result written",
        "product read",
    ],
)
def test_other_scales_stay(lines):
    assert any("scale(" in line for line in left(*lines))


FORMS = {
    "alpha": lambda x, y: layers.matmul(x, y, alpha=0.5),
    "result": lambda x, y: layers.scale(layers.matmul(x, y), 0.5),
    "X": lambda x, y: layers.matmul(layers.scale(x, 0.5), y),
    "Y": lambda x, y: layers.matmul(x, layers.scale(y, 0.5)),
}


@pytest.mark.usefixtures("new_program")
@pytest.mark.parametrize("wanted", [["x", "y"], ["x"], ["y"]])
@pytest.mark.parametrize("form", FORMS)
def test_gradients_are_scaled_too(form, wanted):
    x, y = data("x", 2, 3, 4), data("y", 2, 4, 5)
    for var in (x, y):
        var.stop_gradient = var.name not in wanted
    loss = layers.reduce_sum(layers.tanh(FORMS[form](x, y)))
    fetch = [loss, *fluid.gradients([loss], [var for var in (x, y) if var.name in wanted])]
    program = fluid.default_main_program().clone()
    program.roots = tuple(var.name for var in fetch)
    ScaleIntoMatmul().apply(program)
    kept = fluid.passes.RemoveDeadOps()(program).global_block().ops
    assert not kept.of_type("scale")
    assert [op.attr("alpha") for op in (*kept.of_type("matmul"), *kept.of_type("matmul_grad"))] == [0.5, 0.5]
    feed = {"x": numbers(2, 3, 4), "y": numbers(2, 4, 5, seed=1)}
    found, expected = (
        executor.run(feed=feed, fetch_list=fetch)
        for executor in (fluid.Executor(passes=pipeline(ScaleIntoMatmul())), Interpreter())
    )
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-14)


@pytest.mark.timing
def test_time_is_linear():
    def make(count):
        main = fluid.Program()
        with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
            x = y = fluid.data("x", [2, 3, 3])
            for _ in range(count // 2):
                y = layers.scale(layers.matmul(y, x), 0.5)
        return main

    assert_linear(ScaleIntoMatmul(), make)


@pytest.mark.usefixtures("new_program", "new_scope")
def test_a_factor_keeps_products_of_float16_from_overflowing():
    x, y = (fluid.data(name, [2, 4, 128], "float16") for name in "xy")
    z = layers.matmul(layers.scale(x, 128**-0.5), y, transpose_y=True)
    feed = {name: np.full((2, 4, 128), 30, np.float16) for name in "xy"}
    (found,) = fluid.Executor().run(fluid.default_main_program(), feed=feed, fetch_list=[z])
    assert np.isfinite(found).all()
