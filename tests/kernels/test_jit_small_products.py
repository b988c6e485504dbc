"""Compiled batches of small products against the shared kernels."""

import numpy as np
import pytest
from jit_support import few_pieces, needs_numba
from kernel_calls import array_type

from minigraph.kernels import find_kernel, find_specializer

pytestmark = [pytest.mark.numbers, needs_numba, pytest.mark.usefixtures("always_compiled")]

OF_ROWS = {"transpose_X": False, "transpose_Y": True}


def offered(type, arrays, **attrs):
    return find_specializer(type, jit=True)(np, *map(array_type, arrays), **attrs)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("alpha", [1.0, 0.25])
@pytest.mark.parametrize("batch", [(16,), (5, 4), (256,)])
@pytest.mark.parametrize(("rows", "others", "width"), [(1, 6, 128), (4, 4, 3), (2, 1, 17)])
def test_products_and_gradients_are_those_of_the_kernel(rows, others, width, batch, alpha, dtype, monkeypatch):
    monkeypatch.setattr("minigraph.kernels.jit.threads.pieces", few_pieces(3))
    rng = np.random.default_rng(0)
    shapes = (*batch, rows, width), (*batch, others, width), (*batch, rows, others)
    x, y, d = (rng.standard_normal(shape).astype(dtype) for shape in shapes)
    attrs, tolerance = {**OF_ROWS, "alpha": alpha}, {"rtol": 0, "atol": 16 * np.finfo(dtype).eps * width}
    expected = find_kernel("matmul", "cpu").function(np, x, y, **attrs)
    function = offered("matmul", [x, y], **attrs)
    np.testing.assert_allclose(function(x, y), expected, **tolerance)
    out = np.empty_like(expected)
    assert function(x, y, out=out) is out
    np.testing.assert_allclose(out, expected, **tolerance)
    attrs["wanted"] = (True, True)
    expected = find_kernel("matmul_grad", "cpu").function(np, x, y, d, **attrs)
    function = offered("matmul_grad", [x, y, d], **attrs)
    for buffers in ((None, None), (np.empty_like(x), np.empty_like(y))):
        found = function(x, y, d, out=buffers)
        for each, value, buffer in zip(found, expected, buffers, strict=True):
            np.testing.assert_allclose(each, value, **tolerance)
            assert buffer is None or each is buffer


@pytest.mark.slow
def test_few_large_and_other_products_have_no_loop():
    def of(x, y, **attrs):
        return offered("matmul", [np.ones(x, "float32"), np.ones(y, "float32")], **{**OF_ROWS, "alpha": 1.0, **attrs})

    assert of((16, 1, 8), (16, 6, 8)) is not None
    assert of((15, 1, 8), (15, 6, 8)) is None
    assert of((16, 5, 8), (16, 5, 8)) is None
    assert of((16, 1, 6), (16, 6, 8), transpose_Y=False) is None
    assert of((1, 8), (6, 8)) is None
