"""The command ``minigraph trace``."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from minigraph.cli.main import main

ROOT = Path(__file__).resolve().parents[2]

SCRIPT = """\
import sys
import minigraph as fluid
from minigraph import layers

x = fluid.data("x", [None, 3])
loss = layers.mean(layers.fc(x, 2))
fluid.optimizer.SGD(0.1).minimize(loss)
print("arguments", sys.argv[1:])
"""


def run(folder, text, *options):
    (folder / "script.py").write_text(text, encoding="utf-8")
    return subprocess.run(
        [sys.executable, "-m", "minigraph", "trace", "script.py", *options],
        cwd=folder, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip


def steps_of(path):
    text = path.read_text(encoding="utf-8")
    data = json.loads(re.search(r'id="data">(.*?)</script>', text, re.S)[1])
    return [step["name"] for step in data["steps"]]


@pytest.mark.slow
def test_a_script_is_run_and_its_steps_are_written(tmp_path):
    done = run(tmp_path, SCRIPT, "-o", "page.html", "--arguments=--epochs 3")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split("\n")[0] == "arguments ['--epochs', '3']"
    assert done.stdout.split("\n")[1] == "page.html: 4 steps on 1 program"
    assert steps_of(tmp_path / "page.html") == ["start", "append_backward", "append_regularization_ops", "SGDOptimizer"]


@pytest.mark.slow
def test_a_script_that_fails_leaves_the_steps_until_then(tmp_path):
    done = run(tmp_path, SCRIPT + "layers.mean(3)\n")
    assert done.returncode == 1
    first, second, *_ = done.stderr.strip().split("\n")
    assert first == "Traceback (most recent call last):"
    assert second == '  File "script.py", line 9, in <module>'
    assert "append_backward" in steps_of(tmp_path / "steps.html")


@pytest.mark.slow
def test_the_exit_status_is_that_of_the_script(tmp_path):
    assert run(tmp_path, "raise SystemExit(7)").returncode == 7
    done = run(tmp_path, "raise SystemExit('no')")
    assert (done.returncode, done.stderr) == (1, "no\n")
    assert run(tmp_path, "raise KeyboardInterrupt").returncode == 130
    assert "SyntaxError" in run(tmp_path, "for").stderr


def test_what_cannot_be_traced_is_said_before_the_script_runs(tmp_path, capsys):
    assert main(["trace", str(tmp_path / "none.py")]) == 1
    assert "there is no script" in capsys.readouterr().err
    (tmp_path / "script.py").write_text("print('ran')", encoding="utf-8")
    assert main(["trace", str(tmp_path / "script.py"), "-o", str(tmp_path / "no" / "steps.html")]) == 1
    assert "ran" not in capsys.readouterr().out
