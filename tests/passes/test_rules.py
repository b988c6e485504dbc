"""Rules: what a pattern matches, what takes its place, and when it ends."""

import inspect
import math
import sys

import numpy as np
import pytest
from pass_laws import assert_linear

import minigraph as fluid
from minigraph import layers, rewrite
from minigraph.errors import RuleError, WrongTypeError
from minigraph.ir import Program, Role
from minigraph.ir.verifier import verify
from minigraph.passes import events
from minigraph.passes.rules import Rules, attr, marked, op, rule, value

rules_module = sys.modules["minigraph.passes.rules.rule"]


def scale_chain():
    @rule
    def scale_of_scale(x, a=attr("scale"), b=attr("scale")):
        return layers.scale(layers.scale(x, scale=a), scale=b)

    @scale_of_scale.where
    def _(m):
        yield math.isfinite(m.a * m.b), "the product of the scales must be finite"

    @scale_of_scale.to
    def _(x, a, b):
        return layers.scale(x, scale=a * b)

    return scale_of_scale


def program_of(text, *fetched):
    program = Program.parse(inspect.cleandoc(text))
    program.roots = fetched or None
    return program


def lines(program, block=0):
    return [str(each) for each in program.blocks[block].ops]


def after(rewriting, text, *fetched):
    """The operators that a rule leaves; applying it again changes nothing."""
    program = program_of(text, *fetched)
    once = rewriting(program)
    assert not rewriting.apply(once.clone())
    verify(once)
    return lines(once)


CHAIN = """
    block 0
      data x: float32[2]
      h: float32[2] = scale(X=x) {scale=2.0}
      y: float32[2] = scale(X=h) {scale=3.0}
      z: float32[2] = scale(X=y) {scale=5.0}
"""


def test_a_chain_becomes_one_operator():
    assert after(scale_chain(), CHAIN, "z") == ["z: float32[2] = scale(X=x) {scale=30.0}"]


@rule
def square_as_product(x):
    return layers.square(x)


@square_as_product.to
def _(x):
    return layers.elementwise_mul(x, x)


def test_a_name_has_its_type_from_operators_that_no_rule_is_about():
    text = """
        block 0
          data a: float32[2]
          data b: float32[2]
          c: float32[2] = elementwise_add(X=a, Y=b)
          d: float32[2] = square(X=c)
          c = square(X=d)
    """
    assert after(square_as_product, text, "c")[1:] == [
        "d: float32[2] = elementwise_mul(X=c, Y=c)", "c: float32[2] = elementwise_mul(X=d, Y=d)",
    ]  # fmt: skip


@rule
def no_copy(x):
    return layers.assign(x)


@no_copy.to
def _(x):
    return x


@rule
def square_of_a_row(x):
    return layers.square(x)


@square_of_a_row.where
def _(m):
    yield m.x.shape[0] == 1, "x must have one row"


@square_of_a_row.to
def _(x):
    return layers.elementwise_mul(x, x)


def test_a_condition_is_asked_of_the_value_and_not_of_the_last_one_of_its_name():
    """``h`` is declared with the type of its last value."""
    before = Program.parse("""
        block 0
          data x: float32[1, 4]
          h: float32[1, 4] = tanh(X=x)
          y: float32[1, 4] = square(X=h)
    """)
    block = before.global_block()
    block.append_op("reshape2", {"X": "x"}, {"Out": "h", "XShape": "s"}, {"shape": [4, 1]})
    block.append_op("square", {"X": "h"}, {"Out": "z"})
    assert block.vars["h"].shape == (4, 1)
    before.roots = ("y", "z")
    after = square_of_a_row(before)
    assert [op.type for op in after.global_block().ops] == ["tanh", "elementwise_mul", "reshape2", "square"]


def test_what_a_condition_refuses_by_its_type_needs_no_table_of_values(monkeypatch):
    program = Program.parse("""
        block 0
          data x: float32[2, 4]
          y: float32[2, 4] = square(X=x)
    """)
    program.roots = ("y",)
    monkeypatch.setattr(rules_module, "Values", None)
    assert not square_of_a_row.apply(program)


def test_conditions_compare_element_types_with_names():
    program = program_of("""
        block 0
          data x: float32[2]
          n: int64[2] = cast(X=x) {in_dtype=float32, out_dtype=int64}
    """)

    def found(is_it):
        @rule
        def cast(x, given=attr("in_dtype"), wanted=attr("out_dtype")):
            return op("cast", X=x, in_dtype=given, out_dtype=wanted)

        cast.where(lambda m: iter([(is_it(m), "it must be so")]))
        return len(cast.find(program))

    assert [found(lambda m, name=name: m.x.dtype == name) for name in ("float32", "float64")] == [1, 0]
    assert [found(lambda m, name=name: m.wanted == name) for name in ("int64", "float32")] == [1, 0]
    assert [found(lambda m, name=name: m.given in (name, "bool")) for name in ("float32", "int64")] == [1, 0]
    assert found(lambda m: m.x.dtype != "float32" or m.wanted != "int64") == 0
    with pytest.raises(WrongTypeError, match="'fp32' is not an element type"):
        found(lambda m: m.x.dtype == "fp32")


def test_an_attribute_that_numbers_an_element_type_is_tested_by_name():
    program = program_of("""
        block 0
          data x: float32[2]
          n: int64[2] = cast(X=x) {in_dtype=float32, out_dtype=int64}
    """)

    @rule
    def cast(x):
        return op("cast", X=x, in_dtype=attr(), out_dtype=attr(fits=lambda wanted: wanted == "int64"))

    assert len(cast.find(program)) == 1


def test_a_condition_may_ask_for_all_of_a_match():
    asked = rewrite.rule(lambda x: layers.square(x))

    @asked.where
    def _(m):
        yield hasattr(m, "values") and m.values.is_first(m.values.output(m.ops[0], "Out")), "it must be the first value"

    asked.to(lambda x: layers.elementwise_mul(x, x))
    program = Program.parse("""
        block 0
          data x: float32[2, 4]
          y: float32[2, 4] = square(X=x)
    """)
    assert [op.type for op in asked(program).global_block().ops] == ["elementwise_mul"]


def test_readers_of_a_value_may_read_names_that_no_rule_is_about():
    text = """
        block 0
          data x: float32[2]
          data b: float32[2]
          data c: float32[2]
          y: float32[2] = assign(X=x)
          d: float32[2] = elementwise_add(X=b, Y=c)
          e: float32[2] = elementwise_add(X=y, Y=d)
    """
    assert after(no_copy, text, "e")[1:] == ["e: float32[2] = elementwise_add(X=x, Y=d)"]


@rule
def sum_grad(x, y, d):
    return op("elementwise_add_grad", X=x, Y=y, Out_GRAD=d, outputs=["X@GRAD", "Y@GRAD"])


@sum_grad.to
def _(d):
    return op("scale", X=d), op("scale", X=d)


def test_of_several_operators_that_makes_the_gradient_names_it():
    text = """
        block 0
          data x: float32[2]
          param w: float32[2]
          data d: float32[2]
          X@GRAD=dx: float32[2], Y@GRAD=w@GRAD: float32[2] = elementwise_add_grad(X=x, Y=w, Out@GRAD=d) {role='backward', role_vars=[w, w@GRAD]}
    """  # noqa: E501
    assert after(sum_grad, text, "dx", "w@GRAD") == [
        "dx: float32[2] = scale(X=d) {role='backward'}",
        "w@GRAD: float32[2] = scale(X=d) {role='backward', role_vars=[w, w@GRAD]}",
    ]


def test_find_changes_nothing():
    program = program_of(CHAIN, "z")
    before = str(program)
    found = scale_chain().find(program)
    assert [(m.a, m.b, m.x.name) for m in found] == [(2.0, 3.0, "x"), (3.0, 5.0, "h")]
    assert str(program) == before


def test_what_may_be_fetched_stays():
    assert after(scale_chain(), CHAIN) == [
        "h: float32[2] = scale(X=x) {scale=2.0}",
        "y: float32[2] = scale(X=x) {scale=6.0}",
        "z: float32[2] = scale(X=x) {scale=30.0}",
    ]


FIRST, SECOND = "h: float32[2] = scale(X=x) {scale=2.0}", "y: float32[2] = scale(X=h) {scale=3.0}"


@pytest.mark.parametrize(
    "text",
    [
        [FIRST, SECOND, "w: float32[2] = relu(X=h)"],
        [FIRST, "x = relu(X=x)", SECOND],
        ["h: float32[2] = scale(X=x) {scale=2.0, bias=1.0}", SECOND],
        [FIRST, "h = relu(X=x)", SECOND],
        ["h: float32[2] = scale(X=x) {scale=1e+38}", SECOND],
        ["s: float32[1] = fill_constant() {shape=[1], value=2.0}", "h: float32[2] = scale(X=x, ScaleTensor=s)", SECOND],
    ],
    ids=["used elsewhere", "overwritten", "attribute", "another value", "condition", "slot"],
)
def test_near_misses_stay(text):
    scales = scale_chain()

    @scales.where
    def _(m):
        yield m.a * m.b < 1e38, "the product must be a float32"

    program = program_of("block 0\n  data x: float32[2]\n" + "\n".join(f"  {each}" for each in text), "y", "w")
    assert not scales.apply(program)


def test_a_name_that_is_written_again_means_another_value():
    text = """
        block 0
          data x: float32[2]
          h: float32[2] = scale(X=x) {scale=2.0}
          h = scale(X=h) {scale=3.0}
          y: float32[2] = relu(X=h)
          h = scale(X=x) {scale=5.0}
          h = scale(X=h) {scale=7.0}
    """
    assert after(scale_chain(), text, "y", "h") == [
        "h: float32[2] = scale(X=x) {scale=6.0}",
        "y: float32[2] = relu(X=h)",
        "h: float32[2] = scale(X=x) {scale=35.0}",
    ]


def test_values_that_a_clone_for_a_test_keeps_stay():
    text = """
        block 0
          data g: float32[2]
          persist lr: float32[1]
          param w: float32[2]
          w = scale(X=w) {scale=2.0}
          y: float32[2] = scale(X=w) {scale=3.0}
          w = sgd(Param=w, Grad=g, LearningRate=lr) {role='optimize'}
    """
    assert len(after(scale_chain(), text, "y")) == 3


def test_persistable_values_stay():
    text = """
        block 0
          persist w: float32[2]
          w = scale(X=w) {scale=2.0}
          y: float32[2] = scale(X=w) {scale=3.0}
    """
    assert len(after(scale_chain(), text, "y")) == 2


def test_the_replacement_serves_what_it_replaces():
    text = """
        block 0
          data x: float32[2]
          param w: float32[2]
          h: float32[2] = scale(X=x) {scale=2.0}
          g: float32[2] = scale(X=h) {scale=3.0, role='backward', role_vars=[w, g], namescope='/a/'}
    """
    program = program_of(text, "g")
    second = program.global_block().ops[1]
    second.site = fluid.errors.Site("model.py", 12)
    scale_chain().apply(program)
    (made,) = program.global_block().ops
    assert (made.role, made.role_vars, made.namescope, made.site) == (
        Role.BACKWARD, ("w", "g"), "/a/", fluid.errors.Site("model.py", 12)
    )  # fmt: skip


def test_sub_blocks_are_rewritten_too():
    main = Program()
    with fluid.program_guard(main, Program()), fluid.unique_name.guard():
        x = fluid.data("x", [1])
        y = layers.cond(
            layers.less_than(x, layers.fill_constant([1], "float32", 0.0)),
            lambda: layers.scale(layers.scale(x, 2.0), 3.0),
            lambda: layers.scale(x, 5.0),
        )
    main.roots = (y.name,)
    assert scale_chain().apply(main)
    verify(main)
    assert sum(str(main).count(f"scale={each}") for each in ("2.0", "3.0")) == 0
    for fed, expected in ((-1.0, -6.0), (1.0, 5.0)):
        (found,) = fluid.Executor().run(main, feed={"x": np.array([fed], "float32")}, fetch_list=[y.name])
        assert found == [expected]


def test_what_a_sub_block_reads_stays():
    main = Program()
    with fluid.program_guard(main, Program()), fluid.unique_name.guard():
        x = fluid.data("x", [1])
        h = layers.scale(x, 2.0)
        z = layers.scale(h, 3.0)
        y = layers.cond(layers.less_than(x, z), lambda: layers.relu(h), lambda: layers.relu(x))
    main.roots = (y.name,)
    assert not scale_chain().apply(main)


# Patterns


def test_an_operator_by_its_type():
    @rule
    def tighter(x):
        return op("clip_by_norm", X=op("clip_by_norm", X=x, max_norm=attr("inner")), max_norm=attr("outer"))

    with pytest.raises(RuleError, match="the captured attribute inner is given as max_norm") as caught:
        tighter.find(Program())
    assert caught.value.hint == 'Write max_norm=attr() here, or a=attr("max_norm") in the signature of the pattern.'

    @rule
    def clip_twice(x, a=attr("max_norm"), b=attr("max_norm")):
        return op("clip_by_norm", X=op("clip_by_norm", X=x, max_norm=a), max_norm=b)

    @clip_twice.to
    def _(x, a, b):
        return op("clip_by_norm", X=x, max_norm=min(a, b))

    text = """
        block 0
          data g: float32[4]
          h: float32[4] = clip_by_norm(X=g) {max_norm=2.0}
          y: float32[4] = clip_by_norm(X=h) {max_norm=1.0}
    """
    assert after(clip_twice, text, "y") == ["y: float32[4] = clip_by_norm(X=g) {max_norm=1.0}"]


def test_one_of_several_types():
    @rule
    def of_zero(x):
        return op(("relu", "abs"), X=op("relu", X=x))

    @of_zero.to
    def _(x):
        return op("relu", X=x)

    text = """
        block 0
          data x: float32[4]
          a: float32[4] = relu(X=x)
          b: float32[4] = abs(X=a)
          c: float32[4] = relu(X=b)
          d: float32[4] = abs(X=c)
          e: float32[4] = tanh(X=d)
          f: float32[4] = relu(X=e)
    """
    assert after(of_zero, text, "f") == [
        "d: float32[4] = relu(X=x)", "e: float32[4] = tanh(X=d)", "f: float32[4] = relu(X=e)",
    ]  # fmt: skip


SUM = """
    block 0
      data x: float32[4]
      data y: float32[{y}]
      a: float32[{y}] = relu(X=y)
      s: float32[4] = elementwise_add(X={first}, Y={second}) {{axis=-1}}
"""


def relu_plus():
    @rule
    def relu_added(x, y):
        return marked(layers.elementwise_add(layers.relu(y), x), commutes=True)

    @relu_added.to
    def _(x, y):
        return layers.elementwise_add(x, layers.abs(y))

    return relu_added


@pytest.mark.parametrize(("first", "second"), [("a", "x"), ("x", "a")])
def test_operands_that_commute(first, second):
    made, total = after(relu_plus(), SUM.format(y=4, first=first, second=second), "s")
    name, _, rest = made.partition(":")
    assert rest == " float32[4] = abs(X=y)"
    assert total == f"s: float32[4] = elementwise_add(X=x, Y={name})"


def test_operands_of_other_shapes_do_not_commute():
    assert not relu_plus().apply(program_of(SUM.format(y=1, first="x", second="a"), "s"))


def test_several_variables_of_a_slot():
    @rule
    def sum_of_sum(xs=value(several=True), ys=value(several=True)):
        return op("sum", X=[op("sum", X=[xs]), ys])

    @sum_of_sum.to
    def _(xs, ys):
        return layers.sums([*xs, *ys])

    text = """
        block 0
          data x: float32[4]
          data y: float32[4]
          a: float32[4] = sum(X=[x, y])
          s: float32[4] = sum(X=[a, x, y, x])
    """
    assert after(sum_of_sum, text, "s") == ["s: float32[4] = sum(X=[x, y, x, y, x])"]


def test_a_slot_that_may_be_left_out():
    @rule
    def clipped(x, low=value(optional=True), a=attr("min"), b=attr("max")):
        return op("relu", X=op("clip", X=x, Min=low, min=a, max=b))

    @clipped.to
    def _(x, low, a, b):
        assert low is None
        return op("clip", X=x, min=max(a, 0.0), max=b)

    text = """
        block 0
          data x: float32[4]
          a: float32[4] = clip(X=x) {min=-1.0, max=2.0}
          s: float32[4] = relu(X=a)
    """
    assert after(clipped, text, "s") == ["s: float32[4] = clip(X=x) {min=0.0, max=2.0}"]


@pytest.mark.parametrize(
    ("said", "matches"),
    [
        ({"role": Role.BACKWARD}, True), ({"role": Role.FORWARD}, False), ({"role": Role.OPTIMIZE}, False),
        ({"namescope": "/a/"}, True), ({"namescope": "/b/"}, False),
    ],
)  # fmt: skip
def test_role_and_name_scope(said, matches):
    text = """
        block 0
          data x: float32[2]
          h: float32[2] = scale(X=x) {scale=2.0}
          y: float32[2] = scale(X=h) {scale=3.0, role='backward', namescope='/a/b/'}
    """

    @rule
    def scales(x, a=attr("scale"), b=attr("scale")):
        return marked(layers.scale(layers.scale(x, a), b), **said)

    assert bool(scales.find(program_of(text, "y"))) == matches


def _computed(x, a=attr("scale")):
    return layers.scale(x, scale=a * 2)


def _compared(x, a=attr("scale")):
    return layers.scale(x, scale=a) if a > 1 else layers.relu(x)


def _shaped(x):
    return layers.fc(x, 4)


@pytest.mark.parametrize(
    ("pattern", "said", "hint"),
    [
        (_computed, "unsupported operand", "A captured attribute stands for any value: give it to a layer as it is"),
        (_compared, "'>' not supported", "A captured attribute stands for any value: give it to a layer as it is"),
        (_shaped, "fc: the shape of a placeholder is not known", "Give a placeholder the shape"),
    ],
)
def test_a_pattern_that_cannot_be_run_says_why(pattern, said, hint):
    with pytest.raises(RuleError, match="cannot be run on placeholders") as raised:
        rule(pattern).find(program_of(CHAIN, "z"))
    assert said in raised.value.message
    assert raised.value.hint.startswith(hint)


@pytest.mark.parametrize("implementation", ["upscale_in_train", "downgrade_in_infer"])
def test_an_operator_that_draws_goes_where_it_is_in_a_test(implementation):
    @rule
    def dropout(x, p=attr("dropout_prob")):
        how = {"dropout_implementation": implementation, "seed": attr(), "fix_seed": attr(), "is_test": attr()}
        return op("dropout", X=x, dropout_prob=p, **how, outputs=["Out"])

    @dropout.to
    def _(x, p):
        return layers.scale(x, 1.0 if implementation == "upscale_in_train" else 1.0 - p)

    text = """
        block 0
          data x: float32[2]
          Out=h: float32[2], Mask=m: uint8[2] = dropout(X=x) {{dropout_implementation='{}', is_test={}}}
          y: float32[2] = relu(X=h)
    """
    test = after(dropout, text.format(implementation, True), "y")
    assert [line.partition("(")[0].split()[-1] for line in test] == ["scale", "relu"]
    with pytest.raises(RuleError, match="it draws random numbers by no operator in place of"):
        dropout(program_of(text.format(implementation, False), "y"))


def test_a_replacement_that_returns_a_list_in_a_tuple_is_told():
    @rule
    def both(x):
        return layers.relu(x), layers.tanh(x)

    both.to(lambda x: ([layers.relu(x)], layers.tanh(x)))
    text = "block 0\n  data x: float32[2]\n  y: float32[2] = relu(X=x)\n  z: float32[2] = tanh(X=x)"
    with pytest.raises(RuleError, match="the replacement of both must return the variables it computes, got"):
        both.apply(program_of(text, "y", "z"))


@pytest.mark.parametrize("rewriting", [scale_chain(), Rules(scale_chain())])
def test_a_rule_is_applied_to_programs(rewriting):
    with pytest.raises(WrongTypeError, match="looks at Programs, got <Block 0"):
        rewriting.apply(program_of(CHAIN).global_block())


@pytest.mark.parametrize("needs_y", [False, True])
def test_a_placeholder_may_stand_for_what_the_match_makes(needs_y):
    """Such a reader is one of the match, so that nothing else reads the value; but the replacement may not need it."""

    @rule
    def product(x, y):
        return layers.elementwise_mul(layers.elementwise_add(x, y), layers.relu(x))

    if needs_y:
        product.to(lambda x, y: layers.elementwise_mul(x, y))
    else:
        product.to(lambda x: layers.square(x))
    program = program_of(
        """
        block 0
          data x: float32[2]
          r: float32[2] = relu(X=x)
          a: float32[2] = elementwise_add(X=x, Y=r)
          z: float32[2] = elementwise_mul(X=a, Y=r)
        """,
        "z",
    )
    answer = product.why_not(program)
    assert answer.matches == bool(product.find(program)) == (not needs_y)
    if needs_y:
        assert (answer.expected, answer.found) == ("inputs that the replaced operators do not make", "r")
    else:
        assert lines(product(program)) == ["z: float32[2] = square(X=x)"]


def test_a_shared_value_stays():
    @rule
    def shared(x, a=attr("scale"), b=attr("scale")):
        return layers.scale(marked(layers.scale(x, scale=a), shared=True), scale=b)

    @shared.to
    def _(x, a, b):
        return layers.scale(x, scale=a * b)

    text = CHAIN + "      w: float32[2] = relu(X=h)"
    assert after(shared, text, "z", "w") == [
        "h: float32[2] = scale(X=x) {scale=2.0}", "z: float32[2] = scale(X=x) {scale=30.0}",
        "w: float32[2] = relu(X=h)",
    ]  # fmt: skip


def test_two_results():
    @rule
    def both(x):
        return layers.relu(x), layers.tanh(x)

    @both.to
    def _(x):
        return layers.abs(x), layers.sigmoid(x)

    text = """
        block 0
          data x: float32[4]
          a: float32[4] = tanh(X=x)
          b: float32[4] = {middle}
          c: float32[4] = relu(X=x)
          d: float32[4] = elementwise_add(X=b, Y=c)
    """
    assert after(both, text.format(middle="square(X=x)"), "a", "d") == [
        "c: float32[4] = abs(X=x)", "a: float32[4] = sigmoid(X=x)", "b: float32[4] = square(X=x)",
        "d: float32[4] = elementwise_add(X=b, Y=c)",
    ]  # fmt: skip
    assert after(both, text.format(middle="square(X=a)"), "a", "d") == [
        "c: float32[4] = abs(X=x)", "a: float32[4] = sigmoid(X=x)", "b: float32[4] = square(X=a)",
        "d: float32[4] = elementwise_add(X=b, Y=c)",
    ]  # fmt: skip


def test_a_result_that_is_not_there_yet_is_computed_later():
    @rule
    def both(x, y):
        return layers.elementwise_add(x, y), layers.elementwise_sub(x, y)

    @both.to
    def _(x, y):
        return layers.elementwise_mul(x, y), layers.elementwise_max(x, y)

    text = """
        block 0
          data x: float32[4]
          data y: float32[4]
          b: float32[4] = relu(X=x)
          a: float32[4] = elementwise_add(X=x, Y=y)
          c: float32[4] = elementwise_add(X=b, Y=b)
          b = elementwise_sub(X=x, Y=y)
    """
    assert after(both, text, "a", "b", "c")[1:] == [
        "c: float32[4] = elementwise_add(X=b, Y=b)", "a: float32[4] = elementwise_mul(X=x, Y=y)",
        "b: float32[4] = elementwise_max(X=x, Y=y)",
    ]  # fmt: skip


def test_a_result_that_nobody_reads_is_left_out():
    @rule
    def product(x, y, d):
        return op("elementwise_mul_grad", X=x, Y=y, Out_GRAD=d, outputs=["X@GRAD", "Y@GRAD"])

    @product.to
    def _(x, y, d):
        return op("elementwise_div_grad", X=x, Y=y, Out=x, Out_GRAD=d, outputs=["X@GRAD", "Y@GRAD"])

    text = """
        block 0
          data x: float32[4]
          data d: float32[4]
          X@GRAD=a: float32[4], Y@GRAD=b: float32[4] = elementwise_mul_grad(X=x, Y=x, Out@GRAD=d)
    """
    (left,) = after(product, text, "b")
    assert left.startswith("Y@GRAD=b: float32[4] = elementwise_div_grad")


def test_a_replacement_may_be_an_input():
    @rule
    def twice(x):
        return layers.relu(layers.relu(x))

    @twice.to
    def _(x):
        return layers.relu(x)

    @rule
    def copy(x):
        return op("scale", X=x)

    @copy.to
    def _(x):
        return x

    text = """
        block 0
          data x: float32[4]
          a: float32[4] = scale(X=x)
          b: float32[4] = relu(X=a)
          c: float32[4] = scale(X=b)
    """
    assert after(copy, text, "c") == ["b: float32[4] = relu(X=x)", "c: float32[4] = assign(X=b)"]


# Errors


def test_a_layer_that_wants_a_shape():
    @rule
    def weighted(x):
        return layers.fc(x, 3)

    with pytest.raises(RuleError, match=r"rewrite\.value"):
        weighted.find(Program())

    @rule
    def known(x=value(shape=[-1, 4])):
        return layers.fc(x, 3)

    with pytest.raises(RuleError, match="variable of its own"):
        known.find(Program())


def test_a_shape_is_part_of_the_pattern():
    @rule
    def rows(x=value(shape=[-1, 4])):
        return layers.relu(x)

    text = "block 0\n  data x: float32[{}]\n  y: float32[{}] = relu(X=x)"
    assert [len(rows.find(program_of(text.format(each, each), "y"))) for each in ("3, 4", "-1, 4", "4", "4, 3")] == [
        1, 1, 0, 0,
    ]  # fmt: skip


def test_a_rule_without_end_is_named():
    @rule
    def grows(x):
        return layers.relu(x)

    @grows.to
    def _(x):
        return layers.relu(layers.abs(x))

    with pytest.raises(RuleError, match="grows does not end"):
        grows.apply(program_of("block 0\n  data x: float32[2]\n  y: float32[2] = relu(X=x)", "y"))


def test_a_rule_that_replaces_by_the_same_is_named():
    @rule
    def same(x):
        return layers.relu(x)

    @same.to
    def _(x):
        return layers.relu(x)

    with pytest.raises(RuleError, match="same: the replacement does not fit: it is what it replaces"):
        same.apply(program_of("block 0\n  data x: float32[2]\n  y: float32[2] = relu(X=x)", "y"))


@pytest.mark.parametrize("says", [True, False])
def test_an_edit_that_says_the_wrong_is_named(says):
    @rule
    def liar(x):
        return layers.relu(x)

    @liar.edit
    def _(m):
        if not says:
            m.values.replace_op(m.ops[0], "abs", {"X": m.value("x")})
        return says

    with pytest.raises(RuleError, match=r"liar .*change"):
        liar.apply(program_of("block 0\n  data x: float32[2]\n  y: float32[2] = relu(X=x)", "y"))


def test_a_pass_that_says_the_wrong_is_named():
    class Liar(rewrite.Pass):
        def apply(self, program):
            return True

    with pytest.raises(RuleError, match="Liar did not change the program and says that it did"):
        Rules(Liar()).apply(Program())


def test_a_result_of_another_type_is_refused():
    @rule
    def wrong(x):
        return layers.relu(x)

    @wrong.to
    def _(x):
        return layers.reduce_sum(x)

    program = program_of("block 0\n  data x: float32[2]\n  y: float32[2] = relu(X=x)", "y")
    with pytest.raises(RuleError, match="wrong: the replacement does not fit"):
        wrong.apply(program)
    assert lines(program) == ["y: float32[2] = relu(X=x)"]


def test_the_wrong_names_are_refused():
    @rule
    def good(x):
        return layers.relu(x)

    @good.to
    def _(y):
        return layers.relu(y)

    with pytest.raises(RuleError, match="wants y"):
        good.apply(program_of("block 0\n  data x: float32[2]\n  y: float32[2] = relu(X=x)", "y"))


def test_op_stands_in_fragments_only():
    with pytest.raises(RuleError, match="stand in patterns"):
        op("relu", X=None)


def test_a_captured_attribute_stands_in_fragments_only():
    with fluid.program_guard(Program()), pytest.raises(RuleError, match="stand in patterns"):
        layers.scale(fluid.data("x", [2]), attr("scale"))


def test_an_unknown_slot_is_refused():
    @rule
    def misspelt(x):
        return op("relu", Y=x)

    with pytest.raises(RuleError, match="neither a slot nor an attribute Y"):
        misspelt.find(Program())


@pytest.mark.parametrize(
    ("conditions", "message"),
    [
        (lambda m: m.a == 1, "r: a condition fails with TypeError"),
        (lambda m: [m.a == 1], "r: a condition fails with TypeError"),
        (lambda m: [(m.b == 1, "b must be 1")], "r: a condition fails with AttributeError: the match of r has no 'b'"),
        (lambda m: [(m.x.shape[7] > 0, "it must be long")], "r: a condition fails with IndexError"),
    ],
)
def test_conditions_that_fail_are_named(conditions, message):
    @rule
    def r(x, a=attr("scale")):
        return layers.scale(x, a)

    r.where(conditions)
    program = program_of("block 0\n  data x: float32[2]\n  y: float32[2] = scale(X=x)", "y")
    for ask in (r.find, r.why_not, r):
        with pytest.raises(RuleError, match=message) as caught:
            ask(program)
        assert caught.value.site.filename == __file__


def replaced_by(replacement):
    @rule
    def r(x):
        return op("scale", X=x, bias=1.0)

    r.to(replacement)
    return r(program_of("block 0\n  data x: float32[1]\n  y: float32[1] = scale(X=x) {bias=1.0}", "x", "y"))


@pytest.mark.parametrize("known", [lambda x: True, lambda x: x.shape == (1,)])
def test_a_replacement_that_writes_over_an_input_is_refused(known):
    with pytest.raises(RuleError, match="the replacement of r writes over x by increment"):
        replaced_by(lambda x: layers.increment(x, in_place=True) if known(x) else x)


def test_a_replacement_that_makes_a_parameter_is_refused():
    with pytest.raises(RuleError, match=r"the replacement of r makes a variable of its own, fc_0.w_0, for mul"):
        replaced_by(
            lambda x: layers.fc(x, 1, num_flatten_dims=0) if not x.shape else layers.fc(layers.unsqueeze(x, [0]), 1)
        )


def test_a_clip_and_an_update_keep_their_roles():
    main = Program()
    with fluid.program_guard(main, Program()), fluid.unique_name.guard():
        loss = layers.mean(layers.fc(fluid.data("x", [None, 4]), 1, bias_attr=False))
        fluid.optimizer.SGD(0.1, grad_clip=fluid.clip.GradientClipByNorm(1.0)).minimize(loss)
    main.roots = (loss.name,)
    clip, update = main.global_block().ops[-2:]

    def pattern(p, g, lr, n=attr("max_norm")):
        return op("sgd", Param=p, Grad=op("clip_by_norm", X=g, max_norm=n), LearningRate=lr, outputs=["ParamOut"])[0]

    halved = rule(pattern)
    halved.where(lambda m: [(m.n == 1, "the norm must be 1")])

    @halved.to
    def _(p, g, lr):
        return op("sgd", Param=p, Grad=op("clip_by_norm", X=g, max_norm=0.5), LearningRate=lr, outputs=["ParamOut"])[0]

    new_clip, new_update = halved(main).global_block().ops[-2:]
    assert (new_clip.role, new_clip.role_vars, new_clip.namescope) == (clip.role, clip.role_vars, clip.namescope)
    assert (new_update.role, new_update.namescope) == (update.role, update.namescope)
    assert new_update.role_vars == ("fc_0.w_0", *new_clip.outputs["Out"])


# The worklist


def test_rules_run_to_a_fixpoint():
    @rule
    def copy(x):
        return op("assign", X=x)

    @copy.to
    def _(x):
        return x

    text = """
        block 0
          data x: float32[2]
          h: float32[2] = scale(X=x) {scale=2.0}
          c: float32[2] = assign(X=h)
          y: float32[2] = scale(X=c) {scale=3.0}
          z: float32[2] = relu(X=y)
    """
    assert after(Rules(scale_chain(), copy), text, "z") == [
        "y: float32[2] = scale(X=x) {scale=6.0}", "z: float32[2] = relu(X=y)"
    ]  # fmt: skip


def test_observers_hear_of_each_firing():
    heard = []

    class Hears(events.Observer):
        def fired(self, rule, program, matched):
            heard.append((rule.name, [str(each) for each in matched]))

    with events.observed_by(Hears()):
        scale_chain().apply(program_of(CHAIN, "z"))
    assert [name for name, _ in heard] == ["scale_of_scale"] * 2
    assert heard[0][1] == ["h: float32[2] = scale(X=x) {scale=2.0}", "y: float32[2] = scale(X=h) {scale=3.0}"]


@pytest.mark.timing
def test_the_worklist_takes_linear_time():
    def make(count):
        text = ["block 0", "  data x0: float32[2]"]
        text += [f"  x{i + 1}: float32[2] = scale(X=x{i}) {{scale=1.0000001}}" for i in range(count)]
        program = Program.parse("\n".join(text))
        program.roots = (f"x{count}",)
        return program

    assert_linear(scale_chain(), make)


def test_an_attribute_has_to_fit():
    def is_even(number):
        return number % 2 == 0

    @rule
    def even(x):
        return op("scale", X=op("relu", X=x), scale=attr(fits=is_even))

    text = """
        block 0
          data x: float32[2]
          h: float32[2] = relu(X=x)
          y: float32[2] = scale(X=h) {scale=NUMBER}
    """
    assert len(even.find(program_of(text.replace("NUMBER", "4.0"), "y"))) == 1
    odd = program_of(text.replace("NUMBER", "3.0"), "y")
    assert not even.find(odd)
    why = even.why_not(odd)
    assert (why.slot, why.expected, why.found) == ("scale", "a value that fits is_even", "3.0")


def test_an_attribute_without_a_name_is_captured_from_a_layer():
    @rule
    def doubled(x):
        return layers.scale(layers.relu(x), scale=attr())

    program = Program.parse(
        "block 0\n  data x: float32[2]\n  h: float32[2] = relu(X=x)\n  y: float32[2] = scale(X=h) {scale=3.0}"
    )
    program.roots = ("y",)
    (match,) = doubled.find(program)
    assert match.scale == 3.0


@pytest.mark.parametrize("given", [print, rule(lambda x: layers.relu(x)), Program], ids=["builtin", "rule", "class"])
def test_a_rule_is_made_of_a_function(given):
    for decorate in (rule, rule(changes_rounding=True)):
        with pytest.raises(WrongTypeError, match="rule decorates a function"):
            decorate(given)


def test_text_that_differs_has_quotes():
    @rule
    def zeros():
        return op("fill_constant", shape=[1], value=0.0, str_value="0")

    why = zeros.why_not(program_of("block 0\n  y: float32[1] = fill_constant() {shape=[1], value=0.0}", "y"), 0)
    assert (why.slot, why.expected, why.found) == ("str_value", "'0'", "''")


MOMENTUM = """
    block 0
      param p: float32[2]
      persist v: float32[2]
      persist lr: float32[1]
      data g: float32[2]
      ParamOut=p, VelocityOut=v = momentum(Param=p, Grad=g, Velocity=v, LearningRate=lr) {mu=0.0, role='optimize', role_vars=[p, g]}
"""  # noqa: E501


def of_no_velocity(replacement):
    @rule
    def no_velocity(p, g, v, lr):
        made = {"Param": p, "Grad": g, "Velocity": v, "LearningRate": lr}
        return op("momentum", **made, mu=0.0, outputs=["ParamOut", "VelocityOut"])

    no_velocity.to(replacement)
    return no_velocity


def test_an_update_that_writes_over_several_of_its_operands_can_be_replaced():
    plain = of_no_velocity(lambda p, g, lr: (op("sgd", Param=p, Grad=g, LearningRate=lr), op("assign", X=g)))
    assert after(plain, MOMENTUM, "p") == [
        "p = sgd(Param=p, LearningRate=lr, Grad=g) {role='optimize', role_vars=[p, g]}",
        "v = assign(X=g) {role='optimize', role_vars=[p, g]}",
    ]


def test_an_operator_that_writes_over_an_operand_by_chance_is_left_alone():
    @rule
    def gradients_of_sum(x, y, d):
        return op("elementwise_add_grad", X=x, Y=y, Out_GRAD=d, outputs=["X@GRAD", "Y@GRAD"])

    gradients_of_sum.to(lambda d: (op("scale", X=d), op("scale", X=d)))
    text = """
        block 0
          data x: float32[2]
          data y: float32[2]
          data c: float32[2]
          d: float32[2] = scale(X=c)
          X@GRAD={}: float32[2], Y@GRAD=b: float32[2] = elementwise_add_grad(X=x, Y=y, Out@GRAD=d)
    """
    assert after(gradients_of_sum, text.format("a"), "a", "b")[1:] == [
        "a: float32[2] = scale(X=d)",
        "b: float32[2] = scale(X=d)",
    ]
    over = text.format("d").replace("=d: float32[2],", "=d,")
    assert "elementwise_add_grad" in after(gradients_of_sum, over, "d", "b")[1]
    why = gradients_of_sum.why_not(program_of(over, "d", "b"), 1)
    assert why.found == "one that overwrites another value"


@pytest.mark.parametrize("old", ["scale(X=p)", "p"])
def test_a_replacement_reads_nothing_that_it_has_written_over(old):
    def replacement(p, g, lr):
        return op("sgd", Param=p, Grad=g, LearningRate=lr), p if old == "p" else op("scale", X=p, scale=2.0)

    with pytest.raises(RuleError, match="reads p after an earlier operator has written over it"):
        of_no_velocity(replacement)(program_of(MOMENTUM, "p"))


def test_a_result_that_keeps_gradients_back_is_copied_where_the_replacement_returns_an_operand():
    @rewrite.rule
    def scale_by_one(x):
        return layers.scale(x, 1.0)

    scale_by_one.to(lambda x: x)
    main = fluid.Program()
    with fluid.program_guard(main), fluid.unique_name.guard():
        x, y = fluid.data("x", [2]), fluid.data("y", [2])
        x.stop_gradient = y.stop_gradient = False
        kept_back = layers.scale(x, 1.0)
        kept_back.stop_gradient = True
        product = layers.scale(y, 1.0) * kept_back
    main.roots = (product.name,)
    assert rewrite.Rules(scale_by_one).apply(main)
    assert [op.type for op in main.global_block().ops] == ["assign", "elementwise_mul"]
    with fluid.program_guard(main):
        assert fluid.gradients([product], [x, y])[0] is None
