"""The subcommands ``minigraph lessons`` and ``minigraph grade``."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from minigraph.cli.commands import Command, Commands
from minigraph.lessons.catalogue import LESSONS, find_lesson
from minigraph.lessons.grader import grade
from minigraph.support.atomic_files import check_writable, write_files


def _add_lessons(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("lesson", nargs="?", metavar="LESSON", help="number or name (default: list all)")
    parser.add_argument("folder", nargs="?", default=".", metavar="FOLDER", help="where to copy it (default: here)")
    parser.add_argument("--notebook", action="store_true", help="copy the page as a notebook, too")
    parser.add_argument("--solution", action="store_true", help="copy the reference solution, too")


def _add_grade(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("lesson", metavar="LESSON", help="number or name")
    parser.add_argument("file", metavar="FILE", help="the solution, a Python file")
    parser.add_argument("--json", metavar="FILE", help="write the grade to this file")


def _lessons(options: argparse.Namespace) -> int:
    """List the lessons, or copy the page and the empty solution of one.

    Read the page, fill in the Python file, then grade it:

      minigraph lessons 1
      minigraph grade 1 read_a_program.py
    """
    if options.lesson is None:
        for lesson in LESSONS:
            print(f"{lesson.number:3}  {lesson.name:18}  {lesson.title}")
        return 0
    for path in find_lesson(options.lesson).copy_to(Path(options.folder), options.notebook, options.solution):
        print(path)
    return 0


def _grade(options: argparse.Namespace) -> int:
    """Grade a solution, from 0 to 100.

    The file runs in a process of its own, with limits on time and memory. First it
    has to be right. Then, where the lesson is about making programs cheaper, its
    savings count, compared with those of the reference solution. Times are shown
    and do not count, so that the same file gets the same grade.

    The exit status is 0 for a grade of 100, otherwise 1.
    """
    lesson = find_lesson(options.lesson)
    if options.json:
        check_writable(options.json)
    found = grade(lesson, options.file)
    if options.json:
        write_files({Path(options.json): [(json.dumps(found.to_json(), indent=2) + "\n").encode()]})
    print(found)
    return 0 if found.score == 100 else 1


COMMANDS: Commands = {"lessons": Command(_lessons, _add_lessons), "grade": Command(_grade, _add_grade)}
