"""Rows that are combined by a CUDA kernel: run on the processor, and on a GPU where there is one."""

import host_cuda as stand_in
import numpy as np
import pytest
from host_cuda import needs_compiler

from minigraph.kernels.indexing import combine_rows

OPERATIONS = ["add", "maximum", "minimum"]
TYPES = ["float32", "float64", "int32", "int64"]
CASES = {
    "many of one number": (3, 200, (5,)),
    "each number once": (50, 50, (2, 3)),
    "numbers": (7, 1000, ()),
    "launches of three sizes": (2, 9000, ()),
    "one row": (4, 1, (9,)),
    "no rows": (4, 0, (2,)),
    "rows without elements": (4, 6, (0,)),
    "more than a launch has threads": (1000, 3000, (200,)),
}


def drawn(case, dtype):
    """Whole numbers, the sums of which are exact in any order, with NaN and infinity among them."""
    height, count, row = CASES[case]
    rng = np.random.default_rng(3)
    total, rows = (rng.integers(-100, 100, (n, *row)).astype(dtype) for n in (height, count))
    if np.dtype(dtype).kind == "f" and rows.size:
        rows.reshape(-1)[:: max(rows.size // 5, 1)] = np.nan
        total.reshape(-1)[0] = np.inf
    numbers = rng.permutation(height) if count == height else rng.integers(0, height, count)
    return total, numbers, rows


def check(xp, place, operation, total, numbers, rows):
    expected, found = total.copy(), place(total)
    with np.errstate(invalid="ignore"):
        getattr(np, operation).at(expected, numbers, rows)
    combine_rows(xp, operation, found, place(numbers), place(rows))
    found = xp.asnumpy(found)
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    np.testing.assert_array_equal(found, expected, err_msg=operation)


def check_fractions(xp, place):
    """Few rows of one number are added in their order; of many the sum is near, and the same in each run."""
    rng = np.random.default_rng(4)
    for count, is_exact in ((60, True), (10_000, False)):
        numbers, rows = rng.integers(0, 2, count), rng.standard_normal((count, 3)).astype("float32")
        expected = np.zeros((2, 3), "float32")
        np.add.at(expected, numbers, rows)
        found = [place(np.zeros((2, 3), "float32")) for _ in range(3)]
        for each in found:
            combine_rows(xp, "add", each, place(numbers), place(rows))
        found = [xp.asnumpy(each) for each in found]
        assert len({each.tobytes() for each in found}) == 1
        if is_exact:
            assert found[0].tobytes() == expected.tobytes()
        np.testing.assert_allclose(found[0], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize("dtype", TYPES)
def test_rows_of_one_number_are_combined(dtype, host_cuda):
    for case in CASES:
        for operation in OPERATIONS if not case.startswith("more") else ():
            check(host_cuda, host_cuda.array, operation, *drawn(case, dtype))


@pytest.mark.slow
@needs_compiler
def test_the_order_of_a_sum_is_fixed(host_cuda):
    check_fractions(host_cuda, host_cuda.array)


@needs_compiler
def test_arrays_need_not_be_contiguous(host_cuda):
    total, numbers, rows = (host_cuda.array(x) for x in drawn("many of one number", "float64"))
    wide = host_cuda.array(np.zeros((total.shape[0], 2 * total.shape[1])))
    wide[:, ::2] = total
    expected = np.array(total)
    with np.errstate(invalid="ignore"):
        np.add.at(expected, np.array(numbers), np.array(rows))
    given = host_cuda.array(np.repeat(numbers, 2))[::2], host_cuda.array(np.repeat(rows, 2, 0))[::2]
    combine_rows(host_cuda, "add", wide[:, ::2], *given)
    np.testing.assert_array_equal(wide[:, ::2], expected)
    np.testing.assert_array_equal(wide[:, 1::2], 0)


@needs_compiler
@pytest.mark.parametrize("operation", OPERATIONS)
def test_other_types_are_combined_in_a_wider_one(operation, host_cuda):
    total, numbers, rows = drawn("many of one number", "float64")
    expected, found = total.astype("float32"), host_cuda.array(total.astype("float16"))
    getattr(np, operation).at(expected, numbers, rows.astype("float16").astype("float32"))
    combine_rows(host_cuda, operation, found, host_cuda.array(numbers), host_cuda.array(rows.astype("float16")))
    np.testing.assert_allclose(np.asarray(found, "float32"), expected, rtol=2e-3, atol=0.5)


@needs_compiler
def test_a_number_outside_is_left_out_and_no_values_are_waited_for(host_cuda):
    total, numbers, rows = np.zeros((2, 3)), np.array([1, -1, 2, 0]), np.ones((4, 3))
    found = host_cuda.array(total)
    given = host_cuda.array(numbers), host_cuda.array(rows)
    stand_in.ndarray.looked_at = 0
    combine_rows(host_cuda, "add", found, *given)
    assert stand_in.ndarray.looked_at == 0
    assert np.array_equal(found, np.ones((2, 3)))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", TYPES)
def test_a_gpu_combines_rows_of_one_number(dtype, cuda_place):
    for case in CASES:
        for operation in OPERATIONS:
            check(cuda_place.xp, cuda_place.to_device, operation, *drawn(case, dtype))


@pytest.mark.gpu
def test_the_order_of_a_sum_is_fixed_on_a_gpu(cuda_place):
    check_fractions(cuda_place.xp, cuda_place.to_device)
