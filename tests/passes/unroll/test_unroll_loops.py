"""UnrollLoops puts the operators of all runs in the place of a loop; NameElements and NumberBounds do the rest."""

from collections import Counter

import numpy as np
import pytest
from both_executors import data, integer, numbers
from pass_laws import assert_linear, assert_same_bits, history, pipeline

import minigraph as fluid
from minigraph import layers
from minigraph.executor.interpreter import Interpreter
from minigraph.ir.verifier import verify
from minigraph.passes import LOWERING, NameElements, NumberBounds, UnrollLoops

pytestmark = [pytest.mark.numbers, pytest.mark.usefixtures("new_program")]

LENGTH = 4


class Built:
    """The default program, as `pass_laws.history` wants it."""

    def __init__(self, feed):
        self.main, self.startup = fluid.default_main_program(), fluid.default_startup_program()
        self._feed = feed

    def feed(self, number):
        return self._feed


def cell(entry, state):
    return layers.tanh(
        layers.fc(entry, 3, param_attr="w", bias_attr="b") + layers.fc(state, 3, param_attr="u", bias_attr=False)
    )


def by_arrays(x, h, step=cell):
    """The states of a `While` with tensor arrays, as one tensor."""
    entries, states = layers.create_array("float32"), layers.create_array("float32")
    for t, entry in enumerate(layers.unstack(x)):
        layers.array_write(entry, integer(t), entries)
    i, n = integer(0), integer(LENGTH)
    layers.array_write(h, i, states)
    condition = layers.less_than(i, n)
    with layers.While(condition).block():
        new = step(layers.array_read(entries, i), layers.array_read(states, i))
        layers.increment(i, 1, in_place=True)
        layers.array_write(new, i, states)
        layers.less_than(i, n, cond=condition)
    return layers.array_read(states, n) + layers.array_read(states, integer(0)) * 0.5, i


def by_array_as_tensor(x, h):
    states = layers.create_array("float32")
    i, n = integer(0), integer(LENGTH)
    layers.array_write(h, i, states)
    condition = layers.less_than(i, n)
    with layers.While(condition).block():
        new = layers.tanh(layers.array_read(states, i)) * 1.5
        layers.increment(i, 1)
        layers.array_write(new, i, states)
        layers.less_than(i, n, cond=condition)
    joined, lengths = layers.tensor_array_to_tensor(states, axis=1, use_stack=True)
    whole, _ = layers.tensor_array_to_tensor(states, axis=0)
    return layers.transpose(joined, [1, 0, 2]) + layers.reshape(whole, [LENGTH + 1, 2, 3]), lengths


def by_while_loop(x, h):
    def body(i, state):
        return [i + 1, cell(layers.squeeze(layers.slice(x, [0], [i], [i + 1]), [0]), state)]

    state = h * 1.0
    found = layers.while_loop(lambda i, state: i < LENGTH, body, [integer(0), state])
    return found[1], found[0]


def by_two_states(x, h):
    """A loop that counts down by two, keeps an old state, and writes each several times in a run."""
    old, new, i = h * 2.0, h * 1.0, integer(7)
    condition = layers.greater_than(i, integer(0))
    with layers.While(condition).block():
        layers.assign(new, old)
        layers.assign(layers.tanh(old + 0.5), new)
        layers.assign(new * old, new)
        layers.increment(i, -1)
        layers.increment(i, -1)
        layers.greater_than(i, integer(0), cond=condition)
    return new + old, i


def by_drawing(x, h):
    return by_arrays(x, h, lambda entry, state: layers.dropout(cell(entry, state), 0.3))


def twice(x, h):
    """Two loops, of which the second begins where the first one has ended."""
    states, i = by_while_loop(x, h)
    j, out = layers.while_loop(lambda j, s: j < LENGTH + 3, lambda j, s: [j + 1, s * 0.5 + h], [i, states])
    return out, j


def by_one_counter(x, h, resets=True):
    """Two loops with one counter, limit and condition; the counter gets another value after them."""
    entries = layers.create_array("float32")
    for t, entry in enumerate(layers.unstack(x)):
        layers.array_write(entry, integer(t), entries)
    state, i, n = h * 1.0, integer(0), integer(2)
    holds = layers.less_than(i, n)
    for steps in (2, 3 if resets else 2):
        if resets:
            layers.assign(integer(LENGTH - steps), i)
        layers.assign(i + steps, n)
        layers.less_than(i, n, cond=holds)
        with layers.While(holds).block():
            layers.assign(layers.tanh(state + layers.array_read(entries, i)), state)
            layers.increment(i, 1)
            layers.less_than(i, n, cond=holds)
    later = i + 0
    layers.assign(integer(7), i)
    return state, later


def by_one_counter_that_goes_on(x, h):
    return by_one_counter(x, h, resets=False)


NETWORKS = {
    "one counter": by_one_counter, "one counter that goes on": by_one_counter_that_goes_on,
    "arrays": by_arrays, "array as a tensor": by_array_as_tensor, "while_loop": by_while_loop,
    "two states": by_two_states, "drawing": by_drawing, "two loops": twice,
}  # fmt: skip
PASSES = (UnrollLoops(), NameElements(), NumberBounds())


def unrolled(fetch, *passes):
    """The types of the operators that are left."""
    program = fluid.default_main_program().clone()
    program.roots = tuple(fetch)
    for each in passes or PASSES:
        each.apply(program)
        verify(program)
        assert not each.apply(program)
    return [op.type for op in program.global_block().ops]


def bits(executor, built, fetch):
    executor._rng = np.random.default_rng(5)
    return history(executor, built, fetch)


def assert_keeps_bits(built, fetch):
    expected = bits(Interpreter(), built, fetch)
    for passes in (PASSES[:1], PASSES):
        assert_same_bits(bits(fluid.Executor(passes=pipeline(*passes)), built, fetch), expected)
    for name, value in bits(fluid.Executor(check=True), built, fetch).items():
        np.testing.assert_allclose(value, expected[name], rtol=1e-5, atol=1e-6)


@pytest.mark.laws
@pytest.mark.parametrize("trains", [False, True])
@pytest.mark.parametrize("kind", NETWORKS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_bits_are_kept(kind, trains, dtype):
    x, h = data("x", LENGTH, 2, 3, dtype=dtype), data("h", 2, 3, dtype=dtype)
    y, i = NETWORKS[kind](x, h)
    loss = layers.mean(layers.square(y))
    fetch = [loss.name, y.name, i.name]
    if trains:
        has_weights = fluid.default_main_program().all_parameters()
        (fluid.optimizer.SGD(0.1).minimize if has_weights else fluid.append_backward)(loss)
        fetch += ["h@GRAD"] + ["x@GRAD"] * ("x@GRAD" in fluid.default_main_program().global_block().vars)
    left = unrolled(fetch)
    assert {"while", "while_grad", "write_to_array", "read_from_array", "tensor_array_to_tensor"}.isdisjoint(left)
    assert_keeps_bits(Built({"x": numbers(LENGTH, 2, 3, dtype=dtype), "h": numbers(2, 3, seed=1, dtype=dtype)}), fetch)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_special_values_keep_their_bits(dtype):
    h = fluid.data("h", [6], dtype)
    y, i = layers.while_loop(lambda s, i: i < 3, lambda s, i: [layers.relu(s) - s * 0.5, i + 1], [h * 1.0, integer(0)])
    fetch = [y.name, i.name]
    assert "while" not in unrolled(fetch)
    special = np.array([np.nan, -0.0, np.inf, -np.inf, 0.0, -3.0], dtype)
    with np.errstate(all="ignore"):
        assert_keeps_bits(Built({"h": special}), fetch)


@pytest.mark.slow
@pytest.mark.parametrize("size", [0, 1])
def test_small_sizes_keep_their_bits(size):
    x, h = data("x", LENGTH, size, 3, dtype="float32"), data("h", size, 3, dtype="float32")
    loss = layers.reduce_sum(by_arrays(x, h)[0])
    fluid.optimizer.SGD(0.1).minimize(loss)
    assert_keeps_bits(
        Built({"x": numbers(LENGTH, size, 3, dtype="float32"), "h": numbers(size, 3, dtype="float32")}),
        [loss.name, "x@GRAD", "h@GRAD"],
    )


def test_a_variable_of_the_loop_that_is_fetched_persistable_or_read_by_a_branch_keeps_its_name():
    h = data("h", 2, 3, dtype="float32")
    state, i = h * 1.0, integer(0)
    layers.while_loop(lambda i, s: i < 3, lambda i, s: [i + 1, layers.tanh(s)], [i, state])
    out = layers.cond(i > 2, lambda: state + 1.0, lambda: state)
    assert_keeps_bits(Built({"h": numbers(2, 3, dtype="float32")}), [out.name, state.name, i.name])


@pytest.mark.slow
def test_a_value_that_is_written_after_the_loop_and_before_its_gradient_is_not_confused():
    x, h = data("x", LENGTH, 2, 3, dtype="float32"), data("h", 2, 3, dtype="float32")
    y, i = by_while_loop(x, h)
    later = layers.assign(y * 2.0)
    layers.assign(integer(9), i)
    loss = layers.mean(layers.square(y) + later)
    fluid.append_backward(loss)
    assert_keeps_bits(
        Built({"x": numbers(LENGTH, 2, 3, dtype="float32"), "h": numbers(2, 3, dtype="float32")}),
        [loss.name, "x@GRAD", "h@GRAD", i.name],
    )


def test_a_network_that_is_unrolled_equals_one_written_step_by_step():
    def written(x, h):
        first = h
        for entry in layers.unstack(x):
            h = cell(entry, h)
        return h + first * 0.5

    def kernels(network):
        with fluid.program_guard(fluid.Program(), fluid.Program()):
            x, h = fluid.data("x", [LENGTH, 2, 3]), fluid.data("h", [2, 3])
            loss = layers.mean(layers.square(network(x, h)))
            fluid.optimizer.SGD(0.1).minimize(loss)
            twin = fluid.default_main_program().clone()
        twin.roots = (loss.name,)
        LOWERING.apply(twin)
        variables = twin.global_block().vars
        return Counter((op.type, *(variables[n].shape for n in op.output_arg_names)) for op in twin.global_block().ops)

    assert kernels(lambda x, h: by_arrays(x, h)[0]) == kernels(written)


def test_operators_keep_their_lines_and_roles():
    x, h = data("x", LENGTH, 2, 3, dtype="float32"), data("h", 2, 3, dtype="float32")
    fluid.append_backward(layers.mean(by_while_loop(x, h)[0]))
    program = fluid.default_main_program().clone()
    inside = {(op.type, op.role, str(op.site)) for block in program.blocks[1:] for op in block.ops}
    UnrollLoops().apply(program)
    assert inside <= {(op.type, op.role, str(op.site)) for op in program.global_block().ops}
    assert program.num_blocks == 1


def counting(n, body=lambda: None):
    i = integer(0)
    condition = layers.less_than(i, n)
    with layers.While(condition).block():
        body()
        layers.increment(i, 1)
        layers.less_than(i, n, cond=condition)
    return i


def persistable_step():
    total = layers.create_global_var([1], 0.0, "float32", persistable=True)
    return counting(integer(3), lambda: layers.assign(total + 1.0, total))


def branching_step():
    return counting(integer(3), lambda: layers.cond(integer(1) > 0, lambda: integer(1), lambda: integer(2)))


LEFT_ALONE = {
    "a number of runs that is fed": lambda: counting(fluid.data("n", [1], "int64")),
    "no run": lambda: counting(integer(0)),
    "no end": lambda: counting(integer(1 << 40)),
    "persistable": persistable_step,
    "a branch inside": branching_step,
}


@pytest.mark.slow
@pytest.mark.parametrize("what", LEFT_ALONE)
def test_other_loops_stay(what):
    assert "while" in unrolled([LEFT_ALONE[what]().name])


def test_a_loop_of_too_many_operators_stays():
    i = counting(integer(10))
    assert "while" in unrolled([i.name], UnrollLoops(most_operators=19))
    assert "while" not in unrolled([i.name], UnrollLoops(most_operators=20))


@pytest.mark.parametrize("what", ["fetched", "index that is fed", "beside one that is fetched"])
def test_other_arrays_stay(what):
    x, n = data("x", 2, 3, dtype="float32"), fluid.data("n", [1], "int64")
    array = layers.array_write(x, n if what == "index that is fed" else integer(0))
    out = layers.array_read(array, integer(0))
    other = layers.assign(array) if what == "beside one that is fetched" else array
    assert "write_to_array" in unrolled([out.name] + [other.name] * (what != "index that is fed"))


def test_an_array_is_turned_into_variables_beside_one_that_stays():
    x, n = data("x", 2, 3, dtype="float32"), fluid.data("n", [1], "int64")
    fed = layers.array_read(layers.array_write(x, n), n)
    known = layers.array_write(x, integer(1))
    layers.array_write(x * 2.0, integer(0), known)
    layers.array_write(x * 3.0, integer(1), known)
    out, length = layers.array_read(known, integer(1)) + fed, layers.array_length(known)
    left = unrolled([out.name, length.name])
    assert Counter(left)["write_to_array"] == 1
    assert "lod_array_length" not in left
    assert_keeps_bits(Built({"x": numbers(2, 3, dtype="float32"), "n": np.array([0])}), [out.name, length.name])


def test_an_array_is_turned_that_only_a_dead_operator_kept():
    """The tensor of open size is not needed, and goes with the other array."""
    y, first = fluid.data("y", [None, 1]), layers.fill_constant([1], "int64", 0)
    layers.array_write(fluid.data("x", [1, 1]), first)
    kept = layers.array_write(y, first)
    layers.tensor_array_to_tensor(kept, axis=0)
    main, read = fluid.default_main_program(), layers.array_read(kept, first)
    main.roots = (read.name,)
    assert NameElements().apply(main)
    assert [op.type for op in main.global_block().ops] == ["assign", "assign"]
    assert not NameElements().apply(main)


def test_an_element_that_was_not_written_is_reported_by_the_run():
    array = layers.array_write(data("x", 2, 3, dtype="float32"), integer(0))
    out = layers.array_read(array, integer(2))
    assert "read_from_array" in unrolled([out.name])
    with pytest.raises(fluid.errors.MinigraphError, match="nothing was written to the array at 2"):
        fluid.Executor().run(feed={"x": numbers(2, 3, dtype="float32")}, fetch_list=[out])


@pytest.mark.parametrize("kind", ["list", "vector", "promised", "strided"])
def test_slices_with_tensors_of_known_numbers_have_attributes(kind):
    x = data("x", 4, 3, dtype="float32")
    start, end = integer(1), integer(3)
    if kind == "vector":
        bounds = [layers.assign(np.array([1], "int64")), layers.assign(np.array([3], "int64"))]
        out = layers.slice(x, [0], *bounds)
    elif kind == "strided":
        out = layers.strided_slice(x, [0], [start], [end], [integer(1)])
    else:
        out = layers.slice(x, [0], [start], [end])
    if kind == "promised":
        op = fluid.default_main_program().global_block().ops.of_type("slice")[0]
        op.set_attr("starts", [2])
        op.set_attr("infer_flags", [1])
    program = fluid.default_main_program().clone()
    assert NumberBounds().apply(program) == (kind != "promised")
    if kind != "promised":
        made = program.global_block().ops.of_type(out.op.type)[0]
        assert {slot for slot, names in made.inputs.items() if names} == {"Input"}
        assert program.global_block().vars[out.name].shape == (2, 3)
        fluid.gradients([out], [x])
        assert_keeps_bits(Built({"x": numbers(4, 3, dtype="float32")}), [out.name, "x@GRAD"])


@pytest.mark.timing
@pytest.mark.parametrize("each", ["loop", "arrays"])
def test_time_is_linear(each):
    def loop(count):
        main = fluid.Program()
        with fluid.program_guard(main, fluid.Program()):
            h = data("h", 2, 3)
            _, out = layers.while_loop(
                lambda i, s: i < count // 10, lambda i, s: [i + 1, layers.tanh(s)], [integer(0), h * 1.0]
            )
            fluid.append_backward(layers.mean(out))
        return main

    def arrays(count):
        main = fluid.Program()
        with fluid.program_guard(main, fluid.Program()):
            x, array = data("x", 2, 3), layers.create_array("float32")
            for t in range(count // 4):
                layers.array_write(x, integer(t), array)
                layers.array_read(array, integer(t))
        main.roots = ()
        return main

    assert_linear(UnrollLoops(most_operators=10**6) if each == "loop" else NameElements(), locals()[each])
