"""Products of few rows with one matrix, in parts, against one product."""

import numpy as np
import pytest

from minigraph.kernels.step_products import QUICK, StepProduct

pytestmark = pytest.mark.numbers

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("inner", "columns", "is_made_in_parts"),
    [(128, 512, True), (512, 128, True), (256, 1024, True), (128, 500, False), (32, 128, False), (1024, 64, True)],
)
def test_a_product_in_parts_is_the_product(inner, columns, is_made_in_parts, dtype):
    matrix, rows = RNG.standard_normal((inner, columns)).astype(dtype), RNG.standard_normal((30, inner)).astype(dtype)
    times = StepProduct(np, matrix, 30)
    assert (times.parts is not None) == is_made_in_parts
    for count in (0, 1, 2, QUICK // matrix.size, QUICK // matrix.size + 1, 30):
        given = rows[:count].astype(np.float64)
        error = abs(times(rows[:count]) - given @ matrix)
        assert (error <= np.finfo(dtype).eps * inner * (abs(given) @ abs(matrix))).all()


def test_a_transposed_matrix_is_taken():
    matrix = RNG.standard_normal((64, 16))
    np.testing.assert_allclose(StepProduct(np, matrix.T, 3)(np.ones((3, 16))), np.ones((3, 16)) @ matrix.T)
