"""Pinned memory for feeds, by a stand-in for CuPy whose device is the processor."""

from itertools import pairwise

import numpy as np

from minigraph.executor.cuda.feed_staging import Staging
from minigraph.runtime.place import CUDAPlace


def test_rooms_for_feeds_are_used_in_turn(host_cuda):
    staging = Staging(CUDAPlace(0))
    seen = []
    for number in range(6):
        sent, used = staging.send({"x": np.full((2, 3), number)})
        assert (sent["x"] == number).all()
        seen.append(sent["x"].data.ptr)
        staging.done(used)
    assert len(set(seen)) == 2
    assert all(a != b for a, b in pairwise(seen))
    waiting = [staging.send({"x": np.full((2, 3), number)})[0]["x"] for number in range(4)]
    assert [array[0, 0] for array in waiting] == [0, 1, 2, 3]  # nobody gets what is still in use


def test_rooms_of_shapes_long_unused_are_let_go(host_cuda):
    staging = Staging(CUDAPlace(0))
    for size in range(1, 100):
        staging.done(staging.send({"x": np.zeros(size)})[1])
    assert len(staging._free) == 64
