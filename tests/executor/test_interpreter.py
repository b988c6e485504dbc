"""The interpreter is the specification: whatever an executor does to a program, the bits come out the same."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from pass_laws import assert_same_bits, history

import minigraph as fluid
from minigraph import layers
from minigraph.errors import ExecutionError
from minigraph.executor.interpreter import Interpreter, evaluate
from minigraph.passes import LOWERING, Pipeline
from minigraph.rewrite.random_programs.recipes import STEPS, Clip, Recipe, RecipeStep, Training, build
from minigraph.rewrite.strategies import recipes, trainings
from minigraph.runtime.place import CPUPlace

OPTIMIZERS = ("SGD", "Momentum", "Adam")
CLIPS = (Clip("value", 0.01), Clip("norm", 0.01), Clip("global", 0.01), Clip("global", 100.0))
DECAYS = (None, "L1Decay", "L2Decay")


def fixed_recipes():
    """Every kind of step in both dtypes, and every kind of update."""
    for kind in STEPS:
        yield kind, Recipe(3, 4, False, "float32", (RecipeStep(kind), RecipeStep("linear")), training=Training("SGD"))
        yield (
            f"{kind} in float64",
            Recipe(3, 4, True, "float64", (RecipeStep(kind, y=0, number=-1.5),), training=Training("SGD")),
        )
    first = RecipeStep("linear_tanh"), RecipeStep("linear_shared"), RecipeStep("linear_shared", x=1)
    network = (*first, RecipeStep("add", y=2))
    for optimizer, clip, decay in itertools.product(OPTIMIZERS, CLIPS, DECAYS):
        name = f"{optimizer} {clip.kind} {clip.threshold:g} {decay}"
        yield name, Recipe(8, 3, True, "float32", network, training=Training(optimizer, clip, decay=decay))


FIXED = dict(fixed_recipes())


LOWERED = Pipeline(tuple(each for each in LOWERING if each.name != "ShareGradients"))
"""Passes of which none fires that changes the rounding; of equal operators ShareGradients adds the gradients first."""


def lowered(place):
    return fluid.Executor(place, passes=LOWERED)


def three_steps(kind_of_executor, built, fetch):
    return history(kind_of_executor(CPUPlace()), built, fetch, steps=3)


def check(built, fetch):
    expected = three_steps(Interpreter, built, fetch)
    assert_same_bits(three_steps(lowered, built, fetch), expected)


@pytest.mark.laws
@pytest.mark.parametrize("name", FIXED)
def test_an_executor_computes_the_same_bits(name):
    built = build(FIXED[name])
    assert built.params_grads
    fetch = [built.loss.name, *(grad.name for _, grad in built.params_grads)]
    check(built, fetch)
    check(built, built.fetchable())


@pytest.mark.laws
@given(recipes(training=trainings()))
def test_an_executor_computes_the_same_bits_for_random_programs(recipe):
    built = build(recipe)
    check(built, [built.loss.name, *(grad.name for _, grad in built.params_grads)])


@pytest.mark.laws
@given(recipes(max_steps=5))
def test_an_executor_computes_the_same_bits_whatever_is_fetched(recipe):
    built = build(recipe)
    check(built, built.fetchable())


@pytest.mark.laws
@given(recipes(training=trainings(), max_steps=4))
def test_what_is_fetched_beside_it_does_not_change_a_value(recipe):
    built = build(recipe)
    alone = three_steps(lowered, built, [built.loss.name])
    together = three_steps(lowered, built, built.fetchable())
    assert_same_bits({key: together[key] for key in alone}, alone)


def test_bits_are_compared_as_bits():
    with pytest.raises(AssertionError):
        assert_same_bits({"a": np.array([0.0])}, {"a": np.array([-0.0])})
    with pytest.raises(AssertionError):
        assert_same_bits({"a": np.array([1.0], "float32")}, {"a": np.array([1.0], "float64")})
    assert_same_bits({"a": np.array([np.nan])}, {"a": np.array([np.nan])})


# What evaluating one operator means


@pytest.fixture
def ops():
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x = fluid.data("x", [2, 3])
        y = fluid.data("y", [2, 3])
        layers.elementwise_sub(x, y)
        layers.sums([x, y, x])
        layers.topk(x, k=2)
        layers.clip(x, min=-1.0, max=1.0)
        yield {op.type: op for op in fluid.default_main_program().global_block().ops}


VALUES = {"x": np.array([[1, 5, 3], [4, 0, 2]], "float32"), "y": np.full((2, 3), 2.0, "float32")}


def value_of(op):
    return evaluate(op, VALUES.__getitem__, CPUPlace(), None)


def test_arguments_go_by_slot_order(ops):
    ((_, value),) = value_of(ops["elementwise_sub"]).items()
    np.testing.assert_array_equal(value, VALUES["x"] - 2)


def test_a_slot_of_several_variables_is_a_list(ops):
    ((_, value),) = value_of(ops["sum"]).items()
    np.testing.assert_array_equal(value, 2 * VALUES["x"] + 2)


def test_results_go_by_output_slot(ops):
    op = ops["top_k"]
    values = value_of(op)
    np.testing.assert_array_equal(values[op.output("Out")[0]], [[5, 3], [4, 2]])
    np.testing.assert_array_equal(values[op.output("Indices")[0]], [[1, 2], [0, 2]])


def test_a_slot_left_out_is_none_and_attributes_have_their_defaults(ops):
    ((_, value),) = value_of(ops["clip"]).items()
    np.testing.assert_array_equal(value, np.clip(VALUES["x"], -1, 1))


def test_what_is_not_there_is_an_error_that_names_it(ops):
    with pytest.raises(ExecutionError, match="x is neither fed nor computed nor in the scope"):
        Interpreter().run(ops["clip"].block.program, fetch_list=ops["clip"].output("Out"))


def test_a_failing_kernel_is_reported_like_an_executor_does():
    with fluid.program_guard(fluid.Program()):
        x, label = fluid.data("x", [2, 3]), fluid.data("label", [2, 1], "int64")
        loss = layers.cross_entropy(layers.softmax(x), label)
        feed = {"x": VALUES["x"], "label": np.array([[0], [9]])}
        errors = []
        for kind in (fluid.Executor, Interpreter):
            with pytest.raises(ExecutionError) as caught:
                kind().run(feed=feed, fetch_list=[loss])
            errors.append(str(caught.value))
    assert errors[0] == errors[1]
    assert "loss = layers.cross_entropy(layers.softmax(x), label)" in errors[0]


def test_the_specification_inherits_nothing_from_the_executor():
    assert not issubclass(Interpreter, fluid.Executor)
    assert not issubclass(fluid.Executor, Interpreter)


def test_a_value_that_a_branch_does_not_make_is_named():
    main = fluid.Program()
    with fluid.program_guard(main):
        x, flag = fluid.data("x", [2]), fluid.data("flag", [1], "bool")
        y = layers.cond(flag, lambda: layers.relu(layers.scale(x, 2.0)), lambda: layers.tanh(x))
    block = main.block(1)
    made = block.ops[0].output("Out")[0]
    block.remove(block.ops[0])
    feed = {"x": np.ones(2, "float32"), "flag": np.array([True])}
    with pytest.raises(ExecutionError, match=f"relu: nothing computes {made} in its block before it is read"):
        Interpreter().run(main, feed=feed, fetch_list=[y])
