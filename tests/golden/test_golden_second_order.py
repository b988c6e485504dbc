"""Programs that are differentiated twice: the operators, names and values that Paddle 1.8.5 has for them."""

import json
from pathlib import Path

import numpy as np
import pytest
from golden_programs import operator_lines

import minigraph as fluid

pytestmark = pytest.mark.numbers

CASES = json.loads((Path(__file__).parent / "second_order" / "programs.json").read_text(encoding="utf-8"))


def numbers(*shape):
    """Numbers between 0.4 and 1.6, as recorded with."""
    count = int(np.prod(shape))
    return (0.4 + (np.arange(count) * 0.618) % 1.2).astype("float32").reshape(shape)


def build(lines):
    main, startup = fluid.Program(), fluid.Program()
    names = {"fluid": fluid, "layers": fluid.layers, "numbers": numbers, "main": main}
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        exec("\n".join(lines), names)
    fluid.verify(main)
    return main, startup


@pytest.mark.parametrize("name", CASES)
def test_the_operators_are_those_of_the_original(name):
    main, _ = build(CASES[name]["built_by"])
    assert operator_lines(main) == CASES[name]["operators"]


@pytest.mark.parametrize("executor", [fluid.Executor, fluid.Interpreter])
@pytest.mark.parametrize("name", CASES)
def test_the_values_are_those_of_the_original(name, executor):
    main, startup = build(CASES[name]["built_by"])
    scope, runner = fluid.Scope(), executor()
    runner.run(startup, scope=scope)
    feed = {var.name: numbers(*var.shape) for var in main.global_block().vars.values() if var.is_data}
    results = CASES[name]["results"]
    for key, value in zip(results, runner.run(main, feed, list(results), scope=scope), strict=True):
        shape, expected = results[key]
        assert list(value.shape) == shape, key
        np.testing.assert_allclose(value.reshape(-1), expected, rtol=2e-5, atol=1e-5, err_msg=key)


def test_every_operator_that_the_original_has_for_second_gradients_is_recorded():
    found = {line.split()[0] for case in CASES.values() for line in case["operators"]}
    ours = {each.type for each in fluid.opdef.all_definitions() if each.type.endswith("_grad_grad")}
    assert ours - found == {"pool2d_grad_grad", "pool3d_grad_grad"}, "which is minigraph's own"


OPERANDS = {
    "mul": ({"X": (2, 3), "Y": (3, 4)}, "Out"),
    "elementwise_mul": ({"X": (2, 3), "Y": (2, 3)}, "Out"),
    "elementwise_div": ({"X": (2, 3), "Y": (3,)}, "Out"),
    "conv2d": ({"Input": (2, 2, 4, 3), "Filter": (3, 2, 2, 2)}, "Output"),
    "instance_norm": ({"X": (2, 3, 4), "Scale": (3,), "Bias": (3,)}, "Y"),
}


def check_second_gradient(op, wanted, stopped=()):
    """Differentiate the cube of what `op` computes twice by the operand `wanted`, and compare with a difference."""
    operands, result = OPERANDS[op]
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        given = {slot: fluid.data(slot, shape, "float64") for slot, shape in operands.items()}
        for slot, var in given.items():
            var.stop_gradient = slot in stopped
        block = main.global_block()
        made = {slot.name: block.create_var() for slot in fluid.opdef.definition_of(op).outputs}
        block.append_op(op, given, made)
        y = made[result]
        cube = fluid.layers.elementwise_mul(fluid.layers.square(y), y)
        (first,) = fluid.gradients(cube, given[wanted])
        weight = fluid.data("weight", operands[wanted], "float64")
        (second,) = fluid.gradients(first, given[wanted], weight)
    fluid.verify(main)
    rng, executor = np.random.default_rng(1), fluid.Executor()
    feed = {slot: rng.uniform(0.5, 1.5, shape) for slot, shape in operands.items()}
    feed["weight"] = rng.uniform(-1, 1, operands[wanted])
    (found,) = executor.run(main, feed, [second])
    step = 1e-5 * rng.uniform(-1, 1, operands[wanted])
    ends = [executor.run(main, {**feed, wanted: feed[wanted] + sign * step}, [first])[0] for sign in (1, -1)]
    np.testing.assert_allclose((found * step).sum(), ((ends[0] - ends[1]) * feed["weight"]).sum() / 2, rtol=1e-6)
    return [each.type for each in main.global_block().ops]


@pytest.mark.parametrize(("op", "wanted"), [(op, slot) for op, (slots, _) in OPERANDS.items() for slot in slots])
def test_what_no_gradient_flows_into_counts_as_zero(op, wanted):
    assert f"{op}_grad_grad" in check_second_gradient(op, wanted)


@pytest.mark.parametrize(("op", "wanted"), [(op, slot) for op, (slots, _) in OPERANDS.items() for slot in slots])
def test_an_operand_without_a_gradient_does_not_matter(op, wanted):
    check_second_gradient(op, wanted, stopped=OPERANDS[op][0].keys() - {wanted})


def test_what_belongs_to_x_and_to_the_result_has_one_shape():
    block = fluid.Program().global_block()
    x, d = (block.create_var(name=name, shape=shape, dtype="float32") for name, shape in (("x", [1, 1]), ("d", [1])))
    with pytest.raises(fluid.errors.OpError, match=r"must have equal shapes, got \[1, 1\] and \[1\]"):
        block.append_op("square_grad_grad", {"X": x, "DOut": d, "DDX": x}, {"DDOut": block.create_var(name="y")})


@pytest.mark.parametrize("op", ["relu", "leaky_relu"])
def test_what_flows_into_a_rectifier_has_the_shape_of_its_result(op):
    block = fluid.Program().global_block()
    out, d = (block.create_var(name=n, shape=shape, dtype="float32") for n, shape in (("out", [1, 1]), ("d", [2, 1])))
    with pytest.raises(fluid.errors.OpError, match=r"must have equal shapes, got \[2, 1\] and \[1, 1\]"):
        block.append_op(f"{op}_grad_grad", {"Out": out, "DDX": d}, {"DDOut": block.create_var(name="y")})
