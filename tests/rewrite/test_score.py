"""`rewrite.score`: figures of a program before and after a pass."""

import numpy as np
import pytest

import minigraph as fluid
from minigraph import layers, rewrite
from minigraph.passes import CleanUp, RemoveDeadOps


@pytest.fixture(autouse=True)
def few_runs(monkeypatch):
    """That there are times is tested, and not how long they are."""
    monkeypatch.setattr("minigraph.rewrite.scoring._SECONDS", 0.0)


@pytest.fixture
def program(new_program):
    x = fluid.data("x", [None, 8])
    y = layers.scale(layers.fc(x, 4), scale=1.0)
    layers.assign(layers.relu(y))
    return fluid.default_main_program()


def test_a_score_counts_operators_bytes_and_arithmetic(program):
    found = rewrite.score(CleanUp(), program, feed={"x": np.ones((32, 8), "float32")})
    assert (found.before.operators, found.after.operators) == (5, 4)
    assert found.after.bytes < found.before.bytes
    assert 0 < found.after.seconds < 1
    assert found.saved["operators"] == pytest.approx(0.2)
    assert len(program.global_block().ops) == 5


def test_a_score_prints_as_a_table(program):
    text = str(rewrite.score(CleanUp(), program))
    assert "CleanUp" in text and "operators" in text and "20%" in text


def test_a_score_draws_itself_in_a_notebook(program):
    assert "What CleanUp saves" in rewrite.score(CleanUp(), program)._repr_html_()


def test_what_is_fetched_may_be_named(program):
    relu = next(op for op in program.global_block().ops if op.type == "relu").output("Out")[0]
    assert rewrite.score(RemoveDeadOps(), program, fetch_list=[relu]).after.operators == 4


def test_state_comes_from_a_scope_that_keeps_its_values(program):
    scope = fluid.Scope()
    fluid.Executor().run(fluid.default_startup_program(), scope=scope)
    before = {name: np.array(scope.find_var(name).get_tensor()) for name in scope.local_var_names()}
    rewrite.score(CleanUp(), program, scope=scope)
    for name, value in before.items():
        assert np.array_equal(value, np.array(scope.find_var(name).get_tensor()))


@pytest.mark.usefixtures("new_program")
def test_what_a_loop_keeps_for_its_gradient_is_not_fetched():
    i, n = layers.fill_constant([1], "int64", 0), layers.fill_constant([1], "int64", 3)
    condition = layers.less_than(i, n)
    with layers.While(condition).block():
        layers.increment(i)
        layers.less_than(i, n, cond=condition)
    layers.cast(i, "float32")
    assert rewrite.score(CleanUp(), fluid.default_main_program()).before.operators == 7


def test_sequences_keep_their_lengths():
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        x = fluid.data("x", [None, 4], lod_level=1)
        layers.sequence_pool(layers.assign(x), "sum")
    feed = {"x": fluid.create_lod_tensor(np.ones((5, 4), "float32"), [[2, 3]], fluid.CPUPlace())}
    assert rewrite.score(CleanUp(), main, feed=feed).before.operators == 2
