"""Lengths of sequences: fed, passed on, looked at, fetched."""

import numpy as np
import pytest
from lengths import check_gradient, run_both, tensor

import minigraph as fluid
from minigraph import layers
from minigraph.errors import ExecutionError, FeedError, ProgramError
from minigraph.executor.interpreter import Interpreter
from minigraph.ir.verifier import verify

pytestmark = pytest.mark.usefixtures("new_program")

POOLS = {
    "sum": lambda rows: rows.sum(0), "average": lambda rows: rows.mean(0),
    "sqrt": lambda rows: rows.sum(0) / np.sqrt(len(rows)), "max": lambda rows: rows.max(0),
    "first": lambda rows: rows[0], "last": lambda rows: rows[-1],
}  # fmt: skip


def words(*row, dtype="float32", level=1):
    var = fluid.data("x", [None, *row], dtype, lod_level=level)
    var.stop_gradient = False
    return var


def lod_of(*lengths):
    return [[0, *np.cumsum(level).tolist()] for level in lengths]


def test_what_works_row_by_row_passes_lengths_on():
    x = words(3)
    y = layers.fc(layers.relu(x), 2, act="tanh")
    assert (y.lod_level, layers.reduce_mean(y).lod_level) == (1, 0)
    verify(fluid.default_main_program())
    exe, scope = fluid.Executor(), fluid.Scope()
    exe.run(fluid.default_startup_program(), scope=scope)
    (out,) = exe.run(feed={"x": tensor([2, 0, 3], 3)}, fetch_list=[y], scope=scope, return_numpy=False)
    assert (out.shape(), out.lod()) == ([5, 2], lod_of([2, 0, 3]))


@pytest.mark.parametrize("kind", POOLS)
@pytest.mark.parametrize("lengths", [[2, 3], [1], [3, 0, 1, 0], [0, 2], [0, 0]])
def test_pooling_gives_a_row_for_each_sequence(kind, lengths):
    x = words(2, 3)
    pooled = layers.sequence_pool(x * 2.0, kind, pad_value=0.5)
    assert pooled.lod_level == 0
    given = tensor(lengths, 2, 3)
    (out,) = run_both(pooled, feed={"x": given})
    ends = np.cumsum(lengths)
    doubled = np.array(given) * 2
    expected = [
        POOLS[kind](doubled[e - n : e]) if n else np.full((2, 3), 0.5) for e, n in zip(ends, lengths, strict=True)
    ]
    np.testing.assert_allclose(np.array(out), expected, rtol=1e-6)
    assert out.lod() == []


@pytest.mark.parametrize("kind", POOLS)
def test_the_gradient_of_pooling_is_the_central_difference(kind):
    x = words(2, dtype="float64")
    pooled = layers.sequence_pool(x, kind)
    check_gradient(pooled, {"x": tensor([2, 0, 3], 2, dtype="float64")}, ["x"])


def test_two_levels_are_pooled_one_by_one():
    x = words(1, level=2)
    inner = layers.sequence_pool(x, "sum")
    outer = layers.sequence_pool(inner, "sum")
    assert (inner.lod_level, outer.lod_level) == (1, 0)
    given = tensor([[2, 1], [1, 2, 3]], 1)
    first, last = run_both(inner, outer, feed={"x": given})
    rows = np.array(given)
    np.testing.assert_allclose(np.array(first), [rows[:1].sum(0), rows[1:3].sum(0), rows[3:].sum(0)], rtol=1e-6)
    np.testing.assert_allclose(np.array(last), [rows[:3].sum(0), rows[3:].sum(0)], rtol=1e-6)
    assert (first.lod(), last.lod()) == (lod_of([2, 1]), [])


def trained():
    """A loss over words, of which a loop pools what a network makes."""
    fluid.default_startup_program().random_seed = 3
    ids, label = fluid.data("ids", [None, 1], "int64", lod_level=1), fluid.data("label", [None, 1], "int64")
    h = layers.fc(layers.reshape(layers.embedding(ids, [20, 4], is_sparse=True), [-1, 4]), 4, act="tanh")
    total, runs = layers.sequence_pool(h, "average"), layers.fill_constant([1], "int64", 0)
    condition = layers.less_than(runs, layers.fill_constant([1], "int64", 2))
    loop = layers.While(condition)
    with loop.block():
        layers.assign(total + layers.sequence_pool(h * 2.0, "max"), total)
        layers.increment(runs)
        layers.less_than(runs, layers.fill_constant([1], "int64", 2), cond=condition)
    loss = layers.mean(layers.softmax_with_cross_entropy(layers.fc(total, 2), label))
    clip = fluid.clip.GradientClipByGlobalNorm(0.1)
    fluid.optimizer.SGD(0.1, grad_clip=clip).minimize(loss)
    return loss


def batch(seed):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 9, 4).tolist()
    ids = fluid.create_lod_tensor(rng.integers(0, 20, (sum(lengths), 1)), [lengths], fluid.CPUPlace())
    return {"ids": ids, "label": rng.integers(0, 2, (4, 1))}


@pytest.mark.slow
def test_a_thousand_batches_of_random_lengths_need_one_plan():
    loss, exe = trained(), fluid.Executor()
    exe.run(fluid.default_startup_program())
    for seed in range(1000):
        exe.run(feed=batch(seed), fetch_list=[loss])
    assert len(exe.plans) == 2  # the other one is that of the startup program


@pytest.mark.slow
def test_training_gives_the_same_bits_however_it_runs():
    loss, losses = trained(), []
    for executor in (fluid.Executor(jit=False), fluid.Executor(check=True, jit=False), Interpreter()):
        with fluid.scope_guard(fluid.Scope()):
            executor.run(fluid.default_startup_program())
            found = [executor.run(feed=batch(seed), fetch_list=[loss])[0] for seed in range(40)]
            losses.append(np.concatenate(found).tobytes())
    assert losses[0] == losses[1] == losses[2]


@pytest.mark.parametrize("executor", [fluid.Executor, Interpreter])
def test_lengths_that_are_missing_or_do_not_fit_are_errors_that_change_nothing(executor):
    pooled = layers.sequence_pool(layers.relu(words(2)), "sum")
    plain = layers.relu(fluid.default_main_program().global_block().var("x"))
    counter = layers.create_global_var([1], 0.0, "float32", persistable=True)
    layers.increment(counter)
    exe = executor()
    exe.run(fluid.default_startup_program())
    with pytest.raises(ExecutionError, match=r"sequence_pool: X = relu_0\.tmp_0 has no sequences"):
        exe.run(feed={"x": np.ones((2, 2), "float32")}, fetch_list=[pooled])
    with pytest.raises(ExecutionError, match="sequences of several lengths, which an array cannot hold"):
        exe.run(feed={"x": tensor([2, 1], 2)}, fetch_list=[plain])
    wrong = tensor([2, 1], 2)
    wrong.set(np.ones((5, 2), "float32"), fluid.CPUPlace())
    with pytest.raises(FeedError, match=r"sequences of lengths \[\[2, 1\]\] do not make up 5 rows"):
        exe.run(feed={"x": wrong}, fetch_list=[pooled])
    assert np.array(fluid.global_scope().find_var(counter.name).get_tensor()) == 0


def test_the_level_of_a_variable_is_part_of_the_text():
    words(2, level=2)
    program = fluid.default_main_program()
    assert "data x: float32[-1, 2] {stop_gradient=False, need_check_feed=True, lod_level=2}" in str(program)
    assert fluid.Program.parse(str(program)).global_block().var("x").lod_level == 2
    assert program.clone().global_block().var("x").lod_level == 2


def test_a_level_that_is_no_number_is_refused():
    for wrong in (-1, 1.0, "1"):
        with pytest.raises(ProgramError, match="lod_level must be a whole number from 0"):
            fluid.data("x", [None, 2], lod_level=wrong)


def test_joined_rows_have_the_sequences_of_all():
    x, y = words(2, level=2), fluid.data("y", [None, 2], lod_level=2)
    feed = {"x": tensor([[2, 1], [1, 2, 3]], 2), "y": tensor([[1], [4]], 2)}
    one = layers.ones([1, 2], "float32")
    joined = layers.concat([x, y], 0), layers.concat([x, layers.relu(x)], 1), layers.concat([x, one], 0)
    out, beside, partly = run_both(*joined, feed=feed)
    assert (out.lod(), out.shape()) == (lod_of([2, 1, 1], [1, 2, 3, 4]), [10, 2])
    assert beside.lod() == lod_of([2, 1], [1, 2, 3])
    assert partly.lod() == []


@pytest.mark.parametrize("join", [layers.sequence_concat, layers.concat])
def test_the_gradient_of_each_that_is_joined_has_its_own_sequences(join):
    x, y = words(2), fluid.data("y", [None, 2], lod_level=1)
    x.stop_gradient = y.stop_gradient = False
    grads = fluid.gradients(layers.reduce_sum(layers.square(join([x, y]))), [x, y])
    of_x, of_y = run_both(*grads, feed={"x": tensor([[2, 3, 4]], 2), "y": tensor([[1, 2, 2]], 2)})
    assert (of_x.lod(), of_y.lod()) == (lod_of([2, 3, 4]), lod_of([1, 2, 2]))


@pytest.mark.parametrize("executor", [fluid.Executor, Interpreter])
def test_lengths_that_a_program_makes_need_no_fed_ones(executor):
    y = layers.lod_reset(fluid.data("x", [3, 1]), target_lod=[0, 2, 3])
    pooled, exe, feed = layers.sequence_pool(y, "sum"), executor(), {"x": np.ones((3, 1), "float32")}
    for _ in range(3):
        rows, sums = exe.run(feed=feed, fetch_list=[y, pooled], return_numpy=False)
        assert (rows.lod(), np.array(sums).tolist()) == ([[0, 2, 3]], [[2.0], [1.0]])
        with pytest.raises(ExecutionError, match="which an array cannot hold"):
            exe.run(feed=feed, fetch_list=[y, pooled])


def test_elements_of_arrays_and_values_of_branches_keep_their_lengths():
    x, other = words(2), fluid.data("other", [None, 2], lod_level=1)
    index = layers.fill_constant([1], "int64", 0)
    array = layers.array_write(layers.relu(x), index)
    layers.array_write(other, layers.fill_constant([1], "int64", 1), array)
    counter, last = layers.fill_constant([1], "int64", 0), layers.assign(x)
    condition = layers.less_than(counter, layers.fill_constant([1], "int64", 2))
    loop = layers.While(condition)
    with loop.block():
        layers.assign(layers.array_read(array, counter), last)
        layers.increment(counter)
        layers.less_than(counter, layers.fill_constant([1], "int64", 2), cond=condition)
    first = layers.array_read(array, index)
    feed = {"x": tensor([2, 0], 2), "other": tensor([1, 3], 2)}
    elements, end, pooled = run_both(first, last, layers.sequence_pool(last, "sum"), feed=feed)
    assert (elements.lod(), end.lod(), pooled.shape()) == (lod_of([2, 0]), lod_of([1, 3]), [2, 2])


@pytest.mark.slow
@pytest.mark.parametrize("holds", [[True, False, True], [False] * 3, [True] * 3])
def test_a_condition_for_each_sequence_chooses_among_sequences(holds):
    x, flags = words(2, dtype="float64"), fluid.data("flags", [None, 1], "bool")
    choice = layers.IfElse(flags)
    with choice.true_block():
        choice.output(layers.scale(choice.input(x), 2.0), layers.sequence_reverse(choice.input(x)))
    with choice.false_block():
        choice.output(layers.scale(choice.input(x), 3.0), choice.input(x))
    scaled, turned = choice()
    given = tensor([2, 3, 1], 2, dtype="float64")
    feed = {"x": given, "flags": np.array(holds)[:, None]}
    found, reversed_, pooled = run_both(scaled, turned, layers.sequence_pool(turned, "first"), feed=feed)
    parts = np.split(np.array(given), [2, 5])
    assert found.lod() == reversed_.lod() == given.lod()
    expected = [rows * (2 if held else 3) for rows, held in zip(parts, holds, strict=True)]
    np.testing.assert_array_equal(np.array(found), np.concatenate(expected))
    expected = [rows[::-1] if held else rows for rows, held in zip(parts, holds, strict=True)]
    np.testing.assert_array_equal(np.array(reversed_), np.concatenate(expected))
    np.testing.assert_array_equal(np.array(pooled), [rows[0] for rows in expected])
    check_gradient(scaled + turned, feed, ["x"])


def test_sequences_of_sequences_are_split_and_merged():
    x, flags = words(1, level=2), fluid.data("flags", [2, 1], "bool")
    block = fluid.default_main_program().global_block()
    parts = {slot: block.create_var(name=slot) for slot in ("OutTrue", "OutFalse")}
    block.append_op("split_lod_tensor", {"X": x, "Mask": flags}, parts, {"level": 0})
    inputs = {"X": x, "Mask": flags, "InTrue": parts["OutTrue"], "InFalse": parts["OutFalse"]}
    again = block.create_var(name="again")
    block.append_op("merge_lod_tensor", inputs, {"Out": again}, {"level": 0})
    given = tensor([[2, 1], [1, 2, 3]], 1)
    feed = {"x": given, "flags": np.array([[False], [True]])}
    held, others, merged = run_both(*parts.values(), again, feed=feed)
    assert (held.lod(), others.lod(), merged.lod()) == (lod_of([1], [3]), lod_of([2], [1, 2]), given.lod())
    assert np.array_equal(np.array(merged), np.array(given))


@pytest.mark.parametrize("flag", [True, False])
def test_what_only_branches_write_has_their_sequences(flag):
    x, y, which = words(2), fluid.data("y", [None, 2], lod_level=1), fluid.data("which", [1], "bool")
    chosen = layers.cond(which, lambda: layers.scale(x, 2.0), lambda: layers.sequence_reverse(y))
    feed = {"x": tensor([2, 1], 2), "y": tensor([1, 3, 1], 2), "which": np.array([flag])}
    found, pooled = run_both(chosen, layers.sequence_pool(chosen, "sum"), feed=feed)
    assert (found.lod(), pooled.shape()[0]) == (feed["x" if flag else "y"].lod(), 2 if flag else 3)


def test_rows_keep_their_sequences_if_the_program_says_so():
    x = words(2)
    kept, lost = layers.reshape(x, [0, 1, 2]), layers.reshape(x, [3, 1, 2])
    assert [each.lod() for each in run_both(kept, lost, feed={"x": tensor([2, 1], 2)})] == [lod_of([2, 1]), []]


def test_rows_joined_along_a_dimension_that_a_run_tells_keep_the_first_sequences():
    x, axis = words(2), fluid.data("axis", [1], "int32")
    block = fluid.default_main_program().global_block()
    joined = block.create_var(name="joined")
    block.append_op("concat", {"X": [x, x], "AxisTensor": axis}, {"Out": joined})
    (found,) = run_both(joined, feed={"x": tensor([2, 1], 2), "axis": np.array([1], "int32")})
    assert (found.lod(), found.shape()) == (lod_of([2, 1]), [3, 4])


def test_lengths_may_be_set_before_the_rows():
    tensor = fluid.LoDTensor()
    tensor.set_recursive_sequence_lengths([[2, 1]])
    tensor.set(np.ones((3, 1), "float32"), fluid.CPUPlace())
    assert tensor.lod() == [[0, 2, 3]] and tensor.has_valid_recursive_sequence_lengths()
