"""`clip.explain` tells what the program at hand does, for every strategy."""

import pytest

import minigraph as fluid
from minigraph import clip

INF = float("inf")


def lines(build, layers=2):
    """What is said of the gradients of a small network, without places, by parameter."""
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        h = fluid.data("x", [None, 4])
        for _ in range(layers):
            h = fluid.layers.fc(h, 3, bias_attr=False)
        build(fluid.layers.mean(h))
    return {
        gradient.param: [f"{step.op_type}: {step.what}" for step in gradient.steps]
        for gradient in clip.explain(main).gradients
    }


def minimize(strategy):
    return lambda loss: fluid.optimizer.SGD(0.1, grad_clip=strategy).minimize(loss)


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        (clip.GradientClipByValue(0.5, -0.25), "clip: each element from -0.25 to 0.5"),
        (clip.GradientClipByNorm(2.0), "clip_by_norm: L2 norm at most 2"),
        (clip.GradientClipByGlobalNorm(0.1), "elementwise_mul: joint L2 norm of 2 gradients at most 0.1"),
        (clip.GradientClipByPNorm(3.0, 1.5), "clip_by_global_norm: L1.5 norm at most 3"),
        (clip.GradientClipByGlobalPNorm(3.0, INF), "clip_by_global_norm: joint max norm of 2 gradients at most 3"),
        (
            clip.GradientClipByAxisNorm(1.0, [0]),
            "clip_by_axis_norm: L2 norm of each slice over the dimensions [0] at most 1",
        ),
        (clip.AutoClip(20), "clip_by_global_norm: joint L2 norm of 2 gradients at most their percentile 20 so far"),
        (
            clip.ZClip(3.0),
            "clip_by_global_norm: joint L2 norm of 2 gradients at most 3 standard deviations above its running mean",
        ),
    ],
)  # fmt: skip
def test_each_strategy_is_told_with_its_threshold(strategy, expected):
    found = lines(minimize(strategy))
    assert found == {"fc_0.w_0": [expected], "fc_1.w_0": [expected]}


def test_the_root_mean_square_is_told_as_the_norm_that_it_allows():
    assert lines(minimize(clip.GradientClipByBlockRMS(0.5)), layers=1) == {
        "fc_0.w_0": [f"clip_by_global_norm: L2 norm at most {0.5 * 12**0.5:g}"]
    }


def test_what_is_not_clipped_is_said():
    found = lines(minimize(clip.AdaptiveGradientClip(0.02)))
    assert found == {
        "fc_0.w_0": ["adaptive_clip: norm of each unit at most 0.02 times that of its weights"],
        "fc_1.w_0": [],  # the final layer
    }


def test_a_pipeline_is_told_in_order_from_the_raw_gradient_on():
    only_first = clip.GradientClipByValue(0.1, need_clip=lambda param: param.name == "fc_0.w_0")
    pipeline = clip.ClipPipeline([only_first, clip.GradientClipByGlobalNorm(1.0)], nonfinite="skip")
    guard = "guard_nonfinite: the update is skipped where an element is not finite"
    norm = "elementwise_mul: joint L2 norm of 2 gradients at most 1"
    assert lines(minimize(pipeline)) == {
        "fc_0.w_0": [guard, "clip: each element from -0.1 to 0.1", norm],
        "fc_1.w_0": [guard, norm],
    }


def test_clips_set_on_parameters_and_gradients_without_a_backward_pass_of_parameters():
    def by_hand(loss):
        weight = loss.block.program.all_parameters()[0]
        (grad,) = fluid.gradients(loss, weight)
        clip.GradientClipByNorm(1.0)([(weight, grad)])

    assert lines(by_hand) == {"fc_0.w_0": ["clip_by_norm: L2 norm at most 1"]}


def test_it_prints_one_gradient_after_the_other_with_the_users_line():
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        loss = fluid.layers.mean(fluid.layers.fc(fluid.data("x", [None, 4]), 3))
        pairs = fluid.append_backward(loss)
        clip.GradientClipByNorm(1.0)(pairs[:1])
    site = str(main.global_block().ops.last.site).split(", in: ")[0]
    assert str(clip.explain(main)).splitlines() == [
        "fc_0.b_0@GRAD of fc_0.b_0: not clipped",
        "fc_0.w_0@GRAD of fc_0.w_0",
        f"  clip_by_norm: L2 norm at most 1 -> clip_by_norm_0.tmp_0 ({site})",
    ]


def test_a_program_without_gradients_says_so():
    assert str(clip.explain(fluid.Program())) == "the program has no gradients of parameters"
