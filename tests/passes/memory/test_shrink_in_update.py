"""ShrinkInUpdate leaves it to updates to scale gradients down to a joint norm."""

import pytest
from pass_laws import assert_linear, keeps_the_bits, op_lines, rewritten

import minigraph as fluid
from minigraph.passes import MergeUpdates, ShrinkInUpdate

test_training, test_overwriting = keeps_the_bits(MergeUpdates(), ShrinkInUpdate())

TEXT = """
    block 0
      param v: float32[3]
      param w: float32[2, 2]
      persist rate: float32[1]
      data c: float32[1]
      data g: float32[3]
      data h: float32[2, 2]
      Out=[p: float32[3], q: float32[2, 2]], Norm=n: float32[1] = clip_by_global_norm(X=[g, h], ClipNorm=c)
      ParamOut=[v, w] = merged_sgd(Param=[v, w], LearningRate=rate, Grad=[p, q]) {sizes=[3, 4]}
"""


def test_the_update_gets_the_factor():
    assert op_lines(ShrinkInUpdate(), TEXT, ["n"]) == [
        "Factor=n@FACTOR, Norm=n = clip_factor(X=[g, h], ClipNorm=c)",
        "[v, w] = merged_sgd(Param=[v, w], LearningRate=rate, Grad=[g, h], ClipFactor=n@FACTOR) {sizes=[3, 4]}",
    ]


PARTS = TEXT.replace("data g", "data norms: float64[2, 2, 3]\n      data g").replace(
    "clip_by_global_norm(X=[g, h], ClipNorm=c)",
    "clip_parts(X=[g, h], Norms=norms, ClipNorm=c) {columns=[0, 1], max_norm=1.0}",
)


def test_the_update_of_a_part_gets_the_factor():
    assert op_lines(ShrinkInUpdate(), PARTS, ["n"]) == [
        "Factor=n@FACTOR, Norm=n = clip_parts_factor(Norms=norms, ClipNorm=c) {columns=[0, 1]}",
        "[v, w] = merged_sgd(Param=[v, w], LearningRate=rate, Grad=[g, h], ClipFactor=n@FACTOR) {sizes=[3, 4]}",
    ]
    by_number = PARTS.replace(", ClipNorm=c", "").replace("n: float32[1]", "n: float64[1]")
    assert "clip_parts(" in op_lines(ShrinkInUpdate(), by_number, [])[0]


LEFT_ALONE = {
    "a clipped gradient is fetched": (TEXT, ["p"]),
    "another operator reads one": (TEXT + "      y: float32[3] = relu(X=p)\n", ["y"]),
    "the update has other gradients too": (TEXT.replace("Grad=[p, q]", "Grad=[p, h]"), []),
    "a gradient is written in between": (TEXT.replace("      ParamOut", "      g = relu(X=g)\n      ParamOut"), ["g"]),
    "the clip is strict": (TEXT.replace("ClipNorm=c)", "ClipNorm=c) {strict=True}"), []),
}


@pytest.mark.parametrize("what", LEFT_ALONE)
def test_the_clip_stays(what):
    lines = op_lines(ShrinkInUpdate(), *LEFT_ALONE[what])
    assert any("clip_by_global_norm" in line for line in lines)


def test_a_part_that_is_not_updated_may_stay_empty():
    text = TEXT.replace("Out=[p: float32[3], q", "Out=[@EMPTY@, q").replace(
        "ParamOut=[v, w] = merged_sgd(Param=[v, w], LearningRate=rate, Grad=[p, q]) {sizes=[3, 4]}",
        "ParamOut=[w] = merged_sgd(Param=[w], LearningRate=rate, Grad=[q]) {sizes=[4]}",
    )
    assert "clip_factor(X=[g, h]" in op_lines(ShrinkInUpdate(), text, [])[0]


@pytest.mark.timing
def test_time_is_linear():
    def make(count):
        program = fluid.Program()
        with fluid.program_guard(program, fluid.Program()), fluid.unique_name.guard():
            params = [fluid.layers.create_parameter([2], "float32", name=f"w{i}") for i in range(count // 4)]
            pairs = [(param, fluid.data(f"g_{param.name}", [2])) for param in params]
            clip = fluid.clip.GradientClipByGlobalNorm(1.0)
            fluid.optimizer.SGD(0.1, grad_clip=clip).apply_gradients(pairs)
        fluid.passes.FuseGlobalNorm().apply(program)
        return rewritten(MergeUpdates(), program, [])

    assert_linear(ShrinkInUpdate(), make)
