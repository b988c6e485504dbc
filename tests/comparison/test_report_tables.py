"""Reports as text: whatever the width, every number is whole."""

import os
import re
import subprocess
import sys

import numpy as np
import pytest
from report_samples import gradient_report, training_report

from minigraph.comparison.layout import NumberTable, Row
from minigraph.comparison.wording import number_cells

WIDTHS = (30, 60, 80, 100, 120)
NAMES = ["unclipped", "norm=2", "GradientClipByGlobalPNorm(clip_norm=0.5, norm_type=3.0)", "夹" * 30, "a b " * 30]
PARAMETERS = ["fc_0.w_0", "encoder.layers.11.attention.projection.query.weight", "层" * 40]


def lines_of(report, width, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    return str(report).split("\n")


def numbers(text):
    return re.findall(r"(?<![\w=.])-?\d[\d.]*(?:e[+-]\d+)?%?(?![\w=])", text)


@pytest.mark.slow
@pytest.mark.parametrize("width", WIDTHS)
def test_every_number_of_a_gradient_report_is_whole(monkeypatch, width):
    report = gradient_report(NAMES, PARAMETERS, np.random.default_rng(1).uniform(1e-8, 1e8, (5, 4, 7)))
    lines = lines_of(report, width, monkeypatch)
    check_width(lines, width)
    text = "\n".join(lines)
    for result in report.strategies.values():
        for statistics in (*result.parameters.values(), result.total):
            for cell in number_cells(statistics):
                assert cell in numbers(text)
    joined = re.sub(r"\s", "", text)
    for name in (*NAMES, *PARAMETERS):
        assert re.sub(r"\s", "", name) in joined
    assert "…" not in text


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize(("seeds", "rates"), [([None], [None]), ([1, 2, 3], [1e-5, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0])])
def test_every_number_of_a_training_report_is_whole(monkeypatch, width, seeds, rates):
    losses = {(name, rate): np.random.default_rng(1).uniform(0.01, 99999, (len(seeds), 40)) for name in NAMES
              for rate in rates}  # fmt: skip
    report = training_report(losses, seeds)
    lines = lines_of(report, width, monkeypatch)
    check_width(lines, width)
    text = "\n".join(lines)
    for name in NAMES:
        for rate in rates:
            estimate = report.estimate(name, rate)
            assert f"{estimate.mean:.4f}" in text
            assert len(seeds) == 1 or f"({estimate.spread:.4f})" in text
        series = np.mean([run.metrics["loss"] for run in report.at_best(name)], axis=0)
        for end in (0, -1):
            assert f"{series[end]:.4f}" in numbers(text)
    assert "…" not in text


def check_width(lines, width):
    for line in lines:
        assert sum(2 if ord(character) > 0x2E80 else 1 for character in line) <= width, line
        assert line == line.rstrip()


@pytest.mark.parametrize("width", [20, 40, 60, 200])
@pytest.mark.parametrize("may_skip", [False, True])
def test_cells_stand_under_their_headings(width, may_skip):
    headings = [f"{n}" for n in range(1, 31)]
    table = NumberTable(
        "name", headings, [Row(f"row {r}", [f"{r}.{n}" for n in range(1, 31)]) for r in (1, 2)], may_skip
    )
    lines = [line.plain for line in table._lines(width, "-")]
    assert max(map(len, lines)) <= width
    seen = []
    for number, line in enumerate(lines):
        if set(line) == {"-"}:
            heads = lines[number - 1].removeprefix("name").split()
            rows = [row for row in lines[number + 1 : number + 5] if "." in row][:2]
            for r, row in enumerate(rows, start=1):
                assert re.findall(r"\d\.\d+", row) == [f"{r}.{head}" for head in heads]
                assert len(row) == len(lines[number - 1])
            seen += heads
    assert seen == headings or (may_skip and {seen[0], seen[-1]} == {"1", "30"} and len(seen) <= 10)


@pytest.mark.slow
@pytest.mark.parametrize("columns", [None, "60", "72"])
def test_a_pipe_is_as_wide_as_columns_says(columns):
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    if columns:
        environment["COLUMNS"] = columns
    command = [sys.executable, "-m", "minigraph", "compare", "--batches", "1", "--no-diff"]
    text = subprocess.run(command, env=environment, capture_output=True, encoding="utf-8", timeout=120).stdout
    widest = max(map(len, text.splitlines()))
    assert widest <= int(columns or 100)
    assert widest > int(columns or 100) * 0.75
    assert all(line == line.rstrip() for line in text.splitlines())
