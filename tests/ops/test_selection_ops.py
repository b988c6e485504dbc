"""Operators that pick, count, measure and make tensors: what they refuse, and where they differ from the original."""

from itertools import product

import numpy as np
import pytest
from one_op import append, gradient, run

import minigraph as fluid
from minigraph import layers
from minigraph.errors import ExecutionError, OpError, ProgramError, WrongTypeError

FLOATS = np.arange(6, dtype="float32").reshape(2, 3)


@pytest.mark.parametrize(
    ("type", "inputs"),
    [
        ("index_select", {"X": FLOATS, "Index": np.array([0, 2])}),
        ("index_sample", {"X": FLOATS, "Index": np.array([[0], [-1]])}),
        ("multiplex", {"Ids": np.array([[0], [2]], "int32"), "X": [FLOATS, FLOATS]}),
        ("scatter_nd_add", {"X": FLOATS, "Index": np.array([[1, 3]]), "Updates": np.ones(1, "float32")}),
    ],
)
def test_a_number_that_names_nothing_is_an_error(type, inputs):
    with pytest.raises(ExecutionError, match=r"must be in \[0, "):
        run(type, inputs)


@pytest.mark.parametrize(
    ("type", "inputs", "attrs", "message"),
    [
        ("cross", {"X": FLOATS[:, :2], "Y": FLOATS[:, :2]}, {}, "no dimension of X .* has size 3"),
        ("bmm", {"X": FLOATS[None], "Y": FLOATS[None]}, {}, "X has 3 columns but Y has 2 rows"),
        ("addmm", {"Input": FLOATS, "X": FLOATS, "Y": FLOATS.T.copy()}, {}, r"must have the shape \[2, 2\]"),
        ("maxout", {"X": FLOATS}, {"groups": 2}, "3 channels cannot be split into groups of 2"),
        ("diag_embed", {"Input": FLOATS}, {"dim1": 0, "dim2": -3}, "must not be one dimension"),
        ("flip", {"X": FLOATS}, {"dims": [1, -1]}, "names a dimension twice"),
        ("roll", {"X": FLOATS}, {"shifts": [1], "dims": [0, 1]}, "must be as many"),
        ("unique", {"X": FLOATS}, {}, "X must be a vector"),
        ("kldiv_loss", {"X": FLOATS, "Target": FLOATS}, {"reduction": "average"}, "none, mean, sum, batchmean"),
        ("label_smooth", {"X": FLOATS}, {"epsilon": 1.5}, r"epsilon must be in \[0, 1\]"),
        ("softshrink", {"X": FLOATS}, {"lambda": -1.0}, "lambda must not be negative"),
        ("brelu", {"X": FLOATS}, {"t_min": 1.0, "t_max": 1.0}, "t_min must be less than t_max"),
    ],
)
def test_what_does_not_fit_is_refused_when_the_program_is_built(type, inputs, attrs, message):
    with pytest.raises(OpError, match=message):
        append(type, inputs, **attrs)


def test_a_step_in_the_wrong_direction_is_an_error():
    numbers = {slot: np.array([value], "int64") for slot, value in (("Start", 0), ("End", 5), ("Step", -1))}
    with pytest.raises(ExecutionError, match="Step -1 does not lead from 0 to 5"):
        run("range", numbers)


def test_a_space_of_numbers_ends_exactly_where_it_is_told():
    ends = {"Start": np.array([0.1], "float32"), "Stop": np.array([0.7], "float32")}
    numbers = run("linspace", {**ends, "Num": np.array([7], "int32")})
    assert numbers[-1] == ends["Stop"][0]
    assert np.allclose(np.diff(numbers), 0.1)


def test_infinities_are_close_to_themselves():
    x = np.array([np.inf, -np.inf, 1], "float32")
    assert run("allclose", {"Input": x, "Other": x}).tolist() == [True]
    assert run("allclose", {"Input": x, "Other": -x}).tolist() == [False]


def test_a_bounded_activation_has_no_slope_beyond_its_bounds():
    x = np.array([-5.0, 0.0, 5.0])
    assert gradient("soft_relu", {"X": x}, "X", threshold=2.0)[[0, 2]].tolist() == [0, 0]
    assert np.allclose(gradient("soft_relu", {"X": x}, "X", threshold=40.0), 1 / (1 + np.exp(-x)), rtol=1e-12)


def test_the_slope_of_mish_is_that_of_what_it_computes():
    x = np.array([2.0])
    # Above the threshold it is x * tanh(x).
    expected = np.tanh(2) + 2 * (1 - np.tanh(2) ** 2)
    assert np.allclose(gradient("mish", {"X": x}, "X", threshold=1.0), expected, rtol=1e-12)


def test_the_larger_of_two_operands_may_come_second_in_every_operator():
    x, y = np.array([2.0, 3.0, 5.0]), np.array([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]])
    assert np.array_equal(run("elementwise_pow", {"X": x, "Y": y}), x**y)
    assert np.array_equal(run("elementwise_mod", {"X": x, "Y": y}), x % y)


@pytest.mark.parametrize(("shape", "axis"), [((4, 2), 1), ((2, 1), 1), ((3,), 1)])
def test_the_axis_is_of_no_account_where_shapes_are_equal(shape, axis):
    x, y = np.arange(np.prod(shape), dtype="float32").reshape(shape), np.full(shape, 2, "float32")
    assert np.array_equal(run("elementwise_sub", {"X": x, "Y": y}, axis=axis), x - y)
    assert np.array_equal(run("less_than", {"X": x, "Y": y}, axis=axis), x < y)
    assert np.array_equal(gradient("elementwise_mul", {"X": x, "Y": y}, "Y", axis=axis), x)


def test_a_smaller_x_lies_under_y_only_at_its_end():
    x, y = np.ones((2, 1), "float32"), np.ones((2, 2, 1), "float32")
    assert run("elementwise_mul", {"X": x, "Y": y}, axis=1).shape == (2, 2, 1)
    with pytest.raises(OpError, match=r"X \[2, 1\] has fewer dimensions than Y \[2, 2, 1\]") as caught:
        append("elementwise_mul", {"X": x, "Y": y}, axis=0)
    assert "leave axis at -1" in str(caught.value)


@pytest.mark.parametrize("shape", [(1,), (1, 1)])
def test_a_smaller_x_of_one_element_lies_under_y_anywhere(shape):
    # So a sum of all is added to one of each sample: `x + y` says axis 0 where the first dimension of y is unknown.
    x, y = np.full(shape, 2, "float32"), np.ones((4, 2, 3), "float32")
    assert np.array_equal(run("elementwise_sub", {"X": x, "Y": y}, axis=0), x - y)
    assert np.array_equal(gradient("elementwise_mul", {"X": x, "Y": y}, "Y", axis=0), np.broadcast_to(x, y.shape))
    assert gradient("elementwise_mul", {"X": x, "Y": y}, "X", axis=0).tolist() == np.full(shape, 24).tolist()


def test_all_dimensions_may_be_named_in_a_reduction():
    assert run("reduce_sum", {"X": FLOATS}, dim=[0, 1]).tolist() == [15]
    assert run("reduce_max", {"X": FLOATS[None]}, dim=[2, 0, 1], keep_dim=True).tolist() == [[[5]]]


@pytest.mark.parametrize("dims", [[2], [3], [-1], [2, 3]])
def test_tensors_of_five_dimensions_are_reduced_along_any_of_them(dims):
    x = np.random.RandomState(0).rand(2, 3, 4, 5, 6).astype("float32")
    for type, function in (("reduce_sum", np.sum), ("reduce_mean", np.mean), ("reduce_max", np.max)):
        np.testing.assert_allclose(run(type, {"X": x}, dim=dims), function(x, axis=tuple(dims)), rtol=1e-6)
    assert np.array_equal(gradient("reduce_sum", {"X": x}, "X", dim=dims), np.ones_like(x))


def test_probabilities_beyond_one_have_no_area():
    counts = np.zeros((1, 8), "int64")
    with pytest.raises(ExecutionError, match=r"must be in \[0, 1\]"):
        run(
            "auc", {"Predict": 2 + FLOATS, "Label": np.ones((2, 1), "int64"), "StatPos": counts, "StatNeg": counts},
            num_thresholds=7, slide_steps=0,
        )  # fmt: skip


@pytest.mark.parametrize("dims", [(9, 8), (4, 5, 6)])
@pytest.mark.parametrize(
    "attrs",
    [
        {"ksize": 2, "strides": 2}, {"ksize": 3, "strides": 1, "paddings": 1}, {"ksize": 2, "strides": 3},
        {"ksize": 5, "adaptive": True}, {"ksize": 1, "adaptive": True}, {"ksize": 4, "global_pooling": True},
    ],
    ids=str,
)  # fmt: skip
def test_pooling_names_the_first_greatest_element_of_each_window(attrs, dims):
    values = np.random.default_rng(0).integers(0, 4, (2, 3, *dims)).astype("float32")  # with ties
    values[np.random.default_rng(1).random(values.shape) < 0.05] = np.nan
    lists = {
        name: [value] * len(dims) if name in ("ksize", "strides", "paddings") else value
        for name, value in attrs.items()
    }
    out, mask = run(f"max_pool{len(dims)}d_with_index", {"X": values}, **lists)
    for image, maxima, places in zip(values.reshape(6, *dims), out.reshape(6, -1), mask.reshape(6, -1), strict=True):
        for window, found, place in zip(_windows(dims, **attrs), maxima, places, strict=True):
            inside = np.array([image.flat[np.ravel_multi_index(at, dims)] for at in window])
            assert np.array_equal(found, inside.max(), equal_nan=True)
            assert place == np.ravel_multi_index(window[inside.argmax()], dims)


def _windows(dims, ksize, strides=1, paddings=0, adaptive=False, global_pooling=False):
    """Yield the positions in each window, in order."""
    along = []
    for length in dims:
        if adaptive:
            along.append([range(i * length // ksize, -(-(i + 1) * length // ksize)) for i in range(ksize)])
        elif global_pooling:
            along.append([range(length)])
        else:
            begins = range(-paddings, length + paddings - ksize + 1, strides)
            along.append([range(max(begin, 0), min(begin + ksize, length)) for begin in begins])
    for window in product(*along):
        yield list(product(*window))


def test_the_offset_of_a_trace_counts_columns():
    assert run("trace", {"Input": FLOATS}, offset=1).tolist() == [0 * 3 + 1 + 5]
    assert run("trace", {"Input": FLOATS}, offset=1, dim1=1, dim2=0).tolist() == [3]
    assert run("trace", {"Input": FLOATS}, offset=7).tolist() == [0]


def test_both_counts_of_steps_go_on():
    counts = np.array([1, 0, 2, 0, 3, 0, 5])  # two thresholds, of one step each and of both, and the number of steps
    inputs = {"Predict": FLOATS[:1, :2] / 2, "Label": np.ones((1, 1), "int64"), "StatPos": counts, "StatNeg": counts}
    _, positives, negatives = run("auc", inputs, num_thresholds=1, slide_steps=2)
    assert positives.tolist() == [1, 0, 1, 0, 2, 0, 6] and negatives.tolist() == [1, 0, 0, 0, 1, 0, 6]
    for label in (np.ones((1, 1), "int32"), np.ones(1, "int64")):
        others = run("auc", inputs | {"Label": label}, num_thresholds=1, slide_steps=2)
        assert [each.tolist() for each in others[1:]] == [positives.tolist(), negatives.tolist()]


@pytest.mark.parametrize(("slide_steps", "last"), [(2, slice(-2, None)), (0, slice(None))])
def test_the_area_of_the_last_steps_forgets_the_ones_before(slide_steps, last):
    rng = np.random.default_rng(3)
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup):
        x, y = fluid.data("x", [None, 2], "float32"), fluid.data("y", [None, 1], "int64")
        total, recent, _ = layers.auc(x, y, num_thresholds=63, slide_steps=slide_steps)
    executor, scope = fluid.Executor(), fluid.Scope()
    executor.run(startup, scope=scope)

    def area(scores, labels):
        """The share of pairs in the right order, ties counting half, of scores as the buckets tell them apart."""
        scores = (scores * np.float32(63)).astype(int)
        gaps = scores[labels > 0][:, None] - scores[labels == 0]
        return ((gaps > 0) + 0.5 * (gaps == 0)).mean()

    seen = []
    for _ in range(4):
        labels = np.array([0, 1] * 10)
        scores = (0.6 * rng.random(20) + 0.3 * labels).astype("float32")
        seen.append((scores, labels))
        feed = {"x": np.stack([1 - scores, scores], 1), "y": labels[:, None]}
        found = executor.run(main, feed=feed, fetch_list=[total, recent], scope=scope)
        for value, steps in zip(found, (seen, seen[last]), strict=True):
            expected = area(*(np.concatenate(parts) for parts in zip(*steps, strict=True)))
            assert np.allclose(value, [expected], rtol=1e-12)


def test_layers_say_what_they_cannot_take():
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x = fluid.data("x", [2, 3, 4, 4], "float32")
        with pytest.raises(ProgramError, match="pool_type must be max or avg"):
            layers.adaptive_pool2d(x, 2, "mean")
        with pytest.raises(ProgramError, match="stands nowhere"):
            layers.adaptive_pool2d(x, 2, "avg", require_index=True)
        with pytest.raises(ProgramError, match="at least one of min and max"):
            layers.clamp(x)
        with pytest.raises(ProgramError, match="input must be a matrix"):
            layers.t(x)
        with pytest.raises(ProgramError, match="2 shifts for 1 dims"):
            layers.roll(x, [1, 2], 0)
        with pytest.raises(ProgramError, match="batch_shape must be positive"):
            layers.eye(2, batch_shape=[0])
        with pytest.raises(WrongTypeError, match="a list of Variables"):
            layers.meshgrid(x)


def test_a_constant_keeps_the_gradient_flag_that_it_was_given():
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        assert layers.full([2], 1.0).stop_gradient
        assert not layers.full([2], 1.0, stop_gradient=False).stop_gradient


def test_one_number_has_shape_1():
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        rank = layers.rank(fluid.data("x", [2, 3], "float32"))
        assert fluid.Executor().run(feed={}, fetch_list=[rank])[0].tolist() == [2]


def test_whether_elements_are_finite_is_a_bool():
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x = fluid.data("x", [None, 2], "float32")
        answers = [layers.has_inf(x), layers.has_nan(x)]
        assert [(str(each.dtype), each.shape) for each in answers] == [("bool", (1,))] * 2
        found = fluid.Executor().run(feed={"x": np.array([[1, np.inf]], "float32")}, fetch_list=answers)
    assert [(each.dtype, each.tolist()) for each in found] == [("bool", [True]), ("bool", [False])]


def test_a_ranking_of_many_dimensions_has_a_gradient_for_each_sample():
    x, label = np.arange(12.0).reshape(2, 2, 3) ** 1.5 / 9, np.array([[[0], [1]], [[2], [1]]])
    cotangent = np.array([1.0, -2.0, 0.5, 3.0])
    found = gradient("bpr_loss", {"X": x, "Label": label}, "X", of="Y", cotangent=cotangent.reshape(2, 2, 1))
    inputs = {"X": x.reshape(4, 3), "Label": label.reshape(4, 1)}
    expected = gradient("bpr_loss", inputs, "X", of="Y", cotangent=cotangent.reshape(4, 1))
    assert np.array_equal(found.reshape(4, 3), expected)


def test_a_ranking_needs_two_classes():
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x, label = fluid.data("x", [None, 1], "float32"), fluid.data("label", [None, 1], "int64")
        with pytest.raises(OpError, match="at least two classes"):
            layers.bpr_loss(x, label)


@pytest.mark.parametrize("shape", [[None], [None, 1], []])
def test_labels_of_pairs_have_a_known_size(shape):
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x, labels = fluid.data("x", [None, 3]), fluid.data("labels", shape, "int64")
        with pytest.raises(ProgramError, match="npair_loss: the number of labels must be known, got labels") as error:
            layers.npair_loss(x, x, labels)
        assert "fluid.data('labels', [32], 'int64')" in str(error.value)
        assert layers.npair_loss(x, x, fluid.data("some", [4, 1], "int64")).shape == (1,)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_lengths_may_have_fractions(dtype):
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x = fluid.data("x", [None], dtype)
        masks = [layers.sequence_mask(x), layers.sequence_mask(x, maxlen=2, dtype="float32")]
        found = fluid.Executor().run(feed={"x": np.array([1, 2.5, 3, 0], dtype)}, fetch_list=masks)
    # What Paddle 1.8.5 gives.
    assert found[0].tolist() == [[1, 0, 0], [1, 1, 1], [1, 1, 1], [0, 0, 0]]
    assert found[1].tolist() == [[1, 0], [1, 1], [1, 1], [0, 0]]
    with fluid.program_guard(fluid.Program()), pytest.raises(OpError, match="must hold numbers"):
        layers.sequence_mask(fluid.data("x", [None], "bool"))
