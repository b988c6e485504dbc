"""Gradients of gradients: every rule of `minigraph.second_order` on the rows of op_samples.py."""

import numpy as np
import pytest
from one_op import central_difference
from op_samples import SAMPLES

import minigraph as fluid
from minigraph.errors import ProgramError
from minigraph.opdef import FusedGrad
from minigraph.second_order import RULES

ROWS = [
    sample
    for sample in SAMPLES
    if isinstance(sample.definition.grad, FusedGrad)
    and sample.definition.grad.type in RULES
    and not sample.is_random
    and sample.wrt
    and all(array.size for arrays in sample.inputs.values() for array in arrays)
]


class FirstGradients:
    """An operator, its gradients with given cotangents, and what to feed."""

    def __init__(self, sample):
        self.program, self.feed = fluid.Program(), {}
        self.block = self.program.global_block()
        inputs = {slot: self.declare(slot, arrays) for slot, arrays in sample.inputs_as("float64").items()}
        outs = {
            slot.name: [
                self.block.create_var(name=f"{slot.name}_out_{i}") for i in range(sample.outputs.get(slot.name, 1))
            ]
            for slot in sample.definition.outputs
        }
        self.block.append_op(sample.op, inputs, outs, sample.attrs)
        shapes = {var.name: value.shape for var, value in zip(outs_of(outs), self.run(outs_of(outs)), strict=True)}
        rng = np.random.default_rng(3)
        self.targets = [outs[slot][0] for slot in sample.definition.grad.d_outputs]
        cotangents = [
            self.declare(f"cotangent_{i}", [rng.standard_normal(shapes[target.name])])[0]
            for i, target in enumerate(self.targets)
        ]
        self.sources = [var for slot in sample.wrt for var in inputs[slot]]
        self.grads = fluid.gradients(self.targets, self.sources, cotangents)
        # The gradient is linear in the cotangents, and these are inputs of it like any other.
        self.wanted = [*self.sources, *cotangents]

    def declare(self, name, arrays):
        found = []
        for i, array in enumerate(arrays):
            wants = array.dtype.kind == "f"
            var = self.block.create_var(
                name=f"{name}_{i}", shape=array.shape, dtype=array.dtype, stop_gradient=not wants, is_data=True
            )
            self.feed[var.name] = array
            found.append(var)
        return found

    def run(self, fetch, feed=None):
        return fluid.Executor().run(self.program, feed=feed or self.feed, fetch_list=fetch)


def outs_of(slots):
    return [var for slot in slots.values() for var in slot]


def weighted_sum(block, grads, weights):
    total = None
    for grad, weight in zip(grads, weights, strict=True):
        with fluid.program_guard(block.program):
            constant = fluid.layers.assign(weight)
            term = fluid.layers.reduce_sum(fluid.layers.elementwise_mul(grad, constant))
            total = term if total is None else total + term
    return total


@pytest.mark.parametrize("sample", ROWS, ids=[f"{row.op}-{i}" for i, row in enumerate(ROWS)])
def test_the_gradient_of_the_gradient_is_its_central_difference(sample):
    first = FirstGradients(sample)
    grads = [grad for grad in first.grads if grad is not None]
    before = first.run(grads)
    rng = np.random.default_rng(4)
    weights = [rng.standard_normal(value.shape) for value in before]
    untouched = FirstGradients(sample)

    second = fluid.gradients(weighted_sum(first.block, grads, weights), first.wanted)
    fluid.verify(first.program)
    for value, old in zip(first.run(grads), before, strict=True):
        assert np.allclose(value, old, rtol=1e-12, atol=1e-14)

    def function(feed):
        values = untouched.run([grad for grad in untouched.grads if grad is not None], feed)
        return sum(np.vdot(value, weight) for value, weight in zip(values, weights, strict=True))

    found = first.run([grad for grad in second if grad is not None])
    values = iter(found)
    for var, grad in zip(first.wanted, second, strict=True):
        value = next(values) if grad is not None else np.zeros(var.shape)
        expected = central_difference(function, first.feed, var.name, step=1e-5)
        assert np.allclose(value, expected, rtol=1e-5, atol=1e-6), var.name


def test_every_rule_has_a_row():
    assert {sample.definition.grad.type for sample in ROWS} == set(RULES)


def test_an_operator_without_a_rule_says_so():
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x = fluid.data("x", [3])
        x.stop_gradient = False
        (grad,) = fluid.gradients(fluid.layers.reduce_max(x), x)
        with pytest.raises(ProgramError, match="the gradient of a gradient cannot pass through reduce_max"):
            fluid.gradients(fluid.layers.square(grad), x)


def test_a_gradient_penalty_through_a_network_with_a_batch_of_unknown_size():
    rng = np.random.default_rng(5)
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x = fluid.data("x", [None, 3], "float64")
        x.stop_gradient = False
        h = fluid.layers.fc(x, 4, act="tanh")
        score = fluid.layers.reduce_sum(fluid.layers.fc(h, 2, act="sigmoid"))
        (grad,) = fluid.gradients(score, x)
        penalty = fluid.layers.mean(fluid.layers.square(grad))
        pairs = fluid.append_backward(penalty)
        fluid.verify(main)
    exe, scope = fluid.Executor(), fluid.Scope()
    exe.run(startup, scope=scope)
    feed = {"x": rng.standard_normal((5, 3))}
    names = [param.name for param, _ in pairs]
    found = exe.run(main, feed, [g for _, g in pairs], scope=scope)
    for name, value in zip(names, found, strict=True):
        array = np.array(scope.find_var(name).get_tensor())
        expected = np.empty_like(array)
        for index in np.ndindex(array.shape):
            ends = []
            for sign in (1, -1):
                moved = array.copy()
                moved[index] += sign * 1e-5
                scope.var(name).get_tensor().set(moved)
                ends.append(exe.run(main, feed, [penalty], scope=scope)[0].item())
            expected[index] = (ends[0] - ends[1]) / 2e-5
        scope.var(name).get_tensor().set(array)
        assert np.allclose(value, expected, rtol=1e-5, atol=1e-8), name
