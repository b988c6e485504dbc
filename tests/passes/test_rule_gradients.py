"""A rule for the gradient of what another rule is about: which operators it looks for, and where the new ones stand."""

import inspect

import numpy as np
import pytest

from minigraph import rewrite
from minigraph.errors import RuleError
from minigraph.executor.interpreter import Interpreter
from minigraph.ir import Program
from minigraph.ir.verifier import verify
from minigraph.passes import RemoveDeadOps
from minigraph.passes.rules import attr, gradient_of, op, rule, with_gradients
from minigraph.types import DType


def lines(rewriting, text, *fetched):
    program = Program.parse(inspect.cleandoc(text))
    program.roots = fetched
    once = rewriting(program)
    assert not rewriting.apply(once.clone())
    verify(once)
    return [str(each) for each in once.global_block().ops]


def squared():
    """The square of a scaled x: the gradient of x is that of a sum."""

    @rule(changes_rounding=True)
    def squared(x, a=attr("scale")):
        scaled = op("scale", X=x, scale=a)
        return op("elementwise_mul", X=scaled, Y=scaled)

    @squared.where
    def _(m):
        yield m.x.dtype is DType.FP32, "the attribute is a float32, too"

    @squared.to
    def _(x, a):
        return op("scale", X=op("square", X=x), scale=a * a)

    return squared


SQUARE = """
    block 0
      data x: float32[2]
      data d: float32[2]
      s: float32[2] = scale(X=x) {scale=3.0}
      y: float32[2] = elementwise_mul(X=s, Y=s)
      z: float32[2] = relu(X=y)
      X@GRAD=s@GRAD: float32[2], Y@GRAD=s@RENAME: float32[2] = elementwise_mul_grad(X=s, Y=s, Out@GRAD=d)
      t: float32[2] = sum(X=[s@RENAME, s@GRAD])
      x@GRAD: float32[2] = scale(X=t) {scale=3.0}
"""


def test_operators_that_the_gradient_reads_stay():
    found = lines(gradient_of(squared(), "x"), SQUARE, "x@GRAD", "z")
    assert [each.partition(" = ")[2].partition("(")[0] for each in found] == [
        "scale", "elementwise_mul", "relu", "scale", "square_grad",
    ]  # fmt: skip
    assert found[-1].startswith("x@GRAD: float32[2] = square_grad(X=x, Out@GRAD=scale_")


def test_results_and_gradients_have_places_of_their_own():
    found = lines(gradient_of(squared(), "x", with_results=True), SQUARE, "x@GRAD", "z")
    assert [each.partition(" = ")[2].partition("(")[0] for each in found] == [
        "square", "scale", "relu", "scale", "square_grad",
    ]  # fmt: skip
    # The result is read before the gradient is known, so that one place for both is none.
    assert found[2] == "z: float32[2] = relu(X=y)"


def test_conditions_hold_for_the_gradient_too():
    rule = squared()

    @rule.where
    def _(m):
        yield m.a != 3.0, "the factor must not be 3"

    assert len(lines(gradient_of(rule, "x"), SQUARE, "x@GRAD", "z")) == 6


def test_a_gradient_that_something_else_reads_stays():
    for other in ("s@GRAD", "t"):
        assert len(lines(gradient_of(squared(), "x", with_results=True), SQUARE, "x@GRAD", "z", other)) == 6


@pytest.mark.parametrize("wanted", [(), ("z",), ("a",)])
def test_a_gradient_is_that_of_placeholders(wanted):
    @rule
    def scaled(x, a=attr("scale")):
        return op("scale", X=x, scale=a)

    scaled.to(lambda x, a: op("scale", X=x, scale=a, bias=0.0))
    with pytest.raises(RuleError, match=r"gradient_of\(scaled\) names no placeholder") as raised:
        gradient_of(scaled, *wanted)
    assert "scaled has x." in raised.value.hint


def test_a_rule_without_replacement_has_no_gradient():
    @rule
    def mean(x):
        return op("mean", X=x)

    with pytest.raises(RuleError, match="mean has no replacement"):
        gradient_of(mean, "x")


@pytest.mark.slow
def test_random_programs_keep_their_values():
    for with_results in (False, True):
        assert rewrite.check(gradient_of(squared(), "x", with_results=with_results), programs=60) is None


def test_there_is_a_rule_for_each_choice_of_gradients():
    @rule
    def product(x, y):
        return op("matmul", X=x, Y=y)

    @product.to
    def _(x, y):
        return op("mul", X=x, Y=y)

    rules = list(with_gradients(product, "x", "y"))
    assert rules[0] is product
    assert [len(each.pattern.returned) for each in rules[1:]] == [2, 1, 1]


def test_an_edit_is_that_of_the_gradient_too():
    @rule
    def halved(x):
        return op("elementwise_mul", X=op("scale", X=x, scale=0.5), Y=x)

    @halved.edit
    def _(m):
        for each in m.ops:
            if each.type == "scale":
                m.values.set_attr(each, "scale", 2.0)
        return True

    text = """
        block 0
          data x: float32[2]
          data d: float32[2]
          s: float32[2] = scale(X=x) {scale=0.5}
          y: float32[2] = elementwise_mul(X=s, Y=x)
          X@GRAD=s@GRAD: float32[2], Y@GRAD=x@RENAME: float32[2] = elementwise_mul_grad(X=s, Y=x, Out@GRAD=d)
          t: float32[2] = scale(X=s@GRAD) {scale=0.5}
          x@GRAD: float32[2] = sum(X=[x@RENAME, t])
    """
    found = lines(gradient_of(halved, "x", with_results=True), text, "y", "x@GRAD")
    assert [each for each in found if "scale=2.0" in each] == [found[0], found[3]]


@pytest.mark.parametrize("wanted", [("x",), ("x", "y")])
def test_placeholders_of_one_value_have_gradients_of_their_own(wanted):
    @rule(changes_rounding=True)
    def scaled(x, y, a=attr("scale")):
        return op("elementwise_mul", X=op("scale", X=x, scale=a), Y=y)

    @scaled.where
    def _(m):
        yield m.a != 0.0, "the factor must not be 0"

    @scaled.to
    def _(x, y, a):
        return op("scale", X=op("elementwise_mul", X=x, Y=y), scale=a)

    program = Program.parse(
        inspect.cleandoc("""
            block 0
              data x: float64[2]
              data d: float64[2]
              s: float64[2] = scale(X=x) {scale=3.0}
              X@GRAD=s@GRAD: float64[2], Y@GRAD=y@GRAD: float64[2] = elementwise_mul_grad(X=s, Y=x, Out@GRAD=d)
              x@GRAD: float64[2] = scale(X=s@GRAD) {scale=3.0}
        """)
    )
    program.roots = tuple(f"{name}@GRAD" for name in wanted)
    RemoveDeadOps().apply(program)
    feed = {"x": np.array([2.0, 5.0]), "d": np.array([1.0, -3.0])}
    expected = Interpreter().run(program, feed, list(program.roots))
    rewritten = rewrite.Rules(*with_gradients(scaled, "x", "y"))(program)
    assert [each.type for each in rewritten.global_block().ops] != [each.type for each in program.global_block().ops]
    np.testing.assert_allclose(Interpreter().run(rewritten, feed, list(program.roots)), expected, rtol=1e-15)


@pytest.mark.parametrize("factors", [("2.0", "3.0", "2.0"), ("-1.0", "-1.0", "-1.0")])
def test_a_replacement_that_computes_with_attributes_runs_once_for_their_values(factors):
    runs = []

    @rule
    def divided(x, factor=attr("scale")):
        return op("relu", X=op("scale", X=x, scale=factor))

    @divided.to
    def _(x, factor):
        runs.append(factor)
        return op("scale", X=op("relu", X=x), scale=2.0 * factor)

    lines = ["block 0", "  data x: float32[2]"]
    for i, each in enumerate(factors):
        lines += [f"  h{i}: float32[2] = scale(X=x) {{scale={each}}}", f"  y{i}: float32[2] = relu(X=h{i})"]
    program = Program.parse("\n".join(lines))
    program.roots = tuple(f"y{i}" for i in range(len(factors)))
    found = [each.attr("scale") for each in divided(program).global_block().ops.of_type("scale")]
    assert found == [2.0 * float(each) for each in factors]
    known = [each for each in runs if isinstance(each, float)]  # a first run tries whether it needs the values
    assert sorted(known) == sorted(map(float, {*factors}))


def test_the_replacement_of_a_gradient_is_made_once_for_all_matches():
    runs = []

    @rule
    def mean(x):
        return op("reduce_mean", X=x, reduce_all=True)

    @mean.to
    def _(x):
        runs.append(x)
        return op("mean", X=x)

    lines = ["block 0", "  data d: float32[1]"]
    for i in range(3):
        lines += [
            f"  data x{i}: float32[{i + 2}]",
            f"  x{i}@GRAD: float32[{i + 2}] = reduce_mean_grad(X=x{i}, Out@GRAD=d) {{reduce_all=True}}",
        ]
    program = Program.parse("\n".join(lines))
    program.roots = tuple(f"x{i}@GRAD" for i in range(3))
    rewritten = gradient_of(mean, "x")(program)
    assert [each.type for each in rewritten.global_block().ops] == ["mean_grad"] * 3
    assert [rewritten.global_block().var(f"x{i}@GRAD").shape for i in range(3)] == [(2,), (3,), (4,)]
    assert len(runs) == 1
