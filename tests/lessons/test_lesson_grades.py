"""The reference solutions get 100, the empty files 0, and wrong answers the messages that the lessons foresee."""

from __future__ import annotations

from collections import Counter

import pytest
from wrong_answers import ANSWERS, Wrong

from minigraph.errors import LessonError
from minigraph.lessons import cases
from minigraph.lessons.answer import Answer
from minigraph.lessons.catalogue import LESSONS, Lesson, find_lesson
from minigraph.lessons.findings import Finding
from minigraph.lessons.grader import Grade
from minigraph.lessons.judge import judge


@pytest.fixture(autouse=True)
def few_random_programs(monkeypatch):
    """Random programs are drawn in numbers where the grader runs as a command."""
    monkeypatch.setattr(cases, "PROGRAMS", 5)


def graded(lesson: Lesson, path) -> Grade:
    """The grade of a file that runs in this process."""
    try:
        return Grade(lesson, judge(lesson, Answer(str(path)).call)[0])
    except LessonError as error:
        return Grade(lesson, (Finding("the file runs", str(error)),))


@pytest.mark.slow
@pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.name)
def test_the_reference_gets_100(lesson):
    found = graded(lesson, lesson.file("reference.py"))
    assert found.score == 100, found


@pytest.mark.slow
@pytest.mark.parametrize(("number", "programs"), [("2", 50), ("3", 50), ("4", 50), ("5", 50), ("6", 50), ("10", 100)])
def test_the_reference_keeps_the_results_of_random_programs(number, programs, monkeypatch):
    monkeypatch.setattr(cases, "PROGRAMS", programs)
    lesson = find_lesson(number)
    found = graded(lesson, lesson.file("reference.py"))
    assert found.score == 100, found
    assert f"ok  {programs} random programs keep their results\n" in str(found)  # and the pass has changed some


def test_a_grade_says_that_a_pass_changes_no_random_program(monkeypatch, tmp_path):
    monkeypatch.setattr(cases, "PROGRAMS", 5)
    path = tmp_path / "answer.py"
    path.write_text(
        "from minigraph.passes import Pass\n\n\nclass RemoveDead(Pass):\n"
        "    def apply(self, program):\n        return False\n",
        encoding="utf-8",
    )
    assert "keep their results, of which the pass has changed none" in str(graded(find_lesson("dead_code"), path))


@pytest.mark.slow
def test_a_mistake_that_no_case_foresees_is_found_by_random_programs(monkeypatch, tmp_path):
    monkeypatch.setattr(cases, "PROGRAMS", 100)
    lesson, path = find_lesson("2"), tmp_path / "answer.py"
    source = lesson.file("reference.py").read_text(encoding="utf-8")
    path.write_text(source.replace('op.type == "scale"', 'op.type == "relu" or op.type == "scale"'), encoding="utf-8")
    found = graded(lesson, path)
    assert found.score == 0
    assert "RemoveScaleByOne breaks this program, of which" in str(found)
    assert "= relu(" in str(found)


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.name)
def test_the_empty_file_gets_0(lesson, tmp_path):
    assert graded(lesson, lesson.file("start.py")).score == 0
    empty = tmp_path / "empty.py"
    empty.touch()
    found = graded(lesson, empty)
    assert found.score == 0
    assert "the file defines no" in str(found)


@pytest.mark.slow
@pytest.mark.parametrize("answer", ANSWERS, ids=lambda answer: f"{answer.lesson}: {answer.message}")
def test_a_wrong_answer_gets_the_message_that_the_lesson_foresees(answer: Wrong, tmp_path):
    lesson = find_lesson(answer.lesson)
    source = lesson.file("reference.py").read_text(encoding="utf-8")
    for old, new in answer.edits:
        assert old in source, old
        source = source.replace(old, new)
    path = tmp_path / f"{lesson.name}.py"
    path.write_text(source, encoding="utf-8")
    found = graded(lesson, path)
    assert found.score < 100, found
    assert answer.message in str(found), found


def test_each_lesson_has_at_least_five_wrong_answers():
    assert min(Counter({lesson.name: 0 for lesson in LESSONS} | Counter(a.lesson for a in ANSWERS)).values()) >= 5
