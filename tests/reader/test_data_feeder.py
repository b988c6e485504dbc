"""`DataFeeder` makes an array for each variable of rows, and changes no value."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minigraph import reader
from minigraph.data_feeder import DataFeeder
from minigraph.errors import DataError
from minigraph.ir import Program
from minigraph.ir.default_programs import default_main_program, program_guard
from minigraph.runtime.scope_variable import LoDTensor

TYPES = {
    "x": ([-1, 2, 2], "float32"),
    "image": ([-1, 784], "float32"),
    "label": ([-1, 1], "int64"),
    "flat": ([-1], "float32"),
    "fixed": ([3, 2], "float32"),
    "sequence": ([-1, -1, 2], "float32"),
    "byte": ([-1, 1], "uint8"),
    "half": ([-1, 1], "float16"),
    "double": ([-1, 1], "float64"),
    "flag": ([-1, 1], "bool"),
    "word": ([-1, 1], "int32"),
}


class ArrayFeeder(DataFeeder):
    """A feeder whose tensors are looked at as arrays."""

    def feed(self, iterable):
        return {name: np.asarray(tensor) for name, tensor in super().feed(iterable).items()}


def feeder(*names):
    program = Program()
    for name in names:
        shape, dtype = TYPES[name]
        program.global_block().create_var(name=name, shape=shape, dtype=dtype)
    return ArrayFeeder(list(names), place=None, program=program)


def feed(name, *values):
    """The array that one variable gets from one value per row."""
    return feeder(name).feed([(value,) for value in values])[name]


def assert_array(array, expected, dtype):
    assert isinstance(array, np.ndarray)
    assert array.dtype == dtype
    np.testing.assert_array_equal(array, np.array(expected, dtype), strict=True)


# Shapes


def test_rows_become_one_array_per_variable():
    fed = feeder("x", "label").feed([([1, 2, 3, 4], 5), ([5, 6, 7, 8], 6)])
    assert list(fed) == ["x", "label"]
    assert_array(fed["x"], [[[1, 2], [3, 4]], [[5, 6], [7, 8]]], np.float32)
    assert_array(fed["label"], [[5], [6]], np.int64)


def test_a_feed_is_made_of_tensors_as_in_fluid():
    program = Program()
    program.global_block().create_var(name="x", shape=[-1, 2], dtype="float32")
    fed = DataFeeder(["x"], None, program).feed([([1, 2],), ([3, 4],)])["x"]
    assert isinstance(fed, LoDTensor) and fed.shape() == [2, 2] and fed.lod() == []


@pytest.mark.parametrize("value", [7, [7], np.int64(7), np.array([7]), np.array(7)])
def test_a_scalar_and_a_vector_of_one_both_fit_a_variable_of_one(value):
    assert_array(feed("label", value, value), [[7], [7]], np.int64)


@pytest.mark.parametrize("value", [3, [3]])
def test_a_variable_of_rank_one_gets_one_number_per_row(value):
    assert_array(feed("flat", value, value), [3, 3], np.float32)


def test_rows_of_different_rank_in_one_batch_are_each_reshaped():
    assert_array(feed("x", [1, 2, 3, 4], [[5, 6], [7, 8]]), [[[1, 2], [3, 4]], [[5, 6], [7, 8]]], np.float32)
    assert_array(feed("label", 1, [2]), [[1], [2]], np.int64)


def test_an_unknown_dimension_takes_the_size_that_the_rows_have():
    assert feed("sequence", np.zeros((3, 2)), np.zeros((3, 2))).shape == (2, 3, 2)


def test_a_variable_without_an_open_batch_dimension_takes_the_batch_as_a_whole():
    assert_array(feed("fixed", [1, 2], [3, 4], [5, 6]), [[1, 2], [3, 4], [5, 6]], np.float32)
    assert_array(feed("fixed", [[1, 2], [3, 4], [5, 6]]), [[1, 2], [3, 4], [5, 6]], np.float32)


def test_no_rows_give_batches_of_size_0():
    fed = feeder("x", "label", "flat", "sequence").feed([])
    assert {name: array.shape for name, array in fed.items()} == {
        "x": (0, 2, 2), "label": (0, 1), "flat": (0,), "sequence": (0, 0, 2),
    }  # fmt: skip
    assert fed["label"].dtype == np.int64


def test_no_rows_do_not_fit_a_variable_whose_size_is_fixed():
    with pytest.raises(DataError, match="fixed: got no rows"):
        feeder("fixed").feed([])


def test_rows_may_come_from_a_generator():
    rows = ((np.full(4, i), i) for i in range(3))
    assert feeder("x", "label").feed(rows)["label"].tolist() == [[0], [1], [2]]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (([1, 2, 3],), r"x: row 0 has 3 values, in shape \[3\]; expected \[2, 2\]"),
        (([1, 2, 3, 4], [1, 2, 3]), "x: row 1 has 3 values"),
        # Twelve values in all would make three rows of four: the batch must not change its size.
        (([1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 5, 6]), "x: row 0 has 6 values"),
        (([[1], [2], [3], [4]],), r"x: row 0 has 4 values, in shape \[4, 1\]; expected \[2, 2\]"),
        (([1, 2, 3, 4], 5), r"x: row 1 has 1 values, in shape \[\]"),
        (([1, 2, 3, 4], [[1, 2], [3]]), "x: row 1 is made of lists of different lengths"),
    ],
)
def test_a_row_of_the_wrong_size_is_named(values, message):
    with pytest.raises(DataError, match=message) as caught:
        feed("x", *values)
    if "different lengths" not in message:
        assert "x: float32[-1, 2, 2]" in str(caught.value)


def test_rows_of_different_length_are_named_and_padding_is_suggested():
    with pytest.raises(DataError, match=r"row 1 has shape \[4, 2\], but row 0 has \[3, 2\]") as caught:
        feed("sequence", np.zeros((3, 2)), np.zeros((4, 2)))
    assert "pad the shorter ones" in str(caught.value)


@pytest.mark.parametrize("values", [([1, 2], [3, 4]), ([1, 2, 3], [4, 5, 6])])
def test_a_batch_that_does_not_fit_a_fixed_shape_is_an_error(values):
    with pytest.raises(DataError, match=rf"fixed: the batch of 2 rows has .* in shape \[2, {len(values[0])}\]"):
        feed("fixed", *values)


# Fields


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (([1, 2, 3, 4],), "row 1 has 1 fields; expected 2: x, label"),
        (([1, 2, 3, 4], 1, 1), "row 1 has 3 fields; expected 2: x, label"),
        (7, "row 1 has no fields: it is of type int; expected 2: x, label"),
    ],
)
def test_a_row_with_the_wrong_number_of_fields_is_named(row, message):
    with pytest.raises(DataError, match=message):
        feeder("x", "label").feed([([1, 2, 3, 4], 1), row])


def test_rows_not_wrapped_in_tuples_are_explained():
    with pytest.raises(DataError, match=r"also when there is only one variable: \(image,\)"):
        feeder("image").feed([np.zeros(784)])


# Values


@pytest.mark.slow
@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=8))
def test_int64_takes_every_integer_as_it_is(values):
    assert feed("label", *values).ravel().tolist() == values


@pytest.mark.slow
@given(st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=8))
def test_float32_takes_every_float32_as_it_is(values):
    assert feed("flat", *values).tolist() == values


@pytest.mark.slow
@given(st.floats(-1e30, 1e30))
def test_float32_takes_a_python_float_rounded(value):
    assert feed("flat", value).tolist() == [float(np.float32(value))]


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("flat", 3, 3.0),
        ("flat", True, 1.0),
        ("flat", float("inf"), np.inf),
        ("flat", float("nan"), np.nan),
        ("label", 3.0, 3),
        ("label", np.float32(-2), -2),
        ("label", True, 1),
        ("label", np.uint8(200), 200),
        ("byte", 255, 255),
        ("word", -(2**31), -(2**31)),
        ("half", 65504.0, 65504.0),
        ("double", 0.1, 0.1),
        ("flag", 1, True),
        ("flag", 0.0, False),
        ("flag", False, False),
    ],
)
def test_a_value_that_the_dtype_can_hold_is_taken(name, value, expected):
    array = feed(name, value, value)
    assert_array(array.ravel(), [expected, expected], np.dtype(TYPES[name][1]))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("label", 3.7),
        ("label", float("nan")),
        ("label", float("inf")),
        ("label", 2.0**63),
        ("label", 1e300),
        ("label", np.uint64(2**63)),
        ("byte", 256),
        ("byte", -1),
        ("byte", 256.0),
        ("word", 2**31),
        ("flat", 1e39),
        ("half", 65536.0),
        ("half", 70000),
        ("flag", 2),
        ("flag", 0.5),
    ],
)
def test_a_value_that_the_dtype_cannot_hold_is_named_and_never_changed(name, value):
    good = np.asarray(value).dtype.type(1)
    with pytest.raises(DataError, match=rf"{name}: row 2 holds .*, which {TYPES[name][1]} cannot hold"):
        feed(name, good, good, value)


def test_integers_beside_a_large_float_are_not_rounded_unnoticed():
    with pytest.raises(DataError, match="label: row 0"):
        feed("label", 2**53 + 1, 1.0)  # NumPy makes both float64, which has no 2**53 + 1


@pytest.mark.parametrize("value", ["7", None, 1j, {"a": 1}, object(), 2**70])
def test_what_is_no_real_number_is_named(value):
    with pytest.raises(DataError, match="label: row 1 does not hold real numbers"):
        feed("label", 7, value)


def test_the_rows_are_not_changed_and_not_shared():
    image = np.ones(784, np.float32)
    fed = feeder("image").feed([(image,)])["image"]
    fed[:] = 5
    assert (image == 1).all()


# Which variables


def test_variables_and_names_can_be_mixed():
    program = Program()
    x = program.global_block().create_var(name="x", shape=[-1, 2, 2], dtype="float32")
    program.global_block().create_var(name="label", shape=[-1, 1], dtype="int64")
    fed = ArrayFeeder([x, "label"], place=None, program=program).feed([([1, 2, 3, 4], 5)])
    assert fed["label"].tolist() == [[5]]


def test_names_are_looked_up_in_the_default_main_program():
    with program_guard(Program()):
        default_main_program().global_block().create_var(name="label", shape=[-1, 1], dtype="int64")
        assert ArrayFeeder(["label"], place=None).feed([(5,)])["label"].tolist() == [[5]]


def test_an_unknown_name_is_an_error():
    with pytest.raises(ValueError, match="nope"):
        DataFeeder(["nope"], place=None, program=Program())


def test_what_is_no_variable_is_an_error():
    with pytest.raises(TypeError, match=r"DataFeeder: feed_list must be .*, got .3."):
        DataFeeder([3], place=None, program=Program())


# Sequences


def test_sequences_become_one_tensor_with_their_lengths():
    program = Program()
    for name, shape, dtype, level in (
        ("words", [-1, 1], "int64", 1), ("rows", [-1, 2], "float32", 1), ("paragraphs", [-1, 1], "int64", 2),
    ):  # fmt: skip
        program.global_block().create_var(name=name, shape=shape, dtype=dtype, lod_level=level)
    fed = DataFeeder(["words", "rows", "paragraphs"], None, program).feed(
        [([1, 2, 3], [[1, 2]], [[1], [2, 3]]), (np.array([4]), [], [[4, 5, 6]]), ([], np.ones((2, 2)), [[], [7]])]
    )
    found = {name: (tensor.recursive_sequence_lengths(), np.array(tensor).tolist()) for name, tensor in fed.items()}
    assert found == {
        "words": ([[3, 1, 0]], [[1], [2], [3], [4]]),
        "rows": ([[1, 0, 2]], [[1, 2], [1, 1], [1, 1]]),
        "paragraphs": ([[2, 1, 2], [1, 2, 3, 0, 1]], [[1], [2], [3], [4], [5], [6], [7]]),
    }
    assert np.array(fed["words"]).dtype == "int64"


def test_what_is_no_sequence_is_an_error():
    program = Program()
    program.global_block().create_var(name="words", shape=[-1, 1], dtype="int64", lod_level=2)
    with pytest.raises(DataError, match="words: item 1 of level 1 is no sequence but 3"):
        DataFeeder(["words"], None, program).feed([([[1, 2], 3],)])


# Readers


def test_a_decorated_reader_yields_one_feed_per_batch_and_can_be_run_again():
    rows = reader.batch(lambda: ((np.full(4, i), i) for i in range(5)), 2)
    feeds = feeder("x", "label").decorate_reader(rows, multi_devices=False)
    for _ in range(2):
        assert [fed["label"].ravel().tolist() for fed in feeds()] == [[0, 1], [2, 3], [4]]
