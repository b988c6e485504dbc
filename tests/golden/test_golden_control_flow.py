"""Programs with branches, loops and recurrent networks give what Paddle 1.8.5 gave, from the same operators."""

import json
from pathlib import Path

import numpy as np
import pytest

import minigraph as fluid
from minigraph.executor.interpreter import Interpreter
from minigraph.ir.verifier import verify

pytestmark = pytest.mark.numbers

CASES = json.loads((Path(__file__).parent / "control_flow.json").read_text(encoding="utf-8"))


def build(case):
    """The program, and the names of what was recorded."""
    main, startup = fluid.Program(), fluid.Program()
    names = {"fluid": fluid, "layers": fluid.layers}
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        for line in case["built_by"]:
            exec(line, names)
        if case["grads"]:
            fluid.backward.append_backward(names["loss"])
    verify(main)
    return main, startup, [names[each].name for each in case["fetch"]] + case["grads"]


@pytest.mark.parametrize("executor", [fluid.Executor, Interpreter])
@pytest.mark.parametrize("name", CASES)
def test_results_and_gradients_are_those_of_the_original(name, executor):
    case = CASES[name]
    main, startup, fetch = build(case)
    scope, runner = fluid.Scope(), executor()
    runner.run(startup, scope=scope)
    for param, value in case["parameters"].items():
        scope.find_var(param).get_tensor().set(np.array(value, "float32"), fluid.CPUPlace())
    fed = {name: np.array(value, case["dtypes"][name]) for name, value in case["feed"].items()}
    for run in case["runs"]:
        given = {name: np.array([value], "int64") for name, value in run["given"].items()}
        results = runner.run(main, feed={**fed, **given}, fetch_list=fetch, scope=scope)
        for each, found, recorded in zip(fetch, results, run["found"], strict=True):
            expected = np.array(recorded["data"], recorded["dtype"]).reshape(recorded["shape"])
            assert (found.shape, str(found.dtype)) == (expected.shape, recorded["dtype"]), each
            assert np.allclose(found, expected, rtol=1e-5, atol=1e-6), (each, found, expected)


@pytest.mark.parametrize("name", CASES)
def test_each_block_has_the_operators_of_the_original(name):
    main, _, _ = build(CASES[name])
    assert [[op.type for op in block.ops] for block in main.blocks] == CASES[name]["operators"]
