"""Paddle 2's names: functions and methods of tensors, clips, layers."""

from fractions import Fraction

import numpy as np
import pytest
from asserting import assert_same_bits

import minigraph as paddle
from minigraph import layers
from minigraph.clip import GradientClipByGlobalNorm, GradientClipByNorm, GradientClipByValue
from minigraph.errors import ClipError, NotFoundError, ProgramError, WrongTypeError
from minigraph.nn import functional


def random(*shape, seed=0):
    return np.random.RandomState(seed).randn(*shape).astype("float32")


# Making tensors


@pytest.mark.parametrize(
    "data, dtype, shape",
    [
        (3.0, "float32", ()),
        (3, "int64", ()),
        (True, "bool", ()),
        ([1.0, 2.0], "float32", (2,)),
        ([[1, 2], [3, 4]], "int64", (2, 2)),
        ([1, 2.5], "float32", (2,)),
        (np.float64(2.0), "float64", ()),
        (np.zeros((2, 0)), "float64", (2, 0)),
        ([np.float64(1.0), np.float64(2.0)], "float64", (2,)),
        (np.ones(3, "float16"), "float16", (3,)),
    ],
)
def test_to_tensor_keeps_shape_and_element_type(data, dtype, shape):
    tensor = paddle.to_tensor(data)
    assert (str(tensor.dtype), tensor.shape) == (dtype, shape)
    assert_same_bits(tensor.numpy(), np.array(data, dtype))
    assert tensor.stop_gradient and not paddle.to_tensor(data, stop_gradient=False).stop_gradient


def test_to_tensor_copies_and_converts():
    array = np.zeros(2, "float32")
    tensor = paddle.to_tensor(array)
    array += 1
    assert tensor.numpy().tolist() == [0, 0]
    tensor.numpy()[:] = 5
    assert tensor.numpy().tolist() == [0, 0]
    assert paddle.to_tensor([1, 2], dtype=paddle.float64).dtype is paddle.float64
    assert paddle.to_tensor(tensor) is not tensor
    with pytest.raises(WrongTypeError, match="cannot be made from str"):
        paddle.to_tensor("text")
    with pytest.raises(ProgramError, match="the place is"):
        paddle.to_tensor([1.0], place=paddle.CUDAPlace(0))


def test_to_variable_has_no_rank_0():
    assert paddle.dygraph.to_variable(np.float32(3)).shape == (1,)


@pytest.mark.parametrize(
    "made, expected",
    [
        (lambda: paddle.ones([2, 3]), np.ones((2, 3), "float32")),
        (lambda: paddle.zeros([2], "int64"), np.zeros(2, "int64")),
        (lambda: paddle.full([2], 0.1, "float64"), np.full(2, 0.1)),
        (lambda: paddle.arange(5), np.arange(5)),
        (lambda: paddle.arange(1, 2, 0.25), np.arange(1, 2, 0.25, dtype="float32")),
        (lambda: paddle.linspace(0, 1, 5), np.linspace(0, 1, 5, dtype="float32")),
        (lambda: paddle.eye(2, 3), np.eye(2, 3, dtype="float32")),
        (lambda: paddle.assign([[1.5, 2.5]]), np.array([[1.5, 2.5]])),
    ],
)
def test_constants_are_the_same_in_a_program(made, expected):
    tensor = made()
    assert_same_bits(tensor.numpy(), expected)
    assert tensor.stop_gradient
    main = paddle.Program()
    with paddle.program_guard(main):
        variable = made()
    assert_same_bits(paddle.Executor().run(main, fetch_list=[variable])[0], expected)


def test_constants_take_the_shape_of_a_tensor():
    x = paddle.arange(3)
    assert_same_bits(paddle.ones_like(x).numpy(), np.ones(3, "int64"))
    assert_same_bits(paddle.zeros_like(x, "float32").numpy(), np.zeros(3, "float32"))
    assert_same_bits(paddle.full_like(x, 7).numpy(), np.full(3, 7))


def test_random_tensors_begin_anew_with_the_seed():
    def draw():
        return [
            tensor.numpy()
            for tensor in (
                paddle.rand([4]),
                paddle.randn([4]),
                paddle.uniform([4], min=2, max=3),
                paddle.normal(5, 1, [4]),
            )
        ]

    paddle.seed(7)
    first = draw()
    assert any((a != b).any() for a, b in zip(first, draw(), strict=True))
    paddle.seed(7)
    for a, b in zip(first, draw(), strict=True):
        assert_same_bits(a, b)
    assert (first[2] >= 2).all() and (first[2] < 3).all()


def test_create_parameter_takes_an_empty_shape():
    param = paddle.create_parameter([], "float32", attr=paddle.ParamAttr(need_clip=False))
    assert (param.shape, param.need_clip) == ((), False)
    (param * param).backward()
    assert_same_bits(param.grad.numpy(), np.asarray(2 * param.numpy(), "float32"))


# Functions and methods, with NumPy as the truth

A, B = random(3, 4, seed=1), random(3, 4, seed=2)
UNARY = {
    "mean": (lambda x: x.mean(), lambda a: a.mean(keepdims=True).reshape(1)),
    "mean over one": (lambda x: x.mean(1), lambda a: a.mean(1)),
    "mean keeping": (lambda x: paddle.mean(x, axis=[0, 1], keepdim=True), lambda a: a.mean(keepdims=True)),
    "sum": (lambda x: x.sum(), lambda a: a.sum().reshape(1)),
    "sum over one": (lambda x: x.sum(axis=-1, keepdim=True), lambda a: a.sum(-1, keepdims=True)),
    "sum in float64": (lambda x: x.sum(dtype="float64"), lambda a: a.astype("float64").sum().reshape(1)),
    "max": (lambda x: x.max(), lambda a: a.max().reshape(1)),
    "min": (lambda x: x.min(axis=0), lambda a: a.min(0)),
    "abs": (lambda x: x.abs(), np.abs),
    "exp": (lambda x: x.exp(), np.exp),
    "log": (lambda x: x.abs().log(), lambda a: np.log(np.abs(a))),
    "sqrt": (lambda x: x.abs().sqrt(), lambda a: np.sqrt(np.abs(a))),
    "square": (lambda x: x.square(), np.square),
    "sign": (lambda x: x.sign(), np.sign),
    "tanh": (lambda x: x.tanh(), np.tanh),
    "norm": (lambda x: x.norm(), lambda a: np.sqrt((a.astype("float64") ** 2).sum()).reshape(1)),
    "norm 1": (lambda x: paddle.norm(x, 1), lambda a: np.abs(a).sum().reshape(1)),
    "norm inf": (lambda x: x.norm(float("inf")), lambda a: np.abs(a).max().reshape(1)),
    "scale": (lambda x: x.scale(2.0, 1.0), lambda a: 2 * a + 1),
    "negative": (lambda x: -x, np.negative),
    "number minus": (lambda x: 2 - x, lambda a: 2 - a),
    "number over": (lambda x: 1 / x, lambda a: 1 / a),
    "power": (lambda x: x**3, lambda a: a**3),
    "power 7": (lambda x: x**7, lambda a: a.astype("float64") ** 7),
    "power 1": (lambda x: x**1, lambda a: a),
    "power 0": (lambda x: x**0, np.ones_like),
    "power -2": (lambda x: x**-2, lambda a: a.astype("float64") ** -2),
    "root": (lambda x: x.abs() ** 0.5, lambda a: np.sqrt(np.abs(a))),
    "clip": (lambda x: x.clip(-0.5, 0.25), lambda a: a.clip(-0.5, 0.25)),
    "clip below": (lambda x: x.clip(min=0.1), lambda a: np.maximum(a, np.float32(0.1))),
    "clip above": (lambda x: x.clip(max=0.1), lambda a: np.minimum(a, np.float32(0.1))),
    "reshape": (lambda x: x.reshape([2, -1]), lambda a: a.reshape(2, -1)),
    "reshape, numbers": (lambda x: x.reshape(4, 3), lambda a: a.reshape(4, 3)),
    "transpose": (lambda x: x.transpose([1, 0]), np.transpose),
    "t": (lambda x: x.t(), np.transpose),
    "flatten": (lambda x: x.flatten(), np.ravel),
    "cast": (lambda x: x.astype("float64"), lambda a: a.astype("float64")),
    "clone": (lambda x: x.clone(), np.copy),
    "topk": (lambda x: paddle.topk(x, 2)[0], lambda a: -np.sort(-a, axis=1)[:, :2]),
    "relu": (functional.relu, lambda a: np.maximum(a, 0)),
    "sigmoid": (functional.sigmoid, lambda a: 1 / (1 + np.exp(-a))),
    "softmax": (functional.softmax, lambda a: np.exp(a) / np.exp(a).sum(-1, keepdims=True)),
    "log_softmax": (functional.log_softmax, lambda a: a - np.log(np.exp(a).sum(-1, keepdims=True))),
}
BINARY = {
    "add": (lambda x, y: paddle.add(x, y), np.add),
    "plus": (lambda x, y: x + y, np.add),
    "minus": (lambda x, y: x - y, np.subtract),
    "subtract": (paddle.subtract, np.subtract),
    "times": (lambda x, y: x * y, np.multiply),
    "multiply": (paddle.multiply, np.multiply),
    "over": (lambda x, y: x / y, np.divide),
    "divide": (paddle.divide, np.divide),
    "maximum": (paddle.maximum, np.maximum),
    "minimum": (paddle.minimum, np.minimum),
    "at": (lambda x, y: x @ y.t(), lambda a, b: a @ b.T),
    "matmul": (lambda x, y: x.matmul(y, transpose_y=True), lambda a, b: a @ b.T),
    "concat": (lambda x, y: paddle.concat([x, y], axis=1), lambda a, b: np.concatenate([a, b], axis=1)),
    "mse": (functional.mse_loss, lambda a, b: np.mean((a - b) ** 2).reshape(1)),
    "mse, sum": (lambda x, y: functional.mse_loss(x, y, "sum"), lambda a, b: np.sum((a - b) ** 2).reshape(1)),
    "mse, none": (lambda x, y: functional.mse_loss(x, y, "none"), lambda a, b: (a - b) ** 2),
    "linear": (lambda x, y: functional.linear(x, y.t(), paddle.ones([3])), lambda a, b: a @ b.T + 1),
}


def in_a_program(function, *arrays):
    """The result of a run without the rewrites that change the rounding, such as that of a power to products."""
    main, strategy = paddle.Program(), paddle.BuildStrategy()
    strategy.exact = True
    with paddle.program_guard(main):
        inputs = [paddle.data(f"x{i}", array.shape) for i, array in enumerate(arrays)]
        result = function(*inputs)
    exact = paddle.CompiledProgram(main, strategy)
    return paddle.Executor().run(exact, feed=dict(zip(("x0", "x1"), arrays, strict=False)), fetch_list=[result])[0]


@pytest.mark.parametrize("name", UNARY)
def test_a_function_of_one_tensor_agrees_with_numpy_and_with_the_program(name):
    function, truth = UNARY[name]
    found, expected = function(paddle.to_tensor(A)).numpy(), truth(A)
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=1e-6)
    assert_same_bits(in_a_program(function, A), found)


@pytest.mark.parametrize("name", [name for name in BINARY if name != "linear"])
def test_a_function_of_two_tensors_agrees_with_numpy_and_with_the_program(name):
    function, truth = BINARY[name]
    found, expected = function(paddle.to_tensor(A), paddle.to_tensor(B)).numpy(), truth(A, B)
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=1e-6)
    assert_same_bits(in_a_program(function, A, B), found)


def test_a_function_of_layers_computes_on_tensors_outside_of_any_guard():
    x = paddle.to_tensor(A, stop_gradient=False)
    before = len(paddle.default_main_program().global_block().ops)
    found = layers.reduce_sum(layers.relu(layers.elementwise_mul(x, x)))
    assert len(paddle.default_main_program().global_block().ops) == before
    np.testing.assert_allclose(found.numpy(), [(A * A).sum()], rtol=1e-6)
    assert isinstance(layers.concat([x, x]), paddle.Tensor)
    assert isinstance(layers.elementwise_add(x=x, y=x), paddle.Tensor)


@pytest.mark.parametrize(
    "function",
    [
        paddle.norm, paddle.ones_like, paddle.zeros_like, paddle.nn.functional.log_softmax,
        lambda x: paddle.full_like(x, 2.0), lambda x: paddle.where(x, x, x), lambda x: x.norm(),
    ],
)  # fmt: skip
def test_a_variable_of_another_program_is_refused(function):
    with paddle.program_guard(paddle.Program()):
        x = paddle.data("x", [2, 3])
    with paddle.program_guard(paddle.Program()), pytest.raises(NotFoundError, match="x belongs to another program"):
        function(x)
    assert not x.block.ops


def test_a_power_may_be_any_number_or_a_tensor():
    x, y = paddle.to_tensor(np.abs(A)), paddle.to_tensor(B)
    for found in (x**1.5, paddle.pow(x, 1.5)):
        np.testing.assert_allclose(found.numpy(), np.abs(A) ** 1.5, rtol=1e-6)
    for found in (x**y, paddle.pow(x, y)):
        np.testing.assert_allclose(found.numpy(), np.abs(A) ** B, rtol=1e-5)


def test_flatten_and_t_take_only_what_they_can():
    x = paddle.ones([2, 3, 4])
    assert x.flatten(1).shape == (2, 12)
    assert x.flatten(0, 1).shape == (6, 4)
    with pytest.raises(ProgramError, match="no dimensions from 3"):
        x.flatten(3)
    with pytest.raises(WrongTypeError, match="t takes matrices"):
        x.t()


def test_sizes_are_known_where_shapes_are():
    assert (paddle.ones([2, 3]).ndim, paddle.ones([2, 3]).size, paddle.to_tensor(1.0).size) == (2, 6, 1)
    with paddle.program_guard(paddle.Program()):
        assert paddle.data("x", [None, 3]).size == -1


def test_tensors_print_their_values_and_become_numbers():
    x = paddle.to_tensor([1.5, 2.5])
    assert "float32[2]" in str(x) and "[1.5, 2.5]" in str(x)
    y = paddle.to_tensor(2.0)
    assert (y.item(), float(y), int(y), bool(y)) == (2.0, 2.0, 2, True)
    assert np.asarray(x).tolist() == [1.5, 2.5]
    assert len(x) == 2


# Losses


def cross_entropy(logits, label, ignored=()):
    """By definition, in float64: the losses of the rows, and their mean over the rows not ignored."""
    wide = logits.astype("float64")
    losses = np.log(np.exp(wide).sum(1)) - wide[np.arange(len(label)), np.where(np.isin(label, ignored), 0, label)]
    losses[np.isin(label, ignored)] = 0
    return losses, losses.sum() / max((~np.isin(label, ignored)).sum(), 1)


def test_cross_entropy_takes_the_mean_of_the_rows_that_count():
    logits, label = random(5, 3), np.array([0, 2, 1, 2, 0])
    x = paddle.to_tensor(logits)
    losses, mean = cross_entropy(logits, label)
    for y in (label, label.reshape(5, 1)):
        found = functional.cross_entropy(x, paddle.to_tensor(y))
        np.testing.assert_allclose(found.numpy(), [mean], rtol=1e-6)
    found = functional.cross_entropy(x, paddle.to_tensor(label), reduction="none")
    np.testing.assert_allclose(found.numpy().ravel(), losses, rtol=1e-5, atol=1e-7)
    _, mean = cross_entropy(logits, label, ignored=(2,))
    found = paddle.nn.CrossEntropyLoss(ignore_index=2)(x, paddle.to_tensor(label))
    np.testing.assert_allclose(found.numpy(), [mean], rtol=1e-6)
    with pytest.raises(ProgramError, match="reduction must be"):
        functional.cross_entropy(x, paddle.to_tensor(label), reduction="max")


# Clips


def test_clips_are_those_of_fluid_with_the_arguments_of_paddle_2():
    assert paddle.nn.ClipGradByValue(1.0) == GradientClipByValue(1.0)
    assert paddle.nn.ClipGradByValue(min=-1, max=2) == GradientClipByValue(2, -1)
    assert paddle.nn.ClipGradByNorm(clip_norm=1.0) == GradientClipByNorm(1.0)
    assert paddle.nn.ClipGradByGlobalNorm(1.0) == GradientClipByGlobalNorm(1.0)
    assert paddle.nn.ClipGradByGlobalNorm(1.0, "mine") == GradientClipByGlobalNorm(1.0, "mine")
    with pytest.raises(TypeError):
        paddle.nn.ClipGradByNorm(1.0, need_clip=None)
    with pytest.raises(ClipError, match="positive and finite"):
        paddle.nn.ClipGradByNorm(0.0)
    with pytest.raises(WrongTypeError, match="auto_skip_clip must be a bool"):
        paddle.nn.ClipGradByGlobalNorm(1.0, "mine", 3)


def pairs_of(*arrays, need_clip=()):
    pairs = []
    for i, array in enumerate(arrays):
        attr = paddle.ParamAttr(need_clip=i not in need_clip)
        pairs.append((paddle.create_parameter(array.shape, str(array.dtype), attr=attr), paddle.to_tensor(array)))
    return pairs


@pytest.mark.parametrize("auto_skip_clip", [False, True])
def test_a_global_norm_under_the_threshold_leaves_every_bit(auto_skip_clip):
    arrays = [random(3, 4), random(5), random(2, seed=1)]
    clip = paddle.nn.ClipGradByGlobalNorm(100.0, auto_skip_clip=auto_skip_clip)
    for (_, found), array in zip(clip(pairs_of(*arrays)), arrays, strict=True):
        assert_same_bits(found.numpy(), array)


def test_a_clip_keeps_rank_0_order_and_what_needs_no_clip():
    arrays = [np.float32(3.0).reshape(()), random(4) * 100, np.float32(4.0).reshape(())]
    for clip in (paddle.nn.ClipGradByGlobalNorm(1.0), paddle.nn.ClipGradByNorm(0.5), paddle.nn.ClipGradByValue(0.5)):
        pairs = pairs_of(*arrays, need_clip=(1,))
        pairs.insert(1, (pairs[0][0], None))
        (p0, first), (p1, second), (p2, third) = clip(pairs)
        assert [p0, p1, p2] == [pairs[0][0], pairs[2][0], pairs[3][0]]
        assert_same_bits(second.numpy(), arrays[1])
        expected = (0.6, 0.8) if isinstance(clip, GradientClipByGlobalNorm) else (0.5, 0.5)
        assert (first.shape, third.shape) == ((), ())
        np.testing.assert_allclose([first.item(), third.item()], expected, rtol=1e-6)


def test_a_clipped_gradient_has_the_exact_norm():
    arrays = [random(7, 3) * 10, random(5) * 1e-3, random(2, 2, seed=3)]
    squares = [sum((Fraction(float(v)) ** 2 for v in array.ravel()), Fraction(0)) for array in arrays]
    total = float(sum(squares)) ** 0.5
    found = paddle.nn.ClipGradByGlobalNorm(0.5)(pairs_of(*arrays))
    for (_, grad), array in zip(found, arrays, strict=True):
        np.testing.assert_allclose(grad.numpy(), array.astype("float64") * (0.5 / total), rtol=1e-6)


# Layers


def test_linear_is_x_times_weight_plus_bias():
    linear = paddle.nn.Linear(4, 2, weight_attr=paddle.ParamAttr(need_clip=False))
    assert (linear.weight.need_clip, linear.bias.need_clip) == (False, True)
    found = linear(paddle.to_tensor(A))
    np.testing.assert_allclose(found.numpy(), A @ linear.weight.numpy() + linear.bias.numpy(), rtol=1e-5, atol=1e-6)
    assert paddle.nn.Linear(4, 2, bias_attr=False).bias is None


@pytest.mark.parametrize(
    "layer, truth",
    [
        (paddle.nn.ReLU(), lambda a: np.maximum(a, 0)),
        (paddle.nn.Tanh(), np.tanh),
        (paddle.nn.Sigmoid(), lambda a: 1 / (1 + np.exp(-a))),
        (paddle.nn.Softmax(axis=0), lambda a: np.exp(a) / np.exp(a).sum(0)),
        (paddle.nn.LogSoftmax(), lambda a: a - np.log(np.exp(a).sum(-1, keepdims=True))),
        (paddle.nn.Flatten(0), np.ravel),
    ],
)
def test_a_layer_without_parameters_is_its_function(layer, truth):
    np.testing.assert_allclose(layer(paddle.to_tensor(A)).numpy(), truth(A), rtol=1e-5, atol=1e-6)
    assert layer.parameters() == []


def test_dropout_has_the_modes_of_paddle_2():
    x = paddle.ones([4000])
    layer = paddle.nn.Dropout(0.25)
    kept = layer(x).numpy()
    assert set(np.unique(kept)) == {0, np.float32(1) / np.float32(0.75)}
    assert 0.2 < (kept == 0).mean() < 0.3
    layer.eval()
    assert_same_bits(layer(x).numpy(), x.numpy())
    found = functional.dropout(x, 0.25, training=False, mode="downscale_in_infer")
    assert set(np.unique(found.numpy())) == {np.float32(0.75)}
    with pytest.raises(ProgramError, match="mode must be one of"):
        paddle.nn.Dropout(mode="never")


@pytest.mark.slow
def test_a_small_net_learns():
    paddle.seed(1)
    net = paddle.nn.Sequential(paddle.nn.Linear(2, 16), paddle.nn.Tanh(), paddle.nn.Linear(16, 2))
    update = paddle.optimizer.Adam(
        learning_rate=0.05, parameters=net.parameters(), weight_decay=1e-4,
        grad_clip=paddle.nn.ClipGradByGlobalNorm(1.0),
    )  # fmt: skip
    x = paddle.to_tensor(np.array([[0, 0], [0, 1], [1, 0], [1, 1]], "float32"))
    label = paddle.to_tensor(np.array([0, 1, 1, 0]))
    for _ in range(150):
        loss = paddle.nn.CrossEntropyLoss()(net(x), label)
        loss.backward()
        update.step()
        update.clear_grad()
    assert loss.item() < 0.05
    assert net(x).numpy().argmax(1).tolist() == [0, 1, 1, 0]
