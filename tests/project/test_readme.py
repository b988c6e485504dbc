"""README.md: its commands, which `.ci/run` runs letter for letter, and its programs."""

from __future__ import annotations

import re
from configparser import ConfigParser
from pathlib import Path

import pytest

from minigraph import unique_name
from minigraph.clip import explain

ROOT = Path(__file__).resolve().parents[2]

PYTHON = re.compile(r"^```python\n(.*?)^```", flags=re.MULTILINE | re.DOTALL)


def test_the_commands_are_blocks_of_their_own_that_continuous_integration_can_read():
    """`.ci/run` runs the lines of these blocks."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert re.findall(r"^```sh\n(.*?)^```", readme, flags=re.MULTILINE | re.DOTALL) == [
        "python -m pip install -e . && python -m minigraph compare\n",
        "python -m pip install -e '.[test]' && python -m pytest\n",
    ]


def test_the_first_program_prints_what_the_readme_shows(capsys):
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    program = PYTHON.search(readme)
    listing = re.search(r"^```text\n(.*?)^```", readme, flags=re.MULTILINE | re.DOTALL)
    with unique_name.guard():
        exec(program.group(1), {})
    assert capsys.readouterr().out == listing.group(1)


@pytest.mark.slow
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


def test_every_extra_for_users_has_a_row():
    setup = ConfigParser()
    setup.read(ROOT / "setup.cfg", encoding="utf-8")
    extras = set(setup["options.extras_require"]) - {"test", "lint"}
    table = (ROOT / "README.md").read_text(encoding="utf-8").partition("## Extras")[2]
    first_cells = "".join(re.findall(r"^\|([^|]*)\|", table, flags=re.MULTILINE))
    assert set(re.findall(r"`([^`]+)`", first_cells)) == extras
