"""Operators ``feed`` and ``fetch`` in programs, as scripts append them that save models by themselves."""

import numpy as np
import pytest

import minigraph as fluid
from minigraph.errors import ProgramError
from minigraph.types import VarKind

CPU = fluid.CPUPlace()


@pytest.fixture
def model():
    """A network with its loss, its program, and an executor that has run the startup program."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.scope_guard(fluid.Scope()), fluid.unique_name.guard():
        x, label = fluid.data("x", [None, 4]), fluid.data("label", [None, 2])
        y = fluid.layers.dropout(fluid.layers.fc(x, 2, param_attr=fluid.initializer.Constant(0.5)), 0.5)
        loss = fluid.layers.mean(fluid.layers.square_error_cost(y, label))
        fluid.optimizer.SGD(0.1).minimize(loss)
        exe = fluid.Executor(CPU)
        exe.run(startup)
        yield main, y, exe


def saved_by_hand(main, y):
    """The steps of fluid's save_inference_model, as tools for fluid copy them."""
    program = main.clone()
    for op in program.global_block().ops:
        op.desc.set_is_target(False)
    program.desc.flush()
    program = program._prune_with_input(feeded_var_names=["x"], targets=[y])._inference_optimize(prune_read_op=True)
    fluid.io.prepend_feed_ops(program, ["x"])
    fluid.io.append_fetch_ops(program, [y.name])
    return program


def test_a_model_saved_by_hand_is_run_and_read(model):
    main, y, exe = model
    program = saved_by_hand(main, y)
    assert [op.type for op in program.global_block().ops] == ["feed", "mul", "elementwise_add", "dropout", "fetch"]
    assert program.global_block().ops[3].attr("is_test") is True
    feed = {"x": np.ones((1, 4), "float32")}
    (expected,) = exe.run(
        main.clone(for_test=True), feed={**feed, "label": np.zeros((1, 2), "float32")}, fetch_list=[y]
    )
    np.testing.assert_array_equal(exe.run(program, feed=feed, fetch_list=[y.name])[0], expected)
    np.testing.assert_array_equal(fluid.Interpreter().run(program, feed=feed, fetch_list=[y.name])[0], expected)
    read = fluid.Program.parse_from_string(program.desc.serialize_to_string())
    assert [op.type for op in read.global_block().ops] == ["mul", "elementwise_add", "dropout"]


def test_programs_with_them_are_copied_printed_and_verified(model):
    program = saved_by_hand(*model[:2])
    assert fluid.Program.parse(str(program)).equals(program) and program.clone().equals(program)
    fluid.verify(program)
    block = program.global_block()
    assert (block.var("feed").type, block.var("fetch").type) == (VarKind.FEED_MINIBATCH, VarKind.FETCH_LIST)
    assert block.var("feed").type is fluid.core.VarDesc.VarType.FEED_MINIBATCH
    assert {"feed", "fetch"}.isdisjoint(var.name for var in fluid.io.get_program_persistable_vars(program))


def test_what_is_not_fed_is_an_error_and_other_operators_take_no_list(model):
    main, y, exe = model
    program = saved_by_hand(main, y)
    with pytest.raises(fluid.errors.FeedError, match="x is not fed"):
        exe.run(program, fetch_list=[y.name])
    with fluid.program_guard(program), pytest.raises(fluid.errors.WrongTypeError, match="relu"):
        fluid.layers.relu(program.global_block().var("feed"))


def test_a_variable_of_the_name_is_refused(model):
    main = model[0]
    main.global_block().create_var(name="feed", shape=[1], dtype="float32")
    with pytest.raises(ProgramError, match="a program with a variable 'feed' cannot be saved as a model"):
        fluid.io.prepend_feed_ops(main, ["x"])
