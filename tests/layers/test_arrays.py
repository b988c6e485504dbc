"""Arrays of tensors: writing, reading, lengths, joining, gradients, errors."""

import numpy as np
import pytest
from both_executors import check_gradient, data, numbers, run

import minigraph as fluid
from minigraph import layers
from minigraph.backward import append_backward
from minigraph.errors import ExecutionError, OpError, WrongTypeError
from minigraph.executor.interpreter import Interpreter
from minigraph.ir.verifier import verify

pytestmark = pytest.mark.usefixtures("new_program")


def index(n):
    return layers.fill_constant([1], "int64", n)


def test_what_was_written_is_read_in_any_order_and_shape():
    array = layers.array_write(data("a", 2), index(2))
    layers.array_write(data("b", 3), index(0), array=array)
    feed = {"a": numbers(2), "b": numbers(3)}
    a, b, length = run(
        layers.array_read(array, index(2)), layers.array_read(array, index(0)), layers.array_length(array), feed=feed
    )
    assert a.tobytes() == feed["a"].tobytes()
    assert b.tobytes() == feed["b"].tobytes()
    assert length.tolist() == [3]
    assert array.shape == (-1,)


def test_an_element_written_again_is_the_new_one_and_the_one_read_before_stays():
    x = data("x", 2)
    array = layers.array_write(x, index(0))
    before = layers.array_read(array, index(0))
    layers.array_write(x * 2.0, index(0), array)
    after = layers.array_read(array, index(0))
    given = numbers(2)
    old, new = run(before, after, feed={"x": given})
    assert np.array_equal(old, given)
    assert np.array_equal(new, given * 2)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int64", "bool"])
def test_arrays_hold_every_element_type_and_empty_tensors(dtype):
    array = layers.array_write(data("x", 0, 3, dtype=dtype), index(1))
    assert array.dtype == fluid.core.VarDesc.VarType.FP16 or str(array.dtype) == dtype
    (found,) = run(layers.array_read(array, index(1)), feed={"x": np.zeros((0, 3), dtype)})
    assert (found.shape, found.dtype) == ((0, 3), np.dtype(dtype))


def test_an_element_that_is_read_twice_and_one_that_is_not_read():
    x, y = data("x", 2, 3), data("y", 2, 3)
    array = layers.array_write(x, index(0))
    layers.array_write(y, index(1), array)
    first, again = layers.array_read(array, index(0)), layers.array_read(array, index(0))
    loss = layers.reduce_sum(layers.square(first) * layers.tanh(again) + x)
    check_gradient(loss, {"x": numbers(2, 3), "y": numbers(2, 3, seed=1)})


def test_a_value_that_was_overwritten_has_only_the_gradient_of_what_read_it():
    x = data("x", 2)
    array = layers.array_write(x, index(0))
    before = layers.array_read(array, index(0))
    layers.array_write(layers.tanh(x), index(0), array)
    after = layers.array_read(array, index(0))
    check_gradient(layers.reduce_sum(layers.square(before) + after), {"x": numbers(2)})


@pytest.mark.parametrize("use_stack", [False, True])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_elements_are_joined_and_the_gradient_is_taken_apart(axis, use_stack):
    x, y = data("x", 2, 3), data("y", 2, 3)
    array = layers.array_write(x, index(0))
    layers.array_write(y, index(1), array)
    joined, lengths = layers.tensor_array_to_tensor(array, axis, use_stack=use_stack)
    feed = {"x": numbers(2, 3), "y": numbers(2, 3, seed=1)}
    weights = np.linspace(1, 2, 12).reshape(np.stack(list(feed.values()), axis).shape if use_stack else -1)
    join = np.stack if use_stack else np.concatenate
    expected = join([feed["x"], feed["y"]], axis)
    found, counted = run(joined, lengths, feed=feed)
    assert np.array_equal(found, expected)
    lengths_beyond = {0: 2, 1: 3, -1: 1} if use_stack else {0: 2, 1: 3, -1: 3}
    assert counted.tolist() == [lengths_beyond[axis]] * 2
    factor = layers.assign(weights.reshape(expected.shape).astype("float32"))
    loss = layers.reduce_sum(layers.square(joined) * layers.cast(factor, "float64"))
    check_gradient(loss, feed)


def test_reading_what_was_never_written_is_an_error_that_tells_what_was():
    array = layers.array_write(data("x", 2), index(3))
    read = layers.array_read(array, index(1))
    for executor in (fluid.Executor(), Interpreter()):
        with pytest.raises(ExecutionError, match=r"nothing was written to the array at 1") as error:
            executor.run(feed={"x": numbers(2)}, fetch_list=[read])
        assert "array_read(array, index(1))" in str(error.value)


def test_reading_before_anything_was_written_is_an_error_when_built():
    array = layers.create_array("float32")
    with pytest.raises(OpError, match=r"nothing has written to the array array_0.out"):
        layers.array_read(array, index(0))


def test_a_shape_may_be_held_by_a_tensor_of_any_rank_and_types_have_pythons_names():
    shape = layers.fill_constant([1, 2], "int32", 2)
    x = layers.data("x", [2, 6], append_batch_size=False, dtype="float32")
    twos, turned = layers.fill_constant(shape, "int", 2), layers.reshape(x, shape=[3, 4], inplace=True)
    signs = layers.sign(np.array([3.0, 0.0, -2.0], "float32"))
    found = run(twos, turned, signs, feed={"x": np.arange(12, dtype="float32").reshape(2, 6)})
    assert found[0].dtype == np.int64 and found[0].tolist() == [[2, 2]] * 2
    assert x.shape == (2, 6) and found[1].shape == (3, 4) and found[2].tolist() == [1, 0, -1]


def test_what_is_written_first_decides_the_element_type():
    array = layers.create_array("float32")
    layers.array_write(layers.fill_constant([3, 2], "int64", 5), layers.zeros([1], "int64"), array)
    (found,) = run(layers.array_read(array, layers.zeros([1], "int64")))
    assert found.dtype == np.int64 and found.tolist() == [[5, 5]] * 3


def test_an_array_keeps_one_element_type_and_number_of_dimensions():
    array = layers.array_write(data("x", 2), index(0))
    with pytest.raises(OpError, match=r"the result is float32\[2\] but the array array_write_0.out holds float64\[2\]"):
        layers.array_write(data("y", 2, dtype="float32"), index(1), array)
    with pytest.raises(OpError, match=r"the result is float64\[2, 2\] but the array"):
        layers.array_write(data("z", 2, 2), index(1), array)


def test_what_is_no_array_or_no_index_is_refused():
    x = data("x", 2)
    for wrong in (x, [x], None):
        with pytest.raises(WrongTypeError, match="is no array"):
            layers.array_read(wrong, index(0))
    with pytest.raises(WrongTypeError, match="is no array"):
        layers.array_length(x)
    with pytest.raises(WrongTypeError, match="i must be one integer"):
        layers.array_write(x, x)
    negative = layers.array_read(layers.array_write(x, index(0)), index(-1))
    with pytest.raises(ExecutionError, match="an index of an array must be at least 0, got -1"):
        run(negative, feed={"x": numbers(2)})


def test_in_the_imperative_mode_an_array_is_a_list():
    with fluid.dygraph.guard():
        x, zero = fluid.dygraph.to_variable(numbers(2)), fluid.dygraph.to_variable(np.array([0]))
        array = layers.array_write(x, zero, layers.create_array("float64"))
        assert layers.array_length(array) == 1
        assert layers.array_read(array, zero) is x
        joined, lengths = layers.tensor_array_to_tensor([x, x], axis=0)
        assert joined.shape == (4,)
        assert lengths.numpy().tolist() == [2, 2]
        with pytest.raises(WrongTypeError, match="an array is a list"):
            layers.array_length(x)


def test_a_program_with_arrays_is_the_same_after_text_and_copy():
    array = layers.array_write(data("x", 2), index(0))
    append_backward(layers.reduce_sum(layers.array_read(array, index(0))))
    main = fluid.default_main_program()
    assert "array_write_0.out: float64[2] {kind='lod_tensor_array'} = write_to_array" in str(main)
    assert fluid.Program.parse(str(main)).equals(main)
    assert main.clone().equals(main)
    verify(main)


def test_a_fetched_array_is_a_list_with_none_where_nothing_was_written():
    array = layers.array_write(data("x", 2), index(1))
    for executor in (fluid.Executor(), Interpreter()):
        found, again = executor.run(feed={"x": np.ones(2)}, fetch_list=[array, array])
        assert found[0] is None
        assert found[1].tolist() == [1.0, 1.0]
        assert len(again) == 2


def test_an_array_may_be_written_in_a_loop_only():
    with fluid.program_guard(fluid.Program()):
        array, i, n = layers.create_array("float32"), layers.zeros([1], "int64"), layers.fill_constant([1], "int64", 3)
        condition = layers.less_than(i, n)
        with layers.While(condition).block():
            layers.array_write(layers.cast(i, "float32"), i, array)
            layers.increment(i, 1)
            layers.less_than(i, n, cond=condition)
        joined, _ = layers.tensor_array_to_tensor(array, axis=0)
        assert fluid.Executor().run(fetch_list=[joined])[0].tolist() == [0, 1, 2]
