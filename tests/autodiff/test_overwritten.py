"""Straight-line programs that write a variable several times."""

import json
import re

import golden_arrays
import numpy as np
import pytest
from golden_overwriting import CASES, FOLDER, SHAPE, STARTS, agree, build, central_differences, gradients, run

import minigraph as fluid
from minigraph import layers
from minigraph.errors import VerifyError
from minigraph.executor.interpreter import Interpreter
from minigraph.ir.verifier import verify
from minigraph.passes import Recompute

OPERATORS = json.loads((FOLDER / "operators.json").read_text(encoding="utf-8"))
"""By case; None where the original does not run, or its gradients are not those of the mathematics."""

OTHER_OPERATORS = {
    "incremented": "the gradient of increment is a scale",
    "increment_that_is_read_before": "the gradient of increment is a scale",
    "switch_over_a_constant": "what a branch may leave as it is has a gradient",
    "array_of_two": "read_from_array has an output Rest",
}
"""Cases with the right numbers from other operators than the original's, as all programs with these have them."""


@pytest.fixture(scope="module")
def recorded():
    return golden_arrays.by_case(FOLDER, CASES)


def both(program, startup, fetch, starts=STARTS):
    """Results of the interpreter, which an executor must give too."""
    verify(program)
    planned, stepwise = (run(fluid, each(), program, startup, fetch, starts) for each in (fluid.Executor, Interpreter))
    for a, b in zip(planned, stepwise, strict=True):
        assert a.tobytes() == b.tobytes()
    return stepwise


def values(found):
    """The names and the variables of the gradients that there are."""
    return {name: grad for name, grad in found.items() if grad is not None}


MATHEMATICAL = [name for name in CASES if not name.startswith("rows_scattered")]
"""`scatter` passes the gradient of replaced rows on, as in fluid."""


@pytest.mark.laws
@pytest.mark.parametrize("name", MATHEMATICAL)
def test_gradients_are_those_of_the_central_difference(name):
    main, startup, _, found = build(fluid, name)
    there = values(found)
    grads = both(main, startup, list(there.values()))
    assert agree(dict(zip(there, grads, strict=True)), central_differences(fluid, Interpreter(), name))


@pytest.mark.parametrize("name", [name for name, lines in OPERATORS.items() if lines is not None])
def test_where_the_original_is_right_its_numbers_and_operators_are_kept(name, recorded):
    found, lines = gradients(fluid, fluid.Executor(), name)
    # The parts of a sum are numbered otherwise where a value before is differentiated.
    ours, theirs = ([re.sub("@RENAME@block0@[0-9]+", "", line) for line in each] for each in (lines, OPERATORS[name]))
    assert (ours == theirs) is (name not in OTHER_OPERATORS)
    assert found.keys() == recorded[name].keys()
    for each, value in recorded[name].items():
        np.testing.assert_allclose(found[each], value, rtol=1e-9, atol=1e-12, err_msg=each)


def test_the_original_is_right_in_more_than_thirty_cases_and_wrong_in_others():
    assert OPERATORS.keys() == CASES.keys()
    right = [name for name, lines in OPERATORS.items() if lines is not None]
    assert 30 < len(right) < len(OPERATORS) - 20


def penalty(name, differentiates):
    """A case's program with a penalty on its gradients, and the gradients of that."""
    main, startup, loss, first = build(fluid, name)
    with fluid.program_guard(main, startup), fluid.unique_name.guard("second_"):
        squares = [layers.reduce_sum(layers.square(grad)) for grad in values(first).values()]
        found = layers.sums([*squares, layers.square(loss)])
        wanted = [main.global_block().var(each) for each in STARTS]
        second = fluid.gradients(found, wanted) if differentiates else []
    return main, startup, found, values(dict(zip(STARTS, second, strict=False)))


@pytest.mark.laws
@pytest.mark.parametrize("name", MATHEMATICAL)
def test_gradients_of_gradients_are_those_of_the_central_difference(name):
    main, startup, total, _ = penalty(name, differentiates=False)
    random, executor = np.random.default_rng(3), fluid.Executor()
    direction = {each: random.standard_normal(SHAPE) for each in STARTS}
    ends = []
    for step in (1e-5, -1e-5):
        moved = {each: value + step * direction[each] for each, value in STARTS.items()}
        ends.append(run(fluid, executor, main, startup, [total], moved)[0].item())
    main, startup, _, second = penalty(name, differentiates=True)
    grads = both(main, startup, list(second.values()))
    slope = sum(np.vdot(grad, direction[each]) for each, grad in zip(second, grads, strict=True))
    np.testing.assert_allclose(slope, (ends[0] - ends[1]) / 2e-5, rtol=1e-5, atol=1e-7)


@pytest.mark.slow
def test_a_gradient_of_a_gradient_finds_what_a_loss_has_read():
    """The gradients of these losses do not read X, so that theirs look for it."""

    def loss_of(x, label, target, overwrites):
        h = layers.tanh(x)
        loss, softmax = layers.softmax_with_cross_entropy(h, label, return_softmax=True)
        found = layers.reduce_sum(loss) + layers.reduce_sum(layers.smooth_l1(h, target))
        other = layers.exp(x)
        if overwrites:
            layers.assign(other, softmax)
            other = layers.assign(other, h)
        return found + layers.reduce_sum(other)

    found = []
    for overwrites in (False, True):
        with fluid.program_guard(fluid.Program(), fluid.Program()):
            x, target = fluid.data("x", SHAPE, "float64"), fluid.data("target", SHAPE, "float64")
            x.stop_gradient = False
            loss = loss_of(x, fluid.data("label", [2, 1], "int64"), target, overwrites)
            (first,) = fluid.gradients(loss, x)
            (second,) = fluid.gradients(layers.reduce_sum(layers.square(first)), x)
            verify(loss.block.program)
            feed = {"x": STARTS["w"], "target": STARTS["y"], "label": np.array([[1], [2]])}
            found.append(fluid.Executor().run(feed=feed, fetch_list=[first, second]))
    for plain, overwritten in zip(*found, strict=True):
        np.testing.assert_allclose(overwritten, plain, rtol=1e-12)


# What is done with such programs


def trained(name, optimizer):
    main, startup, loss, _ = build(fluid, name, differentiates=False)
    with fluid.program_guard(main, startup), fluid.unique_name.guard("train"):
        _, pairs = optimizer.minimize(loss)
    return main, startup, loss, pairs


LEARNING = [
    "running_product", "read_before_and_after", "multiplied_onto_itself", "assigned_from_what_it_made",
    "statistic_multiplied_before_it_moves", "branch_reads_what_is_overwritten", "exponential_of_a_square_in_place",
    "reshaped_in_place", "parameter_read_before_and_after",
]  # fmt: skip


def sgd():
    return fluid.optimizer.SGD(0.1, grad_clip=fluid.clip.GradientClipByGlobalNorm(0.5))


@pytest.mark.slow
@pytest.mark.parametrize("name", LEARNING)
def test_updates_are_those_by_the_clipped_slope(name):
    main, startup, _, ((param, grad),) = trained(name, sgd())
    plain, start, _, _ = build(fluid, name, differentiates=False)
    (before,) = run(fluid, Interpreter(), plain, start, ["w"], STARTS)
    slope = central_differences(fluid, Interpreter(), name)["w"]
    clipped = slope * min(1.0, 0.5 / np.linalg.norm(slope))
    assert param.name == "w"
    assert np.allclose(both(main, startup, [grad])[0], slope, rtol=1e-6)
    assert np.allclose(both(main, startup, ["w"])[0], before - 0.1 * clipped, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", LEARNING)
def test_copies_texts_and_files_of_such_programs_compute_the_same(name, tmp_path):
    main, startup, loss, _ = trained(name, sgd())
    fetch = [loss.name, "w"]
    expected = both(main, startup, fetch)
    for again in (main.clone(), fluid.Program.parse(str(main))):
        assert str(again) == str(main)
        for found, known in zip(both(again, startup, fetch), expected, strict=True):
            assert found.tobytes() == known.tobytes()
    forward = main.clone(for_test=True)
    assert both(forward, startup, [loss.name])[0].tobytes() == expected[0].tobytes()
    executor, scope = fluid.Executor(), fluid.Scope()
    with fluid.scope_guard(scope):
        executor.run(startup)
        scope.find_var("w").get_tensor().set(STARTS["w"])
        target = main.global_block().var(loss.name)
        fluid.io.save_inference_model(str(tmp_path), ["x", "y"], [target], executor, main)
    with fluid.scope_guard(fluid.Scope()):
        program, feeds, (fetched,) = fluid.io.load_inference_model(str(tmp_path), executor)
        (found,) = executor.run(program, feed={each: STARTS[each] for each in feeds}, fetch_list=[fetched])
    assert found.tobytes() == expected[0].tobytes()
    assert "KEPT" not in str(program)


def test_forward_results_of_such_programs_are_computed_again():
    """What is overwritten is kept, and the rest is repeated."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x, y = (fluid.data(each, SHAPE, "float64") for each in "xy")
        w = layers.create_parameter(SHAPE, "float64", "w")
        h = layers.tanh(layers.exp(x * w))
        checkpoint = layers.square(h)
        layers.assign(layers.exp(layers.tanh(checkpoint)) * y, h)
        loss = layers.reduce_sum(layers.square(h) * checkpoint)
        ((_, grad),) = fluid.append_backward(loss)
    fetch = [loss.name, grad.name]
    expected = both(main, startup, fetch)
    again = Recompute((checkpoint.name,))(main)
    assert len(again.global_block().ops) > len(main.global_block().ops)
    for found, known in zip(both(again, startup, fetch), expected, strict=True):
        assert found.tobytes() == known.tobytes()


def test_a_parameter_that_is_overwritten_before_it_is_read_has_no_gradient():
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x = fluid.data("x", SHAPE)
        w = layers.create_parameter(SHAPE, "float32", "w")
        layers.assign(layers.tanh(x), w)
        assert fluid.append_backward(layers.reduce_sum(w * x)) == []


def test_a_value_is_copied_once_and_only_where_it_is_needed():
    def copies(program):
        return [op for op in program.global_block().ops if "KEPT" in str(op.output_arg_names)]

    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x = fluid.data("x", SHAPE)
        x.stop_gradient = False
        h = layers.exp(x)
        out = layers.square(h) + layers.sin(h)
        layers.assign(x, h)
        fluid.gradients(layers.reduce_sum(out * h), x)
        assert len(copies(out.block.program)) == 1
    assert not copies(build(fluid, "added_onto_itself")[0])


def test_a_variable_that_changes_its_shape_is_verified():
    main, _, _, _ = build(fluid, "reshaped_in_place")
    verify(main)
    var = main.global_block().var("elementwise_mul_0.tmp_0")
    var.tensor_type = var.tensor_type.with_shape((2, 2))
    with pytest.raises(VerifyError, match=r"elementwise_mul_0.tmp_0 is declared float64\[2, 2\] but is"):
        verify(main)
