"""The cases that `rewrite.check` runs: what is fetched of them, and what each run leaves to the next."""

from random import Random

import numpy as np
import pytest

from minigraph import Program, rewrite
from minigraph.passes import RemoveDeadOps
from minigraph.rewrite.cases import Case
from minigraph.rewrite.checking import cases_of
from minigraph.rewrite.laws import Subject, other_values
from minigraph.rewrite.random_programs.arrays import Drawn

COUNTS = """
block 0
  persist count: float32[1]
  data x: float32[1]
  count = increment(X=count) {step=1.0}
  y: float32[1] = elementwise_mul(X=x, Y=count)
"""


def test_later_runs_read_what_earlier_ones_have_written():
    program = Program.parse(COUNTS)
    program.roots = ("y",)
    first, second, third = cases_of(Drawn(program, 1, {}), Random(0), only_ordinary=True)
    assert [each.state["count"] - first.state["count"] for each in (second, third)] == [1, 2]
    assert all(np.array_equal(each.feed["x"], first.feed["x"]) for each in (second, third))


def test_a_program_without_state_is_run_once():
    program = Program.parse(COUNTS.replace("count = increment(X=count)", "z: float32[1] = increment(X=count)"))
    program.roots = ("y",)
    assert len(list(cases_of(Drawn(program, 1, {}), Random(0), only_ordinary=True))) == 1


def test_every_value_is_fetched_where_any_may_be():
    program = Program.parse("""
    block 0
      data x: float32[2, 3]
      var never: float32[1]
      Out=h: float32[3, 2], XShape=s: float32[0, 2, 3] = transpose2(X=x) {axis=[1, 0]}
      y: float32[3, 2] = relu(X=h)
    """)
    assert Case(program).fetched == ("x", "h", "y")
    program.roots = ("y",)
    assert Case(program).fetched == ("y",)


def names_no_fetch(program):
    """Give results other names where nobody says what is fetched."""
    block = program.global_block()
    last = block.ops.last
    if program.roots is not None or last is None or last.type != "relu" or last.output("Out")[0].startswith("other"):
        return False
    last.set_output("Out", [block.create_var(name="other", shape=block.vars[last.output("Out")[0]].shape).name])
    return True


@pytest.mark.slow
def test_a_pass_that_is_wrong_where_anything_may_be_fetched_is_found():
    found = rewrite.check(names_no_fetch, programs=2000)
    assert found.program.roots is None and "any value may be fetched (roots is None)" in str(found)
    assert [op.type for op in found.program.global_block().ops] == ["relu"]
    assert "program.roots = None" in found.to_python()


def test_a_parameter_that_only_a_dead_operator_reads_may_go_from_a_clone_for_a_test():
    program = Program.parse(
        "block 0\n  param w: float32[1]\n  data d: float32[1]\n  persist rate: float32[1]\n"
        "  y: float32[1] = scale(X=w)\n"
        "  w = sgd(Param=w, Grad=d, LearningRate=rate) {role='optimize'}"
    )
    program.roots = ("w",)
    twin, one = RemoveDeadOps()(program), np.ones(1, "float32")
    assert "w" in program.clone(for_test=True).global_block().vars
    assert "w" not in twin.clone(for_test=True).global_block().vars
    case = Case(program, {"d": one}, {"w": one, "rate": one}, 0)
    assert other_values(Subject(RemoveDeadOps()), case, twin) is None
