"""What may be fed for a variable, and what it becomes."""

import warnings

import numpy as np
import pytest

import minigraph as fluid
from minigraph import layers
from minigraph.errors import FeedError, OpError, WrongTypeError
from minigraph.executor.feeds import prepare_feed
from minigraph.runtime.place import CPUPlace


@pytest.fixture
def program():
    """`strict` insists on shape and dtype, `loose` only on values; `label` holds integers, `flag` truth values."""
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        fluid.data("strict", [None, 2], "float32")
        layers.data("loose", [2], dtype="float32")
        fluid.data("one", [1], "float32")
        layers.data("label", [1], dtype="int64")
        layers.data("flag", [1], dtype="bool")
        layers.data("half", [1], dtype="float16")
        layers.data("double", [1], dtype="float64")
    return main


def fed(program, **feed):
    (array,) = prepare_feed(program, feed, CPUPlace()).values()
    return array


def test_nothing_to_feed(program):
    assert prepare_feed(program, None, CPUPlace()) == {}
    assert prepare_feed(program, {}, CPUPlace()) == {}


def test_an_array_of_the_right_type_is_passed_on_as_it_is(program):
    array = np.ones((3, 2), "float32")
    assert fed(program, strict=array) is array


def test_a_list_that_holds_one_dict_is_that_dict(program):
    array = np.ones((1, 2), "float32")
    assert prepare_feed(program, [{"strict": array}], CPUPlace()) == {"strict": array}


@pytest.mark.parametrize("feed", [[], [{}, {}], "x", 3, [("strict", 1)]])
def test_what_is_no_dict_is_an_error(program, feed):
    with pytest.raises(WrongTypeError, match="feed must be a dict from names to arrays"):
        prepare_feed(program, feed, CPUPlace())


def test_the_order_of_names_does_not_count(program):
    a, b = np.ones((1, 2), "float32"), np.ones((1, 1), "int64")
    orders = [
        list(prepare_feed(program, feed, CPUPlace())) for feed in ({"loose": a, "label": b}, {"label": b, "loose": a})
    ]
    assert orders[0] == orders[1]


def test_an_unknown_name_is_left_out_with_a_warning_and_a_suggestion(program):
    with pytest.warns(UserWarning, match=r"(?s)no variable 'lable' to feed.*Did you mean label"):
        assert prepare_feed(program, {"lable": np.ones((1, 1), "int64"), "one": 2.0}, CPUPlace()).keys() == {"one"}
    with pytest.warns(UserWarning, match=r"no variable 'ONE' to feed, which is left out. Did you mean one\? It takes"):
        assert prepare_feed(program, {"ONE": 2.0}, CPUPlace()) == {}


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("one", 2.5, [2.5]),
        ("one", 2, [2.0]),
        ("one", np.float32(2.5), [2.5]),
        ("one", np.array(2.5, "float32"), [2.5]),
        ("one", [0.1], [0.1]),
        ("strict", [[1, 2], [3, 4]], [[1, 2], [3, 4]]),
        ("strict", [[0.1, 2]], [[0.1, 2]]),
        ("strict", ((1.0, 2.0),), [[1, 2]]),
        ("strict", [np.ones(2, "float32"), np.zeros(2, "float32")], [[1, 1], [0, 0]]),
        ("label", [[3], [4]], [[3], [4]]),
        ("flag", [[True], [False]], [[True], [False]]),
    ],
)
def test_numbers_and_lists_become_arrays(program, name, value, expected):
    array = fed(program, **{name: value})
    dtype = program.global_block().var(name).dtype.numpy
    assert array.dtype == dtype
    np.testing.assert_array_equal(array, np.array(expected, dtype))


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ([[1.0, 2.0], [3.0]], "not rectangular"),
        ("abc", "cannot be fed from str: 'abc'"),
        ([["a", "b"]], "cannot be fed from list"),
        (None, "cannot be fed from NoneType"),
        ({"a": 1}, "cannot be fed from dict"),
        (object(), "cannot be fed from object"),
        ([[1j, 2.0]], "cannot be fed from list"),
    ],
)
def test_what_is_no_array_is_an_error(program, value, said):
    with pytest.raises(FeedError, match=f"strict: .*{said}"):
        fed(program, strict=value)


@pytest.mark.parametrize("dtype", ["float64", "float16", "int64", "int32", "bool"])
def test_strict_data_takes_no_other_dtype(program, dtype):
    with pytest.raises(
        FeedError, match=rf"(?s)strict is float32 but {dtype} was fed.*fed {dtype}\[3, 2\].*astype"
    ) as caught:
        fed(program, strict=np.ones((3, 2), dtype))
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("loose", np.array([[0.5, np.nan], [np.inf, -0.0]], "float64")),
        ("loose", np.array([[0.5, 65504.0]], "float16")),
        ("loose", np.array([[2**24, -3]], "int64")),
        ("loose", np.array([[True, False]])),
        ("loose", np.array([[0.1, 0.2]], ">f4")),
        ("label", np.array([[7]], "int32")),
        ("label", np.array([[255]], "uint8")),
        ("label", np.array([[True]])),
        ("half", np.array([[0.25]], "float32")),
        ("double", np.array([[2**53], [2**62]], "int64")),
        ("flag", np.array([[1], [0]], "int64")),
    ],
)
def test_loose_data_is_converted_where_that_changes_no_value(program, name, array):
    before = array.copy()
    converted = fed(program, **{name: array})
    assert converted.dtype == program.global_block().var(name).dtype.numpy
    np.testing.assert_array_equal(converted, before.astype(converted.dtype))
    np.testing.assert_array_equal(array, before)


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("loose", np.array([[0.1, 0.5]], "float64")),
        ("loose", np.array([[1e300, 0.5]], "float64")),
        ("loose", np.array([[2**24 + 1, 0]], "int64")),
        ("double", np.array([[2**53 + 1]], "int64")),
        ("double", np.array([[2**63 - 1]], "int64")),
        ("double", np.array([[2**64 - 1]], "uint64")),
        ("loose", np.array([[2**31 - 1]], "int32")),
        ("half", np.array([[2**16]], "int32")),
        ("label", np.array([[2**63]], "uint64")),
        ("label", np.array([[1.0]], "float32")),
        ("half", np.array([[0.1]], "float32")),
        ("half", np.array([[1e6]], "float32")),
        ("flag", np.array([[2]], "int64")),
        ("loose", np.array([[1j, 1]])),
        ("loose", np.array([["1", "2"]])),
    ],
)
def test_a_conversion_that_would_change_values_is_an_error(program, name, array):
    expected = program.global_block().var(name).dtype
    with pytest.raises(FeedError, match=f"{name} is {expected} but {array.dtype} was fed"):
        fed(program, **{name: array})


def test_an_integer_that_the_declared_dtype_cannot_hold_is_an_error():
    with fluid.program_guard(fluid.Program()):
        fluid.data("x", [1])
        with pytest.raises(FeedError, match="x is float32 but int64 was fed"):
            fed(fluid.default_main_program(), x=[2**24 + 1])


@pytest.mark.parametrize(
    ("shape", "fits"), [((3,), True), ((4,), True), ((3, 1), True), ((4, 3), False), ((3, 2), False)]
)
@pytest.mark.parametrize("declared", [[3, 1, 1], [-1, 1, 1]])
def test_the_last_dimensions_may_be_missing_as_in_fluid(declared, shape, fits):
    """Paddle 1.8.5 accepts and refuses the same shapes for `fluid.data`."""
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        fluid.data("x", declared)
        fits = fits and (declared[0] == -1 or shape[0] == 3)
        with pytest.warns(UserWarning, match="was fed") if fits else pytest.raises(FeedError, match="was fed"):
            assert fed(fluid.default_main_program(), x=np.ones(shape, "float32")).shape == shape


@pytest.mark.parametrize("shape", [(3, 3), (1, 2, 1), (1, 3)])
def test_a_shape_that_does_not_fit_is_an_error_that_shows_both(program, shape):
    with pytest.raises(FeedError, match=r"(?s)strict is declared \[-1, 2\] but .* was fed.*float32\[-1, 2\].*any size"):
        fed(program, strict=np.ones(shape, "float32"))


@pytest.mark.parametrize("shape", [(3, 3), (2,), (1, 2, 1), (3,), ()])
def test_data_without_checks_takes_another_shape_with_a_warning(program, shape):
    with pytest.warns(UserWarning, match=r"loose is declared \[-1, 2\] but .* was fed"):
        assert fed(program, loose=np.ones(shape, "float32")).shape == (shape or (1,))


def test_the_operators_decide_about_another_shape():
    """Paddle 1.8.5 accepts and refuses the same shapes for `layers.data`."""
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
        x = layers.data("x", [4])
        loss = layers.mean(layers.fc(x, 2))
        fluid.optimizer.SGD(0.5).minimize(loss)
        executor, scope = fluid.Executor(), fluid.Scope()
        executor.run(fluid.default_startup_program(), scope=scope)
        start = np.array(scope.find_var("fc_0.w_0").get_tensor())
        with warnings.catch_warnings(record=True) as shown:
            warnings.simplefilter("default")
            for _ in range(3):
                executor.run(feed={"x": np.ones((1, 1, 4), "float32")}, fetch_list=[loss], scope=scope)
        assert len(shown) == 1, "a line warns once"
        trained = np.array(scope.find_var("fc_0.w_0").get_tensor())
        np.testing.assert_allclose(trained, start - 3 * 0.5 * 0.5, rtol=1e-6)
        with pytest.warns(UserWarning), pytest.raises(OpError, match="X has 5 columns but Y has 4 rows"):
            executor.run(feed={"x": np.ones((2, 5), "float32")}, fetch_list=[loss], scope=scope)


def test_an_unknown_dimension_takes_any_size(program):
    for rows in (0, 1, 1000):
        assert fed(program, strict=np.ones((rows, 2), "float32")).shape == (rows, 2)


def test_a_tensor_of_a_scope_can_be_fed(program):
    scope = fluid.Scope()
    scope.var("t").get_tensor().set(np.full((2, 2), 3.0, "float32"))
    array = fed(program, strict=scope.find_var("t").get_tensor())
    np.testing.assert_array_equal(array, np.full((2, 2), 3.0))
    array[:] = 0
    assert np.array(scope.find_var("t").get_tensor()).max() == 3.0


@pytest.mark.parametrize("order", ["transposed", "strided", "read-only", "subclass"])
def test_arrays_in_any_memory_layout_can_be_fed(order):
    with fluid.program_guard(fluid.Program()):
        x = fluid.data("x", [3, 2])
        out = layers.relu(layers.scale(x, 2.0))
        values = np.arange(6, dtype="float32").reshape(3, 2)
        array = {
            "transposed": values.T.copy().T,
            "strided": np.repeat(values, 2, axis=0)[::2],
            "read-only": np.frombuffer(values.tobytes(), "float32").reshape(3, 2),
            "subclass": values.view(np.matrix),
        }[order]
        (result,) = fluid.Executor().run(feed={"x": array}, fetch_list=[out])
    assert type(result) is np.ndarray
    np.testing.assert_array_equal(result, values * 2)


@pytest.mark.parametrize("warm", [False, True])
def test_every_run_checks_what_is_fed(warm):
    with fluid.program_guard(fluid.Program()):
        x = fluid.data("x", [None, 2])
        out = layers.relu(x)
        executor = fluid.Executor()
        good = np.ones((3, 2), "float32")
        if warm:
            executor.run(feed={"x": good}, fetch_list=[out])
        for bad in (good.astype("float64"), good.T, good[None], good.astype("int32")):
            with pytest.raises(FeedError):
                executor.run(feed={"x": bad}, fetch_list=[out])
        with pytest.warns(UserWarning, match="no variable 'y' to feed"):
            executor.run(feed={"x": good, "y": good}, fetch_list=[out])
        assert executor.run(feed={"x": good.tolist()}, fetch_list=[out])[0].dtype == np.float32


def test_a_data_frame_like_object_is_asked_for_its_array(program):
    class Table:
        def __array__(self, dtype=None, copy=None):
            return np.ones((2, 2), dtype or "float32")

    np.testing.assert_array_equal(fed(program, strict=Table()), np.ones((2, 2)))


def test_an_error_of_feeding_points_at_the_run(program):
    with pytest.raises(FeedError, match=r"test_feeds\.py:\d+, in: fluid\.Executor\(\)\.run\(program, feed=feed\)"):
        feed = {"strict": np.ones((1, 3), "float32")}
        fluid.Executor().run(program, feed=feed)


def test_a_dtype_given_as_the_third_argument_is_taken_as_in_fluid():
    with fluid.program_guard(fluid.Program()), pytest.warns(UserWarning, match="third argument, 'int64', is append"):
        x = layers.data("x", [3], "int64")
    assert (x.shape, str(x.dtype)) == ((-1, 3), "float32")


@pytest.mark.parametrize(
    ("use", "expected"),
    [
        (lambda scores, label: layers.cross_entropy(layers.softmax(scores), label), [1.386294, 1.269087]),
        (layers.softmax_with_cross_entropy, [1.386294, 1.269087]),
        (lambda scores, label: layers.gather(scores, label), [1.2, 1.075]),
    ],
)
@pytest.mark.parametrize("dtype", [{}, {"append_batch_size": "int64"}])
@pytest.mark.filterwarnings("ignore:data. the third argument")
def test_a_label_whose_dtype_was_forgotten_holds_integers(use, expected, dtype):
    """The first result of two steps is that of Paddle 1.8.5, whose data has the dtype of what is fed."""
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.scope_guard(fluid.Scope()):
        x, label = layers.data("x", [4]), layers.data("label", [1], **dtype)
        weight = fluid.ParamAttr(initializer=fluid.initializer.Constant(0.3))
        scores = layers.fc(x, 4, param_attr=weight)
        with pytest.warns(UserWarning, match="label is declared float32 and used for integers: it becomes int64"):
            result = use(scores, label)
        assert str(label.dtype) == "int64"
        layers.accuracy(scores, label)
        fluid.optimizer.SGD(0.1).minimize(layers.mean(result))
        exe = fluid.Executor()
        exe.run(fluid.default_startup_program())
        feed = {"x": np.ones((2, 4), "float32"), "label": np.array([[1], [0]])}
        found = [exe.run(feed=feed, fetch_list=[result])[0].flat[0] for _ in range(2)]
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_a_label_that_is_read_as_a_number_stays_one():
    with fluid.program_guard(fluid.Program()):
        label = layers.data("label", [1])
        layers.scale(label, 2.0)
        with pytest.raises(OpError, match="Label must hold integers"):
            layers.cross_entropy(layers.data("x", [4]), label)
