"""WriteOutUnits turns the units of recurrent networks into operators on elements."""

import numpy as np
import pytest
from both_executors import data, numbers
from pass_laws import assert_linear, pipeline, with_and_without

import minigraph as fluid
from minigraph import layers
from minigraph.passes import WriteOutUnits

pytestmark = [pytest.mark.numbers, pytest.mark.usefixtures("new_program")]


def unit(x, c, forget_bias=0.0):
    helper = fluid.layer_helper.LayerHelper("lstm_unit")
    cell, out = (helper.create_variable_for_type_inference(x.dtype) for _ in range(2))
    helper.append_op(
        type="lstm_unit", inputs={"X": x, "C_prev": c}, outputs={"C": cell, "H": out},
        attrs={"forget_bias": forget_bias},
    )  # fmt: skip
    return cell, out


def types_left(fetch):
    program = fluid.default_main_program().clone()
    program.roots = tuple(each.name for each in fetch)
    pipeline(WriteOutUnits()).apply(program)
    assert not WriteOutUnits().apply(program)
    return {op.type for op in program.global_block().ops}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("forget_bias", [0.0, 1.5])
@pytest.mark.parametrize("reads", ["out", "both", "two steps"])
def test_bits_are_kept(reads, forget_bias, rows, dtype):
    x, c = data("x", rows, 8, dtype=dtype), data("c", rows, 2, dtype=dtype)
    cell, out = unit(x, c, forget_bias)
    if reads == "two steps":
        cell, out = unit(layers.tanh(x) + layers.concat([out] * 4, axis=1), cell, forget_bias)
    loss = layers.mean(layers.tanh(out)) if reads == "out" else layers.mean(layers.tanh(out) * cell)
    fetch = [cell, out, *fluid.gradients([loss], [x, c])]
    assert types_left(fetch).isdisjoint({"lstm_unit", "lstm_unit_grad"})
    feed = {"x": numbers(rows, 8, dtype=dtype), "c": numbers(rows, 2, seed=1, dtype=dtype)}
    feed["x"][0] = [0, -0.0, np.inf, -np.inf, 1, 2, np.nan, 3]
    with np.errstate(all="ignore"):
        found, expected = with_and_without(WriteOutUnits(), feed, fetch)
    for new, old in zip(found, expected, strict=True):
        np.testing.assert_array_equal(new, old)
        assert np.isnan(new).any() or new.tobytes() == old.tobytes()


def test_one_of_both_gradients_is_enough():
    x, c = data("x", 3, 8, dtype="float32"), fluid.data("c", [3, 2])
    _, out = unit(x, c)
    fetch = fluid.gradients([layers.mean(out)], [x])
    assert "lstm_unit_grad" not in types_left(fetch)
    feed = {"x": numbers(3, 8, dtype="float32"), "c": numbers(3, 2, dtype="float32")}
    found, expected = with_and_without(WriteOutUnits(), feed, fetch)
    assert found[0].tobytes() == expected[0].tobytes()


@pytest.mark.parametrize(("shape", "dtype"), [((3, 8), "float16"), ((-1, 8), "float32")])
def test_other_units_stay(shape, dtype):
    x, c = fluid.data("x", list(shape), dtype), fluid.data("c", [shape[0], 2], dtype)
    assert "lstm_unit" in types_left(unit(x, c))


def test_the_gradient_of_the_cell_alone_keeps_its_bits():
    x, c = data("x", 3, 8, dtype="float32"), data("c", 3, 2, dtype="float32")
    cell, _ = unit(x, c)
    fetch = fluid.gradients([layers.mean(cell)], [x, c])
    feed = {"x": numbers(3, 8, dtype="float32"), "c": numbers(3, 2, dtype="float32")}
    found, expected = with_and_without(WriteOutUnits(), feed, fetch)
    assert [each.tobytes() for each in found] == [each.tobytes() for each in expected]


@pytest.mark.timing
def test_time_is_linear():
    def make(count):
        main = fluid.Program()
        with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
            x, c = fluid.data("x", [3, 8]), fluid.data("c", [3, 2])
            for _ in range(count // 2):
                c, _ = unit(x, c)
        return main

    assert_linear(WriteOutUnits(), make)
