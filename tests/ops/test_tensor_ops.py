"""Edge facts about making, converting and rearranging tensors."""

import math

import numpy as np
import pytest
from one_op import append, gradient, run

import minigraph as fluid
from minigraph.errors import ExecutionError, MinigraphError, OpError
from minigraph.kernels import find_kernel
from minigraph.support.shape_rules import constant_of, reshaped
from minigraph.types import DType, TensorType

X = np.arange(24, dtype="float32").reshape(2, 3, 4)


def kernel(type):
    return find_kernel(type, "cpu").function


# Conversion


def test_a_cast_cuts_toward_zero_and_takes_everything_but_zero_for_true():
    x = np.array([-1.7, -0.5, 0.0, 0.5, 1.7], "float32")
    assert run("cast", {"X": x}, in_dtype=5, out_dtype=3).tolist() == [-1, 0, 0, 0, 1]
    x = np.array([0.0, -0.0, 1e-30, np.nan, -np.inf], "float32")
    assert run("cast", {"X": x}, in_dtype=5, out_dtype=0).tolist() == [False, False, True, True, True]


def test_a_narrower_integer_keeps_the_low_bits():
    x = np.array([-1, 255, 256, 2**40 + 1])
    assert run("cast", {"X": x}, in_dtype=3, out_dtype=20).tolist() == [255, 255, 0, 1]


def test_the_gradient_of_a_cast_is_cast_back():
    x = np.array([1.5, 2.5], "float32")
    d_x = gradient("cast", {"X": x}, "X", cotangent=np.array([0.1, 0.2]), in_dtype=5, out_dtype=6)
    assert d_x.dtype == np.float32
    assert np.array_equal(d_x, np.array([0.1, 0.2], "float32"))


def test_a_cast_has_to_know_what_it_converts():
    with pytest.raises(OpError, match="in_dtype is float64 but X is float32"):
        append("cast", {"X": X}, in_dtype=6, out_dtype=3)
    with pytest.raises(MinigraphError, match="99 is not an element type"):
        append("cast", {"X": X}, in_dtype=5, out_dtype=99)
    with pytest.raises(OpError, match="attribute out_dtype is missing"):
        append("cast", {"X": X}, in_dtype=5)


def test_assign_copies_and_needs_something_to_copy():
    assert not np.shares_memory(kernel("assign")(np, X), X)
    with pytest.raises(OpError, match="X is missing"):
        append("assign", {})


# Scale


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64"])
def test_integers_are_scaled_by_whole_numbers(dtype):
    x = np.array([-9, -1, 0, 1, 9], dtype)
    assert run("scale", {"X": x}, scale=0.5).tolist() == [0] * 5
    assert run("scale", {"X": x}, scale=1.7, bias=-2.9).tolist() == [-11, -3, -2, -1, 7]
    assert run("scale", {"X": x}, scale=-2.5, bias=1.0, bias_after_scale=False).tolist() == [16, 0, -2, -4, -20]


def test_integers_are_scaled_exactly_and_wrap_around():
    assert run("scale", {"X": np.array([2**53 + 1])}, scale=2.0, bias=1.0).tolist() == [2**54 + 3]
    assert run("scale", {"X": np.array([1, 100], "uint8")}, scale=-1.0).tolist() == [255, 156]
    assert run("scale", {"X": np.array([1], "uint8")}, bias=300.0).tolist() == [45]


def test_scaling_by_one_is_a_copy():
    for attrs in ({}, {"scale": 1.0, "bias": 0.0}):
        program, variables, feed = append("scale", {"X": X}, **attrs)
        (y,) = fluid.Executor().run(program, feed=feed, fetch_list=variables["Out"])
        assert np.array_equal(y, X) and not np.shares_memory(y, X)


def test_float16_is_scaled_by_a_factor_that_float16_does_not_hold():
    x = np.array([6e4], "float16")
    assert run("scale", {"X": x}, scale=2.0**-26).tolist() == [float(np.float16(60000 * 2.0**-26))]


def test_a_scale_that_is_infinite_or_nan_shows():
    x = np.array([1, 0], "float32")
    assert np.array_equal(run("scale", {"X": x}, scale=math.inf), [math.inf, math.nan], equal_nan=True)
    assert np.isnan(run("scale", {"X": x}, bias=math.nan)).all()


def test_a_scale_from_a_tensor_takes_part_in_the_gradient():
    inputs = {"X": X, "ScaleTensor": np.array([0.5], "float32")}
    assert np.array_equal(run("scale", inputs, scale=7.0, bias=1.0), X * np.float32(0.5) + 1)
    assert (gradient("scale", inputs, "X", scale=7.0, bias=1.0) == 0.5).all()


@pytest.mark.parametrize(
    ("inputs", "attrs", "message"),
    [
        ({"X": np.array([True])}, {}, "X must be a number, got bool"),
        ({"X": np.array([1])}, {"scale": math.inf}, "scale=inf and bias=0 are not both integers"),
        ({"X": np.array([1])}, {"bias": math.nan}, "scale=1 and bias=nan are not both integers"),
        ({"X": X, "ScaleTensor": np.array([0.5])}, {}, "X and ScaleTensor must have one element type"),
        ({"X": X, "ScaleTensor": np.array([1, 2], "float32")}, {}, "ScaleTensor must hold one number"),
    ],
)
def test_a_scale_that_makes_no_sense_is_refused(inputs, attrs, message):
    with pytest.raises(OpError, match=message):
        append("scale", inputs, **attrs)


# Reshape, transpose, concat


@pytest.mark.parametrize(
    ("shape", "wanted", "expected"),
    [
        ((2, 3, 4), (0, -1), (2, 12)),
        ((2, 3, 4), (-1, 0), (8, 3)),
        ((2, 3, 4), (4, 0, 2), (4, 3, 2)),
        ((2, 3, 4), (0, 0, 0, 1), (2, 3, 4, 1)),
        ((-1, 3, 4), (0, -1), (-1, 12)),
        ((-1, 3, 4), (0, 0, -1), (-1, 3, 4)),
        ((-1, 3, 4), (-1, 12), (-1, 12)),
        ((-1, 3, 4), (5, -1), (5, -1)),
        ((-1, -1), (6, 4), (6, 4)),
        ((0, 3), (0, -1), (0, 3)),
        ((0, 3), (-1, 3), (0, 3)),
        ((0, 3), (-1, 7), (0, 7)),
        ((0, 3), (0,), (0,)),
        ((1,), (1, 1), (1, 1)),
    ],
)
def test_shapes_are_read_as_in_fluid(shape, wanted, expected):
    assert reshaped(shape, wanted) == expected
    if -1 not in shape:
        y, x_shape = kernel("reshape2")(np, np.zeros(shape), None, None, shape=wanted)
        assert (y.shape, x_shape.shape) == (expected, (0, *shape))


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ([], "shape is empty"),
        ([-1, -1], "only one dimension may be -1"),
        ([-2, 12], "a dimension is negative"),
        ([5, -1], "24 elements are no multiple of 5"),
        ([6, 5], "the numbers of elements differ, 24 and 30"),
        ([3, 0, -1], "8 elements are no multiple of 3"),
        ([0, 0, 0, 0], "X has none there"),
        ([0, 5], "the numbers of elements differ, 12 and 5"),
    ],
)
def test_a_shape_that_does_not_fit_is_refused_with_both_shapes(wanted, message):
    with pytest.raises(OpError, match=message) as error:
        append("reshape2", {"X": X}, shape=wanted)
    if wanted:
        assert f"shape {wanted} of X [2, 3, 4]" in str(error.value)


def test_a_mismatch_shows_even_where_the_batch_is_not_known():
    with pytest.raises(OpError, match="12 and 5"):
        reshaped((-1, 3, 4), (0, 5))


def test_a_shape_given_as_a_tensor_replaces_the_attribute_at_run_time():
    vector = {"X": X, "Shape": np.array([4, -1], "int32")}
    assert run("reshape2", vector, shape=[-1, 12])[0].shape == (4, 6)
    numbers = {"X": X, "ShapeTensor": [np.array([3]), np.array([8], "int32")]}
    assert run("reshape2", numbers, shape=[-1, 8])[0].shape == (3, 8)
    assert run("reshape2", {**numbers, **vector}, shape=[-1, 8])[0].shape == (3, 8)
    variables = append("reshape2", vector)[1]
    assert variables["Out"][0].shape == (-1, -1)
    with pytest.raises(ExecutionError, match="the numbers of elements differ, 24 and 20"):
        run("reshape2", {"X": X, "Shape": np.array([4, 5], "int32")})
    with pytest.raises(OpError, match="Shape must hold integers, got float32"):
        append("reshape2", {"X": X, "Shape": np.array([4, 6], "float32")})


def test_reshape_and_transpose_are_views():
    flat, flat_shape = kernel("reshape2")(np, X, None, None, shape=(4, 6))
    turned, turned_shape = kernel("transpose2")(np, X, axis=(2, 0, 1))
    for y in (flat, turned):
        assert np.shares_memory(y, X)
    assert np.shares_memory(kernel("reshape2_grad")(np, flat_shape, flat), X)
    assert np.shares_memory(kernel("transpose2_grad")(np, turned_shape, turned, axis=(2, 0, 1)), X)
    found = [
        find_kernel(type, "cpu").view_of for type in ("reshape2", "transpose2", "reshape2_grad", "transpose2_grad")
    ]
    assert found == [0, 0, 1, 1]


def test_a_transposed_tensor_can_be_reshaped():
    y, _ = kernel("transpose2")(np, X, axis=(2, 0, 1))
    assert np.array_equal(kernel("reshape2")(np, y, None, None, shape=(0, -1))[0], X.transpose(2, 0, 1).reshape(4, 6))


def test_the_gradient_of_a_transpose_goes_back():
    cotangent = np.random.default_rng(1).standard_normal((4, 2, 3)).astype("float32")
    d_x = gradient("transpose2", {"X": X}, "X", cotangent=cotangent, axis=[2, 0, 1])
    assert np.array_equal(d_x, cotangent.transpose(1, 2, 0))


@pytest.mark.parametrize("axis", [[0, 1], [0, 0, 1], [0, 1, 3], [-1, 0, 1]])
def test_a_transpose_names_every_dimension_once(axis):
    with pytest.raises(OpError, match="axis must name each of the 3 dimensions of X once"):
        append("transpose2", {"X": X}, axis=axis)


def test_pieces_without_elements_can_be_joined():
    pieces = [np.zeros((0, 3), "float32"), np.ones((2, 3), "float32"), np.zeros((0, 3), "float32")]
    assert np.array_equal(run("concat", {"X": pieces}), pieces[1])
    assert run("concat", {"X": [pieces[0], pieces[0]]}).shape == (0, 3)
    assert gradient("concat", {"X": pieces}, "X").shape == (0, 3)


def test_the_axis_may_come_from_a_tensor():
    inputs = {"X": [X, X[:, :1]], "AxisTensor": np.array([-2], "int32")}
    assert np.array_equal(run("concat", inputs, axis=0), np.concatenate([X, X[:, :1]], 1))
    assert (gradient("concat", inputs, "X", axis=0) == 1).all()
    with pytest.raises(ExecutionError, match=r"AxisTensor must be in \[-3, 3\), got 3"):
        run("concat", {**inputs, "AxisTensor": np.array([3])})


def test_the_gradients_of_the_pieces_are_copies_of_those_asked_for():
    d_out = np.ones((2, 4, 4), "float32")
    first, second = kernel("concat_grad")(np, [X, X[:, :1]], None, d_out, axis=1, wanted=((True, False),))
    assert np.array_equal(first, np.ones_like(X)) and not np.shares_memory(first, d_out)
    assert second is None


@pytest.mark.parametrize(
    ("pieces", "axis", "message"),
    [
        (
            [X, X[:, :1]],
            0,
            r"X\[0\] and X\[1\], apart from dimension 0, must have equal shapes, got \[3, 4\] and \[1, 4\]",
        ),
        ([X, X[0]], 0, r"all X must have as many dimensions, got \[3, 2\]"),
        ([X, X.astype("float64")], 0, "X must have one element type"),
        ([X, X], 3, r"axis must be in \[-3, 3\), got 3"),
        ([X, X], -4, r"axis must be in \[-3, 3\), got -4"),
    ],
)
def test_pieces_that_do_not_fit_are_refused(pieces, axis, message):
    with pytest.raises(OpError, match=message):
        append("concat", {"X": pieces}, axis=axis)


def test_unknown_dimensions_of_pieces_stay_unknown_or_are_learnt_from_each_other():
    with fluid.program_guard(fluid.Program()):
        a, b = fluid.data("a", [None, 3]), fluid.data("b", [2, None])
        assert fluid.layers.concat([a, b], 0).shape == (-1, 3)
        assert fluid.layers.concat([a, b], 1).shape == (2, -1)


# Constants


def test_large_integers_are_spelled():
    for number in (2**53 + 1, -(2**63), 2**63 - 1):
        assert run("fill_constant", shape=[2], dtype=3, str_value=str(number)).tolist() == [number] * 2
        attrs = {"shape": [-1, 1], "dtype": 3, "str_value": str(number)}
        assert run("fill_constant_batch_size_like", {"Input": X}, **attrs).tolist() == [[number]] * 2
        with fluid.program_guard(fluid.Program()):
            y = fluid.layers.fill_constant([1], "int64", number)
            assert fluid.Executor().run(fetch_list=[y])[0].tolist() == [number]


def test_float64_is_spelled_to_the_last_digit():
    assert run("fill_constant", shape=[1], dtype=6, str_value="0.1").tolist() == [0.1]
    assert run("fill_constant", shape=[1], dtype=6, value=0.1).tolist() == [float(np.float32(0.1))]


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
@pytest.mark.parametrize("text", ["", "inf", "nan"])
def test_infinity_and_nan_come_from_value(value, text):
    for dtype in (4, 5, 6):
        found = run("fill_constant", shape=[2], dtype=dtype, value=value, str_value=text)
        assert np.array_equal(found, [value, value], equal_nan=True)
    # With a finite value that is what fluid has.
    assert run("fill_constant", shape=[1], value=0.0, str_value="inf").tolist() == [0]


def test_infinity_can_be_asked_for_by_the_layer():
    with fluid.program_guard(fluid.Program()):
        y = fluid.layers.fill_constant([2], "float32", -math.inf)
        assert fluid.Executor().run(fetch_list=[y])[0].tolist() == [-math.inf] * 2


@pytest.mark.parametrize(
    ("dtype", "value", "text", "expected"),
    [
        (DType.INT32, -2.7, "", -2), (DType.INT64, 0.0, "3.99", 3), (DType.INT64, 0.0, " 12 ", 12),
        (DType.INT64, 0.0, "1e3", 1000), (DType.BOOL, -0.3, "", True), (DType.BOOL, 0.0, "0.0", False),
        (DType.UINT8, 255.0, "", 255), (DType.FP32, 7.0, "", 7.0), (DType.FP64, 7.0, "1e300", 1e300),
    ],
)  # fmt: skip
def test_numbers_are_read_for_their_type(dtype, value, text, expected):
    found = constant_of(dtype, value, text)
    assert found == expected and type(found) is type(expected)


@pytest.mark.parametrize(
    ("dtype", "value", "text", "message"),
    [
        (2, 0.0, "2147483648", "2147483648 does not fit int32"),
        (2, 1e20, "", "100000002004087734272 does not fit int32"),
        (20, -1.0, "", "-1 does not fit uint8"),
        (3, math.nan, "", "nan does not fit int64"),
        (3, math.inf, "inf", "inf does not fit int64"),
        (4, 1e6, "", r"1e\+06 does not fit float16"),
        (5, 0.0, "1e50", r"1e\+50 does not fit float32"),
        (5, 0.0, "abc", "str_value must spell a number, got 'abc'"),
        (3, 0.0, "1.5abc", "str_value must spell a number"),
    ],
)
def test_a_number_that_does_not_fit_is_refused(dtype, value, text, message):
    with pytest.raises(OpError, match=message):
        append("fill_constant", {}, shape=[1], dtype=dtype, value=value, str_value=text)
    with pytest.raises(OpError, match=message):
        append("fill_constant_batch_size_like", {"Input": X}, shape=[-1], dtype=dtype, value=value, str_value=text)


@pytest.mark.parametrize(("value", "expected"), [(0.5, True), (-1e-9, True), (0.0, False), (2, True)])
def test_a_condition_is_true_unless_it_is_filled_with_zero(value, expected):
    """Recorded, for both layers and the spelling as text."""
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x = fluid.data("x", [None, 2])
        whole = fluid.layers.fill_constant([2], "bool", value)
        like = fluid.layers.fill_constant_batch_size_like(x, [-1, 1], "bool", value)
        found = fluid.Executor().run(feed={"x": np.ones((3, 2), "float32")}, fetch_list=[whole, like])
    assert [each.tolist() for each in found] == [[expected] * 2, [[expected]] * 3]
    assert whole.op.attr("str_value") == str(float(value))


def test_each_run_makes_its_own_constant():
    for type, attrs in {
        "fill_constant": {"shape": [3], "value": 2.0},
        "assign_value": {"shape": [3], "dtype": 5, "fp32_values": [2, 2, 2]},
    }.items():
        program, variables, _ = append(type, {}, **attrs)
        executor = fluid.Executor()
        for _ in range(2):
            (value,) = executor.run(program, fetch_list=variables["Out"])
            assert value.tolist() == [2, 2, 2]
            value[:] = 7


def test_a_value_or_a_shape_may_come_from_tensors():
    two_by_three = np.array([2, 3], "int32")
    assert run("fill_constant", {"ValueTensor": np.array([4], "int64")}, shape=[2], dtype=3).tolist() == [4, 4]
    assert run("fill_constant", {"ShapeTensor": two_by_three}, shape=[4, 4], value=1.0).tolist() == [[1] * 3] * 2
    parts = [np.array([3]), np.array([1], "int32")]
    assert run("fill_constant", {"ShapeTensorList": parts}, shape=[-1, -1]).shape == (3, 1)
    both = {"ShapeTensor": two_by_three, "ShapeTensorList": parts}
    assert run("fill_constant", both, shape=[-1, -1]).shape == (2, 3)
    with pytest.raises(ExecutionError, match=r"a shape must not be negative, got \[2, -3\]"):
        run("fill_constant", {"ShapeTensor": two_by_three * [1, -1]})


@pytest.mark.parametrize(
    ("inputs", "attrs", "message"),
    [
        ({}, {}, "shape is empty"),
        ({}, {"shape": [2, -1]}, r"shape must not be negative, got \[2, -1\]"),
        ({"ValueTensor": np.array([1.0])}, {"shape": [2]}, "ValueTensor and Out must have one element type"),
        ({"ValueTensor": np.zeros(2, "float32")}, {"shape": [2]}, "ValueTensor must hold one number"),
        ({"ShapeTensor": np.array([2.0])}, {}, "ShapeTensor must hold integers, got float64"),
        ({"ShapeTensorList": [np.array([2, 3])]}, {}, "ShapeTensorList must hold one number"),
    ],
)
def test_a_constant_needs_a_value_and_a_shape(inputs, attrs, message):
    with pytest.raises(OpError, match=message):
        append("fill_constant", inputs, **attrs)


def test_what_is_promised_about_a_shape_is_known_before_it_runs():
    def inferred(shape, **inputs):
        given = {slot: tensors if isinstance(tensors, list) else [tensors] for slot, tensors in inputs.items()}
        types = fluid.opdef.definition_of("fill_constant").infer_types(given, {"shape": shape})
        return types["Out"][0].shape

    vector = TensorType(DType.INT32, (2,))
    unknown = TensorType(DType.INT32, (-1,))
    one = TensorType(DType.INT64, (1,))
    assert inferred((-1, 3), ShapeTensor=vector) == (-1, 3)
    assert inferred((), ShapeTensor=vector) == (-1, -1)
    assert inferred((7,), ShapeTensor=vector) == (-1, -1)
    assert inferred((-1, 3), ShapeTensor=unknown) == (-1, 3)
    assert inferred((-1, 3), ShapeTensorList=[one, one]) == (-1, 3)
    assert inferred((), ShapeTensorList=[one, one, one]) == (-1, -1, -1)


@pytest.mark.parametrize(
    ("attrs", "message"),
    [
        ({"shape": [-1, 2], "input_dim_idx": 3}, r"input_dim_idx must be in \[0, 3\), got 3"),
        ({"shape": [-1, 2], "output_dim_idx": 2}, r"output_dim_idx must be in \[0, 2\), got 2"),
        ({"shape": []}, r"output_dim_idx must be in \[0, 0\)"),
        ({"shape": [-1, -1]}, r"shape must not be negative but at 0, got \[-1, -1\]"),
    ],
)
def test_a_constant_like_a_batch_needs_dimensions_that_there_are(attrs, message):
    with pytest.raises(OpError, match=message):
        append("fill_constant_batch_size_like", {"Input": X}, **attrs)


def test_zeros_like_nan_are_zeros():
    assert run("fill_zeros_like", {"X": np.array([np.nan, np.inf], "float32")}).tolist() == [0, 0]


@pytest.mark.parametrize("value", [math.inf, math.nan])
def test_a_tensor_can_be_full_of_infinity_or_nan_if_its_type_has_them(value):
    assert np.array_equal(run("fill_any_like", {"X": X[0, 0]}, value=value), [value] * 4, equal_nan=True)
    for dtype, message in ((2, "does not fit int32"), (0, "does not fit bool")):
        with pytest.raises(OpError, match=message):
            append("fill_any_like", {"X": X}, value=value, dtype=dtype)


def test_a_tensor_full_of_a_number_has_to_hold_it():
    for value, dtype, message in ((1e20, 2, "int32"), (1e20, 4, "float16"), (2.0, 0, "bool"), (-1.0, 20, "uint8")):
        with pytest.raises(OpError, match=f"does not fit {message}"):
            append("fill_any_like", {"X": X}, value=value, dtype=dtype)


def test_listed_values_keep_every_digit():
    assert run("assign_value", shape=[2], dtype=6, fp64_values=[0.1, 1e300]).tolist() == [0.1, 1e300]
    assert run("assign_value", shape=[1, 2], dtype=3, int64_values=[2**53 + 1, -5]).tolist() == [[2**53 + 1, -5]]
    assert run("assign_value", shape=[3], dtype=0, bool_values=[2, 0, -1]).tolist() == [True, False, True]
    assert run("assign_value", shape=[0, 2], dtype=2).shape == (0, 2)
    assert run("assign_value", shape=[], dtype=5, fp32_values=[3]).shape == ()


@pytest.mark.parametrize(
    ("attrs", "message"),
    [
        ({"shape": [2, 2], "dtype": 5, "fp32_values": [1.0]}, r"shape \[2, 2\] has 4 elements but fp32_values has 1"),
        (
            {"shape": [1], "dtype": 3, "int32_values": [1]},
            "values of type int64 belong in int64_values, found some in int32",
        ),
        ({"shape": [1], "dtype": 4, "fp32_values": [1.0]}, "there are no values of type float16"),
        ({"shape": [-1], "dtype": 3, "int64_values": [1]}, "dimensions of at least 0"),
        ({"shape": [1], "dtype": 2, "int32_values": [2**31]}, "does not fit int32"),
    ],
)
def test_listed_values_have_to_fit_their_shape_and_type(attrs, message):
    with pytest.raises(OpError, match=message):
        append("assign_value", {}, **attrs)


def test_the_shape_is_that_of_the_run():
    with fluid.program_guard(fluid.Program()):
        x = fluid.data("x", [None, 3])
        shape = x.block.create_var(name="shape")
        x.block.append_op("shape", {"Input": x}, {"Out": shape})
        executor = fluid.Executor()
        for rows in (2, 0):
            (found,) = executor.run(feed={"x": np.zeros((rows, 3), "float32")}, fetch_list=[shape])
            assert found.dtype == np.int32 and found.tolist() == [rows, 3]


# Counting


def test_a_counter_counts_exactly_and_in_whole_steps():
    assert run("increment", {"X": np.array([2**53])}, step=1.0).tolist() == [2**53 + 1]
    assert run("increment", {"X": np.array([3], "int32")}, step=1.9).tolist() == [4]
    assert run("increment", {"X": np.array([3], "int32")}, step=-1.9).tolist() == [2]
    assert run("increment", {"X": np.array([[0.5]], "float32")}, step=-0.25).tolist() == [[0.25]]
    for x, message in ((np.zeros(2, "float32"), "X must hold one number"), (np.array([True]), "got bool")):
        with pytest.raises(OpError, match=message):
            append("increment", {"X": x})


def test_the_gradient_goes_through_an_increment():
    with fluid.program_guard(fluid.Program()):
        x = fluid.data("x", [1])
        x.stop_gradient = False
        y = fluid.layers.scale(x, 3.0)
        z = fluid.layers.increment(y, 2.0, in_place=False)
        (d_x,) = fluid.gradients(fluid.layers.scale(z, 5.0), x)
        assert fluid.Executor().run(feed={"x": np.ones(1, "float32")}, fetch_list=[d_x])[0].tolist() == [15]
