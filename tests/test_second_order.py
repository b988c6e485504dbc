"""Gradients of gradients, on every row of op_samples.py."""

import numpy as np
import pytest
from op_samples import SAMPLES

import minigraph as fluid
from minigraph.errors import ProgramError
from minigraph.opdef import FusedGrad, all_definitions, definition_of
from minigraph.second_order import RULES

ROWS = [sample for sample in SAMPLES if sample.wrt and not sample.is_random and "float64" in sample.dtypes]

WITHOUT = {}
"""Operators with a gradient that has none, with the mathematical reason."""


def ids(samples):
    return [f"{each.op}-{sum(other.op == each.op for other in samples[:i])}" for i, each in enumerate(samples)]


def each(samples):
    return pytest.mark.parametrize("sample", samples, ids=ids(samples))


class Gradients:
    """An operator and its gradients for given cotangents and, once asked, the gradients of a sum of those."""

    def __init__(self, sample, dtype="float64"):
        self.dtype = dtype
        self.program, self.feed = fluid.Program(), {}
        self.block = self.program.global_block()
        definition = sample.definition
        inputs = {slot: self.declare(slot, arrays) for slot, arrays in sample.inputs_as(dtype).items()}
        several = max((len(v) for slot, v in inputs.items() if definition.input_slots[slot].duplicable), default=1)
        outs = {
            slot.name: [
                self.block.create_var(name=f"{slot.name}_out_{i}")
                for i in range(
                    sample.outputs.get(slot.name, several if slot.duplicable else 0 if slot.dispensable else 1)
                )
            ]
            for slot in definition.outputs
        }
        self.block.append_op(sample.op, inputs, outs, sample.attrs)
        rule = definition.grad
        slots = rule.d_outputs if isinstance(rule, FusedGrad) else list(outs)
        self.targets = [var for slot in slots for var in outs[slot] if var.dtype.is_floating]
        rng = np.random.default_rng(3)
        self.cotangents = [
            self.declare(f"cotangent_{i}", [rng.uniform(-1, 1, value.shape).astype(value.dtype)])[0]
            for i, value in enumerate(self.run(self.targets))
        ]
        self.sources = [var for slot in sample.wrt for var in inputs[slot]]
        found = fluid.gradients(self.targets, self.sources, self.cotangents)
        self.first = [grad for grad in found if grad is not None]
        self.second = []
        # The gradient is linear in the cotangents, and these are inputs of it like any other.
        self.wanted = [*self.sources, *self.cotangents]

    def declare(self, name, arrays):
        found = []
        for i, array in enumerate(arrays):
            is_constant = array.dtype.kind != "f"
            var = self.block.create_var(
                name=f"{name}_{i}", shape=array.shape, dtype=array.dtype, stop_gradient=is_constant, is_data=True
            )
            self.feed[var.name] = array
            found.append(var)
        return found

    def run(self, fetch, feed=None, executor=None):
        """Values from the interpreter, which has nothing to prepare, or from another executor."""
        with np.errstate(all="ignore"):
            return (executor or fluid.Interpreter()).run(self.program, feed=feed or self.feed, fetch_list=fetch)

    def differentiate(self, weights):
        """Append the gradients of the sum of the gradients times `weights`."""
        given = [self.declare(f"weight_{i}", [weight])[0] for i, weight in enumerate(weights)]
        self.second = fluid.gradients(self.first, self.wanted, given)

    def results(self, executor=None):
        """The second gradients by the name of what they are for."""
        there = [grad for grad in self.second if grad is not None]
        values = iter(self.run(there, executor=executor))
        return {
            var.name: next(values) if grad is not None else np.zeros(self.feed[var.name].shape, self.dtype)
            for var, grad in zip(self.wanted, self.second, strict=True)
        }


def weights_for(values):
    rng = np.random.default_rng(4)
    return [rng.uniform(-1, 1, value.shape).astype(value.dtype) for value in values]


def twice(sample, dtype="float64"):
    """The gradients, and those of their sum with random weights."""
    built = Gradients(sample, dtype)
    built.differentiate(weights_for(built.run(built.first)))
    return built


@each(ROWS)
def test_the_gradient_of_the_gradient_is_its_central_difference(sample):
    plain = Gradients(sample)
    before = plain.run(plain.first)
    weights = weights_for(before)
    built = Gradients(sample)
    built.differentiate(weights)
    fluid.verify(built.program)
    for value, old in zip(built.run(built.first), before, strict=True):
        assert np.allclose(value, old, rtol=1e-11, atol=1e-13), "rewriting changed the first gradient"

    def function(feed):
        return sum(np.vdot(v, w) for v, w in zip(plain.run(plain.first, feed), weights, strict=True))

    rng, step = np.random.default_rng(5), 1e-5
    planned = built.results(fluid.Executor())
    for name, value in built.results().items():
        assert value.tobytes() == planned[name].tobytes(), "the plan differs from the interpreter"
        at = built.feed[name]
        assert value.shape == at.shape
        for _ in range(2):
            direction = rng.uniform(-1, 1, at.shape)
            ends = [function({**plain.feed, name: at + sign * step * direction}) for sign in (1, -1)]
            expected = (ends[0] - ends[1]) / (2 * step)
            assert np.isclose(np.vdot(value, direction), expected, rtol=1e-5, atol=1e-6), name


def test_every_differentiable_operator_has_a_second_gradient_or_a_reason_why_not():
    for definition in all_definitions():
        rule = definition.grad
        if isinstance(rule, FusedGrad) and definition.type not in WITHOUT:
            assert rule.type in RULES or definition_of(rule.type).grad is not None, definition.type
    differentiable = {each.type for each in all_definitions() if each.grad is not None and each.forward is None}
    assert differentiable == {sample.op for sample in ROWS} | set(WITHOUT)


@each(ROWS)
def test_narrower_types_give_the_same_up_to_rounding(sample):
    wide = twice(sample)
    for dtype, tolerance in (("float32", 1e-3), ("float16", 0.2)):
        if dtype not in sample.dtypes:
            continue
        narrow = twice(sample, dtype)
        wide.feed |= {name: array.astype(wide.feed[name].dtype) for name, array in narrow.feed.items()}
        expected = wide.results()
        for name, value in narrow.results().items():
            assert value.dtype == narrow.feed[name].dtype
            scale = np.abs(expected[name]).max(initial=1.0)
            assert np.allclose(value, expected[name], rtol=tolerance, atol=tolerance * scale), (dtype, name)


def test_an_operator_without_a_rule_is_an_error_that_names_it_and_the_variable(monkeypatch):
    monkeypatch.delitem(RULES, "reduce_max_grad")
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
        x = fluid.data("x", [3])
        x.stop_gradient = False
        (grad,) = fluid.gradients(fluid.layers.reduce_max(x), x)
        with pytest.raises(ProgramError) as error:
            fluid.gradients(fluid.layers.square(grad), x)
    text = str(error.value)
    assert "reduce_max_grad has no gradient rule" in text
    assert "x@GRAD: float32[3] = reduce_max_grad(X=x, Out=reduce_max_0.tmp_0, Out@GRAD=" in text
    assert "test_second_order.py" in text and "fluid.layers.reduce_max(x)" in text


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
