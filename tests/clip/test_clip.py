"""Clipping as a pass: which operators go in, for which parameters, and with which numbers."""

import dataclasses
import math
import warnings

import numpy as np
import pytest

import minigraph as fluid
from minigraph.clip import ErrorClipByValue, GradientClipByGlobalNorm, GradientClipByNorm, GradientClipByValue
from minigraph.errors import ClipError, MinigraphError, NotFoundError, WrongTypeError
from minigraph.ir import Role
from minigraph.passes import ClipGradients

L = fluid.layers


@pytest.fixture
def net():
    """A program with four parameters and its pairs of parameters and gradients."""
    main, startup = fluid.Program(), fluid.Program()
    startup.random_seed = 7
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x = fluid.data("x", [None, 6])
        hidden = L.fc(x, 5, act="tanh")
        loss = L.mean(L.square(L.fc(hidden, 3)))
        pairs = fluid.append_backward(loss)
        yield main, startup, pairs


def run(main, startup, fetch, scale=1.0, dtype="float32"):
    feed = {"x": (np.random.RandomState(3).uniform(-1, 1, (7, 6)) * scale).astype(dtype)}
    exe, scope = fluid.Executor(), fluid.Scope()
    exe.run(startup, scope=scope)
    return exe.run(main, feed=feed, fetch_list=fetch, scope=scope)


def norm(*arrays):
    """The joint L2 norm, by exact summation in double precision."""
    return math.sqrt(math.fsum(float(v) ** 2 for a in arrays for v in np.asarray(a, "float64").ravel()))


def test_by_value_limits_each_element(net):
    main, startup, pairs = net
    clipped = GradientClipByValue(max=0.01, min=-0.005)(pairs)
    values = run(main, startup, [g for _, g in pairs] + [g for _, g in clipped])
    for raw, cut in zip(values[:4], values[4:], strict=True):
        np.testing.assert_array_equal(cut, np.clip(raw, np.float32(-0.005), np.float32(0.01)))


def test_by_norm_scales_each_gradient_by_its_own_norm(net):
    main, startup, pairs = net
    clipped = GradientClipByNorm(0.1)(pairs)
    values = run(main, startup, [g for _, g in pairs] + [g for _, g in clipped])
    assert any(norm(raw) > 0.1 for raw in values[:4])
    for raw, cut in zip(values[:4], values[4:], strict=True):
        np.testing.assert_allclose(cut, raw * 0.1 / max(norm(raw), 0.1), rtol=1e-6)


def test_global_norm_scales_all_by_one_factor(net):
    main, startup, pairs = net
    clipped = GradientClipByGlobalNorm(0.1)(pairs)
    values = run(main, startup, [g for _, g in pairs] + [g for _, g in clipped])
    factor = 0.1 / norm(*values[:4])
    assert factor < 1
    for raw, cut in zip(values[:4], values[4:], strict=True):
        np.testing.assert_allclose(cut, raw * factor, rtol=1e-6)


@pytest.mark.parametrize("clip", [GradientClipByNorm(1e3), GradientClipByGlobalNorm(1e3), GradientClipByValue(1e3)])
def test_under_the_threshold_gradients_stay_bit_for_bit(net, clip):
    main, startup, pairs = net
    clipped = clip(pairs)
    values = run(main, startup, [g for _, g in pairs] + [g for _, g in clipped])
    for raw, cut in zip(values[:4], values[4:], strict=True):
        np.testing.assert_array_equal(raw.view("int32"), cut.view("int32"))


def gradients_as_fed(clip, arrays):
    """What `clip` makes of given gradients, by the executor and by the interpreter."""
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        pairs = []
        for i, array in enumerate(arrays):
            param = main.global_block().create_parameter(f"p{i}", array.shape, array.dtype)
            pairs.append((param, L.data(f"g{i}", array.shape, append_batch_size=False, dtype=array.dtype)))
        clipped = clip(pairs)
    feed = {f"g{i}": array for i, array in enumerate(arrays)}
    results = [
        e.run(main, feed=feed, fetch_list=[g for _, g in clipped]) for e in (fluid.Executor(), fluid.Interpreter())
    ]
    for a, b in zip(*results, strict=True):
        np.testing.assert_array_equal(a, b)
    return results[0]


@pytest.mark.parametrize("kind", [GradientClipByNorm, GradientClipByGlobalNorm])
@pytest.mark.parametrize(
    ("dtype", "magnitude"),
    [
        ("float32", 1e30),
        ("float32", 3e38),
        ("float32", 1e-30),
        ("float32", 1e-42),
        ("float64", 1e200),
        ("float64", 1e-200),
    ],
)
def test_the_norm_neither_overflows_nor_underflows(kind, dtype, magnitude):
    grad = np.array([[3.0, 4.0], [0.0, 12.0]], dtype) * np.array(magnitude / 13, dtype)
    threshold = float(np.float32(min(max(magnitude / 4, 1e-38), 1e38)))
    (cut,) = gradients_as_fed(kind(threshold), [grad])
    exact = norm(grad / np.array(magnitude, dtype)) * magnitude
    expected = grad.astype("float64") * min(1.0, threshold / exact)
    tiny = np.finfo(dtype).smallest_subnormal
    np.testing.assert_allclose(cut.astype("float64"), expected, rtol=1e-5, atol=2 * tiny)
    assert np.isfinite(cut).all() and cut.dtype == dtype


@pytest.mark.parametrize("kind", [GradientClipByNorm, GradientClipByGlobalNorm])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_zero_stays_zero(kind, dtype):
    (cut,) = gradients_as_fed(kind(1.0), [np.zeros((3, 2), dtype)])
    np.testing.assert_array_equal(cut, np.zeros((3, 2), dtype))


@pytest.mark.parametrize("kind", [GradientClipByNorm, GradientClipByGlobalNorm])
def test_a_norm_exactly_at_the_threshold_changes_nothing(kind):
    grad = np.array([3.0, 4.0], "float32")
    (cut,) = gradients_as_fed(kind(5.0), [grad])
    np.testing.assert_array_equal(cut, grad)


def test_float16_squares_do_not_overflow():
    (cut,) = gradients_as_fed(GradientClipByGlobalNorm(1.0), [np.full(64, 200.0, "float16")])
    np.testing.assert_allclose(cut.astype("float64"), np.full(64, 0.125), rtol=1e-3)


@pytest.mark.parametrize("kind", [GradientClipByNorm, GradientClipByGlobalNorm])
def test_nan_and_infinity_stay_visible(kind):
    (cut,) = gradients_as_fed(kind(1.0), [np.array([1.0, np.nan], "float32")])
    assert np.isnan(cut).all()
    (cut,) = gradients_as_fed(kind(1.0), [np.array([1.0, -np.inf], "float32")])
    assert cut[0] == 0 and np.isnan(cut[1])


def test_empty_gradients_pass_through():
    empty, full = gradients_as_fed(GradientClipByGlobalNorm(1.0), [np.zeros((0, 3), "float32"), np.ones(4, "float32")])
    assert empty.shape == (0, 3)
    np.testing.assert_allclose(full, np.full(4, 0.5))


def test_each_parameter_gets_the_clip_it_asked_for_and_the_others_none(net):
    main, startup, pairs = net
    fluid.clip.set_gradient_clip(GradientClipByValue(0.01), param_list=["fc_0.w_0"], program=main)
    fluid.clip.set_gradient_clip(GradientClipByNorm(0.02), param_list=["fc_1.w_0"], program=main)
    clipped = fluid.clip.append_gradient_clip_ops(pairs)
    values = run(main, startup, [g for _, g in pairs] + [g for _, g in clipped])
    raw, cut = values[:4], values[4:]
    np.testing.assert_array_equal(cut[0], np.clip(raw[0], np.float32(-0.01), np.float32(0.01)))
    np.testing.assert_allclose(cut[2], raw[2] * 0.02 / max(norm(raw[2]), 0.02), rtol=1e-6)
    assert [g.name for _, g in clipped][1::2] == [g.name for _, g in pairs][1::2]


def test_each_group_has_its_own_norm(net):
    main, startup, pairs = net
    fluid.clip.set_gradient_clip(GradientClipByGlobalNorm(0.05, "a"), ["fc_0.w_0", "fc_0.b_0"], main)
    fluid.clip.set_gradient_clip(GradientClipByGlobalNorm(0.07, "b"), ["fc_1.w_0", "fc_1.b_0"], main)
    clipped = fluid.clip.append_gradient_clip_ops(pairs)
    values = run(main, startup, [g for _, g in pairs] + [g for _, g in clipped])
    for group, threshold in ((slice(0, 2), 0.05), (slice(2, 4), 0.07)):
        raw, cut = values[:4][group], values[4:][group]
        assert norm(*raw) > threshold
        np.testing.assert_allclose(norm(*cut), threshold, rtol=1e-6)


def test_two_thresholds_in_one_group_are_an_error(net):
    main, _, pairs = net
    fluid.clip.set_gradient_clip(GradientClipByGlobalNorm(1.0), ["fc_0.w_0"], main)
    fluid.clip.set_gradient_clip(GradientClipByGlobalNorm(2.0), ["fc_1.w_0"], main)
    before = len(main.global_block().ops)
    with pytest.raises(ClipError, match="two values of clip_norm"):
        fluid.clip.append_gradient_clip_ops(pairs)
    assert len(main.global_block().ops) == before


def test_need_clip_leaves_parameters_out_of_the_norm(net):
    main, startup, pairs = net
    clipped = GradientClipByGlobalNorm(0.05, need_clip=lambda p: p.name != "fc_0.w_0")(pairs)
    assert clipped[0][1] is pairs[0][1]
    values = run(main, startup, [g for _, g in clipped])
    np.testing.assert_allclose(norm(*values[1:]), 0.05, rtol=1e-6)


def test_need_clip_counts_for_set_gradient_clip_too(net):
    main, _, pairs = net
    fluid.clip.set_gradient_clip(GradientClipByNorm(1.0, need_clip=lambda p: ".w_" in p.name), program=main)
    clipped = fluid.clip.append_gradient_clip_ops(pairs)
    assert [g is raw for (_, g), (_, raw) in zip(clipped, pairs, strict=True)] == [False, True, False, True]


def test_pairs_without_a_gradient_are_left_out(net):
    _, _, pairs = net
    clipped = GradientClipByGlobalNorm(1.0)([(pairs[0][0], None), *pairs[1:]])
    assert [p.name for p, _ in clipped] == [p.name for p, _ in pairs[1:]]


def test_nothing_to_clip_gives_nothing():
    assert GradientClipByGlobalNorm(1.0)([]) == []
    assert fluid.clip.append_gradient_clip_ops([]) == []


def test_clips_go_to_the_gradients_own_program(net):
    main, _, pairs = net
    other = fluid.Program()
    with fluid.program_guard(other, fluid.Program()):
        GradientClipByNorm(1.0)(pairs)
    assert len(other.global_block().ops) == 0
    assert [op.type for op in main.global_block().ops][-4:] == ["clip_by_norm"] * 4


def test_clipping_the_clipped_warns_and_changes_nothing(net):
    main, _, pairs = net
    fluid.clip.set_gradient_clip(GradientClipByNorm(1.0), program=main)
    once = fluid.clip.append_gradient_clip_ops(pairs)
    count = len(main.global_block().ops)
    with pytest.warns(UserWarning, match="clipped already"):
        twice = fluid.clip.append_gradient_clip_ops(once)
    assert twice == once and len(main.global_block().ops) == count


def test_passing_on_clipped_gradients_does_not_warn_where_no_clip_is_asked_for(net):
    _, _, pairs = net
    clipped = GradientClipByNorm(1.0)(pairs[:2])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert fluid.clip.append_gradient_clip_ops([*clipped, *pairs[2:]]) == [*clipped, *pairs[2:]]


def test_clone_keeps_the_clips(net):
    main, _, _ = net
    fluid.clip.set_gradient_clip(GradientClipByNorm(2.0), program=main)
    twin = main.clone()
    assert [p.gradient_clip for p in twin.all_parameters()] == [GradientClipByNorm(2.0)] * 4


def test_a_clones_gradients_come_in_the_order_of_the_originals():
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        x = fluid.data("x", [None, 6])
        for _ in range(20):
            x = L.fc(x, 6)
        loss = L.mean(x)
    twin = main.clone()
    original = [p.name for p, _ in fluid.append_backward(loss)]
    assert [p.name for p, _ in fluid.append_backward(twin.global_block().var(loss.name))] == original


def test_set_gradient_clip_before_the_layers_says_so():
    with (
        fluid.program_guard(fluid.Program(), fluid.Program()),
        pytest.raises(ClipError, match=r"(?s)no parameter.*after the layers"),
    ):
        fluid.clip.set_gradient_clip(GradientClipByNorm(1.0))


def test_set_gradient_clip_after_the_updates_says_so():
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        loss = L.mean(L.fc(fluid.data("x", [None, 2]), 1))
        fluid.optimizer.SGD(0.1).minimize(loss)
        with pytest.raises(ClipError, match=r"(?s)too late.*test_clip.py.*before minimize"):
            fluid.clip.set_gradient_clip(GradientClipByNorm(1.0))


@pytest.mark.parametrize("param_list", [None, ["wb"]])
def test_set_gradient_clip_comes_before_the_update_of_its_own_parameters(param_list):
    """Each of two optimizers gets its clip; fluid 1.8.5 appends the same operators."""
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x = fluid.data("x", [None, 2])
        la, lb = (L.mean(L.fc(x, 1, param_attr=name, bias_attr=False)) for name in ("wa", "wb"))
        fluid.clip.set_gradient_clip(GradientClipByValue(0.5), ["wa"])
        fluid.optimizer.SGD(1.0).minimize(la, parameter_list=["wa"])
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            fluid.clip.set_gradient_clip(GradientClipByNorm(0.5), param_list)
        fluid.optimizer.SGD(1.0).minimize(lb, parameter_list=["wb"])
        types = [op.type for op in fluid.default_main_program().global_block().ops]
        assert [type for type in types if type.startswith("clip")] == ["clip", "clip_by_norm"]
        with pytest.raises(ClipError, match="updates wa already"):
            fluid.clip.set_gradient_clip(GradientClipByNorm(1.0), ["wa"])


def test_set_gradient_clip_warns_of_a_parameter_that_is_updated_without_a_clip():
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x = fluid.data("x", [None, 2])
        la, _ = (L.mean(L.fc(x, 1, param_attr=name, bias_attr=False)) for name in ("wa", "wb"))
        fluid.optimizer.SGD(1.0).minimize(la, parameter_list=["wa"])
        with pytest.warns(UserWarning, match="leaves out wa"):
            fluid.clip.set_gradient_clip(GradientClipByNorm(0.5))


def test_unknown_parameters_are_named_with_a_suggestion(net):
    main, _, _ = net
    with pytest.raises(NotFoundError, match=r"(?s)fc_0.w_00.*fc_0.w_0"):
        fluid.clip.set_gradient_clip(GradientClipByNorm(1.0), ["fc_0.w_00"], main)
    with pytest.raises(WrongTypeError, match="list"):
        fluid.clip.set_gradient_clip(GradientClipByNorm(1.0), "fc_0.w_0", main)
    with pytest.raises(WrongTypeError, match="strategy"):
        fluid.clip.set_gradient_clip(1.0, program=main)


@pytest.mark.parametrize("threshold", [0, -1.0, math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("kind", [GradientClipByNorm, GradientClipByGlobalNorm])
def test_a_threshold_must_be_positive_and_finite(kind, threshold):
    with pytest.raises(ClipError):
        kind(threshold)


@pytest.mark.parametrize(
    "bounds", [{"max": 0.0}, {"max": -1.0}, {"max": math.nan}, {"max": 1.0, "min": 1.0}, {"max": 1.0, "min": 2.0}]
)
def test_bounds_must_be_an_interval(bounds):
    with pytest.raises(ClipError):
        GradientClipByValue(**bounds)
    with pytest.raises(ClipError):
        ErrorClipByValue(**bounds)


def test_need_clip_must_be_a_function():
    with pytest.raises(WrongTypeError, match="need_clip"):
        GradientClipByNorm(1.0, need_clip="fc_0.w_0")


def test_the_optimizers_clip_wins():
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        loss = L.mean(L.fc(fluid.data("x", [None, 2]), 1))
        fluid.clip.set_gradient_clip(GradientClipByNorm(1.0))
        with pytest.warns(UserWarning, match="grad_clip"):
            fluid.optimizer.SGD(0.1, grad_clip=GradientClipByValue(0.5)).minimize(loss)
        types = [op.type for op in loss.block.ops]
    assert types.count("clip") == 2 and "clip_by_norm" not in types


def test_every_clip_operator_has_the_role_and_names_its_pair(net):
    main, _, pairs = net
    clipped = GradientClipByGlobalNorm(1.0)(pairs)
    inserted = [op for op in main.global_block().ops if op.role & Role.CLIP]
    assert len(inserted) == 2 * 4 + 5 + 4
    assert all(op.attr("op_role") == 2 for op in inserted)
    assert [tuple(op.role_vars) for op in inserted[-4:]] == [(p.name, g.name) for p, g in pairs]
    assert [op.output_arg_names[0] for op in inserted[-4:]] == [g.name for _, g in clipped]


def text_program(body):
    return fluid.Program.parse(body)


UPDATE = """
    block 0
      param w: float32[4]{clip}
      persist lr: float32[1]
      data g: float32[4]
      {inserted}w = sgd(Param=w, LearningRate=lr, Grad={grad}) {{role='optimize'}}
"""


def test_the_pass_makes_the_update_read_the_clipped_gradient():
    before = text_program(
        UPDATE.format(clip=" {gradient_clip=GradientClipByNorm(clip_norm=1.0)}", inserted="", grad="g")
    )
    with fluid.unique_name.guard():
        after = ClipGradients()(before)
    block = after.global_block()
    assert [op.type for op in block.ops] == ["clip_by_norm", "sgd"]
    assert block.ops[1].input("Grad") == block.ops[0].output("Out") == ["clip_by_norm_0.tmp_0"]
    assert block.ops[0].role == Role.OPTIMIZE | Role.CLIP
    assert [op.type for op in before.global_block().ops] == ["sgd"]


def test_the_pass_applied_twice_changes_nothing_the_second_time():
    program = text_program(
        UPDATE.format(clip=" {gradient_clip=GradientClipByNorm(clip_norm=1.0)}", inserted="", grad="g")
    )
    assert ClipGradients().apply(program)
    text = str(program)
    assert not ClipGradients().apply(program)
    assert str(program) == text


def test_the_pass_leaves_programs_without_requests_alone():
    program = text_program(UPDATE.format(clip="", inserted="", grad="g"))
    assert not ClipGradients().apply(program)


def test_error_clip_works_inside_the_backward_pass():
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x = fluid.data("x", [None, 3])
        hidden = L.fc(x, 4)
        hidden._set_error_clip(ErrorClipByValue(max=0.001))
        loss = L.reduce_sum(L.square(hidden))
        pairs = fluid.append_backward(loss, callbacks=[fluid.clip.error_clip_callback])
    exe, scope = fluid.Executor(), fluid.Scope()
    exe.run(startup, scope=scope)
    feed = {"x": np.random.RandomState(0).uniform(0.5, 1, (5, 3)).astype("float32")}
    out, d_hidden, d_weight = exe.run(
        main, feed=feed, fetch_list=[hidden, hidden.name + "@GRAD", pairs[0][1]], scope=scope
    )
    bound = np.float32(0.001)
    np.testing.assert_array_equal(d_hidden, np.clip(2 * out, -bound, bound))
    np.testing.assert_allclose(d_weight, feed["x"].T @ d_hidden, rtol=1e-5)


def test_a_wrong_error_clip_is_refused():
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        hidden = L.fc(fluid.data("x", [None, 3]), 4)
        hidden.error_clip = 1.0
        with pytest.raises(WrongTypeError, match="error_clip"):
            fluid.optimizer.SGD(0.1).minimize(L.mean(hidden))


def test_errors_are_the_projects_own():
    for call in (lambda: GradientClipByNorm(0.0), lambda: GradientClipByNorm("x"), lambda: GradientClipByValue(None)):
        with pytest.raises(MinigraphError):
            call()


def test_no_warning_on_the_ordinary_path(net):
    main, _, pairs = net
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fluid.clip.set_gradient_clip(GradientClipByNorm(1.0), program=main)
        fluid.clip.append_gradient_clip_ops(pairs)


# Clips are differentiable


@pytest.mark.parametrize("value", [[0, 0, 0], [0.1, 0.2, 0.3], [1e-30, 0, 0]], ids=["zero", "under", "tiny"])
@pytest.mark.parametrize(
    "clip",
    [GradientClipByValue(1.0), GradientClipByNorm(1.0), GradientClipByGlobalNorm(1.0)],
    ids=lambda c: type(c).__name__,
)
def test_the_gradient_of_what_is_not_clipped_is_the_identity(clip, value):
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        param = fluid.layers.create_parameter([3], "float32", name="w")
        grad = fluid.data("g", [3])
        grad.stop_gradient = False
        ((_, clipped),) = clip([(param, grad)])
        weights = fluid.data("weights", [3])
        (found,) = fluid.gradients(fluid.layers.reduce_sum(clipped * weights), grad)
        fluid.verify(main)
    feed = {"g": np.array(value, "float32"), "weights": np.array([1, 2, 3], "float32")}
    assert fluid.Executor().run(main, feed, [found])[0].tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        (GradientClipByNorm(1e200), [6e199, 8e199]),
        (GradientClipByNorm(1e-60), [6e-61, 8e-61]),
        (GradientClipByValue(1e200, -1e-60), [1e200, 1e200]),
    ],
    ids=str,
)
def test_a_threshold_may_be_one_that_only_float64_holds(strategy, expected):
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        param = fluid.layers.create_parameter([2], "float64", name="w")
        ((_, clipped),) = strategy([(param, fluid.data("g", [2], "float64"))])
    assert fluid.Program.parse(str(main)).equals(main)
    (found,) = fluid.Executor().run(main, {"g": np.array([3e200, 4e200])}, [clipped])
    np.testing.assert_allclose(found, expected, rtol=1e-15)


def test_a_group_has_a_name():
    with pytest.raises(WrongTypeError, match="group_name must be a str"):
        GradientClipByGlobalNorm(1.0, ["a"])


def test_a_clipped_gradient_of_rows_is_not_clipped_again_behind_its_decay(new_program):
    ids = fluid.data("ids", [None, 1], "int64")
    rows = fluid.embedding(ids, [4, 3], is_sparse=True)
    fluid.clip.set_gradient_clip(fluid.clip.GradientClipByGlobalNorm(1.0))
    sgd = fluid.optimizer.SGD(0.1, regularization=fluid.regularizer.L2Decay(0.1))
    sgd.minimize(fluid.layers.mean(rows))
    assert not ClipGradients().apply(fluid.default_main_program())


def test_strategies_do_not_change():
    for strategy, field in [
        (fluid.clip.GradientClipByNorm(1.0), "clip_norm"),
        (fluid.clip.GradientClipByGlobalNorm(1.0), "clip_norm"),
        (fluid.clip.GradientClipByValue(1.0), "max"),
        (fluid.regularizer.L2Decay(0.1), "_regularization_coeff"),
    ]:
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(strategy, field, 2.0)
