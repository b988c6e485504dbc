"""Convolution and pooling kernels on shapes that take every way through them, against exact sums of integers."""

import threading

import numpy as np
import pytest
from convolutions import convolved, integers

from minigraph.kernels import find_kernel
from minigraph.kernels.buffers import Scratch

pytestmark = pytest.mark.numbers

ATTRS = {"padding_algorithm": "EXPLICIT", "data_format": "NCHW"}
CASES = {
    # batch, channels, height, width, filters, filter height and width, strides, paddings, dilations, groups
    "long rows": (16, 3, 6, 9, 4, 3, 3, (1, 1), (1, 1, 1, 1), (1, 1), 1),
    "long rows in groups": (16, 4, 5, 8, 6, 2, 3, (1, 1), (0, 1, 2, 0), (1, 1), 2),
    "long rows, apart": (24, 2, 9, 12, 4, 3, 2, (2, 2), (1, 0, 0, 1), (2, 3), 1),
    "several pieces": (16, 16, 5, 13, 64, 3, 3, (1, 1), (0, 0, 0, 0), (1, 1), 1),
    "few wide images": (2, 2, 5, 99, 3, 3, 4, (1, 2), (1, 1, 2, 2), (1, 2), 1),
    "one wide image, apart": (1, 3, 7, 201, 3, 2, 3, (2, 2), (0, 0, 1, 1), (1, 1), 3),
    "one wide image": (1, 1, 4, 120, 2, 2, 3, (1, 1), (1, 0, 0, 1), (1, 1), 1),
    "short rows": (2, 3, 6, 5, 4, 3, 2, (1, 1), (1, 1, 1, 1), (1, 1), 1),
    "short rows, apart": (3, 2, 8, 9, 4, 3, 3, (3, 2), (1, 2, 0, 1), (2, 2), 2),
    "images of many windows": (2, 3, 10, 11, 4, 3, 3, (1, 1), (1, 1, 1, 1), (1, 1), 1),
    "fewer filters than channels": (2, 4, 10, 11, 3, 3, 2, (1, 1), (2, 0, 0, 1), (1, 2), 1),
    "fewer filters, padded beyond them": (2, 4, 5, 6, 2, 3, 2, (1, 1), (3, 0, 1, 2), (1, 1), 2),
    "small depthwise": (4, 5, 4, 3, 5, 3, 3, (1, 1), (1, 1, 1, 1), (1, 1), 5),
    "depthwise": (12, 6, 6, 10, 6, 3, 3, (1, 1), (1, 1, 1, 1), (1, 1), 6),
    "a row of a filter": (12, 2, 4, 12, 3, 1, 3, (1, 1), (0, 0, 1, 1), (1, 1), 1),
    "a column of a filter": (12, 2, 6, 9, 3, 3, 1, (1, 1), (1, 1, 0, 0), (1, 1), 1),
    "one element": (3, 4, 5, 6, 6, 1, 1, (1, 1), (0, 0, 0, 0), (1, 1), 2),
    "one element, images one by one": (3, 4, 9, 8, 2, 1, 1, (1, 1), (0, 0, 0, 0), (1, 1), 1),
    "one element, images one by one in groups": (2, 6, 9, 8, 4, 1, 1, (1, 1), (0, 0, 0, 0), (1, 1), 2),
    "one element, many filters": (2, 70, 9, 8, 80, 1, 1, (1, 1), (0, 0, 0, 0), (1, 1), 1),
    "one element, many filters and few windows": (5, 40, 2, 2, 48, 1, 1, (1, 1), (0, 0, 0, 0), (1, 1), 1),
    "one element of images of one": (6, 5, 1, 1, 7, 1, 1, (1, 1), (0, 0, 0, 0), (1, 1), 1),
    "one element, few windows": (16, 6, 4, 4, 5, 1, 1, (1, 1), (0, 0, 0, 0), (1, 1), 1),
    "one element, apart": (3, 4, 5, 6, 6, 1, 1, (2, 3), (0, 0, 0, 0), (1, 1), 2),
    "one element, padded": (3, 2, 5, 6, 3, 1, 1, (2, 2), (3, 1, 0, 5), (1, 1), 1),
    "one element, padded after": (3, 2, 5, 5, 3, 1, 1, (2, 2), (0, 4, 0, 4), (1, 1), 1),
    "windows beside the image": (3, 2, 1, 2, 3, 1, 1, (3, 3), (4, 4, 5, 2), (1, 1), 1),
}


def call(type, *arrays, **attrs):
    return find_kernel(type, "cpu").function(np, *arrays, **ATTRS | attrs)


def prepared(case, dtype, data_format):
    n, c, h, w, f, kh, kw, strides, paddings, dilations, groups = CASES[case]
    attrs = {"strides": strides, "paddings": paddings, "dilations": dilations, "groups": groups}
    images, filters = integers(n, c, h, w), integers(f, c // groups, kh, kw, seed=1)

    def reference(images, filters):
        return convolved(images, filters, strides, paddings, dilations, groups)

    def laid(images):
        return (images.transpose(0, 2, 3, 1) if data_format == "NHWC" else images).astype(dtype)

    return images, filters, reference, laid, {**attrs, "data_format": data_format}


@pytest.mark.laws
@pytest.mark.parametrize("data_format", ["NCHW", "NHWC"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("case", CASES)
def test_a_convolution_and_its_gradients_are_exact(case, dtype, data_format):
    images, filters, reference, laid, attrs = prepared(case, dtype, data_format)
    expected = reference(images, filters)
    bias = integers(len(filters), seed=2)
    found = call("conv2d", laid(images), filters.astype(dtype), None, None, **attrs)
    assert found.dtype == dtype and found.flags.c_contiguous
    assert np.array_equal(found, laid(expected))
    buffer = np.full_like(found, np.nan)
    found = call("conv2d", laid(images), filters.astype(dtype), bias.astype(dtype), None, **attrs, out=buffer)
    assert found is buffer and np.array_equal(found, laid(expected + bias[:, None, None]))

    # Both are linear maps, and the gradient is the transposed one: <conv(x, w), d> = <x, dX> = <w, dW>.
    d = integers(*expected.shape, seed=3)
    given = (laid(images), filters.astype(dtype), bias.astype(dtype), laid(d))
    d_x, d_filter, d_bias = call("conv2d_grad", *given, **attrs, wanted=(True, True, True))
    assert d_x.dtype == d_filter.dtype == dtype and d_x.flags.c_contiguous and d_filter.flags.c_contiguous
    assert np.array_equal(d_bias, d.sum((0, 2, 3)))
    for seed in (4, 5):
        other, filter = integers(*images.shape, seed=seed), integers(*filters.shape, seed=seed)
        assert np.vdot(laid(other).astype("float64"), d_x) == np.vdot(reference(other, filters), d)
        assert np.vdot(filter, d_filter) == np.vdot(reference(images, filter), d)
    for wanted in ((True, False, False), (False, True, False)):
        alone = call("conv2d_grad", *given, **attrs, wanted=wanted)
        for value, is_wanted, both in zip(alone, wanted, (d_x, d_filter, d_bias), strict=True):
            assert np.array_equal(value, both) if is_wanted else value is None


@pytest.mark.laws
@pytest.mark.parametrize("case", [case for case in CASES if "apart" not in case and "beside" not in case])
def test_a_transposed_convolution_is_the_transposed_map(case):
    images, filters, reference, _, attrs = prepared(case, "float64", "NCHW")
    d = integers(*reference(images, filters).shape, seed=3)
    spread = call("conv2d_transpose", d, filters, None, **attrs, output_size=list(images.shape[2:]))
    assert spread.shape == images.shape and spread.flags.c_contiguous
    for seed in (4, 5):
        other = integers(*images.shape, seed=seed)
        assert np.vdot(other, spread) == np.vdot(reference(other, filters), d)
    d_small, d_filter, _ = call(
        "conv2d_transpose_grad", d, filters, None, images, **attrs, output_size=list(images.shape[2:]),
        wanted=(True, True, False),
    )  # fmt: skip
    assert np.array_equal(d_small, reference(images, filters))
    filter = integers(*filters.shape, seed=6)
    assert np.vdot(filter, d_filter) == np.vdot(reference(images, filter), d)


def test_a_half_precision_convolution_is_computed_in_single_precision():
    images, filters, reference, laid, attrs = prepared("long rows", "float16", "NCHW")
    found = call("conv2d", laid(images), filters.astype("float16"), None, None, **attrs)
    assert found.dtype == np.float16 and np.array_equal(found, reference(images, filters).astype("float16"))


def test_results_are_no_memory_that_later_calls_write_to():
    images, filters, _, laid, attrs = prepared("long rows", "float32", "NCHW")
    first = call("conv2d", laid(images), filters.astype("float32"), None, None, **attrs)
    d_first = call("conv2d_grad", laid(images), filters.astype("float32"), None, first, **attrs, wanted=(1, 1, 0))
    before = [array.copy() for array in (first, *d_first[:2])]
    call("conv2d_grad", -laid(images), filters.astype("float32"), None, -first, **attrs, wanted=(1, 1, 0))
    call("pool2d", -laid(images), **POOL)
    assert all(np.array_equal(array, copy) for array, copy in zip((first, *d_first[:2]), before, strict=True))


def test_threads_do_not_share_what_they_compute_in_between():
    images, filters, reference, laid, attrs = prepared("long rows", "float32", "NCHW")
    expected = laid(reference(images, filters))
    wrong = []

    def work(sign):
        x = sign * laid(images)
        for _ in range(40):
            if not np.array_equal(call("conv2d", x, filters.astype("float32"), None, None, **attrs), sign * expected):
                wrong.append(sign)

    threads = [threading.Thread(target=work, args=(np.float32(sign),)) for sign in (1, -1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_scratch_arrays_do_not_overlap_and_are_aligned():
    scratch = Scratch(np)
    shapes = (3, 5), (0, 4), (70000,), (2, 2)
    arrays = [scratch.zeros(shape, dtype) for shape in shapes for dtype in ("float32", "float64", bool)]
    for i, array in enumerate(arrays):
        array.fill(i)
    assert all((array == bool(i) if array.dtype == bool else array == i).all() for i, array in enumerate(arrays))
    assert all(array.ctypes.data % 64 == 0 for array in arrays)
    again = Scratch(np)
    again.empty((70000,), "f8")
    assert again._block is Scratch._blocks.block  # the block has grown and is used again


def test_what_is_made_of_other_kernels_has_a_block_of_its_own():
    around = Scratch(np, around=True).zeros((1000,), "float32")
    Scratch(np).empty((1000,), "float32").fill(7)
    assert not around.any()
    assert Scratch(np, around=True).empty((10,), "float32").ctypes.data == around.ctypes.data  # and keeps it


POOL = {
    "pooling_type": "max", "ksize": [2, 2], "global_pooling": False, "strides": [2, 2], "paddings": [0, 0],
    "exclusive": True, "adaptive": False, "ceil_mode": False,
}  # fmt: skip


@pytest.mark.parametrize("data_format", ["NCHW", "NHWC"])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize(
    "attrs",
    [
        {}, {"ksize": [1, 1]}, {"ksize": [3, 2], "strides": [2, 1], "paddings": [1, 1]}, {"ksize": [1, 3]},
        {"ksize": [3, 1], "strides": [3, 4]}, {"ksize": [2, 2], "strides": [3, 3]},
        {"ksize": [2, 3], "strides": [2, 3], "ceil_mode": True}, {"ksize": [3, 3], "paddings": [1, 0, 2, 1]},
    ],
)  # fmt: skip
def test_the_greatest_and_the_first_that_is_it(attrs, dtype, data_format):
    attrs = {**POOL, **attrs}
    images = np.random.default_rng(0).integers(-3, 4, (2, 3, 7, 9)).astype(dtype)  # with many ties
    x = np.ascontiguousarray(images.transpose(0, 2, 3, 1)) if data_format == "NHWC" else images
    out = call("pool2d", x, **attrs, data_format=data_format)
    buffer = np.empty_like(out)
    assert call("pool2d", x, **attrs, data_format=data_format, out=buffer) is buffer
    assert np.array_equal(out, buffer) and out.flags.c_contiguous
    d = np.random.default_rng(1).integers(-9, 10, out.shape).astype(dtype)
    d_x = call("pool2d_grad", x, out, d, **attrs, data_format=data_format)

    pads = attrs["paddings"] if len(attrs["paddings"]) == 4 else [p for p in attrs["paddings"] for _ in (0, 1)]
    (kh, kw), (sh, sw) = attrs["ksize"], attrs["strides"]
    expected, d_expected = np.empty_like(channels_first(out, data_format)), np.zeros_like(images)
    for b, c, i, j in np.ndindex(expected.shape):
        places = [
            (y, z)
            for y in range(i * sh - pads[0], i * sh - pads[0] + kh)
            for z in range(j * sw - pads[2], j * sw - pads[2] + kw)
            if 0 <= y < 7 and 0 <= z < 9
        ]
        first = max(places, key=lambda place: images[b, c, place[0], place[1]])
        expected[b, c, i, j] = images[b, c, first[0], first[1]]
        d_expected[b, c, first[0], first[1]] += channels_first(d, data_format)[b, c, i, j]
    assert np.array_equal(channels_first(out, data_format), expected)
    assert np.array_equal(channels_first(d_x, data_format), d_expected)


def channels_first(x, data_format):
    return x.transpose(0, 3, 1, 2) if data_format == "NHWC" else x


@pytest.mark.parametrize("strides", [[2, 2], [1, 1]])
def test_an_infinite_gradient_goes_to_one_element_only(strides):
    images = np.arange(16.0).reshape(1, 1, 4, 4)
    attrs = {**POOL, "strides": strides}
    out = call("pool2d", images, **attrs)
    d_x = call("pool2d_grad", images, out, np.full_like(out, np.inf), **attrs)
    chosen = np.isin(images, out)
    assert np.isposinf(d_x[chosen]).all() and (d_x[~chosen] == 0).all() and not np.signbit(d_x).any()
