"""Optimizers: the order of their parts, and their arithmetic against the formulas, in float64."""

import numpy as np
import pytest

import minigraph as fluid
from minigraph.errors import ProgramError, WrongTypeError
from minigraph.ir import Role

L = fluid.layers
W = np.array([[0.5, -1.0], [2.0, 0.25], [-0.75, 1.5]])
X = np.array([[1.0, 2.0, -1.0], [0.5, -1.5, 3.0]])


def train(make_optimizer, steps=3, regularizer=None, learning_rate=1.0, trainable=True):
    """Values of the parameter after each step of minimizing ``mean((x @ w)**2)``, in float64."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x = fluid.data("x", [2, 3], "float64")
        attr = fluid.ParamAttr(
            "w",
            fluid.initializer.NumpyArrayInitializer(W),
            learning_rate=learning_rate,
            regularizer=regularizer,
            trainable=trainable,
        )
        loss = L.mean(L.square(L.fc(x, 2, param_attr=attr, bias_attr=False)))
        make_optimizer().minimize(loss)
    exe, scope = fluid.Executor(), fluid.Scope()
    exe.run(startup, scope=scope)
    history = []
    for _ in range(steps):
        exe.run(main, feed={"x": X}, scope=scope)
        history.append(np.array(scope.find_var("w").get_tensor()))
    return history


def gradient(w):
    return 2 * X.T @ (X @ w) / (X @ w).size


def f32(value):
    """A number as an attribute of an operator holds it."""
    return float(np.float32(value))


def test_sgd_steps_down_the_gradient():
    w = W.copy()
    for found in train(lambda: fluid.optimizer.SGD(0.05)):
        w = w - f32(0.05) * gradient(w)
        np.testing.assert_allclose(found, w, rtol=1e-12)


@pytest.mark.parametrize("nesterov", [False, True])
def test_momentum_follows_its_formula(nesterov):
    w, velocity = W.copy(), np.zeros_like(W)
    for found in train(lambda: fluid.optimizer.Momentum(0.05, 0.9, use_nesterov=nesterov)):
        grad = gradient(w)
        velocity = f32(0.9) * velocity + grad
        w = w - f32(0.05) * ((grad + f32(0.9) * velocity) if nesterov else velocity)
        np.testing.assert_allclose(found, w, rtol=1e-12)


def test_adam_follows_its_formula():
    w, m, v = W.copy(), np.zeros_like(W), np.zeros_like(W)
    beta1, beta2, epsilon = f32(0.8), f32(0.95), f32(1e-6)
    for step, found in enumerate(train(lambda: fluid.optimizer.Adam(0.05, 0.8, 0.95, 1e-6)), start=1):
        grad = gradient(w)
        m, v = beta1 * m + (1 - beta1) * grad, beta2 * v + (1 - beta2) * grad**2
        rate = f32(0.05) * np.sqrt(1 - beta2**step) / (1 - beta1**step)
        w = w - rate * m / (np.sqrt(v) + epsilon)
        np.testing.assert_allclose(found, w, rtol=1e-11)


def test_decay_is_added_to_the_clipped_gradient():
    w = W.copy()
    make = lambda: fluid.optimizer.SGD(  # noqa: E731
        0.05, grad_clip=fluid.clip.GradientClipByNorm(0.5), regularization=fluid.regularizer.L2Decay(0.1)
    )
    for found in train(make):
        grad = gradient(w)
        w = w - f32(0.05) * (grad * 0.5 / max(np.linalg.norm(grad), 0.5) + f32(0.1) * w)
        np.testing.assert_allclose(found, w, rtol=1e-12)


def test_l1_decay_adds_the_sign():
    w = W.copy()
    for found in train(lambda: fluid.optimizer.SGD(0.05, regularization=fluid.regularizer.L1Decay(0.1))):
        w = w - f32(0.05) * (gradient(w) + f32(0.1) * np.sign(w))
        np.testing.assert_allclose(found, w, rtol=1e-12)


def test_a_parameters_own_regularizer_wins():
    w = W.copy()
    make = lambda: fluid.optimizer.SGD(0.05, regularization=fluid.regularizer.L1Decay(9.0))  # noqa: E731
    for found in train(make, regularizer=fluid.regularizer.L2Decay(0.2)):
        w = w - f32(0.05) * (gradient(w) + f32(0.2) * w)
        np.testing.assert_allclose(found, w, rtol=1e-12)


def test_a_parameters_learning_rate_is_a_factor():
    w = W.copy()
    for found in train(lambda: fluid.optimizer.SGD(0.05), learning_rate=0.5):
        w = w - f32(0.05) * 0.5 * gradient(w)
        np.testing.assert_allclose(found, w, rtol=1e-12)


def test_a_parameter_that_is_not_trainable_stays():
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x = fluid.data("x", [2, 3])
        frozen = L.fc(x, 4, param_attr=fluid.ParamAttr("frozen", trainable=False), bias_attr=False)
        loss = L.mean(L.square(L.fc(frozen, 1, param_attr="free", bias_attr=False)))
        _, pairs = fluid.optimizer.SGD(0.1).minimize(loss)
    assert [param.name for param, _ in pairs] == ["free"]
    assert [op.input("Param") for op in main.global_block().ops if op.type == "sgd"] == [["free"]]


def test_minimize_sorts_updates_by_name_and_returns_raw_gradients():
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        loss = L.mean(L.fc(L.fc(fluid.data("x", [None, 3]), 2), 1))
        ops, pairs = fluid.optimizer.SGD(0.1, grad_clip=fluid.clip.GradientClipByNorm(1.0)).minimize(loss)
    assert [op.input("Param")[0] for op in ops] == ["fc_0.b_0", "fc_0.w_0", "fc_1.b_0", "fc_1.w_0"]
    assert [grad.name for _, grad in pairs] == [f"{param.name}@GRAD" for param, _ in pairs]
    assert all(op.role == Role.OPTIMIZE for op in ops)


def test_two_optimizers_on_one_program_have_their_own_rates():
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x = fluid.data("x", [None, 3])
        a, b = L.mean(L.fc(x, 1, param_attr="a")), L.mean(L.fc(x, 1, param_attr="b"))
        fluid.optimizer.SGD(0.1).minimize(a, parameter_list=["a"])
        fluid.optimizer.Adam(0.2).minimize(b, parameter_list=["b"])
    rates = {op.type: op.input("LearningRate") for op in main.global_block().ops if op.role & Role.OPTIMIZE}
    assert rates == {"sgd": ["learning_rate_0"], "adam": ["learning_rate_1"]}


def test_an_empty_list_of_parameters_means_those_of_the_optimizer_as_in_fluid():
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
        loss = L.mean(L.fc(fluid.data("x", [None, 3]), 1))
        with pytest.warns(UserWarning, match="parameter_list is empty"):
            _, pairs = fluid.optimizer.SGD(0.1).minimize(loss, parameter_list=[])
    assert [param.name for param, _ in pairs] == ["fc_0.w_0", "fc_0.b_0"]
    with fluid.dygraph.guard():
        layer = fluid.dygraph.Linear(2, 1)
        before = layer.weight.numpy()
        L.mean(layer(fluid.dygraph.to_variable(np.ones((1, 2), "float32")))).backward()
        with pytest.warns(UserWarning, match="parameter_list is empty"):
            fluid.optimizer.SGD(0.1, layer.parameters()).minimize(L.mean(layer.weight), parameter_list=[])
        np.testing.assert_allclose(layer.weight.numpy(), before - np.float32(0.1), rtol=1e-6)


def test_the_learning_rate_can_be_a_variable():
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x = fluid.data("x", [None, 3])
        loss = L.mean(L.fc(x, 1, param_attr=fluid.ParamAttr("w", fluid.initializer.Constant(1.0)), bias_attr=False))
        rate = L.create_global_var([1], 0.5, "float32", persistable=True, name="rate")
        fluid.optimizer.SGD(rate).minimize(loss)
    exe, scope = fluid.Executor(), fluid.Scope()
    exe.run(startup, scope=scope)
    scope.find_var("rate").get_tensor().set(np.array([2.0], "float32"), fluid.CPUPlace())
    exe.run(main, feed={"x": np.ones((1, 3), "float32")}, scope=scope)
    np.testing.assert_array_equal(np.array(scope.find_var("w").get_tensor()), np.full((3, 1), -1.0, "float32"))


def test_one_optimizer_serves_many_programs():
    optimizer = fluid.optimizer.Momentum(0.1, 0.9)
    for _ in range(2):
        main = fluid.Program()
        with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
            ops, _ = optimizer.minimize(L.mean(L.fc(fluid.data("x", [None, 3]), 1)))
        assert [op.input("Velocity") for op in ops] == [["fc_0.b_0_velocity_0"], ["fc_0.w_0_velocity_0"]]


def test_nothing_to_train_is_nothing_to_do():
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x = fluid.data("x", [2, 3])
        x.stop_gradient = False
        assert fluid.optimizer.SGD(0.1).minimize(L.mean(x)) == ([], [])
        assert fluid.optimizer.SGD(0.1).apply_gradients([]) == []


@pytest.mark.parametrize("rate", ["x", True, None, [0.1], np.ones(1)])
def test_the_learning_rate_must_be_a_number_or_variable(rate):
    with pytest.raises(WrongTypeError, match="SGDOptimizer: learning_rate must be a float or a Variable"):
        fluid.optimizer.SGD(rate)


@pytest.mark.parametrize("rate", [1, np.float32(0.5), np.int64(2)])
def test_any_number_is_a_learning_rate(rate):
    optimizer = fluid.optimizer.SGD(rate)
    assert (type(optimizer.get_lr()), optimizer.get_lr()) == (float, rate)


def test_the_learning_rate_of_a_program_may_be_set_before_minimize():
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        main = fluid.default_main_program()
        loss, rate = L.mean(L.fc(fluid.data("x", [None, 3]), 1)), L.fill_constant([1], "float32", 0.5)
        optimizer = fluid.optimizer.SGD(0.1)
        assert optimizer._learning_rate_map.get(main) is None
        optimizer._learning_rate_map[main] = rate
        optimizer.minimize(loss)
        assert optimizer._learning_rate_map[main] is optimizer._global_learning_rate() is rate
        assert {op.input("LearningRate")[0] for op in main.global_block().ops if op.type == "sgd"} == {rate.name}


def test_a_learning_rate_of_another_program_is_refused():
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        rate = L.create_global_var([1], 0.5, "float32", persistable=True)
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        loss = L.mean(L.fc(fluid.data("x", [None, 3]), 1))
        with pytest.raises(ProgramError, match="another program"):
            fluid.optimizer.SGD(rate).minimize(loss)


def test_wrong_strategies_are_refused():
    with pytest.raises(WrongTypeError, match="grad_clip"):
        fluid.optimizer.SGD(0.1, grad_clip=1.0)
    with pytest.raises(WrongTypeError, match="regularization"):
        fluid.optimizer.SGD(0.1, regularization=0.1)


def test_state_and_rates_have_the_names_that_scripts_read():
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
        rate = L.exponential_decay(0.1, 10, 0.5)
        optimizer = fluid.optimizer.Adam(rate)
        optimizer.minimize(L.mean(L.fc(fluid.data("x", [None, 3]), 1)))
        assert sorted(optimizer._accumulators) == ["beta1_pow_acc", "beta2_pow_acc", "moment1", "moment2"]
        moments = optimizer._accumulators[optimizer._moment1_acc_str]
        assert {param: var.name for param, var in moments.items()} == {
            "fc_0.b_0": "fc_0.b_0_moment1_0", "fc_0.w_0": "fc_0.w_0_moment1_0",
        }  # fmt: skip
        assert optimizer._beta1_pow_acc_str == "beta1_pow_acc"
        assert list(optimizer._learning_rate_map) == [fluid.default_main_program()]
        assert list(optimizer._learning_rate_map.values()) == [optimizer._learning_rate] == [rate]
    with fluid.dygraph.guard():
        decay = fluid.dygraph.NoamDecay(8, 10)
        layer = fluid.dygraph.Linear(2, 1)
        optimizer = fluid.optimizer.SGD(decay, parameter_list=layer.parameters())
        assert optimizer._learning_rate is decay
        optimizer._learning_rate = 0.5
        assert optimizer.get_lr() == optimizer._learning_rate == 0.5


def test_state_of_recomputed_programs_is_not_loaded():
    # Which scripts for fluid catch.
    with pytest.raises(NotImplementedError, match="RecomputeOptimizer does not load state"):
        fluid.optimizer.RecomputeOptimizer(fluid.optimizer.SGD(0.1)).load({})


def test_an_optimizer_with_nothing_to_update_leaves_its_learning_rate():
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        attr = fluid.ParamAttr("w", trainable=False)
        loss = L.mean(L.fc(fluid.data("x", [None, 4]), 2, param_attr=attr, bias_attr=False))
        ops, pairs = fluid.optimizer.SGD(0.1).minimize(loss)
    assert (ops, pairs) == ([], [])
    # The names that Paddle 1.8.5 has.
    names = ["fc_0.tmp_0", "fc_0.tmp_0@GRAD", "learning_rate_0", "mean_0.tmp_0", "mean_0.tmp_0@GRAD", "w", "x"]
    assert sorted(main.global_block().vars) == names
    scope = fluid.Scope()
    fluid.Executor().run(startup, scope=scope)
    assert np.array(scope.find_var("learning_rate_0").get_tensor()).tolist() == [np.float32(0.1)]


def test_a_wrapped_optimizer_answers_for_the_one_inside(new_program):
    loss = fluid.layers.mean(fluid.layers.fc(fluid.data("x", [None, 2]), 2))
    inner = fluid.optimizer.Adam(0.1)
    wrapped = fluid.optimizer.RecomputeOptimizer(inner)
    wrapped._set_checkpoints([loss])
    wrapped.minimize(loss)
    assert wrapped.get_opti_var_name_list() == inner.get_opti_var_name_list() != []
    assert wrapped.current_step_lr() == 0.1
    for refused in (wrapped.state_dict, wrapped.clear_gradients, lambda: wrapped.set_dict({})):
        with pytest.raises(ProgramError, match="does not know what to update"):  # a program has no such state
            refused()
