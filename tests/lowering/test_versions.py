"""Variables that change their type while a program runs: plans agree with the interpreter, which knows no types."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jit_support import needs_numba
from pass_laws import assert_same_bits

import minigraph as fluid
from minigraph import layers
from minigraph.errors import ExecutionError
from minigraph.executor.interpreter import Interpreter
from minigraph.ir.verifier import verify
from minigraph.lowering import memory_plan as memory
from minigraph.lowering.prune import prune
from minigraph.lowering.steps import concretize
from minigraph.types import TensorType, as_dtype

X = np.random.default_rng(0).standard_normal((2, 6, 8), np.float32)


@pytest.fixture(autouse=True)
def _places_for_all(monkeypatch):
    monkeypatch.setattr(memory, "LEAST_BYTES", 1)


def ran(program, startup, feed, fetch, kind, times=3, **how):
    """What some runs return, one after the other."""
    executor, scope = kind(**how), fluid.Scope()
    executor.run(startup, scope=scope)
    return [array for _ in range(times) for array in executor.run(program, feed, fetch, scope=scope)]


def append(block, type, x, out=None, **attrs):
    """An operator with a result in `out`, by default over `x`."""
    out = x if out is None else out
    block.append_op(type, {"X": x}, {"Out": out, "XShape": block.create_var()}, attrs)
    return out


def test_each_type_has_a_variable_of_its_own():
    with fluid.program_guard(fluid.Program()), fluid.unique_name.guard():
        h = fluid.default_main_program().global_block().create_var(name="h")
        h.block.append_op("relu", {"X": fluid.data("x", [None, 4])}, {"Out": h}, {})
        layers.reshape(h, [0, 2, 2], inplace=True)
        layers.assign(layers.transpose(h, [1, 0, 2]), output=h)
        private = prune(fluid.default_main_program(), ["x"], [h.name])
    concretize(private, {"x": TensorType(as_dtype("float32"), (3, 4))})
    verify(private)
    block = private.global_block()
    assert [op.output_arg_names[0] for op in block.ops] == ["h@0", "h@1", "transpose_0.tmp_0", "h"]
    assert [op.input_arg_names for op in block.ops] == [["x"], ["h@0"], ["h@1"], ["transpose_0.tmp_0"]]
    assert [block.var(name).shape for name in ("h@0", "h@1", "h")] == [(3, 4), (3, 2, 2), (2, 3, 2)]


def reshaped(x, block):
    h = layers.relu(x)
    total = layers.reduce_sum(layers.exp(h))
    for shape in ([0, 48], [-1, 2, 3, 8], [0, 2, 24]):
        layers.reshape(h, shape, inplace=True)
        total = layers.elementwise_add(total, layers.reduce_sum(layers.square(h)))
    return [h, total]


def squeezed_and_flattened(x, block):
    h = layers.relu(x)
    results = [layers.exp(append(block, "unsqueeze2", h, axes=[1]))]
    results.append(layers.exp(append(block, "squeeze2", h, axes=[1])))
    results.append(layers.exp(append(block, "flatten2", h, axis=2)))
    return [*results, append(block, "transpose2", h, axis=[1, 0])]


def assigned(x, block):
    narrow, wide = layers.fc(x, 4, num_flatten_dims=2), layers.square(x)
    before = layers.exp(wide)
    layers.assign(narrow, output=wide)
    return [before, layers.exp(wide), layers.reduce_sum(wide)]


def written_by_an_update(x, block):
    h = layers.square(x)
    before = layers.reduce_sum(layers.exp(h))
    block.append_op("reduce_sum", {"X": h}, {"Out": h}, {"dim": [1]})
    layers.scale(h, 2.0)
    block.append_op("elementwise_add", {"X": h, "Y": before}, {"Out": h}, {})
    return [h, before]


def fed(x, block):
    given = block.create_var(name="given", shape=[-1, 6, 8], dtype="float32")
    before = layers.relu(given)
    return [before, layers.square(layers.reshape(given, [0, 48], inplace=True)), given]


def in_a_loop(x, block):
    i, total = layers.fill_constant([1], "int64", 0), layers.fill_constant([2, 6, 8], "float32", 0.0)
    limit = layers.fill_constant([1], "int64", 3)
    condition = layers.less_than(i, limit)
    h = layers.relu(x)
    loop = layers.While(condition)
    with loop.block():
        t = layers.square(h)
        layers.reshape(t, [0, 48], inplace=True)
        t = layers.scale(t, 2.0)
        layers.reshape(t, [0, 6, 8], inplace=True)
        layers.assign(layers.elementwise_add(total, t), output=total)
        layers.increment(i, 1, in_place=True)
        layers.less_than(i, limit, cond=condition)
    layers.reshape(h, [0, 48], inplace=True)  # which the loop has read
    return [total, layers.exp(h)]


def in_a_branch(x, block):
    h = layers.square(x)
    is_small = layers.less_than(layers.reduce_sum(h), layers.fill_constant([1], "float32", 0.0))

    def flat(function):
        t = layers.exp(h)
        return function(layers.reshape(t, [0, 48], inplace=True), dim=1)

    picked = layers.cond(is_small, lambda: flat(layers.reduce_sum), lambda: flat(layers.reduce_mean))
    layers.reshape(h, [0, 48], inplace=True)
    return [picked, h]


def in_a_network(x, block):
    start, steps = layers.fill_constant([2, 8], "float32", 0.5), layers.transpose(x, [1, 0, 2])
    network = layers.StaticRNN()
    with network.step():
        step = layers.reshape(network.step_input(steps), [-1, 2, 4], inplace=True)
        before = network.memory(init=start)
        state = layers.elementwise_add(before, layers.reshape(layers.square(step), [-1, 8]))
        network.update_memory(before, state)
        network.step_output(state)
    return [network()]


def selected_rows(x, block):
    table = layers.embedding(layers.fill_constant([3, 1], "int64", 2), [10, 4], is_sparse=True)
    ((_, rows),) = fluid.append_backward(layers.reduce_sum(layers.square(table)))
    dense = layers.fill_constant([10, 4], "float32", 1.0)
    before = layers.scale(dense, 2.0)
    layers.assign(rows, output=dense)
    return [before, dense]


CHANGES = [
    reshaped, squeezed_and_flattened, assigned, written_by_an_update, fed, in_a_loop, in_a_branch, in_a_network,
    selected_rows,
]  # fmt: skip


@pytest.mark.parametrize("jit", [False, pytest.param(True, marks=needs_numba)])
@pytest.mark.parametrize("build", CHANGES, ids=lambda build: build.__name__)
def test_a_plan_gives_what_the_interpreter_gives(build, jit):
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 1
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        fetch = build(fluid.data("x", [None, 6, 8]), main.global_block())
    feed = {"x": X, "given": X} if build is fed else {"x": X}
    found, expected = (
        ran(main, startup, feed, fetch, fluid.Executor, jit=jit),
        ran(main, startup, feed, fetch, Interpreter),
    )
    for one, other in zip(found, expected, strict=True):
        one, other = np.asarray(one), np.asarray(other)
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        np.testing.assert_allclose(one, other, rtol=1e-6)


def test_heads_split_in_place_train_as_in_fluid():
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x = fluid.data("x", [None, 6, 32])
        for _ in range(2):
            heads = layers.reshape(layers.fc(x, 32, num_flatten_dims=2), [0, 0, 4, 8], inplace=True)
            x = layers.relu(layers.reshape(layers.transpose(heads, [0, 2, 1, 3]), [0, 6, 32]))
        loss = layers.reduce_mean(layers.square(x))
        fluid.clip.set_gradient_clip(fluid.clip.GradientClipByGlobalNorm(0.1))
        fluid.optimizer.SGD(0.1).minimize(loss)
    executor, scope = fluid.Executor(), fluid.Scope()
    executor.run(startup, scope=scope)
    for parameter in main.all_parameters():
        values = np.linspace(-0.3, 0.3, int(np.prod(parameter.shape)), dtype="float64").reshape(parameter.shape)
        scope.find_var(parameter.name).get_tensor().set(values.astype("float32"))
    feed = {"x": np.random.RandomState(0).randn(2, 6, 32).astype("float32")}
    losses = [executor.run(main, feed, [loss], scope=scope)[0].item() for _ in range(2)]
    np.testing.assert_allclose(losses, [0.8161833882331848, 0.7981498837471008], rtol=1e-5)  # of Paddle 1.8.5


def test_what_made_a_fed_value_infinite_is_told_though_it_changes_its_shape():
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
        block = fluid.default_main_program().global_block()
        given = block.create_var(name="given", shape=[-1, 8], dtype="float32", stop_gradient=True)
        total = layers.reduce_sum(layers.fc(layers.log(given), 3))
        layers.reshape(given, [-1, 4], inplace=True)
        total = layers.elementwise_add(total, layers.reduce_sum(given))
        clip = fluid.clip.GradientClipByGlobalNorm(1.0, nonfinite="raise")
        fluid.optimizer.SGD(0.1, grad_clip=clip).minimize(total)
        executor = fluid.Executor()
        executor.run(fluid.default_startup_program())
        with pytest.raises(ExecutionError, match="made by log"):
            executor.run(feed={"given": np.zeros((2, 8), "float32")}, fetch_list=[total])


@pytest.mark.laws
@given(st.lists(st.tuples(st.sampled_from(["relu", "add", "retype", "assign"]), *[st.integers(0, 5)] * 2), max_size=12))
def test_random_changes_give_the_bits_of_the_interpreter(steps):
    shapes = [[2, 6, 8], [12, 8], [96], [4, 24], [2, 48], [2, 2, 24]]
    program = fluid.Program()
    with fluid.program_guard(program, fluid.Program()), fluid.unique_name.guard():
        values = [layers.square(fluid.data("x", [2, 6, 8]))]
        for what, i, j in steps:
            x, y = values[i % len(values)], values[j % len(values)]
            if what == "relu":
                values.append(layers.relu(x))
            elif what == "add":
                values.append(layers.elementwise_add(x, layers.reshape(y, x.shape)))
            elif what == "retype":
                layers.reshape(x, shapes[j], inplace=True)
            elif x is not y:
                layers.assign(layers.exp(y), output=x)
    found = ran(program, fluid.Program(), {"x": X}, values, fluid.Executor, 2, jit=False)
    expected = ran(program, fluid.Program(), {"x": X}, values, Interpreter, 2)
    assert_same_bits(dict(enumerate(found)), dict(enumerate(expected)))
