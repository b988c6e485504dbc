"""Branches: results and gradients of `cond`, `case`, `switch_case`, `Switch`, `IfElse`."""

import numpy as np
import pytest
from both_executors import check_gradient, data, integer, main, numbers, run, types

import minigraph as fluid
from minigraph import layers
from minigraph.backward import append_backward
from minigraph.errors import ExecutionError, OpError, ProgramError, WrongTypeError
from minigraph.executor.interpreter import Interpreter

pytestmark = pytest.mark.usefixtures("new_program")


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


def test_branches_on_data_alone_have_no_gradient_operators():
    x = data("x", 2)
    x.stop_gradient = True
    chosen = layers.cond(x[0] < 0.0, lambda: layers.tanh(x), lambda: layers.scale(x, 2.0))
    w = layers.create_parameter([2], "float64")
    ((param, _),) = append_backward(layers.reduce_sum(chosen * w))
    assert param is w
    assert "conditional_block_grad" not in types()
    assert main().num_blocks == 3


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


def test_branches_of_different_types_have_a_type_that_only_a_run_knows():
    """As in the example of `cond` in fluid's documentation, and in that of `switch_case`."""
    x, i = data("x", 1), fluid.data("i", [1], "int64")
    full = layers.fill_constant
    pair = layers.cond(
        x > 0.0,
        lambda: (full([1, 2], "int32", 1), full([2, 3], "bool", True)),
        lambda: (full([3, 4], "float32", 3), full([5], "int64", 2)),
    )
    chosen = layers.switch_case(
        i, {0: lambda: full([1, 2], "float32", 1), 1: lambda: full([2, 2], "int32", 2)}, lambda: full([3], "int32", 5)
    )
    found = run(*pair, chosen, feed={"x": np.array([1.0]), "i": np.array([1])})
    assert [(str(each.dtype), each.tolist()) for each in found] == [
        ("int32", [[1, 1]]), ("bool", [[True] * 3] * 2), ("int32", [[2, 2], [2, 2]]),
    ]  # fmt: skip
    found = run(*pair, chosen, feed={"x": np.array([-1.0]), "i": np.array([0])})
    assert [(str(each.dtype), each.shape) for each in found] == [
        ("float32", (3, 4)),
        ("int64", (5,)),
        ("float32", (1, 2)),
    ]
    twin = fluid.Program.parse(str(main()))
    assert twin.equals(main())
    for use in (lambda: pair[0] + 1, lambda: layers.relu(pair[0]), lambda: layers.concat([pair[0]], 0)):
        with pytest.raises(OpError, match="only a run knows the type of"):
            use()


def test_branches_that_do_not_fit_together_are_refused():
    x = data("x", 1)
    one = lambda: layers.ones([1], "float32")  # noqa: E731
    for true_fn, false_fn, message in [
        (one, lambda: (one(), one()), "the branches return one variable and 2 of them"),
        (lambda: [one()], lambda: [one(), one()], "the branches return 1 and 2 variables"),
        (one, lambda: None, "false_fn returns nothing, the other branch does"),
        (None, one, "true_fn returns nothing"),
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


def _fed(rows, taken, value=1.0):
    return {"x": np.full((rows, 4), value, "float32"), "taken": np.array([taken])}


def _x_and_taken():
    x, taken = fluid.data("x", [None, 4], "float32"), fluid.data("taken", [1], "bool")
    x.stop_gradient = False
    return x, taken


@pytest.mark.slow
@pytest.mark.usefixtures("new_scope")
def test_a_branch_that_does_not_fit_fails_only_where_a_run_takes_it():
    """Losses, weights and gradients are those of Paddle 1.8.5, which infers the shapes of a branch as it enters it."""
    x, taken = _x_and_taken()
    w = layers.create_parameter([4, 2], "float32", default_initializer=fluid.initializer.Constant(0.5))
    loss = layers.cond(
        taken,
        lambda: layers.reduce_sum(layers.matmul(layers.reshape(x, [3, 4]) * 2.0, w)),
        lambda: layers.reduce_sum(layers.matmul(layers.scale(x, 3.0), w)),
    )
    fluid.optimizer.SGD(0.1).minimize(loss)
    exe = fluid.Executor()
    exe.run(fluid.default_startup_program())
    expected = {
        (2, False): [[24.0, -0.1, 6.0], [-4.8, -0.7, 6.0]],
        (3, True): [[-33.6, -1.3, 6.0], [-62.4, -1.9, 6.0]],
        (3, False): [[-136.8, -2.8, 9.0], [-201.6, -3.7, 9.0]],
    }
    for (rows, taken), runs in expected.items():
        for wanted in runs:
            found = exe.run(feed=_fed(rows, taken), fetch_list=[loss, w, f"{w.name}@GRAD"])
            np.testing.assert_allclose([each.flat[-1] for each in found], wanted, rtol=1e-5)
    for rows in (2, 2, 4):
        text = rf"(?s)^reshape2: .* {rows * 4} and 12\n  X = x: float32\[{rows}, 4\]\n  created at"
        with pytest.raises(ExecutionError, match=text):
            exe.run(feed=_fed(rows, True), fetch_list=[loss])
    np.testing.assert_allclose(np.array(fluid.global_scope().find_var(w.name).get_tensor()), -3.7, rtol=1e-5)


@pytest.mark.slow
def test_of_nested_branches_any_may_not_fit():
    x, taken = _x_and_taken()
    pairs = [
        (taken, lambda: layers.reshape(x, [2, 6])),
        (layers.reduce_sum(x) > 100.0, lambda: layers.reshape(x, [6, 4]) * 5.0),
    ]
    chosen = layers.case(pairs, default=lambda: layers.concat([x, x], 0))
    (grad,) = fluid.gradients(layers.reduce_sum(layers.square(chosen)), x)
    for feed, shape, wanted in (
        (_fed(2, False), (4, 4), [1.0, 4.0]),
        (_fed(3, True), (2, 6), [1.0, 2.0]),
        (_fed(6, False, 10.0), (6, 4), [50.0, 500.0]),
    ):
        for executor in (fluid.Executor(), Interpreter()):
            found = executor.run(main(), feed=feed, fetch_list=[chosen, grad])
            assert found[0].shape == shape
            assert [each.flat[0] for each in found] == wanted  # those of Paddle 1.8.5


def test_a_loop_that_does_not_run_need_not_fit():
    x, taken = _x_and_taken()
    i, total = layers.fill_constant([1], "int64", 0), layers.fill_constant([1], "float32", 0.0)
    limit = layers.cast(taken, "int64")
    condition = layers.less_than(i, limit)
    loop = layers.While(condition)
    with loop.block():
        layers.assign(total + layers.reduce_sum(layers.reshape(x, [3, 4])), total)
        layers.increment(i, 1)
        layers.less_than(i, limit, cond=condition)
    exe = fluid.Executor()
    assert exe.run(feed=_fed(2, False), fetch_list=[total])[0] == 0
    assert exe.run(feed=_fed(3, True), fetch_list=[total])[0] == 12
    with pytest.raises(ExecutionError, match="the numbers of elements differ, 8 and 12"):
        exe.run(feed=_fed(2, True), fetch_list=[total])


def test_a_tensor_without_a_shape_takes_that_of_the_first_case_that_writes_it():
    x, taken = _x_and_taken()
    chosen = layers.create_tensor("float32")
    with layers.Switch() as switch:
        with switch.case(taken):
            layers.assign(layers.reshape(x, [3, 4]), chosen)
        with switch.default():
            layers.assign(x * 2.0, chosen)
    for rows, taken, expected in ((2, False, 2.0), (3, True, 1.0), (5, False, 2.0)):
        (found,) = fluid.Executor().run(feed=_fed(rows, taken), fetch_list=[chosen])
        np.testing.assert_array_equal(found, np.full((rows, 4), expected, "float32"))


def test_what_needs_a_branch_that_cannot_run_says_why():
    x, taken = _x_and_taken()
    chosen = layers.cond(taken, lambda: layers.reshape(x, [2, 6]), lambda: layers.reshape(x, [5, 2]))
    with pytest.raises(OpError, match=r"^reshape2: .* 8 and 12"):
        fluid.Executor().run(feed=_fed(2, True), fetch_list=[chosen * 2.0])


@pytest.mark.slow
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
    with pytest.raises(ExecutionError, match="Assign a value before any branch or loop that writes one"):
        run(-1.0, y)
    with pytest.raises(ProgramError, match="is what an operator keeps for its gradient and cannot be fetched"):
        run(1.0, block.output("Scope")[0])


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


@pytest.mark.slow
def test_rows_that_were_merged_may_be_overwritten_by_a_loop():
    """Their gradient reads the lengths of the merged rows."""
    x = data("x", -1, 2)
    first, _ = chosen_rows(x)
    total = layers.fill_constant([1], "float64", 0.0)
    total.stop_gradient = False
    _, total, _ = layers.while_loop(
        lambda step, total, rows: step < 3,
        lambda step, total, rows: [step + 1, total + layers.reduce_sum(rows), rows * 0.5],
        [layers.fill_constant([1], "int64", 0), total, first],
    )
    check_gradient(total, {"x": np.array([[1, 2], [-1, -2], [3, 4]]) / 4})


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


def test_a_conditional_block_of_the_users_own_writes_outer_variables():
    x = fluid.data("x", [2])
    x.stop_gradient = False
    out = layers.fill_constant([2], "float32", 0.5)
    out.stop_gradient = False
    small = layers.less_than(layers.reduce_sum(x), layers.fill_constant([1], "float32", 1.0))
    block = layers.control_flow.ConditionalBlock([small], is_scalar_condition=True)
    with block.block():
        layers.assign(x * x, out)
    (gradient,) = fluid.gradients([layers.reduce_sum(out)], [x])
    for given, result, slope in (([0.25, 0.5], [0.0625, 0.25], [0.5, 1]), ([3, 4], [0.5, 0.5], [0, 0])):
        found = fluid.Executor().run(feed={"x": np.array(given, "float32")}, fetch_list=[out, gradient])
        assert [each.tolist() for each in found] == [result, slope]
