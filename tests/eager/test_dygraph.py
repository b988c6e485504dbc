"""The imperative mode: what it computes, what flows back, and that training gives the same bits as a program."""

import gc
import weakref
from functools import cache
from itertools import pairwise, product

import numpy as np
import pytest
from asserting import assert_same_bits

import minigraph as fluid
from minigraph import clip, layers, optimizer
from minigraph.dygraph import Linear, guard, no_grad, to_variable
from minigraph.errors import ExecutionError, NotFoundError, OpError, ProgramError, WrongTypeError
from minigraph.initializer import NumpyArrayInitializer
from minigraph.param_attr import ParamAttr
from minigraph.regularizer import L1Decay, L2Decay


def random(*shape, seed=0):
    return np.random.RandomState(seed).randn(*shape).astype("float32")


def source(*values):
    """A tensor that a gradient flows to."""
    tensor = to_variable(np.array(values, "float32"))
    tensor.stop_gradient = False
    return tensor


@pytest.fixture
def imperative():
    with guard(), fluid.unique_name.guard():
        yield


# Computing


def test_a_second_call_is_checked_like_the_first(imperative):
    x = source(1, 2, 3)
    assert layers.reshape(x, [3, 1]).shape == (3, 1)
    with pytest.raises(OpError, match="the numbers of elements differ"):
        layers.reshape(x, [2, 2])
    assert layers.reshape(x, [1, 3]).shape == (1, 3)
    with pytest.raises(OpError, match="attribute shape must be"):
        layers.reshape(x, [True, 3])


def test_an_error_names_the_users_line_and_the_operands(imperative):
    x, y = to_variable(random(2, 3)), to_variable(random(2, 3))
    for _ in range(2):
        with pytest.raises(OpError) as caught:
            layers.matmul(x, y)
        assert "X has 3 columns but Y has 2 rows" in str(caught.value)
        assert "test_dygraph.py" in str(caught.value) and "layers.matmul(x, y)" in str(caught.value)


def test_a_kernel_that_refuses_its_values_is_blamed_by_name(imperative):
    logits, label = to_variable(random(2, 3)), to_variable(np.array([[1], [7]], "int64"))
    with pytest.raises(ExecutionError, match="softmax_with_cross_entropy"):
        layers.softmax_with_cross_entropy(logits, label)


def test_a_random_operator_draws_anew_each_time(imperative):
    first, second = layers.uniform_random([100]).numpy(), layers.uniform_random([100]).numpy()
    assert (first != second).any()
    assert (layers.uniform_random([9], seed=4).numpy() == layers.uniform_random([9], seed=4).numpy()).all()


def test_tensors_of_different_guards_meet():
    with guard():
        linear = Linear(3, 2)
        other = source(1, 2, 3)
    x = to_variable(random(4, 3))
    with guard():
        y = layers.reduce_sum(linear(x + other))
        y.backward()
    np.testing.assert_allclose(other.grad.numpy(), 4 * linear.weight.numpy().sum(axis=1), rtol=1e-5)


def test_variables_of_equal_names_stay_apart():
    with guard(), fluid.unique_name.guard():
        first = source(1, 2)
        name = first.name  # tensors get names when they are asked for
    with guard(), fluid.unique_name.guard():
        second = source(10, 20)
        assert first.name == name == second.name
        total = layers.elementwise_sub(first, second)
        assert total.numpy().tolist() == [-9, -18]
        layers.reduce_sum(total).backward()
    assert (first.gradient().tolist(), second.gradient().tolist()) == ([1, 1], [-1, -1])


def test_each_layer_has_its_own_parameters_whatever_their_names(imperative):
    first = Linear(2, 2, param_attr=ParamAttr("w"))
    second = Linear(2, 2, param_attr=ParamAttr("w"))
    assert first.weight is not second.weight
    assert (first.weight.numpy() != second.weight.numpy()).any()


def test_a_variable_of_a_program_is_refused():
    with fluid.program_guard(fluid.Program()):
        static = fluid.data("x", [2])
    with guard(), pytest.raises(ProgramError, match="has no value here"):
        layers.relu(static)


def test_a_global_variable_starts_with_its_value(imperative):
    assert layers.create_global_var([2], 3.0, "float32", name="counter").numpy().tolist() == [3, 3]


# Gradients


def test_backward_reaches_every_tensor_and_sums_over_its_uses(imperative):
    x, y = source(1, 2), source(3, 5)
    product = x * y
    layers.reduce_sum(product + x).backward()
    assert x.gradient().tolist() == [4, 6]
    assert y.gradient().tolist() == [1, 2]
    assert product.gradient().tolist() == [1, 1]


def test_backward_replaces_inside_a_guard_and_adds_outside():
    x = source(1, 2)
    for _ in range(2):
        layers.reduce_sum(x * 3.0).backward()
    assert x.gradient().tolist() == [6, 6]
    with guard():
        x = source(1, 2)
        for _ in range(2):
            layers.reduce_sum(x * 3.0).backward()
        assert x.gradient().tolist() == [3, 3]


def test_no_gradient_flows_through_what_is_detached_or_not_recorded(imperative):
    x = source(2, 3)
    with no_grad():
        unrecorded = x * x
    layers.reduce_sum(x * x.detach() + unrecorded).backward()
    assert x.gradient().tolist() == [2, 3]
    assert unrecorded.stop_gradient and unrecorded.grad is None


def test_backward_from_a_constant_does_nothing_and_says_so(imperative):
    x = to_variable(random(2))
    with pytest.warns(UserWarning, match="nothing that has a gradient"):
        layers.reduce_sum(x).backward()
    assert x.grad is None


@pytest.mark.parametrize("convert", [bool, int, float, lambda x: x.item()], ids=["bool", "int", "float", "item"])
def test_only_one_element_is_a_number(convert, imperative):
    assert convert(to_variable(np.ones((1, 1), "float32"))) == 1
    with pytest.raises(ProgramError, match=r"(?s)is no number: its shape is \[2, 3\].*Reduce it") as caught:
        convert(to_variable(np.ones((2, 3), "float32")))
    assert caught.value.site.filename == __file__


def test_backward_from_many_numbers_finds_the_gradients_of_their_sum(imperative):
    x = source(1, 2, 3)
    y = x * x
    with pytest.warns(UserWarning, match="has 3 elements, finds the gradients of their sum"):
        y.backward()
    assert x.gradient().tolist() == [2, 4, 6]
    with pytest.raises(ProgramError, match="grad_tensor must be"):
        y.backward(to_variable(random(2)))
    y.backward(to_variable(np.array([1, 10, 100], "float32")))
    assert x.gradient().tolist() == [2, 40, 600]


def test_an_old_value_is_differentiated_where_it_was_used(imperative):
    x = source(3)
    before = x * x
    x.set_value(np.array([5], "float32"))
    layers.reduce_sum(before + x * x).backward()
    assert x.gradient().tolist() == [2 * 3 + 2 * 5]


def test_writing_to_a_part_of_a_tensor_says_what_to_do(imperative):
    x = source(3, 4)
    with pytest.raises(WrongTypeError, match=r"(?s)cannot be written to in parts.*layers\.scatter.*set_value"):
        x[0] = 1


def test_an_update_does_not_change_what_was_computed_before(imperative):
    linear = Linear(2, 1, param_attr=NumpyArrayInitializer(np.array([[1.0], [2.0]])))
    x = source(3, 4)
    first = layers.reduce_sum(linear(layers.reshape(x, [1, 2])))
    layers.reduce_sum(linear.weight * 1.0).backward()
    optimizer.SGD(0.5, parameter_list=[linear.weight]).step()
    assert linear.weight.numpy().tolist() == [[0.5], [1.5]]
    first.backward()
    assert x.gradient().tolist() == [1, 2]


def test_equal_structure_does_not_mean_equal_values(imperative):
    for scale in (1.0, 2.0, 2.0, 3.0):
        x = source(scale, 1)
        layers.reduce_sum(x * x).backward()
        assert x.gradient().tolist() == [2 * scale, 2]
    for factor in (2.0, 5.0):
        x = source(1, 1)
        layers.reduce_sum(x * factor).backward()
        assert x.gradient().tolist() == [factor, factor]


def test_which_tensor_is_constant_is_part_of_the_structure(imperative):
    for constant in (False, True, False):
        x, y = source(1, 2), source(3, 4)
        y.stop_gradient = constant
        layers.reduce_sum(x * y).backward()
        assert x.gradient().tolist() == [3, 4]
        assert (y.grad is None) == constant


def test_grad_adds_targets_up_that_depend_on_each_other(imperative):
    x = source(2)
    y = x * x
    z = y * y
    (found,) = fluid.grad([y, z], [x])
    assert found.numpy().tolist() == [2 * 2 + 4 * 2**3]
    assert x.grad is None


def test_grad_takes_seeds_and_says_what_is_unused(imperative):
    x, unused = source(1, 2), source(1)
    y = x * x
    (found,) = fluid.grad(y, x, grad_outputs=to_variable(np.array([1, 10], "float32")))
    assert found.numpy().tolist() == [2, 40]
    with pytest.raises(ProgramError, match="do not depend on"):
        fluid.grad(y, unused)
    assert fluid.grad(y, [unused], allow_unused=True) == [None]
    with pytest.raises(ProgramError, match="2 grad_outputs"):
        fluid.grad(y, x, grad_outputs=[None, None])
    with pytest.raises(ProgramError, match="only_inputs=False"):
        fluid.grad(y, x, only_inputs=False)


def test_a_gradient_can_be_set_and_cleared(imperative):
    x = source(1, 2)
    x.grad = to_variable(np.array([np.inf, 1], "float32"))
    x.clear_gradient()
    assert x.gradient().tolist() == [0, 0]
    x.clear_gradient(set_to_zero=False)
    assert x.grad is None
    with pytest.raises(WrongTypeError, match="must be a Tensor"):
        x.grad = np.zeros(2)
    with pytest.raises(ProgramError, match="its gradient cannot be"):
        x.grad = to_variable(random(3))


@pytest.mark.slow
def test_what_nobody_holds_is_forgotten(imperative):
    x = source(1, 2)
    y = x * x
    reference = weakref.ref(y)
    z = layers.reduce_sum(y)
    del y
    assert reference() is not None, "the sum needs it for its gradient"
    del z
    gc.collect()
    assert reference() is None


def test_the_modes_can_be_switched():
    assert not fluid.dygraph.enabled()
    fluid.enable_dygraph()
    try:
        assert layers.fill_constant([2], "float32", 3.0).numpy().tolist() == [3, 3]
    finally:
        fluid.disable_dygraph()
    assert not fluid.dygraph.enabled()
    fluid.enable_static()
    try:
        assert not fluid.in_dynamic_mode()
    finally:
        fluid.disable_static()
    try:
        assert fluid.dygraph.enabled()
    finally:
        fluid.disable_dygraph()
    assert fluid.in_dynamic_mode()


# Training in both modes

CLIPS = {
    "no clip": lambda need_clip: None,
    "value": lambda need_clip: clip.GradientClipByValue(0.01, need_clip=need_clip),
    "interval": lambda need_clip: clip.GradientClipByValue(0.02, -0.005, need_clip=need_clip),
    "norm": lambda need_clip: clip.GradientClipByNorm(0.05, need_clip=need_clip),
    "global norm": lambda need_clip: clip.GradientClipByGlobalNorm(0.05, need_clip=need_clip),
    "norm never reached": lambda need_clip: clip.GradientClipByNorm(1e6, need_clip=need_clip),
    "p-norm": lambda need_clip: clip.GradientClipByPNorm(0.05, 1.5, need_clip=need_clip),
    "global max norm": lambda need_clip: clip.GradientClipByGlobalPNorm(0.01, float("inf"), need_clip=need_clip),
    "columns": lambda need_clip: clip.GradientClipByAxisNorm(0.02, [0], need_clip=need_clip),
    "block rms": lambda need_clip: clip.GradientClipByBlockRMS(0.005, need_clip=need_clip),
    "adaptive": lambda need_clip: clip.AdaptiveGradientClip(0.01, need_clip=need_clip),
    "autoclip": lambda need_clip: clip.AutoClip(20, telemetry=True, need_clip=need_clip),
    "zclip": lambda need_clip: clip.ZClip(0.5, warmup_steps=2, nonfinite="skip", need_clip=need_clip),
    "pipeline": lambda need_clip: clip.ClipPipeline(
        [clip.GradientClipByValue(0.02), clip.GradientClipByGlobalNorm(0.05)], nonfinite="zero", need_clip=need_clip
    ),
}
FILTERS = {"all": None, "weights only": lambda param: param.name.startswith("w")}
OPTIMIZERS = {
    "sgd": lambda **given: optimizer.SGD(0.1, **given),
    "momentum": lambda **given: optimizer.Momentum(0.1, 0.9, **given),
    "nesterov": lambda **given: optimizer.Momentum(0.1, 0.9, use_nesterov=True, **given),
    "adam": lambda **given: optimizer.Adam(0.1, **given),
}
DECAYS = {"no decay": None, "l2": L2Decay(0.1), "l1": L1Decay(0.01)}
STEPS = 5
SIZES = (6, 5, 4, 3)
NAMES = [f"{kind}{i}" for i in range(3) for kind in "wb"]


@cache
def start_values():
    shapes = [shape for before, after in pairwise(SIZES) for shape in ((before, after), (after,))]
    return {name: random(*shape, seed=i) for i, (name, shape) in enumerate(zip(NAMES, shapes, strict=True))}


@cache
def batches():
    return [
        (random(7, SIZES[0], seed=step) * 3, np.random.RandomState(step).randint(0, SIZES[-1], (7, 1)).astype("int64"))
        for step in range(STEPS)
    ]


def attribute(name):
    return ParamAttr(name, NumpyArrayInitializer(start_values()[name]))


def trained_by_program(make_optimizer, **given):
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        hidden, label = fluid.data("x", [None, SIZES[0]]), fluid.data("y", [None, 1], "int64")
        for i, size in enumerate(SIZES[1:]):
            weight = layers.create_parameter([SIZES[i], size], "float32", attr=attribute(f"w{i}"))
            bias = layers.create_parameter([size], "float32", attr=attribute(f"b{i}"), is_bias=True)
            hidden = layers.elementwise_add(layers.matmul(hidden, weight), bias, axis=1)
            hidden = layers.tanh(hidden) if i < 2 else hidden
        loss = layers.mean(layers.softmax_with_cross_entropy(hidden, label))
        make_optimizer(**given).minimize(loss)
    executor, scope = fluid.Executor(), fluid.Scope()
    executor.run(startup, scope=scope)
    for x, y in batches():
        executor.run(main, feed={"x": x, "y": y}, scope=scope)
    return {name: np.array(scope.find_var(name).get_tensor()) for name in NAMES}


def build_layers():
    return [
        Linear(SIZES[i], size, attribute(f"w{i}"), attribute(f"b{i}"), act="tanh" if i < 2 else None)
        for i, size in enumerate(SIZES[1:])
    ]


def parameters(model):
    return [param for layer in model for param in layer.parameters()]


def train_step(model, update, x, y):
    hidden = to_variable(x)
    for layer in model:
        hidden = layer(hidden)
    loss = layers.mean(layers.softmax_with_cross_entropy(hidden, to_variable(y)))
    loss.backward()
    update.minimize(loss)
    update.clear_gradients()


def trained_imperatively(make_optimizer, **given):
    with guard(), fluid.unique_name.guard():
        model = build_layers()
        update = make_optimizer(parameter_list=parameters(model), **given)
        for x, y in batches():
            train_step(model, update, x, y)
        return {param.name: param.numpy() for param in parameters(model)}


TRAININGS = [
    tuple(name for _, name in numbered)
    for numbered in product(*map(enumerate, (CLIPS, FILTERS, OPTIMIZERS, DECAYS)))
    if sum(number for number, _ in numbered) % 2 == 0
]
"""Every second combination; any three of them go with each other."""


@pytest.mark.laws
@pytest.mark.parametrize(("strategy", "need_clip", "make_optimizer", "decay"), TRAININGS)
def test_training_gives_the_same_bits_in_both_modes(strategy, need_clip, make_optimizer, decay):
    given = {"grad_clip": CLIPS[strategy](FILTERS[need_clip]), "regularization": DECAYS[decay]}
    expected = trained_by_program(OPTIMIZERS[make_optimizer], **given)
    found = trained_imperatively(OPTIMIZERS[make_optimizer], **given)
    for name, array in expected.items():
        assert_same_bits(found[name], array)
        assert (array != start_values()[name]).any()


# Optimizers


@pytest.mark.slow
@pytest.mark.parametrize("make_optimizer", OPTIMIZERS)
def test_training_goes_on_after_a_reload_as_if_nothing_had_happened(make_optimizer):
    data = [*batches(), batches()[0]]

    def model_and_optimizer():
        with fluid.unique_name.guard():
            model = build_layers()
            return model, OPTIMIZERS[make_optimizer](
                parameter_list=parameters(model), grad_clip=clip.GradientClipByGlobalNorm(0.05)
            )

    with guard():
        model, update = model_and_optimizer()
        for x, y in data:
            train_step(model, update, x, y)
        expected = [param.numpy() for param in parameters(model)]

        model, update = model_and_optimizer()
        for x, y in data[:3]:
            train_step(model, update, x, y)
        values = [param.numpy() for param in parameters(model)]
        state = {name: tensor.numpy() for name, tensor in update.state_dict().items()}

        model, update = model_and_optimizer()
        for param, value in zip(parameters(model), values, strict=True):
            param.set_value(value)
        update.set_state_dict(state)
        for x, y in data[3:]:
            train_step(model, update, x, y)
        for param, array in zip(parameters(model), expected, strict=True):
            assert_same_bits(param.numpy(), array)


def momentum(model, **given):
    return optimizer.Momentum(0.1, 0.9, parameters=model.parameters(), **given)


def test_a_state_is_a_copy_and_is_checked_before_it_is_taken(imperative):
    model = Linear(2, 1)
    update = momentum(model)
    layers.reduce_sum(model(to_variable(random(3, 2)))).backward()
    update.step()
    state = update.state_dict()
    kept = {name: tensor.numpy() for name, tensor in state.items()}
    assert (kept["linear_0.w_0_velocity_0"] == model.weight.gradient()).all()
    update.step()
    assert all((state[name].numpy() == array).all() for name, array in kept.items())

    now = {name: tensor.numpy() for name, tensor in update.state_dict().items()}
    with pytest.raises(NotFoundError, match="the state has no 'linear_0"):
        update.set_state_dict({name: array for name, array in kept.items() if "w_0" not in name})
    with pytest.raises(NotFoundError, match="the optimizer has no 'moment'"):
        update.set_dict({**kept, "moment": np.zeros(1)})
    with pytest.raises(ProgramError, match="the state has float64"):
        update.set_state_dict({**kept, "linear_0.b_0_velocity_0": np.zeros(1)})
    assert all((tensor.numpy() == now[name]).all() for name, tensor in update.state_dict().items())
    update.set_state_dict(state)
    assert all((tensor.numpy() == kept[name]).all() for name, tensor in update.state_dict().items())


def test_the_learning_rate_can_change_between_steps(imperative):
    weight = layers.create_parameter([1], "float32", attr=NumpyArrayInitializer(np.array([1.0])))
    update = optimizer.SGD(0.5, parameters=[weight])
    assert update.get_lr() == 0.5
    for rate, expected in ((0.5, 0.5), (0.25, 0.25), (2.0, -1.75)):
        update.set_lr(rate)
        layers.reduce_sum(weight * 1.0).backward()
        update.step()
        assert update.get_lr() == rate
        assert weight.numpy().tolist() == [expected]
    other = optimizer.SGD(0.1, parameters=[weight])
    other.set_dict(update.state_dict())
    assert other.get_lr() == 2.0
    with pytest.raises(WrongTypeError, match="must be a number"):
        update.set_lr("0.1")


def test_the_learning_rate_of_a_program_is_not_set_from_outside():
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        update = optimizer.SGD(0.1)
        update.minimize(layers.mean(layers.fc(fluid.data("x", [2, 2]), 1)))
        with pytest.raises(ProgramError, match="imperative mode"):
            update.set_lr(0.2)


def test_a_parameters_own_factor_regularizer_and_freeze_count(imperative):
    def weight(**attrs):
        attr = ParamAttr(initializer=NumpyArrayInitializer(np.array([2.0])), **attrs)
        return layers.create_parameter([1], "float32", attr=attr)

    params = [weight(learning_rate=0.5), weight(regularizer=L2Decay(1.0)), weight(trainable=False), weight()]
    update = optimizer.SGD(0.5, parameters=params, weight_decay=0.5)
    layers.reduce_sum(layers.sums(params)).backward()
    update.step()
    # The gradient is 1, and 2 times the decay comes on top.
    assert [param.numpy().item() for param in params] == [2 - 0.25 * 2, 2 - 0.5 * 3, 2, 2 - 0.5 * 2]
    params[3].need_clip = False
    update = optimizer.SGD(1.0, parameters=params[3:], grad_clip=clip.GradientClipByNorm(0.25))
    update.step()
    params[3].need_clip = True
    update.step()
    assert params[3].numpy().item() == 1 - 1 - 0.25


def test_parameters_without_gradient_keep_their_values_and_get_a_warning_if_all_have_none(imperative):
    used, unused = Linear(2, 1), Linear(2, 1)
    before = unused.weight.numpy()
    update = optimizer.Adam(0.1, parameters=used.parameters() + unused.parameters())
    with pytest.warns(UserWarning, match="no parameter has a gradient"):
        update.step()
    layers.reduce_sum(used(to_variable(random(3, 2)))).backward()
    update.step()
    assert (unused.weight.numpy() == before).all()
    assert unused.weight.grad is None


def test_two_names_of_an_argument_exclude_each_other(imperative):
    params = Linear(2, 1).parameters()
    with pytest.raises(ProgramError, match="parameter_list and parameters are two names"):
        optimizer.SGD(0.1, parameter_list=params, parameters=params)
    with pytest.raises(ProgramError, match="regularization and weight_decay are two names"):
        optimizer.Momentum(0.1, parameters=params, regularization=L2Decay(0.1), weight_decay=0.1)
    with pytest.raises(WrongTypeError, match="weight_decay must be a float or a WeightDecayRegularizer or None"):
        optimizer.Adam(0.1, parameters=params, weight_decay="0.1")
    with pytest.raises(ProgramError, match="one name"):
        twins = [layers.create_parameter([1], "float32", name="w") for _ in range(2)]
        layers.reduce_sum(twins[0] + twins[1]).backward()
        optimizer.SGD(0.1, parameters=twins).step()


def test_an_optimizer_needs_parameters_that_have_values(imperative):
    with pytest.raises(ProgramError, match="does not know what to update"):
        optimizer.SGD(0.1).step()
    with pytest.raises(WrongTypeError, match="no parameter of the imperative mode"):
        optimizer.SGD(0.1, parameter_list=["w"]).step()


def test_minimize_gives_the_pairs_before_the_clip(imperative):
    model = Linear(3, 2)
    loss = layers.reduce_sum(model(to_variable(random(4, 3))))
    loss.backward()
    update = optimizer.SGD(0.1, parameter_list=model.parameters(), grad_clip=clip.GradientClipByNorm(0.5))
    before = model.weight.numpy()
    _, pairs = update.minimize(loss, parameters=[model.weight, model.bias])
    assert [param.name for param, _ in pairs] == [param.name for param in model.parameters()]
    grad = pairs[0][1].numpy().astype("float64")
    np.testing.assert_allclose(before - model.weight.numpy(), 0.1 * grad * 0.5 / np.linalg.norm(grad), rtol=1e-4)


# Clips called with pairs


@pytest.mark.parametrize("strategy", [name for name in CLIPS if name not in ("no clip", "zclip")])
@pytest.mark.parametrize("need_clip", FILTERS)
def test_a_strategy_called_with_pairs_gives_the_same_bits_in_both_modes(strategy, need_clip):
    grads = {name: random(*array.shape, seed=9) * 0.1 for name, array in start_values().items()}

    def parameter(name):
        value = start_values()[name]
        return layers.create_parameter(
            list(value.shape), "float32", name=name, default_initializer=NumpyArrayInitializer(value)
        )

    main, startup, exe, scope = fluid.Program(), fluid.Program(), fluid.Executor(), fluid.Scope()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        pairs = [(parameter(name), fluid.data(f"g_{name}", array.shape)) for name, array in grads.items()]
        result = CLIPS[strategy](FILTERS[need_clip])(pairs)
    feed = {f"g_{name}": array for name, array in grads.items()}
    exe.run(startup, scope=scope)
    expected = exe.run(main, feed=feed, fetch_list=[grad for _, grad in result], scope=scope)
    with guard():
        pairs = [(parameter(name), to_variable(array)) for name, array in grads.items()]
        found = CLIPS[strategy](FILTERS[need_clip])(pairs)
    for (param, grad), name, array in zip(found, NAMES, expected, strict=True):
        assert param.name == name
        assert_same_bits(grad.numpy(), array)


def test_fluids_strategy_of_the_backward_pass_is_accepted_and_its_older_switch_too():
    strategy = fluid.dygraph.BackwardStrategy()
    assert strategy.sort_sum_gradient is False
    strategy.sort_sum_gradient = True
    with pytest.raises(NotFoundError, match="has no field 'sort_sum'"):
        strategy.sort_sum = True
    with pytest.raises(WrongTypeError, match="must be True or False"):
        strategy.sort_sum_gradient = 1
    fluid.dygraph.enable_imperative()
    try:
        for give in (lambda loss: loss.backward(strategy), lambda loss: loss.backward(backward_strategy=strategy)):
            x = fluid.dygraph.to_variable(np.array([2.0, 3.0], "float32"))
            x.stop_gradient = False
            give(fluid.layers.reduce_sum(x * x))
            assert x.gradient().tolist() == [4, 6]
    finally:
        fluid.dygraph.disable_imperative()
    assert not fluid.in_dygraph_mode()


def test_a_tensor_is_read_and_set_as_a_variable_of_a_scope(imperative):
    x, layer = source([1.0, 2.0]), Linear(2, 1)
    held = x.value().get_tensor()
    assert (held.shape(), held.lod(), held._is_initialized()) == ([1, 2], [], True)
    np.asarray(held)[:] = 0  # a copy
    out = layers.reduce_sum(layer(x) * 2.0)
    layer.weight.value().get_tensor().set(np.array([[3.0], [4.0]], "float32"), fluid.CPUPlace())
    out.backward()
    # What was computed before the change is differentiated as it was computed.
    assert np.array(layer.weight._grad_ivar().value().get_tensor()).tolist() == [[2.0], [4.0]]
    assert (layer(x).numpy() - layer.bias.numpy()).tolist() == [[11.0]]
    x.value().get_tensor().set(np.ones([3, 2], "float64"), fluid.CPUPlace())
    assert (x.shape, x.numpy().dtype) == ([3, 2], "float64")


def test_the_values_of_a_sparse_gradient_are_those_of_its_rows(imperative):
    table = fluid.dygraph.Embedding([5, 2], is_sparse=True)
    layers.reduce_sum(table(to_variable(np.array([[3], [1], [3]])))).backward()
    rows = table.weight._grad_ivar().value().get_selected_rows()
    assert (rows.rows(), rows.height()) == ([3, 1, 3], 5)
    assert np.array(rows.get_tensor()).tolist() == [[1.0, 1.0]] * 3


def test_the_tracer_remembers_nothing_in_its_eval_mode():
    def has_gradient():
        x = to_variable(np.ones(2, "float32"))
        x.stop_gradient = False
        loss = layers.reduce_sum(x * 2.0)
        if loss.stop_gradient:
            return False
        loss.backward()
        return x.gradient().tolist() == [2.0, 2.0]

    with guard():
        fluid.framework._dygraph_tracer().eval_mode()
        assert not has_gradient()
        fluid.framework._dygraph_tracer().train_mode()
        assert has_gradient()
        fluid.framework._dygraph_tracer().eval_mode()
    with guard():
        assert has_gradient()


def test_a_tensor_and_a_variable_are_converted_by_the_name_of_the_argument():
    with guard():
        assert source(1.0, 2.0).astype(dtype="float64").numpy().dtype == "float64"
    with fluid.program_guard(fluid.Program()):
        assert str(fluid.data("x", [2]).astype(dtype="int64").dtype) == "int64"


def test_a_computed_tensor_that_is_told_to_stop_the_gradient_stops_it():
    """Numbers are those of Paddle 1.8.5: the flag counts when the tensor is read."""
    with guard():
        x, w = source(1.0, 2.0), source(1.0, 2.0)
        product = x * w
        product.stop_gradient = True
        layers.reduce_sum(x * product).backward()
        assert x.gradient().tolist() == [1, 4]
        assert w.gradient() is product.gradient() is None
        product.stop_gradient = False
        layers.reduce_sum(x * product).backward()
        assert x.gradient().tolist() == [2, 8]
        assert w.gradient().tolist() == [1, 4]


def test_a_branch_that_is_stopped_is_not_trained():
    with guard():
        trained, kept = Linear(2, 2), Linear(2, 2)
        x = to_variable(np.ones((3, 2), "float32"))
        first, second = trained(x), kept(x)
        second.stop_gradient = True
        layers.reduce_mean(first + second).backward()
        assert all(param.gradient() is not None for param in trained.parameters())
        assert all(param.gradient() is None for param in kept.parameters())


def test_a_frozen_parameter_has_no_gradient():
    with guard():
        frozen, later = Linear(2, 2, param_attr=ParamAttr(trainable=False)), Linear(2, 2)
        later.weight.trainable = False
        x = to_variable(np.ones((3, 2), "float32"))
        layers.reduce_mean(frozen(x) + later(x)).backward()
        assert frozen.weight.gradient() is None and later.weight.gradient() is None
        assert frozen.bias.gradient() is not None and later.bias.gradient() is not None
