"""README.md's commands are the ones that are checked: `.ci/run` runs them letter for letter."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from minigraph import unique_name
from minigraph.clip import explain

ROOT = Path(__file__).resolve().parents[2]

PYTHON = re.compile(r"^```python\n(.*?)^```", flags=re.MULTILINE | re.DOTALL)

COMMANDS = [
    "python -m pip install -e . && python -m minigraph compare",
    "python -m pip install -e '.[test]' && python -m pytest",
]


def test_the_readme_gives_the_two_commands_in_fenced_blocks():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    fenced = re.findall(r"^```[^\n]*\n(.*?)^```", readme, flags=re.MULTILINE | re.DOTALL)
    lines = [line.strip() for block in fenced for line in block.splitlines()]
    assert [line for line in lines if line in COMMANDS] == COMMANDS


def test_continuous_integration_runs_the_two_commands_in_an_environment_of_their_own():
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    after_each_environment = [
        [shlex.split(line)[2] for line in part.splitlines() if line.startswith("stage ") and not line.endswith("\\")]
        for part in re.split(r"^enter .*$", script, flags=re.MULTILINE)
    ]
    assert COMMANDS in [commands[: len(COMMANDS)] for commands in after_each_environment]


def test_the_first_program_prints_what_the_readme_shows(capsys):
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    program = PYTHON.search(readme)
    listing = re.search(r"^```text\n(.*?)^```", readme, flags=re.MULTILINE | re.DOTALL)
    with unique_name.guard():
        exec(program.group(1), {})
    assert capsys.readouterr().out == listing.group(1)


def test_the_comparison_runs_as_the_readme_shows_it(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (program,) = (each for each in PYTHON.findall(readme) if "compare_gradients" in each)
    names = {"__name__": "user"}
    with unique_name.guard():
        exec(compile(program, "README.md", "exec", dont_inherit=True), names)
    share, finding, rates = capsys.readouterr().out.splitlines()
    assert 0 < float(share) <= 1
    assert finding == names["training"].finding()
    assert "by more than the spread of the 3 seeds" in finding
    assert all(f"'{name}': 0." in rates for name in names["clips"])
    assert (tmp_path / "gradients.csv").stat().st_size > 1000
    halved = names["gradients"]["halved"].total.factor
    assert halved.min() < 1
    steps = explain(names["gradients"]["halved"].program).gradients[0].steps
    assert "(HalveLong, a strategy of your own)" in steps[0].what
