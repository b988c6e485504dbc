"""Gradients: the operators that `append_backward` and `gradients` append, their values, and what is refused."""

import dataclasses
import sys
from collections import Counter

import numpy as np
import pytest
from golden_programs import operator_lines
from hypothesis import given
from hypothesis import strategies as st

import minigraph as fluid
from minigraph import layers
from minigraph.errors import NotFoundError, ProgramError, WrongTypeError
from minigraph.ir import Role
from minigraph.kernels import find_kernel, registry
from minigraph.opdef import registry as opdef
from minigraph.opdef.gradient_context import OpSpec
from minigraph.opdef.gradient_rules import FusedGrad
from minigraph.rewrite.random_programs.recipes import SMOOTH_STEPS, build
from minigraph.rewrite.strategies import recipes
from minigraph.types import TensorType

pytestmark = [pytest.mark.numbers, pytest.mark.usefixtures("new_program")]


def ops():
    return list(fluid.default_main_program().global_block().ops)


def lines(start=0):
    return operator_lines(fluid.default_main_program())[start:]


def named(pairs):
    return [(param.name, grad.name) for param, grad in pairs]


def weight(name, *shape, **fields):
    random = np.random.default_rng(len(name))
    initializer = fluid.initializer.NumpyArrayInitializer(random.uniform(-1, 1, shape).astype("float32"))
    return layers.create_parameter(list(shape), "float32", attr=fluid.ParamAttr(name, initializer, **fields))


def data(name, *shape, dtype="float32", wants_gradient=False):
    var = fluid.data(name, list(shape), dtype)
    var.stop_gradient = not wants_gradient
    return var


def evaluate(fetch, **feed):
    executor, scope = fluid.Executor(), fluid.Scope()
    executor.run(fluid.default_startup_program(), scope=scope)
    return executor.run(feed=feed, fetch_list=fetch, scope=scope)


# Structure


def test_gradients_follow_in_reverse_order_behind_the_seed():
    x = data("x", None, 2)
    loss = layers.mean(layers.tanh(layers.mul(x, weight("w", 2, 3))))
    forward = len(ops())
    fluid.append_backward(loss)
    assert lines(forward) == [
        "fill_constant -> Out=mean_0.tmp_0@GRAD",
        "mean_grad Out@GRAD=mean_0.tmp_0@GRAD X=tanh_0.tmp_0 -> X@GRAD=tanh_0.tmp_0@GRAD",
        "tanh_grad Out=tanh_0.tmp_0 Out@GRAD=tanh_0.tmp_0@GRAD -> X@GRAD=mul_0.tmp_0@GRAD",
        "mul_grad Out@GRAD=mul_0.tmp_0@GRAD X=x Y=w -> Y@GRAD=w@GRAD",
    ]
    assert [ops()[forward].attr(name) for name in ("shape", "value")] == [(1,), 1.0]


def test_roles_mark_the_loss_and_the_backward_pass():
    loss = layers.mean(layers.relu(weight("w", 2)))
    forward = len(ops())
    fluid.append_backward(loss)
    assert [op.attr("op_role") for op in ops()] == [0, 256, 257, 1, 1]
    assert [op.role & Role.BACKWARD for op in ops()] == [0] * forward + [Role.BACKWARD] * 3


def test_the_operator_that_completes_a_gradient_names_the_pair():
    w, v = weight("w", 2), weight("v", 2)
    fluid.append_backward(layers.mean(layers.elementwise_mul(layers.elementwise_add(w, v), v)))
    assert {op.type: op.attr("op_role_var") for op in ops() if op.role_vars} == {
        "elementwise_add_grad": ["w", "w@GRAD"],
        "sum": ["v", "v@GRAD"],
    }


def test_a_gradient_operator_has_the_line_and_scope_of_the_one_it_serves():
    with fluid.name_scope("inner"):
        hidden = layers.relu(weight("w", 2))
    loss = layers.mean(hidden)
    forward = {op.type: op for op in ops()}
    fluid.append_backward(loss)
    for op in ops():
        if op.type.endswith("_grad"):
            served = forward[op.type.removesuffix("_grad")]
            assert (op.site, op.namescope) == (served.site, served.namescope)
    assert forward["relu"].namescope == "/inner/" and forward["relu"].site != forward["mean"].site


def test_pairs_come_in_order_of_creation():
    b, a, c = weight("b", 2), weight("a", 2), weight("c", 2)
    pairs = fluid.append_backward(layers.mean(layers.sums([c, a, b])))
    assert named(pairs) == [("b", "b@GRAD"), ("a", "a@GRAD"), ("c", "c@GRAD")]
    assert all(grad.shape == (2,) and grad.dtype is param.dtype for param, grad in pairs)


def test_pairs_of_a_clone_come_in_order_of_creation_too():
    for name in "dbeac":
        weight(name, 2)
    main = fluid.default_main_program()
    loss = layers.mean(layers.sums([main.global_block().var(name) for name in "abcde"]))
    clone = main.clone().clone()
    assert [p.name for p, _ in fluid.append_backward(clone.global_block().var(loss.name))] == list("dbeac")


def test_the_backward_pass_goes_to_the_program_of_the_loss():
    loss = layers.mean(weight("w", 2))
    other = fluid.Program()
    with fluid.program_guard(other):
        fluid.append_backward(loss)
    assert not other.global_block().ops
    assert ops()[-1].type == "mean_grad"


def test_data_gets_no_gradient_unless_it_asks_for_one():
    x, y = data("x", 2), data("y", 2, wants_gradient=True)
    fluid.append_backward(layers.mean(layers.elementwise_mul(x, y)))
    assert lines()[-1].endswith("-> Y@GRAD=y@GRAD")


def test_integers_have_no_gradient():
    label = data("label", 2, 1, dtype="int64", wants_gradient=True)
    fluid.append_backward(layers.mean(layers.cross_entropy(layers.softmax(weight("w", 2, 3)), label)))
    assert not fluid.default_main_program().global_block().has_var("label@GRAD")
    assert lines()[-1].endswith("-> X@GRAD=w@GRAD")


# Sums of parts


def test_the_parts_of_a_gradient_are_added_where_the_last_is_known():
    w = weight("w", 2)
    h = layers.relu(w)
    loss = layers.mean(layers.sums([layers.tanh(h), layers.exp(h), layers.square(h)]))
    fluid.append_backward(loss)
    assert lines()[-5:] == [
        "square_grad Out@GRAD=square_0.tmp_0@GRAD X=relu_0.tmp_0 -> X@GRAD=relu_0.tmp_0@GRAD@RENAME@block0@0",
        "exp_grad Out=exp_0.tmp_0 Out@GRAD=exp_0.tmp_0@GRAD -> X@GRAD=relu_0.tmp_0@GRAD@RENAME@block0@1",
        "tanh_grad Out=tanh_0.tmp_0 Out@GRAD=tanh_0.tmp_0@GRAD -> X@GRAD=relu_0.tmp_0@GRAD@RENAME@block0@2",
        "sum X=relu_0.tmp_0@GRAD@RENAME@block0@0,relu_0.tmp_0@GRAD@RENAME@block0@1,relu_0.tmp_0@GRAD@RENAME@block0@2"
        " -> Out=relu_0.tmp_0@GRAD",
        "relu_grad Out=relu_0.tmp_0 Out@GRAD=relu_0.tmp_0@GRAD -> X@GRAD=w@GRAD",
    ]


@pytest.mark.slow
def test_two_slots_of_one_operator_are_two_uses():
    w = weight("w", 3)
    ((_, grad),) = fluid.append_backward(layers.reduce_sum(layers.elementwise_mul(w, w)))
    assert lines()[-2:] == [
        "elementwise_mul_grad Out@GRAD=elementwise_mul_0.tmp_0@GRAD X=w Y=w"
        " -> X@GRAD=w@GRAD@RENAME@block0@0 Y@GRAD=w@GRAD@RENAME@block0@1",
        "sum X=w@GRAD@RENAME@block0@0,w@GRAD@RENAME@block0@1 -> Out=w@GRAD",
    ]
    found, value = evaluate([grad, w])
    np.testing.assert_array_equal(found, value + value)


@pytest.mark.slow
@pytest.mark.parametrize("uses", [1, 2, 5])
def test_a_shared_parameter_has_the_sum_of_its_gradients(uses):
    shared = weight("shared", 3)
    scales = [float(k + 1) for k in range(uses)]
    ((_, grad),) = fluid.append_backward(layers.reduce_sum(layers.sums([layers.scale(shared, c) for c in scales])))
    assert Counter(op.type for op in ops())["sum"] == 1 + (uses > 1)
    np.testing.assert_array_equal(evaluate([grad])[0], np.full(3, sum(scales), "float32"))


@pytest.fixture
def halves(monkeypatch):
    """An operator with two outputs that both have a gradient."""
    for table in ("_MAKERS", "_DEFINITIONS"):
        monkeypatch.setattr(opdef, table, dict(getattr(opdef, table)))

    def grad(ctx):
        yield OpSpec("concat", {"X": ctx.d_output("Low") + ctx.d_output("High")}, {"Out": ctx.d_input("X")}, {})

    @opdef.op("halves", inputs="X", outputs="Low High", grad=grad)
    def infer(x: TensorType):
        half = x.with_shape((x.shape[0] // 2,))
        return half, half

    kernel = dataclasses.replace(find_kernel("relu", "cpu"), function=lambda xp, x: xp.split(x, 2), takes_out=False)
    monkeypatch.setitem(registry._KERNELS, ("halves", None), kernel)

    def append(x):
        block = fluid.default_main_program().global_block()
        low, high = block.create_var(name="low"), block.create_var(name="high")
        block.append_op("halves", {"X": x}, {"Low": low, "High": high})
        return low, high

    return append


@pytest.mark.parametrize(("used", "expected"), [("low", [1, 1, 0, 0]), ("high", [0, 0, 1, 1]), ("both", [1, 1, 1, 1])])
def test_an_output_that_is_not_used_has_gradient_zero(halves, used, expected):
    low, high = halves(weight("w", 4))
    target = layers.elementwise_add(low, high) if used == "both" else {"low": low, "high": high}[used]
    ((_, grad),) = fluid.append_backward(layers.reduce_sum(target))
    zeros = {"low": ["fill_zeros_like X=high -> Out=high@GRAD"], "high": ["fill_zeros_like X=low -> Out=low@GRAD"]}
    assert [line for line in lines() if line.startswith("fill_zeros_like")] == zeros.get(used, [])
    np.testing.assert_array_equal(evaluate([grad])[0], expected)


def test_an_operator_of_which_no_output_is_used_is_not_differentiated(halves):
    w = weight("w", 4)
    halves(w)
    fluid.append_backward(layers.mean(w))
    assert not {"concat", "fill_zeros_like"} & {op.type for op in ops()}


def test_a_gradient_that_a_rule_would_lose_is_an_error():
    label = data("label", 2, 1, dtype="int64")
    _, softmax = layers.softmax_with_cross_entropy(weight("w", 2, 3), label, return_softmax=True)
    loss = layers.mean(softmax)
    with pytest.raises(ProgramError, match="softmax_with_cross_entropy passes no gradient on from its output soft"):
        fluid.append_backward(loss)
    softmax.stop_gradient = True
    assert fluid.append_backward(loss) == []


# Variables with several values


def overwrite(var, type, **attrs):
    """Apply an operator to `var` in place."""
    fluid.default_main_program().global_block().append_op(type, {"X": var}, {"Out": var}, attrs)


def numeric_gradient(loss, x):
    columns = []
    for i in range(len(x)):
        step = np.zeros_like(x)
        step[i] = 1e-6
        up, down = (evaluate([loss], x=x + sign * step)[0].item() for sign in (1, -1))
        columns.append((up - down) / 2e-6)
    return columns


def read_before_and_after(h):
    a = layers.tanh(h)
    overwrite(h, "scale", scale=3.0)
    return a + layers.exp(h)


def read_twice_after(h):
    overwrite(h, "relu")
    return layers.exp(h) + layers.square(h)


def assigned_over(h):
    a = layers.tanh(h)
    layers.assign(a, h)
    return layers.elementwise_mul(h, a)


def summed_over(h):
    a = layers.tanh(h)
    layers.sums([a, h], out=h)
    return layers.elementwise_mul(h, a)


def overwritten_by_a_constant(h):
    a = layers.tanh(h)
    layers.fill_constant([3], "float64", 2.0, out=h)
    h.stop_gradient = False
    return layers.elementwise_mul(h, a)


def overwritten_three_times(h):
    total = layers.tanh(h)
    for factor in (2.0, -1.0, 0.5):
        overwrite(h, "scale", scale=factor)
        total = total + layers.exp(h)
    return total


def read_then_overwritten(h):
    a = layers.square(h)
    overwrite(h, "scale", scale=3.0)
    return a


def overwritten_by_its_reader(h):
    overwrite(h, "square")
    return h


def result_overwritten(h):
    a = layers.tanh(h)
    result = layers.exp(a)
    overwrite(a, "scale", scale=3.0)
    return result + a


REWRITTEN = [
    read_then_overwritten,
    overwritten_by_its_reader,
    result_overwritten,
    read_before_and_after,
    read_twice_after,
    assigned_over,
    summed_over,
    overwritten_by_a_constant,
    overwritten_three_times,
]


@pytest.mark.parametrize("function", REWRITTEN)
def test_each_value_of_a_variable_has_its_own_gradient(function):
    x = data("x", 3, dtype="float64", wants_gradient=True)
    loss = layers.reduce_sum(function(layers.scale(x, 2.0)))
    (grad,) = fluid.gradients(loss, x)
    value = np.array([0.3, -0.5, 0.9])
    np.testing.assert_allclose(evaluate([grad], x=value)[0], numeric_gradient(loss, value), rtol=1e-6)


def test_a_parameter_has_one_gradient_whatever_updates_it_in_between():
    w = weight("w", 2)
    first = layers.reduce_sum(layers.scale(w, 2.0))
    optimizer = fluid.optimizer.SGD(1.0)
    optimizer.minimize(first)
    second = layers.reduce_sum(layers.square(w)) + first
    ((_, grad),) = fluid.append_backward(second)
    executor, scope = fluid.Executor(), fluid.Scope()
    executor.run(fluid.default_startup_program(), scope=scope)
    before = np.array(scope.find_var("w").get_tensor())
    (found,) = executor.run(fetch_list=[grad], scope=scope)
    np.testing.assert_allclose(found, 2 * (before - 2) + 2, rtol=1e-6)


# What is cut


def test_a_parameter_that_the_loss_does_not_reach_is_left_out():
    w, unused = weight("w", 2), weight("unused", 2)
    layers.tanh(unused)
    assert named(fluid.append_backward(layers.mean(w))) == [("w", "w@GRAD")]
    assert "tanh_grad" not in Counter(op.type for op in ops())


def test_no_parameters_give_no_pairs():
    assert fluid.append_backward(layers.mean(data("x", 2))) == []
    assert [op.type for op in ops()] == ["mean", "fill_constant"]


def test_a_parameter_that_is_not_trainable_is_left_out_unless_asked_for():
    w, fixed = weight("w", 2), weight("fixed", 2, trainable=False)
    loss = layers.mean(layers.elementwise_mul(w, fixed))
    assert named(fluid.append_backward(loss)) == [("w", "w@GRAD")]
    assert named(fluid.append_backward(loss, parameter_list=[fixed])) == [("fixed", "grad/grad/fixed@GRAD")]
    assert fluid.gradients(loss, fixed)[0] is not None


def test_an_optimizer_computes_no_gradient_for_what_is_not_trainable():
    w, fixed = weight("w", 2), weight("fixed", 2, trainable=False)
    _, pairs = fluid.optimizer.SGD(0.1).minimize(layers.mean(layers.elementwise_mul(w, layers.tanh(fixed))))
    assert named(pairs) == [("w", "w@GRAD")]
    assert not fluid.default_main_program().global_block().has_var("fixed@GRAD")


def two_layers():
    """``mean(tanh(first) * second)``."""
    first, second = weight("first", 2), weight("second", 2)
    hidden = layers.tanh(first)
    return first, second, hidden, layers.mean(layers.elementwise_mul(hidden, second))


def test_stop_gradient_cuts_everything_behind_it():
    _, _, hidden, loss = two_layers()
    hidden.stop_gradient = True
    assert named(fluid.append_backward(loss)) == [("second", "second@GRAD")]
    assert [op.type for op in ops()][-2:] == ["mean_grad", "elementwise_mul_grad"]
    assert lines()[-1].endswith("-> Y@GRAD=second@GRAD")


@pytest.mark.parametrize("as_what", [lambda v: {v.name}, lambda v: [v], lambda v: (v.name,), lambda v: {v}])
def test_no_grad_set_cuts_like_stop_gradient(as_what):
    _, _, hidden, loss = two_layers()
    assert named(fluid.append_backward(loss, no_grad_set=as_what(hidden))) == [("second", "second@GRAD")]
    assert not hidden.stop_gradient
    assert lines()[-1].endswith("-> Y@GRAD=second@GRAD")


def test_a_parameter_in_no_grad_set_is_left_out():
    first, _, _, loss = two_layers()
    assert named(fluid.append_backward(loss, no_grad_set={first.name})) == [("second", "second@GRAD")]


def test_everything_cut_leaves_only_the_seed():
    hidden = layers.tanh(weight("w", 2))
    assert fluid.append_backward(layers.mean(hidden), no_grad_set=[hidden]) == []
    assert [op.type for op in ops()] == ["tanh", "mean", "fill_constant"]


def test_parameter_list_limits_what_is_returned_not_what_is_appended():
    first, second, _, loss = two_layers()
    everything = len(ops()) + 4
    assert named(fluid.append_backward(loss, parameter_list=["second", first])) == [
        ("second", "second@GRAD"),
        ("first", "first@GRAD"),
    ]
    assert len(ops()) == everything
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
        first, second, _, loss = two_layers()
        assert named(fluid.append_backward(loss, parameter_list=[second])) == [("second", "second@GRAD")]
        assert len(ops()) == everything
        assert [op.role_vars for op in ops() if op.role_vars] == [("second", "second@GRAD")]


def test_parameter_list_may_name_any_variable_that_has_a_gradient():
    x, stopped = fluid.data("x", [None, 2]), fluid.data("stopped", [None, 2])
    x.stop_gradient = False
    hidden = layers.elementwise_add(x, stopped)
    loss = layers.mean(layers.fc(hidden, 1))
    wanted = ["x", hidden, "stopped", "fc_0.w_0"]  # fluid 1.8.5 returns these pairs, too
    assert named(fluid.append_backward(loss, parameter_list=wanted)) == [
        ("x", "x@GRAD"),
        (hidden.name, f"{hidden.name}@GRAD"),
        ("fc_0.w_0", "fc_0.w_0@GRAD"),
    ]


def test_an_optimizer_refuses_to_update_what_is_no_parameter():
    x = fluid.data("x", [None, 2])
    x.stop_gradient = False
    loss = layers.mean(layers.fc(x, 1))
    with pytest.raises(fluid.errors.WrongTypeError, match=r"updates parameters; .* is none"):
        fluid.optimizer.SGD(0.1).minimize(loss, parameter_list=["x"])


def test_callbacks_see_every_operator_that_is_appended():
    _, _, _, loss = two_layers()
    seen = []

    def callback(block, context):
        assert block is fluid.default_main_program().global_block()
        op = context["__current_op_desc__"]
        assert block.ops.last is op
        seen.append((op.type, [context[name] for name in op.output_arg_names]))

    fluid.append_backward(loss, callbacks=[callback, lambda block, context: seen.append("second")])
    assert seen == [
        ("mean_grad", ["elementwise_mul_0.tmp_0"]), "second",
        ("elementwise_mul_grad", ["tanh_0.tmp_0", "second"]), "second",
        ("tanh_grad", ["first"]), "second",
    ]  # fmt: skip


def test_callbacks_see_final_names_and_the_sum_of_parts_but_not_the_parts():
    w = weight("w", 2)
    h = layers.scale(w, 2.0)
    h.error_clip = fluid.clip.ErrorClipByValue(0.5)
    loss = layers.reduce_sum(layers.sums([layers.tanh(h), layers.exp(h)]))
    ((_, grad),) = fluid.append_backward(loss, callbacks=[fluid.clip.error_clip_callback])
    part = "scale_0.tmp_0@GRAD@RENAME@block0@"
    assert lines()[-5:] == [
        f"exp_grad Out=exp_0.tmp_0 Out@GRAD=exp_0.tmp_0@GRAD -> X@GRAD={part}0",
        f"tanh_grad Out=tanh_0.tmp_0 Out@GRAD=tanh_0.tmp_0@GRAD -> X@GRAD={part}1",
        f"sum X={part}0,{part}1 -> Out=scale_0.tmp_0@GRAD",
        "clip X=scale_0.tmp_0@GRAD -> Out=scale_0.tmp_0@GRAD",
        "scale X=scale_0.tmp_0@GRAD -> Out=w@GRAD",
    ]
    fluid.verify(fluid.default_main_program())
    np.testing.assert_array_equal(evaluate([grad])[0], [1.0, 1.0])


# Twice


def test_a_second_pass_has_names_of_its_own_and_the_same_values():
    w = weight("w", 3)
    loss = layers.mean(layers.square(layers.tanh(w)))
    grads = [fluid.append_backward(loss)[0][1] for _ in range(3)]
    assert [grad.name for grad in grads] == ["w@GRAD", "grad/grad/w@GRAD", "grad/grad/grad/w@GRAD"]
    first, second, third = evaluate(grads)
    np.testing.assert_array_equal(first, second)
    np.testing.assert_array_equal(first, third)


def test_two_losses_have_their_own_gradients():
    w = weight("w", 3)
    one, two = layers.reduce_sum(layers.scale(w, 2.0)), layers.reduce_sum(layers.scale(w, 5.0))
    grads = [fluid.append_backward(loss)[0][1] for loss in (one, two)]
    found = evaluate(grads)
    np.testing.assert_array_equal(found, [np.full(3, 2.0), np.full(3, 5.0)])


# Errors


@pytest.mark.parametrize("loss", ["loss", None, 1.0])
def test_a_loss_is_a_variable(loss):
    with pytest.raises(WrongTypeError, match="the loss must be a Variable, got"):
        fluid.append_backward(loss)


@pytest.mark.parametrize("shape", [(2,), (None,), (2, 1), (0,)])
def test_a_loss_has_one_element(shape):
    loss = layers.relu(data("x", *shape))
    with pytest.raises(ProgramError, match=r"(?s)one floating-point number, got relu_0.tmp_0.*layers\.mean"):
        fluid.append_backward(loss)
    assert [op.type for op in ops()] == ["relu"]


def test_a_loss_is_floating_point():
    loss = layers.cast(data("x", 1), "int64")
    with pytest.raises(ProgramError, match=r"one floating-point number, got cast_0\.tmp_0: int64"):
        fluid.append_backward(loss)


@pytest.mark.parametrize("shape", [(1,), (1, 1)])
def test_one_element_may_have_any_rank(shape):
    w = weight("w", *shape)
    ((_, grad),) = fluid.append_backward(layers.scale(w, 3.0))
    np.testing.assert_array_equal(evaluate([grad])[0], np.full(shape, 3.0))


def test_a_loss_that_nothing_computes_is_an_error():
    with pytest.raises(ProgramError, match="no operator of its program computes the loss x"):
        fluid.append_backward(data("x", 1))


def test_a_loss_of_an_emptied_program_is_an_error():
    loss = layers.mean(weight("w", 2))
    block = loss.block
    block.remove(block.ops.last)
    with pytest.raises(ProgramError, match="no operator of its program computes the loss"):
        fluid.append_backward(loss)


@pytest.mark.parametrize("argument", ["no_grad_set", "parameter_list"])
def test_unknown_names_are_errors_with_a_suggestion(argument):
    _, _, _, loss = two_layers()
    before = len(ops())
    with pytest.raises(NotFoundError, match=f"(?s){argument} names 'frist'.*Did you mean first"):
        fluid.append_backward(loss, **{argument: ["frist"]})
    assert len(ops()) == before and not ops()[-1].role & Role.LOSS


@pytest.mark.parametrize(
    ("argument", "value"), [("no_grad_set", "first"), ("no_grad_set", [3]), ("parameter_list", "first")]
)
def test_a_set_of_names_is_no_string_and_holds_names(argument, value):
    _, _, _, loss = two_layers()
    with pytest.raises(WrongTypeError, match=argument):
        fluid.append_backward(loss, **{argument: value})


# gradients()


def test_gradients_of_one_target_with_respect_to_one_input():
    x = data("x", 3, wants_gradient=True)
    (grad,) = fluid.gradients(layers.square(x), x)
    value = np.array([1, -2, 3], "float32")
    assert grad.name == "x@GRAD"
    np.testing.assert_array_equal(evaluate([grad], x=value)[0], 2 * value)


def test_an_input_that_is_not_reached_has_none():
    x, y, z = (data(name, 2, wants_gradient=True) for name in "xyz")
    layers.tanh(y)
    grads = fluid.gradients([layers.exp(x)], [y, x, z])
    assert [grad if grad is None else grad.name for grad in grads] == [None, "x@GRAD", None]
    assert "tanh_grad" not in Counter(op.type for op in ops())


def test_no_input_reached_gives_none_for_each():
    x, y = data("x", 2, wants_gradient=True), data("y", 2, wants_gradient=True)
    assert fluid.gradients(layers.exp(x), [y, y]) == [None, None]


def test_a_given_target_gradient_flows_in():
    x, given = data("x", 3, wants_gradient=True), data("given", 3)
    (grad,) = fluid.gradients([layers.square(x)], [x], target_gradients=[given])
    value, cotangent = np.array([1, -2, 3], "float32"), np.array([10, 0, 1], "float32")
    np.testing.assert_array_equal(evaluate([grad], x=value, given=cotangent)[0], 2 * value * cotangent)
    assert [line for line in lines() if line.startswith("fill_constant")] == []


def test_targets_add_up_and_none_among_their_gradients_means_ones():
    x, given = data("x", 2, wants_gradient=True), data("given", 2)
    targets = [layers.square(x), layers.scale(x, 3.0)]
    (grad,) = fluid.gradients(targets, x, [None, given])
    value, cotangent = np.array([1, -2], "float32"), np.array([10, 1], "float32")
    np.testing.assert_array_equal(evaluate([grad], x=value, given=cotangent)[0], 2 * value + 3 * cotangent)


def test_the_seed_has_the_shape_that_the_target_has_when_run():
    x = data("x", None, 2, wants_gradient=True)
    (grad,) = fluid.gradients(layers.scale(x, 4.0), x)
    for rows in (1, 3):
        np.testing.assert_array_equal(evaluate([grad], x=np.ones((rows, 2), "float32"))[0], np.full((rows, 2), 4.0))


def test_only_what_lies_between_inputs_and_targets_is_differentiated():
    w = weight("w", 2)
    x = data("x", 2, wants_gradient=True)
    before = layers.tanh(layers.elementwise_mul(x, w))
    (grad,) = fluid.gradients(layers.exp(before), [before])
    assert [op.type for op in ops() if op.role & Role.BACKWARD] == ["shape", "fill_constant", "exp_grad"]
    assert grad.name == "tanh_0.tmp_0@GRAD"


def test_no_grad_set_cuts_gradients_too():
    x = data("x", 2, wants_gradient=True)
    h = layers.tanh(x)
    assert fluid.gradients(layers.elementwise_mul(h, h), [x], no_grad_set=[h]) == [None]


def test_a_gradient_that_is_stopped_counts_as_a_constant():
    x = data("x", 2, wants_gradient=True)
    (grad,) = fluid.gradients(layers.tanh(x), x)
    grad.stop_gradient = True
    (second,) = fluid.gradients(layers.elementwise_mul(grad, x), x)
    value = np.array([0.3, -1.0], "float32")
    np.testing.assert_allclose(evaluate([second], x=value)[0], 1 - np.tanh(value) ** 2, rtol=1e-6)


def test_a_gradient_that_is_stopped_leaves_that_of_its_variable():
    h = layers.elementwise_mul(weight("w", 2), data("x", 2))
    (step,) = fluid.gradients(layers.reduce_sum(layers.square(h)), h)
    step.stop_gradient = True  # one step against the loss, as adversarial training takes it
    ((param, grad),) = fluid.append_backward(layers.reduce_sum(layers.square(h + step)))
    x = np.array([1.0, -2.0], "float32")
    value, result = evaluate([param, grad], x=x)
    np.testing.assert_allclose(result, 2 * 3 * value * x * x, rtol=1e-6)


def test_a_target_that_another_target_depends_on_warns():
    x = data("x", 2, wants_gradient=True)
    u = layers.tanh(x)
    with pytest.warns(UserWarning, match="another target depends on the target tanh_0.tmp_0"):
        fluid.gradients([u, layers.exp(u)], [x])


@pytest.mark.parametrize(("targets", "inputs"), [([], ["x"]), (["x"], []), (["y", 3], ["x"]), ("y", "x")])
def test_targets_and_inputs_are_variables(targets, inputs):
    x = data("x", 2, wants_gradient=True)
    found = {"x": x, "y": layers.exp(x)}
    as_variables = lambda names: [found.get(n, n) for n in names] if isinstance(names, list) else names  # noqa: E731
    with pytest.raises(WrongTypeError, match="must be Variables"):
        fluid.gradients(as_variables(targets), as_variables(inputs))


def test_as_many_target_gradients_as_targets():
    x = data("x", 2, wants_gradient=True)
    with pytest.raises(ProgramError, match="1 targets but 2 target gradients"):
        fluid.gradients([layers.exp(x)], [x], [x, x])


@pytest.mark.parametrize(("shape", "dtype"), [((3,), "float32"), ((2, 1), "float32"), ((2,), "float64")])
def test_a_target_gradient_has_the_type_of_its_target(shape, dtype):
    x = data("x", 2, wants_gradient=True)
    with pytest.raises(ProgramError, match="a target gradient must have the type of its target"):
        fluid.gradients([layers.exp(x)], [x], [data("given", *shape, dtype=dtype)])


def test_targets_and_inputs_are_in_one_program():
    x = data("x", 2, wants_gradient=True)
    y = layers.exp(x)
    with fluid.program_guard(fluid.Program()):
        other = data("x", 2, wants_gradient=True)
    with pytest.raises(ProgramError, match="in one program"):
        fluid.gradients([y], [other])


# Work


def lines_executed(function, *arguments):
    """How many lines of Python a call executes: work, measured without a clock."""
    count = 0

    def trace(frame, event, argument):
        nonlocal count
        count += event == "line"
        return trace

    old = sys.gettrace()
    sys.settrace(trace)
    try:
        function(*arguments)
    finally:
        sys.settrace(old)
    return count


def chain(length):
    h = weight("w0", 2)
    for number in range(length):
        h = layers.tanh(layers.elementwise_mul(h, weight(f"w{number + 1}", 2)))
    return layers.mean(h)


def star(length):
    """One value with many readers."""
    h = layers.tanh(weight("w", 2))
    return layers.mean(layers.sums([layers.scale(h, float(k)) for k in range(length)]))


def shared(length):
    w = weight("w", 2)
    h = w
    for _ in range(length):
        h = layers.tanh(layers.elementwise_mul(h, w))
    return layers.mean(h)


@pytest.mark.slow
@pytest.mark.parametrize("graph", [chain, star, shared])
def test_work_grows_in_proportion_to_the_operators(graph):
    work = {}
    for length in (40, 80, 160):
        for _ in range(2):  # the second time all types have been inferred before
            with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
                loss = graph(length)
                work[length] = lines_executed(fluid.append_backward, loss)
    # The growth from 80 to 160 is twice that from 40 to 80, up to what does not depend on the length at all.
    assert work[160] - work[80] <= 2.05 * (work[80] - work[40])


@pytest.mark.parametrize("graph", [chain, star, shared])
def test_each_operator_is_differentiated_once(graph, monkeypatch):
    loss = graph(10)
    forward = len(ops())
    definitions = {op.definition for op in ops()}
    calls = []
    for definition in definitions:
        if isinstance(definition.grad, FusedGrad):
            monkeypatch.setattr(definition.grad, "check", calls.append)
        elif definition.grad is not None:

            def rule(context, original=definition.grad):
                calls.append(context.op)
                return original(context)

            monkeypatch.setitem(definition.__dict__, "grad", rule)
    fluid.append_backward(loss)
    assert len(calls) == len(set(calls)) == forward


# Numbers


@pytest.mark.laws
@given(recipes(kinds=SMOOTH_STEPS, dtypes=("float64",), max_steps=6, training=st.none(), may_stop=False))
def test_gradients_are_those_of_central_differences(recipe):
    built = build(recipe)
    with fluid.program_guard(built.main, built.startup):
        pairs = fluid.append_backward(built.loss)
    executor, scope = fluid.Executor(), fluid.Scope()
    executor.run(built.startup, scope=scope)
    feed = built.feed()
    grads = executor.run(built.main, feed=feed, fetch_list=[grad for _, grad in pairs], scope=scope)
    random = np.random.default_rng(recipe.seed)
    for (param, _), grad in zip(pairs, grads, strict=True):
        tensor = scope.find_var(param.name).get_tensor()
        value = np.array(tensor)
        direction = random.standard_normal(value.shape)
        losses = []
        for step in (1e-5, -1e-5):
            tensor.set(value + step * direction)
            losses.append(executor.run(built.main, feed=feed, fetch_list=[built.loss], scope=scope)[0].item())
        tensor.set(value)
        numeric = (losses[0] - losses[1]) / 2e-5
        np.testing.assert_allclose(np.vdot(grad, direction), numeric, rtol=1e-5, atol=1e-8, err_msg=param.name)
