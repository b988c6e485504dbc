"""Loops: results and gradients of `While` and `while_loop`."""

import warnings

import numpy as np
import pytest
from both_executors import check_gradient, data, integer, main, numbers, run, types

import minigraph as fluid
from minigraph import layers
from minigraph.backward import append_backward
from minigraph.errors import ExecutionError, MinigraphError, OpError, ProgramError, WrongTypeError
from minigraph.executor.interpreter import Interpreter
from minigraph.passes import EXACT

pytestmark = pytest.mark.usefixtures("new_program")


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


def test_what_a_loop_writes_keeps_its_element_type_and_rank():
    i, x = integer(0), data("x", 2)
    with pytest.raises(OpError, match=r"the result is float32\[2\] but outside of the sub-block x is float64"):
        layers.while_loop(lambda i, x: i < 3, lambda i, x: [i + 1, layers.cast(x, "float32")], [i, x])
    with pytest.raises(OpError, match=r"the result is float64\[2, 1\] but outside of the sub-block x is float64\[2\]"):
        layers.while_loop(lambda i, x: i < 3, lambda i, x: [i + 1, layers.unsqueeze(x, [1])], [i, x])
    assert main().current_block() is main().global_block()


@pytest.mark.parametrize("columns", [3, -1])
def test_a_loop_may_join_its_results(columns):
    x, i = fluid.data("x", [-1, columns], "float64"), integer(0)
    _, h = layers.while_loop(lambda i, h: i < 3, lambda i, h: [i + 1, layers.concat([h, x * 2.0], 1)], [i, x * 1.0])
    x.stop_gradient = False
    loss = layers.mean(layers.square(h))
    value = numbers(2, 3)
    (found,) = run(h, feed={"x": value})
    np.testing.assert_array_equal(found, np.concatenate([value] + [2 * value] * 3, axis=1))
    check_gradient(loss, {"x": value})


@pytest.mark.slow
@pytest.mark.parametrize("rows", [2, -1])
def test_a_loop_computes_with_what_grows(rows):
    x, w = fluid.data("x", [rows, 3], "float64"), data("w", 3, 3)
    x.stop_gradient = False
    sums, means = layers.zeros([1], "float64"), layers.zeros([1, 1], "float64")
    sums.stop_gradient = means.stop_gradient = False  # constants otherwise stop the gradient

    def body(i, h, sums, means):
        turned = layers.tanh(layers.mul(h, w)) * 0.5 + h
        parts = layers.reduce_sum(layers.softmax(turned) * turned, dim=[1], keep_dim=True)
        mean = layers.reduce_mean(parts, dim=[0], keep_dim=True)
        joined = layers.concat([turned, x * 0.1], 0)
        return [i + 1, joined, sums + layers.reduce_sum(parts), layers.concat([means, mean], 1)]

    _, h, sums, means = layers.while_loop(lambda i, *rest: i < 3, body, [integer(0), x * 1.0, sums, means])
    loss = layers.mean(layers.square(h)) + layers.reduce_sum(sums) + layers.reduce_sum(layers.square(means))
    feed = {"x": numbers(2, 3), "w": numbers(3, 3, seed=1)}
    assert [each.shape for each in run(h, means, feed=feed)] == [(8, 3), (1, 4)]
    check_gradient(loss, feed)


def test_a_loop_may_turn_what_it_writes():
    x, i = fluid.data("x", [2, 3], "float32"), integer(0)
    _, h = layers.while_loop(lambda i, h: i < 3, lambda i, h: [i + 1, layers.transpose(h, [1, 0]) + 1.0], [i, x * 1.0])
    value = numbers(2, 3).astype("float32")
    (found,) = run(h, feed={"x": value})
    np.testing.assert_array_equal(found, value.T + np.float32(1) + np.float32(1) + np.float32(1))


def test_a_branch_may_write_another_size():
    x, y = fluid.data("x", [-1, 2], "float32"), layers.zeros([1, 2], "float32")
    with layers.Switch() as switch:
        with switch.case(layers.reduce_sum(x) < 10.0):
            layers.assign(layers.concat([x, x], 0), y)
        with switch.default():
            layers.assign(x, y)
    for scale, rows in ((1, 6), (100, 3)):
        (found,) = run(y, feed={"x": np.full((3, 2), scale, "float32")})
        np.testing.assert_array_equal(found, np.full((rows, 2), scale, "float32"))


def test_a_body_may_change_lists_and_dictionaries_in_place():
    def body(i, named, listed):
        named["k"] = i
        named["k"] += 1
        listed[0]["k"] += 2.0
        return [layers.increment(i), named, listed]

    named, listed = {"k": integer(0)}, [{"k": layers.zeros([1], "float32")}]
    i, named, listed = layers.while_loop(lambda i, named, listed: i < 4, body, [integer(0), named, listed])
    assert [each.tolist() for each in run(i, named["k"], listed[0]["k"])] == [[4], [4], [8.0]]


@pytest.mark.slow
def test_gradients_of_a_loop_in_a_loop_find_counters_that_are_assigned_to_themselves():
    x = data("x", 3)
    start = integer(0)
    sums = layers.array_write(layers.zeros([3], "float64"), start)
    parts = layers.array_write(data("a", 3), start)
    for name in ("b", "c"):
        start = layers.increment(start)
        layers.array_write(data(name, 3), start, array=parts)
    i, j = integer(0), integer(1)

    def add(at, x, sums):
        total = x + (layers.array_read(parts, at) + layers.array_read(sums, at))
        at = layers.increment(at, in_place=True)
        layers.array_write(total, at, array=sums)
        return at

    def outer(i, j, x, sums):
        i = add(i, x, sums)
        j, x, sums = layers.while_loop(
            lambda j, x, sums: j < 3, lambda j, x, sums: [add(j, x, sums), x, sums], [j, x, sums]
        )
        return [i, j, x, sums]

    layers.while_loop(lambda i, j, x, sums: i < 1, outer, [i, j, x, sums])
    loss = layers.mean(layers.square(layers.array_read(sums, j)))
    check_gradient(loss, {name: numbers(3, seed=at) for at, name in enumerate("xabc")}, ["x", "a", "b"])


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        (lambda: layers.ones([1], "float32"), r"While: cond must be one boolean, bool\[1\], got .*float32\[1\]"),
        (lambda: layers.less_than(layers.ones([2], "float32"), layers.ones([2], "float32")), r"must be one boolean"),
        (lambda: True, "While: cond must be a Variable, got True"),
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


def test_large_values_that_go_from_run_to_run_keep_theirs():
    x = fluid.data("x", [600, 600], "float32")
    x.stop_gradient = False
    start = layers.scale(x, 0.5)  # large enough for a place in the plan's memory
    _, h = layers.while_loop(lambda i, h: i < 3, lambda i, h: [i + 1, layers.square(h) + h], [integer(0), start])
    other = layers.scale(layers.scale(x, 3.0), 2.0)
    loss = layers.mean(h) + layers.mean(other)
    append_backward(loss)
    run(loss, h, "x@GRAD", feed={"x": numbers(600, 600, dtype="float32")}, passes=EXACT)


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


def test_a_loop_that_adds_up_to_a_constant_cuts_the_gradient_with_a_warning():
    def build(stops):
        w, total = data("w", 2), layers.fill_constant([2], "float64", 0.0)
        total.stop_gradient = stops
        body = lambda i, total: [i + 1, total + layers.square(w)]  # noqa: E731
        _, total = layers.while_loop(lambda i, total: i < 3, body, [integer(0), total])
        return layers.reduce_sum(total)

    with pytest.warns(UserWarning, match="no gradient flows through the loop made at .*test_loops.py"):
        append_backward(build(True))
    assert "w@GRAD" not in main().global_block().vars
    with fluid.program_guard(fluid.Program()), warnings.catch_warnings():
        warnings.simplefilter("error")
        check_gradient(build(False), {"w": numbers(2)})
