"""Memory of freed arrays serves later ones."""

import os
import platform
import subprocess
import sys

import pytest

_FAULTS = """
import resource
import numpy as np
import minigraph

def touch():
    arrays = [np.ones(1 << 20, np.uint8) for _ in range(8)]

touch()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(8):
    touch()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc learns from what is freed")
def test_arrays_take_the_memory_of_freed_ones():
    environment = {name: value for name, value in os.environ.items() if "MALLOC" not in name and "GLIBC" not in name}
    made = subprocess.run([sys.executable, "-c", _FAULTS], env=environment, capture_output=True, check=True)
    # New memory would fault for each of 16,384 pages.
    assert int(made.stdout) < 1000
