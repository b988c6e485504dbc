"""Layers of the imperative mode: what they hold, what they are called, what they compute."""

import gc
import weakref

import numpy as np
import pytest

import minigraph as fluid
from minigraph import dygraph, layers, nn
from minigraph.errors import MinigraphError, NotFoundError, ProgramError, WrongTypeError


@pytest.fixture(autouse=True)
def imperative():
    with fluid.unique_name.guard(), dygraph.guard():
        yield


def tensor(*shape, seed=0):
    return dygraph.to_variable(np.random.default_rng(seed).standard_normal(shape).astype("float32"))


class Net(dygraph.Layer):
    def __init__(self):
        super().__init__()
        self.conv = dygraph.Conv2D(1, 2, 3, padding=1, act="relu")
        self.bn = dygraph.BatchNorm(2)
        self.pool = dygraph.Pool2D(2, "max", 2)
        self.drop = dygraph.Dropout(0.3)
        self.emb = dygraph.Embedding([5, 4])
        self.ln = dygraph.LayerNorm(12)
        self.fc = dygraph.Linear(12, 2)

    def forward(self, image, ids):
        features = layers.reshape(self.pool(self.bn(self.conv(image))), [-1, 8])
        joined = layers.concat([features, layers.reshape(self.emb(ids), [-1, 4])], axis=1)
        return self.fc(self.drop(self.ln(joined)))


def inputs():
    return tensor(3, 1, 4, 4), dygraph.to_variable(np.array([[1], [4], [1]]))


# Names, as Paddle 1.8.5 gives them


def test_parameters_are_called_as_in_the_original():
    assert [(name, p.name, p.shape) for name, p in Net().named_parameters()] == [
        ("conv.weight", "conv2d_0.w_0", (2, 1, 3, 3)), ("conv.bias", "conv2d_0.b_0", (2,)),
        ("bn.weight", "batch_norm_0.w_0", (2,)), ("bn.bias", "batch_norm_0.b_0", (2,)),
        ("bn._mean", "batch_norm_0.w_1", (2,)), ("bn._variance", "batch_norm_0.w_2", (2,)),
        ("emb.weight", "embedding_0.w_0", (5, 4)), ("ln.weight", "layer_norm_0.w_0", (12,)),
        ("ln.bias", "layer_norm_0.b_0", (12,)), ("fc.weight", "linear_0.w_0", (12, 2)),
        ("fc.bias", "linear_0.b_0", (2,)),
    ]  # fmt: skip


def test_layers_are_called_as_in_the_original():
    class HTTPNet2D(Net):
        pass

    net = HTTPNet2D()
    assert net.full_name() == "http_net2d_0"
    assert dygraph.Layer("my").full_name() == "my_0"
    assert [layer.full_name() for layer in net.sublayers()] == [
        "conv2d_0", "batch_norm_0", "pool2d_0", "dropout_0", "embedding_0", "layer_norm_0", "linear_0"
    ]  # fmt: skip
    assert net.create_parameter([2]).name == "http_net2d_0.w_0"


def test_running_statistics_are_parameters_without_a_gradient():
    bn = dygraph.BatchNorm(2, moving_mean_name="m")
    assert [(p.name, p.trainable, p.stop_gradient) for p in bn.parameters()][1:3] == [
        ("batch_norm_0.b_0", True, False), ("m", False, True)
    ]  # fmt: skip


# Members


def test_a_layer_reached_on_two_ways_counts_once():
    inner = dygraph.Linear(2, 2)
    outer = dygraph.Sequential(("a", inner), ("b", inner))
    assert [name for name, _ in outer.named_parameters()] == ["a.weight", "a.bias"]
    assert [name for name, _ in outer.named_sublayers()] == ["a"]
    assert list(outer.state_dict()) == ["a.weight", "a.bias", "b.weight", "b.bias"]


def test_members_are_replaced_by_their_like_only():
    net = Net()
    for name in ("conv", "bn"):
        with pytest.raises(WrongTypeError, match=f"Net.{name} is a Layer"):
            setattr(net, name, 3)
    with pytest.raises(WrongTypeError, match="weight is a parameter"):
        net.fc.weight = tensor(12, 2)
    net.fc.bias = None
    net.conv = dygraph.Linear(1, 1)
    net.plain = 3
    net.plain = dygraph.Linear(1, 1)
    assert net.fc.parameters() == [net.fc.weight] and "plain" in dict(net.named_children()) and "plain" in dir(net)
    del net.plain
    with pytest.raises(AttributeError, match="Net has no attribute 'plain'"):
        _ = net.plain


def test_members_cannot_come_before_the_layer():
    class Early(dygraph.Layer):
        def __init__(self):
            self.inner = dygraph.Linear(1, 1)

    with pytest.raises(ProgramError, match=r"Early.inner is set before"):
        Early()


def test_only_parameters_and_layers_can_be_added():
    layer = dygraph.Layer()
    with pytest.raises(WrongTypeError):
        layer.add_parameter("w", tensor(2))
    with pytest.raises(WrongTypeError):
        layer.add_sublayer("w", 3)
    assert layer.add_parameter("w", None) is None and layer.w is None and layer.parameters() == []


def test_buffers_belong_to_the_state_unless_they_pass():
    layer = dygraph.Layer()
    layer.register_buffer("kept", tensor(2))
    layer.register_buffer("passing", tensor(3), persistable=False)
    layer.kept = tensor(2, seed=1)
    assert [name for name, _ in layer.named_buffers()] == ["kept", "passing"]
    assert layer.state_dict() == {"kept": layer.kept} and layer.parameters() == []
    with pytest.raises(WrongTypeError):
        layer.kept = 3
    with pytest.raises(ProgramError, match="has an attribute training"):
        layer.register_buffer("training", tensor(2))


def test_apply_visits_each_layer_from_the_bottom():
    net = dygraph.Sequential(("inner", dygraph.Sequential(dygraph.Linear(1, 1))), ("last", dygraph.Dropout()))
    visited = []
    assert net.apply(lambda layer: visited.append(layer.full_name())) is net
    assert visited == ["linear_0", "sequential_0", "dropout_0", "sequential_1"]


# State


def test_a_state_makes_another_layer_equal():
    one, other = Net(), Net()
    image, ids = inputs()
    one(image, ids)  # its running statistics move
    other.set_state_dict({name: t.numpy() for name, t in one.state_dict().items()})
    for layer in (one, other):
        layer.eval()
    assert np.array_equal(one(image, ids).numpy(), other(image, ids).numpy())
    third = Net()
    third.set_dict(
        {p.name: q for p, q in zip(third.parameters(), one.parameters(), strict=True)}, use_structured_name=False
    )
    assert all(np.array_equal(a.numpy(), b.numpy()) for a, b in zip(third.parameters(), one.parameters(), strict=True))


def test_a_state_that_does_not_fit_changes_nothing():
    net = Net()
    before = {name: t.numpy() for name, t in net.state_dict().items()}
    zeros = {name: np.zeros_like(array) for name, array in before.items()}
    for wrong, error, words in [
        ({**zeros, "fc.bias": np.zeros(3, "float32")}, ProgramError, r"is float32\[2\], the state has float32\[3\]"),
        ({**zeros, "fc.bias": np.zeros(2)}, ProgramError, r"the state has float64\[2\]"),
        ({("fc.bia" if k == "fc.bias" else k): v for k, v in zeros.items()}, NotFoundError, "Did you mean fc.bia"),
    ]:  # fmt: skip
        with pytest.raises(error, match=words):
            net.set_dict(wrong)
        assert all(np.array_equal(t.numpy(), before[name]) for name, t in net.state_dict().items())
    with pytest.warns(UserWarning, match="nothing for extra"):
        net.set_dict({**zeros, "extra": np.zeros(1)})
    assert not net.fc.weight.numpy().any()


# Calling


def test_hooks_see_and_replace_what_passes_until_they_are_removed():
    linear, x = dygraph.Linear(3, 2), tensor(4, 3)
    plain = linear(x).numpy()
    seen = []
    before = linear.register_forward_pre_hook(lambda layer, given: given[0] * 2.0)
    after = linear.register_forward_post_hook(lambda layer, given, out: seen.append((layer, given)) or out * 0.5)
    hooked = linear(x).numpy()
    assert seen[0][0] is linear and np.array_equal(seen[0][1][0].numpy(), x.numpy() * 2)
    bias = linear.bias.numpy()
    assert np.allclose(hooked * 2 - bias, (plain - bias) * 2, atol=1e-6)
    before.remove()
    after.remove()
    after.remove()
    assert np.array_equal(linear(x).numpy(), plain)


def test_a_layer_without_forward_says_so():
    with pytest.raises(WrongTypeError, match="Layer does not define forward"):
        dygraph.Layer()(1)


def test_dropout_and_batch_normalization_follow_the_mode():
    image, ids = inputs()
    net = Net()
    before = net.bn._mean.numpy()
    net.eval()
    assert np.array_equal(net(image, ids).numpy(), net(image, ids).numpy())
    assert np.array_equal(net.bn._mean.numpy(), before)
    net.train()
    net(image, ids)
    assert not np.array_equal(net.bn._mean.numpy(), before)


def test_inside_a_guard_a_layer_in_eval_mode_leaves_no_trace_but_as_part_of_another_it_does():
    x = tensor(4, 3)
    net = dygraph.Sequential(dygraph.Linear(3, 3), dygraph.BatchNorm(3))
    net[1].eval()
    layers.mean(layers.square(net(x))).backward()
    assert net[0].weight.gradient().any()
    net.eval()
    assert net(x).stop_gradient


@pytest.mark.slow
def test_steps_that_are_over_are_forgotten():
    bn = dygraph.BatchNorm(3)
    x = tensor(4, 3)
    x.stop_gradient = False
    middle = x * 2.0
    gone = weakref.ref(middle)
    bn(middle)
    del middle
    gc.collect()
    assert gone() is None


# What they compute: the functions of the static mode say


def static(build, feed, params):
    """What a static program computes with these parameters."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        out = build({name: fluid.data(name, a.shape, a.dtype) for name, a in feed.items()})
    scope, executor = fluid.Scope(), fluid.Executor()
    executor.run(startup, scope=scope)
    for param, value in zip(main.all_parameters(), params, strict=True):
        scope.var(param.name).get_tensor().set(value)
    return executor.run(main, feed=feed, fetch_list=[out], scope=scope)[0]


@pytest.mark.parametrize(
    ("layer", "build", "shape"),
    [
        (lambda: dygraph.Conv2D(4, 6, [3, 2], 2, [1, 0], 1, 2, act="tanh"),
         lambda x: layers.conv2d(x, 6, [3, 2], 2, [1, 0], 1, 2, act="tanh"), (2, 4, 6, 5)),
        (lambda: dygraph.Conv2D(4, 8, 3, groups=4, use_cudnn=False, bias_attr=False),
         lambda x: layers.conv2d(x, 8, 3, groups=4, use_cudnn=False, bias_attr=False), (2, 4, 6, 5)),
        (lambda: nn.Conv2D(5, 6, 3, padding="same", data_format="NHWC"),
         lambda x: layers.conv2d(x, 6, 3, padding="SAME", data_format="NHWC"), (2, 6, 4, 5)),
        (lambda: dygraph.Pool2D(3, "avg", 2, 1, ceil_mode=True, exclusive=False),
         lambda x: layers.pool2d(x, 3, "avg", 2, 1, ceil_mode=True, exclusive=False), (2, 4, 6, 5)),
        (lambda: nn.MaxPool2D(2), lambda x: layers.pool2d(x, 2, "max", 2), (2, 4, 6, 5)),
        (lambda: nn.AvgPool2D(2, 1, 1), lambda x: layers.pool2d(x, 2, "avg", 1, 1), (2, 4, 6, 5)),
        (lambda: nn.AdaptiveAvgPool2D(1), lambda x: layers.pool2d(x, pool_type="avg", global_pooling=True),
         (2, 4, 6, 5)),
        (lambda: dygraph.BatchNorm(4, act="relu"), lambda x: layers.batch_norm(x, act="relu"), (2, 4, 6, 5)),
        (lambda: nn.BatchNorm1D(5, data_format="NLC"), lambda x: layers.batch_norm(x, data_layout="NHWC"), (2, 6, 5)),
        (lambda: nn.BatchNorm2D(4, momentum=0.5), lambda x: layers.batch_norm(x, momentum=0.5), (2, 4, 6, 5)),
        (lambda: nn.BatchNorm3D(4), lambda x: layers.batch_norm(x), (2, 4, 6, 5, 3)),
        (lambda: nn.SyncBatchNorm(4), lambda x: layers.batch_norm(x), (2, 4, 6, 5)),
        (lambda: dygraph.LayerNorm([6, 5], act="relu"), lambda x: layers.layer_norm(x, begin_norm_axis=2, act="relu"),
         (2, 4, 6, 5)),
        (lambda: nn.LayerNorm(5, bias_attr=False), lambda x: layers.layer_norm(x, begin_norm_axis=3, shift=False),
         (2, 4, 6, 5)),
        (lambda: dygraph.Linear(5, 3, act="sigmoid"), lambda x: layers.fc(x, 3, 2, act="sigmoid"), (2, 4, 5)),
    ],
)  # fmt: skip
def test_a_layer_computes_what_its_function_computes(layer, build, shape):
    made, x = layer(), tensor(*shape, seed=3)
    params = [p.numpy() for p in made.parameters()]
    expected = static(lambda given: build(given["x"]), {"x": x.numpy()}, params)
    assert np.array_equal(made(x).numpy(), expected)


def test_a_layer_norm_warns_of_what_it_does_not_use():
    """As in Paddle 1.8.5."""
    with pytest.warns(UserWarning, match="bias_attr"):
        made = dygraph.LayerNorm(4, shift=False, bias_attr="b")
    assert [parameter.shape for parameter in made.parameters()] == [[4]]


@pytest.mark.parametrize("padding_idx", [None, 1, -1])
def test_an_embedding_computes_what_its_function_computes(padding_idx):
    ids = np.array([[1, 4], [0, 1]])
    for made in (dygraph.Embedding([5, 3], padding_idx=padding_idx), nn.Embedding(5, 3, padding_idx)):
        expected = static(
            lambda given: fluid.embedding(given["ids"], [5, 3], padding_idx=padding_idx), {"ids": ids},
            [made.weight.numpy()],
        )  # fmt: skip
        assert np.array_equal(made(dygraph.to_variable(ids)).numpy(), expected)


@pytest.mark.parametrize(
    "call",
    [
        lambda: dygraph.Pool2D(), lambda: dygraph.Dropout(2), lambda: dygraph.BatchNorm(2, bias_attr=False),
        lambda: dygraph.Linear(2, 2, param_attr=False), lambda: dygraph.Conv2D(3, 2, 3, groups=2),
        lambda: dygraph.LayerNorm(4)(tensor(2, 3)), lambda: dygraph.LayerNorm([2, 4])(tensor(4)),
        lambda: dygraph.Embedding([4, 2])(tensor(2)),
        lambda: nn.Conv2D(1, 1, 1, padding_mode="reflect"), lambda: nn.MaxPool2D(2, return_mask=True),
        lambda: nn.AvgPool2D(2, divisor_override=3), lambda: nn.BatchNorm2D(2)(tensor(3, 2)),
        lambda: nn.BatchNorm2D(2, data_format="NCL"), lambda: dygraph.Sequential(3),
        lambda: dygraph.LayerList([dygraph.Dropout()]).insert(0, 3),
    ],
)  # fmt: skip
def test_layers_refuse_what_they_cannot_mean(call):
    with pytest.raises(MinigraphError):
        call()


# Paddle 2


def test_normalization_without_learning_has_ones_and_zeros():
    bn = nn.BatchNorm1D(3, weight_attr=False, bias_attr=False)
    assert [p.trainable for p in bn.parameters()] == [False] * 4
    x = tensor(5, 3)
    plain = nn.BatchNorm1D(3)
    assert np.array_equal(bn(x).numpy(), plain(x).numpy())


def test_statistics_of_the_batch_can_be_asked_for_in_eval_mode():
    x = tensor(5, 3)
    following, always, never = (nn.BatchNorm1D(3, use_global_stats=wanted) for wanted in (None, False, True))
    in_training = following(x).numpy()
    for bn in (following, always, never):
        bn.eval()
    assert np.array_equal(always(x).numpy(), in_training)
    never.train()
    assert np.allclose(never(x).numpy(), x.numpy(), atol=1e-4)


# Containers


def test_a_layer_list_is_a_list():
    def linear():
        return dygraph.Linear(1, 1)

    found = dygraph.LayerList([linear(), linear(), linear()])
    names = [layer.full_name() for layer in found]
    assert [layer.full_name() for layer in found[1:]] == names[1:] and isinstance(found[1:], dygraph.LayerList)
    assert found[-1] is found[2]
    del found[1]
    found.insert(0, linear())
    found[1] = found[2]
    assert [layer.full_name() for layer in found] == ["linear_3", names[2], names[2]]
    assert list(found.state_dict())[:2] == ["0.weight", "0.bias"]
    with pytest.raises(IndexError):
        _ = found[3]
    with pytest.raises(IndexError):
        found[-4] = linear()


def test_layers_in_sequence_are_found_by_name_and_number():
    net = dygraph.Sequential(("first", dygraph.Linear(2, 3)), ("second", dygraph.Linear(3, 1)))
    assert net[0] is net["first"] and net[-1] is net["second"]
    with pytest.raises(NotFoundError, match="Did you mean first"):
        _ = net["firs"]
    with pytest.raises(IndexError):
        _ = net[2]
    net["third"] = dygraph.Linear(1, 4)
    assert net(tensor(5, 2)).shape == (5, 4)
    del net[0]
    assert list(net.state_dict()) == ["second.weight", "second.bias", "third.weight", "third.bias"]


def test_a_parameter_list_holds_parameters():
    layer = dygraph.Layer()
    held = dygraph.ParameterList([layer.create_parameter([2]), layer.create_parameter([3])])
    layer.held = held
    assert [(name, p.shape) for name, p in layer.named_parameters()] == [("held.0", (2,)), ("held.1", (3,))]
    held[-1] = layer.create_parameter([4])
    assert [p.shape for p in held] == [(2,), (4,)] and len(held) == 2


def test_the_helper_of_a_layer_takes_values():
    """`_helper` of fluid 1.8.5 is given the inputs and the attributes, not the names of arguments."""

    class Sum(dygraph.Layer):
        def forward(self, x, act=None):
            attrs = [fluid.ParamAttr(name="own"), fluid.ParamAttr(name="other")]
            pairs = list(self._helper.iter_inputs_and_params([x, x], attrs))
            assert [(each is x, attr.name) for each, attr in pairs] == [(True, "own"), (True, "other")]
            ((each, attr),) = self._helper.iter_inputs_and_params(x, fluid.ParamAttr())
            assert each is x and isinstance(attr, fluid.ParamAttr)
            assert self._helper.input_dtype(x) == x.dtype
            self._helper.is_instance(x, type(x))
            return self._helper.append_activation(x, act)

    with dygraph.guard():
        x = dygraph.to_variable(np.array([-1.0, 2.0], "float32"))
        assert Sum()(x, "relu").numpy().tolist() == [0, 2]
        assert Sum()(x) is x
        with pytest.raises(WrongTypeError, match="3 param_attr for 1 inputs"):
            list(Sum()._helper.iter_inputs_and_params(x, [None] * 3))


def test_a_layer_may_create_its_parameters_at_the_first_call():
    class Scaled(dygraph.Layer):
        def _build_once(self, x, **options):
            self.weight = self.create_parameter([x.shape[1]], default_initializer=fluid.initializer.Constant(3.0))

        def forward(self, x):
            return x * self.weight

    with dygraph.guard():
        layer = Scaled()
        assert layer.parameters() == []
        found = [layer(dygraph.to_variable(np.full((2, 4), value, "float32"))).numpy()[0, 0] for value in (1.0, 2.0)]
        assert found == [3, 6] and len(layer.parameters()) == 1


def test_names_begin_anew_in_each_guard_so_that_a_later_one_finds_its_state():
    states = []
    for _ in range(2):
        with dygraph.guard():
            model = dygraph.Linear(2, 1)
            optimizer = fluid.optimizer.Adam(0.1, parameter_list=model.parameters())
            for state in states:
                optimizer.set_dict(state)
            loss = fluid.layers.mean(model(dygraph.to_variable(np.ones((3, 2), "float32"))))
            loss.backward()
            optimizer.minimize(loss)
            states.append(optimizer.state_dict())
    assert list(states[0]) == list(states[1])
    assert states[1]["linear_0.w_0_beta1_pow_acc_0"].numpy() == pytest.approx(0.9**3)


def test_an_operator_may_be_told_is_test_whether_or_not_it_tells_the_two_apart():
    with dygraph.guard():
        layer = dygraph.Layer()
        out = layer._helper.create_variable_for_type_inference(dtype="float32")
        x = dygraph.to_variable(np.array([-1.0, 2.0], "float32"))
        layer._helper.append_op(type="relu", inputs={"X": [x]}, outputs={"Out": [out]}, attrs={"is_test": False})
        assert out.numpy().tolist() == [0, 2]


def test_members_and_gradients_have_the_spelling_of_fluid():
    with dygraph.guard():
        model = dygraph.Sequential(dygraph.Linear(2, 1))
        assert list(model._sub_layers.values()) == [model[0]]
        assert model[0].weight._grad_ivar() is None
        fluid.layers.mean(model(dygraph.to_variable(np.ones((3, 2), "float32")))).backward()
        assert model[0].weight._grad_ivar().numpy().tolist() == [[1], [1]]


def test_shapes_join_lists_as_those_of_fluid_do():
    x = dygraph.to_variable(np.ones((8, 3, 4), "float32"))
    assert x.shape == [8, 3, 4] and x.shape == (8, 3, 4) and x.shape != [8, 3]
    assert layers.reshape(x, x.shape[:1] + [-1]).shape == [8, 12]
    assert layers.reshape(x, [24] + x.shape[2:]).shape == (24, 4)
    assert dygraph.Linear(2, 3).weight.shape[1:] + [1] == [3, 1]
    assert len({x.shape, (8, 3, 4)}) == 1


def test_a_shape_is_a_list_of_its_own():
    """Recorded: a list, and what is done to it does not concern the tensor."""
    x = dygraph.to_variable(np.ones((3, 4), "float32"))
    shape = x.shape
    assert isinstance(shape, list)
    assert str(shape) == "[3, 4]"
    shape[0] = -1
    shape.insert(1, 3)
    assert layers.reshape(x, shape).shape == [1, 3, 4]
    assert x.shape == [3, 4]
    # Programs for minigraph use it as a tuple.
    assert x.shape == (3, 4)
    assert x.shape + (1,) == (3, 4, 1)
    assert (1,) + x.shape == (1, 3, 4)
    assert {x.shape: 1}[3, 4] == 1


@pytest.mark.parametrize("loss", [dygraph.MSELoss, dygraph.L1Loss, dygraph.BCELoss])
def test_a_loss_writes_operators_where_it_is_given_variables_of_a_program(loss):
    x, y = np.full((3, 1), 0.25, "float32"), np.full((3, 1), 0.5, "float32")
    expected = loss()(dygraph.to_variable(x), dygraph.to_variable(y)).numpy()
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        found = loss()(fluid.data("x", [None, 1]), fluid.data("y", [None, 1]))
        (given,) = fluid.Executor().run(main, {"x": x, "y": y}, [found])
    np.testing.assert_array_equal(given, expected)


def test_a_property_of_a_users_layer_sets_what_it_says():
    class Tied(dygraph.Layer):
        def __init__(self):
            super().__init__()
            self._table = self.create_parameter([2, 2])

        @property
        def weight(self):
            return self._table

        @weight.setter
        def weight(self, value):
            self._table = value

    one, other = Tied(), Tied()
    other.weight = one.weight
    assert other._table is one._table
    assert [param.name for param in other.parameters()] == [one._table.name]


def test_a_variable_of_a_layer_may_be_an_array():
    with dygraph.guard():
        made = dygraph.Layer().create_variable("held", type=fluid.core.VarDesc.VarType.LOD_TENSOR_ARRAY)
        assert made.type == fluid.core.VarDesc.VarType.LOD_TENSOR_ARRAY
