"""Benchmarks run, and a checkout compared with itself gives figures of both sides."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run(*arguments):
    command = [sys.executable, str(ROOT / "benchmarks" / "run.py"), "--rounds=1", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)


@pytest.mark.slow
def test_a_checkout_is_compared_with_itself(tmp_path):
    figures = tmp_path / "figures.json"
    done = run("--only=chain", "--engines=minigraph", f"--against={ROOT}", f"--json={figures}")
    assert done.returncode == 0, done.stderr
    rows = json.loads(figures.read_text())["results"]
    assert [row["engine"] for row in rows] == ["minigraph", "minigraph"]
    assert all(row["median_s"] > 0 and row["lowest_there_s"] <= row["median_there_s"] for row in rows)
    assert done.stdout.count("(g) chain") == 2


@pytest.mark.slow
def test_what_is_no_checkout_is_refused(tmp_path):
    done = run("--only=chain", f"--against={tmp_path}")
    assert done.returncode == 1
    assert f"--against {tmp_path}: there is no checkout of minigraph" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("program", ["Transformer", "STGAN"])
def test_a_large_program_is_measured_stage_by_stage(program):
    command = [sys.executable, str(ROOT / "benchmarks" / "first_results.py"), "minigraph", program]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
    assert done.returncode == 0, done.stderr
    stages = json.loads(done.stdout)
    assert 0 < stages["build"] < stages["first results"]


@pytest.mark.slow
def test_networks_by_hand_have_the_losses_of_minigraph(tmp_path):
    figures = tmp_path / "figures.json"
    done = run("--only=small,rnn,word2vec,gan,policy", "--engines=minigraph,numpy", f"--json={figures}")
    assert done.returncode == 0, done.stderr
    rows = json.loads(figures.read_text())["results"]
    assert not [row for row in rows if "failed" in row]
    assert sum(row["engine"] == "numpy" for row in rows) == 5
