"""The strategies beyond fluid's three as parts of programs: options, groups, layers, text, copies, state."""

import copy
import dataclasses
import math
import pickle

import numpy as np
import pytest
from one_clip import AtOnce, InProgram, clip_everywhere, same_bits

import minigraph as fluid
from minigraph.clip import (
    AdaptiveGradientClip,
    AutoClip,
    ClipPipeline,
    GradientClipByAxisNorm,
    GradientClipByBlockRMS,
    GradientClipByGlobalNorm,
    GradientClipByGlobalPNorm,
    GradientClipByNorm,
    GradientClipByPNorm,
    GradientClipByValue,
    ZClip,
    append_gradient_clip_ops,
    set_gradient_clip,
)
from minigraph.eager.block import EagerProgram
from minigraph.errors import ClipError, MinigraphError, WrongTypeError
from minigraph.ir import Role
from minigraph.ir.verifier import verify
from minigraph.optimizer import SGD, Adam
from minigraph.passes import ClipGradients

STRATEGIES = [
    GradientClipByPNorm(0.02, 3.0),
    GradientClipByPNorm(0.01, math.inf, nonfinite="zero"),
    GradientClipByGlobalPNorm(0.05, 1.5, "g"),
    GradientClipByAxisNorm(0.01),
    GradientClipByAxisNorm(0.02, axes=[0, 1], p=1.0, telemetry=True),
    GradientClipByBlockRMS(1e-3),
    AdaptiveGradientClip(1e-3),
    AdaptiveGradientClip(1e-3, clip_final_layer=True, nonfinite="raise"),
    AutoClip(history=2, nonfinite="skip"),
    ZClip(warmup_steps=1, z_threshold=0.1, telemetry=True),
    ClipPipeline([GradientClipByValue(0.01), AutoClip(group_name="a", percentile=0.5), GradientClipByNorm(0.02)]),
    ClipPipeline([ClipPipeline([GradientClipByValue(0.01)], nonfinite="zero"), ZClip(group_name="z")], telemetry=True),
]

each_strategy = pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda strategy: type(strategy).__name__)


def random(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


def length(*arrays):
    return math.sqrt(math.fsum(float(value) ** 2 for array in arrays for value in array.reshape(-1)))


def net(width=4):
    """A program of two layers and its loss; call it inside `program_guard`."""
    x = fluid.data("x", [None, 3])
    hidden = fluid.layers.fc(x, width, act="tanh")
    return fluid.layers.mean(fluid.layers.square(fluid.layers.fc(hidden, 2)))


def batch(step):
    return {"x": random(5, 3, seed=step) * 10 ** (step % 3)}


def trained(main, startup, executor=None, steps=4):
    """Parameters after some steps; those at the start depend on the names only."""
    executor, scope = executor or fluid.Executor(), fluid.Scope()
    executor.run(startup, scope=scope)
    names = [param.name for param in main.all_parameters()]
    for i, name in enumerate(names):
        value = random(*main.global_block().var(name).shape, seed=i)
        scope.var(name).get_tensor().set(value, fluid.CPUPlace())
    for step in range(steps):
        executor.run(main, feed=batch(step), scope=scope)
    return [np.array(scope.find_var(name).get_tensor()) for name in names]


def program_with(strategy, make_optimizer=SGD):
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        make_optimizer(0.5, grad_clip=strategy).minimize(net())
    return main, startup


# Values


@each_strategy
def test_equal_options_make_equal_strategies(strategy):
    for twin in (copy.copy(strategy), copy.deepcopy(strategy), pickle.loads(pickle.dumps(strategy))):
        assert twin == strategy and hash(twin) == hash(strategy) and type(twin) is type(strategy)
    assert [other == strategy for other in STRATEGIES].count(True) == 1
    with pytest.raises(AttributeError):
        strategy.need_clip = len


@each_strategy
def test_text_and_clone_keep_the_strategy_of_a_parameter(strategy):
    program = fluid.Program()
    program.global_block().create_parameter("w", [2, 3], "float32", gradient_clip=strategy)
    for twin in (fluid.Program.parse(str(program)), program.clone()):
        assert twin.equals(program)
        assert twin.global_block().var("w").gradient_clip == strategy


@each_strategy
def test_text_and_clone_keep_a_program_that_clips(strategy):
    main, startup = program_with(strategy)
    verify(main)
    expected = trained(main, startup)
    assert same_bits(trained(fluid.Program.parse(str(main)), fluid.Program.parse(str(startup))), expected)
    assert same_bits(trained(main.clone(), startup.clone()), expected)
    assert fluid.Program.parse(str(main)).equals(main)


@each_strategy
def test_a_plan_trains_to_the_bits_of_the_interpreter(strategy):
    main, startup = program_with(strategy, Adam)
    found = trained(main, startup)
    assert same_bits(found, trained(main, startup, fluid.Interpreter()))
    unclipped = trained(*program_with(None, Adam))
    assert not same_bits(found, unclipped)


@each_strategy
def test_the_pass_inserts_what_the_optimizer_does(strategy):
    late, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(late, startup), fluid.unique_name.guard():
        SGD(0.5).minimize(net())
        for param in late.all_parameters():
            param.gradient_clip = strategy
        ClipGradients().apply(late)
    assert same_bits(trained(late, startup), trained(*program_with(strategy)))


@each_strategy
def test_every_operator_has_the_role_and_serves_raw_gradients(strategy):
    main, _ = program_with(strategy)
    inserted = [op for op in main.global_block().ops if op.role & Role.CLIP]
    raw = {f"{param.name}@GRAD": param.name for param in main.all_parameters()}
    served = set()
    for op in inserted:
        for param, grad in zip(op.role_vars[::2], op.role_vars[1::2], strict=True):
            assert raw[grad] == param
            served.add(param)
    spared = {"fc_1.w_0", "fc_1.b_0"} if strategy == AdaptiveGradientClip(1e-3) else set()
    assert inserted and served == set(raw.values()) - spared


@pytest.mark.parametrize(
    ("make", "error"),
    [
        *(
            (lambda kind=kind, value=value: kind(value), ClipError)
            for kind in (
                GradientClipByPNorm, GradientClipByGlobalPNorm, GradientClipByAxisNorm, GradientClipByBlockRMS,
                AdaptiveGradientClip,
            )
            for value in (0, -1.0, math.nan, math.inf)
        ),
        *(
            (lambda kind=kind, p=p: kind(1.0, p=p), ClipError)
            for kind in (GradientClipByPNorm, GradientClipByGlobalPNorm, GradientClipByAxisNorm)
            for p in (0, -2.0, math.nan)
        ),
        *((lambda axes=axes: GradientClipByAxisNorm(1.0, axes), WrongTypeError) for axes in (None, "01", [0.5], True)),
        (lambda: GradientClipByAxisNorm(1.0, [0, 0]), ClipError),
        *((lambda eps=eps: AdaptiveGradientClip(eps=eps), ClipError) for eps in (0.0, -1e-3, math.inf)),
        (lambda: AdaptiveGradientClip(clip_final_layer="yes"), WrongTypeError),
        *((lambda value=value: AutoClip(value), ClipError) for value in (-1, 100.5, math.nan)),
        *((lambda value=value: AutoClip(history=value), ClipError) for value in (0, -3)),
        *((lambda value=value: AutoClip(history=value), WrongTypeError) for value in (2.5, True)),
        *((lambda value=value: ZClip(alpha=value), ClipError) for value in (-0.1, 1.0, math.nan)),
        *((lambda value=value: ZClip(value), ClipError) for value in (0.0, -1.0, math.inf)),
        (lambda: ZClip(warmup_steps=0), ClipError),
        (lambda: ZClip(warmup_steps=1.5), WrongTypeError),
        (lambda: ClipPipeline([]), ClipError),
        *((lambda value=value: ClipPipeline(value), WrongTypeError) for value in (None, "ab", [1.0])),
        (lambda: GradientClipByPNorm("long"), WrongTypeError),
        (lambda: AutoClip("ten"), WrongTypeError),
        (lambda: ZClip(telemetry=1), WrongTypeError),
        (lambda: AutoClip(need_clip="fc_0.w_0"), WrongTypeError),
        (lambda: GradientClipByBlockRMS(1.0, nonfinite="ignore"), ClipError),
    ],
)  # fmt: skip
def test_options_that_make_no_sense_are_refused_at_the_users_line(make, error):
    with pytest.raises(error) as caught:
        make()
    assert isinstance(caught.value, MinigraphError)
    assert "test_strategy_programs.py" in caught.value.site.filename


def test_integers_of_numpy_are_integers():
    assert GradientClipByAxisNorm(1.0, np.int64(1)) == GradientClipByAxisNorm(1.0, (1,))
    assert AutoClip(history=np.int32(3)) == AutoClip(history=3)
    assert str(ZClip(warmup_steps=np.int64(3))) == str(ZClip(warmup_steps=3))


# Groups


def test_a_strategy_object_serves_many_programs_each_with_a_state_of_its_own():
    strategy = AutoClip(percentile=50.0)
    programs = [InProgram(strategy, [random(3)]) for _ in range(2)]
    for program, scale in zip(programs, (1.0, 100.0), strict=True):
        program([random(3) * np.float32(scale)])
    (found,) = programs[1]([random(3) * np.float32(1000.0)])
    np.testing.assert_allclose(length(found), 550 * length(random(3)), rtol=1e-6)


@pytest.mark.parametrize(
    ("kind", "option"), [(GradientClipByGlobalPNorm, "clip_norm"), (AutoClip, "percentile"), (ZClip, "z_threshold")]
)
def test_two_values_of_an_option_in_one_group_are_an_error(kind, option):
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        pairs = fluid.append_backward(net())
        set_gradient_clip(kind(1.0), ["fc_0.w_0"])
        set_gradient_clip(kind(2.0), ["fc_1.w_0"])
        before = str(main)
        with pytest.raises(ClipError, match=rf"(?s)two values of {option}.*fc_1\.w_0.*group_name"):
            append_gradient_clip_ops(pairs)
    assert str(main) == before


def test_strategies_of_one_group_name_are_clipped_together_and_others_apart():
    grads = [random(3, seed=i) for i in range(4)]
    given = [
        GradientClipByGlobalPNorm(0.5, group_name="a"), GradientClipByGlobalPNorm(0.5, group_name="b"),
        GradientClipByGlobalPNorm(0.5, group_name="a"), AutoClip(group_name="a"),
    ]  # fmt: skip

    def by_parameter(pairs):
        for (param, _), strategy in zip(pairs, given, strict=True):
            param.gradient_clip = strategy
        return append_gradient_clip_ops(pairs)

    found = InProgram(by_parameter, grads)(grads)
    np.testing.assert_allclose(length(found[0], found[2]), 0.5, rtol=1e-6)
    np.testing.assert_allclose(length(found[1]), 0.5, rtol=1e-6)
    assert same_bits([found[3]], [grads[3]])
    np.testing.assert_allclose(found[0] / grads[0], found[2][0] / grads[2][0], rtol=1e-6)


def test_each_group_of_a_history_keeps_its_own():
    grads = [random(3), random(3) * 9]

    def by_parameter(pairs):
        for i, (param, _) in enumerate(pairs):
            param.gradient_clip = AutoClip(percentile=0.5, group_name=str(i))
        return append_gradient_clip_ops(pairs)

    program = InProgram(by_parameter, grads)
    assert same_bits(program(grads), grads)
    found = program([grad * np.float32(3) for grad in grads])
    for cut, raw in zip(found, grads, strict=True):
        np.testing.assert_allclose(length(cut), 1.01 * length(raw), rtol=1e-6)


# Layers


def test_the_final_layer_is_left_alone_unless_asked():
    grads = [random(4, 3), random(3), random(3, 2), random(2)]
    found = clip_everywhere(AdaptiveGradientClip(0.01), grads)
    assert same_bits(found[2:], grads[2:])
    assert all((cut != raw).any() for cut, raw in zip(found[:2], grads[:2], strict=True))
    found = clip_everywhere(AdaptiveGradientClip(0.01, clip_final_layer=True), grads)
    assert all((cut != raw).any() for cut, raw in zip(found, grads, strict=True))


def test_the_final_layer_is_the_one_created_last_in_whatever_order_pairs_come():
    grads = [random(3, 3, seed=i) for i in range(2)]
    strategy = AdaptiveGradientClip(0.01)

    def backwards(pairs):
        return strategy(pairs[::-1])[::-1]

    forwards = clip_everywhere(strategy, grads)
    assert same_bits([forwards[1]], [grads[1]]) and (forwards[0] != grads[0]).any()
    assert same_bits(clip_everywhere(backwards, grads), forwards)


def test_the_order_of_pairs_may_change_from_call_to_call():
    grads = [random(3, 3, seed=i) for i in range(2)]
    strategy = AdaptiveGradientClip(0.01)
    at_once = AtOnce(strategy, grads)
    forwards = at_once(grads)
    at_once.strategy = lambda pairs: strategy(pairs[::-1])[::-1]
    assert same_bits(at_once(grads), forwards)


def test_vectors_alone_have_no_final_layer():
    grads = [random(4), random(3)]
    found = clip_everywhere(AdaptiveGradientClip(0.01), grads)
    assert all((cut != raw).any() for cut, raw in zip(found, grads, strict=True))


def test_weights_that_are_zero_count_as_eps():
    grads = [np.array([[3.0, 1e-6], [4.0, 0.0]])]
    (found,) = clip_everywhere(AdaptiveGradientClip(0.5, 0.25, clip_final_layer=True), grads, [np.zeros((2, 2))])
    np.testing.assert_allclose(found, [[0.075, 1e-6], [0.1, 0.0]], rtol=1e-15)
    (found,) = clip_everywhere(
        AdaptiveGradientClip(0.5, 0.25, clip_final_layer=True), grads, [np.zeros((2, 2)) + 1e-300]
    )
    np.testing.assert_allclose(found, [[0.075, 1e-6], [0.1, 0.0]], rtol=1e-15)


def test_the_limit_follows_the_parameter_as_it_trains():
    strategy = AdaptiveGradientClip(0.5, clip_final_layer=True)
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup):
        block = main.global_block()
        param = block.create_parameter("w", [4], "float64")
        grad = block.create_var(name="g", shape=[4], dtype="float64", is_data=True)
        SGD(1.0, grad_clip=strategy).apply_gradients([(param, grad)])
    exe, scope, w = fluid.Executor(), fluid.Scope(), np.array([8.0, 0, 0, 0])
    exe.run(startup, scope=scope)
    scope.var("w").get_tensor().set(w, fluid.CPUPlace())
    for _ in range(5):  # each step halves the weights
        exe.run(main, feed={"g": w * 100}, scope=scope)
        w = w / 2
        np.testing.assert_allclose(np.array(scope.find_var("w").get_tensor()), w, rtol=1e-15)


# Pipelines


def test_a_pipeline_applies_its_strategies_in_order():
    grads = [np.array([3.0, 4.0])]
    value, by_norm = GradientClipByValue(3.0), GradientClipByNorm(2.5)
    np.testing.assert_allclose(clip_everywhere(ClipPipeline([value, by_norm]), grads)[0], 2.5 * np.sqrt([0.5, 0.5]))
    np.testing.assert_allclose(clip_everywhere(ClipPipeline([by_norm, value]), grads)[0], [1.5, 2.0])


def test_parameters_go_different_ways_through_a_pipeline():
    grads = [random(3, seed=i) for i in range(3)]
    strategy = ClipPipeline(
        [
            GradientClipByValue(0.1, need_clip=lambda param: param.name == "p0"),
            GradientClipByGlobalNorm(0.5, need_clip=lambda param: param.name != "p0"),
        ],
        need_clip=lambda param: param.name != "p2",
    )
    found = InProgram(strategy, grads)(grads)
    np.testing.assert_array_equal(found[0], np.clip(grads[0], np.float32(-0.1), np.float32(0.1)))
    np.testing.assert_allclose(found[1], grads[1] * (0.5 / length(grads[1])), rtol=1e-6)
    assert same_bits(found[2:], grads[2:])


@pytest.mark.slow
def test_a_pipeline_of_one_does_what_the_one_does():
    grads = [random(4, 3), random(3)]
    for strategy in STRATEGIES:
        if strategy.nonfinite != "skip":
            assert same_bits(clip_everywhere(ClipPipeline([strategy]), grads), clip_everywhere(strategy, grads))


# Both modes


@each_strategy
def test_tensors_that_are_no_parameters_are_clipped_like_gradients_of_parameters(strategy):
    strategy = dataclasses.replace(strategy, nonfinite="propagate")  # "skip" is for optimizers
    values = np.array([2, 3], "float32"), np.array([3, 4], "float32")
    found = []
    with fluid.dygraph.guard():
        tensors = [fluid.dygraph.to_variable(value) for value in values]
        for make in (fluid.dygraph.to_variable, lambda value: parameter_of(value)):
            params = [make(value) for value in values]
            pairs = strategy([*zip(params, tensors, strict=True), (params[0], None)])
            found.append([grad.numpy() for _, grad in pairs])
    assert same_bits(*found)


def parameter_of(value):
    """A parameter of the imperative mode."""
    param = fluid.layers.create_parameter(list(value.shape), str(value.dtype))
    param.set_value(value)
    return param


@pytest.mark.slow
@each_strategy
def test_training_gives_the_same_bits_in_both_modes(strategy):
    expected = trained(*program_with(strategy, Adam))
    program = EagerProgram()
    with fluid.program_guard(program, program), fluid.unique_name.guard():
        layers = [fluid.dygraph.Linear(3, 4, act="tanh"), fluid.dygraph.Linear(4, 2)]
        params = [param for layer in layers for param in layer.parameters()]
        for i, param in enumerate(params):
            param.set_value(random(*param.shape, seed=i))
        update = Adam(0.5, parameter_list=params, grad_clip=strategy)
        for step in range(4):
            out = layers[1](layers[0](fluid.dygraph.to_variable(batch(step)["x"])))
            fluid.layers.mean(fluid.layers.square(out)).backward()
            update.step()
            update.clear_grad()
        assert same_bits([param.numpy() for param in params], expected)
