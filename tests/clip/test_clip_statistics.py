"""Telemetry: what the records say, against float64, and what they cost where nobody asks."""

import math

import numpy as np
import pytest
from one_clip import InProgram, same_bits

import minigraph as fluid
from minigraph.clip import (
    AdaptiveGradientClip,
    AutoClip,
    ClipPipeline,
    GradientClipByAxisNorm,
    GradientClipByGlobalNorm,
    GradientClipByGlobalPNorm,
    GradientClipByNorm,
    GradientClipByPNorm,
    GradientClipByValue,
    append_gradient_clip_ops,
    telemetry,
)
from minigraph.eager.block import EagerProgram
from minigraph.optimizer import SGD, Adam

SHAPES = [(3, 2), (4,), (2, 3)]
FIELDS = ("norm_before", "norm_after", "factor", "steps", "clipped_steps")

APART = {
    "value": lambda **given: GradientClipByValue(0.5, **given),
    "norm": lambda **given: GradientClipByNorm(1.0, **given),
    "p norm": lambda **given: GradientClipByPNorm(1.5, 3.0, **given),
    "largest": lambda **given: GradientClipByPNorm(0.75, math.inf, **given),
    "axis": lambda **given: GradientClipByAxisNorm(0.5, **given),
    "adaptive": lambda **given: AdaptiveGradientClip(0.5, **given),
}
TOGETHER = {
    "global norm": lambda **given: GradientClipByGlobalNorm(1.0, **given),
    "global p norm": lambda **given: GradientClipByGlobalPNorm(4.0, 1.0, **given),
    "history": lambda **given: AutoClip(60.0, **given),
}
EVERY = {**APART, **TOGETHER}

each = pytest.mark.parametrize("make", EVERY.values(), ids=EVERY)


def gradients(step, dtype="float32"):
    rng = np.random.default_rng(step)
    return [(rng.standard_normal(shape) * 10.0 ** (step % 3 - 1)).astype(dtype) for shape in SHAPES]


def joint_norm(arrays, p=2.0):
    """By exact summation in float64."""
    sizes = [abs(float(value)) for array in arrays for value in array.reshape(-1)]
    return max(sizes, default=0.0) if p == math.inf else math.fsum(size**p for size in sizes) ** (1 / p)


def groups(name):
    """Which gradients have a record of their own."""
    return [[0, 1, 2]] if name in TOGETHER else [[0], [1], [2]]


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("name", EVERY)
def test_the_records_say_what_happened_to_the_gradients(name, dtype):
    strategy = EVERY[name](telemetry=True)
    p = getattr(strategy, "p", 2.0)
    program = InProgram(strategy, gradients(0, dtype))
    records = telemetry(program.main)
    assert [record.params for record in records] == [tuple(f"p{i}" for i in group) for group in groups(name)]
    variables = [getattr(record, field) for record in records for field in FIELDS]
    clipped_steps = [0] * len(records)
    for step in range(5):
        grads = gradients(step, dtype)
        values = program(grads, variables)
        clipped, found = values[: len(grads)], values[len(grads) :]
        for k, group in enumerate(groups(name)):
            before, after, factor, steps, clips = (each for each in found[5 * k : 5 * k + 5])
            norms = [joint_norm([arrays[i] for i in group], p) for arrays in (grads, clipped)]
            np.testing.assert_allclose([before[0], after[0]], norms, rtol=1e-8)
            np.testing.assert_allclose(factor[0], norms[1] / norms[0], rtol=1e-8)
            clipped_steps[k] += not same_bits([clipped[i] for i in group], [grads[i] for i in group])
            assert (steps.tolist(), clips.tolist()) == ([step + 1], [clipped_steps[k]])
            assert before.dtype == after.dtype == factor.dtype == "float64" and steps.dtype == clips.dtype == "int64"
    assert 0 < sum(clipped_steps) < 5 * len(records)


@each
def test_the_records_are_in_the_scope_after_a_run(make):
    program = InProgram(make(telemetry=True), gradients(0))
    program(gradients(0))
    for record in telemetry(program.main):
        assert program.value(record.steps.name) == [1]
        assert program.value(record.norm_before.name) > 0


@each
def test_telemetry_changes_no_gradient(make):
    watched, plain = InProgram(make(telemetry=True), gradients(0)), InProgram(make(), gradients(0))
    for step in range(3):
        assert same_bits(watched(gradients(step)), plain(gradients(step)))


@each
def test_without_telemetry_there_is_nothing_of_it(make):
    plain, watched = InProgram(make(), gradients(0)), InProgram(make(telemetry=True), gradients(0))
    assert telemetry(plain.main) == [] and "clip_statistics" not in plain.types
    assert [type for type in watched.types if type != "clip_statistics"] == plain.types
    extra = set(watched.main.global_block().vars) - set(plain.main.global_block().vars)
    of_records = {getattr(record, field).name for record in telemetry(watched.main) for field in FIELDS}
    assert extra == of_records
    started = set(watched.startup.global_block().vars) - set(plain.startup.global_block().vars)
    assert started == of_records


def test_norm_before_is_that_of_the_raw_gradients_though_above_the_threshold():
    program = InProgram(GradientClipByGlobalNorm(1.0, telemetry=True), [np.zeros(2)])
    (record,) = telemetry(program.main)
    before, after, factor = program([np.array([3.0, 4.0])], [record.norm_before, record.norm_after, record.factor])[1:]
    assert (before[0], after[0], factor[0]) == (5.0, pytest.approx(1.0, rel=1e-15), pytest.approx(0.2, rel=1e-15))


@pytest.mark.parametrize("magnitude", [1e200, 1e-200])
def test_records_hold_where_squares_overflow_or_underflow(magnitude):
    program = InProgram(GradientClipByGlobalNorm(2.5 * magnitude, telemetry=True), [np.zeros(2)])
    (record,) = telemetry(program.main)
    values = program([np.array([3.0, 4.0]) * magnitude], [record.norm_before, record.norm_after, record.factor])[1:]
    np.testing.assert_allclose(np.concatenate(values), [5 * magnitude, 2.5 * magnitude, 0.5], rtol=1e-15)


def test_zeros_have_factor_one_and_are_not_clipped():
    program = InProgram(GradientClipByNorm(1.0, telemetry=True), [np.zeros(2)])
    (record,) = telemetry(program.main)
    values = program([np.zeros(2)], [getattr(record, field) for field in FIELDS])[1:]
    assert [value[0] for value in values] == [0.0, 0.0, 1.0, 1, 0]


def test_what_is_not_finite_is_seen_in_the_record():
    program = InProgram(GradientClipByNorm(1.0, telemetry=True), [np.zeros(2)])
    (record,) = telemetry(program.main)
    values = program([np.array([np.nan, 1.0])], [record.norm_before, record.norm_after])[1:]
    assert np.isnan(values).all()
    values = program([np.array([np.inf, 1.0])], [record.norm_before, record.norm_after])[1:]
    assert values[0] == np.inf and np.isnan(values[1])
    assert program.value(record.steps.name) == [2]


def test_with_zeros_in_place_of_what_is_not_finite_the_record_is_of_the_rest():
    program = InProgram(GradientClipByNorm(1.0, telemetry=True, nonfinite="zero"), [np.zeros(3)])
    (record,) = telemetry(program.main)
    assert program([np.array([np.nan, 3.0, 4.0])], [record.norm_before])[1] == [5.0]


def test_a_pipeline_records_its_whole_and_each_strategy_that_asks():
    strategy = ClipPipeline([GradientClipByValue(2.0), GradientClipByGlobalNorm(1.0, telemetry=True)], telemetry=True)
    program = InProgram(strategy, [np.zeros(2), np.zeros(1)])
    records = telemetry(program.main)
    assert [record.params for record in records] == [("p0", "p1"), ("p0",), ("p1",)]
    values = program([np.array([2.0, 9.0]), np.array([1.0])], [r.norm_before for r in records])[2:]
    np.testing.assert_allclose(np.concatenate(values), [3.0, math.sqrt(85), 1.0], rtol=1e-15)


def test_each_group_has_a_record():
    def by_parameter(pairs):
        for (param, _), strategy in zip(
            pairs,
            [GradientClipByGlobalNorm(1.0, "a", telemetry=True), GradientClipByGlobalNorm(1.0, "b"),
             GradientClipByGlobalNorm(1.0, "a", telemetry=True)], strict=True
        ):  # fmt: skip
            param.gradient_clip = strategy
        return append_gradient_clip_ops(pairs)

    program = InProgram(by_parameter, gradients(0))
    assert [record.params for record in telemetry(program.main)] == [("p0", "p2")]


@each
def test_telemetry_is_found_in_copies_and_in_text(make):
    program = InProgram(make(telemetry=True), gradients(0))
    expected = [(r.params, *[getattr(r, field).name for field in FIELDS]) for r in telemetry(program.main)]
    for twin in (program.main.clone(), fluid.Program.parse(str(program.main))):
        assert [(r.params, *[getattr(r, field).name for field in FIELDS]) for r in telemetry(twin)] == expected


# The imperative mode


class Training:
    """Parameters in the imperative mode, updated by gradients that are given."""

    def __init__(self, strategy):
        self.program = EagerProgram()
        with fluid.program_guard(self.program, self.program), fluid.unique_name.guard():
            self.params = [
                fluid.layers.create_parameter(list(shape), "float32", name=f"p{i}") for i, shape in enumerate(SHAPES)
            ]
            self.optimizer = Adam(0.1, parameter_list=self.params, grad_clip=strategy)

    def step(self, grads):
        with fluid.program_guard(self.program, self.program), fluid.unique_name.guard():
            pairs = [(p, fluid.dygraph.to_variable(grad)) for p, grad in zip(self.params, grads, strict=True)]
            self.optimizer.apply_gradients(pairs)

    def state(self):
        with fluid.program_guard(self.program, self.program):
            return {name: tensor.numpy() for name, tensor in self.optimizer.state_dict().items()}

    def load(self, state):
        with fluid.program_guard(self.program, self.program):
            self.optimizer.set_state_dict(state)


def in_a_program(strategy, steps):
    """The telemetry variables of a static program after `steps`, by name."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        block = main.global_block()
        pairs = [
            (
                block.create_parameter(f"p{i}", shape, "float32"),
                block.create_var(name=f"g{i}", shape=shape, dtype="float32", is_data=True),
            )
            for i, shape in enumerate(SHAPES)
        ]
        SGD(0.0, grad_clip=strategy).apply_gradients(pairs)
    executor, scope = fluid.Executor(), fluid.Scope()
    executor.run(startup, scope=scope)
    for i, shape in enumerate(SHAPES):
        scope.var(f"p{i}").get_tensor().set(np.ones(shape, "float32"), fluid.CPUPlace())
    for step in steps:
        executor.run(main, feed={f"g{i}": grad for i, grad in enumerate(gradients(step))}, scope=scope)
    names = [getattr(record, field).name for record in telemetry(main) for field in FIELDS]
    return {name: np.array(scope.find_var(name).get_tensor()) for name in names}


@pytest.mark.parametrize("name", [name for name in EVERY if name != "adaptive"])
def test_an_optimizer_keeps_the_records_with_its_state_and_goes_on_after_a_reload(name):
    strategy = EVERY[name](telemetry=True)
    expected = in_a_program(strategy, range(5))
    first = Training(strategy)
    for step in range(3):
        first.step(gradients(step))
    second = Training(strategy)
    second.load(first.state())
    for step in range(3, 5):
        second.step(gradients(step))
    found = second.state()
    assert len(expected) == 5 * len(groups(name))
    assert same_bits([found[name] for name in expected], list(expected.values()))
    assert all(found[name] == [5] for name in expected if name.endswith(".steps"))
