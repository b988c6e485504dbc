"""`clip.explain` tells what the program at hand does, for every strategy."""

from dataclasses import dataclass
from html import escape

import numpy as np
import pytest

import minigraph as fluid
from minigraph import clip
from minigraph.ir import Role

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


# Strategies of a user's own


@dataclass(frozen=True)
class GradientScale(clip.GradientClipBase):
    factor: float
    need_clip: object = None

    def emit(self, block, pairs, threshold_first=False):
        return [fluid.layers.scale(grad, self.factor) for _, grad in pairs]


@dataclass(frozen=True)
class UnitNorm(clip.GradientClipBase):
    need_clip: object = None

    def emit(self, block, pairs, threshold_first=False):
        squares = [fluid.layers.reduce_sum(fluid.layers.square(grad)) for _, grad in pairs]
        norms = [fluid.layers.sqrt(each) for each in squares]
        return [fluid.layers.elementwise_div(grad, norm) for (_, grad), norm in zip(pairs, norms, strict=True)]

    def describe(self):
        return "L2 norm 1/1,\n whatever it was"


class Saturated(clip.GradientClipBase):
    """In fluid's words."""

    def _static_clip(self, params_grads):
        return [(param, fluid.layers.tanh(grad)) for param, grad in params_grads]


class Halved(clip.GradientClipByNorm):
    def __call__(self, params_grads):
        return [(param, fluid.layers.scale(grad, 0.5)) for param, grad in super().__call__(params_grads)]


SCALED = "scale: changes the gradient (GradientScale, a strategy of your own)"
ZEROED = "guard_nonfinite: 0 in its place where an element is not finite"
CHANGED = "scale: changes the gradient"
UNIT = "elementwise_div: L2 norm 1/1, whatever it was (UnitNorm, a strategy of your own)"


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        (GradientScale(0.5), [SCALED]),
        (UnitNorm(telemetry=True, nonfinite="zero"), [ZEROED, UNIT]),
        (Saturated(), ["tanh: changes the gradient (Saturated, a strategy of your own)"]),
        (Halved(2.0), ["clip_by_norm: L2 norm at most 2 (Halved, a strategy of your own)", CHANGED]),
        (
            clip.ClipPipeline([GradientScale(0.5), clip.GradientClipByNorm(1.0), UnitNorm()]),
            [SCALED, "clip_by_norm: L2 norm at most 1", UNIT],
        ),
    ],
)  # fmt: skip
@pytest.mark.parametrize("decays", [False, True])
def test_a_strategy_of_a_users_own_is_told_by_its_name(strategy, expected, decays):
    decay = fluid.regularizer.L2Decay(0.1) if decays else None
    found = lines(lambda loss: fluid.optimizer.SGD(0.1, grad_clip=strategy, regularization=decay).minimize(loss))
    assert found == {"fc_0.w_0": expected, "fc_1.w_0": expected}


def test_pairs_and_gradients_without_updates_are_told_too():
    assert lines(lambda loss: UnitNorm()(fluid.append_backward(loss))) == {"fc_0.w_0": [UNIT], "fc_1.w_0": [UNIT]}

    def by_hand(loss):
        weight = loss.block.program.all_parameters()[0]
        GradientScale(0.5)([(weight, fluid.gradients(loss, weight)[0])])

    assert lines(by_hand) == {"fc_0.w_0": [SCALED]}


def scaled_program():
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        loss = fluid.layers.mean(fluid.layers.fc(fluid.data("x", [None, 4]), 3, bias_attr=False))
        fluid.optimizer.SGD(0.1, grad_clip=GradientScale(0.5)).minimize(loss)
    return main


def test_copies_and_texts_of_a_program_tell_the_same():
    main = scaled_program()
    assert str(clip.explain(main)).startswith(
        "fc_0.w_0@GRAD of fc_0.w_0\n  scale(scale=0.5): changes the gradient (GradientScale, a strategy of your own)"
    )
    assert clip.explain(main.clone()) == clip.explain(main)
    (found,) = clip.explain(fluid.Program.parse(str(main))).gradients
    assert [step.what for step in found.steps] == ["changes the gradient (GradientScale, a strategy of your own)"]


def test_an_operator_that_is_made_anew_without_any_role_is_told():
    main = scaled_program()
    block = main.global_block()
    (old,) = (op for op in block.ops if op.role & Role.CLIP)
    inputs, outputs = old.inputs, old.outputs
    with block.inserting_before(old, role=Role.FORWARD):
        block.append_op("clip_by_norm", inputs, outputs, {"max_norm": 3.0})
    block.remove(old)
    (found,) = clip.explain(main).gradients
    assert [f"{step.op_type}: {step.what}" for step in found.steps] == ["clip_by_norm: L2 norm at most 3"]


def test_a_gradient_that_the_update_reads_unclipped_is_told_so():
    main = scaled_program()
    (update,) = main.global_block().ops.of_type("sgd")
    update.set_input("Grad", ["fc_0.w_0@GRAD"])
    assert str(clip.explain(main)) == "fc_0.w_0@GRAD of fc_0.w_0: not clipped"


def test_functions_that_are_compared_are_told():
    def halved(pairs):
        return [(param, fluid.layers.scale(grad, 0.5)) for param, grad in clip.GradientClipByNorm(1.0)(pairs)]

    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        loss = fluid.layers.mean(fluid.layers.fc(fluid.data("x", [None, 4]), 3, bias_attr=False))
    feeds = [{"x": np.ones((2, 4), "float32")}]
    report = fluid.compare_gradients(main, loss, {"halved": halved}, feeds, startup=startup, progress=False)
    (found,) = clip.explain(report["halved"].program).gradients
    assert [f"{step.op_type}: {step.what}" for step in found.steps] == [
        "clip_by_norm: L2 norm at most 1 (halved, a strategy of your own)",
        "scale: changes the gradient (halved, a strategy of your own)",
    ]


def test_an_explanation_is_short_as_a_value_and_whole_in_a_notebook():
    found = clip.explain(scaled_program())
    assert repr(found) == "<Explanation: 1 of 1 gradients are clipped>"
    html = found._repr_html_()
    assert all(escape(part) in html for gradient in found.gradients for row in gradient.rows() for part in row)
    (gradient,) = found.gradients
    assert all(part in html for step in gradient.steps for part in (step.call, step.what, step.result, step.site))


def test_a_product_with_anything_else_than_fluids_factor_is_told_as_that():
    """Parts of fluid's chain for a global norm are no global norm."""

    class Shared(clip.GradientClipBase):
        def _static_clip(self, params_grads):
            one = fluid.layers.fill_constant([1], "float32", 1.0)
            return [
                (p, fluid.layers.elementwise_mul(g, fluid.layers.elementwise_div(one, one))) for p, g in params_grads
            ]

    found = lines(minimize(Shared()))
    assert all(steps[0].startswith("elementwise_mul: times elementwise_div_") for steps in found.values())
