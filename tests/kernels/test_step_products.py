"""Products of few rows with one matrix, in parts, against one product."""

import numpy as np
import pytest

from minigraph.kernels.step_products import QUICK, GateProduct, StepProduct

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


@pytest.mark.parametrize(
    ("inner", "size", "most"), [(3, 5, 2), (1, 1, 1), (128, 128, 30), (256, 192, 60), (300, 257, 50)]
)
@pytest.mark.parametrize("gates", [1, 2, 4])
def test_products_of_gates_lie_apart(inner, size, most, gates):
    rng = np.random.default_rng(0)
    matrix, rows = rng.standard_normal((inner, gates * size)), rng.standard_normal((most, inner))
    times = GateProduct(np, matrix, most, gates)
    for count in {most, 1, 0}:
        expected = (rows[:count] @ matrix).reshape(count, gates, size).swapaxes(0, 1)
        np.testing.assert_allclose(times(rows[:count]), expected, rtol=1e-12, atol=1e-12)


def test_a_gate_is_cut_where_that_is_quick():
    assert GateProduct(np, np.ones((128, 512)), 32, 4).weights.shape == (4, 1, 128, 128)
    assert GateProduct(np, np.ones((256, 1024)), 32, 4).weights.shape == (4, 4, 256, 64)
    assert GateProduct(np, np.ones((256, 1023)), 64, 3).weights.shape == (3, 1, 256, 341)
