"""Lesson 2: a pass that removes ``scale`` by 1, with the verbs of `minigraph.rewrite.Values`."""

from __future__ import annotations

from collections.abc import Iterator

from minigraph.lessons.cases import Case, kept_cases, parsed
from minigraph.lessons.findings import Finding
from minigraph.lessons.pass_by_hand.reference import RemoveScaleByOne
from minigraph.lessons.savings import Timing, saved
from minigraph.lessons.student_pass import Call, StudentPass

CASES = (
    Case(
        "a scale by another number stays",
        """
        block 0
          data x: float32[2]
          h: float32[2] = scale(X=x) {scale=2.0}
          y: float32[2] = tanh(X=h)
        """,
        ("y",),
        "Remove only operators whose attribute scale is 1: ask op.attr.",
    ),
    Case(
        "a bias stays",
        """
        block 0
          data x: float32[2]
          h: float32[2] = scale(X=x) {bias=0.5}
          y: float32[2] = tanh(X=h)
        """,
        ("y",),
        "scale computes scale * x + bias. The bias must be 0, too.",
    ),
    Case(
        "a factor that a tensor gives stays",
        """
        block 0
          data x: float32[2]
          data loss_scaling: float32[1]
          h: float32[2] = scale(X=x, ScaleTensor=loss_scaling)
          y: float32[2] = tanh(X=h)
        """,
        ("y",),
        "If the slot ScaleTensor is used, its value is the factor, whatever the attribute says.",
    ),
    Case(
        "a result that is fetched stays",
        """
        block 0
          data x: float32[2]
          h: float32[2] = scale(X=x)
          y: float32[2] = tanh(X=h)
        """,
        ("y", "h"),
        "h is fetched, so somebody outside reads it: ask values.is_live_out.",
    ),
    Case(
        "a result that is kept for the next run stays",
        """
        block 0
          data x: float32[2]
          persist old: float32[2]
          y: float32[2] = tanh(X=old)
          old = scale(X=x)
        """,
        ("y",),
        "old is persistable, so the next run reads it: ask values.is_live_out.",
    ),
    Case(
        "the source is written again before a reader",
        """
        block 0
          data x: float32[2]
          w: float32[2] = tanh(X=x)
          before: float32[2] = scale(X=w)
          w = square(X=w)
          y: float32[2] = elementwise_sub(X=w, Y=before)
        """,
        ("y",),
        "Where y is computed, w means the new value, and before must keep the old one. Leave the operator where"
        " values.replace_all_uses refuses.",
    ),
    Case(
        "a sub-block reads the result by name",
        """
        block 0
          data x: float32[2]
          data c: bool[1]
          h: float32[2] = scale(X=x)
          y: float32[2] = tanh(X=x)
          Out=[y], Scope=s: unknown {kind='step_scopes'} = conditional_block(Cond=[c], Input=[h]) {sub_block=1, is_scalar_condition=True}
          z: float32[2] = tanh(X=y)
        block 1 parent 0
          y = square(X=h)
        """,  # noqa: E501
        ("z",),
        "The operators of the sub-block know the name h. Leave the operator where values.replace_all_uses refuses.",
    ),
)  # fmt: skip

TRAINING = """
    block 0
      data v@GRAD: float32[64, 8]
      data w@GRAD: float32[8]
      param v: float32[64, 8]
      param w: float32[8]
      persist lr: float32[1]
      v@SCALED: float32[64, 8] = scale(X=v@GRAD) {role='backward'}
      w@SCALED: float32[8] = scale(X=w@GRAD) {role='backward'}
      twice: float32[8] = scale(X=w@SCALED) {role='backward'}
      clip_v: float32[64, 8] = clip_by_norm(X=v@SCALED) {max_norm=2.0, role='optimize|clip', role_vars=[v, v@GRAD]}
      clip_w: float32[8] = clip_by_norm(X=twice) {max_norm=2.0, role='optimize|clip', role_vars=[w, w@GRAD]}
      norm: float32[1] = squared_l2_norm(X=v@SCALED)
      v = sgd(Param=v, LearningRate=lr, Grad=clip_v) {role='optimize'}
      w = sgd(Param=w, LearningRate=lr, Grad=clip_w) {role='optimize'}
"""
"""A step on one device of a program made for several: each gradient is divided by the number of devices, 1."""


def judge(call: Call) -> Iterator[Finding | Timing]:
    """Keep the results of every case, and save as much as the reference on a training step."""
    answer = StudentPass(call, "RemoveScaleByOne", RemoveScaleByOne())
    yield from kept_cases(CASES, answer)
    yield from saved(answer, RemoveScaleByOne(), parsed(TRAINING, ["norm"]))
