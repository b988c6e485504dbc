"""TransposeIntoMatmul gives transposes to the products after them."""

from random import Random

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


def _products_of_a_row(count):
    program = fluid.Program()
    with fluid.program_guard(program):
        x = fluid.data("x", [3, 3])
        for _ in range(count // 2):
            x = fluid.layers.matmul(fluid.layers.transpose(x, [1, 0]), x)
    program.roots = (x.name,)
    return program


def _products_of_one_value(count):
    """A row of transposes, and products that all read the last one."""
    half = count // 2
    lines = [f"Out=t_{i + 1}: float32[3, 3] = transpose2(X=t_{i}) {{axis=[1, 0]}}" for i in range(half)]
    lines += [f"z_{i}: float32[3, 3] = matmul(X=t_{half}, Y=t_{half})" for i in range(half)]
    return fluid.Program.parse("\n  ".join(["block 0", "data t_0: float32[3, 3]", *lines]))


def _products_of_overwritten_values(count):
    """A row of transposes, whose first names are written again one after the other; a product of the last ones each."""
    third = count // 3
    lines = [f"Out=t_{i + 1}: float32[3, 3] = transpose2(X=t_{i}) {{axis=[1, 0]}}" for i in range(third)]
    for i in range(third):
        lines += [f"t_{i} = tanh(X=x)", f"z_{i}: float32[3, 3] = matmul(X=t_{max(third - i, i + 1)}, Y=x)"]
    return fluid.Program.parse("\n  ".join(["block 0", "data t_0: float32[3, 3]", "data x: float32[3, 3]", *lines]))


@pytest.mark.timing
@pytest.mark.parametrize("make", [_products_of_a_row, _products_of_one_value, _products_of_overwritten_values])
def test_time_is_linear(make):
    assert_linear(TransposeIntoMatmul(), make)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_products_read_the_first_source_that_is_there(seed):
    """Whatever is transposed and written again: the operand is looked for one transpose after the other."""
    random = Random(seed)
    for _ in range(50):
        names = [f"v{i}" for i in range(random.randint(2, 9))]
        lines, sources = [f"data {name}: float32[3, 3]" for name in names], {name: [(name, 0)] for name in names}
        versions, expected = dict.fromkeys(names, 0), []
        for number in range(random.randint(3, 40)):
            kind, source, target = (
                random.choice(("transpose", "transpose", "other", "product")),
                *random.choices(names, k=2),
            )
            if kind == "product":
                there = next(
                    (i, name) for i, (name, version) in enumerate(sources[source]) if versions[name] == version
                )
                is_odd = (len(sources[source]) - 1 - there[0]) % 2
                flag = " {transpose_X=True}" if is_odd else ""
                lines.append(f"z{number}: float32[3, 3] = matmul(X={source}, Y=y)")
                expected.append(f"z{number} = matmul(X={there[1]}, Y=y){flag}")
                continue
            versions[target] += 1
            written = (target, versions[target])
            if kind == "transpose":
                lines.append(f"Out={target} = transpose2(X={source}) {{axis=[1, 0]}}")
                sources[target] = [*sources[source], written]
            else:
                lines.append(f"{target} = tanh(X={source})")
                sources[target] = [written]
        text = "\n  ".join(["block 0", "data y: float32[3, 3]", *lines])
        found = op_lines(TransposeIntoMatmul(), text, [line.split(" ")[0] for line in expected])
        assert [line for line in found if "matmul" in line] == expected


@pytest.mark.usefixtures("new_program")
def test_a_product_does_not_get_the_lengths_that_a_transpose_drops():
    x = fluid.data("x", [None, 2], lod_level=1)
    turned = fluid.layers.transpose(x, [1, 0])
    out = fluid.layers.matmul(turned, turned, transpose_y=True)
    assert out.lod_level == 0
    assert not TransposeIntoMatmul().apply(fluid.default_main_program())
