"""Programs with sub-blocks in files: those that Paddle 1.8.5 wrote, and our own."""

import json
from pathlib import Path

import numpy as np
import pytest
from both_executors import numbers

import minigraph as fluid
from minigraph import layers
from minigraph.errors import DataError
from minigraph.executor.interpreter import Interpreter
from minigraph.io.framework_proto import ProgramDesc
from minigraph.io.wire import decode, encode
from minigraph.ir.verifier import verify
from minigraph.opdef import HINT_ATTRS

GOLDEN = Path(__file__).parents[1] / "golden"
FOLDER = GOLDEN / "io" / "control_flow"
CASES = json.loads((GOLDEN / "control_flow.json").read_text(encoding="utf-8"))


def feeds(case, run):
    fed = {name: np.array(value, case["dtypes"][name]) for name, value in case["feed"].items()}
    return fed | {name: np.array([value], "int64") for name, value in run["given"].items()}


@pytest.mark.parametrize("executor", [fluid.Executor, Interpreter])
@pytest.mark.parametrize("name", ["while_array", "cond", "lstm"])
def test_a_model_that_the_original_saved_gives_what_it_gave(name, executor):
    runner, case = executor(), CASES[name]
    with fluid.scope_guard(fluid.Scope()):
        program, fed, targets = fluid.io.load_inference_model(FOLDER / name, runner, params_filename="params")
        verify(program)
        assert program.num_blocks > 1
        for run in case["runs"]:
            feed = {key: value for key, value in feeds(case, run).items() if key in fed}
            (found,) = runner.run(program, feed=feed, fetch_list=targets)
            assert np.allclose(found.ravel(), run["found"][0]["data"], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["while_array", "cond", "lstm"])
def test_gradients_that_the_original_described_are_computed(name):
    """Its blocks of gradients have no variables for the gradients that they are given."""
    case, executor = CASES[name], fluid.Executor()
    program = fluid.io.deserialize_program((FOLDER / name / "training.pdmodel").read_bytes())
    verify(program)
    assert any(block.forward_block_idx > 0 for block in program.blocks)
    scope = fluid.Scope()
    for param, value in case["parameters"].items():
        scope.var(param).get_tensor().set(np.array(value, "float32"), fluid.CPUPlace())
    for run in case["runs"]:
        found = executor.run(program, feed=feeds(case, run), fetch_list=case["grads"], scope=scope)
        for grad, recorded in zip(found, run["found"][len(case["fetch"]) :], strict=True):
            assert np.allclose(grad.ravel(), recorded["data"], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["loop", "array", "network"])
def test_a_saved_model_has_the_blocks_that_its_targets_need(kind, tmp_path):
    main, startup, executor = fluid.Program(), fluid.Program(), fluid.Executor()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x, n = fluid.data("x", [None, 3]), fluid.data("n", [1], "int64")
        w = layers.create_parameter([3, 3], "float32", name="w")
        i, step = layers.fill_constant([1], "int64", 0), lambda h: layers.tanh(layers.mul(h, w))
        if kind == "loop":
            branch = lambda i, h: layers.cond(i < 2, lambda: step(h), lambda: h * 0.5)  # noqa: E731
            _, y = layers.while_loop(lambda i, h: i < n, lambda i, h: [i + 1, branch(i, h)], [i, x * 1.0])
        elif kind == "array":
            array, condition = layers.array_write(x, i), layers.less_than(i, n)
            with layers.While(condition).block():
                h = step(layers.array_read(array, i))
                layers.increment(i)
                layers.array_write(h, i, array)
                layers.less_than(i, n, cond=condition)
            y = layers.array_read(array, i)
        else:
            outputs, _ = layers.rnn(layers.GRUCell(4), layers.expand(layers.unsqueeze(x, [1]), [1, 5, 1]))
            y = layers.reduce_sum(outputs, dim=1) * layers.cast(n, "float32")
        unused = layers.cond(n > 0, lambda: layers.relu(x), lambda: layers.tanh(x))
        loss = layers.mean(y) + layers.mean(unused)
        fluid.optimizer.SGD(0.1).minimize(loss)
    with fluid.scope_guard(fluid.Scope()):
        executor.run(startup)
        fluid.io.save_inference_model(tmp_path, ["x", "n"], [y], executor, main)
        feed = {"x": numbers(2, 3, dtype="float32"), "n": np.array([3])}
        (expected,) = executor.run(main.clone(for_test=True), feed=feed, fetch_list=[y.name])
    with fluid.scope_guard(fluid.Scope()):
        program, names, targets = fluid.io.load_inference_model(tmp_path, executor)
        verify(program)
        assert program.num_blocks == {"loop": 4, "array": 2, "network": 2}[kind]
        assert names == ["x", "n"]
        assert not any(op.type == "relu" for block in program.blocks for op in block.ops)
        (found,) = executor.run(program, feed=feed, fetch_list=targets)
    assert found.tobytes() == expected.tobytes()


def damaged(change):
    description = decode(ProgramDesc, (FOLDER / "while_array" / "training.pdmodel").read_bytes())
    change(description)
    return encode(description)


def set_block(description, index):
    (op,) = (op for op in description.blocks[0].ops if op.type == "while")
    next(attr for attr in op.attrs if attr.name == "sub_block").block_idx = index


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: set_block(d, 0), "while runs block 0, which is no sub-block of block 0"),
        (lambda d: set_block(d, 9), "while runs block 9, which is no sub-block of block 0"),
        (lambda d: setattr(d.blocks[2], "forward_block_idx", 7), "block 2 is the gradient of block 7"),
        (lambda d: setattr(d.blocks[1], "parent_idx", 5), "block 1 in block 5 stands at place 1"),
    ],
)
def test_a_description_whose_blocks_contradict_each_other_is_refused(change, message):
    with pytest.raises(DataError, match="is no program that minigraph can run") as error:
        fluid.io.deserialize_program(damaged(change))
    assert message in str(error.value)


@pytest.mark.parametrize("name", ["while_array", "cond", "lstm"])
def test_gradients_are_described_as_the_original_does(name):
    """Blocks have the variables that its blocks have, and what its operators of control flow cannot do without."""
    main = fluid.Program()
    names = {"fluid": fluid, "layers": layers}
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        for line in CASES[name]["built_by"]:
            exec(line, names)
        fluid.backward.append_backward(names["loss"])
    ours = decode(ProgramDesc, fluid.io.serialize_program(main))
    theirs = decode(ProgramDesc, (FOLDER / name / "training.pdmodel").read_bytes())
    for block, other in zip(ours.blocks, theirs.blocks, strict=True):
        assert (block.parent_idx, block.forward_block_idx) == (other.parent_idx, other.forward_block_idx)
        assert sorted(var.name for var in block.vars) == sorted(var.name for var in other.vars)
        assert [op.type for op in block.ops] == [op.type for op in other.ops]
        for op, recorded in zip(block.ops, other.ops, strict=True):
            if any(attr.name == "sub_block" for attr in op.attrs):
                kinds = {attr.name: attr.type for attr in op.attrs}
                wanted = {attr.name: attr.type for attr in recorded.attrs if attr.name not in HINT_ATTRS}
                assert wanted.items() <= kinds.items(), op.type
    assert fluid.io.deserialize_program(fluid.io.serialize_program(main)).num_blocks == main.num_blocks


def test_a_branch_that_reads_nothing_has_the_empty_slot_that_paddle_asks_for():
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        flag = fluid.data("flag", [1], "bool")
        found = layers.cond(flag, lambda: layers.ones([2], "float32"), lambda: layers.zeros([2], "float32"))
    branches = [op for op in main.global_block().ops if op.type == "conditional_block"]
    assert [op.input("Input") for op in branches] == [[], []]
    data = fluid.io.serialize_program(main)
    described = [op for op in decode(ProgramDesc, data).blocks[0].ops if op.type == "conditional_block"]
    slots = [{slot.parameter: slot.arguments for slot in op.inputs} for op in described]
    assert [(set(each), each["Input"]) for each in slots] == [({"Cond", "Input"}, [])] * 2
    again = fluid.io.deserialize_program(data)
    for value in (True, False):
        (result,) = fluid.Executor().run(again, {"flag": np.array([value])}, [found.name])
        assert result.tolist() == [value, value]
