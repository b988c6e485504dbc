"""Lesson 4: a pass that removes dead operators."""

from __future__ import annotations

from collections.abc import Iterator

from minigraph.lessons.cases import Case, kept_cases, parsed
from minigraph.lessons.dead_code.reference import RemoveDead
from minigraph.lessons.findings import Finding
from minigraph.lessons.savings import Timing, saved
from minigraph.lessons.student_pass import Call, StudentPass, sound

CASES = (
    Case(
        "an update stays",
        """
        block 0
          data x: float32[2]
          data w@GRAD: float32[2]
          param w: float32[2]
          persist lr: float32[1]
          y: float32[2] = tanh(X=x)
          w = sgd(Param=w, LearningRate=lr, Grad=w@GRAD) {role='optimize'}
        """,
        ("y",),
        "The next run reads w: an operator that writes a persistable variable is alive.",
    ),
    Case(
        "what an update reads stays",
        """
        block 0
          data w@GRAD: float32[2]
          param w: float32[2]
          persist lr: float32[1]
          clipped: float32[2] = clip_by_norm(X=w@GRAD) {max_norm=1.0, role='optimize|clip', role_vars=[w, w@GRAD]}
          w = sgd(Param=w, LearningRate=lr, Grad=clipped) {role='optimize'}
        """,
        (),
        "The clip is read by the update, which is alive. Walk backward, and collect what living operators read.",
    ),
    Case(
        "an operator that reads and writes one name",
        """
        block 0
          data x: float32[2]
          h: float32[2] = tanh(X=x)
          h = square(X=h)
          y: float32[2] = exp(X=h)
        """,
        ("y",),
        "square writes h and reads the h before it. Walking backward: first drop what an operator writes from the"
        " wanted names, then add what it reads.",
    ),
    Case(
        "a branch that is not taken leaves the old value",
        """
        block 0
          data x: float32[1]
          zero: float32[1] = fill_constant() {shape=[1]}
          c: bool[1] = less_than(X=zero, Y=zero)
          y: float32[1] = square(X=x)
          Out=[y], Scope=s: unknown {kind='step_scopes'} = conditional_block(Cond=[c], Input=[x]) {sub_block=1, is_scalar_condition=True}
          z: float32[1] = tanh(X=y)
        block 1 parent 0
          y = exp(X=x)
        """,  # noqa: E501
        ("z",),
        "If the branch is not taken, z reads the y before it. Ask op.input_arg_names, which has that name, too.",
    ),
    Case(
        "several outputs, one of them read",
        """
        block 0
          data x: float32[4]
          Out=top: float32[2], Indices=at: int64[2] = top_k(X=x) {k=2}
          y: int64[2] = scale(X=at) {scale=2.0}
        """,
        ("y",),
        "An operator is alive if any of its results is wanted.",
    ),
)  # fmt: skip

DRAW = """
    block 0
      data x: float32[2]
      dead: float32[2] = uniform_random() {shape=[2]}
      y: float32[2] = tanh(X=x)
"""

NETWORK = """
    block 0
      data x: float32[32, 8]
      data w@GRAD: float32[8, 8]
      param w: float32[8, 8]
      persist lr: float32[1]
      h: float32[32, 8] = mul(X=x, Y=w)
      unused: float32[32, 8] = relu(X=h)
      act: float32[32, 8] = sigmoid(X=h)
      act = tanh(X=h)
      probe: float32[32, 8] = square(X=act)
      norm: float32[1] = mean(X=probe)
      loss: float32[1] = mean(X=act)
      raw: float32[1] = squared_l2_norm(X=w@GRAD)
      clipped: float32[8, 8] = clip_by_norm(X=w@GRAD) {max_norm=1.0, role='optimize|clip', role_vars=[w, w@GRAD]}
      w = sgd(Param=w, LearningRate=lr, Grad=clipped) {role='optimize'}
"""
"""A step with five dead operators: one result is never read, one is overwritten first, a chain ends nowhere."""

DRAWS_LESS = """\
Nobody reads what uniform_random writes. But without this draw the next one gives other numbers: keep operators that
is_random says."""


def judge(call: Call) -> Iterator[Finding | Timing]:
    """Keep the results of every case, and remove as much as the reference of a training step."""
    answer = StudentPass(call, "RemoveDead", RemoveDead())
    yield from kept_cases(CASES, answer)
    left = {op.type for op in sound(answer, parsed(DRAW, ["y"])).global_block().ops}
    yield Finding("an operator that draws random numbers stays", "" if "uniform_random" in left else DRAWS_LESS)
    yield from saved(answer, RemoveDead(), parsed(NETWORK, ["loss"]))
