"""Every optimizer against its formula in float64, in both modes, and with steps that are skipped."""

import numpy as np
import pytest
from test_optimizer import W, X, f32, gradient, train

import minigraph as fluid
from minigraph.errors import OpError, WrongTypeError
from minigraph.ir import Role
from minigraph.opdef import definition_of
from minigraph.passes.gradient_clip import ClipGradients

pytestmark = pytest.mark.numbers

L = fluid.layers
O = fluid.optimizer
RATE = f32(0.05)


def norm(x):
    return np.sqrt((x**2).sum())


# Each formula is called with the parameter and its gradient, step by step, and keeps its own state.


def lars_momentum(mu=0.8, coeff=0.5, decay=0.1):
    mu, coeff, decay = f32(mu), f32(coeff), f32(decay)
    velocity = 0.0

    def update(w, grad):
        nonlocal velocity
        rate = RATE * coeff * norm(w) / (norm(grad) + decay * norm(w))
        velocity = mu * velocity + rate * (grad + decay * w)
        return w - velocity

    return update


def dpsgd(w, grad):
    return w - RATE * grad / max(norm(grad) / f32(0.7), 1)


def adamw(coeff=0.1, beta1=0.8, beta2=0.95, epsilon=1e-3, ratio=1.0):
    coeff, beta1, beta2, epsilon = f32(coeff), f32(beta1), f32(beta2), f32(epsilon)
    m = v = step = 0

    def update(w, grad):
        nonlocal m, v, step
        step += 1
        m, v = beta1 * m + (1 - beta1) * grad, beta2 * v + (1 - beta2) * grad**2
        w = w - RATE * ratio * coeff * w
        return w - RATE * ratio * (m / (1 - beta1**step)) / (np.sqrt(v / (1 - beta2**step)) + epsilon)

    return update


def adamax(beta1=0.8, beta2=0.95, epsilon=1e-3):
    beta1, beta2, epsilon = f32(beta1), f32(beta2), f32(epsilon)
    m = u = step = 0

    def update(w, grad):
        nonlocal m, u, step
        step += 1
        m, u = beta1 * m + (1 - beta1) * grad, np.maximum(np.abs(grad), beta2 * u + epsilon)
        return w - RATE / (1 - beta1**step) * m / u

    return update


def lamb(decay=0.1, beta1=0.8, beta2=0.95, epsilon=1e-3):
    decay, beta1, beta2, epsilon = f32(decay), f32(beta1), f32(beta2), f32(epsilon)
    m = v = 0

    def update(w, grad):
        nonlocal m, v
        m, v = beta1 * m + (1 - beta1) * grad, beta2 * v + (1 - beta2) * grad**2
        step = m / (np.sqrt(v) + epsilon) + decay * w
        return w - RATE * norm(w) / norm(step) * step

    return update


def adagrad(start=0.25, epsilon=1e-3):
    total, epsilon = f32(start), f32(epsilon)

    def update(w, grad):
        nonlocal total
        total = total + grad**2
        return w - RATE * grad / (np.sqrt(total) + epsilon)

    return update


def decayed_adagrad(decay=0.7, epsilon=1e-3):
    decay, epsilon = f32(decay), f32(epsilon)
    mean = 0.0

    def update(w, grad):
        nonlocal mean
        mean = decay * mean + (1 - decay) * grad**2
        return w - RATE * grad / (np.sqrt(mean) + epsilon)

    return update


def adadelta(epsilon=1e-3, rho=0.7):
    epsilon, rho = f32(epsilon), f32(rho)
    squares = updates = 0.0

    def update(w, grad):
        nonlocal squares, updates
        squares = rho * squares + (1 - rho) * grad**2
        step = np.sqrt((updates + epsilon) / (squares + epsilon)) * grad
        updates = rho * updates + (1 - rho) * step**2
        return w - np.sqrt((updates + epsilon) / (squares + epsilon)) * grad

    return update


def rmsprop(centered, rho=0.7, epsilon=1e-3, momentum=0.5):
    rho, epsilon, momentum = f32(rho), f32(epsilon), f32(momentum)
    square = mean = velocity = 0.0

    def update(w, grad):
        nonlocal square, mean, velocity
        square, mean = rho * square + (1 - rho) * grad**2, rho * mean + (1 - rho) * grad
        velocity = momentum * velocity + RATE * grad / np.sqrt(square - centered * mean**2 + epsilon)
        return w - velocity

    return update


def ftrl(l1=0.02, power=-0.5):
    l1, power = f32(l1), f32(power)
    squared = linear = 0.0

    def update(w, grad):
        nonlocal squared, linear
        new = squared + grad**2
        linear = linear + grad - (new**-power - squared**-power) / RATE * w
        squared = new
        found = (l1 * np.sign(linear) - linear) / (new**-power / RATE + 2 * l1)
        return np.where(np.abs(linear) > l1, found, 0)

    return update


ADAM = {"beta1": 0.8, "beta2": 0.95, "epsilon": 1e-3}
UPDATES = {
    "lars_momentum": (lambda **o: O.LarsMomentum(0.05, 0.8, 0.5, 0.1, **o), lars_momentum),
    "dpsgd": (lambda **o: O.Dpsgd(0.05, clip=0.7, batch_size=2.0, sigma=0.0), lambda: dpsgd),
    "adamw": (lambda **o: O.AdamW(0.05, **ADAM, weight_decay=0.1, **o), adamw),
    "adamw without decay": (
        lambda **o: O.AdamW(0.05, **ADAM, weight_decay=0.1, apply_decay_param_fun=lambda name: name != "w", **o),
        lambda: adamw(coeff=0.0),
    ),
    "adamw with a ratio": (
        lambda **o: O.AdamW(0.05, **ADAM, weight_decay=0.1, lr_ratio=lambda param: 0.5, **o),
        lambda: adamw(ratio=0.5),
    ),
    "adamax": (lambda **o: O.Adamax(0.05, **ADAM, **o), adamax),
    "lamb": (lambda **o: O.Lamb(0.05, 0.1, **ADAM, **o), lamb),
    "lamb without decay": (
        lambda **o: O.Lamb(0.05, 0.1, **ADAM, exclude_from_weight_decay_fn=lambda param: param.name == "w", **o),
        lambda: lamb(decay=0.0),
    ),
    "adagrad": (lambda **o: O.Adagrad(0.05, 1e-3, initial_accumulator_value=0.25, **o), adagrad),
    "decayed_adagrad": (lambda **o: O.DecayedAdagrad(0.05, 0.7, 1e-3, **o), decayed_adagrad),
    "adadelta": (lambda **o: O.Adadelta(0.05, 1e-3, 0.7, **o), adadelta),
    "rmsprop": (lambda **o: O.RMSProp(0.05, 0.7, 1e-3, 0.5, **o), lambda: rmsprop(centered=False)),
    "rmsprop centered": (lambda **o: O.RMSProp(0.05, 0.7, 1e-3, 0.5, True, **o), lambda: rmsprop(centered=True)),
    "ftrl": (lambda **o: O.Ftrl(0.05, 0.02, 0.02, **o), ftrl),
    "ftrl with a power": (lambda **o: O.Ftrl(0.05, 0.02, 0.02, -0.7, **o), lambda: ftrl(power=-0.7)),
}
each_update = pytest.mark.parametrize("name", UPDATES)
each_that_takes_a_clip = pytest.mark.parametrize("name", [name for name in UPDATES if name != "dpsgd"])


@each_update
def test_an_optimizer_follows_its_formula(name):
    make, formula = UPDATES[name]
    w, update = W.copy(), formula()
    for found in train(make, steps=5):
        w = update(w, gradient(w))
        np.testing.assert_allclose(found, w, rtol=1e-10, atol=1e-12)


@each_that_takes_a_clip
def test_what_it_updates_by_is_the_clipped_gradient_with_decay(name):
    make, formula = UPDATES[name]
    w, update = W.copy(), formula()
    options = {"grad_clip": fluid.clip.GradientClipByNorm(0.5)}
    if not name.startswith("adamw"):
        options["regularization"] = fluid.regularizer.L2Decay(0.1)
    for found in train(lambda: make(**options), steps=3):
        grad = gradient(w)
        grad = grad * 0.5 / max(norm(grad), 0.5)
        w = update(w, grad + f32(0.1) * w if "regularization" in options else grad)
        np.testing.assert_allclose(found, w, rtol=1e-10, atol=1e-12)


# The two modes


def imperative_steps(make, steps):
    history = []
    with fluid.dygraph.guard():
        start = fluid.initializer.NumpyArrayInitializer(W.astype("float32"))
        layer = fluid.dygraph.Linear(3, 2, param_attr=fluid.ParamAttr("w", start), bias_attr=False)
        updates = make(layer.parameters())
        for _ in range(steps):
            L.mean(L.square(layer(fluid.dygraph.to_variable(X.astype("float32"))))).backward()
            updates.step()
            updates.clear_grad()
            history.append(layer.weight.numpy())
    return history


def static_steps(make, steps, feed=lambda step: X):
    """The parameter after each step, and all state."""
    main, startup = program_of(make)
    executor, scope, history = fluid.Executor(), fluid.Scope(), []
    executor.run(startup, scope=scope)
    for step in range(steps):
        executor.run(main, feed={"x": feed(step).astype("float32")}, scope=scope)
        history.append(np.array(scope.find_var("w").get_tensor()))
    return history, {name: np.array(scope.find_var(name).get_tensor()) for name in scope.local_var_names()}


def program_of(make):
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        attr = fluid.ParamAttr("w", fluid.initializer.NumpyArrayInitializer(W.astype("float32")))
        make(None).minimize(L.mean(L.square(L.mul(fluid.data("x", [2, 3]), parameter(attr)))))
    return main, startup


def parameter(attr):
    return L.create_parameter([3, 2], "float32", attr=attr)


@each_update
def test_both_modes_give_the_same_bits(name):
    make, _ = UPDATES[name]
    clip = {} if name == "dpsgd" else {"grad_clip": fluid.clip.GradientClipByGlobalNorm(0.5)}
    static, _ = static_steps(lambda params: make(**clip), 4)
    if name == "dpsgd":
        imperative = imperative_steps(lambda params: O.Dpsgd(0.05, 0.7, 2.0, 0.0, parameters=params), 4)
    else:
        imperative = imperative_steps(lambda params: make(parameters=params, **clip), 4)
    for a, b in zip(static, imperative, strict=True):
        assert a.tobytes() == b.tobytes()


# Steps that are skipped


def skipping(make):
    return lambda params: make(grad_clip=fluid.clip.GradientClipByGlobalNorm(1.0, nonfinite="skip"))


def with_infinity(step):
    return X if step != 1 else np.full_like(X, np.inf)


@each_that_takes_a_clip
def test_a_skipped_step_leaves_no_trace(name):
    make, _ = UPDATES[name]
    _, without = static_steps(skipping(make), 2)
    _, with_one = static_steps(skipping(make), 3, with_infinity)
    for key, value in without.items():
        if "skipped_steps" not in key:
            assert with_one[key].tobytes() == value.tobytes(), key


def test_adamax_keeps_its_power_itself_where_it_may_be_skipped():
    clip = fluid.clip.GradientClipByGlobalNorm(1.0, nonfinite="skip")
    by_optimizer, _ = program_of(lambda params: O.Adamax(0.05, grad_clip=clip))
    plain, _ = program_of(lambda params: O.Adamax(0.05))
    assert [op.type for op in plain.global_block().ops][-2:] == ["adamax", "scale"]
    plain.global_block().var("w").gradient_clip = clip
    for program in (by_optimizer, ClipGradients()(plain)):
        update = program.global_block().ops[-1]
        assert update.type == "adamax" and update.role == Role.OPTIMIZE and update.input("SkipUpdate")
        assert update.output("Beta1PowOut") == update.input("Beta1Pow") == ["w_beta1_pow_acc_0"]
        assert update.attr("op_role_var")[0] == "w"


# Single facts


def test_dpsgd_draws_noise_for_each_element():
    (w,) = train(lambda: O.Dpsgd(1.0, clip=1e9, batch_size=2.0, sigma=1.0), steps=1)
    noise = w - (W - gradient(W))
    assert len(np.unique(noise)) == noise.size


def test_the_noise_of_dpsgd_has_the_deviation_asked_for_and_follows_a_seed():
    feed = {"Param": np.zeros(10000, "float32"), "Grad": np.zeros(10000, "float32")}
    attrs = {"sigma": 3.0, "batch_size": 6.0}
    first, second, other = (one_update("dpsgd", feed, **attrs, seed=seed)[0] for seed in (7, 7, 8))
    assert first.tobytes() == second.tobytes() != other.tobytes()
    assert abs(first.std() / (0.1 * 3 / 6) - 1) < 6 / np.sqrt(2 * 10000)


def test_a_zero_parameter_or_gradient_leaves_lars_its_plain_rate():
    for zero in ("Param", "Grad"):
        feed = {slot: np.full([2], 0.0 if slot == zero else 3.0, "float32") for slot in ("Param", "Grad", "Velocity")}
        param, _ = one_update("lars_momentum", feed, mu=0.0, lars_weight_decay=0.0)
        np.testing.assert_allclose(param, feed["Param"] - np.float32(0.1) * feed["Grad"], rtol=1e-6)


def test_lars_with_a_coefficient_of_zero_does_not_move():
    feed = {slot: np.full(3, value, "float32") for slot, value in {"Param": 1, "Grad": 1, "Velocity": 0}.items()}
    param, velocity = one_update("lars_momentum", feed, mu=0.5, lars_coeff=0.0)
    assert np.array_equal(param, feed["Param"]) and not velocity.any()


def test_lars_does_not_overflow():
    feed = {"Param": np.full([2], 1e30), "Grad": np.full([2], 1e25), "Velocity": np.zeros(2)}
    param, _ = one_update("lars_momentum", {k: v.astype("float32") for k, v in feed.items()}, mu=0.0, lars_coeff=0.01)
    norms = np.sqrt(2) * np.array([1e30, 1e25])
    rate = 0.1 * 0.01 * norms[0] / (norms[1] + 0.0005 * norms[0])
    np.testing.assert_allclose(param, 1e30 - rate * (1e25 + 0.0005 * 1e30), rtol=1e-6)


def test_a_variance_that_rounding_makes_negative_counts_as_zero():
    mean = np.float32(1000.1)
    square = np.nextafter(np.float32(np.float64(mean) ** 2), np.float32(0))  # what many equal gradients may leave
    feed = {"Param": 0.0, "Grad": mean, "MeanSquare": square, "MeanGrad": mean, "Moment": 0.0}
    feed = {slot: np.array([value], "float32") for slot, value in feed.items()}
    assert np.isfinite(one_update("rmsprop", feed, centered=True, epsilon=1e-10, decay=1.0)[0]).all()


def one_update(op_type, feed, **attrs):
    program = fluid.Program()
    block = program.global_block()
    feed = {**feed, "LearningRate": np.array([0.1], "float32")}
    inputs = {slot: block.create_var(name=slot, shape=a.shape, dtype=a.dtype) for slot, a in feed.items()}
    slots = [slot.name for slot in definition_of(op_type).outputs]
    outputs = {slot: block.create_var(name=slot) for slot in slots}
    block.append_op(op_type, inputs, outputs, attrs)
    return fluid.Executor().run(program, feed=feed, fetch_list=list(outputs.values()))


@pytest.mark.parametrize("op_type", ["adagrad", "decayed_adagrad"])
def test_float16_parameters_are_refused(op_type):
    feed = {slot: np.ones([2], "float16") for slot in ("Param", "Grad", "Moment")}
    with pytest.raises(OpError, match="float16"):
        one_update(op_type, feed)


def test_ftrl_says_that_it_takes_one_weight_for_both_penalties():
    with pytest.warns(UserWarning, match="l2=0.5 is not used"):
        O.Ftrl(0.1, l1=0.25, l2=0.5)


def test_ftrl_does_not_hide_what_is_not_a_number():
    assert np.isnan(train(lambda: O.Ftrl(0.0, 0.1, 0.1), 2)).all()


def test_adamw_takes_a_number_as_weight_decay():
    with pytest.raises(WrongTypeError, match="weight_decay"):
        O.AdamW(0.1, weight_decay=fluid.regularizer.L2Decay(0.1))


@pytest.mark.parametrize(
    "make",
    [
        lambda **o: O.Momentum(0.1, 0.9, **o), lambda **o: O.LarsMomentum(0.1, 0.9, **o), lambda **o: O.SGD(0.1, **o),
        lambda **o: O.Adamax(0.1, **o), lambda **o: O.Adagrad(0.1, **o), lambda **o: O.RMSProp(0.1, **o),
        lambda **o: O.Lamb(0.1, **o), lambda **o: O.Ftrl(0.1, **o), lambda **o: O.Adadelta(0.1, **o),
        lambda **o: O.DecayedAdagrad(0.1, **o),
    ],
)  # fmt: skip
def test_paddle_2_names_of_arguments_are_known(make):
    updates = make(parameters=["w"], weight_decay=0.5)
    assert updates.regularization == fluid.regularizer.L2Decay(0.5)
    assert updates._parameter_list == ["w"]
