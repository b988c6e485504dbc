"""Judge an answer: ``python -m minigraph.lessons.judge LESSON FILE`` prints the grade as JSON."""

from __future__ import annotations

import importlib
import json
import sys
from contextlib import redirect_stdout

from minigraph.errors import LessonError, MinigraphError
from minigraph.lessons.answer import limit_memory
from minigraph.lessons.catalogue import Lesson, find_lesson
from minigraph.lessons.findings import Finding
from minigraph.lessons.grader import Grade
from minigraph.lessons.savings import Timing
from minigraph.lessons.student_pass import Call
from minigraph.lessons.student_process import StudentProcess

JUDGE_MEGABYTES = 8192
"""Maximum memory of the judge."""


def judge(lesson: Lesson, call: Call) -> tuple[tuple[Finding, ...], tuple[Timing, ...]]:
    """Judge an answer in this process: findings, and what may be measured; what the answer raises is a broken law."""
    found: list[Finding | Timing] = []
    try:
        for each in importlib.import_module(f"minigraph.lessons.{lesson.name}").judge(call):
            found.append(each)
    except MinigraphError as error:
        found.append(Finding("the file runs", str(error)))
    return (
        tuple(each for each in found if isinstance(each, Finding)),
        tuple(each for each in found if isinstance(each, Timing)),
    )


def main() -> None:
    """Judge the file of a lesson, both named by arguments, and print the grade as JSON."""
    lesson, path = find_lesson(sys.argv[1]), sys.argv[2]
    limit_memory(JUDGE_MEGABYTES)
    notes = []
    # Programs may print, too, and stdout is for the grade.
    with redirect_stdout(sys.stderr), StudentProcess(path) as student:
        try:
            student.start()
            findings, timings = judge(lesson, student.call)
            notes += [timing.text() for timing in timings]
            if not student.is_memory_limited:
                notes.append("This platform has no limit on memory; only time is limited.")
        except LessonError as error:
            findings = (Finding("the file runs", str(error)),)
        printed = student.printed()
    json.dump(Grade(lesson, findings, printed, tuple(notes)).to_json(), sys.stdout)


if __name__ == "__main__":
    main()
