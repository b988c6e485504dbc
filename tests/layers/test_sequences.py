"""Operators on sequences of different lengths: gradients against central differences, laws, and errors."""

import numpy as np
import pytest
from jit_support import needs_numba
from lengths import check_gradient, run_both, tensor

import minigraph as fluid
from minigraph import layers
from minigraph.errors import ExecutionError, OpError, ProgramError, WrongTypeError
from minigraph.kernels.sequence_rows import TimeSteps
from minigraph.layer_helper import LayerHelper, emit

pytestmark = pytest.mark.usefixtures("new_program")

LENGTHS = [[3, 1, 4, 2], [2, 0, 3, 0], [1, 1], [4]]


def data(name, array):
    """A variable for an array or a LoDTensor, with a gradient if it is float64."""
    levels = len(array.lod()) if isinstance(array, fluid.LoDTensor) else 0
    values = np.array(array)
    var = fluid.data(name, [None, *values.shape[1:]] if levels else values.shape, str(values.dtype), lod_level=levels)
    var.stop_gradient = values.dtype != np.float64
    return var


def numbers(*shape, seed=5):
    return np.random.default_rng(seed).uniform(-0.7, 0.7, shape)


def check(build, **feed):
    """The gradients of what `build` makes of variables that hold `feed`."""
    result = build(**{name: data(name, array) for name, array in feed.items()})
    check_gradient(result, feed, [name for name, array in feed.items() if np.array(array).dtype == np.float64])


ON_ROWS = {
    "softmax": lambda x: layers.sequence_softmax(layers.reduce_sum(x, -1, keep_dim=True)),
    "reverse": layers.sequence_reverse,
    "reverse_twice": lambda x: layers.square(layers.sequence_reverse(layers.sequence_reverse(x))),
    "reshape": lambda x: layers.sequence_reshape(x, 1),
    "concat": lambda x: layers.sequence_concat([x, layers.square(x)]),
    "pad": lambda x: layers.sequence_pad(x, layers.fill_constant([1], "float64", 0.5), 5)[0],
    "reset": lambda x: layers.lod_reset(x, x),
    "steps": lambda x: layers.array_to_lod_tensor(*through_array(x)),
}


def through_array(x):
    table = layers.lod_rank_table(x)
    return layers.lod_tensor_to_array(x, table), table


@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
@pytest.mark.parametrize("name", ON_ROWS)
def test_the_gradient_of_a_layer_is_the_central_difference(name, lengths):
    check(ON_ROWS[name], x=tensor(lengths, 2, dtype="float64"))


@pytest.mark.laws
@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
@pytest.mark.parametrize("start", [-3, -1, 0, 2])
def test_the_gradients_of_sequence_conv_are_central_differences(lengths, start):
    def conv(x, w):
        return emit("sequence_conv", X=x, Filter=w, contextLength=3, contextStart=start, contextStride=1)

    check(conv, x=tensor(lengths, 2, dtype="float64"), w=numbers(6, 2))


@pytest.mark.parametrize("lengths", [[3, 1, 4], [2, 0, 1]], ids=str)
def test_the_gradients_of_row_conv_are_central_differences(lengths):
    check(lambda x, w: emit("row_conv", X=x, Filter=w), x=tensor(lengths, 2, dtype="float64"), w=numbers(3, 2))


@pytest.mark.slow
def test_the_gradients_of_matches_are_central_differences():
    x, y = tensor([3, 1, 0, 2], 2, dtype="float64"), tensor([2, 4, 1, 1], 3, dtype="float64")
    check(lambda x, y, w: emit("match_matrix_tensor", X=x, Y=y, W=w, dim_t=2), x=x, y=y, w=numbers(2, 2, 3))


def test_matches_need_as_many_sequences_of_both():
    feed = {"x": tensor([2, 1], 3), "y": tensor([3], 3), "w": np.ones((3, 2, 3), "float32")}
    x, y, w = (data(name, value) for name, value in feed.items())
    with pytest.raises(ExecutionError, match="X has 2 sequences, but Y has 1"):
        run_both(emit("match_matrix_tensor", X=x, Y=y, W=w, dim_t=2), feed=feed)


def images(heights, widths, channels=2):
    """Images of different sizes with the lengths of their rows and columns, and elements that all differ."""
    rows = [channels * a * b for a, b in zip(heights, widths, strict=True)]
    x = tensor(rows, 1, dtype="float64")
    x.set(np.random.default_rng(3).permutation(sum(rows)).reshape(-1, 1) / 7.0, fluid.CPUPlace())
    x.set_recursive_sequence_lengths([rows])
    return {"x": x, "row": tensor(heights, 1), "col": tensor(widths, 1)}


SIZES = [([2, 1, 3], [3, 2, 1]), ([2, 0, 3, 1], [3, 2, 0, 2]), ([5], [4])]


@pytest.mark.slow
@pytest.mark.parametrize(("heights", "widths"), SIZES, ids=str)
@pytest.mark.parametrize(("kernel", "stride"), [((3, 2), (1, 2)), ((1, 5), (2, 1)), ((2, 2), (3, 3))], ids=str)
def test_the_gradients_of_a_convolution_over_images_of_several_sizes_are_central_differences(
    heights, widths, kernel, stride
):
    words = {"InputChannel": 2, "OutputChannel": 3, "StrideH": stride[0], "StrideW": stride[1]}
    words |= {"KernelH": kernel[0], "KernelW": kernel[1]}
    weight = numbers(3, 2 * kernel[0] * kernel[1])

    def conv(x, row, col, w):
        return emit("var_conv_2d", X=x, ROW=row, COLUMN=col, W=w, **words)

    check(conv, **images(heights, widths), w=weight)


@pytest.mark.parametrize("size", [1, 2, 3, 5])
@pytest.mark.parametrize("stride", [1, 2, 4])
def test_a_convolution_over_images_of_several_sizes_is_that_of_each_image(size, stride):
    fed = images([4, 3], [5, 1])
    weight, found = numbers(3, 2 * size * size), {}
    x, row, col, w = (data(name, value) for name, value in {**fed, "w": weight}.items())
    words = {"StrideH": stride, "StrideW": stride, "KernelH": size, "KernelW": size}
    result = emit("var_conv_2d", X=x, ROW=row, COLUMN=col, W=w, InputChannel=2, OutputChannel=3, **words)
    found = np.array(run_both(result, feed={**fed, "w": weight})[0])
    offsets, expected = fed["x"].lod()[0], []
    before, after = size // 2, size - 1 - size // 2
    for i, shape in enumerate([(4, 5), (3, 1)]):
        image = np.array(fed["x"])[offsets[i] : offsets[i + 1]].reshape(2, *shape)
        image = np.pad(image, ((0, 0), (before, after), (before, after)))
        windows = np.lib.stride_tricks.sliding_window_view(image, (size, size), (1, 2))[:, ::stride, ::stride]
        expected.append(np.einsum("ocij,cyxij->oyx", weight.reshape(3, 2, size, size), windows).reshape(-1, 1))
    np.testing.assert_allclose(found, np.concatenate(expected), atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize(("heights", "widths"), SIZES, ids=str)
@pytest.mark.parametrize("topks", [[1], [1, 3], [2, 4, 9]], ids=str)
def test_the_gradient_of_means_of_the_largest_is_the_central_difference(heights, widths, topks):
    def pooled(x, row, col):
        return emit("sequence_topk_avg_pooling", X=x, ROW=row, COLUMN=col, topks=topks, channel_num=2)

    check(pooled, **images(heights, widths))


def test_a_row_that_is_not_finite_has_means_that_are_not():
    fed = {"x": tensor([6], 1), "row": tensor([2], 1), "col": tensor([3], 1)}
    fed["x"].set(np.array([[1], [np.nan], [2], [-np.inf], [4], [-np.inf]], "float32"), fluid.CPUPlace())
    fed["x"].set_recursive_sequence_lengths([[6]])
    x, row, col = (data(name, value) for name, value in fed.items())
    result = emit("sequence_topk_avg_pooling", X=x, ROW=row, COLUMN=col, topks=[1, 2], channel_num=1)
    found = np.array(run_both(result, feed=fed)[0])
    assert np.array_equal(found, np.array([[np.nan, np.nan], [4, -np.inf]], "float32"), equal_nan=True)


def test_images_need_a_row_and_a_column_for_their_pixels():
    fed = {"x": tensor([6, 5], 1), "row": tensor([2, 2], 1), "col": tensor([3, 3], 1), "w": np.ones((1, 1), "float32")}
    x, row, col, w = (data(name, value) for name, value in fed.items())
    words = {"InputChannel": 1, "OutputChannel": 1}
    with pytest.raises(ExecutionError, match="image 1 of X has 5 elements, but 1 channels of 2 x 3 pixels"):
        run_both(emit("var_conv_2d", X=x, ROW=row, COLUMN=col, W=w, **words), feed=fed)
    with pytest.raises(ExecutionError, match="X has 2 images, but ROW has 1 sequences and COLUMN 2"):
        run_both(emit("var_conv_2d", X=x, ROW=row, COLUMN=col, W=w, **words), feed={**fed, "row": tensor([4], 1)})
    with pytest.raises(OpError, match=r"topks must be positive and increasing, got \[2, 1\]"):
        emit("sequence_topk_avg_pooling", X=x, ROW=row, COLUMN=col, topks=[2, 1], channel_num=1)


@pytest.mark.parametrize(("is_lod", "wanted"), [(True, [1]), (True, [5]), (False, [1, 3]), (False, [0])], ids=str)
def test_the_gradient_of_samples_with_some_tags_is_the_central_difference(is_lod, wanted):
    tags = tensor([2, 0, 1], 1, dtype="int64")
    tags.set(np.array([[0], [1], [3]]), fluid.CPUPlace())
    tags.set_recursive_sequence_lengths([[2, 0, 1]])

    def kept(x, tags, wanted):
        return layers.filter_by_instag(x, tags, wanted, is_lod)[0]

    x = tensor([2, 1, 3], 2, dtype="float64") if is_lod else numbers(3, 2)
    check(kept, x=x, tags=tags, wanted=np.array(wanted))


def test_one_sample_with_the_place_of_an_empty_result_keeps_its_gradient():
    """The row of IndexMap is that of an empty result then; the weight tells them apart."""
    tags = tensor([1, 1], 1, dtype="int64")
    tags.set(np.array([[0], [1]]), fluid.CPUPlace())
    tags.set_recursive_sequence_lengths([[1, 1]])
    check(
        lambda x, tags, wanted: layers.filter_by_instag(x, tags, wanted, False)[0],
        x=numbers(2, 2), tags=tags, wanted=np.array([1]),
    )  # fmt: skip


@pytest.mark.parametrize(("wanted", "expected"), [(1, [[1]]), (5, [[0]])])
def test_the_weights_of_samples_are_float32(wanted, expected):
    fed = {"x": numbers(2, 3), "tags": tensor([1, 1], 1, dtype="int64"), "wanted": np.array([wanted])}
    fed["tags"].set(np.array([[0], [1]]), fluid.CPUPlace())
    fed["tags"].set_recursive_sequence_lengths([[1, 1]])
    _, weight = layers.filter_by_instag(*(data(name, value) for name, value in fed.items()), False)
    assert weight.dtype == fluid.core.VarDesc.VarType.FP32
    (found,) = run_both(weight, feed=fed)
    assert np.array_equal(found, np.array(expected, "float32")) and not found.lod()


def test_samples_need_as_many_sequences_of_tags():
    fed = {"x": tensor([1, 2], 2), "tags": tensor([1], 1, dtype="int64"), "wanted": np.array([1])}
    out, weight = layers.filter_by_instag(*(data(name, value) for name, value in fed.items()), True)
    with pytest.raises(ExecutionError, match="Ins has 2 samples, but Ins_tag has 1 sequences"):
        run_both(out, feed=fed)
    with pytest.raises(ExecutionError, match="Ins has no sequences"):
        run_both(weight, feed={**fed, "x": np.ones((1, 2), "float32")})


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [None, [[4, 5], [3, 3], [2, 4]]], ids=["whole", "sizes"])
def test_the_gradient_of_windows_of_images_is_the_central_difference(sizes):
    words = {"filter_size": 2, "stride": [1, 2], "padding": [1, 0, 0, 0]}
    if sizes is None:
        check(lambda x: layers.im2sequence(x, **words), x=numbers(3, 2, 4, 5))
    else:
        given = {"x": numbers(3, 2, 4, 5), "s": np.array(sizes, "float32")}
        check(lambda x, s: layers.im2sequence(x, **words, input_image_size=s), **given)


def test_sizes_of_images_that_are_larger_than_the_images_are_refused():
    x, sizes = data("x", numbers(1, 1, 4, 4)), data("s", np.array([[5.0, 4.0]], "float32"))
    feed = {"x": numbers(1, 1, 4, 4), "s": np.array([[5.0, 4.0]], "float32")}
    with pytest.raises(ExecutionError, match="Y has images of up to"):
        run_both(layers.im2sequence(x, 2, input_image_size=sizes), feed=feed)


@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
def test_positions_begin_anew_with_each_sequence(lengths):
    check(lambda x: layers.add_position_encoding(x, 0.5, 2.0), x=tensor(lengths, 4, dtype="float64"))


def test_the_gradients_of_expanding_are_central_differences():
    y = tensor([[2, 0, 3], [1, 1, 1, 2, 1]], 1)
    check(lambda x, y: layers.sequence_expand(x, y, 0), x=tensor([2, 1, 0], 2, dtype="float64"), y=y)


def test_the_gradients_of_expanding_rows_are_central_differences():
    check(lambda x, y: layers.sequence_expand(x, y), x=numbers(3, 2), y=tensor([2, 0, 3], 1))


def test_the_gradient_of_expanding_as_is_the_central_difference():
    check(lambda x, y: layers.sequence_expand_as(x, y), x=numbers(3, 2), y=tensor([2, 0, 3], 1))


def test_the_gradient_of_slicing_is_the_central_difference():
    offset, length = np.array([[1], [0], [2]]), np.array([[2], [0], [1]])
    given = {"x": tensor([3, 2, 4], 2, dtype="float64"), "offset": offset, "length": length}
    check(lambda x, offset, length: layers.sequence_slice(x, offset, length), **given)


@pytest.mark.slow
def test_the_gradient_of_removing_padding_is_the_central_difference():
    given = {"x": numbers(3, 4, 2), "length": np.array([4, 0, 2])}
    check(lambda x, length: layers.sequence_unpad(x, length), **given)


def test_the_gradients_of_scattering_are_central_differences():
    ids = fluid.create_lod_tensor(np.array([[0], [2], [0], [1]]), [[3, 1]], fluid.CPUPlace())
    given = {"x": numbers(2, 3), "i": ids, "u": tensor([3, 1], 1, dtype="float64")}
    check(lambda x, i, u: layers.sequence_scatter(x, i, u), **given)


@pytest.mark.laws
@pytest.mark.parametrize("is_reverse", [False, True])
@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
def test_the_gradients_of_lstm_are_central_differences(lengths, is_reverse):
    def both(x, h, c, w, b):
        given = {"Input": x, "H0": h, "C0": c, "Weight": w, "Bias": b}
        hidden, cell, *_ = LayerHelper("lstm").emit_all("lstm", **given, is_reverse=is_reverse)
        return layers.concat([hidden, cell], 1)

    count = len(lengths)
    given = {"x": tensor(lengths, 8, dtype="float64"), "h": numbers(count, 2), "c": numbers(count, 2)}
    check(both, **given, w=numbers(2, 8), b=numbers(1, 14))


@pytest.mark.laws
@pytest.mark.parametrize("activation", ["sigmoid", "tanh", "relu", "identity"])
@pytest.mark.parametrize("lengths", [[3, 1, 2], [2, 0, 3]], ids=str)
def test_the_gradients_of_lstmp_are_central_differences(activation, lengths):
    def both(x, h, c, w, p, b):
        given = {"Input": x, "H0": h, "C0": c, "Weight": w, "ProjWeight": p, "Bias": b}
        attrs = {"proj_activation": activation, "cell_clip": 0.6, "proj_clip": 0.4, "use_peepholes": False}
        projected, cell, *_ = LayerHelper("lstmp").emit_all("lstmp", **given, **attrs)
        return layers.concat([projected, cell], 1)

    given = {"x": tensor(lengths, 8, dtype="float64"), "h": numbers(3, 3), "c": numbers(3, 2)}
    check(both, **given, w=numbers(3, 8), p=numbers(2, 3), b=numbers(1, 8))


@pytest.mark.laws
@pytest.mark.parametrize("origin_mode", [False, True])
@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
def test_the_gradients_of_gru_are_central_differences(lengths, origin_mode):
    def gru(x, h, w, b):
        given = {"Input": x, "H0": h, "Weight": w, "Bias": b}
        return LayerHelper("gru").emit_all("gru", **given, origin_mode=origin_mode)[-1]

    given = {"x": tensor(lengths, 6, dtype="float64"), "h": numbers(len(lengths), 2)}
    check(gru, **given, w=numbers(2, 6), b=numbers(1, 6))


def test_a_dynamic_network_computes_what_a_loop_over_each_sequence_does():
    x = data("x", tensor([2, 3, 1], 2))
    rnn = layers.DynamicRNN()
    with rnn.block():
        row, before = rnn.step_input(x), rnn.memory(shape=[2], value=1.0)
        after = before * 0.5 + row
        rnn.update_memory(before, after)
        rnn.output(after)
    given = tensor([2, 3, 1], 2)
    (found,) = run_both(rnn(), feed={"x": given})
    expected = []
    for sequence in np.split(np.array(given), [2, 5]):
        state = np.ones(2, "float32")
        for entry in sequence:
            state = state * np.float32(0.5) + entry
            expected.append(state)
    np.testing.assert_allclose(np.array(found), expected, rtol=1e-6)
    assert found.lod() == given.lod()


@pytest.mark.slow
def test_the_gradients_of_a_dynamic_network_are_central_differences():
    def network(x, start, fixed):
        rnn = layers.DynamicRNN()
        with rnn.block():
            row, seen, before = rnn.step_input(x), rnn.static_input(fixed), rnn.memory(start, need_reorder=True)
            after = layers.tanh(before * row + seen)
            rnn.update_memory(before, after)
            rnn.output(after)
        return rnn()

    check(network, x=tensor([2, 3, 1], 2, dtype="float64"), start=numbers(3, 2), fixed=numbers(3, 2, seed=6))


def test_an_order_of_time_is_found_once_for_all_layers_and_gradients():
    offsets = np.array([0, 2, 2, 5])
    steps, again = TimeSteps.of(offsets), TimeSteps.of(offsets.copy())
    assert steps is again and steps is not TimeSteps.of(offsets, is_reverse=True)
    assert steps.rows.tolist() == [2, 0, 3, 1, 4] and steps.before.tolist() == [0, 1, 2]
    offsets[1] = 1  # in place: the same array holds other sequences
    assert TimeSteps.of(offsets).rows.tolist() == [2, 0, 1, 3, 4]


def test_misuse_of_a_dynamic_network_is_an_error():
    x = data("x", tensor([2, 1], 2))
    rnn = layers.DynamicRNN()
    with pytest.raises(ProgramError, match=r"step_input can only be called inside of block"):
        rnn.step_input(x)
    with pytest.raises(ProgramError, match="has outputs when its block has been left"):
        rnn()
    with pytest.raises(ProgramError, match="needs a step_input"), rnn.block():
        pass
    with pytest.raises(ProgramError, match="static_input needs a step_input"), layers.DynamicRNN().block():
        rnn.status = rnn.IN_RNN
        rnn.static_input(x)
    rnn = layers.DynamicRNN()
    with pytest.raises(ProgramError, match="is no memory"), rnn.block():
        rnn.update_memory(rnn.step_input(x), x)


@pytest.mark.parametrize(
    ("build", "feed", "message"),
    [
        (lambda x: layers.sequence_softmax(x), {"x": numbers(3, 1)}, "has no sequences"),
        (lambda x: layers.sequence_reverse(x), {"x": numbers(3, 1)}, "has no sequences"),
        (
            lambda x, y: layers.sequence_expand(x, y),
            {"x": numbers(3, 1), "y": tensor([1, 2], 1)},
            "X has 3 sequences, but Y has 2 on the level that says how often",
        ),
        (
            lambda x, y: layers.sequence_expand_as(x, y),
            {"x": numbers(3, 1), "y": tensor([1, 2], 1)},
            "X has 3 rows, but Y has 2 sequences",
        ),
        (
            lambda x, y: layers.sequence_concat([x, y]),
            {"x": tensor([3], 1), "y": tensor([1, 2], 1)},
            "differ in their number of sequences",
        ),
        (
            lambda x, o, n: layers.sequence_slice(x, o, n),
            {"x": tensor([3, 2], 1), "o": np.array([[0], [1]]), "n": np.array([[1], [2]])},
            "sequence 1 has 2 rows, so a part from 1 of 2 is not in it",
        ),
        (lambda x: layers.sequence_reshape(x, 4), {"x": tensor([1, 2], 3)}, "sequence 0 has 3 elements"),
        (
            lambda x: layers.sequence_pad(x, layers.fill_constant([1], "float32", 0), 2)[0],
            {"x": tensor([1, 3], 1)},
            "has 3 rows, which is more than padded_length=2",
        ),
        (
            lambda x, n: layers.sequence_unpad(x, n),
            {"x": numbers(2, 3), "n": np.array([1, 4])},
            r"Length must hold 2 numbers from 0 to 3, got \[1, 4\]",
        ),
        (lambda x: layers.lod_reset(x, target_lod=[0, 2]), {"x": tensor([1, 2], 1)}, "do not divide 3 rows"),
        (
            lambda x, y: layers.reorder_lod_tensor_by_rank(x, layers.lod_rank_table(y)),
            {"x": numbers(3, 1), "y": tensor([1, 2], 1)},
            "the rank table has 2 sequences, but X has 3",
        ),
    ],
)
def test_lengths_that_do_not_fit_are_errors(build, feed, message):
    result = build(**{name: data(name, array) for name, array in feed.items()})
    with pytest.raises(ExecutionError, match=message):
        fluid.Executor().run(feed=feed, fetch_list=[result], return_numpy=False)


def test_programs_that_make_no_sense_are_refused():
    x = data("x", tensor([1, 2], 8))
    for build, kind, message in (
        (lambda: layers.sequence_concat([x]), ProgramError, "at least two Variables, got 1"),
        (lambda: layers.sequence_concat(x), WrongTypeError, "must be a list of Variables"),
        (lambda: layers.lod_reset(x), ProgramError, "neither y nor target_lod is given"),
        (lambda: layers.lod_append(x, 3), WrongTypeError, "must be a list of offsets or a Variable"),
        (lambda: layers.dynamic_lstm(x, 8, bias_attr=False), ProgramError, "bias_attr must not be False"),
        (lambda: layers.dynamic_lstm(x, 12), OpError, "Weight must be"),
        (lambda: layers.dynamic_gru(x, 3), OpError, "Input must be 3 times as wide"),
        (lambda: layers.dynamic_lstm(x, 8, gate_activation="selu"), OpError, "gate_activation must be one of"),
        (lambda: layers.sequence_conv(x, 2, 3, filter_stride=2), OpError, "contextStride must be 1, got 2"),
        (lambda: layers.sequence_softmax(x), OpError, "X must hold one number for each row"),
        (lambda: layers.sequence_enumerate(layers.cast(x, "int64"), 2), OpError, "X must have one column"),
    ):
        with pytest.raises(kind, match=message):
            build()


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("use_peepholes", [False, True])
@pytest.mark.parametrize("is_reverse", [False, True])
@needs_numba
def test_compiled_steps_agree_with_the_shared_kernels(dtype, use_peepholes, is_reverse):
    # More sequences than a product makes at once, states before the first step, and sequences without rows.
    lengths, rng = [3, 1, 4, 0, *range(1, 9), *[2] * 12], np.random.default_rng(0)
    feed = {
        "x": tensor(lengths, 512, dtype="float64"),
        "h": rng.standard_normal((len(lengths), 128)),
        "c": rng.standard_normal((len(lengths), 128)),
    }
    x = data("x", feed["x"])
    x, h, c = (layers.cast(each, dtype) for each in (x, data("h", feed["h"]), data("c", feed["c"])))
    options = {"is_reverse": is_reverse, "dtype": dtype}
    hidden, _ = layers.dynamic_lstm(x, 512, h, c, use_peepholes=use_peepholes, **options)
    hidden, _ = layers.dynamic_lstm(layers.fc(hidden, 512), 512, use_peepholes=use_peepholes, **options)
    for act in ("tanh", "identity"):
        hidden, _ = layers.dynamic_lstmp(
            layers.fc(hidden, 512), 512, 64, use_peepholes=use_peepholes, proj_activation=act, **options
        )
    states = [
        layers.dynamic_gru(layers.fc(hidden, 384), 128, h_0=first, is_reverse=is_reverse, origin_mode=origin)
        for origin in (False, True)
        for first in (None, h)
    ]
    loss = layers.mean(layers.square(layers.sums(states)))
    fetched = [*states, *(grad for _, grad in fluid.append_backward(loss)), *fluid.gradients([loss], [h, c])]
    scope = fluid.Scope()
    fluid.Executor().run(fluid.default_startup_program(), scope=scope)
    plain, compiled = (
        fluid.Executor(jit=jit).run(feed=feed, fetch_list=fetched, scope=scope, return_numpy=False)
        for jit in (False, True)
    )
    for a, b in zip(plain, compiled, strict=True):
        np.testing.assert_allclose(np.array(a), np.array(b), atol=1e-6 if dtype == "float32" else 1e-14)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sum", "average", "sqrt", "max"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@needs_numba
def test_compiled_pools_agree_with_the_shared_kernel(kind, dtype):
    given = tensor([5, 0, 3, 9, 1], 4, 5, dtype=dtype)
    rows = np.array(given)
    rows[2, 1, 3] = rows[4, 1, 3] = np.nan
    rows[5:7] = rows[7]  # of several maxima the first counts
    feed = {"x": fluid.create_lod_tensor(rows, given.recursive_sequence_lengths(), fluid.CPUPlace())}
    x = fluid.data("x", [None, 4, 5], dtype, 1)
    x.stop_gradient = False
    pooled = layers.sequence_pool(x, kind, pad_value=0.25)
    fetched = [pooled, *fluid.gradients([layers.square(pooled)], [x])]
    plain, compiled = (fluid.Executor(jit=jit).run(feed=feed, fetch_list=fetched, return_numpy=False) for jit in (0, 1))
    for a, b in zip(plain, compiled, strict=True):
        np.testing.assert_allclose(np.array(a), np.array(b), rtol=1e-6 if dtype == "float32" else 1e-14)


@pytest.mark.slow  # the loops are long to compile
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@needs_numba
def test_compiled_losses_agree_with_the_shared_kernels(dtype):
    lengths = [5, 3, 9, 0]
    x = layers.cast(data("x", tensor(lengths, 20, dtype="float64")), dtype)
    tags, labels = fluid.data("tags", [None, 1], "int64", 1), fluid.data("labels", [None, 1], "int32", 1)
    emission = layers.row_conv(x, 3)
    costs = [
        layers.linear_chain_crf(emission, tags, fluid.ParamAttr("crf", fluid.initializer.Normal(seed=1))),
        layers.warpctc(emission, labels),
    ]
    path = layers.crf_decoding(emission, fluid.ParamAttr("crf"))
    grads = [grad for _, grad in fluid.append_backward(layers.reduce_sum(layers.sums(costs)))]
    scope = fluid.Scope()
    fluid.Executor().run(fluid.default_startup_program(), scope=scope)
    feed = {"x": tensor(lengths, 20, dtype="float64")}
    for name, counts, type in (("tags", lengths, "int64"), ("labels", [2, 1, 4, 0], "int32")):
        rows = np.arange(1, sum(counts) + 1).reshape(-1, 1).astype(type)
        feed[name] = fluid.create_lod_tensor(rows, [counts], fluid.CPUPlace())
    plain, compiled = (
        fluid.Executor(jit=jit).run(feed=feed, fetch_list=[*costs, path, *grads], scope=scope, return_numpy=False)
        for jit in (False, True)
    )
    for a, b in zip(plain, compiled, strict=True):
        np.testing.assert_allclose(np.array(a), np.array(b), atol=1e-5 if dtype == "float32" else 1e-13)


def test_windows_and_padding_are_those_of_the_innermost_sequences():
    ids = fluid.data("ids", [None, 1], "int64", lod_level=2)
    zero = layers.fill_constant([1], "int64", 0)
    padded, _ = layers.sequence_pad(ids, zero)
    given = fluid.create_lod_tensor(np.arange(1, 6).reshape(5, 1), [[2, 1], [2, 2, 1]], fluid.CPUPlace())
    windows, rows = run_both(layers.sequence_enumerate(ids, 2), padded, feed={"ids": given})
    assert np.array(windows).tolist() == [[1, 2], [2, 0], [3, 4], [4, 0], [5, 0]]
    assert np.array(rows)[:, :, 0].tolist() == [[1, 2], [3, 4], [5, 0]]


def test_parts_and_paths_are_those_of_the_innermost_sequences():
    """In the original they end with the rows 2 and 3, so that the other rows become zeros and have no loss."""
    x, tags = fluid.data("x", [None, 2], lod_level=2), fluid.data("tags", [None, 1], "int64", lod_level=2)
    constant = fluid.initializer.Constant
    summed = layers.row_conv(x, 1, param_attr=fluid.ParamAttr(initializer=constant(1.0)))
    losses = layers.linear_chain_crf(x, tags, fluid.ParamAttr("crfw", initializer=constant(0.0)))
    executor, lengths = fluid.Executor(), [[2, 1], [1, 2, 2]]
    executor.run(fluid.default_startup_program())
    rows, numbers = np.arange(1.0, 11, dtype=np.float32).reshape(5, 2), np.zeros((5, 1), np.int64)
    given = [fluid.create_lod_tensor(each, lengths, fluid.CPUPlace()) for each in (rows, numbers)]
    feed, fetched = dict(zip(("x", "tags"), given, strict=True)), [summed, losses, layers.sequence_concat([x, x])]
    sums, losses, parts = executor.run(feed=feed, fetch_list=fetched, return_numpy=False)
    assert np.array(sums).tolist() == [[1, 2], [8, 10], [5, 6], [16, 18], [9, 10]]
    np.testing.assert_allclose(np.array(losses), np.log1p(np.e) * np.array([[1], [2], [2]]), rtol=1e-6)
    np.testing.assert_array_equal(np.array(parts), rows[[0, 0, 1, 2, 1, 2, 3, 4, 3, 4]])
    assert parts.lod() == [[0, 2, 6, 10]]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_gates_of_large_numbers_are_zero_or_one(dtype):
    zeros, fed = fluid.initializer.Constant(0.0), np.array([[-1e4], [1e4], [0.5]], dtype)
    x = data("x", fluid.create_lod_tensor(fed.repeat(4, 1), [[1, 2]], fluid.CPUPlace()))
    y = data("y", fluid.create_lod_tensor(fed.repeat(3, 1), [[1, 2]], fluid.CPUPlace()))
    own = {"param_attr": zeros, "bias_attr": zeros}
    state, _ = layers.dynamic_lstm(x, 4, use_peepholes=False, dtype=dtype, **own)
    executor = fluid.Executor()
    fetched = [state, layers.dynamic_gru(y, 1, **own)]
    executor.run(fluid.default_startup_program())
    feed = {
        var.name: fluid.create_lod_tensor(fed.repeat(n, 1), [[1, 2]], fluid.CPUPlace()) for var, n in ((x, 4), (y, 3))
    }
    found = executor.run(feed=feed, fetch_list=fetched, return_numpy=False)
    last, rtol = 1 / (1 + np.exp(-0.5)), 1e-6 if dtype == "float32" else 1e-13
    cells = last * np.tanh(0.5) + last  # of the third row; that of the second is 1
    np.testing.assert_allclose(np.array(found[0])[:, 0], [0, np.tanh(1), last * np.tanh(cells)], rtol)
    np.testing.assert_allclose(np.array(found[1])[:, 0], [0, 1, 1 - last + last * np.tanh(0.5)], rtol)


def test_the_projection_of_an_lstm_has_its_own_activation():
    x = fluid.data("x", [None, 8], lod_level=1)
    weights = fluid.ParamAttr(initializer=fluid.initializer.Constant(0.5))
    options = {"param_attr": weights, "use_peepholes": False, "cell_activation": "identity"}
    found = [layers.dynamic_lstmp(x, 8, 3, proj_activation=act, **options)[0] for act in ("identity", "sigmoid")]
    exe = fluid.Executor()
    exe.run(fluid.default_startup_program())
    plain, squashed = exe.run(feed={"x": tensor([1, 1], 8)}, fetch_list=found, return_numpy=False)
    np.testing.assert_allclose(np.array(squashed), 1 / (1 + np.exp(-np.array(plain))), rtol=1e-6)


def test_the_imperative_mode_has_no_sequences():
    with fluid.dygraph.guard():
        x = fluid.dygraph.to_variable(np.ones((4, 8), "float32"))
        for build in (
            lambda: layers.sequence_pool(x, "sum"),
            lambda: layers.dynamic_lstm(x, 8),
            lambda: layers.lod_reset(x, target_lod=[0, 4]),
        ):
            with pytest.raises(OpError, match="which tensors of the imperative mode lack"):
                build()
        with pytest.raises(ExecutionError, match="X has no sequences"):
            layers.sequence_reverse(x)


@pytest.mark.usefixtures("new_program")
def test_a_step_has_one_level_less_than_what_it_goes_through():
    x = fluid.data("x", [None, 1], lod_level=2)
    outer = layers.DynamicRNN()
    with outer.block():
        sequences = outer.step_input(x)
        inner = layers.DynamicRNN()
        with inner.block():
            rows = inner.step_input(sequences)
            inner.output(rows * 2.0)
        outer.output(layers.sequence_last_step(inner()))
    assert (sequences.lod_level, rows.lod_level, inner().lod_level) == (1, 0, 1)


@pytest.mark.usefixtures("new_program")
def test_steps_may_go_through_the_sequences_of_an_inner_level():
    x = fluid.data("x", [None, 1], lod_level=2)
    x.stop_gradient = False
    rnn = layers.DynamicRNN()
    with rnn.block():
        row, total = rnn.step_input(x, level=1), rnn.memory(shape=[1])
        added = total + row
        rnn.update_memory(total, added)
        rnn.output(added)
    fluid.append_backward(layers.mean(layers.square(rnn())))
    rows = np.arange(1, 7, dtype="float32").reshape(6, 1)
    feed = {"x": fluid.create_lod_tensor(rows, [[2, 1], [2, 1, 3]], fluid.CPUPlace())}
    sums, grads = run_both(rnn(), "x@GRAD", feed=feed)
    assert sums.recursive_sequence_lengths() == grads.recursive_sequence_lengths() == [[2, 1], [2, 1, 3]]
    assert np.array(sums).ravel().tolist() == [1, 3, 3, 4, 9, 15]  # recorded from 1.8.5, as the gradients are
    assert (np.array(grads) * 3).ravel().tolist() == [4, 3, 3, 28, 24, 15]
