"""TransposeIntoMatmul gives transposes to the products after them."""

import pytest
from pass_laws import assert_linear, keeps_the_bits, op_lines

import minigraph as fluid
from minigraph.passes import TransposeIntoMatmul

test_training, test_overwriting = keeps_the_bits(TransposeIntoMatmul())

TEXT = """
    block 0
      data x: float32[{a}, {b}]
      data y: float32[4, 3]
      Out=s: float32[{b}, {a}] = transpose2(X=x) {{axis=[1, 0]}}
      Out=t: float32[3, 4] = transpose2(X=y) {{axis=[1, 0]}}
      {line}
"""


@pytest.mark.parametrize(
    ("rows", "line", "expected"),
    [
        (3, "z: float32[2, 4] = matmul(X=s, Y=t)", "z = matmul(X=x, Y=y) {transpose_X=True, transpose_Y=True}"),
        (3, "z: float32[2, 4] = mul(X=s, Y=t)", "z = matmul(X=x, Y=y) {transpose_X=True, transpose_Y=True}"),
        (4, "z: float32[2, 3] = matmul(X=s, Y=t) {transpose_Y=True}", "z = matmul(X=x, Y=y) {transpose_X=True}"),
        (3, "z: float32[2, 4] = matmul(X=s, Y=y) {transpose_Y=True}", None),
    ],
)
def test_a_product_transposes_by_itself(rows, line, expected):
    found = op_lines(TransposeIntoMatmul(), TEXT.format(a=rows, b=2, line=line), ["z"])
    assert found == [expected or "z = matmul(X=x, Y=y) {transpose_X=True, transpose_Y=True}"]


@pytest.mark.parametrize("type", ["matmul", "mul"])
@pytest.mark.parametrize("count", [2, 3, 4])
def test_transposes_in_a_row_are_looked_through_at_once(count, type):
    lines = [f"Out=t_{i + 1}: float32[3, 3] = transpose2(X=t_{i}) {{axis=[1, 0]}}" for i in range(count)]
    lines = ["block 0", "  data t_0: float32[3, 3]", *(f"  {line}" for line in lines)]
    program = fluid.Program.parse("\n".join([*lines, f"  z: float32[3, 3] = {type}(X=t_{count}, Y=t_0)"]))
    assert TransposeIntoMatmul().apply(program)
    expected = f"{type}(X=t_0, Y=t_0)" if count % 2 == 0 else "matmul(X=t_0, Y=t_0) {transpose_X=True}"
    assert str(program).endswith(f"= {expected}")
    assert not TransposeIntoMatmul().apply(program)


@pytest.mark.parametrize("axis", ["[1, 0, 2]", "[2, 1, 0]", "[0, 1, 2]", "[1, 2, 0]"])
def test_other_transposes_stay(axis):
    text = f"""
        block 0
          data x: float32[3, 3, 3]
          data y: float32[3, 3]
          Out=t: float32[3, 3, 3] = transpose2(X=x) {{axis={axis}}}
          z: float32[3, 3, 3] = matmul(X=t, Y=y)
    """
    assert len(op_lines(TransposeIntoMatmul(), text, ["z"])) == 2


def test_a_batch_is_transposed_matrix_by_matrix():
    text = """
        block 0
          data x: float32[5, 2, 3]
          data y: float32[2, 4]
          Out=t: float32[5, 3, 2] = transpose2(X=x) {axis=[0, 2, 1]}
          z: float32[5, 3, 4] = matmul(X=t, Y=y)
    """
    assert op_lines(TransposeIntoMatmul(), text, ["z"]) == ["z = matmul(X=x, Y=y) {transpose_X=True}"]


def test_an_operand_that_was_written_again_stays():
    text = TEXT.format(a=3, b=2, line="x = tanh(X=x)\n      z: float32[2, 4] = matmul(X=s, Y=t)")
    assert op_lines(TransposeIntoMatmul(), text, ["z"])[-1] == "z = matmul(X=s, Y=y) {transpose_Y=True}"


def test_a_row_of_transposes_is_read_as_far_as_its_values_are_there():
    text = """
        block 0
          data x: float32[3, 3]
          Out=s: float32[3, 3] = transpose2(X=x) {axis=[1, 0]}
          Out=t: float32[3, 3] = transpose2(X=s) {axis=[1, 0]}
          LINE
          z: float32[3, 3] = matmul(X=t, Y=x)
    """
    expected = {"x": "z = matmul(X=s, Y=x) {transpose_X=True}", "s": "z = matmul(X=x, Y=x)"}
    for written, line in expected.items():
        given = text.replace("LINE", f"{written} = tanh(X={written})")
        assert op_lines(TransposeIntoMatmul(), given, ["z"])[-1] == line


def test_the_shape_that_a_transpose_leaves_is_no_transpose():
    text = """
        block 0
          data x: float32[0, 2]
          Out=t: float32[2, 0], XShape=s: float32[0, 0, 2] = transpose2(X=x) {axis=[1, 0]}
          z: float32[0, 0, 0] = matmul(X=s, Y=s) {transpose_Y=True}
    """
    assert op_lines(TransposeIntoMatmul(), text, ["z"])[-1] == "z = matmul(X=s, Y=s) {transpose_Y=True}"


@pytest.mark.timing
def test_time_is_linear():
    def make(count):
        program = fluid.Program()
        with fluid.program_guard(program):
            x = fluid.data("x", [3, 3])
            for _ in range(count // 2):
                x = fluid.layers.matmul(fluid.layers.transpose(x, [1, 0]), x)
        program.roots = (x.name,)
        return program

    assert_linear(TransposeIntoMatmul(), make)
