"""A rewritten forward program trains like the unrewritten one."""

import numpy as np
import pytest

from minigraph import layers, passes, rewrite
from minigraph.ir import Program
from minigraph.rewrite.cases import Case
from minigraph.rewrite.later_training import losses_of, trained, with_gradients
from minigraph.rewrite.laws import Subject, broken_law

STOPPED = """
    block 0
      param w: float32[2]
      h: float32[2] {stop_gradient=True} = scale(X=w) {scale=2.0}
      y: float32[2] = scale(X=h) {scale=3.0}
      z: float32[2] = elementwise_mul(X=y, Y=w)
"""


def case(text, **arrays):
    program = Program.parse(text)
    program.roots = tuple(program.global_block().ops[-1].output("Out"))
    return Case(program, {}, {name: np.array(value, "float32") for name, value in arrays.items()})


@rewrite.rule(changes_rounding=True)
def scales(x, a=rewrite.attr("scale"), b=rewrite.attr("scale")):
    return layers.scale(layers.scale(x, a), b)


@scales.to
def _(x, a, b):
    return layers.scale(x, a * b)


def test_the_gradient_is_that_of_the_fetched_value():
    found, grads = with_gradients(case(STOPPED, w=[1.0, 2.0]))
    assert grads == {"w": "w@GRAD"}
    w = np.array([1.0, 2.0])
    z = 6 * w * w
    # The loss is mean(z * z + z), and the factor y of z is a constant to it.
    np.testing.assert_allclose(found.run()["gradient/w"][0], (2 * z + 1) / 2 * 6 * w, rtol=1e-6)


def test_a_rule_does_not_let_gradients_flow_where_they_stop():
    program = case(STOPPED, w=[1.0, 2.0]).program
    assert not scales.find(program)
    assert "h, which has stop_gradient" in str(scales.why_not(program, op=1))
    program.backward_passes = 1  # they are appended already
    assert scales.find(program)
    program.backward_passes = 0
    program.global_block().var("w").stop_gradient = True
    assert scales.find(program)


def test_a_gradient_that_stops_is_not_left_out_where_its_operator_stays():
    text = """
        block 0
          data d: float32[1]
          param w: float32[2]
          h: float32[2] = scale(X=w) {scale=2.0}
          p: float32[2] = elementwise_mul(X=h, Y=w)
          p_grad: float32[2] {stop_gradient=True} = mean_grad(X=p, Out@GRAD=d)
          Y@GRAD=g: float32[2] = elementwise_mul_grad(X=h, Y=w, Out@GRAD=p_grad)
          m: float32[1] = mean(X=p)
          z: float32[2] = elementwise_add(X=g, Y=p_grad)
    """

    def read(stops):
        program = case(text).program
        program.global_block().var("p_grad").stop_gradient = stops
        passes.MoveFactors().apply(program)
        (op,) = [op for op in program.global_block().ops if "g" in op.output_arg_names]
        return op.input("Out@GRAD")

    assert read(stops=True) == ["p_grad"]
    assert read(stops=False) != ["p_grad"]


@pytest.mark.slow
def test_a_pass_that_lets_them_flow_is_found():
    def scales_by_hand(program):
        values, ops = rewrite.Values(program), program.global_block().ops[:]
        if [op.type for op in ops] != ["scale", "scale", "elementwise_mul"]:
            return False
        values.replace_op(ops[1], "scale", {"X": values.input(ops[0], "X")}, attrs={"scale": 6.0})
        values.erase(ops[0])
        return True

    given = case(STOPPED, w=[1.0, 2.0])
    broken = broken_law(Subject(scales_by_hand), given)
    assert broken.law == "gradients" and broken.text.startswith("gradient/w differs")
    scales_by_hand.keeps_gradients = False
    assert broken_law(Subject(scales_by_hand), given) is None


STOPS = {
    "equal": "t: float32[2] {stop_gradient=True} = tanh(X=x)\n  u: float32[2] = tanh(X=x)",
    "equal later": "t: float32[2] = tanh(X=x)\n  u: float32[2] {stop_gradient=True} = tanh(X=x)",
    "copy": "t: float32[2] {stop_gradient=True} = assign(X=x)\n  u: float32[2] = tanh(X=t)",
    "factor of 1": "t: float32[2] {stop_gradient=True} = scale(X=x)\n  u: float32[2] = tanh(X=t)",
    "same shape": (
        "Out=t: float32[2] {stop_gradient=True}, XShape=s: float32[0, 2] = reshape2(X=x) {shape=[2]}\n"
        "  u: float32[2] = tanh(X=t)"
    ),
    "shape in between": (
        "Out=t: float32[1, 2] {stop_gradient=True}, XShape=s: float32[0, 2] = reshape2(X=x) {shape=[1, 2]}\n"
        "  Out=u: float32[2], XShape=v: float32[0, 1, 2] = reshape2(X=t) {shape=[2]}"
    ),
    "two transposes": (
        "Out=a: float32[1, 2], XShape=s: float32[0, 2] = reshape2(X=x) {shape=[1, 2]}\n"
        "  Out=t: float32[2, 1] {stop_gradient=True}, XShape=v: float32[0, 1, 2] = transpose2(X=a) {axis=[1, 0]}\n"
        "  Out=b: float32[1, 2], XShape=w: float32[0, 2, 1] = transpose2(X=t) {axis=[1, 0]}\n"
        "  Out=u: float32[2], XShape=r: float32[0, 1, 2] = reshape2(X=b) {shape=[2]}"
    ),
}


@pytest.mark.parametrize("name", STOPS)
@pytest.mark.parametrize("each", [passes.CleanUp(), passes.ShareCommonSubexpressions()], ids=lambda each: each.name)
def test_copies_that_stop_gradients_stay(name, each):
    lines = STOPS[name]
    text = f"block 0\n  param x: float32[2]\n  {lines}\n  y: float32[2] = elementwise_add(X=x, Y=u)"
    text += "\n  z: float32[2] = elementwise_add(X=y, Y=t)" if "equal" in name else ""
    assert broken_law(Subject(each), case(text, x=[0.5, -1.0])) is None


def test_programs_that_train_and_passes_of_executors_are_left_alone():
    given = case(STOPPED, w=[1.0, 2.0])
    program, _ = trained(given.program, losses_of(given.program))
    program.roots = ("z",)
    assert not losses_of(program)
    assert not passes.SplitProducts.keeps_gradients and passes.CleanUp.keeps_gradients
