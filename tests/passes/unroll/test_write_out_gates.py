"""WriteOutGates turns gated recurrent units into products and operators on elements, up to rounding."""

from itertools import combinations

import numpy as np
import pytest
from both_executors import data, numbers
from pass_laws import assert_linear, pipeline, with_and_without

import minigraph as fluid
from minigraph import layers
from minigraph.passes import CleanUp, ShareGradients, WriteOutGates

pytestmark = [pytest.mark.numbers, pytest.mark.usefixtures("new_program")]

ROWS, SIZE = 3, 2
SHAPES = {"x": (ROWS, 3 * SIZE), "h": (ROWS, SIZE), "w": (SIZE, 3 * SIZE), "b": (1, 3 * SIZE)}


def unit(x, h, w, b=None, **attrs):
    block = fluid.default_main_program().current_block()
    names = {slot: fluid.unique_name.generate(slot) for slot in ("Gate", "ResetHiddenPrev", "Hidden")}
    for name in names.values():
        block.create_var(name)
    inputs = {"Input": x, "HiddenPrev": h, "Weight": w, **({} if b is None else {"Bias": b})}
    block.append_op("gru_unit", inputs, names, attrs)
    return [block.var(name) for name in names.values()]


def fed(dtype="float32"):
    return {name: numbers(*shape, seed=i, dtype=dtype) for i, (name, shape) in enumerate(SHAPES.items())}


def types_left(fetch, *more):
    program = fluid.default_main_program().clone()
    program.roots = tuple(each.name for each in fetch)
    pipeline(WriteOutGates(), *more).apply(program)
    assert not WriteOutGates().apply(program)
    return [op.type for op in program.global_block().ops]


def assert_close(fetch, feed):
    found, expected = with_and_without(WriteOutGates(), feed, fetch)
    for new, old in zip(found, expected, strict=True):
        assert (new.dtype, new.shape) == (old.dtype, old.shape)
        np.testing.assert_allclose(new, old, rtol=0, atol=32 * np.finfo(new.dtype).eps * np.abs(old).max())


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("attrs", [{}, {"origin_mode": True}, {"activation": 3, "gate_activation": 0}])
@pytest.mark.parametrize("has_bias", [False, True])
def test_two_steps_are_the_same_up_to_rounding(has_bias, attrs, dtype):
    x, h, w, b = (data(name, *shape, dtype=dtype) for name, shape in SHAPES.items())
    given = [x, h, w, *([b] if has_bias else [])]
    state = unit(*given, **attrs)[2]
    state = unit(layers.tanh(x), state, *given[2:], **attrs)[2]
    fetch = [state, *fluid.gradients([layers.mean(layers.tanh(state))], given)]
    assert not any(type.startswith("gru_unit") for type in types_left(fetch))
    assert_close(fetch, fed(dtype))


@pytest.mark.parametrize("wanted", [each for count in range(4) for each in combinations("xhwb", count)], ids="".join)
def test_some_gradients_are_the_same_up_to_rounding(wanted):
    given = {name: data(name, *shape, dtype="float32") for name, shape in SHAPES.items()}
    for name, leaf in given.items():
        leaf.stop_gradient = name not in wanted
    state = unit(*given.values())[2]
    leaves = [given[name] for name in wanted]
    fetch = [state, *(fluid.gradients([layers.mean(layers.tanh(state))], leaves) if leaves else [])]
    assert not any(type.startswith("gru_unit") for type in types_left(fetch))
    assert_close(fetch, fed())


def test_no_operators_are_made_for_gradients_that_the_unit_does_not_compute():
    x, h, w, b = (data(name, *shape, dtype="float32") for name, shape in SHAPES.items())
    x.stop_gradient = w.stop_gradient = b.stop_gradient = True
    fluid.gradients([unit(x, h, w, b)[2]], [h])
    program = fluid.default_main_program()
    assert WriteOutGates().apply(program)
    types = [op.type for op in program.global_block().ops]
    assert types.count("reshape2") == 4
    assert "reshape2_grad" not in types


@pytest.mark.slow
def test_the_weight_of_many_steps_is_cut_once_and_its_gradient_joined_once():
    x, h, w, b = (data(name, *shape, dtype="float32") for name, shape in SHAPES.items())
    state = h
    for _ in range(4):
        state = unit(x, state, w, b)[2]
    fetch = [state, *fluid.gradients([layers.mean(layers.tanh(state))], [w])]
    types = types_left(fetch, CleanUp(), ShareGradients())
    assert types.count("mul_grad") == 8
    assert types.count("reshape2_grad") == 3  # of the flat weight and its two matrices
    found, expected = (
        exe.run(feed=fed(), fetch_list=fetch)
        for exe in (
            fluid.Executor(passes=pipeline(WriteOutGates(), ShareGradients())),
            fluid.Executor(passes=pipeline()),
        )
    )
    np.testing.assert_allclose(found[1], expected[1], rtol=0, atol=1e-6)


@pytest.mark.parametrize("result", [0, 1])
def test_a_unit_whose_gates_are_read_stays(result):
    made = unit(*[data(name, *shape, dtype="float32") for name, shape in SHAPES.items()])
    assert "gru_unit" in types_left([made[result], made[2]])


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_half_numbers_and_unknown_sizes_stay(dtype):
    shapes = SHAPES if dtype == "float16" else {name: (-1, -1) for name in "xhw"}
    made = unit(*[fluid.data(name, list(shape), dtype) for name, shape in shapes.items()])
    assert "gru_unit" in types_left(made[2:])


@pytest.mark.timing
def test_time_is_linear():
    def make(count):
        main = fluid.Program()
        with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
            x, h, w, b = (fluid.data(name, list(shape)) for name, shape in SHAPES.items())
            for _ in range(count // 16):
                h = unit(x, h, w, b)[2]
        return main

    assert_linear(WriteOutGates(), make)
