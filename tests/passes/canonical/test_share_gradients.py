"""ShareGradients adds what flows into equal operators, and lets one of them pass it on."""

import numpy as np
import pytest
from pass_laws import assert_linear, keeps_trainings, op_lines, repeated, with_and_without

import minigraph as fluid
from minigraph import layers
from minigraph.passes import ShareGradients

pytestmark = pytest.mark.usefixtures("new_program")

test_training = keeps_trainings(ShareGradients())


def test_what_flows_into_equal_operators_is_added_before_their_gradient():
    text = """
        block 0
          data x: float32[2, 3]
          data d: float32[2, 3]
          data e: float32[2, 3]
          a: float32[2, 3] = tanh(X=x)
          b: float32[2, 3] = tanh(X=x)
          x@GRAD@RENAME@0: float32[2, 3] = tanh_grad(Out=a, Out@GRAD=d)
          x@GRAD@RENAME@1: float32[2, 3] = tanh_grad(Out=b, Out@GRAD=e)
          x@GRAD: float32[2, 3] = sum(X=[x@GRAD@RENAME@0, x@GRAD@RENAME@1])
          y: float32[2, 3] = relu(X=x@GRAD)
    """
    assert op_lines(ShareGradients(), text, ["y"]) == [
        "a = tanh(X=x)",
        "sum_0.tmp_0 = sum(X=[d, e])",
        "x@GRAD@RENAME@1 = tanh_grad(Out=a, Out@GRAD=sum_0.tmp_0)",
        "y = relu(X=x@GRAD@RENAME@1)",
    ]


def test_values_are_shared_behind_a_write_that_is_dead():
    program = fluid.Program.parse("""
        block 0
          data x: float32[2]
          data d: float32[2]
          persist kept: float32[2]
          a: float32[2] = relu(X=x)
          y: float32[2] = scale(X=a) {scale=2.0}
          b: float32[2] = tanh(X=x)
          c: float32[2] = tanh(X=x)
          a = scale(X=c) {scale=3.0}
          t: float32[2] = relu(X=x)
          kept = assign(X=t)
    """)
    program.roots = ("y",)
    assert ShareGradients().apply(program)
    assert [str(op) for op in program.global_block().ops][-1].startswith("kept = assign(X=a)")
    assert not ShareGradients().apply(program)


def test_other_addends_stay_in_the_sum():
    text = """
        block 0
          data x: float32[2, 3]
          data d: float32[2, 3]
          data e: float32[2, 3]
          a: float32[2, 3] = tanh(X=x)
          p: float32[2, 3] = tanh_grad(Out=a, Out@GRAD=d)
          q: float32[2, 3] = exp_grad(Out=a, Out@GRAD=d)
          r: float32[2, 3] = tanh_grad(Out=a, Out@GRAD=e)
          s: float32[2, 3] = sum(X=[p, q, r])
    """
    assert op_lines(ShareGradients(), text, ["s"]) == [
        "a = tanh(X=x)",
        "q = exp_grad(Out=a, Out@GRAD=d)",
        "sum_0.tmp_0 = sum(X=[d, e])",
        "r = tanh_grad(Out=a, Out@GRAD=sum_0.tmp_0)",
        "s = sum(X=[q, r])",
    ]


def test_chains_of_equal_operators_become_one_chain():
    """The means are equal, and so are the differences: their gradients meet in sums that the pass has made."""
    x = fluid.data("x", [4, 3])
    h = layers.tanh(layers.elementwise_mul(x, layers.create_parameter([3], "float32", name="w")))
    terms = [h - layers.reduce_mean(h, dim=1, keep_dim=True) for _ in range(2)]
    fluid.backward.append_backward(layers.mean(terms[0] * layers.exp(terms[1])))
    program = fluid.default_main_program()
    program.roots = ("w@GRAD",)
    types = [op.type for op in ShareGradients()(program).global_block().ops]
    counts = {type: types.count(type) for type in ("reduce_mean", "elementwise_sub")}
    assert counts == {"reduce_mean": 1, "elementwise_sub": 1}
    assert [types.count(f"{type}_grad") for type in counts] == [1, 1]


LEFT_ALONE = {
    "a gradient that is fetched": ("p = tanh_grad(Out=a, Out@GRAD=d)", "q = tanh_grad(Out=a, Out@GRAD=e)", ["s", "p"]),
    "another attribute": (
        "p = leaky_relu_grad(Out=a, Out@GRAD=d) {alpha=0.5}",
        "q = leaky_relu_grad(Out=a, Out@GRAD=e) {alpha=0.25}",
        ["s"],
    ),
    "another value": ("p = tanh_grad(Out=a, Out@GRAD=d)", "q = tanh_grad(Out=x, Out@GRAD=e)", ["s"]),
    "no gradient": ("p = elementwise_mul(X=a, Y=d)", "q = elementwise_mul(X=a, Y=e)", ["s"]),
}  # fmt: skip


@pytest.mark.parametrize("what", LEFT_ALONE)
def test_other_operators_are_left_alone(what):
    first, second, fetched = LEFT_ALONE[what]
    lines = [line.replace(" =", ": float32[2, 3] =", 1) for line in (first, second)]
    text = f"""
        block 0
          data x: float32[2, 3]
          data d: float32[2, 3]
          data e: float32[2, 3]
          a: float32[2, 3] = tanh(X=x)
          {lines[0]}
          {lines[1]}
          s: float32[2, 3] = sum(X=[p, q])
    """
    assert op_lines(ShareGradients(), text, fetched) == ["a = tanh(X=x)", first, second, "s = sum(X=[p, q])"]


def test_what_flows_in_must_still_be_there():
    text = """
        block 0
          data x: float32[2]
          data d: float32[2]
          data e: float32[2]
          p: float32[2] = tanh_grad(Out=x, Out@GRAD=d)
          d = relu(X=e)
          q: float32[2] = tanh_grad(Out=x, Out@GRAD=d)
          s: float32[2] = sum(X=[p, q])
    """
    assert len(op_lines(ShareGradients(), text, ["s"])) == 4


def test_sparse_gradients_are_left_alone():
    rows = fluid.data("rows", [4, 1], "int64")
    table = fluid.ParamAttr("table")
    first, second = (layers.embedding(rows, [9, 3], is_sparse=True, param_attr=table) for _ in range(2))
    fluid.backward.append_backward(layers.mean(layers.tanh(first) * layers.exp(second)))
    program = fluid.default_main_program()
    program.roots = ("table@GRAD",)
    types = [op.type for op in ShareGradients()(program).global_block().ops]
    assert types.count("lookup_table_grad") == 2


def test_results_are_those_of_the_interpreter():
    x = fluid.data("x", [4, 3])
    w = layers.create_parameter([3], "float32", default_initializer=fluid.initializer.Constant(0.5), name="w")
    h = layers.elementwise_mul(x, w)
    loss = layers.mean(layers.softmax(h) * layers.square(layers.softmax(h)))
    fluid.backward.append_backward(loss)
    fluid.Executor().run(fluid.default_startup_program())
    feed = {"x": np.linspace(-1, 1, 12, dtype="float32").reshape(4, 3)}
    found, expected = with_and_without(ShareGradients(), feed, [loss, "w@GRAD"])
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-8)


@pytest.mark.timing
def test_time_is_linear():
    def append(x):
        x.stop_gradient = False
        h = layers.tanh(x) * layers.exp(layers.tanh(x))
        fluid.backward.gradients([h], [x])

    def make(count):
        program = repeated(append)(count)
        program.roots = tuple(op.outputs["Out"][0] for op in program.global_block().ops.of_type("sum"))
        return program

    assert_linear(ShareGradients(), make, 100)
