"""Layers traced into programs, and networks trained imperatively and statically: the same bits."""

import numpy as np
import pytest

import minigraph as fluid
from minigraph import dygraph, layers
from minigraph.clip import GradientClipByGlobalNorm
from minigraph.dygraph import TracedLayer, to_variable
from minigraph.errors import ProgramError, WrongTypeError
from minigraph.passes.gradient_clip import ClipGradients


@pytest.fixture(autouse=True)
def imperative(shared_kernels):
    with fluid.unique_name.guard(), dygraph.guard():
        yield


def array(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


class LeNet(dygraph.Layer):
    def __init__(self, attr=lambda name: None):
        super().__init__()
        self.conv = dygraph.Conv2D(1, 3, 3, padding=1, param_attr=attr("conv.w"))
        self.bn = dygraph.BatchNorm(3, act="relu", moving_mean_name="m", moving_variance_name="v")
        self.pool = dygraph.Pool2D(2, "max", 2)
        self.fc = dygraph.Linear(48, 4, param_attr=attr("fc.w"))

    def forward(self, image):
        features = self.pool(self.bn(self.conv(image)))
        return self.fc(layers.reshape(features, [-1, 48]))


class Bag(dygraph.Layer):
    def __init__(self, attr=lambda name: None):
        super().__init__()
        self.emb = dygraph.Embedding([9, 5], padding_idx=0, param_attr=attr("emb.w"))
        self.ln = dygraph.LayerNorm(5)
        self.fc = dygraph.Linear(5, 4, param_attr=attr("fc.w"))

    def forward(self, ids):
        return self.fc(self.ln(layers.reduce_mean(self.emb(ids), dim=1)))


def lenet(image, attr):
    out = layers.conv2d(image, 3, 3, padding=1, param_attr=attr("conv.w"))
    out = layers.batch_norm(out, act="relu", moving_mean_name="m", moving_variance_name="v")
    out = layers.reshape(layers.pool2d(out, 2, "max", 2), [-1, 48])
    return layers.fc(out, 4, param_attr=attr("fc.w"))


def bag(ids, attr):
    out = layers.reduce_mean(fluid.embedding(ids, [9, 5], padding_idx=0, param_attr=attr("emb.w")), dim=1)
    return layers.fc(layers.layer_norm(out), 4, param_attr=attr("fc.w"))


START = {"conv.w": array(3, 1, 3, 3), "fc.w": None, "emb.w": array(9, 5)}
CASES = {
    "lenet": (LeNet, lenet, array(6, 1, 8, 8, seed=5), {"fc.w": array(48, 4)}),
    "bag": (Bag, bag, np.random.default_rng(2).integers(0, 9, (6, 3)), {"fc.w": array(5, 4)}),
}
LABELS = np.array([[0], [3], [1], [2], [2], [0]])
each_case = pytest.mark.parametrize("name", CASES)


def starting(name):
    values = {**START, **CASES[name][3]}

    def attr(parameter):
        return fluid.ParamAttr(initializer=fluid.initializer.NumpyArrayInitializer(values[parameter]))

    return attr


def loss_of(logits, labels):
    return layers.mean(layers.softmax_with_cross_entropy(logits, labels))


def momentum(**given):
    return fluid.optimizer.Momentum(0.3, 0.9, grad_clip=GradientClipByGlobalNorm(0.05), **given)


def trained_imperatively(name, steps):
    make, _, data, _ = CASES[name]
    net = make(starting(name))
    optimizer = momentum(parameter_list=net.parameters())
    losses = []
    for _ in range(steps):
        loss = loss_of(net(to_variable(data)), to_variable(LABELS))
        loss.backward()
        optimizer.minimize(loss)
        net.clear_gradients()
        losses.append(loss.numpy())
    return losses, [p.numpy() for p in net.parameters()]


def trained_statically(name, steps):
    _, build, data, _ = CASES[name]
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x, y = fluid.data("x", [None, *data.shape[1:]], data.dtype), fluid.data("y", [None, 1], "int64")
        loss = loss_of(build(x, starting(name)), y)
        momentum().minimize(loss)
    scope, executor = fluid.Scope(), fluid.Executor()
    executor.run(startup, scope=scope)
    feed = {"x": data, "y": LABELS}
    losses = [executor.run(main, feed=feed, fetch_list=[loss], scope=scope)[0] for _ in range(steps)]
    return losses, [np.array(scope.find_var(p.name).get_tensor()) for p in main.all_parameters()]


def trained_in_a_trace(name, steps):
    make, _, data, _ = CASES[name]
    net = make(starting(name))
    _, traced = TracedLayer.trace(net, [to_variable(data[:2])])
    program, startup = traced.program, fluid.Program()
    with fluid.program_guard(program, startup):
        y = fluid.data("y", [None, 1], "int64")
        loss = loss_of(program.global_block().var("fetch_0"), y)
        momentum().minimize(loss)
    executor = fluid.Executor()
    executor.run(startup, scope=traced.scope)
    feed = {"feed_0": data, "y": LABELS}
    losses = [executor.run(program, feed=feed, fetch_list=[loss], scope=traced.scope)[0] for _ in range(steps)]
    return losses, [p.numpy() for p in net.parameters()]


def assert_same_bits(found, expected):
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert one.shape == other.shape and one.tobytes() == other.tobytes()


@pytest.mark.slow
@each_case
def test_training_gives_the_same_bits_in_both_modes(name):
    losses, params = trained_imperatively(name, 4)
    expected_losses, expected_params = trained_statically(name, 4)
    assert_same_bits(losses, expected_losses)
    assert_same_bits(params, expected_params)
    assert losses[-1] < losses[0]


@pytest.mark.slow
@each_case
def test_training_a_trace_moves_the_parameters_of_the_layer(name):
    # The batch normalization of the traced call has moved the running statistics once.
    ignored = 2 if name == "lenet" else 0
    _, params = trained_in_a_trace(name, 4)
    _, expected = trained_imperatively(name, 4)
    kept = [i for i, p in enumerate(params) if not (ignored and i in (4, 5))]
    assert_same_bits([params[i] for i in kept], [expected[i] for i in kept])


@each_case
@pytest.mark.parametrize("is_training", [True, False])
def test_a_trace_computes_the_same_bits_and_gradients(name, is_training):
    make, _, data, _ = CASES[name]
    net = make(starting(name))
    if not is_training:
        net.eval()
    state = {key: t.numpy() for key, t in net.state_dict().items()}
    out, traced = TracedLayer.trace(net, [to_variable(data)])
    net.set_dict(state)
    assert_same_bits(traced([data]), [out.numpy()])
    net.set_dict(state)
    program = traced.program.clone()
    with fluid.program_guard(program):
        loss = loss_of(program.global_block().var("fetch_0"), layers.data("y", [1], dtype="int64"))
        pairs = fluid.append_backward(loss)
    found = fluid.Executor().run(
        program, feed={"feed_0": data, "y": LABELS}, fetch_list=[g for _, g in pairs], scope=traced.scope
    )
    net.set_dict(state)
    logits = dygraph.Sequential(net)(to_variable(data))  # in training mode, so that eval mode is differentiated too
    params = {p.name: p for p in net.parameters()}
    expected = dygraph.grad(loss_of(logits, to_variable(LABELS)), [params[p.name] for p, _ in pairs])
    assert [p.name for p, _ in pairs] == [p.name for p in net.parameters() if p.trainable]
    assert_same_bits(found, [grad.numpy() for grad in expected])


@each_case
def test_a_trace_is_an_ordinary_program(name):
    make, build, data, _ = CASES[name]
    net = make(starting(name))
    _, traced = TracedLayer.trace(net, [to_variable(data)])
    text = str(traced.program)
    assert fluid.Program.parse(text).equals(traced.program) and traced.program.clone().equals(traced.program)
    fluid.verify(traced.program)
    _, again = TracedLayer.trace(net, [to_variable(data)])
    assert str(again.program) == text
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        build(fluid.data("x", [None, *data.shape[1:]], data.dtype), starting(name))
    # The layer multiplies by matmul where the function has mul, as in fluid.
    types = [op.type for op in main.global_block().ops]
    assert [op.type for op in traced.program.global_block().ops] == ["matmul" if t == "mul" else t for t in types]
    assert {p.name for p in traced.program.all_parameters()} == {p.name for p in net.parameters()}


def test_the_program_of_a_trace_runs_on_batches_of_another_size():
    net = dygraph.Sequential(dygraph.Linear(3, 2), dygraph.LayerNorm(2))
    _, traced = TracedLayer.trace(net, to_variable(array(4, 3)))
    x = array(7, 3, seed=1)
    assert_same_bits(traced([x]), [net(to_variable(x)).numpy()])
    assert traced.program.global_block().var("feed_0").shape == (-1, 3)


def test_operators_that_need_the_size_of_the_batch_get_it():
    class Filled(dygraph.Layer):
        def forward(self, shape):
            return self._helper.emit("fill_constant", ShapeTensor=shape, value=2.0)

    shape = np.array([2, 3])
    out, traced = TracedLayer.trace(Filled(), [to_variable(shape)])
    assert traced.program.global_block().var("feed_0").shape == (2,)  # of unknown rank otherwise
    assert_same_bits(traced([shape]), [out.numpy()])


def test_the_gradients_of_a_trace_can_be_clipped():
    net = LeNet(starting("lenet"))
    net.fc.weight.gradient_clip = GradientClipByGlobalNorm(0.01)
    _, traced = TracedLayer.trace(net, [to_variable(CASES["lenet"][2])])
    program = traced.program
    with fluid.program_guard(program, fluid.Program()):
        loss = layers.mean(layers.square(program.global_block().var("fetch_0")))
        fluid.optimizer.SGD(0.1).minimize(loss)
    clipped = ClipGradients()(program)
    names = [op.input("Grad")[0] for op in clipped.global_block().ops if op.type == "sgd"]
    feed, run = {"feed_0": CASES["lenet"][2]}, fluid.Executor().run
    traced.scope.var("learning_rate_0").get_tensor().set(np.array([0.1], "float32"))
    values = dict(zip(names, run(clipped, feed=feed, fetch_list=names, scope=traced.scope), strict=True))
    found = next(v for n, v in values.items() if v.shape == (48, 4))
    assert np.linalg.norm(found) == pytest.approx(0.01, rel=1e-5)


def test_parameters_are_shared_both_ways():
    net, x = dygraph.Linear(3, 2), array(4, 3)
    _, traced = TracedLayer.trace(net, [to_variable(x)])
    net.weight.set_value(array(3, 2, seed=7))
    assert_same_bits(traced([x]), [net(to_variable(x)).numpy()])
    traced.scope.find_var(net.bias.name).get_tensor().set(np.array([5.0, 6.0], "float32"))
    assert net.bias.numpy().tolist() == [5, 6]
    assert_same_bits(traced([x]), [net(to_variable(x)).numpy()])


def test_running_statistics_go_on_from_either_side():
    data = array(6, 3)
    nets = [dygraph.BatchNorm(3), dygraph.BatchNorm(3)]
    _, traced = TracedLayer.trace(nets[0], [to_variable(data)])
    traced([data])
    for _ in range(2):
        nets[1](to_variable(data))
    assert_same_bits(
        [nets[0]._mean.numpy(), nets[0]._variance.numpy()], [nets[1]._mean.numpy(), nets[1]._variance.numpy()]
    )


def test_dropout_is_traced_as_the_mode_says():
    net, x = dygraph.Dropout(0.5), to_variable(array(4, 3))
    for mode, is_test in ((net.train, False), (net.eval, True)):
        mode()
        _, traced = TracedLayer.trace(net, [x])
        assert traced.program.global_block().ops[0].attr("is_test") is is_test


class Forked(dygraph.Layer):
    """Stops gradients in the three ways there are, and reads tensors that nobody gave it."""

    def __init__(self):
        super().__init__()
        self.fc, self.other = dygraph.Linear(3, 3), dygraph.Linear(3, 3)
        self.register_buffer("shift", to_variable(array(3, seed=4)))

    def forward(self, x, more):
        a = self.fc(x)
        b = layers.square(a.detach()) + layers.reduce_sum(self.other.weight.detach())
        with dygraph.no_grad():
            c = self.other(x)
        d = layers.tanh(a)
        d.stop_gradient = True
        scale = to_variable(np.full([1], 2.0, "float32"))
        return layers.elementwise_add(a, b), [layers.elementwise_mul(c, scale) + d + self.shift, more[0]]


def test_gradients_stop_where_the_layer_stopped_them():
    net, x, more = Forked(), to_variable(array(4, 3)), to_variable(array(4, 3, seed=2))
    (out, (side, same)), traced = TracedLayer.trace(net, [x, [more]])
    assert same is more
    assert_same_bits(traced([x, [more]]), [out.numpy(), side.numpy(), more.numpy()])
    block = traced.program.global_block()
    with fluid.program_guard(traced.program):
        total = layers.mean(block.var("fetch_0")) + layers.mean(block.var("fetch_1"))
        pairs = fluid.append_backward(total)
    assert [p.name for p, _ in pairs] == [net.fc.weight.name, net.fc.bias.name]
    found = fluid.Executor().run(
        traced.program, feed={"feed_0": x.numpy(), "feed_1": more.numpy()}, fetch_list=[g for _, g in pairs],
        scope=traced.scope,
    )  # fmt: skip
    expected = dygraph.grad(layers.mean(out), [net.fc.weight, net.fc.bias])
    assert_same_bits(found, [grad.numpy() for grad in expected])
    kept = [var.name for var in traced.program.list_vars() if var.persistable and var.name.startswith("constant_")]
    assert kept == ["constant_0", "constant_1"]


def test_the_layer_may_be_traced_where_nothing_is_remembered():
    net = dygraph.Linear(3, 2)
    with dygraph.no_grad():
        _, traced = TracedLayer.trace(net, [to_variable(array(4, 3))])
    with fluid.program_guard(traced.program):
        pairs = fluid.append_backward(layers.mean(traced.program.global_block().var("fetch_0")))
    assert len(pairs) == 2


def test_outputs_of_the_traced_call_have_gradients():
    net = dygraph.Linear(3, 2)
    out, _ = TracedLayer.trace(net, [to_variable(array(4, 3))])
    layers.mean(out).backward()
    assert np.allclose(net.bias.gradient(), [0.5, 0.5])


def test_what_cannot_be_traced_is_refused():
    linear, x = dygraph.Linear(3, 2), to_variable(array(4, 3))

    class Setting(dygraph.Layer):
        def forward(self, x):
            hidden = layers.square(x)
            hidden.set_value(np.zeros((4, 3), "float32"))
            return layers.tanh(hidden)

    class Returning(dygraph.Layer):
        def forward(self, x):
            return 3

    class Adding(dygraph.Layer):
        def forward(self, x, y):
            return x + y

    for error, words, call in [
        (WrongTypeError, "needs a Layer", lambda: TracedLayer.trace(layers.tanh, [x])),
        (WrongTypeError, "an input must be a Tensor", lambda: TracedLayer.trace(linear, [x.numpy()])),
        (WrongTypeError, "an output must be a Tensor", lambda: TracedLayer.trace(Returning(), [x])),
        (ProgramError, "given twice", lambda: TracedLayer.trace(Adding(), [x, x])),
        (ProgramError, "no operator wrote it", lambda: TracedLayer.trace(Setting(), [x])),
        (ProgramError, "there were 1 inputs, got 2", lambda: TracedLayer.trace(linear, [x])[1]([x, x])),
    ]:
        with pytest.raises(error, match=words):
            call()


def test_a_traced_layer_is_saved_and_loaded_like_any_inference_model(tmp_path):
    class Two(dygraph.Layer):
        def __init__(self):
            super().__init__()
            self.first, self.second = dygraph.Linear(3, 4, act="tanh"), dygraph.Linear(3, 2)

        def forward(self, a, b):
            return self.first(a), self.second(b)

    rng = np.random.default_rng(5)
    a, b = (rng.standard_normal((5, 3)).astype("float32") for _ in range(2))
    with dygraph.guard():
        (first, second), traced = dygraph.TracedLayer.trace(Two(), [dygraph.to_variable(a), dygraph.to_variable(b)])
        first, second = first.numpy(), second.numpy()
    traced.save_inference_model(str(tmp_path / "both"))
    traced.save_inference_model(str(tmp_path / "one"), feed=[1], fetch=[1])
    executor = fluid.Executor()
    for folder, fed, expected in (("both", [a, b], [first, second]), ("one", [b], [second])):
        with fluid.scope_guard(fluid.Scope()):
            program, names, targets = fluid.io.load_inference_model(str(tmp_path / folder), executor)
            found = executor.run(program, dict(zip(names, fed, strict=True)), targets)
        for value, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(value, other, rtol=1e-6)
    with pytest.raises(ProgramError, match=r"fetch must be in \[0, 2\), got \[2\]"):
        traced.save_inference_model(str(tmp_path / "none"), fetch=[2])
    with pytest.raises(WrongTypeError, match="feed must hold integers"):
        traced.save_inference_model(str(tmp_path / "none"), feed=["a"])


def test_a_strategy_is_set_before_the_program_runs():
    with fluid.dygraph.guard():
        x = fluid.dygraph.to_variable(np.ones((2, 3), "float32"))
        out, traced = fluid.dygraph.TracedLayer.trace(fluid.dygraph.Linear(3, 2), [x])
        with pytest.raises(WrongTypeError, match="build_strategy must be a BuildStrategy"):
            traced.set_strategy(3)
        strategy = fluid.BuildStrategy()
        strategy.exact = True
        assert traced.set_strategy(build_strategy=strategy, exec_strategy=fluid.ExecutionStrategy()) is None
        np.testing.assert_array_equal(traced([x])[0], out.numpy())
        with pytest.raises(ProgramError, match="has run already"):
            traced.set_strategy(strategy)


@pytest.mark.parametrize("what", ["subscript", "number", "operator", "method"])
def test_what_operators_of_python_do_with_an_input_is_traced(what):
    class Layer(dygraph.Layer):
        def forward(self, x):
            forms = {
                "subscript": lambda: x[1],
                "number": lambda: x * 2.0,
                "operator": lambda: x + x,
                "method": lambda: x.astype("float64"),
            }
            return layers.tanh(forms[what]())

    _, traced = TracedLayer.trace(Layer(), [to_variable(array(2, 3))])
    other = array(2, 3, seed=1)
    forms = {"subscript": other[1], "number": other * 2, "operator": other + other, "method": other.astype("float64")}
    assert np.allclose(traced([other])[0], np.tanh(forms[what]))


def test_a_saved_model_normalizes_as_in_a_test(tmp_path):
    with fluid.dygraph.guard():
        layer = fluid.dygraph.BatchNorm(2)
        x = np.arange(24, dtype="float32").reshape(3, 2, 2, 2)
        layer(fluid.dygraph.to_variable(x))
        layer.eval()
        out, traced = fluid.dygraph.TracedLayer.trace(layer, [fluid.dygraph.to_variable(x)])
        traced.save_inference_model(str(tmp_path))
    executor = fluid.Executor()
    with fluid.scope_guard(fluid.Scope()):
        program, (name,), targets = fluid.io.load_inference_model(str(tmp_path), executor)
        (found,) = executor.run(program, {name: x}, targets)
    np.testing.assert_array_equal(found, out.numpy())
