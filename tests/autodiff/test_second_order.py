"""Gradients of gradients, on every row of samples."""

from pathlib import Path

import numpy as np
import pytest
from one_op import OneOp
from sampled import TWICE_DIFFERENTIABLE, WITHOUT_SECOND_GRADIENT, differentiated_twice, each, with_gradients

import minigraph as fluid
from minigraph.autodiff.decompositions.all_rules import RULES
from minigraph.errors import OpError, ProgramError
from minigraph.opdef import all_definitions, definition_of
from minigraph.opdef.gradient_rules import FusedGrad
from minigraph.passes import EXACT
from minigraph.rewrite.random_programs.rows import SAMPLES


@each(TWICE_DIFFERENTIABLE)
def test_the_gradient_of_the_gradient_is_its_central_difference(sample):
    plain = with_gradients(sample, "float64")
    before = plain.fetch(plain.first, fluid.Interpreter())
    built = differentiated_twice(sample)
    fluid.verify(built.program)
    for value, old in zip(built.fetch(built.first, fluid.Interpreter()), before, strict=True):
        assert np.allclose(value, old, rtol=1e-11, atol=1e-13), "rewriting changed the first gradient"

    def function(feed):
        first = plain.fetch(plain.first, plain.exact, feed)
        return sum(np.vdot(v, w) for v, w in zip(first, built.weights, strict=True))

    rng, step = np.random.default_rng(5), 1e-5
    planned = built.results(fluid.Executor(passes=EXACT))
    for name, value in built.results().items():
        assert value.tobytes() == planned[name].tobytes(), "the plan differs from the interpreter"
        at = built.feed[name]
        assert value.shape == at.shape
        for _ in range(2):
            direction = rng.uniform(-1, 1, at.shape)
            ends = [function({**plain.feed, name: at + sign * step * direction}) for sign in (1, -1)]
            expected = (ends[0] - ends[1]) / (2 * step)
            assert np.isclose(np.vdot(value, direction), expected, rtol=1e-5, atol=1e-6), name


def test_rules_are_for_types_that_show_that_they_are_gradients():
    assert [type for type in RULES if "_grad" not in type] == []


def test_every_differentiable_operator_has_a_second_gradient_or_a_reason_why_not():
    for definition in all_definitions():
        rule = definition.grad
        if isinstance(rule, FusedGrad) and definition.type not in WITHOUT_SECOND_GRADIENT:
            assert rule.type in RULES or definition_of(rule.type).grad is not None, definition.type
    differentiable = {
        each.type
        for each in all_definitions()
        if each.forward is None and (each.grad is not None or each.type in RULES)
    }
    # test_second_order_blocks.py has these.
    elsewhere = {"conditional_block", "recurrent", "select_input", "select_output", "while"}
    elsewhere |= {"c_allgather", "c_allreduce_sum", "c_reducescatter"}  # test_collective.py
    assert differentiable == {sample.op for sample in TWICE_DIFFERENTIABLE} | set(WITHOUT_SECOND_GRADIENT) | elsewhere


@each(TWICE_DIFFERENTIABLE)
def test_narrower_types_give_the_same_up_to_rounding(sample):
    wide = differentiated_twice(sample)
    for dtype, tolerance in (("float32", 1e-3), ("float16", 0.2)):
        if dtype not in sample.dtypes:
            continue
        narrow = differentiated_twice(sample, dtype)
        expected = wide.results(feed={name: array.astype(wide.feed[name].dtype) for name, array in narrow.feed.items()})
        for name, value in narrow.results().items():
            assert value.dtype == narrow.feed[name].dtype
            scale = np.abs(expected[name]).max(initial=1.0)
            assert np.allclose(value, expected[name], rtol=tolerance, atol=tolerance * scale), (dtype, name)


@each([sample for sample in SAMPLES if sample.op.endswith("_grad_grad")])
def test_operands_of_several_types_are_refused(sample):
    floating = [slot for slot, (given, *_) in sample.inputs.items() if given.dtype.kind == "f"]
    for other in floating[1:]:
        types = {slot: "float16" if slot == other else "float32" for slot in floating}
        inputs = {slot: sample.inputs[slot][0].astype(type) for slot, type in types.items()}
        with pytest.raises(OpError, match="must have one element type"):
            OneOp(sample.op, inputs, sample.attrs)


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


# By slots of the operator, with the output that counts and those that come with it
RECORDED = {
    "conv2d": ("conv2d", {"strides": [2, 1], "paddings": [1, 1], "groups": 2}, "Output", ()),
    "conv2d_dilated": ("conv2d", {"strides": [1, 2], "paddings": [0, 2], "dilations": [2, 1]}, "Output", ()),
    "instance_norm": ("instance_norm", {"epsilon": 1e-5}, "Y", ("SavedMean", "SavedVariance")),
    "mul": ("mul", {}, "Out", ()),
    "elementwise_div": ("elementwise_div", {"axis": 1}, "Out", ()),
    "elementwise_mul": ("elementwise_mul", {"axis": 0}, "Out", ()),
    "elu": ("elu", {"alpha": 1.5}, "Out", ()),
    "leaky_relu": ("leaky_relu", {"alpha": 0.1}, "Out", ()),
    "sqrt": ("sqrt", {}, "Out", ()),
    "square": ("square", {}, "Out", ()),
    "relu": ("relu", {}, "Out", ()),
    "reduce_mean": ("reduce_mean", {"dim": [1]}, "Out", ()),
    "reshape2": ("reshape2", {"shape": [2, 6]}, "Out", ("XShape",)),
}


def recorded_program(inputs, op, attrs, out, others):
    """A program, the gradients of the cube of `out`, and the gradients of the sum of their squares."""
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        block = main.global_block()
        given = {slot: block.create_var(name=slot, shape=a.shape, dtype="float32") for slot, a in inputs.items()}
        for var in given.values():
            var.stop_gradient, var.is_data = False, True
        made = {slot: [block.create_var(name=f"made_{slot}", dtype="float32")] for slot in (out, *others)}
        block.append_op(type=op, inputs={slot: [var] for slot, var in given.items()}, outputs=made, attrs=attrs)
        (y,) = made[out]
        cube = fluid.layers.elementwise_mul(fluid.layers.square(y), y)
        first = fluid.gradients([cube], list(given.values()))
        total = None
        for grad in first:
            part = fluid.layers.reduce_sum(fluid.layers.square(grad))
            total = part if total is None else fluid.layers.elementwise_add(total, part)
        return main, first, fluid.gradients([total], list(given.values()))


@pytest.mark.parametrize("case", RECORDED)
def test_second_gradients_are_those_that_the_original_computed(case):
    with np.load(Path(__file__).parents[1] / "golden" / "second_order" / "fluid.npz") as file:
        known = {name.removeprefix(f"{case}/"): file[name] for name in file.files if name.startswith(f"{case}/")}
    inputs = {name.removeprefix("in/"): array for name, array in known.items() if name.startswith("in/")}
    main, first, second = recorded_program(inputs, *RECORDED[case])
    wanted = {f"first/{slot}": grad for slot, grad in zip(inputs, first, strict=True)}
    wanted |= {f"second/{slot}": grad for slot, grad in zip(inputs, second, strict=True) if grad is not None}
    assert {f"in/{slot}" for slot in inputs} | set(wanted) == set(known)
    for name, value in zip(wanted, fluid.Executor().run(main, inputs, list(wanted.values())), strict=True):
        np.testing.assert_allclose(value, known[name], rtol=2e-5, atol=2e-6 * np.abs(known[name]).max(), err_msg=name)


def penalized(batch):
    """A network of many kinds of layers, with the batch known or not: the program and the gradients of a penalty."""
    main, startup = fluid.Program(), fluid.Program()
    startup.random_seed = 11
    layers = fluid.layers
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        image = fluid.data("image", [batch, 2, 8, 6], "float64")
        image.stop_gradient = False
        label = fluid.data("label", [batch, 1], "int64")
        h = layers.conv2d(image, 4, 3, padding=1, bias_attr="conv.b")
        h = layers.elu(layers.batch_norm(h))
        h = layers.pool2d(h, 2, "max", 2) + layers.pool2d(h, 2, "avg", 2)
        h = layers.group_norm(layers.conv2d_transpose(h, 4, filter_size=2, stride=2), groups=2)
        h = layers.pool2d(h, pool_type="avg", global_pooling=True)
        h = layers.layer_norm(layers.fc(layers.concat([h, layers.reduce_max(h, dim=1, keep_dim=True)], axis=1), 6))
        parts = layers.split(layers.stack([h, layers.swish(h)], axis=1), 2, dim=2)
        h = layers.l2_normalize(layers.reshape(layers.squeeze(parts[0] * parts[1], []), [-1, 6]), axis=1)
        logits = layers.fc(layers.dropout(layers.pad(h, [0, 0, 1, 2]), 0.5, is_test=True), 5)
        losses = layers.softmax_with_cross_entropy(logits, label) + layers.cross_entropy(layers.softmax(logits), label)
        (slope,) = fluid.gradients(losses, image)
        pairs = fluid.append_backward(layers.mean(layers.square(slope)) + layers.mean(losses))
        fluid.verify(main)
    return main, startup, [grad for _, grad in pairs]


@pytest.mark.slow
def test_a_batch_of_unknown_size_makes_no_difference():
    rng = np.random.default_rng(6)
    feed = {"image": rng.standard_normal((3, 2, 8, 6)), "label": np.array([[1], [4], [0]])}
    found = []
    for batch in (None, 3):
        main, startup, grads = penalized(batch)
        scope, exe = fluid.Scope(), fluid.Executor()
        exe.run(startup, scope=scope)
        found.append(exe.run(main, feed, grads, scope=scope))
        assert all(grad.shape == value.shape for grad, value in zip(grads, found[-1], strict=True))
    assert len(found[0]) == len(found[1]) > 10
    for free, fixed in zip(*found, strict=True):
        assert np.abs(fixed).max() > 0
        np.testing.assert_allclose(free, fixed, rtol=1e-9, atol=1e-12)


def test_names_that_the_program_has_are_not_taken_again():
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x = fluid.data("x", [2], "float64")
        x.stop_gradient = False
        with fluid.unique_name.guard():
            y = fluid.layers.sin(x)
            z = fluid.layers.square(fluid.layers.scale(y, 3.0))
        with fluid.unique_name.guard():
            (grad,) = fluid.gradients(z, x)
        with fluid.unique_name.guard():
            (second,) = fluid.gradients(grad, x)
        value = np.array([0.3, -1.0])
        found = fluid.Executor().run(feed={"x": value}, fetch_list=[z, second])
    np.testing.assert_allclose(found[0], 9 * np.sin(value) ** 2)
    np.testing.assert_allclose(found[1], 18 * np.cos(2 * value))


def test_gradients_of_gradients_of_gradients():
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x = fluid.data("x", [4], "float64")
        x.stop_gradient = False
        y = fluid.layers.sin(fluid.layers.reshape(fluid.layers.concat([x, fluid.layers.square(x)]), [2, 4]))
        for _ in range(3):
            (y,) = fluid.gradients(y, x)
        value = np.array([0.3, -1.0, 2.0, 0.7])
        (found,) = fluid.Executor().run(feed={"x": value}, fetch_list=[y])
    u = value**2
    np.testing.assert_allclose(found, -np.cos(value) - 12 * value * np.sin(u) - 8 * value**3 * np.cos(u), rtol=1e-12)


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
