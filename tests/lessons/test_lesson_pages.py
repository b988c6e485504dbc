"""The cells of the lessons' pages run and print what the pages say; after a change: python tests/lesson_pages.py."""

import re

import lesson_pages
import pytest

from minigraph.lessons.catalogue import LESSONS


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.name)
def test_cells_print_what_the_page_says(lesson):
    cells = list(lesson_pages.run(lesson))
    assert len(cells) >= 3
    for cell in cells:
        assert cell.printed == cell.output, cell.match["code"]


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.name)
def test_a_page_names_its_lesson_and_its_commands(lesson):
    text = lesson.file("page.md").read_text(encoding="utf-8")
    assert text.startswith(f"# Lesson {lesson.number}: {lesson.title}\n")
    assert f"python -m minigraph lessons {lesson.number} " in text
    assert f"python -m minigraph grade {lesson.number} {lesson.name}.py\n" in text
    assert "## Your turn" in text


def test_the_list_of_lessons_links_each_page():
    text = (LESSONS[0].file("page.md").parents[1] / "README.md").read_text(encoding="utf-8")
    links = re.findall(r"^\| (\d+) \| \[(.*)\]\((\w+)/page\.md\)", text, flags=re.MULTILINE)
    assert links == [(str(lesson.number), lesson.title, lesson.name) for lesson in LESSONS]


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.name)
def test_a_page_takes_ten_to_fifteen_minutes(lesson):
    """By its prose; the rest of the time is for the cells."""
    text = lesson.file("page.md").read_text(encoding="utf-8")
    prose = re.sub(r"^```.*?^```\n", "", text, flags=re.MULTILINE | re.DOTALL)
    assert 250 <= len(prose.split()) <= 900
