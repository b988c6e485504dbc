"""PickElements turns a gather_nd of one element of each row into index_sample, and keeps every bit."""

import numpy as np
import pytest
from both_executors import data, numbers
from pass_laws import assert_linear, keeps_the_bits, op_lines, pipeline

import minigraph as fluid
from minigraph import layers
from minigraph.errors import ExecutionError
from minigraph.executor.interpreter import Interpreter
from minigraph.passes import PickElements

test_training, test_overwriting = keeps_the_bits(PickElements())

ROWS, COLUMNS = 4, 3


def column(x):
    return layers.reshape(x, [ROWS, 1])


def rows(dtype):
    return layers.assign(np.arange(ROWS).astype(dtype))


INDICES = {
    "concat": lambda y: layers.concat([column(rows(y.dtype)), y], axis=1),
    "concat of a range": lambda y: layers.concat([column(layers.range(0, ROWS, 1, y.dtype)), y], axis=-1),
    "stack": lambda y: layers.stack([rows(y.dtype), layers.reshape(y, [ROWS])], axis=1),
    "stack of a range": lambda y: layers.stack([layers.range(0, ROWS, 1, y.dtype), layers.reshape(y, [-1])], axis=-1),
}
OTHERS = {
    "rows backwards": lambda y: layers.concat([column(layers.assign(np.arange(ROWS)[::-1].copy())), y], axis=1),
    "every other row": lambda y: layers.stack([rows("int64") * 2 - rows("int64"), layers.reshape(y, [ROWS])], axis=1),
    "columns first": lambda y: layers.concat([y, column(rows("int64"))], axis=1),
    "rows that are fed": lambda y: layers.concat([y, y], axis=1),
    "one row for all": lambda y: layers.concat([layers.fill_constant([ROWS, 1], "int64", 1), y], axis=1),
}


def types_left(fetch):
    program = fluid.default_main_program().clone()
    program.roots = tuple(each.name for each in fetch)
    pipeline(PickElements()).apply(program)
    return {op.type for op in program.global_block().ops}


def run(executor, fetch, **feed):
    return executor.run(fluid.default_main_program(), feed=feed, fetch_list=fetch, scope=fluid.Scope())


@pytest.mark.usefixtures("new_program")
@pytest.mark.parametrize("label_dtype", ["int64", "int32"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("index", INDICES.values(), ids=INDICES)
def test_elements_and_gradients_have_the_same_bits(index, dtype, label_dtype):
    x, y = data("x", ROWS, COLUMNS, dtype=dtype), fluid.data("y", [ROWS, 1], label_dtype)
    picked = layers.gather_nd(layers.scale(x, 2.0), index(y))
    fetch = [picked, *fluid.gradients([layers.reduce_sum(layers.square(picked))], [x])]
    assert "gather_nd" not in types_left(fetch) and "gather_nd_grad" not in types_left(fetch)
    executor = fluid.Executor(passes=pipeline(PickElements()))
    for special in (1, 0, -0.0, np.inf, np.nan):
        feed = {"x": (numbers(ROWS, COLUMNS) * special).astype(dtype), "y": np.array([[2], [0], [0], [1]], label_dtype)}
        found, expected = (run(each, fetch, **feed) for each in (executor, Interpreter()))
        assert [(each.shape, each.tobytes()) for each in found] == [(each.shape, each.tobytes()) for each in expected]


@pytest.mark.usefixtures("new_program")
@pytest.mark.parametrize("index", OTHERS.values(), ids=OTHERS)
def test_other_indices_stay(index):
    x, y = data("x", ROWS, ROWS), fluid.data("y", [ROWS, 1], "int64")
    picked = layers.gather_nd(x, index(y))
    assert "gather_nd" in types_left([picked])


@pytest.mark.usefixtures("new_program")
@pytest.mark.parametrize("shape", [(ROWS, COLUMNS, 2), (ROWS + 1, COLUMNS)])
def test_rows_of_more_and_fewer_rows_stay(shape):
    x, y = data("x", *shape), fluid.data("y", [ROWS, 1], "int64")
    assert "gather_nd" in types_left([layers.gather_nd(x, INDICES["concat"](y))])


@pytest.mark.usefixtures("new_program")
@pytest.mark.parametrize("wrong", [-1, COLUMNS])
def test_a_number_that_is_no_column_is_an_error_as_before(wrong):
    x, y = data("x", ROWS, COLUMNS), fluid.data("y", [ROWS, 1], "int64")
    picked = layers.gather_nd(x, INDICES["concat"](y))
    for executor in (fluid.Executor(passes=pipeline(PickElements())), Interpreter()):
        with pytest.raises(ExecutionError, match=f"{wrong}"):
            run(executor, [picked], x=numbers(ROWS, COLUMNS), y=np.array([[0], [wrong], [1], [0]]))


@pytest.mark.usefixtures("new_program")
@pytest.mark.parametrize("label_dtype", ["int64", "int32"])
@pytest.mark.parametrize("shape", [(ROWS,), (2, 3), (2, 1), (1,), (0,)])
def test_rows_of_ones_and_zeros_have_the_same_bits(shape, label_dtype):
    hot = fluid.one_hot(fluid.data("y", list(shape), label_dtype), COLUMNS)
    assert "one_hot_v2" not in types_left([hot])
    labels = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(label_dtype) % COLUMNS
    for executor in (fluid.Executor(passes=pipeline(PickElements())), Interpreter()):
        (found,) = run(executor, [hot], y=labels)
        assert found.tobytes() == np.eye(COLUMNS, dtype="float32")[labels].tobytes()
        if labels.size:
            with pytest.raises(ExecutionError, match=f"{COLUMNS}"):
                run(executor, [hot], y=labels + np.dtype(label_dtype).type(COLUMNS))


@pytest.mark.usefixtures("new_program")
def test_labels_that_may_be_no_class_stay():
    assert "one_hot_v2" in types_left([fluid.one_hot(fluid.data("y", [ROWS], "int64"), COLUMNS, True)])


def test_an_index_that_is_written_again_is_that_of_its_place():
    text = """
        block 0
          data x: float32[2, 3]
          data y: int64[2, 1]
          r: int64[2, 1] = assign_value() {shape=[2, 1], dtype=int64, int64_values=[0, 1]}
          i: int64[2, 2] = concat(X=[r, y]) {axis=1}
          {between}
          w: float32[2] = gather_nd(X=x, Index=i)
    """
    again = {"": False, "i = concat(X=[y, r]) {axis=1}": True, "y = assign(X=r)": True}
    for between, stays in again.items():
        lines = op_lines(PickElements(), text.replace("{between}", between), ["w"])
        assert any("gather_nd(" in line for line in lines) == stays, between


@pytest.mark.slow
def test_the_time_is_linear():
    def make(count):
        program = fluid.Program()
        with fluid.program_guard(program), fluid.unique_name.guard():
            x, y = fluid.data("x", [ROWS, COLUMNS]), fluid.data("y", [ROWS, 1], "int64")
            for _ in range(count // 5):
                x = x + column(layers.gather_nd(x, INDICES["concat"](y)))
        program.roots = (x.name,)
        return program

    assert_linear(PickElements(), make)


@pytest.mark.usefixtures("new_program")
def test_labels_of_sequences_stay():
    assert "one_hot_v2" in types_left([fluid.one_hot(fluid.data("y", [ROWS], "int64", lod_level=1), COLUMNS)])
