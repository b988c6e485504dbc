"""Products of matrices in buffers, whose truth is the kernel without buffers."""

import numpy as np
import pytest

from minigraph.kernels import find_kernel

PRODUCTS = {
    "vectors": ((4,), (4,), False, False), "matrices": ((2, 3), (3, 4), False, False),
    "transposed": ((3, 2), (4, 3), True, True), "outer": ((5, 1, 4), (5, 6, 4), False, True),
    "one": ((1, 1, 1), (1, 1, 1), False, False), "batch": ((2, 3, 4, 5), (2, 3, 5, 2), False, False),
    "one matrix": ((2, 3, 4), (4, 5), False, False), "one matrix, transposed": ((2, 3, 4), (5, 4), False, True),
    "no rows": ((0, 3, 4), (0, 4, 2), False, False),
}  # fmt: skip


@pytest.mark.parametrize("case", PRODUCTS.values(), ids=PRODUCTS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("wanted", [(True, True), (True, False), (False, True)])
def test_gradients_of_a_product_are_written_to_their_buffers(wanted, dtype, case):
    rng = np.random.default_rng(8)
    x, y = (rng.standard_normal(shape).astype(dtype) for shape in case[:2])
    attrs = {"transpose_X": case[2], "transpose_Y": case[3], "alpha": 0.5}
    product, grad = (find_kernel(type, "cpu").function for type in ("matmul", "matmul_grad"))
    d_out = rng.standard_normal(product(np, x, y, **attrs).shape).astype(dtype)
    expected = grad(np, x, y, d_out, wanted=wanted, **attrs)
    buffers = tuple(np.empty_like(each) if wants else None for each, wants in zip((x, y), wanted, strict=True))
    for out in (buffers, tuple(each if wants else None for each, wants in zip((x, y), wanted, strict=True))):
        found = grad(np, x, y, d_out, wanted=wanted, out=out, **attrs)
        for result, buffer, wants, truth in zip(found, out, wanted, expected, strict=True):
            assert result is buffer if wants else result is None
            if wants:
                np.testing.assert_array_equal(result, truth)
