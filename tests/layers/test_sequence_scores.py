"""Distances of sequences against those found pair by pair, and what has no score."""

import numpy as np
import pytest

import minigraph as fluid
from minigraph import layers
from minigraph.errors import ExecutionError, OpError


def distance(a, b):
    row = list(range(len(b) + 1))
    for i, x in enumerate(a):
        before, row[0] = row[0], i + 1
        for j, y in enumerate(b):
            before, row[j + 1] = row[j + 1], min(before + (x != y), row[j] + 1, row[j + 1] + 1)
    return row[-1]


def test_distances_are_those_of_pairs():
    random = np.random.RandomState(0)
    a, b = random.randint(0, 4, (20, 9)), random.randint(0, 4, (20, 7))
    m, n = random.randint(0, 10, 20), random.randint(0, 8, 20)
    with fluid.dygraph.guard():
        found, count = layers.edit_distance(*map(fluid.to_tensor, (a, b)), False, None, *map(fluid.to_tensor, (m, n)))
    assert count.numpy() == [20]
    expected = [distance(x[:i], y[:j]) for x, y, i, j in zip(a, b, m, n, strict=True)]
    assert found.numpy()[:, 0].tolist() == expected


def test_what_has_no_score_is_refused():
    tags, length = fluid.to_tensor(np.zeros((2, 3), "int64")), fluid.to_tensor(np.array([3, 0]))
    with pytest.raises(ExecutionError, match="sequence 1 of Refs is empty"):
        layers.edit_distance(tags, tags, True, None, length, length)
    with pytest.raises(OpError, match="chunk_scheme must be one of IOB, IOE, IOBES, plain, got 'BIO'"):
        layers.chunk_eval(tags, tags, "BIO", 2, seq_length=length)
    with pytest.raises(ExecutionError, match="Label has no lengths of sequences"):
        layers.chunk_eval(tags, tags, "IOB", 2)
