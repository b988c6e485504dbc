"""Lesson 5: a pass that shares common subexpressions of programs that overwrite names."""

from __future__ import annotations

from collections.abc import Iterator

from minigraph.lessons.cases import Case, kept_cases, parsed
from minigraph.lessons.findings import Finding
from minigraph.lessons.overwritten_names.reference import ShareEqual
from minigraph.lessons.savings import Timing, saved
from minigraph.lessons.student_pass import Call, StudentPass

CASES = (
    Case(
        "equal names, different values",
        """
        block 0
          data x: float32[2]
          h: float32[2] = tanh(X=x)
          a: float32[2] = square(X=h)
          h = exp(X=x)
          b: float32[2] = square(X=h)
          y: float32[2] = elementwise_sub(X=a, Y=b)
        """,
        ("y",),
        "h was written again between the two: compare values.read(name, op), not names.",
    ),
    Case(
        "different attributes",
        """
        block 0
          data x: float32[2]
          a: float32[2] = scale(X=x) {scale=2.0}
          b: float32[2] = scale(X=x) {scale=3.0}
          y: float32[2] = elementwise_sub(X=a, Y=b)
        """,
        ("y",),
        "Operators are equal if their attributes are, too.",
    ),
    Case(
        "the same values in other slots",
        """
        block 0
          data u: float32[2]
          data v: float32[2]
          a: float32[2] = elementwise_sub(X=u, Y=v)
          b: float32[2] = elementwise_sub(X=v, Y=u)
          y: float32[2] = elementwise_max(X=a, Y=b)
        """,
        ("y",),
        "u - v is not v - u: compare slot by slot.",
    ),
    Case(
        "different types of operator",
        """
        block 0
          data x: float32[2]
          a: float32[2] = tanh(X=x)
          b: float32[2] = exp(X=x)
          y: float32[2] = elementwise_sub(X=a, Y=b)
        """,
        ("y",),
        "Operators are equal if their types are, too.",
    ),
    Case(
        "random numbers",
        """
        block 0
          a: float32[2] = uniform_random() {shape=[2]}
          b: float32[2] = uniform_random() {shape=[2]}
          y: float32[2] = elementwise_sub(X=a, Y=b)
        """,
        ("y",),
        "Two draws give different numbers: leave alone what is_random says.",
    ),
    Case(
        "the shared result is written again before a reader",
        """
        block 0
          data x: float32[2]
          a: float32[2] = square(X=x)
          b: float32[2] = square(X=x)
          a = tanh(X=x)
          y: float32[2] = elementwise_sub(X=a, Y=b)
        """,
        ("y",),
        "Where y is computed, a means the new value. Leave the operator where values.replace_all_uses refuses.",
    ),
    Case(
        "the second result is fetched",
        """
        block 0
          data x: float32[2]
          a: float32[2] = square(X=x)
          b: float32[2] = square(X=x)
          y: float32[2] = elementwise_sub(X=a, Y=b)
        """,
        ("y", "b"),
        "b is fetched, so its operator stays: ask values.is_live_out.",
    ),
    Case(
        "one of two results is fetched",
        """
        block 0
          data x: float32[4]
          Out=a: float32[2], Indices=i: int64[2] = top_k(X=x) {k=2}
          Out=b: float32[2], Indices=j: int64[2] = top_k(X=x) {k=2}
          y: float32[2] = elementwise_add(X=a, Y=b)
        """,
        ("y", "j"),
        "top_k has two results. Its operator goes only where nobody needs any of them.",
    ),
    Case(
        "two updates of the state",
        """
        block 0
          data g: float32[2]
          persist lr: float32[1]
          param v: float32[2]
          param w: float32[2]
          v = scale(X=g) {scale=0.5}
          w = scale(X=g) {scale=0.5}
        """,
        (),
        "Both parameters are read by the next run: ask values.is_live_out.",
    ),
)

STEP = """
    block 0
      data v@GRAD: float32[64, 8]
      data w@GRAD: float32[64, 8]
      persist lr: float32[1]
      param v: float32[64, 8]
      param w: float32[64, 8]
      v_sum: float32[1] = squared_l2_norm(X=v@GRAD)
      w_sum: float32[1] = squared_l2_norm(X=w@GRAD)
      total: float32[1] = sum(X=[v_sum, w_sum])
      norm: float32[1] = sqrt(X=total)
      v_sum_again: float32[1] = squared_l2_norm(X=v@GRAD)
      w_sum_again: float32[1] = squared_l2_norm(X=w@GRAD)
      total_again: float32[1] = sum(X=[v_sum_again, w_sum_again])
      norm_again: float32[1] = sqrt(X=total_again)
      limit: float32[1] = fill_constant() {shape=[1], value=2.0}
      bound: float32[1] = elementwise_max(X=norm_again, Y=limit)
      factor: float32[1] = elementwise_div(X=limit, Y=bound)
      v_clipped: float32[64, 8] = elementwise_mul(X=v@GRAD, Y=factor)
      w_clipped: float32[64, 8] = elementwise_mul(X=w@GRAD, Y=factor)
      v = sgd(Param=v, LearningRate=lr, Grad=v_clipped) {role='optimize'}
      w = sgd(Param=w, LearningRate=lr, Grad=w_clipped) {role='optimize'}
"""
"""A step that computes the global norm of the gradients twice: to record it, and to clip by it."""


def judge(call: Call) -> Iterator[Finding | Timing]:
    """Keep the results of every case, and save as much as the reference on a training step."""
    answer = StudentPass(call, "ShareEqual", ShareEqual())
    yield from kept_cases(CASES, answer)
    yield from saved(answer, ShareEqual(), parsed(STEP, ["norm"]))
