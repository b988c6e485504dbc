"""Subscripts of variables and tensors: what they append, and that they mean what Python means."""

import itertools

import numpy as np
import pytest
from asserting import assert_text
from hypothesis import given, settings
from hypothesis import strategies as st

import minigraph as fluid
from minigraph import dygraph
from minigraph.errors import OpError, SubscriptError, WrongTypeError

X = np.arange(60, dtype="float32").reshape(3, 4, 5)


def run(item, shape=X.shape):
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        y = fluid.data("x", shape)[item]
        return fluid.Executor().run(feed={"x": X}, fetch_list=[y])[0]


def appended(*items, shape=(4, 5, 6)):
    program = fluid.Program()
    with fluid.program_guard(program, fluid.Program()), fluid.unique_name.guard():
        x = fluid.data("x", shape)
        for item in items:
            x[item]
    return program


def test_subscripts_append_what_those_of_the_original_do():
    assert_text(
        appended(0, (0, slice(1, -1)), -1, (slice(None), slice(None, None, -1)), (0, slice(1, 5, 2)), (1, 2, 3)), """
        block 0
          data x: float32[4, 5, 6] {need_check_feed=True}
          x_slice_0: float32[5, 6] = slice(Input=x) {axes=[0], starts=[0], ends=[1], infer_flags=[1], decrease_axis=[0]}
          x_slice_1: float32[3, 6] = slice(Input=x) {axes=[0, 1], starts=[0, 1], ends=[1, -1], infer_flags=[1, 1], decrease_axis=[0]}
          x_slice_2: float32[5, 6] = slice(Input=x) {axes=[0], starts=[-1], ends=[10000000], infer_flags=[1], decrease_axis=[0]}
          x_slice_reverse_0: float32[4, 5, 6] = reverse(X=x) {axis=[1]}
          x_strided_slice_0: float32[2, 6] = strided_slice(Input=x) {axes=[0, 1], starts=[0, 1], ends=[1, 5], strides=[1, 2], infer_flags=[1, 1], decrease_axis=[0]}
          x_slice_3: float32[1] = slice(Input=x) {axes=[0, 1, 2], starts=[1, 2, 3], ends=[2, 3, 4], infer_flags=[1, 1, 1], decrease_axis=[0, 1, 2]}
    """)  # noqa: E501  # fmt: skip


def test_a_variable_as_a_subscript_is_known_at_run_time():
    program = fluid.Program()
    with fluid.program_guard(program, fluid.Program()), fluid.unique_name.guard():
        x, i = fluid.data("x", [4, 5]), fluid.data("i", [1], "int32")
        results = [x[i], x[i:3], x[i, 1:2]]
        assert [y.shape for y in results] == [(5,), (-1, 5), (1,)]
    assert_text(program, """
        block 0
          data x: float32[4, 5] {need_check_feed=True}
          data i: int32[1] {need_check_feed=True}
          _generated_var_0: int32[1] {stop_gradient=True} = fill_constant() {dtype=int32, shape=[1], value=1.0, force_cpu=True}
          _generated_var_1: int32[1] {stop_gradient=True} = elementwise_add(X=i, Y=_generated_var_0)
          x_slice_0: float32[5] = slice(Input=x, StartsTensorList=[i], EndsTensorList=[_generated_var_1]) {axes=[0], starts=[-1], ends=[-1], infer_flags=[-1], decrease_axis=[0]}
          x_slice_1: float32[-1, 5] = slice(Input=x, StartsTensorList=[i]) {axes=[0], starts=[-1], ends=[3], infer_flags=[-1]}
          _generated_var_2: int32[1] {stop_gradient=True} = fill_constant() {dtype=int32, shape=[1], value=1.0, force_cpu=True}
          _generated_var_3: int32[1] {stop_gradient=True} = elementwise_add(X=i, Y=_generated_var_2)
          _generated_var_4: int32[1] {stop_gradient=True} = fill_constant() {dtype=int32, shape=[1], value=1.0, force_cpu=True}
          _generated_var_5: int32[1] {stop_gradient=True} = fill_constant() {dtype=int32, shape=[1], value=2.0, force_cpu=True}
          x_slice_2: float32[1] = slice(Input=x, StartsTensorList=[i, _generated_var_4], EndsTensorList=[_generated_var_3, _generated_var_5]) {axes=[0, 1], starts=[-1, 1], ends=[-1, 2], infer_flags=[-1, 1], decrease_axis=[0]}
    """)  # noqa: E501  # fmt: skip
    array = np.arange(20, dtype="float32").reshape(4, 5)
    for number in range(3):
        feed = {"x": array, "i": np.array([number], "int32")}
        found = fluid.Executor().run(program, feed=feed, fetch_list=results)
        for value, expected in zip(found, [array[number], array[number:3], array[number, 1:2]], strict=True):
            assert np.array_equal(value, expected)


def test_nothing_to_do_appends_nothing():
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x = fluid.data("x", [2, 3])
        assert all(x[item] is x for item in (..., slice(None), (slice(None), ...), ()))


_BOUND = st.none() | st.integers(-7, 7)
_SLICES = st.builds(slice, _BOUND, _BOUND, st.sampled_from([None, 1, 2, 3, -1, -2, -3]))


@st.composite
def subscripts(draw):
    count = draw(st.integers(0, 3))
    items = [draw(_SLICES | st.integers(-dim, dim - 1)) for dim in X.shape[:count]]
    for _ in range(draw(st.integers(0, 2))):
        items.insert(draw(st.integers(0, len(items))), None)
    if draw(st.booleans()):
        items.insert(draw(st.integers(0, len(items))), ...)
        return tuple(items) if X[tuple(items)] is not None else ()
    return tuple(items)


@pytest.mark.laws
@settings(max_examples=300, deadline=None)
@given(subscripts(), st.booleans())
def test_a_subscript_means_what_numpy_means(item, is_known):
    try:
        expected = X[item]
    except IndexError:  # an Ellipsis moved a number to a shorter dimension
        with pytest.raises(SubscriptError):
            run(item)
        return
    shape = X.shape if is_known else (None,) * 3
    if expected.size == 0:
        with pytest.raises((OpError, SubscriptError, fluid.errors.ExecutionError), match="nothing"):
            run(item, shape)
        return
    found = run(item, shape)
    # As in fluid, what has no dimension left has shape [1].
    assert np.array_equal(found, expected.reshape(expected.shape or (1,)))
    assert found.shape == (expected.shape or (1,))


@pytest.mark.parametrize("item", [0, (slice(None), 1, slice(None, None, -2)), (..., None, 2), (slice(2, 0, -1), 0)])
def test_a_tensor_is_indexed_at_once_and_passes_gradients_back(item):
    x = fluid.to_tensor(X, stop_gradient=False)
    y = x[item]
    assert np.array_equal(y.numpy(), X[item])
    (y * y).sum().backward()
    expected = np.zeros_like(X)
    expected[item] = 2 * X[item]
    assert np.array_equal(x.grad.numpy(), expected)


def test_a_tensor_can_be_a_subscript_of_a_tensor():
    x, i = fluid.to_tensor(X), fluid.to_tensor([-1])
    assert np.array_equal(x[i].numpy(), X[-1])
    assert np.array_equal(x[i:].numpy(), X[-1:])
    with dygraph.guard():
        assert np.array_equal(dygraph.to_variable(X)[np.int64(1)].numpy(), X[1])


def test_iterating_ends():
    assert [row.numpy().tolist() for row in fluid.to_tensor([[1, 2], [3, 4]])] == [[1, 2], [3, 4]]
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        first, second = fluid.data("x", [2, 3])
        assert first.shape == second.shape == (3,)
        with pytest.raises(SubscriptError, match="no known number of elements to iterate over"):
            iter(fluid.data("y", [None, 3]))


@pytest.mark.parametrize(
    ("item", "error", "message"),
    [
        (3, IndexError, "dimension 0 has 3 elements, none is number 3"),
        ((0, -5), IndexError, "dimension 1 has 4 elements, none is number -5"),
        ((0, 0, 0, 0), IndexError, "3 dimensions but 4 subscripts"),
        ((..., 0, ...), SubscriptError, "only one subscript may be an Ellipsis"),
        (slice(2, 1), OpError, "nothing between 2 and 1"),
        (slice(1, 2, -1), SubscriptError, "there is nothing in"),
        (slice(0, 2, 0), WrongTypeError, "a step must be an integer other than 0"),
        (True, WrongTypeError, "got True"),
        ([0, 1], WrongTypeError, "to select several elements by index"),
        (1.0, WrongTypeError, "got 1.0"),
        ("a", WrongTypeError, "got 'a'"),
    ],
)
def test_a_subscript_that_makes_no_sense_is_refused(item, error, message):
    with pytest.raises(error, match=message):
        run(item)


def test_a_variable_of_several_numbers_is_no_subscript():
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x = fluid.data("x", [4])
        for index in (fluid.data("i", [2], "int64"), fluid.data("f", [1])):
            with pytest.raises(WrongTypeError, match="to select several elements by index"):
                x[index]


def test_names_of_tensors_do_not_grow():
    x = fluid.to_tensor(X)
    for _ in itertools.repeat(None, 3):
        x = x[...] if x.shape == (1,) else x[0]
    assert len(x.name) < 20
