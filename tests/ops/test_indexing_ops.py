"""Edge facts about picking elements: where the original was asked, its answers are given."""

import numpy as np
import pytest
from growth import assert_grows
from one_op import append, gradient, run

import minigraph as fluid
from minigraph import layers
from minigraph.errors import ExecutionError, OpError, ProgramError, WrongTypeError
from minigraph.kernels import find_kernel
from minigraph.kernels.indexing import added_rows
from minigraph.support.slice_rules import span, strided_span

X = np.arange(20, dtype="float32").reshape(4, 5)
SIX = np.arange(6, dtype="float32")
ROWS = np.arange(12, dtype="float32").reshape(4, 3)


def numbers(*values):
    return [np.array([value], "int32") for value in values]


# Slices


@pytest.mark.parametrize(
    ("attrs", "expected"),
    [
        ({"axes": [0], "starts": [1], "ends": [3]}, X[1:3]),
        ({"axes": [0], "starts": [-3], "ends": [-1]}, X[1:3]),
        ({"axes": [0], "starts": [-10], "ends": [10]}, X),
        ({"axes": [1, 0], "starts": [1, 0], "ends": [3, 2]}, X[:2, 1:3]),
        ({"axes": [0], "starts": [1], "ends": [2], "decrease_axis": [0]}, X[1]),
        ({"axes": [0], "starts": [-1], "ends": [10000], "decrease_axis": [0]}, X[3]),
        ({"axes": [0, 1], "starts": [1, 1], "ends": [2, 2], "decrease_axis": [1, 0]}, X[1, 1:2]),
        ({"axes": [-1], "starts": [1], "ends": [3]}, X[:, 1:3]),
    ],
)
def test_a_slice_and_its_gradient_are_those_of_the_original(attrs, expected):
    assert np.array_equal(run("slice", {"Input": X}, **attrs), expected)
    d_x = gradient("slice", {"Input": X}, "Input", **attrs)
    assert np.array_equal(d_x, np.isin(X, expected))


@pytest.mark.parametrize(
    ("attrs", "message"),
    [
        ({"axes": [0], "starts": [3], "ends": [1]}, "nothing between 3 and 1 in a dimension of 4"),
        ({"axes": [0], "starts": [10], "ends": [20]}, "nothing between 10 and 20"),
        ({"axes": [0], "starts": [2], "ends": [2]}, "nothing between 2 and 2"),
        ({"axes": [0], "starts": [-1], "ends": [0]}, "nothing between -1 and 0"),
        ({"axes": [2], "starts": [0], "ends": [1]}, r"each of axes must be in \[-2, 2\)"),
        ({"axes": [0, -2], "starts": [0, 0], "ends": [1, 1]}, "axes names a dimension twice"),
        ({"axes": [0, 1], "starts": [0], "ends": [1, 1]}, r"axes has 2 numbers but starts is \[0\]"),
        ({"axes": [0], "starts": [0], "ends": [2], "decrease_axis": [0]}, "dimension 0 has 2 elements, not one"),
        ({"axes": [0], "starts": [0], "ends": [1], "decrease_axis": [1]}, "decrease_axis 1 is not sliced"),
        ({"axes": [0], "starts": [0], "ends": [1], "infer_flags": [1, 1]}, "infer_flags must be one for each"),
    ],
)
def test_a_slice_that_makes_no_sense_is_refused(attrs, message):
    with pytest.raises(OpError, match=message):
        append("slice", {"Input": X}, **attrs)


def test_tensors_bound_a_slice_at_run_time():
    one, three = np.array([1], "int32"), np.array([3])
    for more in ({"StartsTensor": one, "EndsTensor": three}, {"StartsTensorList": [one], "EndsTensorList": [three]}):
        assert np.array_equal(run("slice", {"Input": X, **more}, axes=[0]), X[1:3])
        assert np.array_equal(run("slice", {"Input": X, **more}, axes=[0], starts=[0], ends=[1]), X[1:3])
        d_x = gradient("slice", {"Input": X, **more}, "Input", axes=[0])
        assert d_x.sum(1).tolist() == [0, 5, 5, 0]
    # The list comes before the vector.
    both = {"StartsTensor": three, "StartsTensorList": [one]}
    assert np.array_equal(run("slice", {"Input": X, **both}, axes=[0], ends=[3]), X[1:3])
    with pytest.raises(ExecutionError, match="nothing between 3 and 1"):
        run("slice", {"Input": X, "StartsTensorList": [three], "EndsTensorList": [one]}, axes=[0])


def test_what_a_tensor_bounds_is_not_known_before():
    out = append("slice", {"Input": X, "StartsTensor": np.array([1])}, axes=[0], ends=[3])[1]["Out"][0]
    assert out.shape == (-1, 5)
    more = {"StartsTensorList": numbers(1), "EndsTensorList": numbers(2)}
    assert append("slice", {"Input": X, **more}, axes=[0], decrease_axis=[0])[1]["Out"][0].shape == (5,)
    promised = {"starts": [1], "ends": [2], "infer_flags": [1]}
    assert append("slice", {"Input": X, **more}, axes=[0], **promised)[1]["Out"][0].shape == (1, 5)
    with pytest.raises(ExecutionError, match="bounds the slice with 2 where the attribute says 3"):
        run("slice", {"Input": X, **more}, axes=[0], **{**promised, "ends": [3]})
    for tensor, message in [(np.array([1.5]), "must hold integers"), (np.array([1, 2]), "must be a vector of 1")]:
        with pytest.raises(OpError, match=message):
            append("slice", {"Input": X, "StartsTensor": tensor}, axes=[0], ends=[3])
    with pytest.raises(OpError, match="axes has 1 numbers but EndsTensorList 2"):
        append("slice", {"Input": X, "EndsTensorList": numbers(1, 2)}, axes=[0], starts=[0])


@pytest.mark.parametrize(
    ("start", "end", "stride", "expected"),
    [
        (0, 6, 2, [0, 2, 4]),
        (4, 0, -2, [3, 1]),
        (5, -7, -1, [5, 4, 3, 2, 1, 0]),
        (5, -1, -1, [5, 4, 3, 2, 1, 0]),
        (-1, -4, -1, [5, 4, 3]),
        (-1, -10, -2, [4, 2, 0]),
        (10, 0, -1, [5, 4, 3, 2, 1]),
        (0, 10, 4, [0, 4]),
        (-10, 3, 2, [0, 2]),
        (5, -6, -1, [5, 4, 3, 2, 1]),
        (5, 0, -5, [1]),
        (7, 3, -2, [4]),
    ],
)
def test_a_strided_slice_is_that_of_the_original(start, end, stride, expected):
    attrs = {"axes": [0], "starts": [start], "ends": [end], "strides": [stride]}
    assert run("strided_slice", {"Input": SIX}, **attrs).tolist() == expected
    d_x = gradient("strided_slice", {"Input": SIX}, "Input", cotangent=np.array(expected, "float32"), **attrs)
    assert np.array_equal(d_x, np.where(np.isin(SIX, expected), SIX, 0))
    tensors = {
        "StartsTensor": np.array([start]), "EndsTensorList": numbers(end), "StridesTensor": np.array([stride], "int32")
    }  # fmt: skip
    assert run("strided_slice", {"Input": SIX, **tensors}, axes=[0]).tolist() == expected


@pytest.mark.parametrize("bounds", [(3, 1, 1), (1, 3, -1), (3, 3, 1), (0, 4, 0), (7, 9, 1), (-9, -8, 1), (-8, -10, -1)])
def test_a_strided_slice_of_nothing_is_refused(bounds):
    starts, ends, strides = ([number] for number in bounds)
    with pytest.raises(OpError, match=r"there is nothing|must not be 0"):
        append("strided_slice", {"Input": SIX}, axes=[0], starts=starts, ends=ends, strides=strides)


def test_slices_with_positive_strides_are_pythons():
    numbers = list(range(5))
    for start in range(-7, 8):
        for end in range(-7, 8):
            for stride in (1, 2, 3):
                expected = numbers[start:end:stride]
                if expected:
                    assert numbers[strided_span(5, start, end, stride)] == expected
                    assert stride > 1 or numbers[span(5, start, end)] == expected
                else:
                    with pytest.raises(OpError):
                        strided_span(5, start, end, stride)


def test_slices_are_views():
    y = find_kernel("slice", "cpu").function(
        np, X, None, None, None, None, axes=[0, 1], starts=[1, 2], ends=[2, 3], infer_flags=(), decrease_axis=[0, 1]
    )
    assert y.shape == (1,) and np.shares_memory(y, X)
    assert [find_kernel(type, "cpu").view_of for type in ("slice", "strided_slice", "reverse")] == [0, 0, 0]


def test_an_update_in_place_does_not_reach_a_slice_taken_before():
    with fluid.program_guard(fluid.Program(), fluid.Program()) as _, fluid.scope_guard(fluid.Scope()):
        w = layers.create_parameter([4], "float32", default_initializer=fluid.initializer.Constant(1.0))
        part = layers.slice(w, [0], [1], [3])
        loss = layers.reduce_sum(w)
        fluid.optimizer.SGD(0.5).minimize(loss)
        exe = fluid.Executor()
        exe.run(fluid.default_startup_program())
        found = [exe.run(fetch_list=[part])[0].tolist() for _ in range(2)]
    assert found == [[1, 1], [0.5, 0.5]]


def test_reversing_twice_changes_nothing():
    assert np.array_equal(run("reverse", {"X": X}, axis=[0, -1]), X[::-1, ::-1])
    assert np.array_equal(gradient("reverse", {"X": X}, "X", cotangent=X, axis=[1]), X[:, ::-1])


# Numbers of rows


def test_rows_are_gathered_and_their_gradients_brought_back_as_in_the_original():
    index = np.array([0, 2, 2])
    assert np.array_equal(run("gather", {"X": ROWS, "Index": index}), ROWS[index])
    assert np.array_equal(run("gather", {"X": ROWS, "Index": index.reshape(3, 1)}), ROWS[index])
    d_out = np.array([[1.0], [2.0], [4.0]], "float32").repeat(3, 1)
    for overwrite, expected in ((True, [1, 0, 4, 0]), (False, [1, 0, 6, 0])):
        inputs = {"X": ROWS, "Index": index}
        assert gradient("gather", inputs, "X", cotangent=d_out, overwrite=overwrite)[:, 0].tolist() == expected


def test_gathering_nothing_gives_nothing():
    none = np.zeros(0, "int64")
    assert run("gather", {"X": ROWS, "Index": none}).shape == (0, 3)
    assert not gradient("gather", {"X": ROWS, "Index": none}, "X").any()
    assert run("gather_nd", {"X": ROWS, "Index": np.zeros((0, 2), "int64")}).shape == (0,)
    assert run("gather_nd", {"X": ROWS, "Index": np.zeros((2, 0), "int64")}).shape == (2, 4, 3)


@pytest.mark.parametrize("type", ["gather", "gather_nd", "scatter"])
@pytest.mark.parametrize("number", [4, -1])
def test_a_row_that_is_not_there_is_an_error(type, number):
    slots = {
        "gather": {"Index": np.array([0, number])}, "gather_nd": {"Index": np.array([[0], [number]])},
        "scatter": {"Ids": np.array([0, number]), "Updates": ROWS[:2]},
    }  # fmt: skip
    with pytest.raises(ExecutionError, match=rf"must be in \[0, 4\), but element 1 is {number}"):
        run(type, {"X": ROWS, **slots[type]})


def test_parts_are_gathered_by_several_numbers():
    x = np.arange(24, dtype="float32").reshape(2, 3, 4)
    for index in ([[0, 1], [1, 2], [0, 1]], [[1]], [[0, 2, 3]], [[[0], [1]]]):
        array = np.array(index)
        expected = x[tuple(np.moveaxis(array, -1, 0))]
        assert np.array_equal(run("gather_nd", {"X": x, "Index": array}), expected)
        d_x = gradient("gather_nd", {"X": x, "Index": array}, "X", cotangent=expected)
        total = np.zeros_like(x)
        np.add.at(total, tuple(np.moveaxis(array, -1, 0)), expected)
        assert np.array_equal(d_x, total)


@pytest.mark.parametrize(
    ("overwrite", "ids", "expected"),
    [
        (True, [1, 2], [0, 10, 20, 9]), (True, [1, 1], [0, 20, 6, 9]), (False, [1, 1], [0, 30, 6, 9]),
        (False, [], [0, 3, 6, 9]),
    ],
)  # fmt: skip
def test_rows_are_scattered_as_in_the_original(overwrite, ids, expected):
    ids, updates = np.array(ids, "int64"), np.array([[10.0], [20.0]], "float32").repeat(3, 1)[: len(ids)]
    inputs = {"X": ROWS, "Ids": ids, "Updates": updates}
    assert run("scatter", inputs, overwrite=overwrite)[:, 0].tolist() == expected
    d_out = ROWS + 1
    assert np.array_equal(gradient("scatter", inputs, "X", cotangent=d_out, overwrite=overwrite), d_out)
    assert np.array_equal(gradient("scatter", inputs, "Updates", cotangent=d_out, overwrite=overwrite), d_out[ids])
    assert ROWS[1, 0] == 3


@pytest.mark.parametrize(
    ("type", "inputs", "message"),
    [
        ("gather", {"Index": np.array([[0, 1]])}, "Index must be a vector or have one column"),
        ("gather", {"Index": np.array([0.0])}, "Index must hold integers"),
        ("gather_nd", {"Index": np.array([1])}, "at least 2 dimensions"),
        ("gather_nd", {"Index": np.array([[0, 1, 2]])}, "Index names 3 dimensions but X has 2"),
        ("scatter", {"Ids": np.array([1]), "Updates": ROWS[:2]}, "Updates has 2 rows but Ids is"),
        ("scatter", {"Ids": np.array([[1]]), "Updates": ROWS[:1]}, "Ids must be a vector"),
        ("scatter", {"Ids": np.array([1]), "Updates": X[:1]}, "Updates must hold rows like those of X"),
        ("scatter", {"Ids": np.array([1]), "Updates": np.ones((1, 3))}, "one element type"),
    ],
)
def test_numbers_and_rows_that_do_not_fit_are_refused(type, inputs, message):
    with pytest.raises(OpError, match=message):
        append(type, {"X": ROWS, **inputs})


def test_float16_rows_are_added_in_float32():
    numbers = np.zeros(4000, "int64")
    rows = np.full((4000, 1), 1.0, "float16")
    assert added_rows(np, np.zeros((1, 1), "float16"), numbers, rows).item() == 4000  # not 2048


@pytest.mark.timing
def test_adding_rows_takes_linear_time():
    def work(count):
        numbers, rows = np.arange(count) % 7, np.ones((count, 4), "float32")
        return lambda: added_rows(np, np.zeros((7, 4), "float32"), numbers, rows)

    assert_grows(work, 10_000, factor=16, limit=64)


# Conditions and numbers as rows


@pytest.mark.parametrize("type", ["one_hot", "one_hot_v2"])
def test_a_number_becomes_a_row(type):
    x = np.array([[1], [7], [-1]])
    y = run(type, {"X": x}, depth=3, allow_out_of_range=True)
    assert y.shape == ((3, 3) if type == "one_hot" else (3, 1, 3))
    assert y.reshape(3, 3).tolist() == [[0, 1, 0], [0, 0, 0], [0, 0, 0]]
    with pytest.raises(ExecutionError, match=r"X must be in \[0, 3\), but element 1 is 7"):
        run(type, {"X": x}, depth=3)
    assert run(type, {"X": x[:1], "depth_tensor": np.array([2])}, depth=9).size == 2
    for attrs in ({}, {"depth": 0}):
        with pytest.raises(OpError, match="depth must be positive"):
            append(type, {"X": x}, **attrs)
    with pytest.raises(ExecutionError, match="depth must be positive"):
        run(type, {"X": x, "depth_tensor": np.array([0])})


def test_one_hot_wants_a_last_dimension_of_one():
    for x in (np.array([1, 2]), np.array([[1, 2]])):
        with pytest.raises(OpError, match="the last of at least 2 dimensions of X must be 1"):
            append("one_hot", {"X": x}, depth=3)


def test_a_choice_passes_the_gradient_to_what_was_chosen():
    inputs = {"Condition": np.array([True, False]), "X": np.array([1.0, np.nan]), "Y": np.array([np.inf, 2.0])}
    assert run("where", inputs).tolist() == [1, 2]
    assert gradient("where", inputs, "X", cotangent=np.array([np.inf, np.nan])).tolist() == [np.inf, 0]
    assert gradient("where", inputs, "Y", cotangent=np.array([np.nan, 3.0])).tolist() == [0, 3]


def test_a_choice_is_between_equal_shapes_by_a_condition():
    x = np.ones((1, 3))
    with pytest.raises(OpError, match="X and Y must have equal shapes"):
        append("where", {"Condition": x > 0, "X": x, "Y": x[:, :1]})
    with pytest.raises(OpError, match="X and Condition must have equal shapes"):
        append("where", {"Condition": x[0] > 0, "X": x, "Y": x})
    with pytest.raises(OpError, match="Condition must be bool"):
        append("where", {"Condition": x, "X": x, "Y": x})


def test_places_where_a_condition_holds_are_as_many_as_they_are():
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x = fluid.data("x", [None, 3])
        places = layers.where(x)
        rows = layers.gather_nd(x, places)
        assert places.shape == (-1, 2) and rows.shape == (-1,)
        for array in (np.array([[0, 1, 0], [2, 0, 3]], "float32"), np.zeros((2, 3), "float32")):
            found, values = fluid.Executor().run(feed={"x": array}, fetch_list=[places, rows])
            assert np.array_equal(found, np.argwhere(array)) and np.array_equal(values, array[array != 0])


# Layers and functions


def test_layers_write_what_the_original_does():
    program = fluid.Program()
    with fluid.program_guard(program, fluid.Program()), fluid.unique_name.guard():
        x, i = fluid.data("x", [4, 5]), fluid.data("i", [1], "int32")
        layers.slice(x, [0, 1], [0, i], [2, 3])
        layers.slice(x, [0], i, [2])
        layers.strided_slice(x, [0], [0], [4], [2])
        fluid.one_hot(i, i)
    *_, first, second, third, fourth = str(program).splitlines()
    assert first.endswith(
        "slice(Input=x, StartsTensorList=[slice_0.tmp_0, i])"
        " {axes=[0, 1], starts=[0, -1], ends=[2, 3], infer_flags=[1, -1]}"
    )
    assert second.endswith("slice(Input=x, StartsTensor=i) {axes=[0], ends=[2], infer_flags=[-1]}")
    assert third.endswith("strided_slice(Input=x) {axes=[0], starts=[0], ends=[4], strides=[2], infer_flags=[1]}")
    assert fourth.endswith("one_hot_v2(X=i, depth_tensor=i)")


def test_functions_of_tensors_agree_with_numpy():
    x, index = fluid.to_tensor(X), np.array([1, 1, 0])
    for axis in (0, 1, -1):
        expected = np.take(X, index, axis)
        assert np.array_equal(fluid.gather(x, fluid.to_tensor(index), axis).numpy(), expected)
        assert np.array_equal(x.index_select(fluid.to_tensor(index), axis).numpy(), expected)
    mask = fluid.to_tensor(X % 2 == 0)
    assert np.array_equal(fluid.where(mask, x, -x).numpy(), np.where(X % 2 == 0, X, -X))
    assert np.array_equal(mask.nonzero().numpy(), np.argwhere(X % 2 == 0))
    assert [np.array_equal(a.numpy()[:, 0], b) for a, b in zip(fluid.where(mask), np.nonzero(X % 2 == 0), strict=True)]
    with pytest.raises(ProgramError, match="both x and y"):
        fluid.where(mask, x)


def test_a_row_gathered_twice_gets_both_gradients_in_paddle_2():
    x = fluid.to_tensor(ROWS, stop_gradient=False)
    fluid.gather(x, fluid.to_tensor([1, 1])).sum().backward()
    assert x.grad.numpy()[:, 0].tolist() == [0, 2, 0, 0]


def test_arguments_of_the_wrong_kind_are_refused():
    x = fluid.to_tensor(ROWS)
    for call in (
        lambda: layers.slice(x, [0], 1, [2]),
        lambda: layers.gather(x, [0, 1]),
        lambda: layers.gather(x, x),
        lambda: fluid.one_hot(fluid.to_tensor([1]), 2.5),
    ):
        with pytest.raises(WrongTypeError):
            call()
