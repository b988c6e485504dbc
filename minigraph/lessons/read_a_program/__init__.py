"""Lesson 1: six questions about a training program that clips its gradients."""

from __future__ import annotations

from collections.abc import Iterator

from minigraph import layers, unique_name
from minigraph import optimizer as optimizers
from minigraph.clip import GradientClipByNorm
from minigraph.ir import Program
from minigraph.ir.default_programs import program_guard
from minigraph.layers.io import fluid_data
from minigraph.lessons.findings import Finding, task
from minigraph.lessons.student_pass import Call


def program() -> Program:
    """Return the program that the questions are about."""
    main = Program()
    with program_guard(main, Program()), unique_name.guard():
        x, y = fluid_data("x", [None, 3]), fluid_data("y", [None, 1])
        hidden = layers.fc(x, 4, param_attr="w_1", bias_attr=False, act="relu")
        loss = layers.mean(layers.square_error_cost(layers.fc(hidden, 1, param_attr="w_2", bias_attr=False), y))
        optimizers.SGD(0.1, grad_clip=GradientClipByNorm(5.0)).minimize(loss)
    return main


def judge(call: Call) -> Iterator[Finding]:
    """Compare ``answers`` with what the program says."""
    # Late: the student's process imports this module for the program, and is to have no answers.
    from minigraph.lessons.read_a_program.questions import questions

    given = call("value", name="answers")
    for question in questions(program()):
        answer = given.get(question.key) if isinstance(given, dict) else None
        yield task(question.text, 1, question.message(answer))
