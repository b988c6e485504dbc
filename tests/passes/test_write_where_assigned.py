"""WriteWhereAssigned clips gradients of the scope where they are."""

import numpy as np
import pytest
from jit_support import needs_numba
from pass_laws import assert_linear, keeps_the_bits, op_lines

import minigraph as fluid
from minigraph.executor.interpreter import Interpreter
from minigraph.passes import WriteWhereAssigned
from minigraph.runtime.place import CPUPlace

test_training, test_overwriting = keeps_the_bits(WriteWhereAssigned())

SINGLE = """
    block 0
      persist g: float32[3]
      y: float32[3] = clip_by_norm(X=g) {{max_norm=1.0}}
      {between}
      g = assign(X=y)
      {behind}
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
    text = SINGLE.format(between="", behind="")
    assert op_lines(WriteWhereAssigned(), text, ["g"]) == ["g = clip_by_norm(X=g) {max_norm=1.0}"]


@pytest.mark.parametrize(
    ("between", "behind", "fetch"),
    [
        ("z: float32[3] = tanh(X=g)", "", ["z"]),
        ("z: float32[3] = tanh(X=y)", "", ["z"]),
        ("", "z: float32[3] = tanh(X=y)", ["z"]),
        ("g = tanh(X=g)", "", []),
        ("", "", ["y"]),
    ],
)
def test_what_is_read_besides_stays(between, behind, fetch):
    text = SINGLE.format(between=between, behind=behind)
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


class Gradients:
    """Gradients in the scope, clipped there again and again."""

    def __init__(self, shapes, clip, dtype="float32"):
        self.main = fluid.Program()
        self.names = [f"g{i}" for i in range(len(shapes))]
        rng = np.random.default_rng(0)
        self.start = {n: rng.uniform(-1, 1, s).astype(dtype) for n, s in zip(self.names, shapes, strict=True)}
        with fluid.program_guard(self.main, fluid.Program()), fluid.unique_name.guard():
            block = self.main.global_block()
            grads = [block.create_var(n, list(x.shape), dtype, persistable=True) for n, x in self.start.items()]
            params = [fluid.layers.create_parameter(list(x.shape), dtype) for x in self.start.values()]
            pairs = clip(list(zip(params, grads, strict=True)))
            for grad, (_, clipped) in zip(grads, pairs, strict=True):
                fluid.layers.assign(clipped, output=grad)

    def run(self, executor, fetch=(), steps=3):
        scope, found = fluid.Scope(), []
        for name, array in self.start.items():
            scope.var(name).get_tensor().set(array, CPUPlace())
        for _ in range(steps):
            found += [x.tobytes() for x in executor.run(self.main, {}, list(fetch), scope=scope)]
            found += [np.array(scope.find_var(name).get_tensor()).tobytes() for name in self.names]
        return found


CLIPS = {
    "value": fluid.clip.GradientClipByValue(0.1),
    "norm": fluid.clip.GradientClipByNorm(0.1),
    "global norm": fluid.clip.GradientClipByGlobalNorm(0.1),
    "never reached": fluid.clip.GradientClipByGlobalNorm(1e6),
}
SHAPES = [(3,), (2, 2), (9000,), (5,), (1,), (100, 100), (0, 3), (4,), (4,)]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("clip", CLIPS)
def test_gradients_in_the_scope_have_the_bits_of_the_interpreter(clip, dtype):
    gradients, executor = Gradients(SHAPES, CLIPS[clip], dtype), fluid.Executor(jit=False)
    assert gradients.run(executor) == gradients.run(Interpreter())
    (plan,) = executor._plans.values()
    assert set(plan.written_over) == set(gradients.names)
    assert "assign" not in plan.compiled.source


def test_a_gradient_may_be_fetched_as_well():
    gradients = Gradients(SHAPES, CLIPS["global norm"])
    fetch = gradients.names[:3]
    assert gradients.run(fluid.Executor(jit=False), fetch) == gradients.run(Interpreter(), fetch)


@needs_numba
@pytest.mark.parametrize("clip", ["global norm", "never reached"])
def test_compiled_sums_clip_in_the_scope(clip):
    gradients = Gradients(SHAPES, CLIPS[clip])
    found, expected = gradients.run(fluid.Executor(jit=True)), gradients.run(Interpreter())
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(np.frombuffer(a, "float32"), np.frombuffer(b, "float32"), rtol=1e-6)


def test_many_gradients_are_a_few_calls():
    gradients, executor = Gradients([(7,)] * 200, CLIPS["global norm"]), fluid.Executor(jit=False)
    gradients.run(executor)
    (plan,) = executor._plans.values()
    assert len(plan.compiled.state) == 1
    (step,) = [step for step in plan.steps.steps if step.op.type == "clip_by_global_norm"]
    assert step.in_place and len(step.joined[0]) == len(step.targets[0]) == 1


def test_applying_takes_linear_time():
    def clips(count):
        return Gradients([(2,)] * count, CLIPS["norm"]).main

    assert_linear(WriteWhereAssigned(), clips)
