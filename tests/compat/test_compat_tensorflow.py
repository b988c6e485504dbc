"""`minigraph.compat.tensorflow` against what TensorFlow was recorded doing, its formulas, and exact arithmetic."""

import math
import runpy
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from golden_clip import Case, Results, cases, check
from together import check_all

import minigraph as fluid
import minigraph.compat.tensorflow as tf
from minigraph.dygraph import to_variable
from minigraph.errors import ClipError, ExecutionError, MinigraphError, OpError, ProgramError, WrongTypeError
from minigraph.ir import Role

pytestmark = pytest.mark.numbers

ROOT = Path(__file__).resolve().parents[2]
RECORDED = [case for system in ("tf1", "tf2") for case in cases(system) if case.set != "row_sparse_duplicate_rows"]
"""Without the one case of row-sparse gradients: in TensorFlow they are values with indices, not tensors."""


# What TensorFlow returned


def as_tensor(array):
    """There is no rank 0: a scalar has shape [1]."""
    return array.reshape(1) if array is not None and array.ndim == 0 else array


def call(case: Case, tensors):
    """Call the function of a case; returns what is to be looked at, by the names in the recording."""
    function = tf.linalg.global_norm if case.name == "global_norm" else getattr(tf, case.name)
    args = dict(case.args)
    for name, value in args.items():
        if isinstance(value, str) and value.startswith("in_"):
            args[name] = tensors[int(value[3:])]
    if case.name not in ("clip_by_global_norm", "global_norm"):
        return {"out": function(tensors[0], **args)}
    result = function(tensors[0] if case.set == "not_a_list" else tensors, **args)
    if case.name == "global_norm":
        return {"norm": result}
    return {**{f"out_{i:02}": t for i, t in enumerate(result[0])}, "norm": result[1]}


def in_the_shapes_of(case: Case, found) -> Results:
    shapes = {"out": case.inputs[0].shape} | {
        f"out_{i:02}": array.shape for i, array in enumerate(case.inputs) if array is not None
    }
    return {k: v if v is None or k not in shapes else v.reshape(shapes[k]) for k, v in found.items()}


def in_a_program(case: Case) -> Results:
    arrays = [as_tensor(array) for array in case.inputs]
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        variables = [None if a is None else fluid.data(f"x{i}", list(a.shape), a.dtype) for i, a in enumerate(arrays)]
        made = call(case, variables)
    feed = {f"x{i}": array for i, array in enumerate(arrays) if array is not None}
    names = [name for name, variable in made.items() if variable is not None]
    values = fluid.Executor().run(main, feed=feed, fetch_list=[made[name] for name in names])
    return in_the_shapes_of(case, dict.fromkeys(made) | dict(zip(names, values, strict=True)))


def at_once(case: Case) -> Results:
    with fluid.dygraph.guard():
        made = call(case, [None if array is None else to_variable(array) for array in case.inputs])
        return in_the_shapes_of(case, {k: None if t is None else t.numpy() for k, t in made.items()})


BY_ID = {case.id: case for case in RECORDED}


@pytest.mark.laws
def test_a_program_gives_what_tensorflow_gave_or_what_it_defines():
    check_all(lambda case: check(case, in_a_program), BY_ID)


@pytest.mark.slow
def test_tensors_give_what_tensorflow_gave_or_what_it_defines():
    check_all(lambda case: check(case, at_once), BY_ID)


# Edges where no recording reaches


def tensors(*arrays, dtype="float32"):
    return [None if array is None else to_variable(np.asarray(array, dtype)) for array in arrays]


def values(results):
    return [None if t is None else t.numpy() for t in results]


def close(found, exact, dtype="float64"):
    """Whether numbers are the exact ones up to four roundings."""
    eps = Fraction(float(np.finfo(dtype).eps))
    return all(abs(Fraction(f) - e) <= 4 * eps * abs(e) for f, e in zip(np.ravel(found).tolist(), exact, strict=True))


@pytest.mark.parametrize("threshold", [0.1, 1e-300, 3e39])
def test_thresholds_keep_their_digits_and_range_for_float64(threshold):
    x = np.array([3.0, -4.0]) * threshold
    exact = [Fraction(v) * Fraction(threshold) for v in x.tolist()]
    norm = 5 * Fraction(threshold)
    (t,) = tensors(x, dtype="float64")
    (clipped,), found_norm = tf.clip_by_global_norm([t], threshold)
    for found in (tf.clip_by_norm(t, threshold), tf.clip_by_norm(t, threshold, axes=0), clipped):
        assert close(found.numpy(), [e / norm for e in exact])
    assert close(found_norm.numpy(), [norm])
    bounds = [-Fraction(threshold), Fraction(threshold)]
    assert close(tf.clip_by_value(t, -threshold, threshold).numpy(), bounds[::-1])


def test_a_threshold_below_the_range_of_float32_is_none_the_less_one():
    (t,) = tensors([3e-40, 4e-40])
    (clipped,), _ = tf.clip_by_global_norm([t], 5e-50)
    assert clipped.numpy().tolist() == tf.clip_by_norm(t, 5e-50).numpy().tolist() == [0, 0]


def test_an_infinite_threshold_never_clips():
    (t,) = tensors([3, 4])
    results = tf.clip_by_norm(t, math.inf), tf.clip_by_norm(t, math.inf, axes=[0]), tf.clip_by_average_norm(t, math.inf)
    with_norm = [tf.clip_by_global_norm([t], math.inf, norm)[0][0] for norm in (None, 5.0)]
    assert [each.tolist() for each in values([*results, *with_norm])] == [[3, 4]] * 5


@pytest.mark.parametrize("threshold", [0, -1.0, math.nan, -math.inf])
def test_a_threshold_that_is_not_positive_is_refused(threshold):
    (t,) = tensors([3, 4])
    for clip in (tf.clip_by_norm, tf.clip_by_average_norm, lambda t, c: tf.clip_by_global_norm([t], c)):
        with pytest.raises(ClipError, match="clip_norm must") as caught:
            clip(t, threshold)
        assert isinstance(caught.value, ValueError) and "test_compat_tensorflow.py" in str(caught.value)


def test_a_threshold_may_be_a_variable():
    x = np.array([[3, 4], [0.3, 0.4]], "float32")
    main = fluid.Program()
    with fluid.program_guard(main):
        t, c = fluid.data("t", [None, 2]), fluid.data("c", [1])
        results = [
            tf.clip_by_norm(t, c), tf.clip_by_norm(t, c, axes=[1]), tf.clip_by_average_norm(t, c),
            tf.clip_by_global_norm([t], c)[0][0], tf.clip_by_global_norm([t], c, use_norm=c * 5.0)[0][0],
        ]  # fmt: skip

    def run(threshold):
        feed = {"t": x, "c": np.array([threshold], "float32")}
        return fluid.Executor().run(main, feed=feed, fetch_list=results)

    whole = np.linalg.norm(x.astype("float64"))
    expected = [x * 2 / whole, x * np.array([[0.4], [1]]), x, x * 2 / whole, x / 5]
    for found, right in zip(run(2.0), expected, strict=True):
        np.testing.assert_allclose(found, right, rtol=1e-6)
    for threshold in (0.0, -1.0, math.nan):
        with pytest.raises(ExecutionError, match="must be positive"):
            run(threshold)


def test_an_average_norm_that_overflows_gives_zeros_in_a_program_too():
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        clipped = tf.clip_by_average_norm(fluid.data("t", [2, 2]), 2.0)
        (found,) = fluid.Executor().run(feed={"t": np.full((2, 2), 1e30, "float32")}, fetch_list=[clipped])
    assert found.tolist() == [[0, 0], [0, 0]]  # as TensorFlow 1.15 gives


def test_an_average_norm_counts_the_rows_of_the_batch():
    main = fluid.Program()
    with fluid.program_guard(main):
        clipped = tf.clip_by_average_norm(fluid.data("t", [None, 2]), 0.5)
    for rows in (0, 1, 3):
        x = np.full((rows, 2), 4, "float32")
        (found,) = fluid.Executor().run(main, feed={"t": x}, fetch_list=[clipped])
        np.testing.assert_allclose(found, x * min(1, 0.5 * x.size / max(np.linalg.norm(x), 1e-9)), rtol=1e-6)


def test_without_axes_each_element_has_its_own_norm():
    t = to_variable(np.array([[3, -0.5], [math.inf, math.nan]], "float32"))
    np.testing.assert_array_equal(tf.clip_by_norm(t, 2, axes=[]).numpy(), [[2, -0.5], [math.nan, math.nan]])


@pytest.mark.parametrize("axes", [np.array([0, 1]), (0, -1), np.int32(1), to_variable(np.array([1]))], ids=str)
def test_axes_may_be_anything_that_holds_whole_numbers(axes):
    x = np.array([[3.0, 4.0], [6.0, 8.0]])
    over = tuple(np.ravel(axes).tolist())
    np.testing.assert_allclose(
        tf.clip_by_norm(to_variable(x), 1, axes).numpy(), x / np.linalg.norm(x, axis=over, keepdims=True), rtol=1e-14
    )


def test_a_joint_norm_that_is_not_finite_makes_everything_nan_but_an_overflowing_one_does_not():
    for bad in (math.inf, -math.inf, math.nan):
        clipped, norm = tf.clip_by_global_norm(tensors([1, 2], None, [bad]), 1.0)
        assert all(np.isnan(each.numpy()).all() for each in clipped if each is not None)
        assert not np.isfinite(norm.numpy()).any()
    (huge,), norm = tf.clip_by_global_norm(tensors(np.full(100, 3e38)), 1.0)  # of norm 3e39
    assert close(huge.numpy(), [Fraction(1, 10)] * 100, "float32") and norm.item() == math.inf


def test_nothing_to_clip_has_norm_zero():
    with fluid.dygraph.guard():  # with nothing given, it says where to compute
        for listed in ([], [None, None], tensors(np.zeros((0, 3)))):
            clipped, norm = tf.clip_by_global_norm(listed, 1.0)
            assert len(clipped) == len(listed) and norm.numpy().tolist() == [0]
            assert tf.global_norm(listed).numpy().tolist() == [0]
    main = fluid.Program()
    with fluid.program_guard(main):
        assert tf.clip_by_global_norm([None], 1.0)[0] == [None]


def test_none_stays_where_it_is():
    clipped, norm = tf.clip_by_global_norm((None, *tensors([3]), None, *tensors([4])), 2.5)
    assert [None if each is None else each.tolist() for each in values(clipped)] == [None, [1.5], None, [2]]
    assert norm.item() == tf.global_norm((None, *tensors([3]), *tensors([4]))).item() == 5


def test_a_given_norm_is_used_in_place_of_the_computed_one():
    ts = tensors([3, -4], [12])
    for norm in (26.0, np.float32(26), to_variable(np.array([26.0], "float32"))):
        clipped, returned = tf.clip_by_global_norm(ts, 13.0, use_norm=norm)
        assert [each.tolist() for each in values(clipped)] == [[1.5, -2], [6]] and returned.numpy().tolist() == [26]
    for norm in (13.0, 1.0, 0.0):
        assert [each.tolist() for each in values(tf.clip_by_global_norm(ts, 13.0, norm)[0])] == [[3, -4], [12]]
    for norm in (math.inf, to_variable(np.array([math.nan], "float32"))):
        assert all(np.isnan(each).all() for each in values(tf.clip_by_global_norm(ts, 13.0, norm)[0]))
    (far,), _ = tf.clip_by_global_norm(tensors([1e30]), 1e-8, use_norm=1e38)  # by a factor that float32 does not hold
    assert close(far.numpy(), [Fraction(1, 10**16)], "float32")


def test_bounds_may_be_tensors_that_broadcast():
    t = to_variable(np.array([[-3.0, 0.5, 3.0], [9.0, -9.0, math.nan]]))
    low, high = to_variable(np.array([-1.0, 0.0, 1.0])), to_variable(np.array([[2.0], [4.0]]))
    np.testing.assert_array_equal(tf.clip_by_value(t, low, high).numpy(), [[-1, 0.5, 2], [4, 0, math.nan]])
    np.testing.assert_array_equal(tf.clip_by_value(t, low, 2.5).numpy(), [[-1, 0.5, 2.5], [2.5, 0, math.nan]])
    with pytest.raises(OpError, match="broadcast"):
        tf.clip_by_value(low, t, 1.0)
    with pytest.raises(OpError, match="broadcast"):
        tf.clip_by_value(t, to_variable(np.zeros(2)), 1.0)


def test_the_lower_bound_has_the_last_word():
    (t,) = tensors([-5, 0, 5])
    assert tf.clip_by_value(t, 1, -1).numpy().tolist() == [1, 1, 1]
    assert tf.clip_by_value(t, 2, 2).numpy().tolist() == [2, 2, 2]


# What is refused


@pytest.mark.parametrize(
    ("clip", "message"),
    [
        (lambda t: tf.clip_by_norm([1.0], 1), "t must be a Variable or a Tensor"),
        (lambda t: tf.clip_by_norm(np.ones(2), 1), "to_variable"),
        (lambda t: tf.clip_by_norm(to_variable(np.ones(2, "int64")), 1), "must be floating point"),
        (lambda t: tf.clip_by_norm(t, "much"), "clip_norm must be a number"),
        (lambda t: tf.clip_by_norm(t, t), "clip_norm must hold one number"),
        (lambda t: tf.clip_by_norm(t, 1, axes=1.5), "axes must be an int"),
        (lambda t: tf.clip_by_norm(t, 1, axes=2), "axes must be in"),
        (lambda t: tf.clip_by_norm(t, 1, axes=[0, 0]), "twice"),
        (lambda t: tf.clip_by_norm(t, 1, name=3), "name must be a str"),
        (lambda t: tf.clip_by_value(t, math.nan, 1), "must not be NaN"),
        (lambda t: tf.clip_by_global_norm(t, 1), "must be a sequence"),
        (lambda t: tf.global_norm("t"), "must be a sequence"),
        (lambda t: tf.clip_by_global_norm([t], 1, use_norm=-1.0), "use_norm must not be negative"),
        (lambda t: tf.clip_by_average_norm(to_variable(np.ones(2)), 1), "must be float32"),
    ],
)
def test_what_has_no_meaning_is_refused_with_the_reason(clip, message):
    (t,) = tensors([1, 2])
    with pytest.raises(MinigraphError, match=message):
        clip(t)


def test_variables_of_two_programs_are_not_clipped_together():
    variables = []
    for _ in range(2):
        with fluid.program_guard(fluid.Program()):
            variables.append(fluid.data("t", [2]))
    with pytest.raises(ProgramError, match="two programs"):
        tf.clip_by_global_norm(variables, 1.0)


# What stands in the program


def network(rows=None):
    """A loss with two parameters that it depends on and two that it does not; seeded."""
    main, startup = fluid.Program(), fluid.Program()
    startup.random_seed = 1
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x = fluid.data("x", [rows, 4])
        hidden = fluid.layers.fc(x, 3)
        fluid.layers.fc(x, 2)
        loss = fluid.layers.mean(fluid.layers.square(hidden)) * 100.0
    return main, startup, loss


BATCH = np.random.default_rng(4).normal(size=(8, 4)).astype("float32")


def test_a_result_has_the_given_name_and_no_other_variable_loses_it():
    with fluid.program_guard(fluid.Program()), fluid.unique_name.guard():
        t = fluid.data("t", [2])
        found = [tf.clip_by_norm(t, 1, name="clipped"), tf.clip_by_norm(t, 2, name="clipped"), tf.clip_by_norm(t, 3)]
        assert [each.name for each in found] == ["clipped", "clipped_0", "clip_by_norm_0.tmp_0"]
        (first, _), _ = tf.clip_by_global_norm([t, found[0]], 1, name="joint")
        assert [first.name, tf.global_norm([t], name="size").name] == ["joint_0", "size"]


def test_operators_go_to_the_program_of_the_variable():
    main, _, loss = network()
    grads = tf.train.GradientDescentOptimizer(0.1).compute_gradients(loss)
    count = len(main.global_block().ops)
    tf.clip_by_norm(grads[0][0], 1)
    assert len(main.global_block().ops) == count + 1 and main is not fluid.default_main_program()


@pytest.mark.parametrize(
    "clip",
    [
        lambda gs: [tf.clip_by_norm(g, 0.25) for g in gs],
        lambda gs: [tf.clip_by_norm(g, 0.25, axes=[]) for g in gs],
        lambda gs: [tf.clip_by_value(tf.clip_by_norm(g, 0.3), 0.1, -0.1) for g in gs],
        lambda gs: [tf.clip_by_average_norm(g, 0.25) for g in gs],
        lambda gs: tf.clip_by_global_norm(gs, 0.25)[0],
        lambda gs: tf.clip_by_global_norm(gs, 0.25, use_norm=tf.global_norm(gs))[0],
    ],
)
@pytest.mark.parametrize("by_optimizer", [True, False])
def test_clips_of_gradients_are_left_out_of_a_clone_for_testing(clip, by_optimizer):
    main, _, loss = network()
    forward = [op.type for op in main.global_block().ops]
    with fluid.program_guard(main, fluid.Program()):
        if by_optimizer:
            pairs = [p for p in tf.train.GradientDescentOptimizer(0.1).compute_gradients(loss) if p[0] is not None]
        else:
            pairs = [(g, p) for p, g in fluid.append_backward(loss)]
        count = len(main.global_block().ops)
        clip([g for g, _ in pairs])
    inserted = list(main.global_block().ops)[count:]
    assert inserted and all(op.role & Role.CLIP for op in inserted)
    assert [op.type for op in main.clone(for_test=True).global_block().ops] == forward


def test_a_clip_of_an_activation_stays_in_a_clone_for_testing_and_passes_gradients():
    main, startup = fluid.Program(), fluid.Program()
    startup.random_seed = 1
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        hidden = tf.clip_by_norm(fluid.layers.fc(fluid.data("x", [None, 4]), 3), 0.5, axes=-1)
        loss = fluid.layers.mean(fluid.layers.square(hidden))
        ((grad, _), _) = tf.train.GradientDescentOptimizer(0.1).compute_gradients(loss)
    assert "clip_by_axis_norm" in [op.type for op in main.clone(for_test=True).global_block().ops]
    exe, scope = fluid.Executor(), fluid.Scope()
    exe.run(startup, scope=scope)
    found, out = exe.run(main, feed={"x": BATCH}, fetch_list=[grad, hidden], scope=scope)
    np.testing.assert_allclose(np.linalg.norm(out, axis=1), 0.5, rtol=1e-6)
    # The mean of squares of rows of one length does not change when they only turn.
    assert np.abs(found).max() < 1e-7


def test_each_clip_names_the_parameter_that_it_serves():
    main, _, loss = network()
    grads = tf.train.AdamOptimizer().compute_gradients(loss)
    twice = [(tf.clip_by_value(tf.clip_by_norm(g, 5), -1, 1), g, v) for g, v in grads if g is not None]
    ops = list(main.global_block().ops)[-2 * len(twice) :]
    expected = [(v.name, g.name) for _, g, v in twice for _ in range(2)]
    assert [tuple(op.role_vars) for op in ops] == expected


# Optimizers


def numpy_steps(kind, w, gradients_at, steps):
    """TensorFlow's formulas, in float64."""
    m, v, w = np.zeros_like(w), np.zeros_like(w), w.astype("float64")
    for t in range(1, steps + 1):
        g = gradients_at(w)
        if kind == "GradientDescent":
            w = w - 0.1 * g
        elif kind == "Adam":
            m, v = 0.5 * m + 0.5 * g, 0.9375 * v + 0.0625 * g * g
            w = w - 0.1 * math.sqrt(1 - 0.9375**t) / (1 - 0.5**t) * m / (np.sqrt(v) + 0.125)
        else:
            m = 0.8 * m + g
            w = w - 0.1 * (g + 0.8 * m if kind == "Nesterov" else m)
    return w


def optimizer(kind):
    return {
        "GradientDescent": lambda: tf.train.GradientDescentOptimizer(0.1),
        "Momentum": lambda: tf.train.MomentumOptimizer(0.1, 0.8),
        "Nesterov": lambda: tf.train.MomentumOptimizer(0.1, 0.8, use_nesterov=True),
        "Adam": lambda: tf.train.AdamOptimizer(0.1, beta1=0.5, beta2=0.9375, epsilon=0.125),
    }[kind]()


KINDS = ["GradientDescent", "Momentum", "Nesterov", "Adam"]
START = np.array([3.0, -2.0, 0.5], "float64")


def clipped_gradient(w):
    """Of the sum of w ** 4, clipped to norm 5."""
    g = 4 * w**3
    return g * min(1, 5 / np.linalg.norm(g))


@pytest.mark.parametrize("kind", KINDS)
def test_training_in_a_program_follows_tensorflows_formulas(kind):
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        start = fluid.initializer.Constant(0.0)
        w = fluid.layers.create_parameter([3], "float64", name="w", default_initializer=start)
        cost = fluid.layers.reduce_sum(fluid.layers.square(fluid.layers.square(w)))
        step = fluid.layers.create_global_var([1], 0, "int64", persistable=True, name="step")
        opt = optimizer(kind)
        grads = opt.compute_gradients(cost)
        for i, (g, v) in enumerate(grads):
            if g is not None:
                grads[i] = (tf.clip_by_norm(g, 5), v)
        train_op = opt.apply_gradients(grads, global_step=step)
    assert [op.type for op in train_op] == [train_op[0].type, "increment"]
    exe, scope = fluid.Executor(), fluid.Scope()
    exe.run(startup, scope=scope)
    scope.find_var("w").get_tensor().set(START, fluid.CPUPlace())
    for _ in range(6):
        exe.run(main, scope=scope)
    expected = numpy_steps(kind, START, clipped_gradient, 6)
    np.testing.assert_allclose(np.array(scope.find_var("w").get_tensor()), expected, rtol=1e-6)
    assert np.array(scope.find_var("step").get_tensor()).tolist() == [6]


@pytest.mark.parametrize("kind", KINDS)
def test_training_with_tensors_follows_tensorflows_formulas(kind):
    with fluid.dygraph.guard():
        w = fluid.layers.create_parameter([3], "float64")
        unused = fluid.layers.create_parameter([2], "float64")
        w.set_value(START)
        step, opt = to_variable(np.array([0])), optimizer(kind)

        def cost():
            return fluid.layers.reduce_sum(fluid.layers.square(fluid.layers.square(w)))

        for count in range(6):
            grads = opt.compute_gradients(cost if count % 2 else cost(), var_list=[w, unused] if count < 3 else None)
            grads = [(g if g is None else tf.clip_by_norm(g, 5), v) for g, v in grads]
            assert [g is None for g, _ in grads] == ([False, True] if count < 3 else [False])
            assert opt.apply_gradients(grads, global_step=step) == []
        np.testing.assert_allclose(w.numpy(), numpy_steps(kind, START, clipped_gradient, 6), rtol=1e-6)
        assert step.numpy().tolist() == [6]


def test_both_modes_give_the_same_bits():
    main, startup, loss = network()
    with fluid.program_guard(main, startup):
        opt = tf.train.AdamOptimizer(0.1)
        clipped, norm = tf.clip_by_global_norm([g for g, _ in opt.compute_gradients(loss)], 1.0)
        opt.apply_gradients(list(zip(clipped, tf.trainable_variables(), strict=True)))
    exe, scope = fluid.Executor(), fluid.Scope()
    exe.run(startup, scope=scope)
    weights = [np.array(scope.find_var(p.name).get_tensor()) for p in main.all_parameters()]
    norms = [exe.run(main, feed={"x": BATCH}, fetch_list=[norm], scope=scope)[0] for _ in range(4)]
    trained = [np.array(scope.find_var(p.name).get_tensor()) for p in main.all_parameters()]
    assert norms[0] > 1

    with fluid.dygraph.guard():
        first, second = fluid.dygraph.Linear(4, 3), fluid.dygraph.Linear(4, 2)
        params = [*first.parameters(), *second.parameters()]
        for param, value in zip(params, weights, strict=True):
            param.set_value(value)
        opt = tf.train.AdamOptimizer(0.1)
        for norm_in_program in norms:
            loss = fluid.layers.mean(fluid.layers.square(first(to_variable(BATCH)))) * 100.0
            grads = opt.compute_gradients(loss, params)
            clipped, norm = tf.clip_by_global_norm([g for g, _ in grads], 1.0)
            opt.apply_gradients(zip(clipped, params, strict=True))
            assert norm.numpy().tobytes() == norm_in_program.tobytes()
        assert [p.numpy().tobytes() for p in params] == [value.tobytes() for value in trained]


def test_gradients_come_for_all_trainable_parameters_with_none_where_there_is_none():
    main, _, loss = network()
    fixed = main.all_parameters()[1]
    fixed.trainable = False
    pairs = tf.train.GradientDescentOptimizer(0.1).compute_gradients(loss)
    assert [(g and g.name if g is None else g.name, v.name) for g, v in pairs] == [
        ("fc_0.w_0@GRAD", "fc_0.w_0"), (None, "fc_1.w_0"), (None, "fc_1.b_0")
    ]  # fmt: skip
    with fluid.program_guard(main):
        assert [p.name for p in tf.trainable_variables()] == ["fc_0.w_0", "fc_1.w_0", "fc_1.b_0"]
        assert [p.name for p in tf.trainable_variables("fc_1")] == ["fc_1.w_0", "fc_1.b_0"]


def run_gradients(main, startup, grads):
    exe, scope = fluid.Executor(), fluid.Scope()
    exe.run(startup, scope=scope)
    return exe.run(main, feed={"x": BATCH}, fetch_list=grads, scope=scope)


def test_a_loss_of_several_elements_counts_as_their_sum_and_grad_loss_weighs_them():
    main, startup = fluid.Program(), fluid.Program()
    startup.random_seed = 1
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        out = fluid.layers.fc(fluid.data("x", [8, 4]), 1, bias_attr=False)
        weights = fluid.layers.assign(np.arange(8, dtype="float32")[:, None])
        opt = tf.train.GradientDescentOptimizer(0.1)
        ((summed, w),) = opt.compute_gradients(out)
        ((weighted, _),) = opt.compute_gradients(out, [w], grad_loss=weights)
        (named,) = tf.gradients(out, w)
    found = run_gradients(main, startup, [summed, weighted, named])
    np.testing.assert_allclose(found[0][:, 0], BATCH.sum(axis=0), rtol=1e-5)
    np.testing.assert_allclose(found[1][:, 0], np.arange(8) @ BATCH, rtol=1e-5)
    np.testing.assert_array_equal(found[2], found[0])


def test_minimize_is_both_steps():
    trained = []
    for is_short in (True, False):
        main, startup, loss = network()
        with fluid.program_guard(main, startup), fluid.unique_name.guard():
            opt = tf.train.MomentumOptimizer(0.01, 0.9)
            train_op = opt.minimize(loss) if is_short else opt.apply_gradients(opt.compute_gradients(loss))
        assert [op.type for op in train_op] == ["momentum"] * 2
        exe, scope = fluid.Executor(), fluid.Scope()
        exe.run(startup, scope=scope)
        losses = [exe.run(main, feed={"x": BATCH}, fetch_list=[loss], scope=scope)[0].item() for _ in range(5)]
        assert losses[-1] < losses[0]
        trained.append(losses)
    assert trained[0] == trained[1]


def test_the_operators_carry_the_optimizers_name():
    main, startup, loss = network()
    with fluid.program_guard(main, startup):
        opt = tf.train.AdamOptimizer(name="outer")
        train_op = opt.minimize(loss)
        again = opt.apply_gradients(opt.compute_gradients(loss), name="second")
    assert opt.get_name() == "outer"
    assert train_op[0].namescope.startswith("/outer/") and again[0].namescope.startswith("/second/")


def test_what_an_optimizer_cannot_do_is_refused_with_the_reason():
    main, startup, loss = network()
    x = main.global_block().var("x")
    opt = tf.train.GradientDescentOptimizer(0.1)
    unused = main.all_parameters()[2:]
    with fluid.program_guard(main, startup):
        for message, wrong in {
            "no gradients provided": lambda: opt.minimize(loss, var_list=unused),
            "grads_and_vars is empty": lambda: opt.apply_gradients([]),
            "no variables to optimize": lambda: opt.compute_gradients(loss, []),
        }.items():
            with pytest.raises(ProgramError, match=message) as caught:
                wrong()
            assert isinstance(caught.value, ValueError)
        for message, wrong in {
            "is no Parameter": lambda: opt.compute_gradients(loss, [x]),
            "pairs of a gradient and its Parameter": lambda: opt.apply_gradients([(unused[0], x)]),
            "loss must be a Variable": lambda: opt.compute_gradients(1.0),
            "learning_rate must be a number": lambda: tf.train.AdamOptimizer(lambda: 0.1),
            "momentum must be a number": lambda: tf.train.MomentumOptimizer(0.1, main.all_parameters()[0]),
            "name must be a str": lambda: tf.train.GradientDescentOptimizer(0.1, name=""),
        }.items():
            with pytest.raises(WrongTypeError, match=message):
                wrong()


# The example


@pytest.fixture(scope="module")
def example():
    return runpy.run_path(str(ROOT / "examples" / "tensorflow_clip_by_norm.py"))["main"]()


@pytest.mark.slow
def test_the_example_computes_the_numbers_of_its_page(example):
    page = [0.62017367, 0.62017367, 1.86052102, 2.48069469, 1.24034735, 1.24034735, 0.62017367, 2.48069469,
            1.24034735, 1.86052102]  # fmt: skip
    np.testing.assert_allclose(example[0], page, atol=5e-9)
    assert np.linalg.norm(example[0]) == pytest.approx(5, rel=1e-15)


def test_the_example_trains_with_clipped_gradients(example):
    history = example[1]
    for _, before, after in history:
        np.testing.assert_allclose(after, np.minimum(before, 5), rtol=1e-5)
    assert sum(norm > 5 for _, before, _ in history for norm in before) > len(history)
    costs = [cost for cost, _, _ in history]
    assert np.mean(costs[-5:]) < 0.5 * np.mean(costs[:5])
