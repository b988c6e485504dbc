"""Tensors with lengths of sequences; the numbers are those that Paddle 1.8.5 gives for the same calls."""

import warnings

import numpy as np
import pytest

import minigraph as fluid
from minigraph.errors import ExecutionError, ProgramError, WrongTypeError

CPU = fluid.CPUPlace()


def tensor_of(array, lengths=()):
    tensor = fluid.LoDTensor()
    tensor.set(array, CPU)
    tensor.set_recursive_sequence_lengths(lengths)
    return tensor


def test_a_tensor_of_its_own_begins_empty_and_holds_what_it_is_given():
    tensor = fluid.LoDTensor()
    assert (tensor.shape(), tensor.lod(), np.array(tensor).size) == ([0], [], 0)
    given = np.arange(6, dtype="float32").reshape(3, 2)
    tensor.set(given, CPU)
    given[:] = 0
    assert np.array(tensor).tolist() == [[0, 1], [2, 3], [4, 5]]
    for dtype in ("float16", "float64", "int8", "uint8", "int16", "int32", "int64", "bool"):
        tensor.set(np.zeros((2, 1), dtype), CPU)
        assert np.array(tensor).dtype == dtype


def test_lengths_and_offsets_say_the_same():
    tensor = tensor_of(np.zeros((6, 2)), [[2, 1], [1, 2, 3]])
    assert tensor.lod() == [[0, 2, 3], [0, 1, 3, 6]]
    assert tensor.recursive_sequence_lengths() == [[2, 1], [1, 2, 3]]
    tensor.set_lod([[0, 2, 6]])
    assert tensor.recursive_sequence_lengths() == [[2, 4]]
    tensor.set_lod([])
    assert tensor.lod() == []
    assert tensor.has_valid_recursive_sequence_lengths()


def test_sequences_that_do_not_fit_are_refused_and_change_nothing():
    tensor = tensor_of(np.zeros((6, 2)), [[2, 1], [1, 2, 3]])
    for lengths in ([[2, 2], [1, 2, 3]], [[7]], [[-1, 7]], [[]]):
        with pytest.raises(ProgramError, match="do not make up 6 rows"):
            tensor.set_recursive_sequence_lengths(lengths)
    for offsets in ([[0, 2, 5]], [[1, 6]], [[0, 4, 2, 6]], [[0]]):
        with pytest.raises(ProgramError, match="do not make up 6 rows"):
            tensor.set_lod(offsets)
    for wrong in (3, [2, 1], [["a"]], [[1.5, 4.5]]):
        with pytest.raises(WrongTypeError, match="lists of whole numbers"):
            tensor.set_recursive_sequence_lengths(wrong)
    assert tensor.lod() == [[0, 2, 3], [0, 1, 3, 6]]


def test_another_array_keeps_the_sequences_which_may_not_fit_any_more():
    tensor = tensor_of(np.zeros((6, 2)), [[2, 4]])
    tensor.set(np.zeros((3, 1), "int64"), CPU)
    assert tensor.lod() == [[0, 2, 6]]
    assert not tensor.has_valid_recursive_sequence_lengths()


def test_tensors_are_made_from_rows_and_from_sequences():
    made = fluid.create_lod_tensor([[1, 2, 3], [4, 5]], [[3, 2]], CPU)
    assert (np.array(made).tolist(), np.array(made).dtype) == ([[1], [2], [3], [4], [5]], np.int64)
    assert made.recursive_sequence_lengths() == [[3, 2]]
    assert fluid.create_lod_tensor(np.ones([5, 30], "float32"), [[2, 3]], CPU).lod() == [[0, 2, 5]]
    assert fluid.create_lod_tensor(made, [[1, 4]], CPU).lod() == [[0, 1, 5]]
    with pytest.raises(ProgramError, match="do not make up 5 rows"):
        fluid.create_lod_tensor(np.ones([5, 30]), [[2, 2]], CPU)
    with pytest.raises(ProgramError, match=r"the sequences have lengths \[\[3, 2\]\], not \[\[3, 3\]\]"):
        fluid.create_lod_tensor([[1, 2, 3], [4, 5]], [[3, 3]], CPU)
    with pytest.raises(WrongTypeError, match="takes an array, a LoDTensor or a list of sequences, got int"):
        fluid.create_lod_tensor(3, [[1]], CPU)


def test_random_tensors_have_as_many_rows_as_the_innermost_sequences():
    made = fluid.create_random_int_lodtensor([[2, 3], [1, 1, 1, 1, 100]], base_shape=[7], place=CPU, low=0, high=3)
    rows = np.array(made)
    assert (rows.shape, rows.dtype, rows.min(), rows.max()) == ((104, 7), np.int64, 0, 3)
    assert made.lod() == [[0, 2, 5], [0, 1, 2, 3, 4, 104]]
    with pytest.raises(ProgramError, match="do not make up a tensor"):
        fluid.create_random_int_lodtensor([[2, 3], [1, 1]], [1], CPU, 0, 3)


def test_an_array_of_tensors_holds_tensors():
    array = fluid.LoDTensorArray()
    array.append(tensor_of(np.zeros(2)))
    array[0] = tensor_of(np.ones(3))
    assert [each.shape() for each in array] == [[3]]
    for put in (lambda: array.append(np.zeros(2)), lambda: array.__setitem__(0, 1), lambda: array.extend([None])):
        with pytest.raises(WrongTypeError, match="a LoDTensorArray holds LoDTensors"):
            put()


def test_a_tensor_is_fed_as_an_array_and_its_sequences_need_a_tensor_again():
    with fluid.program_guard(fluid.Program()):
        y = fluid.layers.scale(fluid.data("x", [None, 1], "int64"), 2.0)
        exe = fluid.Executor()
        assert exe.run(feed={"x": tensor_of(np.array([[1], [2]]))}, fetch_list=[y])[0].tolist() == [[2], [4]]
        feed = {"x": tensor_of(np.array([[1], [2]]), [[2]])}
        assert exe.run(feed=feed, fetch_list=[y], return_numpy=False)[0].lod() == [[0, 2]]
        with pytest.raises(ExecutionError, match="which an array cannot hold"):
            exe.run(feed=feed, fetch_list=[y])


def test_what_a_scope_holds_keeps_its_sequences():
    variable = fluid.Scope().var("v")
    variable.get_tensor().set(np.zeros((3, 1)), CPU)
    variable.get_tensor().set_lod([[0, 1, 3]])
    assert variable.get_tensor().lod() == [[0, 1, 3]]
    variable.value = np.zeros((3, 1))  # as a run does
    assert variable.get_tensor().lod() == []


def test_a_tensor_without_a_value_is_empty_with_a_warning():
    tensor = fluid.Scope().var("unset").get_tensor()
    assert tensor.shape() == [0]
    with pytest.warns(UserWarning, match="a variable without a value is an empty array here"):
        assert np.array(tensor).shape == (0,)


def test_one_warning_tells_of_all_variables_without_a_value_that_a_line_reads():
    scope = fluid.Scope()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("default")
        assert [np.array(scope.var(name).get_tensor()).size for name in ("fc_0.tmp_0", "fc_0.tmp_1")] == [0, 0]
    assert len(told) == 1


def test_a_part_of_a_tensor_keeps_its_dimensions():
    tensor = tensor_of(np.arange(24, dtype="float32").reshape(2, 3, 4))
    shapes = [tensor[index].shape() for index in (1, -1, (1, 2, 3), slice(0, 1), (slice(None), slice(1, 3)))]
    assert shapes == [[1, 3, 4], [1, 3, 4], [1, 1, 1], [1, 3, 4], [2, 2, 4]]
    assert np.array(tensor[1, 2, 3]).tolist() == [[[23.0]]]
    assert [part.shape() for part in tensor] == [[1, 3, 4], [1, 3, 4]]
    with pytest.raises(IndexError):
        tensor[2]


def test_a_tensor_is_made_without_an_array_as_in_fluid():
    tensor = fluid.Scope().var("t").get_tensor()
    tensor._set_dims([2, 3])
    tensor._alloc_float(CPU)
    tensor._set_float_element(4, 2.5)
    assert np.array(tensor).tolist() == [[0, 0, 0], [0, 2.5, 0]]
    assert tensor._get_float_element(4) == 2.5
    tensor._set_dims([3, 2])
    assert (tensor.shape(), tensor._get_float_element(4)) == ([3, 2], 2.5)
    for allocate, dtype in ((tensor._alloc_int, "int32"), (tensor._alloc_double, "float64")):
        allocate(CPU)
        assert np.array(tensor).dtype == dtype
    assert tensor._place().is_cpu_place()
    assert not tensor._place().is_gpu_place()


def test_a_tensor_is_copied_or_shared():
    tensor, handle = tensor_of(np.ones((3, 1), "float32"), [[1, 2]]), fluid.LoDTensor()
    copy = tensor._copy(CPU)
    handle._share_data_with(tensor)
    tensor.set(np.zeros((3, 1), "float32"), CPU)
    assert (np.array(copy).sum(), copy.lod(), np.array(handle).sum()) == (3, [[0, 1, 3]], 0)
    tensor._clear()
    assert not handle._is_initialized()
