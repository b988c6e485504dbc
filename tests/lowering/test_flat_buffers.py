"""Parameters, gradients and states of an update lie side by side, and nobody can tell but by the time it takes."""

import numpy as np
import pytest
from networks import CLIPS, OPTIMIZERS, Network
from pass_laws import assert_same_bits

import minigraph as fluid
from minigraph import layers
from minigraph.executor.interpreter import Interpreter
from minigraph.runtime.place import CPUPlace


@pytest.mark.laws
@pytest.mark.parametrize("clip", CLIPS)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_training_gives_the_bits_of_the_interpreter(optimizer, clip):
    network = Network(optimizer, clip)
    executor = fluid.Executor()
    assert_same_bits(network.run(executor, network.scope()), network.run(Interpreter(), network.scope()))
    sources = network.plan(executor).compiled.source
    # A descent along gradients that are clipped by value is a group of elementwise operators.
    assert ("merged_elementwise" if (optimizer, clip) == ("sgd", "value") else f"merged_{optimizer}") in sources
    assert network.plan(executor).buffers.flat.views


@pytest.mark.parametrize("fetched", ["parameters", "gradients", "clipped"])
def test_what_is_fetched_is_the_callers_own(fetched):
    network = Network()
    names = {
        "parameters": [param.name for param, _ in network.params_grads],
        "gradients": [f"{param.name}@GRAD" for param, _ in network.params_grads],
        "clipped": [grad.name for _, grad in network.params_grads],
    }[fetched]
    executor, scope = fluid.Executor(), network.scope()
    expected = network.run(Interpreter(), network.scope(), names)
    assert_same_bits(network.run(executor, scope, names), expected)
    kept = executor.run(network.main, network.feed, names, scope=scope)
    copies = [each.copy() for each in kept]
    for array in executor.run(network.main, network.feed, names, scope=scope):
        array.fill(7)
    assert all(np.array_equal(a, b) for a, b in zip(kept, copies, strict=True))
    assert not any(np.any(np.array(scope.find_var(p.name).get_tensor()) == 7) for p, _ in network.params_grads)


def parameters_lie_together(network, scope):
    arrays = [scope.find_var(param.name).value for param, _ in network.params_grads]
    starts = sorted(array.ctypes.data for array in arrays)
    ends = sorted(array.ctypes.data + array.nbytes for array in arrays)
    return starts[1:] == ends[:-1]


@pytest.mark.slow
def test_arrays_that_are_set_are_brought_together_again():
    network = Network()
    executor, scope, other = fluid.Executor(), network.scope(), network.scope()
    network.run(executor, scope)
    network.run(Interpreter(), other)
    assert parameters_lie_together(network, scope)
    name = network.params_grads[1][0].name
    given = np.asfortranarray(np.random.default_rng(1).standard_normal(network.params_grads[1][0].shape))
    for each in (scope, other):
        each.find_var(name).get_tensor().set(given.astype("float32"), CPUPlace())
    assert not parameters_lie_together(network, scope)
    assert_same_bits(network.run(executor, scope), network.run(Interpreter(), other))
    assert parameters_lie_together(network, scope)


def test_powers_of_the_betas_may_differ():
    network = Network("adam")
    scopes = network.scope(), network.scope()
    for scope in scopes:
        for i, name in enumerate(n for n in scope.local_var_names() if "beta1_pow" in n):
            scope.find_var(name).get_tensor().set(np.array([0.5 + 0.1 * i], "float32"), CPUPlace())
    found, expected = (network.run(e, s) for e, s in zip((fluid.Executor(), Interpreter()), scopes, strict=True))
    assert_same_bits(found, expected)


def test_programs_that_share_parameters_see_each_others_values():
    network = Network()
    executor, scope = fluid.Executor(), network.scope()
    for _ in range(3):
        network.run(executor, scope, steps=1)
        (found,) = executor.run(network.test, network.feed, [network.output], scope=scope)
        (expected,) = Interpreter().run(network.test, network.feed, [network.output], scope=scope)
        assert found.tobytes() == expected.tobytes()


def test_a_program_for_half_of_the_parameters_takes_turns_with_one_for_all():
    network, half = Network(), fluid.Program()
    wide = [param for param, _ in network.params_grads if len(param.shape) == 2]
    with fluid.program_guard(half, fluid.Program()):
        rate = layers.create_global_var([1], 0.5, "float32", persistable=True, name="rate")
        for param in reversed(wide):
            w = half.global_block().create_parameter(name=param.name, shape=param.shape, dtype="float32")
            grad = layers.scale(w, 1.0)
            half.global_block().append_op("sgd", {"Param": w, "Grad": grad, "LearningRate": rate}, {"ParamOut": w})
    results = []
    for executor in (fluid.Executor(), Interpreter()):
        scope = network.scope()
        scope.var("rate").get_tensor().set(np.array([0.5], "float32"), CPUPlace())
        for _ in range(3):
            network.run(executor, scope, steps=1)
            executor.run(half, scope=scope)
        results.append(network.run(executor, scope, steps=1))
    assert_same_bits(*results)


@pytest.mark.parametrize("factor", [1e-30, 1e18, 1e30, np.nan, np.inf])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_extreme_gradients_are_clipped_as_ever(factor, dtype):
    network = Network("sgd", dtype=dtype)
    network.feed["x"] *= factor
    assert_same_bits(network.run(fluid.Executor(), network.scope()), network.run(Interpreter(), network.scope()))


@pytest.mark.slow
def test_a_run_does_as_many_calls_for_many_parameters_as_for_few():
    calls = []
    for depth in (3, 30):
        network = Network(sizes=(4,) * depth)
        executor, scope = fluid.Executor(), network.scope()
        network.run(executor, scope)
        source = network.plan(executor).compiled.source
        calls.append(sum(source.count(f"{name}(") for name in ("clip_factor", "merged_adam", "adam(xp, _")))
    assert calls == [2, 2]


@pytest.mark.parametrize("rows", [(0, 0), (0, 2), (3, 0, 1)])
def test_what_has_no_elements_lies_side_by_side_too(rows):
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        parts = [layers.tanh(fluid.data(f"x{i}", [None, 3])) for i in range(len(rows))]
        whole = layers.concat(parts, axis=0)
        back = layers.split(layers.scale(whole, 2.0), list(rows), dim=0)
        feed = {f"x{i}": np.full((count, 3), i + 1, "float32") for i, count in enumerate(rows)}
        found, expected = (e.run(feed=feed, fetch_list=[whole, *back]) for e in (fluid.Executor(), Interpreter()))
    assert_same_bits(dict(enumerate(found)), dict(enumerate(expected)))
