"""Benchmarks run, and a checkout compared with itself gives figures of both sides."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SPEC = importlib.util.spec_from_file_location("page", ROOT / "benchmarks" / "page.py")
page = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(page)


def run(*arguments):
    command = [sys.executable, str(ROOT / "benchmarks" / "run.py"), "--rounds=1", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)


@pytest.mark.slow
def test_a_checkout_is_compared_with_itself(tmp_path):
    figures = tmp_path / "figures.json"
    done = run("--only=chain", "--engines=minigraph", f"--against={ROOT}", "--pairs=2", f"--json={figures}")
    assert done.returncode == 0, done.stderr
    rows = json.loads(figures.read_text(encoding="utf-8"))["results"]
    assert [row["engine"] for row in rows] == ["minigraph", "minigraph"]
    assert all(row["median_s"] > 0 and row["lowest_there_s"] <= row["median_there_s"] for row in rows)
    assert done.stdout.count("(g) chain") == 2


@pytest.mark.slow
def test_what_is_no_checkout_is_refused(tmp_path):
    done = run("--only=chain", f"--against={tmp_path}")
    assert done.returncode == 1
    assert f"--against {tmp_path}: there is no checkout of minigraph" in done.stderr


@pytest.mark.slow
def test_a_large_program_is_measured_stage_by_stage():
    command = [sys.executable, str(ROOT / "benchmarks" / "first_results.py"), "minigraph", "Transformer"]
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
    rows = json.loads(figures.read_text(encoding="utf-8"))["results"]
    assert not [row for row in rows if "failed" in row]
    assert sum(row["engine"] == "numpy" for row in rows) == 5


@pytest.mark.slow
def test_networks_of_texts_by_hand_have_the_losses_and_parameters_of_minigraph():
    command = [sys.executable, str(ROOT / "benchmarks" / "ragged.py"), "--numpy", "--rounds=1", "--seconds=0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("ratio") == 6


def test_the_page_of_figures_is_the_one_that_the_script_makes():
    made = page.text()
    assert made == (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    for which, names in page.RUNS.items():
        figures = json.loads((page.FIGURES / f"{which}.json").read_text(encoding="utf-8"))
        assert set(figures["workloads"]) <= set(names)
        assert f"{figures['machine']}. Measured on {figures['date']} by `{figures['command']}`." in made


def test_a_table_has_a_row_for_each_title_and_a_column_for_each_engine():
    peers = [
        {"workload": "step", "engine": "torch", "median_s": 2e-4},
        {"workload": "step", "engine": "jax", "failed": "no"},
    ]
    found = [{"workload": "step", "engine": "minigraph", "median_s": 3e-4}, *peers]
    adds = [{"workload": "clip", "engine": "minigraph", "median_s": 1e-4, "added": 0.05}]
    assert list(page.rows({"a": found, "b": adds, "c": found}, ("a", "b"))) == [
        "| | minigraph | torch | JAX |",
        "|---|---|---|---|",
        "| step | 300 (1.50) | 200 | fails |",
        "| clip | 5.0% | - | - |",
    ]
    assert list(page.rows({}, ("a",))) == ["Not measured yet."]


def test_a_run_for_the_page_goes_on_where_it_was_killed(tmp_path, monkeypatch):
    asked = []

    def killed_at_lenet(arguments):
        asked.append(arguments[2])
        if arguments[2] == "--only=lenet" and asked.count("--only=lenet") == 1:
            raise KeyboardInterrupt
        return {"date": "today", "command": "benchmarks/run.py", "machine": "a machine", "results": []}

    monkeypatch.setattr(page, "FIGURES", tmp_path)
    monkeypatch.setattr(page, "run", killed_at_lenet)
    with pytest.raises(KeyboardInterrupt):
        page.measure("cpu-1", ["small", "lenet"], [])
    page.measure("cpu-1", ["small", "lenet"], [])
    assert asked == ["--only=small", "--only=lenet", "--only=lenet"]
    assert list(json.loads((tmp_path / "cpu-1.unfinished").read_text(encoding="utf-8"))["workloads"]) == [
        "small",
        "lenet",
    ]


def test_a_workload_that_ends_badly_is_a_row_of_the_page(monkeypatch):
    monkeypatch.setattr(page, "HERE", ROOT / "nowhere")
    row = page.run(["--device=cpu", "--cores=1", "--only=small"])["results"][0]
    assert page.cell("minigraph", row, []) == "fails"
