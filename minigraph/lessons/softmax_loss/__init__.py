"""Lesson 6: a rule that fuses a softmax with its cross entropy."""

from __future__ import annotations

from collections.abc import Iterator

from minigraph.autodiff.backward import append_backward
from minigraph.ir import Program
from minigraph.lessons.cases import Case, kept_cases, parsed
from minigraph.lessons.findings import Finding
from minigraph.lessons.savings import Timing, saved
from minigraph.lessons.softmax_loss.reference import softmax_loss
from minigraph.lessons.student_pass import Call, RoundingStudentPass

CASES = (
    Case(
        "a plain loss",
        """
        block 0
          data x: float32[8, 4]
          data label: int64[8, 1]
          p: float32[8, 4] = softmax(X=x)
          Y=loss: float32[8, 1], XShape=s: float32[8, 4, 0], MatchX=m: float32[8, 1] = cross_entropy2(X=p, Label=label)
        """,
        ("loss",),
        "softmax_with_cross_entropy takes logits and labels: give it x and label.",
    ),
    Case(
        "labels that are ignored",
        """
        block 0
          data x: float32[8, 4]
          data label: int64[8, 1]
          p: float32[8, 4] = softmax(X=x)
          Y=loss: float32[8, 1], XShape=s: float32[8, 4, 0], MatchX=m: float32[8, 1] = cross_entropy2(X=p, Label=label) {ignore_index=1}
        """,  # noqa: E501
        ("loss",),
        "Rows whose label is ignore_index have the loss 0: capture the attribute, and pass it on.",
    ),
    Case(
        "a softmax along the other axis",
        """
        block 0
          data x: float32[4, 4]
          data label: int64[4, 1]
          p: float32[4, 4] = softmax(X=x) {axis=0}
          Y=loss: float32[4, 1], XShape=s: float32[4, 4, 0], MatchX=m: float32[4, 1] = cross_entropy2(X=p, Label=label)
        """,
        ("loss",),
        "The fused operator takes softmax and loss along one axis. Match only a softmax along the last axis.",
    ),
    Case(
        "a loss of something else",
        """
        block 0
          data x: float32[8, 4]
          data label: int64[8, 1]
          p: float32[8, 4] = sigmoid(X=x)
          Y=loss: float32[8, 1], XShape=s: float32[8, 4, 0], MatchX=m: float32[8, 1] = cross_entropy2(X=p, Label=label)
        """,
        ("loss",),
        "The pattern is a cross entropy that reads the result of a softmax.",
    ),
    Case(
        "labels without a last dimension",
        """
        block 0
          data x: float32[8, 4]
          data label: int64[8]
          p: float32[8, 4] = softmax(X=x)
          Y=loss: float32[8], XShape=s: float32[8, 4, 0], MatchX=m: float32[8, 1] = cross_entropy2(X=p, Label=label)
        """,
        ("loss",),
        "The fused operator asks for labels of shape [8, 1]. Give the rule a condition on m.label.shape, by .where.",
    ),
    Case(
        "labels of two dimensions for values of three",
        """
        block 0
          data x: float32[2, 3, 4]
          data label: int64[2, 3]
          p: float32[2, 3, 4] = softmax(X=x)
          Y=loss: float32[2, 3], XShape=s: float32[2, 3, 4, 0], MatchX=m: float32[2, 3, 1] = cross_entropy2(X=p, Label=label)
        """,  # noqa: E501
        ("loss",),
        "The fused operator asks for labels of shape [2, 3, 1]: compare with the number of dimensions of x.",
    ),
    Case(
        "the probabilities are read, too",
        """
        block 0
          data x: float32[8, 4]
          data label: int64[8, 1]
          p: float32[8, 4] = softmax(X=x)
          Y=loss: float32[8, 1], XShape=s: float32[8, 4, 0], MatchX=m: float32[8, 1] = cross_entropy2(X=p, Label=label)
          Out=top: float32[8, 1], Indices=at: int64[8, 1] = top_k(X=p) {k=1}
        """,
        ("loss", "top"),
        "Return the loss and p, from the pattern and from the replacement, in the same order.",
    ),
)  # fmt: skip

NETWORK = """
    block 0
      data x: float32[128, 100]
      data label: int64[128, 1]
      param w: float32[100, 100]
      h: float32[128, 100] = mul(X=x, Y=w)
      p: float32[128, 100] = softmax(X=h)
      Y=a: float32[128, 1], XShape=s_1: float32[128, 100, 0], MatchX=m_1: float32[128, 1] = cross_entropy2(X=p, Label=label)
      q: float32[128, 100] = softmax(X=x)
      Y=b: float32[128, 1], XShape=s_2: float32[128, 100, 0], MatchX=m_2: float32[128, 1] = cross_entropy2(X=q, Label=label) {ignore_index=0}
      Out=top: float32[128, 1], Indices=at: int64[128, 1] = top_k(X=p) {k=1}
      both: float32[128, 1] = elementwise_add(X=a, Y=b)
      loss: float32[1] = mean(X=both)
"""  # noqa: E501
"""Two losses: one whose probabilities are read for the accuracy, and one that ignores a label."""


def judge(call: Call) -> Iterator[Finding | Timing]:
    """Keep the results of every case, and save as much as the reference when the gradients have been appended."""
    answer = RoundingStudentPass(call, "softmax_loss", softmax_loss)
    yield from kept_cases(CASES, answer)
    yield from saved(answer, softmax_loss, parsed(NETWORK, ["loss", "top"]), _with_gradients)


def _with_gradients(program: Program) -> Program:
    append_backward(program.global_block().var("loss"))
    return program
