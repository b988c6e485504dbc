"""Loops and branches: results and gradients of `While`, `while_loop`, `cond`, `case`, `switch_case`, `Switch`."""

import numpy as np
import pytest
from both_executors import check_gradient, data, numbers, run

import minigraph as fluid
from minigraph import layers
from minigraph.backward import append_backward
from minigraph.errors import ExecutionError, MinigraphError, OpError, ProgramError, VerifyError, WrongTypeError
from minigraph.interpreter import Interpreter
from minigraph.verify import verify


@pytest.fixture(autouse=True)
def new_program():
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
        yield


def main():
    return fluid.default_main_program()


def integer(n):
    return layers.fill_constant([1], "int64", n)


def types(block=0):
    return [op.type for op in main().block(block).ops]


# Loops


@pytest.mark.parametrize(("limit", "expected"), [(10, 12), (0, 0), (-5, 0), (1, 3)])
def test_a_loop_runs_as_long_as_its_condition_holds(limit, expected):
    i, n = integer(0), integer(limit)
    condition = layers.less_than(i, n)
    with layers.While(condition).block():
        layers.increment(i, 3)
        layers.less_than(i, n, cond=condition)
    found, last = run(i, condition)
    assert found.tolist() == [expected]
    assert last.tolist() == [False]
    assert types() == ["fill_constant", "fill_constant", "less_than", "while"]
    assert types(1) == ["increment", "less_than"]


def test_while_loop_gives_the_last_values_of_nested_structures():
    start = [integer(0), {"pair": (layers.ones([2], "float32"), integer(1))}]
    i, rest = layers.while_loop(
        lambda i, rest: i < 4,
        lambda i, rest: [i + 1, {"pair": (rest["pair"][0] * 2.0, rest["pair"][1] * 3)}],
        start,
    )
    found = run(i, *rest["pair"])
    assert [each.tolist() for each in found] == [[4], [16.0, 16.0], [81]]


def test_loop_variables_change_all_at_once():
    a, b = layers.while_loop(lambda a, b: a + b < 40, lambda a, b: (a + b, a), [integer(1), integer(0)])
    x, y, _ = layers.while_loop(
        lambda x, y, n: n < 3, lambda x, y, n: (y, x, n + 1), [integer(7), integer(8), integer(0)]
    )
    assert [each.item() for each in run(a, b, x, y)] == [34, 21, 8, 7]


@pytest.mark.parametrize("times", [0, 1, 4])
def test_the_gradient_goes_through_every_run_of_a_loop(times):
    x, w, n = data("x", 2, 3), data("w", 3, 3), data("n", 1, dtype="int64")
    _, h = layers.while_loop(
        lambda i, h: i < n, lambda i, h: [i + 1, layers.tanh(layers.mul(h, w))], [integer(0), x * 1.0]
    )
    loss = layers.reduce_sum(layers.square(h))
    feed = {"x": numbers(2, 3), "w": numbers(3, 3, seed=1), "n": np.array([times])}
    check_gradient(loss, feed, ["x", "w"])


@pytest.mark.parametrize("times", [0, 1, 3])
def test_a_variable_that_only_later_runs_read_has_a_gradient(times):
    x, n = data("x", 2), data("n", 1, dtype="int64")

    def body(i, a, b):
        return [i + 1, layers.tanh(a) * 2.0, b + layers.square(a)]

    _, _, b = layers.while_loop(lambda i, a, b: i < n, body, [integer(0), x * 1.0, x * 0.5])
    check_gradient(layers.reduce_sum(b), {"x": numbers(2), "n": np.array([times])}, ["x"])


@pytest.mark.parametrize("times", [0, 1, 3])
def test_only_the_last_run_counts_for_what_is_overwritten(times):
    x, n = data("x", 2), data("n", 1, dtype="int64")
    i, out = integer(0), x * 3.0
    condition = layers.less_than(i, n)
    with layers.While(condition).block():
        layers.increment(i)
        layers.assign(layers.square(x) * layers.cast(i, "float64"), out)
        layers.less_than(i, n, cond=condition)
    check_gradient(layers.reduce_sum(out * out), {"x": numbers(2), "n": np.array([times])}, ["x"])


def test_a_value_may_be_read_after_it_was_written_in_the_same_run():
    x, n = data("x", 2), data("n", 1, dtype="int64")
    i, total, last = integer(0), x * 0.0, x * 1.0
    condition = layers.less_than(i, n)
    with layers.While(condition).block():
        layers.increment(i)
        layers.assign(layers.tanh(last + x), last)
        layers.assign(total + last, total)
        layers.less_than(i, n, cond=condition)
    check_gradient(layers.reduce_sum(total + last), {"x": numbers(2), "n": np.array([3])}, ["x"])


def test_an_array_collects_what_runs_compute_and_its_gradient_what_they_read():
    x, w = data("x", 2, 3), data("w", 3, 3)
    i, n = integer(0), integer(3)
    array = layers.array_write(x, i)
    condition = layers.less_than(i, n)
    with layers.While(condition).block():
        h = layers.tanh(layers.mul(layers.array_read(array, i), w))
        layers.increment(i)
        layers.array_write(h, i, array=array)
        layers.less_than(i, n, cond=condition)
    # Elements in the middle count too, which the original loses.
    loss = layers.reduce_sum(layers.array_read(array, n) + layers.square(layers.array_read(array, integer(1))))
    check_gradient(loss, {"x": numbers(2, 3), "w": numbers(3, 3, seed=1)})


def test_an_element_that_several_runs_read_gets_all_their_gradients():
    x = data("x", 2)
    zero, n = integer(0), integer(3)
    given = layers.array_write(layers.tanh(x), zero)
    i, total = integer(0), layers.fill_constant([2], "float64", 0.0)
    total.stop_gradient = False
    condition = layers.less_than(i, n)
    with layers.While(condition).block():
        term = layers.array_read(given, zero) * layers.cast(i + 1, "float64")
        layers.assign(total + layers.square(term), total)
        layers.increment(i)
        layers.less_than(i, n, cond=condition)
    loss = layers.reduce_sum(total * layers.array_read(given, zero))
    check_gradient(loss, {"x": numbers(2)})


def test_a_counter_is_back_where_it_started_once_gradients_are_computed():
    x, i, n = data("x", 2), integer(1), integer(3)
    h = x * 1.0
    condition = layers.less_than(i, n)
    with layers.While(condition).block():
        layers.assign(h * x, h)
        layers.increment(i)
        layers.less_than(i, n, cond=condition)
    after = i + 0
    append_backward(layers.reduce_sum(h))
    found = run(after, i, "x@GRAD", feed={"x": np.array([2.0, 3.0])})
    assert [each.tolist() for each in found] == [[3], [1], [12.0, 27.0]]


def test_loops_in_loops_with_counters_of_their_own():
    x, n = data("x", 2), integer(3)
    i, total = integer(0), x * 1.0
    condition = layers.less_than(i, n)
    with layers.While(condition).block():
        j, inner = integer(0), layers.tanh(total)
        again = layers.less_than(j, i)
        with layers.While(again).block():
            layers.assign(layers.square(inner) + x, inner)
            layers.increment(j)
            layers.less_than(j, i, cond=again)
        layers.assign(total + inner * x, total)
        layers.increment(i)
        layers.less_than(i, n, cond=condition)
    check_gradient(layers.reduce_sum(total), {"x": numbers(2)})


@pytest.mark.parametrize("times", [0, 1, 5])
def test_a_branch_in_a_loop(times):
    x, n = data("x", 3), data("n", 1, dtype="int64")

    def body(i, h):
        even = layers.equal(i % 2, integer(0))
        return [i + 1, layers.cond(even, lambda: layers.tanh(h) * x, lambda: h + layers.square(x))]

    _, h = layers.while_loop(lambda i, h: i < n, body, [integer(0), x * 1.0])
    check_gradient(layers.reduce_sum(layers.square(h)), {"x": numbers(3), "n": np.array([times])}, ["x"])


@pytest.mark.parametrize("times", [0, 2])
def test_a_loop_in_a_branch(times):
    x, n = data("x", 3), data("n", 1, dtype="int64")

    def loop():
        return layers.while_loop(lambda i, h: i < n, lambda i, h: [i + 1, layers.tanh(h) + x], [integer(0), x * 1.0])[1]

    y = layers.cond(n > 0, loop, lambda: layers.square(x))
    check_gradient(layers.reduce_sum(y * x), {"x": numbers(3), "n": np.array([times])}, ["x"])


def test_a_branch_that_writes_an_outer_variable_keeps_or_replaces_its_gradient():
    x, n = data("x", 3), integer(4)
    i, h = integer(0), x * 1.0
    condition = layers.less_than(i, n)
    with layers.While(condition).block():
        with layers.Switch() as switch, switch.case(layers.equal(i % 2, integer(0))):
            layers.assign(layers.tanh(h) * x, h)
        layers.increment(i)
        layers.less_than(i, n, cond=condition)
    check_gradient(layers.reduce_sum(layers.square(h)), {"x": numbers(3)})


def test_a_value_that_a_loop_overwrites_is_copied_where_a_gradient_needs_it():
    x, n = data("x", 2), integer(2)
    i, h = integer(0), layers.tanh(x)  # the gradient needs the result, which the loop overwrites
    condition = layers.less_than(i, n)
    with layers.While(condition).block():
        layers.assign(h * 2.0, h)
        layers.assign(layers.square(h) * h, h)  # reads what the line above has written
        layers.increment(i)
        layers.less_than(i, n, cond=condition)
    check_gradient(layers.reduce_sum(h), {"x": numbers(2)})
    copies = [(block.idx, op.type) for block in main().blocks for op in block.ops if "@KEPT" in str(op.outputs)]
    assert set(copies) == {(0, "assign"), (1, "assign")}


def test_what_a_loop_writes_keeps_its_shape_and_element_type():
    i, x = integer(0), data("x", 2)
    condition = i < 3
    with (
        pytest.raises(
            OpError, match=r"assign: the result is float64\[4\] but outside of the sub-block x is float64\[2\]"
        ),
        layers.While(condition).block(),
    ):
        layers.assign(layers.concat([x, x], 0), x)
    assert main().current_block() is main().global_block()
    assert main().num_blocks == 1
    with pytest.raises(OpError, match=r"the result is float32\[2\] but outside of the sub-block x is float64"):
        layers.while_loop(lambda i, x: i < 3, lambda i, x: [i + 1, layers.cast(x, "float32")], [i, x])


def test_a_shape_that_turns_out_to_change_is_an_error_when_run():
    i, x = integer(0), fluid.data("x", [None], "float32")
    h = x * 1.0
    layers.while_loop(lambda i, h: i < 3, lambda i, h: [i + 1, layers.concat([h, x], 0)], [i, h])
    with pytest.raises(OpError, match=r"the result is float32\[4\] but outside of the sub-block .* is float32\[2\]"):
        fluid.Executor().run(feed={"x": np.zeros(2, "float32")}, fetch_list=[h])


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        (lambda: layers.ones([1], "float32"), r"While: cond must be one boolean, bool\[1\], got .*float32\[1\]"),
        (lambda: layers.less_than(layers.ones([2], "float32"), layers.ones([2], "float32")), r"must be one boolean"),
        (lambda: True, "While: cond must be a Variable, got bool"),
    ],
)
def test_a_condition_is_one_boolean(condition, message):
    with pytest.raises(WrongTypeError, match=message):
        layers.While(condition())


def test_a_condition_whose_size_is_known_late_is_checked_when_run():
    x = fluid.data("x", [None], "float32")
    y = layers.cond(x > 0.0, lambda: x, lambda: -x)
    for executor in (fluid.Executor(), Interpreter()):
        assert executor.run(feed={"x": np.array([-2.0], "float32")}, fetch_list=[y])[0].tolist() == [2.0]
        with pytest.raises(
            MinigraphError, match=r"the condition.* must be one boolean, (it has 2 elements|got bool\[2\])"
        ):
            executor.run(feed={"x": np.zeros(2, "float32")}, fetch_list=[y])


def test_a_loop_that_never_writes_its_condition_is_an_error():
    i = integer(0)
    condition = i < 3
    with (
        pytest.raises(ProgramError, match="the block never writes its condition tmp_"),
        layers.While(condition).block(),
    ):
        layers.increment(i)


def test_while_loop_refuses_what_does_not_fit_together():
    i = integer(0)
    with pytest.raises(ProgramError, match="body must return what it takes, but they differ: 1 and 2 variables"):
        layers.while_loop(lambda i: i < 3, lambda i: [i, i], [i])
    with pytest.raises(ProgramError, match="loop_vars is empty"):
        layers.while_loop(lambda: i < 3, lambda: [], [])
    with pytest.raises(WrongTypeError, match="while_loop: body must be callable, got int"):
        layers.while_loop(lambda i: i < 3, 3, [i])
    with pytest.raises(WrongTypeError, match="what cond returns must be one boolean"):
        layers.while_loop(lambda i: i, lambda i: [i], [i])
    with pytest.raises(WrongTypeError, match="loop_vars must be a list or tuple"):
        layers.while_loop(lambda i: i < 3, lambda i: [i], i)


def test_an_error_in_a_sub_block_names_its_own_line():
    i, x = integer(0), data("x", 2)
    condition = i < 3
    with layers.While(condition).block():
        layers.increment(i, 5)
        layers.less_than(i, integer(3), cond=condition)
        picked = layers.gather(x, i)
        layers.assign(layers.expand(picked, [2]), x)
    for executor in (fluid.Executor(), Interpreter()):
        with pytest.raises(ExecutionError) as error:
            executor.run(feed={"x": numbers(2)}, fetch_list=[x])
        assert "gather" in str(error.value)
        assert "picked = layers.gather(x, i)" in str(error.value)


# Branches


@pytest.mark.parametrize("t", [-1.0, 1.0])
def test_a_branch_gives_its_results_and_gradients_and_the_other_none(t):
    x, w, t_var = data("x", 2, 3), data("w", 3, 3), data("t", 1)
    t_var.stop_gradient = True
    first, second = layers.cond(
        t_var < 0.0,
        lambda: (layers.square(layers.mul(x, w)), layers.tanh(x)),
        lambda: (layers.scale(x, 2.0), layers.tanh(x) * w[0]),
    )
    loss = layers.reduce_sum(first * second)
    feed = {"x": numbers(2, 3), "w": numbers(3, 3, seed=1), "t": np.array([t])}
    check_gradient(loss, feed, ["x", "w"])


def test_only_the_branch_that_was_chosen_is_computed():
    x = data("x", 2)
    x.stop_gradient = True
    chosen = layers.cond(
        x[0] < 0.0, lambda: layers.ones([1], "int64"), lambda: layers.gather(layers.ones([1], "int64"), integer(7))
    )
    (found,) = run(chosen, feed={"x": np.array([-1.0, 0.0])})
    assert found.tolist() == [1]
    with pytest.raises(ExecutionError, match="gather"):
        run(chosen, feed={"x": np.array([1.0, 0.0])})


def test_a_branch_without_a_result_may_write():
    x, y = data("x", 1), layers.fill_constant([1], "float64", 5.0)
    assert layers.cond(x > 0.0, lambda: _write(x, y)) is None
    assert run(y, feed={"x": np.array([3.0])})[0].tolist() == [6.0]
    assert run(y, feed={"x": np.array([-3.0])})[0].tolist() == [5.0]


def _write(x, y):
    layers.assign(x * 2.0, y)


def test_branches_may_differ_in_a_dimension():
    x = data("x", 1)
    y = layers.cond(x > 0.0, lambda: layers.ones([2, 3], "float32"), lambda: layers.zeros([4, 3], "float32"))
    assert y.shape == (-1, 3)
    assert run(y, feed={"x": np.array([1.0])})[0].shape == (2, 3)
    assert run(y, feed={"x": np.array([-1.0])})[0].shape == (4, 3)


def test_branches_that_do_not_fit_together_are_refused():
    x = data("x", 1)
    one = lambda: layers.ones([1], "float32")  # noqa: E731
    for true_fn, false_fn, message in [
        (one, lambda: (one(), one()), "the branches return one variable and 2 of them"),
        (lambda: [one()], lambda: [one(), one()], "the branches return 1 and 2 variables"),
        (one, lambda: None, "false_fn returns nothing, the other branch does"),
        (None, one, "true_fn returns nothing"),
        (one, lambda: layers.ones([1], "int64"), r"true_fn returns float32\[1\], false_fn int64\[1\] in its place"),
        (one, lambda: layers.ones([1, 1], "float32"), r"true_fn returns float32\[1\], false_fn float32\[1, 1\]"),
        (lambda: {"a": one()}, lambda: {"b": one()}, r"the branches return the keys \['a'\] and \['b'\]"),
    ]:
        with pytest.raises(ProgramError, match=message):
            layers.cond(x > 0.0, true_fn, false_fn)
    with pytest.raises(WrongTypeError, match="cond: true_fn must be callable, got int"):
        layers.cond(x > 0.0, 3)
    with pytest.raises(WrongTypeError, match="cond: pred must be one boolean"):
        layers.cond(x, one, one)
    with pytest.raises(WrongTypeError, match="what a branch returns must be a Variable, got float"):
        layers.cond(x > 0.0, lambda: 1.0, one)


@pytest.mark.parametrize(("x_value", "expected"), [(0.1, 1.0), (0.5, 2.0), (0.9, 3.0)])
def test_case_takes_the_first_condition_that_holds(x_value, expected):
    x = data("x", 1)

    def constant(value):
        return lambda: layers.fill_constant([1], "float64", value) * x

    pairs = [(x < 0.3, constant(1.0)), (x < 0.7, constant(2.0))]
    with_default = layers.case(pairs, constant(3.0))
    without = layers.case([*pairs, (x < 0.8, constant(3.0))])
    found = run(with_default, without, feed={"x": np.array([x_value])})
    assert np.array_equal(found, [[expected * x_value]] * 2)
    check_gradient(layers.reduce_sum(with_default * without), {"x": np.array([x_value])})


@pytest.mark.parametrize(("index", "expected"), [(0, 10), (1, 11), (5, 15), (3, 99), (-1, 99)])
@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8"])
def test_switch_case_takes_the_function_with_the_number(index, expected, dtype):
    if dtype == "uint8" and index < 0:
        index = 255
    at = fluid.data("at", [1], dtype)
    functions = {n: lambda n=n: integer(10 + n) for n in (0, 1, 5)}
    chosen = layers.switch_case(at, functions, lambda: integer(99))
    last = layers.switch_case(at, [(n, f) for n, f in functions.items()])
    listed = layers.switch_case(at, [functions[0], functions[1]], lambda: integer(99))
    found = [each.item() for each in run(chosen, last, listed, feed={"at": np.array([index], dtype)})]
    assert found == [expected, 15 if expected == 99 else expected, expected if index in (0, 1) else 99]


def test_case_and_switch_case_refuse_what_is_no_choice():
    x, at = data("x", 1), fluid.data("at", [1], "int64")
    one = lambda: layers.ones([1], "float32")  # noqa: E731
    for call, error, message in [
        (lambda: layers.case([]), ProgramError, "pred_fn_pairs is empty"),
        (lambda: layers.case([one]), WrongTypeError, "must hold tuples of a condition and a function"),
        (lambda: layers.case([(x, one)]), WrongTypeError, "must be one boolean"),
        (lambda: layers.case([(x > 0.0, 1)]), WrongTypeError, "must be callable"),
        (lambda: layers.case({}), WrongTypeError, "must be a list or tuple"),
        (lambda: layers.switch_case(at, {}), ProgramError, "branch_fns is empty"),
        (lambda: layers.switch_case(at, [(0, one), (0, one)]), ProgramError, "branch_fns has 0 twice"),
        (lambda: layers.switch_case(at, [(0.5, one)]), WrongTypeError, "pairs of an int and a function"),
        (lambda: layers.switch_case(x, [one]), WrongTypeError, "branch_index must be uint8, int32 or int64"),
        (lambda: layers.switch_case(at, 3), WrongTypeError, "must be a list, tuple or dict"),
    ]:
        with pytest.raises(error, match=message):
            call()


@pytest.mark.parametrize(("value", "expected"), [(0.0, 1.0), (1.5, 2.0), (9.0, 3.0)])
def test_a_switch_runs_one_case(value, expected):
    x, rate = data("x", 1), layers.create_global_var([1], 0.0, "float32", persistable=True, name="rate")
    with layers.Switch() as switch:
        with switch.case(x < 1.0):
            layers.assign(layers.fill_constant([1], "float32", 1.0), rate)
        with switch.case(x < 2.0):
            layers.assign(layers.fill_constant([1], "float32", 2.0), rate)
        with switch.default():
            layers.assign(layers.fill_constant([1], "float32", 3.0), rate)
    scope = fluid.Scope()
    fluid.Executor().run(fluid.default_startup_program(), scope=scope)
    assert run(rate, feed={"x": np.array([value])}, scope=scope)[0].tolist() == [expected]
    assert np.array(scope.find_var("rate").get_tensor()).tolist() == [expected]


def test_a_switch_is_used_as_it_should_be():
    x = data("x", 1)
    switch = layers.Switch()
    with pytest.raises(ProgramError, match="belongs inside the switch"):
        switch.case(x > 0.0)
    with pytest.raises(ProgramError, match="after at least one case"), switch:
        switch.default()
    with pytest.raises(WrongTypeError, match=r"Switch\.case: condition must be one boolean"), switch:
        switch.case(x)


def test_is_empty_tells_and_writes():
    x = fluid.data("x", [None, 2], "float32")
    answer = layers.is_empty(x)
    told = layers.is_empty(x, cond=layers.fill_constant([1], "bool", False))
    assert [each.tolist() for each in run(answer, told, feed={"x": np.zeros((0, 2), "float32")})] == [[True], [True]]
    assert [each.tolist() for each in run(answer, told, feed={"x": np.zeros((1, 2), "float32")})] == [[False], [False]]


# The imperative mode


def test_the_imperative_mode_decides_at_once():
    with fluid.dygraph.guard():
        x = fluid.dygraph.to_variable(np.array([2.0], "float32"))
        x.stop_gradient = False
        y = layers.cond(x > 0.0, lambda: x * x, lambda: -x)
        y.backward()
        assert x.gradient().tolist() == [4.0]
        n, total = layers.while_loop(lambda n, t: n < 3.0, lambda n, t: [n + 1.0, t * 2.0], [x * 0.0, x * 1.0])
        assert (n.numpy().item(), total.numpy().item()) == (3.0, 16.0)
        assert layers.case([(x < 0.0, lambda: 1), (x < 3.0, lambda: 2)], lambda: 3) == 2
        index = fluid.dygraph.to_variable(np.array([1]))
        assert layers.switch_case(index, {0: lambda: "a", 1: lambda: "b"}) == "b"
        assert layers.cond(x < 0.0, lambda: 1) is None
        with pytest.raises(ProgramError, match="the imperative mode has no sub-blocks"), layers.While(x > 0.0).block():
            pass


# Programs with sub-blocks


def looping():
    """A program with a nested branch, its gradients and updates."""
    x = fluid.data("x", [None, 3], "float32")
    w = layers.create_parameter([3, 3], "float32", name="w")

    def body(i, h):
        return [i + 1, layers.cond(i < 2, lambda: layers.tanh(layers.mul(h, w)), lambda: layers.dropout(h, 0.5) + 0.0)]

    _, h = layers.while_loop(lambda i, h: i < 3, body, [integer(0), x * 1.0])
    loss = layers.mean(h)
    fluid.optimizer.SGD(0.1, grad_clip=fluid.clip.GradientClipByGlobalNorm(0.01)).minimize(loss)
    return loss


def test_a_program_with_sub_blocks_comes_back_from_its_text_and_its_description():
    looping()
    text = str(main())
    again = fluid.Program.parse(text)
    assert str(again) == text
    assert again.equals(main())
    verify(again)
    assert "block 1 parent 0\n" in text
    assert " parent 0 forward 1\n" in text
    described = fluid.io.deserialize_program(fluid.io.serialize_program(main()))
    for block, twin in zip(main().blocks, described.blocks, strict=True):
        assert (block.parent_idx, block.forward_block_idx) == (twin.parent_idx, twin.forward_block_idx)
        if block.idx:
            assert [op.structure() for op in block.ops] == [op.structure() for op in twin.ops]
    verify(described)


def test_a_copy_shares_nothing_and_a_copy_for_tests_has_no_gradients():
    loss = looping()
    twin, test = main().clone(), main().clone(for_test=True)
    assert twin.equals(main())
    owned = {id(op) for block in main().blocks for op in block.ops}
    assert not any(id(op) in owned for block in twin.blocks for op in block.ops)
    twin.block(1).ops[0].set_attr("bias", 5.0)
    assert not twin.equals(main())
    assert [(block.idx, block.forward_block_idx) for block in test.blocks] == [(n, -1) for n in range(4)]
    verify(test)
    (dropout,) = (op for block in test.blocks for op in block.ops if op.type == "dropout")
    assert dropout.attr("is_test")
    (loop,) = (op for op in test.global_block().ops if op.type == "while")
    assert loop.attr("is_test")
    scope = fluid.Scope()
    executor = fluid.Executor()
    executor.run(fluid.default_startup_program(), scope=scope)
    feed = {"x": numbers(4, 3, dtype="float32")}
    first, second = (executor.run(test, feed=feed, fetch_list=[loss.name], scope=scope)[0] for _ in range(2))
    assert first.tobytes() == second.tobytes()


def test_a_program_with_sub_blocks_is_pruned_to_what_is_fetched():
    loss = looping()
    plain = main().clone(for_test=True)
    plan = fluid.Executor().explain(plain, {"x": np.zeros((4, 3), "float32")}, [loss.name])
    assert "while" in str(plan)
    report = fluid.Executor().explain(main(), {"x": np.zeros((4, 3), "float32")}, [loss.name])
    assert "while_grad" in str(report)


def test_the_verifier_looks_into_sub_blocks():
    looping()
    (loop,) = (op for op in main().global_block().ops if op.type == "while")
    broken = main().clone()
    op = next(op for op in broken.global_block().ops if op.type == "while")
    op.inputs = {**op.inputs, "X": tuple(name for name in op.inputs["X"] if name != "w")}
    with pytest.raises(VerifyError, match="while: block 1 uses w, which no slot names"):
        verify(broken)
    broken = main().clone()
    next(op for op in broken.global_block().ops if op.type == "while").set_attr("sub_block", 2)
    with pytest.raises(VerifyError, match="while runs block 2, which is no sub-block of block 0"):
        verify(broken)
    assert loop.sub_block is main().block(1)


def test_a_text_with_a_sub_block_that_is_not_there_is_refused():
    outputs = "Out=[c], StepScopes=s: unknown {kind='step_scopes'}"
    text = f"block 0\n  data c: bool[1]\n  {outputs} = while(Condition=[c]) {{sub_block=1}}"
    with pytest.raises(fluid.errors.ParseError, match="block 0 has no sub-block 1"):
        fluid.Program.parse(text)


def test_rewrites_do_not_reach_across_what_a_sub_block_writes():
    x = layers.fill_constant([1], "float32", 2.0)
    before, i = x * 3.0, integer(0)
    condition = i < 2
    with layers.While(condition).block():
        layers.assign(x + 1.0, x)
        layers.increment(i)
        layers.less_than(i, integer(2), cond=condition)
    after = x * 3.0
    copied = layers.assign(x)
    assert [each.tolist() for each in run(before, after, copied)] == [[6.0], [12.0], [4.0]]


def test_large_values_that_go_from_run_to_run_keep_theirs():
    x = fluid.data("x", [600, 600], "float32")
    x.stop_gradient = False
    start = layers.scale(x, 0.5)  # large enough for a place in the plan's memory
    _, h = layers.while_loop(lambda i, h: i < 3, lambda i, h: [i + 1, layers.square(h) + h], [integer(0), start])
    other = layers.scale(layers.scale(x, 3.0), 2.0)
    loss = layers.mean(h) + layers.mean(other)
    append_backward(loss)
    run(loss, h, "x@GRAD", feed={"x": numbers(600, 600, dtype="float32")})


def test_training_through_a_loop_is_training_of_the_loop_written_out():
    def build(unrolled):
        program, startup = fluid.Program(), fluid.Program()
        with fluid.program_guard(program, startup), fluid.unique_name.guard():
            x = fluid.data("x", [4, 3], "float32")
            w = layers.create_parameter([3, 3], "float32", name="w")
            step = lambda h: layers.tanh(layers.mul(h, w))  # noqa: E731
            h = layers.scale(x, 1.0)
            if unrolled:
                for _ in range(4):
                    h = step(h)
            else:
                h = layers.while_loop(lambda i, h: i < 4, lambda i, h: [i + 1, step(h)], [integer(0), h])[1]
            loss = layers.mean(layers.square(h))
            clip = fluid.clip.GradientClipByGlobalNorm(0.05)
            fluid.optimizer.Momentum(0.5, 0.9, grad_clip=clip).minimize(loss)
        scope, executor = fluid.Scope(), fluid.Executor()
        scope.var("w").get_tensor().set(numbers(3, 3, dtype="float32"), fluid.CPUPlace())
        scope.var("w_velocity_0").get_tensor().set(np.zeros((3, 3), "float32"), fluid.CPUPlace())
        for name in startup.global_block().vars:
            if name.startswith("learning_rate"):
                scope.var(name).get_tensor().set(np.array([0.5], "float32"), fluid.CPUPlace())
        feed = {"x": numbers(4, 3, seed=1, dtype="float32")}
        losses = [executor.run(program, feed=feed, fetch_list=[loss], scope=scope)[0].item() for _ in range(6)]
        return losses, np.array(scope.find_var("w").get_tensor())

    (looped, w), (unrolled, w_unrolled) = build(False), build(True)
    assert np.allclose(looped, unrolled, rtol=1e-6)
    assert np.allclose(w, w_unrolled, rtol=1e-5)
    assert looped[-1] < looped[0]


def test_one_plan_is_made_for_each_shape():
    x = fluid.data("x", [None, 2], "float32")
    y = layers.cond(layers.reduce_sum(x) > 0.0, lambda: x * 2.0, lambda: x - 1.0)
    executor = fluid.Executor()
    for rows, sign in ((3, 1), (5, -1), (3, -1), (5, 1)):
        given = np.full((rows, 2), sign, "float32")
        (found,) = executor.run(feed={"x": given}, fetch_list=[y])
        assert np.array_equal(found, given * 2 if sign > 0 else given - 1)
    assert len(executor._plans) == 2


def test_error_clips_work_inside_of_loops():
    x = data("x", 2)
    w = data("w", 2)

    def body(i, h):
        h = h * w
        h.error_clip = fluid.clip.ErrorClipByValue(max=0.25)
        return [i + 1, h]

    _, h = layers.while_loop(lambda i, h: i < 2, body, [integer(0), x * 1.0])
    append_backward(layers.reduce_sum(h * 3.0), callbacks=[fluid.clip.error_clip_callback])
    assert any(op.type == "clip" for block in main().blocks[1:] for op in block.ops)
    (grad,) = run("x@GRAD", feed={"x": np.ones(2), "w": np.array([2.0, 0.5])})
    assert grad.tolist() == [0.5, 0.0625]  # clipped at 0.25, times w, clipped, times w


def test_explain_shows_the_functions_of_sub_blocks():
    loss = looping()
    report = str(fluid.Executor().explain(main(), {"x": np.zeros((4, 3), "float32")}, [loss.name]))
    for block, op_type in ((1, "while"), (2, "conditional_block"), (3, "conditional_block"), (4, "while_grad")):
        assert f"# block {block}, of {op_type}\n" in report


def test_a_loss_in_a_sub_block_is_an_error_that_says_what_to_do():
    x = fluid.data("x", [None, 3], "float32")
    with layers.Switch() as switch, switch.case(layers.reduce_sum(x) > 0.0):
        loss = layers.mean(layers.fc(x, 1))
        with pytest.raises(ProgramError, match=r"the loss mean_0\.tmp_0 is computed in a sub-block"):
            fluid.optimizer.SGD(0.1).minimize(loss)
        with pytest.raises(ProgramError, match=r"the target mean_0\.tmp_0 is computed in a sub-block"):
            fluid.gradients(loss, x)


def test_the_graph_of_a_program_leads_through_its_loops():
    x, n = data("x", 2), integer(2)
    i, h = integer(0), x * 1.0
    condition = layers.less_than(i, n)
    with layers.While(condition).block():
        layers.assign(layers.square(h) + x, h)
        layers.increment(i)
        layers.less_than(i, n, cond=condition)
    y = layers.tanh(h)
    graph = main().graph()
    (loop,) = (node for node in graph if getattr(node, "type", "") == "while")
    read = {value.name: slots for value, _, slots in graph.in_edges(loop, data="slots")}
    assert read[x.name] == ("X",)
    assert read[h.name] == ("X",)
    assert {value.name for value in graph.successors(loop)} >= {h.name, i.name, condition.name}
    assert loop in fluid.graph.ancestors_of(main(), y)


def test_what_is_not_finite_is_found_behind_a_loop():
    x = fluid.data("x", [2], "float32")
    w = layers.create_parameter([2], "float32", name="w", default_initializer=fluid.initializer.Constant(1e30))
    _, h = layers.while_loop(lambda i, h: i < 2, lambda i, h: [i + 1, h * w], [integer(0), x * 1.0])
    clip = fluid.clip.GradientClipByGlobalNorm(1.0, nonfinite="raise")
    fluid.optimizer.SGD(0.1, grad_clip=clip).minimize(layers.reduce_sum(h * 1e30))
    executor, scope = fluid.Executor(), fluid.Scope()
    executor.run(fluid.default_startup_program(), scope=scope)
    with pytest.raises(fluid.errors.NonfiniteError) as error:
        executor.run(feed={"x": np.ones(2, "float32")}, scope=scope)
    assert "w" in error.value.param
    assert "the first such value is" in str(error.value)


def test_checkpoints_around_a_loop_change_no_bit():
    def results(checkpointed):
        program, startup = fluid.Program(), fluid.Program()
        with fluid.program_guard(program, startup), fluid.unique_name.guard():
            x = fluid.data("x", [4, 3], "float32")
            before = layers.fc(layers.tanh(layers.fc(x, 3)), 3, act="tanh")
            _, h = layers.while_loop(
                lambda i, h: i < 3, lambda i, h: [i + 1, layers.square(h) + h], [integer(0), before * 1.0]
            )
            loss = layers.mean(layers.tanh(layers.fc(h, 3, act="tanh")))
            optimizer = fluid.optimizer.SGD(0.1)
            if checkpointed:
                optimizer = fluid.optimizer.RecomputeOptimizer(optimizer)
                optimizer._set_checkpoints([before, h])
            optimizer.minimize(loss)
        verify(program)
        scope, executor = fluid.Scope(), fluid.Executor()
        executor.run(startup, scope=scope)
        for seed, param in enumerate(program.all_parameters()):
            scope.find_var(param.name).get_tensor().set(
                numbers(*param.shape, seed=seed, dtype="float32"), fluid.CPUPlace()
            )
        feed = {"x": numbers(4, 3, dtype="float32")}
        return [executor.run(program, feed=feed, fetch_list=[loss.name], scope=scope)[0].tobytes() for _ in range(3)]

    assert results(True) == results(False)


@pytest.mark.parametrize("executor", [fluid.Executor, Interpreter])
def test_what_a_branch_that_did_not_run_would_write_has_no_value(executor):
    x, out = data("x", 2), main().global_block().create_var(name="out", shape=[2], dtype="float64")
    with layers.Switch() as switch, switch.case(layers.reduce_sum(x) > 0.0):
        layers.assign(x * 2.0, out)
    y = layers.tanh(out)
    (block,) = (op for op in main().global_block().ops if op.type == "conditional_block")
    run = lambda sign, fetch: executor().run(feed={"x": np.full(2, sign)}, fetch_list=[fetch])  # noqa: E731
    assert run(1.0, out)[0].tolist() == [2.0, 2.0]
    with pytest.raises(ExecutionError, match="out has no value, because the block that writes it did not run"):
        run(-1.0, out)
    with pytest.raises(ExecutionError, match="If a branch or loop writes one of these, it did not run"):
        run(-1.0, y)
    with pytest.raises(ProgramError, match="is what an operator keeps for its gradient and cannot be fetched"):
        run(1.0, block.output("Scope")[0])


@pytest.mark.parametrize("executor", [fluid.Executor, Interpreter])
def test_statistics_that_a_loop_updates_are_kept_and_random_numbers_drawn_anew_in_every_run(executor):
    x = data("x", 4, 3, dtype="float32")
    norm = {"moving_mean_name": "mean", "moving_variance_name": "variance", "param_attr": "scale", "bias_attr": "bias"}

    def body(i, h):
        return [i + 1, layers.dropout(layers.batch_norm(h, **norm), 0.5, dropout_implementation="upscale_in_train")]

    _, h = layers.while_loop(lambda i, h: i < 3, body, [integer(0), x * 1.0])
    fluid.optimizer.SGD(0.0).minimize(layers.reduce_sum(h))
    runner, scope = executor(), fluid.Scope()
    runner.run(fluid.default_startup_program(), scope=scope)
    runner.run(feed={"x": numbers(4, 3, dtype="float32") + 5}, scope=scope)
    first = np.array(scope.find_var("mean").get_tensor())
    assert (first != 0).all()
    results = [runner.run(feed={"x": numbers(4, 3, dtype="float32")}, fetch_list=[h], scope=scope)[0] for _ in range(2)]
    assert results[0].tobytes() != results[1].tobytes()
    assert (np.array(scope.find_var("mean").get_tensor()) != first).all()


def test_every_rewrite_keeps_what_a_program_with_sub_blocks_computes():
    from minigraph.passes import LOWERING, FuseElementwise, MergeMatmuls, TransposeIntoMatmul

    x = data("x", 40, 40)
    w = layers.create_parameter([40, 40], "float64", name="w")
    same, twin = layers.tanh(layers.assign(x)), layers.tanh(layers.assign(x))

    def body(i, h):
        other = layers.tanh(layers.assign(x))
        branch = layers.cond(i < 1, lambda: layers.matmul(h, w) + same, lambda: h * twin)
        return [i + 1, layers.assign(branch) * 1.0 + other * 0.0]

    _, h = layers.while_loop(lambda i, h: i < 3, body, [integer(0), x * 1.0])
    loss = layers.mean(layers.reshape(layers.reshape(h, [1600]), [40, 40]) + same * twin)
    append_backward(loss)
    given, scope = numbers(40, 40), fluid.Scope()
    scope.var("w").get_tensor().set(numbers(40, 40, seed=1), fluid.CPUPlace())
    fetch = [loss.name, h.name, "w@GRAD", "x@GRAD"]

    def results(program):
        return fluid.Executor(passes=fluid.passes.Pipeline(())).run(
            program, feed={"x": given}, fetch_list=fetch, scope=scope
        )

    expected = results(main())
    for each in (*LOWERING, FuseElementwise(), MergeMatmuls(), TransposeIntoMatmul()):
        rewritten = main().clone()
        rewritten.roots = tuple(fetch)
        each.apply(rewritten)
        verify(rewritten)
        for found, wanted in zip(results(rewritten), expected, strict=True):
            assert np.allclose(found, wanted, rtol=1e-12, atol=1e-14), each.name
        assert not each.apply(rewritten), each.name


# Rows


def chosen_rows(x):
    rows = layers.reduce_sum(x, dim=1, keep_dim=True)
    choice = layers.IfElse(rows > layers.fill_constant_batch_size_like(x, [-1, 1], "float64", 0.0))
    with choice.true_block():
        a = choice.input(x)
        choice.output(layers.square(a), a * 2.0)
    with choice.false_block():
        b = choice.input(x)
        choice.output(layers.tanh(b), b * 3.0)
    return choice()


@pytest.mark.parametrize("rows", [[[1, 2], [-1, -2], [3, 4]], [[1, 2], [3, 4]], [[-1, -2]]])
def test_each_row_goes_through_its_branch(rows):
    x = data("x", -1, 2)
    first, second = chosen_rows(x)
    given = np.array(rows, "float64") / 4
    found = run(first, second, feed={"x": given})
    holds = given.sum(1, keepdims=True) > 0
    assert np.allclose(found[0], np.where(holds, given**2, np.tanh(given)), rtol=1e-12)
    assert np.allclose(found[1], np.where(holds, given * 2, given * 3), rtol=1e-12)
    check_gradient(layers.reduce_sum(first * second), {"x": given})


def test_branches_for_rows_have_the_operators_of_the_original():
    x = data("x", -1, 2)
    first, second = chosen_rows(x)
    append_backward(layers.reduce_sum(first * second))
    branch = ["conditional_block", "conditional_block", "merge_lod_tensor", "merge_lod_tensor"]
    back = [
        "split_lod_tensor",
        "split_lod_tensor",
        "conditional_block_grad",
        "conditional_block_grad",
        "merge_lod_tensor",
    ]
    assert types()[:4] == ["reduce_sum", "fill_constant_batch_size_like", "greater_than", "split_lod_tensor"]
    assert types()[4:] == [
        *branch, "elementwise_mul", "reduce_sum", "fill_constant", "reduce_sum_grad", "elementwise_mul_grad", *back,
    ]  # fmt: skip
    assert types(3) == ["assign", "assign", "scale", "tanh_grad", "sum"]
    (split,) = (op for op in main().global_block().ops if op.type == "split_lod_tensor" and op.role == 0)
    assert split.output("OutTrue") == ["ifelse_inputifelse_0_0"]
    assert first.name == "merge_lod_tensor_0.tmp_0"


def test_branches_for_rows_are_built_as_they_should_be():
    x = data("x", -1, 2)
    choice = layers.IfElse(x[:, :1] > 0.0)
    for call in (lambda: choice.input(x), lambda: choice.output(x)):
        with pytest.raises(ProgramError, match="belongs inside of a branch"):
            call()
    with pytest.raises(ProgramError, match="this branch of the IfElse has no output"), choice.true_block():
        choice.input(x)
    with choice.true_block():
        choice.output(choice.input(x))
        with pytest.raises(ProgramError, match="cannot stand in one"), choice.false_block():
            pass
    with pytest.raises(ProgramError, match="have 1 and 0 outputs"):
        choice()
    with choice.false_block():
        choice.output(layers.cast(choice.input(x), "float32"))
    with pytest.raises(OpError, match="InTrue and InFalse must have one element type"):
        choice()
    with pytest.raises(WrongTypeError, match="cond must hold booleans"):
        layers.IfElse(x)
