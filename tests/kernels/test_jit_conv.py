"""Compiled convolutions against the shared kernels."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jit_support import few_pieces, needs_numba
from kernel_calls import array_type

from minigraph.errors import OpError
from minigraph.kernels import find_kernel, find_specializer

pytestmark = [pytest.mark.slow, pytest.mark.numbers, needs_numba, pytest.mark.usefixtures("always_compiled")]


def assert_close(found, expected, size):
    for x, y in zip(found, expected, strict=True):
        assert (x is None) == (y is None)
        if x is not None:
            assert (x.dtype, x.shape) == (y.dtype, y.shape)
            tolerance = 16 * np.finfo(x.dtype).eps * max(size, np.abs(y).max(initial=1))
            np.testing.assert_allclose(x, y, rtol=0, atol=tolerance)


def offered(type, inputs, **attrs):
    return find_specializer(type, jit=True)(np, *[x if x is None else array_type(x) for x in inputs], **attrs)


small = st.integers(1, 3)


@st.composite
def convolutions(draw, most=2):
    """Attributes with strides up to `most`, and shapes of images and filters, for a depthwise convolution."""
    channels, size = draw(st.integers(2, 4)), (draw(st.integers(1, 9)), draw(st.integers(1, 9)))
    attrs = {
        "strides": [draw(st.integers(1, most)), draw(st.integers(1, most))],
        "paddings": draw(st.lists(st.integers(0, 2), min_size=4, max_size=4)),
        "padding_algorithm": draw(st.sampled_from(["EXPLICIT", "SAME", "VALID"])),
        "dilations": [draw(st.integers(1, 2)), draw(st.integers(1, 2))],
        "groups": channels,
        "data_format": "NCHW",
    }
    return attrs, (draw(small), channels, *size), (channels * draw(small), 1, draw(st.integers(1, 4)), draw(small))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@given(convolutions(), st.booleans(), st.tuples(st.booleans(), st.booleans(), st.booleans()))
def test_a_depthwise_convolution_and_its_gradients_are_those_of_the_kernel(dtype, drawn, has_bias, wanted):
    assert_agrees(dtype, drawn, has_bias, wanted)


@st.composite
def grouped(draw):
    """The same for a convolution of a batch with a few groups, and windows of several elements."""
    attrs, (_, _, *size), _ = draw(convolutions(most=3))
    groups, each, filters = draw(small), draw(small), draw(small)
    shape = draw(st.integers(2, 9)), groups * each, *size
    return attrs | {"groups": groups}, shape, (groups * filters, each, draw(st.integers(2, 4)), draw(small))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@given(grouped(), st.booleans(), st.tuples(st.booleans(), st.booleans(), st.booleans()))
def test_a_convolution_of_few_windows_and_its_gradients_are_those_of_the_kernel(dtype, drawn, has_bias, wanted):
    assert_agrees(dtype, drawn, has_bias, wanted)


def assert_agrees(dtype, drawn, has_bias, wanted):
    attrs, shape, filters = drawn
    rng = np.random.default_rng(0)
    x, filter = rng.standard_normal(shape).astype(dtype), rng.standard_normal(filters).astype(dtype)
    bias = rng.standard_normal(len(filter)).astype(dtype) if has_bias else None
    try:
        expected = find_kernel("conv2d", "cpu").function(np, x, filter, bias, None, **attrs)
    except OpError:
        return  # no room for a window
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("minigraph.kernels.jit.threads.pieces", few_pieces(2))
        patch.setattr("minigraph.kernels.jit.conv._PLACES", 100)  # a few images at a time
        function = offered("conv2d", [x, filter, bias, None], **attrs)
        if function is None:
            return  # many windows
        size = np.prod(filters[1:])
        assert_close([function(x, filter, bias, None)], [expected], size)
        out = np.empty_like(expected)
        assert function(x, filter, bias, None, out=out) is out
        assert_close([out], [expected], size)
        d = rng.standard_normal(expected.shape).astype(dtype)
        gradients = find_kernel("conv2d_grad", "cpu").function(np, x, filter, bias, d, wanted=wanted, **attrs)
        function = offered("conv2d_grad", [x, filter, bias, d], wanted=wanted, **attrs)
        assert_close(function(x, filter, bias, d), gradients, d[:, 0].size)


def test_other_convolutions_have_no_loop():
    x, attrs = np.ones((1, 4, 5, 5), "float32"), {
        "strides": [1, 1], "paddings": [0, 0], "padding_algorithm": "EXPLICIT", "dilations": [1, 1], "groups": 4,
        "data_format": "NCHW",
    }  # fmt: skip
    filter = np.ones((4, 1, 3, 3), "float32")
    assert offered("conv2d", [x, filter, None, None], **attrs) is not None
    for other in ({"groups": 2}, {"groups": 1}, {"strides": [3, 2]}, {"data_format": "NHWC"}):
        assert offered("conv2d", [x, filter, None, None], **{**attrs, **other}) is None
