"""Programs that clip at the wrong time are refused, with both operators named; others are not."""

import pytest

import minigraph as fluid
from minigraph.clip import (
    ClipPipeline,
    ErrorClipByValue,
    GradientClipByGlobalNorm,
    GradientClipByNorm,
    GradientClipByValue,
)
from minigraph.errors import VerifyError
from minigraph.ir import Role
from minigraph.passes import FuseElementwise

pytestmark = pytest.mark.usefixtures("new_program")


def network(uses=1):
    """A loss whose weight ``w`` is used several times, so that its gradient has several parts."""
    h = fluid.data("x", [None, 3])
    for _ in range(uses):
        h = fluid.layers.fc(h, 3, param_attr="w", bias_attr=False, act="tanh")
    return fluid.layers.mean(h)


def block():
    return fluid.default_main_program().global_block()


def refused(message, *types):
    with pytest.raises(VerifyError, match=message) as found:
        fluid.verify(fluid.default_main_program())
    for each in types:
        assert f": {each}, created at {__file__.rsplit('/', 1)[-1]}" in str(found.value).replace("tests/ir/", "")


def clip_with(grad, param="w", role=Role.OPTIMIZE | Role.CLIP):
    with block().program.role_guard(role, [param, grad]):
        return block().emit("clip_by_norm", X=grad, max_norm=1.0)


STRATEGIES = [
    GradientClipByValue(0.1),
    GradientClipByNorm(1.0, nonfinite="skip", telemetry=True),
    GradientClipByGlobalNorm(1.0, nonfinite="zero"),
    ClipPipeline([GradientClipByValue(0.1), GradientClipByNorm(1.0), GradientClipByGlobalNorm(1.0)], nonfinite="raise"),
]


@pytest.mark.parametrize("clip", STRATEGIES, ids=lambda clip: type(clip).__name__)
@pytest.mark.parametrize("decay", [None, fluid.regularizer.L2Decay(0.1)], ids=["plain", "decay"])
def test_what_optimizers_append_is_in_order(clip, decay):
    fluid.optimizer.Momentum(0.1, 0.9, grad_clip=clip, regularization=decay).minimize(network(uses=3))
    fluid.verify(fluid.default_main_program())


def test_two_strategies_side_by_side_are_in_order():
    pairs = fluid.append_backward(network())
    GradientClipByNorm(1.0)(pairs)
    GradientClipByValue(1.0)(pairs)
    fluid.verify(fluid.default_main_program())


def test_clips_inside_the_backward_pass_are_in_order():
    h = fluid.layers.fc(fluid.data("x", [None, 3]), 3)
    h.error_clip = ErrorClipByValue(1.0)
    fluid.optimizer.SGD(0.1, grad_clip=GradientClipByNorm(1.0)).minimize(fluid.layers.mean(h))
    fluid.verify(fluid.default_main_program())


def test_the_gradient_of_clipped_gradients_is_in_order():
    pairs = fluid.append_backward(network())
    ((_, clipped),) = GradientClipByValue(1.0)(pairs)
    fluid.gradients(fluid.layers.reduce_sum(fluid.layers.square(clipped)), [pairs[0][1]])
    fluid.verify(fluid.default_main_program())


def test_two_optimizers_for_different_parameters_are_in_order():
    x = fluid.data("x", [None, 3])
    for name in ("a", "b"):
        loss = fluid.layers.mean(fluid.layers.fc(x, 2, param_attr=name, bias_attr=False))
        fluid.optimizer.SGD(0.1, grad_clip=GradientClipByNorm(1.0)).minimize(loss, parameter_list=[name])
    fluid.verify(fluid.default_main_program())


def test_a_clip_after_the_update_is_refused():
    fluid.optimizer.SGD(0.1).minimize(network())
    clip_with("w@GRAD")
    refused("w@GRAD is clipped after the update of w has read it", "clip_by_norm", "sgd")


def test_an_update_of_another_parameter_does_not_count():
    fluid.optimizer.SGD(0.1).minimize(network())
    other = fluid.layers.fc(fluid.data("y", [None, 2]), 1, param_attr="v", bias_attr=False)
    fluid.append_backward(fluid.layers.mean(other), parameter_list=["v"])
    clip_with("v@GRAD", "v")
    fluid.verify(fluid.default_main_program())


def test_a_second_clip_is_refused():
    fluid.append_backward(network())
    clip_with(clip_with("w@GRAD").name)
    refused("clip_by_norm_0.tmp_0 is clipped a second time", "clip_by_norm")


def test_a_group_that_makes_a_gradient_and_begins_its_clip_is_no_clip_of_it():
    loss = network(uses=2)
    fluid.optimizer.SGD(0.1, grad_clip=fluid.clip.GradientClipByGlobalNorm(1.0)).minimize(loss)
    fused = FuseElementwise(least=2)(fluid.default_main_program())
    (group,) = [
        op for op in fused.global_block().ops if op.type == "fused_elementwise" and "w@GRAD" in op.output("Out")
    ]
    assert "square" in str(group)


def test_a_group_that_makes_two_gradients_and_begins_the_clip_of_one_is_no_clip_of_the_other():
    a, b = (fluid.layers.create_parameter([3], "float32", name=name) for name in "ab")
    loss = fluid.layers.mean(fluid.layers.tanh(fluid.layers.elementwise_mul(a, b)))
    fluid.optimizer.SGD(0.1, grad_clip=GradientClipByGlobalNorm(1.0)).minimize(loss)
    fused = FuseElementwise(least=2)(fluid.default_main_program())
    group = next(op for op in fused.global_block().ops if "a@GRAD" in op.output_arg_names)
    assert "b@GRAD" in group.output_arg_names and "square" in str(group) and group.role & Role.CLIP


def test_a_clip_of_a_part_of_a_gradient_is_refused():
    fluid.append_backward(network(uses=2))
    (add,) = [op for op in block().ops if op.type == "sum"]
    part = add.input("X")[0]
    clip_with(part)
    refused(f"{part} is clipped although it is a part of a gradient only", "clip_by_norm", "sum")


def test_a_gradient_that_also_flows_to_something_else_is_whole():
    """As after two equal gradients were shared."""
    program = fluid.Program.parse("""
        block 0
          param w: float32[2]
          data d: float32[2]
          data e: float32[2]
          w@GRAD: float32[2] = scale(X=d) {role='backward', role_vars=[w, w@GRAD]}
          t@GRAD: float32[2] = sum(X=[w@GRAD, e]) {role='backward'}
          c: float32[2] = clip_by_norm(X=w@GRAD) {max_norm=1.0, role='optimize|clip', role_vars=[w, w@GRAD]}
    """)
    fluid.verify(program)


def test_a_clip_in_front_of_the_sum_of_the_parts_is_refused():
    fluid.append_backward(network(uses=2))
    (add,) = [op for op in block().ops if op.type == "sum"]
    part = add.input("X")[0]
    with block().inserting_before(add):
        clipped = clip_with(part)
    add.replace_input(part, clipped)
    refused("is clipped before the backward pass has completed it", "clip_by_norm", "sum")


def test_a_backward_pass_that_goes_on_after_the_clip_is_refused():
    fluid.append_backward(network())
    clip_with("w@GRAD")
    with block().program.role_guard(Role.BACKWARD):
        block().append_op("scale", {"X": "w@GRAD"}, {"Out": "w@GRAD"}, {"scale": 2.0})
    refused("w@GRAD is clipped before the backward pass has completed it", "clip_by_norm", "scale")
