"""``fluid.transpiler.details`` prints programs and edits blocks; attributes have the types of Paddle 1.8.5."""

import io

import pytest

import minigraph as fluid
from minigraph.errors import NotFoundError
from minigraph.transpiler.details import delete_ops, find_op_by_input_arg, find_op_by_output_arg, program_to_code
from minigraph.transpiler.details.program_utils import block_to_code, op_to_code, variable_to_code

pytestmark = pytest.mark.usefixtures("new_program")

OF_ALL = {"op_role": "INT", "op_role_var": "STRINGS", "op_namescope": "STRING"}
RECORDED = {
    "mul": {"x_num_col_dims": "INT", "y_num_col_dims": "INT"},
    "elementwise_add": {"axis": "INT"},
    "fill_constant": {"dtype": "INT", "force_cpu": "BOOL", "shape": "LONGS", "str_value": "STRING", "value": "FLOAT"},
    "less_than": {"axis": "INT", "force_cpu": "BOOL"},
    "while": {"is_test": "BOOL", "sub_block": "BLOCK"},
    "increment": {"step": "FLOAT"},
}
"""Types of attributes that Paddle 1.8.5 gives, by operator; it has some more that choose an implementation."""


def program_with_a_loop():
    hidden = fluid.layers.fc(fluid.data("x", [2, 3]), 2)
    count, limit = fluid.layers.fill_constant([1], "int64", 0), fluid.layers.fill_constant([1], "int64", 2)
    condition = fluid.layers.less_than(count, limit)
    loop = fluid.layers.While(condition)
    with loop.block():
        fluid.layers.increment(count)
        fluid.layers.less_than(count, limit, cond=condition)
    return fluid.default_main_program(), hidden


def test_attributes_have_the_types_of_the_original():
    program, _ = program_with_a_loop()
    for op in (op for block in program.blocks for op in block.ops):
        expected = {name: getattr(fluid.core.AttrType, kind) for name, kind in {**RECORDED[op.type], **OF_ALL}.items()}
        assert set(op.attr_names) == set(RECORDED[op.type])
        assert {name: op.attr_type(name) for name in expected} == expected
        assert {name: op.desc.attr_type(name) for name in expected} == expected


def test_the_types_have_the_names_and_numbers_of_the_original():
    names = "INT FLOAT STRING INTS FLOATS STRINGS BOOL BOOLS BLOCK LONG BLOCKS LONGS"
    assert [getattr(fluid.core.AttrType, name) for name in names.split()] == list(range(12))


def test_an_attribute_that_is_not_there_has_no_type():
    program, _ = program_with_a_loop()
    with pytest.raises(NotFoundError, match="mul has no attribute 'x_num_col'"):
        program.global_block().ops[0].attr_type("x_num_col")


def test_programs_are_printed_as_they_are_written(capsys):
    program, hidden = program_with_a_loop()
    file = io.StringIO()
    program_to_code(program, file)
    assert file.getvalue() == f"{program}\n"
    program_to_code(program, skip_op_callstack=True)
    assert capsys.readouterr().out == f"{program}\n"
    block_to_code(program.block(1), 1)
    assert capsys.readouterr().out == f"{program.block(1)}\n"
    first = program.global_block().ops[0]
    assert op_to_code(first) == str(first)
    assert variable_to_code(hidden) == str(hidden)


def test_operators_are_found_by_what_they_read_and_write_and_removed():
    program, hidden = program_with_a_loop()
    block = program.global_block()
    condition = block.ops[4].output_arg_names[0]
    assert find_op_by_input_arg(block, "x") == 0
    assert find_op_by_input_arg(block, hidden.name) == find_op_by_output_arg(block, "x") == -1
    assert (find_op_by_output_arg(block, condition), find_op_by_output_arg(block, condition, reverse=True)) == (4, 5)
    delete_ops(block, block.ops[4:])
    assert [op.type for op in block.ops] == ["mul", "elementwise_add", "fill_constant", "fill_constant"]
