"""FoldConstants computes constants when a program is lowered, to the bit."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from pass_laws import assert_linear, assert_same_bits, keeps_the_bits, op_lines, pipeline

import minigraph as fluid
from minigraph.passes import LEGALIZE, FoldConstants
from minigraph.passes.canonical.constant_folding import _constant
from minigraph.runtime.evaluate import evaluate
from minigraph.runtime.place import CPUPlace

test_training, test_overwriting = keeps_the_bits(FoldConstants())


def test_what_is_computed_from_constants_is_a_constant():
    text = """
        block 0
          data x: float32[2, 3]
          a: float32[2] = fill_constant() {shape=[2], value=3.0}
          b: float32[2] = assign_value() {dtype=5, fp32_values=[1.0, 2.0], shape=[2]}
          c: float32[2] = elementwise_mul(X=a, Y=b)
          d: float32[2] = square(X=a)
          e: int32[2] = shape(Input=x)
          f: float32[2, 3] = elementwise_add(X=x, Y=x)
    """
    assert op_lines(FoldConstants(), text, ["c", "d", "e", "f"]) == [
        "c = assign_value() {shape=[2], dtype=float32, fp32_values=[3.0, 6.0]}",
        "d = fill_constant() {shape=[2], value=9.0}",
        "e = assign_value() {shape=[2], dtype=int32, int32_values=[2, 3]}",
        "f = elementwise_add(X=x, Y=x)",
    ]


def test_a_constant_that_is_counted_up_in_place_stays_one():
    text = """
        block 0
          a: float32[1] = fill_constant() {shape=[1], value=3.0}
          a = increment(X=a)
          b: float32[1] = tanh(X=a)
          a = increment(X=a)
    """
    assert op_lines(FoldConstants(), text, ["a"]) == ["a = fill_constant() {shape=[1], value=5.0}"]


NOT_FOLDED = {
    "random numbers": "a = uniform_random() {shape=[2]}",
    "a seed does not help": "a = uniform_random() {shape=[2], seed=3}",
    "NaN": "a = fill_constant() {shape=[2], value=-1.0}\na = sqrt(X=a)",
    "state": "a = relu(X=w)",
    "what is fed": "a = relu(X=x)",
    "sequences": "a = fill_constant() {shape=[2]}\na = lod_reset(X=a) {target_lod=[0, 2]}",
    "an unknown shape": "a = fill_zeros_like(X=y)",
}


@pytest.mark.parametrize("what", NOT_FOLDED)
def test_what_is_no_constant_stays(what):
    lines = "\n".join(" " * 10 + line for line in NOT_FOLDED[what].split("\n"))
    text = f"""
        block 0
          persist w: float32[2]
          data x: float32[2]
          data y: float32[-1]
          var a: float32[{-1 if "shape" in what else 2}]
{lines}
          b: float32[{-1 if "shape" in what else 2}] = tanh(X=a)
    """
    assert op_lines(FoldConstants(), text, ["b"])[-1] == "b = tanh(X=a)"


def test_a_result_with_lengths_stays():
    text = """
        block 0
          data a: float32[2, 1]
          b: float32[2, 1] {lod_level=1} = lod_reset(X=a) {target_lod=[0, 2]}
          c: float32[2, 1] {lod_level=1} = fill_any_like(X=b) {value=1.0}
    """
    assert len(op_lines(FoldConstants(), text, ["c"])) == 2


def test_large_results_are_left_to_the_run():
    text = """
        block 0
          a: float32[100] = fill_constant() {shape=[100], value=1.0}
          b: float32[100] = tanh(X=a)
    """
    assert len(op_lines(FoldConstants(max_elements=99), text, ["b"])) == 2
    assert len(op_lines(FoldConstants(max_elements=100), text, ["b"])) == 1


def test_an_error_is_left_to_the_run():
    text = """
        block 0
          a: int64[1] = fill_constant() {shape=[1], dtype=3, value=1.0}
          b: int64[1] = fill_constant() {shape=[1], dtype=3, value=0.0}
          c: int64[1] = elementwise_div(X=a, Y=b)
    """
    assert op_lines(FoldConstants(), text, ["c"])[-1] == "c = elementwise_div(X=a, Y=b)"


def test_random_numbers_are_drawn_as_before():
    """What is only wanted for its shape draws nothing else than before, and so do those after it."""
    program = fluid.Program.parse(
        "block 0\n noise: float32[2] = uniform_random() {shape=[2]}\n zeros: float32[2] = fill_zeros_like(X=noise)"
        "\n drawn: float32[3] = uniform_random() {shape=[3]}"
    )
    found = []
    for passes in (LEGALIZE, pipeline(FoldConstants())):
        executor = fluid.Executor(passes=passes)
        executor._rng = np.random.default_rng(1)
        found.append(executor.run(program, fetch_list=["zeros", "drawn"]))
    assert_same_bits(dict(enumerate(found[0])), dict(enumerate(found[1])))


@pytest.mark.slow
@given(
    st.sampled_from(["float16", "float32", "float64", "int8", "uint8", "int32", "int64", "bool"]).flatmap(
        lambda dtype: arrays(dtype, array_shapes(max_dims=3, max_side=3))
    ),
    st.booleans(),
)
def test_every_array_is_written_down_to_the_bit_or_not_at_all(array, is_uniform):
    if is_uniform:
        array = np.full_like(array, array.flat[0])
    found = _constant(array)
    if found is None:
        assert array.dtype in (np.float16, np.int8, np.uint8) or np.isnan(array).any()
        return
    op_type, attrs = found
    block = fluid.Program().global_block()
    op = block.append_op(op_type, {}, {"Out": block.create_var(name="out")}, attrs)
    (result,) = evaluate(op, None, CPUPlace(), None).values()
    assert_same_bits({"out": result}, {"out": array})


@pytest.mark.timing
def test_time_is_linear():
    def make(count):
        program = fluid.Program()
        with fluid.program_guard(program):
            x = fluid.layers.fill_constant([2, 3], "float32", 0.5)
            for _ in range(count):
                x = fluid.layers.tanh(x)
        program.roots = (x.name,)
        return program

    assert_linear(FoldConstants(), make)
