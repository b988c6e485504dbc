"""The table of a network's parameters and operations."""

import pytest

import minigraph as fluid
from minigraph.contrib import model_stat

pytestmark = pytest.mark.usefixtures("new_program")


def test_the_table_counts_one_sample(capsys):
    x = fluid.data("x", [None, 3, 8, 8])
    x = fluid.layers.batch_norm(fluid.layers.conv2d(x, 4, 3, bias_attr=False), act="relu")
    x = fluid.layers.prelu(fluid.layers.conv2d(x, 4, 3, groups=2), mode="all")
    fluid.layers.fc(fluid.layers.pool2d(x, 2, pool_stride=2), 5, act="softmax")
    model_stat.summary(fluid.default_main_program())
    printed = capsys.readouterr().out
    rows = [[cell.strip() for cell in line.split("|")[2:-1]] for line in printed.splitlines() if line.startswith("|")]
    assert rows[1:] == [
        ["conv2d", "(3, 8, 8)", "(4, 6, 6)", "108", "7776"],
        ["batch_norm", "(4, 6, 6)", "(4, 6, 6)", "8", "288"],
        ["relu", "(4, 6, 6)", "(4, 6, 6)", "0", "144"],
        ["conv2d", "(4, 6, 6)", "(4, 4, 4)", "72", "2304"],
        ["prelu", "(4, 4, 4)", "(4, 4, 4)", "1", "64"],
        ["pool2d", "(4, 4, 4)", "(4, 2, 2)", "0", "64"],
        ["mul", "(4, 2, 2)", "(5,)", "81", "80"],
    ]
    assert "Total PARAMs: 270(0.0003M)\nTotal FLOPs: 10720(0.00G)" in printed


def test_a_program_without_such_operators_has_an_empty_table(capsys):
    model_stat.summary(fluid.default_main_program())
    assert "Total FLOPs: 0(0.00G)" in capsys.readouterr().out
