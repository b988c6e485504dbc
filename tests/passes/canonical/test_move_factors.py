"""MoveFactors multiplies sums and means by constant factors, and keeps values up to rounding."""

import numpy as np
import pytest
from both_executors import data, numbers
from pass_laws import assert_linear, keeps_trainings, pipeline

import minigraph as fluid
from minigraph import layers
from minigraph.executor.interpreter import Interpreter
from minigraph.passes import MoveFactors

pytestmark = pytest.mark.numbers

test_training = keeps_trainings(MoveFactors())

REDUCTIONS = {
    "mean": layers.mean,
    "reduce_mean": lambda x: layers.reduce_mean(x, dim=1, keep_dim=True),
    "reduce_sum": layers.reduce_sum,
    "sum of columns": lambda x: layers.reduce_sum(x, dim=[0]),
}
MULTIPLES = {
    "multiple": lambda x, y: layers.scale(x, -3.0),
    "multiple of a multiple": lambda x, y: layers.scale(layers.scale(x, -3.0), 0.5),
    "first operand": lambda x, y: layers.scale(x, -3.0) * y,
    "second operand": lambda x, y: x * layers.scale(y, 0.1),
    "both operands": lambda x, y: layers.scale(x, 0.5) * layers.scale(y, 0.1),
    "broadcast operand": lambda x, y: layers.elementwise_mul(x, layers.scale(layers.reduce_sum(y, dim=1), 0.1), axis=0),
    "square": lambda x, y: (lambda z: z * z)(layers.scale(x, 0.1)),
}


def order_of(fetch):
    """Types of the operators of the forward pass, in order."""
    program = fluid.default_main_program().clone()
    program.roots = tuple(each.name for each in fetch)
    pipeline(MoveFactors()).apply(program)
    return [op.type for op in program.global_block().ops]


def run(executor, fetch, **feed):
    with np.errstate(all="ignore"):
        return executor.run(fluid.default_main_program(), feed=feed, fetch_list=fetch, scope=fluid.Scope())


@pytest.mark.usefixtures("new_program")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("multiple", MULTIPLES)
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("shape", [(4, 3), (1, 1)])
def test_sums_and_gradients_are_those_of_the_interpreter(reduction, multiple, dtype, shape):
    x, y = data("x", *shape, dtype=dtype), data("y", *shape, dtype=dtype)
    found = REDUCTIONS[reduction](MULTIPLES[multiple](layers.tanh(x), layers.tanh(y)))
    fetch = [found, *fluid.gradients([layers.reduce_sum(layers.square(found))], [x, y])]
    fetch = [each for each in fetch if each is not None]
    executor, tolerance = fluid.Executor(passes=pipeline(MoveFactors())), 100 * np.finfo(dtype).eps
    for special in (1.0, 0.0, np.inf, np.nan):
        feed = {"x": numbers(*shape, dtype=dtype), "y": numbers(*shape, dtype=dtype) * np.dtype(dtype).type(special)}
        for value, expected in zip(run(executor, fetch, **feed), run(Interpreter(), fetch, **feed), strict=True):
            np.testing.assert_allclose(value, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.usefixtures("new_program")
@pytest.mark.parametrize("reduction", REDUCTIONS.values(), ids=REDUCTIONS)
@pytest.mark.parametrize("multiple", ["multiple", "multiple of a multiple", "first operand", "both operands"])
def test_one_factor_comes_last(reduction, multiple):
    types = order_of([reduction(MULTIPLES[multiple](data("x", 4, 3), data("y", 4, 3)))])
    assert types[-1] == "scale" and types.count("scale") == 1


OTHERS = {
    "addend": lambda x: layers.reduce_sum(layers.scale(x, 2.0, bias=1.0)),
    "0": lambda x: layers.reduce_sum(layers.scale(x, 0.0)),
    "large factor": lambda x: layers.reduce_sum(layers.scale(x, 1e20)),
    "largest element": lambda x: layers.reduce_max(layers.scale(x, 2.0)),
    "variable": lambda x: layers.reduce_sum(layers.scale(x, layers.fill_constant([1], x.dtype, 2.0))),
    "nothing but the multiple": lambda x: layers.tanh(layers.scale(x, 2.0)),
}


@pytest.mark.usefixtures("new_program")
@pytest.mark.parametrize("function", OTHERS.values(), ids=OTHERS)
def test_others_stay(function):
    assert order_of([function(data("x", 4, 3))])[-1] != "scale"


@pytest.mark.usefixtures("new_program")
def test_a_multiple_that_is_read_elsewhere_or_of_integers_stays():
    scaled = layers.scale(data("x", 4, 3), 2.0)
    assert order_of([layers.reduce_sum(scaled), scaled])[-1] == "reduce_sum"
    half = layers.scale(layers.cast(data("z", 4, 3), "float16"), 2.0)
    assert order_of([layers.reduce_sum(half)])[-1] == "reduce_sum"


@pytest.mark.slow
def test_the_time_is_linear():
    def make(count):
        program = fluid.Program()
        with fluid.program_guard(program), fluid.unique_name.guard():
            x = fluid.data("x", [4, 3])
            for _ in range(count // 3):
                x = x + layers.reduce_sum(layers.scale(x, 0.5))
        program.roots = (x.name,)
        return program

    assert_linear(MoveFactors(), make)
