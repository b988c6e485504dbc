"""MergeElementwise makes one operator of the same elementwise operators that update many variables."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jit_support import needs_numba
from pass_laws import assert_linear, keeps_the_bits, op_lines, pipeline

import minigraph as fluid
from minigraph import layers
from minigraph.executor.interpreter import Interpreter
from minigraph.kernels.merged_elementwise import merged_elementwise
from minigraph.passes import FindGradientDescent, MergeElementwise
from minigraph.runtime.place import CPUPlace

test_training, test_overwriting = keeps_the_bits(FindGradientDescent(), MergeElementwise())

HEAD = """
    block 0
      persist p: float32[3]
      persist q: float32[2, 2]
      persist c: float32[1]
      data g: float32[3]
      data h: float32[2, 2]
      data x: float32[3]
"""


def decayed(name, grad, shape, factor=0.5):
    return (
        f"s_{name}: float32[{shape}] = scale(X={name}) {{scale={factor}}}",
        f"n_{name}: float32[{shape}] = elementwise_add(X=s_{name}, Y={grad})",
        f"{name} = assign(X=n_{name})",
    )


P, Q = decayed("p", "g", "3"), decayed("q", "h", "2, 2")
MERGED = (
    "Out=[p, q] = merged_elementwise(X0=[p, q], X1=[g, h]) {steps=["
    "'t0 = scale(x0, None, scale=0.5, bias=0.0, bias_after_scale=True)', 'y0 = elementwise_add(t0, x1, axis=-1)'"
    "], replaced=[0]}"
)


def lines(*after, fetch=()):
    body = "\n".join(" " * 6 + line for line in after)
    return op_lines(MergeElementwise(), HEAD + body, ["p", "q", "c", *fetch])


def is_merged(found):
    return any("merged_elementwise" in line for line in found)


@pytest.mark.parametrize(
    "after",
    [
        (*P, *Q),
        (*P[:2], *Q[:2], P[2], Q[2]),
        (P[0], Q[0], P[1].replace("elementwise_add(X=s_p, Y=g)", "elementwise_add(X=s_p, Y=g) {axis=0}"), *Q[1:], P[2]),
        (*P[:1], "p = elementwise_add(X=s_p, Y=g)", *Q),
    ],
)
def test_equal_updates_are_one_operator(after):
    (found,) = lines(*after)
    assert found == (MERGED if found.startswith("Out=[p") else turned(MERGED))


def turned(line):
    return line.replace("[p, q]", "[q, p]").replace("[g, h]", "[h, g]")


def test_a_descent_may_end_an_update_and_single_elements_are_shared():
    rate = "r: float32[1] = sqrt(X=c)"
    updates = [
        line
        for name, grad, shape in (("p", "g", "3"), ("q", "h", "2, 2"))
        for line in (
            f"t_{name}: float32[{shape}] = elementwise_mul(X={grad}, Y=r)",
            f"{name} = sgd(Param={name}, Grad=t_{name}, LearningRate=c)",
        )
    ]
    assert lines(rate, *updates) == [
        "r = sqrt(X=c)",
        "Out=[p, q] = merged_elementwise(X0=[g, h], X1=[p, q], Shared=[r, c]) {steps=["
        "'t0 = elementwise_mul(x0, x2, axis=-1)', 't1 = elementwise_mul(t0, x3, axis=-1)', "
        "'y0 = elementwise_sub(x1, t1, axis=-1)'], replaced=[1]}",
    ]


def test_updates_may_have_numbers_of_their_own():
    updates = [
        line
        for name, grad, shape in (("p", "g", "3"), ("q", "h", "2, 2"))
        for line in (
            f"u_{name}: float32[1] = scale(X=b_{name}) {{scale=-1.0, bias=1.0}}",
            f"t_{name}: float32[{shape}] = elementwise_mul(X={grad}, Y=u_{name})",
            f"{name} = elementwise_sub(X={name}, Y=t_{name})",
            f"b_{name} = scale(X=b_{name}) {{scale=0.5}}",
        )
    ]
    numbers = "      persist b_p: float32[1]\n      persist b_q: float32[1]\n"
    body = "".join(f"      {line}\n" for line in updates)
    assert op_lines(MergeElementwise(), HEAD + numbers + body, ()) == [
        "Out=[p, q] = merged_elementwise(X0=[g, h], X1=[p, q], Number0=[b_p, b_q]) {steps=["
        "'t0 = scale(x2, None, scale=-1.0, bias=1.0, bias_after_scale=True)', "
        "'t1 = elementwise_mul(x0, t0, axis=-1)', 'y0 = elementwise_sub(x1, t1, axis=-1)'], "
        "replaced=[1], sizes=[3, 4]}",
        "Out=[b_p, b_q] = merged_elementwise(X0=[b_p, b_q]) {steps=["
        "'y0 = scale(x0, None, scale=0.5, bias=0.0, bias_after_scale=True)'], replaced=[0]}",
    ]


def test_the_place_is_that_of_the_last_update():
    before, between, after = (f"{name}: float32[3] = relu(X=p)" for name in "abz")
    assert [line[:9] for line in lines(before, *P, *Q, after, fetch="az")] == ["a = relu(", "Out=[p, q", "z = relu("]
    assert not is_merged(lines(*P, between, *Q, fetch="b"))


OTHERS = {
    "another factor": (*P, *decayed("q", "h", "2, 2", 0.25)),
    "a sum that is read": (*P, *Q, "y: float32[3] = relu(X=n_p)"),
    "a variable that is read between": (*P, "y: float32[3] = relu(X=p)", *Q),
    "a variable that is written again": (*P, *Q, "p = relu(X=g)"),
    "a gradient that is written between": (*P, "g = relu(X=x)", *Q),
    "a variable that is not read": (*P[:2], "q = assign(X=h)", P[2], "c = assign(X=c)"),
    "one update": P,
    "descents alone": [f"{name} = sgd(Param={name}, Grad={grad}, LearningRate=c)" for name, grad in ("pg", "qh")],
    "a factor that changes": (
        "p = elementwise_mul(X=p, Y=c)", "c = scale(X=c) {scale=0.5}", "q = elementwise_mul(X=q, Y=c)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", OTHERS)
def test_other_updates_stay(what):
    assert not is_merged(lines(*OTHERS[what], fetch=["y"] if "y: " in str(OTHERS[what]) else []))


@pytest.mark.parametrize("kind", ["persist", "param"])
def test_updates_of_parameters_that_a_later_loss_may_read_stay(kind):
    body = "\n".join(" " * 6 + line for line in (*P, *Q, "y: float32[3] = relu(X=p)"))
    found = op_lines(MergeElementwise(), HEAD.replace("persist p", f"{kind} p") + body, ["p", "q", "y"])
    assert is_merged(found) == (kind == "persist")


def test_what_is_fetched_stays():
    assert not is_merged(lines(*P, *Q, fetch=["n_p"]))


def test_equal_updates_on_both_sides_of_a_reader_are_merged_apart():
    head = HEAD + "".join(f"      persist {name}: float32[3]\n" for name in "rs")
    updates = [
        line for name in "pqrs" for line in decayed(name, "h" if name == "q" else "g", "2, 2" if name == "q" else "3")
    ]
    body = "\n".join(" " * 6 + line for line in (*updates[:6], "y: float32[3] = relu(X=p)", *updates[6:]))
    found = op_lines(MergeElementwise(), head + body, ["p", "q", "r", "s", "y"])
    assert [line.partition(" = ")[0] for line in found] == ["Out=[p, q]", "y", "Out=[r, s]"]


# Whole trainings


def _state(p, name):
    return layers.create_global_var(p.shape, 0.0, "float32", persistable=True, name=f"{p.name}_{name}")


def _adam(p, g, powers):
    m, v = _state(p, "m"), _state(p, "v")
    new_m, new_v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * (g * g)
    step = (new_m / (1 - powers[0])) / (layers.sqrt(new_v / (1 - powers[1])) + 1e-8)
    layers.assign(p - 0.01 * step, p)
    layers.assign(new_m, m)
    layers.assign(new_v, v)


def _adam_of_each(p, g, powers):
    b1, b2 = (layers.create_global_var([1], b, "float32", persistable=True, name=f"{p.name}_{b}") for b in (0.8, 0.99))
    _adam(p, g, (b1, b2))
    for power, factor in ((b1, 0.8), (b2, 0.99)):
        layers.assign(power * factor, power)


def _adagrad(p, g, powers):
    s = _state(p, "s")
    layers.assign(s + layers.square(g), s)
    layers.assign(p - 0.01 * g / (layers.sqrt(s) + 1e-6), p)


def _averaged(p, g, powers):
    mean = _state(p, "mean")
    new = p - 0.1 * layers.tanh(g)
    layers.assign(mean * 0.9 + new * 0.1, mean)
    layers.assign(new, p)


def _trained(update):
    x = fluid.data("x", [None, 6])
    loss = layers.mean(layers.square(layers.fc(layers.fc(x, 5, act="tanh"), 2)))
    grads = fluid.backward.append_backward(loss)
    powers = [
        layers.create_global_var([1], value, "float32", persistable=True, name=f"power_{value}")
        for value in (0.9, 0.999)
    ]
    for p, g in grads:
        update(p, g, powers)
    for value, power in zip((0.9, 0.999), powers, strict=True):
        layers.assign(power * value, power)
    return loss


@pytest.mark.usefixtures("new_program")
@pytest.mark.parametrize(
    ("update", "count", "start"),
    [(_adam, 1, None), (_adagrad, 1, None), (_averaged, 1, None), (_adam_of_each, 3, None), (_adam_of_each, 3, 0.5)],
)
@pytest.mark.parametrize("jit", [False, pytest.param(True, marks=needs_numba)])
def test_optimizers_by_hand_are_one_operator(update, count, start, jit):
    main, startup = fluid.default_main_program(), fluid.default_startup_program()
    main.random_seed = startup.random_seed = 3
    loss, feed, found = _trained(update), {"x": np.linspace(-1, 1, 24, dtype="float32").reshape(4, 6)}, []
    state = [var.name for var in main.list_vars() if var.persistable]
    for is_merged in (True, False):
        scope, exe = fluid.Scope(), fluid.Executor(jit=jit)
        strategy = fluid.BuildStrategy()
        strategy.merge_elementwise = is_merged
        with fluid.scope_guard(scope):
            exe.run(startup)
            if start is not None:  # parameters whose powers differ
                scope.find_var("fc_1.w_0_0.8").get_tensor().set(np.array([start], "float32"), CPUPlace())
            program = fluid.CompiledProgram(main, build_strategy=strategy)
            losses = [exe.run(program, feed=feed, fetch_list=[loss])[0] for _ in range(4)]
            found.append([*losses, *(np.array(scope.find_var(name).get_tensor()) for name in state)])
        merged = [step for step in exe.plans[-1].steps.steps if step.op.type == "merged_elementwise"]
        assert [len(step.op.outputs["Out"]) for step in merged] == [4] * count * is_merged
        assert all(step.in_place and step in exe.plans[-1].buffers.flat.targets for step in merged)
    for one, other in zip(*found, strict=True):
        if update is _averaged and jit:  # which rounds a tangent in its own way
            np.testing.assert_allclose(one, other, rtol=1e-6)
        else:
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("most_at_once", [1, 2])
def test_each_variable_of_a_vector_has_its_number(monkeypatch, most_at_once):
    """Variables of no elements and of two; a long vector is cut, for a short one numbers are repeated."""
    monkeypatch.setattr("minigraph.kernels.merged_elementwise.PIECE", most_at_once)
    lists = [[np.arange(2, dtype="float32")], [np.array([2, 3], "float32")]]
    (found,) = merged_elementwise(
        np, lists[0], *[None] * 7, lists[1], *[None] * 4, steps=("y0 = elementwise_mul(x0, x1, axis=-1)",),
        replaced=(0,), sizes=(0, 2), out=lists[0],
    )[:1]  # fmt: skip
    assert np.concatenate(found).tolist() == lists[0][0].tolist() == [0, 3]


@pytest.mark.timing
def test_time_is_linear():
    def make(count):
        main = fluid.Program()
        with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
            g = fluid.data("g", [4])
            for i in range(count):
                p = layers.create_global_var([4], 0.0, "float32", persistable=True, name=f"p{i}")
                _adagrad(p, g, ())
        return main

    assert_linear(MergeElementwise(), make, 100)


# Random updates, in random order, between operators that read and write their variables

SHAPES = {"p": "3", "q": "2, 2", "r": "3", "s": "1", "t": "1"}
"""Variables and their shapes."""

STEPS = (
    "a_{0} = scale(X={0}) {{scale=0.5}}",
    "b_{0} = elementwise_add(X=a_{0}, Y=g_{0})",
    "b_{0} = elementwise_mul(X=b_{0}, Y=c)",
    "{0} = assign(X=b_{0})",
    "{0} = elementwise_sub(X=b_{0}, Y={0})",
    "v_{0} = assign(X=b_{0})",
    "v_{0} = elementwise_max(X=v_{0}, Y={0})",
    "a_{0} = tanh(X={0})",
    "{0} = sgd(Param={0}, Grad=a_{0}, LearningRate=c)",
    "v_{0} = sum(X=[g_{0}, v_{0}])",
    "n_{0} = scale(X=n_{0}) {{scale=0.5}}",
    "m_{0} = sqrt(X=n_{0})",
    "b_{0} = elementwise_mul(X=b_{0}, Y=n_{0})",
    "b_{0} = elementwise_mul(X=b_{0}, Y=m_{0})",
)
OTHERS_BETWEEN = (
    "y = relu(X=p)", "z = relu(X=v_q)", "g_p = relu(X=r)", "c = scale(X=c) {scale=0.5}", "b_r = relu(X=g_p)",
    "q = relu(X=g_q)", "s = elementwise_add(X=s, Y=t)",
)  # fmt: skip


@st.composite
def updating_programs(draw):
    head = ["persist c: float32[1]", "y: float32[3] = relu(X=g_p)", "z: float32[2, 2] = relu(X=g_q)"]
    for name, shape in SHAPES.items():
        head[:0] = [f"{kind}: float32[{shape}]" for kind in (f"persist {name}", f"persist v_{name}", f"data g_{name}")]
        head[:0] = [f"persist n_{name}: float32[1]"]
        head += [f"m_{name}: float32[1] = sqrt(X=n_{name})"]
        head += [f"{before}_{name}: float32[{shape}] = relu(X=g_{name})" for before in "ab"]
    recipe = draw(st.lists(st.sampled_from(STEPS), min_size=2, max_size=8))
    chains = [[step.format(name) for step in recipe] for name in SHAPES]
    chains.append(draw(st.lists(st.sampled_from(OTHERS_BETWEEN), max_size=3, unique=True)))
    body = []
    while chains := [each for each in chains if each]:
        body.append(chains[min(draw(st.integers(0, 9)), len(chains) - 1)].pop(0))
    program = fluid.Program.parse("\n  ".join(["block 0", *head, *body]))
    return program, draw(st.lists(st.sampled_from(sorted(program.global_block().vars)), unique=True, max_size=2))


@pytest.mark.laws
@given(updating_programs())
def test_random_updates_keep_their_bits(drawn):
    program, fetch = drawn
    arrays = {
        var.name: np.linspace(-1 + 2 * (var.name[0] == "n"), i, int(np.prod(var.shape)), dtype="float32").reshape(
            var.shape
        )
        for i, var in enumerate(program.list_vars())
    }
    state = [var.name for var in program.list_vars() if var.persistable]
    feed = {var.name: arrays[var.name] for var in program.list_vars() if var.is_data}
    found = []
    for exe in (Interpreter(), fluid.Executor(passes=pipeline(FindGradientDescent(), MergeElementwise()))):
        scope = fluid.Scope()
        for name in state:
            scope.var(name).get_tensor().set(arrays[name].copy(), CPUPlace())
        results = [value for _ in range(2) for value in exe.run(program, feed=feed, fetch_list=fetch, scope=scope)]
        found.append([*results, *(np.array(scope.find_var(name).get_tensor()) for name in state)])
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_decay_that_is_written_before_the_update_belongs_to_the_group():
    steps = [
        line
        for name, grad, shape in (("p", "g", "3"), ("q", "h", "2, 2"))
        for line in (
            f"s_{name}: float32[{shape}] = scale(X={name}) {{scale=0.5}}",
            f"{name} = assign(X=s_{name})",
            f"n_{name}: float32[{shape}] = elementwise_sub(X=s_{name}, Y={grad})",
            f"{name} = assign(X=n_{name})",
        )
    ]
    (line,) = op_lines(MergeElementwise(), HEAD + "".join(f"      {step}\n" for step in steps), ())
    assert line.startswith("Out=[p, q] = merged_elementwise(X0=[p, q], X1=[g, h])")
