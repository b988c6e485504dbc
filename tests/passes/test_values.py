import contextlib
import inspect

import numpy as np
import pytest
from drawn_programs import overwriting_programs
from growth import assert_grows
from hypothesis import given
from hypothesis import strategies as st
from pass_laws import SPECIAL, assert_same_bits, history, run_once

import minigraph as fluid
from minigraph.errors import MinigraphError, RewriteError, Site, WrongTypeError
from minigraph.executor.interpreter import Interpreter
from minigraph.ir import Program, Role
from minigraph.ir.verifier import verify
from minigraph.passes.rewriting import is_random
from minigraph.rewrite import Use, Value, Values
from minigraph.rewrite.random_programs.recipes import STEPS, Clip, Training, build
from minigraph.rewrite.strategies import recipes

TWICE = """
block 0
  data x: float32[2]
  h: float32[2] = scale(X=x) {scale=2.0}
  y: float32[2] = scale(X=h) {scale=3.0}
  h = scale(X=x) {scale=5.0}
  z: float32[2] = elementwise_add(X=h, Y=y)
"""


def parsed(text, *roots):
    program = Program.parse(inspect.cleandoc(text))
    program.roots = roots or None
    return program


def values_of(text, *roots):
    program = parsed(text, *roots)
    return Values(program), *program.global_block().ops


def computed(program, *fetch):
    x = np.array([1.0, -2.0], "float32")
    return Interpreter().run(program, feed={"x": x}, fetch_list=list(fetch))


# Questions


def test_a_name_that_is_written_twice_is_two_values():
    values, first, second, third, last = values_of(TWICE, "z")
    assert values.input(second, "X") == values.output(first, "Out") == Value("h", 1)
    assert values.input(last, "X") == values.output(third, "Out") == Value("h", 2)
    assert values.producer(Value("h", 2)) is third
    assert values.producer(Value("h", 2), "relu") is None
    assert values.producer(Value("x", 0)) is None
    assert values.users(Value("h", 1)) == [Use(second, "X", 0)]
    assert values.users(Value("x", 0)) == [Use(first, "X", 0), Use(third, "X", 0)]


def test_only_the_last_value_of_a_fetched_name_lives_on():
    values, *_ = values_of(TWICE, "h")
    assert [values.is_live_out(Value("h", number)) for number in (1, 2)] == [False, True]
    assert not values.is_live_out(Value("z", 1))
    values, *_ = values_of(TWICE)  # any variable may be fetched
    assert values.is_live_out(Value("z", 1))


def test_a_persistable_value_lives_on():
    values, update = values_of(
        """
        block 0
          persist w: float32[2]
          data g: float32[2]
          w = elementwise_sub(X=w, Y=g)
        """,
        "g",
    )
    assert values.input(update, "X") == Value("w", 0)
    assert values.output(update, "Out") == Value("w", 1)
    assert values.is_live_out(Value("w", 1))
    assert not values.is_live_out(Value("w", 0))


def test_the_last_value_of_a_clone_for_a_test_is_read_outside():
    text = """
    block 0
      data g: float32[2]
      persist lr: float32[1]
      param w: float32[2]
      w = relu(X=w)
      w = tanh(X=w)
      w = sgd(Param=w, Grad=g, LearningRate=lr) {role='optimize'}
    """
    values, *_ = values_of(text, "g")
    assert [values.is_live_out(Value("w", number)) for number in range(4)] == [False, False, True, True]


def test_a_value_that_one_operator_reads_twice_is_used_once():
    values, first, square = values_of(
        """
        block 0
          data x: float32[2]
          h: float32[2] = relu(X=x)
          y: float32[2] = elementwise_mul(X=h, Y=h)
        """,
        "y",
    )
    assert values.is_used_once(values.output(first, "Out"))
    assert values.users(Value("h", 1)) == [Use(square, "X", 0), Use(square, "Y", 0)]


BRANCH = """
block 0
  data x: float32[2]
  data p: bool[1]
  out: float32[2] = relu(X=x)
  h: float32[2] = scale(X=x) {scale=2.0}
  Out=[out], Scope=scope: unknown {kind='step_scopes'} = conditional_block(Cond=[p], Input=[h]) {sub_block=1}
  h = tanh(X=x)
block 1 parent 0
  s: float32[2] = scale(X=h) {scale=3.0}
  out = relu(X=s)
"""


def test_what_a_sub_block_reads_is_used():
    values, _, scale, branch, _ = values_of(BRANCH, "out")
    assert values.users(values.output(scale, "Out")) == [Use(branch, "Input", 0)]
    assert values.users(Value("out", 1)) == [Use(branch, None, 0)]  # it keeps its value if the block does not run
    (use,) = values.users(values.output(scale, "Out"))
    with pytest.raises(RewriteError, match="in its sub-block"):
        values.replace_use(use, Value("x", 0))


def test_values_of_a_sub_block():
    program = parsed(BRANCH, "out")
    values = Values(program.block(1))
    scale, relu = program.block(1).ops
    assert values.is_used_once(values.output(scale, "Out"))
    assert values.is_live_out(values.output(relu, "Out"))
    tanh = values.replace_op(relu, "tanh", {"X": values.input(scale, "X")})
    values.erase(scale)
    assert [op.type for op in program.block(1).ops] == ["tanh"]
    with pytest.raises(RewriteError, match="is taken from the block"):
        values.erase(tanh)
    verify(program)


def test_states_and_results_of_a_network_are_taken_from_its_block(new_program):
    rnn = fluid.layers.StaticRNN()
    x = fluid.data("x", [3, 2, 4])
    with rnn.step():
        word = rnn.step_input(x)
        before = rnn.memory(shape=[-1, 4], batch_ref=word)
        inner = fluid.layers.scale(word, 2.0)
        after = fluid.layers.elementwise_add(inner, before)
        rnn.update_memory(before, after)
        rnn.step_output(after)
    fluid.append_backward(fluid.layers.mean(rnn()))
    body = fluid.default_main_program().block(1)
    values = Values(body)
    live = {op.type: values.is_live_out(values.output(op, "Out")) for op in body.ops}
    assert live["elementwise_add"]
    saved = body.program.gradient_blocks[1][0]
    reads = {name for op in saved.ops for name in op.input_arg_names}
    assert live["scale"] == (inner.name in reads)


@pytest.mark.parametrize(("slot", "index"), [("X", 1), ("Y", 0), ("Scale", 0)])
def test_a_place_that_is_not_there_is_an_error(slot, index):
    values, first, *_ = values_of(TWICE)
    with pytest.raises(MinigraphError):
        values.input(first, slot, index)


def test_values_are_those_of_a_program_or_block():
    with pytest.raises(WrongTypeError, match="Program or a Block"):
        Values("block 0")


# Edits


def test_a_naive_fusion_is_refused_and_nothing_is_changed():
    """Names alone would make 15 of 2 * 3: the second scale would read the later value of h."""
    values, first, second, third, _ = values_of(
        """
        block 0
          data x: float32[2]
          x1: float32[2] = scale(X=x) {scale=2.0}
          h: float32[2] = scale(X=x1) {scale=1.5}
          x1 = scale(X=x) {scale=5.0}
          y: float32[2] = scale(X=h) {scale=2.0}
        """,
        "y",
        "x1",
    )
    program, last = values.block.program, values.block.ops[-1]
    text = str(program)
    expected = computed(program, "y", "x1")
    source = values.input(values.producer(values.input(last, "X")), "X")
    assert source == Value("x1", 1)
    with pytest.raises(RewriteError, match="has been written again") as caught:
        values.replace_op(last, "scale", {"X": source}, attrs={"scale": 3.0})
    assert "x1: float32[2] = scale(X=x) {scale=5.0}" in str(caught.value) or "x1" in str(caught.value)
    assert str(program) == text
    # Right with a name of its own.
    copy = values.insert("assign", {"X": source}, after=first)
    values.replace_op(last, "scale", {"X": values.output(copy, "Out")}, attrs={"scale": 3.0})
    values.erase(second)
    verify(program)
    assert_equal(computed(program, "y", "x1"), expected)
    assert third in values.position


def assert_equal(found, expected):
    for here, there in zip(found, expected, strict=True):
        np.testing.assert_array_equal(here, there)


def test_replacing_keeps_role_role_vars_scope_and_line():
    values, first, *_ = values_of(TWICE, "z")
    first.role, first.role_vars, first.namescope = Role.BACKWARD, ("x", "h"), "/net/"
    first.site = Site("model.py", 12)
    op = values.replace_op(first, "relu", {"X": "x"})
    assert (op.role, op.role_vars, op.namescope, op.site) == (Role.BACKWARD, ("x", "h"), "/net/", first.site)
    assert values.output(op, "Out") == Value("h", 1)
    beside = values.insert("relu", {"X": "h"}, after=op)
    assert (beside.role, beside.role_vars, beside.namescope, beside.site) == (
        Role.BACKWARD, (), "/net/", first.site,
    )  # fmt: skip


def test_an_inserted_operator_reads_what_is_there():
    values, _, second, third, _ = values_of(TWICE, "z")
    before = values.insert("relu", {"X": "h"}, before=third)
    after = values.insert("relu", {"X": "h"}, after=third)
    assert values.input(before, "X") == Value("h", 1)
    assert values.input(after, "X") == Value("h", 2)
    with pytest.raises(RewriteError, match="is made later"):
        values.insert("relu", {"X": Value("h", 2)}, before=second)
    assert len(values.block.ops) == 6
    verify(values.block.program)


def test_a_result_may_not_take_a_name_that_is_read():
    values, _, _, third, last = values_of(TWICE, "z")
    with pytest.raises(RewriteError, match="elementwise_add still reads its value"):
        values.insert("relu", {"X": "x"}, {"Out": "y"}, before=last)
    with pytest.raises(RewriteError, match="may be fetched"):
        values.insert("relu", {"X": "x"}, {"Out": "z"}, after=last)
    op = values.insert("relu", {"X": "x"}, {"Out": "h"}, before=third)  # nobody reads the first h any more
    assert values.output(op, "Out") not in (Value("h", 1), Value("h", 2))
    assert values.input(last, "X") == Value("h", 2)
    values.insert("assign", {"X": "z"}, {"Out": "h"}, after=last)
    assert values.input(last, "X") == Value("h", 2)


def test_a_persistable_variable_may_be_written_where_nobody_reads_it_later():
    text = """
    block 0
      persist w: float32[2]
      data x: float32[2]
      y: float32[2] = elementwise_add(X=x, Y=w)
    """
    values, op = values_of(text, "y")
    values.insert("relu", {"X": "w"}, {"Out": "w"}, after=op)
    assert values.is_live_out(values.read("w", op)) is False
    values, op = values_of(text, "y")
    with pytest.raises(RewriteError, match="still reads"):
        values.insert("relu", {"X": "w"}, {"Out": "w"}, before=op)


def test_uses_are_replaced_all_or_none():
    values, _, second, third, last = values_of(TWICE, "z")
    zeros = values.insert("fill_zeros_like", {"X": "x"}, before=third)
    with pytest.raises(RewriteError, match="made later"):
        values.replace_all_uses(Value("x", 0), values.output(zeros, "Out"))
    values.replace_all_uses(Value("y", 1), values.output(zeros, "Out"))
    assert last.inputs["Y"] == zeros.outputs["Out"]
    assert values.users(Value("y", 1)) == []
    values.erase(second)
    with pytest.raises(RewriteError, match="is no operator of block 0, or was removed"):
        values.erase(second)


def test_what_makes_the_new_value_goes_on_reading_the_old_one():
    values, first, second, *_ = values_of(TWICE, "z")
    relu = values.insert("relu", {"X": "h"}, after=first)
    values.replace_all_uses(Value("h", 1), values.output(relu, "Out"))
    assert values.input(relu, "X") == Value("h", 1)
    assert values.input(second, "X") == values.output(relu, "Out")


@pytest.mark.parametrize(
    ("roots", "message"),
    [(("z",), "scale reads h"), (("z", "y"), "scale reads h"), ((), "scale reads h")],
)
def test_a_result_that_is_read_may_not_go(roots, message):
    values, first, *_ = values_of(TWICE, *roots)
    with pytest.raises(RewriteError, match=message):
        values.erase(first)


def test_a_fetched_result_may_not_go():
    values, *_, last = values_of(TWICE, "z")
    with pytest.raises(RewriteError, match="z may be fetched"):
        values.erase(last)
    values, *_, last = values_of(TWICE)
    with pytest.raises(RewriteError, match=r"Set program.roots to the names that are fetched"):
        values.erase(last)
    values, *_, last = values_of(TWICE, "y")
    values.erase(last)


def test_a_replacement_must_make_what_is_read():
    values, first, *_, last = values_of(TWICE, "z")
    with pytest.raises(RewriteError, match="scale reads h"):
        values.replace_op(first, "relu", {"X": "x"}, {"Out": "fresh"})
    with pytest.raises(RewriteError, match=r"makes z float32\[1\], but those that read it expect float32\[2\]"):
        values.replace_op(last, "mean", {"X": "h"})
    assert last.block is values.block


def test_changes_by_others_are_noticed():
    values, first, second, third, last = values_of(TWICE, "z")
    values.block.remove(third)
    last.set_input("Y", ["x"])
    values.erase(second)
    assert values.input(last, "X") == Value("h", 1)
    assert values.users(Value("h", 1)) == [Use(last, "X", 0)]
    assert values.producer(Value("h", 1)) is first


def test_the_first_type_of_a_name_does_not_change_the_declared_one():
    values, first, *_ = values_of(
        """
        block 0
          data x: float32[2, 3]
          h: float32[6] = relu(X=x)
          Out=h, XShape=shape: float32[0, 2, 3] = reshape2(X=x) {shape=[6]}
        """,
        "h",
    )
    values.replace_op(first, "tanh", {"X": "x"})
    verify(values.block.program)


# Laws


def naive(block, numbers):
    """Who writes and who reads each value, looked up anew; values are named as in `numbers`."""
    writer, readers, current = {}, {}, {}
    for op in block.ops:
        for name in dict.fromkeys(op.input_arg_names):
            readers.setdefault(current.get(name, (name, 0)), []).append(op)
        for name in op.output_arg_names:
            current[name] = value = name, numbers[op, name]
            writer[value] = op
    return writer, readers, current


def assert_right(values):
    numbers = {(op, name): number for (name, number), op in values.writer.items()}
    writer, readers, current = naive(values.block, numbers)
    assert values.writer == writer
    assert {value: ops for value, ops in values.readers.items() if ops} == readers
    order = sorted(values.position, key=values.position.__getitem__)
    assert order == list(values.block.ops)
    seen = {}
    for op in values.block.ops:
        for name in op.input_arg_names:
            assert values.read(name, op) == seen.get(name, (name, 0))
        for name in op.output_arg_names:
            seen[name] = values.written(name, op)
    for value in writer:
        roots = values.block.program.roots
        is_kept = roots is None or value[0] in roots or values.block.var(value[0]).persistable
        assert values.is_live_out(Value(*value)) == (current[value[0]] == value and is_kept)


def edit(draw, values):
    """Make a random edit under which every value stays the same, or which is refused."""
    ops = values.block.ops[:]
    op = draw(st.sampled_from(ops))
    known = [Value(*each) for each in sorted(values.writer)]
    value = draw(st.sampled_from(known))
    kind = draw(st.sampled_from(["copy", "copy", "erase", "again", "overwrite", "use", "change"]))
    if kind == "copy":
        copy = values.insert("assign", {"X": value}, **{draw(st.sampled_from(["before", "after"])): op})
        values.replace_all_uses(value, values.output(copy, "Out"))
    elif kind == "erase":
        if not is_random(op.type):
            values.erase(op)
    elif kind == "again":
        inputs = {slot: [values.read(name, op) for name in names] for slot, names in op.inputs.items()}
        values.replace_op(op, op.type, inputs, attrs=op.attrs)
    elif kind == "overwrite":
        name = draw(st.sampled_from([value.name for value in known if value.name != "w"]))
        values.insert("assign", {"X": value}, {"Out": name}, before=op)
    elif kind == "use":
        uses = values.users(value)
        maker = values.producer(value, "assign")
        if uses and maker is not None:
            values.replace_use(draw(st.sampled_from(uses)), values.input(maker, "X"))
    else:
        values.block.program.version += 1


@pytest.mark.laws
@given(overwriting_programs(), st.data())
def test_tables_are_right_and_values_stay_after_every_edit(program, data):
    names = [name for name in program.global_block().vars if "generated" not in name]
    fetch = data.draw(st.lists(st.sampled_from(names), unique=True, min_size=1))
    expected = run_once(Interpreter(), program, fetch, SPECIAL)
    program.roots = tuple(fetch)
    values = Values(program)
    assert_right(values)
    for _ in range(data.draw(st.integers(1, 12))):
        if not values.writer:
            break  # all operators are erased
        with contextlib.suppress(MinigraphError):
            edit(data.draw, values)
        assert_right(values)
    verify(program)
    assert_same_bits(run_once(Interpreter(), program, fetch, SPECIAL), expected)


# A chain of a global norm is fused by the interpreter, too, and must not be edited; a decay is summed in place.
TRAININGS = st.builds(
    Training, st.sampled_from(["SGD", "Momentum", "Adam"]), st.none() | st.just(Clip("norm", 0.1)), st.just(()),
    st.sampled_from([None, "L2Decay"]),
)  # fmt: skip


@pytest.mark.laws
@given(recipes(kinds=(*STEPS, "branch", "loop", "recurrent"), training=st.none() | TRAININGS), st.data())
def test_trainings_branches_and_loops_keep_their_bits_under_edits(recipe, data):
    built = build(recipe)
    expected = history(Interpreter(), built, [built.loss.name])
    built.main.roots = (built.loss.name,)
    for _ in range(data.draw(st.integers(1, 4))):
        values = Values(data.draw(st.sampled_from([*built.main.blocks, *built.main.blocks[1:]])))
        for _ in range(data.draw(st.integers(1, 6))):
            if values.writer:
                with contextlib.suppress(MinigraphError):
                    edit(data.draw, values)
    verify(built.main)
    assert_same_bits(history(Interpreter(), built, [built.loss.name]), expected)


@pytest.mark.timing
def test_edits_take_linear_time():
    def work(count):
        program = Program()
        block = program.global_block()
        block.create_var(name="x", shape=[2], is_data=True)
        for i in range(count):
            block.append_op("relu", {"X": "x"}, {"Out": f"h{i}"})
        program.roots = ("h0",)

        def run():
            values = Values(program)
            copy = values.insert("assign", {"X": "x"}, before=block.ops[0])
            values.replace_all_uses(Value("x", 0), values.output(copy, "Out"))
            for op in block.ops[2:]:
                values.erase(values.replace_op(op, "tanh", {"X": values.input(op, "X")}))

        return run

    assert_grows(work, 400, factor=4, limit=6)


def test_a_role_among_the_attributes_is_that_of_the_new_operator():
    values, first, *_ = values_of(TWICE, "z")
    after = {"X": values.output(first, "Out")}
    assert values.insert("relu", after, attrs={"op_role": Role.BACKWARD}, after=first).role == Role.BACKWARD


def test_an_attribute_changes_the_types_of_the_results():
    text = """
        block 0
          data x: float32[2, 3, 4]
          Out=t: float32[2, 4, 3], XShape=s: float32[0, 2, 3, 4] = transpose2(X=x) {axis=[0, 2, 1]}
          y: float32[2, 4, 3] = relu(X=t)
    """
    program = fluid.Program.parse(inspect.cleandoc(text))
    program.roots = ("y",)
    values = Values(program)
    transpose, relu = program.global_block().ops
    values.set_attr(transpose, "axis", [1, 0, 2])
    assert values.type_of(values.input(relu, "X")).shape == program.global_block().var("t").shape == (3, 2, 4)
    program = fluid.Program.parse(inspect.cleandoc(text) + "\n  t = scale(X=t)")
    before = str(program)
    with pytest.raises(RewriteError, match="makes t float32"):
        Values(program).set_attr(program.global_block().ops[0], "axis", [1, 0, 2])
    assert str(program) == before
