"""Every example runs on its own, offline, and prints numbers that are right."""

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def numbers(line):
    """The numbers behind a line's heading."""
    return [float(number) for number in re.findall(r"-?\d+\.\d+", line)]


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    """What each example prints, each run at most once."""
    printed = {}

    def output(name):
        if name not in printed:
            home = tmp_path_factory.mktemp("home")
            ended = subprocess.run(
                [sys.executable, str(ROOT / "examples" / name)],
                cwd=home,
                env={
                    **os.environ,
                    "PYTHONPATH": str(ROOT),
                    "MINIGRAPH_OFFLINE": "1",
                    "MINIGRAPH_DATA_HOME": str(home),
                },
                capture_output=True,
                text=True,
                timeout=120,
            )
            assert ended.returncode == 0, ended.stderr
            printed[name] = ended.stdout
        return printed[name]

    return output


@pytest.mark.slow
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_it_runs_and_prints_something(outputs, example):
    assert outputs(example.name).strip()


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_it_says_what_it_shows(example):
    assert example.read_text(encoding="utf-8").startswith('"""')
    assert len(example.read_text(encoding="utf-8").splitlines()) <= 100


@pytest.mark.slow
def test_compare_clips_keeps_the_law_of_each_clip(outputs):
    text, training = outputs("compare_clips.py").split("\nTraining")
    assert "by norm: 4 clip_by_norm\n" in text
    rows = {name: [numbers(line) for line in text.splitlines() if line.lstrip().startswith(f"{name}  ")]
            for name in ("before clipping", "by norm", "by global norm", "by value")}  # fmt: skip
    assert {len(lines) for lines in rows.values()} == {3}
    for before, by_norm, by_global_norm, by_value in zip(*rows.values(), strict=True):
        assert np.linalg.norm(before[:-1]) == pytest.approx(before[-1], abs=1e-3)
        assert by_norm[:-1] == pytest.approx([min(norm, 1.0) for norm in before[:-1]], abs=1e-3)
        assert by_global_norm == pytest.approx([norm * min(1.0, 1.0 / before[-1]) for norm in before], abs=1e-3)
        assert all(after <= norm for after, norm in zip(by_value, before, strict=True))
    summary = {name: numbers(next(line for line in training.splitlines() if line.startswith(f"{name} ")))
               for name in ("unclipped", "by norm", "by global norm", "by value")}  # fmt: skip
    assert len({row[0] for row in summary.values()}) == 1  # the first loss: all start equal
    assert all(row[1] < row[0] / 2 for row in summary.values())
    assert summary["unclipped"][4] == summary["unclipped"][5]  # norm before and after


@pytest.mark.slow
def test_linear_regression_finds_the_weights_when_it_clips(outputs):
    text = outputs("linear_regression.py")
    found = {name: np.array(numbers(line)) for name, _, line in (row.rpartition(":") for row in text.splitlines())}
    found = {name.strip(): values for name, values in found.items() if len(values) == 5}
    assert np.abs(found["with clipping"] - found["true"]).max() < 0.2
    assert np.abs(found["without clipping"] - found["true"]).max() > 1
    losses = [float(loss) for loss in re.findall(r"mean squared error +([\d.]+)", text)]
    with_clipping = losses[len(losses) // 2 :]
    assert with_clipping[-1] < with_clipping[0] / 10


@pytest.mark.slow
def test_gradient_clip_by_norm_computes_what_its_page_says(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("MINIGRAPH_OFFLINE", "1")
    monkeypatch.setenv("MINIGRAPH_DATA_HOME", str(tmp_path))
    with pytest.warns(UserWarning, match="MNIST IS NOT BEING USED"):
        variables = runpy.run_path(str(ROOT / "examples" / "gradient_clip_by_norm.py"))
    assert capsys.readouterr().out.splitlines() == [f"count:{count}" for count in range(1, 7)]
    assert len(variables["out"]) == len(variables["out_clip"]) == 6
    for grad, clipped in zip(variables["out"], variables["out_clip"], strict=True):
        norm = np.linalg.norm(grad.astype(np.float64))
        np.testing.assert_allclose(clipped, grad * min(1.0, 2.0 / norm), rtol=1e-5)
