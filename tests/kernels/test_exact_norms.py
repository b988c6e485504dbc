"""Norms against exact rational arithmetic: 2 units of the last place at most, sums of squares to 1e-8."""

import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from explore.norms import EDGES, ROADS, VALUES, Problem, case
from hypothesis import given
from hypothesis import strategies as st
from jit_support import needs_numba

from minigraph.kernels.jit.loops.norms import added_exactly
from minigraph.support import blas

pytestmark = pytest.mark.numbers

SIZES = [1, 2, 3, 7, 20, *[edge + more for edge in EDGES for more in (-1, 0, 1)], 150_000]


@pytest.mark.laws
@pytest.mark.parametrize("jit", [False, pytest.param(True, marks=needs_numba)], ids=["plain", "jit"])
@pytest.mark.parametrize("values", VALUES)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_a_norm_of_any_size_is_within_two_units_of_the_exact_one(dtype, values, jit):
    for seed, size in enumerate(SIZES):
        assert not Problem(dtype, (size,), values, 0.0, seed, "joint 2", jit).wrong()


@pytest.mark.laws
@pytest.mark.parametrize("jit", [False, pytest.param(True, marks=needs_numba)], ids=["plain", "jit"])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("road", ROADS)
def test_every_road_leads_to_the_exact_norm(road, dtype, jit):
    for seed, values in enumerate(VALUES):
        assert not Problem(dtype, (3, 8193, 10_000), values, 0.0, seed, road, jit).wrong()


@pytest.mark.slow
def test_random_norms_are_exact():
    for seed in range(60):
        case(seed)


KERNELS = {
    "Nehalem": {"sse4_2"},
    "Sandybridge": {"avx"},
    "Haswell": {"avx2", "fma"},
    "Zen": {"avx2", "fma"},
    "SkylakeX": {"avx512f", "avx512vl", "avx512dq", "avx512bw"},
    "Cooperlake": {"avx512_bf16"},
}
"""Core types of OpenBLAS and what a processor must have for them."""


@pytest.mark.slow
@pytest.mark.parametrize(("core_type", "threads"), [*zip(KERNELS, (1, 2, 1, 4, 2, 1), strict=True)])
def test_norms_are_exact_whatever_the_kernels_of_blas(core_type, threads):
    flags = {word for line in blas.read_processor().splitlines() if line.startswith("flags") for word in line.split()}
    if not flags >= KERNELS[core_type]:
        pytest.skip(f"the processor has no {core_type} kernels")
    environment = os.environ | {
        "OPENBLAS_CORETYPE": core_type, "OPENBLAS_NUM_THREADS": str(threads), "NUMBA_NUM_THREADS": str(threads),
    }  # fmt: skip
    words = [sys.executable, "-m", "tests.explore", "--only", "norms", "--seed", "0", "--cases", "40"]
    result = subprocess.run(words, capture_output=True, text=True, env=environment, cwd=Path(__file__).parents[2])
    assert result.returncode == 0, result.stdout + result.stderr


NUMBERS = st.floats(allow_nan=False, allow_infinity=False, max_value=1e300, min_value=-1e300)
TIES = st.sampled_from([1.0, 2.0**53, 2.0**-53, 2.0**-54, 2.0**-105, 3.0, 1e-320, -(2.0**-53), -1.0, 0.0])


@pytest.mark.slow
@given(st.lists(NUMBERS | TIES, max_size=12))
def test_the_sum_of_parts_is_rounded_once(numbers):
    assert added_exactly(np.array(numbers, "float64")) == math.fsum(numbers)


@pytest.mark.parametrize(
    ("numbers", "expected"), [([math.inf, 1], math.inf), ([1, math.nan], math.nan), ([1.7e308, 1.7e308], math.inf)]
)
def test_a_sum_that_is_not_finite_is_infinite_or_nan(numbers, expected):
    with np.errstate(over="ignore"):
        assert np.array_equal(added_exactly(np.array(numbers, "float64")), expected, equal_nan=True)
