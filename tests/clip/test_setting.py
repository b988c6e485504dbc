"""The way from `append_gradient_clip_ops` to an operator of a clip is short."""

import sys

import pytest

import minigraph as fluid
from minigraph import clip
from minigraph.errors import WrongTypeError
from minigraph.ir import Block
from minigraph.support import public

MOST_CALLS = 7
STRATEGIES = [
    clip.GradientClipByValue(1.0), clip.GradientClipByValue(1e-50), clip.GradientClipByNorm(1.0),
    clip.GradientClipByNorm(1e300), clip.GradientClipByGlobalNorm(1.0), clip.GradientClipByPNorm(1.0),
    clip.GradientClipByGlobalPNorm(1.0), clip.GradientClipByAxisNorm(1.0), clip.GradientClipByBlockRMS(1.0),
    clip.AdaptiveGradientClip(clip_final_layer=True), clip.AutoClip(), clip.ZClip(),
    clip.GradientClipByGlobalNorm(1.0, nonfinite="skip", telemetry=True),
]  # fmt: skip


class Calls:
    """The functions between `append_gradient_clip_ops` and `Block.append_op`, both included, for each operator."""

    def __init__(self, block):
        self.block = block
        self.paths = []

    def __call__(self, frame, event, arg):
        if event == "call" and frame.f_code is Block.append_op.__code__ and frame.f_locals["self"] is self.block:
            path = []
            while frame.f_code.co_name != "append_gradient_clip_ops":
                path.append(frame)
                frame = frame.f_back
            self.paths.append([each.f_code.co_name for each in (*path, frame) if not is_wrapper(each.f_code)][::-1])


def is_wrapper(code):
    """Whether a decorator made the function, or it is a comprehension, which Python 3.12 has in line."""
    return code.co_filename == public.__file__ or code.co_name in ("paused", "standing") or code.co_name[0] == "<"


@pytest.mark.parametrize("strategy", STRATEGIES, ids=str)
def test_an_operator_of_a_clip_is_appended_by_at_most_seven_calls(strategy):
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        loss = fluid.layers.mean(fluid.layers.fc(fluid.data("x", [None, 3]), 2))
        clip.set_gradient_clip(strategy)
        pairs = fluid.append_backward(loss)
        calls = Calls(fluid.default_main_program().global_block())
        before = sys.getprofile()
        sys.setprofile(calls)
        try:
            clip.append_gradient_clip_ops(pairs)
        finally:
            sys.setprofile(before)
    assert calls.paths
    for path in calls.paths:
        assert len(path) <= MOST_CALLS, " -> ".join(path)


@pytest.mark.usefixtures("new_program")
def test_a_parameter_is_made_with_a_clip_of_its_own_as_before_fluid_1_8():
    x = fluid.data("x", [None, 4])
    attr = fluid.ParamAttr(gradient_clip=clip.GradientClipByNorm(0.5))
    loss = fluid.layers.mean(fluid.layers.fc(x, 3, param_attr=attr))
    fluid.optimizer.SGD(0.1).minimize(loss)
    block = fluid.default_main_program().global_block()
    (op,) = block.ops.by_type["clip_by_norm"]
    assert op.input("X") == ["fc_0.w_0@GRAD"] and op.attr("max_norm") == 0.5
    with pytest.raises(WrongTypeError, match="gradient clip must be a strategy"):
        fluid.ParamAttr(gradient_clip=clip.ErrorClipByValue(1.0))
