"""Grade an answer: two processes, one that judges and one that runs the student's file.

The judge has limits too, because a program that a student's pass has made may not end. The same file gets the same
grade: what is measured by a clock is shown and never counts.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from minigraph.errors import MissingFileError
from minigraph.lessons.catalogue import Lesson, find_lesson
from minigraph.lessons.findings import Finding
from minigraph.lessons.student_process import environment

JUDGE_SECONDS = 150
"""Maximum time of the whole judgement, in which the student's code has `StudentProcess`'s part."""


@dataclass(frozen=True)
class Grade:
    """The result of grading one file.

    Attributes
    ----------
    lesson : Lesson
    findings : tuple of Finding
    printed : str
        Beginning of what the student's code has printed.
    notes : tuple of str
        Figures that do not count, such as times.
    """

    lesson: Lesson
    findings: tuple[Finding, ...]
    printed: str = ""
    notes: tuple[str, ...] = field(default=(), compare=False)

    @property
    def score(self) -> int:
        """0 to 100: the share of points, rounded down; 0 if a law is broken."""
        possible = sum(finding.of for finding in self.findings)
        if not possible or any(finding.is_broken_law for finding in self.findings):
            return 0
        return int(100 * sum(finding.points for finding in self.findings) / possible + 1e-9)

    def to_json(self) -> dict[str, Any]:
        """Return all of it as plain data."""
        return {
            "lesson": self.lesson.number, "name": self.lesson.name, "score": self.score, "printed": self.printed,
            "findings": [asdict(finding) for finding in self.findings], "notes": list(self.notes),
        }  # fmt: skip

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Grade:
        """Return the grade that `to_json` has told."""
        findings = tuple(Finding(**each) for each in content["findings"])
        return cls(find_lesson(content["name"]), findings, content["printed"], tuple(content["notes"]))

    def __str__(self) -> str:
        lines = [f"Lesson {self.lesson.number}: {self.lesson.title}", ""]
        said = ""
        for finding in self.findings:
            mark = "no" if finding.message else "ok"
            points = f"  {finding.points:.4g} of {finding.of:.4g} points" if finding.of else ""
            lines.append(f"  {mark}  {finding.title}{points}")
            message = "The same." if finding.message and finding.message == said else finding.message
            lines += [f"        {line}" for line in message.splitlines()]
            said = finding.message
        lines += ["", *self.notes] if self.notes else []
        if self.printed:
            lines += ["", "Your file printed:", *(f"  {line}" for line in self.printed.splitlines())]
        if any(finding.is_broken_law for finding in self.findings):
            lines += ["", "What a program computes has to stay as it is, so nothing else counts yet."]
        return "\n".join([*lines, "", f"Grade: {self.score} of 100"])


def grade(lesson: Lesson, path: str | os.PathLike[str]) -> Grade:
    """Grade a student's file.

    Parameters
    ----------
    lesson : Lesson
    path : str or path
        The file; it is run in a process of its own, with limits on time and memory. These keep a mistake from doing
        harm; they are no sandbox for files of strangers.

    Raises
    ------
    MissingFileError
        If there is no such file.
    """
    if not Path(path).is_file():
        raise MissingFileError(f"there is no file {os.fspath(path)}", hint="Give the path of your solution.")
    command = [sys.executable, "-m", "minigraph.lessons.judge", lesson.name, os.path.abspath(path)]
    try:
        ended = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, env=environment(), timeout=JUDGE_SECONDS,
            encoding="utf-8", errors="replace", check=False,
        )  # fmt: skip
        return Grade.from_json(json.loads(ended.stdout))
    except subprocess.TimeoutExpired:
        message = f"Judging needs more than {JUDGE_SECONDS} s.\nLook at the programs that your pass leaves."
    except ValueError:
        last = (ended.stderr.splitlines() or [f"no message, exit status {ended.returncode}"])[-1]
        message = f"Your file, or the program that your pass leaves, ended the judge: {last}"
    return Grade(lesson, (Finding("the grader can judge the file", message),))
