"""Operators that call a function of the user's, as Paddle 1.8.5 calls it where nothing else is said."""

import pickle

import numpy as np
import pytest
from both_executors import check_gradient, data, numbers
from both_executors import run as run_both

import minigraph as fluid
from minigraph import layers
from minigraph.errors import ExecutionError, NotFoundError, ProgramError, WrongTypeError
from minigraph.executor.interpreter import Interpreter

pytestmark = pytest.mark.usefixtures("new_program")


def variable(name, shape, dtype="float32"):
    return fluid.default_main_program().current_block().create_var(name=name, shape=shape, dtype=dtype)


def tanh_grad(y, dy):
    return np.array(dy) * (1 - np.square(np.array(y)))


def test_a_function_is_an_operator_with_a_gradient():
    x = data("x", 2, 3)
    y = layers.py_func(np.tanh, x, variable("y", [2, 3], "float64"), tanh_grad, skip_vars_in_backward_input=x)
    given = numbers(2, 3)
    np.testing.assert_array_equal(run_both(y, feed={"x": given})[0], np.tanh(given))
    check_gradient(layers.reduce_sum(y * y), {"x": given})


def test_functions_see_tensors_in_the_order_of_the_original():
    x, y, c = (fluid.data(name, [None, 2]) for name in "xyc")
    x.stop_gradient = y.stop_gradient = False
    calls = []

    def forward(*tensors):
        assert all(isinstance(tensor, fluid.LoDTensor) for tensor in tensors)
        calls.append([np.array(tensor).tolist() for tensor in tensors])
        a, b, _ = map(np.array, tensors)
        return a * b, (a + b).sum(1, keepdims=True)

    def backward(*tensors):
        calls.append([np.array(tensor).tolist() for tensor in tensors])
        return np.array(tensors[-1]) + 0 * np.array(tensors[0]), np.array(tensors[0]) * 3, None

    outs = [variable("o1", [-1, 2]), variable("o2", [-1, 1])]
    assert layers.py_func(forward, [x, y, c], outs, backward, skip_vars_in_backward_input=[y]) is outs
    gradients = fluid.gradients(layers.reduce_sum(outs[1]), [x, y, c])
    assert gradients[2] is None
    ops = fluid.default_main_program().global_block().ops
    (op,) = (op for op in ops if op.type == "py_func" and "x@GRAD" in op.output_arg_names)
    assert op.input("X") == ["x", "c", "o1", "o2", "o1@GRAD", "o2@GRAD"]
    assert op.output("Out") == ["x@GRAD", "y@GRAD", "@EMPTY@"]
    rows = np.array([[1, 2]], "float32")
    for engine in (fluid.Executor(), Interpreter()):
        calls.clear()
        found = engine.run(feed={"x": rows, "y": rows + 1, "c": rows}, fetch_list=[*outs, *gradients[:2]])
        assert [each.tolist() for each in found] == [[[2, 6]], [[8]], [[1, 1]], [[3, 6]]]
        # Fluid gives None for the gradient of what the targets do not use.
        backward_call = [[[1, 2]], [[1, 2]], [[2, 6]], [[8]], [[0, 0]], [[1]]]
        assert calls == [[[[1, 2]], [[2, 3]], [[1, 2]]], backward_call]


def test_a_function_runs_in_its_place_in_every_run_needed_or_not():
    x = fluid.data("x", [None])
    noted = []
    note = layers.py_func(lambda t: noted.append(("first", np.array(t).tolist())), x, None)
    assert note is None
    twice = layers.scale(x, 2.0)
    layers.py_func(lambda t: noted.append(("second", np.array(t).tolist())), twice, None)
    layers.py_func(lambda: noted.append("third"), None, None)
    unread = layers.py_func(lambda t: noted.append("fourth") or t, x, variable("unread", [-1]))
    assert unread.name == "unread"
    other = layers.scale(x, 3.0)
    expected = [("first", [1]), ("second", [2]), "third", "fourth"]
    main = fluid.default_main_program()
    for program in (main, main.clone(), main.clone(for_test=True), fluid.Program.parse(str(main))):
        for engine in (fluid.Executor(), Interpreter()):
            for _ in range(2):
                noted.clear()
                engine.run(program, feed={"x": np.ones(1, "float32")}, fetch_list=[other.name])
                assert noted == expected


def test_a_function_in_a_loop_is_called_in_every_run_of_it():
    x = data("x", 3)
    i, n = layers.fill_constant([1], "int64", 0), layers.fill_constant([1], "int64", 3)

    def body(i, value):
        made = fluid.default_main_program().current_block().create_var(name="made", shape=[3], dtype="float64")
        doubled = layers.py_func(lambda t: np.array(t) * 2, value, made, lambda t, out, d: np.array(d) * 2)
        return layers.increment(i, in_place=False), doubled

    start = x * 1.0
    start.stop_gradient = False
    _, found = layers.while_loop(lambda i, value: i < n, body, [i, start])
    given = numbers(3)
    np.testing.assert_allclose(run_both(found, feed={"x": given})[0], given * 8)
    check_gradient(layers.reduce_sum(found * found), {"x": given})


def test_what_a_function_is_given_and_gives_is_a_copy():
    kept, constant = [], np.ones(2, "float32")
    x = fluid.data("x", [2])
    y = layers.py_func(lambda t: kept.append(t) or constant, x, variable("y", [2]))
    z = layers.scale(y, 1.0, bias=5.0)
    given = np.array([1, 2], "float32")
    for _ in range(2):
        assert fluid.Executor().run(feed={"x": given}, fetch_list=[z])[0].tolist() == [6, 6]
    given[:] = 7
    assert [np.array(each).tolist() for each in kept] == [[1, 2], [1, 2]]
    assert constant.tolist() == [1, 1]


def test_without_a_backward_function_no_gradient_flows():
    x = data("x", 2)
    y = layers.py_func(np.tanh, x, variable("y", [2], "float64"))
    assert fluid.gradients(layers.reduce_sum(y), [x]) == [None]


@pytest.mark.parametrize(
    ("returned", "dtype", "expected"),
    [
        (np.array([0.1, 0.2]), "float32", np.array([0.1, 0.2], "float32")),
        (np.array([1, 2]), "float64", [1.0, 2.0]),
        (np.array([1, 2]), "int32", [1, 2]),
        ([[1.0, 2.0]], "float32", [1, 2]),  # a list of one result
        (np.array([True, False]), "bool", [True, False]),
    ],
)
def test_results_take_the_declared_type_where_that_keeps_their_values(returned, dtype, expected):
    y = layers.py_func(lambda: returned, None, variable("y", [2], dtype))
    (found,) = run_both(y)
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, expected)


def test_one_number_is_a_result_of_one_element():
    (found,) = run_both(layers.py_func(lambda: 5, None, variable("y", [1], "int64")))
    assert found.tolist() == [5]


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (None, r"returned None where float32\[2\] is needed"),
        ((np.ones(2), np.ones(2)), "must return one result, it returned 2 results"),
        ([1.0, 2.0], "must return one result, it returned 2 results"),
        (np.ones(3), r"returned float64\[3\] where float32\[2\] is needed"),
        (np.array([1, 2**40 + 1]), r"returned int64\[2\] where float32\[2\] is needed"),
        (np.array(["a", "b"]), r"returned <U1\[2\] where"),
    ],
)
def test_results_that_do_not_fit_are_errors_that_show_both(returned, message):
    def wrong():
        return returned

    y = layers.py_func(wrong, None, variable("y", [2]))
    for engine in (fluid.Executor(), Interpreter()):
        with pytest.raises(ExecutionError, match=rf"wrong {message}(.|\n)*created at .*test_py_func"):
            engine.run(fetch_list=[y])


def test_a_function_without_results_returns_nothing_and_its_errors_name_its_line():
    layers.py_func(lambda: np.ones(2), None, None)
    with pytest.raises(ExecutionError, match="must return nothing, it returned one result"):
        fluid.Executor().run()
    with fluid.program_guard(fluid.Program()):
        layers.py_func(lambda: {}["oops"], None, None)
        with pytest.raises(ExecutionError, match=r"KeyError: 'oops'(.|\n)*created at .*test_py_func") as caught:
            fluid.Executor().run()
        assert isinstance(caught.value.__cause__, KeyError)


def test_arguments_that_make_no_sense_are_refused():
    x, y = fluid.data("x", [2]), variable("y", [2])
    for arguments in ((3, x, y), (np.tanh, 3, y), (np.tanh, x, "y"), (np.tanh, x, y, 3), (np.tanh, x, y, np.tanh, 3)):
        with pytest.raises(WrongTypeError, match="py_func: "):
            layers.py_func(*arguments)
    with pytest.raises(ProgramError, match="the shape of q is not known"):
        layers.py_func(np.tanh, x, fluid.default_main_program().global_block().create_var(name="q"))
    with pytest.raises(NotFoundError, match="z, which is to be skipped, is neither in x nor in out"):
        layers.py_func(np.tanh, x, y, tanh_grad, skip_vars_in_backward_input=fluid.data("z", [2]))


def test_a_program_with_a_function_stays_in_its_process(tmp_path):
    x = fluid.data("x", [2])
    y = layers.py_func(np.tanh, x, variable("y", [2]))
    main = fluid.default_main_program()
    assert layers.py_func.registered_func(main.global_block().ops[0].attr("forward_callable_id")) is np.tanh
    with pytest.raises(ProgramError, match="a program that calls the function tanh cannot be saved"):
        main.serialize_to_string()
    with pytest.raises(ProgramError, match="cannot be saved"):
        fluid.io.save_inference_model(str(tmp_path), ["x"], [y], fluid.Executor())
    assert pickle.loads(pickle.dumps(main)).equals(main)
    foreign = fluid.Program.parse(str(main).replace("'tanh'", "'sinh'"))
    unknown = fluid.Program.parse(str(main).replace("forward_callable_id=", "forward_callable_id=1000"))
    for program in (foreign, unknown):
        with pytest.raises(ExecutionError, match="was registered in another process"):
            fluid.Executor().run(program, feed={"x": np.ones(2, "float32")}, fetch_list=["y"])
    with pytest.raises(NotFoundError, match="no registered function"):
        layers.py_func.registered_func(-1)


def test_sequences_that_a_function_makes_are_not_seen():
    def positive(x):
        kept = np.array(x)[np.array(x)[:, 0] > 0]
        found = fluid.LoDTensor()
        found.set(kept, fluid.CPUPlace())
        found.set_lod([[0, 1, len(kept)]])
        return found

    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x = fluid.data("x", [None, 2])
        out = fluid.default_main_program().current_block().create_var(name="out", shape=[-1, 2], lod_level=1)
        fluid.layers.py_func(positive, x, out)
        pooled = fluid.layers.sequence_pool(out, "sum")
        feed = {"x": np.array([[1, 2], [-3, 4], [5, 6], [7, 8]], "float32")}
        (found,) = fluid.Executor().run(feed=feed, fetch_list=[out], return_numpy=False)
        assert np.array(found).tolist() == [[1, 2], [5, 6], [7, 8]] and found.lod() == []
        with pytest.raises(ExecutionError, match="X = out has no sequences"):
            fluid.Executor().run(feed=feed, fetch_list=[pooled])
