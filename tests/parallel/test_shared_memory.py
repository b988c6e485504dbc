"""Memory that several processes read and write."""

import gc
import os
import subprocess
import sys

import numpy as np
import pytest

from minigraph.parallel.shared_memory import SharedMemory, Spot, shared_by

pytestmark = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="needs memfd_create, of Linux")


class Comm:
    """Two ranks of one process, of which the other answers as `change` makes it of this one's."""

    def __init__(self, change=lambda given: given):
        self._change = change

    def Get_size(self):
        return 2

    def allgather(self, given):
        return [given, self._change(given)]


@pytest.mark.slow
def test_another_process_writes_to_a_block():
    memory = SharedMemory()
    block = memory.allocate(1 << 16)
    numbers = block[64:].view("float32")
    numbers[:] = np.arange(numbers.size)
    spot = memory.find(numbers)
    assert spot.offset == 64
    script = f"""
from minigraph.parallel.shared_memory import SharedMemory, Spot
found = SharedMemory().open({os.getpid()}, Spot{tuple(spot)}).view("float32")
assert found.size == {numbers.size} and found[-1] == {numbers.size - 1}
found += 1
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
    assert numbers[-1] == numbers.size and numbers[0] == 1


@pytest.mark.parametrize("size", [1, 4097, (1 << 21) - 1, (1 << 21) + 5])
def test_blocks_lie_where_huge_pages_can(size):
    memory, other = SharedMemory(), SharedMemory()
    block = memory.allocate(size)
    block[[0, -1]] = 7, 9
    opened = other.open(os.getpid(), memory.find(block))
    assert opened.size == block.size == size
    assert opened.ctypes.data % (1 << 21) == block.ctypes.data % (1 << 21) == 0
    assert (opened == block).all()
    opened[-1] = 1
    assert block[-1] == 1


def test_arrays_elsewhere_and_with_gaps_are_not_found():
    memory = SharedMemory()
    block = memory.allocate(1 << 12)
    assert memory.find(block[1:]).offset == 1
    assert memory.find(block[::2]) == memory.find(np.zeros(4)) == Spot()


@pytest.mark.slow
def test_a_block_goes_with_the_last_array_in_it():
    memory = SharedMemory()
    before = len(os.listdir("/proc/self/fd"))
    piece = memory.allocate(1 << 12)[8:16].view("float32")
    gc.collect()
    assert memory.find(piece).offset == 8
    assert len(os.listdir("/proc/self/fd")) > before
    del piece
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == before


def test_the_blocks_of_a_process_that_were_opened_first_are_closed():
    memory, other = SharedMemory(), SharedMemory()
    blocks = [memory.allocate(1 << 12) for _ in range(4)]
    for number, block in enumerate(blocks):
        block[:] = number
        assert (other.open(os.getpid(), memory.find(block)) == number).all()
    assert len(other._opened[os.getpid()]) == 2


def of_no_process(given):
    return given if isinstance(given, bool) else (1 << 29, *given[1:])


def with_other_contents(given):
    return given if isinstance(given, bool) else (*given[:2], b"something else")


def of_an_empty_file(given):
    return given if isinstance(given, bool) else (given[0], Spot(9, os.memfd_create("empty"), 0), given[2])


def that_is_refused(given):
    return False if isinstance(given, bool) else given


@pytest.mark.parametrize("change", [of_no_process, of_an_empty_file, with_other_contents, that_is_refused])
def test_ranks_share_only_if_each_can_open_all(change):
    assert shared_by(Comm()) is not None
    assert shared_by(Comm(change)) is None
