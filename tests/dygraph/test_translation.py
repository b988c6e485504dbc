"""Functions of the imperative mode as programs: declarative and ProgramTranslator."""

import numpy as np
import pytest

import minigraph as fluid
from minigraph import dygraph, layers
from minigraph.errors import ProgramError, WrongTypeError

X = np.array([[1.0, -2.0]], "float32")


class Net(dygraph.Layer):
    def __init__(self):
        super().__init__()
        self.linear = dygraph.Linear(2, 2)

    @dygraph.declarative
    def forward(self, x, factor=2.0):
        return self.linear(x) * factor


@dygraph.declarative
def positive(x):
    x = dygraph.to_variable(x)
    if layers.mean(x) > 0:
        return x * 2.0
    return x - 1.0


@pytest.fixture(autouse=True)
def translator():
    with dygraph.guard():
        yield dygraph.ProgramTranslator()
    dygraph.ProgramTranslator().enable(True)


def test_a_decorated_function_computes_as_python_says():
    assert positive(X).numpy().tolist() == [[0, -3]]
    assert positive(-X).numpy().tolist() == [[-2, 4]]


def test_gradients_flow_through_a_decorated_method():
    net = Net()
    layers.reduce_sum(net(X)).backward()
    np.testing.assert_array_equal(net.linear.weight.gradient(), [[2, 2], [-4, -4]])


def test_a_function_has_a_program(translator):
    assert translator is dygraph.ProgramTranslator.get_instance()
    net = Net()
    main, startup, inputs, outputs = translator.get_program(net.forward, X)
    assert [op.type for op in main.global_block().ops] == ["matmul", "elementwise_add", "scale"]
    executor, scope = fluid.Executor(), fluid.Scope()
    executor.run(startup, scope=scope)
    (found,) = executor.run(main, {inputs[0].name: X}, [outputs[0]], scope=scope)
    np.testing.assert_array_equal(found, net(X).numpy())
    np.testing.assert_array_equal(translator.get_output(net, X).numpy(), found)


def test_a_value_that_decides_is_refused_where_a_program_is_wanted(translator):
    with pytest.raises(ProgramError, match=r"(?s)decides what a function does.*test_translation.*layers\.cond"):
        translator.get_program(positive, X)
    assert "if layers.mean(x) > 0" in translator.get_code(positive)


def test_a_function_is_called_on_variables(translator):
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x = fluid.data("x", [None, 2])
        doubled = translator.get_func(lambda x: x * 2.0)(x)
        with pytest.raises(ProgramError, match="not known while the program is built"):
            if doubled > 1.0:
                pass
        assert [op.type for op in translator.get_program(lambda x: x * 2.0, X)[0].global_block().ops] == ["scale"]
    translator.enable(False)
    with pytest.raises(WrongTypeError, match="must be a Variable, got ndarray"):
        Net()(X)


def test_the_function_that_was_called_last_is_saved(translator, tmp_path):
    net = Net()
    expected = net(X, factor=3.0).numpy()
    translator.save_inference_model(str(tmp_path))
    with fluid.scope_guard(fluid.Scope()):
        executor = fluid.Executor()
        program, feeds, fetches = fluid.io.load_inference_model(str(tmp_path), executor)
        np.testing.assert_allclose(executor.run(program, {feeds[0]: X}, fetches)[0], expected, rtol=1e-6)


def test_the_cache_gives_the_program_of_the_last_call(translator):
    dygraph.ProgramTranslator.reset()
    with pytest.raises(ProgramError, match="no declarative function was called yet"):
        translator.get_program_cache().last()
    net = Net()
    net(X)
    _, (program, _) = translator.get_program_cache().last()
    assert [op.type for op in program.main_program.global_block().ops] == ["matmul", "elementwise_add", "scale"]
    assert [var.shape for var in program.inputs + program.outputs] == [(-1, 2), (-1, 2)]
