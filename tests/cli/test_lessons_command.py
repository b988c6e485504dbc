"""The commands ``minigraph lessons`` and ``minigraph grade``."""

import json

import pytest

from minigraph.cli.main import main
from minigraph.lessons.catalogue import LESSONS


def test_the_lessons_are_listed(capsys):
    assert main(["lessons"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines] == [[str(lesson.number), lesson.name] for lesson in LESSONS]


def test_a_lesson_is_copied_once(capsys, tmp_path):
    assert main(["lessons", "1", str(tmp_path), "--solution"]) == 0
    names = ["read_a_program.md", "read_a_program.py", "read_a_program_solution.py"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    assert main(["lessons", "read_a_program", str(tmp_path)]) == 0
    (tmp_path / "read_a_program.py").write_text("my work", encoding="utf-8")
    assert main(["lessons", "1", str(tmp_path)]) == 1
    assert "read_a_program.py is there already" in capsys.readouterr().err
    assert (tmp_path / "read_a_program.py").read_text(encoding="utf-8") == "my work"


def test_a_page_is_copied_as_a_notebook(tmp_path):
    assert main(["lessons", "3", str(tmp_path), "--notebook"]) == 0
    content = json.loads((tmp_path / "first_rule.ipynb").read_text(encoding="utf-8"))
    kinds = [cell["cell_type"] for cell in content["cells"]]
    assert (content["nbformat"], kinds[:2], kinds[-1]) == (4, ["markdown", "code"], "markdown")
    codes = [cell for cell in content["cells"] if cell["cell_type"] == "code"]
    assert codes[0]["source"].startswith("import math")
    assert codes[1]["outputs"][0]["text"].startswith("[<Match of scale_of_scale")
    assert "```python" not in str(content)


@pytest.mark.parametrize("command", [["lessons", "99"], ["grade", "read_program", "x.py"], ["grade", "1", "absent.py"]])
def test_an_unknown_lesson_or_file_is_refused(command, capsys):
    assert main(command) == 1
    said = capsys.readouterr().err
    assert said.startswith("minigraph: error: there is no ")
    assert {"lessons": "Give a number from 1 to", "1": "absent.py", "read_program": "read_a_program"}[
        command[1] if command[0] == "grade" else "lessons"
    ] in said


@pytest.mark.slow
def test_a_grade_is_printed_and_written(capsys, tmp_path):
    reference, result = str(LESSONS[0].file("reference.py")), tmp_path / "grade.json"
    assert main(["grade", "1", reference, "--json", str(result)]) == 0
    assert capsys.readouterr().out.endswith("Grade: 100 of 100\n")
    content = json.loads(result.read_text(encoding="utf-8"))
    assert (content["lesson"], content["name"], content["score"]) == (1, "read_a_program", 100)
    assert {"title", "message", "points", "of"} == set(content["findings"][0])

    assert main(["grade", "1", str(LESSONS[0].file("start.py"))]) == 1
    assert capsys.readouterr().out.endswith("Grade: 0 of 100\n")
