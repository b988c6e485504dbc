"""Convolutions at computed places: those of a convolution, steps larger than a batch, bad arguments."""

import numpy as np
import pytest

import minigraph as fluid
from minigraph import layers
from minigraph.errors import OpError, ProgramError

pytestmark = pytest.mark.usefixtures("new_program")


def run(*fetches, **feed):
    executor = fluid.Executor()
    executor.run(fluid.default_startup_program())
    return executor.run(feed=feed, fetch_list=list(fetches))


def test_without_offsets_it_is_a_convolution():
    x, offset = fluid.data("x", [None, 2, 5, 6]), fluid.data("o", [None, 18, 3, 3])
    attr = fluid.ParamAttr("w")
    mask = layers.fill_constant_batch_size_like(x, [-1, 9, 3, 3], "float32", 1.0)
    args = {"stride": 2, "padding": 1, "param_attr": attr, "bias_attr": False}
    found = run(
        layers.conv2d(x, 4, 3, **args), layers.deformable_conv(x, offset, mask, 4, 3, **args),
        layers.deformable_conv(x, offset, None, 4, 3, modulated=False, **args),
        x=np.random.default_rng(1).standard_normal((3, 2, 5, 6)).astype("float32"),
        o=np.zeros((3, 18, 3, 3), "float32"),
    )  # fmt: skip
    np.testing.assert_allclose(found[1], found[0], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(found[2], found[0], rtol=1e-4, atol=1e-6)


def test_places_lie_between_elements_and_outside_are_zeros():
    x, offset = fluid.data("x", [None, 1, 2, 2]), fluid.data("o", [None, 2, 2, 2])
    one = fluid.ParamAttr("w", fluid.initializer.Constant(1.0))
    moved = np.zeros((1, 2, 2, 2), "float32")
    moved[0, 0, 0], moved[0, 1, :, 1] = 0.5, 0.25
    (found,) = run(
        layers.deformable_conv(x, offset, None, 1, 1, modulated=False, param_attr=one, bias_attr=False),
        x=np.array([[[[0, 4], [8, 16]]]], "float32"), o=moved,
    )  # fmt: skip
    np.testing.assert_allclose(found[0, 0], [[4, 7.5], [8, 12]])


def test_a_batch_may_be_smaller_than_the_step():
    x, offset = fluid.data("x", [None, 1, 2, 2]), fluid.data("o", [None, 2, 2, 2])
    one = fluid.ParamAttr("w", fluid.initializer.Constant(2.0))
    args = {"modulated": False, "param_attr": one, "bias_attr": False, "im2col_step": 64}
    array = np.arange(12, dtype="float32").reshape(3, 1, 2, 2)
    feed = {"x": array, "o": np.zeros((3, 2, 2, 2), "float32")}
    (found,) = run(layers.deformable_conv(x, offset, None, 1, 1, **args), **feed)
    np.testing.assert_array_equal(found, 2 * array)


def test_shapes_that_do_not_fit_are_named():
    x, offset = fluid.data("x", [None, 4, 5, 5]), fluid.data("o", [None, 18, 3, 3])
    mask = fluid.data("m", [None, 9, 3, 3])
    for call, message in (
        (lambda: layers.deformable_conv(x, offset, None, 4, 3), "mask is missing, with modulated=True"),
        (lambda: layers.deformable_conv(x, offset, mask, 4, 3, modulated=False), "mask is given, with modulated=False"),
        (lambda: layers.deformable_conv(x, mask, mask, 4, 3), r"Offset must have shape \[-1, 18, 3, 3\]"),
        (lambda: layers.deformable_conv(x, offset, offset, 4, 3), r"Mask must have shape \[-1, 9, 3, 3\]"),
        (lambda: layers.deformable_conv(x, offset, mask, 4, 3, deformable_groups=3), "do not go with groups=1"),
    ):
        with pytest.raises(OpError, match=message):
            call()
    with pytest.raises(ProgramError, match="cannot be split into 3 groups"):
        layers.deformable_conv(x, offset, mask, 4, 3, groups=3)
