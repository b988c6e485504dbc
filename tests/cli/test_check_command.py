"""The subcommand ``minigraph check``."""

import subprocess
import sys
from pathlib import Path

import pytest

from minigraph.cli.main import main

ROOT = Path(__file__).resolve().parents[2]
PASSES = """
from dataclasses import dataclass

from minigraph.passes import Pass


@dataclass(frozen=True)
class Wrong(Pass):
    limit: float = 2.0

    def apply(self, program):
        ops = [op for op in program.global_block().ops[:] if op.type == "scale" and op.attr("scale") == self.limit]
        for op in ops:
            op.set_attr("scale", 1.0)
        return bool(ops)


def nothing(program):
    return False
"""


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "passes.py"
    file.write_text(PASSES, encoding="utf-8")
    return file


@pytest.mark.slow
def test_a_wrong_pass_is_shown_with_a_script_that_runs(file, capsys):
    assert main(["check", f"{file}:Wrong"]) == 1
    assert "differs" in capsys.readouterr().out
    ran = subprocess.run(
        [sys.executable, "counterexample.py"], capture_output=True, text=True, env={"PYTHONPATH": str(ROOT)}
    )
    assert ran.returncode == 0, ran.stderr
    assert "differs" in ran.stdout


@pytest.mark.slow
def test_a_pass_without_faults_is_reported(file, capsys):
    assert main(["check", f"{file}:nothing", "--programs", "20", "--seed", "3"]) == 0
    said = capsys.readouterr()
    assert said.out == "nothing: 20 programs, none of them broken\n"
    assert said.err.startswith("nothing has changed none of the 20 programs")


@pytest.mark.parametrize("name", ["passes.py:Wrogn", "missing.py:Wrong", "passes.py", "passes.py:", "passes:Wrong"])
def test_what_is_not_there_is_an_error(file, capsys, name):
    assert main(["check", name]) == 1
    assert "minigraph: error" in capsys.readouterr().err


def test_an_unknown_name_is_answered_with_the_rules_and_passes_of_the_file(file, capsys):
    file.write_text(
        PASSES
        + "\nfrom minigraph import layers, rewrite\n\n\n@rewrite.rule\ndef twice(x):\n    return layers.relu(x)\n"
        "\n\n@twice.to\ndef _(x):\n    return x\n",
        encoding="utf-8",
    )
    assert main(["check", f"{file}:other"]) == 1
    assert "It defines Wrong, nothing, twice." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("def f(:", "passes.py fails in line 1 with SyntaxError: invalid syntax"),
        ("x = 1\n1 / 0", "passes.py fails in line 2 with ZeroDivisionError: division by zero"),
        ("import sys\nsys.exit(0)", "passes.py fails in line 2 with SystemExit: 0"),
        ("class P:\n    def __init__(self, n):\n        pass", "P() of passes.py fails with TypeError: "),
    ],
)
def test_a_file_that_fails_is_an_error_and_no_script_is_written(file, capsys, code, said):
    file.write_text(code, encoding="utf-8")
    assert main(["check", "passes.py:P"]) == 1
    assert said in capsys.readouterr().err
    assert not Path("counterexample.py").exists()


def test_the_number_of_programs_is_positive(file, capsys):
    assert main(["check", "passes.py:nothing", "--programs", "0"]) == 2
    assert "must be a whole number of at least 1" in capsys.readouterr().err
