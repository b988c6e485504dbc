"""Lesson 3: a rule that makes one clip of two."""

from __future__ import annotations

from collections.abc import Iterator

from minigraph.lessons.cases import Case, kept_cases, parsed
from minigraph.lessons.findings import Finding
from minigraph.lessons.first_rule.reference import clip_of_clip
from minigraph.lessons.savings import Timing, saved
from minigraph.lessons.student_pass import Call, StudentPass

CASES = (
    Case(
        "the inner clip is tighter",
        """
        block 0
          data x: float32[64]
          h: float32[64] = clip(X=x) {min=-0.5, max=0.25}
          y: float32[64] = clip(X=h) {min=-1.0, max=1.0}
        """,
        ("y",),
        "An element must stay in both intervals. From below the larger limit counts, from above the smaller one.",
    ),
    Case(
        "the outer clip is tighter",
        """
        block 0
          data x: float32[64]
          h: float32[64] = clip(X=x) {min=-1.0, max=1.0}
          y: float32[64] = clip(X=h) {min=-0.5, max=0.25}
        """,
        ("y",),
        "An element must stay in both intervals. From below the larger limit counts, from above the smaller one.",
    ),
    Case(
        "each clip is tighter on one side",
        """
        block 0
          data x: float32[64]
          h: float32[64] = clip(X=x) {min=-0.75, max=0.25}
          y: float32[64] = clip(X=h) {min=-0.25, max=0.5}
        """,
        ("y",),
        "Look at the limits one by one: from below the larger one counts, from above the smaller one.",
    ),
    Case(
        "intervals that do not overlap",
        """
        block 0
          data x: float32[64]
          h: float32[64] = clip(X=x) {min=-1.0, max=-0.5}
          y: float32[64] = clip(X=h) {min=0.25, max=0.5}
        """,
        ("y",),
        "No interval is in both, and a clip needs min < max. Give the rule a condition, by .where.",
    ),
    Case(
        "another operator between",
        """
        block 0
          data x: float32[64]
          h: float32[64] = clip(X=x) {min=-1.0, max=1.0}
          k: float32[64] = scale(X=h) {scale=2.0}
          y: float32[64] = clip(X=k) {min=-0.5, max=0.5}
        """,
        ("y",),
        "The pattern is a clip that reads the result of a clip.",
    ),
)

STEP = """
    block 0
      data v@GRAD: float32[64, 8]
      data w@GRAD: float32[64]
      persist lr: float32[1]
      param v: float32[64, 8]
      param w: float32[64]
      v_1: float32[64, 8] = clip(X=v@GRAD) {min=-1.0, max=1.0}
      v_2: float32[64, 8] = clip(X=v_1) {min=-0.5, max=2.0}
      v_3: float32[64, 8] = clip(X=v_2) {min=-2.0, max=0.5}
      w_1: float32[64] = clip(X=w@GRAD) {min=-1.0, max=0.75}
      w_2: float32[64] = clip(X=w_1) {min=-0.5, max=0.5}
      v = sgd(Param=v, LearningRate=lr, Grad=v_3) {role='optimize'}
      w = sgd(Param=w, LearningRate=lr, Grad=w_2) {role='optimize'}
"""
"""A step that clips one gradient three times, and another twice."""


def judge(call: Call) -> Iterator[Finding | Timing]:
    """Keep the results of every case, and save as much as the reference on a training step."""
    answer = StudentPass(call, "clip_of_clip", clip_of_clip)
    yield from kept_cases(CASES, answer)
    yield from saved(answer, clip_of_clip, parsed(STEP))
