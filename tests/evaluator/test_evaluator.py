"""Evaluators that a program adds up; numbers are those of Paddle 1.8.5."""

import numpy as np
import pytest

import minigraph as fluid
from minigraph.errors import ExecutionError, ProgramError, UnknownNameError, WrongTypeError

pytestmark = pytest.mark.filterwarnings("ignore:fluid.evaluator")


@pytest.fixture(autouse=True)
def programs():
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.scope_guard(fluid.Scope()):
        yield fluid.Executor()


def sequences(numbers, lengths):
    return fluid.create_lod_tensor(np.array(numbers, "int64").reshape(-1, 1), [lengths], fluid.CPUPlace())


def variables():
    return [fluid.data(name, [None, 1], "int64", lod_level=1) for name in "xy"]


def test_edit_distances_are_added_up(programs):
    x, y = variables()
    evaluator = fluid.evaluator.EditDistance(x, y)
    evaluator.reset(programs)
    batches = [
        ({"x": sequences([1, 2, 3, 4, 5], [3, 2]), "y": sequences([1, 2, 4, 4, 5], [3, 2])}, (1 / 3) / 2, 1 / 2),
        ({"x": sequences([1, 1], [2]), "y": sequences([1], [1])}, (1 / 3 + 1) / 3, 2 / 3),
    ]
    for feed, distance, wrong in batches:
        programs.run(feed=feed, fetch_list=evaluator.metrics)
        found = evaluator.eval(programs)
        np.testing.assert_allclose(np.concatenate(found), [distance, wrong], rtol=1e-6)
    evaluator.reset(programs)
    programs.run(feed=batches[0][0])
    np.testing.assert_allclose(evaluator.eval(programs)[1], [1 / 2])


def test_counts_that_were_not_reset_are_refused(programs):
    """Paddle 1.8.5 counts one sequence in two as 3 wrong of 2: it adds to what lies in memory."""
    x, y = variables()
    evaluator = fluid.evaluator.EditDistance(x, y)
    programs.run(fluid.default_startup_program())
    feed = {"x": sequences([1, 2, 3], [2, 1]), "y": sequences([1, 3, 3], [2, 1])}
    with pytest.raises(ExecutionError, match=r"(?s)_total_distance has no value in the scope.*Call reset\(executor\)"):
        programs.run(feed=feed, fetch_list=evaluator.metrics)
    with pytest.raises(ProgramError, match=r"(?s)EditDistance has counted nothing.*Call reset\(executor\)"):
        evaluator.eval(programs)
    evaluator.reset(programs)
    programs.run(feed=feed, fetch_list=evaluator.metrics)
    np.testing.assert_allclose(np.concatenate(evaluator.eval(programs)), [0.25, 0.5])


def test_chunks_are_added_up(programs):
    x, y = variables()
    evaluator = fluid.evaluator.ChunkEvaluator(x, y, "IOB", 2)
    evaluator.reset(programs)
    assert [each.tolist() for each in evaluator.eval(programs)] == [[0], [0], [0]]
    for _ in range(2):
        feed = {"x": sequences([0, 1, 4, 2], [4]), "y": sequences([0, 1, 4, 0], [4])}
        programs.run(feed=feed, fetch_list=evaluator.metrics)
    np.testing.assert_allclose(np.concatenate(evaluator.eval(programs)), [0.5, 0.5, 0.5])


def test_an_evaluator_warns_and_counts_in_the_global_block():
    x, y = variables()
    with pytest.warns(UserWarning, match=r"use fluid\.metrics\.EditDistance"):
        fluid.evaluator.EditDistance(x, y)
    with pytest.raises(ProgramError, match="counts in the global block"):
        fluid.layers.cond(
            fluid.layers.less_than(*[fluid.layers.fill_constant([1], "float32", n) for n in (0, 1)]),
            lambda: fluid.evaluator.EditDistance(x, y).metrics[0],
        )
    with pytest.raises(UnknownNameError, match="detection is out of scope"):
        _ = fluid.evaluator.DetectionMAP


class Rows(fluid.evaluator.Evaluator):
    """Counts rows, as users write evaluators."""

    def __init__(self, x):
        super().__init__("rows")
        self.count = self._create_state(suffix="count", dtype="int64", shape=[1])
        rows = fluid.layers.slice(fluid.layers.shape(x), [0], [0], [1])
        fluid.layers.sums([self.count, fluid.layers.cast(rows, "int64")], out=self.count)


def test_users_derive_evaluators(programs):
    x, _ = variables()
    rows = Rows(x)
    programs.run(fluid.default_startup_program())
    rows.reset(programs)
    for _ in range(2):
        programs.run(feed={"x": sequences([1, 2, 3], [1, 2])}, fetch_list=[])
    assert np.array(fluid.global_scope().find_var(rows.count.name).get_tensor()) == [6]
    with pytest.raises(WrongTypeError, match="Rows does not define eval"):
        rows.eval(programs)
