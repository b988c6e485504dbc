"""WriteWhereAssigned clips gradients of the scope where they are."""

import numpy as np
import pytest
from jit_support import needs_numba
from networks import CLIPS_IN_SCOPE, SHAPES, GradientsInScope
from pass_laws import assert_linear, keeps_the_bits, op_lines

import minigraph as fluid
from minigraph.executor.interpreter import Interpreter
from minigraph.passes import WriteWhereAssigned

test_training, test_overwriting = keeps_the_bits(WriteWhereAssigned())

SINGLE = """
    block 0
      persist g: float32[3]
      y: float32[3] = clip_by_norm(X=g) {{max_norm=1.0}}
      {between}
      g = assign(X=y)
      {after}
"""

JOINT = """
    block 0
      persist a: float32[{size}]
      persist b: float32[2]
      persist c: float32[1]
      Out=[x: float32[{size}], y: float32[2]], Norm=n: float32[1] = clip_by_global_norm(X=[a, b], ClipNorm=c)
      a = assign(X={a})
      b = assign(X={b})
"""


def test_a_clip_writes_where_its_result_is_assigned():
    text = SINGLE.format(between="", after="")
    assert op_lines(WriteWhereAssigned(), text, ["g"]) == ["g = clip_by_norm(X=g) {max_norm=1.0}"]


@pytest.mark.parametrize(
    ("between", "after", "fetch"),
    [
        ("z: float32[3] = tanh(X=g)", "", ["z"]),
        ("z: float32[3] = tanh(X=y)", "", ["z"]),
        ("", "z: float32[3] = tanh(X=y)", ["z"]),
        ("g = tanh(X=g)", "", []),
        ("", "", ["y"]),
    ],
)
def test_what_is_read_besides_stays(between, after, fetch):
    text = SINGLE.format(between=between, after=after)
    assert any("assign" in line for line in op_lines(WriteWhereAssigned(), text, ["g", *fetch]))


def test_what_is_clipped_together_is_written_where_it_was():
    text = JOINT.format(size=3, a="x", b="y")
    assert op_lines(WriteWhereAssigned(), text, []) == [
        "Out=[a, b], Norm=@EMPTY@ = clip_by_global_norm(X=[a, b], ClipNorm=c)"
    ]
    kept = op_lines(WriteWhereAssigned(), text, ["n"])
    assert kept == ["Out=[a, b], Norm=n = clip_by_global_norm(X=[a, b], ClipNorm=c)"]


def test_results_that_change_places_are_assigned():
    assert len(op_lines(WriteWhereAssigned(), JOINT.format(size=2, a="y", b="x"), [])) == 3


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("clip", CLIPS_IN_SCOPE)
def test_gradients_in_the_scope_have_the_bits_of_the_interpreter(clip, dtype):
    gradients, executor = GradientsInScope(SHAPES, CLIPS_IN_SCOPE[clip], dtype), fluid.Executor(jit=False)
    assert gradients.run(executor) == gradients.run(Interpreter())
    (plan,) = executor.plans
    assert set(plan.written_over) == set(gradients.names)
    assert "assign" not in plan.compiled.source


def test_a_gradient_may_be_fetched_as_well():
    gradients = GradientsInScope(SHAPES, CLIPS_IN_SCOPE["global norm"])
    fetch = gradients.names[:3]
    assert gradients.run(fluid.Executor(jit=False), fetch) == gradients.run(Interpreter(), fetch)


@needs_numba
@pytest.mark.parametrize("clip", ["global norm", "never reached"])
def test_compiled_sums_clip_in_the_scope(clip):
    gradients = GradientsInScope(SHAPES, CLIPS_IN_SCOPE[clip])
    found, expected = gradients.run(fluid.Executor(jit=True)), gradients.run(Interpreter())
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(np.frombuffer(a, "float32"), np.frombuffer(b, "float32"), rtol=1e-6)


@pytest.mark.slow
def test_many_gradients_are_a_few_calls():
    gradients, executor = GradientsInScope([(7,)] * 200, CLIPS_IN_SCOPE["global norm"]), fluid.Executor(jit=False)
    gradients.run(executor)
    (plan,) = executor.plans
    assert len(plan.compiled.state) == 1
    (step,) = [step for step in plan.steps.steps if step.op.type == "clip_by_global_norm"]
    assert step.in_place and len(plan.buffers.flat.inputs[step][0]) == len(plan.buffers.flat.targets[step][0]) == 1


@pytest.mark.timing
def test_applying_takes_linear_time():
    def clips(count):
        return GradientsInScope([(2,)] * count, CLIPS_IN_SCOPE["norm"]).main

    assert_linear(WriteWhereAssigned(), clips)
