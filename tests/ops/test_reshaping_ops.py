"""Edge facts about changing shapes: where the original was asked, its answers are given."""

import numpy as np
import pytest
from one_op import append, gradient, run

import minigraph as fluid
from minigraph import layers
from minigraph.errors import ExecutionError, OpError, ProgramError, WrongTypeError
from minigraph.kernels import find_kernel

X = np.arange(24, dtype="float32").reshape(2, 3, 4)
ONES = np.arange(12, dtype="float32").reshape(1, 3, 1, 4)


def kernel(type):
    return find_kernel(type, "cpu").function


def numbers(*values):
    return [np.array([value], "int32") for value in values]


def run_several(type, inputs, count, slot="Out", **attrs):
    """What an operator with `count` results in one slot computes."""
    program, feed = fluid.Program(), {}
    block, given = program.global_block(), {}
    for name, arrays in inputs.items():
        given[name] = []
        for i, array in enumerate(arrays if isinstance(arrays, list) else [arrays]):
            given[name].append(block.create_var(name=f"{name}_{i}", shape=array.shape, dtype=array.dtype))
            feed[f"{name}_{i}"] = array
    outputs = [block.create_var(name=f"out_{i}") for i in range(count)]
    block.append_op(type, given, {slot: outputs}, attrs)
    return fluid.Executor().run(program, feed=feed, fetch_list=outputs)


# Dimensions of size 1


@pytest.mark.parametrize(
    ("axes", "shape"),
    [([], (3, 4)), ([0], (3, 1, 4)), ([0, 2], (3, 4)), ([-2], (1, 3, 4)), ([0, 0], (3, 1, 4)), ([-4, 2], (3, 4))],
)
def test_dimensions_are_squeezed_as_in_the_original(axes, shape):
    y = run("squeeze2", {"X": ONES}, axes=axes)[0]
    assert y.shape == shape and y.tobytes() == ONES.tobytes()
    assert gradient("squeeze2", {"X": ONES}, "X", axes=axes).shape == ONES.shape


def test_a_tensor_of_one_element_can_lose_all_its_dimensions():
    assert run("squeeze2", {"X": np.ones((1, 1))}, axes=[])[0].shape == ()


def test_an_unknown_dimension_can_be_squeezed_by_name_only():
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x = fluid.data("x", [None, 3, None])
        assert layers.squeeze(x, [0, 2]).shape == (3,)
        assert layers.squeeze(x, []).shape == (-1, 3, -1)


@pytest.mark.parametrize(
    ("axes", "message"), [([1], "dimension 1 of X has 3 elements"), ([4], r"in \[-4, 4\), got 4"), ([-5], "got -5")]
)
def test_what_cannot_be_squeezed_is_refused(axes, message):
    with pytest.raises(OpError, match=message):
        append("squeeze2", {"X": ONES}, axes=axes)


@pytest.mark.parametrize(
    ("axes", "shape"),
    [
        ([0], (1, 2, 3)),
        ([-1], (2, 3, 1)),
        ([0, 2], (1, 2, 1, 3)),
        ([2, 0], (1, 2, 3, 1)),
        ([1, 1], (2, 1, 1, 3)),
        ([-3], (1, 2, 3)),
        ([0, -1], (1, 2, 3, 1)),
        ([1, 0], (1, 2, 1, 3)),
    ],
)
def test_dimensions_are_put_in_one_after_the_other_as_in_the_original(axes, shape):
    x = X[0, :2, :3]
    assert run("unsqueeze2", {"X": x}, axes=axes)[0].shape == shape
    assert run("unsqueeze2", {"X": x, "AxesTensorList": numbers(*axes)})[0].shape == shape
    assert run("unsqueeze2", {"X": x, "AxesTensor": np.array(axes, "int32")})[0].shape == shape
    # The attribute comes first.
    assert run("unsqueeze2", {"X": x, "AxesTensor": np.array([0], "int32")}, axes=axes)[0].shape == shape


@pytest.mark.parametrize("axes", [[3], [-4], [0, 4]])
def test_a_dimension_beyond_the_end_is_refused(axes):
    with pytest.raises(OpError, match="each of axes must be in"):
        append("unsqueeze2", {"X": X[0]}, axes=axes)
    with pytest.raises(ExecutionError, match="each of axes must be in"):
        run("unsqueeze2", {"X": X[0], "AxesTensorList": numbers(*axes)})


@pytest.mark.parametrize(("axis", "shape"), [(0, (1, 24)), (1, (2, 12)), (2, (6, 4)), (3, (24, 1))])
def test_a_tensor_becomes_a_matrix(axis, shape):
    assert np.array_equal(run("flatten2", {"X": X}, axis=axis)[0], X.reshape(shape))


def test_an_axis_outside_of_the_tensor_does_not_flatten_it():
    for axis in (4, -1):
        with pytest.raises(OpError, match=r"axis must be in \[0, 3\]"):
            append("flatten2", {"X": X}, axis=axis)


def test_no_row_stays_no_row():
    assert run("flatten2", {"X": np.zeros((0, 3, 4), "float32")})[0].shape == (0, 12)


def test_new_shapes_are_views():
    for type, attrs in [("squeeze2", {"axes": []}), ("unsqueeze2", {"axes": [1]}), ("flatten2", {"axis": 2})]:
        more = (None, None) if type == "unsqueeze2" else ()
        y, x_shape = kernel(type)(np, ONES, *more, **attrs)
        assert np.shares_memory(y, ONES) and find_kernel(type, "cpu").view_of == 0
        assert np.shares_memory(kernel(f"{type}_grad")(np, x_shape, y), ONES)


# Pieces


@pytest.mark.parametrize(
    ("attrs", "widths"),
    [
        ({"num": 2, "axis": 1}, [3, 3]),
        ({"num": 3, "axis": -1}, [2, 2, 2]),
        ({"sections": [1, -1], "axis": 1}, [1, 5]),
        ({"sections": [2, 4], "axis": 1}, [2, 4]),
        ({"sections": [1, 5], "num": 2, "axis": 1}, [3, 3]),
        ({"sections": [6, -1], "axis": 1}, [6, 0]),
    ],
)
def test_a_tensor_is_cut_where_the_original_cuts_it(attrs, widths):
    x = np.arange(12, dtype="float32").reshape(2, 6)
    pieces = run_several("split", {"X": x}, len(widths), **attrs)
    assert [piece.shape[1] for piece in pieces] == widths
    assert np.array_equal(np.concatenate(pieces, 1), x)


def test_tensors_say_at_run_time_where_to_cut():
    x = np.arange(12, dtype="float32").reshape(2, 6)
    pieces = run_several("split", {"X": x, "AxisTensor": np.array([1])}, 2, num=2)
    assert [piece.shape for piece in pieces] == [(2, 3), (2, 3)]
    pieces = run_several("split", {"X": x, "SectionsTensorList": numbers(2, -1)}, 2, sections=[-1, -1], axis=1)
    assert [piece.shape for piece in pieces] == [(2, 2), (2, 4)]
    with pytest.raises(ExecutionError, match="add up to 5, but the dimension has 6"):
        run_several("split", {"X": x, "SectionsTensorList": numbers(2, 3)}, 2, sections=[-1, -1], axis=1)


def test_the_gradient_of_pieces_that_tensors_cut_is_put_together():
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x = fluid.data("x", [2, 6])
        x.stop_gradient = False
        axis = layers.fill_constant([1], "int32", 1)
        left, right = layers.split(x, [2, layers.fill_constant([1], "int32", 4)], dim=axis)
        (grad,) = fluid.gradients([layers.reduce_sum(left), layers.reduce_sum(right * 3.0)], [x])
        (found,) = fluid.Executor().run(feed={"x": np.zeros((2, 6), "float32")}, fetch_list=[grad])
    assert found.tolist() == [[1, 1, 3, 3, 3, 3]] * 2


def test_a_piece_that_nothing_uses_gets_no_gradient():
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x = fluid.data("x", [4])
        x.stop_gradient = False
        first, _ = layers.split(x, 2, dim=0)
        second = layers.unstack(x)[1]
        found = [
            fluid.Executor().run(feed={"x": np.ones(4, "float32")}, fetch_list=fluid.gradients([y], [x]))[0]
            for y in (first, second)
        ]
    assert [grad.tolist() for grad in found] == [[1, 1, 0, 0], [0, 1, 0, 0]]


@pytest.mark.parametrize(
    ("attrs", "message"),
    [
        ({}, "neither num nor sections"),
        ({"num": 5, "axis": 1}, "6 elements cannot be split into 5 equal pieces"),
        ({"sections": [1, 4], "axis": 1}, "add up to 5, but the dimension has 6"),
        ({"sections": [-1, -1]}, "only one may be -1"),
        ({"sections": [-2, 8]}, "none less"),
        ({"sections": [7, -1], "axis": 1}, "more than the 6 elements"),
        ({"num": 2, "axis": 2}, r"axis must be in \[-2, 2\)"),
    ],
)
def test_cuts_that_do_not_fit_are_refused(attrs, message):
    x = np.arange(12, dtype="float32").reshape(2, 6)
    with pytest.raises(OpError, match=message):
        run_several("split", {"X": x}, 2, **attrs)


@pytest.mark.parametrize("axis", [0, 1, 2, -1, -3])
def test_stacking_and_its_reverse_are_numpys(axis):
    xs = [X[0], X[1] * 2]
    y = run("stack", {"X": xs}, axis=axis)
    assert np.array_equal(y, np.stack(xs, axis))
    back = run_several("unstack", {"X": y}, 2, slot="Y", axis=axis, num=2)
    assert all(map(np.array_equal, back, xs))


def test_what_does_not_stack_is_refused():
    with pytest.raises(OpError, match=r"X\[0\] and X\[1\] must have equal shapes"):
        append("stack", {"X": [X, X[0]]})
    for axis in (4, -5):
        with pytest.raises(OpError, match="axis must be in"):
            append("stack", {"X": [X]}, axis=axis)
    with pytest.raises(OpError, match="num is 3 but dimension 0 of X has 2 elements"):
        append("unstack", {"X": X}, num=3)
    with pytest.raises(OpError, match="num must be positive"):
        append("unstack", {"X": X}, num=0)


def test_the_number_of_slices_has_to_be_known():
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x = fluid.data("x", [None, 3])
        assert [y.shape for y in layers.unstack(x, 1)] == [(-1,)] * 3
        assert [y.shape for y in layers.unstack(x, 0, num=2)] == [(3,)] * 2
        with pytest.raises(ProgramError, match="no known number of slices along 0"):
            layers.unstack(x)
        first, _ = layers.unstack(x, 0, num=2)
        for executor, kind in ((fluid.Executor(), OpError), (fluid.Interpreter(), ExecutionError)):
            with pytest.raises(kind, match="num is 2 but dimension 0 of X has 3 elements"):
                executor.run(feed={"x": np.ones((3, 3), "float32")}, fetch_list=[first])


# Repetition and padding


@pytest.mark.parametrize("times", [[1, 1, 1], [2, 1, 1], [1, 3, 2], [2, 2, 2]])
def test_repetition_is_numpys_tile(times):
    expected = np.tile(X, times)
    assert np.array_equal(run("expand", {"X": X}, expand_times=times), expected)
    assert np.array_equal(run("expand", {"X": X, "ExpandTimes": np.array(times, "int32")}), expected)
    assert np.array_equal(run("expand", {"X": X, "expand_times_tensor": numbers(*times)}), expected)
    assert np.array_equal(run("expand_as", {"X": X, "target_tensor": np.zeros_like(expected)}), expected)
    cotangent = np.arange(expected.size, dtype="float64").reshape(expected.shape)
    apart = cotangent.reshape([n for pair in zip(times, X.shape, strict=True) for n in pair])
    found = gradient("expand", {"X": X.astype("float64")}, "X", cotangent=cotangent, expand_times=times)
    assert np.array_equal(found, apart.sum((0, 2, 4)))


def test_repetition_is_a_copy():
    assert not np.shares_memory(kernel("expand")(np, X, None, None, expand_times=[1, 1, 1]), X)
    y = kernel("expand")(np, X, None, None, expand_times=[2, 1, 1])
    y[0] = 7
    assert (y[2] == X[0]).all()


@pytest.mark.parametrize(
    ("type", "inputs", "attrs", "message"),
    [
        ("expand", {"X": X}, {"expand_times": [2, 1]}, r"X has 3 dimensions but expand_times is \[2, 1\]"),
        ("expand", {"X": X}, {"expand_times": [0, 1, 1]}, "expand_times must be positive"),
        ("expand", {"X": X, "ExpandTimes": np.array([2, 1])}, {}, "but there are 2 expand_times"),
        ("expand_as", {"X": X, "target_tensor": X[:1]}, {}, "dimension 0 of target_tensor, 1, is no multiple"),
        ("expand_as", {"X": X, "target_tensor": X[0]}, {}, "must have as many dimensions"),
        ("pad", {"X": X}, {"paddings": [1]}, "paddings must be two for each of 3 dimensions"),
        ("pad", {"X": X}, {"paddings": [0, 0, 0, 0, -1, 0]}, "paddings must not be negative"),
        ("pad", {"X": np.array([1])}, {"paddings": [1, 0], "pad_value": np.inf}, "is no integer"),
    ],
)
def test_repetition_and_padding_that_make_no_sense_are_refused(type, inputs, attrs, message):
    with pytest.raises(OpError, match=message):
        append(type, inputs, **attrs)


def test_how_often_to_repeat_is_checked_at_run_time_too():
    with pytest.raises(ExecutionError, match="expand_times must be 3 positive numbers"):
        run("expand", {"X": X, "ExpandTimes": np.array([2, 0, 1])})


def test_padding_is_numpys():
    paddings = [1, 0, 0, 2, 1, 1]
    expected = np.pad(X, [(1, 0), (0, 2), (1, 1)], constant_values=-1.5)
    assert np.array_equal(run("pad", {"X": X}, paddings=paddings, pad_value=-1.5), expected)
    assert run("pad", {"X": np.array([5])}, paddings=[1, 1], pad_value=-1.7).tolist() == [-1, 5, -1]
    d_out = np.arange(expected.size, dtype="float32").reshape(expected.shape)
    assert np.array_equal(gradient("pad", {"X": X}, "X", cotangent=d_out, paddings=paddings), d_out[1:, :3, 1:5])
    assert np.shares_memory(kernel("pad_grad")(np, d_out, paddings=paddings), d_out)


# Layers


def test_layers_name_and_write_what_the_original_does():
    program = fluid.Program()
    with fluid.program_guard(program, fluid.Program()), fluid.unique_name.guard():
        x, i = fluid.data("x", [4, 5, 6]), fluid.data("i", [1], "int32")
        layers.split(x, [1, i], dim=1)
        layers.unsqueeze(x, [0, 2])
        layers.unsqueeze(x, i)
        layers.expand(x, [1, i, 1])
    lines = [line.strip().split(" = ") for line in str(program).splitlines()[3:]]
    one = "fill_constant() {dtype=int32, shape=[1], value=1.0, str_value='1', force_cpu=True}"
    assert [line[-1] for line in lines] == [
        one, "split(X=x, SectionsTensorList=[split_0.tmp_0, i]) {sections=[1, -1], axis=1}",
        "unsqueeze2(X=x) {axes=[0, 2]}", "unsqueeze2(X=x, AxesTensor=i)",
        one, one, "expand(X=x, expand_times_tensor=[expand_0.tmp_0, i, expand_0.tmp_1]) {expand_times=[1, -1, 1]}",
    ]  # fmt: skip
    assert [line[0] for line in lines] == [
        "split_0.tmp_0: int32[1] {stop_gradient=True}",
        "[split_0.tmp_1: float32[4, -1, 6], split_0.tmp_2: float32[4, -1, 6]]",
        "Out=unsqueeze2_0.tmp_0: float32[1, 4, 1, 5, 6], XShape=unsqueeze2_0.tmp_1: float32[0, 4, 5, 6]",
        "Out=unsqueeze2_1.tmp_0: float32[-1, -1, -1, -1], XShape=unsqueeze2_1.tmp_1: float32[0, 4, 5, 6]",
        "expand_0.tmp_0: int32[1] {stop_gradient=True}", "expand_0.tmp_1: int32[1] {stop_gradient=True}",
        "expand_0.tmp_2: float32[-1, -1, -1]",
    ]  # fmt: skip


def test_arguments_of_the_wrong_kind_are_refused():
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x = fluid.data("x", [4, 5])
        for call in (
            lambda: layers.squeeze(x, 0),
            lambda: layers.unsqueeze(x, "0"),
            lambda: layers.split(x, "2"),
            lambda: layers.expand(x, [1, 2.5]),
            lambda: layers.stack([x, 3]),
        ):
            with pytest.raises(WrongTypeError):
                call()


# Paddle 2's functions


def test_functions_of_tensors_agree_with_numpy():
    x = fluid.to_tensor(X)
    pairs = [
        (fluid.tile(x, [2, 1]), np.tile(X, [2, 1])), (fluid.tile(x, [2, 1, 1, 3]), np.tile(X, [2, 1, 1, 3])),
        (x[:1].expand(5, -1, -1), np.broadcast_to(X[:1], (5, 3, 4))),
        (x[0, 0].expand_as(x), np.broadcast_to(X[0, 0], X.shape)),
        (fluid.stack([x, x], -1), np.stack([X, X], -1)), (x.unsqueeze([0, -1]), X[None, ..., None]),
        (x[:1].squeeze(), X[0]), (x.squeeze(1), X), (x.split([1, -1], 1)[1], X[:, 1:]), (x.chunk(2)[1], X[1:]),
        (x.unbind(2)[3], X[..., 3]), (x.flip([0, -1]), X[::-1, :, ::-1]),
    ]  # fmt: skip
    for found, expected in pairs:
        assert found.shape == expected.shape and np.array_equal(found.numpy(), expected)


def test_a_tensor_is_not_repeated_to_a_shape_that_does_not_fit():
    x = fluid.to_tensor(X)
    for shape in ([2, 3, 5], [3, 4], [-1, 2, 3, 4], [3, 3, 4]):
        with pytest.raises(ProgramError, match="cannot be repeated to the shape"):
            fluid.expand(x, shape)
